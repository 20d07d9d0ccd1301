/*
 * fast_launch.h - the kernels on tensor cores: which calls they take.
 */
#ifndef PH_CUDA_FAST_LAUNCH_H
#define PH_CUDA_FAST_LAUNCH_H

#include "attn/plan.h"
#include "base/arena.h"
#include "cuda/cuda_call.h"
#include "cuda/device.h"
#include "cuda/schedule.h"

/* What a fast kernel is launched with, besides the call. */
typedef struct ph_cuda_fast {
    ph_cuda_kernel kernel;
    int threads, ctas;
    int rows;    /* of a tile */
    int pairs;   /* 1: two CTAs share an item */
    int streams; /* items that a CTA walks side by side; 0: one */
    int gathers; /* 1: computes listed rows only, see gather_rows.cu */
    ph_attn attn; /* of the plan, with the layouts that the kernel reads */
    ph_cuda_packed packed[3]; /* copies of q, k, v in the workspace, see pack_rows.cu */
    ph_cuda_schedule schedule;
    ph_cuda_gathered gathered; /* in the workspace, of a plan that may gather rows */
    size_t counters; /* in the workspace, from its start on: 0 before a launch */
    CUtensorMap q, k, v, out;
} ph_cuda_fast;

/* Why all calls of the plan take plain kernels, or NULL if they may take a fast one. */
const char *ph_cuda_why_plain(const ph_plan *plan);
int ph_cuda_fast_plan(const ph_plan *plan);

/* Which of q, k and v such a plan copies first, because of their layout. */
void ph_cuda_copied(const ph_plan *plan, int (*copied)[3]);

/* How the work of such a plan is cut, and its workspace. */
void ph_cuda_fast_cut(const ph_plan *plan, ph_arena *arena, ph_cuda_fast *fast);

/* 1 and makes the maps of `fast` if this call takes a fast kernel: there is one for what
   changes its scores, and the copy engine takes its tensors.
   Between ph_cuda_enter and ph_cuda_leave. */
int ph_cuda_fast_call(const ph_plan *plan, const ph_args *args, ph_cuda_fast *fast);

/* The same of a backward pass: of dq, or of dk and dv (keys). The map `out` is that of
   dout. */
int ph_cuda_grad_plan(const ph_plan *plan); /* else none of the others may be called */
void ph_cuda_grad_cut(const ph_plan *plan, int keys, ph_arena *arena, ph_cuda_fast *fast);
int ph_cuda_grad_call(const ph_plan *plan, int keys, const ph_args *args,
                      const ph_grads *grads, ph_cuda_fast *fast);

/* Once per device: lets the kernels have all shared memory of an SM. */
CUresult ph_cuda_fast_open(const ph_cuda *gpu);

#endif
