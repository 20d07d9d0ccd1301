/*
 * optimise.c - AdamW over all parameters, the gradient norm, the learning rate schedule.
 *
 * A work item is a fixed number of parameters, so partial sums, and with them the bits of
 * the gradient norm, do not depend on the number of threads.
 */
#include <math.h>

#include "model/train.h"

typedef struct optimise_job {
    const ph_trainer *t;
    ph_adam adam;
    size_t first, count; /* range of parameters */
} optimise_job;

static int item_count(size_t count)
{
    return (int)((count + PH_ITEM_FLOATS - 1) / PH_ITEM_FLOATS);
}

/* Returns how many parameters the item has; *at is the first of them. */
static int item_range(const optimise_job *j, int index, size_t *at)
{
    size_t left = j->count - (size_t)index * PH_ITEM_FLOATS;
    *at = j->first + (size_t)index * PH_ITEM_FLOATS;
    return left < PH_ITEM_FLOATS ? (int)left : PH_ITEM_FLOATS;
}

static void grad_norm_item(void *arg, int lane, int index)
{
    const optimise_job *j = arg;
    size_t at;
    int n = item_range(j, index, &at);
    (void)lane;
    j->t->partial_sums[index] = j->t->model->spans->sum_of_squares(n, j->t->grads + at);
}

double ph_optimise_grad_norm(const ph_trainer *t)
{
    optimise_job j = {.t = t, .count = t->model->floats};
    int count = item_count(j.count);
    double sum = 0;
    ph_ctx_spread(t->ctx, count, grad_norm_item, &j);
    for (int i = 0; i < count; i++) sum += t->partial_sums[i];
    return sqrt(sum);
}

double ph_optimise_lr(const ph_train *train, int step)
{
    double warm = train->warmup > 0 ? train->warmup : 1, at = step;
    if (at < warm) return train->lr * at / warm;
    if (train->schedule == PH_SCHEDULE_CLASSIC) return train->lr * sqrt(warm / at);
    double rest = train->steps > warm ? (at - warm) / (train->steps - warm) : 1;
    if (rest > 1) rest = 1;
    return train->lr * (0.1 + 0.45 * (1 + cos(3.14159265358979323846 * rest)));
}

static void adam_item(void *arg, int lane, int index)
{
    const optimise_job *j = arg;
    const ph_trainer *t = j->t;
    size_t at;
    int n = item_range(j, index, &at);
    (void)lane;
    t->model->spans->adam(n, &j->adam, t->grads + at, t->model->block + at,
                          t->first_moment + at, t->second_moment + at);
}

/* Weight decay acts on matrices only; they come first among the parameters. */
void ph_optimise_step(const ph_trainer *t, double grad_norm)
{
    const ph_train *o = &t->train;
    const ph_model *m = t->model;
    double lr = ph_optimise_lr(o, t->step), clip = 1;
    if (o->max_grad_norm > 0 && grad_norm + 1e-6 > o->max_grad_norm)
        clip = o->max_grad_norm / (grad_norm + 1e-6);
    optimise_job j = {.t = t, .count = m->decayed};
    j.adam = (ph_adam){.rate = (float)lr, .beta1 = 0.9f, .beta2 = 0.98f};
    j.adam.fix1 = (float)(1 / (1 - pow(0.9, t->step)));
    j.adam.fix2 = (float)(1 / (1 - pow(0.98, t->step)));
    j.adam.eps = 1e-9f, j.adam.clip = (float)clip;
    j.adam.decay = (float)(lr * o->weight_decay);
    ph_ctx_spread(t->ctx, item_count(j.count), adam_item, &j);
    j.first = m->decayed, j.count = m->floats - m->decayed, j.adam.decay = 0;
    ph_ctx_spread(t->ctx, item_count(j.count), adam_item, &j);
}
