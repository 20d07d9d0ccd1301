/*
 * fast_decode_softcap.cu - soft-capped scores.
 */
#include "cuda/fast_decode.cuh"

KERNELS(ph_fast_decode_softcap, PH_SCORES_SOFTCAP)
