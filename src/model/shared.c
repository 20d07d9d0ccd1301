/*
 * shared.c - layers that share parameters (layer_groups): a sublayer of each but the
 * first of a group has the parameters of the same sublayer one layer before, by index.
 *
 * Everything that goes over parameters so meets them once. A pass backward writes the
 * gradients of a sublayer over what is there, so those of the layers behind it are held
 * while it does, and added.
 */
#include <string.h>

#include "model/pass.h"

/* Each layer of an encoder is two sublayers. */
void ph_model_share(ph_model *m, ph_model_stack *s, int layer)
{
    for (int i = 0; i < 2; i++) {
        ph_sublayer *sublayer = &s->sublayers[s->count++];
        *sublayer = sublayer[-2];
        sublayer->layer = layer;
        if (sublayer->site < 0) continue;
        sublayer->site = m->site_count++;
        sublayer->first_head = m->head_count;
        m->head_count += sublayer->heads;
    }
}

/* Calls f with every parameter of a sublayer and its norm, and where its gradient has a
   place of its own. */
typedef void on_gradient(const ph_pass *p, const ph_weight *w, float *held);

static size_t each_gradient(const ph_model *m, const ph_sublayer *s, const ph_pass *p,
                            on_gradient *f)
{
    const int norm[] = {s->gain, s->shift};
    size_t at = 0;
    for (int i = 0; i < s->count + 2; i++) {
        int index = i < s->count ? s->first + i : norm[i - s->count];
        if (index < 0) continue;
        if (f) f(p, &m->params[index], p->held + at);
        at += m->params[index].count;
    }
    return at;
}

size_t ph_shared_floats(const ph_model *m)
{
    size_t most = 0;
    for (int s = 0; m->config.layer_groups && s < 2; s++) {
        size_t floats = each_gradient(m, &m->stacks[0].sublayers[s], NULL, NULL);
        most = floats > most ? floats : most;
    }
    return most;
}

/* Whether the layer behind this one has the same parameters. */
static int is_shared(const ph_model_stack *stack, int sublayer)
{
    const ph_sublayer *s = &stack->sublayers[sublayer];
    return sublayer + 2 < stack->count && s[2].first == s->first;
}

static void hold(const ph_pass *p, const ph_weight *w, float *held)
{
    memcpy(held, p->grads + w->at, w->count * sizeof *held);
}

static void add(const ph_pass *p, const ph_weight *w, float *held)
{
    ph_pass_add(p, w->count, p->grads + w->at, held);
}

void ph_shared_hold(const ph_pass *p, const ph_pass_stack *stack, int sublayer)
{
    if (!p->held || !is_shared(stack->def, sublayer)) return;
    each_gradient(p->model, &stack->def->sublayers[sublayer], p, hold);
}

void ph_shared_add(const ph_pass *p, const ph_pass_stack *stack, int sublayer)
{
    if (!p->held || !is_shared(stack->def, sublayer)) return;
    each_gradient(p->model, &stack->def->sublayers[sublayer], p, add);
}
