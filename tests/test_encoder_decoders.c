/*
 * test_encoder_decoders.c - tiny encoder-decoders of published architectures against what
 * transformers makes of them (tests/golden/checkpoints, written by encoder_decoders.py
 * there): hidden states of every layer, weights of every head, logits, gradients, greedy
 * tokens; texts; and what is refused.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"
#include "model/features.h"
#include "model/generate.h"

static const char *const names[] = {"t5",     "t5-gated",    "mt5",
                                    "marian", "marian-relu", "whisper",
                                    "bart",   "bart-forced", "whisper-forced"};

enum { COUNT = sizeof names / sizeof names[0] };

/* ---- values ------------------------------------------------------------------------ */

/* The residual stream before a layer; after the last one the output of the stack. */
static const float *hidden_state(const ph_pass *p, int stack, int layer)
{
    const ph_pass_stack *s = &p->stacks[stack];
    int post = p->model->config.norm_place == PH_POST_NORM, each = stack ? 3 : 2;
    const ph_residual *r = layer ? &s->acts[each * layer - 1].residual : &s->entry;
    int last = layer * each == s->def->count;
    int normed = post && (layer || p->model->config.embed_norm);
    return normed || last ? r->n : r->s;
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

/* Matrices read in place give the bits of the same values as f32 of our own; only vectors
   and tables of positions are copied. */
static void in_place(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c, own;
        begin(&c, names[i], 0);
        begin(&own, names[i], 1);
        for (int p = 0; p < c.m->param_count; p++) {
            const ph_weight *w = &c.m->params[p];
            int copied =
                w->rank < 2 || strstr(w->name, "positions") || strstr(w->name, "buckets");
            CHECK(copied == !w->stored.data, "%s: %s is %s", names[i], w->name,
                  copied ? "not copied" : "copied");
        }
        CHECK(ph_pass_logits(c.p) == PH_OK && ph_pass_logits(own.p) == PH_OK, "logits");
        size_t floats = (size_t)c.p->stacks[1].rows * (size_t)c.m->config.vocab;
        CHECK(!memcmp(c.p->logits, own.p->logits, floats * sizeof(float)),
              "%s: other bits", names[i]);
        end(&own);
        end(&c);
    }
}

/* Gradients of the same parameters as f32 of our own. */
static void gradients(void)
{
    int models = 0;
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 1);
        float *grads = compare_loss(&c);
        if (find(&c, "grad.", "shared.weight", -1) ||
            find(&c, "grad.", "model.shared.weight", -1) ||
            find(&c, "grad.", "model.encoder.conv1.bias", -1)) {
            compare_gradients(&c, grads);
            models++;
        }
        free(grads);
        end(&c);
    }
    CHECK(models == 4, "%d models with gradients", models);
}

/* ---- generating -------------------------------------------------------------------- */

enum { NEW = 20 };

static void generate(const checkpoint *c, int beams, int32_t *found)
{
    ph_generated text = {.prompt = c->batch.source,
                         .features = c->batch.features,
                         .prompt_count = c->p->stacks[0].rows,
                         .limit = NEW};
    c->m->marks.end_count = 0;
    CHECK(ph_generate_all(c->m, &(ph_generation){.beams = beams}, &text, 1, NULL, NULL) ==
              PH_OK,
          "%s", ph_error(c->ctx));
    CHECK(text.count == NEW, "%s: %d tokens", c->name, text.count);
    memcpy(found, text.tokens, NEW * sizeof *found);
    ph_ctx_release(c->ctx, text.tokens);
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
    ph_pass_shape shape = {
        .batch = 1, .source_len = c->p->stacks[0].rows, .target_len = NEW};
    ph_batch batch = c->batch;
    batch.target = target, batch.labels = tokens;
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
        for (int f = 0; f < c.m->marks.forced_count; f++)
            CHECK(c.m->marks.forced[f] < 0 || four[f] == c.m->marks.forced[f],
                  "%s: token %d is %d", names[i], f, four[f]);
        if (c.m->marks.forced_count) { /* which may cost the better text its beam */
            end(&c);
            continue;
        }
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

/* ---- sound ------------------------------------------------------------------------- */

enum { MELS = 5, FRAMES = 18 };

static char sound_path[] = "/tmp/test_encoder_decoders.XXXXXX";

/* A file of NumPy with this header and so many bytes of features. */
static void write_npy(const char *header, int version, const float *data, size_t bytes)
{
    FILE *file = fopen(sound_path, "wb");
    unsigned length = (unsigned)strlen(header);
    const unsigned char start[] = {0x93,
                                   'N',
                                   'U',
                                   'M',
                                   'P',
                                   'Y',
                                   (unsigned char)version,
                                   0,
                                   (unsigned char)length,
                                   (unsigned char)(length >> 8),
                                   0,
                                   0};
    CHECK(file, "no file");
    fwrite(start, 1, version > 1 ? 12 : 10, file);
    fwrite(header, 1, length, file);
    fwrite(data, 1, bytes, file);
    fclose(file);
}

/* Features in files of either kind give what they give in memory. */
static void sound(void)
{
    checkpoint c;
    ph_reading *r;
    char out[64], ids[64] = "";
    int length = 0;
    close(mkstemp(sound_path));
    begin(&c, "whisper", 0);
    CHECK(ph_pass_logits(c.p) == PH_OK, "%s", ph_error(c.ctx));
    for (int version = 1; version < 3; version++) {
        write_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 18), }\n",
                  version, c.batch.features, MELS * FRAMES * sizeof(float));
        CHECK(ph_reading_create(&r, c.m, sound_path, NULL) == PH_OK, "%s",
              ph_error(c.ctx));
        CHECK(ph_reading_length(r, 0) == FRAMES / 2, "rows");
        const int32_t *greedy = find(&c, "", "greedy", -1)->data;
        for (int i = 0; i < NEW; i++)
            CHECK(ph_reading_word(r, 1, i + 1)->token == greedy[i], "token %d", i);
        ph_reading_free(r);
    }
    ph_tensor t = {.name = "input_features", .type = PH_F32, .rank = 3};
    t.shape[0] = 1, t.shape[1] = MELS, t.shape[2] = FRAMES;
    t.data = c.batch.features, t.bytes = MELS * FRAMES * sizeof(float);
    CHECK(ph_file_write(sound_path, &t, 1, NULL, 0, NULL) == PH_OK, "no file");
    CHECK(ph_generate(c.m, sound_path, &(ph_generation){.max_tokens = 5}, out, sizeof out,
                      &length) == PH_OK,
          "%s", ph_error(c.ctx));
    const int32_t *greedy = find(&c, "", "greedy", -1)->data;
    for (int i = 0; i < 5; i++)
        sprintf(ids + strlen(ids), "%s%d", i ? " " : "", (int)greedy[i]);
    CHECK(!strcmp(out, ids), "'%s' without a vocabulary, expected '%s'", out, ids);
    unlink(sound_path);
    end(&c);
}

/* Sounds of different lengths side by side have the tokens each has alone. */
static void sounds(void)
{
    static const int rows[] = {9, 4, 6};
    static float features[3][MELS * FRAMES];
    checkpoint c;
    ph_generated together[3] = {{0}}, alone;
    begin(&c, "whisper", 0);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < MELS * FRAMES; k++)
            features[i][k] = c.batch.features[(k * (i + 3)) % (MELS * FRAMES)];
        together[i] = (ph_generated){
            .features = features[i], .prompt_count = rows[i], .limit = NEW};
    }
    ph_generation how = {.batch = 3};
    CHECK(ph_generate_all(c.m, &how, together, 3, NULL, NULL) == PH_OK, "%s",
          ph_error(c.ctx));
    for (int i = 0; i < 3; i++) {
        alone = (ph_generated){
            .features = features[i], .prompt_count = rows[i], .limit = NEW};
        CHECK(ph_generate_all(c.m, &how, &alone, 1, NULL, NULL) == PH_OK, "%s",
              ph_error(c.ctx));
        CHECK(alone.count == together[i].count &&
                  !memcmp(alone.tokens, together[i].tokens,
                          (size_t)alone.count * sizeof *alone.tokens),
              "sound %d: other tokens alone", i);
        ph_ctx_release(c.ctx, alone.tokens);
        ph_ctx_release(c.ctx, together[i].tokens);
    }
    end(&c);
}

/* Headers that lie. */
static void sound_lies(void)
{
    static const struct {
        const char *header, *sentence;
    } lies[] = {
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (5, 18), }", "not of type"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (5, 18), }", "Fortran order"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6, 18), }", "another shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (90,), }", "another shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 17), }", "17 frames"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 20), }", "20 frames"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 0), }", "0 frames"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 16), }", "another size"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 1e9), }",
         "cannot be read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 5, 18, 1), }",
         "cannot be read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 99999999999999999999), }",
         "frames, expected an even number up to 18"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 5, }", "has no shape"},
        {"{'descr': '<f4', 'fortran_order': False}", "no header"},
        {"", "no header"}};
    checkpoint c;
    float *features;
    int rows;
    strcpy(sound_path + sizeof sound_path - 7, "XXXXXX");
    close(mkstemp(sound_path));
    begin(&c, "whisper", 0);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        write_npy(lies[i].header, 1, c.batch.features, MELS * FRAMES * sizeof(float));
        CHECK(ph_features_open(c.m, sound_path, NULL, &features, &rows) != PH_OK &&
                  !features,
              "%s is accepted", lies[i].header);
        CHECK(strstr(ph_error(c.ctx), lies[i].sentence), "%s: %s", lies[i].header,
              ph_error(c.ctx));
    }
    float nans[MELS * FRAMES];
    memcpy(nans, c.batch.features, sizeof nans);
    nans[7] = NAN;
    write_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 18), }", 1, nans,
              sizeof nans);
    CHECK(ph_features_open(c.m, sound_path, NULL, &features, &rows) == PH_BAD_VALUE &&
              !features && strstr(ph_error(c.ctx), "holds NaN or Inf"),
          "NaN: %s", ph_error(c.ctx));
    for (int bytes = 0; bytes < 12; bytes++) { /* cut in its first bytes */
        CHECK(truncate(sound_path, 11 - bytes) == 0, "truncate");
        CHECK(ph_features_open(c.m, sound_path, NULL, &features, &rows) != PH_OK &&
                  !features,
              "%d bytes are accepted", 11 - bytes);
    }
    unlink(sound_path);
    end(&c);
}

/* ---- our own checkpoints ----------------------------------------------------------- */

static void own_files(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 1);
        ph_model *again = write_and_read(&c);
        CHECK(!again->tokenizer == !c.m->tokenizer, "%s: tokenizer", names[i]);
        CHECK(!memcmp(&again->marks, &c.m->marks, sizeof again->marks), "%s: marks",
              names[i]);
        CHECK(!again->suppressed == !c.m->suppressed &&
                  (!again->suppressed || !memcmp(again->suppressed, c.m->suppressed, 97)),
              "%s: suppressed tokens", names[i]);
        ph_model_free(again);
        end(&c);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

#define T5(from, to, sentence)                                                           \
    {                                                                                    \
        "t5", "config.json", from, to, sentence                                          \
    }

#define WHISPER(from, to, sentence)                                                      \
    {                                                                                    \
        "whisper", "config.json", from, to, sentence                                     \
    }
#define FORCED(from, to, sentence)                                                       \
    {                                                                                    \
        "whisper-forced", "generation_config.json", from, to, sentence                   \
    }
#define MARIAN(from, to, sentence)                                                       \
    {                                                                                    \
        "marian", "config.json", from, to, sentence                                      \
    }

static void config_lies(void)
{
    static const lie lies[] = {
        T5("\"d_model\": 24", "\"d_model\": 25", "expected F32 (97, 25)"),
        T5("\"d_model\": 24", "\"d_model\": 0", "d_model is 0"),
        T5("\"d_model\": 24", "\"d_model\": -24", "expected a whole number"),
        T5("\"d_kv\": 6", "\"d_kv\": 7", "expected F32 (21, 24)"),
        T5("\"d_ff\": 20", "\"d_ff\": 1e9", "d_ff is 1000000000"),
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
        T5("gated_act\": false", "gated_act\": true", "'relu' is unknown with a gate"),
        T5("fn\": \"relu\"", "fn\": \"mish\"", "dense_act_fn: the activation 'mish'"),
        T5("fn\": \"relu\"", "fn\": 7", "dense_act_fn is 7, expected a text"),
        T5("proj\": \"relu\"", "proj\": \"gated-relu-x\"", "is 'gated-relu-x', exp"),
        {"t5-gated", "config.json", "gated_act\": true", "gated_act\": false",
         "wi_1.weight' is unknown"},
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
        MARIAN("position_embeddings\": 40", "position_embeddings\": 0",
               "max_position_embeddings is 0"),
        MARIAN("\"swish\"", "\"mish\"", "activation 'mish' is unknown"),
        MARIAN("scale_embedding\": true", "scale_embedding\": 2", "true or false"),
        MARIAN("decoder_embeddings\": true", "decoder_embeddings\": false",
               "have vocabularies of their own"),
        MARIAN("decoder_vocab_size\": 97", "decoder_vocab_size\": 96",
               "have vocabularies of their own"),
        MARIAN("start_token_id\": 96", "start_token_id\": 1e12",
               "decoder_start_token_id is 1e+12, expected a token"),
        WHISPER("num_mel_bins\": 5", "num_mel_bins\": 6",
                "conv1.weight' is F32 (24, 15), expected F32 (24, 18)"),
        WHISPER("num_mel_bins\": 5", "num_mel_bins\": 0", "num_mel_bins is 0"),
        WHISPER("num_mel_bins\": 5", "num_mel_bins\": 1e6", "mels is 1000000"),
        WHISPER("source_positions\": 9", "source_positions\": 8",
                "embed_positions.weight' is F32 (9, 24), expected F32 (8, 24)"),
        WHISPER("source_positions\": 9", "source_positions\": 0",
                "max_source_positions is 0"),
        WHISPER("source_positions\": 9", "source_positions\": 1e9",
                "max_source_positions is 1000000000"),
        WHISPER("target_positions\": 40", "target_positions\": 41",
                "embed_positions.weight' is F32 (40, 24), expected F32 (41, 24)"),
        WHISPER("encoder_layers\": 2", "encoder_layers\": 1", "encoder.layers.1."),
        WHISPER("decoder_layers\": 1", "decoder_layers\": 2", "decoder.layers.1."),
        WHISPER("encoder_attention_heads\": 3", "encoder_attention_heads\": 2",
                "encoder_attention_heads is 2"),
        FORCED("91", "97", "forced_decoder_ids.1.1 is 97, expected a token below 97"),
        FORCED("91", "\"x\"", "forced_decoder_ids.1.1 is 'x'"),
        FORCED("   2,", "   3,", "forced_decoder_ids.1.0 is not 2"),
        FORCED("92", "-92", "no_timestamps_token_id is -92")};
    refuse_all(lies, sizeof lies / sizeof lies[0]);
}

/* T5's distances have no end: texts may be longer than n_positions, here 40. */
static void longer_text(void)
{
    char text[2 * 80 + 1] = "";
    checkpoint c;
    ph_reading *r;
    begin(&c, "t5", 0);
    for (int i = 0; i < 80; i++) strcat(text, "a ");
    CHECK(ph_reading_create(&r, c.m, text, "the cat") == PH_OK, "%s", ph_error(c.ctx));
    CHECK(ph_reading_length(r, 0) > 80, "%d tokens", ph_reading_length(r, 0));
    ph_reading_free(r);
    end(&c);
}

/* Where a part of the decoder is there a model is no encoder alone: here its last norm
   has another name. */
static void decoder_incomplete(void)
{
    static const char decoder[] = "decoder.final_", other[] = "removed.final_";
    static char bytes[1 << 18];
    ph_ctx *ctx;
    ph_model *m;
    strcpy(folder, "/tmp/polyhead-encoder-XXXXXX");
    CHECK(mkdtemp(folder) && ph_open(&ctx, NULL) == PH_OK, "no folder or ctx");
    make_folder("t5", "config.json", "", "");
    FILE *file = fopen(path_of("model.safetensors"), "rb");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    char *at = memmem(bytes, size, decoder, strlen(decoder));
    CHECK(at && size < sizeof bytes, "no %s in %zu bytes", decoder, size);
    memcpy(at, other, strlen(other));
    unlink(path_of("model.safetensors"));
    file = fopen(path_of("model.safetensors"), "wb");
    fwrite(bytes, 1, size, file);
    fclose(file);
    CHECK(ph_model_read(&m, ctx, folder) == PH_BAD_FILE &&
              strstr(ph_error(ctx),
                     "'decoder.final_layer_norm.weight' is missing"),
          "%s", ph_error(ctx));
    ph_close(ctx);
    remove_folder();
}

/* Writes the folder's tensors and one more: embeddings under another name, with the last
   element increased by `more`. */
static void add_copy(const char *original, const char *name, float more)
{
    enum { MOST = 100 };
    ph_file *file;
    ph_tensor all[MOST];
    size_t count = 0;
    CHECK(ph_file_read(&file, path_of("model.safetensors"), NULL) == PH_OK, "no file");
    for (const ph_tensor *t; count + 1 < MOST && (t = ph_file_tensor(file, count));)
        all[count++] = *t;
    const ph_tensor *embed = ph_file_find(file, original);
    float *copy = malloc(embed->bytes);
    memcpy(copy, embed->data, embed->bytes);
    copy[embed->bytes / sizeof *copy - 1] += more;
    all[count] = *embed;
    all[count].name = name, all[count++].data = copy;
    unlink(path_of("model.safetensors"));
    CHECK(ph_file_write(path_of("model.safetensors"), all, count, NULL, 0, NULL) == PH_OK,
          "no tensors");
    free(copy);
    ph_file_free(file);
}

/* Embeddings of one stack that are not those of the other would be lost. */
static void untied_embeddings(void)
{
    static const struct {
        const char *model, *original, *name;
    } cases[] = {{"marian", "model.shared.weight", "model.encoder.embed_tokens.weight"},
                 {"t5", "shared.weight", "decoder.embed_tokens.weight"},
                 {"bart", "shared.weight", "encoder.embed_tokens.weight"}};
    for (int i = 0; i < 6; i++) {
        ph_ctx *ctx;
        ph_model *m;
        strcpy(folder, "/tmp/polyhead-encoder-XXXXXX");
        CHECK(mkdtemp(folder) && ph_open(&ctx, NULL) == PH_OK, "no folder or ctx");
        make_folder(cases[i / 2].model, "config.json", "", "");
        add_copy(cases[i / 2].original, cases[i / 2].name, i % 2 ? 0.5f : 0);
        ph_status status = ph_model_read(&m, ctx, folder);
        CHECK(i % 2 ? status == PH_UNSUPPORTED && strstr(ph_error(ctx), "differs from")
                    : status == PH_OK,
              "%s: status %d, %s", cases[i / 2].name, status, ph_error(ctx));
        ph_model_free(m);
        ph_close(ctx);
        remove_folder();
    }
}

/* A folder without a tokenizer says what it needs. */
static void no_tokenizer(void)
{
    checkpoint c;
    int count;
    begin(&c, "t5-gated", 0);
    CHECK(ph_model_split(c.m, "a cat", NULL, 0, &count) == PH_UNSUPPORTED &&
              strstr(ph_error(c.ctx), "its folder needs tokenizer.json"),
          "%s", ph_error(c.ctx));
    end(&c);
}

static const check_case cases[] = {{"parity", parity},
                                   {"in_place", in_place},
                                   {"gradients", gradients},
                                   {"greedy", greedy},
                                   {"beams", beams},
                                   {"texts", texts},
                                   {"sound", sound},
                                   {"sounds", sounds},
                                   {"sound_lies", sound_lies},
                                   {"own_files", own_files},
                                   {"config_lies", config_lies},
                                   {"no_tokenizer", no_tokenizer},
                                   {"longer_text", longer_text},
                                   {"decoder_incomplete", decoder_incomplete},
                                   {"untied_embeddings", untied_embeddings},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
