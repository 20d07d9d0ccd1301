/*
 * fast_decode.cu - the forward pass of few rows: an item is one split of the keys and all
 * rows that share them, the query heads of a group included, so that keys and values are
 * read once and by all SMs. Bits are those of fast_forward.cuh.
 */
#include "cuda/fast_kernel.cuh"

template <int SCORES>
using tiles_64 = tiles<SCORES, 64, PH_FAST_ROWS_DECODE, 2, 6, 6, 0, 0>;
template <int SCORES>
using tiles_128 = tiles<SCORES, 128, PH_FAST_ROWS_DECODE, 1, 3, 3, 0, 0>;
template <int SCORES>
using tiles_256 = tiles<SCORES, 256, PH_FAST_ROWS_DECODE, 1, 3, 3, 0, 0>;

KERNELS(ph_fast_decode, PH_SCORES_ANY)
