/*
 * machine.h - what the operating system says about this machine.
 */
#ifndef PH_CLI_MACHINE_H
#define PH_CLI_MACHINE_H

#include <stdint.h>

typedef struct machine_facts {
    char cpu[96]; /* model name, or "unknown" */
    int cores_online;
    int cores_allowed;                 /* by the affinity mask */
    double cores_quota;                /* by the control group; 0: no limit */
    int64_t cache[3];                  /* bytes of L1 data, L2, last level; 0: unknown */
    int64_t memory_total, memory_free; /* bytes; free: available without swapping */
    int64_t memory_limit;              /* by the control group; 0: none */
    char gpu[96];                      /* "" if there is none */
} machine_facts;

void machine_look(machine_facts *facts);

#endif
