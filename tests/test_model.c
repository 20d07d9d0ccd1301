/*
 * test_model.c - whole models: gradients of every parameter against central differences
 * of the oracle, same bits for any number of threads, caches, files, readings.
 */
#define _GNU_SOURCE
#include <math.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "decoder_bed.h"
#include "model_bed.h"

/* What the architectures are made of; each row is tried with all three. */
static const ph_config kinds[] = {
    {.layers = 2},
    {.layers = 2, .norm_place = PH_POST_NORM, .activation = PH_RELU},
    {.layers = 2,
     .norm = PH_NORM_RMS,
     .activation = PH_SWIGLU,
     .positions = PH_POS_ROPE,
     .kv_heads = 1,
     .untied = 1,
     .no_bias = PH_NO_BIAS},
    {.layers = 1, .positions = PH_POS_ALIBI, .heads = 3, .head_dim = 4, .ff_dim = 7},
    {.layers = 2,
     .positions = PH_POS_LEARNED,
     .norm_place = PH_POST_NORM,
     .depth_scaled = 1,
     .decoder_layers = 1},
    {.layers = 1, .positions = PH_POS_NONE, .norm = PH_NORM_RMS},
    {.layers = 2, .positions = PH_POS_T5},
    {.layers = 2, /* T5 1.1 */
     .norm = PH_NORM_RMS,
     .activation = PH_GEGLU,
     .positions = PH_POS_T5,
     .buckets = 6,
     .bucket_distance = 5,
     .no_bias = PH_NO_BIAS,
     .output_scale = 0.4f},
    {.layers = 3, /* Gemma 3 */
     .norm = PH_NORM_RMS,
     .norm_place = PH_SANDWICH_NORM,
     .activation = PH_GEGLU,
     .positions = PH_POS_ROPE,
     .no_bias = PH_NO_BIAS,
     .attn_scale = 0.4f,
     .qk_norm = 1,
     .rope_base = 50,
     .rope_local_base = 7,
     .rope_scaling = PH_ROPE_LINEAR,
     .rope_factor = 8,
     .window = 3,
     .window_period = 2},
    {.layers = 1, .norm_place = PH_SANDWICH_NORM, .output_softcap = 1.5f},
    {.layers = 1, /* Marian */
     .norm_place = PH_POST_NORM,
     .activation = PH_SILU,
     .positions = PH_POS_SINUSOIDAL_HALVES,
     .output_bias = 1},
    {.layers = 3, /* what published decoders have: LLaMA 3, Qwen, Mistral, GPT-2 */
     .norm = PH_NORM_RMS,
     .activation = PH_SWIGLU,
     .positions = PH_POS_ROPE,
     .no_bias = PH_NO_BIAS_O | PH_NO_BIAS_K,
     .norm_eps = 1e-2f,
     .embed_scale = 1,
     .attn_softcap = 2,
     .qk_norm = 1,
     .rope_base = 50,
     .rope_scaling = PH_ROPE_LLAMA3,
     .rope_factor = 8,
     .rope_length = 16,
     .rope_high = 3,
     .window = 3,
     .window_from = 1,
     .window_period = 3},
    {.layers = 2,
     .positions = PH_POS_ROPE,
     .rope_interleaved = 1,
     .rope_scaling = PH_ROPE_LINEAR,
     .rope_factor = 2,
     .attn_scale = 0.3f,
     .scale_by_layer = 1,
     .no_bias = PH_NO_BIAS_NORM | PH_NO_BIAS_FF | PH_NO_BIAS_V},
    {.layers = 2, /* Phi-3: half of a head is rotated, by frequencies of a list */
     .norm = PH_NORM_RMS,
     .activation = PH_SWIGLU,
     .positions = PH_POS_ROPE,
     .heads = 2,
     .head_dim = 6,
     .rope_dims = 4,
     .rope_scaling = PH_ROPE_LONGROPE,
     .rope_divisors = {1.25f, 3},
     .rope_scale = 1.2f},
    {.layers = 2, /* GPT-NeoX */
     .parallel = 1,
     .activation = PH_GELU_ERF,
     .positions = PH_POS_ROPE,
     .rope_dims = 2,
     .rope_layers = "nr",
     .untied = 1},
    {.layers = 2, /* OLMo 2 */
     .norm = PH_NORM_RMS,
     .norm_place = PH_OUTPUT_NORM,
     .activation = PH_SWIGLU,
     .positions = PH_POS_ROPE,
     .no_bias = PH_NO_BIAS},
    {.layers = 2, /* what published encoders have: BERT, RoBERTa */
     .norm_place = PH_POST_NORM,
     .activation = PH_GELU_ERF,
     .positions = PH_POS_LEARNED,
     .position_offset = 3,
     .types = 2,
     .embed_norm = 1,
     .embed_scale = 1},
    {.layers = 2, .positions = PH_POS_LEARNED_T5, .position_offset = 2, .buckets = 6},
    {.layers = 3, /* ModernBERT */
     .activation = PH_GEGLU_ERF,
     .positions = PH_POS_ROPE,
     .no_bias = PH_NO_BIAS,
     .embed_norm = 1,
     .embed_scale = 1,
     .rope_base = 50,
     .rope_local_base = 7,
     .window = 3,
     .window_layers = "fs"},
    {.layers = 6, /* ALBERT: of encoders three layers each have the same parameters */
     .layer_groups = 2,
     .norm_place = PH_POST_NORM,
     .activation = PH_GELU,
     .positions = PH_POS_T5,
     .buckets = 4,
     .variant = "talking"},
    {.layers = 1, .norm_place = PH_SANDWICH_NORM, .embed_norm = 1, .window = 2},
    {.layers = 1, .norm_place = PH_OUTPUT_NORM, .embed_norm = 1, .window = 1}};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static ph_config config_of(int arch, int kind)
{
    ph_config c = kinds[kind];
    c.arch = (ph_arch)arch, c.vocab = VOCAB, c.model_dim = 8, c.max_len = 8;
    if (!c.heads) c.heads = 2;
    if (!c.ff_dim) c.ff_dim = 12;
    if (c.arch == PH_ARCH_ENCODER_DECODER) c.parallel = 0;
    if (c.arch == PH_ARCH_ENCODER) c.output_bias = 0, c.output_softcap = 0;
    if (c.arch != PH_ARCH_ENCODER && c.layer_groups) c.layers = 1, c.layer_groups = 0;
    return c;
}

/* ---- gradients --------------------------------------------------------------------- */

static void gradients(void)
{
    for (int arch = 0; arch < 3; arch++)
        for (int kind = 0; kind < KINDS; kind++) {
            ph_config c = config_of(arch, kind);
            check_gradients(&c, kind % 2 ? 0.1f : 0, arch * KINDS + kind);
        }
}

/* Tiles have bits of their own: without another result they did not run. */
static void tiles_run(void)
{
    bed plain, tiled;
    ph_config c = config_of(PH_ARCH_ENCODER_DECODER, 0);
    make_bed(&plain, &c, 1, 1);
    bed_tiles = 1;
    make_bed(&tiled, &c, 1, 1);
    bed_tiles = 0;
    run_bed(&plain, 0);
    run_bed(&tiled, 0);
    CHECK(memcmp(plain.grads, tiled.grads, plain.m->floats * sizeof(float)),
          "gradients in tiles have the bits of those without");
    free_bed(&plain);
    free_bed(&tiled);
}

/* What is dropped is dropped in the oracle too. */
static void dropout_gradients(void)
{
    static const int some[] = {0, 1, 2, 9};
    for (int arch = 0; arch < 3; arch++)
        for (int i = 0; i < 4; i++) {
            ph_config c = config_of(arch, some[i]);
            c.dropout = 0.25f;
            check_gradients(&c, 0, arch * KINDS + some[i]);
        }
}

/* ---- same bits --------------------------------------------------------------------- */

static void threads_here(void)
{
    for (int arch = 0; arch < 3; arch++) {
        static const int counts[] = {1, 2, 7};
        float *first = NULL;
        double loss = 0;
        for (int i = 0; i < 3; i++) {
            bed b;
            ph_config c = config_of(arch, 2);
            c.dropout = 0.1f, c.model_dim = 40, c.heads = 4, c.kv_heads = 2,
            c.ff_dim = 90;
            make_bed(&b, &c, counts[i], 1);
            double now = run_bed(&b, 0.1f);
            size_t bytes = b.m->floats * sizeof(float);
            if (!i) first = malloc(bytes), memcpy(first, b.grads, bytes), loss = now;
            CHECK(now == loss, "arch %d: loss %.17g with %d threads, %.17g with 1", arch,
                  now, counts[i], loss);
            CHECK(!memcmp(first, b.grads, bytes), "arch %d: other gradients, %d threads",
                  arch, counts[i]);
            free_bed(&b);
        }
        free(first);
    }
}

static void threads(void)
{
    for (bed_tiles = 0; bed_tiles < 2; bed_tiles++) threads_here();
    bed_tiles = 0;
}

/* All but those with bits of their own. */
static void instruction_sets(void)
{
    ph_config c = config_of(PH_ARCH_ENCODER_DECODER, 0);
    c.model_dim = 40, c.heads = 4, c.ff_dim = 90, c.dropout = 0.1f;
    float *first = NULL;
    for (int i = 0; ph_isa_list()[i] && !ph_kernels_pick(ph_isa_list()[i])->f32_tiles;
         i++) {
        bed b;
        setenv("POLYHEAD_ISA", ph_isa_list()[i], 1);
        make_bed(&b, &c, 2, 1);
        run_bed(&b, 0.1f);
        size_t bytes = b.m->floats * sizeof(float);
        if (!i) first = malloc(bytes), memcpy(first, b.grads, bytes);
        CHECK(!memcmp(first, b.grads, bytes), "%s gives other gradients than %s",
              ph_isa_list()[i], ph_isa_list()[0]);
        free_bed(&b);
    }
    unsetenv("POLYHEAD_ISA");
    free(first);
}

/* ---- caches ------------------------------------------------------------------------ */

/* Logits of every position, token by token and in chunks, equal those of one pass. */
static void cached(void)
{
    for (int arch = 1; arch < 3; arch++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int chunk = 1; chunk <= 3; chunk += 2) {
                bed b;
                ph_decoder *d;
                ph_config c = config_of(arch, kind);
                make_bed(&b, &c, 2, 0);
                set_full_batch(&b);
                CHECK(ph_pass_forward(b.p, &b.batch, 0) == PH_OK, "%s", ph_error(b.ctx));
                CHECK(ph_pass_logits(b.p) == PH_OK, "%s", ph_error(b.ctx));
                d = make_decoder(b.m, 1, b.source, SOURCE);
                const int32_t *tokens = arch == 2 ? b.target : b.source;
                int len = arch == 2 ? TARGET : SOURCE;
                for (int t = 0; t + chunk <= len; t += chunk) {
                    const float *logits = NULL, *all = b.p->logits;
                    logits = feed_decoder(b.m, d, 1, tokens + t, chunk);
                    CHECK(!memcmp(logits, all + (t + chunk - 1) * VOCAB,
                                  VOCAB * sizeof(float)),
                          "arch %d kind %d chunk %d: other logits at token %d", arch,
                          kind, chunk, t);
                }
                ph_decoder_free(d);
                free_bed(&b);
            }
}

/* ---- files ------------------------------------------------------------------------- */

/* Whoever writes to the block of all parameters writes to each of them. */
static void block(void)
{
    ph_ctx *ctx = open_ctx(1);
    ph_model *m;
    ph_config c = config_of(PH_ARCH_ENCODER_DECODER, 2);
    int64_t elements = 0;
    size_t floats;
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 9) == PH_OK, "%s",
          ph_error(ctx));
    float *all = ph_model_block(m, &floats);
    for (size_t i = 0; i < floats; i++) all[i] = (float)(i % 8191);
    for (int i = 0; ph_model_tensor(m, i); i++) {
        const ph_tensor *t = ph_model_tensor(m, i);
        const float *own = t->data;
        size_t first = (size_t)(own - all), count = t->bytes / sizeof(float);
        CHECK(own >= all && first + count <= floats, "%s lies elsewhere", t->name);
        CHECK(own[0] == (float)(first % 8191) &&
                  own[count - 1] == (float)((first + count - 1) % 8191),
              "%s was not written", t->name);
        elements += (int64_t)count;
    }
    CHECK(elements == ph_model_parameters(m), "%lld elements in tensors",
          (long long)elements);
    ph_model_free(m);
    ph_close(ctx);
}

/* A configuration as JSON and back, and what is refused. */
static void configurations(void)
{
    ph_ctx *ctx = open_ctx(1);
    for (int kind = 0; kind < KINDS; kind++) {
        char text[4096];
        ph_config c = config_of(PH_ARCH_DECODER, kind), again;
        CHECK(ph_config_check(ctx, &c, 0) == PH_OK, "%s", ph_error(ctx));
        int length = ph_config_print(&c, text, sizeof text);
        CHECK(ph_config_read(ctx, &again, text, (size_t)length) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(!memcmp(&c, &again, sizeof c), "kind %d changed", kind);
    }
    static const struct {
        const char *json, *sentence;
    } bad[] = {{"{\"bias\": [\"x\"]}", "bias is 'x'"},
               {"{\"bias\": 3}", "bias is '3'"},
               {"{\"bias\": [true]}", "bias is something else"},
               {"{\"rope_divisors\": 3}", "rope_divisors is '3'"},
               {"{\"rope_divisors\": [1, true]}", "expected an array of numbers"},
               {"{\"rope_scaling\": \"ntk\"}", "rope_scaling is 'ntk'"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];
        ph_config c;
        strcpy(text, bad[i].json);
        CHECK(ph_config_read(ctx, &c, text, strlen(text)) == PH_BAD_FILE &&
                  strstr(ph_error(ctx), bad[i].sentence),
              "%s: %s", bad[i].json, ph_error(ctx));
    }
    for (int i = 0; i < 15; i++) {
        ph_config c = config_of(i < 11 ? PH_ARCH_DECODER : PH_ARCH_ENCODER, 0);
        if (i > 10) c.layers = 4, c.layer_groups = 2, c.norm_place = PH_POST_NORM;
        if (i == 11) c.layer_groups = 3;
        if (i == 12) c.norm_place = PH_PRE_NORM;
        if (i == 13) strcpy(c.variant, "mha;talking");
        if (i == 14) c.arch = PH_ARCH_DECODER;
        if (i == 0) c.norm_eps = -1;
        if (i == 1) c.embed_scale = INFINITY;
        if (i == 2) c.attn_scale = -1;
        if (i == 3) c.attn_softcap = NAN;
        if (i == 6) c.output_softcap = -1;
        if (i == 7) c.parallel = 1, c.norm_place = PH_POST_NORM;
        if (i == 8) c.rope_dims = 2, c.positions = PH_POS_LEARNED;
        if (i == 9) c.rope_divisors[0] = 2;
        if (i == 10) c.positions = PH_POS_ROPE, strcpy(c.rope_layers, "rx");
        if (i == 4) c.window = -1;
        if (i == 5) c.no_bias = PH_NO_BIAS + 1;
        CHECK(ph_config_check(ctx, &c, 0) == PH_BAD_ARGUMENT, "case %d accepted", i);
    }
    ph_close(ctx);
}

static void files(void)
{
    static const char *const words[] = {"a", "b", "\"quoted\"", "猫"};
    char path[] = "/tmp/polyhead-test-XXXXXX", broken[64], sentence[256];
    ph_ctx *ctx = open_ctx(1);
    ph_model *m, *again;
    ph_config c = config_of(PH_ARCH_ENCODER_DECODER, 2);
    c.vocab = 0;
    strcpy(c.variant, "mha");
    close(mkstemp(path));
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, words, 4, 9) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_model_write(m, path) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_read(&again, ctx, path) == PH_OK, "%s", ph_error(ctx));
    CHECK(!memcmp(m->block, again->block, m->floats * sizeof(float)), "other values");
    CHECK(!memcmp(&m->config, &again->config, sizeof m->config), "other configuration");
    for (int i = 0; i < m->config.vocab; i++)
        CHECK(!strcmp(ph_model_token(m, i), ph_model_token(again, i)), "other token %d",
              i);
    ph_model_free(again);
    /* one byte of the parameters changed */
    FILE *f = fopen(path, "r+b");
    fseek(f, -10, SEEK_END);
    int byte = fgetc(f);
    fseek(f, -10, SEEK_END);
    fputc(byte ^ 1, f);
    fclose(f);
    CHECK(ph_model_read(&again, ctx, path) == PH_BAD_FILE && !again, "damage not seen");
    snprintf(sentence, sizeof sentence, "%s", ph_error(ctx));
    CHECK(strstr(sentence, "damaged"), "said: %s", sentence);
    snprintf(broken, sizeof broken, "%s.none", path);
    CHECK(ph_model_read(&again, ctx, broken) == PH_IO_ERROR, "read what is not there");
    unlink(path);
    ph_model_free(m);
    ph_close(ctx);
}

static void refused(void)
{
    static const struct {
        ph_config c;
        const char *word;
    } bad[] = {
        {{.vocab = 5, .layers = 1, .model_dim = 9, .heads = 2, .max_len = 4},
         "model_dim"},
        {{.vocab = 5, .layers = 0, .model_dim = 8, .heads = 2, .max_len = 4}, "layers"},
        {{.vocab = 5, .layers = 1, .model_dim = 8, .heads = 2, .max_len = 0}, "max_len"},
        {{.vocab = 0, .layers = 1, .model_dim = 8, .heads = 2, .max_len = 4}, "vocab"},
        {{.vocab = 5,
          .layers = 1,
          .model_dim = 8,
          .heads = 4,
          .kv_heads = 3,
          .max_len = 4},
         "kv_heads"},
        {{.vocab = 5,
          .layers = 1,
          .model_dim = 8,
          .heads = 2,
          .max_len = 4,
          .dropout = 1},
         "dropout"},
        {{.vocab = 5,
          .layers = 1,
          .model_dim = 6,
          .heads = 2,
          .max_len = 4,
          .positions = PH_POS_ROPE},
         "head_dim"},
        {{.vocab = 5,
          .layers = 1,
          .model_dim = 8,
          .heads = 2,
          .max_len = 4,
          .variant = "nonsense"},
         "variant"}};
    ph_ctx *ctx = open_ctx(1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ph_model *m;
        ph_status status =
            ph_model_create(&m, ctx, &bad[i].c, PH_SPLIT_WORDS, NULL, 0, 1);
        CHECK(status != PH_OK && !m, "case %zu was accepted", i);
        CHECK(strstr(ph_error(ctx), bad[i].word), "case %zu: %s", i, ph_error(ctx));
    }
    ph_close(ctx);
}

/* ---- readings ---------------------------------------------------------------------- */

/* What a configuration in JSON says wrong is named, with what it may be. */
static void refused_json(void)
{
    static const char *const bad[][2] = {
        {"{\"norm\":\"batch\"}", "norm is 'batch', expected layer, rms"},
        {"{\"heads\":-3}", "heads is '-3', expected a whole number"},
        {"{\"heads\":2.5}", "heads is '2.5', expected a whole number"},
        {"{\"heads\":99999999999}", "expected a whole number that is not too large"},
        {"{\"heads\":true}", "heads is something else, expected a whole number"},
        {"{\"tied\":\"yes\"}", "tied is 'yes', expected true or false"},
        {"{\"dropout\":null}", "dropout is something else, expected a number"},
        {"{\"variant\":[\"mha\",7]}", "variant is '7', expected text"},
        {"{\"colour\":1}", "'colour' is unknown"},
        {"{\"heads\":4", "the configuration is no JSON object"},
        {"[]", "the configuration is no JSON object"}};
    ph_ctx *ctx = open_ctx(1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ph_config c;
        char text[64];
        snprintf(text, sizeof text, "%s", bad[i][0]);
        CHECK(ph_config_read(ctx, &c, text, strlen(text)) == PH_BAD_FILE, "%s passed",
              bad[i][0]);
        CHECK(strstr(ph_error(ctx), bad[i][1]), "%s: said %s", bad[i][0], ph_error(ctx));
    }
    ph_close(ctx);
}

static void embedded(void)
{
    static const char text[] =
        "The animal didn't cross the street because it was too wide.";
    enum { WORDS = 12, IT = 7, STREET = 5, ANIMAL = 1 };
    ph_ctx *ctx = open_ctx(2);
    ph_model *m;
    ph_reading *r;
    CHECK(ph_model_embedded(&m, ctx) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_reading_create(&r, m, text, NULL) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_reading_length(r, 0) == WORDS, "%d words", ph_reading_length(r, 0));
    float p[WORDS * WORDS], again[WORDS * WORDS];
    CHECK(ph_reading_links(r, p) == PH_OK, "%s", ph_error(ctx));
    CHECK(p[IT * WORDS + STREET] > 0.9f, "it -> street %g, -> animal %g",
          (double)p[IT * WORDS + STREET], (double)p[IT * WORDS + ANIMAL]);
    /* all heads on again gives the same; frozen patterns without ablation nearly so */
    CHECK(ph_reading_run(r, NULL, 0) == PH_OK, "%s", ph_error(ctx));
    ph_reading_links(r, again);
    CHECK(!memcmp(p, again, sizeof p), "a second run differs");
    CHECK(ph_reading_run(r, NULL, 1) == PH_OK, "%s", ph_error(ctx));
    ph_reading_links(r, again);
    for (int i = 0; i < WORDS * WORDS; i++)
        CHECK(fabsf(p[i] - again[i]) < 1e-4f, "frozen run differs by %g",
              (double)fabsf(p[i] - again[i]));
    ph_reading_free(r);
    CHECK(ph_reading_create(&r, m, "", NULL) == PH_BAD_SHAPE && !r, "no text accepted");
    ph_model_free(m);
    ph_close(ctx);
}

/* Weights of a place times its values give what its heads gave. */
static void looks(void)
{
    enum { MOST = 64 };
    ph_ctx *ctx = open_ctx(1);
    ph_model *m;
    ph_reading *r;
    CHECK(ph_model_embedded(&m, ctx) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_reading_create(&r, m, "那只动物没有穿过街道，因为它太累了。", NULL) == PH_OK,
          "%s", ph_error(ctx));
    for (int s = 0; ph_reading_site(r, s); s++) {
        const ph_site *site = ph_reading_site(r, s);
        int n = site->q_len, dim = site->v_dim;
        float *w = malloc((size_t)(site->heads * n * n) * sizeof *w);
        float v[MOST * MOST], out[MOST * MOST];
        CHECK(ph_reading_look(r, s, &(ph_look_at){.weights = w}) == PH_OK, "%s",
              ph_error(ctx));
        for (int h = 0; h < site->heads && dim; h++) {
            ph_reading_vectors(r, s, h, NULL, NULL, v, out);
            for (int i = 0; i < n; i++)
                for (int d = 0; d < dim; d++) {
                    double sum = 0;
                    for (int j = 0; j < n; j++)
                        sum += (double)w[(h * n + i) * n + j] * (double)v[j * dim + d];
                    CHECK(fabs(sum - (double)out[i * dim + d]) < 1e-5, "%s head %d",
                          site->name, h);
                }
        }
        free(w);
    }
    ph_reading_free(r);
    ph_model_free(m);
    ph_close(ctx);
}

static const check_case cases[] = {{"gradients", gradients},
                                   {"tiles_run", tiles_run},
                                   {"dropout_gradients", dropout_gradients},
                                   {"threads", threads},
                                   {"instruction_sets", instruction_sets},
                                   {"cached", cached},
                                   {"block", block},
                                   {"configurations", configurations},
                                   {"files", files},
                                   {"refused", refused},
                                   {"refused_json", refused_json},
                                   {"embedded", embedded},
                                   {"looks", looks},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
