/*
 * config.c - a configuration as JSON and back, its defaults, and what is refused.
 *
 * One table says how every field is called in JSON and what it may hold.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/json.h"
#include "io/json_write.h"
#include "model/model.h"

typedef enum field_kind { FIELD_INT, FIELD_BOOL, FIELD_NOT, FIELD_REAL, FIELD_NAME, FIELD_TEXT } field_kind;

typedef struct field {
    const char *name;
    field_kind kind; /* FIELD_NOT: true is stored as 0 */
    size_t at;
    int least, most;          /* FIELD_INT */
    const char *const *names; /* FIELD_NAME, ended by NULL */
} field;

static const char *const arch_names[] = {"encoder", "decoder", "encoder-decoder", NULL};
static const char *const place_names[] = {"pre", "post", NULL};
static const char *const norm_names[] = {"layer", "rms", NULL};
static const char *const curve_names[] = {"gelu", "relu", "swiglu", NULL};
static const char *const position_names[] = {"sinusoidal", "learned", "rope",
                                             "alibi",      "none",    NULL};

#define AT(member) offsetof(ph_config, member)

static const field fields[] = {
    {"arch", FIELD_NAME, AT(arch), 0, 0, arch_names},
    {"vocab", FIELD_INT, AT(vocab), 1, 1 << 24, NULL},
    {"layers", FIELD_INT, AT(layers), 1, 1000, NULL},
    {"decoder_layers", FIELD_INT, AT(decoder_layers), 0, 1000, NULL},
    {"model_dim", FIELD_INT, AT(model_dim), 1, 1 << 16, NULL},
    {"heads", FIELD_INT, AT(heads), 1, 1 << 12, NULL},
    {"kv_heads", FIELD_INT, AT(kv_heads), 0, 1 << 12, NULL},
    {"head_dim", FIELD_INT, AT(head_dim), 0, 1 << 12, NULL},
    {"ff_dim", FIELD_INT, AT(ff_dim), 0, 1 << 18, NULL},
    {"max_len", FIELD_INT, AT(max_len), 1, 1 << 20, NULL},
    {"norm_place", FIELD_NAME, AT(norm_place), 0, 0, place_names},
    {"norm", FIELD_NAME, AT(norm), 0, 0, norm_names},
    {"activation", FIELD_NAME, AT(activation), 0, 0, curve_names},
    {"positions", FIELD_NAME, AT(positions), 0, 0, position_names},
    {"tied", FIELD_NOT, AT(untied), 0, 0, NULL},
    {"bias", FIELD_NOT, AT(no_bias), 0, 0, NULL},
    {"depth_scaled", FIELD_BOOL, AT(depth_scaled), 0, 0, NULL},
    {"dropout", FIELD_REAL, AT(dropout), 0, 0, NULL},
    {"variant", FIELD_TEXT, AT(variant), 0, 0, NULL}};

enum { FIELDS = sizeof fields / sizeof fields[0] };

/* ---- writing ----------------------------------------------------------------------- */

typedef struct sink {
    char *text;
    size_t size, used;
} sink;

static void sink_write(void *user, const char *bytes, size_t count)
{
    sink *s = user;
    for (size_t i = 0; i < count; i++, s->used++)
        if (s->used + 1 < s->size) s->text[s->used] = bytes[i];
}

static void write_field(ph_json_writer *out, const field *f, const void *value)
{
    int number;
    float real;
    memcpy(&number, value, sizeof number);
    memcpy(&real, value, sizeof real);
    if (f->kind == FIELD_INT) ph_json_integer(out, f->name, number);
    if (f->kind == FIELD_BOOL) ph_json_bool(out, f->name, number != 0);
    if (f->kind == FIELD_NOT) ph_json_bool(out, f->name, number == 0);
    if (f->kind == FIELD_REAL) ph_json_float(out, f->name, real);
    if (f->kind == FIELD_NAME) ph_json_string(out, f->name, f->names[number]);
    if (f->kind == FIELD_TEXT) ph_json_string(out, f->name, value);
}

int ph_config_print(const ph_config *config, char *text, size_t size)
{
    sink s = {text, size, 0};
    ph_json_writer out = {.write = sink_write, .user = &s};
    ph_json_begin_object(&out, NULL);
    for (int i = 0; i < FIELDS; i++)
        write_field(&out, &fields[i], (const char *)config + fields[i].at);
    ph_json_end(&out);
    if (size) text[s.used < size ? s.used : size - 1] = 0;
    return (int)s.used;
}

/* ---- reading ----------------------------------------------------------------------- */

static ph_status wrong(ph_ctx *ctx, const field *f, const char *expected)
{
    return ph_fail(ctx, PH_BAD_FILE, "configuration: %s is not %s", f->name, expected);
}

static ph_status read_name(ph_ctx *ctx, const ph_json_reader *json, const field *f,
                           int *value)
{
    for (int i = 0; f->names[i]; i++)
        if (json->token == PH_JSON_STRING && !strcmp(json->text, f->names[i])) {
            *value = i;
            return PH_OK;
        }
    return wrong(ctx, f, "one of the names it may have");
}

/* A string, or an array of them that is joined by ';'. */
static ph_status read_text(ph_ctx *ctx, ph_json_reader *json, const field *f, char *to)
{
    size_t used = 0;
    int array = json->token == PH_JSON_ARRAY;
    if (array) ph_json_next(json);
    for (; json->token == PH_JSON_STRING; ph_json_next(json)) {
        if (used + json->length + 2 > PH_VARIANT_TEXT) return wrong(ctx, f, "short enough");
        if (used) to[used++] = ';';
        memcpy(to + used, json->text, json->length + 1);
        used += json->length;
        if (!array) return PH_OK;
    }
    return json->token == PH_JSON_ARRAY_END ? PH_OK : wrong(ctx, f, "text");
}

static ph_status read_field(ph_ctx *ctx, ph_json_reader *json, const field *f, void *to)
{
    size_t number = 0;
    double real = 0;
    int is_number = json->token == PH_JSON_NUMBER;
    int is_bool = json->token == PH_JSON_TRUE || json->token == PH_JSON_FALSE;
    int value = json->token == PH_JSON_TRUE;
    if (f->kind == FIELD_TEXT) return read_text(ctx, json, f, to);
    if (f->kind == FIELD_NAME) {
        PH_TRY(read_name(ctx, json, f, &value));
    } else if (f->kind == FIELD_INT) {
        if (!is_number || ph_json_as_size(json, &number) || number > (size_t)f->most)
            return wrong(ctx, f, "a whole number it may have");
        value = (int)number;
    } else if (f->kind == FIELD_REAL) {
        if (!is_number || ph_json_as_double(json, &real))
            return wrong(ctx, f, "a number");
        float as_float = (float)real;
        memcpy(to, &as_float, sizeof as_float);
        return PH_OK;
    } else if (!is_bool) {
        return wrong(ctx, f, "true or false");
    }
    if (f->kind == FIELD_NOT) value = !value;
    memcpy(to, &value, sizeof value);
    return PH_OK;
}

static const field *find_field(const char *name)
{
    for (int i = 0; i < FIELDS; i++)
        if (!strcmp(name, fields[i].name)) return &fields[i];
    return NULL;
}

static ph_status read_fields(ph_ctx *ctx, ph_json_reader *json, ph_config *config)
{
    if (ph_json_next(json) != PH_JSON_OBJECT)
        return ph_fail(ctx, PH_BAD_FILE, "the configuration is no JSON object");
    while (ph_json_next(json) == PH_JSON_KEY) {
        const field *f = find_field(json->text);
        if (!f)
            return ph_fail(ctx, PH_BAD_FILE, "configuration: %s is unknown",
                           ph_io_quote(json->text, json->length).text);
        ph_json_next(json);
        PH_TRY(read_field(ctx, json, f, (char *)config + f->at));
    }
    if (json->token == PH_JSON_OBJECT_END && ph_json_next(json) == PH_JSON_END)
        return PH_OK;
    return ph_fail(ctx, PH_BAD_FILE, "the configuration is no JSON object");
}

ph_status ph_config_read(ph_ctx *ctx, ph_config *config, char *text, size_t length)
{
    ph_json_reader json;
    ph_json_open(&json, text, length, (ph_json_limits){4, 4096}, NULL);
    memset(config, 0, sizeof *config);
    ph_status status = read_fields(ctx, &json, config);
    ph_json_close(&json);
    return status;
}

/* ---- checks ------------------------------------------------------------------------ */

static ph_status check_ranges(ph_ctx *ctx, const ph_config *config)
{
    for (int i = 0; i < FIELDS; i++) {
        const field *f = &fields[i];
        int value, names = 0;
        memcpy(&value, (const char *)config + f->at, sizeof value);
        while (f->names && f->names[names]) names++;
        if (f->kind == FIELD_INT && (value < f->least || value > f->most))
            return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is %d, expected %d to %d", f->name,
                           value, f->least, f->most);
        if (f->kind == FIELD_NAME && (value < 0 || value >= names))
            return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is %d, expected 0 to %d", f->name,
                           value, names - 1);
    }
    return PH_OK;
}

ph_status ph_config_check(ph_ctx *ctx, ph_config *c, int vocab)
{
    if (c->vocab == 0) c->vocab = vocab;
    if (vocab && c->vocab != vocab)
        return ph_fail(ctx, PH_BAD_SHAPE, "vocab is %d, but the vocabulary has %d tokens",
                       c->vocab, vocab);
    PH_TRY(check_ranges(ctx, c));
    if (!c->decoder_layers) c->decoder_layers = c->layers;
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (!c->ff_dim) c->ff_dim = 4 * c->model_dim;
    if (!c->variant[0]) strcpy(c->variant, "mha");
    if (!c->head_dim && c->model_dim % c->heads)
        return ph_fail(ctx, PH_BAD_SHAPE,
                       "model_dim %d is no multiple of heads %d, expected one, or head_dim",
                       c->model_dim, c->heads);
    if (!c->head_dim) c->head_dim = c->model_dim / c->heads;
    if (c->heads % c->kv_heads)
        return ph_fail(ctx, PH_BAD_SHAPE, "kv_heads %d does not divide heads %d",
                       c->kv_heads, c->heads);
    if (c->positions == PH_POS_ROPE && c->head_dim % 2)
        return ph_fail(ctx, PH_BAD_SHAPE, "head_dim is %d, expected even for rope",
                       c->head_dim);
    if (!(c->dropout >= 0) || c->dropout >= 1)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "dropout is %g, expected 0 up to below 1",
                       (double)c->dropout);
    return PH_OK;
}
