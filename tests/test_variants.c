/*
 * test_variants.c - every variant through the library, against the oracle: random
 * problems in core mode and in layer mode, forward and all gradients.
 */
#include <math.h>

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

/* ---- would an error be seen? ------------------------------------------------------- */

/* The file with one element of tensor n moved by a thousandth of the largest one. */
static ph_file *spoiled(const ph_file *file, size_t n, uint64_t *random)
{
    ph_tensor all[BAG_MOST];
    size_t count = 0;
    for (const ph_tensor *t; (t = ph_file_tensor(file, count)) != NULL;)
        all[count++] = *t;
    size_t size = all[n].bytes / 4, at = (size_t)check_below(random, (int)size);
    float *other = malloc(all[n].bytes), largest = 0.001f;
    memcpy(other, all[n].data, all[n].bytes);
    for (size_t i = 0; i < size; i++)
        if (isfinite(other[i])) largest = fmaxf(largest, fabsf(other[i]));
    other[at] = isfinite(other[at]) ? other[at] + largest / 1000 : 0;
    all[n].data = other;
    ph_file *result = NULL;
    const char *path = trial_path("spoiled.safetensors");
    if (ph_file_write(path, all, count, NULL, 0, NULL) == PH_OK)
        ph_file_read(&result, path, NULL);
    free(other);
    return result;
}

/* The judge itself: every tensor of OUT spoiled in one place, in turn. */
static void errors_are_seen(void)
{
    const variant_shape shape = {.batch = 2,
                                 .heads = 4,
                                 .k_heads = 2,
                                 .q_len = 5,
                                 .kv_len = 7,
                                 .qk_dim = 4,
                                 .v_dim = 3,
                                 .model = 6,
                                 .source = 5,
                                 .out_dim = 3};
    uint64_t random = check_seed;
    variant_case c;
    const char *why;
    variant_layer_case(&c, "mha", &shape, check_seed);
    variant_put(&c, "bias", 1, 1, 4, 1, 7);
    variant_put(&c, "bq", 1, 16, -1, -1, -1);
    variant_put(&c, "sink", 1, 4, -1, -1, -1);
    ph_file *good = drive(&c, &why);
    CHECK(good, "%s", why);
    for (size_t n = 0; ph_file_tensor(good, n); n++) {
        variant_judge j;
        ph_file *bad = spoiled(good, n, &random);
        variant_judge_open(&j, &c);
        j.elements = 0, j.directions = 1; /* which see errors anywhere */
        CHECK(bad && variant_judge_file(&j, bad), "an error in %s is not seen",
              ph_file_tensor(good, n)->name);
        variant_judge_close(&j);
        ph_file_free(bad);
    }
    ph_file_free(good);
    variant_case_free(&c);
}

/* ---- cases ------------------------------------------------------------------------- */

SWEEP_VARIANTS(SWEEP_BOTH, SWEEP_LAYER)

static const check_case cases[] = {{"errors_are_seen", errors_are_seen},
                                   SWEEP_VARIANTS(SWEEP_BOTH_ROW, SWEEP_LAYER_ROW){0, 0}};

int main(int argc, char **argv)
{
    int status = sweep_main(argc, argv, cases);
    drive_close();
    return status;
}
