/*
 * gemm_deep.c - products over very many k, some of them at a time.
 *
 * In dw = x^T dy the chain runs over tokens, and what a product packs grows with them. A
 * chain can be left and taken up again where c holds what it has come to, so the list
 * runs piece by piece: the same sums in the same order, in room that does not grow.
 */
#include "base/base.h"
#include "kernels/gemm.h"

enum { PIECE = 1024 }; /* steps of k */

/* Products that sum over the rows of a; what they give is float. */
static int is_deep(const ph_gemm *g)
{
    int turned = g->a_row == 1 && g->a_col != 1 && g->b_col == 1;
    return turned && g->k > PIECE && g->c_type == PH_F32;
}

/* The products of the list that have a piece from k0 on. */
static int cut(const ph_gemm *list, int count, int k0, ph_gemm *to)
{
    int n = 0, last = -1;
    for (int i = 0; i < count; i++) {
        ph_gemm *g = &to[n];
        if (k0 && (!is_deep(&list[i]) || list[i].k <= k0)) continue;
        *g = list[i];
        g->same_a = list[i].same_a && last == i - 1;
        last = i, n++;
        if (!is_deep(&list[i])) continue;
        g->k = ph_min(list[i].k - k0, PIECE);
        if (g->a) g->a = ph_at(g->a, g->a_type, k0 * g->a_col);
        if (g->b) g->b += k0 * g->b_row;
        if (k0) g->add = 1;
        if (k0 + g->k < list[i].k) g->bias = NULL;
    }
    return n;
}

size_t ph_gemm_deep_bytes(const ph_ctx *ctx, const ph_gemm *list, int count)
{
    ph_gemm part[PH_GEMM_MAX];
    return ph_gemm_bytes(ctx, part, cut(list, count, 0, part));
}

void ph_gemm_run_deep(ph_ctx *ctx, const ph_gemm *list, int count, void *workspace)
{
    ph_gemm part[PH_GEMM_MAX];
    for (int k0 = 0, n; (n = cut(list, count, k0, part)) > 0; k0 += PIECE)
        ph_gemm_run(ctx, part, n, workspace);
}
