/*
 * fast_dq.cu - dq of 16-bit tensors on tensor cores: tiles of rows walk over keys.
 */
#include "cuda/fast_grad.cuh"

using tiles_64 = grad_tiles<0, 64, 128, 3, 40, 232>;
using tiles_128 = grad_tiles<0, 128, 128, 2, 40, 232>;

GRAD_KERNEL(ph_fast_dq_64_f16, tiles_64, f16_tag)
GRAD_KERNEL(ph_fast_dq_64_bf16, tiles_64, bf16_tag)
GRAD_KERNEL(ph_fast_dq_128_f16, tiles_128, f16_tag)
GRAD_KERNEL(ph_fast_dq_128_bf16, tiles_128, bf16_tag)
