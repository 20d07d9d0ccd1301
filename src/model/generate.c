/*
 * generate.c - tokens from a model, of many texts at a time: greedy or sampled.
 *
 * Sampling: probabilities at a temperature, cut to the likeliest tokens (top_k, top_p),
 * one number of the counter generator per token.
 *
 * In each round every text that is decoded gets one token more. Prompts are fed in
 * chunks, beside the tokens of other texts; when a text ends the next one takes its slot.
 * A decoder has memory for so many texts of so many tokens: where the next text needs
 * more, those that are decoded end first, and a larger decoder is made. None of this
 * changes the bits of a text.
 */
#include <math.h>
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

/* Ties go to the lower token, so that the order is always the same. */
static int is_likelier(const candidate *x, const candidate *y)
{
    return x->p != y->p ? x->p > y->p : x->token < y->token;
}

/* A heap of `count` candidates, the likeliest on top, whose place i may be wrong. */
static void sift_down(candidate *heap, int count, int i)
{
    const candidate moved = heap[i];
    for (int child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && is_likelier(&heap[child + 1], &heap[child])) child++;
        if (!is_likelier(&heap[child], &moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* Compilers vectorise it: no branch depends on an element. */
static int any_above(const float *x, int n, float limit)
{
    int any = 0;
    for (int i = 0; i < n; i++) any |= x[i] > limit;
    return any;
}

/* Few blocks have a logit above those before them. */
int ph_likeliest(const ph_model *m, const float *logits, int at)
{
    enum { BLOCK = 256 };
    int best = -1, vocab = m->config.vocab;
    for (int v = 0, end; v < vocab; v = end) {
        end = ph_min(v + BLOCK, vocab);
        if (best >= 0 && !any_above(logits + v, end - v, logits[best])) continue;
        for (; v < end; v++)
            if (ph_is_generated(m, v, at) && (best < 0 || logits[v] > logits[best]))
                best = v;
    }
    return best;
}

/* Moves the candidates that top_k and top_p leave to the end of the list, the likeliest
   last, and counts them; top_p is a share of what top_k leaves. A vocabulary is larger,
   so only that much is sorted. */
static int keep_likeliest(candidate *list, int count, const ph_generation *how)
{
    const int most = how->top_k > 0 ? ph_min(how->top_k, count) : count;
    const double enough = how->top_p > 0 && how->top_k <= 0 ? (double)how->top_p : 2;
    double sum = 0, part = 0;
    int kept = 0, left = 0;
    for (int i = count / 2 - 1; i >= 0; i--) sift_down(list, count, i);
    while (kept < most && sum < enough) {
        const candidate top = list[0];
        kept++, sum += top.p;
        list[0] = list[count - kept];
        list[count - kept] = top;
        sift_down(list, count - kept, 0);
    }
    if (how->top_p <= 0 || how->top_k <= 0) return kept;
    while (left < kept && part < (double)how->top_p * sum) part += list[count - ++left].p;
    return left;
}

/* Every token that may be generated, with its probability. */
static int list_candidates(const ph_model *m, const float *logits, float max,
                           const ph_generation *how, int at, candidate *list)
{
    double sum = 0;
    int count = 0;
    for (int v = 0; v < m->config.vocab; v++) {
        if (!ph_is_generated(m, v, at)) continue;
        list[count] = (candidate){exp(((double)logits[v] - max) / how->temperature), v};
        sum += list[count++].p;
    }
    for (int i = 0; i < count; i++) list[i].p /= sum;
    return count;
}

static int sample(const ph_model *m, const float *logits, const ph_generation *how,
                  candidate *list, const ph_generated *text, int at)
{
    const int best = ph_likeliest(m, logits, at);
    const float max = logits[best];
    if (max == -INFINITY) return best; /* all are forbidden */
    const int count = list_candidates(m, logits, max, how, at, list);
    const int cut = how->top_k > 0 || how->top_p > 0;
    const int first = cut ? count - keep_likeliest(list, count, how) : 0;
    double sum = 0;
    for (int i = first; i < count; i++) sum += list[i].p;
    uint64_t key = ph_rng_key(how->seed, 9, (uint64_t)text->count, text->number);
    double target = (ph_rng_at(key, 0) + 0.5) / 4294967296.0 * sum;
    for (int i = count - 1; i > first; i--)
        if ((target -= list[i].p) <= 0) return list[i].token;
    return list[first].token;
}

/* ---- rounds ------------------------------------------------------------------------ */

enum { CHUNK = 512, SLOTS = 16 }; /* prompt tokens of a round; texts unless it is said */

/* What a decoder of texts that are not known yet begins with: tokens of a text cost
   nothing before they come, where caches have pages; those of a source do. */
enum { FIRST_CAPACITY = 1024, FIRST_SOURCE = 64 };

typedef struct generate_loop {
    const ph_model *m;
    const ph_generation *how;
    ph_generated *texts;
    const ph_generated_source *source;
    int waiting[2], waits; /* texts that have come and not begun */
    int ended;             /* 1: no more will come */
    int draining;          /* 1: what waits needs another decoder */
    int most;              /* slots, where there are texts for them */
    int capacity, longest; /* of the decoder: tokens of a text and of its source */
    ph_decoder *decoder;
    void *memory; /* of what follows */
    int slots;
    int *text_of;          /* (slots) text that is decoded there, or -1 */
    int *ready;            /* (slots) that get a token in this round */
    int32_t *tokens;       /* (slots + CHUNK) that are fed in this round ... */
    int32_t *offsets;      /* ... (slots + 1) to each slot */
    int32_t *source_tokens; /* (slots, longest source) encoder-decoder */
    float *features;       /* (slots, longest source, 2 mels) or of sound */
    candidate *candidates; /* (vocab) */
    uint8_t *seen;         /* (vocab) zeros, where the model has a penalty */
} generate_loop;

static int is_encoder_decoder(const ph_model *m)
{
    return m->config.arch == PH_ARCH_ENCODER_DECODER;
}

/* What the decoder is fed before it generates: the prompt, or a start mark. */
static int input_count(const generate_loop *g, const ph_generated *t)
{
    return is_encoder_decoder(g->m) ? 1 : t->prompt_count;
}

static ph_context context_of(const generate_loop *g, const ph_generated *t)
{
    return (ph_context){is_encoder_decoder(g->m) ? &g->m->marks.start : t->prompt,
                        input_count(g, t), t->tokens, t->count};
}

static int32_t token_at(const generate_loop *g, const ph_generated *t, int i)
{
    const ph_context c = context_of(g, t);
    return i < c.prompt_count ? c.prompt[i] : c.tokens[i - c.prompt_count];
}

/* The source of a text, after `rows` rows of others. */
static void copy_source(generate_loop *g, const ph_generated *t, int rows)
{
    size_t frame = 2 * (size_t)g->m->config.mels, count = (size_t)t->prompt_count;
    if (frame)
        memcpy(g->features + (size_t)rows * frame, t->features,
               count * frame * sizeof *g->features);
    else
        memcpy(g->source_tokens + rows, t->prompt, count * sizeof *g->source_tokens);
}

/* One text more than is begun now is asked for: whether there is tells how many slots a
   decoder should have. */
static void fetch(generate_loop *g, int wait)
{
    while (g->waits < 2 && !g->ended) {
        int text = g->source->next(g->source->user, wait && !g->waits);
        if (text == PH_TEXTS_LATER) return;
        if (text == PH_TEXTS_END)
            g->ended = 1;
        else
            g->waiting[g->waits++] = text;
    }
}

static int take_waiting(generate_loop *g)
{
    int text = g->waiting[0];
    g->waiting[0] = g->waiting[1], g->waits--;
    return text;
}

static int tokens_of(const generate_loop *g, const ph_generated *t)
{
    return input_count(g, t) + t->limit;
}

static int source_of(const generate_loop *g, const ph_generated *t)
{
    return is_encoder_decoder(g->m) ? t->prompt_count : 0;
}

static int fits(const generate_loop *g, const ph_generated *t)
{
    return tokens_of(g, t) <= g->capacity && source_of(g, t) <= g->longest;
}

/* The text that waits, for a free slot; NULL: none does that this decoder can take. */
static ph_generated *next_text(generate_loop *g, int slot)
{
    fetch(g, 0);
    if (!g->waits || g->draining) return NULL;
    if (!fits(g, &g->texts[g->waiting[0]])) {
        g->draining = 1;
        return NULL;
    }
    g->text_of[slot] = take_waiting(g);
    return &g->texts[g->text_of[slot]];
}

/* Texts take the slots that are free. */
static ph_status begin_texts(generate_loop *g)
{
    int total = 0, both = is_encoder_decoder(g->m);
    g->offsets[0] = 0;
    for (int s = 0; s < g->slots; s++) {
        const ph_generated *t = g->text_of[s] < 0 ? next_text(g, s) : NULL;
        if (t && both) copy_source(g, t, total);
        total += t && both ? t->prompt_count : 0;
        g->offsets[s + 1] = total;
    }
    fetch(g, 0);
    if (g->waits && g->slots < g->most) g->draining = 1;
    return total ? ph_decoder_read(g->decoder, &(ph_batch){.source = g->source_tokens,
                                                           .features = g->features,
                                                           .source_offsets = g->offsets})
                 : PH_OK;
}

/* The tokens of this round: one for a text that is generated, more of a prompt. */
static int list_tokens(generate_loop *g)
{
    int at = 0, chunk = CHUNK, ready = 0;
    g->offsets[0] = 0;
    for (int s = 0; s < g->slots; s++) {
        ph_generated *t = g->text_of[s] < 0 ? NULL : &g->texts[g->text_of[s]];
        int known = t ? input_count(g, t) + t->count : 0;
        int more = t ? known - t->fed : 0;
        if (more > 1) more = ph_min(more, chunk), chunk -= more;
        for (int i = 0; i < more; i++) g->tokens[at++] = token_at(g, t, t->fed + i);
        g->offsets[s + 1] = at;
        if (more) t->fed += more;
        if (more && t->fed == known) g->ready[ready++] = s;
    }
    return ready;
}

ph_status ph_generated_add(const ph_model *m, ph_generated *t, int32_t token)
{
    if (t->count == t->capacity) {
        int capacity = ph_min(2 * t->capacity + 64, t->limit);
        int32_t *more = ph_ctx_alloc(m->ctx, (size_t)capacity * sizeof *more);
        if (!more) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for tokens");
        if (t->count) memcpy(more, t->tokens, (size_t)t->count * sizeof *more);
        ph_ctx_release(m->ctx, t->tokens);
        t->tokens = more, t->capacity = capacity;
    }
    t->tokens[t->count++] = token;
    return PH_OK;
}

/* One token more of the text in a slot, which may be its last. */
static ph_status add_token(generate_loop *g, int slot, float *logits)
{
    int text = g->text_of[slot];
    ph_generated *t = &g->texts[text];
    const ph_context context = context_of(g, t);
    int at = ph_context_at(g->m, &context);
    ph_rules_apply(g->m, &context, 0, g->seen, logits);
    int token = g->how->temperature > 0 && !ph_is_found(g->m, at)
                    ? sample(g->m, logits, g->how, g->candidates, t, at)
                    : ph_likeliest(g->m, logits, at);
    int ends = ph_is_end(g->m, token);
    if (!ends) {
        PH_TRY(ph_generated_add(g->m, t, token));
        ends = t->count == t->limit;
        if (g->source->add && g->source->add(g->source->user, text)) ends = 1;
    }
    if (!ends) return PH_OK;
    ph_decoder_end(g->decoder, slot);
    g->text_of[slot] = -1;
    if (g->source->end) g->source->end(g->source->user, text);
    return PH_OK;
}

static ph_status run_round(generate_loop *g)
{
    float *logits;
    size_t vocab = (size_t)g->m->config.vocab;
    PH_TRY(begin_texts(g));
    int ready = list_tokens(g);
    if (!g->offsets[g->slots]) return PH_OK; /* what waits needs another decoder */
    PH_TRY(ph_decoder_feed(g->decoder, g->tokens, g->offsets));
    if (!ready) return PH_OK;
    PH_TRY(ph_decoder_logits(g->decoder, g->ready, ready, &logits));
    for (int i = 0; i < ready; i++)
        PH_TRY(add_token(g, g->ready[i], logits + (size_t)i * vocab));
    return PH_OK;
}

static int is_busy(const generate_loop *g)
{
    int busy = g->waits && !g->draining;
    for (int s = 0; s < g->slots; s++) busy |= g->text_of[s] >= 0;
    return busy;
}

/* ---- a decoder --------------------------------------------------------------------- */

static void layout(generate_loop *g, ph_arena *arena)
{
    size_t slots = (size_t)g->slots, source = slots * (size_t)g->longest;
    size_t all = (size_t)g->m->config.vocab, vocab = g->how->temperature > 0 ? all : 0;
    g->text_of = ph_arena_take(arena, slots * sizeof *g->text_of);
    g->ready = ph_arena_take(arena, slots * sizeof *g->ready);
    g->tokens = ph_arena_take(arena, (slots + CHUNK) * sizeof *g->tokens);
    g->offsets = ph_arena_take(arena, (slots + 1) * sizeof *g->offsets);
    g->source_tokens = ph_arena_take(arena, source * sizeof *g->source_tokens);
    g->features = ph_arena_floats(arena, 2 * source * (size_t)g->m->config.mels);
    g->candidates = ph_arena_take(arena, vocab * sizeof *g->candidates);
    g->seen = ph_arena_take(arena, g->m->marks.penalty > 0 ? all : 0);
}

static void close_decoder(generate_loop *g)
{
    ph_decoder_free(g->decoder);
    ph_ctx_release(g->m->ctx, g->memory);
    g->decoder = NULL, g->memory = NULL;
}

/* Twice as many again and again, so that few decoders are made. */
static int grown(int has, int first, int need, int most)
{
    if (need <= has) return has;
    for (has = has ? has : ph_min(first, most); has < need && has < most;)
        has = ph_min(2 * has, most);
    return ph_max(has, need);
}

static ph_status open_decoder(generate_loop *g)
{
    const ph_config *c = &g->m->config;
    int both = is_encoder_decoder(g->m), source_len = ph_config_source_len(c);
    close_decoder(g);
    g->draining = 0, g->slots = g->waits > 1 ? g->most : 1;
    for (int i = 0; i < g->waits; i++) {
        const ph_generated *t = &g->texts[g->waiting[i]];
        g->capacity = grown(g->capacity, FIRST_CAPACITY, tokens_of(g, t), c->max_len);
        g->longest = grown(g->longest, FIRST_SOURCE, source_of(g, t), source_len);
    }
    ph_arena count = {0};
    layout(g, &count);
    g->memory = ph_ctx_alloc(g->m->ctx, count.used);
    if (!g->memory)
        return ph_fail(g->m->ctx, PH_OUT_OF_MEMORY, "no memory to generate text");
    ph_arena arena = ph_arena_of(g->memory, count.used);
    layout(g, &arena);
    for (int s = 0; s < g->slots; s++) g->text_of[s] = -1;
    if (g->m->marks.penalty > 0) memset(g->seen, 0, (size_t)c->vocab);
    ph_decoder_shape shape = {.texts = g->slots,
                              .capacity = g->capacity,
                              .source_len = g->longest,
                              .one_source = both && g->slots == 1,
                              .kv_dtype = g->how->kv_dtype};
    return ph_decoder_create(&g->decoder, g->m, &shape);
}

/* ---- all texts --------------------------------------------------------------------- */

static int suits(const generate_loop *g)
{
    return g->decoder && !g->draining && fits(g, &g->texts[g->waiting[0]]) &&
           (g->waits < 2 || g->slots == g->most);
}

static ph_status run_loop(generate_loop *g)
{
    ph_status status = PH_OK;
    while (status == PH_OK) {
        fetch(g, 1);
        if (!g->waits) break;
        if (!suits(g)) status = open_decoder(g);
        while (status == PH_OK && is_busy(g)) status = run_round(g);
    }
    close_decoder(g);
    return status;
}

/* Texts one by one: with beams, and where cross-attention reads the encoder's output
   itself, only the texts of one source are decoded together. */
static ph_status run_apart(generate_loop *g)
{
    for (;;) {
        fetch(g, 1);
        if (!g->waits) return PH_OK;
        int text = take_waiting(g);
        generate_loop one = *g;
        one.waiting[0] = text, one.waits = one.most = one.ended = 1;
        one.capacity = tokens_of(g, &g->texts[text]);
        one.longest = source_of(g, &g->texts[text]);
        if (g->how->beams <= 1) {
            PH_TRY(run_loop(&one));
            continue;
        }
        PH_TRY(ph_generate_beams(g->m, g->how, &g->texts[text]));
        if (g->source->end) g->source->end(g->source->user, text);
    }
}

int ph_generation_batch(const ph_generation *how)
{
    return how->batch ? how->batch : SLOTS;
}

static ph_status run_source(generate_loop *g)
{
    return g->how->beams > 1 || ph_kv_reads_memory(g->m) ? run_apart(g) : run_loop(g);
}

ph_status ph_generate_source(const ph_model *m, const ph_generation *how,
                             ph_generated *texts, const ph_generated_source *source)
{
    generate_loop g = {.m = m,
                       .how = how,
                       .texts = texts,
                       .source = source,
                       .most = ph_generation_batch(how)};
    return run_source(&g);
}

/* Texts that are all there. */
typedef struct text_list {
    int count, next;
    ph_generated_hook *hook;
    void *user;
} text_list;

static int next_of_list(void *user, int wait)
{
    text_list *list = user;
    (void)wait;
    return list->next < list->count ? list->next++ : PH_TEXTS_END;
}

static int call_hook(void *user, int text)
{
    const text_list *list = user;
    return list->hook ? list->hook(list->user, text) : 0;
}

ph_status ph_generate_all(const ph_model *m, const ph_generation *how,
                          ph_generated *texts, int count, ph_generated_hook *hook,
                          void *user)
{
    text_list list = {.count = count, .hook = hook, .user = user};
    const ph_generated_source source = {
        .next = next_of_list, .add = call_hook, .user = &list};
    generate_loop g = {.m = m, .how = how, .texts = texts, .source = &source};
    g.most = ph_min(count, ph_generation_batch(how));
    for (int i = 0; i < count; i++) {
        if (texts[i].limit < 1)
            return ph_fail(m->ctx, PH_BAD_SHAPE, "a text has no place for a token");
        g.longest = ph_max(g.longest, source_of(&g, &texts[i]));
        g.capacity = ph_max(g.capacity, tokens_of(&g, &texts[i]));
    }
    return run_source(&g);
}

ph_status ph_generate_tokens(const ph_model *m, const ph_generation *how,
                             const int32_t *prompt, int prompt_count, int32_t *out,
                             int limit, int *count)
{
    ph_generated text = {.prompt = prompt, .prompt_count = prompt_count, .limit = limit};
    ph_status status = ph_generate_all(m, how, &text, 1, NULL, NULL);
    *count = text.count;
    if (text.count) memcpy(out, text.tokens, (size_t)text.count * sizeof *out);
    ph_ctx_release(m->ctx, text.tokens);
    return status;
}
