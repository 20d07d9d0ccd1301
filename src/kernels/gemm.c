/*
 * gemm.c - matrix products of any size: blocking, packing, threads.
 *
 *   PACKED  A round has two parallel loops. One packs a, which all items share; in the
 *           other every item owns a rectangle of c. It packs its columns of b itself, so
 *           that they stay in its L2, and advances along k by `kc` steps at a time:
 *
 *               for each panel of a      (mr x kc)   prefetched during the one before
 *                   for each panel of b  (kc x nr)   micro-kernel into c, b from L2
 *
 *           c is updated in row-major order: few pages at a time, contiguous lines. With
 *           many rows a thread starts with a range of items of its own, which share their
 *           columns of b.
 *   FEW_ROWS, FEW_ROWS_T   few rows: b is not packed, see gemm_few_rows.c.
 *   TILED            bf16x3 on AMX tiles, see gemm_tiles.c.
 *
 * If packed a exceeds its capacity the product runs in rounds, over rows and then over k;
 * c holds the partial sums between rounds over k. Unless c is row-major f32, an item
 * works on a copy of its rectangle, and k is not cut for half precision, so that results
 * are rounded once. A lane of a vector is always a column of c, never part of k: the
 * order of every sum is the same everywhere.
 */
#include <string.h>

#include "kernels/gemm_job.h"

typedef ph_gemm_sizes sizes;
typedef ph_gemm_job job;
typedef ph_gemm_area area;

static const sizes all_sizes[] = {
    {12, 48, 640, 256, 1 << 19}, /* L2 1 to 2 MB */
    {6, 16, 384, 192, 1 << 20},  /* L2 0.5 to 1 MB */
    {4, 4, 64, 64, 1 << 12},     /* ref: small, so that tests reach every edge */
};

enum {
    MIN_PANELS = 8,        /* of b in an item */
    MIN_PREPACKED = 3,     /* the same where they are packed already: threads then read
                              different columns from memory, not the same ones */
    MIN_A_PANELS = 4,      /* panels of a in an item: fewer do not repay packing b */
    A_PANELS_PER_PACK = 4, /* panels of a packed by one item */
    COPY = 1 << 18,        /* floats in an item's copy of its rectangle */
    ITEMS_PER_LANE = 16    /* for load balance: a preempted thread delays little */
};

typedef struct gemm_batch {
    job jobs[PH_GEMM_MAX];
    int count;
    char *lanes;      /* scratch of all lanes */
    size_t lane_size; /* bytes of one */
} gemm_batch;

/* Which columns of b a lane holds packed: its next item often needs the same. */
typedef struct packed_columns {
    const job *job; /* NULL: none */
    int j0, k0;
} packed_columns;

enum { MIN_LANE = PH_ALIGN }; /* bytes: packed_columns is there even without a product */
_Static_assert(sizeof(packed_columns) <= MIN_LANE, "packed_columns outgrew its lane");

/* Scratch of one lane. */
typedef struct gemm_scratch {
    packed_columns *has; /* what panels hold */
    float *panels;       /* packed columns of b */
    float *c;            /* copy of a rectangle of c, or of one register tile */
} gemm_scratch;

static int is_few_rows(const job *j)
{
    return j->mode == FEW_ROWS || j->mode == FEW_ROWS_T;
}

/* ---- decisions --------------------------------------------------------------------- */

static const sizes *sizes_for(const ph_kernels *k)
{
    const sizes *s = all_sizes;
    while (s->mr != k->mr) s++;
    return s;
}

int ph_gemm_even_part(int total, int most, int wanted, int least)
{
    int k_blocks = ph_div_up(total, most);
    k_blocks = ph_max(k_blocks, ph_min(wanted, total / least));
    return ph_div_up(total, ph_max(k_blocks, 1));
}

/* How much of a one round packs: all of it, or `height` rows of `depth` steps of k. */
static void choose_round(job *j)
{
    const ph_gemm *g = j->g;
    int mr = j->k->mr, k_blocks = ph_max(ph_div_up(g->k, j->s->kc), 1),
        max_packed = j->s->max_packed;
    j->kc = ph_max(ph_div_up(g->k, k_blocks), 1);
    j->kc = ph_round_up(j->kc, ph_quant_block(g->b_type));
    j->depth = g->k;
    j->height = g->m;
    if ((int64_t)g->m * g->k <= max_packed) return;
    if (g->c_type == PH_F32) j->depth = ph_max(max_packed / g->m / j->kc, 1) * j->kc;
    j->k_rounds = ph_div_up(g->k, j->depth);
    int most = ph_max(max_packed / j->depth / mr, A_PANELS_PER_PACK);
    j->height = ph_gemm_even_part(ph_div_up(g->m, mr), most, 1, 1) * mr;
    j->rounds = j->k_rounds * ph_div_up(g->m, j->height);
}

/* Rectangles of c: columns are cut first, because every item packs its own b; rows only
   where the products of the list together have too few items. A workspace sized for a
   list must suffice for part of it, so only what costs no memory depends on `count`. */
static void choose_packed(job *j, int wanted, int count)
{
    int mr = j->k->mr, nr = j->k->nr, panels = ph_div_up(j->g->n, nr);
    j->mode = PACKED;
    choose_round(j);
    int least = j->panels ? MIN_PREPACKED : MIN_PANELS;
    int widest = j->s->columns / nr / (j->panels ? 2 : 1); /* and those prefetched */
    j->columns = ph_gemm_even_part(panels, widest, wanted, least) * nr;
    j->columns = ph_round_up(j->columns, ph_quant_block(j->g->b_type));
    int column_blocks = ph_div_up(j->g->n, j->columns), tiles = ph_div_up(j->height, mr);
    int most = j->direct ? tiles : ph_max(COPY / j->columns / mr, 1);
    int row_blocks = ph_div_up(wanted, column_blocks * (j->direct ? count : 1));
    j->rows = ph_gemm_even_part(tiles, most, row_blocks, MIN_A_PANELS) * mr;
    j->strip = mr;
    j->a_step = (int64_t)j->kc * mr + PH_GEMM_PAD;
    j->b_step = (int64_t)j->kc * nr + PH_GEMM_PAD;
}

void ph_gemm_choose(job *j, const ph_ctx *ctx, const ph_gemm *g, int count)
{
    int wanted = ctx->threads > 1 ? ctx->threads * ITEMS_PER_LANE : 1;
    memset(j, 0, sizeof *j);
    j->g = g;
    j->k = ctx->kernels;
    j->s = sizes_for(j->k);
    j->direct = g->c_type == PH_F32 && !g->c_block;
    j->rounds = j->k_rounds = 1;
    if (g->m <= 0 || g->n <= 0) {
        j->mode = EMPTY;
    } else if (g->tiles && j->k->bf16_pairs && g->a_type != PH_F16 && !g->a_block) {
        ph_gemm_tiled_choose(j, wanted, count);
    } else if (!ph_gemm_few_rows_choose(j, wanted)) {
        ph_gemm_find_panels(j, ctx);
        choose_packed(j, wanted, count);
    }
}

/* ---- workspace --------------------------------------------------------------------- */

/* Floats that the first loop packs. */
static size_t packed_floats(const job *j)
{
    size_t k_blocks = (size_t)ph_div_up(j->depth, ph_max(j->kc, 1));
    if (j->mode == TILED) return ph_gemm_tiled_packed(j);
    if (is_few_rows(j)) return ph_gemm_few_rows_packed(j);
    return k_blocks * (size_t)ph_div_up(j->height, j->k->mr) * (size_t)j->a_step;
}

static gemm_scratch layout_lane(const job *j, ph_arena *arena)
{
    gemm_scratch s = {0};
    int mr = j->k->mr, nr = j->k->nr;
    size_t copy = (size_t)j->rows * (size_t)j->columns;
    s.has = ph_arena_take(arena, sizeof *s.has);
    if (j->mode == TILED) ph_gemm_tiled(j, arena, -1, 0);
    if (is_few_rows(j)) ph_gemm_few_rows(j, arena, -1);
    if (j->mode != PACKED) return s;
    size_t panels = (size_t)(j->columns / nr) * (size_t)j->b_step;
    s.panels = ph_arena_floats(arena, panels + PH_PACK_SLACK);
    s.c = ph_arena_floats(arena, j->direct ? (size_t)mr * (size_t)nr : copy);
    return s;
}

/* Whether a job packs the same as the one before it, round by round. */
static int shares(const job *j)
{
    int packs = j->mode == PACKED || j->mode == TILED;
    return packs && j->g->same_a && j->mode == j[-1].mode && j->once == j[-1].once &&
           j->depth == j[-1].depth && j->height == j[-1].height && j->kc == j[-1].kc;
}

/* Whether packed a has scratch of its own. Products of several rounds run one after the
   other and share theirs. */
static int owns_scratch(const job *j)
{
    return j->rounds == 1 && (j->mode != TILED || ph_gemm_tiled_shares_a(j));
}

static void layout_batch(gemm_batch *b, const ph_ctx *ctx, const ph_gemm *list, int count,
                         ph_workspace work)
{
    ph_arena arena = ph_arena_of(work.data, work.size);
    size_t most = 0;
    b->count = count;
    b->lane_size = MIN_LANE;
    for (int i = 0; i < count; i++) {
        job *j = &b->jobs[i];
        ph_arena lane = {0};
        ph_gemm_choose(j, ctx, &list[i], count);
        layout_lane(j, &lane);
        if (lane.used > b->lane_size) b->lane_size = lane.used;
        if (j->mode == EMPTY) continue;
        size_t floats = packed_floats(j) + PH_PACK_SLACK;
        j->shared = i && shares(j);
        if (!owns_scratch(j) && floats > most) most = floats;
        if (!owns_scratch(j)) continue;
        j->packed = j->shared ? j[-1].packed : ph_arena_floats(&arena, floats);
    }
    float *packed = ph_arena_floats(&arena, most);
    for (int i = 0; i < count; i++)
        if (!owns_scratch(&b->jobs[i])) b->jobs[i].packed = packed;
    b->lanes = ph_arena_take(&arena, b->lane_size * (size_t)ctx->threads);
}

/* ---- upper bounds of it ------------------------------------------------------------ */

/* An upper bound of what a product carves with any number of rows up to m. */
typedef struct bound {
    size_t packed; /* floats */
    size_t lane;   /* bytes */
} bound;

static bound wider(bound a, bound b)
{
    return (bound){a.packed > b.packed ? a.packed : b.packed,
                   a.lane > b.lane ? a.lane : b.lane};
}

/* For a mode whose sizes grow with m: those of its largest m. */
static bound few_rows_bound(const ph_ctx *ctx, const ph_gemm *g, int max_rows)
{
    job j;
    ph_arena lane = {0};
    ph_gemm fewer = *g;
    fewer.m = ph_min(g->m, max_rows);
    ph_gemm_choose(&j, ctx, &fewer, 1);
    layout_lane(&j, &lane);
    return (bound){j.mode == EMPTY ? 0 : packed_floats(&j), lane.used};
}

/* Panels of a that are packed at a time: of all of k if the rows fit at once, else what a
   round over part of k or of the rows holds. In each block of k the last panel may have a
   single row. */
static bound packed_bound(const job *j)
{
    ph_arena lane = {0};
    int mr = j->k->mr, nr = j->k->nr, k_blocks = ph_div_up(j->g->k, j->kc);
    int64_t all = (int64_t)k_blocks * ph_div_up(j->g->m, mr);
    int at_once = k_blocks * ph_div_up(j->s->max_packed / ph_max(j->g->k, 1), mr);
    int round =
        ph_max(j->s->max_packed / (j->kc * mr), k_blocks * A_PANELS_PER_PACK) + k_blocks;
    int64_t most = ph_max(at_once, round);
    int tiles = ph_min(ph_div_up(j->g->m, mr), ph_max(COPY / j->columns / mr, 1));
    size_t copy = (size_t)tiles * (size_t)mr * (size_t)j->columns;
    ph_arena_take(&lane, sizeof(packed_columns));
    ph_arena_floats(&lane, (size_t)(j->columns / nr) * (size_t)j->b_step + PH_PACK_SLACK);
    ph_arena_floats(&lane, j->direct ? (size_t)mr * (size_t)nr : copy);
    return (bound){(size_t)((all < most ? all : most) * j->a_step), lane.used};
}

static bound tiled_bound(const job *j)
{
    ph_arena lane = {0};
    ph_arena_take(&lane, sizeof(packed_columns));
    ph_arena_take(&lane, ph_gemm_tiled_lane(j));
    return (bound){ph_gemm_tiled_packed(j), lane.used};
}

static bound bound_of(const ph_ctx *ctx, const ph_gemm *g)
{
    job j;
    ph_gemm_choose(&j, ctx, g, 1);
    if (j.mode == EMPTY) return (bound){0};
    if (j.mode == TILED) return tiled_bound(&j);
    int rows = ph_gemm_row_major_rows(&j), wide = ph_min(rows, j.k->few_rows);
    bound few = wider(few_rows_bound(ctx, g, rows),
                      few_rows_bound(ctx, g, ph_gemm_transposed_rows(&j)));
    few = wider(few, few_rows_bound(ctx, g, wide)); /* these have wider items */
    return j.mode == PACKED ? wider(few, packed_bound(&j)) : few;
}

/* Every product counts its own a: which of them share one depends on the rows. */
size_t ph_gemm_bytes(const ph_ctx *ctx, const ph_gemm *list, int count)
{
    ph_arena arena = {0};
    bound all = {.lane = MIN_LANE};
    for (int i = 0; i < count; i++) {
        bound b = bound_of(ctx, &list[i]);
        all = wider(all, b);
        ph_arena_floats(&arena, b.packed + PH_PACK_SLACK);
    }
    ph_arena_take(&arena, all.lane * (size_t)ctx->threads);
    size_t own_rows = ph_gemm_own_rows_bytes(ctx, list, count);
    return own_rows > arena.used ? own_rows : arena.used;
}

/* ---- in and out of c --------------------------------------------------------------- */

int64_t ph_gemm_block(int block, int64_t step, int e, int *run)
{
    if (!block) return e;
    *run = ph_min(*run, block - e % block);
    return e / block * step + e % block;
}

/* load_row pads to 16 floats, which here could belong to a neighbour, so the tail goes
   through a buffer */
void ph_gemm_load(const ph_kernels *k, float *to, const void *from, ph_dtype type,
                  int64_t at, int n)
{
    float part[PH_LANES];
    int whole = n / PH_LANES * PH_LANES;
    if (whole) k->load_row(to, from, at, whole, type, 1.0f);
    if (whole == n) return;
    k->load_row(part, from, at + whole, n - whole, type, 1.0f);
    memcpy(to + whole, part, (size_t)(n - whole) * sizeof *part);
}

void ph_gemm_copy(const job *j, const area *r, int out)
{
    const ph_gemm *g = j->g;
    for (int i = 0; i < r->rows; i++)
        for (int c = 0, run; c < r->cols; c += run) {
            run = r->cols - c;
            int64_t at = ph_gemm_block(g->c_block, g->c_step, r->j0 + c, &run);
            at += (r->i0 + i) * g->c_row;
            void *there = ph_at_out(g->c, g->c_type, at);
            float *here = r->c + i * r->ldc + c;
            if (!out)
                ph_gemm_load(j->k, here, g->c, g->c_type, at, run);
            else if (g->c_type == PH_F32 && j->mode != TILED)
                memcpy(there, here, (size_t)run * sizeof *here);
            else
                j->k->store_row(there, here, run, g->c_type, 1.0f);
        }
}

void ph_gemm_begin(const job *j, area *r, float *copy, int add)
{
    const ph_gemm *g = j->g;
    r->c = j->direct ? (float *)g->c + r->i0 * g->c_row + r->j0 : copy;
    r->ldc = j->direct ? g->c_row : j->columns;
    if (add && !j->direct) ph_gemm_copy(j, r, 0);
    for (int i = 0; i < r->rows && !add && (is_few_rows(j) || g->k == 0); i++)
        memset(r->c + i * r->ldc, 0, (size_t)r->cols * sizeof *r->c);
}

void ph_gemm_bias(const job *j, const area *r, int first, int count)
{
    j->k->add_rows(count, r->cols, j->g->bias + r->j0, r->c + first * r->ldc, r->ldc);
}

/* ---- items of the first loop ------------------------------------------------------- */

/* The panels of a for the steps of k from kk on. */
static float *a_panels(const job *j, int kk)
{
    return j->packed + (int64_t)(kk / j->kc) * ph_div_up(j->height, j->k->mr) * j->a_step;
}

static void pack_item(const job *j, int item)
{
    int mr = j->k->mr, i0 = item * A_PANELS_PER_PACK * mr;
    int rows = ph_min(A_PANELS_PER_PACK * mr, j->i_len - i0);
    if (j->mode == TILED) {
        ph_gemm_tiled_pack(j, item);
        return;
    }
    for (int kk = 0; kk < j->k_len; kk += j->kc)
        ph_gemm_pack_a(j, j->i0 + i0, rows, j->k0 + kk, ph_min(j->kc, j->k_len - kk),
                       a_panels(j, kk) + i0 / mr * j->a_step);
}

/* ---- items of the second loop ------------------------------------------------------ */

/* Prefetches the rows that a register tile will overwrite into L2: a store that misses at
   the end would fill the store buffer and stall the next tile's loads. */
static void prefetch_rows(const float *c, int64_t ldc, int rows, int cols)
{
    for (int i = 0; i < rows; i++)
        for (int p = 0; p < cols; p += PH_LANES)
            __builtin_prefetch(c + i * ldc + p, 0, 2);
}

/* What tile `at` of a row of tiles prefetches: its slice of the next panel. */
static const float *slice(const float *panel, int at, int len, int width)
{
    const int bytes = width * (int)sizeof *panel;
    if (at * PH_PREFETCH_TRICKLE >= bytes) return NULL;
    return panel + (int64_t)at * len * PH_PREFETCH_TRICKLE / (int)sizeof *panel;
}

/* One register tile of c, through a buffer if it reaches beyond the last column. */
static void tile(const job *j, const area *r, int t, int p, int len, const float *a,
                 const float *b, float *buffer, int add, const float *next)
{
    int mr = j->k->mr, nr = j->k->nr;
    int rows = ph_min(j->strip, r->rows - t), cols = ph_min(nr, r->cols - p);
    int padded = ph_round_up(cols, PH_LANES);
    float *c = r->c + t * r->ldc + p;
    if (!j->direct || cols == padded) {
        if (!add) prefetch_rows(c, r->ldc, rows, padded);
        j->k->product(rows, padded, len, a, mr, b, nr, 0, c, r->ldc, add, next);
    } else {
        area edge = {r->i0 + t, rows, r->j0 + p, cols, buffer, nr};
        if (add) ph_gemm_copy(j, &edge, 0);
        j->k->product(rows, padded, len, a, mr, b, nr, 0, buffer, nr, add, next);
        ph_gemm_copy(j, &edge, 1);
    }
}

void ph_gemm_steps(const job *j, const area *r, int kk, int len, const float *a,
                   const float *b, const float *next, float *buffer)
{
    int mr = j->k->mr, nr = j->k->nr, strip = j->strip, add = j->g->add || j->k0 + kk > 0;
    int bias = j->g->bias && j->k0 + kk + len == j->g->k;
    int64_t step = j->panels ? j->panel_step : j->b_step;
    for (int t = 0; t < r->rows; t += strip, a += j->a_step) {
        const float *right = b;
        for (int p = 0; p < r->cols; p += nr, right += step)
            tile(j, r, t, p, len, a, right, buffer, add,
                 next ? slice(next + p / nr * step, t / strip, len, nr)
                      : slice(a + j->a_step, p / nr, len, mr));
        if (bias) ph_gemm_bias(j, r, t, ph_min(strip, r->rows - t));
    }
}

ph_gemm_area ph_gemm_own(const job *j, int item)
{
    int row_blocks = ph_div_up(j->i_len, j->rows);
    int i0 = item % row_blocks * j->rows, j0 = item / row_blocks * j->columns;
    return (area){.i0 = j->i0 + i0,
                  .rows = ph_min(j->rows, j->i_len - i0),
                  .j0 = j0,
                  .cols = ph_min(j->columns, j->g->n - j0)};
}

/* The panels of an item's columns for the steps of k from k0 on: packed once, left by the
   lane's last item, or packed now. */
static const float *b_panels(const job *j, const gemm_scratch *s, const area *r, int k0,
                             int len)
{
    int nr = j->k->nr;
    if (j->panels) return j->panels + r->j0 / nr * j->panel_step + (int64_t)k0 * nr;
    packed_columns wants = {j, r->j0, k0};
    if (memcmp(s->has, &wants, sizeof wants) != 0)
        ph_gemm_pack_b(j, r->j0, r->cols, k0, len, s->panels);
    *s->has = wants;
    return s->panels;
}

static void packed_item(const job *j, const gemm_scratch *s, int item)
{
    area r = ph_gemm_own(j, item);
    int i0 = r.i0 - j->i0, add = j->g->add || j->k0 > 0;
    ph_gemm_begin(j, &r, s->c, add);
    for (int kk = 0; kk < j->k_len; kk += j->kc) {
        int len = ph_min(j->kc, j->k_len - kk);
        const float *a = a_panels(j, kk) + i0 / j->k->mr * j->a_step;
        ph_gemm_steps(j, &r, kk, len, a, b_panels(j, s, &r, j->k0 + kk, len), NULL,
                      s->c);
    }
    if (j->g->bias && j->g->k == 0) ph_gemm_bias(j, &r, 0, r.rows);
    if (!j->direct) ph_gemm_copy(j, &r, 1);
}

/* Its scratch overwrites the packed panels of the lane. */
static void few_rows_item(const job *j, ph_arena *arena, int item)
{
    packed_columns *has = ph_arena_take(arena, sizeof *has);
    *has = (packed_columns){0};
    ph_gemm_few_rows(j, arena, item);
}

static void tiled_item(const job *j, ph_arena *arena, int item)
{
    packed_columns *has = ph_arena_take(arena, sizeof *has);
    packed_columns wants = {j, ph_gemm_own(j, item).j0, 0};
    int whole = j->kc >= j->g->k; /* else the panels hold only part of k */
    int packed = whole && !memcmp(has, &wants, sizeof wants);
    ph_gemm_tiled(j, arena, item, packed);
    *has = whole ? wants : (packed_columns){0};
}

/* ---- the loops --------------------------------------------------------------------- */

static void pack_loop(void *arg, int lane, int index)
{
    const job *j = ((gemm_batch *)arg)->jobs;
    (void)lane;
    for (; index >= j->packs; j++) index -= j->packs;
    pack_item(j, index);
}

static void item_loop(void *arg, int lane, int index)
{
    gemm_batch *b = arg;
    const job *j = b->jobs;
    ph_arena arena = ph_arena_of(b->lanes + b->lane_size * (size_t)lane, b->lane_size);
    for (; index >= j->items; j++) index -= j->items;
    if (j->mode == TILED) {
        tiled_item(j, &arena, index);
        return;
    }
    if (is_few_rows(j)) {
        few_rows_item(j, &arena, index);
        return;
    }
    gemm_scratch s = layout_lane(j, &arena);
    packed_item(j, &s, index);
}

/* Sets the range of k and of the rows of round r, and its items. */
static void set_round(job *j, int r)
{
    const ph_gemm *g = j->g;
    if (j->mode == EMPTY) return;
    j->k0 = r % j->k_rounds * j->depth;
    j->k_len = ph_min(j->depth, g->k - j->k0);
    j->i0 = r / j->k_rounds * j->height;
    j->i_len = ph_min(j->height, g->m - j->i0);
    j->items = ph_div_up(j->i_len, j->rows) * ph_div_up(g->n, j->columns);
    if (j->mode == PACKED && !j->shared)
        j->packs = ph_div_up(j->i_len, A_PANELS_PER_PACK * j->k->mr);
    if (is_few_rows(j)) ph_gemm_few_rows_pack(j);
    if (j->mode == TILED && !j->shared) j->packs = ph_gemm_tiled_packs(j);
}

/* Whether each thread starts with a range of items of its own, so that no two threads
   pack the same columns of b. Not with few rows: together the threads should read memory
   in order. Nor with AMX: where sibling threads share the unit, they finish at different
   times. */
static int starts_apart(const gemm_batch *b)
{
    int packs = 0, tiled = 0;
    for (int i = 0; i < b->count; i++) {
        packs += b->jobs[i].packs;
        tiled |= b->jobs[i].items && b->jobs[i].mode == TILED;
    }
    return packs > 1 && !tiled;
}

/* Runs the jobs that set_round has given items. */
static void run_round(ph_ctx *ctx, gemm_batch *b)
{
    int packs = 0, items = 0;
    for (int i = 0; i < b->count; i++) {
        packs += b->jobs[i].packs;
        items += b->jobs[i].items;
    }
    for (int l = 0; l < ctx->threads; l++)
        memset(b->lanes + b->lane_size * (size_t)l, 0, sizeof(packed_columns));
    if (packs) ph_ctx_spread(ctx, packs, pack_loop, b);
    if (items) (starts_apart(b) ? ph_ctx_spread : ph_ctx_run)(ctx, items, item_loop, b);
    for (int i = 0; i < b->count; i++) b->jobs[i].packs = b->jobs[i].items = 0;
}

void ph_gemm_run(ph_ctx *ctx, const ph_gemm *list, int count, ph_workspace work)
{
    gemm_batch b;
    if (ph_gemm_own_rows(ctx, list, count, work)) return;
    layout_batch(&b, ctx, list, count, work);
    for (int i = 0; i < count; i++)
        if (b.jobs[i].rounds == 1) set_round(&b.jobs[i], 0);
    run_round(ctx, &b);
    for (int i = 0; i < count; i++)
        for (int r = 0; b.jobs[i].rounds > 1 && !b.jobs[i].shared && r < b.jobs[i].rounds;
             r++) {
            set_round(&b.jobs[i], r);
            for (int q = i + 1; q < count && b.jobs[q].shared; q++)
                set_round(&b.jobs[q], r);
            run_round(ctx, &b);
        }
}
