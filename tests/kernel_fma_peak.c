/*
 * kernel_fma_peak.c - fused multiply-adds one core can do per second, per instruction
 * set.
 *
 * Independent chains in registers, more than latency times units, and nothing else in the
 * loop. What the products reach is said as a share of this, measured in the same run.
 */
#include <string.h>

#include "kernel_bed.h"

enum { ROUNDS = 1024 };

/* CHAINS sums, ROUNDS fused multiply-adds each, four rounds in a row so that the loop
   itself does not count. The empty asm keeps the compiler from dropping the chains. */
#define ROUND(chains, fma)                                                               \
    _Pragma("GCC unroll 24") for (int i = 0; i < chains; i++) sum[i] = fma(sum[i], x, y);
#define PROBE(name, attribute, vec, chains, set1, fma)                                   \
    static attribute void name(void)                                                     \
    {                                                                                    \
        vec sum[chains], x = set1(0.999f), y = set1(0.001f);                             \
        for (int i = 0; i < chains; i++) sum[i] = set1((float)i);                        \
        for (int r = 0; r < ROUNDS; r += 4) {                                            \
            ROUND(chains, fma) ROUND(chains, fma) ROUND(chains, fma) ROUND(chains, fma)  \
        }                                                                                \
        for (int i = 0; i < chains; i++) __asm__ volatile("" : : KEEP(sum[i]));          \
    }

#if defined(__x86_64__)
#include <immintrin.h>
#define KEEP "v"
PROBE(probe_avx2, __attribute__((target("avx2,fma"))), __m256, 12, _mm256_set1_ps,
      _mm256_fmadd_ps)
PROBE(probe_avx512, __attribute__((target("avx512f"))), __m512, 24, _mm512_set1_ps,
      _mm512_fmadd_ps)
#elif defined(__aarch64__)
#include <arm_neon.h>
#define KEEP         "w"
#define FMA(a, b, c) vfmaq_f32(c, a, b)
PROBE(probe_neon, , float32x4_t, 24, vdupq_n_f32, FMA)
#endif

typedef struct probe {
    const char *name;
    void (*run)(void);
    double flops; /* of one run */
} probe;

static const probe probes[] = {
#if defined(__x86_64__)
    {"avx2", probe_avx2, 2.0 * 8 * 12 * ROUNDS},
    {"avx512", probe_avx512, 2.0 * 16 * 24 * ROUNDS},
    {"amx", probe_avx512, 2.0 * 16 * 24 * ROUNDS},
#elif defined(__aarch64__)
    {"neon", probe_neon, 2.0 * 4 * 24 * ROUNDS},
#endif
    {NULL, NULL, 0},
};

double bed_peak(const ph_kernels *table)
{
    for (const probe *p = probes; p->name; p++) {
        if (strcmp(p->name, table->name) != 0) continue;
        bed_timer timer;
        BED_TIME(&timer, p->run());
        return p->flops / timer.seconds * 1e-9;
    }
    return 0;
}
