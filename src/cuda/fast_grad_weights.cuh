/*
 * fast_grad_weights.cuh - p and ds of a block in the backward pass on tensor cores, in the
 * accumulators of wgmma.
 */
#ifndef PH_CUDA_FAST_GRAD_WEIGHTS_CUH
#define PH_CUDA_FAST_GRAD_WEIGHTS_CUH

#include "cuda/fast_grad_tiles.cuh"
#include "cuda/fast_softmax.cuh"

/* What is known of rows: of the thread's two owned ones, or of walked ones in shared
   memory. */
struct grad_rows {
    float lse2[2], delta[2], gate[2];
    uint64_t seed[2];
    uint32_t walked;
};

/* That of the rows of elements x to x + 3. */
template <class T>
DEVICE void rows_of(const grad_rows &rows, row_number which, const float (&owned)[2],
                    int x, float (&four)[4])
{
    four[0] = four[1] = owned[0], four[2] = four[3] = owned[1];
    if (!T::OWNS_KEYS) return;
    const uint32_t at = rows.walked + which * (T::BLOCK * 4) + thread_now() % 4 * 8;
    const float2 two = *(const float2 *)shared_pointer(at + x / 4 * 32);
    four[0] = four[2] = two.x, four[1] = four[3] = two.y;
}

/* The thread's first owned one, in the tile; the other is 8 further on. */
template <class T> DEVICE int first_owned()
{
    const int thread = (int)thread_now() - PH_WARPGROUP;
    const int group = T::SHARES ? 0 : thread / PH_WARPGROUP;
    return group * 64 + ph_fragment_row(thread % PH_WARPGROUP, 0);
}

/* The walked one of its first column. */
template <class T> DEVICE int first_walked(int block)
{
    return block * T::BLOCK + (int)thread_now() % 4 * 2;
}

/* Marks hidden pairs. In a clean item all pairs of rows that are not computed are such,
   too. */
template <class T, int N>
DEVICE void hide_pairs(const grad_item &it, const grad_rows &rows, int block,
                       float (&s)[N], float hidden)
{
    const int first = first_walked<T>(block), on = first_owned<T>();
    int lo[2], hi[2];
    if (!it.clean && !is_grad_edge<T>(it, block)) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int n = on + 8 * i;
        lo[i] = min(it.lo + n, it.walked) - first;
        hi[i] = min(it.hi + n, it.walked) - first;
        if (it.first + n >= it.owned || (!T::OWNS_KEYS && rows.lse2[i] == INFINITY))
            hi[i] = lo[i];
    }
    hide(s, lo, hi, hidden);
#pragma unroll
    for (int x = 0; x < N && T::OWNS_KEYS && it.clean; x += 4) {
        float lse2[4];
        rows_of<T>(rows, ROW_LSE2, rows.lse2, x, lse2);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (lse2[i] == INFINITY) s[x + i] = hidden;
    }
}

/* Scores in base 2, with ALiBi's. */
template <class T, int N>
DEVICE void add_alibi(const ph_cuda_call &c, const grad_item &it, int block, int head,
                      float (&s)[N])
{
    const float slope = __fmul_rn(-c.args.alibi[head], LOG2E);
    const int64_t offset = T::OWNS_KEYS ? -it.size.offset : it.size.offset;
    const float distance =
        (float)(first_walked<T>(block) - (it.first + first_owned<T>() + offset));
#pragma unroll
    for (int x = 0; x < N; x++)
        s[x] = __fmaf_rn(
            slope, fabsf(__fadd_rn(distance, (float)(x / 4 * 8 + x % 2 - x / 2 % 2 * 8))),
            __fmul_rn(s[x], c.scale2));
}

/* cap tanh(s / cap), and its derivative, which far out has digits of its own only as a
   function of e = exp(-2 |s / cap|). */
DEVICE float soft_capped(const ph_cuda_call &c, float s, float &derivative)
{
    const float e = exp2_of(__fmul_rn(fabsf(s), -c.cap_decay));
    const float u = reciprocal(__fadd_rn(1, e));
    derivative = __fmul_rn(__fmul_rn(4, e), __fmul_rn(u, u));
    return copysignf(__fmul_rn(c.cap2, __fmul_rn(__fsub_rn(1, e), u)), s);
}

/* Scores become p. */
template <class T, int N>
DEVICE void weigh_plain(const grad_rows &rows, float scale2, float (&s)[N])
{
#pragma unroll
    for (int x = 0; x < N; x += 4) {
        float lse2[4];
        rows_of<T>(rows, ROW_LSE2, rows.lse2, x, lse2);
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[x + i] = exp2_of(__fmaf_rn(s[x + i], scale2, -lse2[i]));
    }
}

/* The seed of a walked row, of the column of element x + i. */
template <class T> DEVICE uint64_t walked_seed(const grad_rows &rows, int x, int i)
{
    const uint32_t at = rows.walked + ROW_SEED * (T::BLOCK * 4) + thread_now() % 4 * 8 +
                        x / 4 * 32 + i % 2 * 4;
    return (uint32_t)load_shared(at) | (uint64_t)(uint32_t)load_shared(at + T::BLOCK * 4)
                                           << 32;
}

/* Pairs that are dropped: a bit each. Not unrolled, or seeds would fill the registers. */
template <class T>
DEVICE void draw_pairs(const ph_cuda_call &c, const grad_item &it, const grad_rows &rows,
                       int block, uint32_t (&dropped)[T::DROPPED])
{
    const int walked = first_walked<T>(block), owned = it.first + first_owned<T>();
#pragma unroll
    for (int word = 0; word < T::DROPPED; word++) {
        uint32_t bits = 0;
#pragma unroll 1
        for (int x = 32 * word; x < min(32 * word + 32, T::BLOCK / 2); x += 4) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint64_t seed =
                    T::OWNS_KEYS ? walked_seed<T>(rows, x, i) : rows.seed[i / 2];
                const int key = T::OWNS_KEYS ? owned + i / 2 * 8 : walked + 2 * x + i % 2;
                bits |= (uint32_t)(ph_rng_at(seed, (uint32_t)key) < c.drop_limit)
                        << (x % 32 + i);
            }
        }
        dropped[word] = bits;
    }
}

/* Dropped weights become 0; what the others grow by comes when dv is stored. */
template <class T>
DEVICE void drop_weights_of(const uint32_t (&dropped)[T::DROPPED],
                            uint32_t (&weights)[T::BLOCK / 4])
{
#pragma unroll
    for (int x = 0; x < T::BLOCK / 4; x++) {
        const uint32_t two = dropped[x / 16] >> x % 16 * 2;
        if (two & 1) weights[x] &= 0xffff0000;
        if (two & 2) weights[x] &= 0xffff;
    }
}

/* p as the operand that is multiplied with dout: times the gate. */
template <class T, class TYPE, int N>
DEVICE void pack_weights(TYPE type, const ph_cuda_call &c, const grad_rows &rows,
                         const float (&p)[N], uint32_t (&weights)[N / 2])
{
#pragma unroll
    for (int x = 0; x < N; x += 4) {
        float gate[4] = {1, 1, 1, 1};
        if (T::MODIFIES && c.args.gate) rows_of<T>(rows, ROW_GATE, rows.gate, x, gate);
        weights[x / 2] =
            packed(type, __fmul_rn(p[x], gate[0]), __fmul_rn(p[x + 1], gate[1]));
        weights[x / 2 + 1] =
            packed(type, __fmul_rn(p[x + 2], gate[2]), __fmul_rn(p[x + 3], gate[3]));
    }
}

/* With a soft-cap scores become p times its derivative; hidden pairs have -inf. */
template <class T, class TYPE, int N>
DEVICE void weigh_capped(TYPE type, const ph_cuda_call &c, const grad_rows &rows,
                         float scale2, float (&s)[N], uint32_t (&weights)[N / 2])
{
#pragma unroll
    for (int x = 0; x < N; x += 4) {
        float lse2[4], gate[4], p[4], derivative;
        rows_of<T>(rows, ROW_LSE2, rows.lse2, x, lse2);
        rows_of<T>(rows, ROW_GATE, rows.gate, x, gate);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float t = soft_capped(c, __fmul_rn(s[x + i], scale2), derivative);
            p[i] = s[x + i] == -INFINITY ? 0 : exp2_of(__fsub_rn(t, lse2[i]));
            s[x + i] = p[i] == 0 ? 0 : __fmul_rn(p[i], derivative);
            p[i] = __fmul_rn(p[i], gate[i]);
            pin(p[i]), pin(s[x + i]); /* not all at once: registers are short */
        }
        weights[x / 2] = packed(type, p[0], p[1]);
        weights[x / 2 + 1] = packed(type, p[2], p[3]);
    }
}

/* Scores become p times the derivative of the soft-cap, and `weights`, by which dout is
   multiplied. */
template <class T, class TYPE, int N>
DEVICE void weigh_pairs(TYPE type, const ph_cuda_call &c, const grad_item &it,
                        const grad_rows &rows, int block, int head, float (&s)[N],
                        uint32_t (&weights)[N / 2])
{
    float scale2 = c.scale2;
    if (T::MODIFIES && c.args.alibi) {
        add_alibi<T>(c, it, block, head, s);
        scale2 = 1;
    }
    if (T::CAPS && c.attn.softcap > 0) {
        hide_pairs<T>(it, rows, block, s, -INFINITY);
        weigh_capped<T>(type, c, rows, scale2, s, weights);
        return;
    }
    weigh_plain<T>(rows, scale2, s);
    hide_pairs<T>(it, rows, block, s, 0);
    if (T::OWNS_KEYS) pack_weights<T>(type, c, rows, s, weights);
}

/* dp becomes ds. In a clean item hidden pairs have none, whatever delta or dp is. */
template <class T, int N>
DEVICE void center_pairs(const ph_cuda_call &c, const grad_item &it,
                         const grad_rows &rows, const float (&p)[N],
                         const uint32_t (&dropped)[T::DROPPED], float (&dp)[N])
{
#pragma unroll
    for (int x = 0; x < N && T::DROPS; x++)
        dp[x] = dropped[x / 32] >> x % 32 & 1 ? 0 : __fmul_rn(dp[x], c.drop_keep);
#pragma unroll
    for (int x = 0; x < N && T::MODIFIES && c.args.gate; x += 4) {
        float gate[4];
        rows_of<T>(rows, ROW_GATE, rows.gate, x, gate);
#pragma unroll
        for (int i = 0; i < 4; i++) dp[x + i] = __fmul_rn(dp[x + i], gate[i]);
    }
#pragma unroll
    for (int x = 0; x < N; x += 4) {
        float delta[4];
        rows_of<T>(rows, ROW_DELTA, rows.delta, x, delta);
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[x + i] = __fmul_rn(p[x + i], __fsub_rn(dp[x + i], delta[i]));
    }
    if (!it.clean) return;
#pragma unroll
    for (int x = 0; x < N; x++)
        if (p[x] == 0) dp[x] = 0;
}

#endif
