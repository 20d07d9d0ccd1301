/*
 * cmd_explain.c - `polyhead explain`: multi-head attention step by step.
 *
 * Without a shape the worked example (explain_example.c), with one what it costs on this
 * machine (explain_cost.c); both with its shapes (explain_shapes.c).
 */
#include "commands/cmd_explain.h"

typedef struct explain_options {
    ph_sizes shape;
    int64_t batch;
    int decode, causal, json;
    int dtype, lang;
    const char *x;
    int64_t heads;
    ph_machine machine;
} explain_options;

enum { LARGEST = 1 << 24 };

static const char *const languages[] = {"en", "zh", NULL};

/* clang-format off */
#define AT(field) offsetof(explain_options, field)
static const ph_option table[] = {
    {.name = "shape", .letter = 's', .kind = PH_OPT_SIZES, .at = AT(shape), .low = 1,
     .high = LARGEST, .fewest = 4, .longest = 5, .metavar = "B,T,D,H[,K]",
     .group = "At full size",
     .help = "batch B, T tokens, model_dim D, H heads, K key and value heads (default H):"
             " parameters, FLOPs, bytes and limits of each step, shapes, one head "
             "against H, attention against recurrence and convolution; instead of the "
             "example"},
    {.name = "decode", .kind = PH_OPT_FLAG, .at = AT(decode),
     .help = "one new token per sequence, against a cache of T keys"},
    {.name = "batch", .letter = 'b', .kind = PH_OPT_INT, .metavar = "N", .low = 1,
     .high = LARGEST, .at = AT(batch),
     .help = "show batch 1 against batch N side by side"},
    {.name = "causal", .kind = PH_OPT_FLAG, .at = AT(causal),
     .help = "each token sees only those before it: half of the scores"},
    {.name = "dtype", .kind = PH_OPT_CHOICE, .choices = cli_dtype_names, .at = AT(dtype),
     .fallback = "f32", .help = "type of weights, activations and cache"},
    {.name = "x", .letter = 'x', .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(x),
     .group = "The worked example",
     .help = "the example with your own X: a text file of rows of numbers, at most 8 x "
             "8; below lines W_Q, W_K, W_V, W_O your own matrices, heads side by side"},
    {.name = "heads", .kind = PH_OPT_INT, .metavar = "N", .low = 1, .high = 8,
     .at = AT(heads), .help = "heads of that example (default 2, or 1)"},
    {.name = "lang", .kind = PH_OPT_CHOICE, .choices = languages, .at = AT(lang),
     .fallback = "en", .group = "Output", .help = "language of the explanation"},
    {.name = "json", .kind = PH_OPT_FLAG, .at = AT(json),
     .help = "one JSON object instead of text"},
    PH_OPTION_THREADS(explain_options, machine),
    PH_OPTION_ISA(explain_options, machine),
    {.name = NULL}};

static const char *const examples[] = {
    "polyhead explain",
    "a small example with every intermediate matrix, then the flow at full size",
    "polyhead explain --x my.txt --heads 2 --lang zh",
    "the same with your own numbers, in Chinese",
    "polyhead explain --shape 32,20,512,8",
    "what each step of the classic layer costs here, and what limits it",
    "polyhead explain --shape 1,4096,4096,32,8 --decode --batch 32",
    "why batching helps the projections and not the attention itself",
    NULL};
/* clang-format on */

static int check(const explain_options *o)
{
    const ph_sizes *s = &o->shape;
    if (s->count == 0 && (o->decode || o->batch || o->causal))
        return cli_fail(EXIT_USAGE, "option --%s needs --shape B,T,D,H",
                        o->decode  ? "decode"
                        : o->batch ? "batch"
                                   : "causal");
    if (s->count && (o->x || o->heads))
        return cli_fail(EXIT_USAGE, "option --%s is for the example: leave out --shape",
                        o->x ? "x" : "heads");
    if (o->heads && !o->x) return cli_fail(EXIT_USAGE, "option --heads needs --x FILE");
    if (s->count == 0) return EXIT_OK;
    int64_t dim = s->value[2], heads = s->value[3];
    int64_t k_heads = s->count > 4 ? s->value[4] : heads;
    if (dim % heads)
        return cli_fail(EXIT_USAGE,
                        "option --shape: model_dim %lld is no multiple of %lld heads",
                        (long long)dim, (long long)heads);
    if (heads % k_heads)
        return cli_fail(EXIT_USAGE,
                        "option --shape: %lld key heads do not divide %lld heads",
                        (long long)k_heads, (long long)heads);
    return EXIT_OK;
}

static cost_shape shape_of(const explain_options *o)
{
    const int64_t *v = o->shape.value;
    return (cost_shape){.batch = o->batch ? o->batch : v[0],
                        .len = v[1],
                        .model_dim = v[2],
                        .heads = v[3],
                        .k_heads = o->shape.count > 4 ? v[4] : v[3],
                        .decode = o->decode,
                        .causal = o->causal && !o->decode,
                        .dtype = o->dtype};
}

static int explain(const void *chosen, int count, const char *const *words)
{
    const explain_options *o = chosen;
    ph_ctx *ctx = NULL;
    explain_input input;
    (void)count, (void)words;
    int rc = check(o);
    if (rc == EXIT_OK) rc = explain_read(&input, o->x, (int)o->heads);
    if (rc == EXIT_OK) rc = cli_open(&ctx, &o->machine, 0);
    if (rc != EXIT_OK) return rc;
    if (o->shape.count) {
        cost_shape shape = shape_of(o);
        rc = explain_cost(ctx, &shape, o->batch > 1, o->lang, o->json);
        if (rc == EXIT_OK && !o->json) {
            putchar('\n');
            explain_shapes(&shape, o->lang);
        }
    } else {
        rc = explain_example(ctx, &input, o->lang, o->json);
    }
    ph_close(ctx);
    return rc;
}

const ph_command command_explain = {
    .name = "explain",
    .summary = "multi-head attention step by step, and what it costs",
    .usage = "[--shape B,T,D,H[,K]] [options]",
    .about =
        "Without a shape: an example small enough to follow by hand, every matrix "
        "computed by the library, then the flow of a full-size layer.\n\n"
        "With a shape: each step's parameters, FLOPs and bytes, and whether "
        "computing or memory limits it on this machine, whose peak and bandwidth are "
        "measured first (about half a second).",
    .examples = examples,
    .options = table,
    .size = sizeof(explain_options),
    .run = explain};
