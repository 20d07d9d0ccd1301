/*
 * fast_bed.h - what tests of the GPU's kernels on tensor cores share.
 */
#ifndef FAST_BED_H
#define FAST_BED_H

#include "sweep.h"

static inline ph_ctx *need_gpu(void)
{
    ph_ctx *ctx = NULL;
    static char text[300];
    ph_options o = {.device = PH_CUDA, .error = text, .error_size = sizeof text};
    if (ph_open(&ctx, &o) != PH_OK) SKIP("%s", text);
    return ctx;
}

static inline void run_and_judge(ph_ctx *ctx, problem *p)
{
    judge j;
    must(ctx, device_run(ctx, p, 0));
    CHECK(p->tensor_cores, "took the plain kernels: %s", problem_text(p));
    judge_open(&j, p);
    const char *why = judge_forward(&j, p);
    CHECK(!why, "%s: %s", why, problem_text(p));
    judge_close(&j);
}

/* The keys and values of batch row b become those of the only batch row of `part`. */
static inline void copy_keys(problem *part, const problem *whole, int b, int count)
{
    for (int i = 0; i < count; i++) {
        for (int h = 0; h < part->k.heads; h++)
            tensor_copy_row(&part->k, 0, h, i, &whole->k, b, h, i);
        for (int h = 0; h < part->v.heads; h++)
            tensor_copy_row(&part->v, 0, h, i, &whole->v, b, h, i);
    }
}

#endif
