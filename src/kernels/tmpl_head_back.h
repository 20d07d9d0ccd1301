/*
 * tmpl_head_back.h - gradients of a head or of a part of it, with rows in lanes as in
 * tmpl_head.h: key c has a line of p, one number for each row, and one of ds beside it.
 *
 *     s^T = k q^T    dp^T = v dout^T    dq = ds k    dk = ds^T q    dv = p^T dout
 *
 * So k, v, q and dout are read where they lie, but for NR rows at a time that are turned.
 */

/* Keys whose lines of NR rows stay in L1 until they are p and ds. */
enum { KEYS_AT_ONCE = 4 * 12 };

typedef struct head_lines {
    float *p, *ds;
    int64_t ld;
} head_lines;

/* Token of a row, from that of row 0 on. */
V int token_of(const ph_head_tile *t, int row)
{
    return t->group == 1 ? row : (t->phase + row) / t->group;
}

/* Keys [*from, *to) that rows [first, first + m) see, some of them or all. */
V void keys_seen(const ph_head_tile *t, int first, int m, int *from, int *to)
{
    *to = ph_max(0, ph_min(t->keys, t->hi + token_of(t, first + m - 1)));
    *from = ph_max(0, ph_min(*to, t->lo + token_of(t, first)));
}

/* Rows [*from, *to) that may see one of the keys [c, c + m). */
V void rows_seeing(const ph_head_tile *t, int c, int m, int *from, int *to)
{
    int64_t first = ((int64_t)c - t->hi + 1) * t->group - t->phase;
    int64_t end = ((int64_t)c + m - t->lo) * t->group - t->phase;
    *to = end > t->rows ? t->rows : (int)end;
    *from = first < 0 ? 0 : first > *to ? *to : (int)first;
    if (*to < *from) *from = *to = 0;
}

/* -inf where key c of [from, to) is not seen by row `first` + lane: token i sees key c
   if c < hi + i, which is (c - hi + 1) * group <= row. */
V void hide_lines(const ph_head_tile *t, int first, int rows, int from, int to, float *s,
                  int64_t ld)
{
    const int top = ph_max(from, t->hi + token_of(t, first));
    const int low = ph_min(to, t->lo + token_of(t, first + rows - 1));
    for (int i = 0; i < rows; i += VL) {
        const vec row = v_add(v_iota(), v_set1((float)(t->phase + first + i)));
        for (int c = top; c < to; c++) {
            float *at = s + c * ld + i;
            vmask seen = v_lt(v_set1((float)(c - t->hi + 1) * t->group - 1), row);
            v_store(at, v_select(seen, v_load(at), MINUS_INF));
        }
        for (int c = from; c < low; c++) {
            float *at = s + c * ld + i;
            vmask hidden = v_lt(v_set1((float)(c - t->lo + 1) * t->group - 1), row);
            v_store(at, v_select(hidden, MINUS_INF, v_load(at)));
        }
    }
}

/* What VL rows know before any key is looked at. */
typedef struct row_facts {
    vec lse, delta;
    vint low, high; /* of their keys of dropout */
} row_facts;

V void load_facts(const ph_head_tile *t, int at, row_facts *f)
{
    const int n = t->rows - at;
    const float *low = (const void *)t->drop_low, *high = (const void *)t->drop_high;
    f->lse = n >= VL ? v_load(t->lse + at) : v_load_n(t->lse + at, ph_max(n, 0));
    f->delta = n >= VL ? v_load(t->delta + at) : v_load_n(t->delta + at, ph_max(n, 0));
    f->low = f->high = vi_set1(0);
    if (!low) return;
    f->low = v_bits(n >= VL ? v_load(low + at) : v_load_n(low + at, ph_max(n, 0)));
    f->high = v_bits(n >= VL ? v_load(high + at) : v_load_n(high + at, ph_max(n, 0)));
}

/* Scores of NV vectors of rows become p, dout v^T becomes ds. */
V void slope_lines(const ph_head_tile *t, const int NV, const int dropped, int from,
                   int to, float *p, float *ds, int64_t ld, const row_facts *facts)
{
    const vint limit = vi_set1(t->drop_limit);
    for (int c = from; c < to; c++) UNROLL
    for (int v = 0; v < NV; v++) {
        float *at = p + c * ld + v * VL, *slope_at = ds + c * ld + v * VL;
        vec score = v_load(at), weight = v_exp2(v_sub(score, facts[v].lse));
        vec g = v_load(slope_at), keep = v_zero();
        if (dropped) {
            vint x = drop_hash(vi_set1(t->drop_first + (uint32_t)c), facts[v].low,
                               facts[v].high);
            keep = v_select(vi_below(x, limit), v_zero(), v_set1(t->drop_keep));
            g = v_mul(g, keep);
        }
        vec slope = v_mul(weight, v_sub(g, facts[v].delta));
        v_store(at, dropped ? v_mul(weight, keep) : weight);
        v_store(slope_at, v_select(v_eq(score, MINUS_INF), v_zero(), slope));
    }
}

static void slope_keys(const ph_head_tile *t, int first, int rows, int from, int to,
                       float *p, float *ds, int64_t ld)
{
    row_facts facts[NR / VL];
    UNROLL
    for (int v = 0; v < NR / VL; v++)
        if (v * VL < rows) load_facts(t, first + v * VL, &facts[v]);
    if (rows >= NR && !t->drop_low)
        slope_lines(t, NR / VL, 0, from, to, p, ds, ld, facts);
    else if (rows >= NR)
        slope_lines(t, NR / VL, 1, from, to, p, ds, ld, facts);
    else if (!t->drop_low)
        slope_lines(t, PH_LANES / VL, 0, from, to, p, ds, ld, facts);
    else
        slope_lines(t, PH_LANES / VL, 1, from, to, p, ds, ld, facts);
}

V void clear_lines(int rows, int from, int to, float *p, float *ds, int64_t ld)
{
    for (int c = from; c < to; c++)
        for (int i = 0; i < rows; i += VL) {
            v_store(p + c * ld + i, v_zero());
            v_store(ds + c * ld + i, v_zero());
        }
}

/* p and ds of up to NR rows from `first` on. A strip of MR keys, or of MR rows, may look
   up to MR - 1 keys beyond those that are seen here. */
V void fill_lines(const ph_head_tile *t, const head_lines *l, int first, int m,
                  ph_soon *soon)
{
    const int rows = ph_round_up(m, PH_LANES);
    float *panel = t->room, *p = l->p + first, *ds = l->ds + first;
    int from, to;
    keys_seen(t, first, m, &from, &to);
    clear_lines(rows, ph_max(0, from - MR + 1), from, p, ds, l->ld);
    clear_lines(rows, to, ph_min(t->keys, to + MR - 1), p, ds, l->ld);
    if (from == to) return;
    turn_panel(panel, t->q + first * t->q_ld, t->q_ld, m, t->k_dim, t->scale);
    score_keys(rows, to - from, t->k_dim, t->k + from * t->k_ld, t->k_ld, panel,
               p + from * l->ld, l->ld, soon);
    hide_lines(t, first, rows, from, to, p, l->ld);
    turn_panel(panel, t->dout + first * t->dout_ld, t->dout_ld, m, t->v_dim, 1);
    for (int c = from, n; c < to; c += n) {
        n = to - c < 2 * KEYS_AT_ONCE ? to - c : KEYS_AT_ONCE;
        score_keys(rows, n, t->v_dim, t->v + c * t->v_ld, t->v_ld, panel, ds + c * l->ld,
                   l->ld, soon);
        slope_keys(t, first, rows, c, c + n, p, ds, l->ld);
    }
}

/* The products by what becomes of their sums. A sum that goes on is one over rows, one
   that is added is one over keys: their tiles know how the left operand lies. */
static tile_fn *const (*const sums_tiles[])[2] = {
    [PH_SUMS_NEW] = times_tiles, [PH_SUMS_ON] = on_tiles, [PH_SUMS_ADD] = plus_tiles};

/* m rows of a gradient from row `at` on, n numbers each: sums over k lines of b. */
V void sum_rows(const ph_sums *sums, int at, int m, int n, int k, const float *a,
                int64_t row, int64_t step, const float *b, int64_t ldb, ph_soon *soon)
{
    float scales[MR], *to = sums->to + at * sums->ld;
    for (int i = 0; i < MR; i++) scales[i] = sums->scale;
    for (int j = 0; j < n; j += NR)
        sums_tiles[sums->how][m][n - j >= NR](k, a, row, step, b + j, ldb, to + j,
                                              sums->ld, scales, NULL, ask(soon, m, k, b));
}

/* dk or dv from lines `left`. */
static void key_gradient(const ph_head_tile *t, const float *left, int64_t ld,
                         const float *right, int64_t ldr, int dim, const ph_sums *sums,
                         ph_soon *soon)
{
    for (int c = 0, height = ph_even_strip(t->keys, MR); sums->to && c < t->keys;
         c += height) {
        int m = ph_min(height, t->keys - c), from, to;
        rows_seeing(t, c, m, &from, &to);
        sum_rows(sums, c, m, ph_round_up(dim, PH_LANES), to - from, left + c * ld + from,
                 ld, 1, right + from * ldr, ldr, soon);
    }
}

static void query_gradient(const ph_head_tile *t, const head_lines *l, ph_soon *soon)
{
    for (int i = 0, height = ph_even_strip(t->rows, MR); t->dq.to && i < t->rows;
         i += height) {
        int m = ph_min(height, t->rows - i), from, to;
        keys_seen(t, i, m, &from, &to);
        sum_rows(&t->dq, i, m, ph_round_up(t->k_dim, PH_LANES), to - from,
                 l->ds + i + from * l->ld, 1, l->ld, t->k + from * t->k_ld, t->k_ld,
                 soon);
    }
}

static void head_backward(const ph_head_tile *t)
{
    ph_soon soon = t->soon;
    int dim = ph_round_up(ph_max(t->k_dim, t->v_dim), PH_LANES);
    float *p = t->room + (int64_t)dim * NR;
    head_lines l = {p, p + ph_round_up(t->rows, NR), ph_head_line(t->rows)};
    for (int first = 0; first < t->rows; first += NR)
        fill_lines(t, &l, first, ph_min(NR, t->rows - first), &soon);
    query_gradient(t, &l, &soon);
    key_gradient(t, l.p, l.ld, t->dout, t->dout_ld, t->v_dim, &t->dv, &soon);
    key_gradient(t, l.ds, l.ld, t->q, t->q_ld, t->k_dim, &t->dk, &soon);
}
