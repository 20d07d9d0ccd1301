/*
 * import_pooling.c - one vector of a text as sentence-transformers makes it of tokens:
 * modules.json and the files beside it, pooling_type of GGUF.
 */
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"

static const struct {
    const char *name, *flag; /* as pooling_mode has it, and as older files do */
    ph_pooling pooling;
} poolings[] = {
    {"cls", "pooling.pooling_mode_cls_token", PH_POOL_FIRST},
    {"max", "pooling.pooling_mode_max_tokens", PH_POOL_MAX},
    {"mean", "pooling.pooling_mode_mean_tokens", PH_POOL_MEAN},
    {"mean_sqrt_len_tokens", "pooling.pooling_mode_mean_sqrt_len_tokens",
     PH_POOL_MEAN_SQRT},
    {"weightedmean", "pooling.pooling_mode_weightedmean_tokens", PH_POOL_WEIGHTED},
    {"lasttoken", "pooling.pooling_mode_lasttoken", PH_POOL_LAST}};

enum { POOLINGS = sizeof poolings / sizeof poolings[0], POOLINGS_MOST = 4 };

static void add_pooling(ph_config *c, int i, int *count)
{
    if (*count > 0 && *count < POOLINGS_MOST)
        c->pooling_more[*count - 1] = poolings[i].pooling;
    else if (!*count)
        c->pooling = poolings[i].pooling;
    ++*count;
}

/* pooling_mode is one way, or a list of them, whose vectors stand in that order; older
   files have flags, in a fixed order. */
static void find_pooling(ph_import *in, ph_config *c)
{
    static const char key[] = "pooling.pooling_mode";
    const ph_value *v = ph_import_value(in, key, NULL);
    int list = v && v->kind == PH_VALUE_LIST, count = 0;
    size_t modes = list ? v->count : 1;
    for (size_t k = 0; k < modes; k++) {
        char item[48];
        snprintf(item, sizeof item, list ? "%s.%zu" : "%s", key, k);
        const char *mode = ph_import_text(in, item, NULL, "");
        int before = count;
        for (int i = 0; i < POOLINGS; i++) {
            int old = ph_import_flag(in, poolings[i].flag, NULL, 0);
            if (!strcmp(mode, poolings[i].name) || (old && !*mode && !list))
                add_pooling(c, i, &count);
        }
        if (*mode && count == before)
            ph_import_fail(in, PH_UNSUPPORTED, "%s is %s, which is no known way to pool",
                           item, ph_io_quote(mode, strlen(mode)).text);
    }
    if (count < 1 || count > POOLINGS_MOST)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "pooling_mode beside modules.json has %d ways to pool that are "
                       "known, expected 1 to %d",
                       count, POOLINGS_MOST);
}

/* Elements of a token's vector, which no file may say otherwise: as sentence-transformers
   writes it since version 6, and before. */
static void check_dim(ph_import *in, const ph_config *c)
{
    static const char *const keys[] = {"pooling.embedding_dimension",
                                       "pooling.word_embedding_dimension"};
    for (int i = 0; i < 2; i++) {
        int dim = ph_import_size(in, keys[i], NULL, c->model_dim);
        if (dim != c->model_dim)
            ph_import_fail(in, PH_BAD_FILE, "%s is %d, expected %d as the model has",
                           keys[i], dim, c->model_dim);
    }
}

/* A linear layer and its activation, by the last part of a class name. */
static void find_dense(ph_import *in, ph_config *c)
{
    static const struct {
        const char *name;
        ph_pooler pooler;
    } known[] = {{"Tanh", PH_POOLER_TANH},
                 {"Identity", PH_POOLER_IDENTITY},
                 {"ReLU", PH_POOLER_RELU},
                 {"GELU", PH_POOLER_GELU}};
    const char *name = ph_import_text(in, "dense.activation_function", NULL, "Tanh");
    const char *input = ph_import_text(in, "dense.module_input_name", NULL, "");
    const char *dot = strrchr(name, '.');
    int out = ph_import_size(in, "dense.out_features", NULL, PH_IMPORT_REQUIRED);
    for (int i = 0; i < 4; i++)
        if (!strcmp(dot ? dot + 1 : name, known[i].name)) c->pooler = known[i].pooler;
    if (!c->pooler)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "dense.activation_function is %s, expected Tanh, Identity, ReLU "
                       "or GELU",
                       ph_io_quote(name, strlen(name)).text);
    if (ph_import_flag(in, "dense.use_residual", NULL, 0))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "dense.use_residual is true, expected a layer alone");
    if (*input && strcmp(input, "sentence_embedding"))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "dense.module_input_name is %s, expected sentence_embedding",
                       ph_io_quote(input, strlen(input)).text);
    c->pooler_dim = out == c->model_dim ? 0 : out;
    int bare = !ph_import_flag(in, "dense.bias", NULL, 1);
    if (c->masked && bare != c->no_dense_bias)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "dense.bias is %s, expected what the layer of masked tokens has",
                       bare ? "false" : "true");
    c->no_dense_bias = bare;
}

/* Transformer, Pooling, maybe Dense, maybe Normalize; by the last part of a class
   name. */
static void find_modules(ph_import *in, ph_config *c, size_t count)
{
    static const char *const known[] = {"Transformer", "Pooling", "Dense", "Normalize"};
    char key[48];
    int next = 0;
    for (size_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "modules.%zu.type", i);
        const char *type = ph_import_text(in, key, NULL, ""), *dot = strrchr(type, '.');
        const char *last = dot ? dot + 1 : type;
        while (next < 4 && strcmp(last, known[next])) next++;
        if (next == 4)
            ph_import_fail(in, PH_UNSUPPORTED,
                           "%s is %s, expected Transformer, Pooling, Dense and Normalize "
                           "in this order, each once at most",
                           key, ph_io_quote(type, strlen(type)).text);
        if (next == 2) find_dense(in, c);
        if (next == 3) c->unit_norm = 1;
        next++;
    }
}

/* A number of llama.cpp's: 0 none, where we take the mean. */
static void set_gguf_pooling(ph_import *in, ph_config *c)
{
    static const ph_pooling known[] = {PH_POOL_MEAN, PH_POOL_MEAN, PH_POOL_FIRST,
                                       PH_POOL_LAST};
    int type = ph_import_int(in, NULL, "pooling_type", 0);
    if (type < 0 || type > 3)
        ph_import_fail(in, PH_UNSUPPORTED, "%s.pooling_type is %d, expected 0 to 3",
                       in->type, type);
    else
        c->pooling = known[type];
}

/* Tokens that a text is truncated to: the older file counts before what the tokenizer is
   made with, which is 1e30 where nothing was said. */
static int text_length(ph_import *in, int most)
{
    static const char *const keys[] = {"tokenizer_config.model_max_length",
                                       "tokenizer_config.max_len"};
    int length = ph_import_int(in, "sentence.max_seq_length", NULL, 0);
    const ph_value *v = NULL;
    for (int i = 0; i < 2 && !length && (!v || v->kind == PH_VALUE_NULL); i++)
        v = ph_import_value(in, keys[i], NULL);
    if (length || !v || v->kind == PH_VALUE_NULL) return length;
    if (v->kind == PH_VALUE_NUMBER && v->number >= 1 && v->number < 2e30)
        return v->number < most ? (int)v->number : most;
    ph_import_fail(in, PH_BAD_FILE, "%s is %s, expected a number of tokens",
                   ph_value_field(v->key).text, ph_value_show(v).text);
    return 0;
}

/* As sentence-transformers does it, which takes the mean where nothing is said. */
void ph_import_pooling(ph_import *in, ph_config *c)
{
    if (ph_import_is_gguf(in)) {
        set_gguf_pooling(in, c);
        return;
    }
    const ph_value *modules = ph_import_list(in, "modules.");
    c->pooling = PH_POOL_MEAN;
    if (modules) {
        find_modules(in, c, modules->count);
        find_pooling(in, c);
        check_dim(in, c);
    }
    int length = text_length(in, c->max_len);
    c->pool_len = length < c->max_len ? length : 0;
}

/* ---- writing ----------------------------------------------------------------------- */

/* Which of the config's ways to pool is the i-th of the table; -1: none. */
static int place_of(const ph_config *c, int i)
{
    if (c->pooling == poolings[i].pooling) return 0;
    for (int k = 1; k < POOLINGS_MOST; k++)
        if (c->pooling_more[k - 1] == poolings[i].pooling) return k;
    return -1;
}

/* Flags, which every version reads, or a list where their order is another one or a way
   is there twice. */
void ph_publish_pooling(const ph_config *c, ph_json_writer *json)
{
    int last = -1, ordered = 1, flags = 0, count = c->pooling != PH_POOL_NONE;
    while (count && count < POOLINGS_MOST && c->pooling_more[count - 1]) count++;
    for (int i = 0; i < POOLINGS; i++) {
        int place = place_of(c, i);
        if (place < 0) continue;
        ordered &= place > last;
        last = place, flags++;
    }
    if (ordered && flags == count) {
        for (int i = 0; i < POOLINGS; i++)
            ph_json_bool(json, poolings[i].flag + strlen("pooling."),
                         place_of(c, i) >= 0);
        return;
    }
    ph_json_begin_array(json, "pooling_mode");
    for (int k = 0; k < count; k++)
        for (int i = 0; i < POOLINGS; i++)
            if ((k ? c->pooling_more[k - 1] : c->pooling) == poolings[i].pooling)
                ph_json_string(json, NULL, poolings[i].name);
    ph_json_end(json);
}
