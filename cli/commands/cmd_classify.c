/*
 * cmd_classify.c - `polyhead classify MODEL TEXT`: the classes of a text or a picture, or
 * of every token of a text.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/encoder_input.h"
#include "framework/json.h"
#include "framework/term.h"

typedef struct classify_options {
    const char *file, *pair;
    int64_t top;
    int json;
    ph_machine machine;
} classify_options;

#define AT(field) offsetof(classify_options, field)
static const ph_option table[] = {
    ENCODER_OPTION_FILE(classify_options),
    {.name = "pair",
     .kind = PH_OPT_TEXT,
     .metavar = "TEXT",
     .at = AT(pair),
     .help = "a second text that belongs to each, for models that take two"},
    {.name = "top",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 1,
     .high = 1 << 20,
     .at = AT(top),
     .fallback = "5",
     .help = "how many classes of each text"},
    {.name = "json",
     .kind = PH_OPT_FLAG,
     .at = AT(json),
     .help = "one JSON object instead of text"},
    PH_MACHINE_OPTIONS(classify_options, machine),
    {.name = NULL}};

static const char *name_of(const ph_model *m, int class, char *buffer, size_t size)
{
    const char *name = ph_model_class(m, class);
    if (*name) return name;
    snprintf(buffer, size, "class %d", class);
    return buffer;
}

static int take_best(float *p, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (p[i] > p[best]) best = i;
    return best;
}

static void print_classes(const ph_model *m, float *p, int top)
{
    int classes = ph_model_config(m)->classes;
    for (int n = 0; n < top && n < classes; n++) {
        char buffer[32], quoted[CLI_QUOTE_SIZE];
        int best = take_best(p, classes);
        cli_quote(name_of(m, best, buffer, sizeof buffer), quoted, sizeof quoted);
        printf("%-24s %s%.4f%s\n", quoted, term_on(stdout, TERM_DIM), (double)p[best],
               term_on(stdout, TERM_PLAIN));
        p[best] = -INFINITY;
    }
}

static void write_classes(ph_json_writer *j, const ph_model *m, float *p, int top)
{
    int classes = ph_model_config(m)->classes;
    const char *kind = ph_model_has_probabilities(m) ? "probability" : "score";
    ph_json_begin_array(j, "classes");
    for (int n = 0; n < top && n < classes; n++) {
        char buffer[32];
        int best = take_best(p, classes);
        ph_json_begin_object(j, NULL);
        ph_json_integer(j, "class", best);
        ph_json_string(j, "name", name_of(m, best, buffer, sizeof buffer));
        ph_json_float(j, kind, p[best]);
        ph_json_end(j);
        p[best] = -INFINITY;
    }
    ph_json_end(j);
}

static void show_all(const encoder_input *in, float *scores, const classify_options *o)
{
    int classes = ph_model_config(in->m)->classes;
    int pictures = ph_model_config(in->m)->image_size > 0;
    ph_json_writer j = {0};
    if (o->json) {
        j = json_begin("polyhead.classify/1");
        ph_json_begin_array(&j, pictures ? "pictures" : "texts");
    }
    for (int i = 0; i < in->count; i++) {
        float *p = scores + (size_t)i * (size_t)classes;
        ph_class_probabilities(in->m, p);
        if (o->json) {
            ph_json_begin_object(&j, NULL);
            ph_json_string(&j, pictures ? "file" : "text", in->texts[i]);
            write_classes(&j, in->m, p, (int)o->top);
            ph_json_end(&j);
        } else {
            if (i) putchar('\n');
            print_classes(in->m, p, (int)o->top);
        }
    }
    if (o->json) json_end(&j);
}

/* ---- models that classify every token ---- */

/* A token as in the text; one of blanks alone, which offsets leave out, as the tokenizer
   spells it. */
static const char *quote_token(const ph_model *m, const ph_word *word, const char *text,
                               char *quoted, size_t size)
{
    char piece[128];
    snprintf(piece, sizeof piece, "%.*s", word->length, text + word->start);
    return cli_quote(word->length ? piece : ph_model_token(m, word->token), quoted, size);
}

/* Every token of the text itself, with its likeliest class. */
static void print_tokens(const ph_reading *r, const encoder_input *in, const char *text,
                         float *p)
{
    int classes = ph_model_config(in->m)->classes;
    for (int i = 0; i < ph_reading_length(r, 0); i++) {
        const ph_word *word = ph_reading_word(r, 0, i);
        char buffer[32], name[CLI_QUOTE_SIZE], token[CLI_QUOTE_SIZE];
        float *row = p + (size_t)i * (size_t)classes;
        int best = take_best(row, classes);
        if (word->mark) continue;
        quote_token(in->m, word, text, token, sizeof token);
        cli_quote(name_of(in->m, best, buffer, sizeof buffer), name, sizeof name);
        term_pad(stdout, token, 24);
        printf(" %-16s %s%.4f%s\n", name, term_on(stdout, TERM_DIM), (double)row[best],
               term_on(stdout, TERM_PLAIN));
    }
}

static void write_tokens(ph_json_writer *j, const ph_reading *r, const encoder_input *in,
                         const char *text, float *p, int top)
{
    int classes = ph_model_config(in->m)->classes;
    ph_json_begin_object(j, NULL);
    ph_json_string(j, "text", text);
    ph_json_begin_array(j, "tokens");
    for (int i = 0; i < ph_reading_length(r, 0); i++) {
        const ph_word *word = ph_reading_word(r, 0, i);
        if (word->mark) continue;
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "token", ph_model_token(in->m, word->token));
        ph_json_integer(j, "start", word->start);
        ph_json_integer(j, "length", word->length);
        write_classes(j, in->m, p + (size_t)i * (size_t)classes, top);
        ph_json_end(j);
    }
    ph_json_end(j);
    ph_json_end(j);
}

static ph_status classify_tokens_of(const encoder_input *in, int i, ph_json_writer *j,
                                    const classify_options *o)
{
    ph_reading *r = NULL;
    ph_status status = ph_reading_create(&r, in->m, in->texts[i], NULL);
    size_t classes = (size_t)ph_model_config(in->m)->classes;
    float *p = r ? malloc((size_t)ph_reading_length(r, 0) * classes * sizeof *p) : NULL;
    if (status == PH_OK && !p) status = PH_OUT_OF_MEMORY;
    if (status == PH_OK) status = ph_reading_token_classes(r, p);
    if (status == PH_OK && o->json) {
        write_tokens(j, r, in, in->texts[i], p, (int)o->top);
    } else if (status == PH_OK) {
        if (i) putchar('\n');
        print_tokens(r, in, in->texts[i], p);
    }
    free(p);
    ph_reading_free(r);
    return status;
}

/* Two classes without names are the beginning and the end of an answer to a question: a
   softmax over tokens, not over classes. */
static int classify_tokens(const encoder_input *in, const classify_options *o)
{
    ph_json_writer j = {0};
    ph_status status = PH_OK;
    if (ph_model_config(in->m)->classes == 2 && !*ph_model_class(in->m, 0))
        return cli_fail(EXIT_UNSUPPORTED,
                        "the model scores every token as the beginning and the end of an "
                        "answer: classify has no way to show that");
    if (o->pair)
        return cli_fail(EXIT_USAGE, "--pair is for models that classify a whole text, "
                                    "this one classifies every token");
    if (o->json) {
        j = json_begin("polyhead.classify/1");
        ph_json_begin_array(&j, "texts");
    }
    for (int i = 0; i < in->count && status == PH_OK; i++)
        status = classify_tokens_of(in, i, &j, o);
    if (status != PH_OK) return encoder_fail(in, status);
    if (o->json) json_end(&j);
    return EXIT_OK;
}

/* ---- models that classify a text or a picture ---- */

static ph_status classify_texts(const encoder_input *in, const char *pair, float *scores)
{
    const char **pairs = calloc((size_t)in->count, sizeof *pairs);
    if (!pairs) return PH_OUT_OF_MEMORY;
    for (int i = 0; i < in->count; i++) pairs[i] = pair;
    int truncated = 0;
    ph_texts all = {.texts = in->texts, .count = in->count, .truncated = &truncated};
    if (pair) all.pairs = pairs;
    ph_status status = ph_model_classify(in->m, &all, scores);
    if (status == PH_OK) encoder_say_truncated(in, truncated);
    free((void *)pairs);
    return status;
}

static int classify(const encoder_input *in, const classify_options *o)
{
    const ph_config *c = ph_model_config(in->m);
    if (c->image_size && o->pair)
        return cli_fail(EXIT_USAGE, "--pair is for texts, the model reads pictures");
    if (c->classes && !c->pooling) return classify_tokens(in, o);
    size_t floats = (size_t)in->count * (size_t)c->classes + 1;
    float *scores = malloc(floats * sizeof *scores);
    ph_status status = !scores         ? PH_OUT_OF_MEMORY
                       : c->image_size ? encoder_pictures(in, NULL, scores)
                                       : classify_texts(in, o->pair, scores);
    if (status == PH_OK) show_all(in, scores, o);
    free(scores);
    return status == PH_OK ? EXIT_OK : encoder_fail(in, status);
}

static int run(const void *chosen, int count, const char *const *words)
{
    const classify_options *o = chosen;
    encoder_input in = {0};
    int rc = encoder_open(&in, words[0], &o->machine);
    if (!rc) rc = encoder_texts(&in, count - 1, words + 1, o->file, ENCODER_EVERY_LINE);
    if (!rc) rc = classify(&in, o);
    encoder_close(&in);
    return rc;
}

static const char *const examples[] = {
    "polyhead classify distilbert-sst-2 \"What a lovely film.\"",
    "the classes of a text with their probabilities",
    "polyhead classify bert-nli \"A cat sleeps.\" --pair \"An animal rests.\" --json",
    "of two texts that belong together",
    "polyhead classify bert-base-NER \"Wolfgang lives in Berlin.\"",
    "a label for every token",
    "polyhead classify vit-base-patch16-224 cat.png",
    "of a picture",
    NULL};

const ph_command command_classify = {
    .name = "classify",
    .summary = "the classes of a text, of its tokens or of a picture",
    .usage = "MODEL [TEXT|PICTURE...] [options]",
    .about = "MODEL is an encoder or a decoder with a classifier of texts, tokens or "
             "pictures (docs/MODELS.md); one of tokens gives every token its likeliest "
             "class. PICTURE is a PNG, JPEG or PPM file, resized, cropped and "
             "scaled as preprocessor_config.json of the model says. Probabilities are "
             "those of a softmax, or each a sigmoid where several classes may be "
             "right (problem_type multi_label_classification) or there is one alone; a "
             "regression gives its scores. Texts that are too long are truncated, which "
             "a line on stderr says; to classify tokens they are refused. Without TEXT "
             "or PICTURE, or with '-', every line of standard input is one.",
    .examples = examples,
    .options = table,
    .size = sizeof(classify_options),
    .word = "MODEL and TEXT or PICTURE",
    .fewest_words = 1,
    .most_words = CLI_WORDS_MAX,
    .run = run};
