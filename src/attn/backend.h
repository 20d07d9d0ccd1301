/*
 * backend.h - what a device must offer: operations on plans, and on its memory.
 *
 * polyhead.c checks a call and then goes through the table of the ctx; nothing above it
 * knows which device runs. The CPU engine (engine.c) is one such table.
 */
#ifndef PH_ATTN_BACKEND_H
#define PH_ATTN_BACKEND_H

#include "base/ctx.h"

struct ph_plan;
struct ph_call;

/* Checks lengths and values of the small tensors of a call, which it reads. */
typedef ph_status ph_tensor_check(const struct ph_plan *plan, const ph_args *args);

typedef struct ph_backend {
    const char *isa; /* what ph_isa says; NULL: the name of the kernel table */

    /* Memory that the passes can reach, and the order of their work. */
    ph_status (*alloc)(ph_ctx *ctx, size_t bytes, void **out);
    void (*release)(ph_ctx *ctx, void *memory);
    ph_status (*copy)(ph_ctx *ctx, void *to, const void *from, size_t bytes,
                      void *stream);
    ph_status (*sync)(ph_ctx *ctx, void *stream);
    void (*close)(ph_ctx *ctx); /* what opening the device took */

    /* Decides how the work of a checked problem is cut and fills lane_bytes and
       shared_bytes; refuses, by name, what the device does not have. */
    ph_status (*measure)(struct ph_plan *plan);
    void (*destroy)(struct ph_plan *plan); /* what measure took */
    int (*describe)(const struct ph_plan *plan, char *text, size_t size);

    /* Before anything is written: refuses what the device does not have in a call, and
       runs the check where the host can read the tensors. */
    ph_status (*inspect)(const struct ph_plan *plan, const ph_args *args,
                         ph_tensor_check *check);
    /* Workspace of at least `bytes` for a call that brings none. */
    ph_status (*scratch)(const struct ph_plan *plan, size_t bytes, void **out);
    /* The passes: arguments are checked, workspace is in place. */
    ph_status (*forward)(const struct ph_call *call);
    ph_status (*backward)(const struct ph_call *call);
    ph_status (*look)(const struct ph_call *call);
} ph_backend;

extern const ph_backend ph_cpu_backend;

#endif
