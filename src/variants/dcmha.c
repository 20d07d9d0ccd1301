/*
 * dcmha.c - dynamically composable heads: the heads of every (query, key) are mixed by a
 * matrix that depends on both tokens, before and after the softmax.
 *
 *     u_ij = s_ij C_pre(i,j)      p = softmax_j(u)      a_ij = p_ij C_post(i,j)
 *     C = I + static + diag(gq_i) + sum_r w1q_i^r (w2q_i^r)^T
 *                    + diag(gk_j) + sum_r w1k_j^r (w2k_j^r)^T         [from][to]
 *
 * Extras of a plan are these coefficients themselves, per token: w1 and w2 (batch, len,
 * rank, heads), g (batch, len, heads), for each channel that the options enable: preq,
 * prek, postq, postk. A layer computes them from its tokens (dcmha_layer.c).
 */
#include "variants/dcmha.h"

#include <string.h>

#include "attn/address.h"
#include "variants/variants.h"

enum { SIDE_Q = PH_DC_Q, SIDE_K = PH_DC_K };
enum { W1 = PH_DC_W1, W2 = PH_DC_W2, G = PH_DC_G, CHANNEL = PH_DC_TENSORS };

typedef struct dcmha_state {
    int rank;
    int first[2][2]; /* by place and side: index of the channel's w1, -1: switched off */
    int fixed;       /* index of dc_static */
} dcmha_state;

static const dcmha_state *state_of(const ph_call *call)
{
    return (const dcmha_state *)call->plan->needs.mix_state;
}

/* ---- options and extras ---- */

static void add_channel(ph_plan *plan, dcmha_state *s, int place, int side)
{
    static const char *const names[2][2][CHANNEL] = {
        {{"preq_w1", "preq_w2", "preq_g"}, {"prek_w1", "prek_w2", "prek_g"}},
        {{"postq_w1", "postq_w2", "postq_g"}, {"postk_w1", "postk_w2", "postk_g"}}};
    const ph_attn *a = &plan->attn;
    int ragged = side == SIDE_Q ? a->ragged != 0 : a->ragged == PH_RAGGED_ALL;
    int total = side == SIDE_Q ? a->q_total : a->kv_total;
    int len = side == SIDE_Q ? a->q_len : a->kv_len;
    s->first[place][side] = plan->needs.extras;
    for (int t = 0; t < CHANNEL; t++) {
        ph_param *p = &plan->needs.extra[plan->needs.extras++];
        *p = (ph_param){.name = names[place][side][t], .rank = t == G ? 3 : 4};
        p->dims[0] = ragged ? 1 : a->batch, p->dims[1] = ragged ? total : len;
        p->dims[2] = t == G ? a->q_heads : s->rank;
        p->dims[3] = a->q_heads;
    }
}

ph_status ph_dcmha_read(ph_ctx *ctx, const char *options, ph_dcmha *out)
{
    double rank = 2, on[2] = {1, 1};
    *out = (ph_dcmha){.side = PH_DC_BOTH};
    const ph_variant_option list[] = {
        {.key = "rank", .number = &rank, .least = 1, .most = 16, .whole = 1},
        {.key = "side", .word = &out->side, .words = "q|k|both"},
        {.key = "pre", .number = &on[PH_LOGITS], .most = 1, .whole = 1},
        {.key = "post", .number = &on[PH_WEIGHTS], .most = 1, .whole = 1},
        {.key = "gelu", .word = &out->gelu, .words = "tanh|erf"}};
    PH_TRY(ph_options_read(ctx, "dcmha", options, list, 5));
    out->rank = (int)rank;
    for (int place = 0; place < 2; place++) out->on[place] = on[place] != 0;
    return PH_OK;
}

static ph_status setup(ph_plan *plan, const char *options)
{
    ph_variant_needs *needs = &plan->needs;
    dcmha_state *s = (dcmha_state *)needs->mix_state;
    ph_dcmha given;
    PH_TRY(ph_dcmha_read(plan->ctx, options, &given));
    s->rank = given.rank;
    for (int place = 0; place < 2; place++)
        for (int side = 0; side < 2; side++) {
            s->first[place][side] = -1;
            if (ph_dcmha_has(&given, place, side)) add_channel(plan, s, place, side);
        }
    for (int place = 0; place < 2; place++) {
        needs->mix[place] = given.on[place];
        needs->key_rank[place] = s->first[place][SIDE_K] >= 0 ? s->rank : 0;
    }
    s->fixed = needs->extras++;
    int heads = plan->attn.q_heads;
    needs->extra[s->fixed] = (ph_param){
        .name = "dc_static", .rank = 3, .dims = {2, heads, heads}, .optional = 1};
    needs->shared |= 1u << s->fixed;
    return PH_OK;
}

/* ---- the query's part ---- */

/* Tensor t of a channel at one token: (rank, heads) or (heads). */
static const float *coefficients(const ph_call *call, int first, int t, int64_t row)
{
    const ph_param *p = &call->plan->needs.extra[first + t];
    return call->args->extra[first + t] +
           row * call->attn->q_heads * (t == G ? 1 : p->dims[2]);
}

static void row_matrix(const ph_call *call, ph_mix_at place, int batch, int token,
                       float *c)
{
    const dcmha_state *s = state_of(call);
    int heads = call->attn->q_heads, first = s->first[place][SIDE_Q];
    const float *fixed = call->args->extra[s->fixed];
    if (fixed)
        memcpy(c, fixed + (int64_t)place * heads * heads,
               (size_t)heads * (size_t)heads * sizeof *c);
    else
        memset(c, 0, (size_t)heads * (size_t)heads * sizeof *c);
    for (int h = 0; h < heads; h++) c[h * heads + h] += 1;
    if (first < 0) return;
    int64_t row = ph_token_index(call, batch, token);
    const float *w1 = coefficients(call, first, W1, row);
    const float *w2 = coefficients(call, first, W2, row);
    const float *g = coefficients(call, first, G, row);
    for (int h = 0; h < heads; h++) c[h * heads + h] += g[h];
    for (int r = 0; r < s->rank; r++, w1 += heads, w2 += heads)
        for (int from = 0; from < heads; from++)
            for (int to = 0; to < heads; to++) c[from * heads + to] += w1[from] * w2[to];
}

/* dw1 += dc w2, dw2 += dc^T w1, dg += diag(dc) */
static void add_query(const ph_call *call, int first, int batch, int token,
                      const float *dc, float *const *dextra)
{
    int heads = call->attn->q_heads, rank = state_of(call)->rank;
    int64_t row = ph_token_index(call, batch, token);
    for (int t = 0; t < CHANNEL; t++) {
        if (!dextra[first + t]) continue;
        const float *other = coefficients(call, first, t == W1 ? W2 : W1, row);
        int64_t at = coefficients(call, first, t, row) - call->args->extra[first + t];
        float *to = dextra[first + t] + at;
        for (int h = 0; t == G && h < heads; h++) to[h] += dc[h * heads + h];
        for (int r = 0; t != G && r < rank; r++, to += heads, other += heads)
            for (int h = 0; h < heads; h++)
                for (int m = 0; m < heads; m++)
                    to[h] += other[m] * (t == W1 ? dc[h * heads + m] : dc[m * heads + h]);
    }
}

static void row_gradient(const ph_call *call, ph_mix_at place, int batch, int token,
                         const float *dc, float *const *dextra)
{
    const dcmha_state *s = state_of(call);
    int heads = call->attn->q_heads, first = s->first[place][SIDE_Q];
    float *fixed = dextra[s->fixed];
    if (fixed) fixed += (int64_t)place * heads * heads;
    for (int i = 0; fixed && i < heads * heads; i++) fixed[i] += dc[i];
    if (first >= 0) add_query(call, first, batch, token, dc, dextra);
}

/* ---- the key's part ---- */

static void key_weights(const ph_call *call, ph_mix_at place, int batch, int j0, int n,
                        float *w)
{
    const dcmha_state *s = state_of(call);
    int heads = call->attn->q_heads, first = s->first[place][SIDE_K];
    int64_t row = ph_key_token_index(call, batch, j0);
    for (int t = 0; t < CHANNEL; t++)
        for (int r = 0; r < (t == G ? 1 : s->rank); r++)
            for (int h = 0; h < heads; h++, w += PH_BLOCK) {
                int step = heads * (t == G ? 1 : s->rank);
                const float *x = coefficients(call, first, t, row) + r * heads + h;
                for (int c = 0; c < n; c++, x += step) w[c] = *x;
            }
}

static void key_gradient(const ph_call *call, ph_mix_at place, int batch, int j0, int n,
                         const float *dw, float *const *dextra)
{
    const dcmha_state *s = state_of(call);
    int heads = call->attn->q_heads, first = s->first[place][SIDE_K];
    int64_t row = ph_key_token_index(call, batch, j0);
    for (int t = 0; t < CHANNEL; t++)
        for (int r = 0; r < (t == G ? 1 : s->rank); r++)
            for (int h = 0; h < heads; h++, dw += PH_BLOCK) {
                int step = heads * (t == G ? 1 : s->rank);
                int64_t at = coefficients(call, first, t, row) -
                             call->args->extra[first + t] + r * heads + h;
                for (int c = 0; dextra[first + t] && c < n; c++, at += step)
                    dextra[first + t][at] = dw[c];
            }
}

const ph_variant ph_variant_dcmha = {
    .info =
        {.name = "dcmha",
         .options = "dcmha:rank=R[,side=q|k|both][,pre=0][,post=0][,gelu=tanh|erf]",
         .help = "heads are mixed per query and key, before and after the softmax, by "
                 "coefficients computed from both tokens",
         .tensors =
             "dc_w1 (4, model_dim, 2*R*H) layer: x to hidden; preq prek postq postk\n"
             "dc_w2 (4, 2*R*H, 2*R, H) layer: from them to w1 and w2\n"
             "dc_wg (4, model_dim, H) layer: to g\n"
             "dc_static (2, H, H) optional: added to both mixes\n"
             "preq_w1 (batch, q_len, R, H) core: mix of the logits, the query's part\n"
             "preq_w2 (batch, q_len, R, H)\n"
             "preq_g (batch, q_len, H)\n"
             "prek_w1 (batch, kv_len, R, H) the key's part\n"
             "prek_w2 (batch, kv_len, R, H)\n"
             "prek_g (batch, kv_len, H)\n"
             "postq_w1 (batch, q_len, R, H) mix of the weights\n"
             "postq_w2 (batch, q_len, R, H)\n"
             "postq_g (batch, q_len, H)\n"
             "postk_w1 (batch, kv_len, R, H)\n"
             "postk_w2 (batch, kv_len, R, H)\n"
             "postk_g (batch, kv_len, H)\n"},
    .setup = setup,
    .row_matrix = row_matrix,
    .row_gradient = row_gradient,
    .key_weights = key_weights,
    .key_gradient = key_gradient,
    .layer = &ph_kind_dcmha,
};
