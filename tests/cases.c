/*
 * cases.c - random descriptions of attention problems; see cases.h.
 *
 * Sizes are drawn from lists of awkward ones and cut until the work fits a budget.
 */
#include "cases.h"

#include <string.h>

#include "check.h"

#define PICK(rng, list) ((list)[check_below(rng, (int)(sizeof(list) / sizeof *(list)))])

static int chance(uint64_t *rng, int percent)
{
    return check_below(rng, 100) < percent;
}

static int draw_len(uint64_t *rng, int limit)
{
    static const int edges[] = {6,  12,  16,  24,  32,  48,  64,
                                96, 128, 192, 256, 384, 512, 1024};
    static const int primes[] = {2, 3, 5, 7, 11, 13, 17, 23, 37, 61, 97, 113, 211, 509};
    int len = 1;
    switch (check_below(rng, 5)) {
    case 0: len = 1 + check_below(rng, 12); break;
    case 1: len = PICK(rng, primes); break;
    case 2: len = 1 + check_below(rng, 80); break;
    default: len = PICK(rng, edges) + check_below(rng, 3) - 1; break;
    }
    if (len > limit) len = 1 + check_below(rng, limit);
    return len;
}

static int draw_dim(uint64_t *rng, int limit)
{
    static const int dims[] = {1,  2,  3,  5,  7,  8,   15,  16,  17,  31, 33,
                               59, 64, 65, 80, 96, 111, 128, 160, 256, 512};
    int dim = PICK(rng, dims);
    return dim > limit ? 1 + check_below(rng, limit) : dim;
}

static int draw_divisor(uint64_t *rng, int of)
{
    int d = 1 + check_below(rng, of);
    while (of % d) d--;
    return d;
}

static void draw_heads(uint64_t *rng, ph_attn *a, int limit)
{
    static const int heads[] = {1, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24};
    a->q_heads = PICK(rng, heads);
    while (a->q_heads > limit) a->q_heads = 1 + check_below(rng, limit);
    if (chance(rng, 60)) return; /* zero: as many */
    a->k_heads = draw_divisor(rng, a->q_heads);
    a->v_heads = chance(rng, 60) ? a->k_heads : draw_divisor(rng, a->q_heads);
    if (a->q_heads == 12 && chance(rng, 50)) { /* neither divides the other */
        a->k_heads = 4;
        a->v_heads = 3;
    }
}

/* Sizes whose product stays within a budget of multiply-adds per product. */
static void draw_sizes(uint64_t *rng, ph_attn *a, case_size size)
{
    int64_t budget = size == CASE_TINY ? 4000 : size == CASE_SMALL ? 600000 : 12000000;
    int longest = size == CASE_TINY ? 9 : 1100;
    a->qk_dim = draw_dim(rng, size == CASE_TINY ? 8 : 512);
    a->v_dim = chance(rng, 60) ? 0 : draw_dim(rng, size == CASE_TINY ? 8 : 512);
    int dim = a->qk_dim > a->v_dim ? a->qk_dim : a->v_dim;
    int64_t cells = budget / dim;
    if (chance(rng, 20)) { /* few queries, long keys */
        a->q_len = 1 + check_below(rng, 4);
        a->kv_len = draw_len(rng, longest);
        if ((int64_t)a->q_len * a->kv_len > cells)
            a->kv_len = 1 + check_below(rng, (int)cells);
    } else {
        a->q_len = draw_len(rng, longest);
        a->kv_len = chance(rng, 40) ? a->q_len : draw_len(rng, longest);
        while ((int64_t)a->q_len * a->kv_len > cells) {
            if (a->q_len == a->kv_len)
                a->q_len = a->kv_len = a->q_len / 2 + check_below(rng, 2);
            else if (a->q_len > a->kv_len)
                a->q_len = a->q_len / 2 + check_below(rng, 2);
            else
                a->kv_len = a->kv_len / 2 + check_below(rng, 2);
        }
    }
    int64_t left = cells / ((int64_t)a->q_len * a->kv_len);
    draw_heads(rng, a, left < 1 ? 1 : left > 24 ? 24 : (int)left);
    left /= a->q_heads;
    a->batch = 1 + check_below(rng, left < 1 ? 1 : left > 4 ? 4 : (int)left);
    if (chance(rng, 1)) a->batch = 0;
    if (chance(rng, 1)) a->q_len = 0;
    if (chance(rng, 1)) a->kv_len = 0;
}

static void draw_mask(uint64_t *rng, ph_attn *a)
{
    static const ph_mask masks[] = {PH_MASK_NONE, PH_MASK_CAUSAL, PH_MASK_CAUSAL,
                                    PH_MASK_BAND};
    a->mask = PICK(rng, masks);
    if (a->mask == PH_MASK_BAND) {
        a->band_left = check_below(rng, a->kv_len / 2 + 2) - 1;
        a->band_right = chance(rng, 40) ? 0 : check_below(rng, a->kv_len / 2 + 2) - 1;
    }
    int free = a->mask == PH_MASK_NONE || a->q_len == a->kv_len;
    a->anchor = (ph_anchor)(free ? check_below(rng, 3) : 1 + check_below(rng, 2));
    if (a->anchor == PH_ANCHOR_OFFSET)
        a->q_offset = chance(rng, 40) ? a->kv_len - a->q_len
                      : chance(rng, 30)
                          ? 0
                          : check_below(rng, a->q_len + a->kv_len + 1) - a->q_len;
}

static ph_broadcast draw_broadcast(uint64_t *rng, const ph_attn *a)
{
    ph_broadcast shape = {1, 1, 1};
    if (a->batch && chance(rng, 50)) shape.batch = a->batch;
    if (chance(rng, 50)) shape.heads = a->q_heads;
    if (a->q_len && chance(rng, 70)) shape.q_len = a->q_len;
    return shape;
}

static void draw_options(uint64_t *rng, ph_attn *a, case_with *w)
{
    static const float scales[] = {0.05f, 0.2f, 0.7f, -0.15f}, caps[] = {2, 10, 50};
    static const float drops[] = {0.1f, 0.5f, 0.9f}, gains[] = {0.1f, 1, 1, 1, 3, 8};
    static const float hidden[] = {0.05f, 0.5f, 0.9f};
    if (chance(rng, 25)) a->scale = PICK(rng, scales);
    if (chance(rng, 20)) a->softcap = PICK(rng, caps);
    if (chance(rng, 15)) a->dropout = PICK(rng, drops);
    if (chance(rng, 30)) a->bias = draw_broadcast(rng, a);
    if (chance(rng, 25)) a->visible = draw_broadcast(rng, a);
    if (chance(rng, 30)) w->gate = 1;
    a->gate = chance(rng, 50) ? PH_GATE_ROW : PH_GATE_HEAD;
    w->gate_zeros = chance(rng, 50);
    w->bias_holes = chance(rng, 50);
    w->hidden = PICK(rng, hidden);
    w->sink = chance(rng, 25);
    w->alibi = chance(rng, 25);
    w->q_lens = chance(rng, 25);
    w->kv_lens = chance(rng, 30);
    w->dlse = chance(rng, 40);
    w->lse = chance(rng, 85);
    w->q_gain = chance(rng, 3) ? 300 : PICK(rng, gains);
    w->v_gain = chance(rng, 10) ? 50 : 1;
    w->v_shift = chance(rng, 20) ? 2 : 0;
    w->same_keys = chance(rng, 4);
}

static void draw_layouts(uint64_t *rng, ph_attn *a, case_with *w)
{
    static const case_layout any[] = {LAYOUT_PACKED, LAYOUT_PACKED,  LAYOUT_EXPLICIT,
                                      LAYOUT_PADDED, LAYOUT_PADDED,  LAYOUT_TIME,
                                      LAYOUT_HEAD,   LAYOUT_OVERLAP, LAYOUT_REPEAT};
    static const case_layout plain[] = {LAYOUT_PACKED, LAYOUT_EXPLICIT, LAYOUT_PADDED,
                                        LAYOUT_TIME, LAYOUT_HEAD};
    w->layout = PICK(rng, any);
    int square = a->q_len == a->kv_len && (a->v_dim == 0 || a->v_dim == a->qk_dim);
    if (square && chance(rng, 30)) w->layout = LAYOUT_INTERLEAVED;
    w->out = PICK(rng, plain);
    w->dq = PICK(rng, plain);
    w->dq_said = chance(rng, 40) || w->layout >= LAYOUT_OVERLAP;
    if (w->dq_said && w->dq == LAYOUT_PACKED) w->dq = LAYOUT_EXPLICIT;
    if (chance(rng, 40)) a->dtype = chance(rng, 50) ? PH_F16 : PH_BF16;
}

/* Heads that one kernel does: few keys, f32, whole vectors, nothing but a mask. */
static void make_short(uint64_t *rng, ph_attn *a, case_with *w)
{
    a->dtype = PH_F32;
    a->qk_dim = (a->qk_dim + 15) / 16 * 16, a->v_dim = (a->v_dim + 15) / 16 * 16;
    if (a->kv_len > 128) a->kv_len = 1 + check_below(rng, 128);
    if (a->anchor == PH_ANCHOR_UNSET && a->q_len != a->kv_len) a->anchor = PH_ANCHOR_END;
    a->softcap = a->dropout = 0;
    a->bias = a->visible = (ph_broadcast){0, 0, 0};
    w->gate = w->sink = w->alibi = w->dlse = 0;
}

void case_draw(ph_attn *attn, case_with *with, uint64_t seed, int index, case_size size)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + (uint64_t)index, *rng = &state;
    check_random(rng);
    memset(attn, 0, sizeof *attn);
    memset(with, 0, sizeof *with);
    draw_sizes(rng, attn, size);
    draw_mask(rng, attn);
    draw_options(rng, attn, with);
    draw_layouts(rng, attn, with);
    if (size != CASE_TINY && chance(rng, 20)) make_short(rng, attn, with);
    with->weights = attn->dropout > 0 || chance(rng, 60);
    with->col_sum = chance(rng, 50);
    with->entropy = chance(rng, 50);
    with->top_k = chance(rng, 50) ? 1 + check_below(rng, 9) : 0;
    with->rect = attn->batch && attn->q_len && attn->kv_len && chance(rng, 40);
    with->no_look = attn->dropout == 0 && chance(rng, 20);
}
