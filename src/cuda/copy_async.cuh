/*
 * copy_async.cuh - copies from global to shared memory that need no registers and run
 * while the thread computes.
 */
#ifndef PH_CUDA_COPY_ASYNC_CUH
#define PH_CUDA_COPY_ASYNC_CUH

/* Starts to copy the first `bytes` of 16; the others become 0. Both ends are aligned. */
static __device__ __forceinline__ void copy_async(float *to, const void *from, int bytes)
{
    unsigned there = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(there), "l"(from), "r"(bytes)
                 : "memory");
}

/* Waits for all copies this thread has started; the others need a barrier behind it. */
static __device__ __forceinline__ void copies_done()
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}

#endif
