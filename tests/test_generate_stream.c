/*
 * test_generate_stream.c - prompts that come one by one get the texts they get alone,
 * whenever they come and whatever is decoded beside them.
 */
#include "check.h"
#include "polyhead_model.h"

enum { PROMPTS = 60, TEXT = 512 };

static ph_ctx *ctx;

/* What comes when, and what became of it. */
typedef struct feed {
    char text[PROMPTS][160];
    int count, next, early;    /* early: comes at once, however many are waited for */
    uint64_t random;
    int done[PROMPTS], inside, most; /* prompts that are not done; the most there were */
    ph_status status[PROMPTS];
    char out[PROMPTS][TEXT], pieces[PROMPTS][TEXT], why[PROMPTS][160];
} feed;

static int next(void *user, ph_prompt *prompt, int wait)
{
    feed *f = user;
    CHECK(!wait || f->inside == 0, "it waits with %d prompts inside", f->inside);
    if (f->next == f->count) return -1;
    if (!wait && !f->early && check_random(&f->random) % 3) return 0;
    *prompt = (ph_prompt){.text = f->text[f->next],
                          .number = (uint64_t)f->next,
                          .out = f->out[f->next],
                          .size = TEXT};
    f->next++, f->inside++;
    if (f->inside > f->most) f->most = f->inside;
    return 1;
}

static void done(void *user, int text, const ph_prompt *prompt, ph_status status)
{
    feed *f = user;
    CHECK(!f->done[text], "prompt %d is done twice", text);
    CHECK(prompt->number == (uint64_t)text, "prompt %d has another number", text);
    f->done[text] = 1, f->inside--, f->status[text] = status;
    if (status != PH_OK) snprintf(f->why[text], 160, "%s", ph_error(ctx));
}

static void add_piece(void *user, int text, const char *piece)
{
    feed *f = user;
    CHECK(!f->done[text], "a piece of prompt %d, which is done", text);
    strcat(f->pieces[text], piece);
}

/* A model of letters. */
static ph_model *make_model(ph_config c)
{
    static const char *const letters[] = {"a", "b", "c", "d", "e"};
    ph_model *m;
    size_t floats;
    c.layers = 1, c.model_dim = 16, c.heads = 2, c.ff_dim = 16, c.max_len = 128;
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_CHARS, letters, 5, 2) == PH_OK, "%s",
          ph_error(ctx));
    float *block = ph_model_block(m, &floats);
    for (size_t i = 0; i < floats; i++) block[i] *= 2;
    return m;
}

/* Long ones among short ones; empty ones and those that are too long are refused. */
static void draw(feed *f, int count)
{
    f->count = count;
    for (int i = 0; i < count; i++) {
        int length = 1 + (int)(check_random(&f->random) % (i % 5 ? 8 : 110));
        if (i % 11 == 7) length = i % 2 ? 0 : 150;
        for (int k = 0; k < length; k++)
            f->text[i][k] = (char)('a' + check_random(&f->random) % 5);
    }
}

static void check_alone(const ph_model *m, const feed *f, const ph_generation *given)
{
    char alone[TEXT];
    ph_generation how = *given;
    how.each = NULL;
    for (int i = 0; i < f->count; i++) {
        ph_prompt one = {
            .text = f->text[i], .number = (uint64_t)i, .out = alone, .size = TEXT};
        ph_status status = ph_generate_batch(m, &one, 1, &how);
        CHECK(f->done[i], "prompt %d is not done", i);
        CHECK(f->status[i] == status, "prompt %d has status %d, alone %d", i,
              (int)f->status[i], (int)status);
        CHECK(status == PH_OK || !strcmp(f->why[i], ph_error(ctx)),
              "prompt %d is refused with: %s", i, f->why[i]);
        CHECK(status != PH_OK || !strcmp(f->out[i], alone),
              "prompt %d gives '%s', alone '%s'", i, f->out[i], alone);
        CHECK(status != PH_OK || !strcmp(f->pieces[i], alone),
              "prompt %d is shown as '%s', it is '%s'", i, f->pieces[i], alone);
    }
}

static void check_stream(const ph_config *c, ph_generation how, int early)
{
    static feed f;
    ph_model *m = make_model(*c);
    memset(&f, 0, sizeof f);
    f.random = check_seed, f.early = early;
    draw(&f, how.beams > 1 ? 8 : PROMPTS);
    how.max_tokens = 9, how.each = add_piece, how.user = &f;
    const ph_prompt_stream stream = {.next = next, .done = done, .user = &f};
    CHECK(ph_generate_stream(m, &stream, &how) == PH_OK, "%s", ph_error(ctx));
    int batch = how.batch ? how.batch : 16;
    CHECK(f.most <= batch + 2, "%d prompts are inside, batch is %d", f.most, batch);
    CHECK(!early || how.beams > 1 || c->cross[0] || f.most >= batch,
          "%d prompts are inside, batch is %d", f.most, batch);
    check_alone(m, &f, &how);
    ph_model_free(m);
}

static void as_alone(void)
{
    static const ph_config models[] = {
        {.arch = PH_ARCH_DECODER},
        {.arch = PH_ARCH_DECODER, .variant = "dcmha", .positions = PH_POS_ROPE},
        {.arch = PH_ARCH_ENCODER_DECODER},
        {.arch = PH_ARCH_ENCODER_DECODER, .cross = "merged"}};
    CHECK(ph_open(&ctx, &(ph_options){.threads = 2}) == PH_OK, "ph_open failed");
    for (int n = 0; n < 4; n++)
        for (int early = 0; early < 2; early++) {
            check_stream(&models[n], (ph_generation){0}, early);
            check_stream(&models[n], (ph_generation){.batch = 1}, early);
            check_stream(
                &models[n],
                (ph_generation){.batch = 3, .temperature = 1.5f, .top_k = 4, .seed = 3},
                early);
        }
    check_stream(&models[2], (ph_generation){.beams = 3}, 0);
    check_stream(&models[0], (ph_generation){.batch = 40}, 1);
    ph_close(ctx);
}

static void refused(void)
{
    static feed f;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    ph_model *m = make_model((ph_config){.arch = PH_ARCH_DECODER});
    ph_prompt_stream stream = {.next = next, .done = done, .user = &f};
    CHECK(ph_generate_stream(m, &stream, NULL) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_generate_stream(m, NULL, NULL) == PH_BAD_ARGUMENT, "NULL was taken");
    CHECK(ph_generate_stream(NULL, &stream, NULL) == PH_BAD_ARGUMENT, "NULL was taken");
    stream.reserved[1] = 1;
    CHECK(ph_generate_stream(m, &stream, NULL) == PH_BAD_ARGUMENT,
          "reserved words were taken");
    stream.reserved[1] = 0, stream.done = NULL;
    CHECK(ph_generate_stream(m, &stream, NULL) == PH_BAD_ARGUMENT, "no done was taken");
    ph_model_free(m);
    ph_close(ctx);
}

static const check_case cases[] = {{"as_alone", as_alone}, {"refused", refused}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
