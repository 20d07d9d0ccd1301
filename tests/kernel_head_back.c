/*
 * kernel_head_back.c - checks and benches of the kernels of the backward pass:
 * head_backward, deltas.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_bed.h"
#include "kernel_mods.h"

#define REF ph_kernels_ref

enum { ROWS = PH_GRAD_BLOCK_ROWS, KEYS = PH_GRAD_BLOCK_KEYS, DIM = 96, LD = DIM + 8 };

static float q[ROWS * LD], k[KEYS * LD], v[KEYS * LD], dout[ROWS * LD];
static float lse[ROWS], delta[ROWS], start[3][KEYS * LD], expected[3][KEYS * LD];
static float
    scratch[PH_NR_MAX * (DIM + 2 * PH_GRAD_BLOCK_PIECE) + (2 * ROWS + PH_LANES) * KEYS];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

/* Any size, mask, group of heads, distance between rows and dropout. */
static ph_grad_block any_tile(void)
{
    ph_grad_block t = {.rows = 1 + bed_below(bed_below(8) ? 40 : ROWS),
                       .keys = 1 + bed_below(bed_below(8) ? 40 : KEYS),
                       .k_dim = 1 + bed_below(DIM),
                       .v_dim = 1 + bed_below(DIM),
                       .scale = bed_between(0.05f, 1)};
    t.window.group = bed_below(3) ? 1 : 1 + bed_below(5);
    t.window.phase = bed_below(t.window.group);
    t.q_ld = ph_round_up(t.k_dim, 16) + bed_below(9);
    t.k_ld = ph_round_up(t.k_dim, 16) + bed_below(9);
    t.v_ld = ph_round_up(t.v_dim, 16) + bed_below(9);
    t.dout_ld = ph_round_up(t.v_dim, 16) + bed_below(9);
    t.window.lo = bed_below(2) ? -KEYS - ROWS : bed_below(90) - 60;
    t.window.hi = bed_below(2) ? KEYS + ROWS : t.window.lo + bed_below(150);
    t.mods = bed_mods(t.rows, t.keys);
    t.drop = bed_drop(t.rows);
    return t;
}

static int hides(const ph_grad_block *t)
{
    const ph_window *w = &t->window;
    return bed_mods_hide(&t->mods) || w->hi < t->keys ||
           w->lo + (w->phase + t->rows - 1) / w->group > 0;
}

/* Rows of floats with zeros behind the first n. */
static void fill_rows(float *x, int rows, int64_t ld, int n, int kind)
{
    bed_fill(x, rows * ld, kind);
    for (int r = 0; r < rows; r++)
        for (int c = n; c < ph_round_up(n, 16); c++) x[r * ld + c] = 0;
}

static void fill_tile(const ph_grad_block *t, int kind)
{
    fill_rows(q, t->rows, t->q_ld, t->k_dim, bed_below(7) ? BED_NORMAL : BED_TINY);
    fill_rows(k, t->keys, t->k_ld, t->k_dim, BED_NORMAL);
    fill_rows(v, t->keys, t->v_ld, t->v_dim, kind);
    fill_rows(dout, t->rows, t->dout_ld, t->v_dim, hides(t) ? BED_WIDE : kind);
    for (int i = 0; i < t->rows; i++) {
        lse[i] = bed_below(9) ? bed_between(-2, 9) : INFINITY;
        delta[i] = bed_between(-3, 3);
    }
    for (int i = 0; i < 3; i++) bed_fill(start[i], KEYS * LD, BED_WIDE);
}

static ph_grad_sum any_sums(int may_add, int dim)
{
    int how = bed_below(2) ? PH_SUM_STORE : may_add ? PH_SUM_ADD : PH_SUM_CONTINUE;
    return (ph_grad_sum){.ld = ph_round_up(dim, 16) + bed_below(9),
                         .scale = bed_between(0.1f, 1),
                         .how = how};
}

static float *place(int slot, const float *from, int rows, int64_t ld, int n)
{
    return bed_copy(slot, from, (rows - 1) * ld + ph_round_up(n, 16), side());
}

static void head_backward_at(const ph_kernels *t, ph_grad_block h)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    ph_grad_sum *sums[3] = {&h.dq, &h.dk, &h.dv};
    int rows[3] = {h.rows, h.keys, h.keys}, dims[3] = {h.k_dim, h.k_dim, h.v_dim};
    bed_say("%s head_backward %d rows %d keys %d %d dims, group %d phase %d lo %d hi %d",
            t->name, h.rows, h.keys, h.k_dim, h.v_dim, h.window.group, h.window.phase,
            h.window.lo, h.window.hi);
    h.q = q, h.k = k, h.v = v, h.dout = dout, h.lse = lse, h.delta = delta,
    h.scratch = scratch;
    for (int i = 0; i < 3; i++) {
        *sums[i] = any_sums(i == 0, dims[i]);
        memcpy(expected[i], start[i], sizeof expected[i]);
        sums[i]->to = expected[i];
    }
    REF.head_backward(&h);
    h.q = place(0, q, h.rows, h.q_ld, h.k_dim);
    h.k = place(1, k, h.keys, h.k_ld, h.k_dim);
    h.v = place(2, v, h.keys, h.v_ld, h.v_dim);
    h.dout = place(3, dout, h.rows, h.dout_ld, h.v_dim);
    h.lse = bed_copy(4, lse, h.rows, side());
    h.delta = bed_copy(9, delta, h.rows, side());
    h.scratch = bed_floats(
        5, (int64_t)ph_grad_block_floats(h.k_dim, h.v_dim, h.rows, h.keys), side());
    h.prefetch.part[1].at = (const char *)q;
    h.prefetch.part[1].end = (const char *)(q + ROWS);
    for (int i = 0; i < 3; i++)
        sums[i]->to =
            bed_below(5) ? place(6 + i, start[i], rows[i], sums[i]->ld, dims[i]) : NULL;
    t->head_backward(&h);
    bed_intact(5);
    for (int i = 0; i < 3; i++) {
        if (!sums[i]->to) continue;
        bed_same(names[i], sums[i]->to, expected[i],
                 (rows[i] - 1) * sums[i]->ld + ph_round_up(dims[i], 16));
        bed_intact(6 + i);
    }
}

void check_head_backward(const ph_kernels *t)
{
    for (int round = 0; round < 400; round += EVERY) {
        ph_grad_block h = any_tile();
        fill_tile(&h, round % BED_KINDS);
        head_backward_at(t, h);
    }
}

void bench_head_backward(const ph_kernels *t)
{
    static const int sizes[][2] = {{20, 20}, {80, 80}, {192, 256}};
    for (int i = 0; i < 3; i++) {
        char shape[40];
        bed_timer timer;
        ph_grad_block h = {.rows = sizes[i][0],
                           .keys = sizes[i][1],
                           .k_dim = 64,
                           .v_dim = 64,
                           .window = {-ROWS, KEYS, 1, 0},
                           .scale = 0.2f};
        h.q_ld = h.k_ld = h.v_ld = h.dout_ld = 64;
        fill_tile(&h, BED_NORMAL);
        h.q = q, h.k = k, h.v = v, h.dout = dout, h.lse = lse, h.delta = delta;
        h.dq = (ph_grad_sum){expected[0], 64, 0.125f, PH_SUM_STORE};
        h.dk = (ph_grad_sum){expected[1], 64, 0.125f, PH_SUM_STORE};
        h.dv = (ph_grad_sum){expected[2], 64, 1, PH_SUM_STORE};
        h.scratch = scratch;
        BED_TIME(&timer, t->head_backward(&h));
        snprintf(shape, sizeof shape, "%d x %d, 64", h.rows, h.keys);
        bed_report("head_backward", t, shape, &timer, 640.0 * h.rows * h.keys, 0);
    }
}

/* ---- deltas ---- */

void check_deltas(const ph_kernels *t)
{
    for (int round = 0; round < 300; round += EVERY) {
        int m = 1 + bed_below(70), n = 16 * (1 + bed_below(6));
        int64_t ldx = n + bed_below(9), ldy = n + bed_below(9);
        bed_say("%s deltas m=%d n=%d", t->name, m, n);
        bed_fill(q, m * ldx, round % BED_KINDS);
        bed_fill(dout, m * ldy, round % BED_KINDS);
        for (int i = 0; i < m; i++)
            lse[i] = bed_below(5) ? bed_between(-90, 90)
                                  : (bed_below(2) ? -INFINITY : bed_special());
        REF.deltas(m, n, q, ldx, dout, ldy, lse, expected[0], expected[1]);
        float *base = bed_floats(3, m, side()), *sums = bed_floats(4, m, side());
        t->deltas(m, n, place(0, q, m, ldx, n), ldx, place(1, dout, m, ldy, n), ldy,
                  bed_copy(2, lse, m, side()), base, sums);
        bed_same("base", base, expected[0], m);
        bed_same("delta", sums, expected[1], m);
        bed_intact(3), bed_intact(4);
    }
}

void bench_deltas(const ph_kernels *t)
{
    bed_timer timer;
    bed_fill(q, ROWS * LD, BED_NORMAL);
    bed_fill(dout, ROWS * LD, BED_NORMAL);
    bed_fill(lse, ROWS, BED_NORMAL);
    BED_TIME(&timer, t->deltas(20, 64, q, 64, dout, 64, lse, expected[0], expected[1]));
    bed_report("deltas", t, "20 x 64", &timer, 2.0 * 20 * 64, 8.0 * 20 * 64);
}
