/*
 * generate_links.c - `polyhead generate` with an encoder: for every word the word it
 * belongs to.
 */
#include <stdlib.h>
#include <string.h>

#include "commands/answers.h"
#include "framework/cli.h"
#include "framework/json.h"
#include "framework/term.h"
#include "polyhead_train.h"

enum { WORD_COLUMNS = 14 };

typedef struct link {
    int word;
    double p;
    const char *relation; /* "" : not known */
} link;

static int best(const float *x, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[at]) at = i;
    return at;
}

/* A word that is not in the vocabulary, or seems to belong to such a word: a guess from
   where it stands is no answer. */
static void print_unknown(ph_json_writer *j, const char *word, int known, int as_json)
{
    if (!as_json) {
        term_pad(stdout, word, WORD_COLUMNS);
        printf(" ?  %s%snot in the vocabulary%s\n", term_on(stdout, TERM_DIM),
               known ? "to a word that is " : "", term_on(stdout, TERM_PLAIN));
        return;
    }
    ph_json_begin_object(j, NULL);
    ph_json_string(j, "word", word);
    ph_json_bool(j, "known", known);
    ph_json_string(j, "belongs_to", NULL);
    ph_json_end(j);
}

static void print_links(const answer_job *job, const ph_reading *r, const char *text,
                        const link *links, int n)
{
    const ph_model *m = job->m;
    const int as_json = job->json;
    ph_json_writer j = {0};
    if (as_json) {
        j = (job->many ? json_begin_line : json_begin)("polyhead.generate/1");
        ph_json_begin_array(&j, "words");
    }
    for (int i = 0; i < n; i++) {
        const ph_word *w = ph_reading_word(r, 0, i);
        const ph_word *to = ph_reading_word(r, 0, links[i].word);
        char word[64];
        int known = ph_model_knows(m, w->token);
        snprintf(word, sizeof word, "%.*s", w->length, text + w->start);
        if (!known || !ph_model_knows(m, to->token)) {
            print_unknown(&j, word, known, as_json);
            continue;
        }
        if (!as_json) {
            term_pad(stdout, word, WORD_COLUMNS);
            printf(" -> %.*s  %s%s %.3f%s\n", to->length, text + to->start,
                   term_on(stdout, TERM_DIM), links[i].relation, links[i].p,
                   term_on(stdout, TERM_PLAIN));
            continue;
        }
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, "word", word);
        ph_json_bool(&j, "known", 1);
        ph_json_integer(&j, "belongs_to", links[i].word);
        ph_json_string(&j, "relation", links[i].relation);
        ph_json_double(&j, "probability", links[i].p);
        ph_json_end(&j);
    }
    if (as_json) json_end(&j);
}

static ph_status name_relations(const ph_model *m, const ph_reading *r, link *links,
                                int n)
{
    const char **tokens = malloc((size_t)n * sizeof *tokens);
    int *words = malloc(2 * (size_t)n * sizeof *words);
    ph_status status = tokens && words ? PH_OK : PH_OUT_OF_MEMORY;
    for (int i = 0; status == PH_OK && i < n; i++) {
        tokens[i] = ph_model_token(m, ph_reading_word(r, 0, i)->token);
        words[i] = links[i].word;
    }
    if (status == PH_OK) status = ph_relations_of(tokens, words, n, words + n);
    for (int i = 0; status == PH_OK && i < n; i++) {
        const char *name = ph_link_name(words[n + i], (float)links[i].p);
        links[i].relation = name ? name : "";
    }
    free((void *)tokens);
    free(words);
    return status;
}

static ph_status find_links(const ph_model *m, const ph_reading *r, link *links, int n)
{
    float *p = malloc((size_t)n * (size_t)n * sizeof *p);
    ph_status status = p ? ph_reading_links(r, p) : PH_OUT_OF_MEMORY;
    for (int i = 0; status == PH_OK && i < n; i++) {
        const float *row = p + (size_t)i * (size_t)n;
        links[i].word = best(row, n);
        links[i].p = row[links[i].word];
    }
    if (status == PH_OK) status = name_relations(m, r, links, n);
    free(p);
    return status;
}

ph_status answer_links(const answer_job *job, const char *text)
{
    ph_reading *r;
    ph_status status = ph_reading_create(&r, job->m, text, NULL);
    if (status != PH_OK) return status;
    int n = ph_reading_length(r, 0);
    link *links = calloc((size_t)n, sizeof *links);
    status = links ? find_links(job->m, r, links, n) : PH_OUT_OF_MEMORY;
    if (status == PH_OK) print_links(job, r, text, links, n);
    free(links);
    ph_reading_free(r);
    return status;
}

void answer_no_links(const answer_job *job)
{
    if (job->json) print_links(job, NULL, "", NULL, 0);
}
