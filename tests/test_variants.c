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

/* ---- few rows, many keys ----------------------------------------------------------- */

/* Row `row` of the queries alone, without the backward pass. */
static variant_case one_row(const variant_case *whole, int row)
{
    static const char *const of_queries[] = {"q",        "preq_w1",  "preq_w2", "preq_g",
                                             "postq_w1", "postq_w2", "postq_g"};
    variant_case c = *whole;
    c.in = bag_copy(&whole->in);
    bag_drop(&c.in, "dout");
    for (size_t n = 0; n < sizeof of_queries / sizeof of_queries[0]; n++) {
        const bag_tensor *t = bag_find(&whole->in, of_queries[n]);
        if (!t) continue;
        int axis = n ? 1 : 2, planes = 1, step = 1, dim[4] = {-1, -1, -1, -1};
        for (int a = 0; a < t->rank; a++) {
            dim[a] = a == axis ? 1 : t->dim[a];
            *(a < axis ? &planes : &step) *= a == axis ? 1 : t->dim[a];
        }
        double *to = bag_put(&c.in, t->name, dim[0], dim[1], dim[2], dim[3]);
        for (int p = 0; p < planes; p++)
            memcpy(to + p * step, t->data + (p * t->dim[axis] + row) * step,
                   (size_t)step * sizeof *to);
    }
    c.s.q_len = 1, c.o.offset += row;
    return c;
}

static ph_file *drive_with(const variant_case *c, int threads)
{
    const char *why = NULL;
    ph_file *file =
        variant_direct(drive_ctx(NULL, threads), c, trial_path("out.safetensors"), &why);
    CHECK(file, "%s: %s", c->spec, why);
    return file;
}

/* The last row of many, on one thread, and the same row alone, with threads that share
   its keys: the same bits. */
static void decode_alone(const char *spec)
{
    const variant_shape shape = {
        .batch = 1, .heads = 3, .q_len = 30, .kv_len = 700, .qk_dim = 20, .v_dim = 17};
    variant_case c;
    variant_core_case(&c, spec, &shape, check_seed);
    variant_put(&c, "sink", 1, 3, -1, -1, -1);
    c.o.causal = 1, c.o.offset = 668;
    variant_case last = one_row(&c, 29);
    ph_file *whole = drive_with(&c, 1);
    const ph_tensor *all = ph_file_find(whole, "out");
    for (int threads = 1; threads <= 4; threads++) {
        ph_file *alone = drive_with(&last, threads);
        const ph_tensor *one = ph_file_find(alone, "out");
        for (int h = 0; h < 3; h++)
            CHECK(!memcmp((const float *)one->data + h * 17,
                          (const float *)all->data + (h * 30 + 29) * 17,
                          17 * sizeof(float)),
                  "%s, %d threads: head %d has other bits", spec, threads, h);
        ph_file_free(alone);
    }
    ph_file_free(whole);
    variant_case_free(&last);
    variant_case_free(&c);
}

static void decoding(void)
{
    static const char *const specs[] = {"mha",
                                        "entmax",
                                        "sparsemax",
                                        "talking",
                                        "dcmha:rank=2",
                                        "talking+entmax:alpha=1.5",
                                        "dcmha:rank=1+entmax",
                                        "talking+entmax:alpha=1.001"};
    for (size_t n = 0; n < sizeof specs / sizeof specs[0]; n++) decode_alone(specs[n]);
}

/* ---- large logits ------------------------------------------------------------------ */

/* Whether every weight of the oracle is 0 or 1. */
static int one_key_each(const variant_case *c)
{
    bag out = {.count = 0};
    int all = 1;
    variant_forward(&c->o, &c->in, &out);
    const bag_tensor *w = bag_find(&out, "weights");
    for (int i = 0; i < bag_size(w); i++)
        all &= fabs(w->data[i]) < 1e-9 || fabs(w->data[i] - 1) < 1e-9;
    bag_free(&out);
    return all;
}

/* Logits in the thousands, lambda of 0.99. Both heads of a pair often choose the same
   key, and what v gets is a hundredth of what each gives: a weight that is not 1 going
   back, as one from a tau of thousands would be, shows a hundred times as much; that of
   logits below 32, which nobody solves again, stays below 32 2^-24. */
static void draw_large(variant_case *c, const char *spec, uint64_t seed)
{
    const variant_shape shape = {
        .batch = 1, .heads = 4, .v_heads = 2, .q_len = 6, .qk_dim = 4, .model = 6};
    variant_layer_case(c, spec, &shape, seed);
    const double first[4] = {0, 0, (double)-0.2310f, 1}; /* of each; the others are 0 */
    const char *const lambda[] = {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"};
    for (int n = 0; n < 4; n++) {
        bag_tensor *t = bag_find(&c->in, lambda[n]);
        for (int i = 0; i < bag_size(t); i++) t->data[i] = i ? 0 : first[n];
    }
    for (int n = 0; n < 2; n++) {
        bag_tensor *w = bag_find(&c->in, n ? "wk" : "wq");
        for (int i = 0; i < bag_size(w); i++) w->data[i] *= 64;
    }
}

static void check_dwv(variant_case *c)
{
    bag_tensor *wv = bag_find(&c->in, "wv");
    ph_file *file = drive_with(c, 1);
    const float *dwv = ph_file_find(file, "dwv")->data;
    double largest = 0, off = 0;
    for (int i = 0, kink; i < bag_size(wv); i++) {
        double truth = variant_gradient(&c->o, &c->in, wv, i, &kink);
        largest = fmax(largest, fabs(truth));
        off = fmax(off, fabs(truth - (double)dwv[i]));
    }
    ph_file_free(file);
    CHECK(off <= 32 * 0x1p-24 * 100 * largest, "%s: dwv is off by %g of its largest, %g",
          c->spec, off / largest, largest);
}

static void large_logits(void)
{
    static const char *const specs[] = {"diff:depth=12+sparsemax",
                                        "diff:depth=12+entmax:alpha=1.5",
                                        "diff:depth=12+entmax:alpha=1.1"};
    for (int n = 0; n < 3; n++)
        for (int tried = 0, found = 0; found < 6; tried++) {
            CHECK(tried < 60, "%s: too few rows with one key each", specs[n]);
            variant_case c;
            draw_large(&c, specs[n], check_seed * 1000 + (uint64_t)tried);
            if (one_key_each(&c)) check_dwv(&c), found++;
            variant_case_free(&c);
        }
}

/* ---- saturated routers ------------------------------------------------------------- */

/* Sum over the columns of a router's gradient, row by row; one token. */
static void check_sums(const ph_file *file, const char *name)
{
    const ph_tensor *t = ph_file_find(file, name);
    const float *d = t->data;
    for (size_t row = 0; row < t->shape[0]; row++) {
        double sum = 0, largest = 0;
        for (size_t e = 0; e < t->shape[1]; e++, d++) {
            sum += (double)*d;
            largest = fmax(largest, fabs((double)*d));
        }
        CHECK(fabs(sum) <= 2 * 0x1p-23 * (double)t->shape[1] * largest,
              "row %zu of %s adds up to %g of its largest element", row, name,
              sum / largest);
    }
}

/* A softmax does not see what is added to all of its logits, so the gradient of a token's
   logits adds up to 0, and so does each row of its router's. Where one entry has nearly
   all of the sum, its gradient is what the others, small ones, leave: there the sum shows
   an error of an ulp of that entry. */
static void saturated_routers(void)
{
    static const char *const specs[] = {"moh:shared=2,top=2", "moh:shared=2,top=4",
                                        "moh:shared=2,top=4,score=paper"};
    static const char *const routers[] = {"moh_wr", "moh_ws", "moh_wh"};
    const variant_shape shape = {.batch = 1,
                                 .heads = 6,
                                 .q_len = 1,
                                 .kv_len = 9,
                                 .qk_dim = 5,
                                 .model = 7,
                                 .source = 4};
    for (int n = 0; n < 60; n++) {
        variant_case c;
        variant_layer_case(&c, specs[n % 3], &shape, check_seed * 1000 + (uint64_t)n);
        for (int i = 0; i < 3; i++) {
            bag_tensor *w = bag_find(&c.in, routers[i]);
            for (int e = 0; e < bag_size(w); e++) w->data[e] *= 4;
        }
        ph_file *file = drive_with(&c, 1);
        check_sums(file, "dmoh_ws");
        check_sums(file, "dmoh_wh");
        if (n % 3) check_sums(file, "dmoh_wr");
        ph_file_free(file);
        variant_case_free(&c);
    }
}

/* ---- cases ------------------------------------------------------------------------- */

SWEEP_VARIANTS(SWEEP_BOTH, SWEEP_LAYER)

static const check_case cases[] = {{"errors_are_seen", errors_are_seen},
                                   {"decoding", decoding},
                                   {"large_logits", large_logits},
                                   {"saturated_routers", saturated_routers},
                                   SWEEP_VARIANTS(SWEEP_BOTH_ROW, SWEEP_LAYER_ROW){0, 0}};

int main(int argc, char **argv)
{
    int status = sweep_main(argc, argv, cases);
    drive_close();
    return status;
}
