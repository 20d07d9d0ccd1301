/*
 * prepack.c - an encoder's matrices packed once, in the order products read them.
 *
 * A folder has them (out, in), and transposing them takes a sixth of the time of one text
 * of 128 tokens. Panels are floats, so only f32 matrices are packed. Products of many
 * rows do not read those of the file again, and their pages go back to the system: memory
 * stays what the file has. Products of few rows read the file in place, as ever.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/model.h"

enum { ROWS_LEAST = 32 };              /* tokens at a time that repay packing */
#define BYTES_MOST ((size_t)512 << 20) /* of all panels */

struct ph_model_panels {
    int count;
    ph_prepacked *entries; /* (count) */
    ph_gemm *products;     /* (count) one with each matrix */
    size_t *at;            /* (count) where its panels begin */
    float *floats;
};

typedef struct pack_job {
    const ph_ctx *ctx;
    const struct ph_model_panels *p;
} pack_job;

/* Whether products read this parameter as (out, in) floats of the file. */
static int is_packed(const ph_weight *w)
{
    return w->stored.data && w->stored.type == PH_F32 && w->stored.form == PH_FORM_LINEAR;
}

static void pack_item(void *arg, int lane, int i)
{
    const pack_job *j = arg;
    const ph_gemm *g = &j->p->products[i];
    (void)lane;
    ph_gemm_prepack(j->ctx, g, j->p->floats + j->p->at[i]);
    ph_map_drop(g->b, (size_t)g->n * (size_t)g->k * sizeof(float));
}

/* Lists the matrices and where their panels go; returns the floats of all. */
static size_t list_matrices(const ph_model *m, struct ph_model_panels *p)
{
    size_t floats = 0;
    for (int i = 0; i < m->param_count; i++) {
        const ph_weight *w = &m->params[i];
        if (!is_packed(w)) continue;
        p->products[p->count] =
            ph_product(1, w->dims[0], w->dims[1], NULL, w->stored, NULL, NULL);
        p->at[p->count++] = floats;
        floats += ph_round_up((int)ph_gemm_prepack_floats(m->ctx, w->dims[0], w->dims[1]),
                              PH_ALIGN / (int)sizeof(float));
    }
    return floats;
}

/* Tensors of a folder lie in mapped files, so that pages can be dropped; those of GGUF
   may be memory. Without memory for panels the model works as before. */
void ph_model_prepack(ph_model *m, int rows)
{
    size_t most = (size_t)m->param_count;
    if (m->panels || rows < ROWS_LEAST) return;
    if (!m->checkpoint || m->checkpoint->kind != PH_CHECKPOINT_FOLDER) return;
    struct ph_model_panels *p = ph_ctx_alloc(m->ctx, sizeof *p);
    if (!p) return;
    *p = (struct ph_model_panels){0};
    m->panels = p;
    p->entries = ph_ctx_alloc(m->ctx, most * sizeof *p->entries);
    p->products = ph_ctx_alloc(m->ctx, most * sizeof *p->products);
    p->at = ph_ctx_alloc(m->ctx, most * sizeof *p->at);
    if (!p->entries || !p->products || !p->at) return;
    size_t floats = list_matrices(m, p);
    if (floats && floats <= BYTES_MOST / sizeof(float))
        p->floats = ph_ctx_alloc(m->ctx, floats * sizeof *p->floats);
    if (!p->floats) p->count = 0;
    ph_ctx_run(m->ctx, p->count, pack_item, &(pack_job){m->ctx, p});
    for (int i = 0; i < p->count; i++)
        ph_gemm_remember(m->ctx, &p->products[i], p->floats + p->at[i], &p->entries[i]);
}

void ph_model_drop_panels(ph_model *m)
{
    struct ph_model_panels *p = m->panels;
    if (!p) return;
    for (int i = 0; i < p->count; i++) ph_gemm_forget(m->ctx, &p->entries[i]);
    ph_ctx_release(m->ctx, p->entries);
    ph_ctx_release(m->ctx, p->products);
    ph_ctx_release(m->ctx, p->at);
    ph_ctx_release(m->ctx, p->floats);
    ph_ctx_release(m->ctx, p);
    m->panels = NULL;
}
