/*
 * test_run_variants.c - every variant through the program, against the oracle: random
 * problems in core mode and in layer mode, forward and all gradients.
 */
#include "variant_sweep.h"

static trial_result start(const variant_case *c)
{
    trial b = {.count = 0};
    void *bytes[BAG_MOST];
    char words[400], line[500];
    for (int n = 0; n < c->in.count; n++) {
        const bag_tensor *t = &c->in.t[n];
        ph_type type = variant_type(c, t->name);
        int dim[4] = {-1, -1, -1, -1};
        for (int a = 0; a < t->rank; a++) dim[a] = t->dim[a];
        bytes[n] = variant_encode(t, type);
        trial_add(&b, t->name, type, bytes[n], dim[0], dim[1], dim[2], dim[3]);
    }
    variant_words(c, words, sizeof words);
    snprintf(line, sizeof line, "%s --weights --stats", words);
    trial_result got = trial_run(&b, line);
    for (int n = 0; n < c->in.count; n++) free(bytes[n]);
    return got;
}

static ph_file *drive(const variant_case *c, const char **why)
{
    static char text[4096];
    trial_result got = start(c);
    snprintf(text, sizeof text, "%s", got.said);
    *why = text;
    if (got.code == 0 && !got.said[0]) return got.out;
    trial_free(&got);
    return NULL;
}

#define BOTH(id, name)                                                                   \
    static void id##_core(void)                                                          \
    {                                                                                    \
        sweep(drive, name, 0);                                                           \
    }                                                                                    \
    LAYER(id, name)
#define LAYER(id, name)                                                                  \
    static void id##_layer(void)                                                         \
    {                                                                                    \
        sweep(drive, name, 1);                                                           \
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
LAYER(merged, "merged")
LAYER(diff2, "diff2")

/* Every variant of the build is known here, and the other way round. */
static void all_known(void)
{
    int built = 0, known = 0;
    while (ph_variant_list(built)) built++;
    while (variant_names[known]) known++;
    CHECK(built == known, "%d variants in the build, %d known", built, known);
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
                                   {"merged_layer", merged_layer},
                                   {"diff2_layer", diff2_layer},
                                   {0, 0}};

int main(int argc, char **argv)
{
    how_many = 8;
    sweep_salt = 1000;
    return sweep_main(argc, argv, cases);
}
