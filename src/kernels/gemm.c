/*
 * gemm.c - matrix products of any size: blocking, packing, threads.
 *
 * A call runs two parallel loops per round: one packs what items share, in the other
 * every item owns a rectangle of c and walks its chain of k, `kc` steps at a time:
 *
 *     for each panel of b      (kc x nr)                     from L3, then in L1 or L2
 *         for each panel of a  (mr x kc)    product into c   a stays in L2
 *
 *   FULL    many rows: all of b is packed first, an item packs its own rows of a.
 *   PANEL   rows that fit into L2: each part of b is used by one item only, so the item
 *           packs it, and it never leaves the cache; a is packed first.
 *   STREAM  few rows, rows of b contiguous: nothing is packed, b is read once in order.
 *
 * What does not fit into one packing of b is done in rounds, over columns and then over
 * k; c itself keeps the partial sums between rounds over k. Where c is not made of plain
 * rows of floats, an item works on a copy of its rectangle, and half precision is not cut
 * along k, so that it is rounded once. A lane of a vector is always a column of c: the
 * order of every sum is the same everywhere.
 */
#include "kernels/gemm.h"

#include <string.h>

#include "base/arena.h"
#include "kernels/kernels.h"

/* Blocking for one register tile; bytes in a core's caches are the reason for each. */
typedef struct sizes {
    int mr;      /* the table's register tile: which entry */
    int few;     /* up to this many rows STREAM is best */
    int kc;      /* nr * kc floats of b about fill L1; longer: fewer trips of c */
    int mc;      /* mc * kc floats of a take half of L2; a multiple of mr */
    int columns; /* of a FULL item; more of them: a is packed less often */
} sizes;

static const sizes all_sizes[] = {
    {12, 8, 512, 384, 2048}, /* L1 48 KB, L2 1 to 2 MB */
    {6, 6, 384, 192, 1024},  /* L1 32 KB, L2 0.5 to 1 MB */
    {4, 4, 64, 16, 64},      /* the plain loops: small, so that tests see every edge */
};

enum {
    DEPTH = 4096,          /* longest k of a round */
    PACKED = 2 << 20,      /* floats of b packed in a round */
    GROUP = 8,             /* panels of b packed by one item of FULL */
    PANELS = 4,            /* panels of b in an item of PANEL */
    TILES = 4,             /* panels of a packed by one item of PANEL */
    STREAM_COLUMNS = 1024, /* STREAM: columns of one item at most, ... */
    STREAM_LEAST = 128,    /* ... and at least */
    ITEMS_PER_LANE = 4,    /* so that a lane that is held up does not hold up all */
    PAD = 16,              /* floats between panels: keeps them off each other's sets */
    LINE = PH_ALIGN / 4    /* floats in a cache line */
};

typedef enum mode { EMPTY, STREAM, PANEL, FULL } mode;

/* One product of the list, with everything that was decided about it. */
typedef struct job {
    const ph_gemm *g;
    const ph_kernels *k;
    const sizes *s;
    mode mode;
    int plain;        /* c is rows of floats: products write it directly */
    int depth, width; /* k and columns of one round */
    int k_rounds, rounds;
    int kc;                 /* steps of k between two packings */
    int rows, columns;      /* of one item */
    int64_t a_step, b_step; /* floats from one packed panel to the next */
    float *packed;          /* FULL: panels of b; PANEL: panels of a, for each part of
                               k; STREAM: a as rows of floats */
    int shared;             /* PANEL: it is the product's before this one */
    const float *left;      /* STREAM: a, with its row length */
    int64_t left_ld;

    /* the current round */
    int k0, k_len, j0, j_len; /* the part of k and of the columns */
    int packs, items;         /* items of the two loops */
} job;

typedef struct batch {
    job jobs[PH_GEMM_MAX];
    int count;
    char *lanes;      /* scratch of the lanes */
    size_t lane_size; /* bytes of one */
} batch;

/* Scratch of one lane. */
typedef struct scratch {
    float *panels; /* FULL: packed rows of a; PANEL: packed columns of b */
    float *c;      /* copy of a rectangle of c, or one tile */
} scratch;

/* A rectangle of c. */
typedef struct area {
    int i0, rows, j0, cols;
    float *c; /* its first element, or a copy's */
    int64_t ldc;
} area;

/* ---- decisions --------------------------------------------------------------------- */

static const sizes *sizes_for(const ph_kernels *k)
{
    const sizes *s = all_sizes;
    while (s->mr != k->mr) s++;
    return s;
}

/* Cuts `total` into equal parts of at most `most`: as few as that needs, or as many as
   `wanted` as long as a part keeps `least`. Returns the size of a part. */
static int part_size(int total, int most, int wanted, int least)
{
    int parts = ph_div_up(total, most);
    parts = ph_max(parts, ph_min(wanted, total / least));
    return ph_div_up(total, ph_max(parts, 1));
}

/* Rectangles of c: rows are cut first, because every item packs its own rows of a. */
static void choose_full(job *j, int wanted)
{
    const ph_gemm *g = j->g;
    int mr = j->k->mr, nr = j->k->nr, cut = g->c_type == PH_F32 ? DEPTH : g->k;
    j->mode = FULL;
    j->depth = ph_min(g->k, cut);
    int fit = ph_max(PACKED / ph_max(j->depth, 1) / nr, 2) * nr;
    j->width = ph_min(g->n, fit);
    j->k_rounds = ph_max(ph_div_up(g->k, ph_max(j->depth, 1)), 1);
    j->rounds = j->k_rounds * ph_div_up(g->n, j->width);
    int tiles = ph_div_up(g->m, mr), panels = ph_div_up(j->width, nr);
    int high = part_size(tiles, j->s->mc / mr, wanted, 4);
    int down = ph_div_up(tiles, high);
    int most = ph_max(j->s->columns / nr, 1);
    j->rows = high * mr;
    j->columns = part_size(panels, most, ph_div_up(wanted, down), 4) * nr;
}

static void choose(job *j, const ph_ctx *ctx, const ph_gemm *g)
{
    int wanted = ctx->threads > 1 ? ctx->threads * ITEMS_PER_LANE : 1;
    memset(j, 0, sizeof *j);
    j->g = g;
    j->k = ctx->kernels;
    j->s = sizes_for(j->k);
    j->plain = g->c_type == PH_F32 && !g->c_block;
    j->rounds = j->k_rounds = 1;
    j->depth = g->k;
    j->width = g->n;
    j->rows = g->m;
    int nr = j->k->nr, panels = ph_div_up(g->n, nr);
    if (g->m <= 0 || g->n <= 0) {
        j->mode = EMPTY;
    } else if (g->m <= j->s->few && g->b_col == 1) {
        int least = STREAM_LEAST / nr;
        j->mode = STREAM;
        j->columns = part_size(panels, STREAM_COLUMNS / nr, wanted, least) * nr;
    } else if (g->m <= 2 * j->s->mc && panels >= wanted / 2 &&
               (int64_t)g->m * g->k <= 2 * PACKED) {
        j->mode = PANEL;
        j->columns = part_size(panels, PANELS, wanted, 1) * nr;
    } else {
        choose_full(j, wanted);
    }
    int kc = j->s->kc; /* in equal parts; shorter where all of a must fit into L2 */
    if (j->mode == PANEL && g->m > j->s->mc) kc = kc * j->s->mc / g->m;
    j->kc = ph_max(ph_div_up(j->depth, ph_max(ph_div_up(j->depth, kc), 1)), 1);
    j->a_step = (int64_t)j->kc * j->k->mr + PAD;
    j->b_step = (int64_t)(j->mode == FULL ? j->depth : j->kc) * nr + PAD;
}

/* ---- workspace --------------------------------------------------------------------- */

/* Floats that the first loop packs. */
static size_t packed_floats(const job *j)
{
    const ph_gemm *g = j->g;
    int mr = j->k->mr, nr = j->k->nr;
    if (j->mode == STREAM) return (size_t)g->m * (size_t)ph_round_up(g->k, PH_LANES);
    if (j->mode == FULL) return (size_t)ph_div_up(j->width, nr) * (size_t)j->b_step;
    return (size_t)ph_div_up(g->k, j->kc) * (size_t)ph_div_up(g->m, mr) *
           (size_t)j->a_step;
}

static scratch lay_lane(const job *j, ph_arena *arena)
{
    scratch s = {0};
    int mr = j->k->mr, nr = j->k->nr;
    size_t panels = 0, copy = (size_t)j->rows * (size_t)j->columns;
    if (j->mode == EMPTY) return s;
    if (j->mode == FULL) panels = (size_t)(j->rows / mr) * (size_t)j->a_step;
    if (j->mode == PANEL) panels = (size_t)(j->columns / nr) * (size_t)j->b_step;
    s.panels = ph_arena_floats(arena, panels + PH_PACK_SLACK);
    s.c = ph_arena_floats(arena, j->plain ? (size_t)mr * (size_t)nr : copy);
    return s;
}

/* Products in mode FULL run one after the other and share their room for b. */
static size_t lay_batch(batch *b, const ph_ctx *ctx, const ph_gemm *list, int count,
                        void *workspace)
{
    ph_arena arena = {.base = workspace};
    size_t full = 0;
    b->count = count;
    b->lane_size = 0;
    for (int i = 0; i < count; i++) {
        job *j = &b->jobs[i];
        ph_arena lane = {0};
        choose(j, ctx, &list[i]);
        lay_lane(j, &lane);
        if (lane.used > b->lane_size) b->lane_size = lane.used;
        if (j->mode == EMPTY) continue;
        size_t floats = packed_floats(j) + PH_PACK_SLACK;
        j->shared = j->mode == PANEL && j->g->same_a && i && j[-1].mode == PANEL;
        if (j->mode == FULL && floats > full) full = floats;
        if (j->mode == FULL) continue;
        j->packed = j->shared ? j[-1].packed : ph_arena_floats(&arena, floats);
    }
    float *packed = ph_arena_floats(&arena, full);
    for (int i = 0; i < count; i++)
        if (b->jobs[i].mode == FULL) b->jobs[i].packed = packed;
    b->lanes = ph_arena_take(&arena, b->lane_size * (size_t)ctx->threads);
    return arena.used;
}

size_t ph_gemm_bytes(const ph_ctx *ctx, const ph_gemm *list, int count)
{
    batch b;
    return lay_batch(&b, ctx, list, count, NULL);
}

/* ---- in and out of c --------------------------------------------------------------- */

/* Where element e of an axis in blocks lies, and how many follow it without a gap. */
static int64_t in_block(int block, int64_t step, int e, int *run)
{
    if (!block) return e;
    *run = ph_min(*run, block - e % block);
    return e / block * step + e % block;
}

/* y[0..n) += bias[0..n); fma with 1 rounds like an addition */
static void add_row(const ph_kernels *k, float *y, const float *bias, int n)
{
    int whole = n / PH_LANES * PH_LANES;
    if (whole) k->axpy(whole, 1.0f, bias, y);
    for (int c = whole; c < n; c++) y[c] += bias[c];
}

/* n elements as floats; load_row pads, and what it pads may belong to others */
static void load(const ph_kernels *k, float *to, const void *from, ph_dtype type, int n)
{
    float part[PH_LANES];
    int whole = n / PH_LANES * PH_LANES;
    if (whole) k->load_row(to, from, whole, type, 1.0f);
    if (whole == n) return;
    k->load_row(part, ph_at(from, type, whole), n - whole, type, 1.0f);
    memcpy(to + whole, part, (size_t)(n - whole) * sizeof *part);
}

/* Copies a rectangle of c into floats at r->c, or those back into c. */
static void copy_area(const job *j, const area *r, int out)
{
    const ph_gemm *g = j->g;
    for (int i = 0; i < r->rows; i++)
        for (int c = 0, run; c < r->cols; c += run) {
            run = r->cols - c;
            int64_t at = in_block(g->c_block, g->c_step, r->j0 + c, &run);
            void *there = ph_at_out(g->c, g->c_type, at + (r->i0 + i) * g->c_row);
            float *here = r->c + i * r->ldc + c;
            if (!out)
                load(j->k, here, there, g->c_type, run);
            else if (g->c_type == PH_F32)
                memcpy(there, here, (size_t)run * sizeof *here);
            else
                j->k->store_row(there, here, run, g->c_type, 1.0f);
        }
}

/* What a rectangle starts from. A product that overwrites needs nothing. */
static void begin(const job *j, area *r, const scratch *s, int add)
{
    const ph_gemm *g = j->g;
    r->c = j->plain ? (float *)g->c + r->i0 * g->c_row + r->j0 : s->c;
    r->ldc = j->plain ? g->c_row : j->columns;
    if (add && !j->plain) copy_area(j, r, 0);
    for (int i = 0; i < r->rows && !add && (j->mode == STREAM || g->k == 0); i++)
        memset(r->c + i * r->ldc, 0, (size_t)r->cols * sizeof *r->c);
}

static void finish(const job *j, const area *r)
{
    const ph_gemm *g = j->g;
    int last = j->k0 + j->k_len == g->k;
    for (int i = 0; i < r->rows && last && g->bias; i++)
        add_row(j->k, r->c + i * r->ldc, g->bias + r->j0, r->cols);
    if (!j->plain) copy_area(j, r, 1);
}

/* ---- packing ----------------------------------------------------------------------- */

/* Rows i0.. of a, `len` columns from k0 on, into panels of mr rows. */
static void pack_a(const job *j, int i0, int rows, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    const void *start = ph_at(g->a, g->a_type, i0 * g->a_row + k0 * g->a_col);
    int mr = j->k->mr;
    if (g->a_col != 1) {
        j->k->pack_panels(to, mr, j->a_step, start, g->a_col, len, rows, g->a_type);
        return;
    }
    for (int i = 0; i < rows; i += mr, to += j->a_step) {
        const void *row[PH_MR_MAX];
        int count = ph_min(mr, rows - i);
        for (int r = 0; r < count; r++)
            row[r] = ph_at(start, g->a_type, (i + r) * g->a_row);
        j->k->pack_across(to, mr, row, count, len, g->a_type, 1.0f);
    }
}

/* At most nr columns of b from j0 on, each contiguous along k, turned into one panel. */
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

/* Columns in blocks that do not fit panels, copied piece by piece. */
static void pack_pieces(const job *j, int j0, int cols, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    int nr = j->k->nr, padded = ph_round_up(cols, nr);
    for (int c = 0, run; c < padded; c += run) {
        const float *from = NULL;
        float *dst = to + c / nr * j->b_step + c % nr;
        run = c < cols ? ph_min(cols - c, nr - c % nr) : padded - c;
        if (c < cols) from = g->b + in_block(g->b_block, g->b_step, j0 + c, &run);
        for (int kk = 0; kk < len; kk++)
            for (int e = 0; e < run; e++)
                dst[(int64_t)kk * nr + e] = from ? from[(k0 + kk) * g->b_row + e] : 0;
    }
}

/* Columns j0.. of b, `len` steps of k from k0 on, into panels of nr columns. */
static void pack_b(const job *j, int j0, int cols, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    int nr = j->k->nr;
    if (g->b_col != 1) {
        for (int c = 0; c < cols; c += nr, to += j->b_step)
            turn_panel(j, j0 + c, ph_min(nr, cols - c), k0, len, to);
    } else if (g->b_block && g->b_block % nr) {
        pack_pieces(j, j0, cols, k0, len, to);
    } else {
        for (int c = 0, run; c < cols; c += run) {
            run = cols - c;
            const float *from = g->b + in_block(g->b_block, g->b_step, j0 + c, &run);
            j->k->pack_panels(to + c / nr * j->b_step, nr, j->b_step,
                              from + k0 * g->b_row, g->b_row, len, run, PH_F32);
        }
    }
}

/* ---- items of the first loop ------------------------------------------------------- */

static void pack_full(const job *j, int item)
{
    int nr = j->k->nr, groups = ph_div_up(j->j_len, GROUP * nr);
    int c0 = item % groups * GROUP * nr, k0 = item / groups * j->kc;
    int cols = ph_min(GROUP * nr, j->j_len - c0), len = ph_min(j->kc, j->k_len - k0);
    pack_b(j, j->j0 + c0, cols, j->k0 + k0, len,
           j->packed + c0 / nr * j->b_step + (int64_t)k0 * nr);
}

/* where the panels of a begin for the steps from kk on */
static float *a_part(const job *j, int kk)
{
    return j->packed + (int64_t)(kk / j->kc) * ph_div_up(j->g->m, j->k->mr) * j->a_step;
}

static void pack_panel(const job *j, int item)
{
    int mr = j->k->mr, i0 = item * TILES * mr;
    int rows = ph_min(TILES * mr, j->g->m - i0);
    for (int kk = 0; kk < j->g->k; kk += j->kc)
        pack_a(j, i0, rows, kk, ph_min(j->kc, j->g->k - kk),
               a_part(j, kk) + i0 / mr * j->a_step);
}

/* a as rows of floats */
static void pack_stream(job *j)
{
    const ph_gemm *g = j->g;
    j->left = j->packed;
    j->left_ld = ph_round_up(g->k, PH_LANES);
    if (g->a_col == 1 && g->a_type == PH_F32) {
        j->left = g->a;
        j->left_ld = g->a_row;
    } else if (g->a_col == 1) {
        for (int i = 0; i < g->m; i++)
            j->k->load_row(j->packed + i * j->left_ld,
                           ph_at(g->a, g->a_type, i * g->a_row), g->k, g->a_type, 1.0f);
    } else {
        for (int kk = 0; kk < g->k; kk++) {
            float column[PH_LANES];
            j->k->load_row(column, ph_at(g->a, g->a_type, kk * g->a_col), g->m, g->a_type,
                           1.0f);
            for (int i = 0; i < g->m; i++) j->packed[i * j->left_ld + kk] = column[i];
        }
    }
}

/* ---- items of the second loop ------------------------------------------------------ */

/* While a tile is computed, what the next one starts with is fetched: its part of c, and
   a share of the next panel of b, which comes from the L3 cache or from memory. */
static void prefetch(const job *j, const float *c, int64_t ldc, const float *b, int lines)
{
    for (int i = 0; c && i < j->k->mr; i++)
        for (int p = 0; p < j->k->nr; p += LINE)
            __builtin_prefetch(c + i * ldc + p, 1, 3);
    for (int i = 0; b && i < lines; i++) __builtin_prefetch(b + i * LINE, 0, 2);
}

/* One tile of c; one that reaches beyond the last column goes through a buffer. */
static void tile(const job *j, const area *r, int t, int p, int len, const float *a,
                 const float *b, float *buffer, int add)
{
    int mr = j->k->mr, nr = j->k->nr;
    int rows = ph_min(mr, r->rows - t), cols = ph_min(nr, r->cols - p);
    int padded = ph_round_up(cols, PH_LANES);
    if (!j->plain || cols == padded) {
        j->k->product(rows, padded, len, a, mr, b, nr, 0, r->c + t * r->ldc + p, r->ldc,
                      add);
    } else {
        area edge = {r->i0 + t, rows, r->j0 + p, cols, buffer, nr};
        if (add) copy_area(j, &edge, 0);
        j->k->product(rows, padded, len, a, mr, b, nr, 0, buffer, nr, add);
        copy_area(j, &edge, 1);
    }
}

/* `len` steps of the chain for a rectangle of c; a and b are packed. */
static void steps(const job *j, const area *r, int len, const float *a, const float *b,
                  float *buffer, int add)
{
    int mr = j->k->mr, nr = j->k->nr;
    int lines = ph_div_up(ph_div_up(nr * len, LINE), ph_div_up(r->rows, mr));
    for (int p = 0; p < r->cols; p += nr, b += j->b_step) {
        const float *next = p + nr < r->cols ? b + j->b_step : NULL, *left = a;
        for (int t = 0; t < r->rows; t += mr, left += j->a_step) {
            int more = t + 2 * mr <= r->rows;
            prefetch(j, more ? r->c + (t + mr) * r->ldc + p : NULL, r->ldc, next, lines);
            if (next) next += lines * LINE;
            tile(j, r, t, p, len, left, b, buffer, add);
        }
    }
}

static void full_item(const job *j, const scratch *s, int item)
{
    int down = ph_div_up(j->g->m, j->rows), add = j->g->add || j->k0 > 0;
    int i0 = item % down * j->rows, p0 = item / down * j->columns;
    const float *b = j->packed + p0 / j->k->nr * j->b_step;
    area r = {.i0 = i0,
              .rows = ph_min(j->rows, j->g->m - i0),
              .j0 = j->j0 + p0,
              .cols = ph_min(j->columns, j->j_len - p0)};
    begin(j, &r, s, add);
    for (int kk = 0; kk < j->k_len; kk += j->kc) {
        int len = ph_min(j->kc, j->k_len - kk);
        pack_a(j, i0, r.rows, j->k0 + kk, len, s->panels);
        steps(j, &r, len, s->panels, b + (int64_t)kk * j->k->nr, s->c, add || kk > 0);
    }
    finish(j, &r);
}

static void panel_item(const job *j, const scratch *s, int item)
{
    int j0 = item * j->columns, k = j->g->k;
    area r = {.rows = j->g->m, .j0 = j0, .cols = ph_min(j->columns, j->g->n - j0)};
    begin(j, &r, s, j->g->add);
    for (int kk = 0; kk < k; kk += j->kc) {
        int len = ph_min(j->kc, k - kk);
        pack_b(j, j0, r.cols, kk, len, s->panels);
        steps(j, &r, len, a_part(j, kk), s->panels, s->c, j->g->add || kk > 0);
    }
    finish(j, &r);
}

static void stream_item(const job *j, const scratch *s, int item)
{
    const ph_gemm *g = j->g;
    int j0 = item * j->columns;
    area r = {.rows = g->m, .j0 = j0, .cols = ph_min(j->columns, g->n - j0)};
    begin(j, &r, s, g->add);
    for (int p = 0, run; p < r.cols; p += run) {
        run = r.cols - p;
        const float *b = g->b + in_block(g->b_block, g->b_step, j0 + p, &run);
        j->k->stream(g->m, run, g->k, j->left, j->left_ld, b, g->b_row, r.c + p, r.ldc);
    }
    finish(j, &r);
}

/* ---- the loops --------------------------------------------------------------------- */

static void pack_loop(void *arg, int lane, int index)
{
    const job *j = ((batch *)arg)->jobs;
    (void)lane;
    for (; index >= j->packs; j++) index -= j->packs;
    if (j->mode == FULL)
        pack_full(j, index);
    else
        pack_panel(j, index);
}

static void item_loop(void *arg, int lane, int index)
{
    batch *b = arg;
    const job *j = b->jobs;
    ph_arena arena = {.base = b->lanes + b->lane_size * (size_t)lane};
    for (; index >= j->items; j++) index -= j->items;
    scratch s = lay_lane(j, &arena);
    if (j->mode == FULL)
        full_item(j, &s, index);
    else if (j->mode == PANEL)
        panel_item(j, &s, index);
    else
        stream_item(j, &s, index);
}

/* Sets the part of k and of the columns that round r works on, and its items. */
static void set_round(job *j, int r)
{
    const ph_gemm *g = j->g;
    j->k0 = r % j->k_rounds * j->depth;
    j->k_len = ph_min(j->depth, g->k - j->k0);
    j->j0 = r / j->k_rounds * j->width;
    j->j_len = ph_min(j->width, g->n - j->j0);
    j->items = ph_div_up(g->m, j->rows) * ph_div_up(j->j_len, j->columns);
    if (j->mode == FULL)
        j->packs = ph_div_up(j->j_len, GROUP * j->k->nr) * ph_div_up(j->k_len, j->kc);
    if (j->mode == PANEL && !j->shared) j->packs = ph_div_up(g->m, TILES * j->k->mr);
    if (j->mode == STREAM) pack_stream(j);
}

/* Runs the round that was set for the jobs that have items. */
static void run_round(ph_ctx *ctx, batch *b)
{
    int packs = 0, items = 0;
    for (int i = 0; i < b->count; i++) {
        packs += b->jobs[i].packs;
        items += b->jobs[i].items;
    }
    if (packs) ph_ctx_run(ctx, packs, pack_loop, b);
    if (items) ph_ctx_run(ctx, items, item_loop, b);
    for (int i = 0; i < b->count; i++) b->jobs[i].packs = b->jobs[i].items = 0;
}

void ph_gemm_run(ph_ctx *ctx, const ph_gemm *list, int count, void *workspace)
{
    batch b;
    lay_batch(&b, ctx, list, count, workspace);
    for (int i = 0; i < count; i++)
        if (b.jobs[i].mode == STREAM || b.jobs[i].mode == PANEL) set_round(&b.jobs[i], 0);
    run_round(ctx, &b);
    for (int i = 0; i < count; i++)
        for (int r = 0; b.jobs[i].mode == FULL && r < b.jobs[i].rounds; r++) {
            set_round(&b.jobs[i], r);
            run_round(ctx, &b);
        }
}
