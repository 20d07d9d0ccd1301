/*
 * fast_pair.cu - fast_few.cu where items are few: two CTAs share one. Same bits.
 */
#define CLUSTER __cluster_dims__(2)
#include "cuda/fast_kernel.cuh"

template <int SCORES>
using tiles_64 = tiles<SCORES, 64, PH_FAST_ROWS_FEW, 2, 12, 12, 0, 0, 1>;
template <int SCORES>
using tiles_128 = tiles<SCORES, 128, PH_FAST_ROWS_FEW, 2, 6, 6, 0, 0, 1>;
template <int SCORES>
using tiles_256 = tiles<SCORES, 256, PH_FAST_ROWS_FEW, 2, 6, 6, 0, 0, 1>;

KERNELS(ph_fast_pair, PH_SCORES_ANY)
