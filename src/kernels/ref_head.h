/*
 * ref_head.h - whole heads in scalar loops, part of ref.c: the contract of tmpl_lanes.h,
 * tmpl_head.h and tmpl_head_back.h.
 */

static float chain(int n, const float *x, float scale, const float *y)
{
    float sum = 0;
    for (int kk = 0; kk < n; kk++) sum = fmaf(x[kk] * scale, y[kk], sum);
    return sum;
}

static int sees(const ph_window *w, int row, int key)
{
    int token = (w->phase + row) / w->group;
    return key >= w->lo + token && key < w->hi + token;
}

/* The score of a row and a key; derivative: of the soft-cap. */
static float modify(const ph_score_mods *mods, int row, int key, float s,
                    float *derivative)
{
    float unused[PH_LANES];
    *derivative = 1;
    if (mods->bias) add_bias(1, &s, mods->bias[row] + key, (float)PH_LOG2E);
    if (mods->relative) add_bias(1, &s, mods->relative[row] + key, (float)PH_LOG2E);
    if (mods->alibi) {
        float distance = mods->distance[row] + (float)key;
        add_alibi(1, 1, &s, mods->alibi + row, &distance, unused);
    }
    if (mods->cap > 0) s = cap_ref(s, mods->cap, 1.0f / mods->cap, derivative);
    if (mods->bias && (mods->relative || mods->cap > 0))
        add_bias(1, &s, mods->bias[row] + key, 0);
    if (mods->visible) hide(1, &s, mods->visible[row] + key);
    return s;
}

static float keep_of(const ph_drop *d, int row, int key)
{
    float keep = 1;
    if (d->low)
        dropout(1, &keep, (uint64_t)d->high[row] << 32 | d->low[row],
                d->first + (uint32_t)key, d->limit, d->keep);
    return keep;
}

/* ---- forward ---- */

/* Key or value c of a split. */
static const float *block_row(const float *const *blocks, int64_t ld, int c)
{
    return blocks[c / PH_STRIP_LD] + c % PH_STRIP_LD * ld;
}

static float score(const ph_head *h, int i, int c)
{
    float derivative;
    if (!sees(&h->window, i, c)) return -INFINITY;
    const float *k = block_row(h->k, h->k_ld, c - h->split);
    float s = chain(h->k_dim, h->q + i * h->q_ld, h->scale, k);
    return modify(&h->mods, i, c, s, &derivative);
}

/* Online softmax of a row, in its ph_running_floats floats of the scratch. */
typedef struct running_row {
    float *row_max, *lanes, *acc;
} running_row;

static running_row running_of(const ph_head *h, int i)
{
    float *at = h->scratch + i * ph_running_floats(h->v_dim);
    return (running_row){at, at + 1, at + 1 + PH_LANES};
}

/* Online softmax of row i over the keys of the split. */
static void row_split(const ph_head *h, int i, running_row *r)
{
    float s[PH_STRIP_LD], lane_max[PH_LANES], rescale;
    *r->row_max = -INFINITY;
    for (int l = 0; l < PH_LANES; l++) r->lanes[l] = 0;
    for (int c = 0; c < h->v_dim; c++) r->acc[c] = 0;
    for (int j = h->split, end = ph_min(j + PH_SPLIT, h->keys); j < end;
         j += PH_STRIP_LD) {
        for (int c = 0; c < PH_STRIP_LD; c++)
            s[c] = j + c < end ? score(h, i, j + c) : -INFINITY;
        row_lane_max(PH_STRIP_LD, s, lane_max);
        softmax(1, PH_STRIP_LD, s, lane_max, r->row_max, r->lanes, &rescale);
        for (int c = 0; c < h->v_dim; c++) r->acc[c] *= rescale;
        for (int k = 0; k < PH_STRIP_LD; k++) {
            if (j + k >= end || !sees(&h->window, i, j + k)) continue;
            float p = s[k] * keep_of(&h->drop, i, j + k);
            const float *v = block_row(h->v, h->v_ld, j + k - h->split);
            for (int c = 0; c < h->v_dim; c++) r->acc[c] = fmaf(p, v[c], r->acc[c]);
        }
    }
}

/* Merges part into whole; at least one of them has seen a key. */
static void merge(int n, running_row *whole, const running_row *part)
{
    float x = *whole->row_max, y = *part->row_max, highest = x > y ? x : y;
    float a = exp2_ref(x - highest), b = exp2_ref(y - highest);
    *whole->row_max = highest;
    for (int l = 0; l < PH_LANES; l++)
        whole->lanes[l] = fmaf(part->lanes[l], b, whole->lanes[l] * a);
    for (int c = 0; c < n; c++) whole->acc[c] = fmaf(part->acc[c], b, whole->acc[c] * a);
}

static float lse_of(float row_max, float sum)
{
    if (isnan(sum)) return sum;
    if (sum == 0) return -INFINITY;
    return (float)((double)row_max * PH_LN2 + logarithm(sum));
}

/* Adds the sink, divides by the sum, gates and stores. */
static void finish_row(const ph_head *h, int i, const running_row *r)
{
    float sum = sum16(r->lanes), gate = h->gate ? h->gate[i] : 1;
    float factor = sum == 0 ? 0 : gate / sum, lse = lse_of(*r->row_max, sum);
    if (h->sink) ph_add_sink(*h->sink, &lse, &factor);
    if (h->lse) h->lse[i] = lse;
    for (int c = 0; c < h->v_dim; c++)
        h->out[i * h->out_ld + c] = sum == 0 ? 0 : fmaf(r->acc[c], factor, 0);
}

static void head_forward(const ph_head *h)
{
    running_row part = running_of(h, h->keys > PH_SPLIT ? h->rows : 0);
    int last = h->split + PH_SPLIT >= h->keys;
    for (int i = 0; i < h->rows; i++) {
        running_row whole = running_of(h, h->keys > PH_SPLIT ? i : 0);
        row_split(h, i, h->split ? &part : &whole);
        if (h->split && (*part.row_max != -INFINITY || *whole.row_max != -INFINITY ||
                         isnan(sum16(part.lanes))))
            merge(h->v_dim, &whole, &part);
        if (last) finish_row(h, i, &whole);
    }
}

/* ---- backward ---- */

/* p and ds of row i and key c. */
static void gradient_of(const ph_grad_block *t, int i, int c, float *p, float *ds)
{
    float s = chain(t->k_dim, t->q + i * t->q_ld, t->scale, t->k + c * t->k_ld);
    float dp = chain(t->v_dim, t->dout + i * t->dout_ld, 1, t->v + c * t->v_ld);
    float keep = keep_of(&t->drop, i, c), derivative;
    s = modify(&t->mods, i, c, s, &derivative);
    if (!sees(&t->window, i, c)) s = -INFINITY;
    *p = exp2_ref(s - t->lse[i]);
    *ds = s == -INFINITY ? 0 : *p * (keep * dp - t->delta[i]) * derivative;
    *p *= keep;
}

/* Row `at` of a gradient: sum_kk a[kk*step] * b[kk*ldb + j]. */
static void sum_row(const ph_grad_sum *sums, int at, int n, int k, const float *a,
                    int64_t step, const float *b, int64_t ldb)
{
    for (int j = 0; sums->to && j < ph_round_up(n, PH_LANES); j++) {
        float *to = sums->to + at * sums->ld + j,
              sum = sums->how == PH_SUM_CONTINUE ? *to : 0;
        for (int kk = 0; kk < k; kk++) sum = fmaf(a[kk * step], b[kk * ldb + j], sum);
        *to = sums->how == PH_SUM_ADD ? *to + sum : fmaf(sums->scale, sum, 0);
    }
}

static void head_backward(const ph_grad_block *t)
{
    float *p = t->scratch, *ds = p + (int64_t)t->rows * t->keys;
    for (int i = 0; i < t->rows; i++)
        for (int c = 0; c < t->keys; c++)
            gradient_of(t, i, c, p + i * t->keys + c, ds + i * t->keys + c);
    for (int i = 0; i < t->rows; i++)
        sum_row(&t->dq, i, t->k_dim, t->keys, ds + i * t->keys, 1, t->k, t->k_ld);
    for (int c = 0; c < t->keys; c++) {
        sum_row(&t->dv, c, t->v_dim, t->rows, p + c, t->keys, t->dout, t->dout_ld);
        sum_row(&t->dk, c, t->k_dim, t->rows, ds + c, t->keys, t->q, t->q_ld);
    }
}
