/*
 * head_weights.c - weights of an attention site, head by head in double; see convert.h.
 */
#include <string.h>

#include "convert/convert.h"

/* ---- memory ------------------------------------------------------------------------ */

/* Each piece begins with the address of the one before it. */
ph_status ph_chain_take(ph_chain *chain, size_t count, size_t size, void *to)
{
    void *null = NULL;
    size_t bytes = count * size;
    char *piece = size && count <= PTRDIFF_MAX / size - PH_ALIGN
                      ? ph_ctx_alloc(chain->ctx, bytes + PH_ALIGN)
                      : NULL;
    memcpy(to, &null, sizeof null);
    if (!piece)
        return ph_fail(chain->ctx, PH_OUT_OF_MEMORY, "no memory for a conversion");
    memcpy(piece, &chain->last, sizeof chain->last);
    chain->last = piece;
    piece += PH_ALIGN;
    memset(piece, 0, bytes);
    memcpy(to, &piece, sizeof piece);
    return PH_OK;
}

ph_status ph_chain_doubles(ph_chain *chain, size_t count, double **to)
{
    return ph_chain_take(chain, count, sizeof **to, to);
}

void ph_chain_free(ph_chain *chain)
{
    while (chain->last) {
        void *piece = chain->last;
        memcpy(&chain->last, piece, sizeof chain->last);
        ph_ctx_release(chain->ctx, piece);
    }
}

/* ---- weights ----------------------------------------------------------------------- */

int ph_sublayer_param(const ph_model *m, const ph_sublayer *sublayer, const char *name)
{
    for (int i = sublayer->first; i < sublayer->first + sublayer->count; i++)
        if (!strcmp(strrchr(m->params[i].name, '.') + 1, name)) return i;
    return -1;
}

ph_status ph_head_weights_take(ph_head_weights *w, ph_chain *chain)
{
    size_t heads = (size_t)w->heads, kv = (size_t)w->kv, dim = (size_t)w->dim;
    size_t source = (size_t)w->source + 1;
    PH_TRY(ph_chain_doubles(chain, heads * ((size_t)w->in + 1) * dim, &w->q));
    PH_TRY(ph_chain_doubles(chain, kv * source * dim, &w->k));
    PH_TRY(ph_chain_doubles(chain, kv * source * dim, &w->v));
    return ph_chain_doubles(chain, heads * dim * (size_t)w->out, &w->o);
}

/* A matrix (in, heads*dim) and its bias: (heads, in + 1, dim). */
static void load_columns(const ph_convert_site *site, const char *matrix,
                         const char *bias, int in, int heads, int dim, float *row,
                         double *to)
{
    const ph_model *m = site->from;
    int w = ph_sublayer_param(m, site->old, matrix);
    int b = ph_sublayer_param(m, site->old, bias);
    for (int r = 0; r <= in; r++) {
        const float *from = row;
        if (r < in)
            ph_model_rows(m, w, r, 1, row);
        else if (b >= 0)
            from = m->block + m->params[b].at;
        else
            return;
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < dim; i++)
                to[((size_t)h * (size_t)(in + 1) + (size_t)r) * (size_t)dim + (size_t)i] =
                    (double)from[h * dim + i];
    }
}

static void load_output(const ph_head_weights *w, const ph_convert_site *site, float *row)
{
    int index = ph_sublayer_param(site->from, site->old, "wo");
    for (int r = 0; r < w->heads * w->dim; r++) {
        ph_model_rows(site->from, index, r, 1, row);
        for (int i = 0; i < w->out; i++)
            w->o[(size_t)r * (size_t)w->out + (size_t)i] = (double)row[i];
    }
}

ph_status ph_head_weights_load(ph_head_weights *w, const ph_convert_site *site,
                               ph_chain *chain)
{
    const ph_model *m = site->from;
    const ph_config *c = &m->config;
    const ph_weight *wk = &m->params[ph_sublayer_param(m, site->old, "wk")];
    const ph_weight *wo = &m->params[ph_sublayer_param(m, site->old, "wo")];
    float *row;
    *w = (ph_head_weights){.in = c->model_dim,
                           .source = wk->dims[0],
                           .heads = c->heads,
                           .kv = wk->dims[1] / c->head_dim,
                           .dim = c->head_dim,
                           .out = wo->dims[1]};
    PH_TRY(ph_head_weights_take(w, chain));
    size_t width = (size_t)ph_max(w->out, w->heads * w->dim);
    PH_TRY(ph_chain_take(chain, width, sizeof *row, &row));
    load_columns(site, "wq", "bq", w->in, w->heads, w->dim, row, w->q);
    load_columns(site, "wk", "bk", w->source, w->kv, w->dim, row, w->k);
    load_columns(site, "wv", "bv", w->source, w->kv, w->dim, row, w->v);
    load_output(w, site, row);
    return PH_OK;
}

static float *param_of(const ph_convert_site *site, const char *name)
{
    int index = ph_sublayer_param(site->to, site->new, name);
    return index < 0 ? NULL : site->to->block + site->to->params[index].at;
}

static void store_columns(const ph_convert_site *site, const char *matrix,
                          const char *bias, int in, int heads, int dim,
                          const double *from)
{
    float *w = param_of(site, matrix), *b = param_of(site, bias);
    for (int h = 0; h < heads; h++)
        for (int r = 0; r <= in; r++, from += dim) {
            float *to = r < in ? w + (size_t)r * (size_t)(heads * dim) : b;
            for (int i = 0; to && i < dim; i++) to[h * dim + i] = (float)from[i];
        }
}

void ph_head_weights_store(const ph_head_weights *w, const ph_convert_site *site)
{
    size_t count = (size_t)w->heads * (size_t)w->dim * (size_t)w->out;
    float *o = param_of(site, "wo");
    store_columns(site, "wq", "bq", w->in, w->heads, w->dim, w->q);
    store_columns(site, "wk", "bk", w->source, w->kv, w->dim, w->k);
    store_columns(site, "wv", "bv", w->source, w->kv, w->dim, w->v);
    for (size_t i = 0; i < count; i++) o[i] = (float)w->o[i];
}
