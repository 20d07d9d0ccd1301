/*
 * gemm_tiles.c - matrix products on AMX tiles, f32 operands as a bf16x3 split (ph_pairs
 * in kernels.h).
 *
 * a is packed once for all items, in rounds over its rows if it is large; if k is so long
 * that a round would hold too few rows, each item packs its own. An item owns a rectangle
 * of c and packs its columns of b itself:
 *
 *     for each block of k            `kc` steps
 *         pack the columns of b                                     stays in L2
 *         for each 32 rows of a      packed, or pack them           from L2 or L3
 *             for each 32 columns    multiply into a copy of c
 *
 * With one block of k the copy is one strip of 32 rows, and a lane whose next item has
 * the same columns reuses the packed ones; else the copy is the whole rectangle. The bits
 * of an element depend on its row and column only, step after step.
 *
 * Up to 32 rows with row-major b: b is used once, so it is not packed but split on the
 * fly (`stream`, `few`).
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernels/gemm_job.h"

enum {
    KC = 640,         /* a strip of a in three terms is 120 KB, ... */
    COLUMNS = 256,    /* ... b of an item 960 KB, */
    ROWS = 640,       /* and c of an item 640 KB where k is cut into blocks */
    LEAST_STRIPS = 8, /* rows / 32 of an item: fewer do not repay packing b */
    ROOM = 7 << 17,   /* elements of a that are packed for all items at a time */
    PANELS = COLUMNS / PH_WIDE,
    ONCE = 1 << 13,   /* floats of c of an item that uses b once, ... */
    LEAST_PANELS = 3, /* ... and its columns */
    STEP = PH_PARTS * PH_WIDE * PH_STEP, /* elements of one step of a panel */
    HEAD = PH_STEP, /* header of a packed strip: how many terms it has */
    PAD = 48 /* floats between rows of the copy: avoids cache-set conflicts, and lets
                tiles at the edge of a block be stored in full */
};

typedef struct scratch {
    uint16_t *a, *b; /* packed: one strip of a; the panels of b */
    int *parts;      /* terms of each panel of b */
    float *c;        /* the copy */
    float *pieces;   /* a step of b gathered from blocks */
} scratch;

/* ---- decisions --------------------------------------------------------------------- */

/* Elements of a packed strip: `kc` steps of k. */
static int64_t strip_size(const ph_gemm_job *j)
{
    return HEAD + (int64_t)PH_PARTS * PH_WIDE * j->kc;
}

/* The most strips of a packed at a time for all items; 0 if too few would fit. */
static int most_strips(const ph_gemm_job *j)
{
    int most = ROOM / PH_WIDE / ph_round_up(ph_max(j->g->k, 1), j->kc);
    if (j->once) return 1;
    return most < LEAST_STRIPS ? 0 : ph_min(ph_div_up(j->g->m, PH_WIDE), most);
}

int ph_gemm_tiled_keeps(const ph_gemm_job *j)
{
    return ph_div_up(j->height, PH_WIDE) <= most_strips(j);
}

void ph_gemm_tiled_choose(ph_gemm_job *j, int wanted, int count)
{
    const ph_gemm *g = j->g;
    int panels = ph_div_up(g->n, PH_WIDE);
    j->once = g->m <= PH_WIDE && g->b_col == 1;
    int parts = j->once ? 1 : ph_max(ph_div_up(g->k, KC), 1);
    j->mode = TILED;
    j->plain = 0;
    j->kc = ph_max(ph_round_up(ph_div_up(g->k, parts), PH_STEP), PH_STEP);
    j->depth = g->k;
    j->height = g->m;
    int strips = ph_div_up(g->m, PH_WIDE), room = most_strips(j);
    if (strips > room && room) {
        strips = ph_gemm_part(strips, room, 1, 1);
        j->height = strips * PH_WIDE;
        j->rounds = ph_div_up(g->m, j->height);
    }
    int widest = j->once ? ONCE / PH_WIDE / g->m : PANELS;
    int least = j->once ? LEAST_PANELS : PANELS / 2;
    j->columns = ph_gemm_part(panels, widest, wanted, least) * PH_WIDE;
    int down = ph_div_up(wanted, ph_div_up(g->n, j->columns) * count);
    int most = parts > 1 ? ROWS / PH_WIDE : strips;
    j->rows = ph_gemm_part(strips, most, down, LEAST_STRIPS) * PH_WIDE;
}

/* With fewer rows b may be used once, and then one strip holds all of k. */
size_t ph_gemm_tiled_packed(const ph_gemm_job *j)
{
    const ph_gemm *g = j->g;
    int64_t all = ph_div_up(g->k, j->kc) * most_strips(j) * strip_size(j);
    int64_t once = HEAD + (int64_t)PH_PARTS * PH_WIDE * ph_round_up(g->k, PH_STEP);
    return (size_t)(g->b_col == 1 && once > all ? once : all) / 2;
}

int ph_gemm_tiled_packs(const ph_gemm_job *j)
{
    return ph_gemm_tiled_keeps(j) ? ph_div_up(j->i_len, PH_WIDE) : 0;
}

/* Rows of the copy: an upper bound for products with fewer rows too. */
static int copy_rows(const ph_gemm_job *j)
{
    if (j->once) return j->g->m <= PH_TILE ? j->g->m : PH_WIDE;
    return j->kc >= j->g->k ? PH_WIDE
                            : ph_min(ROWS, ph_round_up(ph_max(j->g->m, 1), PH_WIDE));
}

static void lay(const ph_gemm_job *j, ph_arena *arena, scratch *s)
{
    const size_t number = sizeof(uint16_t), wide = PH_WIDE;
    size_t columns = (size_t)j->columns, kc = j->once ? 0 : (size_t)j->kc;
    s->b = ph_arena_take(arena, PH_PARTS * columns * kc * number);
    s->parts = ph_arena_take(arena, PANELS * sizeof *s->parts);
    s->a = ph_arena_take(arena, j->once ? 0 : (size_t)strip_size(j) * number);
    s->c = ph_arena_floats(arena, (size_t)copy_rows(j) * (columns + PAD));
    s->pieces = ph_arena_floats(arena, j->g->b_block && kc ? wide * PH_STEP : 0);
}

/* Floats of the copy of a product that uses b once, with any number of rows up to m. Up
   to PH_TILE rows have ONCE floats together; more are padded to PH_WIDE rows. */
static size_t once_copy(const ph_gemm *g)
{
    enum { WIDEST = ONCE / PH_WIDE / (PH_TILE + 1) * PH_WIDE };
    size_t n = (size_t)ph_round_up(g->n, PH_WIDE), rows = (size_t)ph_min(g->m, PH_TILE);
    size_t few = (rows * n < ONCE ? rows * n : ONCE) + rows * PAD;
    size_t wide = PH_WIDE * ((n < WIDEST ? n : WIDEST) + PAD);
    return g->m > PH_TILE && wide > few ? wide : few;
}

size_t ph_gemm_tiled_lane(const ph_gemm_job *j)
{
    ph_arena lane = {0}, once = {0};
    scratch s;
    lay(j, &lane, &s);
    if (j->g->b_col != 1) return lane.used;
    ph_arena_take(&once, PANELS * sizeof *s.parts);
    ph_arena_floats(&once, once_copy(j->g));
    return lane.used > once.used ? lane.used : once.used;
}

/* ---- packing ----------------------------------------------------------------------- */

static void pack_a(const ph_gemm_job *j, int i0, int rows, int k0, int len, uint16_t *to)
{
    const ph_gemm *g = j->g;
    const void *from = ph_at(g->a, g->a_type, i0 * g->a_row + k0 * g->a_col);
    int along = g->a_col == 1;
    to[0] = (uint16_t)j->k->pairs->split(
        to + HEAD, from, g->a_type, along ? g->a_row : g->a_col, rows, len, along, 0);
}

/* A strip of the round that was packed for all items. */
static uint16_t *strip_at(const ph_gemm_job *j, int strip, int kk)
{
    int64_t at = (int64_t)(kk / j->kc) * most_strips(j) + strip;
    return (uint16_t *)j->packed + at * strip_size(j);
}

void ph_gemm_tiled_pack(const ph_gemm_job *j, int item)
{
    const ph_gemm *g = j->g;
    int i0 = item * PH_WIDE, rows = ph_min(PH_WIDE, j->i_len - i0);
    for (int kk = 0; kk < g->k; kk += j->kc)
        pack_a(j, j->i0 + i0, rows, kk, ph_min(j->kc, g->k - kk), strip_at(j, item, kk));
}

static ph_operand left_of(const uint16_t *strip, int steps)
{
    return ph_split_operand(strip + HEAD, strip[0], steps);
}

/* Gathers columns j0.. of b, which come in blocks along j or along k, into contiguous
   rows. */
static void collect(const ph_gemm *g, int j0, int cols, int k0, int len, float *to)
{
    int along = g->b_col != 1, lines = along ? cols : len, n = along ? len : cols;
    int first = along ? k0 : j0;
    for (int i = 0; i < lines; i++)
        for (int e = 0, run; e < n; e += run) {
            run = n - e;
            int64_t at = ph_gemm_block(g->b_block, g->b_step, first + e, &run);
            at += along ? (j0 + i) * g->b_col : (k0 + i) * g->b_row;
            for (int q = 0; q < run; q++) to[(int64_t)i * n + e + q] = g->b[at + q];
        }
}

/* Offset of panel p of packed b. */
static int64_t panel_of(const ph_gemm_job *j, int p)
{
    return (int64_t)p * (j->kc / PH_STEP) * STEP;
}

/* Packs up to PH_WIDE columns of b, one step of k; returns how many terms it has. */
static int pack_b(const ph_gemm_job *j, int j0, int cols, int k0, int len, float *pieces,
                  uint16_t *to)
{
    const ph_gemm *g = j->g;
    int along = g->b_col != 1, n = along ? len : cols, run = n;
    int64_t stride = along ? g->b_col : g->b_row;
    int64_t at = ph_gemm_block(g->b_block, g->b_step, along ? k0 : j0, &run);
    const float *from = g->b + at + (along ? j0 : k0) * stride;
    if (run < n) {
        collect(g, j0, cols, k0, len, pieces);
        from = pieces, stride = n;
    }
    return j->k->pairs->split(to, from, PH_F32, stride, cols, len, along, 1);
}

/* Makes a step of one term fit a panel of three: its other terms are 0. */
static void clear_others(uint16_t *step)
{
    memset(step + STEP / PH_PARTS, 0, (STEP - STEP / PH_PARTS) * sizeof *step);
}

/* Step t of panel p; the steps before it are packed. */
static void pack_step(const ph_gemm_job *j, const ph_gemm_area *r, int kk, int len, int p,
                      int t, const scratch *s)
{
    uint16_t *panel = s->b + panel_of(j, p);
    int j0 = p * PH_WIDE, k0 = t * PH_STEP, *all = &s->parts[p];
    int parts = pack_b(j, r->j0 + j0, ph_min(PH_WIDE, r->cols - j0), kk + k0,
                       ph_min(PH_STEP, len - k0), s->pieces, panel + t * STEP);
    for (int i = 0; i < t && parts > *all; i++) clear_others(panel + i * STEP);
    if (t && parts < *all) clear_others(panel + t * STEP);
    *all = t ? ph_max(*all, parts) : parts;
}

/* In the storage order of b. */
static void pack_panels(const ph_gemm_job *j, const ph_gemm_area *r, int kk, int len,
                        const scratch *s)
{
    int panels = ph_div_up(r->cols, PH_WIDE), steps = ph_div_up(len, PH_STEP);
    for (int i = 0; i < panels * steps; i++)
        if (j->g->b_col != 1)
            pack_step(j, r, kk, len, i / steps, i % steps, s);
        else
            pack_step(j, r, kk, len, i % panels, i / panels, s);
}

/* ---- items ------------------------------------------------------------------------- */

/* An element as one f32 chain, as the product without tiles computes it. */
static float chain(const ph_gemm_job *j, int row, int col)
{
    const ph_gemm *g = j->g;
    ph_gemm_area one = {row, 1, col, 1, (float[1]){0}, 1};
    int k_blocks = g->b_col != 1, unused = 1;
    if (g->add) ph_gemm_copy(j, &one, 0);
    for (int k = 0; k < g->k; k++) {
        int64_t a = row * g->a_row + k * g->a_col, b = k_blocks ? k : col;
        b = ph_gemm_block(g->b_block, g->b_step, (int)b, &unused);
        b += k_blocks ? col * g->b_col : k * g->b_row;
        float left = g->a_type == PH_F32 ? ((const float *)g->a)[a]
                                         : ph_from_bf16(((const uint16_t *)g->a)[a]);
        *one.c = fmaf(left, g->b[b], *one.c);
        if (isnan(*one.c)) break;
    }
    return *one.c;
}

/* A bf16x3 split makes NaN of Inf: non-finite sums are recomputed as f32 chains. */
static void mend(const ph_gemm_job *j, const ph_gemm_area *r)
{
    if (j->k->finite(r->c, r->ldc, r->rows, ph_round_up(r->cols, PH_LANES))) return;
    for (int i = 0; i < r->rows; i++)
        for (int c = 0; c < r->cols; c++)
            if (!isfinite(r->c[i * r->ldc + c]))
                r->c[i * r->ldc + c] = chain(j, r->i0 + i, r->j0 + c);
}

/* What the sums of a strip start from where they are added to c. */
static void start_strip(const ph_gemm_job *j, const ph_gemm_area *r)
{
    int rows = r->rows <= PH_TILE ? r->rows : PH_WIDE;
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < ph_round_up(r->cols, PH_WIDE); c++) r->c[i * r->ldc + c] = 0;
    if (j->g->add) ph_gemm_copy(j, r, 0);
}

static void finish_strip(const ph_gemm_job *j, const ph_gemm_area *r)
{
    mend(j, r);
    if (j->g->bias) ph_gemm_bias(j, r, 0, r->rows);
    ph_gemm_copy(j, r, 1);
}

/* One strip of rows, for the steps of k from kk on. */
static void run_strip(const ph_gemm_job *j, const scratch *s, const ph_gemm_area *r,
                      int kk, int len)
{
    const ph_gemm *g = j->g;
    int steps = ph_div_up(len, PH_STEP), add = g->add || kk > 0;
    if (kk == 0 && (g->add || g->k == 0)) start_strip(j, r);
    if (len > 0) {
        uint16_t *rows = s->a;
        if (ph_gemm_tiled_keeps(j))
            rows = strip_at(j, (r->i0 - j->i0) / PH_WIDE, kk);
        else
            pack_a(j, r->i0, r->rows, kk, len, rows);
        ph_operand a = left_of(rows, steps);
        for (int p = 0; p * PH_WIDE < r->cols; p++) {
            ph_operand b = ph_split_operand(s->b + panel_of(j, p), s->parts[p], 1);
            b.step = STEP;
            j->k->pairs->multiply(r->rows, steps, &a, &b, r->c + p * PH_WIDE, r->ldc,
                                  add);
        }
    }
    if (kk + len == g->k) finish_strip(j, r);
}

/* All rows against columns of b in place; returns 0 where FMAs met a subnormal and tiles
   must compute it. */
static int try_once(const ph_gemm_job *j, const ph_gemm_area *r, int tiles)
{
    const ph_gemm *g = j->g;
    const ph_pairs *pairs = j->k->pairs;
    ph_operand a = left_of(strip_at(j, 0, 0), ph_div_up(g->k, PH_STEP));
    int done = 1;
    start_strip(j, r);
    for (int c = 0, run; c < r->cols && done; c += run) {
        run = r->cols - c;
        const float *b = g->b + ph_gemm_block(g->b_block, g->b_step, r->j0 + c, &run);
        if (tiles)
            pairs->stream(r->rows, run, g->k, &a, b, g->b_row, r->c + c, r->ldc);
        else
            done = pairs->few(r->rows, run, g->k, &a, b, g->b_row, r->c + c, r->ldc);
    }
    return done;
}

static void run_once(const ph_gemm_job *j, const ph_gemm_area *r)
{
    if (r->rows > PH_FEW || !try_once(j, r, 0)) {
        j->k->pairs->begin(ph_min(r->rows, PH_TILE));
        try_once(j, r, 1);
        j->k->pairs->end();
    }
    finish_strip(j, r);
}

/* All strips of the rectangle against packed columns of b. */
static void run_strips(const ph_gemm_job *j, const scratch *s, const ph_gemm_area *all,
                       int has_b)
{
    j->k->pairs->begin(ph_min(all->rows, PH_TILE));
    for (int kk = 0; kk == 0 || kk < j->g->k; kk += j->kc) {
        int len = ph_min(j->kc, j->g->k - kk);
        if (!has_b) pack_panels(j, all, kk, len, s);
        for (int t = 0; t < all->rows; t += PH_WIDE) {
            ph_gemm_area strip = *all;
            strip.i0 += t, strip.rows = ph_min(PH_WIDE, all->rows - t);
            if (j->kc < j->g->k) strip.c += t * all->ldc;
            run_strip(j, s, &strip, kk, len);
        }
    }
    j->k->pairs->end();
}

void ph_gemm_tiled(const ph_gemm_job *j, ph_arena *lane, int item, int has_b)
{
    scratch s;
    lay(j, lane, &s);
    if (item < 0) return;
    ph_gemm_area all = ph_gemm_own(j, item);
    all.c = s.c, all.ldc = j->columns + PAD;
    if (j->once)
        run_once(j, &all);
    else
        run_strips(j, &s, &all, has_b);
}
