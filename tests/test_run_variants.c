/*
 * test_run_variants.c - every variant through the program, against the oracle: random
 * problems in core mode and in layer mode, forward and all gradients.
 *
 * --case=N runs the N-th problem of each case alone; --cases=N more or fewer of them;
 * --keep leaves the files of the last one.
 */
#include "cases.h"
#include "check.h"
#include "run_trial.h"
#include "variant_draw.h"
#include "variant_judge.h"

static int only = -1, how_many = 16, keep;

/* ---- one problem ------------------------------------------------------------------- */

/* The bytes of a tensor as its file has them; release them with free. */
static void *encode(const bag_tensor *t, ph_type type)
{
    int count = bag_size(t);
    float *wide = malloc(((size_t)count + 1) * sizeof *wide);
    char *to = calloc((size_t)count + 1, 4);
    for (int i = 0; i < count; i++) {
        wide[i] = (float)t->data[i];
        if (type == PH_TYPE_BOOL) to[i] = t->data[i] != 0;
        if (type == PH_TYPE_I32) ((int32_t *)(void *)to)[i] = (int32_t)t->data[i];
    }
    ph_tensor from = {.type = PH_TYPE_F32,
                      .rank = 1,
                      .shape = {(size_t)count},
                      .data = wide,
                      .bytes = (size_t)count * 4};
    if (type == PH_TYPE_F32) memcpy(to, wide, (size_t)count * 4);
    if (type == PH_TYPE_F16 || type == PH_TYPE_BF16) ph_tensor_convert(&from, type, to);
    free(wide);
    return to;
}

static trial_result start(const variant_case *c, const char *words)
{
    trial b = {.count = 0};
    void *bytes[BAG_MOST];
    for (int n = 0; n < c->in.count; n++) {
        const bag_tensor *t = &c->in.t[n];
        ph_type type = variant_type(c, t->name);
        int dim[4] = {-1, -1, -1, -1};
        for (int a = 0; a < t->rank; a++) dim[a] = t->dim[a];
        bytes[n] = encode(t, type);
        trial_add(&b, t->name, type, bytes[n], dim[0], dim[1], dim[2], dim[3]);
    }
    trial_result got = trial_run(&b, words);
    for (int n = 0; n < c->in.count; n++) free(bytes[n]);
    return got;
}

static double worst;
static int tried, corners, failed;

/* Runs one problem; the first faults are told. */
static void one(const char *name, int layer, int index)
{
    variant_case c;
    variant_judge j;
    char words[400], line[500];
    variant_draw(&c, name, layer, check_seed, index);
    variant_words(&c, words, sizeof words);
    snprintf(line, sizeof line, "%s --weights", words);
    trial_result got = start(&c, line);
    variant_judge_open(&j, &c);
    if (index % 8 == 7) j.elements = 2, j.directions = 1;
    const char *why = got.said;
    if (got.code == 0 && got.out) why = variant_judge_file(&j, got.out);
    if (why && failed++ < 5)
        printf("    %s %s --case=%d: %s\n      run%s\n      %s\n", name,
               layer ? "layer" : "core", index, why, words, variant_text(&c));
    if (!why && j.worst > worst) worst = j.worst;
    tried += j.tried, corners += j.corners;
    variant_judge_close(&j);
    trial_free(&got);
    variant_case_free(&c);
}

static int is_built(const char *name)
{
    for (int i = 0; ph_variant_list(i); i++)
        if (!strcmp(ph_variant_list(i)->name, name)) return 1;
    return 0;
}

/* Does the program take the tensors of this variant? */
static int is_wired(const char *name, int layer)
{
    variant_case c;
    char words[400];
    variant_draw(&c, name, layer, check_seed, 0);
    variant_words(&c, words, sizeof words);
    trial_result got = start(&c, words);
    int wired = !strstr(got.said, "is unknown") && !strstr(got.said, "unknown option");
    trial_free(&got);
    variant_case_free(&c);
    return wired;
}

static void sweep(const char *name, int layer)
{
    worst = 0, tried = corners = failed = 0;
    if (!is_built(name)) SKIP("%s: not in this build", name);
    CHECK(trial_begin() == 0, "no folder for files");
    if (!is_wired(name, layer)) SKIP("%s: not in this program", name);
    for (int index = 0; index < how_many / CASES_SLOW + 1; index++)
        if (only < 0 || only == index) one(name, layer, index);
    if (keep)
        printf("    files: %s\n", trial_path(""));
    else
        trial_end();
    printf("    %s: at most %.2f of the tolerance, %d of %d differences at corners\n",
           name, worst, corners, tried);
    CHECK(failed == 0, "%d of %d problems failed", failed, how_many / CASES_SLOW + 1);
    CHECK(corners * 25 <= tried, "%d of %d differences at corners", corners, tried);
}

/* ---- cases ------------------------------------------------------------------------- */

#define BOTH(id, name)                                                                   \
    static void id##_core(void)                                                          \
    {                                                                                    \
        sweep(name, 0);                                                                  \
    }                                                                                    \
    LAYER(id, name)
#define LAYER(id, name)                                                                  \
    static void id##_layer(void)                                                         \
    {                                                                                    \
        sweep(name, 1);                                                                  \
    }

BOTH(mha, "mha")
BOTH(entmax, "entmax")
BOTH(sparsemax, "sparsemax")
BOTH(talking, "talking")
BOTH(dcmha, "dcmha")
LAYER(moh, "moh")
LAYER(moh_norm, "moh-norm")
LAYER(collab, "collab")
LAYER(mohsa, "mohsa")
LAYER(diff, "diff")
LAYER(mla, "mla")
LAYER(gated, "gated")

/* Every variant of the build is known here. */
static void all_known(void)
{
    for (int i = 0; ph_variant_list(i); i++) {
        int found = 0;
        for (int n = 0; variant_names[n]; n++)
            found += !strcmp(variant_names[n], ph_variant_list(i)->name);
        CHECK(found, "no oracle for %s", ph_variant_list(i)->name);
    }
}

static const check_case cases[] = {{"all_known", all_known},
                                   {"mha_core", mha_core},
                                   {"mha_layer", mha_layer},
                                   {"entmax_core", entmax_core},
                                   {"entmax_layer", entmax_layer},
                                   {"sparsemax_core", sparsemax_core},
                                   {"sparsemax_layer", sparsemax_layer},
                                   {"talking_core", talking_core},
                                   {"talking_layer", talking_layer},
                                   {"dcmha_core", dcmha_core},
                                   {"dcmha_layer", dcmha_layer},
                                   {"moh_layer", moh_layer},
                                   {"moh_norm_layer", moh_norm_layer},
                                   {"collab_layer", collab_layer},
                                   {"mohsa_layer", mohsa_layer},
                                   {"diff_layer", diff_layer},
                                   {"mla_layer", mla_layer},
                                   {"gated_layer", gated_layer},
                                   {0, 0}};

int main(int argc, char **argv)
{
    for (int n = 1; n < argc; n++) {
        if (!strncmp(argv[n], "--case=", 7)) only = atoi(argv[n] + 7);
        if (!strncmp(argv[n], "--cases=", 8)) how_many = atoi(argv[n] + 8);
        if (!strcmp(argv[n], "--keep")) keep = 1;
    }
    if (only >= how_many) how_many = only + 1;
    return check_main(argc, argv, cases);
}
