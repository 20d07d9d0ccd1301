/*
 * kernel_head.c - check and bench of the kernel that does a whole head, head_forward.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_bed.h"
#include "kernel_mods.h"

#define REF ph_kernels_ref

enum { ROWS = 80, KEYS = 2 * PH_SPLIT + 150, DIM = 96, LD = DIM + 8 };

static float q[ROWS * LD], k[KEYS * LD], v[KEYS * LD];
static float out_expected[ROWS * LD], lse_expected[ROWS], gate[ROWS], sink;
static float scratch[(ROWS + 32) * (PH_LANES + 1 + 2 * DIM) + 32 * (2 * PH_STRIP_LD)];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

static int any_dim(void)
{
    return bed_below(2) ? 16 * (1 + bed_below(DIM / 16)) : 1 + bed_below(DIM);
}

/* Any size, mask and distance between rows; of some blocks, or splits, now and then. */
static ph_head any_head(void)
{
    int most = bed_below(3) ? 40 : bed_below(3) ? 3 * PH_STRIP_LD : KEYS;
    ph_head h = {.rows = 1 + bed_below(bed_below(3) ? 34 : ROWS),
                 .keys = 1 + bed_below(most),
                 .k_dim = any_dim(),
                 .v_dim = any_dim(),
                 .scale = bed_between(0.05f, 1)};
    h.q_ld = h.k_dim + bed_below(9), h.k_ld = h.k_dim + bed_below(9);
    h.v_ld = ph_round_up(h.v_dim, PH_LANES) + bed_below(9);
    h.out_ld = h.v_dim + bed_below(9);
    int lo = bed_below(2) ? -h.rows : bed_below(h.keys + 60) - 50;
    int hi = bed_below(2) ? h.keys : lo + bed_below(h.keys + 20);
    h.window = (ph_window){.lo = ph_max(-h.rows, ph_min(lo, h.keys)),
                           .hi = ph_max(-h.rows, ph_min(hi, h.keys)),
                           .group = 1};
    h.mods = bed_mods(h.rows, h.keys);
    h.drop = bed_drop(h.rows);
    return h;
}

static float *place(int slot, const float *from, int rows, int64_t ld, int n)
{
    return bed_copy(slot, from, (rows - 1) * ld + n, side());
}

/* All splits, with k and v in one piece. */
static void run_splits(const ph_kernels *t, ph_head *h, const float *keys,
                       const float *values)
{
    for (h->split = 0; h->split < h->keys; h->split += PH_SPLIT) {
        for (int i = 0; i <= PH_SPLIT_BLOCKS; i++) {
            int64_t j = h->split + i * PH_STRIP_LD;
            h->k[i] = j < h->keys ? keys + j * h->k_ld : NULL;
            h->v[i] = j < h->keys ? values + j * h->v_ld : NULL;
        }
        t->head_forward(h);
    }
}

static void head_forward_at(const ph_kernels *t, ph_head h)
{
    int with_lse = bed_below(4) != 0;
    bed_say("%s head_forward %d rows %d keys %d %d dims, lo %d hi %d", t->name, h.rows,
            h.keys, h.k_dim, h.v_dim, h.window.lo, h.window.hi);
    h.q = q, h.out = out_expected, h.lse = lse_expected, h.scratch = scratch;
    if (bed_below(4) == 0) h.gate = gate;
    if (bed_below(4) == 0) h.sink = &sink;
    run_splits(&REF, &h, k, v);
    if (h.gate) h.gate = bed_copy(6, gate, h.rows, side());
    h.q = place(0, q, h.rows, h.q_ld, h.k_dim);
    const float *keys = place(1, k, h.keys, h.k_ld, h.k_dim);
    const float *values = place(2, v, h.keys, h.v_ld, ph_round_up(h.v_dim, PH_LANES));
    h.out = bed_floats(3, (h.rows - 1) * h.out_ld + h.v_dim, side());
    h.lse = with_lse ? bed_floats(4, h.rows, side()) : NULL;
    int64_t floats = (int64_t)ph_head_floats(h.rows, h.keys, h.k_dim, h.v_dim);
    h.scratch = bed_floats(5, floats, side());
    h.prefetch.part[1].at = (const char *)q;
    h.prefetch.part[1].end = (const char *)(q + ROWS);
    run_splits(t, &h, keys, values);
    bed_same_rows("out", h.out, h.out_ld, out_expected, h.out_ld, h.rows, h.v_dim,
                  h.v_dim);
    if (with_lse) bed_same("lse", h.lse, lse_expected, h.rows);
    bed_intact(3), bed_intact(5);
    if (with_lse) bed_intact(4);
}

void check_head_forward(const ph_kernels *t)
{
    for (int round = 0; round < 600; round += EVERY) {
        ph_head h = any_head();
        int kind = round % BED_KINDS, hides = bed_mods_hide(&h.mods);
        hides |= h.window.lo + h.rows - 1 > 0 || h.window.hi < h.keys;
        bed_fill(q, ROWS * LD, kind);
        bed_fill(k, KEYS * LD, kind);
        bed_fill(v, KEYS * LD, hides ? BED_WIDE : kind);
        for (int i = 0; i < ROWS; i++) gate[i] = bed_between(-2, 2);
        sink = bed_below(8) ? bed_between(-9, 9) : -INFINITY;
        head_forward_at(t, h);
    }
}

static ph_head usual_head(int rows, int keys)
{
    ph_head h = {.rows = rows, .keys = keys, .k_dim = 64, .v_dim = 64, .scale = 0.2f};
    bed_fill(q, ROWS * LD, BED_NORMAL);
    bed_fill(k, KEYS * LD, BED_NORMAL);
    bed_fill(v, KEYS * LD, BED_NORMAL);
    h.q_ld = h.k_ld = h.v_ld = h.out_ld = 64;
    h.window = (ph_window){-rows, keys, 1, 0};
    h.q = q, h.out = out_expected, h.lse = lse_expected, h.scratch = scratch;
    return h;
}

void bench_head_forward(const ph_kernels *t)
{
    for (int n = 20; n <= 80; n *= 2) {
        char shape[40];
        bed_timer timer;
        ph_head h = usual_head(n, n);
        BED_TIME(&timer, run_splits(t, &h, k, v));
        snprintf(shape, sizeof shape, "%d x %d, 64", n, n);
        bed_report("head_forward", t, shape, &timer, 256.0 * n * n, 0);
    }
}
