/*
 * cpu.c - reads CPUID (x86), the affinity mask and the cgroup's CPU quota.
 */
#define _GNU_SOURCE
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

/* The register file the operating system saves on a context switch. */
static unsigned saved_state(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* AMX state is large, so Linux grants it only on request (arch_prctl). All AMX tiles so
   far are 16 rows of 64 bytes; leaf 0x1d confirms it, or is empty in some virtual
   machines. */
static int has_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (!(d & 1u << 24) || !(d & 1u << 22)) return 0; /* AMX-TILE, AMX-BF16 */
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & 1u << 5)) return 0;
    if ((saved_state() & 0x60000) != 0x60000) return 0; /* their configuration and data */
    if (__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) && a &&
        (b != (8u << 16 | 64) || c != 16))
        return 0;
#if defined(__linux__)
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return 0;
#endif
}

unsigned ph_cpu_features(void)
{
    unsigned a, b, c, d, found = 0;
    const unsigned need1 =
        1u << 12 | 1u << 27 | 1u << 28 | 1u << 29; /* FMA OSXSAVE AVX F16C */
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need1) != need1) return 0;
    unsigned state = saved_state();
    if ((state & 0x6) != 0x6) return 0; /* ymm */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (b & 1u << 5) found |= PH_CPU_AVX2;
    const unsigned need512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F DQ BW VL */
    if (found && (b & need512) == need512 && (state & 0xe0) == 0xe0)
        found |= PH_CPU_AVX512;
    if (found & PH_CPU_AVX512 && has_tiles()) found |= PH_CPU_AMX;
    return found;
}

#elif defined(__aarch64__)

unsigned ph_cpu_features(void)
{
    return PH_CPU_NEON; /* part of the base architecture */
}

#else

unsigned ph_cpu_features(void)
{
    return PH_CPU_BASE;
}

#endif

/* Whole cores granted by cgroup version 2, rounded up; 0 when there is no limit. */
static int quota(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!file) return 0;
    long limit = 0, period = 0;
    int fields = fscanf(file, "%ld %ld", &limit, &period); /* "max 100000" gives none */
    fclose(file);
    if (fields != 2 || limit <= 0 || period <= 0) return 0;
    return (int)((limit + period - 1) / period);
}

int ph_cpu_count(void)
{
    cpu_set_t set;
    int count = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        count = CPU_COUNT(&set);
    } else {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        if (online > 0) count = (int)online;
    }
    int limit = quota();
    if (limit > 0 && limit < count) count = limit;
    return count > 0 ? count : 1;
}
