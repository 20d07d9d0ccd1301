/*
 * context.c - contexts of polyhead.h: where to run, and memory of the device.
 */
#define _DEFAULT_SOURCE /* madvise */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "attn/backend.h"
#include "base/cpu.h"
#include "base/reserved.h"
#include "cuda/device.h"
#include "kernels/kernels.h"

/* Huge pages for large buffers, where the system offers them on request: weights and
   activations are read sequentially, and 4 KB pages cost a TLB miss every 1024 floats. */
static void use_huge_pages(void *start, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const size_t page = (size_t)2 << 20;
    size_t skip = (page - (uintptr_t)start % page) % page;
    if (bytes < skip + 2 * page) return;
    madvise((char *)start + skip, (bytes - skip) / page * page, MADV_HUGEPAGE);
#else
    (void)start, (void)bytes;
#endif
}

static void *default_alloc(void *user, size_t bytes)
{
    (void)user;
    void *memory = malloc(bytes);
    if (memory) use_huge_pages(memory, bytes);
    return memory;
}

static void default_release(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

/* A failed ph_open has no ctx to hold the message: it goes to the caller's buffer. */
static ph_status refuse_open(const ph_options *o, ph_status status, const char *field,
                             const char *problem)
{
    if (o->error && o->error_size)
        snprintf(o->error, o->error_size, "%s %s", field, problem);
    return status;
}

/* "is "neon" in POLYHEAD_ISA, expected one of ref, avx2" */
static void name_tables(const char *isa, const char *where, char text[128])
{
    const char *const *names = ph_kernels_names();
    int used = snprintf(text, 128, "is \"%.40s\"%s, expected one of", isa, where);
    for (int i = 0; names[i] && used < 128; i++)
        used +=
            snprintf(text + used, 128 - (size_t)used, "%s %s", i ? "," : "", names[i]);
}

/* The lower of the two limits, the option and the environment; the best without any. */
static const ph_kernels *pick_kernels(const char *option, char unknown[128])
{
    const char *limits[2] = {option, getenv("POLYHEAD_ISA")};
    const ph_kernels *const *list = ph_kernels_list();
    const ph_kernels *lowest = NULL;
    for (int i = 0; i < 2; i++) {
        if (!limits[i] || !limits[i][0]) continue;
        const ph_kernels *found = ph_kernels_pick(limits[i]);
        if (!found) {
            name_tables(limits[i], i ? " in POLYHEAD_ISA" : "", unknown);
            return NULL;
        }
        if (!lowest) lowest = found;
        for (int j = 0; list[j] && list[j] != lowest; j++)
            if (list[j] == found) lowest = found;
    }
    return lowest ? lowest : ph_kernels_pick(NULL);
}

/* Before 1.0 minor versions differ in everything, afterwards major ones do. */
static int fits_version(int version)
{
    int unit = PH_VERSION_MAJOR ? 1000000 : 1000;
    return version / unit == PH_VERSION / unit;
}

/* Nothing else of the options of another version can be read. */
static ph_status refuse_version(const ph_options *options, int version)
{
    char text[128];
    snprintf(text, sizeof text,
             "was compiled with headers of version %d.%d.%d, expected those of %s",
             version / 1000000, version / 1000 % 1000, version % 1000, ph_version());
    return options ? refuse_open(options, PH_UNSUPPORTED, "the program", text)
                   : PH_UNSUPPORTED;
}

ph_status ph_open_version(ph_ctx **out, const ph_options *options, int version)
{
    ph_options o = {0};
    char unknown[256] = "";
    if (out) *out = NULL;
    if (!fits_version(version)) return refuse_version(options, version);
    if (options) o = *options;
    if (!out) return refuse_open(&o, PH_BAD_ARGUMENT, "out", "is NULL");
    if (!PH_ALL_ZERO(o.reserved))
        return refuse_open(&o, PH_BAD_ARGUMENT, "ph_options.reserved", PH_RESERVED_WORDS);
    if (o.device != PH_CPU && o.device != PH_CUDA)
        return refuse_open(&o, PH_BAD_ARGUMENT, "device",
                           "is neither PH_CPU nor PH_CUDA");
    if (o.threads < 0 || o.threads > 4096)
        return refuse_open(&o, PH_BAD_ARGUMENT, "threads",
                           "is outside the expected 0 to 4096");
    if (!o.alloc != !o.release)
        return refuse_open(&o, PH_BAD_ARGUMENT, "alloc and release",
                           "are expected together, one of them is NULL");
    int gpu = o.device == PH_CUDA;
    if (gpu && o.isa && strcmp(o.isa, ph_cuda_backend.isa))
        return refuse_open(&o, PH_BAD_ARGUMENT, "isa", "names a CPU's, expected sm90");
    const ph_kernels *kernels = pick_kernels(gpu ? NULL : o.isa, unknown);
    if (!kernels) return refuse_open(&o, PH_BAD_ARGUMENT, "isa", unknown);
    if (!o.alloc) o.alloc = default_alloc, o.release = default_release;
    if (gpu) o.threads = 1; /* the host only puts kernels into a stream */
    if (o.threads == 0) o.threads = ph_cpu_count();

    ph_ctx *ctx = o.alloc(o.user, sizeof *ctx);
    if (!ctx)
        return refuse_open(&o, PH_OUT_OF_MEMORY, "context", "does not fit in memory");
    memset(ctx, 0, sizeof *ctx);
    ctx->options = o;
    ctx->default_memory = o.alloc == default_alloc;
    ctx->threads = o.threads;
    ctx->kernels = kernels;
    ctx->backend = &ph_cpu_backend;
    void *pool = ph_ctx_alloc(ctx, ph_pool_bytes(o.threads));
    if (!pool) {
        o.release(o.user, ctx);
        return refuse_open(&o, PH_OUT_OF_MEMORY, "thread pool", "does not fit in memory");
    }
    ctx->pool = ph_pool_init(pool, o.threads);
    ph_status status = PH_OK;
    if (gpu) status = ph_cuda_open(ctx, unknown, sizeof unknown);
    if (status != PH_OK) {
        ph_close(ctx);
        return refuse_open(&o, status, "device PH_CUDA:", unknown);
    }
    *out = ctx;
    return PH_OK;
}

void ph_close(ph_ctx *ctx)
{
    if (!ctx) return;
    ph_options o = ctx->options;
    ctx->backend->close(ctx);
    ph_pool_stop(ctx->pool);
    ph_ctx_release(ctx, ctx->pool);
    ph_ctx_release(ctx, ctx->scratch);
    o.release(o.user, ctx);
}

const char *ph_error(const ph_ctx *ctx)
{
    return ctx ? ctx->error : "";
}

int ph_threads(const ph_ctx *ctx)
{
    return ctx ? ctx->threads : 0;
}

const char *ph_isa(const ph_ctx *ctx)
{
    if (!ctx) return "";
    return ctx->backend->isa ? ctx->backend->isa : ctx->kernels->name;
}

const char *const *ph_isa_list(void)
{
    return ph_kernels_names();
}

ph_isa_info ph_isa_about(const char *isa)
{
    ph_isa_info info = {0};
    for (const ph_kernels *const *k = ph_kernels_list(); *k; k++)
        if (isa && !strcmp((*k)->name, isa))
            info = (ph_isa_info){.vectors = (*k)->vectors,
                                 .own_bf16 = (*k)->bf16_pairs != NULL,
                                 .own_gradients = (*k)->f32_tiles};
    return info;
}

/* ---- memory of the device ---- */

ph_status ph_device_alloc(ph_ctx *ctx, size_t bytes, void **out)
{
    if (out) *out = NULL;
    if (!ctx || !out) return ph_ctx_null(ctx, "out");
    return PH_WITHIN(ctx, ctx->backend->alloc(ctx, bytes, out));
}

void ph_device_free(ph_ctx *ctx, void *memory)
{
    if (ctx) ctx->backend->release(ctx, memory);
}

ph_status ph_device_copy(ph_ctx *ctx, void *to, const void *from, size_t bytes,
                         void *stream)
{
    if (!ctx) return PH_BAD_ARGUMENT;
    if (bytes && (!to || !from))
        return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is NULL, expected %zu bytes",
                       to ? "from" : "to", bytes);
    return PH_WITHIN(ctx, ctx->backend->copy(ctx, to, from, bytes, stream));
}

ph_status ph_sync(ph_ctx *ctx, void *stream)
{
    if (!ctx) return PH_BAD_ARGUMENT;
    return PH_WITHIN(ctx, ctx->backend->sync(ctx, stream));
}
