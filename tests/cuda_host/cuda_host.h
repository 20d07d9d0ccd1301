/*
 * cuda_host.h - as much CUDA as the kernels in src/cuda use, for a C++ compiler of the
 * host: cuda_host.cpp runs the threads of a cluster as fibers on one thread.
 */
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "base/half.h"

#define __host__
#define __device__
#define __global__
#define __shared__      static /* one block of the plain kernels runs at a time */
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct __half {
    uint16_t bits;
};
struct __half2 {
    uint16_t low, high;
};
struct __nv_bfloat16 {
    uint16_t bits;
};
struct __nv_bfloat162 {
    uint16_t low, high;
};

extern uint3 threadIdx, blockIdx, gridDim; /* of the fiber that runs */

/* ---- fibers ---- */

/* Waits until the word is another than now; whoever changes such a word says so. */
void cuda_host_wait(const uint32_t *word);
void cuda_host_changed();

/* Waits for all threads of a warp, of the block (-1), or of the cluster (-2). */
void cuda_host_barrier(int warp);

/* One of two places for each thread to tell the others something: they change with every
   barrier of the warp, or (-1) block, so that nobody writes one that is still read. */
uint64_t *cuda_host_slots(int warp);

/* A barrier by number: `count` threads meet there, of which some do not stay. */
void cuda_host_named(int id, int count, int stays);

/* The hardware does it when it likes: at some time before all fibers wait for it. */
void cuda_host_later(std::function<void()> action);

/* The CTA of this thread in its cluster, and the dynamic shared memory of any of them. */
int cuda_host_rank();
char *cuda_host_shared(int rank);

/* What thread `from` of the block, in the same warp, has as x. */
template <class X> X cuda_host_exchange(X x, int from)
{
    const int warp = threadIdx.x / 32;
    uint64_t *slots = cuda_host_slots(warp);
    std::memcpy(&slots[threadIdx.x], &x, sizeof x);
    cuda_host_barrier(warp);
    std::memcpy(&x, &slots[from], sizeof x);
    return x;
}

/* ---- CUDA ---- */

template <class A, class B> typename std::common_type<A, B>::type min(A a, B b)
{
    return a < b ? a : b;
}

template <class A, class B> typename std::common_type<A, B>::type max(A a, B b)
{
    return a > b ? a : b;
}

using std::isfinite;

inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

inline float2 make_float2(float x, float y)
{
    return {x, y};
}

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

inline uint32_t __float_as_uint(float x)
{
    return ph_bits(x);
}

inline int __float_as_int(float x)
{
    return (int)ph_bits(x);
}

inline float __uint_as_float(uint32_t x)
{
    return ph_float(x);
}

inline float __int_as_float(int x)
{
    return ph_float((uint32_t)x);
}

inline float __fadd_rn(float a, float b)
{
    return a + b;
}

inline float __fsub_rn(float a, float b)
{
    return a - b;
}

inline float __fmul_rn(float a, float b)
{
    return a * b;
}

inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

inline float __fmaf_rn(float a, float b, float c)
{
    return std::fma(a, b, c);
}

inline float __half2float(__half x)
{
    return ph_from_f16(x.bits);
}

inline float __bfloat162float(__nv_bfloat16 x)
{
    return ph_from_bf16(x.bits);
}

inline __half __float2half_rn(float x)
{
    return {ph_to_f16(x)};
}

inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return {ph_to_bf16(x)};
}

inline float2 __half22float2(__half2 x)
{
    return {ph_from_f16(x.low), ph_from_f16(x.high)};
}

inline float2 __bfloat1622float2(__nv_bfloat162 x)
{
    return {ph_from_bf16(x.low), ph_from_bf16(x.high)};
}

/* All ones in each half where both have the same. */
inline uint32_t __vcmpeq2(uint32_t a, uint32_t b)
{
    return ((a ^ b) & 0xffff ? 0 : 0xffff) | ((a ^ b) >> 16 ? 0 : 0xffff0000u);
}

template <class X> X __ldg(const X *x)
{
    return *x;
}

template <class X> X __ldcg(const X *x)
{
    return *x;
}

inline unsigned atomicAdd(unsigned *x, unsigned y)
{
    unsigned before = *x;
    *x += y;
    return before;
}

inline void __threadfence_block() {}

inline void __syncthreads()
{
    cuda_host_barrier(-1);
}

inline void __syncwarp()
{
    cuda_host_barrier(threadIdx.x / 32);
}

/* Whether x is not 0 in one of the `count` threads from `first` on. */
inline int cuda_host_any(int warp, int first, int count, int x)
{
    uint64_t *slots = cuda_host_slots(warp);
    slots[threadIdx.x] = x != 0;
    cuda_host_barrier(warp);
    for (int t = first; t < first + count; t++)
        if (slots[t]) return 1;
    return 0;
}

inline int __any_sync(unsigned, int x)
{
    int warp = threadIdx.x / 32;
    return cuda_host_any(warp, warp * 32, 32, x);
}

inline int __all_sync(unsigned mask, int x)
{
    return !__any_sync(mask, !x);
}

inline unsigned __ballot_sync(unsigned, int x)
{
    const int warp = threadIdx.x / 32;
    uint64_t *slots = cuda_host_slots(warp);
    unsigned bits = 0;
    slots[threadIdx.x] = x != 0;
    cuda_host_barrier(warp);
    for (int lane = 0; lane < 32; lane++)
        bits |= (unsigned)slots[warp * 32 + lane] << lane;
    return bits;
}

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

inline int __syncthreads_or(int x)
{
    return cuda_host_any(-1, 0, 256, x);
}

/* Lanes of groups of `width`. */
template <class X> X __shfl_sync(unsigned, X x, int lane, int width = 32)
{
    return cuda_host_exchange(x, (int)threadIdx.x / width * width + lane % width);
}

template <class X> X __shfl_xor_sync(unsigned, X x, int lane)
{
    return cuda_host_exchange(x, (int)threadIdx.x ^ lane);
}

template <class X> X __shfl_up_sync(unsigned, X x, int by, int width = 32)
{
    return cuda_host_exchange(x, (int)threadIdx.x -
                                     ((int)threadIdx.x % width >= by ? by : 0));
}
