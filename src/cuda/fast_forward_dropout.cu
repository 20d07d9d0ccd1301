/*
 * fast_forward_dropout.cu - dropped weights.
 */
#include "cuda/fast_forward.cuh"

KERNELS(ph_fast_forward_dropout, PH_SCORES_DROPOUT)
