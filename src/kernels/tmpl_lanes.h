/*
 * tmpl_lanes.h - scores with rows in lanes, written once in the vector vocabulary: what
 * tmpl_head.h and tmpl_head_back.h share.
 *
 * Up to NR rows are transposed into a panel, and each key has a line of their scores. So
 * k is read in place, maxima, sums and masks are those of lines, and nothing is added
 * across a vector.
 */

/* `count` <= VL rows, n <= VL columns of each times scale, transposed:
   dst[c*NR + 0..VL), padded with zeros. */
V void transpose_rows(float *dst, const float *src, int64_t ld, const int count, int n,
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

/* m rows of n floats as a panel, padded with zeros to 16 rows and 16 columns. */
V void transpose_panel(float *dst, const float *src, int64_t ld, int m, int n,
                       float scale)
{
    const vec factor = v_set1(scale);
    for (int i = 0; i < ph_round_up(m, PH_LANES); i += VL)
        for (int at = 0; at < n; at += VL) {
            float *to = dst + at * NR + i;
            const float *from = src + i * ld + at;
            if (m - i >= VL && n - at >= VL) /* constants: no branch for each row */
                transpose_rows(to, from, ld, VL, VL, factor);
            else
                transpose_rows(to, from, ld, ph_min(VL, m - i), ph_min(VL, n - at),
                               factor);
        }
}

/* What the next product prefetches; its own operand, which is in cache, if nothing is
   left. */
V const char *prefetch_next(ph_prefetch *ahead, int m, int steps, const float *own)
{
    const int64_t bytes =
        (int64_t)steps * (m <= FEW_ROWS ? PH_PREFETCH_BYTES : HEAD_PREFETCH);
    const void *next = ph_prefetch_take(ahead, bytes);
    return next ? next : (const void *)own;
}

/* s[key*ld + row] of a panel's rows against n keys in place. */
V void score_keys(int rows, int n, int dim, const float *keys, int64_t ldk,
                  const float *panel, float *s, int64_t ld, ph_prefetch *ahead)
{
    for (int c = 0, height = ph_even_strip(n, MR); c < n; c += height) {
        int m = ph_min(height, n - c);
        lines_tiles[m][rows >= NR](dim, keys + c * ldk, ldk, 1, panel, NR, s + c * ld, ld,
                                   NULL, NULL, prefetch_next(ahead, m, dim, panel));
    }
}

/* ---- masks by position ---- */

V int token_of(const ph_window *w, int row)
{
    return w->group == 1 ? w->phase + row : (w->phase + row) / w->group;
}

/* Keys [*from, *to) of `keys` that some of the rows [first, first + m) see. */
V void keys_seen(const ph_window *w, int keys, int first, int m, int *from, int *to)
{
    *to = ph_max(0, ph_min(keys, w->hi + token_of(w, first + m - 1)));
    *from = ph_max(0, ph_min(*to, w->lo + token_of(w, first)));
}

/* Scores of rows [first, first + m), one line per key: that of key c of [from, to) at
   s + c*ld. Line 0 is of key `key0`. */
typedef struct score_lines {
    float *s;
    int64_t ld;
    int first, m;
    int key0, from, to;
} score_lines;

/* -inf where the window, whose keys count from line 0, does not show a key: token i sees
   key c if c < hi + i, which is (c - hi + 1) * group <= row. */
V void hide_lines(const ph_window *w, const score_lines *l)
{
    const int low_end = ph_min(l->to, w->lo + token_of(w, l->first + l->m - 1));
    const int high = ph_max(l->from, w->hi + token_of(w, l->first));
    for (int i = 0; i < l->m; i += VL) {
        const vec row = v_add(v_iota(), v_set1((float)(w->phase + l->first + i)));
        for (int c = high; c < l->to; c++) {
            float *at = l->s + c * l->ld + i;
            vmask seen = v_lt(v_set1((float)(c - w->hi + 1) * w->group - 1), row);
            v_store(at, v_select(seen, v_load(at), MINUS_INF));
        }
        for (int c = l->from; c < low_end; c++) {
            float *at = l->s + c * l->ld + i;
            vmask hidden = v_lt(v_set1((float)(c - w->lo + 1) * w->group - 1), row);
            v_store(at, v_select(hidden, MINUS_INF, v_load(at)));
        }
    }
}

/* ---- what else happens to scores ---- */

/* The first n <= VL of an array by rows, zeros behind. */
V vec load_rows(const float *x, int n)
{
    return n >= VL ? v_load(x) : v_load_n(x, n);
}

/* Columns [at, at + n) of m rows, transposed: r[c] is column at + c. */
V void load_square(const float *const *rows, const int m, int at, const int n, vec *r)
{
    UNROLL
    for (int i = 0; i < VL; i++)
        r[i] = i < m ? load_part(rows[i], PH_F32, at, n) : v_zero();
    v_transpose(r);
}

static void bias_lines(const score_lines *l, const float *const *bias, float factor)
{
    const vec times = v_set1(factor);
    for (int i = 0; i < l->m; i += VL)
        for (int c = l->from; c < l->to; c += VL) {
            const int m = ph_min(VL, l->m - i), n = ph_min(VL, l->to - c);
            float *at = l->s + c * l->ld + i;
            vec r[VL];
            if (m == VL && n == VL)
                load_square(bias + l->first + i, VL, l->key0 + c, VL, r);
            else
                load_square(bias + l->first + i, m, l->key0 + c, n, r);
            UNROLL
            for (int key = 0; key < VL; key++)
                if (key < n)
                    v_store(at + key * l->ld,
                            biased(v_load(at + key * l->ld), r[key], times));
        }
}

/* 1 where a byte is not 0. */
V vec load_bytes(const uint8_t *x, int n)
{
    uint8_t part[VL] = {0};
    if (n < VL) memcpy(part, x, (size_t)n);
    return v_select(v_bytes(n < VL ? part : x), v_set1(1.0f), v_zero());
}

static void visible_lines(const score_lines *l, const uint8_t *const *visible)
{
    const uint8_t *const *rows = visible + l->first;
    for (int i = 0; i < l->m; i += VL)
        for (int c = l->from; c < l->to; c += VL) {
            const int m = ph_min(VL, l->m - i), n = ph_min(VL, l->to - c);
            float *at = l->s + c * l->ld + i;
            vec r[VL];
            UNROLL
            for (int row = 0; row < VL; row++)
                r[row] = row < m ? load_bytes(rows[i + row] + l->key0 + c, n) : v_zero();
            v_transpose(r);
            UNROLL
            for (int key = 0; key < VL; key++)
                if (key < n)
                    v_store(at + key * l->ld, v_select(v_eq(r[key], v_zero()), MINUS_INF,
                                                       v_load(at + key * l->ld)));
        }
}

static void alibi_lines(const score_lines *l, const float *slopes, const float *distance)
{
    for (int i = 0; i < l->m; i += VL) {
        const vec slope = load_rows(slopes + l->first + i, l->m - i);
        const vec start = load_rows(distance + l->first + i, l->m - i);
        for (int c = l->from; c < l->to; c++) {
            float *at = l->s + c * l->ld + i;
            vec far = v_abs(v_add(start, v_set1((float)(l->key0 + c))));
            v_store(at, v_fnma(slope, far, v_load(at)));
        }
    }
}

/* derivative: lines of NR floats from that of key `from` on, or NULL. */
V void cap_lines(const score_lines *l, float cap, const int derives, float *derivative)
{
    const vec high = v_set1(cap), inverse = v_set1(1.0f / cap);
    vec here = v_zero();
    for (int c = l->from; c < l->to; c++)
        for (int i = 0; i < l->m; i += VL) {
            float *at = l->s + c * l->ld + i;
            vec x = v_cap(v_load(at), high, inverse, derives, &here);
            v_store(at, x);
            if (derives) /* a hidden NaN must not reach what it multiplies */
                v_store(derivative + (c - l->from) * NR + i,
                        v_select(v_eq(x, x), here, v_zero()));
        }
}

static void modify_lines(const ph_score_mods *mods, const score_lines *l,
                         float *derivative)
{
    if (mods->bias) bias_lines(l, mods->bias, (float)PH_LOG2E);
    if (mods->relative) bias_lines(l, mods->relative, (float)PH_LOG2E);
    if (mods->alibi) alibi_lines(l, mods->alibi, mods->distance);
    if (mods->cap > 0 && derivative)
        cap_lines(l, mods->cap, 1, derivative);
    else if (mods->cap > 0)
        cap_lines(l, mods->cap, 0, NULL);
    if (mods->bias && (mods->relative || mods->cap > 0)) /* those made -inf finite */
        bias_lines(l, mods->bias, 0);
    if (mods->visible) visible_lines(l, mods->visible);
}

/* ---- dropout ---- */

V vint load_halves(const uint32_t *x, int n)
{
    return v_bits(load_rows((const float *)(const void *)x, n));
}

/* 0 or keep, for VL rows and a key. */
V vec drop_factor(const ph_drop *d, int key, vint low, vint high)
{
    vint x = drop_hash(vi_set1(d->first + (uint32_t)key), low, high);
    return v_select(vi_below(x, vi_set1(d->limit)), v_zero(), v_set1(d->keep));
}

static void drop_lines(const score_lines *l, const ph_drop *d)
{
    for (int i = 0; i < l->m; i += VL) {
        const vint low = load_halves(d->low + l->first + i, l->m - i);
        const vint high = load_halves(d->high + l->first + i, l->m - i);
        for (int c = l->from; c < l->to; c++) {
            float *at = l->s + c * l->ld + i;
            v_store(at, v_mul(v_load(at), drop_factor(d, l->key0 + c, low, high)));
        }
    }
}
