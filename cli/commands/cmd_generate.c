/*
 * cmd_generate.c - `polyhead generate MODEL TEXT`: runs a trained model on text.
 *
 * A decoder continues the text, an encoder-decoder answers it, an encoder says for
 * every word which word it belongs to.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/cmd_train.h"
#include "framework/cli.h"
#include "framework/json.h"
#include "framework/term.h"
#include "polyhead_model.h"

typedef struct generate_options {
    int json, time;
    int64_t max_tokens, top_k, beams, seed;
    double temperature, top_p;
    ph_machine machine;
} generate_options;

#define AT(field) offsetof(generate_options, field)

static const ph_option table[] = {
    {.name = "max-tokens",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 0,
     .high = 1 << 20,
     .at = AT(max_tokens),
     .help = "tokens at most; 0: as many as fit"},
    {.name = "temperature",
     .kind = PH_OPT_REAL,
     .least = 0,
     .most = 100,
     .metavar = "X",
     .at = AT(temperature),
     .help = "how freely tokens are chosen; 0: the likeliest each time"},
    {.name = "top-k",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 0,
     .high = 1 << 20,
     .at = AT(top_k),
     .help = "only among the N likeliest; 0: all"},
    {.name = "top-p",
     .kind = PH_OPT_REAL,
     .least = 0,
     .most = 1,
     .metavar = "P",
     .at = AT(top_p),
     .help = "only among the likeliest that sum to P; 0: all"},
    {.name = "beams",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 1,
     .high = 256,
     .at = AT(beams),
     .fallback = "1",
     .help = "encoder-decoder: search with N texts side by side"},
    {.name = "seed",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 0,
     .high = INT64_MAX,
     .at = AT(seed),
     .help = "seed of the choices; lines of stdin differ from each other"},
    {.name = "time",
     .kind = PH_OPT_FLAG,
     .at = AT(time),
     .help = "also say on stderr how many seconds it took"},
    {.name = "json",
     .kind = PH_OPT_FLAG,
     .at = AT(json),
     .help = "one JSON object instead of text"},
    PH_MACHINE_OPTIONS(generate_options, machine),
    {.name = NULL}};

/* ---- an encoder: words and what they belong to ---- */

typedef struct link {
    int word, role;
    double p;
} link;

static int best(const float *x, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[at]) at = i;
    return at;
}

/* Entry number i of a list with ';' between. */
static int role_name(const char *list, int i, const char **name)
{
    for (; i > 0 && *list; i--) {
        list += strcspn(list, ";");
        if (*list) list++;
    }
    *name = list;
    return (int)strcspn(list, ";");
}

static void print_links(const ph_model *m, const ph_reading *r, const char *text,
                        const link *links, int n, int as_json)
{
    ph_json_writer j = {0};
    if (as_json) {
        j = json_begin("polyhead.generate/1");
        ph_json_begin_array(&j, "words");
    }
    for (int i = 0; i < n; i++) {
        const ph_word *w = ph_reading_word(r, 0, i);
        const ph_word *to = ph_reading_word(r, 0, links[i].word);
        const char *role;
        int length = role_name(ph_model_config(m)->roles, links[i].role, &role);
        char word[64], name[64];
        snprintf(word, sizeof word, "%.*s", w->length, text + w->start);
        snprintf(name, sizeof name, "%.*s", length, role);
        if (!as_json) {
            printf("%-14s -> %.*s  %s%s, %.3f%s\n", word, to->length, text + to->start,
                   term_on(stdout, TERM_DIM), name, links[i].p,
                   term_on(stdout, TERM_PLAIN));
            continue;
        }
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, "word", word);
        ph_json_integer(&j, "belongs_to", links[i].word);
        ph_json_string(&j, "role", name);
        ph_json_double(&j, "probability", links[i].p);
        ph_json_end(&j);
    }
    if (as_json) json_end(&j);
}

static ph_status find_links(const ph_reading *r, link *links, int n, int heads)
{
    float *p = malloc((size_t)n * (size_t)n * sizeof *p);
    float *mix = malloc((size_t)n * (size_t)heads * sizeof *mix);
    ph_status status = p && mix ? ph_reading_links(r, p, mix) : PH_OUT_OF_MEMORY;
    for (int i = 0; status == PH_OK && i < n; i++) {
        const float *row = p + (size_t)i * (size_t)n;
        links[i].word = best(row, n);
        links[i].role = best(mix + (size_t)i * (size_t)heads, heads);
        links[i].p = row[links[i].word];
    }
    free(p);
    free(mix);
    return status;
}

/* One text at a time. */
typedef struct generate_job {
    const ph_model *m;
    ph_ctx *ctx;
    const generate_options *o;
    uint64_t line; /* of stdin, from 1; 0: TEXT */
} generate_job;

static int answer_links(const generate_job *j, const char *text)
{
    ph_reading *r;
    ph_status status = ph_reading_create(&r, j->m, text, NULL);
    if (status != PH_OK) return cli_exit_code(status);
    int n = ph_reading_length(r, 0);
    link *links = calloc((size_t)n, sizeof *links);
    status =
        links ? find_links(r, links, n, ph_model_config(j->m)->heads) : PH_OUT_OF_MEMORY;
    if (status == PH_OK) print_links(j->m, r, text, links, n, j->o->json);
    free(links);
    ph_reading_free(r);
    return cli_exit_code(status);
}

/* ---- decoders: new text ---- */

/* text NULL: one that JSON cannot hold; generated NULL: none. */
static void print_text(const generate_job *j, const char *text, const char *generated)
{
    if (j->o->json) {
        ph_json_writer out = json_begin("polyhead.generate/1");
        ph_json_string(&out, "text", text);
        ph_json_string(&out, "generated", generated);
        json_end(&out);
    } else {
        int continues = ph_model_config(j->m)->arch == PH_ARCH_DECODER && generated;
        printf("%s%s\n", continues ? text : "", generated ? generated : "");
    }
}

static int answer_text(const generate_job *j, const char *text)
{
    const generate_options *o = j->o;
    ph_generation how = {.max_tokens = (int)o->max_tokens,
                         .temperature = (float)o->temperature,
                         .top_k = (int)o->top_k,
                         .top_p = (float)o->top_p,
                         .beams = (int)o->beams,
                         .seed = (uint64_t)o->seed,
                         .text_number = j->line ? j->line - 1 : 0};
    size_t size = (size_t)ph_model_config(j->m)->max_len * 256 + 1; /* longest tokens */
    char *out = malloc(size);
    if (!out) return EXIT_MEMORY;
    ph_status status = ph_generate(j->m, text, &how, out, size, NULL);
    if (status == PH_OK) print_text(j, text, out);
    free(out);
    return cli_exit_code(status);
}

static int is_encoder(const generate_job *j)
{
    return ph_model_config(j->m)->arch == PH_ARCH_ENCODER;
}

/* An answer of its own for a line that has none: answers stay aligned with lines. */
static void print_nothing(const generate_job *j, const char *text)
{
    if (!is_encoder(j))
        print_text(j, text, text && !*text ? "" : NULL);
    else if (j->o->json)
        print_links(j->m, NULL, text, NULL, 0, 1);
}

static int answer(const generate_job *j, const char *text)
{
    double start = train_now();
    int rc = is_encoder(j) ? answer_links(j, text) : answer_text(j, text);
    if (j->o->time) fprintf(stderr, "%.6f seconds\n", train_now() - start);
    if (rc == EXIT_OK) return rc;
    const char *sentence = rc == EXIT_MEMORY ? "out of memory" : ph_error(j->ctx);
    if (!j->line) return cli_fail(rc, "%s", sentence);
    cli_fail(rc, "line %llu: %s", (unsigned long long)j->line, sentence);
    if (rc == EXIT_BAD_INPUT) print_nothing(j, text);
    return rc;
}

/* ---- lines of stdin ---- */

static int answer_line(const generate_job *j, const char *line, size_t length)
{
    int tokens = 0;
    if (strlen(line) < length) {
        print_nothing(j, NULL);
        return cli_fail(EXIT_BAD_INPUT, "line %llu: a byte is 0, expected text",
                        (unsigned long long)j->line);
    }
    ph_model_split(j->m, line, NULL, 0, &tokens);
    if (tokens) return answer(j, line);
    print_nothing(j, "");
    return EXIT_OK;
}

/* A line that is refused costs its own answer; the others still get theirs. */
static int answer_lines(const generate_job *given)
{
    generate_job j = *given;
    char *line = NULL;
    size_t capacity = 0;
    int rc = EXIT_OK, last = EXIT_OK;
    for (ssize_t n; (last == EXIT_OK || last == EXIT_BAD_INPUT) &&
                    (n = getline(&line, &capacity, stdin)) > 0;) {
        j.line++;
        if (line[n - 1] == '\n') line[--n] = 0;
        last = answer_line(&j, line, (size_t)n);
        if (is_encoder(&j) && !j.o->json) printf("\n"); /* its answers have many lines */
        if (rc == EXIT_OK) rc = last;
        fflush(stdout);
    }
    free(line);
    if (ferror(stdin)) return cli_fail(EXIT_IO, "cannot read stdin: %s", strerror(errno));
    return rc;
}

/* ---- the command ---- */

/* "pronouns" is the model in the program. */
static ph_status read_model(ph_model **m, ph_ctx *ctx, const char *name)
{
    struct stat info;
    int embedded = !strcmp(name, "pronouns") && stat(name, &info) != 0;
    return embedded ? ph_model_embedded(m, ctx) : ph_model_read(m, ctx, name);
}

static int refuse_options(const generate_options *o)
{
    if (o->beams == 1 && !o->max_tokens && !o->top_k && !o->seed && o->temperature == 0 &&
        o->top_p == 0)
        return EXIT_OK;
    return cli_fail(EXIT_USAGE,
                    "the model is an encoder, which says what words belong to: --beams, "
                    "--max-tokens, --temperature, --top-k, --top-p and --seed are for "
                    "decoders");
}

static int run(const void *chosen, int count, const char *const *words)
{
    const generate_options *o = chosen;
    ph_ctx *ctx;
    ph_model *m = NULL;
    if (o->beams > 1 && o->temperature > 0)
        return cli_fail(EXIT_USAGE, "--beams searches, --temperature samples: "
                                    "expected one of them");
    int rc = cli_open(&ctx, &o->machine, 0);
    if (rc) return rc;
    ph_status status = read_model(&m, ctx, words[0]);
    if (status != PH_OK) rc = cli_fail_status(status, ctx);
    generate_job j = {.m = m, .ctx = ctx, .o = o};
    if (!rc && is_encoder(&j)) rc = refuse_options(o);
    if (!rc) rc = count > 1 ? answer(&j, words[1]) : answer_lines(&j);
    ph_model_free(m);
    ph_close(ctx);
    return rc;
}

static const char *const examples[] = {
    "polyhead generate pronouns \"The cat ate the fish because it was hungry.\"",
    "what every word belongs to, by the model in the program",
    "polyhead generate runs/dates \"3rd of March 2019\"",
    "an ISO date, after 'polyhead train dates'",
    "polyhead generate runs/text \"Once upon\" --temperature 0.8 --top-k 40",
    "continues a text, after 'polyhead train text FILE'",
    "polyhead generate SmolLM2-135M-Instruct.Q4_1.gguf \"The capital of France is\"",
    "the same with a published checkpoint and its own tokenizer",
    NULL};

const ph_command command_generate = {
    .name = "generate",
    .summary = "run a trained model on text",
    .usage = "MODEL [TEXT] [options]",
    .about =
        "MODEL is a Hugging Face folder, a GGUF or llama2.c file (docs/MODELS.md), "
        "a model file or the directory of a training, or pronouns, the model in the "
        "program. Without TEXT every line of stdin is one, and each has its own "
        "answer: an empty one where the line is blank or refused.",
    .examples = examples,
    .options = table,
    .size = sizeof(generate_options),
    .word = "MODEL",
    .fewest_words = 1,
    .most_words = 2,
    .run = run};
