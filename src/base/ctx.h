/*
 * ctx.h - the inside of a ph_ctx: threads, kernels, memory hooks, the last error.
 */
#ifndef PH_BASE_CTX_H
#define PH_BASE_CTX_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/float_mode.h"
#include "base/threads.h"

struct ph_kernels;
struct ph_prepacked;
struct ph_backend;

struct ph_ctx {
    ph_options options; /* hooks filled in */
    int default_memory; /* 1: the hooks for memory are ours, safe in every thread */
    int threads;
    const struct ph_kernels *kernels;
    const struct ph_backend *backend; /* what runs the plans */
    void *device;                     /* of the backend; NULL: the CPU */
    ph_pool *pool;
    struct ph_prepacked *prepacked; /* matrices whose panels exist (kernels/gemm.h) */
    void *scratch;       /* workspace for calls that bring none; grows, never shrinks */
    size_t scratch_size; /* bytes at scratch */
    char error[512];     /* sentence of the last failed call */
    atomic_uintptr_t owner;    /* thread that runs a call; 0: none */
    int depth;                 /* calls of the owner inside its outermost one */
    ph_float_mode caller_mode; /* restored when the outermost call returns */
};

/* Around each entry point that takes a ctx: PH_WITHIN(ctx, call) evaluates `call` while
   this thread owns the ctx, in the default floating-point mode, and gives its status; or
   PH_BUSY at once while another thread owns it. Entry points may call each other. */
#define PH_WITHIN(ctx, call)                                                             \
    (ph_ctx_enter(ctx) == PH_OK ? ph_ctx_leave((ctx), (call)) : PH_BUSY)
ph_status ph_ctx_enter(ph_ctx *ctx);
ph_status ph_ctx_leave(ph_ctx *ctx, ph_status status); /* returns status */

/* Stores the sentence and returns the status: `return ph_fail(ctx, PH_BAD_SHAPE,
   ...)`. */
ph_status ph_fail(ph_ctx *ctx, ph_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* PH_BAD_ARGUMENT: "WHAT is NULL", where there is a ctx to say it; for entry points. */
ph_status ph_ctx_null(ph_ctx *ctx, const char *what);

/* Memory through the hooks, aligned to PH_ALIGN; NULL when there is none. */
void *ph_ctx_alloc(ph_ctx *ctx, size_t bytes);
void ph_ctx_release(ph_ctx *ctx, void *ptr);

/* The ctx's own workspace of at least `bytes`; fails with PH_OUT_OF_MEMORY. */
ph_status ph_ctx_scratch(ph_ctx *ctx, size_t bytes, void **out);

/* Calls item(arg, lane, index) for every index in [0, count), lower ones first as far as
   threads allow. Which lane gets which index is left to chance; results must not show
   it. */
typedef void ph_item(void *arg, int lane, int index);
void ph_ctx_run(ph_ctx *ctx, int count, ph_item *item, void *arg);

/* The same for items that take equally long: every lane begins with a share of its own,
   so that the rows one loop leaves in a core's cache are those the next one finds there,
   and helps the others when it is done. */
void ph_ctx_spread(ph_ctx *ctx, int count, ph_item *item, void *arg);

#endif
