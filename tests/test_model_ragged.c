/*
 * test_model_ragged.c - texts of different lengths in one batch: every row has the bits
 * that its text has alone, gradients are the sum of those of the texts, and a pass that
 * has seen other batches gives what a new one gives.
 */
#include <float.h>
#include <math.h>

#include "model_bed.h"

static const ph_config kinds[] = {
    {.layers = 2},
    {.layers = 2, .positions = PH_POS_LEARNED, .norm_place = PH_POST_NORM},
    {.layers = 1, .positions = PH_POS_ROPE, .kv_heads = 1, .norm = PH_NORM_RMS},
    {.layers = 1, .positions = PH_POS_T5, .activation = PH_SWIGLU},
    {.layers = 2,
     .activation = PH_GEGLU_ERF,
     .embed_norm = 1,
     .window = 3,
     .window_layers = "fs"},
    {.layers = 1, .positions = PH_POS_ALIBI, .variant = "talking", .cross = "talking"},
    {.layers = 1, .variant = "diff", .cross = "diff"},
    {.layers = 1, .variant = "gated:head", .cross = "merged"},
    {.layers = 1, .variant = "mla:rope=2,latent=3"}};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static ph_config config_of(int arch, int kind)
{
    ph_config c = kinds[kind];
    c.arch = (ph_arch)arch, c.vocab = VOCAB, c.model_dim = 8, c.heads = 2, c.ff_dim = 12;
    c.max_len = 8;
    if (c.arch != PH_ARCH_ENCODER_DECODER) c.cross[0] = 0;
    return c;
}

static const int32_t *last_offsets(const bed *b)
{
    return label_len(b) == TARGET ? b->target_offsets : b->source_offsets;
}

/* Text number i of the batch, as a batch of its own. */
static ph_batch alone(const bed *b, int i)
{
    return (ph_batch){.source = b->sources + b->source_offsets[i],
                      .target = b->targets + b->target_offsets[i],
                      .labels = b->all_labels + last_offsets(b)[i]};
}

static void compare_rows(const bed *b, const ph_pass *one, int i, int arch, int kind)
{
    const int32_t *offsets = last_offsets(b);
    int dim = b->m->config.model_dim, rows = offsets[i + 1] - offsets[i];
    CHECK(!memcmp(ph_pass_output(one), ph_pass_output(b->p) + offsets[i] * dim,
                  (size_t)(rows * dim) * sizeof(float)),
          "arch %d kind %d: text %d has other rows alone", arch, kind, i);
}

/* A gradient is a sum over the tokens, rounded once for each; alone and in the batch the
   terms are the same. */
static void compare_sums(const bed *b, const double *sum, int arch, int kind)
{
    int rows = b->p->stacks[0].rows + b->p->stacks[b->p->stack_count - 1].rows;
    for (int i = 0; i < b->m->param_count; i++) {
        const ph_weight *w = &b->m->params[i];
        double most = 0, apart = 0;
        for (size_t k = w->at; k < w->at + w->count; k++) {
            most = fmax(most, fabs(sum[k]));
            apart = fmax(apart, fabs(sum[k] - b->grads[k]));
        }
        CHECK(apart <= rows * (double)FLT_EPSILON * (1 + most),
              "arch %d kind %d: %s differs by %g of %g", arch, kind, w->name, apart,
              most);
    }
}

static void parts_of(int arch, int kind)
{
    bed b;
    ph_config c = config_of(arch, kind);
    double parts = 0, loss;
    make_bed(&b, &c, 2, 1);
    double *sum = calloc(b.m->floats, sizeof *sum), whole = run_bed(&b, 0.1f);
    float *grads = calloc(b.m->floats, sizeof *grads);
    for (int i = 0; i < BATCH; i++) {
        ph_pass *one;
        ph_pass_shape shape = {.batch = 1, .source_len = b.lens[i], .backward = 1};
        ph_batch batch = alone(&b, i);
        if (label_len(&b) == TARGET) shape.target_len = b.target_lens[i];
        /* labels of an encoder count words by the longest text of the shape */
        if (arch == PH_ARCH_ENCODER) shape.source_len = SOURCE;
        const int32_t offsets[] = {0, b.lens[i]};
        batch.source_offsets = offsets;
        CHECK(ph_pass_create(&one, b.m, &shape) == PH_OK, "%s", ph_error(b.ctx));
        CHECK(ph_pass_forward(one, &batch, 7) == PH_OK, "%s", ph_error(b.ctx));
        compare_rows(&b, one, i, arch, kind);
        CHECK(ph_pass_loss(one, 0.1f, 1, &loss) == PH_OK, "%s", ph_error(b.ctx));
        CHECK(ph_pass_backward(one, grads) == PH_OK, "%s", ph_error(b.ctx));
        for (size_t k = 0; k < b.m->floats; k++) sum[k] += (double)grads[k];
        parts += loss;
        ph_pass_free(one);
    }
    CHECK(fabs(parts - whole) <= 1e-12 * fabs(whole), "losses sum to %.17g, not %.17g",
          parts, whole);
    compare_sums(&b, sum, arch, kind);
    free(sum), free(grads);
    free_bed(&b);
}

static void sum_of_parts(void)
{
    for (int arch = 0; arch < 3; arch++)
        for (int kind = 0; kind < KINDS; kind++) parts_of(arch, kind);
}

/* ---- one pass for many batches ----------------------------------------------------- */

static void other_sizes(void)
{
    for (int arch = 0; arch < 3; arch++) {
        bed b;
        ph_config c = config_of(arch, 0);
        make_bed(&b, &c, 2, 1);
        size_t bytes = b.p->memory_size;
        double loss = run_bed(&b, 0);
        float *first = malloc(b.m->floats * sizeof *first);
        memcpy(first, b.grads, b.m->floats * sizeof *first);
        set_full_batch(&b);
        run_bed(&b, 0);
        CHECK(b.p->stacks[0].rows == BATCH * SOURCE, "the batch has %d rows",
              b.p->stacks[0].rows);
        set_batch(&b);
        double again = run_bed(&b, 0);
        CHECK(loss == again && !memcmp(first, b.grads, b.m->floats * sizeof *first),
              "arch %d: another batch in between changed the gradients", arch);
        CHECK(b.p->memory_size == bytes, "smaller batches took %zu bytes, not %zu",
              b.p->memory_size, bytes);
        free(first);
        free_bed(&b);
    }
}

static void refused(void)
{
    static const int32_t wrong[][BATCH + 1] = {
        {1, 3, 5}, {0, 3, 2}, {0, SOURCE + 1, SOURCE + 2}, {0, 0, 0}};
    bed b;
    ph_config c = config_of(PH_ARCH_DECODER, 0);
    make_bed(&b, &c, 1, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ph_batch batch = b.batch;
        batch.source_offsets = wrong[i];
        CHECK(ph_pass_forward(b.p, &batch, 0) == PH_BAD_SHAPE, "offsets %zu: taken", i);
        CHECK(strstr(ph_error(b.ctx), i == 3 ? "is empty" : "expected 0 to 5"), "%s",
              ph_error(b.ctx));
    }
    CHECK(ph_pass_forward(b.p, &b.batch, 0) == PH_OK, "%s", ph_error(b.ctx));
    free_bed(&b);
}

static const check_case cases[] = {{"sum_of_parts", sum_of_parts},
                                   {"other_sizes", other_sizes},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
