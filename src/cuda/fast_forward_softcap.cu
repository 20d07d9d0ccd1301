/*
 * fast_forward_softcap.cu - soft-capped scores.
 */
#include "cuda/fast_forward.cuh"

KERNELS(ph_fast_forward_softcap, PH_SCORES_SOFTCAP)
