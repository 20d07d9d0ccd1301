/*
 * hopper.cuh - src/cuda/hopper.cuh for fibers of the host: what its instructions mean.
 *
 * Shared addresses are the rank of a CTA above 20 bits and a place in its memory. Products
 * on tensor cores are summed in double over 16 terms and rounded once: not the bits of the
 * hardware, but a function of the same terms in the same steps.
 */
#ifndef PH_CUDA_HOPPER_CUH
#define PH_CUDA_HOPPER_CUH

#include "cuda/wgmma_layout.h"
#include "cuda_host.h"

#define DEVICE static inline

struct alignas(64) tensor_map {
    char opaque[128];
};

/* What cuTensorMapEncodeTiled of the host puts there. */
struct host_map {
    char *base;
    uint32_t rank, size[5], box[5];
    uint64_t stride[4]; /* bytes, of axes behind the first */
};

/* ---- shared memory ---- */

enum { RANK_BIT = 20 };

DEVICE char *host_at(uint32_t address)
{
    return cuda_host_shared(address >> RANK_BIT) + (address & ((1 << RANK_BIT) - 1));
}

DEVICE uint32_t dynamic_shared()
{
    return (uint32_t)cuda_host_rank() << RANK_BIT;
}

DEVICE uint32_t shared_address(const void *p)
{
    return dynamic_shared() +
           (uint32_t)((const char *)p - cuda_host_shared(cuda_host_rank()));
}

DEVICE void *shared_pointer(uint32_t address)
{
    return host_at(address);
}

DEVICE void store_shared(uint32_t address, int x)
{
    *(int *)host_at(address) = x;
}

DEVICE int load_shared(uint32_t address)
{
    return *(int *)host_at(address);
}

DEVICE void or_shared(uint32_t address, uint32_t bits)
{
    *(uint32_t *)host_at(address) |= bits;
}

DEVICE void store_piece(uint32_t address, uint4 x)
{
    *(uint4 *)host_at(address) = x;
}

DEVICE uint4 load_piece(uint32_t address)
{
    return *(uint4 *)host_at(address);
}

/* ---- global memory ---- */

DEVICE void store_if(void *to, const uint32_t (&u)[4], int there)
{
    if (there) std::memcpy(to, u, sizeof u);
}

DEVICE uint32_t load_element(const uint16_t *at)
{
    return *at;
}

DEVICE float4 load_global(const float4 *at)
{
    return *at;
}

DEVICE void store_global(float4 *at, float4 x)
{
    *at = x;
}

DEVICE unsigned add_ordered(unsigned *at, unsigned x)
{
    return atomicAdd(at, x);
}

/* ---- barriers ---- */

struct host_barrier {
    uint32_t phase : 8, expected : 12, pending : 12;
    int32_t bytes; /* that copies still bring */
};

DEVICE host_barrier *barrier_at(uint32_t barrier)
{
    return (host_barrier *)host_at(barrier);
}

DEVICE void barrier_settle(host_barrier *b)
{
    cuda_host_changed();
    if (b->pending || b->bytes) return;
    b->phase++, b->pending = b->expected;
}

DEVICE void barrier_init(uint32_t barrier, int arrivals)
{
    *barrier_at(barrier) = {0, (uint32_t)arrivals, (uint32_t)arrivals, 0};
}

DEVICE void barrier_init_fence() {}

DEVICE void barrier_arrive(uint32_t barrier, int arrivals)
{
    host_barrier *b = barrier_at(barrier);
    if ((int)b->pending < arrivals) std::abort(); /* more than it was made for */
    b->pending -= (uint32_t)arrivals;
    barrier_settle(b);
}

DEVICE void barrier_arrive(uint32_t barrier)
{
    barrier_arrive(barrier, 1);
}

DEVICE void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    barrier_at(barrier)->bytes += (int32_t)bytes;
    barrier_arrive(barrier, 1);
}

DEVICE void barrier_bring(uint32_t barrier, uint32_t bytes)
{
    host_barrier *b = barrier_at(barrier);
    b->bytes -= (int32_t)bytes;
    barrier_settle(b);
}

DEVICE void barrier_wait(uint32_t barrier, uint32_t parity)
{
    while (barrier_at(barrier)->phase % 2 == parity)
        cuda_host_wait((const uint32_t *)barrier_at(barrier));
}

/* ---- clusters ---- */

DEVICE uint32_t cluster_rank()
{
    return (uint32_t)cuda_host_rank();
}

DEVICE uint32_t address_in(uint32_t rank, uint32_t address)
{
    return rank << RANK_BIT | (address & ((1 << RANK_BIT) - 1));
}

DEVICE void cluster_meet()
{
    cuda_host_barrier(-2);
}

DEVICE void barrier_arrive_in_cluster(uint32_t barrier)
{
    cuda_host_later([=] { barrier_arrive(barrier); });
}

template <class X> void send(uint32_t to, X x, uint32_t barrier)
{
    cuda_host_later([=] {
        std::memcpy(host_at(to), &x, sizeof x);
        barrier_bring(barrier, sizeof x);
    });
}

/* ---- barriers by number ---- */

template <int THREADS> void meet(int id)
{
    cuda_host_named(id, THREADS, 1);
}

template <int THREADS> void arrive(int id)
{
    cuda_host_named(id, THREADS, 0);
}

DEVICE void let_next_begin() {}

DEVICE void wait_for_stream() {}

/* ---- tensor copies ---- */

/* Calls row(offset in the box, where it lies in the tensor, or NULL) for each row of 128
   bytes, with a panel's swizzle left to the caller. */
template <class ROW> void host_rows(const tensor_map *map, const int (&from)[5], ROW row)
{
    host_map m;
    std::memcpy(&m, map, sizeof m);
    uint32_t at[5] = {}, offset = 0;
    for (;;) {
        char *place = m.base;
        for (uint32_t i = 1; i < m.rank && place; i++) {
            const int64_t x = (int64_t)from[i] + at[i];
            place =
                x < 0 || x >= m.size[i] ? nullptr : place + x * (int64_t)m.stride[i - 1];
        }
        row(offset, place, from[0], m.size[0]);
        offset += PH_LINE;
        uint32_t axis = 1;
        while (axis < m.rank && ++at[axis] == m.box[axis]) at[axis++] = 0;
        if (axis == m.rank) return;
    }
}

DEVICE uint32_t host_swizzled(uint32_t address)
{
    return address ^ (address >> 3 & 0x70);
}

DEVICE void host_load(uint32_t to, const tensor_map &map, uint32_t barrier,
                      const int (&from)[5])
{
    uint32_t bytes = 0;
    host_rows(&map, from, [&](uint32_t offset, char *place, int first, uint32_t columns) {
        for (int x = 0; x < PH_LINE / 2; x++) {
            uint16_t element = 0;
            if (place && first + x < (int)columns)
                std::memcpy(&element, place + 2 * (first + x), 2);
            std::memcpy(host_at(host_swizzled(to + offset + 2 * x)), &element, 2);
        }
        bytes += PH_LINE;
    });
    barrier_bring(barrier, bytes);
}

DEVICE void host_copy(uint32_t to, const tensor_map *map, uint32_t barrier, int x, int y,
                      int z, int w, int u)
{
    const tensor_map copy = *map;
    cuda_host_later([=] { host_load(to, copy, barrier, {x, y, z, w, u}); });
}

DEVICE void copy_box(uint32_t to, const tensor_map *map, uint32_t barrier, int x, int y,
                     int z, int w)
{
    host_copy(to, map, barrier, x, y, z, w, 0);
}

DEVICE void copy_box_once(uint32_t to, const tensor_map *map, uint32_t barrier, int x,
                          int y, int z, int w)
{
    host_copy(to, map, barrier, x, y, z, w, 0);
}

DEVICE void copy_box(uint32_t to, const tensor_map *map, uint32_t barrier, int x, int y,
                     int z, int w, int u)
{
    host_copy(to, map, barrier, x, y, z, w, u);
}

DEVICE void prefetch_box(const tensor_map *, int, int, int, int) {}

DEVICE void prefetch_box(const tensor_map *, int, int, int, int, int) {}

DEVICE void store_box(const tensor_map *map, uint32_t from, int x, int y, int z, int w)
{
    host_rows(map, {x, y, z, w, 0},
              [&](uint32_t offset, char *place, int first, uint32_t columns) {
                  for (int i = 0; place && i < PH_LINE / 2 && first + i < (int)columns;
                       i++)
                      std::memcpy(place + 2 * (first + i),
                                  host_at(host_swizzled(from + offset + 2 * i)), 2);
              });
}

DEVICE void commit_boxes() {}

template <int PENDING> void wait_for_boxes() {}

DEVICE void prefetch_map(const tensor_map *) {}

DEVICE void async_proxy_fence() {}

/* ---- warpgroups ---- */

template <int COUNT> void registers_up() {}

template <int COUNT> void registers_down() {}

DEVICE void wgmma_fence() {}

DEVICE void wgmma_commit() {}

template <int PENDING> void wgmma_wait() {}

template <class X> void pin(X &) {}

DEVICE uint32_t thread_now()
{
    return threadIdx.x;
}

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
    return std::exp2(x);
}

DEVICE float reciprocal(float x)
{
    return 1 / x;
}

DEVICE uint32_t packed(bf16_tag, float low, float high)
{
    return ph_to_bf16(low) | (uint32_t)ph_to_bf16(high) << 16;
}

DEVICE uint32_t packed(f16_tag, float low, float high)
{
    return ph_to_f16(low) | (uint32_t)ph_to_f16(high) << 16;
}

DEVICE float widened(bf16_tag, uint32_t bits)
{
    return ph_from_bf16((uint16_t)bits);
}

DEVICE float widened(f16_tag, uint32_t bits)
{
    return ph_from_f16((uint16_t)bits);
}

/* ---- products of a warp ---- */

/* Elements of an operand of 16 x 16: register r of lane l holds two, side by side in k. */
template <class TYPE>
float host_element(TYPE type, const uint32_t (&a)[32][4], int row, int k)
{
    const uint32_t pair = a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
    return widened(type, k % 2 ? pair >> 16 : pair & 0xffff);
}

/* Registers of all lanes of the warp. */
DEVICE void host_share(uint32_t (&all)[32][4], const uint32_t *own)
{
    const int warp = threadIdx.x / 32 * 32;
    for (int r = 0; r < 4; r += 2) {
        uint64_t *slots = cuda_host_slots(warp / 32);
        slots[threadIdx.x] = own[r] | (uint64_t)own[r + 1] << 32;
        cuda_host_barrier(warp / 32);
        for (int lane = 0; lane < 32; lane++) {
            all[lane][r] = (uint32_t)slots[warp + lane];
            all[lane][r + 1] = (uint32_t)(slots[warp + lane] >> 32);
        }
    }
}

/* Where the lane's two elements of matrix i lie, in rows that lanes 8 i and on point to. */
DEVICE void host_matrix_rows(uint32_t row, uint32_t (&rows)[32])
{
    const int warp = threadIdx.x / 32;
    uint64_t *slots = cuda_host_slots(warp);
    slots[threadIdx.x] = row;
    cuda_host_barrier(warp);
    for (int lane = 0; lane < 32; lane++) rows[lane] = (uint32_t)slots[warp * 32 + lane];
}

DEVICE void load_matrices(uint32_t (&r)[4], uint32_t row)
{
    uint32_t rows[32];
    const int lane = threadIdx.x % 32;
    host_matrix_rows(row, rows);
    for (int i = 0; i < 4; i++)
        std::memcpy(&r[i], host_at(rows[8 * i + lane / 4]) + lane % 4 * 4, 4);
}

DEVICE void load_transposed(uint32_t (&r)[4], uint32_t row)
{
    uint32_t rows[32];
    const int lane = threadIdx.x % 32;
    host_matrix_rows(row, rows);
    for (int i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (int e = 0; e < 2; e++)
            std::memcpy(&pair[e], host_at(rows[8 * i + lane % 4 * 2 + e]) + lane / 4 * 2,
                        2);
        r[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

DEVICE void store_matrices(uint32_t row, const uint32_t (&r)[4])
{
    uint32_t rows[32];
    const int lane = threadIdx.x % 32;
    host_matrix_rows(row, rows);
    for (int i = 0; i < 4; i++)
        std::memcpy(host_at(rows[8 * i + lane / 4]) + lane % 4 * 4, &r[i], 4);
    __syncwarp();
}

template <class TYPE>
void multiply(TYPE type, float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    uint32_t left[32][4], right[32][4];
    const uint32_t b[4] = {b0, b1, 0, 0};
    const int lane = threadIdx.x % 32;
    host_share(left, a);
    host_share(right, b);
    for (int x = 0; x < 4; x++) {
        const int row = lane / 4 + x / 2 * 8, column = lane % 4 * 2 + x % 2;
        double sum = d[x];
        for (int k = 0; k < 16; k++) {
            const uint32_t pair = right[column * 4 + k % 8 / 2][k / 8];
            sum += (double)host_element(type, left, row, k) *
                   (double)widened(type, k % 2 ? pair >> 16 : pair & 0xffff);
        }
        d[x] = (float)sum;
    }
}

/* ---- products of a warpgroup ---- */

/* The operand that a descriptor means: element (row, k) of a K-major one, or of an MN-major
   one, whose panels of 64 rows are `lead` bytes apart. */
template <class TYPE>
float host_operand(TYPE type, uint64_t descriptor, int row, int k, int mn)
{
    const uint32_t start = ((uint32_t)descriptor & 0x3fff) << 4;
    const uint32_t lead = ((uint32_t)descriptor >> 16 & 0x3fff) << 4;
    const uint32_t at =
        mn ? row / 64 * lead + k / 8 * PH_ATOM + k % 8 * PH_LINE + row % 64 * 2
           : row / 8 * PH_ATOM + row % 8 * PH_LINE + k * 2;
    uint16_t bits;
    std::memcpy(&bits, host_at(host_swizzled(dynamic_shared() + start + at)), 2);
    return widened(type, bits);
}

/* Two rows of a thread, 8 apart, by its columns; left(row, k): the A operand. */
template <int N, class TYPE, class LEFT>
void host_multiply(TYPE type, float (&d)[N], LEFT left, uint64_t b, int mn, int fresh)
{
    const int thread = threadIdx.x % PH_WARPGROUP;
    double a[2][PH_DEPTH];
    for (int k = 0; k < PH_DEPTH; k++)
        for (int i = 0; i < 2; i++) a[i][k] = left(ph_fragment_row(thread, 2 * i), k);
    for (int x = 0; x < N; x += x % 2 ? 3 : 1) { /* the columns of elements x and x + 2 */
        double sum[2] = {fresh ? 0 : d[x], fresh ? 0 : d[x + 2]};
        for (int k = 0; k < PH_DEPTH; k++) {
            const double y = host_operand(type, b, ph_fragment_column(thread, x), k, mn);
            sum[0] += a[0][k] * y, sum[1] += a[1][k] * y;
        }
        d[x] = (float)sum[0], d[x + 2] = (float)sum[1];
    }
}

template <int N, class TYPE>
void multiply(TYPE type, float (&d)[N], uint64_t a, uint64_t b, int fresh)
{
    host_multiply(
        type, d, [&](int row, int k) { return host_operand(type, a, row, k, 0); }, b, 0,
        fresh);
}

template <int N, class TYPE>
void multiply(TYPE type, float (&d)[N], const uint32_t *a, uint64_t b, int fresh)
{
    uint32_t left[32][4];
    host_share(left, a);
    host_multiply(
        type, d, [&](int row, int k) { return host_element(type, left, row % 16, k); }, b,
        1, fresh);
}

#endif
