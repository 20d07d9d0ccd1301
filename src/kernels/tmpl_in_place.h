/*
 * tmpl_in_place.h - scores of few query rows against row-major keys in place, written
 * once in the vector vocabulary.
 *
 * With few rows, packing a panel of keys costs more than the product with it. Here a
 * square of keys is transposed in registers and multiplied at once. bf16 goes through the
 * shuffles in pairs, as one lane of 32 bits.
 */

enum {
    LINE = 64,    /* bytes of a cache line */
    LOAD_ROWS = 2 /* most rows that are memory-bound */
};

/* Elements of each key in a square */
#define SQUARE(type) ((type) == PH_BF16 ? 2 * VL : VL)

/* n elements from `at` on, the rest 0; bf16 stays in pairs */
V vec load_square_row(const char *row, const ph_dtype type, int at, int n)
{
    if (type != PH_BF16) return load_part(row, type, at, n);
    const uint16_t *p = (const uint16_t *)(const void *)row + at;
    uint16_t part[2 * VL];
    if (n < 2 * VL) {
        for (int i = 0; i < 2 * VL; i++) part[i] = i < n ? p[i] : 0;
        p = part;
    }
    return v_load_pairs(p);
}

/* sums[i * step] += a[i][at..at + n) times the same elements of VL keys */
V void add_square(const int M, const ph_dtype type, const char *const *keys, int at,
                  int n, const float *a, int64_t lda, vec *sums, const int step)
{
    const int both = type == PH_BF16 ? 2 : 1;
    vec r[VL];
    UNROLL
    for (int i = 0; i < VL; i++) r[i] = load_square_row(keys[i], type, at, n);
    v_transpose(r);
    UNROLL
    for (int c = 0; c < VL; c++) UNROLL
    for (int h = 0; h < both; h++) {
        const int d = c * both + h;
        vec right = both == 1 ? r[c] : h ? v_high_bf16(r[c]) : v_low_bf16(r[c]);
        if (d >= n) continue;
        UNROLL
        for (int i = 0; i < M; i++)
            sums[i * step] = v_fma(v_set1(a[i * lda + at + d]), right, sums[i * step]);
    }
}

/* Brings rows [first, end) into cache, whole and in memory order, which hardware
   prefetchers follow; not so the order of squares, 16 keys a cache line at a time. Loads
   train them best but stall, so only rows that wait for memory anyway use them. */
V void bring_rows(int by_load, const char *rows, int64_t ld, int bytes, int first,
                  int end)
{
    for (int i = first; i < end; i++)
        for (int at = 0; at < bytes; at += LINE) {
            const char *line = (const char *)((uintptr_t)rows + (uintptr_t)(i * ld + at));
            if (by_load)
                (void)*(volatile const char *)line;
            else
                __builtin_prefetch(line);
        }
}

/* Prefetches the cache lines of a square that lies `distance` bytes further on. */
V void prefetch_lines(const char *const *keys, int bytes, int64_t distance)
{
    if (bytes % LINE) return;
    UNROLL
    for (int i = 0; i < PH_LANES; i++) __builtin_prefetch(keys[i] + bytes + distance);
}

/* Up to 16 keys, ldb bytes apart. */
typedef struct some_keys {
    const char *at; /* NULL: none */
    int count;
    int64_t ldb;
} some_keys;

/* M rows against up to 16 keys; beyond them the last key is repeated. Meanwhile the next
   keys are brought into cache, with each square some whole keys (in_order) or the same
   square of them. */
V void scores_of_16(const int M, const ph_dtype type, int in_order, some_keys b,
                    some_keys next, int k, const float *a, int64_t lda, float *s,
                    float *lane_max)
{
    const int bytes = k * (int)ph_dtype_size(type);
    const int squares = ph_max(ph_div_up(k, SQUARE(type)), 1); /* qk_dim may be 0 */
    const int step = ph_div_up(PH_LANES, squares), by_load = M <= LOAD_ROWS;
    const char *keys[PH_LANES];
    vec sums[FEW_ROWS * GROUP];
    int first = 0; /* of the next keys to bring */
    for (int i = 0; i < PH_LANES; i++) keys[i] = b.at + ph_min(i, b.count - 1) * b.ldb;
    UNROLL
    for (int i = 0; i < M * GROUP; i++) sums[i] = v_zero();
    int at = 0;
    for (; at + SQUARE(type) <= k; at += SQUARE(type), first += step) {
        if (in_order)
            bring_rows(by_load, next.at, next.ldb, bytes, first,
                       ph_min(first + step, next.count));
        else if (next.at)
            prefetch_lines(keys, at * (int)ph_dtype_size(type), next.at - b.at);
        UNROLL
        for (int g = 0; g < GROUP; g++)
            add_square(M, type, keys + g * VL, at, SQUARE(type), a, lda, sums + g, GROUP);
    }
    if (at < k) {
        if (in_order)
            bring_rows(by_load, next.at, next.ldb, bytes, first,
                       ph_min(first + step, next.count));
        UNROLL
        for (int g = 0; g < GROUP; g++)
            add_square(M, type, keys + g * VL, at, k - at, a, lda, sums + g, GROUP);
    }
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < GROUP; g++) {
        const vec sum = sums[i * GROUP + g];
        float *highest = lane_max + i * PH_LANES + g * VL;
        v_store(s + i * PH_STRIP_LD + g * VL, sum);
        v_store(highest, v_max(v_load(highest), sum));
    }
}

typedef void scores_16(int in_order, some_keys b, some_keys next, int k, const float *a,
                       int64_t lda, float *s, float *lane_max);

#define IN_PLACE(M, name, type)                                                          \
    static void in_place_##M##_##name(int in_order, some_keys b, some_keys next, int k,  \
                                      const float *a, int64_t lda, float *s,             \
                                      float *lane_max)                                   \
    {                                                                                    \
        scores_of_16(M, type, in_order, b, next, k, a, lda, s, lane_max);                \
    }
#define IN_PLACE_TYPES(M)                                                                \
    IN_PLACE(M, f32, PH_F32) IN_PLACE(M, f16, PH_F16) IN_PLACE(M, bf16, PH_BF16)
#define IN_PLACE_ENTRY(M)                                                                \
    {[PH_F32] = in_place_##M##_f32,                                                      \
     [PH_F16] = in_place_##M##_f16,                                                      \
     [PH_BF16] = in_place_##M##_bf16},
#if MR == 12
#define EACH_FEW_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#else
#define EACH_FEW_ROWS(X) X(1) X(2) X(3) X(4)
#endif
EACH_FEW_ROWS(IN_PLACE_TYPES)
static scores_16 *const in_place_tiles[FEW_ROWS + 1][3] = {{0},
                                                           EACH_FEW_ROWS(IN_PLACE_ENTRY)};

/* The keys from j of n on, which follow each other in memory, up to 16. */
V some_keys keys_from(const void *b, int64_t ldb, int j, int n)
{
    return (some_keys){(const char *)b + j * ldb, ph_min(n - j, PH_LANES), ldb};
}

static void scores_in_blocks(int in_order, int m, int n, int k, const float *a,
                             int64_t lda, const void *b, int64_t ldb, ph_dtype type,
                             const void *next, int next_keys, float *s, float *lane_max)
{
    const int64_t bytes = ldb * (int64_t)ph_dtype_size(type);
    const some_keys behind = {next, next ? next_keys : 0, bytes};
    if (in_order)
        bring_rows(m <= LOAD_ROWS, b, bytes, k * (int)ph_dtype_size(type), 0,
                   ph_min(n, PH_LANES));
    for (int j = 0; j < n; j += PH_LANES)
        for (int i = 0; i < m; i += FEW_ROWS)
            in_place_tiles[ph_min(m - i, FEW_ROWS)][type](
                in_order, keys_from(b, bytes, j, n),
                j + PH_LANES < n ? keys_from(b, bytes, j + PH_LANES, n) : behind, k,
                a + i * lda, lda, s + i * PH_STRIP_LD + j, lane_max + i * PH_LANES);
}

static void scores_in_place(int m, int n, int k, const float *a, int64_t lda,
                            const void *b, int64_t ldb, ph_dtype type, const void *next,
                            int next_keys, float *s, float *lane_max)
{
    scores_in_blocks(1, m, n, k, a, lda, b, ldb, type, next, next_keys, s, lane_max);
}

#if VL == 16
/* CPUs with AMX hide prefetches of squares even under one row: 84 % of the read bandwidth
   where loads in memory order give 72; on Zen 4 it is 31 and 65. */
static void scores_in_place_prefetched(int m, int n, int k, const float *a, int64_t lda,
                                       const void *b, int64_t ldb, ph_dtype type,
                                       const void *next, int next_keys, float *s,
                                       float *lane_max)
{
    scores_in_blocks(0, m, n, k, a, lda, b, ldb, type, next, next_keys, s, lane_max);
}
#endif
