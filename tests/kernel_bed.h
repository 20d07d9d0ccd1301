/*
 * kernel_bed.h - the bed on which kernels are tried: guarded memory, comparison, timing.
 *
 * A kernel has one check and one bench, both called once per kernel table:
 *
 *     void check_axpy(const ph_kernels *t)      compares t->axpy with ph_kernels_ref.axpy
 *     void bench_axpy(const ph_kernels *t)      times it and prints a line
 *
 * Memory comes in slots, each between two pages that cannot be touched:
 *
 *     | no access | pattern ... pattern [ your bytes ] | no access |     BED_END
 *     | no access | [ your bytes ] pattern ... pattern | no access |     BED_START
 *
 * so a read or write past one side stops the check at once, and a write past the other
 * leaves a mark that bed_intact finds. The pattern is a signalling NaN, so a number made
 * from it is not taken for a result. Numbers are compared by their bits; NaN equals NaN.
 */
#ifndef KERNEL_BED_H
#define KERNEL_BED_H

#include "every.h"
#include "kernels/kernels.h"

/* ---- what is checked; one name per kernel of the table ----------------------------- */

/* clang-format off */
#define KERNEL_CHECKS(X) X(pack_panel) X(pack_row_major) X(store_row) X(finite)         \
    X(scores) X(multiply_v) X(product) X(axpy) X(softmax) X(gradient) X(weights)        \
    X(dot) X(times) X(blend) X(row_lane_max) X(add_bias) X(add_alibi) X(softcap)        \
    X(hide) X(dropout) X(load_row) X(pack_panels) X(product_few_rows)                   \
    X(product_few_rows_t) X(compose) X(decompose) X(center) X(gram) X(near_row_max)     \
    X(power_sums) X(entmax) X(clip) X(lane_sums) X(add_rows) X(dots) X(logs)            \
    X(scores_in_place) X(head_forward) X(head_backward) X(deltas)
#define PAIRS_CHECKS(X) X(pairs_pack) X(pairs_scores) X(pairs_attend)                   \
    X(pairs_score_grad) X(pairs_bf16x3) X(pairs_multiply) X(pairs_multiply_in_place)    \
    X(pairs_few_rows) X(pairs_scores_in_place) X(pairs_attend_in_place)
/* clang-format on */

typedef void bed_body(const ph_kernels *table);

#define KERNEL_DECLARE(name) bed_body check_##name, bench_##name;
KERNEL_CHECKS(KERNEL_DECLARE)
PAIRS_CHECKS(KERNEL_DECLARE)
#undef KERNEL_DECLARE

    /* Results over all values of a type (kernel_values.c), and what the kernels mean, in
   double, for the table that the others are compared with (kernel_contract.c). */
    bed_body check_exp2,
    check_tanh, check_from_halves, check_to_halves;
bed_body check_products_mean, check_rows_mean, check_random_means;

extern int bed_all; /* 1: every float instead of a sample */

/* ---- memory ------------------------------------------------------------------------ */

enum { BED_SLOTS = 48, BED_SLOT_BYTES = 1 << 20 };
enum { BED_START, BED_END }; /* which side lies against the guard page */

#define BED_PATTERN 0x7fa5a5a5u

/* `bytes` bytes of a slot, all pattern, like their surroundings. A slot holds one block
   at a time. Slots 0..15 are for anybody, 16.. for the rows of packing checks. */
void *bed_place(int slot, size_t bytes, int side);
float *bed_floats(int slot, int64_t count, int side);

/* The same, holding a copy of `from`. */
float *bed_copy(int slot, const float *from, int64_t count, int side);

/* Fails unless the surroundings of the block still hold the pattern. */
void bed_intact(int slot);

/* ---- data -------------------------------------------------------------------------- */

/* NORMAL near N(0,1); WIDE magnitudes 2^-20..2^20; TINY products underflow; SPARSE: WIDE
   with a NaN, Inf, zero, subnormal or huge value here and there. */
enum { BED_NORMAL, BED_WIDE, BED_TINY, BED_SPARSE, BED_KINDS };

uint64_t bed_random(void);
int bed_below(int n);                /* in [0, n)            */
float bed_between(float a, float b); /* uniform              */
float bed_special(void);             /* NaN, Inf, -0, subnormal, huge ... */
void bed_fill(float *x, int64_t count, int kind);

/* n elements of a type in a slot, of whole blocks where it has blocks: MIXED with special
   ones now and then; EVEN, for benches, at the start of the slot, since subnormals cost
   extra time. */
enum { BED_MIXED, BED_EVEN, BED_CALM };
void *bed_elements(int slot, int n, ph_dtype type, int data);

/* ---- checking ---------------------------------------------------------------------- */

/* Says what is being tried; printed with a failure. */
void bed_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints the failure and leaves the check. */
_Noreturn void bed_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

int bed_equal(float a, float b); /* same bits, or both NaN */
void bed_same(const char *what, const float *got, const float *want, int64_t count);

/* rows x n elements of `got` equal those of `want`; the columns of `got` in [from, ld)
   between rows hold the pattern. */
void bed_same_rows(const char *what, const float *got, int64_t ld, const float *want,
                   int64_t ld_want, int rows, int n, int64_t from);

/* Runs body(table) with the random numbers of `seed`; 0 if it ran through, 1 if it failed
   or touched memory it may not. */
int bed_run(bed_body *body, const ph_kernels *table, uint64_t seed);

/* ---- timing ------------------------------------------------------------------------ */

typedef struct bed_timer {
    int calls, batch;      /* calls in a batch; batches done */
    double begin, seconds; /* of this batch; per call, of the fastest batch */
} bed_timer;

double bed_now(void); /* seconds */
void bed_timer_start(bed_timer *timer);
int bed_timer_next(bed_timer *timer);

#define BED_TIME(timer, call)                                                            \
    do {                                                                                 \
        bed_timer_start(timer);                                                          \
        while (bed_timer_next(timer))                                                    \
            for (int bed_i = 0; bed_i < (timer)->calls; bed_i++) call;                   \
    } while (0)

/* Largest number of floating-point operations per second of one core with the vectors of
   this table, in 1e9; 0 for `ref`. Measured anew by each call, as clocks change. */
double bed_peak(const ph_kernels *table);

/* One line about a bench; flops and bytes of one call, 0 where they say nothing. */
void bed_report(const char *kernel, const ph_kernels *table, const char *shape,
                const bed_timer *timer, double flops, double bytes);

#endif
