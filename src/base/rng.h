/*
 * rng.h - counter-based random numbers: no state, so any of them can be computed
 * anywhere.
 *
 * ph_rng_key turns a seed and up to three coordinates into a 64-bit key (splitmix64
 * steps); ph_rng_at(key, n) is the n-th 32-bit number of that key. The second function is
 * cheap enough for the inner loop of dropout and uses only 32-bit multiplications, shifts
 * and exclusive ors, so vectors and accelerators give the same bits.
 */
#ifndef PH_BASE_RNG_H
#define PH_BASE_RNG_H

#include <stdint.h>

#ifdef __CUDACC__ /* kernels include this file too */
#define PH_RNG static __device__ inline
#else
#define PH_RNG static inline
#endif

PH_RNG uint64_t ph_rng_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

PH_RNG uint64_t ph_rng_key(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t key = ph_rng_mix(seed + 0x9e3779b97f4a7c15u);
    key = ph_rng_mix(key + a + 0x9e3779b97f4a7c15u);
    key = ph_rng_mix(key + b + 0x9e3779b97f4a7c15u);
    return ph_rng_mix(key + c + 0x9e3779b97f4a7c15u);
}

PH_RNG uint32_t ph_rng_at(uint64_t key, uint32_t n)
{
    uint32_t x = n * 0x9e3779b9u + (uint32_t)key;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16) ^ (uint32_t)(key >> 32);
}

#endif
