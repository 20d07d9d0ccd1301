/*
 * live_effects.c - which head matters most for a text: the answers without each of them.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "io/io.h"
#include "model/reading.h"
#include "view/live_run.h"

/* A second run of the text, whose heads are switched off one after the other. */
typedef struct effect_run {
    ph_reading *reading;
    ph_scene *scene;
    ph_prune plan;
} effect_run;

int ph_live_heads(const ph_report *report)
{
    int count = 0;
    for (int k = 0; k < report->stack_count; k++)
        count += report->stacks[k].layers * report->stacks[k].heads;
    return count;
}

/* More would keep a page waiting for seconds: then it opens without knowing. */
static int is_cheap(const live_session *s, const live_run *run)
{
    const double most = 1e10; /* products of a weight and a token, all runs together */
    const double tokens = ph_reading_length(run->reading, 0);
    return (double)ph_model_parameters(s->live->model) * tokens *
               ph_live_heads(&run->report) <=
           most;
}

/* How far the answers move without one head; NaN: the model has none to compare. */
static ph_status find_effect(const live_run *run, effect_run *e, int stack, int layer,
                             int head, float *effect)
{
    int site = ph_scene_site(run->scene, stack, layer);
    int entry = ph_prune_entry(e->reading, site, head);
    *effect = NAN;
    if (entry < 0) return PH_OK;
    e->plan.ablation[entry] = PH_HEAD_ZERO;
    PH_TRY(ph_prune_run(&e->plan, e->reading, 0));
    e->plan.ablation[entry] = PH_HEAD_ON;
    PH_TRY(ph_scene_compare(run->scene, e->scene, NULL));
    const float *moved = ph_scene_report(e->scene).divergence;
    if (moved) *effect = *moved;
    return PH_OK;
}

static ph_status find_effects(const live_run *run, effect_run *e)
{
    float *effect = run->effect;
    for (int k = 0; k < run->report.stack_count; k++) {
        const ph_stack *stack = &run->report.stacks[k];
        for (int n = 0; n < stack->layers * stack->heads; n++)
            PH_TRY(find_effect(run, e, k, n / stack->heads, n % stack->heads, effect++));
    }
    return PH_OK;
}

ph_status ph_live_effects(const live_session *s, live_run *run, const ph_io *io)
{
    effect_run e = {0};
    size_t bytes = (size_t)ph_live_heads(&run->report) * sizeof *run->effect;
    if (!is_cheap(s, run)) return PH_OK;
    run->effect = ph_io_alloc(io, bytes);
    if (!run->effect) return ph_io_no_memory(io, bytes, "effects of heads");
    ph_status status = ph_reading_again(&e.reading, run->reading);
    if (status == PH_OK)
        status = ph_scene_create(&e.scene, s->live->model, e.reading, NULL, run->text,
                                 run->target, io);
    if (status == PH_OK) status = ph_prune_create(&e.plan, e.reading, io);
    if (status == PH_OK) status = find_effects(run, &e);
    if (status == PH_OK) ph_live_point_at_effects(run);
    ph_prune_free(&e.plan, io);
    ph_scene_free(e.scene);
    ph_reading_free(e.reading);
    return status;
}
