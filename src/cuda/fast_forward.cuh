/*
 * fast_forward.cuh - the forward pass of 16-bit tensors on tensor cores: an item is a tile
 * of rows of one head, with all keys they see.
 */
#ifndef PH_CUDA_FAST_FORWARD_CUH
#define PH_CUDA_FAST_FORWARD_CUH

#include "cuda/fast_kernel.cuh"

template <int SCORES>
using tiles_64 = tiles<SCORES, 64, PH_FAST_ROWS_64, 1, 4, 4, 32, 160>;
template <int SCORES>
using tiles_128 = tiles<SCORES, 128, PH_FAST_ROWS, 1, 2, 2, 40, 232>;
template <int SCORES>
using tiles_256 = tiles<SCORES, 256, PH_FAST_ROWS, 1, 2, 3, 40, 232>;

#endif
