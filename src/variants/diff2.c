/*
 * diff2.c - differential attention, second version: no norm, one lambda for every token
 * and pair.
 *
 * 2h heads of q in pairs (2m, 2m + 1) over ordinary heads of k and v:
 *
 *     out_m = heads_2m - lambda_m heads_2m+1        lambda = sigmoid(x w_lambda)
 *
 * Backward, z = x w_lambda: dheads_2m = dout, dheads_2m+1 = -lambda dout,
 * dz = -(dout . heads_2m+1) lambda (1 - lambda).
 */
#include <string.h>

#include "variants/kind.h"

enum { Z }; /* saved: (rows, h) logits */

typedef struct diff2_state {
    ph_linear z;
} diff2_state;

static const ph_linear *logits_of(const ph_kind_call *c)
{
    return &((const diff2_state *)c->shape->state)->z;
}

static ph_status shape(ph_shape *s, const char *options)
{
    diff2_state *own = (diff2_state *)s->state;
    const ph_attn *given = &s->given->attn;
    ph_attn *a = &s->attn;
    PH_TRY(ph_options_read(s->ctx, "diff2", options, NULL, 0));
    int pairs = a->q_heads / 2;
    if (a->q_heads % 2)
        return ph_fail(s->ctx, PH_BAD_SHAPE,
                       "q_heads is %d, expected an even number with variant diff2",
                       a->q_heads);
    if (!given->k_heads) a->k_heads = s->k.heads = pairs;
    if (!given->v_heads) a->v_heads = s->v.heads = pairs;
    if (pairs % a->v_heads)
        return ph_fail(s->ctx, PH_BAD_SHAPE,
                       "v_heads is %d, expected a divisor of the %d pairs of q heads",
                       a->v_heads, pairs);
    own->z = (ph_linear){.columns = pairs, .buffer = Z};
    ph_shape_param(s, "w_lambda", 0, s->desc->model_dim, pairs, 0, 0);
    ph_shape_linears(s, &own->z, 1);
    s->out_heads = pairs;
    s->makes_out = 1;
    return PH_OK;
}

static void project(ph_kind_call *c)
{
    ph_kind_linears(c, logits_of(c), 1);
}

static void project_backward(ph_kind_call *c)
{
    ph_kind_linears_backward(c, logits_of(c), 1);
}

/* ---- pairs ------------------------------------------------------------------------- */

/* Of the first pair of the slice. */
static int64_t logit_at(const ph_kind_call *c, int row)
{
    return (int64_t)row * c->shape->out_heads + c->first_out;
}

static void combine(ph_kind_call *c, int row)
{
    int pairs = c->out_heads, n = c->shape->out_dim;
    const float *heads = c->heads + row * c->heads_row;
    const float *logits = c->saved[Z] + logit_at(c, row);
    float *out = c->out + (int64_t)row * pairs * n, lambda;
    for (int m = 0; m < pairs; m++, heads += 2 * n, out += n) {
        ph_kind_sigmoid(c->ctx, 1, logits + m, &lambda);
        for (int i = 0; i < n; i++) out[i] = heads[i] - lambda * heads[n + i];
    }
}

static void no_token(ph_kind_call *c, int row)
{
    size_t n = (size_t)c->out_heads * (size_t)c->shape->out_dim;
    memset(c->out + (size_t)row * n, 0, n * sizeof(float));
}

static void after(ph_kind_call *c)
{
    ph_kind_tokens(c, combine, no_token);
}

static void separate(ph_kind_call *c, int row)
{
    int pairs = c->out_heads, n = c->shape->out_dim;
    int64_t first = (int64_t)row * 2 * pairs * n;
    const float *heads = c->heads + row * c->heads_row,
                *dout = c->dout + (int64_t)row * pairs * n;
    float *dheads = c->dheads + first, lambda;
    for (int m = 0; m < pairs; m++, heads += 2 * n, dheads += 2 * n, dout += n) {
        int64_t at = logit_at(c, row) + m;
        double product = 0;
        ph_kind_sigmoid(c->ctx, 1, c->saved[Z] + at, &lambda);
        for (int i = 0; i < n; i++) {
            product += (double)dout[i] * heads[n + i];
            dheads[i] = dout[i];
            dheads[n + i] = -lambda * dout[i];
        }
        c->backward_only[Z][at] = (float)-product * lambda * (1 - lambda);
    }
}

static void no_token_backward(ph_kind_call *c, int row)
{
    size_t pairs = (size_t)c->out_heads, n = pairs * (size_t)c->shape->out_dim;
    memset(c->dheads + (size_t)row * 2 * n, 0, 2 * n * sizeof(float));
    memset(c->backward_only[Z] + logit_at(c, row), 0, pairs * sizeof(float));
}

static void after_backward(ph_kind_call *c)
{
    ph_kind_tokens(c, separate, no_token_backward);
}

static const ph_layer_kind kind = {.shape = shape,
                                   .project = project,
                                   .after = after,
                                   .after_backward = after_backward,
                                   .project_backward = project_backward,
                                   .by_heads = 1};

const ph_variant ph_variant_diff2 = {
    .info = {.name = "diff2",
             .options = "diff2",
             .help = "differential attention, second version: pairs of query heads, the "
                     "second subtracted with a weight that depends on the token",
             .tensors = "w_lambda (model_dim, H/2) logit of that weight for each pair\n"},
    .layer = &kind,
};
