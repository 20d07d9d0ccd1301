/*
 * test_model_positions.c - positions of models: buckets of T5, and sinusoids that several
 * threads need at once.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>

#include "model_bed.h"

static ph_config config_of(int arch, ph_positions positions, int max_len)
{
    return (ph_config){.arch = (ph_arch)arch,
                       .positions = positions,
                       .vocab = VOCAB,
                       .layers = 2,
                       .model_dim = 8,
                       .heads = 4,
                       .ff_dim = 12,
                       .max_len = max_len};
}

/* ---- T5 ---------------------------------------------------------------------------- */

/* Distances far beyond the single buckets: the loss, and the gradient of every bucket. */
static void far_buckets(void)
{
    enum { LEN = 150 };
    for (int arch = 0; arch < 2; arch++) {
        ph_ctx *ctx = open_ctx(2);
        ph_model *m;
        ph_pass *p;
        oracle_model o;
        int32_t tokens[LEN], labels[LEN];
        double loss = 0;
        ph_config c = config_of(arch, PH_POS_T5, LEN);
        for (int i = 0; i < LEN; i++) tokens[i] = i * 7 % VOCAB, labels[i] = i % VOCAB;
        CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 4) == PH_OK, "%s",
              ph_error(ctx));
        ph_pass_shape shape = {.batch = 1, .source_len = LEN, .backward = 1};
        float *grads = calloc(m->floats, sizeof *grads);
        CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(ctx));
        ph_batch batch = {.source = tokens, .labels = labels};
        CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_pass_loss(p, 0, 1, &loss) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_pass_backward(p, grads) == PH_OK, "%s", ph_error(ctx));
        oracle_model_take(&o, m);
        oracle_batch all = {.batch = 1, .source_len = LEN, .source = tokens};
        all.labels = labels;
        double truth = oracle_model_loss(&o, &all, 0, NULL);
        CHECK(fabs(loss - truth) <= LOSS_ERROR * truth,
              "arch %d: loss %.9g, expected %.9g", arch, loss, truth);
        int table = m->stacks[0].buckets;
        const float *found = grads + m->params[table].at;
        double largest = 0, worst = 0;
        for (size_t k = 0; k < m->params[table].count; k++) {
            double old = o.values[table][k], h = 1e-4;
            o.values[table][k] = old + h;
            double up = oracle_model_loss(&o, &all, 0, NULL);
            o.values[table][k] = old - h;
            double expected = (up - oracle_model_loss(&o, &all, 0, NULL)) / (2 * h);
            o.values[table][k] = old;
            largest = fmax(largest, fabs(expected));
            worst = fmax(worst, fabs(found[k] - expected));
        }
        /* differences in double are off by h^2 / 6 = 1.7e-9 times the third derivative,
           measured as at most 1.1 */
        CHECK(worst <= GRADIENT_ERROR * (1 + largest) + 2e-9,
              "arch %d: a bucket is off by %.2e, largest gradient %.2e", arch, worst,
              largest);
        CHECK(largest > 1e-2, "arch %d: no bucket has a gradient", arch);
        free(grads);
        oracle_model_free(&o);
        ph_pass_free(p);
        ph_model_free(m);
        ph_close(ctx);
    }
}

static void *count_alloc(void *user, size_t bytes)
{
    *(size_t *)user += bytes;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void count_release(void *user, void *pointer)
{
    (void)user;
    free(pointer);
}

/* All bytes that a training pass over a text of `len` tokens takes. */
static size_t bytes_of_pass(ph_positions positions, int len)
{
    size_t bytes = 0;
    ph_options options = {.threads = 1, .alloc = count_alloc, .release = count_release};
    ph_ctx *ctx;
    ph_model *m;
    ph_pass *p;
    ph_config c = config_of(PH_ARCH_DECODER, positions, len);
    options.user = &bytes;
    CHECK(ph_open(&ctx, &options) == PH_OK, "no ctx");
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 4) == PH_OK, "%s",
          ph_error(ctx));
    bytes = 0;
    ph_pass_shape shape = {.batch = 1, .source_len = len, .backward = 1};
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(ctx));
    ph_pass_free(p);
    ph_model_free(m);
    ph_close(ctx);
    return bytes;
}

/* The bias of PH_POS_T5 is stored by distance, not by pair of tokens: what it takes does
   not grow with the text. */
static void memory_of_buckets(void)
{
    enum { LEN = 4096 };
    size_t none = bytes_of_pass(PH_POS_NONE, LEN), t5 = bytes_of_pass(PH_POS_T5, LEN);
    CHECK(t5 < none + 65536, "a pass over %d tokens takes %zu bytes, %zu without T5", LEN,
          t5, none);
}

/* ---- several threads begin passes of one model ------------------------------------- */

enum { BEGINNERS = 2, LONGEST = 48 };

typedef struct beginner {
    pthread_t thread;
    pthread_barrier_t *start;
    ph_model *m;
    ph_pass *passes[LONGEST]; /* of texts of 1, 2, ... tokens */
} beginner;

static void *begin_passes(void *arg)
{
    beginner *b = arg;
    for (int i = 0; i < LONGEST; i++) {
        ph_pass_shape shape = {.batch = 1, .source_len = i + 1};
        ph_status status = PH_BUSY; /* while the other thread is in a call on the ctx */
        pthread_barrier_wait(b->start);
        while (status == PH_BUSY)
            status = PH_WITHIN(b->m->ctx, ph_pass_create(&b->passes[i], b->m, &shape));
    }
    return NULL;
}

/* Every position a pass may need is there, whoever began which pass first. */
static void check_positions(const ph_pass *p)
{
    int dim = p->model->config.model_dim;
    for (int t = 0; t < p->stacks[0].len; t++)
        for (int d = 0; d < dim; d++) {
            double angle = t * pow(10000, -(double)(d / 2 * 2) / dim);
            double truth = d % 2 ? cos(angle) : sin(angle);
            /* one rounding of a value up to 1, and what the angle in double lacks */
            CHECK(fabs(truth - (double)p->sinusoids[t * dim + d]) <= 0x1p-25 + 0x1p-45,
                  "position %d, element %d of %d tokens", t, d, p->stacks[0].len);
        }
}

static void begun_together(void)
{
    ph_ctx *ctx = open_ctx(1);
    ph_config c = config_of(PH_ARCH_DECODER, PH_POS_SINUSOIDAL, LONGEST);
    pthread_barrier_t start;
    beginner all[BEGINNERS] = {{0}};
    ph_model *m;
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 3) == PH_OK, "%s",
          ph_error(ctx));
    pthread_barrier_init(&start, NULL, BEGINNERS);
    for (int i = 0; i < BEGINNERS; i++) {
        all[i].start = &start, all[i].m = m;
        CHECK(!pthread_create(&all[i].thread, NULL, begin_passes, &all[i]), "no thread");
    }
    for (int i = 0; i < BEGINNERS; i++) pthread_join(all[i].thread, NULL);
    pthread_barrier_destroy(&start);
    for (int i = 0; i < BEGINNERS; i++)
        for (int k = 0; k < LONGEST; k++) {
            CHECK(all[i].passes[k], "no pass of %d tokens", k + 1);
            check_positions(all[i].passes[k]);
            ph_pass_free(all[i].passes[k]);
        }
    ph_model_free(m);
    ph_close(ctx);
}

static const check_case cases[] = {{"far_buckets", far_buckets},
                                   {"memory_of_buckets", memory_of_buckets},
                                   {"begun_together", begun_together},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
