/*
 * tmpl_pack.h - packing and conversion, written once in the vector vocabulary.
 *
 * f16 and bf16 become f32 on the way in and are rounded on the way out; everything
 * between is f32. Parts of a row shorter than a vector go through a small buffer, so
 * nothing outside the row is touched.
 */

/* `call` with TYPE the constant that `type` is. */
#define WITH_TYPE(value, call)                                                           \
    {                                                                                    \
        const ph_dtype TYPE = value;                                                     \
        call;                                                                            \
    }
#define EACH_SMALL_TYPE(type, call)                                                      \
    switch (type) {                                                                      \
    case PH_F32: WITH_TYPE(PH_F32, call) break;                                          \
    case PH_F16: WITH_TYPE(PH_F16, call) break;                                          \
    case PH_BF16: WITH_TYPE(PH_BF16, call) break;                                        \
    case PH_Q8_0: WITH_TYPE(PH_Q8_0, call) break;                                        \
    case PH_Q4_0: WITH_TYPE(PH_Q4_0, call) break;                                        \
    default: WITH_TYPE(PH_Q4_1, call) break;                                             \
    }

/* K types too: not where each would be another copy of large code. */
#define EACH_TYPE(type, call)                                                            \
    switch (type) {                                                                      \
    case PH_Q4_K: WITH_TYPE(PH_Q4_K, call) break;                                        \
    case PH_Q5_K: WITH_TYPE(PH_Q5_K, call) break;                                        \
    case PH_Q6_K: WITH_TYPE(PH_Q6_K, call) break;                                        \
    default: EACH_SMALL_TYPE(type, call)                                                 \
    }

/* VL elements of a block of a K type from e on; all of them share a scale */
V vec load_from_k_block(const uint8_t *block, ph_dtype type, int e)
{
    const ph_k_bits at = ph_k_bits_of(type, e / 32);
    const vint low = vi_srl_by(vi_load_bytes(block + at.nibble + e % 32), at.shift);
    const vec s = v_set1_f16(block + ph_k_scale_at(type));
    vint n = vi_and(low, vi_set1(15));
    int a, b;
    ph_k_steps(type, block, e, &a, &b);
    if (type != PH_Q4_K) {
        vint high = vi_srl_by(vi_load_bytes(block + at.high + e % 32), at.high_shift);
        n = vi_and_xor(vi_sll(high, 4), vi_set1((uint32_t)at.high_mask << 4), n);
    }
    const vec scale = v_mul(s, v_set1((float)a));
    if (type == PH_Q6_K) return v_mul(v_sub(v_from_int(n), v_set1(32)), scale);
    return v_fma(v_from_int(n), scale, v_mul(v_set1_f16(block + 2), v_set1(-(float)b)));
}

/* VL elements of a row of blocks; all of them lie in one block */
V vec load_from_block(const void *src, ph_dtype type, int at)
{
    const uint8_t *block = ph_at(src, type, at);
    const int e = at % ph_quant_block(type), first = type == PH_Q4_1 ? 4 : 2;
    if (ph_dtype_is_k(type)) return load_from_k_block(block, type, e);
    const vec scale = v_set1_f16(block);
    if (type == PH_Q8_0) return v_mul(v_load_i8(block + first + e), scale);
    const vint bytes = vi_load_bytes(block + first + e % 16);
    const vec n = v_from_int(e < 16 ? vi_and(bytes, vi_set1(15)) : vi_srl(bytes, 4));
    if (type == PH_Q4_0) return v_mul(v_sub(n, v_set1(8)), scale);
    return v_fma(n, scale, v_set1_f16(block + 2));
}

/* n <= VL elements from src[at] on, the rest of the lanes 0; of a block type n is VL and
   at a multiple of it */
V vec load_part(const void *src, ph_dtype type, int at, int n)
{
    if (ph_dtype_is_block(type)) return load_from_block(src, type, at);
    if (type == PH_F32) {
        const float *p = (const float *)src + at;
        return n == VL ? v_load(p) : v_load_n(p, n);
    }
    const uint16_t *p = (const uint16_t *)src + at;
    uint16_t part[VL];
    if (n < VL) {
        for (int i = 0; i < VL; i++) part[i] = i < n ? p[i] : 0;
        p = part;
    }
    return type == PH_BF16 ? v_load_bf16(p) : v_load_f16(p);
}

V void store_part(void *dst, ph_dtype type, int at, int n, vec a)
{
    if (type == PH_F32) {
        float *p = (float *)dst + at;
        if (n == VL)
            v_store(p, a);
        else
            v_store_n(p, a, n);
        return;
    }
    uint16_t part[VL], *p = (uint16_t *)dst + at;
    uint16_t *to = n == VL ? p : part;
    if (type == PH_BF16)
        v_store_bf16(to, a);
    else
        v_store_f16(to, a);
    for (int i = 0; n < VL && i < n; i++) p[i] = part[i];
}

/* VL rows by VL columns, transposed: dst[c*ld + 0..VL) for c < k_count */
V void transpose_square(float *dst, int64_t ld, const void *const *rows, int count,
                        int at, int k_count, ph_dtype type, vec scale)
{
    vec r[VL];
    for (int i = 0; i < count; i++) /* too many streams for the hardware prefetchers */
        __builtin_prefetch(ph_at(rows[i], type, at + VL), 0, 2);
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        r[i] = i < count ? v_mul(load_part(rows[i], type, at, k_count), scale) : v_zero();
    if (count > 4)
        v_transpose(r);
    else
        v_transpose4(r);
    if (k_count == VL) {
#pragma GCC unroll 16
        for (int c = 0; c < VL; c++) v_store(dst + c * ld, r[c]);
    } else {
#pragma GCC unroll 16
        for (int c = 0; c < VL; c++)
            if (c < k_count) v_store(dst + c * ld, r[c]);
    }
}

/* The last square of a panel may be wider than the panel (MR = 12 with VL = 16, MR = 6
   with VL = 4) and then writes into the next line. So it goes first, lines follow in
   ascending order, and PH_PACK_SLACK floats must follow the panel. */
V void pack_panel_of(float *dst, int64_t ld, const void *const *rows, int count, int k,
                     ph_dtype type, float scale)
{
    const vec factor = v_set1(scale);
    for (int at = 0; at < k; at += VL)
        for (int r = ph_round_up((int)ld, VL) - VL; r >= 0; r -= VL)
            transpose_square(dst + at * ld + r, ld, rows + r, ph_min(count - r, VL), at,
                             ph_min(k - at, VL), type, factor);
}

static void pack_panel(float *dst, int64_t ld, const void *const *rows, int count, int k,
                       ph_dtype type, float scale)
{
    EACH_TYPE(type, pack_panel_of(dst, ld, rows, count, k, TYPE, scale));
}

V void load_row_of(float *dst, const void *src, int at, int n, ph_dtype type, float scale)
{
    const vec factor = v_set1(scale);
    int c = 0;
    for (; c + VL <= n; c += VL)
        v_store(dst + c, v_mul(load_part(src, type, at + c, VL), factor));
    if (c < n) { /* zeros first: 0 * scale may be -0 */
        v_store(dst + c, v_zero());
        v_store_n(dst + c, v_mul(load_part(src, type, at + c, n - c), factor), n - c);
        c += VL;
    }
    for (; c % PH_LANES; c += VL) v_store(dst + c, v_zero());
}

static void load_row(float *dst, const void *src, int64_t at, int n, ph_dtype type,
                     float scale)
{
    EACH_TYPE(type, load_row_of(dst, ph_at(src, TYPE, at),
                                (int)(at % ph_quant_block(TYPE)), n, TYPE, scale));
}

V void pack_row_major_of(float *dst, int64_t ld, const void *const *rows, int count,
                         int n, ph_dtype type, float scale)
{
    for (int r = 0; r < count; r++) load_row_of(dst + r * ld, rows[r], 0, n, type, scale);
}

static void pack_row_major(float *dst, int64_t ld, const void *const *rows, int count,
                           int n, ph_dtype type, float scale)
{
    EACH_SMALL_TYPE(type, pack_row_major_of(dst, ld, rows, count, n, TYPE, scale));
}

static void store_row(void *dst, const float *src, int n, ph_dtype type, float scale)
{
    const vec factor = v_set1(scale), zero = v_zero();
    for (int c = 0; c < n; c += VL) {
        int part = ph_min(n - c, VL);
        vec x = part == VL ? v_load(src + c) : v_load_n(src + c, part);
        store_part(dst, type, c, part, v_fma(x, factor, zero));
    }
}

/* x * 0 is 0 for finite x and NaN otherwise */
static int finite(const float *x, int64_t ld, int rows, int n)
{
    const vec zero = v_zero();
    vec bad[GROUP];
    for (int v = 0; v < GROUP; v++) bad[v] = zero;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < n; c += PH_LANES)
            for (int v = 0; v < GROUP; v++)
                bad[v] = v_fma(v_load(x + r * ld + c + v * VL), zero, bad[v]);
    return v_sum16(bad) == 0;
}
