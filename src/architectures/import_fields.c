/*
 * import_fields.c - fields of a configuration, with defaults, as numbers of ours.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"
#include "base/format.h"

enum { KEY = 160 };

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

const ph_value *ph_import_value(ph_import *in, const char *folder, const char *gguf)
{
    char key[KEY];
    const char *name = ph_import_is_gguf(in) ? gguf : folder;
    if (!name || in->status != PH_OK) return NULL;
    if (ph_import_is_gguf(in))
        snprintf(key, sizeof key, "%s.%s", in->type, name);
    else
        snprintf(key, sizeof key, "%s%s", in->section, name);
    return ph_values_find(&in->checkpoint->values, key);
}

static void expected(ph_import *in, const ph_value *v, const char *what)
{
    if (v->kind == PH_VALUE_NUMBER)
        ph_import_fail(in, PH_BAD_FILE, "%s is %g, expected %s", v->key, v->number, what);
    else if (v->kind == PH_VALUE_TEXT)
        ph_import_fail(in, PH_BAD_FILE, "%s is %s, expected %s", v->key,
                       ph_io_quote(v->text, v->length).text, what);
    else
        ph_import_fail(in, PH_BAD_FILE, "%s is something else, expected %s", v->key,
                       what);
}

/* Whether there is a value; if it must be there and is not, that is an error. */
static int is_given(ph_import *in, const ph_value *v, const char *folder,
                    const char *gguf, int required)
{
    if (v && v->kind != PH_VALUE_NULL) return 1;
    if (required)
        ph_import_fail(in, PH_BAD_FILE, "%s is missing",
                       ph_import_is_gguf(in) ? gguf : folder);
    return 0;
}

int ph_import_int(ph_import *in, const char *folder, const char *gguf, int fallback)
{
    const ph_value *v = ph_import_value(in, folder, gguf);
    if (!is_given(in, v, folder, gguf, fallback == PH_IMPORT_REQUIRED)) return fallback;
    if (v->kind == PH_VALUE_NUMBER && v->number >= 0 && v->number <= 1 << 30 &&
        v->number == floor(v->number))
        return (int)v->number;
    expected(in, v, "a whole number");
    return fallback;
}

double ph_import_real(ph_import *in, const char *folder, const char *gguf,
                      double fallback)
{
    const ph_value *v = ph_import_value(in, folder, gguf);
    if (!is_given(in, v, folder, gguf, fallback == PH_IMPORT_REQUIRED)) return fallback;
    if (v->kind == PH_VALUE_NUMBER && v->number >= 0 && v->number <= 1e30)
        return v->number;
    expected(in, v, "a number of at least 0");
    return fallback;
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

void ph_import_activation(ph_import *in, const char *name, int gated, ph_config *c)
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
                 {"silu", 1, PH_SWIGLU},
                 {"swish", 1, PH_SWIGLU}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(name, known[i].name) && gated == known[i].gated) {
            c->activation = known[i].activation;
            return;
        }
    ph_import_fail(in, PH_UNSUPPORTED, "the activation %s is unknown%s",
                   ph_io_quote(name, strlen(name)).text, gated ? " with a gate" : "");
}

/* ---- rotary positions -------------------------------------------------------------- */

/* Where the fields of rope stand: of layers that see all, in rope_parameters, or, as
   older files have it, in rope_scaling. The name of the first that is there. */
static void rope_key(ph_import *in, const char *name, char key[KEY])
{
    static const char *const sections[] = {"rope_parameters.full_attention",
                                           "rope_parameters", "rope_scaling"};
    for (int i = 0; i < 3; i++) {
        snprintf(key, KEY, "%s.%s", sections[i], name);
        if (ph_import_value(in, key, NULL)) return;
    }
}

static double rope_real(ph_import *in, const char *name, double fallback)
{
    char key[KEY];
    rope_key(in, name, key);
    return ph_import_real(in, key, NULL, fallback);
}

static const char *rope_type(ph_import *in)
{
    char key[KEY];
    rope_key(in, "rope_type", key);
    if (!ph_import_value(in, key, NULL)) rope_key(in, "type", key);
    return ph_import_text(in, key, NULL, "default");
}

static void folder_scaling(ph_import *in, ph_config *c)
{
    static const char *const fine_print[] = {"beta_fast", "beta_slow", "attention_factor",
                                             "mscale", "mscale_all_dim"};
    const char *type = rope_type(in);
    char key[KEY];
    if (!strcmp(type, "default")) return;
    c->rope_factor = (float)rope_real(in, "factor", PH_IMPORT_REQUIRED);
    c->rope_length =
        (int)rope_real(in, "original_max_position_embeddings", (double)c->max_len);
    if (!strcmp(type, "linear")) {
        c->rope_scaling = PH_ROPE_LINEAR;
    } else if (!strcmp(type, "llama3")) {
        c->rope_scaling = PH_ROPE_LLAMA3;
        c->rope_low = (float)rope_real(in, "low_freq_factor", PH_IMPORT_REQUIRED);
        c->rope_high = (float)rope_real(in, "high_freq_factor", PH_IMPORT_REQUIRED);
    } else if (!strcmp(type, "yarn")) {
        c->rope_scaling = PH_ROPE_YARN;
        for (size_t i = 0; i < sizeof fine_print / sizeof fine_print[0]; i++) {
            snprintf(key, sizeof key, "rope_scaling.%s", fine_print[i]);
            if (rope_real(in, fine_print[i], 0) != 0)
                ph_import_fail(in, PH_UNSUPPORTED,
                               "%s is given, expected YaRN without it", key);
        }
    } else {
        ph_import_fail(in, PH_UNSUPPORTED,
                       "rope_type is %s, expected default, linear, llama3 or yarn",
                       ph_io_quote(type, strlen(type)).text);
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
    given = ph_import_int(in, NULL, "rope.scaling.original_context_length", 0);
    c->rope_scaling = PH_ROPE_LLAMA3, c->rope_low = 1, c->rope_high = 4;
    for (int p = 0; p < count; p++) c->rope_factor = fmaxf(c->rope_factor, divisors[p]);
    if (!(c->rope_factor >= 1)) c->rope_factor = 1;
    for (int length = given ? given : 32; length <= (given ? given : 32768);
         length *= 2) {
        c->rope_length = length;
        if (gguf_divisors_fit(c, divisors, count)) return;
    }
    ph_import_fail(in, PH_UNSUPPORTED,
                   "rope_freqs.weight is no scaling of LLaMA 3 with factors 1 and 4");
}

static void gguf_scaling(ph_import *in, ph_config *c)
{
    const char *type = ph_import_text(in, NULL, "rope.scaling.type", "none");
    if (ph_import_int(in, NULL, "rope.dimension_count", c->head_dim) != c->head_dim)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "rope.dimension_count differs from the size of a head, %d",
                       c->head_dim);
    gguf_divisors(in, c);
    if (c->rope_scaling || !strcmp(type, "none")) return;
    c->rope_factor =
        (float)ph_import_real(in, NULL, "rope.scaling.factor", PH_IMPORT_REQUIRED);
    c->rope_length =
        ph_import_int(in, NULL, "rope.scaling.original_context_length", c->max_len);
    if (!strcmp(type, "linear"))
        c->rope_scaling = PH_ROPE_LINEAR;
    else if (!strcmp(type, "yarn"))
        c->rope_scaling = PH_ROPE_YARN;
    else
        ph_import_fail(in, PH_UNSUPPORTED,
                       "rope.scaling.type is %s, expected none, linear or yarn",
                       ph_io_quote(type, strlen(type)).text);
}

void ph_import_rope(ph_import *in, ph_config *c, double base)
{
    c->positions = PH_POS_ROPE;
    base = ph_import_real(in, "rope_theta", "rope.freq_base", base);
    if (!ph_import_is_gguf(in)) base = rope_real(in, "rope_theta", base);
    c->rope_base = (float)base;
    if (ph_import_real(in, "partial_rotary_factor", NULL, 1) != 1)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "partial_rotary_factor is not 1, expected whole heads");
    if (ph_import_is_gguf(in))
        gguf_scaling(in, c);
    else
        folder_scaling(in, c);
}

void ph_publish_rope(const ph_config *c, ph_json_writer *json)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn"};
    ph_json_float(json, "rope_theta", c->rope_base != 0 ? c->rope_base : 10000);
    if (!c->rope_scaling) return;
    ph_json_begin_object(json, "rope_scaling");
    ph_json_string(json, "rope_type", names[c->rope_scaling]);
    ph_json_float(json, "factor", c->rope_factor);
    ph_json_integer(json, "original_max_position_embeddings", c->rope_length);
    if (c->rope_scaling == PH_ROPE_LLAMA3) {
        ph_json_float(json, "low_freq_factor", c->rope_low);
        ph_json_float(json, "high_freq_factor", c->rope_high);
    }
    ph_json_end(json);
}

const char *ph_publish_activation(const ph_config *c)
{
    return c->activation == PH_GELU_ERF ? "gelu"
           : c->activation == PH_RELU   ? "relu"
                                        : "gelu_new";
}

void ph_import_config(ph_import *in, ph_config *c)
{
    in->architecture->configure(in, c);
    const char *problem = ph_import_text(in, "problem_type", NULL, "");
    c->multi_label = c->classes && !strcmp(problem, "multi_label_classification");
}
