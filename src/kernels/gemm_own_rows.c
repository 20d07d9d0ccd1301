/*
 * gemm_own_rows.c - products with matrices that are packed already (gemm_prepack.c), each
 * thread with rows of its own.
 *
 * Loops over rows around a product (norms, activations, residual connections) give a
 * thread the same rows, so it reads what it wrote itself. With columns of its own it
 * would read all rows, and the other cores' from their caches: 5 times as slow where
 * those are far away. Each thread reads all of b instead, prefetched during the steps
 * before.
 *
 *     for each block of rows
 *         for each block of k        packs a, which stays in L2
 *             for each item of columns    b prefetched during the one before
 */
#include "kernels/gemm_job.h"

typedef ph_gemm_job job;

enum {
    MIN_PANELS = 4,      /* of a per thread: fewer do not repay reading all of b */
    MAX_PACKED = 1 << 17 /* floats of a block: half of L2 */
};

typedef struct own_rows {
    job jobs[PH_GEMM_MAX];
    int count, threads;
    int rows;   /* of a block */
    int strips; /* panels of a block at most */
    char *lanes;
    size_t lane_size;
} own_rows;

typedef struct own_scratch {
    float *packed; /* panels of a */
    float *edge;   /* a register tile that reaches beyond the last column */
} own_scratch;

/* One scratch serves all products: they run one after the other. */
static own_scratch layout(const own_rows *o, ph_arena *arena)
{
    int64_t step = 0;
    for (int i = 0; i < o->count; i++)
        if (o->jobs[i].a_step > step) step = o->jobs[i].a_step;
    const ph_kernels *k = o->jobs[0].k;
    size_t floats = (size_t)o->strips * (size_t)step + PH_PACK_SLACK;
    own_scratch s = {.packed = ph_arena_floats(arena, floats)};
    s.edge = ph_arena_floats(arena, (size_t)k->mr * (size_t)k->nr);
    return s;
}

/* Decides for the list; returns 0 where rows are not shared out. */
static int choose(own_rows *o, const ph_ctx *ctx, const ph_gemm *list, int count)
{
    int mr = ctx->kernels->mr, m = count ? list[0].m : 0, kc = 1;
    o->count = count, o->threads = ctx->threads;
    if (m < ctx->threads * MIN_PANELS * mr) return 0;
    for (int i = 0; i < count; i++) {
        job *j = &o->jobs[i];
        ph_gemm_choose(j, ctx, &list[i], count);
        if (!j->panels || !j->direct || list[i].m != m || list[i].k < 1) return 0;
        kc = ph_max(kc, j->kc);
    }
    int own = ph_div_up(m, ctx->threads), most = ph_max(MAX_PACKED / kc, MIN_PANELS * mr);
    o->rows = ph_gemm_even_part(own, most, 1, 1);
    o->strips = ph_div_up(ph_min(own, most), mr);
    for (int i = 0; i < count; i++)
        o->jobs[i].strip = ph_gemm_even_part(o->rows, mr, 1, 1);
    ph_arena lane = {0};
    layout(o, &lane);
    o->lane_size = lane.used;
    return 1;
}

static void pack(const job *j, int i0, int rows, int kk, int len, float *to)
{
    for (int t = 0; t < rows; t += j->strip, to += j->a_step)
        ph_gemm_pack_a(j, i0 + t, ph_min(j->strip, rows - t), kk, len, to);
}

/* What is read behind the steps of k from kk on of columns j0..: the next columns, the
   next steps, or the next matrix, whose panels lie behind these. */
static const float *next_panels(const job *j, int j0, int kk)
{
    int nr = j->k->nr, last = j0 + j->columns >= j->g->n;
    if (last && kk + j->kc < j->g->k) return j->panels + (int64_t)(kk + j->kc) * nr;
    return j->panels + (j0 + j->columns) / nr * j->panel_step +
           (last ? 0 : (int64_t)kk * nr);
}

/* `has`: the rows of a are packed. */
static void multiply(const job *j, int i0, int rows, int has, const own_scratch *s)
{
    const ph_gemm *g = j->g;
    int nr = j->k->nr;
    for (int kk = 0; kk < g->k; kk += j->kc) {
        int len = ph_min(j->kc, g->k - kk);
        if (!has) pack(j, i0, rows, kk, len, s->packed);
        for (int j0 = 0; j0 < g->n; j0 += j->columns) {
            ph_gemm_area r = {i0, rows, j0, ph_min(j->columns, g->n - j0), NULL, 0};
            r.c = (float *)g->c + i0 * g->c_row + j0, r.ldc = g->c_row;
            ph_gemm_steps(j, &r, kk, len, s->packed,
                          j->panels + j0 / nr * j->panel_step + (int64_t)kk * nr,
                          next_panels(j, j0, kk), s->edge);
        }
    }
}

static void run_thread(void *arg, int lane, int index)
{
    const own_rows *o = arg;
    int64_t m = o->jobs[0].g->m;
    int i0 = (int)(m * index / o->threads), end = (int)(m * (index + 1) / o->threads);
    ph_arena arena = ph_arena_of(o->lanes + o->lane_size * (size_t)lane, o->lane_size);
    own_scratch s = layout(o, &arena);
    for (int rows; i0 < end; i0 += rows) {
        rows = ph_min(o->rows, end - i0);
        for (int i = 0; i < o->count; i++) {
            const job *j = &o->jobs[i];
            multiply(j, i0, rows, i && j->g->same_a && j->kc >= j->g->k, &s);
        }
    }
}

size_t ph_gemm_own_rows_bytes(const ph_ctx *ctx, const ph_gemm *list, int count)
{
    own_rows o;
    ph_arena arena = {0};
    if (!choose(&o, ctx, list, count)) return 0;
    ph_arena_take(&arena, o.lane_size * (size_t)ctx->threads);
    return arena.used;
}

int ph_gemm_own_rows(ph_ctx *ctx, const ph_gemm *list, int count, ph_workspace work)
{
    own_rows o;
    if (!choose(&o, ctx, list, count)) return 0;
    if (o.lane_size * (size_t)ctx->threads > work.size) return 0; /* sized without b */
    ph_arena arena = ph_arena_of(work.data, work.size);
    o.lanes = ph_arena_take(&arena, o.lane_size * (size_t)ctx->threads);
    ph_ctx_spread(ctx, ctx->threads, run_thread, &o);
    return 1;
}
