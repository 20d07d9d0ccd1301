/*
 * tmpl_gemm.h - the micro-kernels of products, written once in the vector vocabulary.
 *
 * Needs VL, MR, NR and the vocabulary of a vec_<isa>.h. One register tile of M rows and
 * NV vectors does all the work; `tile` is inlined with constant M, NV, form and start, so
 * each instance is a straight loop of M*NV fused multiply-adds per step of k.
 *
 * Layout of the left operand a[i*row + k*step]:
 *     ACROSS    row is 1: packed panels, or P^T
 *     ALONG     step is 1
 *     EITHER    any
 *
 * What the accumulators start from, and what happens to them at the end:
 *     FRESH     0
 *     ADD       c
 *     SHRINK    c * rescale[i]
 *     PEAK      0; the maxima are reduced into lane_max
 *     TIMES     0; results are multiplied by rescale[i]
 *     ON        c; results are multiplied by rescale[i]
 *     PLUS      0; c is added
 *     LINES     0
 *     CARRY     c * rescale[i]
 * The last five, TIMES to CARRY, are those of whole heads: they prefetch PACE bytes in
 * each step.
 */
/* Loops over the register tile must unroll completely. Given a count, clang unrolls them
   before M is known, as loops of unknown length, and then spills the accumulators. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { ACROSS, ALONG, EITHER };
enum { FRESH, ADD, SHRINK, PEAK, TIMES, ON, PLUS, LINES, CARRY };
enum { FEW = MR * 2 / 3 };      /* rows up to which a tile is memory-bound */
enum { PACE = 2 * NR };         /* bytes that tiles of whole heads prefetch per step */

typedef void tile_fn(int k, const float *a, int64_t row, int64_t step, const float *b,
                     int64_t ldb, float *c, int64_t ldc, const float *alpha, float *peak,
                     const char *fetch);

V void tile(const int M, const int NV, const int form, const int start, int k,
            const float *a, int64_t row, int64_t step, const float *b, int64_t ldb,
            float *c, int64_t ldc, const float *alpha, float *peak, const char *fetch)
{
    vec acc[MR][NR / VL];
    const float *rows[MR / 3]; /* three rows share a register */
    if (form == ACROSS) row = 1;
    if (form == ALONG) step = 1;
    UNROLL
    for (int g = 0; g < MR / 3; g++) rows[g] = a + 3 * g * row;
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int v = 0; v < NV; v++) {
        if (start == ADD || start == ON)
            acc[i][v] = v_load(c + i * ldc + v * VL);
        else if (start == SHRINK || start == CARRY)
            acc[i][v] = v_mul(v_load(c + i * ldc + v * VL), v_set1(alpha[i]));
        else
            acc[i][v] = v_zero();
    }
    for (int kk = 0; kk < k; kk++) {
        vec right[NR / VL];
        if (M <= FEW)
            for (int f = 0; f < PH_FETCH; f += 64)
                __builtin_prefetch(fetch + kk * PH_FETCH + f, 0, 2);
        else if (start >= TIMES)
            __builtin_prefetch(fetch + kk * PACE, 0, 2);
        else if (form == ACROSS)
            __builtin_prefetch(fetch + kk * PH_ASK, 0, 2);
        else if (start == SHRINK || (start == FRESH && form == ALONG))
            __builtin_prefetch(fetch + kk * NR, 0, 2);
        UNROLL
        for (int v = 0; v < NV; v++) right[v] = v_load(b + kk * ldb + v * VL);
        UNROLL
        for (int i = 0; i < M; i++) {
            vec left = v_set1(form == ACROSS ? a[kk * step + i]
                                             : rows[i / 3][i % 3 * row + kk * step]);
            UNROLL
            for (int v = 0; v < NV; v++) acc[i][v] = v_fma(left, right[v], acc[i][v]);
        }
    }
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int v = 0; v < NV; v++) {
        if (start == TIMES || start == ON)
            acc[i][v] = v_fma(acc[i][v], v_set1(alpha[i]), v_zero());
        if (start == PLUS) acc[i][v] = v_add(acc[i][v], v_load(c + i * ldc + v * VL));
        v_store(c + i * ldc + v * VL, acc[i][v]);
    }
    if (start != PEAK || !peak) return;
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < GROUP; g++) {
        float *p = peak + i * PH_LANES + g * VL;
        vec highest = v_load(p);
        UNROLL
        for (int v = g; v < NV; v += GROUP) highest = v_max(highest, acc[i][v]);
        v_store(p, highest);
    }
}

/* One instance per row count, for a full tile (NR columns) and a narrow one (16). */
#define TILE(name, M, width, form, start)                                                \
    static void name##_##M##_##width(int k, const float *a, int64_t row, int64_t step,   \
                                     const float *b, int64_t ldb, float *c, int64_t ldc, \
                                     const float *alpha, float *peak, const char *fetch) \
    {                                                                                    \
        tile(M, width / VL, form, start, k, a, row, step, b, ldb, c, ldc, alpha, peak,   \
             fetch);                                                                     \
    }
#if MR == 12
#define EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#elif MR == 6
#define EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

#define SCORES(M) TILE(scores, M, 16, ALONG, PEAK) TILE(scores, M, 32, ALONG, PEAK)
#define WEIGH(M)  TILE(weigh, M, 16, ALONG, SHRINK) TILE(weigh, M, 32, ALONG, SHRINK)
#define BEGIN(M)  TILE(begin, M, 16, ALONG, FRESH) TILE(begin, M, 32, ALONG, FRESH)
#define FRESHP(M) TILE(fresh, M, 16, ACROSS, FRESH) TILE(fresh, M, 32, ACROSS, FRESH)
#define ADDP(M)   TILE(add, M, 16, ACROSS, ADD) TILE(add, M, 32, ACROSS, ADD)
#define TIMESP(M) TILE(times, M, 16, EITHER, TIMES) TILE(times, M, 32, EITHER, TIMES)
#define ONP(M)    TILE(on, M, 16, ALONG, ON) TILE(on, M, 32, ALONG, ON)
#define PLUSP(M)  TILE(plus, M, 16, ACROSS, PLUS) TILE(plus, M, 32, ACROSS, PLUS)
#define LINESP(M) TILE(lines, M, 16, ALONG, LINES) TILE(lines, M, 32, ALONG, LINES)
#define CARRYP(M) TILE(carry, M, 16, ACROSS, CARRY) TILE(carry, M, 32, ACROSS, CARRY)
#if NR == 16
#undef SCORES
#undef WEIGH
#undef BEGIN
#undef FRESHP
#undef ADDP
#undef TIMESP
#undef ONP
#undef PLUSP
#undef LINESP
#undef CARRYP
#define SCORES(M) TILE(scores, M, 16, ALONG, PEAK)
#define WEIGH(M)  TILE(weigh, M, 16, ALONG, SHRINK)
#define BEGIN(M)  TILE(begin, M, 16, ALONG, FRESH)
#define FRESHP(M) TILE(fresh, M, 16, ACROSS, FRESH)
#define ADDP(M)   TILE(add, M, 16, ACROSS, ADD)
#define TIMESP(M) TILE(times, M, 16, EITHER, TIMES)
#define ONP(M)    TILE(on, M, 16, ALONG, ON)
#define PLUSP(M)  TILE(plus, M, 16, ACROSS, PLUS)
#define LINESP(M) TILE(lines, M, 16, ALONG, LINES)
#define CARRYP(M) TILE(carry, M, 16, ACROSS, CARRY)
#endif
EACH_ROW(SCORES)
EACH_ROW(WEIGH)
EACH_ROW(BEGIN)
EACH_ROW(FRESHP)
EACH_ROW(ADDP)
EACH_ROW(TIMESP)
EACH_ROW(ONP)
EACH_ROW(PLUSP)
EACH_ROW(LINESP)
EACH_ROW(CARRYP)

/* [rows][0: narrow, 1: full] */
#if NR == 16
#define ENTRY(name, M) {name##_##M##_16, name##_##M##_16},
#else
#define ENTRY(name, M) {name##_##M##_16, name##_##M##_32},
#endif
#define SCORES_ENTRY(M) ENTRY(scores, M)
#define WEIGH_ENTRY(M)  ENTRY(weigh, M)
#define BEGIN_ENTRY(M)  ENTRY(begin, M)
#define FRESH_ENTRY(M)  ENTRY(fresh, M)
#define ADD_ENTRY(M)    ENTRY(add, M)
#define TIMES_ENTRY(M)  ENTRY(times, M)
#define ON_ENTRY(M)     ENTRY(on, M)
#define PLUS_ENTRY(M)   ENTRY(plus, M)
#define LINES_ENTRY(M)  ENTRY(lines, M)
#define CARRY_ENTRY(M)  ENTRY(carry, M)
static tile_fn *const scores_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(SCORES_ENTRY)};
static tile_fn *const weigh_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(WEIGH_ENTRY)};
static tile_fn *const begin_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(BEGIN_ENTRY)};
static tile_fn *const fresh_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(FRESH_ENTRY)};
static tile_fn *const add_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(ADD_ENTRY)};
static tile_fn *const times_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(TIMES_ENTRY)};
static tile_fn *const on_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(ON_ENTRY)};
static tile_fn *const plus_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(PLUS_ENTRY)};
static tile_fn *const lines_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(LINES_ENTRY)};
static tile_fn *const carry_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(CARRY_ENTRY)};

static void scores(int m, int n, int k, const float *a, int64_t lda, const float *b,
                   float *s, float *peak)
{
    for (int j = 0; j < n; j += NR)
        scores_tiles[m][n - j >= NR](k, a, lda, 1, b + (int64_t)j * k, NR, s + j,
                                     PH_STRIP_LD, NULL, peak, (const char *)b);
}

/* One or two rows are bound by reading b. Hardware prefetchers follow whole rows in
   memory order, so these tiles are as wide as the registers allow. */
V void weigh_wide(const int M, const int NV, int k, const float *p, const float *b,
                  int64_t ldb, float *c, int64_t ldc, const float *alpha)
{
    vec acc[2][128 / VL];
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int v = 0; v < NV; v++)
        acc[i][v] =
            alpha ? v_mul(v_load(c + i * ldc + v * VL), v_set1(alpha[i])) : v_zero();
    for (int kk = 0; kk < k; kk++) UNROLL
    for (int v = 0; v < NV; v++) {
        const vec right = v_load(b + kk * ldb + v * VL);
        UNROLL
        for (int i = 0; i < M; i++)
            acc[i][v] = v_fma(v_set1(p[i * PH_STRIP_LD + kk]), right, acc[i][v]);
    }
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int v = 0; v < NV; v++) v_store(c + i * ldc + v * VL, acc[i][v]);
}

typedef void wide_fn(int k, const float *p, const float *b, int64_t ldb, float *c,
                     int64_t ldc, const float *alpha);

#define WIDE(M, width)                                                                   \
    static void wide_##M##_##width(int k, const float *p, const float *b, int64_t ldb,   \
                                   float *c, int64_t ldc, const float *alpha)            \
    {                                                                                    \
        weigh_wide(M, width / VL, k, p, b, ldb, c, ldc, alpha);                          \
    }
WIDE(1, 64)
#if VL == 16
WIDE(1, 128)
WIDE(2, 64)
WIDE(2, 128)
static wide_fn *const wide_tiles[3][3] = { /* [rows][columns / 64] */
    {0}, {0, wide_1_64, wide_1_128}, {0, wide_2_64, wide_2_128}};
#else
static wide_fn *const wide_tiles[3][3] = {{0}, {0, wide_1_64}};
#endif

/* As many columns as wide tiles cover; returns how many. */
static int weigh_whole_rows(int m, int n, int k, const float *p, const float *b,
                            int64_t ldb, float *c, int64_t ldc, const float *alpha)
{
    int j = 0;
    for (int wide = 2; wide > 0 && m <= 2; wide--) {
        wide_fn *f = wide_tiles[m][wide];
        for (; f && n - j >= 64 * wide; j += 64 * wide)
            f(k, p, b + j, ldb, c + j, ldc, alpha);
    }
    return j;
}

/* With nothing to prefetch, the prefetches hit the operand itself, which is in cache. */
static void weigh(int m, int n, int k, const float *p, const float *b, int64_t ldb,
                  float *c, int64_t ldc, const float *alpha, const void *fetch)
{
    const int64_t step = fetch ? (int64_t)k * (m <= FEW ? PH_FETCH : NR) : 0;
    const char *ahead = fetch ? fetch : (const void *)b;
    int j = weigh_whole_rows(m, n, k, p, b, ldb, c, ldc, alpha);
    for (; j < n; j += NR, ahead += step) {
        tile_fn *f = alpha ? weigh_tiles[m][n - j >= NR] : begin_tiles[m][n - j >= NR];
        f(k, p, PH_STRIP_LD, 1, b + j, ldb, c + j, ldc, alpha, NULL, ahead);
    }
}

static void product(int m, int n, int k, const float *a, int64_t lda, const float *b,
                    int64_t ldb, int64_t panel, float *c, int64_t ldc, int add,
                    const void *fetch)
{
    for (int j = 0; j < n; j += NR, b += panel) {
        tile_fn *f = add ? add_tiles[m][n - j >= NR] : fresh_tiles[m][n - j >= NR];
        const char *ahead = fetch ? fetch : (const void *)b;
        f(k, a, 1, lda, b, ldb, c + j, ldc, NULL, NULL, ahead);
    }
}
