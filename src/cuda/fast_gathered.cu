/*
 * fast_gathered.cu - scores of scale and positions alone.
 */
#include "cuda/fast_gathered.cuh"

KERNELS(ph_fast_gathered, PH_SCORES_PLAIN)
