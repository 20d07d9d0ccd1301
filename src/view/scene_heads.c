/*
 * scene_heads.c - what heads of a stack write; see scene_heads.h.
 */
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

/* |v[j] W_O| for every key of one head; rows are the head's rows of W_O. */
static void measure_values(const float *v, const float *rows, int keys, int dim,
                           size_t columns, float *norm)
{
    for (int j = 0; j < keys; j++) {
        double sum = 0;
        for (size_t c = 0; c < columns; c++) {
            double x = 0;
            for (int d = 0; d < dim; d++)
                x += (double)v[(size_t)j * (size_t)dim + (size_t)d] *
                     (double)rows[(size_t)d * columns + c];
            sum += x * x;
        }
        norm[j] = (float)sqrt(sum);
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
    ph_status status = rows && v ? PH_OK : PH_OUT_OF_MEMORY;
    for (int h = 0; h < at->stack->heads && status == PH_OK; h++) {
        int head = ph_absent_head(site, h);
        if (head < 0) continue;
        status = ph_reading_vectors(at->reading, at->sites[layer], head, NULL, NULL, v,
                                    NULL);
        if (status != PH_OK) break;
        ph_model_rows(m, wo, head * site->v_dim, site->v_dim, rows);
        measure_values(v, rows, site->kv_len, site->v_dim, columns,
                       norms + (size_t)h * keys);
    }
    ph_io_release(at->io, rows);
    ph_io_release(at->io, v);
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
