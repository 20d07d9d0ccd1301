/*
 * entmax.c - sparse heads: alpha-entmax instead of softmax.
 *
 *     p_j = max((alpha-1) s_j - tau, 0)^(1/(alpha-1)),  sum_j p_j = 1      per row
 *
 * alpha = 2 is sparsemax; alpha -> 1 is softmax, and alpha = 1 runs as softmax. alpha is
 * an option, or learned per head, alpha = 1 + sigmoid(alpha_logit). lse of a call holds
 * tau.
 *
 * For alpha - 1 below MIN_EXPONENT the difference from softmax is less than rounding: an
 * option runs as softmax there, a learned alpha is clamped to 1 + MIN_EXPONENT.
 */
#include <math.h>

#include "attn/plan.h"
#include "variants/variants.h"

#define MIN_EXPONENT 0x1p-20

typedef struct entmax_state {
    double alpha; /* where there is no alpha_logit */
} entmax_state;

static ph_status setup(ph_plan *plan, const char *options)
{
    ph_variant_needs *needs = &plan->needs;
    entmax_state *s = (entmax_state *)needs->norm_state;
    s->alpha = 1.5;
    const ph_variant_option list[] = {
        {.key = "alpha", .number = &s->alpha, .least = 1, .most = 2}};
    PH_TRY(ph_options_read(plan->ctx, "entmax", options, list, 1));
    if (s->alpha - 1 < MIN_EXPONENT) return PH_OK; /* softmax */
    needs->power = 1;
    needs->shared |= 1u << needs->extras;
    needs->extra[needs->extras] = (ph_param){
        .name = "alpha_logit", .rank = 1, .dims = {plan->attn.q_heads}, .optional = 1};
    needs->learned = ++needs->extras;
    return PH_OK;
}

static ph_status setup_sparsemax(ph_plan *plan, const char *options)
{
    PH_TRY(ph_options_read(plan->ctx, "sparsemax", options, NULL, 0));
    ((entmax_state *)plan->needs.norm_state)->alpha = 2;
    plan->needs.power = 1;
    return PH_OK;
}

static const float *logits(const ph_call *call)
{
    int learned = call->plan->needs.learned;
    return learned && call->args->extra ? call->args->extra[learned - 1] : NULL;
}

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double alpha(const ph_call *call, int head)
{
    const float *logit = logits(call);
    return logit ? 1 + fmax(sigmoid(logit[head]), MIN_EXPONENT)
                 : ((const entmax_state *)call->plan->needs.norm_state)->alpha;
}

static void alpha_gradient(const ph_call *call, int head, double dalpha,
                           float *const *dextra)
{
    double share = sigmoid(logits(call)[head]);
    dextra[call->plan->needs.learned - 1][head] += (float)(dalpha * share * (1 - share));
}

const ph_variant ph_variant_entmax = {
    .info =
        {.name = "entmax",
         .options = "entmax:alpha=A (1 to 2, default 1.5)",
         .help =
             "sparse weights: alpha-entmax instead of softmax, alpha fixed or learned",
         .tensors = "alpha_logit (q_heads) optional: alpha = 1 + sigmoid(alpha_logit)"},
    .setup = setup,
    .alpha = alpha,
    .alpha_gradient = alpha_gradient,
};

const ph_variant ph_variant_sparsemax = {
    .info = {.name = "sparsemax",
             .options = "",
             .help = "entmax with alpha = 2: projection onto the simplex",
             .tensors = ""},
    .setup = setup_sparsemax,
    .alpha = alpha,
};
