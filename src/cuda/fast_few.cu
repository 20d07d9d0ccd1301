/*
 * fast_few.cu - scores of scale and positions alone.
 */
#include "cuda/fast_few.cuh"

KERNELS(ph_fast_few, PH_SCORES_PLAIN)
