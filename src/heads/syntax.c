/*
 * syntax.c - how often heads find the word that a word depends on; see
 * polyhead_treebank.h. After Clark et al. 2019, section 4.2.
 */
#include <string.h>

#include "base/base.h"
#include "base/size.h"
#include "io/io.h"
#include "polyhead_treebank.h"

enum { FIRST_OFFSET = -3, OFFSETS = 6 };

struct ph_syntax {
    ph_io hooks;
    const ph_treebank *treebank;
    int heads, relations;
    int64_t *words;    /* (relations) */
    int64_t *baseline; /* (relations, OFFSETS) */
    int64_t *right;    /* (relations, heads, PH_DIRECTIONS) */

    const ph_tree *tree; /* the current sentence; NULL: none */
    int tokens;
    int *word_of;     /* (tokens) */
    int *token_count; /* (words) */
    double *row;      /* (words) of the word-level map */
    double *best;     /* (words) largest weight of each column so far */
    int *prediction;  /* (PH_DIRECTIONS, words); -1: none */
};

/* ---- a sentence begins ------------------------------------------------------------- */

static void *take(const ph_syntax *s, int count, size_t item)
{
    size_t bytes = 0;
    if (ph_size_mul((size_t)count, item, &bytes)) return NULL;
    void *memory = ph_io_alloc(&s->hooks, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

static void free_sentence(ph_syntax *s)
{
    ph_io_release(&s->hooks, s->word_of);
    ph_io_release(&s->hooks, s->token_count);
    ph_io_release(&s->hooks, s->row);
    ph_io_release(&s->hooks, s->best);
    ph_io_release(&s->hooks, s->prediction);
    s->word_of = s->token_count = s->prediction = NULL;
    s->row = s->best = NULL;
    s->tree = NULL;
}

static int is_counted(const ph_syntax *s, const ph_dependency *d)
{
    return s->token_count[d->dependent] && (d->head < 0 || s->token_count[d->head]);
}

/* The baseline counts words from 1, as a treebank does: 0 is the root. */
static void count_baseline(ph_syntax *s, const ph_dependency *d, int relation)
{
    s->words[relation]++;
    for (int o = 0; o < OFFSETS; o++) {
        int at = d->dependent + 1 + FIRST_OFFSET + o;
        at = ph_max(0, ph_min(at, s->tree->word_count));
        s->baseline[relation * OFFSETS + o] += at == d->head + 1;
    }
}

static ph_status place_tokens(ph_syntax *s, const int *word_of, const ph_io *io)
{
    int last = -1;
    for (int i = 0; i < s->tokens; i++) {
        int word = word_of[i];
        if (word < -1 || word >= s->tree->word_count || (word >= 0 && word < last))
            return ph_io_fail(io, PH_BAD_ARGUMENT,
                              "token %d belongs to word %d, expected words in order, "
                              "below %d",
                              i, word, s->tree->word_count);
        s->word_of[i] = word;
        if (word < 0) continue;
        s->token_count[word]++;
        last = word;
    }
    return PH_OK;
}

ph_status ph_syntax_begin(ph_syntax *s, int i, const int *word_of, int tokens,
                          const ph_io *io)
{
    if (!s || !word_of) return ph_io_null(io, "syntax or word_of");
    free_sentence(s);
    const ph_tree *tree = ph_treebank_sentence(s->treebank, i);
    if (!tree || tokens < 1)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "sentence %d with %d tokens", i, tokens);
    int words = tree->word_count;
    s->tree = tree, s->tokens = tokens;
    s->word_of = take(s, tokens, sizeof *s->word_of);
    s->token_count = take(s, words, sizeof *s->token_count);
    s->row = take(s, words, sizeof *s->row);
    s->best = take(s, words, sizeof *s->best);
    s->prediction = take(s, PH_DIRECTIONS * words, sizeof *s->prediction);
    int good = s->word_of && s->token_count && s->row && s->best && s->prediction;
    ph_status status = good ? place_tokens(s, word_of, io)
                            : ph_io_no_memory(io, (size_t)words, "a sentence");
    if (status != PH_OK) {
        free_sentence(s);
        return status;
    }
    for (int n = 0; n < tree->dependency_count; n++) {
        const ph_dependency *d = &tree->dependencies[n];
        if (!is_counted(s, d)) continue;
        count_baseline(s, d, 0);
        if (d->relation) count_baseline(s, d, d->relation);
    }
    return PH_OK;
}

/* ---- a head ------------------------------------------------------------------------ */

static void add_token_row(ph_syntax *s, int token, int causal, const float *weights)
{
    int seen = causal ? token + 1 : s->tokens;
    for (int j = 0; j < seen; j++)
        if (s->word_of[j] >= 0) s->row[s->word_of[j]] += (double)weights[j];
}

/* All rows of the word's tokens are added: its own prediction, and what its row says of
   the columns. The mean over its tokens matters for the columns only. */
static void end_word_row(ph_syntax *s, int word)
{
    int words = s->tree->word_count, *to = s->prediction, *from = s->prediction + words;
    double most = 0;
    for (int j = 0; j < words; j++) {
        double weight = s->row[j] / s->token_count[word];
        s->row[j] = 0;
        if (j == word) continue;
        if (weight > most) most = weight, to[word] = j;
        if (weight > s->best[j]) s->best[j] = weight, from[j] = word;
    }
}

/* A possessive before 's: that word attends for it. */
static int predictor(const ph_syntax *s, const ph_dependency *d)
{
    const ph_tree *t = s->tree;
    int next = d->dependent + 1;
    if (strcmp(ph_treebank_relation(s->treebank, d->relation), "poss") != 0 ||
        next >= t->word_count || t->words[next].length != 2)
        return d->dependent;
    const char *form = t->text + t->words[next].start;
    return !memcmp(form, "'s", 2) || !memcmp(form, "s'", 2) ? next : d->dependent;
}

static void count_right(ph_syntax *s, int head)
{
    const ph_tree *t = s->tree;
    for (int n = 0; n < t->dependency_count; n++) {
        const ph_dependency *d = &t->dependencies[n];
        if (!is_counted(s, d) || d->head < 0) continue;
        for (int way = 0; way < PH_DIRECTIONS; way++) {
            if (s->prediction[way * t->word_count + predictor(s, d)] != d->head) continue;
            s->right[head * PH_DIRECTIONS + way]++;
            if (!d->relation) continue;
            s->right[(d->relation * s->heads + head) * PH_DIRECTIONS + way]++;
        }
    }
}

ph_status ph_syntax_add(ph_syntax *s, int head, int causal, const float *weights)
{
    if (!s || !weights) return PH_BAD_ARGUMENT;
    if (!s->tree || head < 0 || head >= s->heads) return PH_BAD_ARGUMENT;
    int words = s->tree->word_count, current = -1;
    memset(s->best, 0, (size_t)words * sizeof *s->best);
    for (int i = 0; i < PH_DIRECTIONS * words; i++) s->prediction[i] = -1;
    for (int i = 0; i < s->tokens; i++) {
        int word = s->word_of[i];
        if (word < 0) continue;
        if (current >= 0 && word != current) end_word_row(s, current);
        add_token_row(s, i, causal, weights + (size_t)i * (size_t)s->tokens);
        current = word;
    }
    if (current >= 0) end_word_row(s, current);
    count_right(s, head);
    return PH_OK;
}

/* ---- scores ------------------------------------------------------------------------ */

int64_t ph_syntax_right(const ph_syntax *s, int relation, int head, ph_direction way)
{
    if (!s || relation < 0 || relation >= s->relations || head < 0 || head >= s->heads ||
        (unsigned)way >= PH_DIRECTIONS)
        return -1;
    return s->right[(relation * s->heads + head) * PH_DIRECTIONS + (int)way];
}

ph_status ph_syntax_read(const ph_syntax *s, int relation, ph_syntax_score *out)
{
    if (!s || !out || relation < 0 || relation >= s->relations) return PH_BAD_ARGUMENT;
    const int64_t *baseline = s->baseline + relation * OFFSETS;
    *out = (ph_syntax_score){.words = s->words[relation], .head = -1};
    for (int h = 0; h < s->heads && out->words; h++)
        for (int way = 0; way < PH_DIRECTIONS; way++) {
            int64_t right = ph_syntax_right(s, relation, h, (ph_direction)way);
            if (out->head >= 0 && right <= out->right) continue;
            out->head = h, out->direction = (ph_direction)way, out->right = right;
        }
    for (int o = 0; o < OFFSETS; o++)
        if (o == 0 || baseline[o] > out->baseline)
            out->offset = FIRST_OFFSET + o, out->baseline = baseline[o];
    return PH_OK;
}

/* ---- making and freeing ------------------------------------------------------------ */

ph_status ph_syntax_create(ph_syntax **out, const ph_treebank *treebank, int heads,
                           const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !treebank) return ph_io_null(io, "out or treebank");
    ph_syntax *s = ph_io_alloc(io, sizeof *s);
    int relations = 0, cells = 0;
    if (!s) return ph_io_no_memory(io, sizeof *s, "counters of heads");
    *s = (ph_syntax){.hooks = ph_io_hooks(io), .treebank = treebank, .heads = heads};
    while (ph_treebank_relation(treebank, relations)) relations++;
    s->relations = relations;
    if (heads >= 1 && heads <= INT32_MAX / PH_DIRECTIONS / relations)
        cells = relations * heads * PH_DIRECTIONS;
    s->words = take(s, relations, sizeof *s->words);
    s->baseline = take(s, relations * OFFSETS, sizeof *s->baseline);
    s->right = cells ? take(s, cells, sizeof *s->right) : NULL;
    if (s->words && s->baseline && s->right) {
        *out = s;
        return PH_OK;
    }
    ph_syntax_free(s);
    return ph_io_fail(io, cells ? PH_OUT_OF_MEMORY : PH_BAD_SHAPE,
                      "no counters for %d heads and %d relations", heads, relations);
}

void ph_syntax_free(ph_syntax *s)
{
    if (!s) return;
    ph_io hooks = s->hooks;
    free_sentence(s);
    ph_io_release(&hooks, s->words);
    ph_io_release(&hooks, s->baseline);
    ph_io_release(&hooks, s->right);
    ph_io_release(&hooks, s);
}
