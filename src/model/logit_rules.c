/*
 * logit_rules.c - what the tokens before it do to the logits of the next token: the
 * settings of generation_settings.c that depend on a text, as transformers applies them.
 */
#include <math.h>
#include <string.h>

#include "model/generate.h"
#include "model/model_text.h"

/* Token i of all that the next one follows. */
static int32_t token_at(const ph_context *c, int i)
{
    return i < c->prompt_count ? c->prompt[i] : c->tokens[i - c->prompt_count];
}

/* forced_bos_token_id is the second token: of a text that continues several tokens
   nothing is forced. */
int ph_context_at(const ph_model *m, const ph_context *c)
{
    int forced = m->config.arch != PH_ARCH_DECODER || c->prompt_count == 1;
    return c->count + (forced ? 0 : m->marks.forced_count);
}

/* Each token that is there once, however often: its logit, or with beams its
   log-probability, loses by the penalty whatever its sign. */
static void penalise(const ph_model *m, const ph_context *c, float base, uint8_t *seen,
                     float *logits)
{
    const float penalty = m->marks.penalty;
    int length = c->prompt_count + c->count;
    for (int i = 0; i < length; i++) {
        int32_t v = token_at(c, i);
        if (seen[v]) continue;
        float x = logits[v] - base;
        logits[v] = (x < 0 ? x * penalty : x / penalty) + base;
        seen[v] = 1;
    }
    for (int i = 0; i < length; i++) seen[token_at(c, i)] = 0;
}

static void forbid_ends(const ph_model *m, const ph_context *c, float *logits)
{
    const ph_marks *marks = &m->marks;
    if (c->count >= marks->min_tokens && c->prompt_count + c->count >= marks->min_length)
        return;
    for (int i = 0; i < marks->end_count; i++) logits[marks->ends[i]] = -INFINITY;
}

/* Whether these tokens are the last. */
static int ends_in(const ph_context *c, const int32_t *tokens, int count)
{
    int first = c->prompt_count + c->count - count;
    if (first < 0) return 0;
    for (int i = 0; i < count; i++)
        if (token_at(c, first + i) != tokens[i]) return 0;
    return 1;
}

/* The last of `n` tokens that stand there in this order already. */
static void forbid_repeats(const ph_context *c, int n, float *logits)
{
    int length = c->prompt_count + c->count;
    for (int i = 0; i <= length - n; i++) {
        int same = 0, last = length - n + 1;
        while (same < n - 1 && token_at(c, i + same) == token_at(c, last + same)) same++;
        if (same == n - 1) logits[token_at(c, i + n - 1)] = -INFINITY;
    }
}

void ph_rules_apply(const ph_model *m, const ph_context *c, double base, uint8_t *seen,
                    float *logits)
{
    if (ph_context_at(m, c) < m->marks.forced_count) return;
    if (m->marks.penalty > 0) penalise(m, c, (float)base, seen, logits);
    if (m->marks.no_repeat) forbid_repeats(c, m->marks.no_repeat, logits);
    for (int i = 0; i < m->banned_count; i += m->banned[i] + 1) {
        const int32_t *sequence = &m->banned[i + 1];
        int before = m->banned[i] - 1;
        if (ends_in(c, sequence, before)) logits[sequence[before]] = -INFINITY;
    }
    forbid_ends(m, c, logits);
}
