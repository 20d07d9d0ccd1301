/*
 * fast_launch.c - see fast_launch.h.
 *
 * Tensors are read through tensor maps: rank 4, {dim, time, head, batch}, in boxes of 64
 * columns by the rows of a tile. The copy engine wants addresses and strides in multiples
 * of 16 bytes; other layouts take the plain kernels.
 */
#include "cuda/fast_launch.h"

#include <string.h>

enum {
    FAST_DIM = 128,            /* the largest head dim */
    BOX_COLUMNS = PH_LINE / 2, /* 16-bit elements */
    SECTION_BYTES = 32 << 20,  /* of K and V that stay in the L2 cache together */
    ITEMS_MAX = 1 << 30,
    MAP_ALIGN = 16
};

int ph_cuda_fast_plan(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int dim = ph_max(a->qk_dim, a->v_dim);
    int whole = a->qk_dim % 8 == 0 && a->v_dim % 8 == 0; /* packed rows of 16 bytes */
    int empty = a->batch < 1 || a->q_len < 1 || a->kv_len < 1 || a->v_dim < 1;
    return a->dtype != PH_F32 && dim <= FAST_DIM && a->qk_dim > 0 && whole && !empty &&
           plan->scale2 > 0 && a->softcap == 0 && a->dropout == 0;
}

static int is_plain(const ph_args *args)
{
    return !args->bias && !args->visible && !args->relative && !args->alibi &&
           !args->gate && !args->sink;
}

/* A stride in bytes; of an axis of one element it is never used. */
static uint64_t map_stride(int64_t stride, int count)
{
    return count == 1 ? MAP_ALIGN : (uint64_t)stride * 2;
}

static int make_map(const ph_plan *plan, CUtensorMap *map, const void *base,
                    const ph_strides *s, int dim, int len, int heads, int box_rows)
{
    const ph_attn *a = &plan->attn;
    const uint64_t size[] = {(uint64_t)dim, (uint64_t)len, (uint64_t)heads,
                             (uint64_t)a->batch};
    const uint64_t stride[] = {map_stride(s->time, len), map_stride(s->head, heads),
                               map_stride(s->batch, a->batch)};
    const uint32_t box[] = {BOX_COLUMNS, (uint32_t)box_rows, 1, 1};
    const uint32_t step[] = {1, 1, 1, 1};
    if ((uintptr_t)base % MAP_ALIGN) return 0;
    for (int i = 0; i < 3; i++)
        if (stride[i] == 0 || stride[i] % MAP_ALIGN || stride[i] >> 40) return 0;
    return ph_cuda_of(plan->ctx)->driver.cuTensorMapEncodeTiled(
               map, a->dtype == PH_F16 ? PH_CU_MAP_F16 : PH_CU_MAP_BF16, 4, (void *)base,
               size, stride, box, step, PH_CU_MAP_NO_INTERLEAVE, PH_CU_MAP_SWIZZLE_128B,
               PH_CU_MAP_L2_256B, PH_CU_MAP_FILL_ZERO) == PH_CU_SUCCESS;
}

/* Heads whose K and V fit the cache together, a power of 2. */
static int section_of(const ph_attn *a, int heads)
{
    int64_t bytes = (int64_t)a->kv_len * (a->qk_dim + a->v_dim) * 2;
    int section = 1;
    while (2 * section <= heads && 2 * section * bytes <= SECTION_BYTES) section *= 2;
    return section;
}

int ph_cuda_fast_call(const ph_plan *plan, const ph_args *args, ph_cuda_fast *fast)
{
    const ph_attn *a = &plan->attn;
    int narrow = ph_max(a->qk_dim, a->v_dim) <= 64, half = a->dtype == PH_F16;
    int rows = narrow ? PH_FAST_ROWS_64 : PH_FAST_ROWS_128;
    int row_tiles = ph_div_up(a->q_len, rows);
    int64_t heads = (int64_t)a->batch * a->q_heads;
    if (!ph_cuda_fast_plan(plan) || !is_plain(args) || heads * row_tiles > ITEMS_MAX)
        return 0;
    memset(fast, 0, sizeof *fast);
    fast->kernel = narrow
                       ? half ? PH_CUDA_fast_forward_64_f16 : PH_CUDA_fast_forward_64_bf16
                   : half ? PH_CUDA_fast_forward_128_f16
                          : PH_CUDA_fast_forward_128_bf16;
    fast->threads = PH_WARPGROUP * (rows / 64 + 1);
    fast->schedule = (ph_cuda_schedule){.heads = (int)heads,
                                        .row_tiles = row_tiles,
                                        .items = (int)heads * row_tiles,
                                        .section = section_of(a, (int)heads),
                                        .k_group = a->q_heads / a->k_heads,
                                        .v_group = a->q_heads / a->v_heads};
    return make_map(plan, &fast->q, args->q, &a->q, a->qk_dim, a->q_len, a->q_heads,
                    rows) &&
           make_map(plan, &fast->k, args->k, &a->k, a->qk_dim, a->kv_len, a->k_heads,
                    PH_FAST_KEYS) &&
           make_map(plan, &fast->v, args->v, &a->v, a->v_dim, a->kv_len, a->v_heads,
                    PH_FAST_KEYS);
}

CUresult ph_cuda_fast_open(const ph_cuda *gpu)
{
    static const ph_cuda_kernel kernels[] = {
        PH_CUDA_fast_forward_64_f16, PH_CUDA_fast_forward_64_bf16,
        PH_CUDA_fast_forward_128_f16, PH_CUDA_fast_forward_128_bf16};
    CUresult result = PH_CU_SUCCESS;
    for (int i = 0; i < 4 && result == PH_CU_SUCCESS; i++)
        result = gpu->driver.cuKernelSetAttribute(PH_CU_MAX_SHARED_BYTES, PH_FAST_BYTES,
                                                  gpu->kernel[kernels[i]], gpu->device);
    return result;
}
