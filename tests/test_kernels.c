/*
 * test_kernels.c - every kernel of every table of this CPU against `ref`, bit by bit.
 *
 *   test_kernels [NAME...]           the checks; see check.h for --seed and --list
 *   test_kernels --all [NAME...]     values not in samples but each one (minutes)
 *   test_kernels --bench [NAME...]   time per call, GFLOP/s or GB/s, per table
 *   test_kernels --isas              the names of the tables, weakest first
 *
 * The checks are in kernel_products.c, kernel_packs.c, kernel_rows.c,
 * kernel_bf16_pairs.c, kernel_head.c, kernel_values.c and kernel_contract.c, on the bed
 * of kernel_bed.h.
 */
#include "check.h"

#include "kernel_bed.h"

/* A kernel without a check does not compile. */
#define ONE(name) +1
_Static_assert((sizeof(ph_kernels) - offsetof(ph_kernels, pack_panel)) /
                       sizeof(void (*)(void)) ==
                   0 KERNEL_CHECKS(ONE),
               "each kernel of the table needs a line in KERNEL_CHECKS");
#undef ONE

/* Whether a table has all kernels of the one before it: amx adds pairs to avx512, and
   what has f32_tiles adds nothing. */
static int repeats(const ph_kernels *const *t)
{
    size_t from = offsetof(ph_kernels, pack_panel);
    return t > ph_kernels_list() &&
           !memcmp((const char *)t[0] + from, (const char *)t[-1] + from,
                   sizeof **t - from);
}

/* The check for each table of this CPU; all of them run, whichever fails. */
static void each_table(bed_body *body, int pairs)
{
    int failed = 0, count = 0;
    for (const ph_kernels *const *t = ph_kernels_list(); *t && !(*t)->f32_tiles; t++)
        if (pairs ? (*t)->bf16_pairs != NULL : !repeats(t))
            failed += bed_run(body, *t, check_seed), count++;
    if (pairs && !count) SKIP("no table of this CPU has bf16 tiles");
    CHECK(!failed, "%d of %d tables failed", failed, count);
}

#define CASE(name)                                                                       \
    static void case_##name(void)                                                        \
    {                                                                                    \
        each_table(check_##name, 1);                                                     \
    }
PAIRS_CHECKS(CASE)
#undef CASE

#define CASE(name)                                                                       \
    static void case_##name(void)                                                        \
    {                                                                                    \
        each_table(check_##name, 0);                                                     \
    }
KERNEL_CHECKS(CASE)
CASE(exp2)
CASE(tanh)
CASE(from_halves)
CASE(to_halves)
#undef CASE

/* Bits are compared elsewhere; here it is enough to look at ref. */
#define CASE(name)                                                                       \
    static void case_##name(void)                                                        \
    {                                                                                    \
        CHECK(!bed_run(check_##name, &ph_kernels_ref, check_seed), "ref failed");        \
    }
CASE(products_mean)
CASE(rows_mean)
CASE(random_means)
#undef CASE

static void pick(void)
{
    const ph_kernels *const *list = ph_kernels_list(), *const *last = list;
    CHECK(list[0] == &ph_kernels_ref, "the list starts with %s", list[0]->name);
    for (; *last; last++) {
        CHECK(ph_kernels_pick((*last)->name) == *last, "limit %s gives another table",
              (*last)->name);
        CHECK((*last)->mr <= PH_MR_MAX && (*last)->nr <= PH_NR_MAX, "tile of %s",
              (*last)->name);
    }
    while (last > list && last[-1]->f32_tiles) last--; /* only for those who ask */
    CHECK(ph_kernels_pick(NULL) == last[-1], "no limit does not give the best table");
    CHECK(!ph_kernels_pick("avx3") && !ph_kernels_pick(""), "unknown names are accepted");
#if defined(__x86_64__)
    CHECK(!ph_kernels_pick("neon"), "neon is accepted on x86");
    CHECK(ph_kernels_pick("amx") == last[-1], "amx does not mean all there is");
    CHECK(ph_kernels_pick("amx-f32") == (*last ? *last : last[-1]), "nor does amx-f32");
    CHECK(!ph_kernels_pick("avx512")->bf16_pairs, "avx512 has the products of amx");
#else
    CHECK(!ph_kernels_pick("avx2"), "avx2 is accepted on another architecture");
#endif
}

static const check_case cases[] = {
    {"pick", pick},
#define CASE(name) {#name, case_##name},
    KERNEL_CHECKS(CASE) PAIRS_CHECKS(CASE) CASE(exp2) CASE(tanh) CASE(from_halves)
        CASE(to_halves) CASE(products_mean) CASE(rows_mean) CASE(random_means)
#undef CASE
            {0, 0},
};

/* ---- bench ------------------------------------------------------------------------- */

typedef struct bench_case {
    const char *name;
    bed_body *body;
} bench_case;

static const bench_case benches[] = {
#define BENCH(name) {#name, bench_##name},
    KERNEL_CHECKS(BENCH) PAIRS_CHECKS(BENCH)
#undef BENCH
};

static int bench(int argc, char **argv)
{
    int failed = 0;
    for (const ph_kernels *const *t = ph_kernels_list(); *t; t++) {
        double peak = bed_peak(*t);
        if (peak > 0)
            printf("FMA peak of one core, %s: %.1f GFLOP/s\n", (*t)->name, peak);
    }
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++)
        for (const ph_kernels *const *t = ph_kernels_list(); *t; t++)
            if (check_chosen(argc, argv, benches[i].name))
                failed |= bed_run(benches[i].body, *t, 1);
    return failed;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--bench")) return bench(argc, argv);
        if (!strcmp(argv[i], "--all")) bed_all = 1;
        if (!strcmp(argv[i], "--isas")) {
            for (const ph_kernels *const *t = ph_kernels_list(); *t; t++)
                puts((*t)->name);
            return 0;
        }
    }
    return check_main(argc, argv, cases);
}
