/*
 * fast_clean.cuh - NaN and Inf taken out of 16-bit operands in shared memory: 0 times them
 * is NaN, and would reach sums that do not see their row.
 */
#ifndef PH_CUDA_FAST_CLEAN_CUH
#define PH_CUDA_FAST_CLEAN_CUH

#include "cuda/hopper.cuh"

/* The exponent bits of two elements, all set where one is NaN or Inf, and the lowest. */
DEVICE uint32_t exponents(bf16_tag)
{
    return 0x7f807f80;
}

DEVICE uint32_t exponents(f16_tag)
{
    return 0x7c007c00;
}

DEVICE uint32_t lowest(bf16_tag)
{
    return 0x00800080;
}

DEVICE uint32_t lowest(f16_tag)
{
    return 0x04000400;
}

/* Bits 15 and 31 are set where an element is not finite: its exponent overflows. */
template <class TYPE> DEVICE uint32_t overflow(TYPE type, uint32_t pair)
{
    return (pair & exponents(type)) + lowest(type);
}

template <class TYPE> DEVICE uint32_t overflow(TYPE type, uint4 x)
{
    return overflow(type, x.x) | overflow(type, x.y) | overflow(type, x.z) |
           overflow(type, x.w);
}

/* A pair with 0 for elements that are not finite. */
template <class TYPE> DEVICE uint32_t cleaned(TYPE type, uint32_t pair)
{
    return pair & ~__vcmpeq2(pair & exponents(type), exponents(type));
}

enum { CLEAN_AT_ONCE = 4 }; /* pieces of 16 bytes a thread looks at together */

/* Puts 0 where an element of an operand of ROWS rows is not finite, and says which row that
   is. One of THREADS. */
template <int THREADS, int ROWS, class TYPE, class FOUND>
DEVICE void clean_rows(TYPE type, uint32_t at, int bytes, int thread, FOUND found)
{
    for (int first = thread; first < bytes / 16; first += CLEAN_AT_ONCE * THREADS) {
        uint32_t any = 0;
#pragma unroll
        for (int i = 0; i < CLEAN_AT_ONCE; i++)
            any |= overflow(type, load_piece(at + 16 * (first + i * THREADS)));
        if (!(any & 0x80008000)) continue;
        for (int i = 0; i < CLEAN_AT_ONCE; i++) {
            const int piece = first + i * THREADS;
            const uint4 x = load_piece(at + 16 * piece);
            if (!(overflow(type, x) & 0x80008000)) continue;
            store_piece(at + 16 * piece,
                        make_uint4(cleaned(type, x.x), cleaned(type, x.y),
                                   cleaned(type, x.z), cleaned(type, x.w)));
            found(piece / (PH_LINE / 16) % ROWS);
        }
    }
}

#endif
