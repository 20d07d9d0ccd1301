/*
 * fast_dkv.cu - dk and dv of 16-bit tensors on tensor cores: tiles of keys walk over the
 * rows of all heads that share them.
 */
#include "cuda/fast_grad.cuh"

using tiles_64 = grad_tiles<1, 64, 64, 4, 40, 232>;
using tiles_128 = grad_tiles<1, 128, 64, 3, 32, 240>;

GRAD_KERNEL(ph_fast_dkv_64_f16, tiles_64, f16_tag)
GRAD_KERNEL(ph_fast_dkv_64_bf16, tiles_64, bf16_tag)
GRAD_KERNEL(ph_fast_dkv_128_f16, tiles_128, f16_tag)
GRAD_KERNEL(ph_fast_dkv_128_bf16, tiles_128, bf16_tag)
