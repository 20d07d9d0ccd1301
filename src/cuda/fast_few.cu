/*
 * fast_few.cu - decoding where all rows fit one tile of a warp. Bits are those of
 * fast_forward.cuh.
 */
#define CLUSTER __cluster_dims__(1) /* messages are sent within a cluster only */
#include "cuda/fast_kernel.cuh"

template <int SCORES> using tiles_64 = tiles<SCORES, 64, PH_FAST_ROWS_FEW, 2, 6, 6, 0, 0>;
template <int SCORES>
using tiles_128 = tiles<SCORES, 128, PH_FAST_ROWS_FEW, 2, 3, 3, 0, 0>;
template <int SCORES>
using tiles_256 = tiles<SCORES, 256, PH_FAST_ROWS_FEW, 2, 3, 3, 0, 0>;

KERNELS(ph_fast_few, PH_SCORES_ANY)
