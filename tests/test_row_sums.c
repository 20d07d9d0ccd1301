/*
 * test_row_sums.c - the one pass over a row of weights against libm, and its
 * instruction sets against each other.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "check.h"
#include "heads/row_sums.h"

enum { MOST = 70 };

/* Weights over all magnitudes, zeros and subnormal ones among them. */
static void random_row(float *w, int keys, uint64_t *state)
{
    for (int j = 0; j < keys; j++) {
        w[j] = (float)exp(12 * (double)check_normal(state) - 6);
        if (check_below(state, 8) == 0) w[j] = 0;
        if (check_below(state, 8) == 0) w[j] = FLT_MIN / 1024;
        if (check_below(state, 8) == 0) w[j] = 1;
    }
}

static ph_row_sums by_libm(const float *w, int keys, int position, double *magnitude)
{
    ph_row_sums r = {.good = 1};
    *magnitude = 0;
    for (int j = 0; j < keys; j++) {
        double term = w[j] > 0 ? (double)w[j] * log((double)w[j]) : 0;
        r.sum += (double)w[j];
        r.entropy -= term;
        r.distance += (double)w[j] * abs(j - position);
        *magnitude += fabs(term);
        if (w[j] > w[r.best]) r.best = j;
    }
    return r;
}

/* Each sum has `keys` additions on either side, each of relative error 2^-53 of the sum
   of magnitudes; a term has 8 roundings more at most. The log of a term is off by 7 *
   2^-24 of itself, see row_sums_loops.h, and of a subnormal one the term by 2e-37. */
static void same_as_libm(void)
{
    uint64_t state = 11;
    float w[MOST];
    for (int n = 0; n < 400; n++) {
        int keys = 1 + check_below(&state, MOST), position = check_below(&state, MOST);
        double magnitude, unit = (2 * keys + 8) * 0x1p-53;
        random_row(w, keys, &state);
        ph_row_sums want = by_libm(w, keys, position, &magnitude);
        ph_row_sums got = ph_row_sums_pick(ph_cpu_features())(w, keys, position);
        CHECK(got.good && got.best == want.best, "best %d, expected %d", got.best,
              want.best);
        CHECK(fabs(got.sum - want.sum) <= unit * want.sum, "sum %.17g, expected %.17g",
              got.sum, want.sum);
        CHECK(fabs(got.entropy - want.entropy) <=
                  (unit + 7 * 0x1p-24) * magnitude + keys * 2e-37,
              "entropy %.17g, expected %.17g", got.entropy, want.entropy);
        CHECK(fabs(got.distance - want.distance) <= unit * want.distance,
              "distance %.17g, expected %.17g", got.distance, want.distance);
    }
}

static int same_bits(const ph_row_sums *a, const ph_row_sums *b)
{
    return !memcmp(&a->sum, &b->sum, sizeof a->sum) &&
           !memcmp(&a->entropy, &b->entropy, sizeof a->entropy) &&
           !memcmp(&a->distance, &b->distance, sizeof a->distance) &&
           a->best == b->best && a->good == b->good;
}

/* From the best instruction set of this CPU down. */
static void same_bits_everywhere(void)
{
    uint64_t state = 12;
    float w[MOST];
    for (int n = 0; n < 400; n++) {
        int keys = 1 + check_below(&state, MOST), position = check_below(&state, MOST);
        random_row(w, keys, &state);
        ph_row_sums base = ph_row_sums_pick(PH_CPU_BASE)(w, keys, position);
        for (unsigned has = ph_cpu_features(); has; has >>= 1) {
            unsigned features = has & ph_cpu_features();
            ph_row_sums got = ph_row_sums_pick(features)(w, keys, position);
            CHECK(same_bits(&got, &base), "%d keys, features %u", keys, features);
        }
    }
}

static void bad_weights(void)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, -1e-30f, 2e30f};
    float w[MOST];
    for (int n = 0; n < 5; n++)
        for (int at = 0; at < MOST; at += 23) {
            for (int j = 0; j < MOST; j++) w[j] = 1.0f / MOST;
            w[at] = bad[n];
            ph_row_sums r = ph_row_sums_pick(ph_cpu_features())(w, MOST, 0);
            CHECK(!r.good, "%g at key %d is no weight", (double)bad[n], at);
        }
}

static const check_case cases[] = {{"same_as_libm", same_as_libm},
                                   {"same_bits_everywhere", same_bits_everywhere},
                                   {"bad_weights", bad_weights},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
