/*
 * fast_forward_dropout.cu - dropped weights; head dims above 128 would spill registers.
 */
#include "cuda/fast_forward.cuh"

KERNELS_128(ph_fast_forward_dropout, PH_SCORES_DROPOUT)
