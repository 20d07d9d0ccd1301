/*
 * tmpl_head.h - a whole head of few keys at once, written once in the vector vocabulary.
 *
 * Rows stand in lanes: NR of them are turned, and a key has a line of their scores. So
 * maxima and sums over the keys are those of lines, nothing is added across a vector, and
 * k is read as it lies.
 */

/* `count` <= VL rows, VL columns of each times scale, turned: dst[c*NR + 0..VL). */
V void turn_rows(float *dst, const float *src, int64_t ld, const int count, vec scale)
{
    vec r[VL];
    UNROLL
    for (int i = 0; i < VL; i++)
        r[i] = i < count ? v_mul(v_load(src + i * ld), scale) : v_zero();
    if (count > 4)
        v_transpose(r);
    else
        v_transpose4(r);
    UNROLL
    for (int c = 0; c < VL; c++) v_store(dst + c * NR, r[c]);
}

/* m rows of n numbers as a panel; rows from m up to the next 16 are 0. */
V void turn_panel(float *dst, const float *src, int64_t ld, int m, int n, float scale)
{
    const vec factor = v_set1(scale);
    for (int i = 0; i < ph_round_up(m, PH_LANES); i += VL)
        for (int at = 0; at < n; at += VL) {
            float *to = dst + at * NR + i;
            const float *from = src + i * ld + at;
            if (m - i >= VL) /* without a question for each row */
                turn_rows(to, from, ld, VL, factor);
            else
                turn_rows(to, from, ld, m - i, factor);
        }
}

/* What the next product asks for; it may be its own operand, which is there anyway. */
V const char *ask(ph_soon *soon, int m, int steps, const float *own)
{
    const void *next = ph_soon_take(soon, (int64_t)steps * (m <= FEW ? PH_FETCH : PACE));
    return next ? next : (const void *)own;
}

/* Lines of a panel's rows: s[key*ld + row], n keys as they lie. */
V void score_keys(int rows, int n, int dim, const float *keys, int64_t ldk,
                  const float *panel, float *s, int64_t ld, ph_soon *soon)
{
    for (int c = 0, height = ph_even_strip(n, MR); c < n; c += height) {
        int m = ph_min(height, n - c);
        lines_tiles[m][rows >= NR](dim, keys + c * ldk, ldk, 1, panel, NR, s + c * ld, ld,
                                   NULL, NULL, ask(soon, m, dim, panel));
    }
}

/* -inf where key c is not seen by row `first` + lane: it is seen by those above c - hi,
   up to c - lo. */
V void hide_keys(const ph_head *h, int rows, int keys, int first, float *s, int64_t ld)
{
    for (int i = 0; i < rows; i += VL) {
        const vec row = v_add(v_iota(), v_set1((float)(first + i)));
        for (int c = ph_max(0, h->hi + first); c < keys; c++) {
            float *at = s + c * ld + i;
            vmask seen = v_lt(v_set1((float)(c - h->hi)), row);
            v_store(at, v_select(seen, v_load(at), MINUS_INF));
        }
        for (int c = 0; c < ph_min(keys, h->lo + first + rows - 1); c++) {
            float *at = s + c * ld + i;
            vmask hidden = v_lt(v_set1((float)(c - h->lo)), row);
            v_store(at, v_select(hidden, MINUS_INF, v_load(at)));
        }
    }
}

/* Keys before which all lie that rows [first, first + m) see. */
V int seen_end(const ph_head *h, int first, int m)
{
    return ph_max(0, ph_min(h->keys, h->hi + first + m - 1));
}

/* c[i*ldc + j] = scale[i] * sum_k a[i*row + k*step] * b[k*ldb + j] for m rows. */
V void product_of(int m, int n, int k, const float *a, int64_t row, int64_t step,
                  const float *b, int64_t ldb, float *c, int64_t ldc, const float *scale,
                  ph_soon *soon)
{
    for (int j = 0; j < n; j += NR)
        times_tiles[m][n - j >= NR](k, a, row, step, b + j, ldb, c + j, ldc, scale, NULL,
                                    ask(soon, m, k, b));
}

/* ---- forward ---- */

/* Sum over the keys in 16 lanes, lane = key mod 16, which are added by halves. */
V vec sum_keys(int keys, const float *p)
{
    vec lane[PH_LANES];
    UNROLL
    for (int i = 0; i < PH_LANES; i++) lane[i] = i < keys ? v_load(p + i * NR) : v_zero();
    for (int c = PH_LANES; c < keys; c += PH_LANES) UNROLL
    for (int i = 0; i < PH_LANES; i++)
        if (c + i < keys) lane[i] = v_add(lane[i], v_load(p + (c + i) * NR));
    UNROLL
    for (int half = PH_LANES / 2; half; half /= 2) UNROLL
    for (int i = 0; i < half; i++) lane[i] = v_add(lane[i], lane[i + half]);
    return lane[0];
}

/* The softmax of up to NR rows. */
typedef struct row_stats {
    float top[NR], sum[NR]; /* maximum in base 2; sum of the weights below */
    float factor[NR];       /* 1/sum, or 0: no key seen */
} row_stats;

/* Scores of NV vectors of rows become weights. */
V void weigh_keys(const int NV, int keys, float *s, row_stats *stats)
{
    const vec zero = v_zero(), one = v_set1(1.0f);
    vec top[NR / VL], base[NR / VL];
    UNROLL
    for (int v = 0; v < NV; v++) top[v] = MINUS_INF;
    for (int c = 0; c < keys; c++) UNROLL
    for (int v = 0; v < NV; v++) top[v] = v_max(top[v], v_load(s + c * NR + v * VL));
    UNROLL
    for (int v = 0; v < NV; v++)
        base[v] = v_select(v_eq(top[v], MINUS_INF), zero, top[v]);
    for (int c = 0; c < keys; c++) UNROLL
    for (int v = 0; v < NV; v++) {
        float *at = s + c * NR + v * VL;
        v_store(at, v_exp2(v_sub(v_load(at), base[v])));
    }
    UNROLL
    for (int v = 0; v < NV; v++) {
        vec sum = sum_keys(keys, s + v * VL);
        v_store(stats->top + v * VL, top[v]);
        v_store(stats->sum + v * VL, sum);
        v_store(stats->factor + v * VL, v_select(v_eq(sum, zero), zero, v_div(one, sum)));
    }
}

V void store_lse(int m, const row_stats *stats, float *lse)
{
    const vec zero = v_zero(), one = v_set1(1.0f);
    const int rows = ph_round_up(m, PH_LANES);
    float logs_of[NR];
    for (int i = 0; i < rows; i += VL) {
        vec sum = v_load(stats->sum + i);
        v_store(logs_of + i, v_log(v_select(v_lt(zero, sum), sum, one)));
    }
    for (int i = 0; i < rows; i++)
        logs_of[i] = (float)((double)stats->top[i] * PH_LN2 + logs_of[i]);
    for (int i = 0; i < m; i += VL) {
        vec sum = v_load(stats->sum + i), x = v_load(logs_of + i);
        x = v_select(v_eq(sum, sum), x, sum); /* a maximum may have lost a NaN */
        x = v_select(v_eq(sum, zero), MINUS_INF, x);
        if (m - i >= VL)
            v_store(lse + i, x);
        else
            v_store_n(lse + i, x, m - i);
    }
}

/* Up to NR rows from `first` on. */
V void head_rows(const ph_head *h, int first, int m, ph_soon *soon)
{
    const int rows = ph_round_up(m, PH_LANES), keys = seen_end(h, first, m);
    float *panel = h->room, *s = panel + (int64_t)h->k_dim * NR;
    row_stats stats;
    turn_panel(panel, h->q + first * h->q_ld, h->q_ld, m, h->k_dim, h->scale);
    if (keys) score_keys(rows, keys, h->k_dim, h->k, h->k_ld, panel, s, NR, soon);
    hide_keys(h, rows, keys, first, s, NR);
    if (rows >= NR)
        weigh_keys(NR / VL, keys, s, &stats);
    else
        weigh_keys(PH_LANES / VL, keys, s, &stats);
    if (h->lse) store_lse(m, &stats, h->lse + first);
    for (int i = 0, height = ph_even_strip(m, MR); i < m; i += height) {
        int part = ph_min(height, m - i);
        product_of(part, h->v_dim, seen_end(h, first + i, part), s + i, 1, NR, h->v,
                   h->v_ld, h->out + (first + i) * h->out_ld, h->out_ld, stats.factor + i,
                   soon);
    }
}

static void head_forward(const ph_head *h)
{
    ph_soon soon = h->soon;
    for (int first = 0; first < h->rows; first += NR)
        head_rows(h, first, ph_min(NR, h->rows - first), &soon);
}
