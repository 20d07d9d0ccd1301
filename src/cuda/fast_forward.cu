/*
 * fast_forward.cu - scores of scale and positions alone.
 */
#include "cuda/fast_forward.cuh"

KERNELS(ph_fast_forward, PH_SCORES_PLAIN)
