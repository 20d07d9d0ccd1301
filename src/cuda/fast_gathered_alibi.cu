/*
 * fast_gathered_alibi.cu - ALiBi.
 */
#include "cuda/fast_gathered.cuh"

KERNELS(ph_fast_gathered_alibi, PH_SCORES_ALIBI)
