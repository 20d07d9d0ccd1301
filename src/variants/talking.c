/*
 * talking.c - talking heads: static mixing of the heads before and after the softmax.
 *
 *     u[to] = sum_from s[from] w_logits[from][to]       p = softmax(u + bias, mask)
 *     a[to] = sum_from p[from] w_weights[from][to]      out[h] = sum_j a_j[h] v_j[h]
 *
 * With two identity matrices it is mha.
 */
#include <string.h>

#include "attn/plan.h"
#include "variants/variants.h"

static ph_status setup(ph_plan *plan, const char *options)
{
    ph_variant_needs *needs = &plan->needs;
    int heads = plan->attn.q_heads;
    PH_TRY(ph_options_read(plan->ctx, "talking", options, NULL, 0));
    needs->extra[0] = (ph_param){.name = "w_logits", .rank = 2, .dims = {heads, heads}};
    needs->extra[1] = (ph_param){.name = "w_weights", .rank = 2, .dims = {heads, heads}};
    needs->extras = 2; /* one per mix: the setup of a variant that mixes runs first */
    needs->shared = 3;
    needs->mix[PH_LOGITS] = needs->mix[PH_WEIGHTS] = 1;
    return PH_OK;
}

static void row_matrix(const ph_call *call, ph_mix_at place, int batch, int token,
                       float *c)
{
    size_t heads = (size_t)call->attn->q_heads;
    (void)batch, (void)token;
    memcpy(c, call->args->extra[place], heads * heads * sizeof *c);
}

static void row_gradient(const ph_call *call, ph_mix_at place, int batch, int token,
                         const float *dc, float *const *dextra)
{
    int heads = call->attn->q_heads;
    (void)batch, (void)token;
    for (int i = 0; dextra[place] && i < heads * heads; i++) dextra[place][i] += dc[i];
}

const ph_variant ph_variant_talking = {
    .info = {.name = "talking",
             .options = "",
             .help = "talking heads: heads are mixed before and after the softmax",
             .tensors = "w_logits (q_heads, q_heads) mixes the logits, [from][to]\n"
                        "w_weights (q_heads, q_heads) mixes the weights, [from][to]"},
    .setup = setup,
    .row_matrix = row_matrix,
    .row_gradient = row_gradient,
};
