/*
 * kernel_list.h - the kernels of the GPU by name.
 */
#ifndef PH_CUDA_KERNEL_LIST_H
#define PH_CUDA_KERNEL_LIST_H

/* Every kernel: the file .cu it is in, and its name there without ph_. */
#define PH_CUDA_KERNELS(K)                                                               \
    K(plain_forward, plain_forward)                                                      \
    K(plain_backward, plain_delta)                                                       \
    K(plain_backward, plain_head_sums)                                                   \
    K(plain_backward, plain_dq)                                                          \
    K(plain_backward, plain_dk)                                                          \
    K(plain_backward, plain_dv)                                                          \
    K(plain_bias, plain_dbias)                                                           \
    K(plain_bias, plain_drelative)                                                       \
    K(plain_bias, plain_relative_sums)                                                   \
    K(pack_rows, pack_rows)                                                              \
    K(gather_rows, gather_rows)                                                          \
    PH_CUDA_FAST(K, fast_forward, fast_forward)                                          \
    PH_CUDA_FAST(K, fast_forward_softcap, fast_forward_softcap)                          \
    PH_CUDA_FAST(K, fast_forward_alibi, fast_forward_alibi)                              \
    PH_CUDA_FAST(K, fast_forward_dropout, fast_forward_dropout)                          \
    PH_CUDA_FAST(K, fast_gathered, fast_gathered)                                        \
    PH_CUDA_FAST(K, fast_gathered_softcap, fast_gathered_softcap)                        \
    PH_CUDA_FAST(K, fast_gathered_alibi, fast_gathered_alibi)                            \
    PH_CUDA_FAST(K, fast_gathered_dropout, fast_gathered_dropout)                        \
    PH_CUDA_FAST(K, fast_decode, fast_decode)                                            \
    PH_CUDA_FAST(K, fast_few, fast_few)                                                  \
    PH_CUDA_FAST(K, fast_pair, fast_pair)                                                \
    K(fast_short, fast_short_64_f16)                                                     \
    K(fast_short, fast_short_64_bf16)                                                    \
    PH_CUDA_FAST(K, fast_dq, fast_dq)                                                    \
    PH_CUDA_FAST(K, fast_dq, fast_dq_any)                                                \
    PH_CUDA_FAST(K, fast_dq, fast_dq_dropout)                                            \
    PH_CUDA_FAST(K, fast_dkv, fast_dkv)                                                  \
    PH_CUDA_FAST(K, fast_dkv, fast_dkv_any)                                              \
    PH_CUDA_FAST(K, fast_dkv, fast_dkv_dropout)

/* Of one name: by head dim and type. */
#define PH_CUDA_FAST(K, file, name)                                                      \
    K(file, name##_64_f16)                                                               \
    K(file, name##_64_bf16)                                                              \
    K(file, name##_128_f16)                                                              \
    K(file, name##_128_bf16)                                                             \
    K(file, name##_256_f16)                                                              \
    K(file, name##_256_bf16)

typedef enum ph_cuda_kernel {
#define PH_CUDA_KERNEL(file, name) PH_CUDA_##name,
    PH_CUDA_KERNELS(PH_CUDA_KERNEL)
#undef PH_CUDA_KERNEL
        PH_CUDA_KERNEL_COUNT
} ph_cuda_kernel;

#endif
