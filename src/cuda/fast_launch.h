/*
 * fast_launch.h - the kernels on tensor cores: which calls they take.
 */
#ifndef PH_CUDA_FAST_LAUNCH_H
#define PH_CUDA_FAST_LAUNCH_H

#include "attn/plan.h"
#include "cuda/device.h"
#include "cuda/schedule.h"

/* What a fast kernel is launched with, besides the call. */
typedef struct ph_cuda_fast {
    ph_cuda_kernel kernel;
    int threads;
    ph_cuda_schedule schedule;
    CUtensorMap q, k, v;
} ph_cuda_fast;

/* By type, head dim and scale: may calls of the plan take a fast kernel? */
int ph_cuda_fast_plan(const ph_plan *plan);

/* 1 and fills `fast` if this call takes one: nothing but lengths and masks by position
   changes its scores, and the copy engine takes its tensors. Between ph_cuda_enter and
   ph_cuda_leave. */
int ph_cuda_fast_call(const ph_plan *plan, const ph_args *args, ph_cuda_fast *fast);

/* Once per device: lets the kernels have all shared memory of an SM. */
CUresult ph_cuda_fast_open(const ph_cuda *gpu);

#endif
