/*
 * joined.c - a scene's report with the tokens of a word joined; see polyhead_scene.h.
 */
#include <string.h>

#include "base/base.h"
#include "io/utf8.h"
#include "text/unicode.h"
#include "view/scene_inside.h"

enum { ROWS_AT_ONCE = 32 }; /* of tokens */

/* Words of one axis: word w is tokens first[w] .. first[w + 1] - 1. */
typedef struct joined_axis {
    char *bytes;
    const char **list;
    uint8_t *unknown;
    int *first, *word; /* (words + 1); of each token */
    int count;
} joined_axis;

struct ph_joined {
    ph_io hooks;
    ph_report tokens; /* the scene's report */
    joined_axis words[2];
    ph_axis axes[2];
    ph_stack stacks[PH_SCENE_KINDS];
    float *rows; /* (ROWS_AT_ONCE, keys) of tokens */
};

/* ---- which tokens are one word ---- */

/* Han characters, kana, Hangul syllables: written without blanks, words by themselves. */
static int stands_alone(uint32_t point)
{
    return (point >= 0x2e80 && point <= 0x9fff) || (point >= 0xac00 && point <= 0xd7a3) ||
           (point >= 0xf900 && point <= 0xfaff) || (point >= 0x20000 && point <= 0x3ffff);
}

/* A character that words are made of. `at` may lie within one: its first byte counts. */
static int is_of_words(const ph_unicode *unicode, const char *text, int at)
{
    uint32_t point = 0;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    if (!ph_utf8_decode(text + at, strlen(text + at), &point)) return 0;
    return !stands_alone(point) &&
           (ph_char_flags(unicode, point) & (PH_CHAR_WORD | PH_CHAR_MARK)) != 0;
}

/* Does a token go on with the word of the one before it? They touch in the text, and
   characters on both sides are of words, or it begins within a character. */
static int goes_on(const ph_unicode *unicode, const char *text, const ph_word *before,
                   const ph_word *token)
{
    if (!text || before->length <= 0 || token->length <= 0) return 0;
    const int end = before->start + before->length;
    if (token->start < end) return 1; /* bytes of one character */
    if (token->start > end) return 0;
    if (((unsigned char)text[end] & 0xc0) == 0x80) return 1;
    return is_of_words(unicode, text, end - 1) && is_of_words(unicode, text, end);
}

/* ---- words ---- */

static ph_status take_words(ph_joined *j, joined_axis *w, const ph_axis *axis)
{
    size_t count = (size_t)axis->count, bytes = 0;
    for (int i = 0; i < axis->count; i++) bytes += strlen(axis->tokens[i]) + 1;
    w->bytes = ph_io_alloc(&j->hooks, bytes + 1);
    w->list = ph_io_alloc(&j->hooks, (count + 1) * sizeof *w->list);
    w->unknown = ph_io_alloc(&j->hooks, count + 1);
    w->first = ph_io_alloc(&j->hooks, (count + 1) * sizeof *w->first);
    w->word = ph_io_alloc(&j->hooks, (count + 1) * sizeof *w->word);
    return w->bytes && w->list && w->unknown && w->first && w->word ? PH_OK
                                                                    : PH_OUT_OF_MEMORY;
}

/* The text of a word: its tokens one behind the other. Bytes of one character have the
   whole of it as their text, which is there once. */
static void join_axis(const ph_unicode *unicode, const ph_reading *reading, int side,
                      const char *text, const ph_axis *axis, joined_axis *w)
{
    const ph_word *before = NULL;
    char *at = w->bytes;
    for (int i = 0; i < axis->count; i++) {
        const ph_word *token = ph_reading_word(reading, side, i);
        const int on = before && goes_on(unicode, text, before, token);
        const int again = on && token->start < before->start + before->length;
        if (!on) {
            w->list[w->count] = at = w->count ? at + 1 : at;
            w->unknown[w->count] = 0;
            w->first[w->count++] = i;
        }
        const size_t length = again ? 0 : strlen(axis->tokens[i]);
        memcpy(at, axis->tokens[i], length);
        at += length;
        *at = 0;
        w->unknown[w->count - 1] |= axis->unknown && axis->unknown[i];
        w->word[i] = w->count - 1;
        before = token;
    }
    w->first[w->count] = axis->count;
}

/* ---- weights ---- */

/* Adds rows of tokens to those of their words: columns are summed, rows averaged. Cells
   that causality hides hold anything. */
static void add_rows(const ph_stack *k, const joined_axis *rows, const joined_axis *keys,
                     const float *from, int token0, int tokens, int row0, float *out)
{
    const int key_count = keys->first[keys->count];
    for (int t = 0; t < tokens; t++, from += key_count) {
        const int word = rows->word[token0 + t];
        const float share = 1.0f / (float)(rows->first[word + 1] - rows->first[word]);
        float *to = out + (size_t)(word - row0) * (size_t)keys->count;
        int seen = k->causal ? token0 + t + k->q_offset + 1 : key_count;
        for (int c = 0; c < key_count && c < seen; c++)
            to[keys->word[c]] += share * from[c];
    }
}

static ph_status give_words(void *user, int stack, int layer, int head, int row0,
                            int rows, float *out)
{
    const ph_joined *j = user;
    const ph_stack *k = &j->stacks[stack];
    const joined_axis *q = &j->words[k->q_axis], *keys = &j->words[k->k_axis];
    const int end = q->first[row0 + rows];
    memset(out, 0, (size_t)rows * (size_t)keys->count * sizeof *out);
    for (int t = q->first[row0]; t < end; t += ROWS_AT_ONCE) {
        const int count = ph_min(ROWS_AT_ONCE, end - t);
        PH_TRY(j->tokens.weights(j->tokens.user, stack, layer, head, t, count, j->rows));
        add_rows(k, q, keys, j->rows, t, count, row0, out);
    }
    return PH_OK;
}

static ph_status
give_joined_layers(void *user, ph_status (*see)(void *to, int stack, int layer), void *to)
{
    const ph_joined *j = user;
    return j->tokens.layers(j->tokens.user, see, to);
}

/* ---- making and freeing ---- */

static ph_status fill_joined(ph_joined *j, const ph_scene *s, ph_unicode *unicode)
{
    int most = 0;
    ph_unicode_fill(unicode);
    for (int a = 0; a < s->axis_count; a++) {
        const char *text = a ? s->target : s->text;
        PH_TRY(take_words(j, &j->words[a], &s->axes[a]));
        join_axis(unicode, s->reading, a, text, &s->axes[a], &j->words[a]);
        j->axes[a] = (ph_axis){.name = s->axes[a].name,
                               .tokens = j->words[a].list,
                               .count = j->words[a].count,
                               .unknown = j->words[a].unknown};
        most = ph_max(most, s->axes[a].count);
    }
    for (int k = 0; k < s->stack_count; k++) {
        j->stacks[k] = s->stacks[k];
        j->stacks[k].qk_dim = 0; /* vectors, and what tokens write, are of tokens */
        j->stacks[k].pair_step = 0;
        j->stacks[k].value_norm = NULL;
    }
    j->rows = ph_io_alloc(&j->hooks, ROWS_AT_ONCE * (size_t)most * sizeof *j->rows);
    return j->rows ? PH_OK : PH_OUT_OF_MEMORY;
}

ph_status ph_joined_create(ph_joined **out, const ph_scene *scene, const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !scene) return ph_io_null(io, "out or scene");
    const ph_config *c = ph_model_config(scene->model);
    if (c->image_size || c->mels || scene->model->links >= 0)
        return ph_io_fail(io, PH_UNSUPPORTED,
                          "the model reads %s: it has no tokens to join to words",
                          c->image_size ? "pictures"
                          : c->mels     ? "sound"
                                        : "whole words");
    ph_joined *j = ph_io_alloc(io, sizeof *j);
    ph_unicode *unicode = ph_io_alloc(io, sizeof *unicode);
    ph_status status = j && unicode ? PH_OK : PH_OUT_OF_MEMORY;
    if (j) memset(j, 0, sizeof *j), j->hooks = ph_io_hooks(io);
    if (status == PH_OK) {
        j->tokens = ph_scene_report(scene);
        status = fill_joined(j, scene, unicode);
    }
    ph_io_release(io, unicode);
    if (status == PH_OK) return *out = j, PH_OK;
    ph_joined_free(j);
    return ph_io_no_memory(io, sizeof *j, "words");
}

ph_report ph_joined_report(const ph_joined *j)
{
    if (!j) return (ph_report){0};
    ph_report report = j->tokens;
    report.axes = j->axes;
    report.stacks = j->stacks;
    report.weights = give_words;
    report.rows = NULL; /* one buffer for all */
    report.vectors = NULL;
    if (report.layers) report.layers = give_joined_layers;
    report.user = (void *)j;
    return report;
}

void ph_joined_free(ph_joined *j)
{
    if (!j) return;
    ph_io hooks = j->hooks;
    for (int a = 0; a < 2; a++) {
        ph_io_release(&hooks, j->words[a].bytes);
        ph_io_release(&hooks, (void *)j->words[a].list);
        ph_io_release(&hooks, j->words[a].unknown);
        ph_io_release(&hooks, j->words[a].first);
        ph_io_release(&hooks, j->words[a].word);
    }
    ph_io_release(&hooks, j->rows);
    ph_io_release(&hooks, j);
}
