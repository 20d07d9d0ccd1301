/*
 * cuda_host.cpp - a libcuda.so.1 that runs our kernels on the CPU, so that the same tests
 * judge them where there is no GPU: test_cuda_host.sh builds it.
 *
 * The threads of a block are fibers; a barrier is where one hands over to the next. What
 * that cannot find: races, bank conflicts, misuse of the hardware.
 */
#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>

#include "cuda/cuda_call.h"
#include "cuda_host.h"

/* ---- fibers ---- */

uint3 threadIdx, blockIdx, gridDim;
float cuda_host_slot[1024];

typedef void kernel(ph_cuda_call);

enum { THREADS = 256, STACK = 1 << 17, WARPS = THREADS / 32 };

static struct {
    ucontext_t start[THREADS];
    jmp_buf at[THREADS], scheduler;
    bool started[THREADS], done[THREADS];
    char *stacks;
    kernel *body;
    const ph_cuda_call *call;
    int current;
    int arrived[WARPS + 1]; /* at the barrier of a warp, or (the last) of the block */
    unsigned passed[WARPS + 1];
} block;

static void enter()
{
    block.body(*block.call);
    block.done[block.current] = true;
    _longjmp(block.scheduler, 1);
}

void cuda_host_barrier(int warp)
{
    int group = warp < 0 ? WARPS : warp, size = warp < 0 ? THREADS : 32;
    unsigned before = block.passed[group];
    if (++block.arrived[group] == size) {
        block.arrived[group] = 0;
        block.passed[group]++;
        return;
    }
    while (block.passed[group] == before)
        if (!_setjmp(block.at[block.current])) _longjmp(block.scheduler, 1);
}

/* Lets thread t run up to its next barrier, or to its end. */
static void resume(int t)
{
    block.current = t, threadIdx.x = t;
    if (_setjmp(block.scheduler)) return;
    if (block.started[t]) _longjmp(block.at[t], 1);
    block.started[t] = true;
    ucontext_t *c = &block.start[t];
    getcontext(c);
    c->uc_stack.ss_sp = block.stacks + (size_t)t * STACK;
    c->uc_stack.ss_size = STACK;
    makecontext(c, enter, 0);
    setcontext(c);
}

static void run_block()
{
    bool left = true;
    std::memset(block.started, 0, sizeof block.started);
    std::memset(block.done, 0, sizeof block.done);
    while (left) {
        left = false;
        for (int t = 0; t < THREADS; t++)
            if (!block.done[t]) resume(t), left = true;
    }
}

/* ---- kernels ---- */

#define KERNELS(K)                                                                       \
    K(ph_plain_forward)                                                                  \
    K(ph_plain_delta)                                                                    \
    K(ph_plain_head_sums)                                                                \
    K(ph_plain_dq)                                                                       \
    K(ph_plain_dk)                                                                       \
    K(ph_plain_dv)                                                                       \
    K(ph_plain_dbias)                                                                    \
    K(ph_plain_drelative)                                                                \
    K(ph_plain_relative_sums)
#define DECLARE(name) extern "C" kernel name;
KERNELS(DECLARE)

static int get_kernel(void **out, void *, const char *name)
{
#define MATCH(known)                                                                     \
    if (!std::strcmp(name, #known)) return *out = (void *)known, 0;
    KERNELS(MATCH)
    if (!std::strncmp(name, "ph_fast_", 8)) return *out = (void *)&block, 0;
    return 500; /* CUDA_ERROR_NOT_FOUND */
}

static int launch(void *body, unsigned x, unsigned y, unsigned, unsigned, unsigned,
                  unsigned, unsigned, void *, void **parameters, void **)
{
    if (!block.stacks) block.stacks = (char *)std::malloc((size_t)THREADS * STACK);
    block.body = (kernel *)body;
    block.call = (const ph_cuda_call *)parameters[0];
    gridDim = {x, y, 1};
    for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++) run_block();
    return 0;
}

/* ---- the driver ---- */

typedef unsigned long long address;

static int nothing()
{
    return 0;
}

static int error_string(int, const char **text)
{
    return *text = "an error of the host", 0;
}

static int one(int *count)
{
    return *count = 1, 0;
}

static int zero(int *device, int)
{
    return *device = 0, 0;
}

static int device_name(char *name, int size, int)
{
    return std::snprintf(name, size, "the host"), 0;
}

static int attribute(int *value, int which, int)
{
    return *value = which == 75 ? 9 : which == 76 ? 0 : 1, 0; /* capability 9.0, 1 SM */
}

static int handle(void **out, unsigned)
{
    return *out = (void *)&block, 0;
}

static int not_capturing(void *, int *status)
{
    return *status = 0, 0;
}

static int library(void **out, const void *, void *, void *, unsigned, void *, void *,
                   unsigned)
{
    return *out = (void *)&block, 0;
}

/* Memory starts as NaN. */
static int allocate(address *out, size_t bytes)
{
    size_t size = (bytes + 63) / 64 * 64;
    void *memory = std::aligned_alloc(64, size ? size : 64);
    if (memory) std::memset(memory, 0xff, size);
    return *out = (address)memory, memory ? 0 : 2;
}

static int release(address memory)
{
    return std::free((void *)memory), 0;
}

static int copy(address to, address from, size_t bytes, void *)
{
    return std::memcpy((void *)to, (const void *)from, bytes), 0;
}

/* There is no copy engine, so that no call takes the kernels on tensor cores. */
static int no_tensor_map()
{
    return 801; /* CUDA_ERROR_NOT_SUPPORTED */
}

extern "C" int cuGetProcAddress_v2(const char *name, void **out, int, address, int *)
{
    static const struct {
        const char *name;
        void *function;
    } known[] = {{"cuGetErrorString", (void *)error_string},
                 {"cuDeviceGetCount", (void *)one},
                 {"cuDeviceGet", (void *)zero},
                 {"cuDeviceGetName", (void *)device_name},
                 {"cuDeviceGetAttribute", (void *)attribute},
                 {"cuDevicePrimaryCtxRetain", (void *)handle},
                 {"cuStreamCreate", (void *)handle},
                 {"cuEventCreate", (void *)handle},
                 {"cuStreamIsCapturing", (void *)not_capturing},
                 {"cuMemAlloc", (void *)allocate},
                 {"cuMemFree", (void *)release},
                 {"cuMemcpyAsync", (void *)copy},
                 {"cuTensorMapEncodeTiled", (void *)no_tensor_map},
                 {"cuLibraryLoadData", (void *)library},
                 {"cuLibraryGetKernel", (void *)get_kernel},
                 {"cuLaunchKernel", (void *)launch}};
    *out = (void *)nothing;
    for (const auto &k : known)
        if (!std::strcmp(k.name, name)) *out = k.function;
    return 0;
}
