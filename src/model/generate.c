/*
 * generate.c - text from a model: greedy, sampled, or by beam search.
 *
 * Sampling: probabilities at a temperature, cut to the likeliest tokens (top_k, top_p),
 * one number of the counter generator per token. Beam search: the score of a hypothesis
 * is its log-probability per token, an end mark included; one that reaches the length
 * limit counts unfinished. The search ends when no live hypothesis can beat the best
 * finished one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/generate.h"
#include "model/model_text.h"

/* ---- choosing a token -------------------------------------------------------------- */

typedef struct candidate {
    double p;
    int token;
} candidate;

/* Likeliest first; ties by token, so that the order is always the same. */
static int by_probability(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return x->token - y->token;
}

/* The first of the likeliest tokens. */
static int argmax(const ph_model *m, const float *logits)
{
    int best = -1;
    for (int v = 0; v < m->config.vocab; v++)
        if (ph_is_generated(m, v) && (best < 0 || logits[v] > logits[best])) best = v;
    return best;
}

/* How many of the sorted candidates top_k and top_p leave. */
static int cut(const candidate *list, int count, const ph_generation *how)
{
    double sum = 0;
    int left = how->top_k > 0 ? ph_min(how->top_k, count) : count;
    for (int i = 0; how->top_p > 0 && i < left; i++)
        if ((sum += list[i].p) >= (double)how->top_p) left = i + 1;
    return left;
}

static int sample(const ph_model *m, const float *logits, const ph_generation *how,
                  candidate *list, int position)
{
    double max = logits[argmax(m, logits)], sum = 0, left_sum = 0;
    int count = 0;
    for (int v = 0; v < m->config.vocab; v++) {
        if (!ph_is_generated(m, v)) continue;
        list[count] = (candidate){exp((logits[v] - max) / how->temperature), v};
        sum += list[count++].p;
    }
    for (int i = 0; i < count; i++) list[i].p /= sum;
    qsort(list, (size_t)count, sizeof *list, by_probability);
    int left = cut(list, count, how);
    for (int i = 0; i < left; i++) left_sum += list[i].p;
    uint64_t key = ph_rng_key(how->seed, 9, (uint64_t)position, how->text_number);
    double target = (ph_rng_at(key, 0) + 0.5) / 4294967296.0 * left_sum;
    for (int i = 0; i < left; i++)
        if ((target -= list[i].p) <= 0) return list[i].token;
    return list[left - 1].token;
}

/* ---- one token after the other ----------------------------------------------------- */

typedef struct generate_task {
    const ph_model *m;
    const ph_generation *how;
    const int32_t *prompt;
    int prompt_count;
    int32_t *out;
    int limit, count;      /* tokens of out: at most, so far */
    candidate *candidates; /* (vocab) */
} generate_task;

/* Tokens that the decoder sees: the prompt, or a start mark, and what it generates. */
static int capacity_of(const generate_task *t)
{
    int both = t->m->config.arch == PH_ARCH_ENCODER_DECODER;
    return t->limit + (both ? 1 : t->prompt_count);
}

static ph_status run_single(generate_task *t)
{
    int both = t->m->config.arch == PH_ARCH_ENCODER_DECODER;
    int32_t token = t->m->marks.start;
    const float *logits = NULL;
    ph_decoder *d;
    PH_TRY(ph_decoder_create(&d, t->m, 1, capacity_of(t), t->prompt, t->prompt_count));
    ph_status status = both ? ph_decoder_feed(d, &token, 1, &logits)
                            : ph_decoder_feed(d, t->prompt, t->prompt_count, &logits);
    while (status == PH_OK && t->count < t->limit) {
        token = t->how->temperature > 0
                    ? sample(t->m, logits, t->how, t->candidates, t->count)
                    : argmax(t->m, logits);
        if (ph_is_end(t->m, token)) break;
        t->out[t->count++] = token;
        if (t->how->each) t->how->each(t->how->user, token);
        if (t->count < t->limit) status = ph_decoder_feed(d, &token, 1, &logits);
    }
    ph_decoder_free(d);
    return status;
}

/* ---- beam search ------------------------------------------------------------------- */

typedef struct hypothesis {
    double score;    /* sum of log-probabilities; -inf: not in use */
    int from;        /* slot of the text it continues */
    int token, slot; /* its last token; where its text and its caches are */
} hypothesis;

typedef struct search {
    generate_task *t;
    ph_decoder *decoder;
    int beams;
    hypothesis *live, *next; /* (beams) best first */
    int32_t *texts;          /* (beams, limit) by slot */
    int *from;               /* (beams) the slot whose text each slot continues */
    int32_t *tokens;         /* (beams) last token, by slot */
    double best;             /* score per token of the best finished text */
} search;

static int32_t *text_of(const search *s, int slot)
{
    return s->texts + (size_t)slot * (size_t)s->t->limit;
}

static double log_sum_exp(const float *logits, int vocab)
{
    double max = logits[0], sum = 0;
    for (int v = 1; v < vocab; v++) max = logits[v] > max ? logits[v] : max;
    for (int v = 0; v < vocab; v++) sum += exp(logits[v] - max);
    return max + log(sum);
}

/* A text of `length` tokens is finished; its score per token decides. */
static void finish(search *s, int slot, int length, double score_per_token)
{
    if (score_per_token <= s->best) return;
    s->best = score_per_token;
    s->t->count = length;
    memcpy(s->t->out, text_of(s, slot), (size_t)length * sizeof(int32_t));
}

/* Keeps the list of the best continuations sorted. */
static void insert(search *s, hypothesis h)
{
    int at = s->beams - 1;
    if (h.score <= s->next[at].score) return;
    for (; at > 0 && s->next[at - 1].score < h.score; at--) s->next[at] = s->next[at - 1];
    s->next[at] = h;
}

/* The best continuation of a text keeps its slot, the others take those of texts that
   nothing continues: so few caches are copied. */
static void assign_slots(search *s, int length)
{
    int unused = 0;
    for (int i = 0; i < s->beams; i++) s->from[i] = -1;
    for (int b = 0; b < s->beams; b++) {
        hypothesis *h = &s->next[b];
        h->slot = s->from[h->from] < 0 ? h->from : -1;
        if (h->slot >= 0) s->from[h->slot] = h->from;
    }
    for (int b = 0; b < s->beams; b++) {
        hypothesis *h = &s->next[b];
        if (h->slot < 0) {
            while (s->from[unused] >= 0) unused++;
            h->slot = unused, s->from[unused] = h->from;
            memcpy(text_of(s, unused), text_of(s, h->from),
                   (size_t)length * sizeof(int32_t));
        }
        text_of(s, h->slot)[length] = s->tokens[h->slot] = h->token;
    }
}

/* One token more for every live hypothesis of `length` tokens. */
static void advance(search *s, const float *logits, int length)
{
    int vocab = s->t->m->config.vocab;
    for (int b = 0; b < s->beams; b++) s->next[b] = (hypothesis){.score = -INFINITY};
    for (int b = 0; b < s->beams && s->live[b].score > -INFINITY; b++) {
        const hypothesis *h = &s->live[b];
        const float *row = logits + (size_t)h->slot * (size_t)vocab;
        double base = h->score - log_sum_exp(row, vocab);
        for (int v = 0; v < vocab; v++) {
            if (ph_is_end(s->t->m, v))
                finish(s, h->slot, length, (base + row[v]) / (length + 1));
            else if (ph_is_generated(s->t->m, v))
                insert(s, (hypothesis){base + row[v], h->slot, v, 0});
        }
    }
    assign_slots(s, length);
    hypothesis *list = s->live;
    s->live = s->next, s->next = list;
}

/* Each token lowers the sum of a hypothesis, but the score per token gains by a larger
   count: at best the text grows to the limit with tokens that are certain. */
static int can_improve(const search *s)
{
    return s->live[0].score / s->t->limit > s->best;
}

static ph_status search_loop(search *s)
{
    const float *logits = NULL;
    int length = 0, limit = s->t->limit;
    s->best = -INFINITY;
    for (int b = 0; b < s->beams; b++) {
        s->live[b] = (hypothesis){.score = b ? -INFINITY : 0, .slot = b};
        s->tokens[b] = s->t->m->marks.start;
    }
    while (length < limit && can_improve(s)) {
        if (length) PH_TRY(ph_decoder_reorder(s->decoder, s->from));
        PH_TRY(ph_decoder_feed(s->decoder, s->tokens, 1, &logits));
        advance(s, logits, length++);
    }
    if (length == limit) finish(s, s->live[0].slot, length, s->live[0].score / length);
    return PH_OK;
}

static ph_status run_search(generate_task *t)
{
    search s = {.t = t, .beams = t->how->beams};
    size_t beams = (size_t)s.beams, limit = (size_t)t->limit;
    void *memory = NULL;
    size_t bytes = 0;
    for (int pass = 0; pass < 2; pass++) {
        ph_arena arena = ph_arena_of(memory, bytes);
        s.live = ph_arena_take(&arena, beams * sizeof *s.live);
        s.next = ph_arena_take(&arena, beams * sizeof *s.next);
        s.texts = ph_arena_take(&arena, beams * limit * sizeof(int32_t));
        s.from = ph_arena_take(&arena, beams * sizeof *s.from);
        s.tokens = ph_arena_take(&arena, beams * sizeof *s.tokens);
        bytes = arena.used;
        if (pass == 0) memory = ph_ctx_alloc(t->m->ctx, bytes);
        if (!memory)
            return ph_fail(t->m->ctx, PH_OUT_OF_MEMORY, "no memory for a beam search");
    }
    ph_status status = ph_decoder_create(&s.decoder, t->m, s.beams, capacity_of(t),
                                         t->prompt, t->prompt_count);
    if (status == PH_OK) status = search_loop(&s);
    ph_decoder_free(s.decoder);
    ph_ctx_release(t->m->ctx, memory);
    return status;
}

ph_status ph_generate_tokens(const ph_model *m, const ph_generation *how,
                             const int32_t *prompt, int prompt_count, int32_t *out,
                             int limit, int *count)
{
    generate_task t = {
        .m = m, .how = how, .prompt = prompt, .prompt_count = prompt_count};
    t.out = out, t.limit = limit;
    if (how->temperature > 0) {
        t.candidates =
            ph_ctx_alloc(m->ctx, (size_t)m->config.vocab * sizeof *t.candidates);
        if (!t.candidates)
            return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for sampling");
    }
    ph_status status = how->beams > 1 ? run_search(&t) : run_single(&t);
    ph_ctx_release(m->ctx, t.candidates);
    *count = t.count;
    return status;
}

/* ---- the call ---------------------------------------------------------------------- */

static ph_status check(const ph_model *m, const ph_generation *how)
{
    if (m->output < 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "an encoder generates no text");
    if (how->beams > 1 && m->config.arch != PH_ARCH_ENCODER_DECODER)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "only an encoder-decoder searches with beams");
    if (how->beams < 0 || how->beams > 256 || how->max_tokens < 0 || how->top_k < 0 ||
        !(how->temperature >= 0) || !(how->top_p >= 0 && how->top_p <= 1))
        return ph_fail(m->ctx, PH_BAD_ARGUMENT,
                       "max_tokens, temperature, top_k, top_p or beams is out of range");
    return PH_OK;
}

/* Splits the text into tokens. A prompt that is continued leaves a position free. */
static ph_status read_prompt(const ph_model *m, const char *text, ph_word *words,
                             int32_t *prompt, int *count)
{
    int max_len = m->config.max_len, both = m->config.arch == PH_ARCH_ENCODER_DECODER;
    int longest = both ? max_len : max_len - 1;
    PH_TRY(ph_model_split(m, text, words, max_len, count));
    if (*count < 1 || *count > longest)
        return ph_fail(m->ctx, PH_BAD_SHAPE, "the text has %d tokens, expected 1 to %d",
                       *count, longest);
    for (int i = 0; i < *count; i++) prompt[i] = words[i].token;
    return PH_OK;
}

static ph_status run(const ph_model *m, const char *text, const ph_generation *how,
                     char *out, size_t size, int *length, ph_workspace memory)
{
    int max_len = m->config.max_len, both = m->config.arch == PH_ARCH_ENCODER_DECODER,
        prompt_count;
    int count;
    ph_arena arena = ph_arena_of(memory.data, memory.size);
    ph_word *words = ph_arena_take(&arena, (size_t)max_len * sizeof *words);
    int32_t *prompt = ph_arena_take(&arena, (size_t)max_len * sizeof *prompt);
    int32_t *tokens = ph_arena_take(&arena, (size_t)max_len * sizeof *tokens);
    PH_TRY(read_prompt(m, text, words, prompt, &prompt_count));
    int limit = both ? max_len - 1 : max_len - prompt_count;
    if (how->max_tokens) limit = ph_min(limit, how->max_tokens);
    PH_TRY(ph_generate_tokens(m, how, prompt, prompt_count, tokens, limit, &count));
    ph_token_list before = {prompt, both ? 0 : prompt_count};
    return ph_tokens_print(m, before, (ph_token_list){tokens, count}, out, size, length);
}

static ph_status generate(const ph_model *m, const char *text, const ph_generation *how,
                          char *out, size_t size, int *length)
{
    const ph_generation greedy = {0};
    if (!text || (!out && size))
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "text or out is NULL");
    if (!how) how = &greedy;
    PH_TRY(check(m, how));
    size_t max_len = (size_t)m->config.max_len;
    size_t bytes = max_len * (sizeof(ph_word) + 2 * sizeof(int32_t)) + 3 * PH_ALIGN;
    ph_workspace memory = {ph_ctx_alloc(m->ctx, bytes), bytes};
    if (!memory.data) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory to generate");
    ph_status status = run(m, text, how, out, size, length, memory);
    ph_ctx_release(m->ctx, memory.data);
    return status;
}

ph_status ph_generate(const ph_model *m, const char *text, const ph_generation *how,
                      char *out, size_t size, int *length)
{
    if (!m) return PH_BAD_ARGUMENT;
    return PH_WITHIN(m->ctx, generate(m, text, how, out, size, length));
}
