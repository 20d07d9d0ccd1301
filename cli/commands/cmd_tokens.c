/*
 * cmd_tokens.c - `polyhead tokens MODEL TEXT`: the tokens a model sees in a text, their
 * ids, and where they stand.
 */
#include <string.h>

#include "framework/cli.h"
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
    ph_tokenizer *tokenizer;
    ph_encoder *encoder;
    const ph_text_token *tokens;
    size_t count;
} encoded;

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
        cli_quote(ph_tokenizer_token(e->tokenizer, k->id, NULL), quoted, sizeof quoted);
        printf("%8d  %-13s %s'%s'%s\n", (int)k->id, place,
               k->special ? term_on(stdout, TERM_DIM) : "", quoted,
               k->special ? term_on(stdout, TERM_PLAIN) : "");
    }
    printf("%zu tokens\n", e->count);
}

static void print_json(const encoded *e)
{
    ph_json_writer j = json_begin("polyhead.tokens/1");
    ph_tokenizer_info info = ph_tokenizer_about(e->tokenizer);
    ph_json_string(&j, "model", info.model);
    ph_json_integer(&j, "vocab_size", (int64_t)info.vocab_size);
    ph_json_begin_array(&j, "tokens");
    for (size_t i = 0; i < e->count; i++) {
        const ph_text_token *k = &e->tokens[i];
        ph_json_begin_object(&j, NULL);
        ph_json_integer(&j, "id", k->id);
        ph_json_string(&j, "token", ph_tokenizer_token(e->tokenizer, k->id, NULL));
        ph_json_integer(&j, "start", (int64_t)k->start);
        ph_json_integer(&j, "end", (int64_t)k->end);
        ph_json_integer(&j, "type", k->type);
        ph_json_integer(&j, "sequence", k->sequence);
        ph_json_bool(&j, "special", k->special);
        ph_json_end(&j);
    }
    json_end(&j);
}

static int run(const void *options, int count, const char *const *words)
{
    const tokens_options *o = options;
    char sentence[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = sentence, .error_size = sizeof sentence};
    encoded e = {0};
    ph_encode_args args = {.text = words[1],
                           .length = strlen(words[1]),
                           .pair = o->pair,
                           .pair_length = o->pair ? strlen(o->pair) : 0,
                           .bare = o->bare,
                           .special_as_text = o->special_as_text,
                           .max_tokens = (size_t)o->max_tokens};
    (void)count;
    ph_status status = ph_tokenizer_open(&e.tokenizer, words[0], &io);
    if (status == PH_OK) status = ph_encoder_create(&e.encoder, e.tokenizer, &io);
    if (status == PH_OK) status = ph_encode(e.encoder, &args, &e.tokens, &e.count);
    if (status == PH_OK && o->json) print_json(&e);
    if (status == PH_OK && !o->json) print_tokens(&e);
    ph_encoder_free(e.encoder);
    ph_tokenizer_free(e.tokenizer);
    return cli_result(status, sentence);
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
        "MODEL is a Hugging Face folder, a GGUF file, or a file of a tokenizer: "
        "tokenizer.json, vocab.txt of BERT, tokenizer.bin of llama2.c. Ids and offsets "
        "are those of the package tokenizers; a file with a component that is not "
        "known is refused with its name.",
    .examples = examples,
    .options = table,
    .size = sizeof(tokens_options),
    .word = "MODEL",
    .fewest_words = 2,
    .most_words = 2,
    .run = run};
