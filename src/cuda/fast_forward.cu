/*
 * fast_forward.cu - the forward pass of 16-bit tensors on tensor cores: an item is a tile
 * of rows of one head, with all keys they see.
 */
#include "cuda/fast_kernel.cuh"

typedef tiles<64, PH_FAST_ROWS_64 / 64, 1, 2, 2, 32, 160> tiles_64;
typedef tiles<128, PH_FAST_ROWS / 64, 1, 2, 2, 40, 232> tiles_128;
typedef tiles<256, PH_FAST_ROWS / 64, 1, 2, 2, 40, 232> tiles_256;

KERNEL(ph_fast_forward_64_f16, tiles_64, f16_tag)
KERNEL(ph_fast_forward_64_bf16, tiles_64, bf16_tag)
KERNEL(ph_fast_forward_128_f16, tiles_128, f16_tag)
KERNEL(ph_fast_forward_128_bf16, tiles_128, bf16_tag)
KERNEL(ph_fast_forward_256_f16, tiles_256, f16_tag)
KERNEL(ph_fast_forward_256_bf16, tiles_256, bf16_tag)
