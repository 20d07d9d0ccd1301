/*
 * cmd_tokens.c - `polyhead tokens MODEL TEXT`: the tokens a model sees in a text, their
 * ids, and where they stand.
 *
 * A tokenizer is read alone where there is one, so that a model of any architecture will
 * do. Else the model is read, which has a tokenizer or words of its own.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/encoder_input.h"
#include "framework/json.h"
#include "framework/term.h"
#include "polyhead_text.h"

typedef struct tokens_options {
    const char *pair;
    int bare, special_as_text, json;
    int64_t max_tokens;
} tokens_options;

#define AT(field) offsetof(tokens_options, field)
static const ph_option table[] = {
    {.name = "pair",
     .kind = PH_OPT_TEXT,
     .metavar = "TEXT",
     .at = AT(pair),
     .help = "a second text, for models that take two"},
    {.name = "bare",
     .kind = PH_OPT_FLAG,
     .at = AT(bare),
     .help = "without the tokens that the template puts around a text"},
    {.name = "special-as-text",
     .kind = PH_OPT_FLAG,
     .at = AT(special_as_text),
     .help = "special tokens in the text, like </s>, are plain text"},
    {.name = "max-tokens",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 1,
     .high = 1 << 30,
     .at = AT(max_tokens),
     .help = "truncate to this many"},
    {.name = "json",
     .kind = PH_OPT_FLAG,
     .at = AT(json),
     .help = "one JSON object instead of text"},
    {.name = NULL}};

typedef struct encoded {
    ph_tokenizer *read;            /* alone; or NULL */
    encoder_input in;              /* the model, where it was read */
    const ph_tokenizer *tokenizer; /* of either; NULL: a vocabulary of the model's own */
    ph_encoder *encoder;
    const ph_text_token *tokens;
    ph_text_token *own; /* memory for tokens of a vocabulary */
    size_t count;
    char error[CLI_ERROR_SIZE];
} encoded;

static const char *text_of(const encoded *e, int32_t id)
{
    return e->tokenizer ? ph_tokenizer_token(e->tokenizer, id, NULL)
                        : ph_model_token(e->in.m, id);
}

static void print_tokens(const encoded *e)
{
    printf("%s%8s  %-13s %s%s\n", term_on(stdout, TERM_DIM), "id", "bytes", "token",
           term_on(stdout, TERM_PLAIN));
    for (size_t i = 0; i < e->count; i++) {
        const ph_text_token *k = &e->tokens[i];
        char quoted[CLI_QUOTE_SIZE], place[48] = "";
        if (k->sequence >= 0)
            snprintf(place, sizeof place, "%zu-%zu%s", k->start, k->end,
                     k->sequence ? " B" : "");
        cli_quote(text_of(e, k->id), quoted, sizeof quoted);
        printf("%8d  %-13s %s'%s'%s\n", (int)k->id, place,
               k->special ? term_on(stdout, TERM_DIM) : "", quoted,
               k->special ? term_on(stdout, TERM_PLAIN) : "");
    }
    printf("%zu tokens\n", e->count);
}

/* What cuts a text into tokens, and how many there are. */
static void print_kind(const encoded *e, ph_json_writer *j)
{
    static const char *const splits[] = {[PH_SPLIT_WORDS] = "words",
                                         [PH_SPLIT_CHARS] = "chars",
                                         [PH_SPLIT_BYTES] = "bytes"};
    if (e->tokenizer) {
        ph_tokenizer_info info = ph_tokenizer_about(e->tokenizer);
        ph_json_string(j, "model", info.model);
        ph_json_integer(j, "vocab_size", (int64_t)info.vocab_size);
    } else {
        ph_json_string(j, "model", splits[ph_model_splits(e->in.m)]);
        ph_json_integer(j, "vocab_size", ph_model_config(e->in.m)->vocab);
    }
}

static void print_json(const encoded *e)
{
    ph_json_writer j = json_begin("polyhead.tokens/1");
    print_kind(e, &j);
    ph_json_begin_array(&j, "tokens");
    for (size_t i = 0; i < e->count; i++) {
        const ph_text_token *k = &e->tokens[i];
        ph_json_begin_object(&j, NULL);
        ph_json_integer(&j, "id", k->id);
        ph_json_string(&j, "token", text_of(e, k->id));
        ph_json_integer(&j, "start", (int64_t)k->start);
        ph_json_integer(&j, "end", (int64_t)k->end);
        ph_json_integer(&j, "type", k->type);
        ph_json_integer(&j, "sequence", k->sequence);
        ph_json_bool(&j, "special", k->special);
        ph_json_end(&j);
    }
    json_end(&j);
}

/* ---- the command ---- */

/* The tokenizer of the path, or else the model there; what is neither is refused as no
   tokenizer. */
static int open_tokens(encoded *e, const char *path)
{
    const ph_io io = {.error = e->error, .error_size = sizeof e->error};
    const ph_machine machine = {.threads = 1};
    ph_status status = ph_tokenizer_open(&e->read, path, &io);
    e->tokenizer = e->read;
    if (status == PH_OK) return EXIT_OK;
    int rc = cli_open(&e->in.ctx, &machine, 0);
    if (rc) return rc;
    ph_status other = encoder_read(&e->in.m, e->in.ctx, path);
    if (other != PH_OK && access(path, F_OK)) return cli_fail_status(other, e->in.ctx);
    if (other != PH_OK) return cli_result(status, e->error);
    e->tokenizer = ph_model_tokenizer(e->in.m);
    return EXIT_OK;
}

static int encode(encoded *e, const tokens_options *o, const char *text)
{
    const ph_io io = {.error = e->error, .error_size = sizeof e->error};
    const ph_encode_args args = {.text = text,
                                 .length = strlen(text),
                                 .pair = o->pair,
                                 .pair_length = o->pair ? strlen(o->pair) : 0,
                                 .bare = o->bare,
                                 .special_as_text = o->special_as_text,
                                 .max_tokens = (size_t)o->max_tokens};
    ph_status status = ph_encoder_create(&e->encoder, e->tokenizer, &io);
    if (status == PH_OK) status = ph_encode(e->encoder, &args, &e->tokens, &e->count);
    return cli_result(status, e->error);
}

static void take_words(encoded *e, const ph_word *words)
{
    for (size_t i = 0; i < e->count; i++)
        e->own[i] = (ph_text_token){.id = words[i].token,
                                    .type = words[i].type,
                                    .sequence = words[i].mark ? -1 : 0,
                                    .special = words[i].mark != 0,
                                    .start = (size_t)words[i].start,
                                    .end = (size_t)(words[i].start + words[i].length)};
    e->tokens = e->own;
}

/* By the vocabulary of a model of ours. */
static int split(encoded *e, const tokens_options *o, const char *text)
{
    int count = 0;
    if (o->pair || o->bare || o->special_as_text)
        return cli_fail(EXIT_USAGE, "--pair, --bare and --special-as-text go with "
                                    "published tokenizers: the model has a vocabulary of "
                                    "its own");
    ph_status status = ph_model_split(e->in.m, text, NULL, 0, &count);
    ph_word *words = calloc((size_t)count + 1, sizeof *words);
    e->own = calloc((size_t)count + 1, sizeof *e->own);
    if (!words || !e->own) {
        free(words);
        return cli_fail(EXIT_MEMORY, "out of memory");
    }
    if (status == PH_OK) status = ph_model_split(e->in.m, text, words, count, &count);
    e->count = (size_t)count;
    if (o->max_tokens && e->count > (size_t)o->max_tokens)
        e->count = (size_t)o->max_tokens;
    if (status == PH_OK) take_words(e, words);
    free(words);
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, e->in.ctx);
}

static int run(const void *options, int count, const char *const *words)
{
    const tokens_options *o = options;
    encoded e = {0};
    const char *text = words[1];
    (void)count;
    int rc = open_tokens(&e, words[0]);
    if (!rc) rc = encoder_stdin(&e.in, &text);
    if (!rc) rc = (e.tokenizer ? encode : split)(&e, o, text);
    if (!rc) (o->json ? print_json : print_tokens)(&e);
    ph_encoder_free(e.encoder);
    ph_tokenizer_free(e.read);
    encoder_close(&e.in);
    free(e.own);
    return rc;
}

static const char *const examples[] = {
    "polyhead tokens all-MiniLM-L6-v2 \"Heads attend.\"",
    "the tokens of a Hugging Face folder, with ids and byte offsets",
    "polyhead tokens SmolLM2.gguf \"<|im_start|>user\" --special-as-text --json",
    "those of a GGUF file, as untrusted text is encoded", NULL};

const ph_command command_tokens = {
    .name = "tokens",
    .summary = "the tokens a model sees in a text",
    .usage = "MODEL TEXT [options]",
    .about =
        "MODEL is what the other commands take (a Hugging Face folder, a GGUF file, a "
        "llama2.c file beside its tokenizer.bin, the directory of a training), or a file "
        "of a tokenizer: tokenizer.json, vocab.txt of BERT, tokenizer.bin of llama2.c. "
        "Ids and offsets are those of the package tokenizers; a file with a component "
        "that is not known is refused with its name. The TEXT '-' is standard input.",
    .examples = examples,
    .options = table,
    .size = sizeof(tokens_options),
    .word = "MODEL",
    .fewest_words = 2,
    .most_words = 2,
    .run = run};
