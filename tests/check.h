/*
 * check.h - the test harness: one header, no library.
 *
 * A test program is a table of named cases:
 *
 *     static void one_key(void) { CHECK(f(1) == 1, "f(1) gave %d, expected 1", f(1)); }
 *     static const check_case cases[] = {{"one_key", one_key}, {0, 0}};
 *     int main(int argc, char **argv) { return check_main(argc, argv, cases); }
 *
 * A case fails at its first CHECK that is false, says where and why, and the others still
 * run. A case that comes to no CHECK fails too: it has tested nothing. Arguments choose
 * cases by substring; --seed N changes random data; --list prints the names. The last
 * line of the output is "N passed, N failed" (", N skipped").
 */
#ifndef CHECK_H
#define CHECK_H

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_case {
    const char *name;
    void (*body)(void);
} check_case;

static jmp_buf check_exit;
static int check_count; /* CHECKs that the running case came to */
static uint64_t check_seed = 1; /* set by --seed; start random data from it */

#define CHECK(condition, ...)                                                  \
    do {                                                                       \
        check_count++;                                                         \
        if (!(condition)) {                                                    \
            printf("    %s:%d: ", __FILE__, __LINE__);                         \
            printf(__VA_ARGS__);                                               \
            printf("\n");                                                      \
            longjmp(check_exit, 1);                                            \
        }                                                                      \
    } while (0)

/* Leaves a case that cannot run on this machine; the reason is printed. */
#define SKIP(...)                                                              \
    do {                                                                       \
        printf("    skipped: ");                                               \
        printf(__VA_ARGS__);                                                   \
        printf("\n");                                                          \
        longjmp(check_exit, 2);                                                \
    } while (0)

/* splitmix64: random bits for test data, the same on every machine. */
static inline uint64_t check_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline double check_uniform(uint64_t *state) /* in [0, 1) */
{
    return (double)(check_random(state) >> 11) * 0x1p-53;
}

static inline int check_below(uint64_t *state, int n) /* in [0, n) */
{
    return (int)(check_random(state) % (uint64_t)n);
}

static inline float check_normal(uint64_t *state) /* near N(0,1): sum of 12 uniforms */
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += check_uniform(state);
    return (float)sum;
}

static inline int check_chosen(int argc, char **argv, const char *name)
{
    int any = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            if (!strcmp(argv[i], "--seed")) i++;
            continue;
        }
        any = 1;
        if (strstr(name, argv[i])) return 1;
    }
    return !any;
}

static inline int check_main(int argc, char **argv, const check_case *cases)
{
    volatile int passed = 0, failed = 0, skipped = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--seed")) check_seed = strtoull(argv[i + 1], NULL, 10);
    for (const check_case *volatile c = cases; c->name; c++) {
        if (argc > 1 && !strcmp(argv[1], "--list")) {
            printf("%s\n", c->name);
            continue;
        }
        if (!check_chosen(argc, argv, c->name)) continue;
        check_count = 0;
        int outcome = setjmp(check_exit);
        if (outcome == 0) {
            c->body();
            CHECK(check_count > 0, "%s checks nothing", c->name);
            passed++;
        } else if (outcome == 2) {
            skipped++;
            printf("  skip  %s\n", c->name);
        } else {
            failed++;
            printf("  FAIL  %s (seed %llu)\n", c->name, (unsigned long long)check_seed);
        }
    }
    printf("%d passed, %d failed", passed, failed);
    if (skipped) printf(", %d skipped", skipped);
    printf("\n");
    return failed != 0;
}

#endif
