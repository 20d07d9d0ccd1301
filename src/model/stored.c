/*
 * stored.c - parameters of a model that stay where a mapped file has them, in the type
 * and storage order of that file. Products read them in place (kernels/gemm.h), so a
 * model takes the memory of its file and gives the bits of the same values as f32.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/companions.h"

/* Whether passes read a parameter as a ph_matrix. */
static int may_store(const ph_model *m, int index)
{
    static const char *const names[] = {"wq", "wk", "wv", "wo", "w1", "w2", "w3"};
    const ph_weight *p = &m->params[index];
    const char *last = strrchr(p->name, '.');
    int found =
        index == m->embed || index == m->output || index == m->masked ||
        index == m->pooler || index == m->classifier || index == m->distilled ||
        index == m->patches || index == m->stacks[0].projection ||
        (m->convolutions >= 0 && index >= m->convolutions && index < m->convolutions + 4);
    if (p->rank != 2 || (m->links >= 0 && index >= m->links && index < m->links + 2))
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        found |= last && !strcmp(last + 1, names[i]);
    return found;
}

ph_status ph_model_store(ph_model *m, int index, ph_matrix stored)
{
    ph_weight *p = &m->params[index];
    int linear = stored.form == PH_FORM_LINEAR;
    size_t unit = stored.type == PH_F32 ? sizeof(float) : sizeof(uint16_t);
    if (!may_store(m, index) || (unsigned)stored.type > PH_Q6_K ||
        (uintptr_t)stored.data % unit)
        return PH_UNSUPPORTED;
    if (p->dims[!linear] % ph_quant_block(stored.type)) return PH_UNSUPPORTED;
    if (linear && (index == m->embed || index == m->output)) return PH_UNSUPPORTED;
    p->stored = stored;
    return ph_model_layout(m);
}

ph_matrix ph_model_matrix(const ph_model *m, const float *block, int index)
{
    const ph_weight *p = &m->params[index];
    return p->stored.data ? p->stored : ph_matrix_of(block + p->at);
}

void ph_model_row(const ph_model *m, const float *block, int index, int row, float *to)
{
    const ph_matrix w = ph_model_matrix(m, block, index);
    const int n = m->params[index].dims[1], whole = n / PH_LANES * PH_LANES;
    const int64_t at = (int64_t)row * n;
    if (whole) m->ctx->kernels->load_row(to, w.data, at, whole, w.type, 1.0f);
    for (int i = whole; i < n; i++) to[i] = ph_element(w.data, w.type, at + i);
}

static void copy_rows(const ph_weight *p, ph_matrix from, int first, int count, float *to)
{
    int64_t rows = p->dims[0], columns = p->dims[1];
    for (int64_t r = first; r < first + count; r++)
        for (int64_t c = 0; c < columns; c++) {
            int64_t at = from.form == PH_FORM_LINEAR ? c * rows + r : r * columns + c;
            *to++ = ph_element(from.data, from.type, at);
        }
}

void ph_model_rows(const ph_model *m, int index, int first, int count, float *to)
{
    copy_rows(&m->params[index], ph_model_matrix(m, m->block, index), first, count, to);
}

/* ---- parameters of its own --------------------------------------------------------- */

/* Where parameters lay before; entries of `at` are those of the old block. */
typedef struct old_places {
    float *block;
    ph_matrix *stored;
    size_t *at;
} old_places;

static ph_status move_all(ph_model *m, const old_places *old)
{
    for (int i = 0; i < m->param_count; i++) {
        old->stored[i] = m->params[i].stored, old->at[i] = m->params[i].at;
        m->params[i].stored = (ph_matrix){0};
    }
    m->block = NULL;
    ph_ctx_release(m->ctx, m->tensors);
    m->tensors = NULL;
    PH_TRY(ph_model_layout(m));
    PH_TRY(ph_model_allocate(m));
    for (int i = 0; i < m->param_count; i++) {
        const ph_weight *p = &m->params[i];
        if (old->stored[i].data)
            copy_rows(p, old->stored[i], 0, p->dims[0], m->block + p->at);
        else
            memcpy(m->block + p->at, old->block + old->at[i], p->count * sizeof(float));
    }
    return PH_OK;
}

static ph_status own_all(ph_model *m)
{
    size_t count = (size_t)m->param_count;
    old_places old = {m->block, ph_ctx_alloc(m->ctx, count * sizeof *old.stored),
                      ph_ctx_alloc(m->ctx, count * sizeof *old.at)};
    ph_status status =
        old.stored && old.at
            ? move_all(m, &old)
            : ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for %zu parameters", count);
    ph_ctx_release(m->ctx, old.stored);
    ph_ctx_release(m->ctx, old.at);
    if (m->block != old.block) ph_ctx_release(m->ctx, old.block);
    if (status != PH_OK) return status;
    ph_model_drop_panels(m);
    PH_TRY(ph_companions_keep(m, m->checkpoint));
    ph_checkpoint_free(m->checkpoint);
    m->checkpoint = NULL;
    return PH_OK;
}

ph_status ph_model_own(ph_model *m)
{
    if (!m) return PH_BAD_ARGUMENT;
    return PH_WITHIN(m->ctx, m->checkpoint ? own_all(m) : PH_OK);
}

ph_status ph_model_check_own(const ph_model *m, const char *what)
{
    for (int i = 0; i < m->param_count; i++)
        if (m->params[i].stored.data)
            return ph_fail(m->ctx, PH_UNSUPPORTED,
                           "%s is read in place from a checkpoint, expected parameters "
                           "of the model's own to %s",
                           m->params[i].name, what);
    return PH_OK;
}

static ph_status check_values(const ph_model *m, const ph_weight *p, const float *values,
                              int row, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return ph_fail(m->ctx, PH_BAD_VALUE,
                           "%s has a NaN or Inf in row %d, column %zu, expected finite "
                           "weights",
                           p->name, row, i);
    return PH_OK;
}

static ph_status check_param(const ph_model *m, int index, float *row)
{
    const ph_weight *p = &m->params[index];
    if (p->rank != 2) return check_values(m, p, m->block + p->at, 0, p->count);
    for (int r = 0; r < p->dims[0]; r++) {
        ph_model_rows(m, index, r, 1, row);
        PH_TRY(check_values(m, p, row, r, (size_t)p->dims[1]));
    }
    return PH_OK;
}

ph_status ph_model_check_finite(const ph_model *m)
{
    size_t longest = 1;
    ph_status status = PH_OK;
    for (int i = 0; i < m->param_count; i++)
        if (m->params[i].rank == 2 && (size_t)m->params[i].dims[1] > longest)
            longest = (size_t)m->params[i].dims[1];
    float *row = ph_ctx_alloc(m->ctx, longest * sizeof *row);
    if (!row) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory to check weights");
    for (int i = 0; status == PH_OK && i < m->param_count; i++)
        status = check_param(m, i, row);
    ph_ctx_release(m->ctx, row);
    return status;
}

ph_status ph_model_check_output(const ph_model *m, const char *what, const float *values,
                                size_t count)
{
    char why[256] = "weights are finite, activations overflow";
    int bad = 0;
    for (size_t i = 0; i < count; i++) bad |= !(values[i] < INFINITY);
    if (!bad) return PH_OK;
    if (ph_model_check_finite(m) != PH_OK)
        snprintf(why, sizeof why, "%s", ph_error(m->ctx));
    return ph_fail(m->ctx, PH_BAD_VALUE, "the %s became NaN or Inf: %s", what, why);
}

void ph_model_show_stored(const ph_weight *p, ph_tensor *t)
{
    t->type = p->stored.type, t->data = p->stored.data;
    t->bytes = ph_dtype_bytes(t->type, p->count);
    if (p->stored.form == PH_FORM_LINEAR)
        t->shape[0] = (size_t)p->dims[1], t->shape[1] = (size_t)p->dims[0];
}

void ph_model_describe_stored(const ph_model *m, const ph_sublayer *sublayer,
                              ph_layer_desc *d)
{
    const struct {
        const char *name;
        ph_dtype *type;
        ph_form *form;
    } fields[] = {{"wq", &d->wq_dtype, &d->q_form},
                  {"wk", &d->wk_dtype, &d->k_form},
                  {"wv", &d->wv_dtype, &d->v_form},
                  {"wo", &d->wo_dtype, &d->o_form}};
    for (int i = 0; i < sublayer->named; i++) {
        const ph_weight *p = &m->params[sublayer->first + i];
        for (int f = 0; f < 4 && p->stored.data; f++)
            if (!strcmp(strrchr(p->name, '.') + 1, fields[f].name))
                *fields[f].type = p->stored.type, *fields[f].form = p->stored.form;
    }
}
