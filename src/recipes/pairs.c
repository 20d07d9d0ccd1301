/*
 * pairs.c - the recipe "pairs": lines "source TAB target", by characters, or by tokens
 * of the encoder-decoder that training goes on from; one source in ten is held out, at
 * least one.
 */
#include <stdio.h>
#include <stdlib.h>

#include "recipes/corpus.h"

enum { LINE_MOST = 512, PAIRS_LEAST = 20 };

#define EXPECTED "text TAB text"

static ph_status check_origin(const ph_data *data)
{
    const ph_config *c = &data->origin->config;
    if (c->arch != PH_ARCH_ENCODER_DECODER || c->mels || data->origin->start < 0)
        return ph_fail(data->ctx, PH_UNSUPPORTED,
                       "recipe pairs needs an encoder-decoder of texts, and this model "
                       "is another");
    if (data->origin->end >= 0) return PH_OK;
    return ph_fail(data->ctx, PH_UNSUPPORTED,
                   "the model has no token that ends a text, expected eos_token_id in "
                   "its configuration");
}

static ph_status open(ph_data *data)
{
    if (data->origin) PH_TRY(check_origin(data));
    PH_TRY(ph_corpus_open(data));
    ph_corpus_strip_cr(data->own);
    return data->origin ? PH_OK : ph_corpus_find_chars(data, "\t\n");
}

/* One text of a line, a source within the marks of the tokenizer; *longest is raised to
   its length. A text is not cut: the model would learn to stop there. */
static ph_status add_text(ph_data *data, ph_origin_encoder *e, const ph_line *part,
                          int marks, int *longest)
{
    ph_corpus *c = data->own;
    int most = e ? ph_data_length(data) - !marks : LINE_MOST; /* a start token */
    int begun = e && !marks && data->origin->first >= 0;
    if (begun) PH_TRY(ph_origin_add(e, data->origin->first));
    if (e && part->at < part->end) /* marks alone are no text */
        PH_TRY(ph_origin_tokenize(e, part->at, part->end, marks, 0));
    else
        ph_corpus_tokenize(data, part->at, part->end);
    size_t count = c->count - c->start[c->texts];
    if (count == (size_t)begun)
        return ph_corpus_bad_line(data, part->number,
                                  "one side is empty, expected " EXPECTED);
    if (count > (size_t)most) {
        char what[96];
        snprintf(what, sizeof what, "one side has %zu tokens, expected at most %d%s",
                 count, most, e ? " (--length)" : "");
        return ph_corpus_bad_line(data, part->number, what);
    }
    c->start[++c->texts] = c->count;
    *longest = ph_max(*longest, (int)count);
    return PH_OK;
}

static ph_status add_pairs(ph_data *data, ph_origin_encoder *e)
{
    for (ph_line line = {0}; ph_corpus_line(data->own, &line);) {
        size_t tab = 0;
        PH_TRY(ph_corpus_tab(data, &line, EXPECTED, &tab));
        ph_line source = line, target = line;
        source.end = tab, target.at = tab + 1;
        PH_TRY(add_text(data, e, &source, 1, &data->source_len));
        PH_TRY(add_text(data, e, &target, 0, &data->target_len));
    }
    return PH_OK;
}

static ph_status read_pairs(ph_data *data)
{
    ph_origin_encoder e = {0};
    ph_status status = data->origin ? ph_origin_begin(&e, data) : PH_OK;
    if (status == PH_OK) status = add_pairs(data, data->origin ? &e : NULL);
    ph_origin_end(&e);
    return status;
}

/* Sources decide what is held out, so that no held-out source is trained on. */
static ph_status hold_out(ph_data *data)
{
    ph_corpus *c = data->own;
    size_t pairs = c->texts / 2;
    uint64_t *keys = malloc(pairs * sizeof *keys);
    if (!keys) return ph_corpus_no_memory(data);
    for (size_t i = 0; i < pairs; i++) keys[i] = ph_corpus_key(c, 2 * i);
    ph_status status = ph_corpus_hold_out(c, pairs, keys);
    free(keys);
    if (status == PH_OK) return PH_OK;
    return ph_fail(
        data->ctx, status,
        "%s has the same source in every pair, expected at least two different "
        "ones: one is held out for tests",
        data->train->file);
}

static ph_status ready(ph_data *data)
{
    ph_corpus *c = data->own;
    PH_TRY(ph_corpus_reserve(data, 2 * ph_corpus_lines(c)));
    PH_TRY(read_pairs(data));
    if (c->texts < 2 * PAIRS_LEAST)
        return ph_fail(data->ctx, PH_BAD_FILE, "%s has %zu pair%s, expected at least %d",
                       data->train->file, c->texts / 2, c->texts == 2 ? "" : "s",
                       PAIRS_LEAST);
    data->target_len++; /* the start token */
    return hold_out(data);
}

static void sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    const ph_corpus *c = data->own;
    size_t first = test ? c->held : 0, end = test ? c->texts / 2 : c->held;
    const size_t *at =
        c->start + 2 * c->order[first + ph_rng_key(key, 0, 0, 0) % (end - first)];
    ph_sample_pair(data, c->tokens + at[0], (int)(at[1] - at[0]), c->tokens + at[1],
                   (int)(at[2] - at[1]), out);
}

static void defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_ENCODER_DECODER,
                            .layers = 2,
                            .model_dim = 128,
                            .heads = 4,
                            .max_len = 64,
                            .dropout = 0.1f};
    t->steps = 4000, t->batch = 32;
    t->lr = 1e-3f, t->warmup = 300, t->smoothing = 0.1f;
}

const ph_recipe ph_recipe_pairs = {.name = "pairs",
                                   .help = "an encoder-decoder that learns from your own "
                                           "lines: text TAB text",
                                   .needs_file = 1,
                                   .defaults = defaults,
                                   .open = open,
                                   .ready = ready,
                                   .close = ph_corpus_close,
                                   .sample = sample};
