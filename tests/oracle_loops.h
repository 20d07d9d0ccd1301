/*
 * oracle_loops.h - the loops of the oracle and of the yardstick, included twice.
 *
 * oracle.c defines REAL, FN(name) and the functions EXP, LOG, TANH, COSH, FABS
 * before each inclusion. All arrays hold double; every operation runs in REAL, and ADD
 * rounds a running sum to REAL at each step, so that the float copy really sums in float.
 */

#define ADD(sum, term) ((sum) = (double)((REAL)(sum) + (REAL)(term)))

/* What one row needs between the scores and the gradients; arrays over the keys. */
#define ROW FN(row)
typedef struct ROW {
    REAL *s;          /* score before the cap                            */
    REAL *walk;       /* how far the sum of q.k strays on its way        */
    REAL *rounding;   /* ... and what floats lose there                  */
    REAL *t;          /* capped score                                    */
    REAL *derivative; /* derivative of the capped score by the plain one */
    REAL *p;          /* weight before dropout                           */
    REAL *w;          /* weight                                          */
    uint8_t *seen;    /* takes part                                      */
    int any;          /* some key is seen                                */
    REAL lse;
    REAL p_sink; /* weight of the sink                              */
    int measure; /* 1: magnitudes are wanted                        */
    double peak; /* largest score, as far as its rounding reaches t  */
    double chain; /* largest rounding, as far as it reaches t        */
} ROW;

static void FN(row_init)(ROW *r, int kv_len, int measure)
{
    r->measure = measure;
    r->peak = r->chain = 0;
    size_t n = (size_t)kv_len + 1;
    r->s = calloc(n, sizeof(REAL));
    r->walk = calloc(n, sizeof(REAL));
    r->rounding = calloc(n, sizeof(REAL));
    r->t = calloc(n, sizeof(REAL));
    r->derivative = calloc(n, sizeof(REAL));
    r->p = calloc(n, sizeof(REAL));
    r->w = calloc(n, sizeof(REAL));
    r->seen = calloc(n, 1);
}

static void FN(row_free)(ROW *r)
{
    free(r->s);
    free(r->walk);
    free(r->rounding);
    free(r->t);
    free(r->derivative);
    free(r->p);
    free(r->w);
    free(r->seen);
}

/* Scores of the keys that row i sees: scale, bias, alibi, cap. */
static void FN(row_scores)(const dense *p, ROW *r, int b, int h, int i)
{
    const double *q = p->q + at_q(p, b, h, i);
    r->any = 0;
    for (int j = 0; j < p->kv_len; j++) {
        r->seen[j] = (uint8_t)dense_sees(p, b, h, i, j);
        if (!r->seen[j]) continue;
        r->any = 1;
        const double *k = p->k + at_k(p, b, h, j);
        REAL dot = 0;
        for (int d = 0; d < p->qk_dim; d++) dot += (REAL)q[d] * (REAL)k[d];
        if (r->measure) {
            r->walk[j] = (REAL)(p->scale * walk_of(q, k, p->qk_dim));
            r->rounding[j] = (REAL)(p->scale * rounding_of(q, k, p->qk_dim));
        }
        REAL s = (REAL)p->scale * dot;
        if (p->bias) s += (REAL)p->bias[at_bias(p, b, h, i, j)];
        if (p->alibi) s -= (REAL)p->alibi[h] * (REAL)fabs((double)i + p->offset[b] - j);
        r->derivative[j] = 1;
        r->s[j] = s;
        if (p->softcap != 0) {
            REAL cap = (REAL)p->softcap, rise = COSH(s / cap);
            r->derivative[j] =
                1 / rise / rise; /* 1 - tanh^2 would have no digits far out */
            s = cap * TANH(s / cap);
        }
        r->t[j] = s;
    }
}

/* The largest score that can still give a weight, as far as its rounding reaches it. */
static double FN(row_lane_max)(const dense *p, const ROW *r, double top)
{
    double top_s = 0, top_t = 0,
           top_derivative = 0; /* before the cap, after it, between */
    for (int j = 0; j < p->kv_len; j++) {
        if (!r->seen[j] || (double)r->t[j] < top - 110) continue;
        top_s = fmax(top_s, fmax((double)FABS(r->s[j]), (double)FABS(r->walk[j])));
        top_t = fmax(top_t, (double)FABS(r->t[j]));
        top_derivative = fmax(top_derivative, (double)r->derivative[j]);
    }
    return p->softcap != 0 ? top_derivative * top_s + top_t : top_s;
}

/* The same of what a score loses to rounding. */
static double FN(row_chain)(const dense *p, const ROW *r, double top)
{
    double chain = 0;
    for (int j = 0; j < p->kv_len; j++)
        if (r->seen[j] && (double)r->t[j] >= top - 110)
            chain = fmax(chain, (double)(r->derivative[j] * FABS(r->rounding[j])));
    return chain;
}

/* Softmax over the seen keys and the sink. */
static void FN(row_softmax)(const dense *p, ROW *r, int b, int h, int i)
{
    int has_sink = p->sink && p->sink[h] != -INFINITY;
    REAL top = -INFINITY, sum = 0;
    for (int j = 0; j < p->kv_len; j++)
        if (r->seen[j] && r->t[j] > top) top = r->t[j];
    if (has_sink && (REAL)p->sink[h] > top) top = (REAL)p->sink[h];
    if (r->measure) r->peak = FN(row_lane_max)(p, r, (double)top);
    if (r->measure) r->chain = FN(row_chain)(p, r, (double)top);
    if (has_sink) r->peak = fmax(r->peak, fabs(p->sink[h]));
    for (int j = 0; j < p->kv_len; j++) {
        r->p[j] = r->seen[j] ? EXP(r->t[j] - top) : 0;
        sum += r->p[j];
    }
    r->p_sink = has_sink ? EXP((REAL)p->sink[h] - top) : 0;
    sum += r->p_sink;
    r->lse = r->any || has_sink ? top + LOG(sum) : (REAL)-INFINITY;
    if (r->any || has_sink) r->p_sink /= sum;
    REAL grow = 1 / (1 - (REAL)p->dropout);
    for (int j = 0; j < p->kv_len; j++) {
        if (r->seen[j]) r->p[j] /= sum;
        int kept = !p->keep || p->keep[at_cell(p, b, h, i, j)];
        r->w[j] = kept ? r->p[j] * grow : 0;
    }
}

static REAL FN(gate_of)(const dense *p, int b, int h, int i)
{
    return p->gate ? (REAL)p->gate[at_gate(p, b, h, i)] : 1;
}

/* Results of one computed row; m is the magnitude or NULL. */
static void FN(row_out)(const dense *p, const ROW *r, int b, int h, int i, answer *a,
                        answer *m)
{
    REAL gate = FN(gate_of)(p, b, h, i);
    size_t row = at_row(p, b, h, i);
    for (int d = 0; d < p->v_dim; d++) {
        REAL sum = 0, size = 0;
        for (int j = 0; j < p->kv_len; j++) {
            if (!r->seen[j]) continue;
            REAL v = (REAL)p->v[at_v(p, b, h, j) + (size_t)d];
            sum += r->w[j] * v;
            if (m) size += r->w[j] * FABS(v);
        }
        a->out[row * (size_t)p->v_dim + (size_t)d] = (double)(gate * sum);
        if (m) m->out[row * (size_t)p->v_dim + (size_t)d] = (double)(FABS(gate) * size);
    }
    a->lse[row] = (double)r->lse;
    if (m) m->lse[row] = 1 + r->peak;
    if (m) m->peak = fmax(m->peak, r->peak);
    if (m) m->chain = fmax(m->chain, r->chain);
    if (m && r->any) m->peak = fmax(m->peak, (double)FABS(r->lse));
    REAL entropy = 0, size = 0;
    for (int j = 0; j < p->kv_len; j++) {
        if (!r->seen[j]) continue;
        size_t cell = at_cell(p, b, h, i, j), col = at_col(p, b, h, j);
        /* Looking inside works from q, k and lse: the weight is exp(t - lse), not e/sum.
           */
        REAL w = r->w[j] == 0 ? 0 : EXP(r->t[j] - r->lse) * (r->w[j] / r->p[j]);
        a->weights[cell] = (double)w;
        a->undropped[cell] = (double)r->p[j];
        ADD(a->col_sum[col], w);
        if (m) m->weights[cell] = (double)w;
        if (m) ADD(m->col_sum[col], w);
        if (w > 0) entropy -= w * LOG(w);
        if (w > 0) size += w * (1 + FABS(LOG(w)));
    }
    a->entropy[row] = (double)entropy;
    if (m) m->entropy[row] = (double)size;
}

static void FN(forward)(const dense *p, answer *a, answer *m)
{
    ROW r;
    FN(row_init)(&r, p->kv_len, m != NULL);
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->q_heads; h++)
            for (int i = 0; i < p->q_len; i++) {
                if (dense_dead(p, b, h, i)) {
                    a->lse[at_row(p, b, h, i)] = -INFINITY;
                    continue;
                }
                FN(row_scores)(p, &r, b, h, i);
                FN(row_softmax)(p, &r, b, h, i);
                FN(row_out)(p, &r, b, h, i, a, m);
            }
    FN(row_free)(&r);
}

/* Where the row has been computed before, only lse and out are left of it. */
static void FN(row_given)(const dense *p, ROW *r, int b, int h, int i)
{
    r->lse = (REAL)p->given_lse[at_row(p, b, h, i)];
    REAL grow = 1 / (1 - (REAL)p->dropout);
    for (int j = 0; j < p->kv_len; j++) {
        if (!r->seen[j]) continue;
        int kept = !p->keep || p->keep[at_cell(p, b, h, i, j)];
        r->p[j] = EXP(r->t[j] - r->lse);
        r->w[j] = kept ? r->p[j] * grow : 0;
    }
    if (r->p_sink > 0) r->p_sink = EXP((REAL)p->sink[h] - r->lse);
}

/* dp_ij = dout_i gate_i . v_j, with the factor of dropout; size: its magnitude. */
static REAL FN(dp_of)(const dense *p, const ROW *r, int b, int h, int i, int j,
                      REAL *size)
{
    const double *dout = p->dout + at_row(p, b, h, i) * (size_t)p->v_dim;
    const double *v = p->v + at_v(p, b, h, j);
    REAL sum = 0, all = 0, gate = FN(gate_of)(p, b, h, i);
    for (int d = 0; d < p->v_dim; d++) sum += (REAL)dout[d] * (REAL)v[d];
    if (r->measure)
        for (int d = 0; d < p->v_dim; d++) all += FABS((REAL)dout[d] * (REAL)v[d]);
    REAL factor = r->p[j] > 0 ? r->w[j] / r->p[j] : 0;
    *size = FABS(gate) * factor * all;
    return gate * factor * sum;
}

/* Gradients of one score: into q, k, v and bias. ds: by the plain score. */
static void FN(cell_back)(const dense *p, int b, int h, int i, int j, REAL ds, REAL w,
                          answer *a)
{
    REAL scale = (REAL)p->scale, gate = FN(gate_of)(p, b, h, i);
    size_t q = at_q(p, b, h, i), k = at_k(p, b, h, j), v = at_v(p, b, h, j);
    size_t o = at_row(p, b, h, i) * (size_t)p->v_dim;
    for (int d = 0; d < p->qk_dim; d++) {
        ADD(a->dq[q + (size_t)d], scale * ds * (REAL)p->k[k + (size_t)d]);
        ADD(a->dk[k + (size_t)d], scale * ds * (REAL)p->q[q + (size_t)d]);
    }
    for (int d = 0; d < p->v_dim; d++)
        ADD(a->dv[v + (size_t)d], w * (gate * (REAL)p->dout[o + (size_t)d]));
    if (a->dbias) ADD(a->dbias[at_bias(p, b, h, i, j)], ds);
}

/* The same with every term made positive: how large the sums are before they cancel. */
static void FN(cell_size)(const dense *p, int b, int h, int i, int j, REAL ds, REAL w,
                          answer *m)
{
    REAL scale = FABS((REAL)p->scale), gate = FABS(FN(gate_of)(p, b, h, i));
    size_t q = at_q(p, b, h, i), k = at_k(p, b, h, j), v = at_v(p, b, h, j);
    size_t o = at_row(p, b, h, i) * (size_t)p->v_dim;
    for (int d = 0; d < p->qk_dim; d++) {
        ADD(m->dq[q + (size_t)d], scale * ds * FABS((REAL)p->k[k + (size_t)d]));
        ADD(m->dk[k + (size_t)d], scale * ds * FABS((REAL)p->q[q + (size_t)d]));
    }
    for (int d = 0; d < p->v_dim; d++)
        ADD(m->dv[v + (size_t)d], w * (gate * FABS((REAL)p->dout[o + (size_t)d])));
    if (m->dbias) ADD(m->dbias[at_bias(p, b, h, i, j)], ds);
}

/* sum_j p_ij dp_ij, which equals dout.out: by its definition, or from the given out. */
static REAL FN(mean_of)(const dense *p, const ROW *r, int b, int h, int i, REAL *size)
{
    REAL sum = 0, all = 0, part;
    for (int j = 0; j < p->kv_len; j++) {
        if (!r->seen[j]) continue;
        sum += r->p[j] * FN(dp_of)(p, r, b, h, i, j, &part);
        all += r->p[j] * part;
    }
    *size = all;
    if (!p->given_out) return sum;
    size_t o = at_row(p, b, h, i) * (size_t)p->v_dim;
    sum = 0;
    for (int d = 0; d < p->v_dim; d++)
        sum += (REAL)p->dout[o + (size_t)d] * (REAL)p->given_out[o + (size_t)d];
    return r->any ? sum : 0;
}

static void FN(row_back)(const dense *p, const ROW *r, int b, int h, int i, answer *a,
                         answer *m)
{
    REAL dlse = p->dlse ? (REAL)p->dlse[at_row(p, b, h, i)] : 0;
    REAL mean_size, dp_size, mean = FN(mean_of)(p, r, b, h, i, &mean_size);
    for (int j = 0; j < p->kv_len; j++) {
        if (!r->seen[j]) continue;
        REAL dp = FN(dp_of)(p, r, b, h, i, j, &dp_size);
        REAL ds = r->p[j] * (dp - mean + dlse) * r->derivative[j];
        FN(cell_back)(p, b, h, i, j, ds, r->w[j], a);
        if (!m) continue;
        REAL size = r->p[j] * (dp_size + mean_size + FABS(dlse)) * r->derivative[j];
        FN(cell_size)(p, b, h, i, j, size, r->w[j], m);
    }
    if (a->dgate) {
        REAL gate = FN(gate_of)(p, b, h, i);
        ADD(a->dgate[at_gate(p, b, h, i)], mean / gate);
        if (m) ADD(m->dgate[at_gate(p, b, h, i)], mean_size / FABS(gate));
    }
    if (a->dsink && r->p_sink > 0) {
        ADD(a->dsink[h], r->p_sink * (dlse - mean));
        if (m) ADD(m->dsink[h], r->p_sink * (FABS(dlse) + mean_size));
    }
}

static void FN(backward)(const dense *p, answer *a, answer *m)
{
    ROW r;
    FN(row_init)(&r, p->kv_len, m != NULL);
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->q_heads; h++)
            for (int i = 0; i < p->q_len; i++) {
                if (dense_dead(p, b, h, i)) continue;
                FN(row_scores)(p, &r, b, h, i);
                FN(row_softmax)(p, &r, b, h, i);
                if (p->given_lse) FN(row_given)(p, &r, b, h, i);
                FN(row_back)(p, &r, b, h, i, a, m);
            }
    FN(row_free)(&r);
}

#undef ADD
#undef ROW
