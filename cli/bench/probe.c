/*
 * probe.c - measured limits of the machine; see probe.h.
 *
 * A probe is a loop in one of several instruction sets, that of the kernels in use.
 * All threads of a measurement start together and stop on time; the rate is the sum of
 * theirs.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/machine.h"
#include "bench/probe.h"
#include "polyhead.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

double probe_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- the loops, one pair per instruction set ----
   multiply: `rounds` rounds of multiply-adds on independent sums, enough of them to hide
   the latency of two units; returns the number of FLOPs.
   read: reads n bytes (a multiple of 4096) and returns something that depends on them. */

enum { PAGE = 4096, AHEAD = 1024 };

/* Asking ahead helps where the hardware's own prefetching is timid; beyond the end of the
   buffer it does nothing. */
#define FETCH(address) __builtin_prefetch(address);

typedef struct loops {
    const char *isa;
    double (*multiply)(long rounds, float *sink);
    uint64_t (*read)(const char *data, size_t n);
} loops;

#define EACH_8(M)  M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define EACH_12(M) EACH_8(M) M(8) M(9) M(10) M(11)

#if defined(__x86_64__)

#define TARGET_512 __attribute__((target("avx512f")))
#define TARGET_2   __attribute__((target("avx2,fma")))

TARGET_512 static double multiply_avx512(long rounds, float *sink)
{
    const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
#define START(i) __m512 sum##i = _mm512_set1_ps((float)i);
#define STEP(i)  sum##i = _mm512_fmadd_ps(sum##i, x, y);
#define TOTAL(i) total = _mm512_add_ps(total, sum##i);
    EACH_12(START)
    for (long r = 0; r < rounds; r++) {
        EACH_12(STEP)
    }
    __m512 total = _mm512_setzero_ps();
    EACH_12(TOTAL)
#undef START
#undef STEP
#undef TOTAL
    _mm512_storeu_ps(sink, total);
    return (double)rounds * 12 * 16 * 2;
}

TARGET_512 static uint64_t read_avx512(const char *data, size_t n)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += 256) {
        FETCH(data + i + AHEAD)
        FETCH(data + i + AHEAD + 64)
        FETCH(data + i + AHEAD + 128)
        FETCH(data + i + AHEAD + 192)
        a = _mm512_xor_si512(a, _mm512_loadu_si512(data + i));
        b = _mm512_xor_si512(b, _mm512_loadu_si512(data + i + 64));
        c = _mm512_xor_si512(c, _mm512_loadu_si512(data + i + 128));
        d = _mm512_xor_si512(d, _mm512_loadu_si512(data + i + 192));
    }
    uint64_t out[8];
    _mm512_storeu_si512(out,
                        _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
    return out[0] ^ out[1] ^ out[2] ^ out[3] ^ out[4] ^ out[5] ^ out[6] ^ out[7];
}

TARGET_2 static double multiply_avx2(long rounds, float *sink)
{
    const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
#define START(i) __m256 sum##i = _mm256_set1_ps((float)i);
#define STEP(i)  sum##i = _mm256_fmadd_ps(sum##i, x, y);
#define TOTAL(i) total = _mm256_add_ps(total, sum##i);
    EACH_12(START)
    for (long r = 0; r < rounds; r++) {
        EACH_12(STEP)
    }
    __m256 total = _mm256_setzero_ps();
    EACH_12(TOTAL)
#undef START
#undef STEP
#undef TOTAL
    _mm256_storeu_ps(sink, total);
    return (double)rounds * 12 * 8 * 2;
}

TARGET_2 static uint64_t read_avx2(const char *data, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += 128) {
        FETCH(data + i + AHEAD)
        FETCH(data + i + AHEAD + 64)
        const __m256i *at = (const __m256i *)(const void *)(data + i);
        a = _mm256_xor_si256(a, _mm256_loadu_si256(at));
        b = _mm256_xor_si256(b, _mm256_loadu_si256(at + 1));
        c = _mm256_xor_si256(c, _mm256_loadu_si256(at + 2));
        d = _mm256_xor_si256(d, _mm256_loadu_si256(at + 3));
    }
    uint64_t out[4];
    _mm256_storeu_si256((__m256i *)(void *)out,
                        _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));
    return out[0] ^ out[1] ^ out[2] ^ out[3];
}
#endif

#if defined(__aarch64__)
static double multiply_neon(long rounds, float *sink)
{
    const float32x4_t x = vdupq_n_f32(0.999f), y = vdupq_n_f32(0.001f);
    /* vfmaq adds into its first argument: here y + sum * x */
#define START(i) float32x4_t sum##i = vdupq_n_f32((float)i);
#define STEP(i)  sum##i = vfmaq_f32(y, sum##i, x);
#define TOTAL(i) total = vaddq_f32(total, sum##i);
    EACH_12(START)
    START(12)
    START(13)
    START(14)
    START(15)
    for (long r = 0; r < rounds; r++) {
        EACH_12(STEP) STEP(12) STEP(13) STEP(14) STEP(15)
    }
    float32x4_t total = vdupq_n_f32(0);
    EACH_12(TOTAL)
    TOTAL(12)
    TOTAL(13)
    TOTAL(14)
    TOTAL(15)
#undef START
#undef STEP
#undef TOTAL
    vst1q_f32(sink, total);
    return (double)rounds * 16 * 4 * 2;
}
#endif

/* Any C compiler's own idea; a compiler for a baseline without multiply-adds uses two
   instructions, and that is then the limit of the machine it compiles for. */
static double multiply_plain(long rounds, float *sink)
{
    enum { LANES = 32 };
    float sum[LANES];
    for (int i = 0; i < LANES; i++) sum[i] = (float)i;
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < LANES; i++) sum[i] = sum[i] * 0.999f + 0.001f;
    float total = 0;
    for (int i = 0; i < LANES; i++) total += sum[i];
    sink[0] = total;
    return (double)rounds * LANES * 2;
}

static uint64_t read_plain(const char *data, size_t n)
{
    uint64_t a = 0, b = 0, c = 0, d = 0, word[4];
    for (size_t i = 0; i < n; i += sizeof word) {
        if (i % 64 == 0) FETCH(data + i + AHEAD)
        memcpy(word, data + i, sizeof word);
        a ^= word[0], b ^= word[1], c ^= word[2], d ^= word[3];
    }
    return a ^ b ^ c ^ d;
}

/* The loops that fit the f32 kernels of a table. */
static const loops *pick(const char *vectors)
{
    static const loops each[] = {
#if defined(__x86_64__)
        {"avx2", multiply_avx2, read_avx2},
        {"avx512", multiply_avx512, read_avx512},
#elif defined(__aarch64__)
        {"neon", multiply_neon, read_plain},
#endif
        {"plain", multiply_plain, read_plain},
    };
    size_t i = 0, last = sizeof each / sizeof each[0] - 1;
    while (i < last && strcmp(each[i].isa, vectors)) i++;
    return &each[i];
}

/* ---- threads ---- */

typedef struct probe_worker {
    pthread_t thread;
    struct probe *owner;
    int index;
    double rate;    /* FLOPs or bytes in a second */
    size_t at;      /* where in its slice of the buffer reading goes on */
    float sink[32]; /* results go here, so that the loops are not optimised away */
} probe_worker;

enum { CLOSED, OPEN, GIVEN_UP };

struct probe {
    const loops *loops;
    char *buffer;
    size_t bytes;
    probe_worker *workers;
    int most;    /* capacity in workers */
    int running; /* threads of the measurement at work */
    double seconds;
    void (*task)(probe_worker *); /* multiply or read */
    atomic_int gate;              /* CLOSED, OPEN or GIVEN_UP */
};

/* Multiply-adds; the best fifth of a millisecond counts. A run of attention can be as
   short and slip between two disturbances; the probe must be able to do the same. */
static void multiply(probe_worker *w)
{
    const probe *p = w->owner;
    double start = probe_clock(), now = start;
    w->rate = 0;
    while (now - start < p->seconds) {
        double begin = now, flops = 0;
        do {
            flops += p->loops->multiply(10000, w->sink);
            now = probe_clock();
        } while (now - begin < 2e-4);
        if (flops / (now - begin) > w->rate) w->rate = flops / (now - begin);
    }
}

/* Its own slice of the buffer, round and round; the best three milliseconds count. It
   goes on where the last measurement stopped: starting anew would find the beginning in
   the cache. */
static void read_memory(probe_worker *w)
{
    enum { CHUNK = 1 << 20 };
    const probe *p = w->owner;
    size_t slice = p->bytes / (size_t)p->running / PAGE * PAGE;
    const char *data = p->buffer + slice * (size_t)w->index;
    uint64_t seen = 0;
    double start = probe_clock(), now = start;
    w->rate = 0;
    while (now - start < p->seconds) {
        double begin = now, bytes = 0;
        do {
            if (w->at >= slice) w->at = 0;
            size_t n = slice - w->at < CHUNK ? slice - w->at : CHUNK;
            seen ^= p->loops->read(data + w->at, n);
            w->at += n;
            bytes += (double)n;
            now = probe_clock();
        } while (now - begin < 3e-3);
        if (bytes / (now - begin) > w->rate) w->rate = bytes / (now - begin);
    }
    w->sink[31] = (float)(seen & 1);
}

static void *enter(void *arg)
{
    probe_worker *w = arg;
    int gate;
    while ((gate = atomic_load(&w->owner->gate)) == CLOSED) sched_yield();
    if (gate == OPEN) w->owner->task(w);
    return NULL;
}

/* Work per second of all threads together. */
static double measure(probe *p, int threads, double seconds, void (*task)(probe_worker *))
{
    double sum = 0;
    if (threads > p->most) threads = p->most;
    p->running = threads;
    p->seconds = seconds;
    p->task = task;
    atomic_store(&p->gate, CLOSED);
    int started = 1; /* the caller is the first */
    for (; started < threads; started++) {
        probe_worker *w = &p->workers[started];
        if (pthread_create(&w->thread, NULL, enter, w)) break;
    }
    int good = started == threads; /* or the system has no more threads */
    atomic_store(&p->gate, good ? OPEN : GIVEN_UP);
    enter(&p->workers[0]);
    for (int i = 1; i < started; i++) pthread_join(p->workers[i].thread, NULL);
    for (int i = 0; i < started; i++) sum += p->workers[i].rate;
    return good ? sum : 0;
}

double probe_flops(probe *p, int threads, double seconds)
{
    return 1e-9 * measure(p, threads, seconds, multiply);
}

double probe_read(probe *p, int threads, double seconds)
{
    return 1e-9 * measure(p, threads, seconds, read_memory);
}

/* ---- the buffer ---- */

size_t probe_buffer_bytes(const probe *p)
{
    return p->bytes;
}

const char *probe_isa(const probe *p)
{
    return p->loops->isa;
}

/* Twice the last-level cache, within 64 MiB and 1 GiB, and a quarter of free memory. */
static size_t buffer_size(void)
{
    machine_facts facts;
    machine_look(&facts);
    int64_t size = 2 * facts.cache[2];
    if (size < (64 << 20)) size = 64 << 20;
    if (size > (1 << 30)) size = 1 << 30;
    if (facts.memory_free && size > facts.memory_free / 4) size = facts.memory_free / 4;
    return (size_t)(size / (1 << 20) * (1 << 20));
}

probe *probe_open(int threads, const char *isa)
{
    probe *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->loops = pick(ph_isa_about(isa).vectors);
    p->most = threads;
    p->workers = calloc((size_t)threads, sizeof *p->workers);
    p->bytes = buffer_size();
    void *map =
        mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p->buffer = map == MAP_FAILED ? NULL : map;
    if (!p->workers || !p->buffer) {
        probe_close(p);
        return NULL;
    }
    madvise(p->buffer, p->bytes, MADV_HUGEPAGE);
    for (int i = 0; i < threads; i++) {
        p->workers[i].owner = p;
        p->workers[i].index = i;
    }
    memset(p->buffer, 1, p->bytes); /* untouched pages would all be the same zero page */
    return p;
}

void probe_close(probe *p)
{
    if (!p) return;
    if (p->buffer) munmap(p->buffer, p->bytes);
    free(p->workers);
    free(p);
}
