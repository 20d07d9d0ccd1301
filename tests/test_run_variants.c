/*
 * test_run_variants.c - every variant through the program: random problems in core mode
 * and in layer mode, forward and all gradients, bit by bit what the library computes
 * (which test_variants compares with the oracle), and every third against the oracle too.
 */
#include "judge.h"
#include "variant_direct.h"
#include "variant_sweep.h"

static trial_result start(const variant_case *c)
{
    trial b = {.count = 0};
    void *bytes[BAG_MOST];
    char words[400], line[500];
    for (int n = 0; n < c->in.count; n++) {
        const bag_tensor *t = &c->in.t[n];
        ph_dtype type = variant_type(c, t->name);
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

static int same_tensor(const ph_tensor *t, const ph_tensor *other)
{
    int same = other && t->type == other->type && t->rank == other->rank &&
               t->bytes == other->bytes;
    for (int i = 0; same && i < t->rank; i++) same = t->shape[i] == other->shape[i];
    return same && !memcmp(t->data, other->data, t->bytes);
}

/* The library with the same tensors writes the same tensors, in every bit; the oracle
   judges what only the program can say. */
static const char *differs(variant_case *c, const ph_file *out)
{
    static char text[100];
    const char *why = NULL;
    ph_file *own =
        variant_direct(drive_ctx(NULL, 2), c, trial_path("direct.safetensors"), &why);
    if (!own) return why ? why : sweep_judge(c, out, 0);
    why = NULL;
    size_t count = 0, own_count = 0;
    for (const ph_tensor *t; !why && (t = ph_file_tensor(out, count)) != NULL; count++) {
        if (same_tensor(t, ph_file_find(own, t->name))) continue;
        snprintf(text, sizeof text, "%s is not what the library writes", t->name);
        why = text;
    }
    while (ph_file_tensor(own, own_count)) own_count++;
    ph_file_free(own);
    return why || count == own_count ? why : "OUT lacks tensors that the library writes";
}

SWEEP_VARIANTS(SWEEP_BOTH, SWEEP_LAYER)

/* Head counts of other variants, which test_run_layer_numbers compares with loops. */
static int only_counts_heads(const char *name)
{
    return !strcmp(name, "gqa") || !strcmp(name, "mqa");
}

/* Every variant of the build is known here, and the other way round. */
static void all_known(void)
{
    int built = 0, known = 0;
    for (int i = 0; ph_variant_list(i); i++)
        built += !only_counts_heads(ph_variant_list(i)->name);
    while (variant_names[known]) known++;
    CHECK(built == known, "%d variants in the build, %d known", built, known);
    for (int i = 0; ph_variant_list(i); i++) {
        int found = only_counts_heads(ph_variant_list(i)->name);
        for (int n = 0; variant_names[n]; n++)
            found += !strcmp(variant_names[n], ph_variant_list(i)->name);
        CHECK(found, "no oracle for %s", ph_variant_list(i)->name);
    }
}

static const check_case cases[] = {{"all_known", all_known},
                                   SWEEP_VARIANTS(SWEEP_BOTH_ROW, SWEEP_LAYER_ROW){0, 0}};

int main(int argc, char **argv)
{
    how_many = 8;
    sweep_salt = 1000;
    sweep_other = differs;
    int status = sweep_main(argc, argv, cases);
    drive_close();
    return status;
}
