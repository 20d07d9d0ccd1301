/*
 * fast_forward_alibi.cu - ALiBi.
 */
#include "cuda/fast_forward.cuh"

KERNELS(ph_fast_forward_alibi, PH_SCORES_ALIBI)
