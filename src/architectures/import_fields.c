/*
 * import_fields.c - fields of a configuration, with defaults, as numbers of ours.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"
#include "base/format.h"

enum { KEY = PH_IMPORT_KEY };

void ph_import_fail(ph_import *in, ph_status status, const char *format, ...)
{
    char text[400];
    va_list list;
    if (in->status != PH_OK) return;
    va_start(list, format);
    ph_format_list(text, sizeof text, format, list);
    va_end(list);
    in->status = ph_fail(in->ctx, status, "%s", text);
}

int ph_import_is_gguf(const ph_import *in)
{
    return in->checkpoint->kind == PH_CHECKPOINT_GGUF;
}

int ph_import_is(const ph_import *in, const char *type)
{
    return !strcmp(in->type, type);
}

static void expected(ph_import *in, const ph_value *v, const char *what)
{
    ph_import_fail(in, PH_BAD_FILE, "%s is %s, expected %s",
                   ph_value_field(v->key).text, ph_value_show(v).text, what);
}

const ph_value *ph_import_value(ph_import *in, const char *folder, const char *gguf)
{
    char key[KEY];
    const ph_values *values = &in->checkpoint->values;
    const char *name = ph_import_is_gguf(in) ? gguf : folder;
    if (!name || in->status != PH_OK) return NULL;
    if (ph_import_is_gguf(in)) {
        snprintf(key, sizeof key, "%s.%s", in->type, name);
        return ph_values_find(values, key);
    }
    snprintf(key, sizeof key, "%s%s", in->section, name);
    const ph_value *around = ph_values_around(values, key);
    if (around) expected(in, around, "an object or a list");
    return around ? NULL : ph_values_find(values, key);
}

/* Whether there is a value; if it must be there and is not, that is an error. */
static int is_given(ph_import *in, const ph_value *v, const char *folder,
                    const char *gguf, int required)
{
    if (v && v->kind != PH_VALUE_NULL) return 1;
    if (required)
        ph_import_fail(in, PH_BAD_FILE, "%s%s is missing", in->section,
                       ph_value_field(ph_import_is_gguf(in) ? gguf : folder).text);
    return 0;
}

/* Whether a list of GGUF has a value for each layer; block_count itself is no list. */
static int is_of_layers(ph_import *in, const ph_value *list)
{
    const ph_value *layers = ph_import_value(in, NULL, "block_count");
    if (!layers || layers->kind != PH_VALUE_NUMBER) return 0;
    if (layers->number == (double)list->count) return 1;
    ph_import_fail(in, PH_BAD_FILE,
                   "%s lists %zu values, expected one for each of %.12g layers "
                   "(block_count)",
                   list->key, list->count, layers->number);
    return 0;
}

/* GGUF may list a number of each layer: the number, where all are the same. */
static const ph_value *one_of_all(ph_import *in, const ph_value *list, ph_value *number)
{
    ph_value item;
    if (!is_of_layers(in, list) ||
        !ph_values_item(&in->checkpoint->values, list, 0, number))
        return list;
    for (size_t i = 1; ph_values_item(&in->checkpoint->values, list, i, &item); i++)
        if (item.number != number->number) {
            ph_import_fail(in, PH_UNSUPPORTED,
                           "%s is %.12g in layer 0 and %.12g in layer %zu, expected the "
                           "same in all",
                           list->key, number->number, item.number, i);
            return list;
        }
    number->key = list->key;
    return number;
}

static int whole(ph_import *in, const char *folder, const char *gguf, int fallback,
                 int least, int most, const char *what)
{
    const ph_value *v = ph_import_value(in, folder, gguf);
    ph_value number;
    if (!is_given(in, v, folder, gguf, fallback == PH_IMPORT_REQUIRED)) return fallback;
    if (v->kind == PH_VALUE_LIST && v->items) v = one_of_all(in, v, &number);
    if (v->kind == PH_VALUE_NUMBER && v->number >= least && v->number <= most &&
        v->number == floor(v->number))
        return (int)v->number;
    expected(in, v, what);
    return fallback;
}

int ph_import_int(ph_import *in, const char *folder, const char *gguf, int fallback)
{
    return whole(in, folder, gguf, fallback, 0, 1 << 24,
                 "a whole number from 0 to 16777216");
}

int ph_import_size(ph_import *in, const char *folder, const char *gguf, int fallback)
{
    return whole(in, folder, gguf, fallback, 1, 1 << 20,
                 "a whole number from 1 to 1048576");
}

static double real(ph_import *in, const char *folder, const char *gguf, double fallback,
                   int positive)
{
    const ph_value *v = ph_import_value(in, folder, gguf);
    if (!is_given(in, v, folder, gguf, fallback == PH_IMPORT_REQUIRED)) return fallback;
    if (v->kind == PH_VALUE_NUMBER && v->number >= (positive ? 1e-30 : 0) &&
        v->number <= 1e30)
        return v->number;
    expected(in, v, positive ? "a number above 0" : "a number of at least 0");
    return fallback;
}

double ph_import_real(ph_import *in, const char *folder, const char *gguf,
                      double fallback)
{
    return real(in, folder, gguf, fallback, 0);
}

double ph_import_positive(ph_import *in, const char *folder, const char *gguf,
                          double fallback)
{
    return real(in, folder, gguf, fallback, 1);
}

int ph_import_flag(ph_import *in, const char *folder, const char *gguf, int fallback)
{
    const ph_value *v = ph_import_value(in, folder, gguf);
    if (!is_given(in, v, folder, gguf, 0)) return fallback;
    if (v->kind == PH_VALUE_BOOL) return v->number != 0;
    expected(in, v, "true or false");
    return fallback;
}

const char *ph_import_text(ph_import *in, const char *folder, const char *gguf,
                           const char *fallback)
{
    const ph_value *v = ph_import_value(in, folder, gguf);
    if (!is_given(in, v, folder, gguf, 0)) return fallback;
    if (v->kind == PH_VALUE_TEXT) return v->text;
    expected(in, v, "a text");
    return fallback;
}

const ph_value *ph_import_list(ph_import *in, const char *folder)
{
    const ph_value *v = ph_import_value(in, folder, NULL);
    if (!is_given(in, v, folder, NULL, 0)) return NULL;
    if (v->kind == PH_VALUE_LIST) return v;
    expected(in, v, "a list");
    return NULL;
}

void ph_import_activation(ph_import *in, const char *key, const char *name, int gated,
                          ph_config *c)
{
    static const struct {
        const char *name;
        int gated;
        ph_activation activation;
    } known[] = {{"gelu_new", 0, PH_GELU},
                 {"gelu_pytorch_tanh", 0, PH_GELU},
                 {"gelu_fast", 0, PH_GELU},
                 {"relu", 0, PH_RELU},
                 {"gelu", 0, PH_GELU_ERF},
                 {"silu", 0, PH_SILU},
                 {"swish", 0, PH_SILU},
                 {"gelu_new", 1, PH_GEGLU},
                 {"gelu_pytorch_tanh", 1, PH_GEGLU},
                 {"gelu", 1, PH_GEGLU_ERF},
                 {"silu", 1, PH_SWIGLU},
                 {"swish", 1, PH_SWIGLU}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(name, known[i].name) && gated == known[i].gated) {
            c->activation = known[i].activation;
            return;
        }
    ph_import_fail(in, PH_UNSUPPORTED, "%s: the activation %s is unknown%s, expected %s",
                   key, ph_io_quote(name, strlen(name)).text, gated ? " with a gate" : "",
                   gated ? "silu, swish, gelu, gelu_new or gelu_pytorch_tanh"
                         : "gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, silu or "
                           "swish");
}

/* ---- rotary positions -------------------------------------------------------------- */

/* Where the fields of rope stand: of layers that see all, in rope_parameters, or, as
   older files have it, in rope_scaling. The name of the first that is there. As in the
   reference rope_scaling, where somebody added one, replaces rope_parameters, unless
   these are apart for kinds of layers. */
void ph_import_rope_key(ph_import *in, const char *name, char key[KEY])
{
    static const char *const sections[] = {
        "rope_scaling", "rope_parameters.full_attention", "rope_parameters"};
    int old = ph_import_text(in, "rope_scaling.rope_type", NULL, NULL) ||
              ph_import_text(in, "rope_scaling.type", NULL, NULL);
    static const char apart[] = "rope_parameters.full_attention.rope_type";
    int count = old && !ph_import_text(in, apart, NULL, NULL) ? 1 : 3;
    for (int i = 0; i < count; i++) {
        snprintf(key, KEY, "%s.%s", sections[i], name);
        if (ph_import_value(in, key, NULL)) return;
    }
    snprintf(key, KEY, "%s.%s", sections[0], name);
}

static double rope_real(ph_import *in, const char *name, double fallback)
{
    char key[KEY];
    ph_import_rope_key(in, name, key);
    return ph_import_positive(in, key, NULL, fallback);
}

static int rope_length(ph_import *in, int fallback)
{
    char key[KEY];
    ph_import_rope_key(in, "original_max_position_embeddings", key);
    return ph_import_size(in, key, NULL, fallback);
}

const char *ph_import_rope_type(ph_import *in)
{
    char key[KEY];
    ph_import_rope_key(in, "rope_type", key);
    if (!ph_import_value(in, key, NULL)) ph_import_rope_key(in, "type", key);
    return ph_import_text(in, key, NULL, "default");
}

static double rope_value(ph_import *in, const char *name, double fallback)
{
    char key[KEY];
    ph_import_rope_key(in, name, key);
    return ph_import_real(in, key, NULL, fallback);
}

/* What the library does without a field is not stored: 0 and null say nothing either. */
static float unless(double value, double usual)
{
    return value == 0 || fabs(value - usual) <= 1e-6 * usual ? 0 : (float)value;
}

/* Ends of the ramp, and by how much sines and cosines grow: attention_factor, or the
   quotient of what mscale and mscale_all_dim give where both are there. */
static void set_yarn(ph_import *in, ph_config *c)
{
    double log_factor = 0.1 * log(fmax(c->rope_factor, 1));
    double above = rope_value(in, "mscale", 0),
           below = rope_value(in, "mscale_all_dim", 0);
    double scale = rope_value(in, "attention_factor", 0);
    char key[KEY];
    if (scale == 0 && above != 0 && below != 0)
        scale = (above * log_factor + 1) / (below * log_factor + 1);
    c->rope_scale = unless(scale, log_factor + 1);
    c->rope_high = unless(rope_value(in, "beta_fast", 0), 32);
    c->rope_low = unless(rope_value(in, "beta_slow", 0), 1);
    ph_import_rope_key(in, "truncate", key);
    c->yarn_untruncated = !ph_import_flag(in, key, NULL, 1);
}

/* The same of GGUF, whose factor comes on top of the usual one. */
static void set_gguf_yarn(ph_import *in, ph_config *c)
{
    double usual = 0.1 * log(fmax(c->rope_factor, 1)) + 1;
    double more = ph_import_real(in, NULL, "rope.scaling.attn_factor", 1);
    c->rope_scale = unless(more * usual, usual);
    c->rope_high = unless(ph_import_real(in, NULL, "rope.scaling.yarn_beta_fast", 0), 32);
    c->rope_low = unless(ph_import_real(in, NULL, "rope.scaling.yarn_beta_slow", 0), 1);
}

static void folder_scaling(ph_import *in, ph_config *c)
{
    const char *type = ph_import_rope_type(in);
    /* dynamic changes nothing within max_position_embeddings, and no text is longer */
    if (!strcmp(type, "default") || !strcmp(type, "dynamic")) return;
    if (strcmp(type, "linear") && strcmp(type, "llama3") && strcmp(type, "yarn"))
        ph_import_fail(
            in, PH_UNSUPPORTED,
            "rope_type is %s, expected default, dynamic, linear, llama3 or yarn",
            ph_io_quote(type, strlen(type)).text);
    c->rope_factor = (float)rope_real(in, "factor", PH_IMPORT_REQUIRED);
    c->rope_length = rope_length(in, c->max_len);
    if (!strcmp(type, "linear")) {
        c->rope_scaling = PH_ROPE_LINEAR;
    } else if (!strcmp(type, "llama3")) {
        c->rope_scaling = PH_ROPE_LLAMA3;
        c->rope_low = (float)rope_real(in, "low_freq_factor", PH_IMPORT_REQUIRED);
        c->rope_high = (float)rope_real(in, "high_freq_factor", PH_IMPORT_REQUIRED);
    } else {
        c->rope_scaling = PH_ROPE_YARN;
        set_yarn(in, c);
    }
}

/* GGUF holds the divisors that LLaMA 3's scaling gives, not its numbers: the lengths of
   training in use are tried. */
static int gguf_divisors_fit(const ph_config *c, const float *divisors, int count)
{
    for (int p = 0; p < count; p++) {
        double base = c->rope_base;
        double rotations =
            c->rope_length * pow(base, -(double)p / count) / (2 * acos(-1));
        double fast =
            fmin(fmax((rotations - c->rope_low) / (c->rope_high - c->rope_low), 0), 1);
        double expected_one = 1 / (fast + (1 - fast) / c->rope_factor);
        if (!(fabs(divisors[p] / expected_one - 1) < 1e-5)) return 0;
    }
    return 1;
}

static void gguf_divisors(ph_import *in, ph_config *c)
{
    ph_stored *s = ph_checkpoint_find(in->checkpoint, "rope_freqs.weight");
    int count = c->head_dim / 2, given;
    if (!s || in->status != PH_OK) return;
    s->read = 1;
    if (s->tensor.type != PH_F32 || s->tensor.rank != 1 || !s->tensor.data ||
        s->tensor.shape[0] != (size_t)count) {
        ph_import_fail(in, PH_BAD_FILE, "rope_freqs.weight is not F32 (%d)", count);
        return;
    }
    const float *divisors = s->tensor.data;
    given = ph_import_size(in, NULL, "rope.scaling.original_context_length", 0);
    c->rope_scaling = PH_ROPE_LLAMA3, c->rope_low = 1, c->rope_high = 4;
    for (int p = 0; p < count; p++) c->rope_factor = fmaxf(c->rope_factor, divisors[p]);
    if (!(c->rope_factor >= 1)) c->rope_factor = 1;
    int most = given ? given : 32768;
    for (c->rope_length = given ? given : 32; c->rope_length <= most; c->rope_length *= 2)
        if (gguf_divisors_fit(c, divisors, count)) return;
    ph_import_fail(in, PH_UNSUPPORTED,
                   "rope_freqs.weight is no scaling of LLaMA 3 with factors 1 and 4");
}

/* Files from before there was a type may have a factor all the same. */
static const char *usual_gguf_scaling(ph_import *in, double old)
{
    return ph_import_real(in, NULL, "rope.scaling.factor", old) == 0 ? "none" : "linear";
}

static void gguf_scaling(ph_import *in, ph_config *c)
{
    double old = ph_import_real(in, NULL, "rope.scale_linear", 0);
    const char *type =
        ph_import_text(in, NULL, "rope.scaling.type", usual_gguf_scaling(in, old));
    int linear = !strcmp(type, "linear"), none = !strcmp(type, "none");
    if (!none && !linear && strcmp(type, "yarn"))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "rope.scaling.type is %s, expected none, linear or yarn",
                       ph_io_quote(type, strlen(type)).text);
    gguf_divisors(in, c);
    if (c->rope_scaling || none) return;
    c->rope_factor =
        (float)ph_import_positive(in, NULL, "rope.scaling.factor",
                                  old > 0 ? old : PH_IMPORT_REQUIRED);
    c->rope_length =
        ph_import_size(in, NULL, "rope.scaling.original_context_length", c->max_len);
    c->rope_scaling = linear ? PH_ROPE_LINEAR : PH_ROPE_YARN;
    if (!linear) set_gguf_yarn(in, c);
}

/* Elements of a head that are rotated, c->rope_dims where no field says it; 0: all. */
static int rope_dims(ph_import *in, const ph_config *c)
{
    char key[KEY];
    int usual = c->rope_dims ? c->rope_dims : c->head_dim;
    int dims = ph_import_int(in, NULL, "rope.dimension_count", usual);
    if (!ph_import_is_gguf(in)) {
        /* half an element more, which is rounded down */
        double part = (usual + 0.5) / fmax(c->head_dim, 1);
        ph_import_rope_key(in, "partial_rotary_factor", key);
        if (!in->architecture->rotary_names)
            part = ph_import_real(in, "partial_rotary_factor", NULL, part);
        part = ph_import_real(in, key, NULL, part);
        dims = (int)fmin(c->head_dim * part, 1 << 24);
    }
    if (dims == c->head_dim) return 0;
    int wrong = !in->architecture->partial_rope || dims < 2 || dims > c->head_dim;
    if (wrong && !in->trial)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "%s says that %d of the %d elements of a head are rotated, "
                       "expected %s",
                       ph_import_is_gguf(in) ? "rope.dimension_count"
                                             : "partial_rotary_factor",
                       dims, c->head_dim,
                       in->architecture->partial_rope ? "2 at least" : "all");
    return dims;
}

void ph_import_rope_base(ph_import *in, ph_config *c, double base)
{
    c->positions = PH_POS_ROPE;
    const char *name = in->architecture->rotary_names ? NULL : "rope_theta";
    base = ph_import_positive(in, name, "rope.freq_base", base);
    if (!ph_import_is_gguf(in)) base = rope_real(in, "rope_theta", base);
    c->rope_base = (float)base;
    c->rope_dims = rope_dims(in, c);
}

void ph_import_rope(ph_import *in, ph_config *c, double base)
{
    ph_import_rope_base(in, c, base);
    if (ph_import_is_gguf(in))
        gguf_scaling(in, c);
    else
        folder_scaling(in, c);
}

void ph_import_rope_local(ph_import *in, ph_config *c, double base)
{
    const char *scaled = ph_import_text(in, "rope_parameters.sliding_attention.rope_type",
                                        NULL, "default");
    if (strcmp(scaled, "default"))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "rope_parameters.sliding_attention.rope_type is %s, expected "
                       "default",
                       ph_io_quote(scaled, strlen(scaled)).text);
    c->rope_local_base = (float)ph_import_positive(
        in, "rope_parameters.sliding_attention.rope_theta", NULL, base);
}

void ph_publish_sizes(const ph_config *c, ph_json_writer *json)
{
    ph_json_integer(json, "num_hidden_layers", c->layers);
    ph_json_integer(json, "hidden_size", c->model_dim);
    ph_json_integer(json, "num_attention_heads", c->heads);
    ph_json_integer(json, "num_key_value_heads", c->kv_heads);
    ph_json_integer(json, "head_dim", c->head_dim);
    ph_json_integer(json, "intermediate_size", c->ff_dim);
    ph_json_integer(json, "max_position_embeddings", c->max_len);
    ph_json_float(json, "rms_norm_eps", c->norm_eps);
}

void ph_publish_rope(const ph_config *c, ph_json_writer *json)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn"};
    ph_json_float(json, "rope_theta", c->rope_base != 0 ? c->rope_base : 10000);
    if (!c->rope_scaling || c->rope_scaling == PH_ROPE_LONGROPE) return;
    ph_json_begin_object(json, "rope_scaling");
    ph_json_string(json, "rope_type", names[c->rope_scaling]);
    ph_json_float(json, "factor", c->rope_factor);
    ph_json_integer(json, "original_max_position_embeddings", c->rope_length);
    if (c->rope_scaling == PH_ROPE_LLAMA3) {
        ph_json_float(json, "low_freq_factor", c->rope_low);
        ph_json_float(json, "high_freq_factor", c->rope_high);
    } else if (c->rope_scaling == PH_ROPE_YARN) {
        if (c->rope_high != 0) ph_json_float(json, "beta_fast", c->rope_high);
        if (c->rope_low != 0) ph_json_float(json, "beta_slow", c->rope_low);
        if (c->rope_scale != 0) ph_json_float(json, "attention_factor", c->rope_scale);
        if (c->yarn_untruncated) ph_json_bool(json, "truncate", 0);
    }
    ph_json_end(json);
}

double ph_publish_rope_part(const ph_config *c)
{
    int dims = c->rope_dims ? c->rope_dims : c->head_dim;
    double part = (double)dims / c->head_dim;
    return (int)(part * c->head_dim) == dims ? part : (dims + 0.5) / c->head_dim;
}

const char *ph_publish_activation(const ph_config *c)
{
    static const char *const names[] = {
        [PH_GELU] = "gelu_new", [PH_RELU] = "relu",      [PH_SWIGLU] = "silu",
        [PH_GELU_ERF] = "gelu", [PH_GEGLU] = "gelu_new", [PH_SILU] = "silu",
        [PH_GEGLU_ERF] = "gelu"};
    return names[c->activation];
}

static const char *const problems[] = {[PH_SINGLE_LABEL] = "single_label_classification",
                                       [PH_MULTI_LABEL] = "multi_label_classification",
                                       [PH_REGRESSION] = "regression"};

const char *ph_publish_problem(const ph_config *c)
{
    return problems[c->problem_type];
}

static ph_problem problem_type(ph_import *in)
{
    const char *said = ph_import_text(in, "problem_type", NULL, "");
    for (int i = 0; i < 3; i++)
        if (!strcmp(said, problems[i])) return (ph_problem)i;
    if (*said)
        ph_import_fail(in, PH_UNSUPPORTED, "problem_type is %s, expected %s, %s or %s",
                       ph_io_quote(said, strlen(said)).text, problems[PH_MULTI_LABEL],
                       problems[PH_SINGLE_LABEL], problems[PH_REGRESSION]);
    return PH_SINGLE_LABEL;
}

void ph_import_config(ph_import *in, ph_config *c)
{
    in->architecture->configure(in, c);
    ph_problem problem = problem_type(in);
    c->problem_type = c->classes ? problem : PH_SINGLE_LABEL;
}
