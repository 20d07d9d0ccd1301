/*
 * fast_gathered.cuh - the tiles of fast_forward.cuh where rows have gates of their own: a
 * tile holds rows of the list that gather_rows.cu made, so that those with a gate of 0
 * cost nothing. Threads store the rows, each to its own place.
 */
#ifndef PH_CUDA_FAST_GATHERED_CUH
#define PH_CUDA_FAST_GATHERED_CUH

#include "cuda/fast_kernel.cuh"

template <int SCORES>
using tiles_64 = tiles<SCORES, 64, PH_FAST_ROWS_64, 1, 4, 4, 32, 160, 0, 0, 1>;
template <int SCORES>
using tiles_128 = tiles<SCORES, 128, PH_FAST_ROWS, 1, 2, 2, 40, 232, 0, 0, 1>;
template <int SCORES>
using tiles_256 = tiles<SCORES, 256, PH_FAST_ROWS, 1, 2, 3, 40, 232, 0, 0, 1>;

#endif
