/*
 * fast_few_softcap.cu - soft-capped scores.
 */
#include "cuda/fast_few.cuh"

KERNELS(ph_fast_few_softcap, PH_SCORES_SOFTCAP)
