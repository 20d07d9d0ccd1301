/*
 * gemm_prepack.c - matrices b whose panels are packed once, for as long as they live.
 *
 * Products find them by the address of b, so that nothing between a model and its
 * products needs to know. A list is short: some hundred matrices, against microseconds of
 * the smallest product that packs.
 */
#include "base/size.h"
#include "kernels/gemm_job.h"

/* Floats from one panel of nr columns to the next. */
static size_t panel_step(const ph_kernels *k, int depth)
{
    return (size_t)depth * (size_t)k->nr + PH_GEMM_PAD;
}

size_t ph_gemm_prepack_floats(const ph_ctx *ctx, int k, int n)
{
    size_t panels = (size_t)ph_div_up(n, ctx->kernels->nr);
    return panels * panel_step(ctx->kernels, k) + PH_PACK_SLACK;
}

/* One call, because packing a panel may overwrite the beginning of the next one. */
void ph_gemm_prepack(const ph_ctx *ctx, const ph_gemm *g, float *panels)
{
    ph_gemm_job j = {.g = g, .k = ctx->kernels};
    j.b_step = (int64_t)panel_step(ctx->kernels, g->k);
    ph_gemm_pack_b(&j, 0, g->n, 0, g->k, panels);
}

void ph_gemm_remember(ph_ctx *ctx, const ph_gemm *g, const float *panels,
                      ph_prepacked *entry)
{
    *entry = (ph_prepacked){g->b, g->b_type, g->n, g->k, g->b_row, panels, NULL};
    entry->next = ctx->prepacked;
    ctx->prepacked = entry;
}

void ph_gemm_forget(ph_ctx *ctx, const ph_prepacked *entry)
{
    ph_prepacked **at = &ctx->prepacked;
    while (*at && *at != entry) at = &(*at)->next;
    if (*at) *at = entry->next;
}

void ph_gemm_find_panels(ph_gemm_job *j, const ph_ctx *ctx)
{
    const ph_gemm *g = j->g;
    for (const ph_prepacked *p = ctx->prepacked; p; p = p->next) {
        if (p->b != g->b || p->type != g->b_type || p->n != g->n || p->k != g->k ||
            p->b_row != g->b_row || g->b_block)
            continue;
        j->panels = p->panels;
        j->panel_step = (int64_t)panel_step(j->k, g->k);
        return;
    }
}
