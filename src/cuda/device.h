/*
 * device.h - a GPU opened for a ctx: driver, primary context, stream, kernels.
 */
#ifndef PH_CUDA_DEVICE_H
#define PH_CUDA_DEVICE_H

#include "attn/backend.h"
#include "cuda/driver.h"
#include "cuda/kernel_list.h"

enum { PH_CUDA_IMAGES_MAX = 32 };

typedef struct ph_cuda {
    ph_driver driver;
    CUdevice device;
    CUcontext context; /* the primary one: pointers of other libraries work */
    CUstream stream;   /* for calls that bring none; ordered with the legacy stream */
    CUlibrary library[PH_CUDA_IMAGES_MAX];
    CUkernel kernel[PH_CUDA_KERNEL_COUNT];
    int sm_count;
    char name[96];
} ph_cuda;

/* Opens options.device_index for the ctx and makes it the ctx's backend. On failure one
   sentence is in `problem`. */
ph_status ph_cuda_open(ph_ctx *ctx, char *problem, size_t size);

/* The GPU of a ctx that has one. */
static inline ph_cuda *ph_cuda_of(const ph_ctx *ctx)
{
    return ctx->device;
}

/* Around everything that speaks to the driver; leaves the caller's context current. */
ph_status ph_cuda_enter(ph_ctx *ctx);
void ph_cuda_leave(ph_ctx *ctx);

/* PH_OK, or what the driver said, as the ctx's sentence: "`what` failed on the GPU: ...".
   A fault of an earlier call surfaces here. */
ph_status ph_cuda_check(ph_ctx *ctx, CUresult result, const char *what);

static inline CUstream ph_cuda_stream(const ph_ctx *ctx, void *stream)
{
    return stream ? (CUstream)stream : ph_cuda_of(ctx)->stream;
}

/* Operations of the backend on memory and on the ctx; those on plans are in launch.c. */
ph_status ph_cuda_alloc(ph_ctx *ctx, size_t bytes, void **out);
void ph_cuda_free(ph_ctx *ctx, void *memory);
ph_status ph_cuda_copy(ph_ctx *ctx, void *to, const void *from, size_t bytes,
                       void *stream);
ph_status ph_cuda_sync(ph_ctx *ctx, void *stream);
void ph_cuda_close(ph_ctx *ctx);

extern const ph_backend ph_cuda_backend;

#endif
