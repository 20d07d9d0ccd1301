/*
 * fast_gathered_dropout.cu - dropped weights.
 */
#include "cuda/fast_gathered.cuh"

KERNELS(ph_fast_gathered_dropout, PH_SCORES_DROPOUT)
