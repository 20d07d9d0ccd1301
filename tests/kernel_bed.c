/*
 * kernel_bed.c - guarded memory, comparison, timing for kernel checks; see kernel_bed.h.
 */
#define _GNU_SOURCE
#include "kernel_bed.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/half.h"
#include "base/rng.h"
#include "stored_copy.h"

/* ---- memory ------------------------------------------------------------------------ */

enum { MARGIN = 512 }; /* bytes of pattern looked at beside a block */

typedef struct slot {
    char *start; /* first usable byte, right behind a guard page */
    char *block; /* the placed bytes */
    size_t bytes;
    int side;
} slot;

static slot slots[BED_SLOTS];

/* One mapping without access; the inner pages of each slot are opened. */
static void make_slots(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), each = BED_SLOT_BYTES + page;
    char *all = mmap(NULL, BED_SLOTS * each + page, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    for (int i = 0; i < BED_SLOTS; i++) {
        slots[i].start = all + (size_t)i * each + page;
        if (mprotect(slots[i].start, BED_SLOT_BYTES, PROT_READ | PROT_WRITE) != 0) {
            perror("mprotect");
            exit(1);
        }
    }
}

/* The pattern byte at an address: words keep their place whatever a block's alignment. */
static unsigned char pattern_at(const char *p)
{
    return (unsigned char)(BED_PATTERN >> ((uintptr_t)p % 4 * 8));
}

static void fill_pattern(char *from, char *to)
{
    const uint32_t word = BED_PATTERN;
    for (; from < to && (uintptr_t)from % 4; from++) *from = (char)pattern_at(from);
    for (; to - from >= 4; from += 4) memcpy(from, &word, 4);
    for (; from < to; from++) *from = (char)pattern_at(from);
}

static char *lower_margin(const slot *s)
{
    return s->block - s->start > MARGIN ? s->block - MARGIN : s->start;
}

static char *upper_margin(const slot *s)
{
    char *end = s->start + BED_SLOT_BYTES, *block_end = s->block + s->bytes;
    return end - block_end > MARGIN ? block_end + MARGIN : end;
}

void *bed_place(int index, size_t bytes, int side)
{
    slot *s = &slots[index];
    if (bytes > BED_SLOT_BYTES) bed_fail("the check wants %zu bytes in a slot", bytes);
    if (!s->start) make_slots();
    s->bytes = bytes;
    s->side = side;
    s->block = side == BED_END ? s->start + BED_SLOT_BYTES - bytes : s->start;
    fill_pattern(lower_margin(s), upper_margin(s));
    return s->block;
}

float *bed_floats(int index, int64_t count, int side)
{
    return bed_place(index, (size_t)count * sizeof(float), side);
}

float *bed_copy(int index, const float *from, int64_t count, int side)
{
    float *to = bed_floats(index, count, side);
    memcpy(to, from, (size_t)count * sizeof(float));
    return to;
}

static void expect_pattern(const slot *s, const char *from, const char *to)
{
    for (; from < to; from++)
        if ((unsigned char)*from != pattern_at(from))
            bed_fail("wrote %s its output, %td bytes from its start (it has %zu)",
                     from < s->block ? "before" : "behind", from - s->block, s->bytes);
}

void bed_intact(int index)
{
    const slot *s = &slots[index];
    expect_pattern(s, lower_margin(s), s->block);
    expect_pattern(s, s->block + s->bytes, upper_margin(s));
}

/* ---- data -------------------------------------------------------------------------- */

static uint64_t state = 1;

uint64_t bed_random(void)
{
    return ph_rng_mix(state += 0x9e3779b97f4a7c15u);
}

int bed_below(int n)
{
    return (int)(bed_random() >> 33) % n;
}

float bed_between(float a, float b)
{
    return a + (b - a) * (float)(bed_random() >> 40) * 0x1p-24f;
}

float bed_special(void)
{
    static const float list[] = {NAN,       INFINITY,   -INFINITY,   0.0f,    -0.0f,
                                 0x1p-149f, -0x1p-149f, 0x1.8p-130f, FLT_MIN, -FLT_MIN,
                                 FLT_MAX,   -FLT_MAX,   1.0f,        -1.0f,   0x1p-126f};
    return list[bed_below((int)(sizeof list / sizeof list[0]))];
}

/* 24 random bits around 1, times 2^low .. 2^high, either sign; no rounding on the way */
static float spread(int low, int high)
{
    uint64_t bits = bed_random();
    int exponent = low + (int)((bits >> 32) % (uint64_t)(high - low + 1));
    uint32_t word = (uint32_t)(bits & 0x807fffffu) | (uint32_t)(exponent + 127) << 23;
    return ph_float(word);
}

void bed_fill(float *x, int64_t count, int kind)
{
    for (int64_t i = 0; i < count; i++) {
        if (kind == BED_NORMAL)
            x[i] = spread(-2, 0);
        else if (kind == BED_TINY)
            x[i] = spread(-78, -60);
        else
            x[i] = spread(-20, 20);
    }
    if (kind == BED_SPARSE)
        for (int64_t i = bed_below(40); i < count; i += 40 + bed_below(80))
            x[i] = bed_special();
}

static float element(int data)
{
    float x;
    bed_fill(&x, 1, data != BED_MIXED || bed_below(16) ? BED_NORMAL : BED_WIDE);
    return data == BED_MIXED && !bed_below(40) ? bed_special() : x;
}

/* Any bytes but for the scale and the minimum. */
static void fill_block(uint8_t *block, ph_dtype type, int data)
{
    for (int i = 0; i < ph_quant_bytes(type); i++) block[i] = (uint8_t)bed_below(256);
    uint16_t scale = ph_to_f16(element(data));
    stored_halves(block, type, scale, ph_to_f16(element(data)));
}

void *bed_elements(int at, int n, ph_dtype type, int data)
{
    int side = data == BED_EVEN || bed_below(2) ? BED_START : BED_END;
    n = ph_round_up(n, ph_quant_block(type));
    char *to = bed_place(at, (size_t)ph_offset(type, n), side);
    for (int i = 0; i < n && ph_dtype_is_block(type); i += ph_quant_block(type))
        fill_block((uint8_t *)to + ph_offset(type, i), type, data);
    for (int i = 0; i < n && !ph_dtype_is_block(type); i++) {
        float x = element(data);
        uint16_t half = type == PH_BF16 ? ph_to_bf16(x) : ph_to_f16(x);
        if (type == PH_F32)
            memcpy(to + 4 * i, &x, 4);
        else
            memcpy(to + 2 * i, &half, 2);
    }
    return to;
}

/* ---- checking ---------------------------------------------------------------------- */

static char what_is_tried[200];
static sigjmp_buf leave;

void bed_say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(what_is_tried, sizeof what_is_tried, format, list);
    va_end(list);
}

_Noreturn void bed_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("    %s: ", what_is_tried);
    vprintf(format, list);
    printf("\n");
    va_end(list);
    siglongjmp(leave, 1);
}

int bed_equal(float a, float b)
{
    return ph_bits(a) == ph_bits(b) || (isnan(a) && isnan(b));
}

static void differ(const char *what, int row, int64_t at, float got, float want)
{
    bed_fail("%s row %d column %lld: %a (%08x), ref has %a (%08x)", what, row,
             (long long)at, (double)got, (unsigned)ph_bits(got), (double)want,
             (unsigned)ph_bits(want));
}

void bed_same(const char *what, const float *got, const float *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!bed_equal(got[i], want[i])) differ(what, 0, i, got[i], want[i]);
}

void bed_same_rows(const char *what, const float *got, int64_t ld, const float *want,
                   int64_t ld_want, int rows, int n, int64_t from)
{
    for (int r = 0; r < rows; r++) {
        const float *a = got + r * ld, *b = want + r * ld_want;
        for (int c = 0; c < n; c++)
            if (!bed_equal(a[c], b[c])) differ(what, r, c, a[c], b[c]);
        for (int64_t c = from; r < rows - 1 && c < ld; c++)
            if (ph_bits(a[c]) != BED_PATTERN)
                bed_fail("%s: wrote into column %lld of row %d", what, (long long)c, r);
    }
}

/* Which block the address lies nearest to, in words. */
static void touched(const char *address)
{
    for (int i = 0; i < BED_SLOTS; i++) {
        const slot *s = &slots[i];
        if (!s->block || address < s->start - 4096 ||
            address > s->start + BED_SLOT_BYTES + 4096)
            continue;
        printf("    %s: touched memory at byte %td of a block of %zu (slot %d)\n",
               what_is_tried, address - s->block, s->bytes, i);
        return;
    }
    printf("    %s: touched memory at %p\n", what_is_tried, (const void *)address);
}

static void caught(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (number == SIGILL)
        printf("    %s: illegal instruction\n", what_is_tried);
    else
        touched(info->si_addr);
    siglongjmp(leave, 1);
}

int bed_run(bed_body *body, const ph_kernels *table, uint64_t seed)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL};
    enum { COUNT = sizeof signals / sizeof signals[0] };
    static struct sigaction before[COUNT];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = caught;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    for (int i = 0; i < COUNT; i++) sigaction(signals[i], &action, &before[i]);
    state = seed;
    volatile int failed = sigsetjmp(leave, 1);
    if (!failed) body(table);
    for (int i = 0; i < COUNT; i++) sigaction(signals[i], &before[i], NULL);
    return failed;
}

/* ---- timing ------------------------------------------------------------------------ */

/* Many short batches: on a shared machine some of them run undisturbed. Not CPU time: on
   virtual machines that is now and then too short, and the shortest is what counts. */
enum { BATCHES = 200 };
static const double batch_seconds = 5e-4;

double bed_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bed_timer_start(bed_timer *timer)
{
    *timer = (bed_timer){.calls = 1, .batch = -1, .seconds = HUGE_VAL};
}

/* Doubles the calls until a batch is long enough, then times BATCHES of them. */
int bed_timer_next(bed_timer *timer)
{
    double now = bed_now(), spent = now - timer->begin;
    if (timer->batch < 0 && timer->begin > 0) {
        if (spent < batch_seconds && timer->calls < 1 << 28)
            timer->calls *= 2;
        else
            timer->batch = 0;
    } else if (timer->batch >= 0) {
        if (spent / timer->calls < timer->seconds) timer->seconds = spent / timer->calls;
        timer->batch++;
    }
    timer->begin = bed_now();
    return timer->batch < BATCHES;
}

void bed_report(const char *kernel, const ph_kernels *table, const char *shape,
                const bed_timer *timer, double flops, double bytes)
{
    double peak = flops > 0 ? bed_peak(table) : 0, rate = flops / timer->seconds * 1e-9;
    printf("%-12s %-7s %-22s %10.1f ns", kernel, table->name, shape,
           timer->seconds * 1e9);
    if (flops > 0) printf(" %8.1f GFLOP/s", rate);
    if (flops > 0 && peak > 0) printf(" %5.1f %% of peak", 100 * rate / peak);
    if (bytes > 0) printf(" %8.1f GB/s", bytes / timer->seconds * 1e-9);
    printf("\n");
}
