/*
 * gemm.c - matrix products of any size: blocking, packing, threads.
 *
 * Many rows. b is packed into panels of nr columns (first parallel loop); then every item
 * of the second loop owns a rectangle of c and walks the whole chain of k, `kc` at a time:
 *
 *     pack kc columns of its rows of a into panels of mr rows      stays in the L2 cache
 *     for each panel of b      (kc x nr)                            stays in the L1 cache
 *         for each panel of a  (mr x kc)    product into c          a comes from L2
 *
 * What does not fit into one packing of b is done in rounds, over columns and then over k;
 * c itself keeps the partial sums between rounds over k. Where c is not made of plain rows
 * of floats, an item works on a copy of its rectangle, and half precision is not cut along
 * k, so that it is rounded once.
 *
 * Few rows. Packing b would cost more than the product. If rows of b are contiguous they
 * are streamed once; if columns are, panels are turned one at a time. A lane of a vector
 * is always a column, so the order of every sum is the same as above.
 */
#include "kernels/gemm.h"

#include <string.h>

#include "base/arena.h"
#include "kernels/kernels.h"

/* Blocking for one register tile; bytes in a core's caches are the reason for each. */
typedef struct sizes {
    int mr;      /* the table's register tile: which entry                             */
    int few;     /* up to this many rows b is not packed                               */
    int kc;      /* nr * kc floats of b fit into L1 and leave room for a's panel       */
    int mc;      /* mc * kc floats of a take a quarter of L2; a multiple of mr         */
    int columns; /* mc * columns floats of c take another half                         */
} sizes;

static const sizes all_sizes[] = {
    {12, 8, 256, 240, 768}, /* L1 48 KB, L2 1 to 2 MB */
    {6, 6, 256, 144, 384},  /* L1 32 KB, L2 0.5 to 1 MB */
    {4, 4, 64, 16, 64},     /* the plain loops: small, so that tests see every edge */
};

enum {
    DEPTH = 4096,          /* longest k of a round                                     */
    PACKED = 2 << 20,      /* floats of b packed in a round                            */
    GROUP = 8,             /* panels of b packed by one item                           */
    STREAM_COLUMNS = 1024, /* few rows: columns of one item at most, ...               */
    STREAM_LEAST = 128,    /* ... and at least                                         */
    ITEMS_PER_LANE = 4,    /* so that a lane that is held up does not hold up all      */
    PAD = 16               /* floats between panels: keeps them off each other's sets  */
};

typedef enum mode { EMPTY, STREAM, TURN, FULL } mode;

/* One product of the list, with everything that was decided about it. */
typedef struct job {
    const ph_gemm *g;
    const ph_kernels *k;
    const sizes *s;
    mode mode;
    int plain;        /* c is rows of floats: products write it directly               */
    int depth, width; /* k and columns of one round                                    */
    int k_rounds, rounds;
    int rows, columns; /* of one item                                                  */
    int64_t a_step, b_step; /* floats from one packed panel to the next                */
    float *packed;          /* panels of b; few rows: a in the form its kernel wants    */
    int64_t left_ld;        /* STREAM: row length of a                                  */
    const float *left;

    /* the current round */
    int k0, k_len, j0, j_len; /* the part of k and of the columns                       */
    int packs, items;         /* items of the two loops                                 */
} job;

typedef struct batch {
    job jobs[PH_GEMM_MAX];
    int count;
    char *lanes;      /* scratch of the lanes                                           */
    size_t lane_size; /* bytes of one                                                   */
} batch;

/* Scratch of one lane. */
typedef struct scratch {
    float *a; /* packed rows of a; TURN: a panel of b                                   */
    float *c; /* copy of a rectangle of c, or one tile                                  */
} scratch;

/* ---- decisions ------------------------------------------------------------------------ */

static const sizes *sizes_for(const ph_kernels *k)
{
    const sizes *s = all_sizes;
    while (s->mr != k->mr) s++;
    return s;
}

/* Cuts `total` tiles into equal parts of at most `most` tiles: as few as that needs, or
   as many as `wanted` as long as a part keeps `least` tiles. Returns the tiles of a part. */
static int share(int total, int most, int wanted, int least)
{
    int parts = ph_div_up(total, most);
    parts = ph_max(parts, ph_min(wanted, total / least));
    return ph_div_up(total, ph_max(parts, 1));
}

/* Rectangles of c: rows are cut first, because every item packs its own rows of a. */
static void choose_grid(job *j, int threads)
{
    const ph_gemm *g = j->g;
    int mr = j->k->mr, nr = j->k->nr;
    int tiles = ph_div_up(g->m, mr), panels = ph_div_up(j->width, nr);
    int wanted = threads > 1 ? threads * ITEMS_PER_LANE : 1;
    int t = share(tiles, j->s->mc / mr, wanted, 4);
    int row_parts = ph_div_up(tiles, t);
    int p = share(panels, ph_max(j->s->columns / nr, 1), ph_div_up(wanted, row_parts), 4);
    j->rows = t * mr;
    j->columns = p * nr;
}

static void choose(job *j, const ph_ctx *ctx, const ph_gemm *g)
{
    memset(j, 0, sizeof *j);
    j->g = g;
    j->k = ctx->kernels;
    j->s = sizes_for(j->k);
    j->plain = g->c_type == PH_F32 && !g->c_block;
    j->rounds = j->k_rounds = 1;
    j->depth = g->k;
    j->width = g->n;
    if (g->m <= 0 || g->n <= 0) {
        j->mode = EMPTY;
    } else if (g->m <= j->s->few) {
        j->mode = g->b_col == 1 ? STREAM : TURN;
        int nr = j->k->nr, parts = ctx->threads * ITEMS_PER_LANE;
        int least = ph_max(STREAM_LEAST, ph_div_up(g->n, parts));
        j->columns = ph_round_up(ph_min(least, STREAM_COLUMNS), nr);
        j->rows = g->m;
    } else {
        j->mode = FULL;
        int nr = j->k->nr, cut = g->c_type == PH_F32 ? DEPTH : g->k;
        j->depth = ph_max(ph_min(g->k, cut), 1);
        int fit = ph_max(PACKED / j->depth / nr, 2) * nr;
        j->width = ph_min(ph_round_up(ph_min(g->n, fit), nr), fit);
        j->k_rounds = ph_max(ph_div_up(g->k, j->depth), 1);
        j->rounds = j->k_rounds * ph_div_up(g->n, j->width);
        choose_grid(j, ctx->threads);
    }
}

/* ---- workspace ------------------------------------------------------------------------ */

static void lay_job(job *j, ph_arena *arena)
{
    const ph_gemm *g = j->g;
    size_t floats = 0;
    j->a_step = (int64_t)j->s->kc * j->k->mr + PAD;
    j->b_step = (int64_t)j->depth * j->k->nr + PAD;
    if (j->mode == FULL) floats = (size_t)ph_div_up(j->width, j->k->nr) * (size_t)j->b_step;
    if (j->mode == STREAM) floats = (size_t)g->m * (size_t)ph_round_up(g->k, PH_LANES);
    if (j->mode == TURN) floats = (size_t)g->k * (size_t)j->k->mr;
    if (j->mode != EMPTY) j->packed = ph_arena_floats(arena, floats + PH_PACK_SLACK);
}

static scratch lay_lane(const job *j, ph_arena *arena)
{
    scratch s = {0};
    size_t tile = (size_t)j->k->mr * (size_t)j->k->nr, a = 0;
    size_t c = (size_t)j->rows * (size_t)j->columns;
    if (j->mode == FULL)
        a = (size_t)ph_div_up(ph_min(j->rows, j->g->m), j->k->mr) * (size_t)j->a_step;
    if (j->mode == TURN) a = (size_t)j->s->kc * (size_t)j->k->nr;
    s.a = ph_arena_floats(arena, a + PH_PACK_SLACK);
    s.c = ph_arena_floats(arena, j->mode == TURN || j->plain ? tile : c);
    return s;
}

static size_t lay_batch(batch *b, const ph_ctx *ctx, const ph_gemm *list, int count,
                        void *workspace)
{
    ph_arena arena = {.base = workspace};
    b->count = count;
    b->lane_size = 0;
    for (int i = 0; i < count; i++) {
        ph_arena lane = {0};
        choose(&b->jobs[i], ctx, &list[i]);
        lay_job(&b->jobs[i], &arena);
        lay_lane(&b->jobs[i], &lane);
        if (lane.used > b->lane_size) b->lane_size = lane.used;
    }
    b->lanes = ph_arena_take(&arena, b->lane_size * (size_t)ctx->threads);
    return arena.used;
}

size_t ph_gemm_bytes(const ph_ctx *ctx, const ph_gemm *list, int count)
{
    batch b;
    return lay_batch(&b, ctx, list, count, NULL);
}

static scratch lane_scratch(const batch *b, const job *j, int lane)
{
    ph_arena arena = {.base = b->lanes + b->lane_size * (size_t)lane};
    return lay_lane(j, &arena);
}

/* ---- blocks along a contiguous axis --------------------------------------------------- */

/* Where element e of an axis in blocks lies, and how many follow it without a gap. */
static int64_t in_block(int block, int64_t step, int e, int *run)
{
    if (!block) return e;
    *run = ph_min(*run, block - e % block);
    return e / block * step + e % block;
}

/* ---- in and out of c ------------------------------------------------------------------ */

/* y[0..n) += bias[0..n); fma with 1 rounds like an addition */
static void add_row(const ph_kernels *k, float *y, const float *bias, int n)
{
    int whole = n / PH_LANES * PH_LANES;
    if (whole) k->axpy(whole, 1.0f, bias, y);
    for (int c = whole; c < n; c++) y[c] += bias[c];
}

/* A rectangle of c into floats of row length ld. */
static void fetch(const job *j, int i0, int rows, int j0, int cols, float *to, int64_t ld)
{
    const ph_gemm *g = j->g;
    for (int i = 0; i < rows; i++)
        for (int c = 0, run; c < cols; c += run) {
            run = cols - c;
            int64_t at = in_block(g->c_block, g->c_step, j0 + c, &run) + (i0 + i) * g->c_row;
            for (int e = 0; e < run && g->c_type == PH_F32; e++)
                to[i * ld + c + e] = ((const float *)g->c)[at + e];
            if (g->c_type == PH_F32) continue;
            float part[PH_LANES]; /* load_row pads; what it pads may belong to others */
            for (int e = 0; e < run; e += PH_LANES) {
                int n = ph_min(PH_LANES, run - e);
                j->k->load_row(part, ph_at(g->c, g->c_type, at + e), n, g->c_type, 1.0f);
                memcpy(to + i * ld + c + e, part, (size_t)n * sizeof *part);
            }
        }
}

/* The way back. */
static void emit(const job *j, int i0, int rows, int j0, int cols, const float *from,
                 int64_t ld)
{
    const ph_gemm *g = j->g;
    for (int i = 0; i < rows; i++)
        for (int c = 0, run; c < cols; c += run) {
            run = cols - c;
            int64_t at = in_block(g->c_block, g->c_step, j0 + c, &run) + (i0 + i) * g->c_row;
            if (g->c_type == PH_F32)
                memcpy((float *)g->c + at, from + i * ld + c, (size_t)run * sizeof *from);
            else
                j->k->store_row(ph_at_out(g->c, g->c_type, at), from + i * ld + c, run,
                                g->c_type, 1.0f);
        }
}

/* ---- packing -------------------------------------------------------------------------- */

/* Rows i0.. of a, columns k0.. of length len, into panels of mr rows. */
static void pack_left(const job *j, int i0, int rows, int k0, int len, float *to,
                      int64_t step)
{
    const ph_gemm *g = j->g;
    const void *start = ph_at(g->a, g->a_type, i0 * g->a_row + k0 * g->a_col);
    int mr = j->k->mr;
    if (g->a_col != 1) {
        j->k->pack_panels(to, mr, step, start, g->a_col, len, rows, g->a_type);
        return;
    }
    for (int i = 0; i < rows; i += mr, to += step) {
        const void *row[PH_MR_MAX];
        int count = ph_min(mr, rows - i);
        for (int r = 0; r < count; r++) row[r] = ph_at(start, g->a_type, (i + r) * g->a_row);
        j->k->pack_across(to, mr, row, count, len, g->a_type, 1.0f);
    }
}

/* Columns j0.. (at most nr) of b, whose columns are contiguous, turned into one panel. */
static void turn_panel(const job *j, int j0, int cols, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    int nr = j->k->nr;
    for (int kk = 0, run; kk < len; kk += run) {
        const void *column[PH_NR_MAX];
        run = len - kk;
        const float *start = g->b + in_block(g->b_block, g->b_step, k0 + kk, &run);
        for (int c = 0; c < cols; c++) column[c] = start + (j0 + c) * g->b_col;
        j->k->pack_across(to + (int64_t)kk * nr, nr, column, cols, run, PH_F32, 1.0f);
    }
}

/* Columns of b in blocks that do not fit panels, copied piece by piece. */
static void pack_pieces(const job *j, int j0, int cols, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    int nr = j->k->nr;
    for (int c = 0, run; c < ph_round_up(cols, nr); c += run) {
        run = c < cols ? ph_min(cols - c, nr - c % nr) : ph_round_up(cols, nr) - c;
        const float *from = NULL;
        if (c < cols) from = g->b + in_block(g->b_block, g->b_step, j0 + c, &run);
        float *dst = to + c / nr * j->b_step + c % nr;
        for (int kk = 0; kk < len; kk++)
            for (int e = 0; e < run; e++)
                dst[(int64_t)kk * nr + e] = from ? from[(k0 + kk) * g->b_row + e] : 0;
    }
}

/* Item of the first loop: up to GROUP panels of b over kc steps of k. */
static void pack_right(const job *j, int item)
{
    const ph_gemm *g = j->g;
    int nr = j->k->nr, groups = ph_div_up(j->j_len, GROUP * nr);
    int c0 = item % groups * GROUP * nr, k0 = item / groups * j->s->kc;
    int cols = ph_min(GROUP * nr, j->j_len - c0), len = ph_min(j->s->kc, j->k_len - k0);
    float *to = j->packed + c0 / nr * j->b_step + (int64_t)k0 * nr;
    c0 += j->j0, k0 += j->k0;
    if (g->b_col != 1) {
        for (int c = 0; c < cols; c += nr, to += j->b_step)
            turn_panel(j, c0 + c, ph_min(nr, cols - c), k0, len, to);
    } else if (g->b_block && g->b_block % nr) {
        pack_pieces(j, c0, cols, k0, len, to);
    } else {
        for (int c = 0, run; c < cols; c += run) {
            run = cols - c;
            const float *from = g->b + in_block(g->b_block, g->b_step, c0 + c, &run);
            j->k->pack_panels(to + c / nr * j->b_step, nr, j->b_step, from + k0 * g->b_row,
                              g->b_row, len, run, PH_F32);
        }
    }
}

/* ---- many rows ------------------------------------------------------------------------ */

/* A tile that would reach beyond the last column of c goes through a buffer. */
static void edge_tile(const job *j, int rows, int cols, int len, const float *a,
                      const float *b, int i0, int j0, float *tile, int add)
{
    int mr = j->k->mr, nr = j->k->nr;
    if (add) fetch(j, i0, rows, j0, cols, tile, nr);
    j->k->product(rows, ph_round_up(cols, PH_LANES), len, a, mr, b, nr, 0, tile, nr, add);
    emit(j, i0, rows, j0, cols, tile, nr);
}

/* `len` steps of the chain for a rectangle of c; a and b are packed. c is the rectangle
   itself or its copy. */
static void block_steps(const job *j, const scratch *s, int i0, int rows, int j0, int cols,
                        const float *b, int len, float *c, int64_t ldc, int add)
{
    int mr = j->k->mr, nr = j->k->nr;
    for (int p = 0; p < cols; p += nr, b += j->b_step) {
        int wide = ph_min(nr, cols - p);
        int direct = !j->plain || wide % PH_LANES == 0;
        const float *a = s->a;
        for (int t = 0; t < rows; t += mr, a += j->a_step) {
            int high = ph_min(mr, rows - t);
            if (direct)
                j->k->product(high, ph_round_up(wide, PH_LANES), len, a, mr, b, nr, 0,
                              c + t * ldc + p, ldc, add);
            else
                edge_tile(j, high, wide, len, a, b, i0 + t, j0 + p, s->c, add);
        }
    }
}

static void full_item(const job *j, const scratch *s, int item)
{
    const ph_gemm *g = j->g;
    int row_parts = ph_div_up(g->m, j->rows), kc = j->s->kc;
    int i0 = item % row_parts * j->rows, p0 = item / row_parts * j->columns;
    int rows = ph_min(j->rows, g->m - i0), cols = ph_min(j->columns, j->j_len - p0);
    int j0 = j->j0 + p0, add = g->add || j->k0 > 0, last = j->k0 + j->k_len == g->k;
    const float *b = j->packed + p0 / j->k->nr * j->b_step;
    float *c = j->plain ? (float *)g->c + i0 * g->c_row + j0 : s->c;
    int64_t ldc = j->plain ? g->c_row : j->columns;
    if (!j->plain && add) fetch(j, i0, rows, j0, cols, c, ldc);
    for (int kk = 0; kk < j->k_len; kk += kc) {
        int len = ph_min(kc, j->k_len - kk);
        pack_left(j, i0, rows, j->k0 + kk, len, s->a, j->a_step);
        block_steps(j, s, i0, rows, j0, cols, b + (int64_t)kk * j->k->nr, len, c, ldc,
                    add || kk > 0);
    }
    for (int i = 0; i < rows; i++) {
        if (!j->k_len && !add) memset(c + i * ldc, 0, (size_t)cols * sizeof *c);
        if (last && g->bias) add_row(j->k, c + i * ldc, g->bias + j0, cols);
    }
    if (!j->plain) emit(j, i0, rows, j0, cols, c, ldc);
}

/* ---- few rows ------------------------------------------------------------------------- */

/* a as floats: rows for STREAM, one panel for TURN. */
static void prepare_left(job *j)
{
    const ph_gemm *g = j->g;
    j->left = j->packed;
    j->left_ld = ph_round_up(g->k, PH_LANES);
    if (g->k == 0) return;
    if (j->mode == TURN) {
        pack_left(j, 0, g->m, 0, g->k, j->packed, 0);
    } else if (g->a_col == 1 && g->a_type == PH_F32) {
        j->left = g->a;
        j->left_ld = g->a_row;
    } else if (g->a_col == 1) {
        for (int i = 0; i < g->m; i++)
            j->k->load_row(j->packed + i * j->left_ld, ph_at(g->a, g->a_type, i * g->a_row),
                           g->k, g->a_type, 1.0f);
    } else {
        for (int kk = 0; kk < g->k; kk++) {
            float column[PH_MR_MAX + PH_LANES];
            j->k->load_row(column, ph_at(g->a, g->a_type, kk * g->a_col), g->m, g->a_type,
                           1.0f);
            for (int i = 0; i < g->m; i++) j->packed[i * j->left_ld + kk] = column[i];
        }
    }
}

static void stream_item(const job *j, const scratch *s, int item)
{
    const ph_gemm *g = j->g;
    int j0 = item * j->columns, cols = ph_min(j->columns, g->n - j0);
    float *c = j->plain ? (float *)g->c + j0 : s->c;
    int64_t ldc = j->plain ? g->c_row : j->columns;
    if (!j->plain && g->add) fetch(j, 0, g->m, j0, cols, c, ldc);
    for (int i = 0; i < g->m && !g->add; i++)
        memset(c + i * ldc, 0, (size_t)cols * sizeof *c);
    for (int p = 0, run; p < cols; p += run) {
        run = cols - p;
        const float *b = g->b + in_block(g->b_block, g->b_step, j0 + p, &run);
        j->k->stream(g->m, run, g->k, j->left, j->left_ld, b, g->b_row, c + p, ldc);
    }
    for (int i = 0; i < g->m && g->bias; i++)
        add_row(j->k, c + i * ldc, g->bias + j0, cols);
    if (!j->plain) emit(j, 0, g->m, j0, cols, c, ldc);
}

static void turn_item(const job *j, const scratch *s, int item)
{
    const ph_gemm *g = j->g;
    int mr = j->k->mr, nr = j->k->nr, kc = j->s->kc, end = (item + 1) * j->columns;
    for (int j0 = item * j->columns; j0 < ph_min(end, g->n); j0 += nr) {
        int cols = ph_min(nr, g->n - j0);
        if (g->add)
            fetch(j, 0, g->m, j0, cols, s->c, nr);
        else
            memset(s->c, 0, (size_t)mr * (size_t)nr * sizeof *s->c);
        for (int kk = 0; kk < g->k; kk += kc) {
            int len = ph_min(kc, g->k - kk);
            turn_panel(j, j0, cols, kk, len, s->a);
            j->k->product(g->m, ph_round_up(cols, PH_LANES), len,
                          j->left + (int64_t)kk * mr, mr, s->a, nr, 0, s->c, nr, 1);
        }
        for (int i = 0; i < g->m && g->bias; i++)
            add_row(j->k, s->c + i * nr, g->bias + j0, cols);
        emit(j, 0, g->m, j0, cols, s->c, nr);
    }
}

/* ---- loops ---------------------------------------------------------------------------- */

static void pack_loop(void *arg, int lane, int index)
{
    const job *j = ((batch *)arg)->jobs;
    (void)lane;
    for (; index >= j->packs; j++) index -= j->packs;
    pack_right(j, index);
}

static void item_loop(void *arg, int lane, int index)
{
    batch *b = arg;
    const job *j = b->jobs;
    for (; index >= j->items; j++) index -= j->items;
    scratch s = lane_scratch(b, j, lane);
    if (j->mode == FULL)
        full_item(j, &s, index);
    else if (j->mode == STREAM)
        stream_item(j, &s, index);
    else
        turn_item(j, &s, index);
}

/* Sets the part of k and of the columns that round r works on, and its items. */
static void set_round(job *j, int r)
{
    const ph_gemm *g = j->g;
    j->packs = j->items = 0;
    if (j->mode == EMPTY || r >= j->rounds) return;
    j->k0 = r % j->k_rounds * j->depth;
    j->k_len = ph_min(j->depth, g->k - j->k0);
    j->j0 = r / j->k_rounds * j->width;
    j->j_len = ph_min(j->width, g->n - j->j0);
    j->items = ph_div_up(g->m, j->rows) * ph_div_up(j->j_len, j->columns);
    if (j->mode == FULL)
        j->packs = ph_div_up(j->j_len, GROUP * j->k->nr) * ph_div_up(j->k_len, j->s->kc);
}

void ph_gemm_run(ph_ctx *ctx, const ph_gemm *list, int count, void *workspace)
{
    batch b;
    int rounds = 0;
    lay_batch(&b, ctx, list, count, workspace);
    for (int i = 0; i < count; i++) {
        rounds = ph_max(rounds, b.jobs[i].rounds);
        if (b.jobs[i].mode == STREAM || b.jobs[i].mode == TURN) prepare_left(&b.jobs[i]);
    }
    for (int r = 0; r < rounds; r++) {
        int packs = 0, items = 0;
        for (int i = 0; i < count; i++) {
            set_round(&b.jobs[i], r);
            packs += b.jobs[i].packs;
            items += b.jobs[i].items;
        }
        if (packs) ph_ctx_run(ctx, packs, pack_loop, &b);
        if (items) ph_ctx_run(ctx, items, item_loop, &b);
    }
}
