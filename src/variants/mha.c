/*
 * mha.c - multi-head attention; grouped and multi-query attention are its head counts.
 *
 *     out = softmax(scale * q k^T + bias) v        per head
 */
#include "attn/plan.h"
#include "variants/variants.h"

static ph_status setup(ph_plan *plan, const char *options)
{
    return ph_options_read(plan->ctx, "mha", options, NULL, 0);
}

const ph_variant ph_variant_mha = {
    .info = {.name = "mha",
             .options = "",
             .help = "multi-head attention; GQA and MQA by k_heads and v_heads",
             .tensors = ""},
    .setup = setup,
};
