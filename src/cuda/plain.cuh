/*
 * plain.cuh - what the plain kernels share: f32 FFMA on tiles of 64 rows by 64 keys.
 *
 * Two products make all of them. `multiply` gives a tile of scores, a b^T over the head
 * dim; `accumulate` adds a tile of weights times 64 rows to an output of 64 rows by 128
 * columns that stays in registers. Wider outputs are cut into columns, and each CTA
 * recomputes the scores it needs.
 *
 * Same bits. A sum over the head dim is one chain of fused multiply-adds, so is a sum
 * over keys or rows between two rescales; the running maximum is looked at every 64 keys,
 * at absolute positions. A row's result therefore depends on what the row sees alone.
 *
 * Masked NaN/Inf. A hidden pair has the weight -0, which no visible pair has. Multiplying
 * by it changes nothing while the other factor is finite; where a panel holds a NaN or
 * Inf, hidden pairs are stepped over instead, in the same order.
 */
#ifndef PH_CUDA_PLAIN_CUH
#define PH_CUDA_PLAIN_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "cuda/copy_async.cuh"
#include "cuda/cuda_call.h"
#include "cuda/visible.cuh"

enum {
    TILE = 64,          /* rows, and keys, of a tile */
    DEPTH = 16,         /* terms of a sum that are in shared memory at once */
    COLUMNS = 128,      /* of an output tile */
    THREADS = 256,      /* 16 x 16: thread (y, x) owns rows y + 16 i and keys x + 16 j */
    LD = TILE + 4,      /* of weights: rows of 16 bytes stay aligned, banks apart */
    STEP_LD = DEPTH + 4 /* of operands of multiply */
};

#define LOG2E 1.4426950408889634f
#define LN2   0.6931471805599453

/* ---- elements ---- */

static __device__ __forceinline__ float load(const void *base, ph_dtype type, int64_t at)
{
    if (type == PH_F32) return ((const float *)base)[at];
    if (type == PH_F16) return __half2float(((const __half *)base)[at]);
    return __bfloat162float(((const __nv_bfloat16 *)base)[at]);
}

/* Four neighbours, aligned. */
static __device__ __forceinline__ float4 load4(const void *base, ph_dtype type,
                                               int64_t at)
{
    if (type == PH_F32) return *(const float4 *)((const float *)base + at);
    uint2 bits = *(const uint2 *)((const uint16_t *)base + at);
    float2 low, high;
    if (type == PH_F16) {
        low = __half22float2(*(const __half2 *)&bits.x);
        high = __half22float2(*(const __half2 *)&bits.y);
    } else {
        low = __bfloat1622float2(*(const __nv_bfloat162 *)&bits.x);
        high = __bfloat1622float2(*(const __nv_bfloat162 *)&bits.y);
    }
    return make_float4(low.x, low.y, high.x, high.y);
}

static __device__ __forceinline__ void store(void *base, ph_dtype type, int64_t at,
                                             float x)
{
    if (type == PH_F32)
        ((float *)base)[at] = x;
    else if (type == PH_F16)
        ((__half *)base)[at] = __float2half_rn(x);
    else
        ((__nv_bfloat16 *)base)[at] = __float2bfloat16_rn(x);
}

static __device__ __forceinline__ float hidden_weight()
{
    return -0.0f;
}

static __device__ __forceinline__ int is_hidden(float weight)
{
    return __float_as_uint(weight) == 0x80000000u;
}

/* Visible, so never -0. */
static __device__ __forceinline__ float visible_weight(float weight)
{
    return __fadd_rn(weight, 0.0f);
}

/* ---- which keys a row sees ---- */

static __device__ __forceinline__ int64_t broadcast_row(const ph_attn &a,
                                                        const ph_broadcast &s, int batch,
                                                        int head, int token)
{
    int64_t b = s.batch == 1 ? 0 : batch, h = s.heads == 1 ? 0 : head;
    return ((b * s.heads + h) * s.q_len + (s.q_len == 1 ? 0 : token)) * a.kv_len;
}

/* By what is not a position: visible, a bias of -inf. */
static __device__ __forceinline__ int is_excluded(const ph_cuda_call &c, int batch,
                                                  int head, int token, int key)
{
    const ph_attn &a = c.attn;
    const ph_args &args = c.args;
    if (!c.modified) return 0;
    if (args.visible &&
        !args.visible[broadcast_row(a, a.visible, batch, head, token) + key])
        return 1;
    return args.bias &&
           args.bias[broadcast_row(a, a.bias, batch, head, token) + key] == -INFINITY;
}

/* ---- scores ---- */

/* A finite bias must not exclude. */
static __device__ __forceinline__ float add_bias(float s, float bias)
{
    float sum = fmaf(bias, LOG2E, s);
    if (bias == -INFINITY) return -INFINITY;
    return sum < -FLT_MAX ? -FLT_MAX : sum;
}

/* cap * tanh(s / cap) and its derivative, which far out has digits of its own only as a
   function of exp(-2 |s / cap|). */
static __device__ inline float softcap(float s, float cap, float *derivative)
{
    float x = s / cap, e = exp2f(fabsf(x) * (-2 * LOG2E)), both = 1 + e;
    float t = tanhf(x);
    *derivative = fabsf(x) < 0.6f ? fmaf(-t, t, 1.0f) : 4 * e / (both * both);
    return cap * t;
}

/* The score of a visible pair from scale2 * q.k. */
static __device__ inline float score(const ph_cuda_call &c, int64_t offset, int batch,
                                     int head, int token, int key, float s,
                                     float *derivative)
{
    const ph_attn &a = c.attn;
    const ph_args &args = c.args;
    int64_t distance = key - (token + offset);
    *derivative = 1;
    if (!c.modified) return s;
    if (args.bias)
        s = add_bias(s, args.bias[broadcast_row(a, a.bias, batch, head, token) + key]);
    if (args.relative) {
        int64_t reach = a.reach, d = min(max(distance, -reach), reach);
        s = add_bias(s, args.relative[head * (2 * reach + 1) + reach + d]);
    }
    if (args.alibi) s = fmaf(-args.alibi[head] * LOG2E, fabsf((float)distance), s);
    return a.softcap > 0 ? softcap(s, c.cap2, derivative) : s;
}

static __device__ __forceinline__ float drop_factor(const ph_cuda_call &c, uint64_t seed,
                                                    int key)
{
    if (!c.drop_limit) return 1;
    return ph_rng_at(seed, (uint32_t)key) < c.drop_limit ? 0 : c.drop_keep;
}

/* ---- matrices ---- */

/* The rows of one head in one batch row; only [0, rows) are read. */
struct matrix {
    const void *base;
    ph_dtype type;
    int64_t stride;
    int rows, columns;
    int quads;    /* 1: four elements at a time are aligned */
    int page_len; /* 0: rows are one stride apart */
    int page_count;
    const int32_t *pages; /* of the batch row */
    int64_t page_stride;
};

/* From element `start` of a tensor on. */
static __device__ inline matrix matrix_of(const void *base, ph_dtype type, int64_t start,
                                          int64_t stride, int rows, int columns)
{
    const char *at = (const char *)base + start * (type == PH_F32 ? 4 : 2);
    int quads = columns % 4 == 0 && stride % 4 == 0 &&
                (uintptr_t)at % (type == PH_F32 ? 16 : 8) == 0;
    matrix m = {at, type, stride, rows, columns, quads, 0, 0, 0, 0};
    return m;
}

/* k or v of one head. */
static __device__ inline matrix keys_of(const ph_cuda_call &c, const void *base,
                                        const ph_strides &s, int batch, int head,
                                        const extent &e, int columns)
{
    const ph_attn &a = c.attn;
    int paged = a.page_len > 0;
    matrix m = matrix_of(base, a.dtype, start_of(s, paged ? 0 : batch, head, e.kv_first),
                         s.time, e.kv_len, columns);
    if (!paged) return m;
    m.page_len = a.page_len, m.page_count = a.pages, m.page_stride = s.batch;
    m.pages = c.args.page_table + (int64_t)batch * c.table_len;
    m.quads = m.quads && s.batch % 4 == 0;
    return m;
}

/* Where a row begins. */
static __device__ __forceinline__ int64_t row_of(const matrix &m, int row)
{
    if (!m.page_len) return row * m.stride;
    int page = min(max(m.pages[row / m.page_len], 0), m.page_count - 1);
    return page * m.page_stride + row % m.page_len * m.stride;
}

static __device__ __forceinline__ float element(const matrix &m, int row, int column)
{
    if (row >= m.rows || column >= m.columns) return 0;
    return load(m.base, m.type, row_of(m, row) + column);
}

/* Four elements of a row to shared memory, where they are after copies_done and a barrier:
   without a detour through registers where type and layout allow it. */
static __device__ __forceinline__ void fetch(float *to, const matrix &m, int row,
                                             int column)
{
    int inside = row < m.rows && column < m.columns;
    int64_t at = inside ? row_of(m, row) + column : 0;
    if (m.quads && m.type == PH_F32) {
        copy_async(to, inside ? (const float *)m.base + at : m.base, inside ? 16 : 0);
        return;
    }
    float4 x = make_float4(0, 0, 0, 0);
    if (m.quads && inside) x = load4(m.base, m.type, at);
    if (!m.quads) {
        x.x = element(m, row, column), x.y = element(m, row, column + 1);
        x.z = element(m, row, column + 2), x.w = element(m, row, column + 3);
    }
    *(float4 *)to = x;
}

/* The head at work. In shared memory, because its operands would fill the registers. */
struct head_operands {
    int batch, head;
    extent e;
    matrix q, k, v, dout;
};

/* ---- shared memory of a CTA ---- */

struct __align__(16) memory
{
    union { /* two stages: one is computed with while the next one arrives */
        struct {
            float a[2][TILE][STEP_LD], b[2][TILE][STEP_LD]; /* operands of multiply */
        };
        float panel[2][DEPTH][COLUMNS]; /* of accumulate */
    };
    float weight[TILE][LD]; /* [summed over][place of the output's row] */
    head_operands at;
    /* The rows of the tile. */
    int lo[TILE], hi[TILE]; /* keys by position; lo >= hi: the row is not computed */
    float gate[TILE];       /* of the row's output */
    float lse2[TILE], delta[TILE];
    uint64_t seed[TILE]; /* of a row's dropout */
};

static __device__ inline void load_head(const ph_cuda_call &c, int batch, int head,
                                        memory &m)
{
    const ph_attn &a = c.attn;
    int k_head = head / (a.q_heads / a.k_heads), v_head = head / (a.q_heads / a.v_heads);
    __syncthreads(); /* the last head is still being read */
    if (threadIdx.x == 0) {
        extent e = extent_of(c, batch);
        head_operands &o = m.at;
        o.batch = batch, o.head = head, o.e = e;
        o.q = matrix_of(c.args.q, a.dtype, start_of(a.q, batch, head, e.q_first),
                        a.q.time, e.q_len, a.qk_dim);
        o.k = keys_of(c, c.args.k, a.k, batch, k_head, e, a.qk_dim);
        o.v = keys_of(c, c.args.v, a.v, batch, v_head, e, a.v_dim);
        o.dout = matrix_of(c.grads.dout, a.dtype, start_of(a.out, batch, head, e.q_first),
                           a.out.time, e.q_len, a.v_dim);
    }
    __syncthreads();
}

/* Tokens [first, first + TILE) of the head. In a backward pass, rows that saw no key are
   left out too. */
static __device__ inline void load_rows(const ph_cuda_call &c, int first, memory &m)
{
    int r = threadIdx.x, token = first + r, batch = m.at.batch, head = m.at.head;
    const extent &e = m.at.e;
    __syncthreads(); /* the rows of the last tile are still being read */
    if (r < TILE) {
        int64_t at = ((int64_t)batch * c.attn.q_heads + head) * c.attn.q_len + token;
        m.lo[r] = m.hi[r] = 0;
        m.gate[r] = token < e.q_len ? gate_of(c, e, batch, head, token) : 0;
        m.seed[r] = ph_rng_key(c.args.seed, batch, head, token);
        if (m.gate[r] != 0) interval(c.attn, e, token, &m.lo[r], &m.hi[r]);
        if (c.lse2 && token < e.q_len) {
            m.lse2[r] = c.lse2[at], m.delta[r] = c.delta[at];
            if (m.lse2[r] == INFINITY) m.lo[r] = m.hi[r] = 0;
        }
    }
    __syncthreads();
}

/* ---- products ---- */

/* Row, or key, of a tile that index i of a thread's registers stands for; n: y or x. */
static __device__ __forceinline__ int spread(int n, int i)
{
    return n + 16 * i;
}

/* Where weights of such a row lie, so that a thread reads its four as one float4. */
static __device__ __forceinline__ int place(int row)
{
    return row % 16 * 4 + row / 16;
}

static __device__ inline void fetch_step(memory &m, int stage, const matrix &a, int a0,
                                         const matrix &b, int b0, int d0)
{
    int r = threadIdx.x / (DEPTH / 4), d = threadIdx.x % (DEPTH / 4) * 4;
    fetch(&m.a[stage][r][d], a, a0 + r, d0 + d);
    fetch(&m.b[stage][r][d], b, b0 + r, d0 + d);
}

/* DEPTH terms of multiply, four at a time. */
static __device__ inline void multiply_step(const memory &m, int stage, float (&s)[4][4])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll 1
    for (int d = 0; d < DEPTH; d += 4) {
        float4 u[4];
#pragma unroll
        for (int i = 0; i < 4; i++) u[i] = *(const float4 *)&m.a[stage][spread(y, i)][d];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float4 v = *(const float4 *)&m.b[stage][spread(x, j)][d];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float sum = fmaf(u[i].x, v.x, s[i][j]);
                sum = fmaf(u[i].y, v.y, sum);
                sum = fmaf(u[i].z, v.z, sum);
                s[i][j] = fmaf(u[i].w, v.w, sum);
            }
        }
    }
}

/* s = a b^T: rows from a0 of a, keys from b0 of b. */
static __device__ inline void multiply(memory &m, const matrix &a, int a0,
                                       const matrix &b, int b0, float (&s)[4][4])
{
#pragma unroll
    for (int i = 0; i < 16; i++) s[i / 4][i % 4] = 0;
    if (a.columns > 0) fetch_step(m, 0, a, a0, b, b0, 0);
    for (int d0 = 0, stage = 0; d0 < a.columns; d0 += DEPTH, stage ^= 1) {
        copies_done();
        __syncthreads();
        if (d0 + DEPTH < a.columns) fetch_step(m, stage ^ 1, a, a0, b, b0, d0 + DEPTH);
        multiply_step(m, stage, s);
    }
    __syncthreads();
}

/* A tile as weights of accumulate: summed over keys, or over rows. */
static __device__ inline void keep_by_key(memory &m, const float (&g)[4][4])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int j = 0; j < 4; j++)
        *(float4 *)&m.weight[spread(x, j)][4 * y] =
            make_float4(g[0][j], g[1][j], g[2][j], g[3][j]);
}

static __device__ inline void keep_by_row(memory &m, const float (&g)[4][4])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
        *(float4 *)&m.weight[spread(y, i)][4 * x] =
            make_float4(g[i][0], g[i][1], g[i][2], g[i][3]);
}

/* DEPTH terms of accumulate. Columns 4x.. and 64 + 4x.. belong to thread x. */
template <bool FINITE, bool WIDE>
static __device__ inline void add_terms(const memory &m, int stage, int k0,
                                        float (&acc)[4][8])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll 4
    for (int k = 0; k < DEPTH; k++) {
        float4 w = *(const float4 *)&m.weight[k0 + k][4 * y];
        float4 u = *(const float4 *)&m.panel[stage][k][4 * x], v = u;
        if (WIDE) v = *(const float4 *)&m.panel[stage][k][COLUMNS / 2 + 4 * x];
        float left[4] = {w.x, w.y, w.z, w.w};
        float right[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (!FINITE && is_hidden(left[i])) continue;
#pragma unroll
            for (int j = 0; j < (WIDE ? 8 : 4); j++)
                acc[i][j] = fmaf(left[i], right[j], acc[i][j]);
        }
    }
}

enum { PANEL_ROWS = THREADS / (COLUMNS / 4) }; /* that all threads fetch at once */

static __device__ inline void fetch_panel(memory &mem, int stage, const matrix &m,
                                          int first, int c0)
{
    int column = threadIdx.x % (COLUMNS / 4) * 4, r = threadIdx.x / (COLUMNS / 4);
#pragma unroll
    for (int n = 0; n < DEPTH; n += PANEL_ROWS)
        fetch(&mem.panel[stage][r + n][column], m, first + r + n, c0 + column);
}

/* Whether what this thread has fetched holds a NaN or Inf. */
static __device__ inline int has_nonfinite(const memory &mem, int stage)
{
    int column = threadIdx.x % (COLUMNS / 4) * 4, r = threadIdx.x / (COLUMNS / 4),
        found = 0;
#pragma unroll
    for (int n = 0; n < DEPTH; n += PANEL_ROWS) {
        float4 x = *(const float4 *)&mem.panel[stage][r + n][column];
        found |= !(isfinite(x.x) && isfinite(x.y) && isfinite(x.z) && isfinite(x.w));
    }
    return found;
}

/* acc += weight^T m: TILE rows of m from m0 on, COLUMNS columns from c0 on. */
static __device__ inline void accumulate(memory &mem, const matrix &m, int m0, int c0,
                                         float (&acc)[4][8])
{
    int wide = m.columns - c0 > COLUMNS / 2;
    fetch_panel(mem, 0, m, m0, c0);
    for (int k0 = 0, stage = 0; k0 < TILE; k0 += DEPTH, stage ^= 1) {
        copies_done();
        int nonfinite = __syncthreads_or(has_nonfinite(mem, stage));
        if (k0 + DEPTH < TILE) fetch_panel(mem, stage ^ 1, m, m0 + k0 + DEPTH, c0);
        if (wide && nonfinite)
            add_terms<false, true>(mem, stage, k0, acc);
        else if (wide)
            add_terms<true, true>(mem, stage, k0, acc);
        else if (nonfinite)
            add_terms<false, false>(mem, stage, k0, acc);
        else
            add_terms<true, false>(mem, stage, k0, acc);
    }
    __syncthreads();
}

/* Column of the output that acc[][j] of this thread belongs to. */
static __device__ __forceinline__ int output_column(int c0, int j)
{
    return c0 + j / 4 * (COLUMNS / 2) + 4 * (threadIdx.x % 16) + j % 4;
}

/* Stores acc * factor as rows [first, rows) of a tensor whose row 0 is at `start`; fma
   makes -0 to +0. */
static __device__ inline void store_tile(void *base, ph_dtype type, int64_t start,
                                         int64_t stride, int first, int rows, int columns,
                                         int c0, float (&acc)[4][8],
                                         const float (&factor)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = first + spread(threadIdx.x / 16, i);
        int64_t at = start + row * stride;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int column = output_column(c0, j);
            if (row < rows && column < columns)
                store(base, type, at + column, fmaf(acc[i][j], factor[i], 0.0f));
        }
    }
}

#endif
