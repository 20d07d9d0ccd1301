/*
 * fast_short.cu - short sequences of small heads, where tiles have few blocks and the
 * ends of tiles count: each consumer walks items of 64 rows of its own, so that one's
 * ends run under the others' blocks, and none visits blocks that its rows do not see.
 * Keys and values are copied three times as often. Bits are those of fast_forward.cuh.
 */
#include "cuda/fast_kernel.cuh"

using tiles_short = tiles<PH_SCORES_PLAIN, 64, PH_FAST_ROWS_STREAM, 1, 2, 2, 32, 160, 0,
                          PH_FAST_STREAMS>;

KERNEL(ph_fast_short_64_f16, tiles_short, f16_tag)
KERNEL(ph_fast_short_64_bf16, tiles_short, bf16_tag)
