/*
 * mohsa.c - overlapping heads: each also sees the edge of its neighbours.
 *
 *     q, k, v as usual, H heads of d, O zeros before and after a token:
 *
 *         [ 0 O | head 0 | head 1 | ... | 0 O ]
 *         [  window 0  ]
 *                [  window 1  ]              window h: elements h*d .. h*d + d + 2O
 *
 *     heads' = attention over the windows, scale 1/sqrt(d);  wo has H*(d + 2O) rows
 *
 * Windows are views: attention reads them through a head stride of d. The gradient of an
 * element is the sum over all windows that hold it, lowest head first.
 */
#include <math.h>
#include <string.h>

#include "variants/kind.h"

static ph_status shape(ph_shape *s, const char *options)
{
    const ph_attn *a = &s->desc->attn;
    double overlap = 0;
    const ph_variant_option list[] = {
        {.key = "overlap", .number = &overlap, .most = 1 << 16, .whole = 1}};
    PH_TRY(ph_options_read(s->ctx, "mohsa", options, list, 1));
    int o = (int)overlap;
    if (a->k_heads != a->q_heads || a->v_heads != a->q_heads)
        return ph_fail(s->ctx, PH_UNSUPPORTED,
                       "variant mohsa has %d, %d and %d heads of q, k and v, expected as "
                       "many of each",
                       a->q_heads, a->k_heads, a->v_heads);
    PH_TRY(ph_shape_width(s, "q", a->q_heads, a->qk_dim + 2 * o));
    PH_TRY(ph_shape_width(s, "v", a->v_heads, a->v_dim + 2 * o));
    if (a->scale == 0) s->attn.scale = (float)(1 / sqrt(a->qk_dim));
    s->attn.qk_dim += 2 * o;
    s->attn.v_dim += 2 * o;
    s->q.pad = s->k.pad = s->v.pad = o;
    s->q.transformed = s->k.transformed = s->v.transformed = o > 0;
    s->out_dim = s->attn.v_dim;
    s->wants_slices = o > 0;
    return PH_OK;
}

/* ---- sums of windows --------------------------------------------------------------- */

typedef struct windows_job {
    const ph_projection *proj;
    const float *from; /* (rows, heads of the slice, dim + 2 pad) */
    float *to;         /* (rows, heads * dim) */
    int rows;
    int first, heads; /* the slice */
} windows_job;

enum { CHUNK = 32 }; /* rows of one item */

/* Elements that no earlier window holds are copied, the others accumulated. */
static void sum_windows(const windows_job *j, const float *restrict from,
                        float *restrict to)
{
    const ph_projection *p = j->proj;
    int window = p->dim + 2 * p->pad, width = p->heads * p->dim;
    int reached = j->first ? ph_min(j->first * p->dim + p->pad, width) : 0;
    for (int h = 0; h < j->heads; h++, from += window) {
        int first = (j->first + h) * p->dim - p->pad; /* its element 0 */
        int end = ph_min(first + window, width);
        for (int i = ph_max(0, first); i < reached; i++) to[i] += from[i - first];
        memcpy(to + reached, from + (reached - first),
               (size_t)(end - reached) * sizeof *to);
        reached = end;
    }
}

static void windows_item(void *arg, int lane, int index)
{
    const windows_job *j = arg;
    const ph_projection *p = j->proj;
    int window = j->heads * (p->dim + 2 * p->pad), width = p->heads * p->dim;
    (void)lane;
    for (int row = index * CHUNK; row < ph_min((index + 1) * CHUNK, j->rows); row++)
        sum_windows(j, j->from + (int64_t)row * window, j->to + (int64_t)row * width);
}

static void reduce_windows(const ph_kind_call *c, const ph_projection *proj, int rows,
                           const float *from, float *to)
{
    windows_job j = {proj, from, to, rows, c->first, c->q_heads};
    if (proj->transformed) ph_ctx_run(c->ctx, ph_div_up(rows, CHUNK), windows_item, &j);
}

static void before_backward(ph_kind_call *c)
{
    const ph_shape *s = c->shape;
    reduce_windows(c, &s->q, c->x_tokens.rows, c->dq, c->dq_proj);
    reduce_windows(c, &s->k, c->key_tokens.rows, c->dk, c->dk_proj);
    reduce_windows(c, &s->v, c->key_tokens.rows, c->dv, c->dv_proj);
}

static const ph_layer_kind kind = {
    .shape = shape, .before_backward = before_backward, .by_heads = 1};

const ph_variant ph_variant_mohsa = {
    .info = {.name = "mohsa",
             .options = "mohsa:overlap=O",
             .help =
                 "overlapping heads: each head also sees the O nearest elements of its "
                 "neighbours on either side",
             .tensors =
                 "wo (H*(v_dim + 2*O), out_dim) one row for every element of a window\n"},
    .layer = &kind,
};
