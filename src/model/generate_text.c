/*
 * generate_text.c - text from a model: prompts become tokens, tokens become text, which
 * ends before a stop text and is shown piece by piece.
 */
#include <stdio.h>
#include <string.h>

#include "base/reserved.h"
#include "model/features.h"
#include "model/generate.h"
#include "model/model_text.h"

/* One prompt and its text. */
typedef struct prompt_job {
    ph_text text;
    int number;   /* of the prompt, as the caller counts */
    int held;     /* 1: of a stream, and not done */
    size_t shown; /* bytes of it that `each` has seen */
    int stopped;  /* 1: it ends before a stop text */
} prompt_job;

typedef struct prompts_job {
    const ph_model *m;
    const ph_generation *how;
    ph_prompt *prompts;
    ph_generated *texts;
    prompt_job *jobs;
    int count;
    ph_status status;
} prompts_job;

/* ---- stop texts -------------------------------------------------------------------- */

static size_t longest_stop(const ph_generation *how)
{
    size_t most = 0;
    for (int i = 0; i < how->stop_count; i++) {
        size_t length = strlen(how->stop[i]);
        if (length > most) most = length;
    }
    return most;
}

/* Cuts the text before the first stop text that ends in its last bytes, from `from`. */
static void cut_at_stop(const ph_generation *how, prompt_job *j, size_t from)
{
    size_t back = longest_stop(how), start = from < back ? 0 : from - back;
    const char *first = NULL;
    for (int i = 0; i < how->stop_count; i++) {
        const char *found = strstr(j->text.data + start, how->stop[i]);
        if (found && (!first || found < first)) first = found;
    }
    if (!first) return;
    j->stopped = 1;
    j->text.length = (size_t)(first - j->text.data);
    j->text.data[j->text.length] = 0;
}

/* Bytes at the end that may be the beginning of a stop text. */
static size_t held_back(const ph_generation *how, const ph_text *t)
{
    size_t most = 0;
    for (int i = 0; i < how->stop_count; i++) {
        size_t length = strlen(how->stop[i]) - 1;
        if (length > t->length) length = t->length;
        while (length > most &&
               memcmp(t->data + t->length - length, how->stop[i], length))
            length--;
        if (length > most) most = length;
    }
    return most;
}

/* ---- one token more ---------------------------------------------------------------- */

static void show(const prompts_job *g, int index, int all)
{
    prompt_job *j = &g->jobs[index];
    size_t end = j->text.length - (all ? 0 : held_back(g->how, &j->text));
    if (!g->how->each || end <= j->shown) return;
    char after = j->text.data[end];
    j->text.data[end] = 0;
    g->how->each(g->how->user, j->number, j->text.data + j->shown);
    j->text.data[end] = after;
    j->shown = end;
}

static ph_token_list before(const prompts_job *g, int index)
{
    int continues = g->m->config.arch == PH_ARCH_DECODER;
    const ph_generated *t = &g->texts[index];
    return (ph_token_list){t->prompt, continues ? t->prompt_count : 0};
}

static int add_token(void *user, int index)
{
    prompts_job *g = user;
    const ph_generated *t = &g->texts[index];
    prompt_job *j = &g->jobs[index];
    if (g->status != PH_OK) return 1;
    if (!j->text.model) g->status = ph_text_begin(&j->text, g->m, before(g, index));
    size_t from = j->text.length;
    if (g->status == PH_OK) g->status = ph_text_add(&j->text, t->tokens[t->count - 1]);
    if (g->status != PH_OK) return 1;
    cut_at_stop(g->how, j, from);
    show(g, index, j->stopped);
    return j->stopped;
}

/* ---- results ----------------------------------------------------------------------- */

/* Beams come here with their tokens only. */
static ph_status finish_text(prompts_job *g, int index)
{
    prompt_job *j = &g->jobs[index];
    const ph_generated *t = &g->texts[index];
    if (!j->text.model) PH_TRY(ph_text_begin(&j->text, g->m, before(g, index)));
    for (int i = 0; g->how->beams > 1 && i < t->count; i++)
        PH_TRY(ph_text_add(&j->text, t->tokens[i]));
    size_t from = g->how->beams > 1 ? 0 : j->text.length;
    if (j->stopped) return PH_OK;
    PH_TRY(ph_text_end(&j->text));
    cut_at_stop(g->how, j, from);
    return PH_OK;
}

static void give_text(const prompts_job *g, int index)
{
    ph_prompt *p = &g->prompts[index];
    const ph_text *t = &g->jobs[index].text;
    p->length = (int)t->length;
    p->tokens = g->texts[index].count;
    if (!p->size) return;
    size_t bytes = t->length < p->size ? t->length : p->size - 1;
    memcpy(p->out, t->data, bytes);
    p->out[bytes] = 0;
}

static ph_status run(prompts_job *g)
{
    PH_TRY(ph_generate_all(g->m, g->how, g->texts, g->count, add_token, g));
    PH_TRY(g->status);
    for (int i = 0; i < g->count; i++) PH_TRY(finish_text(g, i));
    for (int i = 0; i < g->count; i++) {
        show(g, i, 1);
        give_text(g, i);
    }
    return PH_OK;
}

/* ---- prompts ----------------------------------------------------------------------- */

/* The tokens of a prompt; a message for a chat model gets its template around it. */
static ph_status split(const prompts_job *g, const char *text, ph_word *words, int *count)
{
    const ph_model *m = g->m;
    char *prompt;
    int most = ph_config_source_len(&m->config);
    if (!g->how->chat)
        return ph_tokens_split(m, text, PH_TOKENS_SOURCE, words, most, count);
    PH_TRY(ph_chat_wrap(m, text, g->how->system, &prompt));
    ph_status status = ph_tokens_split(m, prompt, PH_TOKENS_BARE, words, most, count);
    ph_ctx_release(m->ctx, prompt);
    return status;
}

/* Splits a prompt into tokens. One that is continued leaves a position free. */
static ph_status take_prompt(const prompts_job *g, int index, ph_word *words,
                             ph_generated *t)
{
    const ph_model *m = g->m;
    int both = m->config.arch == PH_ARCH_ENCODER_DECODER, count;
    int longest = both ? ph_config_source_len(&m->config) : m->config.max_len - 1;
    PH_TRY(split(g, g->prompts[index].text, words, &count));
    if (count < 1 || count > longest)
        return ph_fail(m->ctx, PH_BAD_SHAPE, "the text has %d tokens, expected 1 to %d",
                       count, longest);
    int32_t *prompt = ph_ctx_alloc(m->ctx, (size_t)count * sizeof *prompt);
    if (!prompt) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a prompt");
    for (int i = 0; i < count; i++) prompt[i] = words[i].token;
    t->prompt = prompt, t->prompt_count = count;
    return PH_OK;
}

/* How many tokens a text gets: as the call says, or else the checkpoint. */
static ph_status find_limit(const prompts_job *g, ph_generated *t)
{
    const ph_model *m = g->m;
    int before = m->config.arch == PH_ARCH_ENCODER_DECODER ? 1 : t->prompt_count;
    t->limit = g->how->max_tokens
                   ? ph_min(m->config.max_len - before, g->how->max_tokens)
                   : ph_marks_limit(m, before);
    if (t->limit > 0) return PH_OK;
    if (before >= m->config.max_len)
        return ph_fail(m->ctx, PH_BAD_SHAPE,
                       "max_len is %d, which the start of a text fills: the model "
                       "generates nothing",
                       m->config.max_len);
    return ph_fail(m->ctx, PH_BAD_SHAPE,
                   "the text has %d tokens, and generation_config.json ends it at %d "
                   "(max_length): expected fewer, or a number of new tokens",
                   before, m->marks.max_length);
}

static ph_status read_prompt(const prompts_job *g, int index, ph_word *words)
{
    const ph_model *m = g->m;
    float *features = NULL;
    ph_generated *t = &g->texts[index];
    PH_CHECK_RESERVED(m->ctx, "ph_prompt", g->prompts[index].reserved);
    if (!g->prompts[index].text || (g->prompts[index].size && !g->prompts[index].out))
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "text or out is NULL");
    PH_TRY(m->config.mels ? ph_features_open(m, g->prompts[index].text, NULL, &features,
                                             &t->prompt_count)
                          : take_prompt(g, index, words, t));
    t->features = features;
    t->number = g->prompts[index].number;
    return find_limit(g, t);
}

static ph_status read_prompts(const prompts_job *g)
{
    ph_ctx *ctx = g->m->ctx;
    size_t bytes = (size_t)ph_config_source_len(&g->m->config) * sizeof(ph_word);
    ph_word *words = ph_ctx_alloc(ctx, bytes);
    ph_status status = words ? PH_OK : ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory");
    for (int i = 0; status == PH_OK && i < g->count; i++) {
        char why[256];
        status = read_prompt(g, i, words);
        if (status == PH_OK || g->count == 1) continue;
        snprintf(why, sizeof why, "%s", ph_error(ctx));
        ph_fail(ctx, status, "prompt %d: %s", i, why);
    }
    ph_ctx_release(ctx, words);
    return status;
}

/* ---- the calls --------------------------------------------------------------------- */

static ph_status check_stops(const ph_model *m, const ph_generation *how)
{
    if (how->stop_count < 0 || (how->stop_count && !how->stop))
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "stop_count is %d, expected stop texts",
                       how->stop_count);
    for (int i = 0; i < how->stop_count; i++)
        if (!how->stop[i] || !how->stop[i][0])
            return ph_fail(m->ctx, PH_BAD_ARGUMENT,
                           "stop text %d is empty, expected at least a character", i);
    return PH_OK;
}

static ph_status check(const ph_model *m, const ph_generation *how)
{
    PH_CHECK_RESERVED(m->ctx, "ph_generation", how->reserved);
    PH_TRY(ph_decoder_check(m));
    if (how->beams > 1 && m->config.arch != PH_ARCH_ENCODER_DECODER)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "only an encoder-decoder searches with beams");
    if (how->beams < 0 || how->beams > 256 || how->max_tokens < 0 || how->top_k < 0 ||
        !(how->temperature >= 0) || !(how->top_p >= 0 && how->top_p <= 1))
        return ph_fail(m->ctx, PH_BAD_ARGUMENT,
                       "max_tokens, temperature, top_k, top_p or beams is out of range");
    if (how->batch < 0 || how->batch > 4096)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "batch is %d, expected 0 to 4096",
                       how->batch);
    if ((unsigned)how->kv_dtype > PH_Q4_1)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT,
                       "kv_dtype is %d (%s), expected PH_F32, PH_F16, PH_BF16, PH_Q8_0, "
                       "PH_Q4_0 or PH_Q4_1",
                       (int)how->kv_dtype, ph_dtype_label(how->kv_dtype));
    return check_stops(m, how);
}

static void free_prompt(prompts_job *g, int index)
{
    ph_generated *t = &g->texts[index];
    ph_ctx_release(g->m->ctx, (void *)t->prompt);
    ph_ctx_release(g->m->ctx, (void *)t->features);
    ph_ctx_release(g->m->ctx, t->tokens);
    ph_text_free(&g->jobs[index].text);
    *t = (ph_generated){0};
    g->jobs[index] = (prompt_job){0};
}

static void free_job(prompts_job *g)
{
    for (int i = 0; g->texts && g->jobs && i < g->count; i++) free_prompt(g, i);
    ph_ctx_release(g->m->ctx, g->texts);
    ph_ctx_release(g->m->ctx, g->jobs);
}

/* Memory for count prompts at a time. */
static ph_status open_job(prompts_job *g)
{
    ph_ctx *ctx = g->m->ctx;
    size_t texts = (size_t)g->count * sizeof *g->texts;
    size_t jobs = (size_t)g->count * sizeof *g->jobs;
    g->texts = ph_ctx_alloc(ctx, texts);
    g->jobs = ph_ctx_alloc(ctx, jobs);
    if (g->texts) memset(g->texts, 0, texts);
    if (g->jobs) memset(g->jobs, 0, jobs);
    if (g->texts && g->jobs) return PH_OK;
    return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for %d prompts", g->count);
}

static ph_status generate(const ph_model *m, ph_prompt *prompts, int count,
                          const ph_generation *how)
{
    const ph_generation greedy = {0};
    if (count < 0 || (count && !prompts))
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "prompts is NULL or count %d", count);
    if (!how) how = &greedy;
    PH_TRY(check(m, how));
    for (int i = 0; i < count; i++)
        PH_CHECK_RESERVED(m->ctx, "ph_prompt", prompts[i].reserved);
    if (!count) return PH_OK;
    prompts_job g = {.m = m, .how = how, .prompts = prompts, .count = count};
    ph_status status = open_job(&g);
    for (int i = 0; status == PH_OK && i < count; i++) g.jobs[i].number = i;
    if (status == PH_OK) status = read_prompts(&g);
    if (status == PH_OK) status = run(&g);
    free_job(&g);
    return status;
}

ph_status ph_generate_batch(const ph_model *m, ph_prompt *prompts, int count,
                            const ph_generation *how)
{
    if (!m) return PH_BAD_ARGUMENT;
    return PH_WITHIN(m->ctx, generate(m, prompts, count, how));
}

/* ---- a stream ---------------------------------------------------------------------- */

typedef struct stream_job {
    prompts_job prompts;
    const ph_prompt_stream *from;
    ph_word *words; /* of the prompt that is read */
    int64_t came;   /* prompts so far */
} stream_job;

static void end_prompt(stream_job *s, int index, ph_status status)
{
    prompts_job *g = &s->prompts;
    s->from->done(s->from->user, g->jobs[index].number, &g->prompts[index], status);
    free_prompt(g, index);
}

static int next_prompt(void *user, int wait)
{
    stream_job *s = user;
    prompts_job *g = &s->prompts;
    while (g->status == PH_OK) {
        int index = 0;
        while (g->jobs[index].held) index++; /* there are two more than are decoded */
        g->prompts[index] = (ph_prompt){0};
        int got = s->from->next(s->from->user, &g->prompts[index], wait);
        if (got < 0 || (!got && wait)) return PH_TEXTS_END;
        if (!got) return PH_TEXTS_LATER;
        g->jobs[index].held = 1, g->jobs[index].number = (int)(s->came++ & INT32_MAX);
        ph_status status = read_prompt(g, index, s->words);
        if (status == PH_OK) return index;
        end_prompt(s, index, status);
    }
    return PH_TEXTS_END;
}

static int add_to_prompt(void *user, int index)
{
    return add_token(&((stream_job *)user)->prompts, index);
}

/* What failed before leaves texts in pieces: nothing is said of them. */
static void finish_prompt(void *user, int index)
{
    stream_job *s = user;
    if (s->prompts.status != PH_OK) return;
    ph_status status = finish_text(&s->prompts, index);
    if (status == PH_OK) {
        show(&s->prompts, index, 1);
        give_text(&s->prompts, index);
    }
    end_prompt(s, index, status);
}

static ph_status run_stream(stream_job *s)
{
    prompts_job *g = &s->prompts;
    const ph_generated_source source = {next_prompt, add_to_prompt, finish_prompt, s};
    PH_TRY(open_job(g));
    PH_TRY(ph_generate_source(g->m, g->how, g->texts, &source));
    return g->status;
}

static ph_status generate_stream(const ph_model *m, const ph_prompt_stream *stream,
                                 const ph_generation *how)
{
    const ph_generation greedy = {0};
    ph_ctx *ctx = m->ctx;
    if (!stream || !stream->next || !stream->done)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "stream, next or done is NULL");
    PH_CHECK_RESERVED(ctx, "ph_prompt_stream", stream->reserved);
    if (!how) how = &greedy;
    PH_TRY(check(m, how));
    stream_job s = {.prompts = {.m = m, .how = how}, .from = stream};
    prompts_job *g = &s.prompts;
    g->count = ph_generation_batch(how) + 2;
    g->prompts = ph_ctx_alloc(ctx, (size_t)g->count * sizeof *g->prompts);
    s.words =
        ph_ctx_alloc(ctx, (size_t)ph_config_source_len(&m->config) * sizeof *s.words);
    ph_status status = g->prompts && s.words
                           ? run_stream(&s)
                           : ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for prompts");
    free_job(g);
    ph_ctx_release(ctx, s.words);
    ph_ctx_release(ctx, g->prompts);
    return status;
}

ph_status ph_generate_stream(const ph_model *m, const ph_prompt_stream *stream,
                             const ph_generation *how)
{
    if (!m) return PH_BAD_ARGUMENT;
    return PH_WITHIN(m->ctx, generate_stream(m, stream, how));
}

ph_status ph_generate(const ph_model *m, const char *text, const ph_generation *how,
                      char *out, size_t size, int *length)
{
    ph_prompt prompt = {.text = text, .out = out, .size = size};
    ph_status status = ph_generate_batch(m, &prompt, 1, how);
    if (status == PH_OK && length) *length = prompt.length;
    return status;
}
