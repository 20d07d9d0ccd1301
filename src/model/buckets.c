/*
 * buckets.c - relative positions of PH_POS_T5: score(i, j) += B[bucket(j - i)][head].
 *
 * Distances up to a quarter of the buckets (half of those of one side) have one each,
 * larger ones share: where each begins is a table of whole numbers, the logarithms of the
 * formula worked out once. One table of parameters serves all layers of a stack.
 */
#include <stdlib.h>
#include <string.h>

#include "model/pass.h"

/* First distance of each bucket behind the single ones. */
static const int both_ways[] = {8, 12, 16, 23, 32, 46, 64, 91};
static const int backwards[] = {16, 19, 21, 24, 27, 31, 35, 40,
                                46, 52, 59, 67, 77, 87, 99, 113};

/* Bucket of a key that stands `distance` behind (positive) or before the query. */
static int bucket_of(int distance, int causal)
{
    const int *starts = causal ? backwards : both_ways;
    int single = causal ? 16 : 8, side = !causal && distance > 0 ? PH_BUCKETS / 2 : 0;
    int far = causal ? (distance < 0 ? -distance : 0) : abs(distance);
    if (far < single) return side + far;
    int n = 0;
    while (n + 1 < single && far >= starts[n + 1]) n++;
    return side + single + n;
}

static int keys_of(const ph_pass *p, const ph_side *side)
{
    return p->shape.capacity ? p->shape.capacity : side->len;
}

void ph_buckets_fill(const ph_pass *p, const ph_side *side)
{
    const float *table = p->block + p->model->params[side->stack->buckets].at;
    int heads = p->model->config.heads, keys = keys_of(p, side);
    int past = p->past ? p->past[0] : 0;
    for (int i = 0; i < side->len; i++)
        for (int j = 0; j < keys; j++) {
            const float *row =
                table + bucket_of(j - i - past, side->stack->causal) * heads;
            for (int h = 0; h < heads; h++)
                side->bias[((size_t)h * side->len + i) * keys + j] = row[h];
        }
}

void ph_buckets_clear(const ph_pass *p, const ph_side *side)
{
    const ph_weight *w = &p->model->params[side->stack->buckets];
    memset(p->grads + w->at, 0, w->count * sizeof(float));
}

typedef struct job {
    const ph_pass *p;
    const ph_side *side;
} job;

/* A head owns its column of the gradients. */
static void back_item(void *arg, int lane, int head)
{
    const job *j = arg;
    const ph_side *side = j->side;
    int heads = j->p->model->config.heads, len = side->len;
    float *grads = j->p->grads + j->p->model->params[side->stack->buckets].at;
    (void)lane;
    for (int i = 0; i < len; i++)
        for (int k = 0; k < len; k++)
            grads[bucket_of(k - i, side->stack->causal) * heads + head] +=
                side->dbias[((size_t)head * len + i) * len + k];
}

void ph_buckets_back(const ph_pass *p, const ph_side *side)
{
    job j = {p, side};
    ph_ctx_run(p->model->ctx, p->model->config.heads, back_item, &j);
}
