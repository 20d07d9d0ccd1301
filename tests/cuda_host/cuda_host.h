/*
 * cuda_host.h - as much CUDA as the kernels in src/cuda use, for a C++ compiler of the
 * host: cuda_host.cpp runs the threads of a block as fibers on one thread.
 */
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/half.h"

#define __device__
#define __global__
#define __shared__      static /* one block runs at a time */
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct float2 {
    float x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct __half {
    uint16_t bits;
};
struct __half2 {
    uint16_t low, high;
};
struct __nv_bfloat16 {
    uint16_t bits;
};
struct __nv_bfloat162 {
    uint16_t low, high;
};

extern uint3 threadIdx, blockIdx, gridDim; /* of the fiber that runs */

/* Waits for all threads of a warp, or (-1) of the block. */
void cuda_host_barrier(int warp);
extern float cuda_host_slot[1024]; /* by thread: what it tells the others */

template <class A, class B> typename std::common_type<A, B>::type min(A a, B b)
{
    return a < b ? a : b;
}

template <class A, class B> typename std::common_type<A, B>::type max(A a, B b)
{
    return a > b ? a : b;
}

using std::isfinite;

inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

inline uint32_t __float_as_uint(float x)
{
    return ph_bits(x);
}

inline float __fadd_rn(float a, float b)
{
    return a + b;
}

inline float __half2float(__half x)
{
    return ph_from_f16(x.bits);
}

inline float __bfloat162float(__nv_bfloat16 x)
{
    return ph_from_bf16(x.bits);
}

inline __half __float2half_rn(float x)
{
    return {ph_to_f16(x)};
}

inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return {ph_to_bf16(x)};
}

inline float2 __half22float2(__half2 x)
{
    return {ph_from_f16(x.low), ph_from_f16(x.high)};
}

inline float2 __bfloat1622float2(__nv_bfloat162 x)
{
    return {ph_from_bf16(x.low), ph_from_bf16(x.high)};
}

inline void __syncthreads()
{
    cuda_host_barrier(-1);
}

/* Whether x is not 0 in one of the `count` threads of a group. */
inline int cuda_host_any(int warp, int first, int count, int x)
{
    cuda_host_slot[threadIdx.x] = x != 0;
    cuda_host_barrier(warp);
    int any = 0;
    for (int t = first; t < first + count; t++) any |= cuda_host_slot[t] != 0;
    cuda_host_barrier(warp);
    return any;
}

inline int __any_sync(unsigned, int x)
{
    int warp = threadIdx.x / 32;
    return cuda_host_any(warp, warp * 32, 32, x);
}

inline int __syncthreads_or(int x)
{
    return cuda_host_any(-1, 0, 256, x);
}

inline float __shfl_xor_sync(unsigned, float x, int lane)
{
    cuda_host_slot[threadIdx.x] = x;
    cuda_host_barrier(threadIdx.x / 32);
    float other = cuda_host_slot[threadIdx.x ^ lane];
    cuda_host_barrier(threadIdx.x / 32);
    return other;
}
