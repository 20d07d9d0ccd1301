/*
 * token_options.c - options of a tokenizer that stand beside its file; see tokenizer.h.
 *
 * BERT's normalizer and a lone ByteLevel are what the reference builds anew from
 * tokenizer_config.json, whatever tokenizer.json says; in a longer list of steps they
 * stay as they are.
 */
#include <string.h>

#include "base/base.h"
#include "text/tokenizer.h"

static ph_step *bert_of(const ph_tokenizer *t)
{
    for (size_t i = 0; i < t->normalizer_count; i++)
        if (t->normalizers[i].kind == PH_STEP_BERT) return &t->normalizers[i];
    return NULL;
}

static int lowercases(const ph_tokenizer *t)
{
    for (size_t i = 0; i < t->normalizer_count; i++)
        if (t->normalizers[i].kind == PH_STEP_LOWERCASE) return 1;
    return 0;
}

static int is_prefix(const ph_step *step)
{
    return step->kind == PH_STEP_PREPEND && step->length == 1 && *step->text == ' ';
}

/* ByteLevel with nothing before it: a blank, GPT-2's pattern, or both. */
static int is_byte_level(const ph_tokenizer *t)
{
    size_t at = t->splitter_count > 0 && is_prefix(&t->splitters[0]);
    if (at < t->splitter_count && t->splitters[at].kind == PH_STEP_SPLIT &&
        t->splitters[at].pattern.kind == PH_PATTERN_GPT2)
        at++;
    return t->model.byte_level && at == t->splitter_count;
}

static void set(int *flag, ph_token_option option)
{
    if (option) *flag = option == PH_OPTION_YES;
}

static ph_status set_prefix(ph_tokenizer *t, int wanted)
{
    const ph_step space = {
        .kind = PH_STEP_PREPEND, .text = " ", .length = 1, .when = PH_PREPEND_MISSING};
    int given = t->splitter_count > 0 && is_prefix(&t->splitters[0]);
    if (given == wanted) return PH_OK;
    if (wanted) PH_TRY(ph_add_splitter(t, space));
    size_t moved = (t->splitter_count - 1) * sizeof space;
    memmove(t->splitters + wanted, t->splitters + given, moved);
    if (wanted)
        t->splitters[0] = space;
    else
        t->splitter_count--;
    return PH_OK;
}

static ph_status lowercase_first(ph_tokenizer *t)
{
    const ph_step lower = {.kind = PH_STEP_LOWERCASE};
    PH_TRY(ph_add_normalizer(t, lower));
    memmove(t->normalizers + 1, t->normalizers, (t->normalizer_count - 1) * sizeof lower);
    t->normalizers[0] = lower;
    return PH_OK;
}

ph_status ph_tokenizer_apply(ph_tokenizer *t, const ph_token_options *o)
{
    ph_step *bert = bert_of(t);
    if (bert && t->normalizer_count == 1) {
        set(&bert->lowercase, o->lowercase);
        set(&bert->accents, o->accents);
        set(&bert->chinese, o->chinese);
    }
    if (o->prefix_space && is_byte_level(t))
        PH_TRY(set_prefix(t, o->prefix_space == PH_OPTION_YES));
    if (t->model.byte_level && t->has_template) {
        set(&t->trim_offsets, o->trim_offsets);
        set(&t->trim_keeps_one, o->trim_keeps_one);
    }
    if (o->lowercase_first == PH_OPTION_YES && !lowercases(t)) return lowercase_first(t);
    return PH_OK;
}

static ph_token_option said(int flag)
{
    return flag ? PH_OPTION_YES : PH_OPTION_NO;
}

ph_token_options ph_tokenizer_options(const ph_tokenizer *t)
{
    ph_token_options o = {0};
    const ph_step *bert = bert_of(t);
    if (bert) {
        o.lowercase = said(bert->lowercase);
        o.accents = said(bert->accents);
        o.chinese = said(bert->chinese);
    }
    if (is_byte_level(t))
        o.prefix_space = said(t->splitter_count > 0 && is_prefix(&t->splitters[0]));
    if (t->model.byte_level && t->has_template) {
        o.trim_offsets = said(t->trim_offsets);
        o.trim_keeps_one = said(t->trim_keeps_one);
    }
    if (lowercases(t)) o.lowercase_first = PH_OPTION_YES;
    return o;
}
