/*
 * ctx.c - ownership, memory hooks, error sentences and parallel loops of a context.
 */
#include "base/ctx.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"

ph_status ph_fail(ph_ctx *ctx, ph_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    ph_format_list(ctx->error, sizeof ctx->error, format, list);
    va_end(list);
    return status;
}

ph_status ph_ctx_enter(ph_ctx *ctx)
{
    uintptr_t self = (uintptr_t)pthread_self(), nobody = 0;
    if (atomic_load_explicit(&ctx->owner, memory_order_relaxed) == self) {
        ctx->depth++;
        return PH_OK;
    }
    if (!atomic_compare_exchange_strong(&ctx->owner, &nobody, self)) return PH_BUSY;
    ctx->caller_mode = ph_float_mode_default();
    return PH_OK;
}

ph_status ph_ctx_leave(ph_ctx *ctx, ph_status status)
{
    if (ctx->depth > 0) {
        ctx->depth--;
        return status;
    }
    ph_float_mode_set(ctx->caller_mode);
    atomic_store(&ctx->owner, 0);
    return status;
}

ph_status ph_ctx_null(ph_ctx *ctx, const char *what)
{
    if (!ctx) return PH_BAD_ARGUMENT;
    return PH_WITHIN(ctx, ph_fail(ctx, PH_BAD_ARGUMENT, "%s is NULL", what));
}

/* The hook need not align to more than 16 bytes, so the true start is kept in front. A
   hook that aligns to PH_ALIGN gets a block that ends where the caller's bytes end. */
void *ph_ctx_alloc(ph_ctx *ctx, size_t bytes)
{
    if (bytes > SIZE_MAX - PH_ALIGN) return NULL;
    char *raw = ctx->options.alloc(ctx->options.user, bytes + PH_ALIGN);
    if (!raw) return NULL;
    char *aligned = raw + (PH_ALIGN - (uintptr_t)raw % PH_ALIGN);
    memcpy(aligned - sizeof(void *), &raw, sizeof(void *));
    return aligned;
}

void ph_ctx_release(ph_ctx *ctx, void *ptr)
{
    if (!ptr) return;
    void *raw;
    memcpy(&raw, (char *)ptr - sizeof(void *), sizeof(void *));
    ctx->options.release(ctx->options.user, raw);
}

ph_status ph_ctx_scratch(ph_ctx *ctx, size_t bytes, void **out)
{
    if (bytes > ctx->scratch_size) {
        void *larger = ph_ctx_alloc(ctx, bytes);
        if (!larger)
            return ph_fail(ctx, PH_OUT_OF_MEMORY,
                           "no memory for a workspace of %zu bytes", bytes);
        ph_ctx_release(ctx, ctx->scratch);
        ctx->scratch = larger;
        ctx->scratch_size = bytes;
    }
    *out = ctx->scratch;
    return PH_OK;
}

enum { SHARES = 64 }; /* lanes beyond begin where another does */

/* Items that nobody has taken yet; alone in its cache line. */
typedef struct share {
    _Alignas(PH_ALIGN) atomic_int next;
    int end;
} share;

typedef struct loop {
    ph_item *item;
    void *arg;
    int count; /* shares */
    share shares[SHARES];
} loop;

/* A lane's own share first, then those of the others. The thread may be a worker, which
   inherited the mode of whoever started the pool, or one of the caller's. */
static void run_lane(void *arg, int lane)
{
    loop *l = arg;
    ph_float_mode before = ph_float_mode_default();
    for (int s = 0, i; s < l->count; s++) {
        share *from = &l->shares[(lane + s) % l->count];
        while ((i = atomic_fetch_add(&from->next, 1)) < from->end)
            l->item(l->arg, lane, i);
    }
    ph_float_mode_set(before);
}

static void run(ph_ctx *ctx, int shares, int count, ph_item *item, void *arg)
{
    loop l;
    int lanes = ph_min(ctx->threads, count);
    l.item = item, l.arg = arg, l.count = ph_max(ph_min(shares, lanes), 1);
    for (int s = 0; s < l.count; s++) {
        atomic_init(&l.shares[s].next, (int)((int64_t)count * s / l.count));
        l.shares[s].end = (int)((int64_t)count * (s + 1) / l.count);
    }
    if (lanes <= 1)
        run_lane(&l, 0);
    else if (ctx->options.parallel)
        ctx->options.parallel(ctx->options.user, lanes, run_lane, &l);
    else
        ph_pool_run(ctx->pool, lanes, run_lane, &l);
}

void ph_ctx_run(ph_ctx *ctx, int count, ph_item *item, void *arg)
{
    run(ctx, 1, count, item, arg);
}

void ph_ctx_spread(ph_ctx *ctx, int count, ph_item *item, void *arg)
{
    run(ctx, SHARES, count, item, arg);
}
