/*
 * tmpl_head_back.h - gradients of a head or of a part of it, with rows in lanes
 * (tmpl_lanes.h): key c has a line of p, one float for each row, and one of ds beside it.
 *
 *     s^T = k q^T    dp^T = v dout^T    dq = ds k    dk = ds^T q    dv = p^T dout
 *
 * So k, v, q and dout are read in place, but for NR rows at a time that are transposed.
 */

typedef struct head_lines {
    float *p, *ds;
    int64_t ld;
    float *derivative; /* of the soft-cap, of a piece of keys */
} head_lines;

/* Rows [*from, *to) that may see one of the keys [c, c + m). */
V void rows_seeing(const ph_grad_block *t, int c, int m, int *from, int *to)
{
    const ph_window *w = &t->window;
    int64_t first = ((int64_t)c - w->hi + 1) * w->group - w->phase;
    int64_t end = ((int64_t)c + m - w->lo) * w->group - w->phase;
    *to = end > t->rows ? t->rows : (int)end;
    *from = first < 0 ? 0 : first > *to ? *to : (int)first;
    if (*to < *from) *from = *to = 0;
}

/* What VL rows know before any key is looked at. */
typedef struct row_facts {
    vec lse, delta;
    vint low, high; /* of their keys of dropout */
} row_facts;

V void load_facts(const ph_grad_block *t, int at, row_facts *f)
{
    const int n = ph_max(t->rows - at, 0);
    f->lse = load_rows(t->lse + at, n);
    f->delta = load_rows(t->delta + at, n);
    f->low = f->high = vi_set1(0);
    if (!t->drop.low) return;
    f->low = load_halves(t->drop.low + at, n);
    f->high = load_halves(t->drop.high + at, n);
}

/* Scores of NV vectors of rows become p, dout v^T becomes ds. */
V void gradient_lines(const ph_grad_block *t, const int NV, const int dropped, int from,
                      int to, float *p, float *ds, int64_t ld, const row_facts *facts)
{
    for (int c = from; c < to; c++) UNROLL
    for (int v = 0; v < NV; v++) {
        float *at = p + c * ld + v * VL, *ds_at = ds + c * ld + v * VL;
        vec score = v_load(at), weight = v_exp2(v_sub(score, facts[v].lse));
        vec g = v_load(ds_at), keep = v_zero();
        if (dropped) {
            keep = drop_factor(&t->drop, c, facts[v].low, facts[v].high);
            g = v_mul(g, keep);
        }
        vec gradient = v_mul(weight, v_sub(g, facts[v].delta));
        v_store(at, dropped ? v_mul(weight, keep) : weight);
        v_store(ds_at, v_select(v_eq(score, MINUS_INF), v_zero(), gradient));
    }
}

static void gradient_keys(const ph_grad_block *t, int first, int rows, int from, int to,
                          float *p, float *ds, int64_t ld)
{
    row_facts facts[NR / VL];
    UNROLL
    for (int v = 0; v < NR / VL; v++)
        if (v * VL < rows) load_facts(t, first + v * VL, &facts[v]);
    if (rows >= NR && !t->drop.low)
        gradient_lines(t, NR / VL, 0, from, to, p, ds, ld, facts);
    else if (rows >= NR)
        gradient_lines(t, NR / VL, 1, from, to, p, ds, ld, facts);
    else if (!t->drop.low)
        gradient_lines(t, PH_LANES / VL, 0, from, to, p, ds, ld, facts);
    else
        gradient_lines(t, PH_LANES / VL, 1, from, to, p, ds, ld, facts);
}

V void clear_lines(int rows, int from, int to, float *p, float *ds, int64_t ld)
{
    for (int c = from; c < to; c++)
        for (int i = 0; i < rows; i += VL) {
            v_store(p + c * ld + i, v_zero());
            v_store(ds + c * ld + i, v_zero());
        }
}

/* ds of the keys [from, to) times the derivative of the soft-cap. */
V void derive_lines(int rows, int from, int to, float *ds, int64_t ld,
                    const float *derivative)
{
    for (int c = from; c < to; c++)
        for (int i = 0; i < rows; i += VL) {
            float *at = ds + c * ld + i;
            v_store(at, v_mul(v_load(at), v_load(derivative + (c - from) * NR + i)));
        }
}

/* p and ds of up to NR rows from `first` on. A strip of MR keys, or of MR rows, may read
   up to MR - 1 keys beyond those that are seen here. */
V void fill_lines(const ph_grad_block *t, const head_lines *l, int first, int m,
                  ph_prefetch *ahead)
{
    const int rows = ph_round_up(m, PH_LANES);
    float *panel = t->scratch, *p = l->p + first, *ds = l->ds + first;
    score_lines scores = {.s = p, .ld = l->ld, .first = first, .m = m};
    int from, to;
    keys_seen(&t->window, t->keys, first, m, &from, &to);
    clear_lines(rows, ph_max(0, from - MR + 1), from, p, ds, l->ld);
    clear_lines(rows, to, ph_min(t->keys, to + MR - 1), p, ds, l->ld);
    if (from == to) return;
    transpose_panel(panel, t->q + first * t->q_ld, t->q_ld, m, t->k_dim, t->scale);
    score_keys(rows, to - from, t->k_dim, t->k + from * t->k_ld, t->k_ld, panel,
               p + from * l->ld, l->ld, ahead);
    transpose_panel(panel, t->dout + first * t->dout_ld, t->dout_ld, m, t->v_dim, 1);
    for (int c = from, n; c < to; c += n) { /* a piece of keys stays in L1 */
        n = to - c < 2 * PH_GRAD_BLOCK_PIECE ? to - c : PH_GRAD_BLOCK_PIECE;
        scores.from = c, scores.to = c + n;
        modify_lines(&t->mods, &scores, l->derivative);
        hide_lines(&t->window, &scores);
        score_keys(rows, n, t->v_dim, t->v + c * t->v_ld, t->v_ld, panel, ds + c * l->ld,
                   l->ld, ahead);
        gradient_keys(t, first, rows, c, c + n, p, ds, l->ld);
        if (t->mods.cap > 0) derive_lines(rows, c, c + n, ds, l->ld, l->derivative);
    }
}

/* The products by what becomes of their sums. A sum that goes on is one over rows, one
   that is added is one over keys: their tiles know how the left operand lies. */
static tile_fn *const (*const sums_tiles[])[2] = {[PH_SUM_STORE] = times_tiles,
                                                  [PH_SUM_CONTINUE] = on_tiles,
                                                  [PH_SUM_ADD] = plus_tiles};

/* m rows of a gradient from row `at` on, n floats each: sums over k lines of b. */
V void sum_rows(const ph_grad_sum *sums, int at, int m, int n, int k, const float *a,
                int64_t row, int64_t step, const float *b, int64_t ldb,
                ph_prefetch *ahead)
{
    float scales[MR], *to = sums->to + at * sums->ld;
    for (int i = 0; i < MR; i++) scales[i] = sums->scale;
    for (int j = 0; j < n; j += NR)
        sums_tiles[sums->how][m][n - j >= NR](k, a, row, step, b + j, ldb, to + j,
                                              sums->ld, scales, NULL,
                                              prefetch_next(ahead, m, k, b));
}

/* dk or dv from lines `left`. */
static void key_gradient(const ph_grad_block *t, const float *left, int64_t ld,
                         const float *right, int64_t ldr, int dim,
                         const ph_grad_sum *sums, ph_prefetch *ahead)
{
    for (int c = 0, height = ph_even_strip(t->keys, MR); sums->to && c < t->keys;
         c += height) {
        int m = ph_min(height, t->keys - c), from, to;
        rows_seeing(t, c, m, &from, &to);
        sum_rows(sums, c, m, ph_round_up(dim, PH_LANES), to - from, left + c * ld + from,
                 ld, 1, right + from * ldr, ldr, ahead);
    }
}

static void query_gradient(const ph_grad_block *t, const head_lines *l,
                           ph_prefetch *ahead)
{
    for (int i = 0, height = ph_even_strip(t->rows, MR); t->dq.to && i < t->rows;
         i += height) {
        int m = ph_min(height, t->rows - i), from, to;
        keys_seen(&t->window, t->keys, i, m, &from, &to);
        sum_rows(&t->dq, i, m, ph_round_up(t->k_dim, PH_LANES), to - from,
                 l->ds + i + from * l->ld, 1, l->ld, t->k + from * t->k_ld, t->k_ld,
                 ahead);
    }
}

static void head_backward(const ph_grad_block *t)
{
    ph_prefetch ahead = t->prefetch;
    int dim = ph_round_up(ph_max(t->k_dim, t->v_dim), PH_LANES);
    float *derivative = t->scratch + (int64_t)dim * NR;
    float *p = derivative + 2 * PH_GRAD_BLOCK_PIECE * NR;
    head_lines l = {p, p + ph_round_up(t->rows, NR), ph_head_line(t->rows), derivative};
    for (int first = 0; first < t->rows; first += NR)
        fill_lines(t, &l, first, ph_min(NR, t->rows - first), &ahead);
    query_gradient(t, &l, &ahead);
    key_gradient(t, l.p, l.ld, t->dout, t->dout_ld, t->v_dim, &t->dv, &ahead);
    key_gradient(t, l.ds, l.ld, t->q, t->q_ld, t->k_dim, &t->dk, &ahead);
}
