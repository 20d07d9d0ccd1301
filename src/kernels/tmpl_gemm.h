/*
 * tmpl_gemm.h - the micro-kernels of products, written once in the vector vocabulary.
 *
 * Needs VL, MR, NR and the vocabulary of a vec_<isa>.h. One register tile of M rows and
 * NV vectors does all the work; `tile` is inlined with constant M, NV, form and start, so
 * each instance is a straight loop of M*NV fused multiply-adds per step of k.
 *
 * Layout of the left operand a[i*row + k*step]:
 *     K_MAJOR    row is 1: packed panels, or P^T
 *     ROW_MAJOR     step is 1
 *     STRIDED    any
 *
 * What the accumulators start from, and what happens to them at the end:
 *     FRESH     0
 *     ADD       c
 *     RESCALE    c * rescale[i]
 *     LANE_MAX      0; the maxima are reduced into lane_max
 *     TIMES     0; results are multiplied by rescale[i]
 *     ON        c; results are multiplied by rescale[i]
 *     PLUS      0; c is added
 *     LINES     0
 *     CARRY     c * rescale[i]
 * The last five, TIMES to CARRY, are those of whole heads: they prefetch HEAD_PREFETCH
 * bytes in each step.
 */
/* Loops over the register tile must unroll completely. Given a count, clang unrolls them
   before M is known, as loops of unknown length, and then spills the accumulators. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { K_MAJOR, ROW_MAJOR, STRIDED };
enum { FRESH, ADD, RESCALE, LANE_MAX, TIMES, ON, PLUS, LINES, CARRY };
enum { FEW_ROWS = MR * 2 / 3 };  /* rows up to which a tile is memory-bound */
enum { HEAD_PREFETCH = 2 * NR }; /* bytes that tiles of whole heads prefetch per step */

typedef void tile_fn(int k, const float *a, int64_t row, int64_t step, const float *b,
                     int64_t ldb, float *c, int64_t ldc, const float *rescale,
                     float *lane_max, const char *prefetch);

V void tile(const int M, const int NV, const int form, const int start, int k,
            const float *a, int64_t row, int64_t step, const float *b, int64_t ldb,
            float *c, int64_t ldc, const float *rescale, float *lane_max,
            const char *prefetch)
{
    vec acc[MR][NR / VL];
    const float *rows[MR / 3]; /* three rows share a register */
    if (form == K_MAJOR) row = 1;
    if (form == ROW_MAJOR) step = 1;
    UNROLL
    for (int g = 0; g < MR / 3; g++) rows[g] = a + 3 * g * row;
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int v = 0; v < NV; v++) {
        if (start == ADD || start == ON)
            acc[i][v] = v_load(c + i * ldc + v * VL);
        else if (start == RESCALE || start == CARRY)
            acc[i][v] = v_mul(v_load(c + i * ldc + v * VL), v_set1(rescale[i]));
        else
            acc[i][v] = v_zero();
    }
    for (int kk = 0; kk < k; kk++) {
        vec right[NR / VL];
        if (M <= FEW_ROWS)
            for (int f = 0; f < PH_PREFETCH_BYTES; f += 64)
                __builtin_prefetch(prefetch + kk * PH_PREFETCH_BYTES + f, 0, 2);
        else if (start >= TIMES)
            __builtin_prefetch(prefetch + kk * HEAD_PREFETCH, 0, 2);
        else if (form == K_MAJOR)
            __builtin_prefetch(prefetch + kk * PH_PREFETCH_TRICKLE, 0, 2);
        else if (start == RESCALE || (start == FRESH && form == ROW_MAJOR))
            __builtin_prefetch(prefetch + kk * NR, 0, 2);
        UNROLL
        for (int v = 0; v < NV; v++) right[v] = v_load(b + kk * ldb + v * VL);
        UNROLL
        for (int i = 0; i < M; i++) {
            vec left = v_set1(form == K_MAJOR ? a[kk * step + i]
                                              : rows[i / 3][i % 3 * row + kk * step]);
            UNROLL
            for (int v = 0; v < NV; v++) acc[i][v] = v_fma(left, right[v], acc[i][v]);
        }
    }
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int v = 0; v < NV; v++) {
        if (start == TIMES || start == ON)
            acc[i][v] = v_fma(acc[i][v], v_set1(rescale[i]), v_zero());
        if (start == PLUS) acc[i][v] = v_add(acc[i][v], v_load(c + i * ldc + v * VL));
        v_store(c + i * ldc + v * VL, acc[i][v]);
    }
    if (start != LANE_MAX || !lane_max) return;
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < GROUP; g++) {
        float *p = lane_max + i * PH_LANES + g * VL;
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
                                     const float *rescale, float *lane_max,              \
                                     const char *prefetch)                               \
    {                                                                                    \
        tile(M, width / VL, form, start, k, a, row, step, b, ldb, c, ldc, rescale,       \
             lane_max, prefetch);                                                        \
    }
#if MR == 12
#define EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#elif MR == 6
#define EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

#define SCORES(M)                                                                        \
    TILE(scores, M, 16, ROW_MAJOR, LANE_MAX) TILE(scores, M, 32, ROW_MAJOR, LANE_MAX)
#define MULTIPLY_V(M)                                                                    \
    TILE(multiply_v, M, 16, ROW_MAJOR, RESCALE)                                          \
    TILE(multiply_v, M, 32, ROW_MAJOR, RESCALE)
#define INIT(M)   TILE(init, M, 16, ROW_MAJOR, FRESH) TILE(init, M, 32, ROW_MAJOR, FRESH)
#define FRESHP(M) TILE(fresh, M, 16, K_MAJOR, FRESH) TILE(fresh, M, 32, K_MAJOR, FRESH)
#define ADDP(M)   TILE(add, M, 16, K_MAJOR, ADD) TILE(add, M, 32, K_MAJOR, ADD)
#define TIMESP(M) TILE(times, M, 16, STRIDED, TIMES) TILE(times, M, 32, STRIDED, TIMES)
#define ONP(M)    TILE(on, M, 16, ROW_MAJOR, ON) TILE(on, M, 32, ROW_MAJOR, ON)
#define PLUSP(M)  TILE(plus, M, 16, K_MAJOR, PLUS) TILE(plus, M, 32, K_MAJOR, PLUS)
#define LINESP(M)                                                                        \
    TILE(lines, M, 16, ROW_MAJOR, LINES) TILE(lines, M, 32, ROW_MAJOR, LINES)
#define CARRYP(M) TILE(carry, M, 16, K_MAJOR, CARRY) TILE(carry, M, 32, K_MAJOR, CARRY)
#if NR == 16
#undef SCORES
#undef MULTIPLY_V
#undef INIT
#undef FRESHP
#undef ADDP
#undef TIMESP
#undef ONP
#undef PLUSP
#undef LINESP
#undef CARRYP
#define SCORES(M)     TILE(scores, M, 16, ROW_MAJOR, LANE_MAX)
#define MULTIPLY_V(M) TILE(multiply_v, M, 16, ROW_MAJOR, RESCALE)
#define INIT(M)       TILE(init, M, 16, ROW_MAJOR, FRESH)
#define FRESHP(M)     TILE(fresh, M, 16, K_MAJOR, FRESH)
#define ADDP(M)       TILE(add, M, 16, K_MAJOR, ADD)
#define TIMESP(M)     TILE(times, M, 16, STRIDED, TIMES)
#define ONP(M)        TILE(on, M, 16, ROW_MAJOR, ON)
#define PLUSP(M)      TILE(plus, M, 16, K_MAJOR, PLUS)
#define LINESP(M)     TILE(lines, M, 16, ROW_MAJOR, LINES)
#define CARRYP(M)     TILE(carry, M, 16, K_MAJOR, CARRY)
#endif
EACH_ROW(SCORES)
EACH_ROW(MULTIPLY_V)
EACH_ROW(INIT)
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
#define SCORES_ENTRY(M)     ENTRY(scores, M)
#define MULTIPLY_V_ENTRY(M) ENTRY(multiply_v, M)
#define INIT_ENTRY(M)       ENTRY(init, M)
#define FRESH_ENTRY(M)      ENTRY(fresh, M)
#define ADD_ENTRY(M)        ENTRY(add, M)
#define TIMES_ENTRY(M)      ENTRY(times, M)
#define ON_ENTRY(M)         ENTRY(on, M)
#define PLUS_ENTRY(M)       ENTRY(plus, M)
#define LINES_ENTRY(M)      ENTRY(lines, M)
#define CARRY_ENTRY(M)      ENTRY(carry, M)
static tile_fn *const scores_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(SCORES_ENTRY)};
static tile_fn *const multiply_v_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(MULTIPLY_V_ENTRY)};
static tile_fn *const init_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(INIT_ENTRY)};
static tile_fn *const fresh_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(FRESH_ENTRY)};
static tile_fn *const add_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(ADD_ENTRY)};
static tile_fn *const times_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(TIMES_ENTRY)};
static tile_fn *const on_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(ON_ENTRY)};
static tile_fn *const plus_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(PLUS_ENTRY)};
static tile_fn *const lines_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(LINES_ENTRY)};
static tile_fn *const carry_tiles[MR + 1][2] = {{0, 0}, EACH_ROW(CARRY_ENTRY)};

static void scores(int m, int n, int k, const float *a, int64_t lda, const float *b,
                   float *s, float *lane_max)
{
    for (int j = 0; j < n; j += NR)
        scores_tiles[m][n - j >= NR](k, a, lda, 1, b + (int64_t)j * k, NR, s + j,
                                     PH_STRIP_LD, NULL, lane_max, (const char *)b);
}

/* One or two rows are bound by reading b. Hardware prefetchers follow whole rows in
   memory order, so these tiles are as wide as the registers allow. */
V void multiply_v_wide(const int M, const int NV, int k, const float *p, const float *b,
                       int64_t ldb, float *c, int64_t ldc, const float *rescale)
{
    vec acc[2][128 / VL];
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int v = 0; v < NV; v++)
        acc[i][v] =
            rescale ? v_mul(v_load(c + i * ldc + v * VL), v_set1(rescale[i])) : v_zero();
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
                     int64_t ldc, const float *rescale);

#define WIDE(M, width)                                                                   \
    static void wide_##M##_##width(int k, const float *p, const float *b, int64_t ldb,   \
                                   float *c, int64_t ldc, const float *rescale)          \
    {                                                                                    \
        multiply_v_wide(M, width / VL, k, p, b, ldb, c, ldc, rescale);                   \
    }
WIDE(1, 64)
#if VL == 16
WIDE(1, 128)
WIDE(2, 64)
WIDE(2, 128)
static wide_fn *const wide_tiles[3][3] = {/* [rows][columns / 64] */
                                          {0},
                                          {0, wide_1_64, wide_1_128},
                                          {0, wide_2_64, wide_2_128}};
#else
static wide_fn *const wide_tiles[3][3] = {{0}, {0, wide_1_64}};
#endif

/* As many columns as wide tiles cover; returns how many. */
static int multiply_v_whole_rows(int m, int n, int k, const float *p, const float *b,
                                 int64_t ldb, float *c, int64_t ldc, const float *rescale)
{
    int j = 0;
    for (int wide = 2; wide > 0 && m <= 2; wide--) {
        wide_fn *f = wide_tiles[m][wide];
        for (; f && n - j >= 64 * wide; j += 64 * wide)
            f(k, p, b + j, ldb, c + j, ldc, rescale);
    }
    return j;
}

/* With nothing to prefetch, the prefetches hit the operand itself, which is in cache. */
static void multiply_v(int m, int n, int k, const float *p, const float *b, int64_t ldb,
                       float *c, int64_t ldc, const float *rescale, const void *prefetch)
{
    const int64_t step =
        prefetch ? (int64_t)k * (m <= FEW_ROWS ? PH_PREFETCH_BYTES : NR) : 0;
    const char *next = prefetch ? prefetch : (const void *)b;
    int j = multiply_v_whole_rows(m, n, k, p, b, ldb, c, ldc, rescale);
    for (; j < n; j += NR, next += step) {
        tile_fn *f =
            rescale ? multiply_v_tiles[m][n - j >= NR] : init_tiles[m][n - j >= NR];
        f(k, p, PH_STRIP_LD, 1, b + j, ldb, c + j, ldc, rescale, NULL, next);
    }
}

static void product(int m, int n, int k, const float *a, int64_t lda, const float *b,
                    int64_t ldb, int64_t panel, float *c, int64_t ldc, int add,
                    const void *prefetch)
{
    for (int j = 0; j < n; j += NR, b += panel) {
        tile_fn *f = add ? add_tiles[m][n - j >= NR] : fresh_tiles[m][n - j >= NR];
        const char *next = prefetch ? prefetch : (const void *)b;
        f(k, a, 1, lda, b, ldb, c + j, ldc, NULL, NULL, next);
    }
}
