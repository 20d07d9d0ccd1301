/*
 * tmpl_layer.h - what the products of a layer need besides tmpl_gemm.h: packing of
 * row-major matrices into panels, and the bias.
 */

/* One line of a panel of W floats from n >= 1 elements, src[at] and on. If the panel is
   narrower than a vector (MR = 12, VL = 16) the store runs into the next line, which is
   written later; only the last line must stop at its end (`last`). */
V void panel_line(const int W, float *dst, const void *src, int at, int n, ph_dtype type,
                  const int last)
{
    UNROLL
    for (int v = 0; v < W; v += VL) {
        int inside = ph_min(VL, W - v), part = ph_max(0, ph_min(n - v, VL));
        vec x = part > 0 ? load_part(src, type, at + v, part) : v_zero();
        if (last && inside < VL)
            v_store_n(dst + v, x, inside);
        else
            v_store(dst + v, x);
    }
}

/* Rows are too short for the hardware prefetchers. Prefetched into L2, more lines can be
   in flight than into L1. */
enum { PANEL_AHEAD = 8 };

V void pack_panels_of(const int W, float *dst, int64_t panel, const void *src,
                      int64_t stride, int k, int n, ph_dtype type)
{
    for (int kk = 0; kk < k; kk++) {
        const void *row = ph_at(src, type, kk * stride);
        float *to = dst + (int64_t)kk * W;
        for (int c = 0; c < n; c += W, to += panel) {
            /* full vectors may read columns of the next panel, never beyond n */
            int here = ph_round_up(W, VL);
            for (int f = 0; f < W; f += PH_LANES)
                __builtin_prefetch(ph_at(row, type, PANEL_AHEAD * stride + c + f), 0, 2);
            if (n - c < here) here = ph_min(n - c, W);
            if (kk < k - 1)
                panel_line(W, to, row, c, here, type, 0);
            else
                panel_line(W, to, row, c, here, type, 1);
        }
    }
}

static void pack_panels(float *dst, int width, int64_t panel, const void *src,
                        int64_t stride, int k, int n, ph_dtype type)
{
    if (width == NR)
        EACH_TYPE(type, pack_panels_of(NR, dst, panel, src, stride, k, n, TYPE))
    else if (type == PH_F32)
        pack_panels_of(MR, dst, panel, src, stride, k, n, PH_F32);
    else
        pack_panels_of(MR, dst, panel, src, stride, k, n, type);
}

static void add_rows(int m, int n, const float *x, float *y, int64_t ld)
{
    int c = 0;
    for (; c + VL <= n; c += VL) {
        vec add = v_load(x + c);
        for (int i = 0; i < m; i++)
            v_store(y + i * ld + c, v_add(v_load(y + i * ld + c), add));
    }
    if (c == n) return;
    vec add = v_load_n(x + c, n - c);
    for (int i = 0; i < m; i++)
        v_store_n(y + i * ld + c, v_add(v_load_n(y + i * ld + c, n - c), add), n - c);
}
