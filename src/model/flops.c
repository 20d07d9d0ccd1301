/*
 * flops.c - floating-point operations of a model.
 */
#include "model/model.h"

/* Products of one sublayer over a text of `len` tokens; attention says what it does: what
   a mask hides or a router leaves out is not counted. */
static ph_status sublayer_flops(const ph_model *m, const ph_model_stack *stack,
                                const ph_sublayer *sublayer, int len, double *flops)
{
    ph_layer_desc d = ph_model_layer(m, stack, sublayer, 1, len, len);
    ph_layer *layer;
    if (sublayer->kind == PH_SUBLAYER_FEED) {
        for (int i = sublayer->first; i < sublayer->first + sublayer->count; i++)
            if (m->params[i].rank > 1) *flops += 2.0 * len * (double)m->params[i].count;
        return PH_OK;
    }
    if (sublayer->site < 0) return PH_OK;
    PH_TRY(ph_layer_create(&layer, m->ctx, &d));
    *flops += ph_layer_about(layer).flops;
    ph_layer_free(layer);
    return PH_OK;
}

static ph_status count_flops(const ph_model *m, int len, double *flops)
{
    if (!flops || len < 1 || len > m->config.max_len)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT,
                       "flops is NULL or len %d, expected 1 to %d tokens", len,
                       m->config.max_len);
    *flops = 0;
    if (m->output >= 0) *flops = 2.0 * len * (double)m->params[m->output].count;
    if (m->convolutions >= 0) /* of which the first has two frames for a row */
        *flops += 2.0 * len *
                  (2 * (double)m->params[m->convolutions].count +
                   (double)m->params[m->convolutions + 2].count);
    for (int s = 0; s < m->stack_count; s++)
        for (int i = 0; i < m->stacks[s].count; i++)
            PH_TRY(
                sublayer_flops(m, &m->stacks[s], &m->stacks[s].sublayers[i], len, flops));
    return PH_OK;
}

ph_status ph_model_flops(const ph_model *m, int len, double *flops)
{
    if (!m) return PH_BAD_ARGUMENT;
    return PH_WITHIN(m->ctx, count_flops(m, len, flops));
}
