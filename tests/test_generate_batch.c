/*
 * test_generate_batch.c - many texts decoded side by side: each has the bits it has
 * alone, whatever the chunks, the slots and the pages of its caches; caches that grow
 * with the tokens; stop texts and pieces; what is refused.
 */
#include "check.h"
#include "guard.h"
#include "model/generate.h"

enum { VOCAB = 40, TEXTS = 4, LONG = 300 };

static ph_ctx *ctx;

static const ph_config kinds[] = {
    {.positions = PH_POS_ROPE,
     .kv_heads = 1,
     .norm = PH_NORM_RMS,
     .activation = PH_SWIGLU},
    {.positions = PH_POS_LEARNED, .norm_place = PH_POST_NORM},
    {.positions = PH_POS_T5, .window = 140},
    {.positions = PH_POS_ALIBI, .variant = "talking"},
    {.positions = PH_POS_SINUSOIDAL, .variant = "mla:rope=2,latent=3"},
    {.layers = 3, .positions = PH_POS_ROPE, .variant = "mha;dcmha:rank=1;diff"}};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static ph_model *make_model(ph_config c)
{
    ph_model *m;
    c.vocab = VOCAB, c.ff_dim = 24, c.max_len = LONG;
    if (!c.arch) c.arch = PH_ARCH_DECODER;
    if (!c.model_dim) c.model_dim = 16;
    if (!c.heads) c.heads = 2;
    if (!c.layers) c.layers = 2;
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 5) == PH_OK, "%s",
          ph_error(ctx));
    /* larger steps between the logits than those of a new model */
    for (size_t i = 0; i < m->floats; i++) m->block[i] *= 2;
    return m;
}

/* ---- logits ------------------------------------------------------------------------ */

static const int lens[TEXTS] = {7, 129, 128, LONG};

/* Logits of the whole text in one pass, without caches. */
static void whole(ph_model *m, const int32_t *text, int len, float *logits)
{
    ph_pass *p;
    ph_pass_shape shape = {.batch = 1, .source_len = len};
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_pass_forward(p, &(ph_batch){.source = text}, 0) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_pass_logits(p) == PH_OK, "%s", ph_error(ctx));
    memcpy(logits, p->logits, (size_t)(len * VOCAB) * sizeof *logits);
    ph_pass_free(p);
}

/* Logits against caches, token by token: mla rounds otherwise without caches. */
static void one_by_one(ph_model *m, const int32_t *text, int len, float *logits)
{
    static const int32_t offsets[] = {0, 1};
    static const int only[] = {0};
    ph_decoder *d;
    ph_decoder_shape shape = {.texts = 1};
    CHECK(ph_decoder_create(&d, m, &shape) == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < len; i++) {
        float *row;
        CHECK(ph_decoder_feed(d, text + i, offsets) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_decoder_logits(d, only, 1, &row) == PH_OK, "%s", ph_error(ctx));
        memcpy(logits + i * VOCAB, row, VOCAB * sizeof *row);
    }
    ph_decoder_free(d);
}

/* Feeds texts in random chunks beside each other, some of them nothing, and compares the
   logits after each call. */
static void feed_at_random(ph_model *m, const int32_t text[TEXTS][LONG], float *truth,
                           uint64_t *random)
{
    ph_decoder *d;
    ph_decoder_shape shape = {.texts = TEXTS, .capacity = LONG};
    int fed[TEXTS] = {0}, left = 1;
    CHECK(ph_decoder_create(&d, m, &shape) == PH_OK, "%s", ph_error(ctx));
    while (left) {
        int32_t tokens[TEXTS * LONG], offsets[TEXTS + 1] = {0};
        int ready[TEXTS], count = 0;
        float *logits;
        left = 0;
        for (int b = 0; b < TEXTS; b++) {
            int most[] = {0, 1, 3, 140}, n = most[check_random(random) % 4];
            n = ph_min(n, lens[b] - fed[b]);
            memcpy(tokens + offsets[b], text[b] + fed[b], (size_t)n * sizeof *tokens);
            offsets[b + 1] = offsets[b] + n;
            fed[b] += n, left += lens[b] - fed[b];
            if (n) ready[count++] = b;
        }
        if (!count) continue;
        CHECK(ph_decoder_feed(d, tokens, offsets) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_decoder_logits(d, ready, count, &logits) == PH_OK, "%s", ph_error(ctx));
        for (int i = 0; i < count; i++) {
            int b = ready[i];
            CHECK(!memcmp(logits + i * VOCAB, truth + (b * LONG + fed[b] - 1) * VOCAB,
                          VOCAB * sizeof *logits),
                  "%s: text %d has other logits at token %d", m->config.variant, b,
                  fed[b] - 1);
        }
    }
    ph_decoder_free(d);
}

static void same_logits(void)
{
    static int32_t text[TEXTS][LONG];
    static float truth[TEXTS * LONG * VOCAB];
    uint64_t random = check_seed;
    for (int kind = 0; kind < KINDS; kind++) {
        ph_model *m = make_model(kinds[kind]);
        for (int b = 0; b < TEXTS; b++) {
            for (int i = 0; i < LONG; i++)
                text[b][i] = (int32_t)(check_random(&random) % VOCAB);
            int absorbs = strstr(m->config.variant, "mla") != NULL;
            (absorbs ? one_by_one : whole)(m, text[b], lens[b], truth + b * LONG * VOCAB);
        }
        feed_at_random(m, text, truth, &random);
        ph_model_free(m);
    }
}

/* ---- tokens ------------------------------------------------------------------------ */

enum { PROMPTS = 7, NEW = 12 };

/* Texts of a batch are those that each prompt gets alone, with any number of slots. */
static void compare_alone(const ph_model *m, ph_generation how, const int32_t *prompts,
                          const int *counts)
{
    int alone_count[PROMPTS], limit[PROMPTS];
    int32_t alone[PROMPTS][NEW];
    for (int i = 0; i < PROMPTS; i++) {
        ph_generated one = {.prompt = prompts + i * LONG, .prompt_count = counts[i]};
        one.limit = limit[i] = NEW - i % 3, one.number = (uint64_t)i;
        CHECK(ph_generate_all(m, &how, &one, 1, NULL, NULL) == PH_OK, "%s",
              ph_error(m->ctx));
        alone_count[i] = one.count;
        if (one.count) memcpy(alone[i], one.tokens, (size_t)one.count * sizeof(int32_t));
        ph_ctx_release(m->ctx, one.tokens);
    }
    for (int slots = 0; slots <= PROMPTS; slots += 1 + slots / 2) {
        ph_generated all[PROMPTS] = {0};
        how.batch = slots;
        for (int i = 0; i < PROMPTS; i++) {
            all[i].prompt = prompts + i * LONG, all[i].prompt_count = counts[i];
            all[i].limit = limit[i], all[i].number = (uint64_t)i;
        }
        CHECK(ph_generate_all(m, &how, all, PROMPTS, NULL, NULL) == PH_OK, "%s",
              ph_error(m->ctx));
        for (int i = 0; i < PROMPTS; i++) {
            CHECK(all[i].count == alone_count[i], "text %d has %d tokens, alone %d", i,
                  all[i].count, alone_count[i]);
            CHECK(!all[i].count || !memcmp(all[i].tokens, alone[i],
                                           (size_t)all[i].count * sizeof(int32_t)),
                  "text %d differs with %d slots", i, slots);
            ph_ctx_release(m->ctx, all[i].tokens);
        }
    }
}

static void draw_prompts(int32_t *prompts, int *counts, int vocab, int most)
{
    uint64_t random = check_seed + 3;
    for (int i = 0; i < PROMPTS; i++) {
        counts[i] = 1 + (int)(check_random(&random) % (uint64_t)most);
        for (int k = 0; k < LONG; k++)
            prompts[i * LONG + k] = (int32_t)(check_random(&random) % (uint64_t)vocab);
    }
}

static const ph_generation ways[] = {
    {0}, {.temperature = 1.5f, .top_k = 20, .seed = 3}, {.kv_dtype = PH_BF16}};

static void same_tokens(void)
{
    static int32_t prompts[PROMPTS * LONG];
    int counts[PROMPTS];
    static const ph_config both[] = {
        {.arch = PH_ARCH_ENCODER_DECODER},
        {.arch = PH_ARCH_ENCODER_DECODER, .cross = "merged"},
        {.arch = PH_ARCH_ENCODER_DECODER, .cross = "talking", .positions = PH_POS_T5}};
    draw_prompts(prompts, counts, VOCAB, 150);
    for (int kind = 0; kind < 3; kind++)
        for (int way = 0; way < (kind ? 1 : 3); way++) {
            ph_model *m = make_model(kinds[kind]);
            compare_alone(m, ways[way], prompts, counts);
            m->marks.penalty = 1.3f, m->marks.no_repeat = 2;
            compare_alone(m, ways[way], prompts, counts);
            ph_model_free(m);
            m = make_model(both[kind]);
            compare_alone(m, ways[way], prompts, counts);
            if (!way) compare_alone(m, (ph_generation){.beams = 3}, prompts, counts);
            ph_model_free(m);
        }
}

/* The same on tiny checkpoints of published architectures. */
static void checkpoints(void)
{
    static const char *const paths[] = {"llama", "gpt2", "mistral", "qwen3"};
    static int32_t prompts[PROMPTS * LONG];
    int counts[PROMPTS];
    for (int i = 0; i < 4; i++) {
        char path[64];
        ph_model *m;
        snprintf(path, sizeof path, "tests/golden/checkpoints/%s", paths[i]);
        CHECK(ph_model_read(&m, ctx, path) == PH_OK, "%s", ph_error(ctx));
        draw_prompts(prompts, counts, m->config.vocab,
                     ph_min(m->config.max_len - NEW, 150));
        for (int way = 0; way < (i < 2 ? 3 : 1); way++)
            compare_alone(m, ways[way], prompts, counts);
        ph_model_free(m);
    }
}

/* ---- memory ------------------------------------------------------------------------ */

static void feed_one(ph_decoder *d, int texts, int text, int count)
{
    static const int32_t tokens[LONG];
    int32_t offsets[8] = {0};
    for (int b = 0; b < texts; b++) offsets[b + 1] = offsets[b] + (b == text ? count : 0);
    CHECK(ph_decoder_feed(d, tokens, offsets) == PH_OK, "%s", ph_error(ctx));
}

/* Caches have memory for the tokens that came, in pages, not for max_len. */
static void memory(void)
{
    static const struct {
        ph_dtype type;
        size_t bytes; /* of 32 elements */
    } types[] = {
        {PH_F32, 128}, {PH_BF16, 64}, {PH_F16, 64}, {PH_Q8_0, 34}, {PH_Q4_0, 18}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        ph_config c = {.positions = PH_POS_ROPE, .model_dim = 64, .heads = 2};
        ph_model *m = make_model(c);
        ph_decoder *d;
        ph_decoder_shape shape = {.texts = 5, .kv_dtype = types[i].type};
        size_t page =
            2 * 2 * PH_PAGE_TOKENS * 2 * types[i].bytes; /* layers, k v, heads */
        CHECK(ph_decoder_create(&d, m, &shape) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_decoder_bytes(d) == 0, "%zu bytes before a token", ph_decoder_bytes(d));
        feed_one(d, 5, 2, 5);
        CHECK(ph_decoder_bytes(d) == page, "%zu bytes, expected a page of %zu",
              ph_decoder_bytes(d), page);
        feed_one(d, 5, 2, PH_PAGE_TOKENS - 5);
        CHECK(ph_decoder_bytes(d) == page, "%zu bytes", ph_decoder_bytes(d));
        feed_one(d, 5, 2, 1);
        feed_one(d, 5, 4, 1);
        CHECK(ph_decoder_bytes(d) == 4 * page, "%zu bytes, expected 4 pages of %zu",
              ph_decoder_bytes(d), page);
        ph_decoder_end(d, 2);
        feed_one(d, 5, 0, 2 * PH_PAGE_TOKENS + 1);
        CHECK(ph_decoder_bytes(d) == 4 * page, "pages of a text that ended are not used");
        ph_decoder_free(d);
        ph_model_free(m);
    }
}

/* Beams share what they have in common: only the page that each writes to is its own. */
static void beams_share(void)
{
    enum { BEAMS = 5 };
    static const int from[BEAMS] = {1, 1, 1, 1, 1};
    ph_config c = {.arch = PH_ARCH_ENCODER_DECODER, .positions = PH_POS_ROPE};
    ph_model *m = make_model(c);
    ph_decoder *d;
    int32_t tokens[BEAMS * LONG], offsets[BEAMS + 1];
    const int32_t source[] = {0, 3};
    ph_decoder_shape shape = {.texts = BEAMS, .source_len = 3, .one_source = 1};
    CHECK(ph_decoder_create(&d, m, &shape) == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < BEAMS * LONG; i++) tokens[i] = i % VOCAB;
    CHECK(ph_decoder_read(d, &(ph_batch){.source = tokens, .source_offsets = source}) ==
              PH_OK,
          "%s", ph_error(ctx));
    size_t before = ph_decoder_bytes(d); /* keys of the source */
    for (int i = 0; i <= BEAMS; i++) offsets[i] = i >= 2 ? 200 : 0;
    CHECK(ph_decoder_feed(d, tokens, offsets) == PH_OK, "%s", ph_error(ctx));
    size_t two = ph_decoder_bytes(d) - before;
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i <= BEAMS; i++) offsets[i] = i;
        CHECK(ph_decoder_reorder(d, from) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_decoder_feed(d, tokens + step, offsets) == PH_OK, "%s", ph_error(ctx));
    }
    CHECK(ph_decoder_bytes(d) - before <= (1 + 2 * BEAMS) * two / 2,
          "%d beams of 220 tokens take %zu bytes, one of 200 takes %zu", BEAMS,
          ph_decoder_bytes(d) - before, two);
    ph_decoder_free(d);
    ph_model_free(m);
}

/* ---- text -------------------------------------------------------------------------- */

typedef struct pieces {
    char text[3][4 * LONG];
    int count;
} pieces;

static void collect(void *user, int text, const char *piece)
{
    pieces *p = user;
    p->count++;
    strcat(p->text[text], piece);
}

/* A model of letters: stop texts are letters it generates. */
static ph_model *letters_model(void)
{
    static const char *const letters[] = {"a", "b", "c", "d", "e"};
    ph_config c = {.arch = PH_ARCH_DECODER, .layers = 1, .model_dim = 8, .heads = 1};
    ph_model *m;
    c.max_len = 64, c.ff_dim = 8;
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_CHARS, letters, 5, 2) == PH_OK, "%s",
          ph_error(ctx));
    for (size_t i = 0; i < m->floats; i++) m->block[i] *= 2;
    return m;
}

static void stop_texts(void)
{
    static const char *const texts[] = {"ab", "cde", "b"};
    ph_model *m = letters_model();
    ph_prompt all[3];
    char out[3][4 * LONG];
    ph_generation how = {.temperature = 2, .seed = 4};
    for (int i = 0; i < 3; i++)
        all[i] = (ph_prompt){.text = texts[i], .out = out[i], .size = sizeof out[i]};
    CHECK(ph_generate_batch(m, all, 3, &how) == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < 3; i++) {
        char alone[4 * LONG], stop[4] = "", expected[4 * LONG], cut[4 * LONG];
        int length = 0;
        ph_generation one = how;
        CHECK(ph_generate(m, texts[i], &one, alone, sizeof alone, &length) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(!strcmp(alone, out[i]) && length == all[i].length, "'%s', alone '%s'",
              out[i], alone);
        CHECK(length > 12, "the text is too short to be cut");
        /* a stop text that the model generates in the middle, and one it never does */
        memcpy(stop, alone + 9, 3);
        const char *const stops[] = {"never", stop};
        strcpy(expected, alone);
        *strstr(expected, stop) = 0;
        pieces seen = {0};
        one.stop = stops, one.stop_count = 2, one.each = collect, one.user = &seen;
        CHECK(ph_generate(m, texts[i], &one, cut, sizeof cut, NULL) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(!strcmp(cut, expected), "cut to '%s', expected '%s'", cut, expected);
        CHECK(!strcmp(seen.text[0], expected), "pieces are '%s', expected '%s'",
              seen.text[0], expected);
    }
    ph_model_free(m);
}

/* ---- refused ----------------------------------------------------------------------- */

static void refuse(const ph_model *m, ph_generation how, const char *text,
                   ph_status status, const char *sentence)
{
    char out[2][8] = {"left", "left"};
    ph_prompt two[] = {{.text = "ab", .out = out[0], .size = 8},
                       {.text = text, .out = out[1], .size = 8}};
    ph_status found = ph_generate_batch(m, two, 2, &how);
    CHECK(found == status && strstr(ph_error(ctx), sentence),
          "status %d and '%s', expected %d and '%s'", found, ph_error(ctx), status,
          sentence);
    CHECK(!strcmp(out[0], "left") && !strcmp(out[1], "left"), "outputs were written");
}

static void refused(void)
{
    static const char *const empty[] = {""};
    ph_model *m = letters_model();
    char text[80];
    memset(text, 'a', 79), text[79] = 0;
    refuse(m, (ph_generation){0}, "", PH_BAD_SHAPE, "prompt 1: the text has 0 tokens");
    refuse(m, (ph_generation){0}, text, PH_BAD_SHAPE, "prompt 1: the text has 79 tokens");
    refuse(m, (ph_generation){0}, NULL, PH_BAD_ARGUMENT, "prompt 1: text or out is NULL");
    refuse(m, (ph_generation){.kv_dtype = PH_I8}, "b", PH_BAD_ARGUMENT, "kv_dtype is");
    refuse(m, (ph_generation){.kv_dtype = PH_Q4_K}, "b", PH_BAD_ARGUMENT, "(Q4_K)");
    refuse(m, (ph_generation){.batch = -1}, "b", PH_BAD_ARGUMENT, "batch is -1");
    refuse(m, (ph_generation){.stop_count = 1}, "b", PH_BAD_ARGUMENT, "stop_count is 1");
    refuse(m, (ph_generation){.stop = empty, .stop_count = 1}, "b", PH_BAD_ARGUMENT,
           "stop text 0 is empty");
    refuse(m, (ph_generation){.reserved = {1}}, "b", PH_BAD_ARGUMENT, "ph_generation");
    refuse(m, (ph_generation){.kv_dtype = PH_Q8_0}, "b", PH_BAD_SHAPE, "32");
    CHECK(ph_generate_batch(m, NULL, 1, NULL) == PH_BAD_ARGUMENT, "NULL was taken");
    CHECK(ph_generate_batch(m, &(ph_prompt){.text = "a", .reserved = {1}}, 1, NULL) ==
              PH_BAD_ARGUMENT,
          "a field of a later version was taken");
    CHECK(ph_generate_batch(m, NULL, 0, NULL) == PH_OK, "%s", ph_error(ctx));
    ph_model_free(m);
    m = make_model(kinds[4]);
    ph_decoder *d;
    ph_decoder_shape shape = {.texts = 1, .kv_dtype = PH_BF16};
    CHECK(ph_decoder_create(&d, m, &shape) == PH_UNSUPPORTED, "mla has a cache of BF16");
    CHECK(strstr(ph_error(ctx), "kv_dtype is BF16, but variant mla"), "%s",
          ph_error(ctx));
    ph_model_free(m);
}

/* Pages run out where the capacity ends; nothing changes then. */
static void exhausted(void)
{
    ph_model *m = make_model(kinds[0]);
    ph_decoder *d;
    ph_decoder_shape shape = {.texts = 2, .capacity = 40};
    static const int32_t tokens[64];
    const int32_t fits[] = {0, 40, 41}, over[] = {0, 0, 40}, last[] = {0, 0, 39};
    CHECK(ph_decoder_create(&d, m, &shape) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_decoder_feed(d, tokens, fits) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_decoder_feed(d, tokens, over) == PH_BAD_SHAPE, "41 tokens were taken");
    CHECK(strstr(ph_error(ctx), "the text reaches 41 tokens, expected at most 40"), "%s",
          ph_error(ctx));
    CHECK(ph_decoder_feed(d, tokens, last) == PH_OK, "%s", ph_error(ctx));
    ph_decoder_free(d);
    ph_model_free(m);
}

static const check_case cases[] = {{"same_logits", same_logits},
                                   {"same_tokens", same_tokens},
                                   {"checkpoints", checkpoints},
                                   {"memory", memory},
                                   {"beams_share", beams_share},
                                   {"stop_texts", stop_texts},
                                   {"refused", refused},
                                   {"exhausted", exhausted},
                                   {0, 0}};

int main(int argc, char **argv)
{
    ph_options options = guard_options(NULL, 2);
    if (ph_open(&ctx, &options) != PH_OK) return 1;
    int status = check_main(argc, argv, cases);
    ph_close(ctx);
    return status;
}
