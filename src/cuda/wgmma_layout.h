/*
 * wgmma_layout.h - where tensor copies put elements and where wgmma looks for them, as
 * formulas for kernels and for test_hopper, which checks them against each other.
 *
 * A panel is 64 columns of 16 bits, 128 bytes a row. The copy engine and wgmma both
 * swizzle addresses: the 16-byte piece within a row is exchanged by the row modulo 8.
 */
#ifndef PH_CUDA_WGMMA_LAYOUT_H
#define PH_CUDA_WGMMA_LAYOUT_H

#include <stdint.h>

#ifdef __CUDACC__
#define PH_BOTH     static __host__ __device__ __forceinline__
#else
#define PH_BOTH static inline
#endif

enum {
    PH_LINE = 128,         /* bytes of a row of a panel */
    PH_ATOM = 8 * PH_LINE, /* bytes of 8 rows: the unit of the swizzle */
    PH_WARPGROUP = 128,    /* threads */
    PH_DEPTH = 16          /* terms that one product adds up */
};

/* Where byte `at` of a panel lies, counted from an address aligned to PH_ATOM. */
PH_BOTH uint32_t ph_swizzled(uint32_t at)
{
    return at ^ (at >> 3 & 0x70);
}

/* An operand in shared memory as the lower half of a descriptor; `lead` are the bytes
   between panels of an MN-major operand. Further on in the same tensor a descriptor is
   only an addition. */
PH_BOTH uint32_t ph_wgmma_operand(uint32_t address, uint32_t lead)
{
    return (address & 0x3ffff) >> 4 | (lead >> 4) << 16;
}

/* The descriptor: 128-byte swizzle, 8 rows are PH_ATOM bytes. */
PH_BOTH uint64_t ph_wgmma_descriptor(uint32_t operand, uint32_t bytes_on)
{
    return (uint64_t)(1u << 30 | PH_ATOM >> 4) << 32 | (operand + (bytes_on >> 4));
}

/* Bytes to terms 16 x to 16 x + 15 of a K-major operand of so many rows. */
PH_BOTH uint32_t ph_k_major_step(int x, int rows)
{
    return (uint32_t)(x / 4 * rows * PH_LINE + x % 4 * 32);
}

/* The same in an MN-major operand: terms are rows there. */
PH_BOTH uint32_t ph_mn_major_step(int x)
{
    return (uint32_t)(x * 2 * PH_ATOM);
}

/* Which row of 64 element x of a thread's accumulator belongs to, and which column. As
   the A operand of the next product, elements 2y and 2y + 1 are register y. */
PH_BOTH int ph_fragment_row(int thread, int x)
{
    return thread / 32 * 16 + thread % 32 / 4 + x / 2 % 2 * 8;
}

PH_BOTH int ph_fragment_column(int thread, int x)
{
    return x / 4 * 8 + thread % 4 * 2 + x % 2;
}

#endif
