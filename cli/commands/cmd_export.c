/*
 * cmd_export.c - `polyhead export MODEL --out DIR`: a model as a Hugging Face folder.
 */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <unistd.h>

#include "framework/cli.h"
#include "polyhead_model.h"
#include "polyhead_prune.h"

typedef struct export_options {
    const char *out;
    int dtype, has_dtype;
    ph_machine machine;
} export_options;

static const char *const dtype_names[] = {"f32", "f16", "bf16", NULL};
static const ph_dtype dtypes[] = {PH_F32, PH_F16, PH_BF16};

#define AT(field) offsetof(export_options, field)
static const ph_option table[] = {
    {.name = "out",
     .letter = 'o',
     .kind = PH_OPT_TEXT,
     .metavar = "DIR",
     .at = AT(out),
     .help = "the folder to write; new or empty"},
    {.name = "dtype",
     .kind = PH_OPT_CHOICE,
     .choices = dtype_names,
     .at = AT(dtype),
     .given = AT(has_dtype),
     .help = "convert all weights to this type; without it they stay as they are "
             "stored, and quantised ones are refused"},
    {.name = NULL}};

/* Published configurations have one number of heads for all layers: what was removed is
   there again, as zeros. */
static void say_zeros(ph_ctx *ctx, const char *from, const char *to)
{
    ph_model *model = NULL, *written = NULL;
    if (ph_model_read(&model, ctx, from) == PH_OK &&
        ph_model_read(&written, ctx, to) == PH_OK) {
        int heads = ph_model_heads(model), all = ph_model_heads(written);
        if (heads < all)
            cli_warn("%d of %d heads in '%s' are zeros, since its configuration has one "
                     "number of heads for all layers: it gives the same results at the "
                     "cost of all %d; '%s' stays the smaller model",
                     all - heads, all, to, all, from);
    }
    ph_model_free(model);
    ph_model_free(written);
}

static int run(const void *options, int count, const char *const *words)
{
    const export_options *o = options;
    ph_ctx *ctx = NULL;
    (void)count;
    if (!o->out) return cli_fail(EXIT_USAGE, "export needs --out DIR");
    if (!strcmp(words[0], "pronouns") && access(words[0], F_OK) != 0)
        return cli_fail(EXIT_UNSUPPORTED, "no published type has all that pronouns, the "
                                          "model in the program, has");
    int rc = cli_open(&ctx, &o->machine, 0);
    if (rc) return rc;
    cli_stop_on_signals();
    ph_status status = ph_model_export(ctx, words[0], o->out,
                                       o->has_dtype ? &dtypes[o->dtype] : NULL);
    cli_end_if_stopped();
    rc = status == PH_OK ? EXIT_OK : cli_fail_status(status, ctx);
    if (!rc) say_zeros(ctx, words[0], o->out);
    ph_close(ctx);
    return rc;
}

static const char *const examples[] = {
    "polyhead export SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2 --dtype f32",
    "a GGUF file for programs that read Hugging Face folders",
    "polyhead export model.safetensors --out mine",
    "a model of ours, where a published type has all it has", NULL};

const ph_command command_export = {
    .name = "export",
    .summary = "a model as a Hugging Face folder",
    .usage = "MODEL --out DIR [options]",
    .about =
        "Writes config.json and model.safetensors for any model that this program reads. "
        "Tensors of a Hugging Face folder stay as they are, byte by byte, and so do its "
        "files of configuration, tokenizer and preprocessing; others, such as README.md, "
        "are not copied. Other models are written in the published type that has all "
        "they have (llama, gpt2, bert, t5 or another one of docs/MODELS.md), with the "
        "tokenizer.json or vocab.txt that training kept, how a sentence encoder pools "
        "and how pictures are scaled; a GGUF or llama2.c file comes without a tokenizer. "
        "The folder appears whole or not at all.",
    .examples = examples,
    .options = table,
    .size = sizeof(export_options),
    .word = "MODEL",
    .fewest_words = 1,
    .most_words = 1,
    .run = run};
