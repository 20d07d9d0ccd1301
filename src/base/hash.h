/*
 * hash.h - a 64-bit hash of bytes: tells a damaged or edited file from the one that was
 * written. Fast rather than cryptographic, and it assumes little-endian words.
 */
#ifndef PH_BASE_HASH_H
#define PH_BASE_HASH_H

#include <string.h>

#include "base/rng.h"

/* Hash of the bytes, chained to h, the hash of what came before them. */
static inline uint64_t ph_hash_bytes(uint64_t h, const void *bytes, size_t count)
{
    const unsigned char *b = bytes;
    uint64_t word;
    for (; count >= 8; b += 8, count -= 8) {
        memcpy(&word, b, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    word = count;
    memcpy(&word, b, count);
    return ph_rng_mix(h ^ word ^ (uint64_t)count << 56);
}

#endif
