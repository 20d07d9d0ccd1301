/*
 * tmpl_head_back.h - the gradients of a whole head of few keys at once, with rows in
 * lanes as in tmpl_head.h.
 */

/* p and ds of all rows: key c has a line of p at p + c*ld and one of ds at ds + c*ld. */
typedef struct head_tile {
    float *p, *ds;
    int64_t ld;
} head_tile;

/* lse in base 2 and dout . out of m rows, in vectors that are full: rows that see
   nothing, or are not there, have weights of 0. */
V void row_deltas(const ph_head *h, const ph_head_grads *g, int first, int m, float *lse,
                  float *delta)
{
    dots(m, h->v_dim, g->dout + first * g->dout_ld, g->dout_ld,
         h->out + first * h->out_ld, h->out_ld, delta);
    for (int i = 0; i < m; i++) {
        float x = h->lse[first + i];
        lse[i] = x == -__builtin_inff() ? __builtin_inff() : (float)(x * PH_LOG2E);
        if (x == -__builtin_inff()) delta[i] = 0;
    }
    for (int i = m; i < ph_round_up(m, PH_LANES); i++)
        lse[i] = __builtin_inff(), delta[i] = 0;
}

/* VL rows: scores become p, dout v^T becomes ds. */
V void slope_keys(int keys, float *p, float *ds, int64_t ld, vec lse, vec delta)
{
    for (int c = 0; c < keys; c++) {
        vec score = v_load(p + c * ld), weight = v_exp2(v_sub(score, lse));
        vec slope = v_mul(weight, v_sub(v_load(ds + c * ld), delta));
        v_store(p + c * ld, weight);
        v_store(ds + c * ld, v_select(v_eq(score, MINUS_INF), v_zero(), slope));
    }
}

/* Up to NR rows of the tile, from `first` on. */
V void tile_rows(const ph_head *h, const ph_head_grads *g, const head_tile *tile,
                 int first, int m, ph_soon *soon)
{
    const int rows = ph_round_up(m, PH_LANES), keys = seen_end(h, first, m);
    float *panel = h->room, *p = tile->p + first, *ds = tile->ds + first;
    float lse[NR], delta[NR];
    row_deltas(h, g, first, m, lse, delta);
    turn_panel(panel, h->q + first * h->q_ld, h->q_ld, m, h->k_dim, h->scale);
    if (keys) score_keys(rows, keys, h->k_dim, h->k, h->k_ld, panel, p, tile->ld, soon);
    turn_panel(panel, g->dout + first * g->dout_ld, g->dout_ld, m, h->v_dim, 1);
    if (keys) score_keys(rows, keys, h->v_dim, h->v, h->v_ld, panel, ds, tile->ld, soon);
    hide_keys(h, rows, keys, first, p, tile->ld);
    for (int i = 0; i < rows; i += VL) {
        slope_keys(keys, p + i, ds + i, tile->ld, v_load(lse + i), v_load(delta + i));
        for (int c = keys; c < h->keys; c++) {
            v_store(p + c * tile->ld + i, v_zero());
            v_store(ds + c * tile->ld + i, v_zero());
        }
    }
}

/* dk or dv: scale * left^T right, where left has a line of rows for each key. */
V void key_gradient(const ph_head *h, const float *left, int64_t ld, const float *right,
                    int64_t ldr, int dim, float scale, float *grad, int64_t ldg,
                    ph_soon *soon)
{
    float scales[MR];
    for (int i = 0; i < MR; i++) scales[i] = scale;
    for (int c = 0, height = ph_even_strip(h->keys, MR); grad && c < h->keys;
         c += height) {
        int m = ph_min(height, h->keys - c);
        int from = ph_max(0, c - h->hi + 1), to = ph_min(h->rows, c + m - h->lo);
        product_of(m, dim, ph_max(0, to - from), left + c * ld + from, ld, 1,
                   right + from * ldr, ldr, grad + c * ldg, ldg, scales, soon);
    }
}

static void query_gradient(const ph_head *h, const ph_head_grads *g,
                           const head_tile *tile, ph_soon *soon)
{
    float scales[MR];
    for (int i = 0; i < MR; i++) scales[i] = g->scale;
    for (int i = 0, height = ph_even_strip(h->rows, MR); g->dq && i < h->rows;
         i += height) {
        int m = ph_min(height, h->rows - i);
        product_of(m, h->k_dim, seen_end(h, i, m), tile->ds + i, 1, tile->ld, h->k,
                   h->k_ld, g->dq + i * g->dq_ld, g->dq_ld, scales, soon);
    }
}

static void head_backward(const ph_head *h, const ph_head_grads *g)
{
    ph_soon soon = h->soon;
    int64_t line = ph_round_up(h->rows, NR);
    float *p = h->room + (int64_t)ph_max(h->k_dim, h->v_dim) * NR;
    head_tile tile = {p, p + line, 2 * line};
    for (int first = 0; first < h->rows; first += NR)
        tile_rows(h, g, &tile, first, ph_min(NR, h->rows - first), &soon);
    query_gradient(h, g, &tile, &soon);
    key_gradient(h, tile.p, tile.ld, g->dout, g->dout_ld, h->v_dim, 1, g->dv, g->dv_ld,
                 &soon);
    key_gradient(h, tile.ds, tile.ld, h->q, h->q_ld, h->k_dim, g->scale, g->dk, g->dk_ld,
                 &soon);
}
