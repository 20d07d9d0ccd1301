/*
 * fast_decode.cu - scores of scale and positions alone.
 */
#include "cuda/fast_decode.cuh"

KERNELS(ph_fast_decode, PH_SCORES_PLAIN)
