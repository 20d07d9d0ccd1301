/*
 * driver.h - the functions of the NVIDIA driver that we call, found at run time.
 *
 * Types and values are declared here, so that nothing of the CUDA toolkit is needed to
 * build the library; test_cuda compares them with cuda.h where that exists.
 */
#ifndef PH_CUDA_DRIVER_H
#define PH_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifndef __cuda_cuda_h__
typedef int CUresult, CUdevice, CUdevice_attribute, CUstreamCaptureStatus;
typedef int CUjit_option, CUlibraryOption, CUfunction_attribute;
typedef int CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle;
typedef int CUtensorMapL2promotion, CUtensorMapFloatOOBfill;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUtensorMap {
    _Alignas(64) uint64_t opaque[16];
} CUtensorMap;
typedef struct CUlaunchAttribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        int programmaticStreamSerializationAllowed;
    } value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig {
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;
#endif

enum {
    PH_CU_SUCCESS = 0,
    PH_CU_OUT_OF_MEMORY = 2,
    PH_CU_NO_DEVICE = 100,
    PH_CU_ATTRIBUTE_SM_COUNT = 16,
    PH_CU_ATTRIBUTE_MAJOR = 75,
    PH_CU_ATTRIBUTE_MINOR = 76,
    PH_CU_EVENT_NO_TIMING = 2,
    PH_CU_STREAM_DEFAULT = 0,
    PH_CU_NOT_CAPTURING = 0,
    PH_CU_MAX_SHARED_BYTES = 8, /* an attribute of a kernel */
    PH_CU_OVERLAPPED = 6,       /* of a launch */
    PH_CU_MAP_F16 = 6,
    PH_CU_MAP_BF16 = 9,
    PH_CU_MAP_NO_INTERLEAVE = 0,
    PH_CU_MAP_SWIZZLE_128B = 3,
    PH_CU_MAP_L2_128B = 2,
    PH_CU_MAP_FILL_ZERO = 0
};

/* clang-format off */
#define PH_DRIVER_FUNCTIONS(F)                                                           \
    F(cuInit, (unsigned int))                                                            \
    F(cuGetErrorString, (CUresult, const char **))                                       \
    F(cuDeviceGetCount, (int *))                                                         \
    F(cuDeviceGet, (CUdevice *, int))                                                    \
    F(cuDeviceGetName, (char *, int, CUdevice))                                          \
    F(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                       \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                 \
    F(cuDevicePrimaryCtxRelease, (CUdevice))                                             \
    F(cuCtxPushCurrent, (CUcontext))                                                     \
    F(cuCtxPopCurrent, (CUcontext *))                                                    \
    F(cuStreamCreate, (CUstream *, unsigned int))                                        \
    F(cuStreamDestroy, (CUstream))                                                       \
    F(cuStreamSynchronize, (CUstream))                                                   \
    F(cuStreamWaitEvent, (CUstream, CUevent, unsigned int))                              \
    F(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus *))                          \
    F(cuEventCreate, (CUevent *, unsigned int))                                          \
    F(cuEventDestroy, (CUevent))                                                         \
    F(cuEventRecord, (CUevent, CUstream))                                                \
    F(cuMemAlloc, (CUdeviceptr *, size_t))                                               \
    F(cuMemFree, (CUdeviceptr))                                                          \
    F(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                       \
    F(cuLibraryLoadData, (CUlibrary *, const void *, CUjit_option *, void **,            \
                          unsigned int, CUlibraryOption *, void **, unsigned int))       \
    F(cuLibraryUnload, (CUlibrary))                                                      \
    F(cuLibraryGetKernel, (CUkernel *, CUlibrary, const char *))                         \
    F(cuMemsetD32Async, (CUdeviceptr, unsigned int, size_t, CUstream))                   \
    F(cuKernelSetAttribute, (CUfunction_attribute, int, CUkernel, CUdevice))             \
    F(cuTensorMapEncodeTiled,                                                            \
      (CUtensorMap *, CUtensorMapDataType, unsigned int, void *,                         \
       const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *,           \
       CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,                \
       CUtensorMapFloatOOBfill))                                                         \
    F(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **))          \
    F(cuLaunchKernel, (CUfunction, unsigned int, unsigned int, unsigned int,             \
                       unsigned int, unsigned int, unsigned int, unsigned int, CUstream, \
                       void **, void **))
/* clang-format on */

typedef struct ph_driver {
    void *library; /* of dlopen */
#define PH_DRIVER_FIELD(name, arguments) CUresult(*name) arguments;
    PH_DRIVER_FUNCTIONS(PH_DRIVER_FIELD)
#undef PH_DRIVER_FIELD
} ph_driver;

/* Loads and starts the driver. Returns 0, or -1 and one sentence in `problem`. */
int ph_driver_open(ph_driver *driver, char *problem, size_t size);
void ph_driver_close(ph_driver *driver);

/* The driver's words for a result. */
const char *ph_driver_text(const ph_driver *driver, CUresult result);

#endif
