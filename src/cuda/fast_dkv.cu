/*
 * fast_dkv.cu - dk and dv of 16-bit tensors on tensor cores: tiles of keys walk over the
 * rows of all heads that share them.
 */
#include "cuda/fast_grad.cuh"

template <int SCORES> using tiles_64 = grad_tiles<SCORES, 1, 64, 64, 4>;
template <int SCORES> using tiles_128 = grad_tiles<SCORES, 1, 128, 64, 3>;
template <int SCORES> using tiles_256 = grad_tiles<SCORES, 1, 256, 64, 2>;

GRAD_KERNELS(ph_fast_dkv, PH_SCORES_PLAIN)
GRAD_KERNELS(ph_fast_dkv_any, PH_SCORES_ANY)
GRAD_KERNELS(ph_fast_dkv_dropout, PH_SCORES_DROPOUT)
