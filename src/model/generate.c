/*
 * generate.c - text from a model: the likeliest token, a random one, or a search.
 *
 * Random choice: probabilities at a temperature, cut to the likeliest (top_k, top_p), one
 * number of the counter generator per token. Search keeps `beams` texts, and ends when no
 * text that goes on can beat the best one that has ended; scores are log-probabilities
 * per token.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/generate.h"

/* ---- choosing a token -------------------------------------------------------------- */

typedef struct chance {
    double p;
    int token;
} chance;

/* Likeliest first; equal ones by token, so that the order is always the same. */
static int likelier(const void *a, const void *b)
{
    const chance *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return x->token - y->token;
}

static int best_token(const float *logits, int vocab)
{
    int best = PH_TOKEN_END;
    for (int v = 0; v < vocab; v++)
        if (v != PH_TOKEN_PAD && v != PH_TOKEN_START && logits[v] > logits[best])
            best = v;
    return best;
}

/* How many of the sorted chances may be chosen. */
static int cut(const chance *list, int count, const ph_generation *how)
{
    double sum = 0;
    int kept = how->top_k > 0 ? ph_min(how->top_k, count) : count;
    for (int i = 0; how->top_p > 0 && i < kept; i++)
        if ((sum += list[i].p) >= how->top_p) kept = i + 1;
    return kept;
}

static int random_token(const float *logits, int vocab, const ph_generation *how,
                        chance *list, int at)
{
    double top = logits[best_token(logits, vocab)], sum = 0, kept_sum = 0;
    int count = 0;
    for (int v = 0; v < vocab; v++) {
        if (v == PH_TOKEN_PAD || v == PH_TOKEN_START) continue;
        list[count] = (chance){exp((logits[v] - top) / how->temperature), v};
        sum += list[count++].p;
    }
    for (int i = 0; i < count; i++) list[i].p /= sum;
    qsort(list, (size_t)count, sizeof *list, likelier);
    int kept = cut(list, count, how);
    for (int i = 0; i < kept; i++) kept_sum += list[i].p;
    uint64_t key = ph_rng_key(how->seed, 9, (uint64_t)at, 0);
    double mark = (ph_rng_at(key, 0) + 0.5) / 4294967296.0 * kept_sum;
    for (int i = 0; i < kept; i++)
        if ((mark -= list[i].p) <= 0) return list[i].token;
    return list[kept - 1].token;
}

/* ---- one text ---------------------------------------------------------------------- */

/* What a call works with; `out` receives tokens. */
typedef struct task {
    const ph_model *m;
    const ph_generation *how;
    const int32_t *prompt;
    int prompt_count;
    int32_t *out;
    int room, count;
    chance *list; /* (vocab) */
} task;

static ph_status run_single(task *t)
{
    int both = t->m->config.arch == PH_ARCH_ENCODER_DECODER;
    int32_t token = PH_TOKEN_START;
    const float *logits = NULL;
    ph_decoder *d;
    PH_TRY(ph_decoder_create(&d, t->m, 1, t->prompt, t->prompt_count));
    ph_status status = both ? ph_decoder_feed(d, &token, 1, &logits)
                            : ph_decoder_feed(d, t->prompt, t->prompt_count, &logits);
    while (status == PH_OK && t->count < t->room) {
        token = t->how->temperature > 0
                    ? random_token(logits, t->m->config.vocab, t->how, t->list, t->count)
                    : best_token(logits, t->m->config.vocab);
        if (token == PH_TOKEN_END) break;
        t->out[t->count++] = token;
        if (t->how->each) t->how->each(t->how->user, token);
        if (t->count < t->room) status = ph_decoder_feed(d, &token, 1, &logits);
    }
    ph_decoder_free(d);
    return status;
}

/* ---- search ------------------------------------------------------------------------ */

typedef struct beam {
    double score; /* sum of log-probabilities; -inf: not in use */
    int from, token;
    int place; /* of its text, in the decoder and here */
} beam;

typedef struct search {
    task *t;
    ph_decoder *decoder;
    int beams;
    beam *now, *next; /* (beams) best first */
    int32_t *texts;   /* (beams, room) what the text of each place consists of */
    int *from;        /* (beams) the place whose text each place goes on with */
    int32_t *tokens;  /* (beams) */
    double best;      /* score per token of the best text that has ended */
    int ended;
} search;

static int32_t *text_at(const search *s, int place)
{
    return s->texts + (size_t)place * (size_t)s->t->room;
}

static double log_sum(const float *logits, int vocab)
{
    double top = logits[best_token(logits, vocab)], sum = 0;
    for (int v = 0; v < vocab; v++) sum += exp(logits[v] - top);
    return top + log(sum);
}

static void end_text(search *s, const beam *b, int length)
{
    double score = b->score / (length + 1);
    if (s->ended && score <= s->best) return;
    s->best = score, s->ended = 1;
    s->t->count = length;
    memcpy(s->t->out, text_at(s, b->from), (size_t)length * sizeof(int32_t));
}

/* Keeps the list of the best continuations sorted. */
static void offer(search *s, beam candidate)
{
    int at = s->beams - 1;
    if (candidate.score <= s->next[at].score) return;
    for (; at > 0 && s->next[at - 1].score < candidate.score; at--)
        s->next[at] = s->next[at - 1];
    s->next[at] = candidate;
}

/* The best continuation of a text takes its place, the others those of texts that end
   here: so few caches are copied. */
static void settle(search *s, int length)
{
    int spare = 0;
    for (int p = 0; p < s->beams; p++) s->from[p] = -1;
    for (int b = 0; b < s->beams; b++) {
        beam *x = &s->next[b];
        x->place = s->from[x->from] < 0 ? x->from : -1;
        if (x->place >= 0) s->from[x->place] = x->from;
    }
    for (int b = 0; b < s->beams; b++) {
        beam *x = &s->next[b];
        if (x->place < 0) {
            while (s->from[spare] >= 0) spare++;
            x->place = spare, s->from[spare] = x->from;
            memcpy(text_at(s, spare), text_at(s, x->from),
                   (size_t)length * sizeof(int32_t));
        }
        text_at(s, x->place)[length] = s->tokens[x->place] = x->token;
    }
}

/* One token more for every text. Returns 1 while there is hope. */
static int advance(search *s, const float *logits, int length)
{
    int vocab = s->t->m->config.vocab;
    for (int b = 0; b < s->beams; b++) s->next[b] = (beam){.score = -INFINITY};
    for (int b = 0; b < s->beams; b++) {
        const beam *old = &s->now[b];
        const float *row = logits + (size_t)old->place * (size_t)vocab;
        if (old->score == -INFINITY) continue;
        double whole = log_sum(row, vocab);
        for (int v = PH_TOKEN_END; v < vocab; v++) {
            beam next = {old->score + row[v] - whole, old->place, v, 0};
            if (v == PH_TOKEN_END)
                end_text(s, &next, length);
            else
                offer(s, next);
        }
    }
    settle(s, length);
    beam *list = s->now;
    s->now = s->next, s->next = list;
    return !s->ended || s->now[0].score / (length + 2) > s->best;
}

static ph_status search_loop(search *s)
{
    const float *logits = NULL;
    int length = 0, room = s->t->room;
    for (int b = 0; b < s->beams; b++) {
        s->now[b] = (beam){.score = b ? -INFINITY : 0, .place = b};
        s->tokens[b] = PH_TOKEN_START;
    }
    PH_TRY(ph_decoder_feed(s->decoder, s->tokens, 1, &logits));
    while (length < room && advance(s, logits, length)) {
        length++;
        if (length == room) break;
        PH_TRY(ph_decoder_reorder(s->decoder, s->from));
        PH_TRY(ph_decoder_feed(s->decoder, s->tokens, 1, &logits));
    }
    if (!s->ended) { /* none ended: the best of those that go on */
        s->t->count = length;
        memcpy(s->t->out, text_at(s, s->now[0].place), (size_t)length * sizeof(int32_t));
    }
    return PH_OK;
}

static ph_status run_search(task *t)
{
    search s = {.t = t, .beams = t->how->beams};
    size_t beams = (size_t)s.beams, room = (size_t)t->room;
    void *memory = NULL;
    for (int pass = 0; pass < 2; pass++) {
        ph_arena arena = {.base = memory};
        s.now = ph_arena_take(&arena, beams * sizeof *s.now);
        s.next = ph_arena_take(&arena, beams * sizeof *s.next);
        s.texts = ph_arena_take(&arena, beams * room * sizeof(int32_t));
        s.from = ph_arena_take(&arena, beams * sizeof *s.from);
        s.tokens = ph_arena_take(&arena, beams * sizeof *s.tokens);
        if (pass == 0) memory = ph_ctx_alloc(t->m->ctx, arena.used);
        if (!memory)
            return ph_fail(t->m->ctx, PH_OUT_OF_MEMORY, "no memory for a search");
    }
    ph_status status =
        ph_decoder_create(&s.decoder, t->m, s.beams, t->prompt, t->prompt_count);
    if (status == PH_OK) status = search_loop(&s);
    ph_decoder_free(s.decoder);
    ph_ctx_release(t->m->ctx, memory);
    return status;
}

/* ---- the call ---------------------------------------------------------------------- */

/* Tokens as text; words with blanks between. */
static int print_tokens(const ph_model *m, const int32_t *tokens, int count, char *out,
                        size_t size)
{
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        const char *text = ph_model_token(m, tokens[i]);
        char byte[2] = {(char)(tokens[i] - PH_TOKEN_FIRST), 0};
        if (m->vocab.split == PH_SPLIT_BYTES) text = byte;
        if (m->vocab.split == PH_SPLIT_WORDS && i) {
            if (used + 1 < size) out[used] = ' ';
            used++;
        }
        for (; *text; text++, used++)
            if (used + 1 < size) out[used] = *text;
    }
    if (size) out[used < size ? used : size - 1] = 0;
    return (int)used;
}

static ph_status check(const ph_model *m, const ph_generation *how)
{
    if (m->output < 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "an encoder generates no text");
    if (how->beams > 1 && m->config.arch != PH_ARCH_ENCODER_DECODER)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "only an encoder-decoder searches with "
                       "beams");
    if (how->beams < 0 || how->beams > 256 || how->max_tokens < 0 || how->top_k < 0 ||
        !(how->temperature >= 0) || !(how->top_p >= 0 && how->top_p <= 1))
        return ph_fail(m->ctx, PH_BAD_ARGUMENT,
                       "most, temperature, top_k, top_p or beams is out of range");
    return PH_OK;
}

static ph_status run(const ph_model *m, const char *text, const ph_generation *how,
                     char *out, size_t size, int *length, void *memory)
{
    int most = m->config.max_len, count = 0,
        both = m->config.arch == PH_ARCH_ENCODER_DECODER;
    ph_arena arena = {.base = memory};
    ph_word *words = ph_arena_take(&arena, (size_t)most * sizeof *words);
    int32_t *prompt = ph_arena_take(&arena, (size_t)most * sizeof *prompt);
    task t = {.m = m, .how = how, .prompt = prompt};
    t.out = ph_arena_take(&arena, (size_t)most * sizeof *t.out);
    t.list = ph_arena_take(&arena, (size_t)m->config.vocab * sizeof *t.list);
    PH_TRY(ph_model_split(m, text, words, most, &count));
    if (count < 1 || count >= most)
        return ph_fail(m->ctx, PH_BAD_SHAPE, "the text has %d tokens, expected 1 to %d",
                       count, most - 1);
    for (int i = 0; i < count; i++) prompt[i] = words[i].token;
    t.prompt_count = count;
    t.room = both ? most - 1 : most - count;
    if (how->max_tokens) t.room = ph_min(t.room, how->max_tokens);
    PH_TRY(how->beams > 1 ? run_search(&t) : run_single(&t));
    int used = print_tokens(m, t.out, t.count, out, size);
    if (length) *length = used;
    return PH_OK;
}

ph_status ph_generate(const ph_model *m, const char *text, const ph_generation *how,
                      char *out, size_t size, int *length)
{
    const ph_generation usual = {0};
    if (!m) return PH_BAD_ARGUMENT;
    if (!text || (!out && size))
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "text or out is NULL");
    if (!how) how = &usual;
    PH_TRY(check(m, how));
    size_t most = (size_t)m->config.max_len;
    size_t bytes = most * (sizeof(ph_word) + 2 * sizeof(int32_t)) +
                   (size_t)m->config.vocab * sizeof(chance) + 4 * PH_ALIGN;
    void *memory = ph_ctx_alloc(m->ctx, bytes);
    if (!memory) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory to generate");
    ph_status status = run(m, text, how, out, size, length, memory);
    ph_ctx_release(m->ctx, memory);
    return status;
}
