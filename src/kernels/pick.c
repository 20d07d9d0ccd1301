/*
 * pick.c - which kernel tables this CPU can run, and the best one under a limit.
 *
 * A table whose f32 has bits of its own is never the best by itself: it must be named.
 * A limit may be above this CPU, but not of another architecture.
 */
#include <pthread.h>
#include <string.h>

#include "base/cpu.h"
#include "kernels/kernels.h"

typedef struct isa {
    const ph_kernels *table;
    unsigned needs; /* features that must be present */
} isa;

static const isa all[] = {
#define ISA(name, feature) {&ph_kernels_##name, feature},
#include "kernels/isa_list.h"
#undef ISA
};

enum { ISAS = sizeof all / sizeof all[0] };

/* Filled once; constant afterwards. */
static const ph_kernels *runnable[ISAS + 1];
static const char *names[ISAS + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void)
{
    unsigned features = ph_cpu_features();
    int count = 0;
    for (int i = 0; i < ISAS; i++) {
        if ((all[i].needs & features) != all[i].needs) continue;
        names[count] = all[i].table->name;
        runnable[count++] = all[i].table;
    }
}

const ph_kernels *const *ph_kernels_list(void)
{
    pthread_once(&once, fill);
    return runnable;
}

const char *const *ph_kernels_names(void)
{
    pthread_once(&once, fill);
    return names;
}

const ph_kernels *ph_kernels_pick(const char *limit)
{
    const ph_kernels *const *list = ph_kernels_list();
    const ph_kernels *best = list[0];
    int is_known = limit == NULL;
    for (int i = 0; limit && i < ISAS; i++)
        is_known |= !strcmp(limit, all[i].table->name);
    if (!is_known) return NULL;
    int reached = 0; /* walk the full list: the limit may be above this CPU */
    for (int i = 0; i < ISAS && !reached; i++) {
        for (int j = 0; list[j]; j++)
            if (list[j] == all[i].table && (limit || !list[j]->f32_tiles)) best = list[j];
        reached = limit && !strcmp(limit, all[i].table->name);
    }
    return best;
}
