/*
 * cpu.h - what this CPU and this process may use.
 */
#ifndef PH_BASE_CPU_H
#define PH_BASE_CPU_H

/* Instruction sets, weakest first; each implies those before it on its architecture. */
enum {
    PH_CPU_BASE = 0,
    PH_CPU_NEON = 1,
    PH_CPU_AVX2 = 2,
    PH_CPU_AVX512 = 4,
    PH_CPU_AMX = 8 /* AMX-BF16, and AVX-512's conversions to bf16 */
};

/* Bits of the instruction sets that both the CPU and the operating system support.
   Requests permission to use AMX tiles from the system where the CPU has them. */
unsigned ph_cpu_features(void);

/* Cores this process may run on: affinity mask, capped by the cgroup's quota. */
int ph_cpu_count(void);

#endif
