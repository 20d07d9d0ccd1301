/*
 * mha.c - plain multi-head attention; grouped and multi-query are its head counts.
 *
 *     out = softmax(scale * q k^T + bias) v        per head
 */
#include "attn/plan.h"
#include "variants/variants.h"

static ph_status setup(ph_plan *plan, const char *options)
{
    if (options[0])
        return ph_fail(plan->ctx, PH_BAD_ARGUMENT,
                       "variant mha has no options, found \"%s\"", options);
    return PH_OK;
}

const ph_variant ph_variant_mha = {
    .info = {.name = "mha",
             .options = "",
             .help = "plain multi-head attention; GQA and MQA by k_heads and v_heads",
             .tensors = ""},
    .setup = setup,
};
