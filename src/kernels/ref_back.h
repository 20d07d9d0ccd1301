/*
 * ref_back.h - the way back of a head in plain loops, a part of ref.c: what
 * tmpl_head_back.h does.
 */

static float chain(int n, const float *x, float scale, const float *y)
{
    float sum = 0;
    for (int kk = 0; kk < n; kk++) sum = fmaf(x[kk] * scale, y[kk], sum);
    return sum;
}

/* p and ds of row i and key c. */
static void slope_key(const ph_head_tile *t, int i, int c, float *p, float *ds)
{
    int token = (t->phase + i) / t->group;
    float s = chain(t->k_dim, t->q + i * t->q_ld, t->scale, t->k + c * t->k_ld);
    float dp = chain(t->v_dim, t->dout + i * t->dout_ld, 1, t->v + c * t->v_ld), keep = 1;
    if (c < t->lo + token || c >= t->hi + token) s = -INFINITY;
    if (t->drop_low)
        dropout(1, &keep, (uint64_t)t->drop_high[i] << 32 | t->drop_low[i],
                t->drop_first + (uint32_t)c, t->drop_limit, t->drop_keep);
    *p = exp2_ref(s - t->lse[i]);
    *ds = s == -INFINITY ? 0 : *p * (keep * dp - t->delta[i]);
    *p *= keep;
}

/* Row `at` of a gradient: over k lines of b, by what stands `step` apart. */
static void sum_row(const ph_sums *sums, int at, int n, int k, const float *a,
                    int64_t step, const float *b, int64_t ldb)
{
    for (int j = 0; sums->to && j < ph_round_up(n, PH_LANES); j++) {
        float *to = sums->to + at * sums->ld + j, sum = sums->how == PH_SUMS_ON ? *to : 0;
        for (int kk = 0; kk < k; kk++) sum = fmaf(a[kk * step], b[kk * ldb + j], sum);
        *to = sums->how == PH_SUMS_ADD ? *to + sum : fmaf(sums->scale, sum, 0);
    }
}

static void head_backward(const ph_head_tile *t)
{
    float *p = t->room, *ds = p + (int64_t)t->rows * t->keys;
    for (int i = 0; i < t->rows; i++)
        for (int c = 0; c < t->keys; c++)
            slope_key(t, i, c, p + i * t->keys + c, ds + i * t->keys + c);
    for (int i = 0; i < t->rows; i++)
        sum_row(&t->dq, i, t->k_dim, t->keys, ds + i * t->keys, 1, t->k, t->k_ld);
    for (int c = 0; c < t->keys; c++) {
        sum_row(&t->dv, c, t->v_dim, t->rows, p + c, t->keys, t->dout, t->dout_ld);
        sum_row(&t->dk, c, t->k_dim, t->rows, ds + c, t->keys, t->q, t->q_ld);
    }
}
