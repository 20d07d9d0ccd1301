/*
 * test_architectures.c - tiny checkpoints of published architectures against what
 * transformers makes of them (tests/golden/checkpoints, written by make.py there): hidden
 * states of every layer, weights of every head, logits; and what is refused.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "model/generate.h"
#include "model/model_text.h"

#define FOLDER "tests/golden/checkpoints/"

static const struct {
    const char *path, *golden;
} checkpoints[] = {{FOLDER "llama", FOLDER "llama"},
                   {FOLDER "llama-shards", FOLDER "llama-shards"},
                   {FOLDER "mistral", FOLDER "mistral"},
                   {FOLDER "qwen2", FOLDER "qwen2"},
                   {FOLDER "qwen3", FOLDER "qwen3"},
                   {FOLDER "qwen3-mixed", FOLDER "qwen3-mixed"},
                   {FOLDER "qwen3-yarn", FOLDER "qwen3-yarn"},
                   {FOLDER "gpt2", FOLDER "gpt2"},
                   {FOLDER "gpt2-plain", FOLDER "gpt2-plain"},
                   {FOLDER "gemma3", FOLDER "gemma3"},
                   {FOLDER "phi3", FOLDER "phi3"},
                   {FOLDER "phi3-plain", FOLDER "phi3-plain"},
                   {FOLDER "phi3-gguf/model.gguf", FOLDER "phi3-gguf"},
                   {FOLDER "gpt_neox", FOLDER "gpt_neox"},
                   {FOLDER "gpt_neox-serial", FOLDER "gpt_neox-serial"},
                   {FOLDER "gpt_neox-gguf/model.gguf", FOLDER "gpt_neox-gguf"},
                   {FOLDER "opt", FOLDER "opt"},
                   {FOLDER "opt-post", FOLDER "opt-post"},
                   {FOLDER "smollm3", FOLDER "smollm3"},
                   {FOLDER "smollm3-gguf/model.gguf", FOLDER "smollm3-gguf"},
                   {FOLDER "olmo2", FOLDER "olmo2"},
                   {FOLDER "olmo2-gguf/model.gguf", FOLDER "olmo2-gguf"},
                   {FOLDER "llama-gguf/model.gguf", FOLDER "llama-gguf"}};

enum { CHECKPOINTS = sizeof checkpoints / sizeof checkpoints[0] };

static ph_ctx *open_ctx(void)
{
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 2}) == PH_OK, "ph_open failed");
    return ctx;
}

/* ---- values ------------------------------------------------------------------------ */

static const ph_tensor *golden_tensor(const ph_file *file, const char *name, int number)
{
    char whole[32];
    snprintf(whole, sizeof whole, "%s.%d", name, number);
    return ph_file_find(file, number < 0 ? name : whole);
}

/* The gates of the reference itself: its float arithmetic is no closer to its double. */
static void compare(const char *where, const char *what, int number, const float *found,
                    const ph_tensor *truth)
{
    const float *expected = truth->data;
    size_t count = truth->bytes / sizeof(float);
    double square = 0, wrong = 0, worst = 0;
    for (size_t i = 0; i < count; i++) {
        double off = (double)found[i] - (double)expected[i];
        square += (double)expected[i] * (double)expected[i], wrong += off * off;
        worst = fmax(worst, fabs(off));
    }
    double rms = sqrt(square / (double)count);
    CHECK(worst <= 1e-4 * rms && sqrt(wrong / (double)count) <= 1e-5 * rms,
          "%s: %s %d is off by %.2e of its rms, at worst %.2e", where, what, number,
          sqrt(wrong / square), worst / rms);
}

/* ---- one checkpoint ---------------------------------------------------------------- */

/* The residual stream before a layer; after the last one its norm. */
static const float *hidden_state(const ph_pass *p, int layer)
{
    const ph_pass_stack *s = &p->stacks[0];
    if (layer == p->model->config.layers) return ph_pass_output(p);
    if (layer == 0) return s->entry.s;
    const ph_residual *last = &s->acts[2 * layer - 1].residual;
    return p->model->config.norm_place == PH_POST_NORM ? last->n : last->s;
}

static void compare_maps(const char *path, ph_pass *p, int layer, const ph_tensor *truth)
{
    size_t len = (size_t)p->stacks[0].len, heads = (size_t)p->model->config.heads;
    float *weights = malloc(heads * len * len * sizeof *weights);
    float *out = malloc(len * heads * (size_t)p->model->config.head_dim * sizeof *out);
    ph_look_at at = {.weights = weights};
    CHECK(ph_attend_look(p, 0, 2 * layer, &at, out) == PH_OK, "%s",
          ph_error(p->model->ctx));
    compare(path, "attention", layer, weights, truth);
    free(weights);
    free(out);
}

static void compare_all(const char *path, ph_model *m, const ph_file *golden)
{
    const ph_tensor *ids = golden_tensor(golden, "ids", -1);
    int len = (int)ids->shape[1];
    ph_pass_shape shape = {.batch = 1, .source_len = len, .open = 1};
    ph_batch batch = {.source = ids->data};
    ph_pass *p;
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(m->ctx));
    for (int l = 0; l <= m->config.layers; l++)
        compare(path, "hidden", l, hidden_state(p, l),
                golden_tensor(golden, "hidden", l));
    for (int l = 0; l < m->config.layers; l++)
        compare_maps(path, p, l, golden_tensor(golden, "attention", l));
    const ph_tensor *logits = golden_tensor(golden, "logits", -1);
    CHECK(ph_pass_logits(p) == PH_OK, "%s", ph_error(m->ctx));
    if (logits) compare(path, "logits", 0, p->logits, logits);
    ph_pass_free(p);
}

/* Token by token against caches, whatever ends a text. */
static void compare_greedy(const char *path, ph_model *m, const ph_file *golden)
{
    const ph_tensor *ids = golden_tensor(golden, "ids", -1);
    const ph_tensor *greedy = golden_tensor(golden, "greedy", -1);
    int32_t found[20];
    int count = 0;
    if (!greedy) return;
    m->marks.end_count = 0;
    CHECK(ph_generate_tokens(m, &(ph_generation){0}, ids->data, (int)ids->shape[1], found,
                             20, &count) == PH_OK,
          "%s", ph_error(m->ctx));
    CHECK(count == 20, "%s: %d tokens", path, count);
    for (int i = 0; i < count; i++)
        CHECK(found[i] == ((const int32_t *)greedy->data)[i],
              "%s: token %d is %d, expected %d", path, i, found[i],
              ((const int32_t *)greedy->data)[i]);
}

static void parity(void)
{
    for (int i = 0; i < CHECKPOINTS; i++) {
        char path[256];
        ph_ctx *ctx = open_ctx();
        ph_model *m;
        ph_file *golden;
        CHECK(ph_model_read(&m, ctx, checkpoints[i].path) == PH_OK, "%s: %s",
              checkpoints[i].path, ph_error(ctx));
        snprintf(path, sizeof path, "%s/golden.safetensors", checkpoints[i].golden);
        CHECK(ph_file_read(&golden, path, NULL) == PH_OK, "cannot read %s", path);
        compare_all(checkpoints[i].path, m, golden);
        compare_greedy(checkpoints[i].path, m, golden);
        ph_file_free(golden);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* ---- in place ---------------------------------------------------------------------- */

static void run_logits(ph_model *m, const ph_file *golden, int backward, float *logits)
{
    const ph_tensor *ids = golden_tensor(golden, "ids", -1);
    ph_pass_shape shape = {.batch = 1, .source_len = (int)ids->shape[1]};
    ph_batch batch = {.source = ids->data};
    ph_pass *p;
    shape.backward = backward;
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_logits(p) == PH_OK, "%s", ph_error(m->ctx));
    memcpy(logits, p->logits, ids->shape[1] * (size_t)m->config.vocab * sizeof *logits);
    ph_pass_free(p);
}

/* Matrices read in place give the bits of the same values as f32 in memory; of folders of
   GPT-2 and GPT-NeoX only q, k and v are copied, whose rows are not contiguous. */
static void in_place(void)
{
    static float stored[12 * 97], own[12 * 97];
    for (int i = 0; i < CHECKPOINTS; i++) {
        char path[256];
        ph_ctx *ctx = open_ctx();
        ph_model *m;
        ph_file *golden;
        CHECK(ph_model_read(&m, ctx, checkpoints[i].path) == PH_OK, "%s", ph_error(ctx));
        for (int p = 0; p < m->param_count; p++) {
            const ph_weight *w = &m->params[p];
            int gpt = strstr(checkpoints[i].path, "gpt") &&
                      !strstr(checkpoints[i].path, "gguf");
            int fused =
                gpt && strstr(w->name, "self.w") && !strstr(w->name, "self.wo");
            int copied = w->rank < 2 || fused || strstr(w->name, "positions");
            CHECK(copied == !w->stored.data, "%s: %s is %s", checkpoints[i].path, w->name,
                  copied ? "not copied" : "copied");
        }
        snprintf(path, sizeof path, "%s/golden.safetensors", checkpoints[i].golden);
        CHECK(ph_file_read(&golden, path, NULL) == PH_OK, "cannot read %s", path);
        run_logits(m, golden, 0, stored);
        CHECK(ph_model_own(m) == PH_OK && !m->checkpoint, "%s", ph_error(ctx));
        run_logits(m, golden, 1, own);
        CHECK(!memcmp(stored, own, sizeof own), "%s: other bits", checkpoints[i].path);
        ph_file_free(golden);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* The tokenizer inside a GGUF file: here a token is a character after a start mark. */
static void text(void)
{
    ph_ctx *ctx = open_ctx();
    ph_model *m;
    ph_word words[8];
    int count = 0;
    char out[64];
    const int32_t prompt[] = {1, 3, 'a' - 29, 'b' - 29};
    int32_t tokens[8];
    CHECK(ph_model_read(&m, ctx, FOLDER "llama-gguf/model.gguf") == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_model_split(m, "ab", words, 8, &count) == PH_OK && count == 4, "%d tokens",
          count);
    for (int i = 0; i < 4; i++)
        CHECK(words[i].token == prompt[i], "token %d is %d", i, words[i].token);
    CHECK(words[0].length == 0 && words[3].start == 1 && words[3].length == 1, "places");
    CHECK(!strcmp(ph_model_token(m, prompt[3]), "b"), "%s", ph_model_token(m, prompt[3]));
    CHECK(ph_model_splits(m) == PH_SPLIT_SUBWORDS, "split");
    CHECK(ph_generate_tokens(m, &(ph_generation){0}, prompt, 4, tokens, 8, &count) ==
              PH_OK,
          "%s", ph_error(ctx));
    CHECK(ph_generate(m, "ab", &(ph_generation){.max_tokens = 8}, out, sizeof out,
                      NULL) == PH_OK,
          "%s", ph_error(ctx));
    size_t at = 0;
    for (int i = 0; i < count; i++)
        if (tokens[i] >= 3)
            CHECK(out[at++] == (tokens[i] == 3 ? ' ' : (char)(tokens[i] + 29)),
                  "generated '%s'", out);
    ph_model_free(m);
    ph_close(ctx);
}

/* ---- what is refused --------------------------------------------------------------- */

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static char *read_text(const char *path)
{
    static char text[8192];
    FILE *file = fopen(path, "rb");
    CHECK(file, "cannot read %s", path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

/* config.json of a checkpoint with one text replaced, beside the same tensors. */
static void change_config(const char *name, const char *from, const char *to)
{
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s/config.json", name);
    char *text = read_text(path), *at = strstr(text, from);
    CHECK(at, "%s has no %s", path, from);
    FILE *file = fopen(path_of("config.json"), "wb");
    fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(file);
    char *here = realpath(FOLDER, NULL);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", here, name);
    unlink(path_of("model.safetensors"));
    CHECK(symlink(path, path_of("model.safetensors")) == 0, "no link");
    free(here);
}

static void config_lies(void)
{
    static const struct {
        const char *name, *from, *to, *sentence;
    } lies[] = {
        {"llama", "\"llama\"", "\"mamba\"",
         "model_type is 'mamba', expected one of llama"},
        {"llama", "\"model_type\"", "\"type\"", "model_type is missing"},
        {"llama", "\"hidden_size\": 32", "\"hidden_size\": 36", "expected F32 (97, 36)"},
        {"llama", "\"hidden_size\": 32", "\"hidden_size\": \"32\"",
         "hidden_size is '32', expected a whole number"},
        {"llama", "\"hidden_size\": 32", "\"hidden_size\": 0", "hidden_size is 0"},
        {"llama", "\"hidden_size\": 32,", "", "hidden_size is missing"},
        {"llama", "\"vocab_size\": 97", "\"vocab_size\": 98", "there are 97 embeddings"},
        {"llama", "layers\": 2", "layers\": 1", "tensor 'model.layers.1."},
        {"llama", "layers\": 2", "layers\": 3",
         "tensor 'model.layers.2.input_layernorm.weight' is missing"},
        {"llama", "layers\": 2", "layers\": 999",
         "999 layers, the checkpoint 21 tensors"},
        {"llama", "layers\": 2", "layers\": 1e300", "expected a whole number"},
        {"llama", "heads\": 4", "heads\": 3", "kv_heads 2 does not divide heads 3"},
        {"llama", "\"head_dim\": 8", "\"head_dim\": 7", "expected even for rope"},
        {"llama", "\"mlp_bias\"", "\"is_causal\": false, \"mlp_bias\"",
         "is_causal is false"},
        {"qwen3", "value_heads\": 2", "value_heads\": null", "(48, 32)"},
        {"llama", "\"silu\"", "\"mish\"", "activation 'mish' is unknown with a gate"},
        {"llama", "\"llama3\"", "\"longrope\"", "rope_type is 'longrope'"},
        {"llama", "\"factor\": 8.0", "\"factor\": 0.5", "rope_factor is 0.5"},
        {"llama", "\"factor\": 8.0,", "", "rope_scaling.factor is missing"},
        {"llama", "rope_theta\": 500.0", "rope_theta\": -1", "expected a number above 0"},
        {"llama", "eps\": 0.001", "eps\": -1", "expected a number above 0"},
        {"qwen3", "\"default\"", "\"yarn\", \"factor\": 4.0, \"beta_fast\": 0.5",
         "rope_low is 1 and rope_high 0.5"},
        {"qwen2", "\"full_attention\"", "\"chunked_attention\"",
         "layer_types.0 is neither sliding_attention nor full_attention"},
        {"qwen2", "\"use_sliding_window\": true", "\"use_sliding_window\": false",
         "layer_types has sliding_attention, expected a window with it"},
        {"qwen3", "\"qwen3\"", "\"qwen2\"", "self_attn.k_norm.weight' is unknown"},
        {"llama", "\"rope_theta\"", "\"partial_rotary_factor\": 0.5, \"rope_theta\"",
         "4 of the 8 elements of a head are rotated, expected all"},
        {"phi3", "\"longrope\"", "\"linear\"", "expected default or longrope"},
        {"phi3", "   1.1,", "", "short_factor has no number above 0 for pair 3 of 4"},
        {"phi3", "   1.1,", "-1.1,", "short_factor has no number above 0 for pair 0"},
        {"phi3", "   1.1,", "1.1, 1.1,", "short_factor has more than 4 numbers"},
        {"phi3", "\"long_factor\"", "\"x\"", "long_factor has no number above 0"},
        {"phi3", "factor\": 0.7", "factor\": 0.1", "1 of the 12 elements of a head"},
        {"phi3", "factor\": 0.7", "factor\": 2", "24 of the 12 elements of a head"},
        {"gpt_neox", "rotary_pct\": 0.4", "rotary_pct\": 1.4", "rotary_pct is 1.4"},
        {"gpt_neox", "rotary_pct\": 0.4", "rotary_pct\": 0.2", "rope_dims is 3"},
        {"gpt_neox", "layers\": 2", "layers\": 1", "'gpt_neox.layers.1."},
        {"opt", "proj_dim\": 32", "proj_dim\": 16",
         "word_embed_proj_dim is 16, expected hidden_size, 32"},
        {"opt", "affine\": true", "affine\": false",
         "layer_norm_elementwise_affine is false, expected norms with gains"},
        {"opt", "norm\": false", "norm\": true", "_remove_final_layer_norm is true"},
        {"opt", "norm_before\": true", "norm_before\": false",
         "'model.decoder.final_layer_norm.bias' is unknown"},
        {"opt", "embeddings\": 40", "embeddings\": 42", "is F16 (42, 32), expected"},
        {"smollm3", "layers\": 5", "layers\": 6", "no_rope_layers.5 is neither 0 nor 1"},
        {"gpt2", "\"n_head\": 4", "\"n_head\": 5", "no multiple of heads 5"},
        {"gpt2", "\"gelu_new\"", "\"mish\"", "activation 'mish' is unknown"},
        {"gpt2", "\"n_positions\": 40", "\"n_positions\": 41", "wpe.weight' is F32 (40"}};
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_architectures.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        ph_model *m;
        change_config(lies[i].name, lies[i].from, lies[i].to);
        ph_status status = ph_model_read(&m, ctx, folder);
        CHECK(status != PH_OK && !m, "%s is accepted", lies[i].to);
        CHECK(strstr(ph_error(ctx), lies[i].sentence), "%s: \"%s\" lacks \"%s\"",
              lies[i].to, ph_error(ctx), lies[i].sentence);
    }
    unlink(path_of("model.safetensors"));
    unlink(path_of("config.json"));
    rmdir(folder);
    ph_close(ctx);
}

/* Absent takes the default of the family, null switches off: Mistral's window. */
static void absent_and_null(void)
{
    static const struct {
        const char *to;
        int window;
    } list[] = {{"\"sliding_window\": null", 0},
                {"\"x\": 1", 4096},
                {"\"sliding_window\": 3", 3}};
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_architectures.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        ph_model *m;
        change_config("mistral", "\"sliding_window\": 5", list[i].to);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_config(m)->window == list[i].window, "%s gives a window of %d",
              list[i].to, ph_model_config(m)->window);
        ph_model_free(m);
    }
    unlink(path_of("model.safetensors"));
    unlink(path_of("config.json"));
    rmdir(folder);
    ph_close(ctx);
}

/* What a field that is absent, null or in two places says. */
static void spoken_fields(void)
{
    static const struct {
        const char *name, *from, *to;
        float base;
        int kv_heads, window;
        ph_rope_scaling scaling;
    } list[] = {
        {"qwen3", "\"rope_parameters\"",
         "\"rope_theta\": 7, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, "
         "\"rope_parameters\"",
         7, 2, 0, PH_ROPE_LINEAR},
        {"smollm3", "\"rope_parameters\"", "\"nothing\"", 2e6f, 1, 4, PH_ROPE_UNSCALED},
        {"smollm3",
         "\"sliding_attention\",\n    \"full_attention\",\n    \"full_attention\",\n    "
         "\"sliding_attention\"",
         "\"full_attention\",\n    \"full_attention\",\n    \"full_attention\",\n    "
         "\"full_attention\"",
         300, 1, 4, PH_ROPE_UNSCALED}};
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_architectures.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        ph_model *m;
        change_config(list[i].name, list[i].from, list[i].to);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        const ph_config *c = ph_model_config(m);
        CHECK(c->rope_base == list[i].base && c->rope_scaling == list[i].scaling,
              "%s: base %g", list[i].to, (double)c->rope_base);
        CHECK(c->kv_heads == list[i].kv_heads && c->window == list[i].window,
              "%s: %d heads of keys, window %d", list[i].to, c->kv_heads, c->window);
        ph_model_free(m);
    }
    unlink(path_of("model.safetensors"));
    unlink(path_of("config.json"));
    rmdir(folder);
    ph_close(ctx);
}

/* A text may have more ends than a file usually names; too many are refused. */
static void many_ends(void)
{
    char to[256] = "\"eos_token_id\": [1";
    ph_ctx *ctx = open_ctx();
    ph_model *m;
    strcpy(folder, "/tmp/test_architectures.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (int i = 2; i <= 20; i++)
        snprintf(to + strlen(to), sizeof to - strlen(to), ", %d%s", i, i < 20 ? "" : "]");
    change_config("qwen3", "\"eos_token_id\": null", to);
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_is_end(m, 1) && ph_is_end(m, 20) && !ph_is_end(m, 21), "ends");
    ph_model_free(m);
    to[strlen(to) - 1] = 0;
    for (int i = 0; i < 13; i++) strcat(to, i < 12 ? ", 3" : ", 3]");
    change_config("qwen3", "\"eos_token_id\": null", to);
    CHECK(ph_model_read(&m, ctx, folder) == PH_UNSUPPORTED &&
              strstr(ph_error(ctx), "eos_token_id has 33 tokens, expected 32 at most"),
          "%s", ph_error(ctx));
    unlink(path_of("model.safetensors"));
    unlink(path_of("config.json"));
    rmdir(folder);
    ph_close(ctx);
}

/* Fields of YaRN that say what is so without them. */
static void yarn_fields(void)
{
    static const char *const list[] = {
        "", ", \"beta_fast\": 32, \"beta_slow\": 1.0, \"truncate\": true",
        ", \"attention_factor\": 1.1386294361119891, \"beta_fast\": null",
        ", \"mscale\": 1.0, \"mscale_all_dim\": 0"};
    char to[160];
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_architectures.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        ph_model *m;
        snprintf(to, sizeof to, "\"yarn\", \"factor\": 4.0%s", list[i]);
        change_config("qwen3", "\"default\"", to);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s: %s", to, ph_error(ctx));
        CHECK(ph_model_config(m)->rope_scaling == PH_ROPE_YARN &&
                  ph_model_config(m)->rope_scale == 0 &&
                  ph_model_config(m)->rope_high == 0,
              "%s", to);
        ph_model_free(m);
    }
    unlink(path_of("model.safetensors"));
    unlink(path_of("config.json"));
    rmdir(folder);
    ph_close(ctx);
}

/* The first list of LongRoPE counts, for texts of the length of training. */
static void long_rope(void)
{
    static const float divisors[] = {1.1f, 1.3f, 2, 2.5f, 0};
    ph_ctx *ctx = open_ctx();
    ph_model *m;
    CHECK(ph_model_read(&m, ctx, FOLDER "phi3") == PH_OK, "%s", ph_error(ctx));
    const ph_config *c = ph_model_config(m);
    CHECK(c->max_len == 40 && c->rope_dims == 8, "%d tokens, %d elements", c->max_len,
          c->rope_dims);
    CHECK(!memcmp(c->rope_divisors, divisors, sizeof divisors), "divisors");
    CHECK(c->rope_scale == (float)sqrt(1 + log(4) / log(40)), "%g",
          (double)c->rope_scale);
    ph_model_free(m);
    ph_close(ctx);
}

/* Fields that config.json and files of ours carry, through both. */
static void written(void)
{
    static const char *const names[] = {"qwen3-mixed", "qwen3-yarn", "phi3",
                                        "gpt_neox",    "opt",        "opt-post",
                                        "gpt_neox-serial", "smollm3", "olmo2"};
    ph_ctx *ctx = open_ctx();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char place[] = "/tmp/test_architectures.XXXXXX", own[64], to[64], path[128];
        ph_model *m, *again;
        CHECK(mkdtemp(place), "no folder");
        snprintf(path, sizeof path, FOLDER "%s", names[i]);
        snprintf(own, sizeof own, "%s/own.safetensors", place);
        snprintf(to, sizeof to, "%s/folder", place);
        CHECK(ph_model_read(&m, ctx, path) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, own) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(ph_model_export(ctx, own, to, NULL) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_read(&again, ctx, to) == PH_OK, "%s", ph_error(ctx));
        CHECK(!ph_config_differs(&m->config, &again->config), "%s: other %s", names[i],
              ph_config_differs(&m->config, &again->config));
        ph_model_free(m);
        ph_model_free(again);
        snprintf(path, sizeof path, "rm -r %s", place);
        CHECK(system(path) == 0, "%s stays", place);
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"parity", parity},
                                   {"in_place", in_place},
                                   {"text", text},
                                   {"config_lies", config_lies},
                                   {"absent_and_null", absent_and_null},
                                   {"spoken_fields", spoken_fields},
                                   {"many_ends", many_ends},
                                   {"yarn_fields", yarn_fields},
                                   {"long_rope", long_rope},
                                   {"written", written},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
