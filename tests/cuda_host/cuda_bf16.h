/* cuda_host.h has what the kernels use of it. */
