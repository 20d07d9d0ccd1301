/*
 * cmd_generate.c - `polyhead generate MODEL TEXT`: runs a trained model on text.
 *
 * A decoder goes on with the text, an encoder-decoder answers it, an encoder says for
 * every word which word it belongs to.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/cli.h"
#include "framework/json.h"
#include "polyhead_model.h"
#include "framework/term.h"
#include "commands/cmd_train.h"

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
     .help = "seed of the choices"},
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

/* Part number i of a list with ';' between. */
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
    json j = {0};
    if (as_json) {
        j = json_begin("polyhead.generate/1");
        json_open(&j, "words", '[');
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
        json_open(&j, NULL, '{');
        json_text(&j, "word", word);
        json_int(&j, "belongs_to", links[i].word);
        json_text(&j, "role", name);
        json_real(&j, "probability", links[i].p);
        json_close(&j);
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

static int answer_links(const ph_model *m, ph_ctx *ctx, const char *text, int as_json)
{
    ph_reading *r;
    ph_status status = ph_reading_create(&r, m, text, NULL);
    if (status != PH_OK) return cli_fail_status(status, ctx);
    int n = ph_reading_length(r, 0);
    link *links = calloc((size_t)n, sizeof *links);
    status =
        links ? find_links(r, links, n, ph_model_config(m)->heads) : PH_OUT_OF_MEMORY;
    if (status == PH_OK) print_links(m, r, text, links, n, as_json);
    free(links);
    ph_reading_free(r);
    return status == PH_OK ? EXIT_OK : cli_fail(EXIT_MEMORY, "out of memory");
}

/* ---- decoders: new text ---- */

static int answer_text(const ph_model *m, ph_ctx *ctx, const char *text,
                       const generate_options *o)
{
    ph_generation how = {.max_tokens = (int)o->max_tokens,
                         .temperature = (float)o->temperature,
                         .top_k = (int)o->top_k,
                         .top_p = (float)o->top_p,
                         .beams = (int)o->beams,
                         .seed = (uint64_t)o->seed};
    size_t room = (size_t)ph_model_config(m)->max_len * 256 + 1; /* longest tokens */
    char *out = malloc(room);
    if (!out) return cli_fail(EXIT_MEMORY, "out of memory");
    double start = train_now();
    ph_status status = ph_generate(m, text, &how, out, room, NULL);
    if (o->time) fprintf(stderr, "%.6f seconds\n", train_now() - start);
    int rc = EXIT_OK;
    if (status != PH_OK) {
        rc = cli_fail_status(status, ctx);
    } else if (o->json) {
        json j = json_begin("polyhead.generate/1");
        json_text(&j, "text", text);
        json_text(&j, "generated", out);
        json_end(&j);
    } else {
        int goes_on = ph_model_config(m)->arch == PH_ARCH_DECODER;
        printf("%s%s\n", goes_on ? text : "", out);
    }
    free(out);
    return rc;
}

static int answer(const ph_model *m, ph_ctx *ctx, const char *text,
                  const generate_options *o)
{
    if (ph_model_config(m)->arch == PH_ARCH_ENCODER)
        return answer_links(m, ctx, text, o->json);
    return answer_text(m, ctx, text, o);
}

static int answer_lines(const ph_model *m, ph_ctx *ctx, const generate_options *o)
{
    char *line = NULL;
    size_t room = 0;
    int rc = EXIT_OK;
    for (ssize_t n; !rc && (n = getline(&line, &room, stdin)) > 0;) {
        if (line[n - 1] == '\n') line[n - 1] = 0;
        if (line[0]) rc = answer(m, ctx, line, o);
        fflush(stdout);
    }
    free(line);
    return rc;
}

/* ---- the command ---- */

/* "pronouns" is the model in the program, a directory the model of a training. */
static ph_status read_model(ph_model **m, ph_ctx *ctx, const char *name)
{
    struct stat info;
    char path[4200];
    int there = stat(name, &info) == 0;
    if (!there && !strcmp(name, "pronouns")) return ph_model_embedded(m, ctx);
    snprintf(path, sizeof path, "%s%s", name,
             there && S_ISDIR(info.st_mode) ? "/model.safetensors" : "");
    return ph_model_read(m, ctx, path);
}

static int run(const void *chosen, int count, const char *const *words)
{
    const generate_options *o = chosen;
    ph_ctx *ctx;
    ph_model *m = NULL;
    if (o->beams > 1 && o->temperature > 0)
        return cli_fail(EXIT_USAGE, "--beams searches, --temperature chooses by chance: "
                                    "expected one of them");
    int rc = cli_open(&ctx, &o->machine);
    if (rc) return rc;
    ph_status status = read_model(&m, ctx, words[0]);
    if (status != PH_OK)
        rc = cli_fail_status(status, ctx);
    else
        rc = count > 1 ? answer(m, ctx, words[1], o) : answer_lines(m, ctx, o);
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
    "goes on with a text, after 'polyhead train text FILE'",
    NULL};

const ph_command command_generate = {
    .name = "generate",
    .summary = "run a trained model on text",
    .usage = "MODEL [TEXT] [options]",
    .about = "MODEL is a model file, the directory of a training, or pronouns, the model "
             "in the program. Without TEXT every line of stdin is one.",
    .examples = examples,
    .options = table,
    .size = sizeof(generate_options),
    .word = "MODEL",
    .fewest_words = 1,
    .most_words = 2,
    .run = run};
