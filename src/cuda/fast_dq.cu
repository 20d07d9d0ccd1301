/*
 * fast_dq.cu - dq of 16-bit tensors on tensor cores: tiles of rows walk over keys.
 */
#include "cuda/fast_grad.cuh"

template <int SCORES> using tiles_64 = grad_tiles<SCORES, 0, 64, 128, 3>;
template <int SCORES> using tiles_128 = grad_tiles<SCORES, 0, 128, 128, 2>;
template <int SCORES>
using tiles_256 = grad_tiles<SCORES, 0, 256, PH_FAST_BLOCK_GRAD_256, 3>;

GRAD_KERNELS(ph_fast_dq, PH_SCORES_PLAIN)
GRAD_KERNELS(ph_fast_dq_any, PH_SCORES_ANY)
GRAD_KERNELS(ph_fast_dq_dropout, PH_SCORES_DROPOUT)
