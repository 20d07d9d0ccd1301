/*
 * driver.c - libcuda.so.1, if this machine has one.
 */
#include "cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { CUDA_VERSION_WANTED = 12000 }; /* the first with libraries of kernels */

typedef CUresult get_address(const char *name, void **function, int version,
                             unsigned long long flags, int *found);

/* Pointers to functions and to data are converted through their bytes. */
static int find(get_address *get, const char *name, void *to)
{
    void *address = NULL;
    int found = 0;
    if (get(name, &address, CUDA_VERSION_WANTED, 0, &found) != PH_CU_SUCCESS) return -1;
    memcpy(to, &address, sizeof address);
    return address ? 0 : -1;
}

static int find_all(ph_driver *d, char *problem, size_t size)
{
    get_address *get;
    void *symbol = dlsym(d->library, "cuGetProcAddress_v2");
    const char *missing = symbol ? NULL : "cuGetProcAddress_v2";
    memcpy(&get, &symbol, sizeof symbol);
#define FIND(name, arguments)                                                            \
    if (!missing && find(get, #name, &d->name)) missing = #name;
    PH_DRIVER_FUNCTIONS(FIND)
#undef FIND
    if (!missing) return 0;
    snprintf(
        problem, size,
        "the NVIDIA driver is too old: it has no %s, expected one of CUDA 12 or later",
        missing);
    return -1;
}

static int start(const ph_driver *d, char *problem, size_t size)
{
    CUresult result = d->cuInit(0);
    if (result == PH_CU_SUCCESS) return 0;
    snprintf(problem, size, "the NVIDIA driver does not start: %s",
             ph_driver_text(d, result));
    return -1;
}

int ph_driver_open(ph_driver *driver, char *problem, size_t size)
{
    memset(driver, 0, sizeof *driver);
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!driver->library) {
        snprintf(problem, size, "no NVIDIA driver was found (libcuda.so.1)");
        return -1;
    }
    if (!find_all(driver, problem, size) && !start(driver, problem, size)) return 0;
    ph_driver_close(driver);
    return -1;
}

void ph_driver_close(ph_driver *driver)
{
    if (driver->library) dlclose(driver->library);
    driver->library = NULL;
}

const char *ph_driver_text(const ph_driver *driver, CUresult result)
{
    const char *text = NULL;
    if (driver->cuGetErrorString(result, &text) != PH_CU_SUCCESS || !text)
        return "unknown error";
    return text;
}
