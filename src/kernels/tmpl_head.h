/*
 * tmpl_head.h - a whole head at once, with rows in lanes (tmpl_lanes.h).
 *
 *     for each split of PH_SPLIT keys         a call
 *         for each strip of NR rows           k and v of the split stay in cache
 *             for each block of keys          s = q k, masks, softmax step, acc += p v
 *             merge the split into the whole
 */

/* Running softmax of a strip: rows stand in lanes, but for those of acc. */
typedef struct running_strip {
    float *row_max; /* (NR) in base 2; -inf: nothing seen */
    float *lanes;   /* (16, NR) sums of weights, lane = key mod 16 */
    float *acc;     /* (NR, v_pad) */
} running_strip;

/* A head while it is computed. Where there are several splits, each strip keeps its q and
   its running sums from one to the next. */
typedef struct head_work {
    const ph_head *h;
    int k_pad, v_pad;
    float *panels; /* q of the strips, transposed */
    float *wholes; /* their running sums */
    float *part;   /* running sums of one split */
    float *s;      /* (128, NR) a block: scores, then weights */
} head_work;

/* Rows [first, first + m) of a head, and the keys [lo, hi) that any of them sees. */
typedef struct strip {
    int first, m;
    int lo, hi;
    float *panel; /* q of the rows, transposed */
} strip;

/* Carves the scratch of ph_head_floats floats. */
V void carve_scratch(head_work *w)
{
    const ph_head *h = w->h;
    const int64_t saved = h->keys > PH_SPLIT ? ph_round_up(h->rows, NR) : NR;
    w->k_pad = ph_round_up(h->k_dim, PH_LANES);
    w->v_pad = ph_round_up(h->v_dim, PH_LANES);
    w->panels = h->scratch;
    w->s = w->panels + saved * w->k_pad;
    w->part = w->s + NR * PH_STRIP_LD;
    w->wholes = w->part + NR * ph_running_floats(w->v_pad);
}

V running_strip running_at(float *scratch)
{
    return (running_strip){scratch, scratch + NR, scratch + NR + PH_LANES * NR};
}

/* New maxima of NV vectors of rows, and what earlier results are rescaled by; fresh:
   there are none. */
V void update_max(const int NV, const int fresh, int keys, const float *s, float *row_max,
                  vec *base, vec *rescale)
{
    vec highest[NR / VL];
    UNROLL
    for (int v = 0; v < NV; v++) highest[v] = MINUS_INF;
    for (int c = 0; c < keys; c++) UNROLL
    for (int v = 0; v < NV; v++)
        highest[v] = v_max(highest[v], v_load(s + c * NR + v * VL));
    UNROLL
    for (int v = 0; v < NV; v++) {
        vec old = fresh ? MINUS_INF : v_load(row_max + v * VL);
        if (!fresh) highest[v] = v_max(old, highest[v]); /* a new NaN stays */
        base[v] = v_select(v_eq(highest[v], MINUS_INF), v_zero(), highest[v]);
        rescale[v] = fresh ? v_zero() : v_exp2(v_sub(old, base[v]));
        v_store(row_max + v * VL, highest[v]);
    }
}

/* Scores of NV vectors of rows become weights; rescale: what acc is multiplied by. */
V void softmax_keys(const int NV, const int fresh, int keys, float *s,
                    const running_strip *r, float *rescale)
{
    vec base[NR / VL], factor[NR / VL];
    update_max(NV, fresh, keys, s, r->row_max, base, factor);
    UNROLL
    for (int v = 0; v < NV; v++) v_store(rescale + v * VL, factor[v]);
    for (int lane = 0; lane < PH_LANES; lane++) {
        float *lane_sum = r->lanes + lane * NR;
        vec sum[NR / VL];
        UNROLL
        for (int v = 0; v < NV; v++)
            sum[v] = fresh ? v_zero() : v_mul(v_load(lane_sum + v * VL), factor[v]);
        for (int c = lane; c < keys; c += PH_LANES) UNROLL
        for (int v = 0; v < NV; v++) {
            float *at = s + c * NR + v * VL;
            vec p = v_exp2(v_sub(v_load(at), base[v]));
            v_store(at, p);
            sum[v] = v_add(sum[v], p);
        }
        UNROLL
        for (int v = 0; v < NV; v++) v_store(lane_sum + v * VL, sum[v]);
    }
}

static void softmax_strip(int rows, int fresh, int keys, float *s, const running_strip *r,
                          float *rescale)
{
    if (rows >= NR && fresh)
        softmax_keys(NR / VL, 1, keys, s, r, rescale);
    else if (rows >= NR)
        softmax_keys(NR / VL, 0, keys, s, r, rescale);
    else if (fresh)
        softmax_keys(PH_LANES / VL, 1, keys, s, r, rescale);
    else
        softmax_keys(PH_LANES / VL, 0, keys, s, r, rescale);
}

/* The window of a head as the block at j0 has it, and how many keys that has. */
V ph_window block_window(const ph_head *h, int j0, int *keys)
{
    *keys = ph_min(h->keys - j0, PH_STRIP_LD);
    return (ph_window){h->window.lo - j0, h->window.hi - j0, 1, 0};
}

/* Weights of a strip against the block at j0. */
V void softmax_block(const head_work *w, const strip *t, int fresh, int j0,
                     const running_strip *r, float *rescale, ph_prefetch *ahead)
{
    const ph_head *h = w->h;
    const int rows = ph_round_up(t->m, PH_LANES);
    const float *k = h->k[(j0 - h->split) / PH_STRIP_LD];
    score_lines l = {.s = w->s, .ld = NR, .first = t->first, .m = t->m, .key0 = j0};
    int keys;
    const ph_window window = block_window(h, j0, &keys);
    keys_seen(&window, keys, t->first, t->m, &l.from, &l.to);
    l.from = l.from / PH_LANES * PH_LANES; /* lane = key mod 16 */
    float *s = l.s + l.from * NR;
    if (l.to > l.from)
        score_keys(rows, l.to - l.from, h->k_dim, k + l.from * h->k_ld, h->k_ld, t->panel,
                   s, NR, ahead);
    modify_lines(&h->mods, &l, NULL);
    hide_lines(&window, &l);
    softmax_strip(rows, fresh, l.to - l.from, s, r, rescale);
    if (h->drop.low) drop_lines(&l, &h->drop);
}

/* c = c * factor + p v, or p v * factor, for the block at j0. */
V void multiply_values(const head_work *w, const strip *t, int j0,
                       tile_fn *const tiles[MR + 1][2], float *c, int64_t ldc,
                       const float *factor, ph_prefetch *ahead)
{
    const int height = ph_even_strip(t->m, MR);
    const ph_head *h = w->h;
    const float *v = h->v[(j0 - h->split) / PH_STRIP_LD];
    int keys;
    const ph_window window = block_window(h, j0, &keys);
    for (int i = 0, from, to; i < t->m; i += height) {
        int m = ph_min(height, t->m - i);
        keys_seen(&window, keys, t->first + i, m, &from, &to);
        for (int j = 0; j < w->v_pad; j += NR)
            tiles[m][w->v_pad - j >= NR](to - from, w->s + from * NR + i, 1, NR,
                                         v + from * h->v_ld + j, h->v_ld, c + i * ldc + j,
                                         ldc, factor + i, NULL,
                                         prefetch_next(ahead, m, to - from, w->s));
    }
}

/* The 16 lanes of each row added by halves: sums, and gate / sum, or 0: no key seen. */
V void add_lanes(const strip *t, const running_strip *r, const float *gate, float *sums,
                 float *factor)
{
    const vec zero = v_zero();
    for (int i = 0; i < ph_round_up(t->m, PH_LANES); i += VL) {
        vec lane[PH_LANES], over = v_set1(1.0f);
        UNROLL
        for (int l = 0; l < PH_LANES; l++) lane[l] = v_load(r->lanes + l * NR + i);
        UNROLL
        for (int half = PH_LANES / 2; half; half /= 2) UNROLL
        for (int l = 0; l < half; l++) lane[l] = v_add(lane[l], lane[l + half]);
        if (gate) over = load_rows(gate + t->first + i, ph_max(t->m - i, 0));
        v_store(sums + i, lane[0]);
        v_store(factor + i, v_select(v_eq(lane[0], zero), zero, v_div(over, lane[0])));
    }
}

/* lse of m rows, stored up to a multiple of 16. */
V void logs_of_sums(int m, const float *row_max, const float *sums, float *lse)
{
    const vec zero = v_zero(), one = v_set1(1.0f);
    const int rows = ph_round_up(m, PH_LANES);
    for (int i = 0; i < rows; i += VL) {
        vec sum = v_load(sums + i);
        v_store(lse + i, v_log(v_select(v_lt(zero, sum), sum, one)));
    }
    for (int i = 0; i < rows; i++) lse[i] = (float)((double)row_max[i] * PH_LN2 + lse[i]);
    for (int i = 0; i < rows; i += VL) {
        vec sum = v_load(sums + i), x = v_load(lse + i);
        x = v_select(v_eq(sum, sum), x, sum); /* a maximum may have lost a NaN */
        v_store(lse + i, v_select(v_eq(sum, zero), MINUS_INF, x));
    }
}

/* Sums of weights of a strip's rows, what the rows are multiplied by in the end, and
   their lse. */
static void finish_sums(const head_work *w, const strip *t, const running_strip *r,
                        float *sums, float *factor)
{
    const ph_head *h = w->h;
    float lse[NR];
    add_lanes(t, r, h->gate, sums, factor);
    if (!h->lse && !h->sink) return;
    logs_of_sums(t->m, r->row_max, sums, lse);
    for (int i = 0; h->sink && i < t->m; i++) ph_add_sink(*h->sink, &lse[i], &factor[i]);
    if (h->lse) memcpy(h->lse + t->first, lse, (size_t)t->m * sizeof *lse);
}

/* A strip whose keys lie in one block: the product with v writes out itself. */
static void strip_alone(const head_work *w, const strip *t, ph_prefetch *ahead)
{
    const ph_head *h = w->h;
    const running_strip r = running_at(w->part);
    const int j0 = t->lo / PH_STRIP_LD * PH_STRIP_LD;
    float sums[NR], factor[NR];
    softmax_block(w, t, 1, j0, &r, factor, ahead);
    finish_sums(w, t, &r, sums, factor);
    multiply_values(w, t, j0, times_tiles, h->out + t->first * h->out_ld, h->out_ld,
                    factor, ahead);
    for (int i = 0; i < t->m; i++) /* weights of 0 would keep a NaN of v */
        for (int c = 0; sums[i] == 0 && c < h->v_dim; c += VL)
            v_store(h->out + (t->first + i) * h->out_ld + c, v_zero());
}

/* n rows as part i of what is prefetched, where they are contiguous. */
V void prefetch_rows(ph_prefetch *ahead, int i, const float *x, int64_t ld, int dim,
                     int n)
{
    if (!x || ld != dim || n <= 0) return;
    ahead->part[i].at = (const char *)x;
    ahead->part[i].end = (const char *)(x + n * ld);
}

/* Of part i of what the caller wants prefetched, the n-th of `all` pieces. */
V void prefetch_piece(ph_prefetch *ahead, int i, const ph_prefetch *from, int n, int all)
{
    const char *at = from->part[i].at;
    if (!at) return;
    const int64_t bytes = (from->part[i].end - at) / all;
    ahead->part[i].at = at + n * bytes, ahead->part[i].end = at + (n + 1) * bytes;
}

/* What a strip prefetches while it runs over the block at j0: the first one the next
   block; each q of the next strip, the rows it will write, and a piece of the rest. */
V void plan_prefetch(const head_work *w, const strip *t, int j0, ph_prefetch *ahead)
{
    const ph_head *h = w->h;
    const int next = t->first + NR, j = j0 + PH_STRIP_LD;
    const int keys = ph_min(PH_STRIP_LD, h->keys - j), strips = ph_div_up(h->rows, NR);
    const int begins = j0 / PH_STRIP_LD == t->lo / PH_STRIP_LD;
    *ahead = (ph_prefetch){.done = 0};
    if (t->first == 0) {
        const int block = (j - h->split) / PH_STRIP_LD;
        prefetch_rows(ahead, 0, h->k[block], h->k_ld, h->k_dim, keys);
        prefetch_rows(ahead, 2, h->v[block], h->v_ld, h->v_dim, keys);
    } else if (begins) {
        prefetch_piece(ahead, 0, &h->prefetch, t->first / NR, strips);
        prefetch_piece(ahead, 2, &h->prefetch, t->first / NR, strips);
    }
    if (!begins) return;
    prefetch_rows(ahead, 1, h->q + next * h->q_ld, h->q_ld, h->k_dim,
                  ph_min(NR, h->rows - next));
    prefetch_rows(ahead, 3, h->out + t->first * h->out_ld, h->out_ld, h->v_dim, t->m);
}

/* Keys [from, to) of a strip, all of one split, into nothing. */
static void strip_split(const head_work *w, const strip *t, int from, int to,
                        const running_strip *r)
{
    ph_prefetch ahead;
    const int start = from / PH_STRIP_LD * PH_STRIP_LD;
    float rescale[NR];
    for (int c = 0; c < t->m * w->v_pad; c += VL) v_store(r->acc + c, v_zero());
    for (int j0 = start; j0 < to; j0 += PH_STRIP_LD) {
        plan_prefetch(w, t, j0, &ahead);
        softmax_block(w, t, j0 == start, j0, r, rescale, &ahead);
        multiply_values(w, t, j0, carry_tiles, r->acc, w->v_pad, rescale, &ahead);
    }
}

/* whole = whole and part: maxima, lanes, and the factors of both; -1: the row has seen
   nothing there. */
V void merge_lanes(int rows, const running_strip *whole, const running_strip *part,
                   float *a, float *b)
{
    const vec none = v_set1(-1);
    for (int i = 0; i < rows; i += VL) {
        vec x = v_load(whole->row_max + i), y = v_load(part->row_max + i);
        vec highest = v_select(v_lt(y, x), x, y);
        vec base = v_select(v_eq(highest, MINUS_INF), v_zero(), highest);
        vec old = v_exp2(v_sub(x, base)), new = v_exp2(v_sub(y, base));
        v_store(whole->row_max + i, highest);
        v_store(a + i, v_select(v_eq(x, MINUS_INF), none, old));
        v_store(b + i, v_select(v_eq(y, MINUS_INF), none, new));
        for (int l = 0; l < PH_LANES; l++) {
            float *to = whole->lanes + l * NR + i;
            vec more = v_load(part->lanes + l * NR + i);
            v_store(to, v_fma(more, new, v_mul(v_load(to), old)));
        }
    }
}

static void merge_strip(const head_work *w, int m, const running_strip *whole,
                        const running_strip *part)
{
    float a[NR], b[NR];
    merge_lanes(ph_round_up(m, PH_LANES), whole, part, a, b);
    for (int i = 0; i < m; i++) {
        float *to = whole->acc + (int64_t)i * w->v_pad;
        const float *more = part->acc + (int64_t)i * w->v_pad;
        if (a[i] >= 0 && b[i] < 0) continue;
        if (a[i] < 0)
            for (int c = 0; c < w->v_pad; c += VL) v_store(to + c, v_load(more + c));
        else
            blend(w->v_pad, to, a[i], more, b[i]);
    }
}

static void finish_strip(const head_work *w, const strip *t, const running_strip *r)
{
    const ph_head *h = w->h;
    float sums[NR], factor[NR];
    finish_sums(w, t, r, sums, factor);
    for (int i = 0; i < t->m; i++) {
        float *acc = r->acc + (int64_t)i * w->v_pad;
        for (int c = 0; sums[i] == 0 && c < w->v_pad; c += VL) v_store(acc + c, v_zero());
        store_row(h->out + (t->first + i) * h->out_ld, acc, h->v_dim, PH_F32, factor[i]);
    }
}

/* Rows that see nothing. */
static void clear_strip(const head_work *w, const strip *t)
{
    const ph_head *h = w->h;
    for (int i = t->first; i < t->first + t->m; i++) {
        for (int c = 0; c < h->v_dim; c++) h->out[i * h->out_ld + c] = 0;
        if (h->lse) h->lse[i] = h->sink ? *h->sink : -__builtin_inff();
    }
}

V strip strip_at(const head_work *w, int n)
{
    const ph_head *h = w->h;
    const int first = n * NR, saved = h->keys > PH_SPLIT ? first : 0;
    strip t = {.first = first, .m = ph_min(NR, h->rows - first)};
    t.lo = ph_min(ph_max(h->window.lo + first, 0), h->keys);
    t.hi = ph_max(0, ph_min(h->keys, h->window.hi + first + t.m - 1));
    if (t.lo >= t.hi) t.lo = t.hi = 0;
    t.panel = w->panels + (int64_t)saved * w->k_pad;
    return t;
}

/* What strip number n has to do with the split. */
static void run_strip(const head_work *w, int n, ph_prefetch *ahead)
{
    const ph_head *h = w->h;
    const int j = h->split;
    const strip t = strip_at(w, n);
    const int last_key = ph_max(t.hi - 1, 0);
    const int start = t.lo / PH_SPLIT * PH_SPLIT, last = last_key / PH_SPLIT * PH_SPLIT;
    if (j < start || j > last) return;
    if (t.hi == 0) {
        clear_strip(w, &t);
        return;
    }
    if (j == start)
        transpose_panel(t.panel, h->q + t.first * h->q_ld, h->q_ld, t.m, h->k_dim,
                        h->scale);
    if (t.lo / PH_STRIP_LD == last_key / PH_STRIP_LD && w->v_pad == h->v_dim) {
        strip_alone(w, &t, ahead);
        return;
    }
    const int64_t saved = h->keys > PH_SPLIT ? t.first : 0;
    const running_strip part = running_at(w->part);
    const running_strip whole =
        running_at(w->wholes + saved * ph_running_floats(w->v_pad));
    strip_split(w, &t, ph_max(t.lo, j), ph_min(t.hi, j + PH_SPLIT),
                j == start ? &whole : &part);
    if (j > start) merge_strip(w, t.m, &whole, &part);
    if (j == last) finish_strip(w, &t, &whole);
}

static void head_forward(const ph_head *h)
{
    ph_prefetch ahead = h->prefetch;
    head_work w = {.h = h};
    carve_scratch(&w);
    for (int n = 0; n < ph_div_up(h->rows, NR); n++) run_strip(&w, n, &ahead);
}
