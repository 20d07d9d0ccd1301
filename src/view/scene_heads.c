/*
 * scene_heads.c - what heads of a stack write; see scene_heads.h.
 */
#include "polyhead_train.h"
#include "view/scene_heads.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/size.h"
#include "io/io.h"
#include "model/model.h"
#include "polyhead_circuits.h"
#include "view/absent.h"

static void *take(const ph_scene_stack *at, size_t count, size_t item)
{
    size_t bytes = 0;
    return ph_size_mul(count, item, &bytes) ? NULL : ph_io_alloc(at->io, bytes);
}

/* The parameter W_O of a site; -1: none whose rows are those of the heads. */
static int find_output(const ph_model *m, const ph_site *site)
{
    char name[80];
    int i = 0;
    const ph_weight *params = m->params;
    snprintf(name, sizeof name, "%s.wo", site->name);
    while (i < m->param_count && strcmp(params[i].name, name) != 0) i++;
    int fits = i < m->param_count && params[i].rank == 2 &&
               params[i].dims[0] == site->heads * site->v_dim;
    return fits ? i : -1;
}

/* w w^T (dim, dim) of a head's rows of W_O. */
static void gram_matrix(const float *rows, int dim, size_t columns, double *gram)
{
    for (int a = 0; a < dim; a++)
        for (int b = 0; b <= a; b++) {
            const float *x = rows + (size_t)a * columns, *y = rows + (size_t)b * columns;
            double sum = 0;
            for (size_t c = 0; c < columns; c++) sum += (double)x[c] * (double)y[c];
            gram[a * dim + b] = gram[b * dim + a] = sum;
        }
}

/* Values of one head. */
typedef struct value_job {
    const float *v;
    const double *gram;
    int keys, dim;
    float *norm;
} value_job;

enum { NORM_KEYS = 128 }; /* of one work item */

/* |v[j] W_O| for some keys of one head, sqrt(v W_O W_O^T v^T): a product of dim columns
   in place of model_dim. Rounding may leave less than 0 where v W_O is 0. */
static void measure_values(void *arg, int lane, int index)
{
    const value_job *job = arg;
    int dim = job->dim, end = ph_min(job->keys, (index + 1) * NORM_KEYS);
    (void)lane;
    for (int j = index * NORM_KEYS; j < end; j++) {
        const float *v = job->v + (size_t)j * (size_t)dim;
        double sum = 0;
        for (int a = 0; a < dim; a++) {
            double x = 0;
            for (int b = 0; b < dim; b++) x += job->gram[a * dim + b] * (double)v[b];
            sum += x * (double)v[a];
        }
        job->norm[j] = (float)sqrt(fmax(sum, 0));
    }
}

static ph_status norm_layer(const ph_scene_stack *at, int layer, float *norms)
{
    const ph_model *m = at->model;
    const ph_site *site = ph_reading_site(at->reading, at->sites[layer]);
    if (!site) return PH_OK;
    int wo = site->v_dim ? find_output(m, site) : -1;
    if (wo < 0) return PH_UNSUPPORTED;
    size_t columns = (size_t)m->params[wo].dims[1], dim = (size_t)site->v_dim;
    size_t keys = (size_t)at->keys;
    float *rows = take(at, dim * columns, sizeof *rows);
    float *v = take(at, keys * dim, sizeof *v);
    double *gram = take(at, dim * dim, sizeof *gram);
    ph_status status = rows && v && gram ? PH_OK : PH_OUT_OF_MEMORY;
    for (int h = 0; h < at->stack->heads && status == PH_OK; h++) {
        int head = ph_absent_head(site, h);
        if (head < 0) continue;
        status = ph_reading_vectors(at->reading, at->sites[layer], head, NULL, NULL, v,
                                    NULL);
        if (status != PH_OK) break;
        ph_model_rows(m, wo, head * site->v_dim, site->v_dim, rows);
        gram_matrix(rows, site->v_dim, columns, gram);
        value_job job = {v, gram, site->kv_len, site->v_dim, norms + (size_t)h * keys};
        ph_ctx_run(m->ctx, ph_div_up(job.keys, NORM_KEYS), measure_values, &job);
    }
    ph_io_release(at->io, rows);
    ph_io_release(at->io, v);
    ph_io_release(at->io, gram);
    return status;
}

ph_status ph_scene_norms(const ph_scene_stack *at, float *norms)
{
    size_t step = (size_t)at->stack->heads * (size_t)at->keys;
    for (int l = 0; l < at->stack->layers; l++)
        PH_TRY(norm_layer(at, l, norms + (size_t)l * step));
    return PH_OK;
}

ph_status ph_scene_contributions(const ph_scene_stack *at, float *share)
{
    size_t heads = (size_t)at->stack->heads;
    double *layer = take(at, heads, sizeof *layer);
    ph_status status = layer ? PH_OK : PH_OUT_OF_MEMORY;
    for (int l = 0; l < at->stack->layers && status == PH_OK; l++) {
        const ph_site *site = ph_reading_site(at->reading, at->sites[l]);
        if (!site) continue;
        status = (size_t)site->heads > heads
                     ? PH_UNSUPPORTED
                     : ph_head_shares(at->model, at->reading, at->sites[l], layer, NULL);
        for (size_t h = 0; h < heads && status == PH_OK; h++) {
            int head = ph_absent_head(site, (int)h);
            if (head >= 0) share[(size_t)l * heads + h] = (float)layer[head];
        }
    }
    ph_io_release(at->io, layer);
    return status;
}

/* ---- circuits as text ---- */

enum { CIRCUIT_PAIRS = 4, CIRCUIT_WRITES = 3, CIRCUIT_TOKENS = 24 };

/* Multiply-adds of all heads of a stack, which a page can wait for. */
static int is_cheap(const ph_scene_stack *at)
{
    const double most = 2e8;
    const ph_config *c = &at->model->config;
    double heads = (double)at->stack->layers * at->stack->heads;
    return (double)c->vocab * c->model_dim * heads <= most;
}

/* The first of the largest, which is taken out. */
static int take_largest(double *values, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (values[i] > values[best]) best = i;
    values[best] = -INFINITY;
    return best;
}

typedef struct circuit_text {
    const ph_model *model;
    int32_t tokens[CIRCUIT_TOKENS]; /* each once */
    int count;
    double *scores; /* (count, count) or (vocab) */
    char *text;
    size_t used;
} circuit_text;

static void add_text(circuit_text *c, const char *before, int32_t token)
{
    size_t left = PH_CIRCUIT_TEXT - c->used;
    char word[25];
    int n = snprintf(c->text + c->used, left, "%s%s", before,
                     ph_model_spell(c->model, token, word, sizeof word));
    if (n > 0 && (size_t)n < left)
        c->used += (size_t)n;
    else
        c->text[c->used] = 0; /* whole words only */
}

/* The token each preferred one would be looked at from, and what it would write. */
static ph_status write_circuit(circuit_text *c, const ph_circuit *circuit)
{
    int vocab = c->model->config.vocab, from = 0;
    PH_TRY(ph_circuit_scores(circuit, c->tokens, c->count, c->scores));
    for (int n = 0; n < CIRCUIT_PAIRS && n < c->count * c->count; n++) {
        int best = take_largest(c->scores, c->count * c->count);
        if (n == 0) from = best % c->count;
        add_text(c, n ? "; " : "", c->tokens[best / c->count]);
        add_text(c, " > ", c->tokens[best % c->count]);
    }
    PH_TRY(ph_circuit_writes(circuit, c->tokens[from], c->scores));
    add_text(c, "\n", c->tokens[from]);
    for (int n = 0; n < CIRCUIT_WRITES && n < vocab; n++)
        add_text(c, n ? ", " : ": ", take_largest(c->scores, vocab));
    return PH_OK;
}

static ph_status circuits_of_layer(const ph_scene_stack *at, int layer, circuit_text *c,
                                   char *texts)
{
    const ph_site *site = ph_reading_site(at->reading, at->sites[layer]);
    ph_status status = PH_OK;
    for (int h = 0; site && h < at->stack->heads && status == PH_OK; h++) {
        ph_circuit *circuit = NULL;
        int head = ph_absent_head(site, h);
        c->text = texts + (size_t)h * PH_CIRCUIT_TEXT;
        c->used = 0;
        if (head < 0) continue;
        status = ph_circuit_create(&circuit, at->model, at->reading, at->sites[layer],
                                   head, NULL);
        if (status == PH_OK) status = write_circuit(c, circuit);
        ph_circuit_free(circuit);
    }
    return status;
}

static void list_once(circuit_text *c, const int32_t *ids, int count)
{
    for (int i = 0; i < count && c->count < CIRCUIT_TOKENS; i++) {
        int known = 0;
        for (int n = 0; n < c->count; n++) known |= c->tokens[n] == ids[i];
        if (!known) c->tokens[c->count++] = ids[i];
    }
}

ph_status ph_scene_circuits(const ph_scene_stack *at, const int32_t *ids, int count,
                            char *texts)
{
    circuit_text c = {.model = at->model};
    if (at->model->config.image_size || at->stack->q_axis != at->stack->k_axis)
        return PH_UNSUPPORTED;
    if (!is_cheap(at)) return PH_UNSUPPORTED;
    list_once(&c, ids, count);
    size_t vocab = (size_t)at->model->config.vocab;
    size_t pairs = (size_t)c.count * (size_t)c.count;
    c.scores = take(at, vocab > pairs ? vocab : pairs, sizeof *c.scores);
    ph_status status = c.scores ? PH_OK : PH_OUT_OF_MEMORY;
    for (int l = 0; l < at->stack->layers && status == PH_OK; l++)
        status = circuits_of_layer(
            at, l, &c,
            texts + (size_t)l * (size_t)at->stack->heads * (size_t)PH_CIRCUIT_TEXT);
    ph_io_release(at->io, c.scores);
    return status;
}

ph_status ph_scene_links(const ph_model *model, const int32_t *ids, int count,
                         const float *p, const char **tokens, int *links)
{
    for (int i = 0; i < count; i++) {
        const float *row = p + (size_t)i * (size_t)count;
        tokens[i] = ph_model_token(model, ids[i]);
        for (int j = links[i] = 0; j < count; j++)
            if (row[j] > row[links[i]]) links[i] = j;
    }
    return ph_relations_of(tokens, links, count, links + count);
}
