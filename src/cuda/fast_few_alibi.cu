/*
 * fast_few_alibi.cu - ALiBi.
 */
#include "cuda/fast_few.cuh"

KERNELS(ph_fast_few_alibi, PH_SCORES_ALIBI)
