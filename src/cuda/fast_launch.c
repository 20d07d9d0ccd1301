/*
 * fast_launch.c - see fast_launch.h.
 *
 * Tensors are read through tensor maps, in boxes of 64 columns by the rows of a tile: k
 * and v of rank 4, {dim, time, head, batch}; q of rank 5, {dim, head of the group, time,
 * group, batch}. The copy engine wants strides in multiples of 16 bytes: tensors of other
 * layouts are copied first. Those of other addresses take the plain kernels. The output
 * has a map of rank 4 where its layout allows one; else threads store it.
 */
#include "cuda/fast_launch.h"

#include <string.h>

enum {
    FAST_DIM = 256,                /* the largest head dim */
    BOX_COLUMNS = PH_LINE / 2,     /* 16-bit elements */
    SECTION_BYTES = 4 << 20,       /* of K and V that are read at a time */
    LAST_BYTES = 32 << 20,         /* of the last section: what the L2 cache holds */
    SHORT_KEYS = 256,              /* up to which streams are faster than tiles, */
    SHORT_KEYS_MASKED = 1024,      /* at most PH_FAST_SPLIT */
    ATOM_ROWS = PH_ATOM / PH_LINE, /* the least rows of a box */
    ITEMS_MAX = 1 << 30,
    MAP_ALIGN = 16,
    MAP_RANK = 5
};

/* The head dim of the kernel: 64 << 0, 1 or 2. */
static int dim_shift(const ph_attn *a)
{
    int dim = ph_max(a->qk_dim, a->v_dim);
    return (dim > 64) + (dim > 128);
}

static int has_too_many_items(const ph_attn *a)
{
    return (double)a->batch * a->q_heads * ph_div_up(a->q_len, PH_FAST_ROWS_FEW) *
               ph_div_up(a->kv_len, PH_FAST_SPLIT) >=
           ITEMS_MAX;
}

const char *ph_cuda_why_plain(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int dim = ph_max(a->qk_dim, a->v_dim);
    if (a->dtype == PH_F32) return "f32";
    if (dim > FAST_DIM) return "head dims above 256";
    if (a->batch < 1 || a->q_len < 1 || a->kv_len < 1 || a->v_dim < 1 || a->qk_dim < 1)
        return "empty tensors";
    if (a->page_len && a->pages < 1) return "no pages";
    if (!(plan->scale2 > 0)) return "a scale not above 0";
    if (a->dropout > 0 && a->softcap > 0) return "dropout and soft-cap together";
    return has_too_many_items(a) ? "too many tiles" : NULL;
}

int ph_cuda_fast_plan(const ph_plan *plan)
{
    return !ph_cuda_why_plain(plan);
}

static ph_cuda_scores scores_of(const ph_attn *a)
{
    return a->softcap > 0   ? PH_SCORES_SOFTCAP
           : a->dropout > 0 ? PH_SCORES_DROPOUT
                            : PH_SCORES_PLAIN;
}

/* There is no kernel of two of soft-cap, dropout and ALiBi. */
static int has_kernel(const ph_attn *a, const ph_args *args)
{
    return !args->bias && !args->visible && !args->relative &&
           (!args->alibi || scores_of(a) == PH_SCORES_PLAIN);
}

/* ---- tensors that are copied first ---- */

static int is_map_stride(int64_t stride, int count)
{
    return count == 1 || (stride > 0 && stride * 2 % MAP_ALIGN == 0 && stride >> 39 == 0);
}

/* Can the copy engine read a tensor of this layout? Rows that are padded may begin
   anywhere within a larger tensor. */
static int is_readable(const ph_strides *s, int batch, int heads, int rows, int dim)
{
    return dim % (MAP_ALIGN / 2) == 0 && is_map_stride(s->batch, batch) &&
           is_map_stride(s->head, heads) && is_map_stride(s->time, rows);
}

/* Rows of one head in memory, and batch rows; ragged tensors have one. */
static int query_rows(const ph_attn *a, int *batch)
{
    *batch = a->ragged ? 1 : a->batch;
    return a->ragged ? a->q_total : a->q_len;
}

static int key_rows(const ph_attn *a, int *batch)
{
    int whole = a->ragged == PH_RAGGED_ALL;
    *batch = a->page_len ? a->pages : whole ? 1 : a->batch;
    return a->page_len ? a->page_len : whole ? a->kv_total : a->kv_len;
}

static ph_strides packed_strides(int batch, int heads, int rows, int dim)
{
    int64_t time = PH_CUDA_PADDED(dim), head = time * rows;
    return (ph_strides){batch > 1 ? head * heads : 0, head, time};
}

/* The layouts that the kernel reads. Pages that a block cannot be made of are copied into
   rows side by side, k and v together. */
static void choose_layouts(ph_attn *a, int (*copied)[3])
{
    int batch, rows = query_rows(a, &batch);
    (*copied)[0] = !is_readable(&a->q, batch, a->q_heads, rows, a->qk_dim);
    if ((*copied)[0]) a->q = packed_strides(batch, a->q_heads, rows, a->qk_dim);
    rows = key_rows(a, &batch);
    int k = is_readable(&a->k, batch, a->k_heads, rows, a->qk_dim);
    int v = is_readable(&a->v, batch, a->v_heads, rows, a->v_dim);
    if (a->page_len && !(k && v && a->page_len % ATOM_ROWS == 0)) k = v = a->page_len = 0;
    (*copied)[1] = !k, (*copied)[2] = !v;
    rows = key_rows(a, &batch);
    if (!k) a->k = packed_strides(batch, a->k_heads, rows, a->qk_dim);
    if (!v) a->v = packed_strides(batch, a->v_heads, rows, a->v_dim);
}

void ph_cuda_copied(const ph_plan *plan, int (*copied)[3])
{
    ph_attn attn = plan->attn;
    choose_layouts(&attn, copied);
}

static void take_copies(const ph_attn *a, const int (*copied)[3], ph_arena *arena,
                        ph_cuda_packed *packed)
{
    const ph_strides *at[3] = {&a->q, &a->k, &a->v};
    const int heads[3] = {a->q_heads, a->k_heads, a->v_heads};
    for (int i = 0; i < 3; i++) {
        size_t rows = (size_t)heads[i] * (i ? ph_attn_keys(a) : ph_attn_rows(a));
        if (!(*copied)[i]) continue;
        packed[i].at = *at[i];
        packed[i].base =
            ph_arena_take(arena, rows * (size_t)at[i]->time * sizeof *packed[i].base);
    }
}

/* ---- how the work is cut ---- */

/* Units of which a tile reads `rows` each, of two tensors, that are so many bytes
   together: 1 << the result. */
static int section_shift(const ph_attn *a, int64_t rows, int units, int most)
{
    int64_t bytes = rows * (a->qk_dim + a->v_dim) * 2;
    int shift = 0;
    while (2 << shift <= units && (bytes << shift) * 2 <= most) shift++;
    return shift;
}

/* A large last section has short tiles enough to fill the end; without a mask all tiles
   are alike, and it has what is left. */
static void cut_sections(const ph_attn *a, int64_t rows, ph_cuda_schedule *s)
{
    int last = a->mask ? 1 << section_shift(a, rows, s->units, LAST_BYTES) : 0;
    s->section_shift = section_shift(a, rows, s->units, SECTION_BYTES);
    s->last = (s->units - last) >> s->section_shift << s->section_shift;
    s->last_units = ph_divisor_of(ph_max(s->units - s->last, 1));
}

/* Neighbours among the q heads that share keys and values, as many as a tile can hold. */
static int group_of(const ph_cuda_schedule *s)
{
    int group = ph_min(ph_min(s->k_group.by, s->v_group.by), PH_FAST_ROWS_DECODE);
    while (s->k_group.by % group || s->v_group.by % group) group--;
    return group;
}

static int keys_of_block(const ph_attn *a)
{
    return dim_shift(a) == 2 ? PH_FAST_KEYS_256 : PH_FAST_KEYS;
}

/* The largest power of 2 that divides a page and a block of keys. */
static int keys_of_box(const ph_attn *a)
{
    int box = keys_of_block(a);
    while (a->page_len % box) box /= 2;
    return box;
}

static void cut_rows(const ph_attn *a, int rows, int group, ph_cuda_schedule *s)
{
    s->group = group;
    s->tokens = rows / group;
    s->units = a->batch * a->q_heads / group;
    s->row_tiles = ph_divisor_of(ph_div_up(a->q_len, s->tokens));
    s->batch_units = ph_divisor_of(a->q_heads / group);
    cut_sections(a, a->kv_len, s);
    s->splits = ph_divisor_of(1);
}

/* Few rows are computed split by split of their keys, all heads of a group together:
   where they fit one tile, and where tiles of one head each would leave SMs idle. The
   bits are the same. */
static int is_decoded(const ph_attn *a, const ph_cuda_schedule *s, int sm_count)
{
    int64_t tiles = (int64_t)s->units * s->row_tiles.by;
    if (a->dropout > 0) return 0;
    return a->q_len * group_of(s) <= PH_FAST_ROWS_DECODE || 2 * tiles <= sm_count;
}

/* Kernels of a file lie side by side, by head dim and type. */
static ph_cuda_kernel kernel_of(const ph_attn *a, const ph_cuda_fast *fast,
                                ph_cuda_scores scores)
{
    static const ph_cuda_kernel forward[PH_SCORES_COUNT] = {
        PH_CUDA_fast_forward_64_f16, PH_CUDA_fast_forward_softcap_64_f16,
        PH_CUDA_fast_forward_alibi_64_f16, PH_CUDA_fast_forward_dropout_64_f16};
    static const ph_cuda_kernel gathered[PH_SCORES_COUNT] = {
        PH_CUDA_fast_gathered_64_f16, PH_CUDA_fast_gathered_softcap_64_f16,
        PH_CUDA_fast_gathered_alibi_64_f16, PH_CUDA_fast_gathered_dropout_64_f16};
    int first = fast->gathers        ? gathered[scores]
                : fast->streams      ? PH_CUDA_fast_short_64_f16
                : fast->pairs        ? PH_CUDA_fast_pair_64_f16
                : fast->rows <= PH_FAST_ROWS_FEW    ? PH_CUDA_fast_few_64_f16
                : fast->rows <= PH_FAST_ROWS_DECODE ? PH_CUDA_fast_decode_64_f16
                                                    : forward[scores];
    return (ph_cuda_kernel)(first + 2 * dim_shift(a) + (a->dtype == PH_BF16));
}

/* Tiles of so many rows of one head, with all keys they see. */
static void cut_tiles(const ph_plan *plan, int rows, ph_cuda_fast *fast)
{
    ph_cuda_schedule *s = &fast->schedule;
    cut_rows(&fast->attn, rows, 1, s);
    s->items = s->units * s->row_tiles.by;
    fast->rows = rows;
    fast->threads = PH_WARPGROUP * (rows / 64 + 1);
    fast->ctas = ph_min(ph_cuda_of(plan->ctx)->sm_count, s->items);
}

/* Tiles of rows of a group of heads, each with one split of the keys. */
static void cut_splits(const ph_plan *plan, int dim, ph_cuda_fast *fast)
{
    const ph_attn *a = &fast->attn;
    ph_cuda_schedule *s = &fast->schedule;
    int sm_count = ph_cuda_of(plan->ctx)->sm_count, group = group_of(s);
    int few = a->q_len * group <= PH_FAST_ROWS_FEW;
    fast->rows = few ? PH_FAST_ROWS_FEW : PH_FAST_ROWS_DECODE;
    cut_rows(a, fast->rows, group, s);
    s->splits = ph_divisor_of(
        ph_div_up(a->kv_len, dim > 128 ? PH_FAST_SPLIT_256 : PH_FAST_SPLIT));
    s->items = s->units * s->row_tiles.by * s->splits.by;
    fast->pairs = few && 2 * s->items <= sm_count;
    fast->threads = PH_WARPGROUP * (few ? 3 : 2);
    fast->ctas = fast->pairs ? 2 * s->items : ph_min(sm_count, s->items);
}

/* Short sequences of small heads are walked in streams: see fast_short.cu. Under a mask
   also longer ones, because larger tiles visit blocks that not all of their rows see. */
static int has_streams(const ph_attn *a, const ph_cuda_fast *fast, ph_cuda_scores scores)
{
    return scores == PH_SCORES_PLAIN && fast->rows == PH_FAST_ROWS_64 &&
           a->kv_len <= (a->mask == PH_MASK_NONE ? SHORT_KEYS : SHORT_KEYS_MASKED);
}

static void cut_streams(const ph_plan *plan, ph_cuda_fast *fast)
{
    ph_cuda_schedule *s = &fast->schedule;
    cut_tiles(plan, PH_FAST_ROWS_STREAM, fast);
    fast->streams = PH_FAST_STREAMS;
    fast->threads = PH_WARPGROUP * (PH_FAST_STREAMS + 1);
    fast->ctas =
        ph_min(ph_cuda_of(plan->ctx)->sm_count, ph_div_up(s->items, PH_FAST_STREAMS));
}

static void take_workspace(int dim, int rows, ph_arena *arena, ph_cuda_fast *fast)
{
    ph_cuda_schedule *s = &fast->schedule;
    size_t tiles = (size_t)s->units * (size_t)s->row_tiles.by, parts = 0;
    size_t before = arena->used;
    if (s->splits.by > 1 || fast->rows == PH_FAST_ROWS_FEW)
        parts = tiles * (size_t)(s->splits.by * s->tokens * s->group);
    s->taken = ph_arena_take(arena, sizeof *s->taken);
    s->arrived =
        ph_arena_take(arena, parts ? PH_FAST_MERGERS * tiles * sizeof *s->arrived : 0);
    fast->counters = (arena->used - before) / sizeof *s->taken;
    s->stats = ph_arena_floats(arena, 2 * parts);
    s->partial = ph_arena_floats(arena, parts * (size_t)dim);
    s->whole =
        ph_arena_floats(arena, rows ? (size_t)fast->ctas * (size_t)(rows * dim) : 0);
}

static void take_gathered(const ph_attn *a, ph_arena *arena, ph_cuda_gathered *g)
{
    size_t rows = (size_t)a->q_heads * ph_attn_rows(a);
    g->count = ph_arena_take(arena, (size_t)(a->batch * a->q_heads) * sizeof *g->count);
    g->token = ph_arena_take(arena, rows * sizeof *g->token);
    g->q = ph_arena_take(arena, rows * (size_t)PH_CUDA_PADDED(a->qk_dim) * sizeof *g->q);
}

void ph_cuda_fast_cut(const ph_plan *plan, ph_arena *arena, ph_cuda_fast *fast)
{
    const ph_attn *a = &fast->attn;
    int sm_count = ph_cuda_of(plan->ctx)->sm_count, dim = 64 << dim_shift(&plan->attn);
    int copied[3];
    ph_cuda_schedule *s = &fast->schedule;
    memset(fast, 0, sizeof *fast);
    fast->attn = plan->attn;
    choose_layouts(&fast->attn, &copied);
    s->box = keys_of_box(a);
    s->k_group = ph_divisor_of(a->q_heads / a->k_heads);
    s->v_group = ph_divisor_of(a->q_heads / a->v_heads);
    cut_tiles(plan, dim > 64 ? PH_FAST_ROWS : PH_FAST_ROWS_64, fast);
    int decoded = is_decoded(a, s, sm_count);
    int whole = !decoded && dim > 128 && a->kv_len > PH_FAST_SPLIT_256;
    if (decoded) cut_splits(plan, dim, fast);
    take_workspace(dim, whole ? fast->rows : 0, arena, fast);
    fast->gathers = a->gate == PH_GATE_ROW && !decoded &&
                    ph_max(a->q_len, a->kv_len) <= PH_FAST_GATHERED;
    if (fast->gathers) take_gathered(a, arena, &fast->gathered);
    take_copies(a, &copied, arena, fast->packed);
}

/* ---- tensor maps ---- */

/* Axes of a tensor behind its columns, from the nearest elements on. */
typedef struct axes {
    int rank;
    int count[MAP_RANK - 1], box[MAP_RANK - 1];
    int64_t stride[MAP_RANK - 1];
} axes;

static int make_map(const ph_plan *plan, CUtensorMap *map, const void *base, int dim,
                    const axes *x)
{
    uint64_t size[MAP_RANK] = {(uint64_t)dim}, stride[MAP_RANK - 1];
    uint32_t box[MAP_RANK] = {BOX_COLUMNS}, step[MAP_RANK] = {1, 1, 1, 1, 1};
    if ((uintptr_t)base % MAP_ALIGN) return 0;
    for (int i = 0; i < x->rank; i++) {
        size[i + 1] = (uint64_t)x->count[i], box[i + 1] = (uint32_t)x->box[i];
        stride[i] = (uint64_t)x->stride[i] * 2;
        if (x->count[i] == 1) stride[i] = MAP_ALIGN; /* is never used */
        if (stride[i] == 0 || stride[i] % MAP_ALIGN || stride[i] >> 40) return 0;
    }
    return ph_cuda_of(plan->ctx)->driver.cuTensorMapEncodeTiled(
               map, plan->attn.dtype == PH_F16 ? PH_CU_MAP_F16 : PH_CU_MAP_BF16,
               (unsigned)x->rank + 1, (void *)base, size, stride, box, step,
               PH_CU_MAP_NO_INTERLEAVE, PH_CU_MAP_SWIZZLE_128B, PH_CU_MAP_L2_128B,
               PH_CU_MAP_FILL_ZERO) == PH_CU_SUCCESS;
}

static axes query_axes(const ph_attn *a, const ph_cuda_schedule *s)
{
    int batch, tokens = query_rows(a, &batch);
    return (axes){.rank = 4,
                  .count = {s->group, tokens, a->q_heads / s->group, batch},
                  .box = {s->group, s->tokens, 1, 1},
                  .stride = {a->q.head, a->q.time, a->q.head * s->group, a->q.batch}};
}

/* Those that were gathered: packed, in the shape of the gate. */
static axes gathered_axes(const ph_attn *a, const ph_cuda_schedule *s)
{
    axes x = query_axes(a, s);
    x.stride[1] = PH_CUDA_PADDED(a->qk_dim);
    for (int i = 2; i < x.rank; i++) x.stride[i] = x.stride[i - 1] * x.count[i - 1];
    return x;
}

static axes key_axes(const ph_attn *a, const ph_strides *s, int heads)
{
    int batch, keys = key_rows(a, &batch);
    return (axes){.rank = 3,
                  .count = {keys, heads, batch},
                  .box = {keys_of_box(a), 1, 1},
                  .stride = {s->time, s->head, s->batch}};
}

static axes output_axes(const ph_attn *a)
{
    int batch, tokens = query_rows(a, &batch);
    return (axes){.rank = 3,
                  .count = {tokens, a->q_heads, batch},
                  .box = {PH_FAST_ROWS_STORED, 1, 1},
                  .stride = {a->out.time, a->out.head, a->out.batch}};
}

/* Where the kernel reads one of q, k and v. */
static const void *source(const ph_cuda_packed *packed, const void *given)
{
    return packed->base ? packed->base : given;
}

int ph_cuda_fast_call(const ph_plan *plan, const ph_args *args, ph_cuda_fast *fast)
{
    const ph_attn *a = &fast->attn;
    const ph_cuda_packed *packed = fast->packed;
    if (!ph_cuda_fast_plan(plan) || !has_kernel(a, args)) return 0;
    ph_cuda_scores scores = args->alibi ? PH_SCORES_ALIBI : scores_of(a);
    fast->gathers = fast->gathers && args->gate;
    /* In the same workspace: */
    if (!fast->gathers && has_streams(a, fast, scores))
        cut_streams(plan, fast);
    else if (fast->gathers && scores == PH_SCORES_SOFTCAP)
        cut_tiles(plan, PH_FAST_ROWS, fast);
    fast->kernel = kernel_of(a, fast, scores);
    axes q = query_axes(a, &fast->schedule), k = key_axes(a, &a->k, a->k_heads),
         v = key_axes(a, &a->v, a->v_heads), out = output_axes(a),
         gathered = gathered_axes(a, &fast->schedule);
    fast->schedule.out_map = make_map(plan, &fast->out, args->out, a->v_dim, &out);
    return make_map(plan, &fast->q, source(&packed[0], args->q), a->qk_dim, &q) &&
           (!fast->gathers ||
            make_map(plan, &fast->q, fast->gathered.q, a->qk_dim, &gathered)) &&
           make_map(plan, &fast->k, source(&packed[1], args->k), a->qk_dim, &k) &&
           make_map(plan, &fast->v, source(&packed[2], args->v), a->v_dim, &v);
}

/* ---- the backward pass ---- */

int ph_cuda_grad_plan(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int copied[3], batch, rows = query_rows(a, &batch);
    int most = a->softcap > 0 ? PH_FAST_DIM_CAPPED : FAST_DIM;
    if (!ph_cuda_fast_plan(plan) || ph_max(a->qk_dim, a->v_dim) > most ||
        a->k_heads != a->v_heads || a->page_len)
        return 0;
    ph_cuda_copied(plan, &copied);
    return !copied[0] && !copied[1] && !copied[2] &&
           is_readable(&a->out, batch, a->q_heads, rows, a->v_dim);
}

/* Of a tile that owns rows, or keys. */
static int grad_tile_rows(const ph_attn *a, int keys)
{
    return keys && dim_shift(a) == 2 ? PH_FAST_ROWS_GRAD_256 : PH_FAST_ROWS_GRAD;
}

/* Tiles of rows walk over keys, or tiles of keys over the rows of all heads that share
   them. */
void ph_cuda_grad_cut(const ph_plan *plan, int keys, ph_arena *arena, ph_cuda_fast *fast)
{
    const ph_attn *a = &plan->attn;
    ph_cuda_schedule *s = &fast->schedule;
    int heads = keys ? a->k_heads : a->q_heads, group = a->q_heads / a->k_heads;
    memset(fast, 0, sizeof *fast);
    s->units = a->batch * heads;
    s->row_tiles = ph_divisor_of(
        ph_div_up(keys ? a->kv_len : a->q_len, grad_tile_rows(a, keys)));
    s->batch_units = ph_divisor_of(heads);
    s->k_group = ph_divisor_of(group);
    s->items = s->units * s->row_tiles.by;
    cut_sections(a, keys ? (int64_t)a->q_len * group : a->kv_len, s);
    fast->threads = 3 * PH_WARPGROUP;
    fast->ctas = ph_min(ph_cuda_of(plan->ctx)->sm_count, s->items);
    fast->counters = 1;
    s->taken = ph_arena_take(arena, sizeof *s->taken);
}

static ph_cuda_kernel grad_kernel(const ph_attn *a, const ph_args *args, int keys)
{
    static const ph_cuda_kernel kernels[2][3] = {
        {PH_CUDA_fast_dq_64_f16, PH_CUDA_fast_dq_any_64_f16,
         PH_CUDA_fast_dq_dropout_64_f16},
        {PH_CUDA_fast_dkv_64_f16, PH_CUDA_fast_dkv_any_64_f16,
         PH_CUDA_fast_dkv_dropout_64_f16}};
    int modified = args->gate || args->alibi || a->softcap > 0;
    int first = kernels[keys][a->dropout > 0 ? 2 : modified];
    return (ph_cuda_kernel)(first + 2 * dim_shift(a) + (a->dtype == PH_BF16));
}

static axes grad_axes(int box, int count, int heads, int batch, const ph_strides *s)
{
    return (axes){.rank = 3,
                  .count = {count, heads, batch},
                  .box = {box, 1, 1},
                  .stride = {s->time, s->head, s->batch}};
}

int ph_cuda_grad_call(const ph_plan *plan, int keys, const ph_args *args,
                      const ph_grads *grads, ph_cuda_fast *fast)
{
    const ph_attn *a = &plan->attn;
    int q_batch, kv_batch, q_rows = query_rows(a, &q_batch);
    int kv_rows = key_rows(a, &kv_batch);
    if (args->bias || args->visible || args->relative) return 0;
    fast->kernel = grad_kernel(a, args, keys);
    int box =
        !keys && dim_shift(a) == 2 ? PH_FAST_BLOCK_GRAD_256 : PH_FAST_BLOCK_GRAD;
    axes q = grad_axes(box, q_rows, a->q_heads, q_batch, &a->q),
         k = grad_axes(box, kv_rows, a->k_heads, kv_batch, &a->k),
         v = grad_axes(box, kv_rows, a->v_heads, kv_batch, &a->v),
         dout = grad_axes(box, q_rows, a->q_heads, q_batch, &a->out);
    return make_map(plan, &fast->q, args->q, a->qk_dim, &q) &&
           make_map(plan, &fast->k, args->k, a->qk_dim, &k) &&
           make_map(plan, &fast->v, args->v, a->v_dim, &v) &&
           make_map(plan, &fast->out, grads->dout, a->v_dim, &dout);
}

CUresult ph_cuda_fast_open(const ph_cuda *gpu)
{
    CUresult result = PH_CU_SUCCESS;
    for (int i = PH_CUDA_fast_forward_64_f16;
         i < PH_CUDA_KERNEL_COUNT && result == PH_CU_SUCCESS; i++)
        result = gpu->driver.cuKernelSetAttribute(PH_CU_MAX_SHARED_BYTES, PH_FAST_BYTES,
                                                  gpu->kernel[i], gpu->device);
    return result;
}
