/*
 * chunk.c - gradients of a chunk of keys: five products per block of rows and keys.
 *
 *     s = q k^T    dp = dout v^T    dv += p^T dout    dk += ds^T q    dq += ds k
 *
 * dk and dv are summed over rows in order and stored. dq is a partial sum: it is stored
 * if there is a single chunk, else added to the target.
 */
#include "attn/chunk.h"

#include <string.h>

#include "attn/chunk_amx.h"
#include "attn/grad.h"

/* The attention map of a group of q heads that share k and v. Twins (ph_call.twin) have a
   map each, with a k of their own, and share v and dout:

       dp of the second = twin dp of the first      dv += (p of the first + twin p)^T dout
*/
typedef struct map {
    ph_grad_rows g;
    ph_ds_block block;
    float *k_scores;  /* k of the chunk, packed for scores block by block */
    float *k_scratch; /* (PH_CHUNK, k_pad) */
    const float *k;   /* row of the chunk's key c at k + c * k_ld */
    int64_t k_ld;
    int k_finite, rows_finite;      /* -1: not checked yet */
    float *dk;                      /* (PH_CHUNK, k_row) sums up to the last flush ... */
    float *dk_scratch, *dk_partial; /* ... and since then */
    float *dq_rows;                 /* (PH_GRAD_ROWS, k_row) partial sum of the chunk */
} map;

typedef struct chunk_worker {
    map map[2];
    int maps;         /* 2: twins */
    float twin;       /* factor of the second */
    ph_chunk_amx amx; /* bf16 on AMX: instead of blocks and packed operands of the maps */
    int k_row, v_row; /* row lengths of dk and dv: k_pad, v_pad, or those of AMX */
    float *v_panels;  /* v of the chunk as packed panels, block by block */
    float *dk, *dv;   /* (heads in cluster, PH_CHUNK, k_row or v_row) */
    float *dv_scratch, *dv_partial; /* (PH_CHUNK, v_row) like those of dk */
    float ones[PH_MR_MAX];
} chunk_worker;

/* Twins come from layers, whose activations are f32. */
static int on_amx(const ph_plan *plan)
{
    return plan->bf16_pairs && !plan->backward.twins;
}

static void take_map(const ph_plan *plan, ph_arena *arena, map *m)
{
    ph_grad_rows_take(plan, arena, &m->g);
    ph_ds_block_take(plan, arena, &m->block);
    m->k_scores = ph_arena_floats(arena, ph_scores_k_floats(plan, PH_CHUNK));
    m->k_scratch = ph_arena_floats(arena, PH_CHUNK * (size_t)plan->k_pad);
    m->dk_scratch = ph_arena_floats(arena, PH_CHUNK * (size_t)plan->k_pad);
    m->dq_rows = ph_arena_floats(arena, (size_t)PH_GRAD_ROWS * (size_t)plan->k_pad);
}

/* Scratch of the f32 products. */
static void take_floats(const ph_plan *plan, ph_arena *arena, chunk_worker *w)
{
    const ph_attn *a = &plan->attn;
    w->k_row = plan->k_pad, w->v_row = plan->v_pad;
    take_map(plan, arena, &w->map[0]);
    if (plan->backward.twins) take_map(plan, arena, &w->map[1]);
    w->v_panels = ph_arena_floats(arena, PH_CHUNK * (size_t)a->v_dim + PH_PACK_SLACK);
    for (int i = 0; i < PH_MR_MAX; i++) w->ones[i] = 1;
}

static void take_amx(const ph_plan *plan, ph_arena *arena, chunk_worker *w)
{
    map *m = &w->map[0];
    ph_chunk_amx_take(plan, arena, &w->amx);
    w->k_row = w->amx.k_cols, w->v_row = w->amx.v_cols;
    m->g.rows = ph_arena_take(arena, sizeof *m->g.rows);
    m->dk_scratch = ph_arena_floats(arena, PH_CHUNK * (size_t)w->k_row);
    m->dq_rows = w->amx.dq;
}

static void take_worker(const ph_plan *plan, ph_arena *arena, chunk_worker *w)
{
    const ph_attn *a = &plan->attn;
    size_t chunk = PH_CHUNK, heads_k = (size_t)(plan->cluster * a->k_heads / a->q_heads);
    size_t heads_v = (size_t)(plan->cluster * a->v_heads / a->q_heads);
    w->maps = 1;
    if (on_amx(plan))
        take_amx(plan, arena, w);
    else
        take_floats(plan, arena, w);
    w->dk = ph_arena_floats(arena, heads_k * chunk * (size_t)w->k_row);
    w->dv = ph_arena_floats(arena, heads_v * chunk * (size_t)w->v_row);
    w->dv_scratch = ph_arena_floats(arena, chunk * (size_t)w->v_row);
}

size_t ph_chunk_bytes(const ph_plan *plan)
{
    ph_arena arena = {0};
    chunk_worker w;
    take_worker(plan, &arena, &w);
    return arena.used;
}

static void pack_k(const ph_call *call, map *m, int k0, int keys)
{
    const ph_plan *plan = call->plan;
    int head = m->g.rows->k_head, b = m->g.rows->batch;
    const ph_keys k = ph_keys_k(call, b, head);
    m->k_finite = -1;
    for (int c = 0; c < keys; c += PH_BLOCK) {
        int n = ph_min(PH_BLOCK, keys - c);
        ph_scores_pack_k(call, b, head, k0 + c, 0, n,
                         m->k_scores + (int64_t)c * plan->k_floats);
        m->k = ph_keys_rows(&k, k0, c, c + n, 0, m->k_scratch, &m->k_ld);
    }
}

static void pack_keys(const ph_call *call, chunk_worker *w, int k0, int keys)
{
    const ph_rows *rows = w->map[0].g.rows;
    const ph_keys v = ph_keys_v(call, rows->batch, rows->v_head);
    if (on_amx(call->plan)) {
        ph_chunk_amx_pack_keys(call, &w->amx, rows, k0, keys);
        return;
    }
    for (int i = 0; i < w->maps; i++) pack_k(call, &w->map[i], k0, keys);
    for (int c = 0; c < keys; c += PH_BLOCK)
        ph_keys_panels(&v, k0 + c, 0, ph_min(PH_BLOCK, keys - c),
                       w->v_panels + (int64_t)c * v.dim);
}

/* Whether some key of the block is hidden from some row. */
static int is_partial(const ph_call *call, const ph_rows *rows, int j0, int keys)
{
    if (call->args->bias || call->args->visible) return 1; /* those may hide anything */
    return !ph_rows_all_see(rows, j0, j0 + keys);
}

/* Whether k of the chunk, q and dout are all finite. */
static int map_finite(const ph_call *call, map *m, int chunk_keys)
{
    int k_pad = call->plan->k_pad;
    if (m->k_finite < 0)
        m->k_finite = call->kernels->finite(m->k, m->k_ld, chunk_keys, k_pad);
    if (m->rows_finite < 0) m->rows_finite = ph_grad_rows_finite(call, &m->g);
    return m->k_finite && m->rows_finite;
}

static int all_finite(const ph_call *call, chunk_worker *w, int chunk_keys)
{
    int finite = 1;
    for (int i = 0; i < w->maps; i++)
        finite = finite && map_finite(call, &w->map[i], chunk_keys);
    return finite;
}

/* Gathered rows [*from, *to) that may see one of the keys [j, j + n). */
static void seeing_rows(const ph_rows *rows, int j, int n, int *from, int *to)
{
    int a = 0, b = rows->count;
    while (a < b && (rows->hi[a] <= j || rows->lo[a] >= j + n)) a++;
    while (b > a && (rows->hi[b - 1] <= j || rows->lo[b - 1] >= j + n)) b--;
    *from = a, *to = b;
}

/* grad += left^T right for mr keys from column c on, over rows [from, to). */
static void add_keys(const ph_call *call, int m, int from, int to, int c,
                     const float *left, const float *right, int pad, float *grad)
{
    const ph_kernels *k = call->kernels;
    k->product(m, pad, to - from, left + (int64_t)from * PH_STRIP_LD + c, PH_STRIP_LD,
               right + (int64_t)from * pad, pad, k->nr, grad + (int64_t)c * pad, pad, 1,
               NULL);
}

/* dk += ds^T q and dv += p^T dout for the block, mr keys at a time. */
static void add_key_gradients(const ph_call *call, chunk_worker *w, int j0, int c_block,
                              int keys, int partial)
{
    const map *one = &w->map[0];
    int k_pad = call->plan->k_pad, v_pad = call->plan->v_pad, mr = call->kernels->mr;
    float *dv = w->dv_partial + (int64_t)c_block * v_pad;
    for (int c = 0; c < keys; c += mr) {
        int m = ph_min(mr, keys - c), from = 0, to = one->g.rows->count;
        if (partial) seeing_rows(one->g.rows, j0 + c, m, &from, &to);
        if (from >= to) continue;
        if (call->grads->dv)
            add_keys(call, m, from, to, c, one->block.p, one->g.dout, v_pad, dv);
        for (int i = 0; i < w->maps && call->grads->dk; i++)
            add_keys(call, m, from, to, c, w->map[i].block.ds, w->map[i].g.q, k_pad,
                     w->map[i].dk_partial + (int64_t)c_block * k_pad);
    }
}

/* The three products of one (row, key), if the row sees the key. */
static void add_visible_pair(const ph_call *call, chunk_worker *w, int r, int j0,
                             int c_block, int c)
{
    const ph_kernels *k = call->kernels;
    const map *one = &w->map[0];
    int k_pad = call->plan->k_pad, v_pad = call->plan->v_pad, seen = 0;
    int64_t at = (int64_t)r * PH_STRIP_LD + c, key = c_block + c;
    for (int i = 0; i < w->maps; i++) {
        const map *m = &w->map[i];
        if (!ph_rows_sees(call, m->g.rows, r, j0 + c)) continue;
        seen = 1;
        k->axpy(k_pad, m->block.ds[at], m->g.q + (int64_t)r * k_pad,
                m->dk_partial + key * k_pad);
        k->axpy(k_pad, m->block.ds[at], m->k + key * m->k_ld,
                m->dq_rows + (int64_t)r * k_pad);
    }
    if (seen)
        k->axpy(v_pad, one->block.p[at], one->g.dout + (int64_t)r * v_pad,
                w->dv_partial + key * v_pad);
}

/* dk, dv and dq where a hidden element may be NaN or Inf: hidden (row, key) pairs are
   skipped, in the same order and with the same bits. */
static void add_visible(const ph_call *call, chunk_worker *w, int j0, int c_block,
                        int keys)
{
    for (int r = 0; r < w->map[0].g.rows->count; r++)
        for (int c = 0; c < keys; c++) add_visible_pair(call, w, r, j0, c_block, c);
}

/* p and ds of the strip for both twins; then p of the first becomes p + twin p, which
   gives dv of both in one product. */
static void run_twins(const ph_call *call, chunk_worker *w, int r, int m, int j0,
                      int c_block, int c0, int c1)
{
    const ph_kernels *k = call->kernels;
    map *one = &w->map[0], *two = &w->map[1];
    int n = ph_round_up(c1, PH_LANES) - c0;
    int64_t strip = (int64_t)r * PH_STRIP_LD + c0;
    for (int i = 0; i < m; i++) {
        int64_t at = strip + i * PH_STRIP_LD;
        k->load_row(two->block.ds + at, one->block.ds, at, n, PH_F32, w->twin);
    }
    for (int i = 0; i < 2; i++)
        ph_grad_finish(call, &w->map[i].g, &w->map[i].block, r, m, j0, c0, c1,
                       w->map[i].k_scores + (int64_t)c_block * call->plan->k_floats);
    for (int i = 0; i < m; i++) {
        int64_t at = strip + i * PH_STRIP_LD;
        k->axpy(n, w->twin, two->block.p + at, one->block.p + at);
    }
}

/* p and ds of a strip of rows; returns 0 if it sees no key of the block. */
static int run_strip(const ph_call *call, chunk_worker *w, int r, int m, int j0,
                     int c_block, int keys, int *c0, int *c1)
{
    map *one = &w->map[0], *two = &w->map[1];
    const float *v = w->v_panels + (int64_t)c_block * call->attn->v_dim;
    const float *k = one->k_scores + (int64_t)c_block * call->plan->k_floats;
    if (w->maps == 1)
        return ph_grad_strip(call, &one->g, &one->block, r, m, j0, keys, k, v, c0, c1);
    ph_grad_begin(call, &two->g, &two->block, r, m, j0, keys, c0, c1);
    if (!ph_grad_begin(call, &one->g, &one->block, r, m, j0, keys, c0, c1)) return 0;
    ph_grad_product(call, &one->g, &one->block, r, m, *c0, *c1, v);
    run_twins(call, w, r, m, j0, c_block, *c0, *c1);
    return 1;
}

/* The gathered rows against the block at column c_block of the chunk at k0. */
static void run_block(const ph_call *call, chunk_worker *w, int k0, int c_block,
                      int chunk_keys)
{
    const ph_kernels *k = call->kernels;
    const ph_rows *rows = w->map[0].g.rows;
    int j0 = k0 + c_block, keys = ph_min(PH_BLOCK, chunk_keys - c_block), c0, c1;
    if (rows->high <= j0 || rows->low >= j0 + keys) return;
    int k_pad = call->plan->k_pad, partial = is_partial(call, rows, j0, keys);
    int safe = !partial || all_finite(call, w, chunk_keys);
    for (int r = 0; r < rows->count; r += k->mr) {
        int m = ph_min(k->mr, rows->count - r);
        int seen = run_strip(call, w, r, m, j0, c_block, keys, &c0, &c1);
        if (!seen || !safe || !call->grads->dq) continue;
        for (int i = 0; i < w->maps; i++) {
            const map *at = &w->map[i];
            k->multiply_v(m, k_pad, c1 - c0, at->block.ds + (int64_t)r * PH_STRIP_LD + c0,
                          at->k + (c_block + c0) * at->k_ld, at->k_ld,
                          at->dq_rows + (int64_t)r * k_pad, k_pad, w->ones, NULL);
        }
    }
    if (safe)
        add_key_gradients(call, w, j0, c_block, keys, partial);
    else
        add_visible(call, w, j0, c_block, keys);
}

/* Adds the chunk's partial sums of dq of the gathered rows. */
static void put_dq(const ph_call *call, const map *m, int k_row, int head_in_cluster,
                   const ph_dq_target *target)
{
    const ph_rows *rows = m->g.rows;
    for (int r = 0; r < rows->count; r++)
        ph_dq_put(call, target, head_in_cluster + rows->head[r] - rows->head0,
                  rows->token[r], m->dq_rows + (int64_t)r * k_row);
}

/* The gathered rows against the chunk. */
static void run_rows(const ph_call *call, const ph_deltas *deltas, chunk_worker *w,
                     int k0, int keys)
{
    if (on_amx(call->plan)) {
        ph_chunk_amx_rows(call, &w->amx, deltas, w->map[0].g.rows, k0, keys,
                          w->map[0].dk_partial, w->dv_partial);
        return;
    }
    for (int i = 0; i < w->maps; i++) {
        map *m = &w->map[i];
        size_t floats = (size_t)m->g.rows->count * (size_t)call->plan->k_pad;
        ph_grad_rows_pack(call, &m->g, i ? &w->map[0].g : NULL, deltas->lse,
                          deltas->delta);
        memset(m->dq_rows, 0, floats * sizeof(float));
        m->rows_finite = -1;
    }
    for (int c = 0; c < keys; c += PH_BLOCK) run_block(call, w, k0, c, keys);
}

/* Floats of dk or dv of `keys` keys; AMX sums come in matrices of PH_AMX_BLOCK keys. */
static size_t sum_floats(int keys, int row)
{
    return (size_t)ph_round_up(keys, PH_AMX_BLOCK) * (size_t)row;
}

/* Adds the partial sums to the sums and restarts them from 0. */
static void flush_sums(const ph_call *call, size_t floats, float *partial, float *sums)
{
    call->kernels->axpy((int)floats, 1, partial, sums);
    memset(partial, 0, floats * sizeof(float));
}

static void flush(const ph_call *call, chunk_worker *w, int keys, float *dv)
{
    for (int i = 0; i < w->maps; i++)
        flush_sums(call, sum_floats(keys, w->k_row), w->map[i].dk_partial, w->map[i].dk);
    flush_sums(call, sum_floats(keys, w->v_row), w->dv_partial, dv);
}

/* Where blocks accumulate dk and dv: partial sums that start from 0; or, with a single
   flush, the sums themselves. */
static void choose_partials(chunk_worker *w, int keys, int direct, float *dv)
{
    size_t k_floats = sum_floats(keys, w->k_row), v_floats = sum_floats(keys, w->v_row);
    for (int i = 0; i < w->maps; i++) {
        map *m = &w->map[i];
        m->dk_partial = direct ? m->dk : m->dk_scratch;
        if (!direct) memset(m->dk_partial, 0, k_floats * sizeof(float));
    }
    w->dv_partial = direct ? dv : w->dv_scratch;
    if (!direct) memset(w->dv_partial, 0, v_floats * sizeof(float));
}

/* All rows of one group of heads, or of both twins, against the chunk. */
static void run_group(const ph_call *call, const ph_deltas *deltas, chunk_worker *w,
                      int head_in_cluster, int k0, int keys, const ph_dq_target *target,
                      float *dv)
{
    const ph_plan *plan = call->plan;
    ph_rows *rows = w->map[0].g.rows;
    int total = rows->extent.q_len * rows->group, row_blocks = 0, next;
    int direct =
        plan->cluster == plan->group * w->maps && total <= PH_FLUSH * PH_GRAD_ROWS;
    choose_partials(w, keys, direct, dv);
    for (int row = 0; row < total; row = next) {
        next = ph_rows_gather(call, rows, row, total, PH_GRAD_ROWS);
        if (rows->high <= k0 || rows->low >= k0 + keys) continue;
        if (w->maps > 1) ph_rows_gather(call, w->map[1].g.rows, row, total, PH_GRAD_ROWS);
        run_rows(call, deltas, w, k0, keys);
        for (int i = 0; i < w->maps && target->base; i++)
            put_dq(call, &w->map[i], w->k_row, head_in_cluster + i, target);
        if (!direct && ++row_blocks % PH_FLUSH == 0) flush(call, w, keys, dv);
    }
    if (!direct) flush(call, w, keys, dv);
}

/* Stores dk or dv; sums on AMX are transposed block by block. */
static void finish_keys(const ph_call *call, chunk_worker *w, ph_key_target target,
                        int keys, const float *sums)
{
    if (!on_amx(call->plan)) {
        ph_store_keys(call, &target, 0, keys, sums);
        return;
    }
    for (int c = 0; target.base && c < keys; c += PH_AMX_BLOCK)
        ph_store_keys(call, &target, c, ph_min(c + PH_AMX_BLOCK, keys),
                      ph_chunk_amx_transpose(call, &w->amx, sums, c, target.dim));
}

/* Whether twins run together: not with grouped heads, whose rows are interleaved, nor
   with gates, which may leave one of them alone. */
static int has_twins(const ph_call *call)
{
    return call->twin && call->plan->group == 1 && !call->args->gate;
}

void ph_chunk_run(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int batch,
                  int head0, int chunk, ph_dq_target target)
{
    const ph_plan *plan = call->plan;
    chunk_worker w;
    take_worker(plan, &arena, &w);

    int k0 = chunk * PH_CHUNK;
    int per_k = plan->per_k, per_v = plan->per_v;
    int64_t dk_size = (int64_t)PH_CHUNK * w.k_row, dv_size = (int64_t)PH_CHUNK * w.v_row;
    const ph_extent extent = ph_rows_extent(call, batch);
    int n = ph_min(PH_CHUNK, extent.kv_size - k0);
    for (int h = 0; h < plan->cluster / per_k; h++)
        memset(w.dk + h * dk_size, 0, sum_floats(n, w.k_row) * sizeof(float));
    for (int h = 0; h < plan->cluster / per_v; h++)
        memset(w.dv + h * dv_size, 0, sum_floats(n, w.v_row) * sizeof(float));
    w.maps = has_twins(call) ? 2 : 1;
    /* Some rows are not computed, and blocks add to the others. */
    ph_clear_dq(call, &target, plan->cluster, 0, (int64_t)extent.q_size * plan->cluster);
    if (target.how == PH_DQ_FRESH) target.how = PH_DQ_ADD;
    for (int h = 0; h < plan->cluster; h += plan->group * w.maps) {
        for (int i = 0; i < w.maps; i++) {
            ph_rows_begin(call, w.map[i].g.rows, batch, head0 + h + i, plan->group);
            w.map[i].dk = w.dk + (h + i) / per_k * dk_size;
        }
        w.twin = ph_twin_factor(call, head0 + h + 1);
        int keys = ph_min(PH_CHUNK, ph_max(extent.kv_len - k0, 0));
        pack_keys(call, &w, k0, keys);
        run_group(call, deltas, &w, h, k0, keys, &target, w.dv + h / per_v * dv_size);
    }
    for (int h = 0; h < plan->cluster / per_k; h++)
        finish_keys(call, &w, ph_dk_target(call, batch, head0 / per_k + h, k0), n,
                    w.dk + h * dk_size);
    for (int h = 0; h < plan->cluster / per_v; h++)
        finish_keys(call, &w, ph_dv_target(call, batch, head0 / per_v + h, k0), n,
                    w.dv + h * dv_size);
}
