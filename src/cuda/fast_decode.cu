/*
 * fast_decode.cu - the same for few rows: an item is one split of the keys and all rows
 * that share them, the query heads of a group included, so that keys and values are read
 * once and by all SMs. Bits are those of fast_forward.cu.
 */
#include "cuda/fast_kernel.cuh"

typedef tiles<64, 1, 2, 6, 6, 0, 0> tiles_64;
typedef tiles<128, 1, 1, 3, 3, 0, 0> tiles_128;
typedef tiles<256, 1, 1, 3, 3, 0, 0> tiles_256;

KERNEL(ph_fast_decode_64_f16, tiles_64, f16_tag)
KERNEL(ph_fast_decode_64_bf16, tiles_64, bf16_tag)
KERNEL(ph_fast_decode_128_f16, tiles_128, f16_tag)
KERNEL(ph_fast_decode_128_bf16, tiles_128, bf16_tag)
KERNEL(ph_fast_decode_256_f16, tiles_256, f16_tag)
KERNEL(ph_fast_decode_256_bf16, tiles_256, bf16_tag)
