/*
 * lanes.c - an encoder that each thread runs on texts or pictures of its own.
 *
 * Where threads share a pass, each reads what the other just wrote, from a cache that may
 * be far away, and waits for it in every product: two threads took 190 ms for a picture
 * that one does in 341. With as many texts as threads each can have its own pass; nothing
 * but parameters is read by both. A lane is the model again, in a context of one thread.
 */
#include <string.h>

#include "model/model.h"

struct ph_model_lane {
    ph_ctx ctx;
    ph_model model; /* fields of the model, activations and ctx of its own */
    ph_status status;
};

/* The lane as the model is now; its scratch and activations stay. */
static void refresh(ph_model *m, ph_model_lane *lane)
{
    void *scratch = lane->ctx.scratch;
    size_t scratch_size = lane->ctx.scratch_size;
    ph_activations *kept = atomic_load(&lane->model.activations);
    lane->ctx = *m->ctx;
    lane->ctx.threads = 1, lane->ctx.depth = 0;
    atomic_init(&lane->ctx.owner, 0);
    lane->ctx.scratch = scratch, lane->ctx.scratch_size = scratch_size;
    lane->model = *m;
    lane->model.ctx = &lane->ctx;
    atomic_init(&lane->model.activations, kept);
    lane->status = PH_OK;
}

int ph_model_open_lanes(ph_model *m, int rows)
{
    int count = m->ctx->threads;
    const float *table;
    if (count < 2 || !m->ctx->default_memory) return 0; /* hooks may serve one thread */
    if (ph_model_sinusoids(m, rows, &table) != PH_OK) return 0;
    if (!m->lanes) {
        m->lanes = ph_ctx_alloc(m->ctx, (size_t)count * sizeof *m->lanes);
        if (!m->lanes) return 0;
        memset(m->lanes, 0, (size_t)count * sizeof *m->lanes);
    }
    for (int i = 0; i < count; i++) refresh(m, &m->lanes[i]);
    return count;
}

typedef struct lane_job {
    ph_model *m;
    ph_lane_item *item;
    void *arg;
} lane_job;

static void run_item(void *arg, int lane, int index)
{
    const lane_job *j = arg;
    ph_model_lane *own = &j->m->lanes[lane];
    if (own->status == PH_OK) own->status = j->item(j->arg, &own->model, index);
}

ph_status ph_model_run_lanes(ph_model *m, int count, ph_lane_item *item, void *arg)
{
    ph_ctx_run(m->ctx, count, run_item, &(lane_job){m, item, arg});
    for (int i = 0; i < m->ctx->threads; i++)
        if (m->lanes[i].status != PH_OK)
            return ph_fail(m->ctx, m->lanes[i].status, "%s", m->lanes[i].ctx.error);
    return PH_OK;
}

void ph_model_drop_lanes(ph_model *m)
{
    for (int i = 0; m->lanes && i < m->ctx->threads; i++) {
        ph_ctx_release(m->ctx, m->lanes[i].ctx.scratch);
        ph_ctx_release(m->ctx, atomic_load(&m->lanes[i].model.activations));
    }
    ph_ctx_release(m->ctx, m->lanes);
    m->lanes = NULL;
}
