/*
 * tmpl_head.h - a whole head at once, written once in the vector vocabulary.
 *
 * Rows stand in lanes: a strip of NR of them is turned, and a key has a line of their
 * scores. So maxima and sums over the keys are those of lines, nothing is added across a
 * vector, and k is read as it lies.
 *
 *     for each split of PH_SPLIT keys
 *         for each strip of rows              k and v of the split stay in cache
 *             for each block of keys          s = q k, softmax step, acc += p v
 *             merge the split into the whole
 */

/* `count` <= VL rows, n <= VL columns of each times scale, turned: dst[c*NR + 0..VL),
   zeros behind. */
V void turn_rows(float *dst, const float *src, int64_t ld, const int count, int n,
                 vec scale)
{
    vec r[VL];
    UNROLL
    for (int i = 0; i < VL; i++)
        r[i] = i < count ? v_mul(load_part(src + i * ld, PH_F32, 0, n), scale) : v_zero();
    if (count > 4)
        v_transpose(r);
    else
        v_transpose4(r);
    UNROLL
    for (int c = 0; c < VL; c++) v_store(dst + c * NR, r[c]);
}

/* m rows of n numbers as a panel; rows from m up to the next 16 are 0. Lines are written
   up to a multiple of 16. */
V void turn_panel(float *dst, const float *src, int64_t ld, int m, int n, float scale)
{
    const vec factor = v_set1(scale);
    for (int i = 0; i < ph_round_up(m, PH_LANES); i += VL)
        for (int at = 0; at < n; at += VL) {
            float *to = dst + at * NR + i;
            const float *from = src + i * ld + at;
            if (m - i >= VL && n - at >= VL) /* without a question for each row */
                turn_rows(to, from, ld, VL, VL, factor);
            else
                turn_rows(to, from, ld, ph_min(VL, m - i), ph_min(VL, n - at), factor);
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

/* -inf where a key is not seen: row i sees the keys [lo + i, hi + i) of these. */
V void hide_keys(int lo, int hi, int rows, int keys, float *s, int64_t ld)
{
    for (int i = 0; i < rows; i += VL) {
        const vec row = v_add(v_iota(), v_set1((float)i));
        for (int c = ph_max(0, hi); c < keys; c++) {
            float *at = s + c * ld + i;
            vmask seen = v_lt(v_set1((float)(c - hi)), row);
            v_store(at, v_select(seen, v_load(at), MINUS_INF));
        }
        for (int c = 0; c < ph_min(keys, lo + rows - 1); c++) {
            float *at = s + c * ld + i;
            vmask hidden = v_lt(v_set1((float)(c - lo)), row);
            v_store(at, v_select(hidden, MINUS_INF, v_load(at)));
        }
    }
}

/* Running softmax of a strip: rows stand in lanes, but for those of acc. */
typedef struct running {
    float *top;   /* (NR) maximum in base 2; -inf: nothing seen */
    float *lanes; /* (16, NR) sums of weights, lane = key mod 16 */
    float *acc;   /* (NR, v_pad) */
} running;

/* A head while it is computed. Where there are several splits, each strip keeps its q and
   its running sums from one to the next. */
typedef struct head_work {
    const ph_head *h;
    int k_pad, v_pad;
    float *panels;  /* q of the strips, turned */
    float *wholes;  /* their running sums */
    float *part;    /* running sums of one split */
    float *s;       /* (128, NR) a block: scores, then weights */
    float *values;  /* v of a split, where its rows must be filled up */
    const float *v; /* v of the split, from its first key on */
    int64_t v_ld;
} head_work;

/* Rows [first, first + m) of a head, and the keys [lo, hi) that any of them sees. */
typedef struct strip {
    int first, m;
    int lo, hi;
    float *panel; /* q of the rows, turned */
} strip;

/* Carves the room, ph_head_room floats of it. */
V void set_room(head_work *w)
{
    const ph_head *h = w->h;
    const int64_t kept = h->keys > PH_SPLIT ? ph_round_up(h->rows, NR) : NR;
    w->k_pad = ph_round_up(h->k_dim, PH_LANES);
    w->v_pad = ph_round_up(h->v_dim, PH_LANES);
    w->panels = h->room;
    w->s = w->panels + kept * w->k_pad;
    w->part = w->s + NR * PH_STRIP_LD;
    w->wholes = w->part + NR * ph_running_floats(w->v_pad);
    w->values = w->wholes + kept * ph_running_floats(w->v_pad);
}

V running running_at(float *room)
{
    return (running){room, room + NR, room + NR + PH_LANES * NR};
}

/* New maxima of NV vectors of rows, and what earlier results shrink by; fresh: there are
   none. */
V void raise_top(const int NV, const int fresh, int keys, const float *s, float *tops,
                 vec *base, vec *shrink)
{
    vec top[NR / VL];
    UNROLL
    for (int v = 0; v < NV; v++) top[v] = MINUS_INF;
    for (int c = 0; c < keys; c++) UNROLL
    for (int v = 0; v < NV; v++) top[v] = v_max(top[v], v_load(s + c * NR + v * VL));
    UNROLL
    for (int v = 0; v < NV; v++) {
        vec old = fresh ? MINUS_INF : v_load(tops + v * VL);
        if (!fresh) top[v] = v_max(old, top[v]); /* a NaN among the new ones stays */
        base[v] = v_select(v_eq(top[v], MINUS_INF), v_zero(), top[v]);
        shrink[v] = fresh ? v_zero() : v_exp2(v_sub(old, base[v]));
        v_store(tops + v * VL, top[v]);
    }
}

/* Scores of NV vectors of rows become weights; alpha: what acc shrinks by. */
V void weigh_keys(const int NV, const int fresh, int keys, float *s, const running *r,
                  float *alpha)
{
    vec base[NR / VL], shrink[NR / VL];
    raise_top(NV, fresh, keys, s, r->top, base, shrink);
    UNROLL
    for (int v = 0; v < NV; v++) v_store(alpha + v * VL, shrink[v]);
    for (int lane = 0; lane < PH_LANES; lane++) {
        float *kept = r->lanes + lane * NR;
        vec sum[NR / VL];
        UNROLL
        for (int v = 0; v < NV; v++)
            sum[v] = fresh ? v_zero() : v_mul(v_load(kept + v * VL), shrink[v]);
        for (int c = lane; c < keys; c += PH_LANES) UNROLL
        for (int v = 0; v < NV; v++) {
            float *at = s + c * NR + v * VL;
            vec p = v_exp2(v_sub(v_load(at), base[v]));
            v_store(at, p);
            sum[v] = v_add(sum[v], p);
        }
        UNROLL
        for (int v = 0; v < NV; v++) v_store(kept + v * VL, sum[v]);
    }
}

static void weigh_strip(int rows, int fresh, int keys, float *s, const running *r,
                        float *alpha)
{
    if (rows >= NR && fresh)
        weigh_keys(NR / VL, 1, keys, s, r, alpha);
    else if (rows >= NR)
        weigh_keys(NR / VL, 0, keys, s, r, alpha);
    else if (fresh)
        weigh_keys(PH_LANES / VL, 1, keys, s, r, alpha);
    else
        weigh_keys(PH_LANES / VL, 0, keys, s, r, alpha);
}

/* Keys [*from, *to) of the block at j0 that m rows from `first` on see. */
V void seen_keys(const ph_head *h, int first, int m, int j0, int *from, int *to)
{
    const int keys = ph_min(h->keys - j0, PH_STRIP_LD);
    *from = ph_min(ph_max(h->lo + first - j0, 0), keys);
    *to = ph_max(ph_min(h->hi + first + m - 1 - j0, keys), *from);
}

/* Weights of a strip against the block at j0. */
V void weigh_block(const head_work *w, const strip *t, int fresh, int j0,
                   const running *r, float *alpha, ph_soon *soon)
{
    const ph_head *h = w->h;
    const int rows = ph_round_up(t->m, PH_LANES);
    int from, to;
    seen_keys(h, t->first, t->m, j0, &from, &to);
    from = from / PH_LANES * PH_LANES; /* lanes stay what they are */
    float *s = w->s + from * NR;
    if (to > from)
        score_keys(rows, to - from, h->k_dim, h->k + (int64_t)(j0 + from) * h->k_ld,
                   h->k_ld, t->panel, s, NR, soon);
    hide_keys(h->lo + t->first - j0 - from, h->hi + t->first - j0 - from, rows, to - from,
              s, NR);
    weigh_strip(rows, fresh, to - from, s, r, alpha);
}

/* c = c * alpha + p v, or p v * alpha, for the block at j0. */
V void weigh_values(const head_work *w, const strip *t, int j0,
                    tile_fn *const tiles[MR + 1][2], float *c, int64_t ldc,
                    const float *alpha, ph_soon *soon)
{
    const int height = ph_even_strip(t->m, MR);
    const float *v = w->v + (int64_t)(j0 % PH_SPLIT) * w->v_ld;
    for (int i = 0, from, to; i < t->m; i += height) {
        int m = ph_min(height, t->m - i);
        seen_keys(w->h, t->first + i, m, j0, &from, &to);
        for (int j = 0; j < w->v_pad; j += NR)
            tiles[m][w->v_pad - j >= NR](
                to - from, w->s + from * NR + i, 1, NR, v + from * w->v_ld + j, w->v_ld,
                c + i * ldc + j, ldc, alpha + i, NULL, ask(soon, m, to - from, w->s));
    }
}

/* The 16 lanes of each row added by halves: sums, and their inverses, or 0: no key
   seen. */
V void add_lanes(int rows, const running *r, float *sums, float *factor)
{
    const vec zero = v_zero(), one = v_set1(1.0f);
    for (int i = 0; i < rows; i += VL) {
        vec lane[PH_LANES];
        UNROLL
        for (int l = 0; l < PH_LANES; l++) lane[l] = v_load(r->lanes + l * NR + i);
        UNROLL
        for (int half = PH_LANES / 2; half; half /= 2) UNROLL
        for (int l = 0; l < half; l++) lane[l] = v_add(lane[l], lane[l + half]);
        v_store(sums + i, lane[0]);
        v_store(factor + i, v_select(v_eq(lane[0], zero), zero, v_div(one, lane[0])));
    }
}

V void store_lse(int m, const float *top, const float *sums, float *lse)
{
    const vec zero = v_zero(), one = v_set1(1.0f);
    const int rows = ph_round_up(m, PH_LANES);
    float logs_of[NR];
    for (int i = 0; i < rows; i += VL) {
        vec sum = v_load(sums + i);
        v_store(logs_of + i, v_log(v_select(v_lt(zero, sum), sum, one)));
    }
    for (int i = 0; i < rows; i++)
        logs_of[i] = (float)((double)top[i] * PH_LN2 + logs_of[i]);
    for (int i = 0; i < m; i += VL) {
        vec sum = v_load(sums + i), x = v_load(logs_of + i);
        x = v_select(v_eq(sum, sum), x, sum); /* a maximum may have lost a NaN */
        x = v_select(v_eq(sum, zero), MINUS_INF, x);
        if (m - i >= VL)
            v_store(lse + i, x);
        else
            v_store_n(lse + i, x, m - i);
    }
}

/* What the rows of a strip are multiplied by in the end; their lse. */
static void finish_sums(const head_work *w, const strip *t, const running *r,
                        float *factor)
{
    const ph_head *h = w->h;
    float sums[NR];
    add_lanes(ph_round_up(t->m, PH_LANES), r, sums, factor);
    if (h->lse) store_lse(t->m, r->top, sums, h->lse + t->first);
}

/* A strip whose keys lie in one block: the product with v writes out itself. */
static void strip_alone(const head_work *w, const strip *t, ph_soon *soon)
{
    const ph_head *h = w->h;
    const running r = running_at(w->part);
    const int j0 = t->lo / PH_STRIP_LD * PH_STRIP_LD;
    float factor[NR];
    weigh_block(w, t, 1, j0, &r, factor, soon);
    finish_sums(w, t, &r, factor);
    weigh_values(w, t, j0, times_tiles, h->out + t->first * h->out_ld, h->out_ld, factor,
                 soon);
    for (int i = 0; i < t->m; i++) /* weights of 0 would keep a NaN of v */
        for (int c = 0; factor[i] == 0 && c < h->v_dim; c += VL)
            v_store(h->out + (t->first + i) * h->out_ld + c, v_zero());
}

/* n rows from `first` on as part i of what will be wanted soon, where they lie behind
   each other. */
V void ask_rows(ph_soon *soon, int i, const float *x, int64_t ld, int dim, int first,
                int n)
{
    if (ld != dim || n <= 0) return;
    soon->part[i].at = (const char *)(x + first * ld);
    soon->part[i].end = (const char *)(x + (first + n) * ld);
}

/* Share n of `all` of what the caller wants to be asked for, as part i. */
V void ask_share(ph_soon *soon, int i, const ph_soon *from, int n, int all)
{
    const char *at = from->part[i].at;
    if (!at) return;
    const int64_t share = (from->part[i].end - at) / all;
    soon->part[i].at = at + n * share, soon->part[i].end = at + (n + 1) * share;
}

/* What a strip asks for while it runs over the block at j0: the first one for the next
   block; each for q of the next strip, the rows it will write, a share of the rest. */
V void look_ahead(const head_work *w, const strip *t, int j0, ph_soon *soon)
{
    const ph_head *h = w->h;
    const int next = t->first + NR, j = j0 + PH_STRIP_LD;
    *soon = (ph_soon){.done = 0};
    if (t->first == 0) {
        ask_rows(soon, 0, h->k, h->k_ld, h->k_dim, j, ph_min(PH_STRIP_LD, h->keys - j));
        ask_rows(soon, 2, h->v, h->v_ld, h->v_dim, j, ph_min(PH_STRIP_LD, h->keys - j));
    } else if (j0 / PH_STRIP_LD == t->lo / PH_STRIP_LD) {
        ask_share(soon, 0, &h->soon, t->first / NR, ph_div_up(h->rows, NR));
        ask_share(soon, 2, &h->soon, t->first / NR, ph_div_up(h->rows, NR));
    }
    if (j0 / PH_STRIP_LD == t->lo / PH_STRIP_LD) {
        ask_rows(soon, 1, h->q, h->q_ld, h->k_dim, next, ph_min(NR, h->rows - next));
        ask_rows(soon, 3, h->out, h->out_ld, h->v_dim, t->first, t->m);
    }
}

/* Keys [from, to) of a strip, all of one split, into nothing. */
static void strip_split(const head_work *w, const strip *t, int from, int to,
                        const running *r)
{
    ph_soon soon;
    const int start = from / PH_STRIP_LD * PH_STRIP_LD;
    float alpha[NR];
    for (int c = 0; c < t->m * w->v_pad; c += VL) v_store(r->acc + c, v_zero());
    for (int j0 = start; j0 < to; j0 += PH_STRIP_LD) {
        look_ahead(w, t, j0, &soon);
        weigh_block(w, t, j0 == start, j0, r, alpha, &soon);
        weigh_values(w, t, j0, carry_tiles, r->acc, w->v_pad, alpha, &soon);
    }
}

/* whole = whole and part: maxima, lanes, and the factors of both; -1: the row has seen
   nothing there. */
V void merge_lanes(int rows, const running *whole, const running *part, float *a,
                   float *b)
{
    const vec none = v_set1(-1);
    for (int i = 0; i < rows; i += VL) {
        vec x = v_load(whole->top + i), y = v_load(part->top + i);
        vec top = v_select(v_lt(y, x), x, y);
        vec base = v_select(v_eq(top, MINUS_INF), v_zero(), top);
        vec old = v_exp2(v_sub(x, base)), new = v_exp2(v_sub(y, base));
        v_store(whole->top + i, top);
        v_store(a + i, v_select(v_eq(x, MINUS_INF), none, old));
        v_store(b + i, v_select(v_eq(y, MINUS_INF), none, new));
        for (int l = 0; l < PH_LANES; l++) {
            float *to = whole->lanes + l * NR + i;
            vec more = v_load(part->lanes + l * NR + i);
            v_store(to, v_fma(more, new, v_mul(v_load(to), old)));
        }
    }
}

static void merge_strip(const head_work *w, int m, const running *whole,
                        const running *part)
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

static void finish_strip(const head_work *w, const strip *t, const running *r)
{
    const ph_head *h = w->h;
    float factor[NR];
    finish_sums(w, t, r, factor);
    for (int i = 0; i < t->m; i++) {
        float *acc = r->acc + (int64_t)i * w->v_pad;
        for (int c = 0; factor[i] == 0 && c < w->v_pad; c += VL)
            v_store(acc + c, v_zero());
        store_row(h->out + (t->first + i) * h->out_ld, acc, h->v_dim, PH_F32, factor[i]);
    }
}

/* Rows that see nothing. */
static void clear_strip(const head_work *w, const strip *t)
{
    const ph_head *h = w->h;
    for (int i = t->first; i < t->first + t->m; i++) {
        for (int c = 0; c < h->v_dim; c++) h->out[i * h->out_ld + c] = 0;
        if (h->lse) h->lse[i] = -__builtin_inff();
    }
}

V strip strip_at(const head_work *w, int n)
{
    const ph_head *h = w->h;
    const int first = n * NR, kept = h->keys > PH_SPLIT ? first : 0;
    strip t = {.first = first, .m = ph_min(NR, h->rows - first)};
    t.lo = ph_min(ph_max(h->lo + first, 0), h->keys);
    t.hi = ph_max(0, ph_min(h->keys, h->hi + first + t.m - 1));
    if (t.lo >= t.hi) t.lo = t.hi = 0;
    t.panel = w->panels + (int64_t)kept * w->k_pad;
    return t;
}

/* What strip number n has to do with the split at j. */
static void run_strip(const head_work *w, int n, int j, ph_soon *soon)
{
    const ph_head *h = w->h;
    const strip t = strip_at(w, n);
    const int last_key = ph_max(t.hi - 1, 0);
    const int start = t.lo / PH_SPLIT * PH_SPLIT, last = last_key / PH_SPLIT * PH_SPLIT;
    if (j < start || j > last) return;
    if (t.hi == 0) {
        clear_strip(w, &t);
        return;
    }
    if (j == start)
        turn_panel(t.panel, h->q + t.first * h->q_ld, h->q_ld, t.m, h->k_dim, h->scale);
    if (t.lo / PH_STRIP_LD == last_key / PH_STRIP_LD && w->v_pad == h->v_dim) {
        strip_alone(w, &t, soon);
        return;
    }
    const int64_t kept = h->keys > PH_SPLIT ? t.first : 0;
    const running part = running_at(w->part);
    const running whole = running_at(w->wholes + kept * ph_running_floats(w->v_pad));
    strip_split(w, &t, ph_max(t.lo, j), ph_min(t.hi, j + PH_SPLIT),
                j == start ? &whole : &part);
    if (j > start) merge_strip(w, t.m, &whole, &part);
    if (j == last) finish_strip(w, &t, &whole);
}

/* v of the split at j, as rows of whole vectors. */
V void set_values(head_work *w, int j)
{
    const ph_head *h = w->h;
    w->v = h->v + (int64_t)j * h->v_ld, w->v_ld = h->v_ld;
    if (w->v_pad == h->v_dim) return;
    for (int c = 0; c < ph_min(PH_SPLIT, h->keys - j); c++)
        load_row(w->values + (int64_t)c * w->v_pad, w->v + c * h->v_ld, h->v_dim, PH_F32,
                 1);
    w->v = w->values, w->v_ld = w->v_pad;
}

static void head_forward(const ph_head *h)
{
    ph_soon soon = h->soon;
    head_work w = {.h = h};
    set_room(&w);
    for (int j = 0; j < h->keys; j += PH_SPLIT) {
        set_values(&w, j);
        for (int n = 0; n < ph_div_up(h->rows, NR); n++) run_strip(&w, n, j, &soon);
    }
}
