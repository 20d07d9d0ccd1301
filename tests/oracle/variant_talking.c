/*
 * variant_talking.c - talking heads (spec score-modifiers, B1).
 *
 *     L_ij[h] = sum_a s_ij[a] w_logits[a][h]       before bias and masks
 *     a_ij[c] = sum_h p_ij[h] w_weights[h][c]      after the softmax
 */
#include "variant_parts.h"

/* Row vector over heads times m, for every (b, i, j). */
static void mix(work *w, const double *m, int hide)
{
    int heads = w->heads, tile = w->q_len * w->kv_len;
    double *old = take(w, heads);
    for (int n = 0; n < w->batch * tile; n++) {
        int b = n / tile, at = n % tile;
        double *cell = w->cell + b * heads * tile + at;
        for (int h = 0; h < heads; h++) old[h] = cell[h * tile], cell[h * tile] = 0;
        for (int to = 0; to < heads; to++)
            for (int from = 0; from < heads; from++)
                if (!hide || sees(w, b, to, at / w->kv_len, at % w->kv_len))
                    cell[to * tile] += old[from] * m[from * heads + to];
    }
    jitter(w, w->cell, w->batch * heads * tile);
}

static void before(work *w)
{
    mix(w, given(w, "w_logits"), 0);
}

static void after(work *w)
{
    mix(w, given(w, "w_weights"), 1);
}

const variant variant_talking = {
    .name = "talking", .core = 1, .pre = before, .post = after};
