/*
 * cmd_generate.c - `polyhead generate MODEL TEXT`: runs a trained model on text.
 *
 * A decoder continues the text, an encoder-decoder answers it, an encoder says for
 * every word which word it belongs to.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/answers.h"
#include "commands/cmd_train.h"
#include "commands/encoder_input.h"
#include "commands/ignored_settings.h"
#include "commands/plan_heads.h"
#include "commands/unknown_words.h"
#include "framework/cli.h"
#include "framework/json.h"

typedef struct generate_options {
    int json, time, chat, kv_dtype;
    int64_t max_tokens, top_k, beams, seed, batch;
    double temperature, top_p;
    const char *prompts, *plan, *system;
    ph_text_list stop;
    ph_machine machine;
} generate_options;

#define AT(field) offsetof(generate_options, field)

/* In the order of ph_dtype. */
static const char *const cache_types[] = {"f32",  "f16",  "bf16", "q8_0",
                                          "q4_0", "q4_1", NULL};

static const ph_option table[] = {
    {.name = "prompts",
     .kind = PH_OPT_TEXT,
     .metavar = "FILE",
     .at = AT(prompts),
     .help =
         "answer every line of FILE, -: of standard input; many at a time, with the "
         "answers each has alone"},
    PH_OPTION_PLAN(generate_options, plan,
                   "with heads off or gated as a plan of the live page says"),
    {.name = "chat",
     .kind = PH_OPT_FLAG,
     .at = AT(chat),
     .help = "texts are messages: put the chat template of the model around them"},
    {.name = "system",
     .kind = PH_OPT_TEXT,
     .metavar = "TEXT",
     .at = AT(system),
     .may_be_empty = 1,
     .help = "with --chat: a message of the system before each"},
    {.name = "max-tokens",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 0,
     .high = 1 << 20,
     .at = AT(max_tokens),
     .help = "tokens at most; 0: as many as the checkpoint says (max_new_tokens or "
             "max_length), or fit"},
    {.name = "temperature",
     .kind = PH_OPT_REAL,
     .least = 0,
     .most = 100,
     .metavar = "X",
     .at = AT(temperature),
     .help = "how freely tokens are chosen; 0: the likeliest each time. What "
             "generation_config.json says of sampling counts for nothing"},
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
     .help = "seed of the choices; equal lines differ from each other"},
    {.name = "stop",
     .kind = PH_OPT_TEXTS,
     .at = AT(stop),
     .help = "end before this text; may be given several times"},
    {.name = "kv-dtype",
     .kind = PH_OPT_CHOICE,
     .metavar = "TYPE",
     .choices = cache_types,
     .at = AT(kv_dtype),
     .fallback = "f32",
     .help = "type of cached keys and values: f32, f16, bf16, q8_0, q4_0, q4_1"},
    {.name = "batch",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 0,
     .high = 4096,
     .at = AT(batch),
     .help = "lines that are decoded side by side; 0: 16"},
    {.name = "time",
     .kind = PH_OPT_FLAG,
     .at = AT(time),
     .help = "at the end say on stderr how many seconds all texts took"},
    {.name = "json",
     .kind = PH_OPT_FLAG,
     .at = AT(json),
     .help = "one JSON object instead of text; of lines one each, on a line of its own "
             "(JSON Lines)"},
    PH_MACHINE_OPTIONS(generate_options, machine),
    {.name = NULL}};

/* ---- one text ---- */

void answer_print(const answer_job *job, const char *text, const char *generated)
{
    if (job->json) {
        ph_json_writer out =
            (job->many ? json_begin_line : json_begin)("polyhead.generate/1");
        ph_json_string(&out, "text", text);
        ph_json_string(&out, "generated", generated);
        json_end(&out);
    } else {
        int continues = answer_continues(job);
        printf("%s%s\n", continues && generated ? text : "", generated ? generated : "");
    }
}

/* Pieces of the new text, printed as they come; JSON has them all at once. */
typedef struct live_text {
    const char *before; /* what is printed before the first piece; NULL: it is done */
    int json;
    answer_buffer all;
} live_text;

static void show_piece(void *user, int index, const char *piece)
{
    live_text *live = user;
    (void)index;
    if (live->json) {
        answer_append(&live->all, piece);
        return;
    }
    printf("%s%s", live->before ? live->before : "", piece);
    live->before = NULL;
    fflush(stdout);
}

static ph_status show_text(const answer_job *job, const char *text)
{
    live_text live = {.before = answer_continues(job) ? text : "", .json = job->json};
    ph_generation how = job->how;
    ph_prompt prompt = {.text = text};
    how.each = show_piece, how.user = &live;
    ph_status status = ph_generate_batch(job->m, &prompt, 1, &how);
    if (live.all.lost) status = PH_OUT_OF_MEMORY;
    if (status == PH_OK && job->json)
        answer_print(job, text, live.all.length ? live.all.text : "");
    else if (status == PH_OK)
        printf("%s\n", live.before ? live.before : "");
    else if (!live.before) /* what is said of it stands on a line of its own */
        printf("\n");
    free(live.all.text);
    return status;
}

void answer_time(const answer_job *job, double start)
{
    if (!job->time) return;
    fflush(stdout); /* which may be the same terminal */
    fprintf(stderr, "generated in %.6f seconds\n", train_now() - start);
}

int answer_text(const answer_job *job, const char *text)
{
    double start = train_now();
    warn_unknown_words(job->m, &text, 1);
    ph_status status =
        answer_is_encoder(job) ? answer_links(job, text) : show_text(job, text);
    answer_time(job, start);
    return status == PH_OUT_OF_MEMORY ? cli_fail(EXIT_MEMORY, "out of memory")
                                      : cli_fail_status(status, job->ctx);
}

/* ---- the command ---- */

/* An encoder ends in what its checkpoint has: only one that points at words answers. */
static int refuse_encoder(const ph_config *c)
{
    if (!c->masked && !c->classes && !c->pooling) return EXIT_OK;
    return cli_fail(EXIT_UNSUPPORTED,
                    "the model %s: expected a decoder with an output head or an "
                    "encoder-decoder; 'polyhead %s' is for this one",
                    c->arch == PH_ARCH_ENCODER
                        ? "is an encoder, which generates no text"
                        : "has no output head and generates no text",
                    c->masked    ? "fill"
                    : c->classes ? "classify"
                                 : "embed");
}

static int refuse_options(const generate_options *o)
{
    if (o->beams == 1 && !o->max_tokens && !o->top_k && !o->seed && o->temperature == 0 &&
        o->top_p == 0 && !o->stop.count && !o->kv_dtype && !o->batch && !o->chat)
        return EXIT_OK;
    return cli_fail(EXIT_USAGE,
                    "the model is an encoder, which says what words belong to: --beams, "
                    "--max-tokens, --temperature, --top-k, --top-p, --seed, --stop, "
                    "--kv-dtype, --batch and --chat are for decoders");
}

static ph_generation how_of(const generate_options *o)
{
    return (ph_generation){.max_tokens = (int)o->max_tokens,
                           .temperature = (float)o->temperature,
                           .top_k = (int)o->top_k,
                           .top_p = (float)o->top_p,
                           .beams = (int)o->beams,
                           .seed = (uint64_t)o->seed,
                           .kv_dtype = (ph_dtype)o->kv_dtype,
                           .batch = (int)o->batch,
                           .chat = o->chat,
                           .system = o->system,
                           .stop = o->stop.value,
                           .stop_count = o->stop.count};
}

static int run(const void *chosen, int count, const char *const *words)
{
    const generate_options *o = chosen;
    const char *prompts = o->prompts && strcmp(o->prompts, "-") ? o->prompts : NULL;
    ph_ctx *ctx;
    ph_model *m = NULL;
    if (o->beams > 1 && o->temperature > 0)
        return cli_fail(EXIT_USAGE, "--beams searches, --temperature samples: "
                                    "expected one of them");
    if (o->system && !o->chat)
        return cli_fail(EXIT_USAGE, "--system is a message of a chat, expected --chat");
    if (o->prompts && count > 1)
        return cli_fail(EXIT_USAGE, "TEXT and --prompts are given, expected one of them");
    if (count > 1 && !strcmp(words[1], "-")) count = 1;
    if (count == 1 && strchr(words[0], ' ') && access(words[0], F_OK))
        return cli_fail(EXIT_USAGE,
                        "generate takes MODEL and TEXT, and there is no "
                        "model '%.40s'; 'pronouns' is the one in the program",
                        words[0]);
    int rc = cli_open(&ctx, &o->machine, 0);
    if (rc) return rc;
    ph_status status = encoder_read(&m, ctx, words[0]);
    if (status != PH_OK) rc = cli_fail_status(status, ctx);
    if (!rc && o->plan) rc = plan_apply(o->plan, m, ctx);
    answer_job job = {.m = m, .ctx = ctx, .json = o->json, .time = o->time};
    job.how = how_of(o), job.many = count == 1;
    if (!rc && answer_is_encoder(&job)) rc = refuse_encoder(ph_model_config(m));
    if (!rc && answer_is_encoder(&job)) rc = refuse_options(o);
    if (!rc) warn_ignored_settings(m);
    if (!rc)
        rc = count > 1 ? answer_text(&job, words[1]) : answer_lines(&job, prompts);
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
    "polyhead generate SmolLM2-135M-Instruct.Q4_1.gguf \"What is gravity?\" --chat",
    "answers a message, in the chat template of the checkpoint",
    "polyhead generate Qwen3-0.6B \"What is gravity?\" --chat --system \"Be brief.\"",
    "the same behind a message of the system",
    "polyhead generate t5-small \"translate English to German: Hello.\" --beams 4",
    "an encoder-decoder answers, with the likeliest text of four beams",
    "polyhead generate runs/text --prompts lines.txt --stop . --json",
    "continues every line of a file up to the first full stop, many at a time",
    NULL};

const ph_command command_generate = {
    .name = "generate",
    .summary = "run a trained model on text",
    .usage = "MODEL [TEXT] [options]",
    .about =
        "MODEL is a Hugging Face folder, a GGUF or llama2.c file (docs/MODELS.md), "
        "a model file or the directory of a training, or pronouns, the model in the "
        "program. Without TEXT, or with '-', every line of stdin or of FILE is one, and "
        "each has its own answer: an empty one where the line is blank or refused. Lines "
        "are decoded together, without padding, and long texts in chunks: every answer "
        "has the bits it has alone, and is printed once it and all before it are done. "
        "Caches grow with the text. Where the model reads sound TEXT is a .npy or "
        "safetensors file of log-mel features.",
    .examples = examples,
    .options = table,
    .size = sizeof(generate_options),
    .word = "MODEL",
    .fewest_words = 1,
    .most_words = 2,
    .run = run};
