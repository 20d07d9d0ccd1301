/*
 * kernel_head.c - checks and benches of the kernels that do a whole head: head_forward,
 * head_backward.
 */
#include <stdio.h>
#include <string.h>

#include "kernel_bed.h"

#define REF ph_kernels_ref

enum { ROWS = 80, KEYS = PH_STRIP_LD, DIM = 96, LD = DIM + 8 };

static float q[ROWS * LD], k[KEYS * LD], v[KEYS * LD];
static float out_expected[ROWS * LD], lse_expected[ROWS], dout[ROWS * LD];
static float dq_expected[ROWS * LD], dk_expected[KEYS * LD], dv_expected[KEYS * LD];
static float room[PH_NR_MAX * DIM + 2 * 96 * PH_STRIP_LD];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

/* Any size, mask and distance between rows. */
static ph_head any_head(void)
{
    ph_head h = {.rows = 1 + bed_below(bed_below(3) ? 34 : ROWS),
                 .keys = 1 + bed_below(bed_below(3) ? 40 : KEYS),
                 .k_dim = 16 * (1 + bed_below(DIM / 16)),
                 .v_dim = 16 * (1 + bed_below(DIM / 16)),
                 .scale = bed_between(0.05f, 1)};
    h.q_ld = h.k_dim + bed_below(9), h.k_ld = h.k_dim + bed_below(9);
    h.v_ld = h.v_dim + bed_below(9), h.out_ld = h.v_dim + bed_below(9);
    h.lo = bed_below(2) ? -KEYS - ROWS : bed_below(60) - 50;
    h.hi = bed_below(2) ? KEYS + ROWS : h.lo + bed_below(150);
    return h;
}

static float *place(int slot, const float *from, int rows, int64_t ld, int n)
{
    return bed_copy(slot, from, (rows - 1) * ld + n, side());
}

static void head_forward_at(const ph_kernels *t, ph_head h)
{
    int with_lse = bed_below(4) != 0;
    bed_say("%s head_forward %d rows %d keys %d %d dims, lo %d hi %d", t->name, h.rows,
            h.keys, h.k_dim, h.v_dim, h.lo, h.hi);
    h.q = q, h.k = k, h.v = v, h.out = out_expected, h.lse = lse_expected, h.room = room;
    REF.head_forward(&h);
    h.q = place(0, q, h.rows, h.q_ld, h.k_dim);
    h.k = place(1, k, h.keys, h.k_ld, h.k_dim);
    h.v = place(2, v, h.keys, h.v_ld, h.v_dim);
    h.out = bed_floats(3, (h.rows - 1) * h.out_ld + h.v_dim, side());
    h.lse = with_lse ? bed_floats(4, h.rows, side()) : NULL;
    h.room = bed_floats(5, (int64_t)ph_head_floats(h.k_dim, h.v_dim, 0), side());
    h.soon.part[1].at = (const char *)q, h.soon.part[1].end = (const char *)(q + ROWS);
    t->head_forward(&h);
    bed_same_rows("out", h.out, h.out_ld, out_expected, h.out_ld, h.rows, h.v_dim,
                  h.v_dim);
    if (with_lse) bed_same("lse", h.lse, lse_expected, h.rows);
    bed_intact(3), bed_intact(5);
    if (with_lse) bed_intact(4);
}

void check_head_forward(const ph_kernels *t)
{
    for (int round = 0; round < 600; round++) {
        ph_head h = any_head();
        int kind = round % BED_KINDS, hides = h.lo + h.rows - 1 > 0 || h.hi < h.keys;
        bed_fill(q, ROWS * LD, kind);
        bed_fill(k, KEYS * LD, kind);
        bed_fill(v, KEYS * LD, hides ? BED_WIDE : kind);
        head_forward_at(t, h);
    }
}

/* ---- head_backward ---- */

static void compare_grads(const ph_head *h, const ph_head_grads *g)
{
    int64_t ld = LD;
    if (g->dq)
        bed_same_rows("dq", g->dq, g->dq_ld, dq_expected, ld, h->rows, h->k_dim,
                      h->k_dim);
    if (g->dk)
        bed_same_rows("dk", g->dk, g->dk_ld, dk_expected, ld, h->keys, h->k_dim,
                      h->k_dim);
    if (g->dv)
        bed_same_rows("dv", g->dv, g->dv_ld, dv_expected, ld, h->keys, h->v_dim,
                      h->v_dim);
    if (g->dq) bed_intact(6);
    if (g->dk) bed_intact(7);
    if (g->dv) bed_intact(8);
    bed_intact(5);
}

static float *grad_room(int slot, int rows, int64_t ld, int n)
{
    return bed_below(5) ? bed_floats(slot, (rows - 1) * ld + n, side()) : NULL;
}

static void head_backward_at(const ph_kernels *t, ph_head h)
{
    ph_head_grads g = {.dout = dout,
                       .dq = dq_expected,
                       .dk = dk_expected,
                       .dv = dv_expected,
                       .scale = bed_between(0.1f, 1)};
    bed_say("%s head_backward %d rows %d keys %d %d dims, lo %d hi %d", t->name, h.rows,
            h.keys, h.k_dim, h.v_dim, h.lo, h.hi);
    h.q = q, h.k = k, h.v = v, h.out = out_expected, h.lse = lse_expected, h.room = room;
    REF.head_forward(&h);
    g.dout_ld = h.v_dim + bed_below(9), g.dq_ld = g.dk_ld = g.dv_ld = LD;
    REF.head_backward(&h, &g);
    h.q = place(0, q, h.rows, h.q_ld, h.k_dim);
    h.k = place(1, k, h.keys, h.k_ld, h.k_dim);
    h.v = place(2, v, h.keys, h.v_ld, h.v_dim);
    h.out = place(3, out_expected, h.rows, h.out_ld, h.v_dim);
    h.lse = bed_copy(4, lse_expected, h.rows, side());
    h.room = bed_floats(5, (int64_t)ph_head_floats(h.k_dim, h.v_dim, h.rows), side());
    g.dout = place(9, dout, h.rows, g.dout_ld, h.v_dim);
    g.dq_ld = h.k_dim + bed_below(9), g.dk_ld = h.k_dim + bed_below(9);
    g.dv_ld = h.v_dim + bed_below(9);
    g.dq = grad_room(6, h.rows, g.dq_ld, h.k_dim);
    g.dk = grad_room(7, h.keys, g.dk_ld, h.k_dim);
    g.dv = grad_room(8, h.keys, g.dv_ld, h.v_dim);
    t->head_backward(&h, &g);
    compare_grads(&h, &g);
}

/* Scores are of a size that lse tells them from their maximum. */
void check_head_backward(const ph_kernels *t)
{
    for (int round = 0; round < 400; round++) {
        ph_head h = any_head();
        int kind = round % BED_KINDS, hides = h.lo + h.rows - 1 > 0 || h.hi < h.keys;
        if (hides && kind == BED_SPARSE) kind = BED_WIDE;
        bed_fill(q, ROWS * LD, round % 7 ? BED_PLAIN : BED_TINY);
        bed_fill(k, KEYS * LD, BED_PLAIN);
        bed_fill(v, KEYS * LD, kind);
        bed_fill(dout, ROWS * LD, kind);
        head_backward_at(t, h);
    }
}

static ph_head usual_head(int rows, int keys)
{
    ph_head h = {.rows = rows, .keys = keys, .k_dim = 64, .v_dim = 64, .scale = 0.2f};
    bed_fill(q, ROWS * LD, BED_PLAIN);
    bed_fill(k, KEYS * LD, BED_PLAIN);
    bed_fill(v, KEYS * LD, BED_PLAIN);
    h.q_ld = h.k_ld = h.v_ld = h.out_ld = 64, h.hi = KEYS, h.lo = -ROWS;
    h.q = q, h.k = k, h.v = v, h.out = out_expected, h.lse = lse_expected, h.room = room;
    return h;
}

void bench_head_backward(const ph_kernels *t)
{
    for (int n = 20; n <= 80; n *= 2) {
        char shape[40];
        bed_timer timer;
        ph_head h = usual_head(n, n);
        bed_fill(dout, ROWS * LD, BED_PLAIN);
        ph_head_grads g = {.dout = dout,
                           .dq = dq_expected,
                           .dk = dk_expected,
                           .dv = dv_expected,
                           .scale = 0.125f};
        g.dout_ld = g.dq_ld = g.dk_ld = g.dv_ld = 64;
        t->head_forward(&h);
        BED_TIME(&timer, t->head_backward(&h, &g));
        snprintf(shape, sizeof shape, "%d x %d, 64", n, n);
        bed_report("head_backward", t, shape, &timer, 640.0 * n * n, 0);
    }
}

void bench_head_forward(const ph_kernels *t)
{
    for (int n = 20; n <= 80; n *= 2) {
        char shape[40];
        bed_timer timer;
        ph_head h = usual_head(n, n);
        BED_TIME(&timer, t->head_forward(&h));
        snprintf(shape, sizeof shape, "%d x %d, 64", n, n);
        bed_report("head_forward", t, shape, &timer, 256.0 * n * n, 0);
    }
}
