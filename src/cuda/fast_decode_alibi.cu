/*
 * fast_decode_alibi.cu - ALiBi.
 */
#include "cuda/fast_decode.cuh"

KERNELS(ph_fast_decode_alibi, PH_SCORES_ALIBI)
