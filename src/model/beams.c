/*
 * beams.c - beam search.
 *
 * The score of a hypothesis is its log-probability per token, an end mark included; one
 * that reaches the length limit counts unfinished. As in transformers a token that is
 * forced costs nothing; what a text of sound begins with is no token of it. The search
 * ends when no live hypothesis can beat the best finished one.
 */
#include <math.h>
#include <string.h>

#include "model/generate.h"
#include "model/model_text.h"

typedef struct hypothesis {
    double score;    /* sum of log-probabilities; -inf: not in use */
    int from;        /* slot of the text it continues */
    int token, slot; /* its last token; where its text and its caches are */
} hypothesis;

typedef struct search {
    const ph_model *m;
    ph_generated *t;
    ph_decoder *decoder;
    int beams;
    hypothesis *live, *next; /* (beams) best first */
    int32_t *texts;          /* (beams, limit) by slot */
    int *from;               /* (beams) the slot whose text each slot continues */
    int32_t *tokens;         /* (beams) last token, by slot */
    int32_t *offsets;        /* (beams + 1) one token each */
    int *slots;              /* (beams) all of them */
    uint8_t *seen;           /* (vocab) zeros, where the model has a penalty */
    int32_t *result;         /* (limit) the best finished text ... */
    int length;              /* ... its tokens ... */
    double best;             /* ... and its score per token */
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

/* A sum of log-probabilities per token of a text, of which `length` came. */
static double per_token(const search *s, double score, int length)
{
    int before = s->m->config.mels ? s->m->marks.forced_count : 0;
    return score / ph_max(length - before, 1);
}

/* A text of `length` tokens is finished, with one more of them if that is an end; its
   score per token decides. */
static void finish(search *s, int slot, int length, int ends, double score)
{
    double score_per_token = per_token(s, score, length + ends);
    if (score_per_token <= s->best) return;
    s->best = score_per_token;
    s->length = length;
    memcpy(s->result, text_of(s, slot), (size_t)length * sizeof(int32_t));
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

/* The next token of a hypothesis of `length` tokens, which then has this score. */
static void add(search *s, const hypothesis *h, int length, int token, double score)
{
    if (ph_is_end(s->m, token))
        finish(s, h->slot, length, 1, score);
    else
        insert(s, (hypothesis){score, h->slot, token, 0});
}

/* One token more for every live hypothesis of `length` tokens; while they are forced, or
   a language is found, there is only one. */
static void advance(search *s, float *logits, int length)
{
    int vocab = s->m->config.vocab;
    for (int b = 0; b < s->beams; b++) s->next[b] = (hypothesis){.score = -INFINITY};
    for (int b = 0; b < s->beams && s->live[b].score > -INFINITY; b++) {
        const hypothesis *h = &s->live[b];
        float *row = logits + (size_t)h->slot * (size_t)vocab;
        if (length < s->m->marks.forced_count) {
            add(s, h, length, ph_likeliest(s->m, row, length), h->score);
            break;
        }
        double sum = log_sum_exp(row, vocab), base = h->score - sum;
        const ph_context context = {&s->m->marks.start, 1, text_of(s, h->slot), length};
        ph_rules_apply(s->m, &context, sum, s->seen, row);
        for (int v = 0; v < vocab; v++)
            if (ph_is_generated(s->m, v, length)) add(s, h, length, v, base + row[v]);
    }
    assign_slots(s, length);
    hypothesis *list = s->live;
    s->live = s->next, s->next = list;
}

/* Each token lowers the sum of a hypothesis, but the score per token gains by a larger
   count: at best the text grows to the limit with tokens that are certain. */
static int can_improve(const search *s)
{
    return per_token(s, s->live[0].score, s->t->limit) > s->best;
}

static ph_status search_loop(search *s)
{
    float *logits = NULL;
    int length = 0, limit = s->t->limit;
    s->best = -INFINITY;
    for (int b = 0; b < s->beams; b++) {
        s->live[b] = (hypothesis){.score = b ? -INFINITY : 0, .slot = b};
        s->tokens[b] = s->m->marks.start;
        s->slots[b] = s->offsets[b] = b;
    }
    s->offsets[s->beams] = s->beams;
    while (length < limit && can_improve(s)) {
        if (length) PH_TRY(ph_decoder_reorder(s->decoder, s->from));
        PH_TRY(ph_decoder_feed(s->decoder, s->tokens, s->offsets));
        PH_TRY(ph_decoder_logits(s->decoder, s->slots, s->beams, &logits));
        advance(s, logits, length++);
    }
    if (length == limit) finish(s, s->live[0].slot, length, 0, s->live[0].score);
    return PH_OK;
}

static void layout(search *s, ph_arena *arena)
{
    size_t beams = (size_t)s->beams, limit = (size_t)s->t->limit;
    s->live = ph_arena_take(arena, beams * sizeof *s->live);
    s->next = ph_arena_take(arena, beams * sizeof *s->next);
    s->texts = ph_arena_take(arena, beams * limit * sizeof *s->texts);
    s->from = ph_arena_take(arena, beams * sizeof *s->from);
    s->tokens = ph_arena_take(arena, beams * sizeof *s->tokens);
    s->offsets = ph_arena_take(arena, (beams + 1) * sizeof *s->offsets);
    s->slots = ph_arena_take(arena, beams * sizeof *s->slots);
    s->seen = ph_arena_take(
        arena, s->m->marks.penalty > 0 ? (size_t)s->m->config.vocab : 0);
    s->result = ph_arena_take(arena, limit * sizeof *s->result);
}

static ph_status run_search(search *s, ph_dtype kv_dtype)
{
    const int32_t source[] = {0, s->t->prompt_count};
    ph_decoder_shape shape = {.texts = s->beams,
                              .capacity = s->t->limit + 1,
                              .source_len = s->t->prompt_count,
                              .one_source = 1,
                              .kv_dtype = kv_dtype};
    PH_TRY(ph_decoder_create(&s->decoder, s->m, &shape));
    PH_TRY(ph_decoder_read(s->decoder, &(ph_batch){.source = s->t->prompt,
                                                   .features = s->t->features,
                                                   .source_offsets = source}));
    PH_TRY(search_loop(s));
    for (int i = 0; i < s->length; i++)
        PH_TRY(ph_generated_add(s->m, s->t, s->result[i]));
    return PH_OK;
}

ph_status ph_generate_beams(const ph_model *m, const ph_generation *how, ph_generated *t)
{
    search s = {.m = m, .t = t, .beams = how->beams};
    ph_arena count = {0};
    layout(&s, &count);
    void *memory = ph_ctx_alloc(m->ctx, count.used);
    if (!memory) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a beam search");
    ph_arena arena = ph_arena_of(memory, count.used);
    layout(&s, &arena);
    if (m->marks.penalty > 0) memset(s.seen, 0, (size_t)m->config.vocab);
    ph_status status = run_search(&s, how->kv_dtype);
    ph_decoder_free(s.decoder);
    ph_ctx_release(m->ctx, memory);
    return status;
}
