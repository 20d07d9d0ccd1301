/*
 * test_encoder_decoders.c - tiny encoder-decoders of published architectures against what
 * transformers makes of them (tests/golden/checkpoints, written by encoder_decoders.py
 * there): hidden states of every layer, weights of every head, logits, gradients, greedy
 * tokens; texts; and what is refused.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"
#include "model/generate.h"

static const char *const names[] = {"t5", "t5-gated", "marian", "marian-relu"};

enum { COUNT = sizeof names / sizeof names[0] };

/* ---- values ------------------------------------------------------------------------ */

/* The residual stream before a layer; after the last one the output of the stack. */
static const float *hidden_state(const ph_pass *p, int stack, int layer)
{
    const ph_pass_stack *s = &p->stacks[stack];
    int post = p->model->config.norm_place == PH_POST_NORM, each = stack ? 3 : 2;
    const ph_residual *r = layer ? &s->acts[each * layer - 1].residual : &s->entry;
    int last = layer * each == s->def->count;
    return (post && layer) || last ? r->n : r->s;
}

static void compare_stack(const checkpoint *c, int stack)
{
    const char *hidden = stack ? "decoder.hidden" : "encoder.hidden";
    const char *attention = stack ? "decoder.attention" : "encoder.attention";
    int layers = stack ? c->m->config.decoder_layers : c->m->config.layers;
    int each = stack ? 3 : 2;
    for (int l = 0; l <= layers; l++) compare(c, hidden, l, hidden_state(c->p, stack, l));
    for (int l = 0; l < layers; l++) {
        compare_maps(c, attention, l, stack, each * l);
        if (stack) compare_maps(c, "cross", l, stack, each * l + 1);
    }
}

static void parity(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 0);
        compare_stack(&c, 0);
        compare_stack(&c, 1);
        CHECK(ph_pass_logits(c.p) == PH_OK, "%s", ph_error(c.ctx));
        compare(&c, "logits", -1, c.p->logits);
        end(&c);
    }
}

/* Gradients of the same parameters as f32 of our own. */
static void gradients(void)
{
    int models = 0;
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        double loss;
        begin(&c, names[i], 1);
        float *grads = calloc(c.m->floats, sizeof *grads);
        CHECK(ph_pass_loss(c.p, 0, 1, &loss) == PH_OK, "%s", ph_error(c.ctx));
        float as_float = (float)loss;
        compare(&c, "loss", -1, &as_float);
        CHECK(ph_pass_backward(c.p, grads) == PH_OK, "%s", ph_error(c.ctx));
        if (find(&c, "grad.", "shared.weight", -1) ||
            find(&c, "grad.", "model.shared.weight", -1)) {
            compare_gradients(&c, grads);
            models++;
        }
        free(grads);
        end(&c);
    }
    CHECK(models == 2, "%d models with gradients", models);
}

/* ---- generating -------------------------------------------------------------------- */

enum { NEW = 20 };

static void generate(const checkpoint *c, int beams, int32_t *found)
{
    const ph_tensor *ids = find(c, "", "ids", -1);
    int count = 0;
    c->m->marks.end_count = 0;
    CHECK(ph_generate_tokens(c->m, &(ph_generation){.beams = beams}, ids->data,
                             (int)ids->shape[1], found, NEW, &count) == PH_OK,
          "%s", ph_error(c->ctx));
    CHECK(count == NEW, "%s: %d tokens", c->name, count);
}

/* Token by token against caches, from matrices in place; one beam finds the same. */
static void greedy(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        int32_t found[NEW];
        begin(&c, names[i], 0);
        const int32_t *expected = find(&c, "", "greedy", -1)->data;
        for (int beams = 0; beams < 2; beams++) {
            generate(&c, beams, found);
            for (int t = 0; t < NEW; t++)
                CHECK(found[t] == expected[t], "%s: token %d is %d, expected %d",
                      names[i], t, found[t], expected[t]);
        }
        end(&c);
    }
}

/* The log-probability of a text after the start mark. */
static double score_of(const checkpoint *c, const int32_t *tokens)
{
    int32_t target[NEW] = {c->m->marks.start};
    const ph_tensor *ids = find(c, "", "ids", -1);
    ph_pass_shape shape = {
        .batch = 1, .source_len = (int)ids->shape[1], .target_len = NEW};
    ph_batch batch = {.source = ids->data, .target = target, .labels = tokens};
    ph_pass *p;
    double loss;
    memcpy(target + 1, tokens, (NEW - 1) * sizeof *tokens);
    CHECK(ph_pass_create(&p, c->m, &shape) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(ph_pass_loss(p, 0, 1, &loss) == PH_OK, "%s", ph_error(c->ctx));
    ph_pass_free(p);
    return -loss;
}

/* These texts of a fixed length are no less likely with beams than without. */
static void beams(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        int32_t one[NEW], four[NEW];
        begin(&c, names[i], 0);
        generate(&c, 1, one);
        generate(&c, 4, four);
        CHECK(score_of(&c, four) >= score_of(&c, one), "%s: %g is below %g", names[i],
              score_of(&c, four), score_of(&c, one));
        end(&c);
    }
}

/* ---- texts ------------------------------------------------------------------------- */

/* A text ends with a mark, the decoder's has none but its start. */
static void texts(void)
{
    static const int32_t source[] = {7, 8, 1}, target[] = {5, 7, 15};
    checkpoint c;
    ph_reading *r;
    char out[256];
    int tokens = 0;
    begin(&c, "t5", 0);
    CHECK(ph_reading_create(&r, c.m, "the cat", "the dog") == PH_OK, "%s",
          ph_error(c.ctx));
    CHECK(ph_reading_length(r, 0) == 3 && ph_reading_length(r, 1) == 3, "lengths");
    for (int i = 0; i < 3; i++)
        CHECK(ph_reading_word(r, 0, i)->token == source[i] &&
                  ph_reading_word(r, 1, i)->token == target[i],
              "token %d is %d and %d", i, ph_reading_word(r, 0, i)->token,
              ph_reading_word(r, 1, i)->token);
    const ph_site *last = ph_reading_site(r, 6);
    CHECK(last && !strcmp(last->name, "decoder.1.cross") && !ph_reading_site(r, 7),
          "sites");
    ph_reading_free(r);
    for (int width = 0; width < 3; width += 2) {
        ph_generation how = {.beams = width, .max_tokens = 12};
        CHECK(ph_generate(c.m, "the cat", &how, out, sizeof out, &tokens) == PH_OK, "%s",
              ph_error(c.ctx));
        CHECK(!strstr(out, "</s>") && !strstr(out, "<pad>"), "a mark in '%s'", out);
    }
    end(&c);
}

/* ---- our own checkpoints ----------------------------------------------------------- */

static void own_files(void)
{
    for (int i = 0; i < COUNT; i++) {
        char path[] = "/tmp/test_encoder_decoders.XXXXXX";
        checkpoint c;
        ph_model *again;
        begin(&c, names[i], 1);
        close(mkstemp(path));
        CHECK(ph_model_write(c.m, path) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(ph_model_read(&again, c.ctx, path) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(!memcmp(&again->config, &c.m->config, sizeof again->config), "%s: config",
              names[i]);
        CHECK(!memcmp(again->block, c.m->block, c.m->floats * sizeof(float)),
              "%s: other values", names[i]);
        unlink(path);
        ph_model_free(again);
        end(&c);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

#define T5(from, to, sentence)                                                           \
    {                                                                                    \
        "t5", "config.json", from, to, sentence                                          \
    }

#define MARIAN(from, to, sentence)                                                       \
    {                                                                                    \
        "marian", "config.json", from, to, sentence                                      \
    }

static void config_lies(void)
{
    static const lie lies[] = {
        T5("\"d_model\": 24", "\"d_model\": 25", "expected F32 (97, 25)"),
        T5("\"d_model\": 24", "\"d_model\": 0", "model_dim is 0"),
        T5("\"d_model\": 24", "\"d_model\": -24", "expected a whole number"),
        T5("\"d_kv\": 6", "\"d_kv\": 7", "expected F32 (21, 24)"),
        T5("\"d_ff\": 20", "\"d_ff\": 1e9", "ff_dim is 1000000000"),
        T5("\"num_layers\": 3", "\"num_layers\": 4", "encoder.block.3.layer.0"),
        T5("\"num_layers\": 3", "\"num_layers\": 2", "encoder.block.2."),
        T5("decoder_layers\": 2", "decoder_layers\": 3", "decoder.block.2.layer.0"),
        T5("decoder_layers\": 2", "decoder_layers\": 1", "decoder.block.1."),
        T5("decoder_layers\": 2", "decoder_layers\": 1e6", "decoder_layers is 1000000"),
        T5("\"num_heads\": 3", "\"num_heads\": 4", "is F32 (8, 3), expected F32 (8, 4)"),
        T5("buckets\": 8", "buckets\": 6", "is F32 (8, 3), expected F32 (6, 3)"),
        T5("buckets\": 8", "buckets\": 7", "buckets is 7, expected an even number"),
        T5("buckets\": 8", "buckets\": 1e6", "buckets is 1000000"),
        T5("distance\": 9", "distance\": 1e6", "bucket_distance is 1000000"),
        T5("distance\": 9", "distance\": 9.5", "expected a whole number"),
        T5("proj\": \"relu\"", "proj\": \"gated-relu\"", "'relu' is unknown with a gate"),
        T5("proj\": \"relu\"", "proj\": \"gated-gelu\"", "wi_1.weight' is missing"),
        T5("proj\": \"relu\"", "proj\": 7", "expected a text"),
        T5("outputs\": true", "outputs\": 3", "expected true or false"),
        T5("start_token_id\": 5", "start_token_id\": 97", "expected a token below 97"),
        MARIAN("\"d_model\": 24", "\"d_model\": 27", "expected F32 (97, 27)"),
        MARIAN("\"d_model\": 24", "\"d_model\": 25", "no multiple of heads 3"),
        MARIAN("encoder_layers\": 1", "encoder_layers\": 2", "encoder.layers.1."),
        MARIAN("decoder_layers\": 2", "decoder_layers\": 1", "decoder.layers.1."),
        MARIAN("decoder_layers\": 2", "decoder_layers\": -1", "expected a whole number"),
        MARIAN("decoder_attention_heads\": 3", "decoder_attention_heads\": 4",
               "encoder_attention_heads is 3 and decoder_attention_heads 4"),
        MARIAN("encoder_ffn_dim\": 20", "encoder_ffn_dim\": 21",
               "encoder_ffn_dim is 21 and decoder_ffn_dim 20"),
        MARIAN("position_embeddings\": 40", "position_embeddings\": 0", "max_len is 0"),
        MARIAN("\"swish\"", "\"mish\"", "activation 'mish' is unknown"),
        MARIAN("scale_embedding\": true", "scale_embedding\": 2", "true or false"),
        MARIAN("decoder_embeddings\": true", "decoder_embeddings\": false",
               "have vocabularies of their own"),
        MARIAN("decoder_vocab_size\": 97", "decoder_vocab_size\": 96",
               "have vocabularies of their own"),
        MARIAN("start_token_id\": 96", "start_token_id\": 1e12",
               "decoder_start_token_id is something else, expected a token below 97")};
    refuse_all(lies, sizeof lies / sizeof lies[0]);
}

static const check_case cases[] = {{"parity", parity},
                                   {"gradients", gradients},
                                   {"greedy", greedy},
                                   {"beams", beams},
                                   {"texts", texts},
                                   {"own_files", own_files},
                                   {"config_lies", config_lies},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
