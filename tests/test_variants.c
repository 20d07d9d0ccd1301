/*
 * test_variants.c - every variant through the library, against the oracle: random
 * problems in core mode and in layer mode, forward and all gradients.
 */
#include "judge.h"
#include "variant_direct.h"
#include "variant_sweep.h"

/* Threads 1 and 2 in turn; the reference kernels now and then. */
static ph_file *drive(const variant_case *c, const char **why)
{
    const char *isa = c->random % 7 ? NULL : "ref";
    ph_ctx *ctx = drive_ctx(isa, 1 + (int)(c->random % 2));
    return variant_direct(ctx, c, trial_path("out.safetensors"), why);
}

static int is_built(const char *name)
{
    for (int i = 0; ph_variant_list(i); i++)
        if (!strcmp(ph_variant_list(i)->name, name)) return 1;
    return 0;
}

static void run(const char *name, int layer)
{
    if (!is_built(name)) SKIP("%s: not in this build", name);
    sweep(drive, name, layer);
}

#define BOTH(id, name)                                                                   \
    static void id##_core(void)                                                          \
    {                                                                                    \
        run(name, 0);                                                                    \
    }                                                                                    \
    LAYER(id, name)
#define LAYER(id, name)                                                                  \
    static void id##_layer(void)                                                         \
    {                                                                                    \
        run(name, 1);                                                                    \
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

static const check_case cases[] = {{"mha_core", mha_core},
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
    int status = sweep_main(argc, argv, cases);
    drive_close();
    return status;
}
