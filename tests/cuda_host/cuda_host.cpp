/*
 * cuda_host.cpp - a libcuda.so.1 that runs our kernels on the CPU, so that the same tests
 * judge them where there is no GPU: test_cuda_host.sh builds it.
 *
 * The threads of a block, or of a cluster of blocks, are fibers; a barrier is where one
 * hands over to the next. Copies by the hardware happen at once, at random times, or
 * only when all fibers wait, which a launch draws; the order of fibers is random too. If
 * all wait for each other, that is said. What this cannot find: unordered accesses
 * between two barriers, bank conflicts, registers that are touched while a product is in
 * flight.
 */
#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda/cuda_call.h"
#define _Alignas alignas
#include "cuda/driver.h"
#include "cuda/hopper.cuh"
#include "cuda/kernel_list.h"
#include "cuda/schedule.h"
#include "cuda_host.h"

/* ---- fibers ---- */

uint3 threadIdx, blockIdx, gridDim;

typedef void plain_kernel(ph_cuda_call);
typedef void fast_kernel(ph_cuda_call, ph_cuda_schedule, tensor_map, tensor_map,
                         tensor_map, tensor_map);

enum { STACK = 1 << 17, MOST = 512, WARPS = MOST / 32, NAMED = 16, CTAS = 2 };

/* Threads that arrived, and how often all did. */
struct meeting {
    int arrived;
    uint32_t passed;
};

struct cta {
    meeting warp[WARPS + 1]; /* the last: of the block */
    meeting named[NAMED];
    uint64_t slots[2][2][MOST]; /* of warps, of the block */
    std::vector<char> shared;
};

struct fiber {
    ucontext_t start;
    jmp_buf at;
    bool started, done;
    const uint32_t *word; /* that it waits for, */
    uint32_t value;       /* to be another than this */
};

static struct {
    fiber fibers[CTAS * MOST];
    cta ctas[CTAS];
    meeting all;
    char *stacks;
    jmp_buf scheduler;
    void *body;
    void **parameters;
    bool fast;
    int threads, count; /* of a CTA; CTAs of the cluster */
    int current;
    bool changed;
    int pace; /* of the hardware, in this launch: see do_later */
    std::vector<std::function<void()>> later;
    uint64_t random;
} machine;

static unsigned draw(unsigned below)
{
    machine.random = machine.random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(machine.random >> 33) % below;
}

static cta &own()
{
    return machine.ctas[machine.current / machine.threads];
}

static void enter()
{
    void **p = machine.parameters;
    const ph_cuda_call &call = *(const ph_cuda_call *)p[0];
    if (machine.fast)
        ((fast_kernel *)machine.body)(
            call, *(const ph_cuda_schedule *)p[1], *(const tensor_map *)p[2],
            *(const tensor_map *)p[3], *(const tensor_map *)p[4],
            *(const tensor_map *)p[5]);
    else
        ((plain_kernel *)machine.body)(call);
    machine.fibers[machine.current].done = true;
    machine.changed = true;
    _longjmp(machine.scheduler, 1);
}

void cuda_host_wait(const uint32_t *word)
{
    fiber &f = machine.fibers[machine.current];
    f.word = word, f.value = *word;
    if (!_setjmp(f.at)) _longjmp(machine.scheduler, 1);
}

void cuda_host_changed()
{
    machine.changed = true;
}

static void meet_at(meeting &m, int count, int stays)
{
    const uint32_t before = m.passed;
    machine.changed = true;
    if (++m.arrived == count) {
        m.arrived = 0, m.passed++;
        return;
    }
    while (stays && m.passed == before) cuda_host_wait(&m.passed);
}

void cuda_host_barrier(int warp)
{
    if (warp == -2)
        meet_at(machine.all, machine.threads * machine.count, 1);
    else if (warp == -1)
        meet_at(own().warp[WARPS], machine.threads, 1);
    else
        meet_at(own().warp[warp], 32, 1);
}

uint64_t *cuda_host_slots(int warp)
{
    return own().slots[warp < 0][own().warp[warp < 0 ? WARPS : warp].passed % 2];
}

void cuda_host_named(int id, int count, int stays)
{
    meet_at(own().named[id], count, stays);
}

void cuda_host_later(std::function<void()> action)
{
    machine.later.push_back(action);
}

int cuda_host_rank()
{
    return machine.current / machine.threads;
}

char *cuda_host_shared(int rank)
{
    return machine.ctas[rank].shared.data();
}

/* Lets fiber n run until it waits, or to its end. */
static void resume(int n, unsigned first_block)
{
    fiber &f = machine.fibers[n];
    machine.current = n, threadIdx.x = n % machine.threads;
    blockIdx.x = first_block + n / machine.threads;
    f.word = nullptr;
    if (_setjmp(machine.scheduler)) return;
    if (f.started) _longjmp(f.at, 1);
    f.started = true;
    getcontext(&f.start);
    f.start.uc_stack.ss_sp = machine.stacks + (size_t)n * STACK;
    f.start.uc_stack.ss_size = STACK;
    makecontext(&f.start, enter, 0);
    setcontext(&f.start);
}

/* What the hardware has to do: at once, some of it, or nothing before all fibers wait. */
enum { EAGER, RANDOM, LAZY, PACES };

static void do_later(bool all)
{
    if (machine.pace == LAZY && !all) return;
    if (machine.pace == EAGER) all = true;
    std::vector<std::function<void()>> now;
    now.swap(machine.later);
    for (auto &action : now) {
        if (!all && draw(4)) {
            machine.later.push_back(action);
        } else {
            action();
            machine.changed = true;
        }
    }
}

static void stuck(unsigned first_block)
{
    for (int n = 0; n < machine.threads * machine.count; n++) {
        const fiber &f = machine.fibers[n];
        if (f.done) continue;
        const cta &c = machine.ctas[n / machine.threads];
        long at = (const char *)f.word - c.shared.data();
        bool shared = at >= 0 && at < (long)c.shared.size();
        std::fprintf(stderr, "block %u thread %d waits for ever, at %s %ld\n",
                     first_block + n / machine.threads, n % machine.threads,
                     shared ? "shared memory" : "a meeting", shared ? at : 0);
    }
    std::abort();
}

/* A cluster of CTAs from block `first` on. */
static void run_cluster(unsigned first, size_t shared)
{
    const int fibers = machine.threads * machine.count;
    machine.all = {};
    for (int i = 0; i < machine.count; i++) {
        cta &c = machine.ctas[i];
        std::memset(c.warp, 0, sizeof c.warp);
        std::memset(c.named, 0, sizeof c.named);
        c.shared.assign(shared, (char)0xff);
    }
    for (int n = 0; n < fibers; n++)
        machine.fibers[n].started = machine.fibers[n].done = false;
    for (bool left = true; left;) {
        left = machine.changed = false;
        for (int i = 0, n = (int)draw((unsigned)fibers); i < fibers;
             i++, n = (n + 1) % fibers) {
            fiber &f = machine.fibers[n];
            if (f.done) continue;
            left = true;
            if (!f.started || !f.word || *f.word != f.value) resume(n, first);
        }
        do_later(!machine.changed);
        if (left && !machine.changed) stuck(first);
    }
    do_later(true);
}

static int run(void *body, bool fast, int cluster, unsigned x, unsigned y,
               unsigned threads, size_t shared, void **parameters)
{
    if (!machine.stacks)
        machine.stacks = (char *)std::malloc((size_t)CTAS * MOST * STACK);
    machine.body = body, machine.fast = fast, machine.parameters = parameters;
    machine.threads = (int)threads, machine.count = cluster;
    machine.pace = (int)draw(PACES);
    gridDim = {x, y, 1};
    for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++)
        for (unsigned first = 0; first < x; first += (unsigned)cluster)
            run_cluster(first, shared);
    return 0;
}

/* ---- kernels ---- */

/* Parameters are those of the way they are launched: see `enter`. */
#define DECLARE(file, name) extern "C" void ph_##name();
PH_CUDA_KERNELS(DECLARE)

static int get_kernel(void **out, void *, const char *name)
{
#define MATCH(file, known)                                                               \
    if (!std::strcmp(name, "ph_" #known)) return *out = (void *)ph_##known, 0;
    PH_CUDA_KERNELS(MATCH)
    return 500; /* CUDA_ERROR_NOT_FOUND */
}

static int launch(void *body, unsigned x, unsigned y, unsigned, unsigned threads,
                  unsigned, unsigned, unsigned, void *, void **parameters, void **)
{
    return run(body, false, 1, x, y, threads, 0, parameters);
}

static int launch_fast(const CUlaunchConfig *c, void *body, void **parameters, void **)
{
    bool pair = false;
#define IS_PAIR(file, name) pair |= body == (void *)ph_##name;
    PH_CUDA_FAST(IS_PAIR, fast_pair, fast_pair)
    return run(body, true, pair ? 2 : 1, c->gridDimX, c->gridDimY, c->blockDimX,
               c->sharedMemBytes, parameters);
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

/* Capability 9.0; as many SMs as the environment says, which changes how work is cut. */
static int attribute(int *value, int which, int)
{
    const char *sms = std::getenv("CUDA_HOST_SMS");
    return *value = which == 75 ? 9 : which == 76 ? 0 : sms ? std::atoi(sms) : 1, 0;
}

static int handle(void **out, unsigned)
{
    return *out = (void *)&machine, 0;
}

static int not_capturing(void *, int *status)
{
    return *status = 0, 0;
}

static int library(void **out, const void *, void *, void *, unsigned, void *, void *,
                   unsigned)
{
    return *out = (void *)&machine, 0;
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

static int set_words(address to, unsigned value, size_t count, void *)
{
    for (size_t i = 0; i < count; i++) ((unsigned *)to)[i] = value;
    return 0;
}

static int encode(CUtensorMap *map, int, unsigned rank, void *base, const uint64_t *size,
                  const uint64_t *stride, const uint32_t *box, const uint32_t *, int, int,
                  int, int)
{
    host_map m = {(char *)base, rank, {}, {}, {}};
    for (unsigned i = 0; i < rank; i++) m.size[i] = (uint32_t)size[i], m.box[i] = box[i];
    for (unsigned i = 0; i + 1 < rank; i++) m.stride[i] = stride[i];
    static_assert(sizeof m <= sizeof *map, "our own map in place of the driver's");
    std::memcpy(map, &m, sizeof m);
    return 0;
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
                 {"cuMemsetD32Async", (void *)set_words},
                 {"cuTensorMapEncodeTiled", (void *)encode},
                 {"cuLibraryLoadData", (void *)library},
                 {"cuLibraryGetKernel", (void *)get_kernel},
                 {"cuLaunchKernel", (void *)launch},
                 {"cuLaunchKernelEx", (void *)launch_fast}};
    *out = (void *)nothing;
    for (const auto &k : known)
        if (!std::strcmp(k.name, name)) *out = k.function;
    return 0;
}
