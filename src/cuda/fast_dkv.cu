/*
 * fast_dkv.cu - dk and dv of 16-bit tensors on tensor cores: tiles of keys walk over the
 * rows of all heads that share them.
 */
#include "cuda/fast_grad.cuh"

template <int DROPS> using tiles_64 = grad_tiles<DROPS, 1, 64, 64, 4, 40, 232>;
template <int DROPS> using tiles_128 = grad_tiles<DROPS, 1, 128, 64, 3, 32, 240>;

GRAD_KERNELS(ph_fast_dkv, 0)
GRAD_KERNELS(ph_fast_dkv_dropout, 1)
