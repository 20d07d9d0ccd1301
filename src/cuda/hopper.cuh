/*
 * hopper.cuh - the instructions of Hopper that C++ has no names for: barriers in shared
 * memory, tensor copies (TMA), products of warpgroups (wgmma).
 */
#ifndef PH_CUDA_HOPPER_CUH
#define PH_CUDA_HOPPER_CUH

#include "cuda/wgmma_layout.h"

#define DEVICE static __device__ __forceinline__

/* A tensor map as the driver encodes it; kernels take it as a __grid_constant__. */
struct alignas(64) tensor_map {
    char opaque[128];
};

DEVICE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

DEVICE void *shared_pointer(uint32_t address)
{
    return (void *)__cvta_shared_to_generic(address);
}

/* Where the memory begins that a launch asks for. */
DEVICE uint32_t dynamic_shared()
{
    extern __shared__ char memory[];
    return shared_address(memory);
}

DEVICE void store_shared(uint32_t address, int x)
{
    asm volatile("st.shared.s32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

DEVICE int load_shared(uint32_t address)
{
    int x;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

DEVICE void or_shared(uint32_t address, uint32_t bits)
{
    asm volatile("red.shared.or.b32 [%0], %1;" ::"r"(address), "r"(bits) : "memory");
}

/* 16 bytes. */
DEVICE void store_piece(uint32_t address, uint4 x)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x),
                 "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

DEVICE uint4 load_piece(uint32_t address)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

/* 16 bytes to global memory, if `there`: without a branch. */
DEVICE void store_if(void *to, const uint32_t (&u)[4], int there)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
                 "@p st.global.v4.u32 [%0], {%1, %2, %3, %4};\n}" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(u[0]), "r"(u[1]), "r"(u[2]), "r"(u[3]), "r"(there)
                 : "memory");
}

/* Not to be moved: all loads of a row at once would spill registers. */
DEVICE uint32_t load_element(const uint16_t *at)
{
    uint16_t bits;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(bits) : "l"(at) : "memory");
    return bits;
}

/* In the workspace: volatile, so that the assembler keeps their order, since all loads at
   once would spill registers. */
DEVICE float4 load_global(const float4 *at)
{
    float4 x;
    asm volatile("ld.volatile.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(at)
                 : "memory");
    return x;
}

DEVICE void store_global(float4 *at, float4 x)
{
    asm volatile("st.volatile.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x.x),
                 "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}

/* Adds behind everything that happened before in the GPU, and before what follows. */
DEVICE unsigned add_ordered(unsigned *at, unsigned x)
{
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(x)
                 : "memory");
    return before;
}

/* ---- barriers ---- */

DEVICE void barrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Makes initialised barriers visible to the copy engine. */
DEVICE void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

DEVICE void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* One thread arrives for several. */
DEVICE void barrier_arrive(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(arrivals)
                 : "memory");
}

/* Arrives, and announces so many bytes of copies. */
DEVICE void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}

/* Waits until the phase of this parity has ended. */
DEVICE void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* ---- clusters: CTAs that reach each other's shared memory ---- */

DEVICE uint32_t cluster_rank()
{
    uint32_t x;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(x));
    return x;
}

/* The same place in the shared memory of another CTA of the cluster. */
DEVICE uint32_t address_in(uint32_t rank, uint32_t address)
{
    uint32_t x;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(x) : "r"(address), "r"(rank));
    return x;
}

/* All threads of the cluster meet. */
DEVICE void cluster_meet()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::
                     : "memory");
}

/* Arrives at a barrier of any CTA of the cluster. It orders what this thread read from
   shared memory, not what it wrote there: that is sent. */
DEVICE void barrier_arrive_in_cluster(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier)
                 : "memory");
}

/* Stores in any CTA of the cluster; `barrier`, in the same CTA, counts the bytes. */
DEVICE void send(uint32_t to, uint4 x, uint32_t barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], "
                 "{%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(barrier)
                 : "memory");
}

DEVICE void send(uint32_t to, float x, uint32_t barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, "
                 "[%2];" ::"r"(to),
                 "f"(x), "r"(barrier)
                 : "memory");
}

/* ---- barriers by number ---- */

/* The SM's barriers by number: THREADS meet; some of them may only arrive. */
template <int THREADS> DEVICE void meet(int id)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

template <int THREADS> DEVICE void arrive(int id)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

/* Lets the next kernel of the stream begin, up to where it waits. */
DEVICE void let_next_begin()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Waits for all kernels before this one in its stream. */
DEVICE void wait_for_stream()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* ---- tensor copies ---- */

/* One box of a tensor of rank 4 into shared memory; the barrier counts its bytes. */
DEVICE void copy_box(uint32_t to, const tensor_map *map, uint32_t barrier, int x, int y,
                     int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx"
                 "::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

/* The same of data that is read once: it does not stay in the L2 cache. */
DEVICE void copy_box_once(uint32_t to, const tensor_map *map, uint32_t barrier, int x,
                          int y, int z, int w)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx"
        "::bytes.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
        : "memory");
}

/* The same of rank 5. */
DEVICE void copy_box(uint32_t to, const tensor_map *map, uint32_t barrier, int x, int y,
                     int z, int w, int u)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx"
                 "::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(u)
                 : "memory");
}

/* A box of rank 4 into the L2 cache only. */
DEVICE void prefetch_box(const tensor_map *map, int x, int y, int z, int w)
{
    asm volatile(
        "cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map),
        "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}

/* A box of rank 4 from shared memory; what lies outside of the tensor is left out. */
DEVICE void store_box(const tensor_map *map, uint32_t from, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

DEVICE void commit_boxes()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until the boxes that this thread stored have been read from shared memory, but for
   the last PENDING groups. */
template <int PENDING> DEVICE void wait_for_boxes()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

/* The same of rank 5. */
DEVICE void prefetch_box(const tensor_map *map, int x, int y, int z, int w, int u)
{
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global "
                 "[%0, {%1, %2, %3, %4, %5}];" ::"l"(map),
                 "r"(x), "r"(y), "r"(z), "r"(w), "r"(u)
                 : "memory");
}

DEVICE void prefetch_map(const tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Orders ordinary writes to shared memory before reads by wgmma and TMA. */
DEVICE void async_proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- warpgroups ---- */

template <int COUNT> DEVICE void registers_up()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> DEVICE void registers_down()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

DEVICE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

DEVICE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most PENDING groups are in flight. */
template <int PENDING> DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps the compiler from moving uses of x over what follows. */
DEVICE void pin(float &x)
{
    asm volatile("" : "+f"(x));
}

/* ... of accumulators over a fence or a wait. */
template <int N> DEVICE void pin(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* threadIdx.x, read again: what is computed from it does not wait in registers. */
DEVICE uint32_t thread_now()
{
    uint32_t x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

/* Tells the compiler that all lanes of a warp hold the same value. */
DEVICE int uniform(int x)
{
    return __shfl_sync(~0u, x, 0);
}

/* ---- arithmetic ---- */

struct bf16_tag {
};
struct f16_tag {
};

DEVICE float exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE uint32_t packed(bf16_tag, float low, float high)
{
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

DEVICE uint32_t packed(f16_tag, float low, float high)
{
    uint32_t y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

DEVICE float widened(bf16_tag, uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

DEVICE float widened(f16_tag, uint32_t bits)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((uint16_t)bits));
    return y;
}

/* ---- products of a warp ---- */

/* Four matrices of 8 x 8 elements; each lane has the address of a row: lanes 0 to 7 of the
   first matrix. */
DEVICE void load_matrices(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

DEVICE void load_transposed(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

/* The inverse of load_matrices. */
DEVICE void store_matrices(uint32_t row, const uint32_t (&r)[4])
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

/* d (16 x 8, f32) += a b over 16 terms. */
#define MMA(TYPE, NAME)                                                                  \
    DEVICE void multiply(NAME, float *d, const uint32_t(&a)[4], uint32_t b0,             \
                         uint32_t b1)                                                    \
    {                                                                                    \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "               \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                             \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));             \
    }
MMA("bf16", bf16_tag)
MMA("f16", f16_tag)

/* ---- products of a warpgroup: d (64 x N, f32) = a b, added to d unless it is fresh ---- */

#define NUMBERS_0_15                                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, "                                                   \
    "%8, %9, %10, %11, %12, %13, %14, %15"
#define NUMBERS_0_31                                                                     \
    NUMBERS_0_15 ", "                                                                    \
    "%16, %17, %18, %19, %20, %21, %22, %23, "                                           \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define NUMBERS_32_63                                                                    \
    "%32, %33, %34, %35, %36, %37, %38, %39, "                                           \
    "%40, %41, %42, %43, %44, %45, %46, %47, "                                           \
    "%48, %49, %50, %51, %52, %53, %54, %55, "                                           \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define NUMBERS_64_127                                                                   \
    "%64, %65, %66, %67, %68, %69, %70, %71, "                                           \
    "%72, %73, %74, %75, %76, %77, %78, %79, "                                           \
    "%80, %81, %82, %83, %84, %85, %86, %87, "                                           \
    "%88, %89, %90, %91, %92, %93, %94, %95, "                                           \
    "%96, %97, %98, %99, %100, %101, %102, %103, "                                       \
    "%104, %105, %106, %107, %108, %109, %110, %111, "                                   \
    "%112, %113, %114, %115, %116, %117, %118, %119, "                                   \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define REGISTERS_32  "{" NUMBERS_0_15 "}"
#define REGISTERS_64  "{" NUMBERS_0_31 "}"
#define REGISTERS_128 "{" NUMBERS_0_31 ", " NUMBERS_32_63 "}"
#define REGISTERS_256 "{" NUMBERS_0_31 ", " NUMBERS_32_63 ", " NUMBERS_64_127 "}"

#define FLOATS_8(d, i)                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]),          \
        "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FLOATS_16(d, i) FLOATS_8(d, i), FLOATS_8(d, i + 8)
#define FLOATS_32(d)    FLOATS_16(d, 0)
#define FLOATS_64(d)    FLOATS_16(d, 0), FLOATS_16(d, 16)
#define FLOATS_128(d)   FLOATS_64(d), FLOATS_16(d, 32), FLOATS_16(d, 48)
#define FLOATS_256(d)                                                                    \
    FLOATS_128(d), FLOATS_16(d, 64), FLOATS_16(d, 80), FLOATS_16(d, 96), FLOATS_16(d, 112)

/* Operands of asm statements, numbered behind the accumulators. */
#define SHARED_32   "%16, %17, p, 1, 1, 0, 0;\n"
#define FRESH_32    "setp.eq.u32 p, %18, 0;\n"
#define WEIGHTS_32  "{%16, %17, %18, %19}, %20, p, 1, 1, 1;\n"
#define FRESH_W_32  "setp.eq.u32 p, %21, 0;\n"
#define SHARED_64   "%32, %33, p, 1, 1, 0, 0;\n"
#define FRESH_64    "setp.eq.u32 p, %34, 0;\n"
#define WEIGHTS_64  "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
#define FRESH_W_64  "setp.eq.u32 p, %37, 0;\n"
#define SHARED_128  "%64, %65, p, 1, 1, 0, 0;\n"
#define FRESH_128   "setp.eq.u32 p, %66, 0;\n"
#define WEIGHTS_128 "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
#define FRESH_W_128 "setp.eq.u32 p, %69, 0;\n"
#define SHARED_256  "%128, %129, p, 1, 1, 0, 0;\n"
#define FRESH_256   "setp.eq.u32 p, %130, 0;\n"
#define WEIGHTS_256 "{%128, %129, %130, %131}, %132, p, 1, 1, 1;\n"
#define FRESH_W_256 "setp.eq.u32 p, %133, 0;\n"

#define WGMMA(N, TYPE, NAME)                                                             \
    /* a and b in shared memory, both K-major */                                         \
    DEVICE void multiply(NAME, float(&d)[N / 2], uint64_t a, uint64_t b, int fresh)      \
    {                                                                                    \
        asm volatile("{\n.reg .pred p;\n" FRESH_##N                                      \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE     \
                     " " REGISTERS_##N ", " SHARED_##N "}\n"                             \
                     : FLOATS_##N(d)                                                     \
                     : "l"(a), "l"(b), "r"(fresh));                                      \
    }                                                                                    \
    /* a in registers, b in shared memory, MN-major */                                   \
    DEVICE void multiply(NAME, float(&d)[N / 2], const uint32_t *a, uint64_t b,          \
                         int fresh)                                                      \
    {                                                                                    \
        asm volatile("{\n.reg .pred p;\n" FRESH_W_##N                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE     \
                     " " REGISTERS_##N ", " WEIGHTS_##N "}\n"                            \
                     : FLOATS_##N(d)                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(fresh));  \
    }

WGMMA(32, "bf16", bf16_tag)
WGMMA(64, "bf16", bf16_tag)
WGMMA(128, "bf16", bf16_tag)
WGMMA(256, "bf16", bf16_tag)
WGMMA(32, "f16", f16_tag)
WGMMA(64, "f16", f16_tag)
WGMMA(128, "f16", f16_tag)
WGMMA(256, "f16", f16_tag)

#endif
