/*
 * test_bart.c - how BART generates by its generation_config.json, against transformers
 * (tests/golden/checkpoints/encoder_decoders.py); its texts; what is refused. Values and
 * gradients are compared in test_encoder_decoders.c.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"
#include "model/generate.h"

/* By generation_config.json: the first token is forced, an end comes late, no three
   tokens come twice; what ends the text starts it, too. */
static void ended(void)
{
    checkpoint c;
    begin(&c, "bart-forced", 0);
    const ph_tensor *expected = find(&c, "", "ended", -1);
    for (int beams = 0; beams < 2; beams++) {
        ph_generated text = {.prompt = c.batch.source,
                             .prompt_count = c.p->stacks[0].rows,
                             .limit = c.m->config.max_len - 1};
        CHECK(ph_generate_all(c.m, &(ph_generation){.beams = beams}, &text, 1, NULL,
                              NULL) == PH_OK,
              "%s", ph_error(c.ctx));
        CHECK((size_t)text.count == expected->shape[1] &&
                  !memcmp(text.tokens, expected->data, expected->bytes),
              "%d tokens, expected %zu, or others", text.count, expected->shape[1]);
        ph_ctx_release(c.ctx, text.tokens);
    }
    end(&c);
}

/* No limit is broken by beams or samples. */
static void limits(void)
{
    checkpoint c;
    begin(&c, "bart-forced", 0);
    for (int i = 0; i < 8; i++) {
        ph_generated text = {.prompt = c.batch.source,
                             .prompt_count = c.p->stacks[0].rows,
                             .number = (uint64_t)i,
                             .limit = c.m->config.max_len - 1};
        ph_generation how = {.beams = i < 4 ? i + 2 : 0, .temperature = i < 4 ? 0 : 2};
        CHECK(ph_generate_all(c.m, &how, &text, 1, NULL, NULL) == PH_OK, "%s",
              ph_error(c.ctx));
        const int32_t *t = text.tokens;
        CHECK(text.count >= 8 && t[0] == 0, "%d tokens, the first is %d", text.count,
              t[0]);
        for (int a = 0; a + 2 < text.count; a++)
            for (int b = 0; b < a; b++)
                CHECK(memcmp(t + a, t + b, 3 * sizeof *t), "tokens %d and %d", a, b);
        ph_ctx_release(c.ctx, text.tokens);
    }
    end(&c);
}

/* A decoder reads its start token and the one that every text begins with. */
static void forced_texts(void)
{
    static const int32_t source[] = {0, 32, 35, 2}, target[] = {2, 0, 32, 40};
    checkpoint c;
    ph_reading *r;
    begin(&c, "bart-forced", 0);
    CHECK(ph_reading_create(&r, c.m, "the cat", "the dog") == PH_OK, "%s",
          ph_error(c.ctx));
    CHECK(ph_reading_length(r, 0) == 4 && ph_reading_length(r, 1) == 4, "lengths");
    for (int i = 0; i < 4; i++)
        CHECK(ph_reading_word(r, 0, i)->token == source[i] &&
                  ph_reading_word(r, 1, i)->token == target[i],
              "token %d is %d and %d", i, ph_reading_word(r, 0, i)->token,
              ph_reading_word(r, 1, i)->token);
    ph_reading_free(r);
    end(&c);
}

#define BART(from, to, sentence)                                                         \
    {                                                                                    \
        "bart", "config.json", from, to, sentence                                        \
    }
#define LIMITS(from, to, sentence)                                                       \
    {                                                                                    \
        "bart-forced", "generation_config.json", from, to, sentence                      \
    }

static void config_lies(void)
{
    static const lie lies[] = {
        BART("\"d_model\": 24", "\"d_model\": 27", "expected F32 (97, 27)"),
        BART("encoder_layers\": 1", "encoder_layers\": 2", "encoder.layers.1."),
        BART("decoder_layers\": 2", "decoder_layers\": 1", "decoder.layers.1."),
        BART("decoder_attention_heads\": 3", "decoder_attention_heads\": 4",
             "encoder_attention_heads is 3 and decoder_attention_heads 4"),
        BART("decoder_ffn_dim\": 20", "decoder_ffn_dim\": 21",
             "encoder_ffn_dim is 20 and decoder_ffn_dim 21"),
        BART("position_embeddings\": 40", "position_embeddings\": 42",
             "embed_positions.weight' is F32 (42, 24), expected F32 (44, 24)"),
        BART("\"gelu\"", "\"mish\"", "activation 'mish' is unknown"),
        BART("BartModel", "BartForSequenceClassification",
             "is BartForSequenceClassification, expected BartForConditionalGeneration"),
        BART("BartModel", "BartForCausalLM", "the class of the model is BartForCausalLM"),
        LIMITS("bos_token_id\": 0", "bos_token_id\": 97",
               "forced_bos_token_id is 97, expected a token below 97"),
        LIMITS("min_length\": 9", "min_length\": -9",
               "min_length is -9, expected a whole number from 0 to"),
        LIMITS("ngram_size\": 3", "ngram_size\": \"x\"",
               "no_repeat_ngram_size is 'x', expected a whole number")};
    refuse_all(lies, sizeof lies / sizeof lies[0]);
}

/* min_length counts the start token, min_new_tokens does not; where there is a
   generation_config.json, config.json forces nothing. */
static void files(void)
{
    static const struct {
        const char *file, *from, *to;
        int min_tokens, min_length, no_repeat, forced;
    } all[] = {
        {"generation_config.json", "", "", 0, 9, 3, 1},
        {"generation_config.json", "\"min_length\": 9", "\"min_new_tokens\": 11", 11, 0,
         3, 1},
        {"generation_config.json", "\"min_length\"",
         "\"min_new_tokens\": 0, \"min_length\"", 0, 0, 3, 1},
        {"generation_config.json", "\"min_length\": 9", "\"min_length\": null", 0, 0, 3,
         1},
        {"generation_config.json", "\"forced_bos", "\"other_bos", 0, 9, 3, 0},
        {"config.json", "\"use_cache\"", "\"no_repeat_ngram_size\": 2, \"x\"", 0, 9, 3,
         1}};
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_bart.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ph_model *m;
        make_folder("bart-forced", all[i].file, all[i].from, all[i].to);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        const ph_marks *marks = &m->marks;
        CHECK(marks->min_tokens == all[i].min_tokens &&
                  marks->min_length == all[i].min_length &&
                  marks->no_repeat == all[i].no_repeat &&
                  marks->forced_count == all[i].forced,
              "%s: %d, %d, %d, %d", all[i].to, marks->min_tokens, marks->min_length,
              marks->no_repeat, marks->forced_count);
        ph_model_free(m);
    }
    remove_folder();
    ph_close(ctx);
}

static const check_case cases[] = {
    {"ended", ended}, {"limits", limits},           {"forced_texts", forced_texts},
    {"files", files}, {"config_lies", config_lies}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
