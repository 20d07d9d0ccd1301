/*
 * chunk.c - gradients of a chunk of keys, and of a short head at once: five products per
 * tile.
 *
 *     s = q k^T    dp = dout v^T    dv += p^T dout    dk += ds^T q    dq += ds k
 *
 * dk and dv are summed here, over rows in order, and stored. dq is a share: of a single
 * chunk it is stored too, else added to what the caller says.
 */
#include "attn/chunk.h"

#include <string.h>

#include "attn/grad.h"

enum {
    FOLD = 8 /* row tiles after which sums of dk and dv are set aside: one chain over all
                rows of a long text would lose digits */
};

typedef struct worker {
    ph_grad_rows g;
    ph_grad_tile tile;
    float *k_scores, *v_across; /* chunk, by blocks: k as scores want it */
    float *k_room;              /* (PH_CHUNK, k_pad) */
    const float *k;             /* row of the chunk's key c at k + c * k_ld */
    int64_t k_ld;
    int k_finite, rows_finite; /* -1: nobody has asked yet */
    float *dk, *dv;            /* (heads in cluster, PH_CHUNK, pad) */
    float *dk_part, *dv_part;  /* (PH_CHUNK, pad) sums of the last FOLD tiles */
    float *dq_tile;            /* (PH_GRAD_ROWS, k_pad) share of the chunk */
    float ones[PH_MR_MAX], scales[PH_MR_MAX]; /* 1, and attn.scale */
} worker;

static void take_worker(const ph_plan *plan, ph_arena *arena, worker *w)
{
    const ph_attn *a = &plan->attn;
    size_t chunk = PH_CHUNK, heads_k = (size_t)(plan->cluster * a->k_heads / a->q_heads);
    size_t heads_v = (size_t)(plan->cluster * a->v_heads / a->q_heads);
    ph_grad_rows_take(plan, arena, &w->g);
    ph_grad_tile_take(plan, arena, &w->tile);
    w->k_scores = ph_arena_floats(arena, ph_scores_k_floats(plan, PH_CHUNK));
    w->v_across = ph_arena_floats(arena, chunk * (size_t)a->v_dim + PH_PACK_SLACK);
    w->k_room = ph_arena_floats(arena, chunk * (size_t)plan->k_pad);
    w->dk = ph_arena_floats(arena, heads_k * chunk * (size_t)plan->k_pad);
    w->dv = ph_arena_floats(arena, heads_v * chunk * (size_t)plan->v_pad);
    w->dk_part = ph_arena_floats(arena, chunk * (size_t)plan->k_pad);
    w->dv_part = ph_arena_floats(arena, chunk * (size_t)plan->v_pad);
    w->dq_tile = ph_arena_floats(arena, (size_t)PH_GRAD_ROWS * (size_t)plan->k_pad);
    for (int i = 0; i < PH_MR_MAX; i++) w->ones[i] = 1, w->scales[i] = a->scale;
}

size_t ph_chunk_bytes(const ph_plan *plan)
{
    ph_arena arena = {0};
    worker w;
    take_worker(plan, &arena, &w);
    return arena.used;
}

static void pack_keys(const ph_call *call, worker *w, const ph_rows *rows, int k0,
                      int keys)
{
    const ph_attn *a = call->attn;
    const ph_plan *plan = call->plan;
    w->k_finite = -1;
    for (int c = 0; c < keys; c += PH_BLOCK) {
        int n = ph_min(PH_BLOCK, keys - c), b = rows->batch;
        ph_scores_pack_k(call, b, rows->k_head, k0 + c, 0, n,
                         w->k_scores + (int64_t)c * plan->k_floats);
        ph_keys_across(call, call->args->v, &a->v, b, rows->v_head, a->v_dim, k0 + c, 0,
                       n, w->v_across + (int64_t)c * a->v_dim);
        w->k = ph_keys_along(call, call->args->k, &a->k, b, rows->k_head, a->qk_dim,
                             plan->k_pad, k0, c, c + n, 0, w->k_room, &w->k_ld);
    }
}

/* Whether some key of the block is hidden from some row. */
static int is_partial(const ph_call *call, const ph_rows *rows, int j0, int keys)
{
    if (call->args->bias || call->args->visible) return 1; /* those may hide anything */
    return !ph_rows_all_see(rows, j0, j0 + keys);
}

/* Whether k of the chunk, q and dout are all finite. */
static int all_finite(const ph_call *call, worker *w, int chunk_keys)
{
    int k_pad = call->plan->k_pad;
    if (w->k_finite < 0)
        w->k_finite = call->kernels->finite(w->k, w->k_ld, chunk_keys, k_pad);
    if (w->rows_finite < 0) w->rows_finite = ph_grad_rows_finite(call, &w->g);
    return w->k_finite && w->rows_finite;
}

/* Rows [*from, *to) of the tile that may see one of the keys [j, j + n). */
static void seeing_rows(const ph_rows *rows, int j, int n, int *from, int *to)
{
    int a = 0, b = rows->count;
    while (a < b && (rows->hi[a] <= j || rows->lo[a] >= j + n)) a++;
    while (b > a && (rows->hi[b - 1] <= j || rows->lo[b - 1] >= j + n)) b--;
    *from = a, *to = b;
}

/* dk += ds^T q and dv += p^T dout for the block, mr keys at a time. */
static void add_key_gradients(const ph_call *call, worker *w, int j0, int keys,
                              int partial, float *dk, float *dv)
{
    const ph_kernels *k = call->kernels;
    int k_pad = call->plan->k_pad, v_pad = call->plan->v_pad;
    for (int c = 0; c < keys; c += k->mr) {
        int m = ph_min(k->mr, keys - c), from = 0, to = w->g.rows->count;
        if (partial) seeing_rows(w->g.rows, j0 + c, m, &from, &to);
        if (from >= to) continue;
        int64_t tile = (int64_t)from * PH_STRIP_LD + c;
        if (call->grads->dv)
            k->product(m, v_pad, to - from, w->tile.p + tile, PH_STRIP_LD,
                       w->g.dout + (int64_t)from * v_pad, v_pad, k->nr,
                       dv + (int64_t)c * v_pad, v_pad, 1);
        if (call->grads->dk)
            k->product(m, k_pad, to - from, w->tile.ds + tile, PH_STRIP_LD,
                       w->g.q + (int64_t)from * k_pad, k_pad, k->nr,
                       dk + (int64_t)c * k_pad, k_pad, 1);
    }
}

/* The same three sums where a hidden number may be NaN or Inf: hidden pairs are stepped
   over. Same order, same bits. */
static void add_seen(const ph_call *call, worker *w, int j0, int c_block, int keys,
                     float *dk, float *dv)
{
    const ph_kernels *k = call->kernels;
    int k_pad = call->plan->k_pad, v_pad = call->plan->v_pad;
    for (int r = 0; r < w->g.rows->count; r++)
        for (int c = 0; c < keys; c++) {
            int64_t at = (int64_t)r * PH_STRIP_LD + c;
            if (!ph_rows_sees(call, w->g.rows, r, j0 + c)) continue;
            k->axpy(v_pad, w->tile.p[at], w->g.dout + (int64_t)r * v_pad,
                    dv + (int64_t)c * v_pad);
            k->axpy(k_pad, w->tile.ds[at], w->g.q + (int64_t)r * k_pad,
                    dk + (int64_t)c * k_pad);
            k->axpy(k_pad, w->tile.ds[at], w->k + (c_block + c) * w->k_ld,
                    w->dq_tile + (int64_t)r * k_pad);
        }
}

/* All rows of the tile against the block from c_block on of the chunk at k0. */
static void run_block(const ph_call *call, worker *w, int k0, int c_block, int chunk_keys,
                      float *dk, float *dv)
{
    const ph_kernels *k = call->kernels;
    const ph_plan *plan = call->plan;
    int j0 = k0 + c_block, keys = ph_min(PH_BLOCK, chunk_keys - c_block), c0, c1;
    if (w->g.rows->high <= j0 || w->g.rows->low >= j0 + keys) return;
    int k_pad = plan->k_pad, partial = is_partial(call, w->g.rows, j0, keys);
    int safe = !partial || all_finite(call, w, chunk_keys);
    for (int r = 0; r < w->g.rows->count; r += k->mr) {
        int m = ph_min(k->mr, w->g.rows->count - r);
        int seen =
            ph_grad_strip(call, &w->g, &w->tile, r, m, j0, keys,
                          w->k_scores + (int64_t)c_block * plan->k_floats,
                          w->v_across + (int64_t)c_block * plan->attn.v_dim, &c0, &c1);
        if (seen && safe && call->grads->dq)
            k->weigh(m, k_pad, c1 - c0, w->tile.ds + (int64_t)r * PH_STRIP_LD + c0,
                     w->k + (c_block + c0) * w->k_ld, w->k_ld,
                     w->dq_tile + (int64_t)r * k_pad, k_pad, w->ones, NULL);
    }
    if (safe)
        add_key_gradients(call, w, j0, keys, partial, dk, dv);
    else
        add_seen(call, w, j0, c_block, keys, dk, dv);
}

/* The chunk's share of dq of a tile: added to the target; of a single chunk, stored. */
static void keep_dq(const ph_call *call, const worker *w, int head_in_cluster,
                    ph_dq_target target)
{
    const ph_attn *a = call->attn;
    const ph_rows *rows = w->g.rows;
    int k_pad = call->plan->k_pad;
    for (int r = 0; r < rows->count; r++) {
        const float *share = w->dq_tile + (int64_t)r * k_pad;
        int head = head_in_cluster + rows->head[r] - rows->head0;
        if (call->plan->chunks == 1)
            call->kernels->store_row(
                ph_at_out(call->grads->dq, a->dtype, ph_rows_at(rows, r, &a->dq)), share,
                a->qk_dim, a->dtype, a->scale);
        else
            call->kernels->axpy(k_pad, 1, share,
                                target.base + head * target.head +
                                    rows->token[r] * target.time);
    }
}

/* One tile of rows against the chunk. */
static void run_tile(const ph_call *call, const ph_deltas *deltas, worker *w,
                     int head_in_cluster, int k0, int keys, ph_dq_target target,
                     float *dk, float *dv)
{
    const ph_rows *rows = w->g.rows;
    int k_pad = call->plan->k_pad, v_pad = call->plan->v_pad;
    ph_grad_rows_pack(call, &w->g, deltas->lse, deltas->delta);
    memset(w->dq_tile, 0, (size_t)rows->count * (size_t)k_pad * sizeof(float));
    w->rows_finite = -1;
    for (int c = 0; c < keys; c += PH_BLOCK)
        run_block(call, w, k0, c, keys, dk + (int64_t)c * k_pad, dv + (int64_t)c * v_pad);
    if (call->grads->dq) keep_dq(call, w, head_in_cluster, target);
}

/* Adds the sums of the last tiles to those before, and starts new ones. */
static void fold(const ph_call *call, worker *w, int keys, float *dk, float *dv)
{
    int k_floats = keys * call->plan->k_pad, v_floats = keys * call->plan->v_pad;
    call->kernels->axpy(k_floats, 1, w->dk_part, dk);
    call->kernels->axpy(v_floats, 1, w->dv_part, dv);
    memset(w->dk_part, 0, (size_t)k_floats * sizeof(float));
    memset(w->dv_part, 0, (size_t)v_floats * sizeof(float));
}

/* All rows of one group of heads against the chunk. */
static void run_group(const ph_call *call, const ph_deltas *deltas, worker *w,
                      int head_in_cluster, int k0, int keys, ph_dq_target target,
                      float *dk, float *dv)
{
    const ph_plan *plan = call->plan;
    const ph_rows *rows = w->g.rows;
    int total = rows->extent.q_len * rows->group, tiles = 0;
    /* with a single fold, adding to zeros, the parts may as well be the sums */
    int direct = plan->cluster == plan->group && total <= FOLD * PH_GRAD_ROWS;
    float *dk_part = direct ? dk : w->dk_part, *dv_part = direct ? dv : w->dv_part;
    if (!direct) {
        memset(dk_part, 0, (size_t)keys * (size_t)plan->k_pad * sizeof(float));
        memset(dv_part, 0, (size_t)keys * (size_t)plan->v_pad * sizeof(float));
    }
    for (int row = 0; row < total;) {
        row = ph_rows_gather(call, w->g.rows, row, total, PH_GRAD_ROWS);
        int seen = rows->high > k0 && rows->low < k0 + keys;
        if (!seen && plan->chunks > 1) continue; /* a single chunk has dq to store */
        run_tile(call, deltas, w, head_in_cluster, k0, keys, target, dk_part, dv_part);
        if (!direct && seen && ++tiles % FOLD == 0) fold(call, w, keys, dk, dv);
    }
    if (!direct) fold(call, w, keys, dk, dv);
}

/* Rounds and stores the chunk's rows of dk or dv; keys beyond the valid ones get 0. */
static void store_keys(const ph_call *call, void *out, const ph_strides *s, int batch,
                       int head, int k0, int dim, int pad, const float *sums, float scale)
{
    const ph_attn *a = call->attn;
    int n = ph_min(PH_CHUNK, a->kv_len - k0);
    for (int c = 0; out && c < n; c++) {
        int64_t at = batch * s->batch + head * s->head + (k0 + c) * s->time;
        call->kernels->store_row(ph_at_out(out, a->dtype, at), sums + (int64_t)c * pad,
                                 dim, a->dtype, scale);
    }
}

void ph_chunk_run(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int pair,
                  int chunk, ph_dq_target target)
{
    const ph_plan *plan = call->plan;
    const ph_attn *a = call->attn;
    worker w;
    take_worker(plan, &arena, &w);

    int clusters = a->q_heads / plan->cluster, batch = pair / clusters;
    int head0 = pair % clusters * plan->cluster, k0 = chunk * PH_CHUNK;
    int per_k = a->q_heads / a->k_heads, per_v = a->q_heads / a->v_heads;
    int64_t dk_size = (int64_t)PH_CHUNK * plan->k_pad,
            dv_size = (int64_t)PH_CHUNK * plan->v_pad;
    size_t n = (size_t)ph_min(PH_CHUNK, a->kv_len - k0);
    for (int h = 0; h < plan->cluster / per_k; h++)
        memset(w.dk + h * dk_size, 0, n * (size_t)plan->k_pad * sizeof(float));
    for (int h = 0; h < plan->cluster / per_v; h++)
        memset(w.dv + h * dv_size, 0, n * (size_t)plan->v_pad * sizeof(float));
    for (int h = 0; h < plan->cluster; h += plan->group) {
        ph_rows_begin(call, w.g.rows, batch, head0 + h, plan->group);
        int keys = ph_min(PH_CHUNK, ph_max(w.g.rows->extent.kv_len - k0, 0));
        pack_keys(call, &w, w.g.rows, k0, keys);
        run_group(call, deltas, &w, h, k0, keys, target, w.dk + h / per_k * dk_size,
                  w.dv + h / per_v * dv_size);
    }
    for (int h = 0; h < plan->cluster / per_k; h++)
        store_keys(call, call->grads->dk, &a->dk, batch, head0 / per_k + h, k0, a->qk_dim,
                   plan->k_pad, w.dk + h * dk_size, a->scale);
    for (int h = 0; h < plan->cluster / per_v; h++)
        store_keys(call, call->grads->dv, &a->dv, batch, head0 / per_v + h, k0, a->v_dim,
                   plan->v_pad, w.dv + h * dv_size, 1);
}

/* ---- a head that is one tile ---- */

int ph_chunk_is_head(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    return a->dtype == PH_F32 && plan->cluster == 1 && a->kv_len <= PH_BLOCK &&
           a->q_len <= PH_GRAD_ROWS && a->qk_dim == plan->k_pad &&
           a->v_dim == plan->v_pad;
}

/* One of dk and dv: grad = scale * left^T right, `left` a tile, `right` its rows. */
static void write_keys(const ph_call *call, const ph_rows *rows, int keys, int partial,
                       const float *left, const float *right, int dim,
                       const ph_strides *s, int head, const float *scale, float *grad)
{
    const ph_kernels *k = call->kernels;
    if (!grad) return;
    grad += rows->batch * s->batch + head * s->head;
    int height = ph_even_strip(keys, k->mr);
    for (int c = 0; c < keys; c += height) {
        int m = ph_min(height, keys - c), from = 0, to = rows->count;
        if (partial) seeing_rows(rows, c, m, &from, &to);
        if (from < to)
            k->product_times(m, dim, to - from, left + (int64_t)from * PH_STRIP_LD + c, 1,
                             PH_STRIP_LD, right + (int64_t)from * dim, dim,
                             grad + c * s->time, s->time, scale);
        for (int i = 0; from >= to && i < m; i++)
            memset(grad + (c + i) * s->time, 0, (size_t)dim * sizeof(float));
    }
    for (int c = keys; c < call->attn->kv_len; c++)
        memset(grad + c * s->time, 0, (size_t)dim * sizeof(float));
}

/* p and ds of all rows; dq strip by strip, while its ds is at hand. */
static void write_queries(const ph_call *call, worker *w, int keys)
{
    const ph_attn *a = call->attn;
    const ph_kernels *k = call->kernels;
    const ph_rows *rows = w->g.rows;
    int height = ph_even_strip(rows->count, k->mr);
    for (int r = 0, c0, c1; r < rows->count; r += height) {
        int m = ph_min(height, rows->count - r);
        ph_grad_strip(call, &w->g, &w->tile, r, m, 0, keys, w->k_scores, w->v_across, &c0,
                      &c1);
        if (!call->grads->dq) continue;
        float *dq = (float *)call->grads->dq + ph_rows_at(rows, r, &a->dq);
        if (c0 < c1)
            k->product_times(m, a->qk_dim, c1 - c0,
                             w->tile.ds + (int64_t)r * PH_STRIP_LD + c0, PH_STRIP_LD, 1,
                             w->k + c0 * w->k_ld, w->k_ld, dq, a->dq.time, w->scales);
        for (int i = 0; c0 >= c1 && i < m; i++)
            memset(dq + i * a->dq.time, 0, (size_t)a->qk_dim * sizeof(float));
    }
}

int ph_chunk_head(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int batch,
                  int head)
{
    const ph_attn *a = call->attn;
    worker w = {.rows_finite = -1};
    take_worker(call->plan, &arena, &w);
    ph_rows *rows = w.g.rows;
    ph_rows_begin(call, rows, batch, head, 1);
    ph_rows_gather(call, rows, 0, a->q_len, PH_GRAD_ROWS);
    int keys = rows->extent.kv_len, count = rows->count;
    if (rows->high == 0 || rows->token[count - 1] != count - 1) return 0;
    pack_keys(call, &w, rows, 0, keys);
    ph_grad_rows_pack(call, &w.g, deltas->lse, deltas->delta);
    int partial = is_partial(call, rows, 0, keys);
    if (partial && !all_finite(call, &w, keys)) return 0;
    write_queries(call, &w, keys);
    write_keys(call, rows, keys, partial, w.tile.p, w.g.dout, a->v_dim, &a->dv, head,
               w.ones, call->grads->dv);
    write_keys(call, rows, keys, partial, w.tile.ds, w.g.q, a->qk_dim, &a->dk, head,
               w.scales, call->grads->dk);
    return 1;
}
