/*
 * device.c - opens a GPU for a ctx, and its memory.
 */
#include "cuda/device.h"

#include <stdio.h>
#include <string.h>

#include "cuda/fast_launch.h"
#include "cuda/images.h"

/* ---- calls of the driver ---- */

ph_status ph_cuda_check(ph_ctx *ctx, CUresult result, const char *what)
{
    if (result == PH_CU_SUCCESS) return PH_OK;
    return ph_fail(ctx,
                   result == PH_CU_OUT_OF_MEMORY ? PH_OUT_OF_MEMORY : PH_DEVICE_ERROR,
                   "%s failed on the GPU, perhaps because of an earlier call: %s", what,
                   ph_driver_text(&ph_cuda_of(ctx)->driver, result));
}

ph_status ph_cuda_enter(ph_ctx *ctx)
{
    ph_cuda *gpu = ph_cuda_of(ctx);
    return ph_cuda_check(ctx, gpu->driver.cuCtxPushCurrent(gpu->context), "a call");
}

void ph_cuda_leave(ph_ctx *ctx)
{
    CUcontext ours;
    ph_cuda_of(ctx)->driver.cuCtxPopCurrent(&ours);
}

/* ---- opening ---- */

/* The device of this index, if the kernels can run there. */
static int find_device(ph_cuda *gpu, int index, char *problem, size_t size)
{
    const ph_driver *d = &gpu->driver;
    int count = 0, major = 0, minor = 0;
    if (d->cuDeviceGetCount(&count) != PH_CU_SUCCESS || count == 0) {
        snprintf(problem, size, "the NVIDIA driver finds no GPU");
        return -1;
    }
    if (index < 0 || index >= count) {
        snprintf(problem, size, "device_index is %d, expected 0 to %d", index, count - 1);
        return -1;
    }
    if (d->cuDeviceGet(&gpu->device, index) != PH_CU_SUCCESS ||
        d->cuDeviceGetName(gpu->name, sizeof gpu->name, gpu->device) != PH_CU_SUCCESS) {
        snprintf(problem, size, "GPU %d does not answer", index);
        return -1;
    }
    d->cuDeviceGetAttribute(&major, PH_CU_ATTRIBUTE_MAJOR, gpu->device);
    d->cuDeviceGetAttribute(&minor, PH_CU_ATTRIBUTE_MINOR, gpu->device);
    d->cuDeviceGetAttribute(&gpu->sm_count, PH_CU_ATTRIBUTE_SM_COUNT, gpu->device);
    if (major == 9 && minor == 0) return 0;
    snprintf(problem, size,
             "GPU %d (%s) has compute capability %d.%d, expected 9.0 (H100, H200)", index,
             gpu->name, major, minor);
    return -1;
}

static int load_images(ph_cuda *gpu, char *problem, size_t size)
{
    for (int i = 0; ph_cuda_images[i].name && i < PH_CUDA_IMAGES_MAX; i++) {
        CUresult result = gpu->driver.cuLibraryLoadData(
            &gpu->library[i], ph_cuda_images[i].data, NULL, NULL, 0, NULL, NULL, 0);
        if (result == PH_CU_SUCCESS) continue;
        snprintf(problem, size, "the kernels of %s do not load: %s",
                 ph_cuda_images[i].name, ph_driver_text(&gpu->driver, result));
        return -1;
    }
    return 0;
}

static CUkernel find_kernel(const ph_cuda *gpu, const char *image, const char *name)
{
    CUkernel kernel = NULL;
    for (int i = 0; i < PH_CUDA_IMAGES_MAX && gpu->library[i]; i++)
        if (!strcmp(ph_cuda_images[i].name, image))
            gpu->driver.cuLibraryGetKernel(&kernel, gpu->library[i], name);
    return kernel;
}

static int find_kernels(ph_cuda *gpu, char *problem, size_t size)
{
    static const struct {
        const char *image, *name;
    } list[] = {
#define ENTRY(file, name) {#file ".fatbin", "ph_" #name},
        PH_CUDA_KERNELS(ENTRY)
#undef ENTRY
    };
    for (int i = 0; i < PH_CUDA_KERNEL_COUNT; i++) {
        gpu->kernel[i] = find_kernel(gpu, list[i].image, list[i].name);
        if (gpu->kernel[i]) continue;
        snprintf(problem, size, "kernel %s is missing in this build", list[i].name);
        return -1;
    }
    return 0;
}

static int start(ph_cuda *gpu, char *problem, size_t size)
{
    const ph_driver *d = &gpu->driver;
    CUcontext ours;
    CUresult result = d->cuDevicePrimaryCtxRetain(&gpu->context, gpu->device);
    if (result == PH_CU_SUCCESS) result = d->cuCtxPushCurrent(gpu->context);
    if (result != PH_CU_SUCCESS) {
        snprintf(problem, size, "GPU %s does not start: %s", gpu->name,
                 ph_driver_text(d, result));
        return -1;
    }
    int failed = d->cuStreamCreate(&gpu->stream, PH_CU_STREAM_DEFAULT) != PH_CU_SUCCESS;
    if (failed) snprintf(problem, size, "GPU %s gives no stream", gpu->name);
    if (!failed) failed = load_images(gpu, problem, size);
    if (!failed) failed = find_kernels(gpu, problem, size);
    if (!failed && ph_cuda_fast_open(gpu) != PH_CU_SUCCESS) {
        snprintf(problem, size, "GPU %s has too little shared memory", gpu->name);
        failed = -1;
    }
    d->cuCtxPopCurrent(&ours);
    return failed ? -1 : 0;
}

static void stop(ph_cuda *gpu)
{
    const ph_driver *d = &gpu->driver;
    CUcontext ours;
    if (gpu->context && d->cuCtxPushCurrent(gpu->context) == PH_CU_SUCCESS) {
        for (int i = 0; i < PH_CUDA_IMAGES_MAX && gpu->library[i]; i++)
            d->cuLibraryUnload(gpu->library[i]);
        if (gpu->stream) d->cuStreamDestroy(gpu->stream);
        d->cuCtxPopCurrent(&ours);
    }
    if (gpu->context) d->cuDevicePrimaryCtxRelease(gpu->device);
    ph_driver_close(&gpu->driver);
}

ph_status ph_cuda_open(ph_ctx *ctx, char *problem, size_t size)
{
    if (!ph_cuda_images[0].name) {
        snprintf(problem, size,
                 "this build has no GPU kernels, expected one made where nvcc is");
        return PH_UNSUPPORTED;
    }
    ph_cuda *gpu = ph_ctx_alloc(ctx, sizeof *gpu);
    if (!gpu) {
        snprintf(problem, size, "no memory for a device");
        return PH_OUT_OF_MEMORY;
    }
    memset(gpu, 0, sizeof *gpu);
    int failed = ph_driver_open(&gpu->driver, problem, size);
    if (!failed) failed = find_device(gpu, ctx->options.device_index, problem, size);
    if (!failed) failed = start(gpu, problem, size);
    if (failed) {
        if (gpu->driver.library) stop(gpu);
        ph_ctx_release(ctx, gpu);
        return PH_UNSUPPORTED;
    }
    ctx->device = gpu;
    ctx->backend = &ph_cuda_backend;
    return PH_OK;
}

void ph_cuda_close(ph_ctx *ctx)
{
    stop(ph_cuda_of(ctx));
    ph_ctx_release(ctx, ctx->device);
}

/* ---- memory ---- */

ph_status ph_cuda_alloc(ph_ctx *ctx, size_t bytes, void **out)
{
    CUdeviceptr at = 0;
    PH_TRY(ph_cuda_enter(ctx));
    CUresult result = ph_cuda_of(ctx)->driver.cuMemAlloc(&at, bytes ? bytes : 1);
    ph_cuda_leave(ctx);
    if (result == PH_CU_OUT_OF_MEMORY)
        return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory of the GPU for %zu bytes",
                       bytes);
    *out = (void *)(uintptr_t)at;
    return ph_cuda_check(ctx, result, "ph_device_alloc");
}

void ph_cuda_free(ph_ctx *ctx, void *memory)
{
    if (!memory || ph_cuda_enter(ctx) != PH_OK) return;
    ph_cuda_of(ctx)->driver.cuMemFree((uintptr_t)memory);
    ph_cuda_leave(ctx);
}

ph_status ph_cuda_copy(ph_ctx *ctx, void *to, const void *from, size_t bytes,
                       void *stream)
{
    if (bytes == 0) return PH_OK;
    PH_TRY(ph_cuda_enter(ctx));
    CUresult result = ph_cuda_of(ctx)->driver.cuMemcpyAsync(
        (uintptr_t)to, (uintptr_t)from, bytes, ph_cuda_stream(ctx, stream));
    ph_cuda_leave(ctx);
    return ph_cuda_check(ctx, result, "ph_device_copy");
}

ph_status ph_cuda_sync(ph_ctx *ctx, void *stream)
{
    PH_TRY(ph_cuda_enter(ctx));
    CUresult result =
        ph_cuda_of(ctx)->driver.cuStreamSynchronize(ph_cuda_stream(ctx, stream));
    ph_cuda_leave(ctx);
    return ph_cuda_check(ctx, result, "ph_sync");
}
