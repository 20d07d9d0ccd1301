/*
 * fast_gathered_softcap.cu - soft-capped scores of gathered rows. At d 64 two consumers
 * share a tile: three would spill registers.
 */
#include "cuda/fast_gathered.cuh"

template <int SCORES>
using tiles_64_two = tiles<SCORES, 64, PH_FAST_ROWS, 1, 4, 4, 40, 232, 0, 0, 1>;

KERNEL(ph_fast_gathered_softcap_64_f16, tiles_64_two<PH_SCORES_SOFTCAP>, f16_tag)
KERNEL(ph_fast_gathered_softcap_64_bf16, tiles_64_two<PH_SCORES_SOFTCAP>, bf16_tag)
KERNELS_WIDE(ph_fast_gathered_softcap, PH_SCORES_SOFTCAP)
