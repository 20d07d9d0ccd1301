/*
 * test_model_stored.c - models whose matrices stay in place in the types and storage
 * orders of files, against a model with the same values as f32: same bits of logits, of
 * whole texts and token by token; what cannot be done with such a model is refused.
 */
#include "check.h"
#include "decoder_bed.h"
#include "guard.h"
#include "model/pass.h"
#include "stored_copy.h"

enum { VOCAB = 37, LEN = 9, MOST = 200 };

typedef struct stored_bed {
    ph_model *plain, *stored;
    void *copies[MOST];
} stored_bed;

static void transpose(const float *from, int rows, int columns, float *to)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

/* Stores a parameter in a random type and order; `from` becomes what was stored. */
static void store(stored_bed *b, int i, float *from, uint64_t *r)
{
    const ph_weight *p = &b->stored->params[i];
    ph_matrix m = {.type = (ph_dtype)check_below(r, PH_Q6_K + 1)};
    if (p->rank != 2) return;
    if (check_below(r, 2)) m.form = PH_FORM_LINEAR;
    int rows = p->dims[0], columns = p->dims[1], linear = m.form == PH_FORM_LINEAR;
    float *order = malloc(p->count * sizeof *order);
    if (linear)
        transpose(from, rows, columns, order);
    else
        memcpy(order, from, p->count * sizeof *order);
    int whole = (linear ? rows : columns) % ph_quant_block(m.type) == 0;
    m.data = b->copies[i] = whole ? stored_copy(order, p->count, m.type) : NULL;
    if (whole && ph_model_store(b->stored, i, m) == PH_OK) {
        for (size_t e = 0; e < p->count; e++)
            order[e] = ph_element(m.data, m.type, (int64_t)e);
        if (linear)
            transpose(order, columns, rows, from);
        else
            memcpy(from, order, p->count * sizeof *order);
    }
    free(order);
}

static void open_models(stored_bed *b, ph_ctx *ctx, const ph_config *c, uint64_t *r)
{
    memset(b, 0, sizeof *b);
    CHECK(ph_model_create(&b->plain, ctx, c, PH_SPLIT_WORDS, NULL, 0, 9) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_model_shape(&b->stored, ctx, c, NULL, PH_SPLIT_WORDS, NULL, 0) == PH_OK,
          "%s",
          ph_error(ctx));
    ph_model *plain = b->plain, *stored = b->stored;
    CHECK(plain->param_count <= MOST, "%d parameters", plain->param_count);
    for (int i = 0; i < plain->param_count; i++)
        store(b, i, plain->block + plain->params[i].at, r);
    CHECK(ph_model_allocate(stored) == PH_OK, "%s", ph_error(ctx));
    CHECK(stored->floats < plain->floats, "nothing is stored");
    for (int i = 0; i < plain->param_count; i++)
        if (!stored->params[i].stored.data)
            memcpy(stored->block + stored->params[i].at,
                   plain->block + plain->params[i].at,
                   plain->params[i].count * sizeof(float));
}

static void close_models(stored_bed *b)
{
    for (int i = 0; i < MOST; i++) guard_free(b->copies[i]);
    ph_model_free(b->plain);
    ph_model_free(b->stored);
}

static void logits_of(ph_model *m, const int32_t *tokens, float *logits)
{
    int both = m->config.arch == PH_ARCH_ENCODER_DECODER;
    ph_pass_shape shape = {.batch = 1, .source_len = LEN, .target_len = both ? LEN : 0};
    ph_batch batch = {.source = tokens, .target = both ? tokens : NULL};
    ph_pass *p;
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_logits(p) == PH_OK, "%s", ph_error(m->ctx));
    memcpy(logits, p->logits, sizeof(float) * LEN * VOCAB);
    ph_pass_free(p);
}

/* Rows of every matrix as floats, all of them and some of the last. */
static void check_rows(const stored_bed *b)
{
    for (int i = 0; i < b->plain->param_count; i++) {
        const ph_weight *p = &b->plain->params[i];
        if (p->rank != 2) continue;
        const float *want = b->plain->block + p->at;
        size_t tail = (p->count / (size_t)p->dims[0]) * (size_t)(p->dims[0] / 3);
        float *rows = malloc(p->count * sizeof *rows);
        ph_model_rows(b->stored, i, 0, p->dims[0], rows);
        CHECK(!memcmp(rows, want, p->count * sizeof *rows), "%s differs", p->name);
        ph_model_rows(b->stored, i, p->dims[0] - p->dims[0] / 3, p->dims[0] / 3, rows);
        CHECK(!memcmp(rows, want + p->count - tail, tail * sizeof *rows),
              "last rows of %s differ", p->name);
        free(rows);
    }
}

static void check_models(const stored_bed *b)
{
    static float want[LEN * VOCAB], got[LEN * VOCAB];
    int32_t tokens[LEN];
    for (int i = 0; i < LEN; i++) tokens[i] = (5 * i + 7) % VOCAB;
    logits_of(b->plain, tokens, want);
    logits_of(b->stored, tokens, got);
    CHECK(!memcmp(want, got, sizeof want), "logits differ");
    int both = b->plain->config.arch == PH_ARCH_ENCODER_DECODER;
    ph_decoder *d;
    d = make_decoder(b->stored, 1, both ? tokens : NULL, both ? LEN : 0);
    for (int t = 0; t < LEN; t++) {
        const float *logits;
        logits = feed_decoder(b->stored, d, 1, tokens + t, 1);
        CHECK(!memcmp(logits, want + t * VOCAB, VOCAB * sizeof *logits),
              "logits of token %d alone differ", t);
    }
    ph_decoder_free(d);
}

static void same_bits(void)
{
    ph_ctx *ctx;
    ph_options o = guard_options(NULL, 2);
    uint64_t r = check_seed;
    CHECK(ph_open(&ctx, &o) == PH_OK, "no ctx");
    for (int i = 0; i < 12; i++) {
        ph_config c = {.arch = i % 3 ? PH_ARCH_DECODER : PH_ARCH_ENCODER_DECODER,
                       .layers = 2,
                       .model_dim = i % 4 > 1 ? 256 : 64, /* of 256: K types too */
                       .heads = 4,
                       .ff_dim = i % 4 == 3 ? 512
                                 : i % 2    ? 96
                                            : 40,
                       .vocab = VOCAB,
                       .untied = i % 4 == 1,
                       .activation = i % 2 ? PH_SWIGLU : PH_RELU,
                       .positions = i % 3 == 1 ? PH_POS_ROPE : PH_POS_SINUSOIDAL,
                       .max_len = 16};
        stored_bed b;
        open_models(&b, ctx, &c, &r);
        check_models(&b);
        check_rows(&b);
        CHECK(ph_model_write(b.stored, "/nonexistent/model") == PH_UNSUPPORTED &&
                  strstr(ph_error(ctx), "read in place"),
              "written: %s", ph_error(ctx));
        close_models(&b);
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"same_bits", same_bits}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
