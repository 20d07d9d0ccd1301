/*
 * cmd_variants.c - `polyhead variants [NAME]`: what heads are built in, their tensors,
 * and what a layer of a given size has and does.
 *
 * Everything comes from ph_variant_list and ph_layer_param, so a variant that is added to
 * the library needs no line here.
 */
#include <string.h>

#include "framework/cli.h"
#include "framework/json.h"
#include "framework/term.h"
#include "polyhead_layer.h"

enum { MOST = 128 };

typedef struct variants_options {
    int json;
    ph_sizes shape;
} variants_options;

static const ph_option table[] = {{.name = "json",
                                   .kind = PH_OPT_FLAG,
                                   .at = offsetof(variants_options, json),
                                   .help = "one JSON object instead of text"},
                                  {.name = "shape",
                                   .kind = PH_OPT_SIZES,
                                   .metavar = "B,T,DIM,HEADS[,K_HEADS]",
                                   .at = offsetof(variants_options, shape),
                                   .low = 1,
                                   .high = 1 << 24,
                                   .fewest = 4,
                                   .longest = 5,
                                   .help = "a layer of this size: its parameters, their "
                                           "number, FLOPs and caches"},
                                  {.name = NULL}};

static const char *const *known_names(void)
{
    static const char *names[MOST + 1];
    int count = 0;
    for (const ph_variant_info *v; count < MOST && (v = ph_variant_list(count)); count++)
        names[count] = v->name;
    names[count] = NULL;
    return names;
}

/* The first part of "talking+entmax:alpha=1.5": talking. */
static const ph_variant_info *find(const char *word)
{
    size_t length = strcspn(word, ":+");
    for (int i = 0; ph_variant_list(i); i++) {
        const ph_variant_info *v = ph_variant_list(i);
        if (strlen(v->name) == length && !memcmp(v->name, word, length)) return v;
    }
    return NULL;
}

/* What follows the first part, or NULL; a '+' before a digit belongs to a number. */
static const char *next_part(const char *spec)
{
    const char *plus = strchr(spec, '+');
    while (plus && plus[1] >= '0' && plus[1] <= '9') plus = strchr(plus + 1, '+');
    return plus ? plus + 1 : NULL;
}

/* ---- text ---- */

static void print_all(void)
{
    printf("%s%-12s %s%s\n", term_on(stdout, TERM_DIM), "variant", "what it is",
           term_on(stdout, TERM_PLAIN));
    for (int i = 0; ph_variant_list(i); i++) {
        const ph_variant_info *v = ph_variant_list(i);
        printf("%s%-12s%s ", term_on(stdout, TERM_NAME), v->name,
               term_on(stdout, TERM_PLAIN));
        term_wrap(stdout, v->help, 13, 13, term_width(stdout, 90));
    }
    puts("\nIts tensors and options: polyhead variants NAME");
}

/* Length of "(...)" with the brackets inside it. */
static int bracketed(const char *text)
{
    int n = 0, open = 0;
    do {
        open += (text[n] == '(') - (text[n] == ')');
        n++;
    } while (open > 0 && text[n] && text[n] != '\n');
    return n;
}

/* "name (shape) meaning" in columns; a shape holds blanks, so it ends at its bracket. */
static void print_tensor(const char *line, int length)
{
    enum { NAME = 14, SHAPE = 44 };
    int name = (int)strcspn(line, " \n");
    const char *shape = line + name + (name < length);
    int open = shape[0] == '(';
    int size = open ? bracketed(shape) : 0;
    if (size > length - name - 1) size = 0;
    const char *meaning = shape + size + (open && shape[size] == ' ');
    int rest = length - (int)(meaning - line);
    char text[512];
    snprintf(text, sizeof text, "%.*s", rest > 0 ? rest : 0, meaning);
    printf("  %s%-*.*s%s %-*.*s ", term_on(stdout, TERM_NAME), NAME, name, line,
           term_on(stdout, TERM_PLAIN), SHAPE - NAME - 4, size, shape);
    int column = size > SHAPE - NAME - 4 ? SHAPE - 4 + size : SHAPE;
    term_wrap(stdout, text, column, SHAPE, term_width(stdout, 100));
}

static void print_one(const ph_variant_info *v)
{
    printf("%s%s%s: %s\n", term_on(stdout, TERM_BOLD), v->name,
           term_on(stdout, TERM_PLAIN), v->help);
    if (v->options && *v->options) printf("\nwritten  %s\n", v->options);
    if (!v->tensors || !*v->tensors) {
        puts("\nIt needs no tensors besides the usual ones.");
        return;
    }
    puts("\ntensors");
    for (const char *line = v->tensors; *line;) {
        int length = (int)strcspn(line, "\n");
        if (length) print_tensor(line, length);
        line += length + (line[length] == '\n');
    }
}

/* ---- a layer of a given size ---- */

typedef struct measured {
    ph_ctx *ctx;
    ph_layer *layer;
    size_t cached; /* elements for one token */
} measured;

/* Plain heads of DIM / HEADS elements; variants that count differently say so here. */
static ph_layer_desc describe(const char *spec, const ph_sizes *shape)
{
    int dim = (int)shape->value[2], heads = (int)shape->value[3];
    int collab = strstr(spec, "collab") != NULL, diff = strstr(spec, "diff") != NULL;
    ph_layer_desc d = {.model_dim = dim};
    d.attn = (ph_attn){.batch = (int)shape->value[0],
                       .q_heads = heads,
                       .k_heads = shape->count > 4 ? (int)shape->value[4] : 0,
                       .q_len = (int)shape->value[1],
                       .kv_len = (int)shape->value[1],
                       .qk_dim = collab ? dim : dim / heads,
                       .v_dim = diff ? 0 : dim / heads,
                       .mask = PH_MASK_CAUSAL,
                       .variant = spec};
    if (!diff) d.attn.v_heads = d.attn.k_heads;
    return d;
}

static int measure(const char *spec, const ph_sizes *shape, measured *m)
{
    ph_layer_desc d = describe(spec, shape), cached = d;
    ph_layer *layer = NULL;
    if (shape->value[2] % shape->value[3])
        return cli_fail(EXIT_USAGE,
                        "option --shape has DIM %lld, expected a multiple of HEADS %lld",
                        (long long)shape->value[2], (long long)shape->value[3]);
    ph_status status = ph_open(&m->ctx, NULL);
    if (status != PH_OK) return cli_fail(cli_exit_code(status), "no context");
    status = ph_layer_create(&m->layer, m->ctx, &d);
    cached.cache = 1, cached.attn.batch = cached.attn.q_len = cached.attn.kv_len = 1;
    if (status == PH_OK) status = ph_layer_create(&layer, m->ctx, &cached);
    if (status != PH_OK) return cli_fail_status(status, m->ctx);
    ph_layer_caches bytes = ph_layer_cache(layer);
    m->cached = (bytes.k + bytes.v + bytes.extra) / sizeof(float);
    ph_layer_free(layer);
    return EXIT_OK;
}

static void print_measured(const char *spec, const ph_sizes *shape, const measured *m)
{
    ph_layer_info info = ph_layer_about(m->layer);
    double all = 0, needed = 0;
    printf("%s%s%s, %lld x %lld tokens of %lld, causal\n\nparameters\n",
           term_on(stdout, TERM_BOLD), spec, term_on(stdout, TERM_PLAIN),
           (long long)shape->value[0], (long long)shape->value[1],
           (long long)shape->value[2]);
    for (int i = 0; ph_layer_param(m->layer, i); i++) {
        const ph_param *p = ph_layer_param(m->layer, i);
        char dims[64] = "";
        for (int k = 0, n = 0; k < p->rank; k++)
            n += snprintf(dims + n, sizeof dims - (size_t)n, "%s%d", k ? ", " : "",
                          p->dims[k]);
        printf("  %s%-12s%s (%s)%*s%12.0f%s\n", term_on(stdout, TERM_NAME), p->name,
               term_on(stdout, TERM_PLAIN), dims, 22 - (int)strlen(dims), "",
               (double)ph_param_size(p), p->optional ? "  optional" : "");
        double used = (double)(ph_param_size(p) - p->unused);
        all += used;
        needed += p->optional ? 0 : used;
    }
    printf("  %.0f used, %.0f with all optional ones\n\nwork\n", needed, all);
    printf("  attention    %d q heads, %d k heads, %d v heads of %d and %d elements\n",
           info.attn->q_heads, info.attn->k_heads, info.attn->v_heads, info.attn->qk_dim,
           info.attn->v_dim);
    printf("  forward      %.3f GFLOP in products\n", info.flops / 1e9);
    printf("  cache        %zu elements for every token\n", m->cached);
}

/* ---- JSON ---- */

static void json_measured(ph_json_writer *j, const measured *m)
{
    ph_json_begin_array(j, "parameters");
    for (int i = 0; ph_layer_param(m->layer, i); i++) {
        const ph_param *p = ph_layer_param(m->layer, i);
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "name", p->name);
        ph_json_begin_array(j, "shape");
        for (int k = 0; k < p->rank; k++) ph_json_integer(j, NULL, p->dims[k]);
        ph_json_end(j);
        ph_json_bool(j, "optional", p->optional);
        ph_json_integer(j, "unused", (int64_t)p->unused);
        ph_json_end(j);
    }
    ph_json_end(j);
    ph_json_double(j, "forward_flops", ph_layer_about(m->layer).flops);
    ph_json_integer(j, "cache_per_token", (long long)(m->cached));
}

static void json_variant(ph_json_writer *j, const ph_variant_info *v, const measured *m)
{
    ph_json_begin_object(j, NULL);
    ph_json_string(j, "name", v->name);
    ph_json_string(j, "options", v->options);
    ph_json_string(j, "help", v->help);
    ph_json_begin_array(j, "tensors");
    for (const char *line = v->tensors ? v->tensors : ""; *line;) {
        char text[512];
        int length = (int)strcspn(line, "\n");
        snprintf(text, sizeof text, "%.*s", length, line);
        if (length) ph_json_string(j, NULL, text);
        line += length + (line[length] == '\n');
    }
    ph_json_end(j);
    if (m) json_measured(j, m);
    ph_json_end(j);
}

/* spec: the ones to show, or NULL; m: of a layer made of them, or NULL. */
static void print_json(const char *spec, const measured *m)
{
    ph_json_writer j = json_begin("polyhead.variants/1");
    ph_json_begin_array(&j, "variants");
    for (int i = 0; !spec && ph_variant_list(i); i++)
        json_variant(&j, ph_variant_list(i), m);
    for (; spec; spec = next_part(spec)) json_variant(&j, find(spec), m);
    json_end(&j);
}

/* ---- the command ---- */

static int unknown(const char *spec)
{
    char word[64], quote[CLI_QUOTE_SIZE], list[512] = "";
    if (strchr("+:", *spec)) /* or the end */
        return cli_fail(EXIT_UNSUPPORTED,
                        "the variant has an empty part, expected names around '+'");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(spec, ":+"), spec);
    const char *const *names = known_names(), *near = cli_nearest(word, names);
    size_t used = 0;
    for (int i = 0; names[i] && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 names[i]);
    cli_quote(word, quote, sizeof quote);
    if (near)
        return cli_fail(EXIT_UNSUPPORTED, "no variant %s: did you mean %s? There are: %s",
                        quote, near, list);
    return cli_fail(EXIT_UNSUPPORTED, "no variant %s; there are: %s", quote, list);
}

static int measure_one(const variants_options *options, const char *spec)
{
    measured m = {0};
    int rc = measure(spec, &options->shape, &m);
    if (!rc && options->json) print_json(spec, &m);
    if (!rc && !options->json) print_measured(spec, &options->shape, &m);
    ph_layer_free(m.layer);
    ph_close(m.ctx);
    return rc;
}

static void print_parts(const char *spec)
{
    for (const char *part = spec; part; part = next_part(part)) {
        if (part != spec) puts("");
        print_one(find(part));
    }
}

static int variants(const void *chosen, int count, const char *const *words)
{
    const variants_options *options = chosen;
    const char *spec = count ? words[0] : NULL;
    for (const char *part = spec; part; part = next_part(part))
        if (!find(part)) return unknown(part);
    if (options->shape.count && !spec)
        return cli_fail(EXIT_USAGE, "a variant is missing, expected because of --shape");
    if (options->shape.count) return measure_one(options, spec);
    if (options->json)
        print_json(spec, NULL);
    else if (spec)
        print_parts(spec);
    else
        print_all();
    return EXIT_OK;
}

static const char *const examples[] = {
    "polyhead variants",
    "what head variants are built in",
    "polyhead variants mha",
    "the tensors of one of them and their shapes",
    "polyhead variants moh:shared=2,top=4 --shape 1,1024,512,8",
    "a layer of that size: parameters, FLOPs, cache",
    "polyhead variants talking+entmax",
    "two that work together",
    NULL};

const ph_command command_variants = {.name = "variants",
                                     .summary = "head variants that are built in",
                                     .usage = "[NAME] [--shape SIZES] [--json]",
                                     .examples = examples,
                                     .options = table,
                                     .size = sizeof(variants_options),
                                     .word = "NAME",
                                     .most_words = 1,
                                     .known_words = known_names,
                                     .run = variants};
