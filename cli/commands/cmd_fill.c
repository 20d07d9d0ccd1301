/*
 * cmd_fill.c - `polyhead fill MODEL "The [MASK] sat"`: the likeliest words for each mask.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/encoder_input.h"
#include "framework/json.h"
#include "framework/term.h"

typedef struct fill_options {
    int64_t top;
    int json;
    ph_machine machine;
} fill_options;

enum { WORD_SIZE = 512 };

#define AT(field) offsetof(fill_options, field)
static const ph_option table[] = {{.name = "top",
                                   .kind = PH_OPT_INT,
                                   .metavar = "N",
                                   .low = 1,
                                   .high = 1000,
                                   .at = AT(top),
                                   .fallback = "5",
                                   .help = "how many words for each mask"},
                                  {.name = "json",
                                   .kind = PH_OPT_FLAG,
                                   .at = AT(json),
                                   .help = "one JSON object instead of text"},
                                  PH_MACHINE_OPTIONS(fill_options, machine),
                                  {.name = NULL}};

/* The likeliest token that is left, which is then taken out. */
static int take_best(float *log_p, int vocab, double *p)
{
    int best = 0;
    for (int v = 1; v < vocab; v++)
        if (log_p[v] > log_p[best]) best = v;
    *p = exp((double)log_p[best]);
    log_p[best] = -INFINITY;
    return best;
}

static void print_mask(const ph_model *m, float *log_p, int number, int top)
{
    int vocab = ph_model_config(m)->vocab;
    if (number) putchar('\n');
    for (int n = 0; n < top && n < vocab; n++) {
        char spelt[WORD_SIZE], quoted[CLI_QUOTE_SIZE];
        double p;
        int token = take_best(log_p, vocab, &p);
        ph_model_spell(m, token, spelt, sizeof spelt);
        term_pad(stdout, cli_quote(spelt, quoted, sizeof quoted), 20);
        printf(" %s%.4f%s\n", term_on(stdout, TERM_DIM), p, term_on(stdout, TERM_PLAIN));
    }
}

static void write_mask(ph_json_writer *j, const ph_model *m, float *log_p,
                       const ph_word *word, int top)
{
    int vocab = ph_model_config(m)->vocab;
    ph_json_begin_object(j, NULL);
    ph_json_integer(j, "start", word->start);
    ph_json_begin_array(j, "words");
    for (int n = 0; n < top && n < vocab; n++) {
        char spelt[WORD_SIZE];
        double p;
        int token = take_best(log_p, vocab, &p);
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "word", ph_model_spell(m, token, spelt, sizeof spelt));
        ph_json_string(j, "token", ph_model_token(m, token));
        ph_json_integer(j, "id", token);
        ph_json_double(j, "probability", p);
        ph_json_end(j);
    }
    ph_json_end(j);
    ph_json_end(j);
}

/* Every mask of the text. */
static int show_masks(const encoder_input *in, const ph_reading *r, float *log_p,
                      const char *text, const fill_options *o)
{
    size_t vocab = (size_t)ph_model_config(in->m)->vocab;
    int mask = ph_model_mask(in->m), found = 0, length = ph_reading_length(r, 0);
    ph_json_writer j = {0};
    for (int i = 0; i < length; i++) found += ph_reading_word(r, 0, i)->token == mask;
    if (!found)
        return cli_fail(EXIT_BAD_INPUT, "the text has no %s, expected one at least",
                        ph_model_token(in->m, mask));
    if (o->json) {
        j = json_begin("polyhead.fill/1");
        ph_json_string(&j, "text", text);
        ph_json_begin_array(&j, "masks");
    }
    found = 0;
    for (int i = 0; i < length; i++) {
        const ph_word *word = ph_reading_word(r, 0, i);
        if (word->token != mask) continue;
        if (o->json)
            write_mask(&j, in->m, log_p + (size_t)i * vocab, word, (int)o->top);
        else
            print_mask(in->m, log_p + (size_t)i * vocab, found, (int)o->top);
        found++;
    }
    if (o->json) json_end(&j);
    return EXIT_OK;
}

static int show(const encoder_input *in, const char *text, const fill_options *o)
{
    ph_reading *r;
    if (ph_model_mask(in->m) < 0)
        return cli_fail(EXIT_UNSUPPORTED, "the model predicts no masked tokens");
    ph_status status = ph_reading_create(&r, in->m, text, NULL);
    if (status != PH_OK) return cli_fail_status(status, in->ctx);
    size_t rows = (size_t)ph_reading_length(r, 0);
    size_t vocab = (size_t)ph_model_config(in->m)->vocab;
    float *log_p = malloc(rows * vocab * sizeof *log_p);
    status = log_p ? ph_reading_next(r, log_p) : PH_OUT_OF_MEMORY;
    int rc = status == PH_OK ? show_masks(in, r, log_p, text, o)
                             : cli_fail_status(status, in->ctx);
    free(log_p);
    ph_reading_free(r);
    return rc;
}

static int run(const void *chosen, int count, const char *const *words)
{
    const fill_options *o = chosen;
    encoder_input in = {0};
    const char *text = words[1];
    (void)count;
    int rc = encoder_open(&in, words[0], &o->machine);
    if (!rc) rc = encoder_stdin(&in, &text);
    if (!rc) rc = show(&in, text, o);
    encoder_close(&in);
    return rc;
}

static const char *const examples[] = {
    "polyhead fill bert-base-uncased \"The [MASK] sat on the mat.\"",
    "five words that may stand there, with probabilities",
    "polyhead fill roberta-base \"The <mask> sat on the <mask>.\" --top 3 --json",
    "several masks, each by itself", NULL};

const ph_command command_fill = {
    .name = "fill",
    .summary = "the likeliest words for masks in a text",
    .usage = "MODEL TEXT [options]",
    .about = "MODEL is an encoder that predicts masked tokens, BERT and its kin or "
             "ModernBERT (docs/MODELS.md). A mask is spelt as its tokenizer has it, "
             "[MASK] or <mask>. The TEXT '-' is standard input.",
    .examples = examples,
    .options = table,
    .size = sizeof(fill_options),
    .word = "MODEL and TEXT",
    .fewest_words = 2,
    .most_words = 2,
    .run = run};
