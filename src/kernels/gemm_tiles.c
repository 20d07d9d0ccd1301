/*
 * gemm_tiles.c - matrix products on AMX tiles, f32 operands as a bf16x3 split
 * (ph_bf16_pairs in kernels.h).
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
    KC = 640,             /* a strip of a in three terms is 120 KB, ... */
    COLUMNS = 256,        /* ... b of an item 960 KB, */
    ROWS = 640,           /* and c of an item 640 KB where k is cut into blocks */
    MIN_STRIPS = 8,       /* rows / 32 of an item: fewer do not repay packing b */
    MAX_PACKED = 7 << 17, /* elements of a that are packed for all items at a time */
    PANELS = COLUMNS / PH_AMX_BLOCK,
    ONCE = 1 << 13, /* floats of c of an item that uses b once, ... */
    MIN_PANELS = 3, /* ... and its columns */
    CONVERTED = 128, /* columns of b that are converted at a time */
    STEP =
        PH_BF16_TERMS * PH_AMX_BLOCK * PH_AMX_STEP, /* elements of one step of a panel */
    HEADER = PH_AMX_STEP, /* header of a packed strip: how many terms it has */
    PAD = 48 /* floats between rows of the copy: avoids cache-set conflicts, and lets
                tiles at the edge of a block be stored in full */
};

typedef struct tiles_scratch {
    uint16_t *a, *b; /* packed: one strip of a; the panels of b */
    int *terms;      /* terms of each panel of b */
    float *c;        /* the copy */
    float *gathered; /* a step of b as f32: gathered from blocks, converted */
} tiles_scratch;

/* ---- decisions --------------------------------------------------------------------- */

/* Elements of a packed strip: `kc` steps of k. */
static int64_t strip_size(const ph_gemm_job *j)
{
    return HEADER + (int64_t)PH_BF16_TERMS * PH_AMX_BLOCK * j->kc;
}

/* The most strips of a packed at a time for all items; 0 if too few would fit. */
static int most_strips(const ph_gemm_job *j)
{
    int most = MAX_PACKED / PH_AMX_BLOCK / ph_round_up(ph_max(j->g->k, 1), j->kc);
    if (j->once) return 1;
    return most < MIN_STRIPS ? 0 : ph_min(ph_div_up(j->g->m, PH_AMX_BLOCK), most);
}

int ph_gemm_tiled_shares_a(const ph_gemm_job *j)
{
    return ph_div_up(j->height, PH_AMX_BLOCK) <= most_strips(j);
}

void ph_gemm_tiled_choose(ph_gemm_job *j, int wanted, int count)
{
    const ph_gemm *g = j->g;
    int panels = ph_div_up(g->n, PH_AMX_BLOCK);
    j->once = g->m <= PH_AMX_BLOCK && g->b_col == 1;
    int k_blocks = j->once ? 1 : ph_max(ph_div_up(g->k, KC), 1);
    j->mode = TILED;
    j->direct = 0;
    j->kc = ph_max(ph_round_up(ph_div_up(g->k, k_blocks), PH_AMX_STEP), PH_AMX_STEP);
    j->depth = g->k;
    j->height = g->m;
    int strips = ph_div_up(g->m, PH_AMX_BLOCK), fitting = most_strips(j);
    if (strips > fitting && fitting) {
        strips = ph_gemm_even_part(strips, fitting, 1, 1);
        j->height = strips * PH_AMX_BLOCK;
        j->rounds = ph_div_up(g->m, j->height);
    }
    int widest = j->once ? ONCE / PH_AMX_BLOCK / g->m : PANELS;
    int least = j->once ? MIN_PANELS : PANELS / 2;
    j->columns = ph_gemm_even_part(panels, widest, wanted, least) * PH_AMX_BLOCK;
    int down = ph_div_up(wanted, ph_div_up(g->n, j->columns) * count);
    int most = k_blocks > 1 ? ROWS / PH_AMX_BLOCK : strips;
    j->rows = ph_gemm_even_part(strips, most, down, MIN_STRIPS) * PH_AMX_BLOCK;
}

/* With fewer rows b may be used once, and then one strip holds all of k. */
size_t ph_gemm_tiled_packed(const ph_gemm_job *j)
{
    const ph_gemm *g = j->g;
    int64_t all = ph_div_up(g->k, j->kc) * most_strips(j) * strip_size(j);
    int64_t once =
        HEADER + (int64_t)PH_BF16_TERMS * PH_AMX_BLOCK * ph_round_up(g->k, PH_AMX_STEP);
    return (size_t)(g->b_col == 1 && once > all ? once : all) / 2;
}

int ph_gemm_tiled_packs(const ph_gemm_job *j)
{
    return ph_gemm_tiled_shares_a(j) ? ph_div_up(j->i_len, PH_AMX_BLOCK) : 0;
}

/* Rows of the copy: an upper bound for products with fewer rows too. */
static int copy_rows(const ph_gemm_job *j)
{
    if (j->once) return j->g->m <= PH_AMX_TILE ? j->g->m : PH_AMX_BLOCK;
    return j->kc >= j->g->k ? PH_AMX_BLOCK
                            : ph_min(ROWS, ph_round_up(ph_max(j->g->m, 1), PH_AMX_BLOCK));
}

/* Whether a type is converted to f32 before it is split. */
static int converts(ph_dtype type)
{
    return type != PH_F32 && type != PH_BF16;
}

static void layout(const ph_gemm_job *j, ph_arena *arena, tiles_scratch *s)
{
    const size_t element = sizeof(uint16_t), wide = PH_AMX_BLOCK;
    size_t columns = (size_t)j->columns, kc = j->once ? 0 : (size_t)j->kc;
    int gathers = j->g->b_block || converts(j->g->b_type);
    s->b = ph_arena_take(arena, PH_BF16_TERMS * columns * kc * element);
    s->terms = ph_arena_take(arena, PANELS * sizeof *s->terms);
    s->a = ph_arena_take(arena, j->once ? 0 : (size_t)strip_size(j) * element);
    s->c = ph_arena_floats(arena, (size_t)copy_rows(j) * (columns + PAD));
    s->gathered = ph_arena_floats(arena, gathers && kc ? wide * PH_AMX_STEP : 0);
}

/* Floats of the copy of a product that uses b once, with any element of rows up to m. Up
   to PH_AMX_TILE rows have ONCE floats together; more are padded to PH_AMX_BLOCK rows. */
static size_t once_copy(const ph_gemm *g)
{
    enum { WIDEST = ONCE / PH_AMX_BLOCK / (PH_AMX_TILE + 1) * PH_AMX_BLOCK };
    size_t n = (size_t)ph_round_up(g->n, PH_AMX_BLOCK),
           rows = (size_t)ph_min(g->m, PH_AMX_TILE);
    size_t few = (rows * n < ONCE ? rows * n : ONCE) + rows * PAD;
    size_t wide = PH_AMX_BLOCK * ((n < WIDEST ? n : WIDEST) + PAD);
    return g->m > PH_AMX_TILE && wide > few ? wide : few;
}

size_t ph_gemm_tiled_lane(const ph_gemm_job *j)
{
    ph_arena lane = {0}, once = {0};
    tiles_scratch s;
    layout(j, &lane, &s);
    if (j->g->b_col != 1) return lane.used;
    ph_arena_take(&once, PANELS * sizeof *s.terms);
    ph_arena_floats(&once, once_copy(j->g));
    return lane.used > once.used ? lane.used : once.used;
}

/* ---- packing ----------------------------------------------------------------------- */

static void pack_a(const ph_gemm_job *j, int i0, int rows, int k0, int len, uint16_t *to)
{
    const ph_gemm *g = j->g;
    const void *from = ph_at(g->a, g->a_type, i0 * g->a_row + k0 * g->a_col);
    int k_contiguous = g->a_col == 1;
    to[0] = (uint16_t)j->k->bf16_pairs->split_bf16x3(to + HEADER, from, g->a_type,
                                                     k_contiguous ? g->a_row : g->a_col,
                                                     rows, len, k_contiguous, 0);
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
    int i0 = item * PH_AMX_BLOCK, rows = ph_min(PH_AMX_BLOCK, j->i_len - i0);
    for (int kk = 0; kk < g->k; kk += j->kc)
        pack_a(j, j->i0 + i0, rows, kk, ph_min(j->kc, g->k - kk), strip_at(j, item, kk));
}

static ph_operand left_operand(const uint16_t *strip, int steps)
{
    return ph_bf16x3_operand(strip + HEADER, strip[0], steps);
}

/* Columns j0.. of b, contiguous along j or along k but for blocks, as contiguous rows of
   f32. */
static void gather(const ph_gemm_job *j, int j0, int cols, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    int k_contiguous = g->b_col != 1, lines = k_contiguous ? cols : len,
        n = k_contiguous ? len : cols;
    int first = k_contiguous ? k0 : j0;
    for (int i = 0; i < lines; i++)
        for (int e = 0, run; e < n; e += run) {
            run = n - e;
            int64_t at = ph_gemm_block(g->b_block, g->b_step, first + e, &run);
            at += k_contiguous ? (j0 + i) * g->b_col : (k0 + i) * g->b_row;
            ph_gemm_load(j->k, to + (int64_t)i * n + e, g->b, g->b_type, at, run);
        }
}

/* Offset of panel p of packed b. */
static int64_t panel_offset(const ph_gemm_job *j, int p)
{
    return (int64_t)p * (j->kc / PH_AMX_STEP) * STEP;
}

/* Packs up to PH_AMX_BLOCK columns of b, one step of k; returns how many terms it has. */
static int pack_b(const ph_gemm_job *j, int j0, int cols, int k0, int len,
                  float *gathered, uint16_t *to)
{
    const ph_gemm *g = j->g;
    int k_contiguous = g->b_col != 1, n = k_contiguous ? len : cols, run = n;
    int64_t stride = k_contiguous ? g->b_col : g->b_row;
    int64_t at = ph_gemm_block(g->b_block, g->b_step, k_contiguous ? k0 : j0, &run);
    const void *from = ph_at(g->b, g->b_type, at + (k_contiguous ? j0 : k0) * stride);
    ph_dtype type = g->b_type;
    if (run < n || converts(type)) {
        gather(j, j0, cols, k0, len, gathered);
        from = gathered, stride = n, type = PH_F32;
    }
    return j->k->bf16_pairs->split_bf16x3(to, from, type, stride, cols, len, k_contiguous,
                                          1);
}

/* Makes a step of one term fit a panel of three: its other terms are 0. */
static void clear_lower_terms(uint16_t *step)
{
    memset(step + STEP / PH_BF16_TERMS, 0, (STEP - STEP / PH_BF16_TERMS) * sizeof *step);
}

/* Step t of panel p; the steps before it are packed. */
static void pack_step(const ph_gemm_job *j, const ph_gemm_area *r, int kk, int len, int p,
                      int t, const tiles_scratch *s)
{
    uint16_t *panel = s->b + panel_offset(j, p);
    int j0 = p * PH_AMX_BLOCK, k0 = t * PH_AMX_STEP, *all = &s->terms[p];
    int terms = pack_b(j, r->j0 + j0, ph_min(PH_AMX_BLOCK, r->cols - j0), kk + k0,
                       ph_min(PH_AMX_STEP, len - k0), s->gathered, panel + t * STEP);
    for (int i = 0; i < t && terms > *all; i++) clear_lower_terms(panel + i * STEP);
    if (t && terms < *all) clear_lower_terms(panel + t * STEP);
    *all = t ? ph_max(*all, terms) : terms;
}

/* In the storage order of b. */
static void pack_panels(const ph_gemm_job *j, const ph_gemm_area *r, int kk, int len,
                        const tiles_scratch *s)
{
    int panels = ph_div_up(r->cols, PH_AMX_BLOCK), steps = ph_div_up(len, PH_AMX_STEP);
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
        *one.c = fmaf(left, ph_element(g->b, g->b_type, b), *one.c);
        if (isnan(*one.c)) break;
    }
    return *one.c;
}

/* A bf16x3 split makes NaN of Inf: non-finite sums are recomputed as f32 chains. */
static void recompute_non_finite(const ph_gemm_job *j, const ph_gemm_area *r)
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
    int rows = r->rows <= PH_AMX_TILE ? r->rows : PH_AMX_BLOCK;
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < ph_round_up(r->cols, PH_AMX_BLOCK); c++)
            r->c[i * r->ldc + c] = 0;
    if (j->g->add) ph_gemm_copy(j, r, 0);
}

static void finish_strip(const ph_gemm_job *j, const ph_gemm_area *r)
{
    recompute_non_finite(j, r);
    if (j->g->bias) ph_gemm_bias(j, r, 0, r->rows);
    ph_gemm_copy(j, r, 1);
}

/* One strip of rows, for the steps of k from kk on. */
static void run_strip(const ph_gemm_job *j, const tiles_scratch *s, const ph_gemm_area *r,
                      int kk, int len)
{
    const ph_gemm *g = j->g;
    int steps = ph_div_up(len, PH_AMX_STEP), add = g->add || kk > 0;
    if (kk == 0 && (g->add || g->k == 0)) start_strip(j, r);
    if (len > 0) {
        uint16_t *rows = s->a;
        if (ph_gemm_tiled_shares_a(j))
            rows = strip_at(j, (r->i0 - j->i0) / PH_AMX_BLOCK, kk);
        else
            pack_a(j, r->i0, r->rows, kk, len, rows);
        ph_operand a = left_operand(rows, steps);
        for (int p = 0; p * PH_AMX_BLOCK < r->cols; p++) {
            ph_operand b = ph_bf16x3_operand(s->b + panel_offset(j, p), s->terms[p], 1);
            b.step = STEP;
            j->k->bf16_pairs->multiply(r->rows, steps, &a, &b, r->c + p * PH_AMX_BLOCK,
                                       r->ldc, add);
        }
    }
    if (kk + len == g->k) finish_strip(j, r);
}

/* All rows against n columns of b from c on, `len` steps of k from k0 on. */
static int once_steps(const ph_gemm_job *j, const ph_gemm_area *r, int tiles, int c,
                      int n, int k0, int len, const float *b, int64_t ldb)
{
    const ph_bf16_pairs *pairs = j->k->bf16_pairs;
    ph_operand a = left_operand(strip_at(j, 0, 0), ph_div_up(j->g->k, PH_AMX_STEP));
    a.tiles += k0 / PH_AMX_STEP * a.step;
    if (!tiles)
        return pairs->multiply_few_rows(r->rows, n, len, &a, b, ldb, r->c + c, r->ldc);
    pairs->multiply_in_place(r->rows, n, len, &a, b, ldb, r->c + c, r->ldc);
    return 1;
}

/* The same for all of k and another type than f32, converted a step at a time. */
static int once_converted(const ph_gemm_job *j, const ph_gemm_area *r, int tiles, int c,
                          int n, int64_t at)
{
    _Alignas(PH_ALIGN) float step[PH_AMX_STEP * CONVERTED];
    const ph_gemm *g = j->g;
    int done = 1;
    for (int p = 0; p < n; p += CONVERTED)
        for (int kk = 0; kk < g->k && done; kk += PH_AMX_STEP) {
            int len = ph_min(PH_AMX_STEP, g->k - kk), wide = ph_min(CONVERTED, n - p);
            for (int i = 0; i < len; i++)
                ph_gemm_load(j->k, step + i * CONVERTED, g->b, g->b_type,
                             at + p + (kk + i) * g->b_row, wide);
            done = once_steps(j, r, tiles, c + p, wide, kk, len, step, CONVERTED);
        }
    return done;
}

/* All rows against columns of b in place; returns 0 where FMAs met a subnormal and tiles
   must compute it. */
static int try_once(const ph_gemm_job *j, const ph_gemm_area *r, int tiles)
{
    const ph_gemm *g = j->g;
    int done = 1;
    start_strip(j, r);
    for (int c = 0, run; c < r->cols && done; c += run) {
        run = r->cols - c;
        int64_t at = ph_gemm_block(g->b_block, g->b_step, r->j0 + c, &run);
        done = g->b_type == PH_F32
                   ? once_steps(j, r, tiles, c, run, 0, g->k, (const float *)g->b + at,
                                g->b_row)
                   : once_converted(j, r, tiles, c, run, at);
    }
    return done;
}

static void run_once(const ph_gemm_job *j, const ph_gemm_area *r)
{
    if (r->rows > PH_FEW_ROWS || !try_once(j, r, 0)) {
        j->k->bf16_pairs->begin(ph_min(r->rows, PH_AMX_TILE));
        try_once(j, r, 1);
        j->k->bf16_pairs->end();
    }
    finish_strip(j, r);
}

/* All strips of the rectangle against packed columns of b. */
static void run_strips(const ph_gemm_job *j, const tiles_scratch *s,
                       const ph_gemm_area *all, int has_b)
{
    j->k->bf16_pairs->begin(ph_min(all->rows, PH_AMX_TILE));
    for (int kk = 0; kk == 0 || kk < j->g->k; kk += j->kc) {
        int len = ph_min(j->kc, j->g->k - kk);
        if (!has_b) pack_panels(j, all, kk, len, s);
        for (int t = 0; t < all->rows; t += PH_AMX_BLOCK) {
            ph_gemm_area strip = *all;
            strip.i0 += t, strip.rows = ph_min(PH_AMX_BLOCK, all->rows - t);
            if (j->kc < j->g->k) strip.c += t * all->ldc;
            run_strip(j, s, &strip, kk, len);
        }
    }
    j->k->bf16_pairs->end();
}

void ph_gemm_tiled(const ph_gemm_job *j, ph_arena *lane, int item, int has_b)
{
    tiles_scratch s;
    layout(j, lane, &s);
    if (item < 0) return;
    ph_gemm_area all = ph_gemm_own(j, item);
    all.c = s.c, all.ldc = j->columns + PAD;
    if (j->once)
        run_once(j, &all);
    else
        run_strips(j, &s, &all, has_b);
}
