/*
 * ctx.c - memory hooks, error sentences and parallel loops of a context.
 */
#include "base/ctx.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

ph_status ph_fail(ph_ctx *ctx, ph_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(ctx->error, sizeof ctx->error, format, list);
    va_end(list);
    return status;
}

/* The hook need not align to more than 16 bytes, so the true start is kept in front. */
void *ph_ctx_alloc(ph_ctx *ctx, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * PH_ALIGN) return NULL;
    char *raw = ctx->options.alloc(ctx->options.user, bytes + 2 * PH_ALIGN);
    if (!raw) return NULL;
    uintptr_t start = ((uintptr_t)raw + 2 * PH_ALIGN - 1) & ~(uintptr_t)(PH_ALIGN - 1);
    char *aligned = raw + (start - (uintptr_t)raw);
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

/* A lane's own share first, then those of the others. */
static void run_lane(void *arg, int lane)
{
    loop *l = arg;
    for (int s = 0, i; s < l->count; s++) {
        share *from = &l->shares[(lane + s) % l->count];
        while ((i = atomic_fetch_add(&from->next, 1)) < from->end)
            l->item(l->arg, lane, i);
    }
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
