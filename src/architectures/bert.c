/*
 * bert.c - encoders with norm after and learned positions: BERT (MiniLM is one), RoBERTa
 * and its kin, DistilBERT; masked tokens, classifiers, or one vector of a text as
 * sentence-transformers pools it.
 */
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"

static const char *const bert_types[] = {"bert", NULL};
static const char *const roberta_types[] = {"roberta", "xlm-roberta", "camembert", NULL};
static const char *const distilbert_types[] = {"distilbert", NULL};
static const char *const bert_gguf[] = {"bert", NULL}; /* RoBERTa's too */
static const char *const no_gguf[] = {NULL};

/* Weight and bias of a matrix or norm: w and b of ours. */
#define BOTH(ours_w, ours_b, theirs)                                                     \
    PH_TENSOR(ours_w, theirs ".weight", NULL), PH_TENSOR(ours_b, theirs ".bias", NULL)
#define NORM(ours, theirs)  BOTH(ours ".gain", ours ".bias", theirs)
#define LAYER(ours, theirs) BOTH(ours ".w", ours ".b", theirs)

/* The same, with the name that GGUF has. */
#define PAIR(ours_w, ours_b, theirs, gguf)                                               \
    PH_TENSOR(ours_w, theirs ".weight", gguf ".weight"),                                 \
        PH_TENSOR(ours_b, theirs ".bias", gguf ".bias")
#define GAIN(ours, theirs, gguf) PAIR(ours ".gain", ours ".bias", theirs, gguf)

/* What BERT and RoBERTa share. */
#define ENCODER                                                                          \
    PH_TABLE("embed", "embeddings.word_embeddings.weight", "token_embd.weight"),         \
        PH_TABLE("encoder.positions", "embeddings.position_embeddings.weight",           \
                 "position_embd.weight"),                                                \
        PH_TABLE("encoder.types", "embeddings.token_type_embeddings.weight",             \
                 "token_types.weight"),                                                  \
        GAIN("encoder.embed_norm", "embeddings.LayerNorm", "token_embd_norm"),           \
        PAIR("encoder.#.self.wq", "encoder.#.self.bq",                                   \
             "encoder.layer.#.attention.self.query", "blk.#.attn_q"),                    \
        PAIR("encoder.#.self.wk", "encoder.#.self.bk",                                   \
             "encoder.layer.#.attention.self.key", "blk.#.attn_k"),                      \
        PAIR("encoder.#.self.wv", "encoder.#.self.bv",                                   \
             "encoder.layer.#.attention.self.value", "blk.#.attn_v"),                    \
        PAIR("encoder.#.self.wo", "encoder.#.self.bo",                                   \
             "encoder.layer.#.attention.output.dense", "blk.#.attn_output"),             \
        GAIN("encoder.#.norm1", "encoder.layer.#.attention.output.LayerNorm",            \
             "blk.#.attn_output_norm"),                                                  \
        PAIR("encoder.#.ff.w1", "encoder.#.ff.b1", "encoder.layer.#.intermediate.dense", \
             "blk.#.ffn_up"),                                                            \
        PAIR("encoder.#.ff.w2", "encoder.#.ff.b2", "encoder.layer.#.output.dense",       \
             "blk.#.ffn_down"),                                                          \
        GAIN("encoder.#.norm2", "encoder.layer.#.output.LayerNorm",                      \
             "blk.#.layer_output_norm")

/* A name that counts before another one. Where the output matrix is not tied, its bias is
   not either: the other one is in the file still, and unused. */
#define SECOND(ours, theirs)                                                             \
    {                                                                                    \
        ours, theirs, NULL, 0, 0, 0, 0, 1, 0, 0                                          \
    }

/* A Dense module behind the pooling of a sentence encoder. */
#define DENSE                                                                            \
    SECOND("pooler.w", "/dense.linear.weight"), SECOND("pooler.b", "/dense.linear.bias")

/* Of several lines for one of ours, the tensor that exists counts; the first is
   written. */
static const ph_tensor_name bert_names[] = {
    ENCODER,
    LAYER("masked", "/cls.predictions.transform.dense"),
    NORM("masked.norm", "/cls.predictions.transform.LayerNorm"),
    PH_TENSOR("masked.bias", "/cls.predictions.bias", NULL),
    SECOND("masked.bias", "/cls.predictions.decoder.bias"),
    PH_TABLE("output", "/cls.predictions.decoder.weight", NULL),
    LAYER("pooler", "pooler.dense"),
    DENSE,
    LAYER("classifier", "/classifier"),
    LAYER("classifier", "/qa_outputs"),
    PH_TENSOR(NULL, NULL, NULL)};

static const ph_tensor_name roberta_names[] = {
    ENCODER,
    LAYER("masked", "/lm_head.dense"),
    NORM("masked.norm", "/lm_head.layer_norm"),
    PH_TENSOR("masked.bias", "/lm_head.bias", NULL),
    SECOND("masked.bias", "/lm_head.decoder.bias"),
    PH_TABLE("output", "/lm_head.decoder.weight", NULL),
    LAYER("pooler", "/classifier.dense"),
    DENSE,
    LAYER("classifier", "/classifier.out_proj"),
    LAYER("classifier", "/classifier"),
    LAYER("classifier", "/qa_outputs"),
    PH_TENSOR(NULL, NULL, NULL)};

static const ph_tensor_name distilbert_names[] = {
    PH_TABLE("embed", "embeddings.word_embeddings.weight", NULL),
    PH_TABLE("encoder.positions", "embeddings.position_embeddings.weight", NULL),
    NORM("encoder.embed_norm", "embeddings.LayerNorm"),
    BOTH("encoder.#.self.wq", "encoder.#.self.bq", "transformer.layer.#.attention.q_lin"),
    BOTH("encoder.#.self.wk", "encoder.#.self.bk", "transformer.layer.#.attention.k_lin"),
    BOTH("encoder.#.self.wv", "encoder.#.self.bv", "transformer.layer.#.attention.v_lin"),
    BOTH("encoder.#.self.wo", "encoder.#.self.bo",
         "transformer.layer.#.attention.out_lin"),
    NORM("encoder.#.norm1", "transformer.layer.#.sa_layer_norm"),
    BOTH("encoder.#.ff.w1", "encoder.#.ff.b1", "transformer.layer.#.ffn.lin1"),
    BOTH("encoder.#.ff.w2", "encoder.#.ff.b2", "transformer.layer.#.ffn.lin2"),
    NORM("encoder.#.norm2", "transformer.layer.#.output_layer_norm"),
    LAYER("masked", "/vocab_transform"),
    NORM("masked.norm", "/vocab_layer_norm"),
    PH_TENSOR("masked.bias", "/vocab_projector.bias", NULL),
    PH_TABLE("output", "/vocab_projector.weight", NULL),
    LAYER("pooler", "/pre_classifier"),
    DENSE,
    LAYER("classifier", "/classifier"),
    LAYER("classifier", "/qa_outputs"),
    PH_TENSOR(NULL, NULL, NULL)};

/* A pooler is there even where nothing uses it; whether one sentence follows another is
   what BERT was trained on beside masked tokens, and nothing here asks. */
static const char *const ignored[] = {"pooler.dense.weight",     "pooler.dense.bias",
                                      "/cls.seq_relationship.*", "/cls.predictions.bias",
                                      "/lm_head.bias",           NULL};

/* ---- one vector of a text ---------------------------------------------------------- */

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

/* A linear layer and its activation, by the last part of a class name. */
static void find_dense(ph_import *in, ph_config *c)
{
    static const struct {
        const char *name;
        ph_pooler pooler;
    } known[] = {{"Tanh", PH_POOLER_TANH},
                 {"Identity", PH_POOLER_IDENTITY},
                 {"ReLU", PH_POOLER_RELU}};
    const char *name = ph_import_text(in, "dense.activation_function", NULL, "Tanh");
    const char *input = ph_import_text(in, "dense.module_input_name", NULL, "");
    const char *dot = strrchr(name, '.');
    int out = ph_import_size(in, "dense.out_features", NULL, PH_IMPORT_REQUIRED);
    for (int i = 0; i < 3; i++)
        if (!strcmp(dot ? dot + 1 : name, known[i].name)) c->pooler = known[i].pooler;
    if (!c->pooler)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "dense.activation_function is %s, expected Tanh, Identity or ReLU",
                       ph_io_quote(name, strlen(name)).text);
    if (ph_import_flag(in, "dense.use_residual", NULL, 0))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "dense.use_residual is true, expected a layer alone");
    if (*input && strcmp(input, "sentence_embedding"))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "dense.module_input_name is %s, expected sentence_embedding",
                       ph_io_quote(input, strlen(input)).text);
    c->pooler_dim = out == c->model_dim ? 0 : out;
    c->no_head_bias = !ph_import_flag(in, "dense.bias", NULL, 1);
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
    ph_import_fail(in, PH_BAD_FILE, "%s is %s, expected a number of tokens", v->key,
                   ph_value_show(v).text);
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
    }
    int length = text_length(in, c->max_len);
    c->pool_len = length < c->max_len ? length : 0;
}

/* ---- what the encoder ends in ------------------------------------------------------ */

static void set_end(ph_import *in, ph_config *c, ph_pooler pooler)
{
    c->masked = ph_import_find(in, "masked.w") != NULL;
    if (!ph_import_classes(in, c))
        ph_import_pooling(in, c);
    else if (!ph_import_by_token(in))
        c->pooling = PH_POOL_FIRST, c->pooler = pooler;
}

static void refuse_decoders(ph_import *in)
{
    const char *kind = ph_import_text(in, "position_embedding_type", NULL, "absolute");
    if (strcmp(kind, "absolute"))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "position_embedding_type is %s, expected absolute",
                       ph_io_quote(kind, strlen(kind)).text);
    if (ph_import_flag(in, "is_decoder", NULL, 0))
        ph_import_fail(in, PH_UNSUPPORTED, "is_decoder is true, expected an encoder");
}

static void set_encoder(ph_config *c)
{
    c->arch = PH_ARCH_ENCODER;
    c->norm_place = PH_POST_NORM;
    c->positions = PH_POS_LEARNED;
    c->embed_norm = 1;
    c->embed_scale = 1;
}

/* GGUF says it by the table alone. */
static int count_types(ph_import *in)
{
    const ph_stored *table = ph_import_find(in, "encoder.types");
    int rows = table && table->tensor.rank == 2 && table->tensor.shape[0] < 1 << 24
                   ? (int)table->tensor.shape[0]
                   : 0;
    return ph_import_is_gguf(in) ? rows : ph_import_int(in, "type_vocab_size", NULL, 2);
}

static void configure_bert(ph_import *in, ph_config *c)
{
    int bert = ph_import_is(in, "bert");
    set_encoder(c);
    refuse_decoders(in);
    c->layers = ph_import_size(in, "num_hidden_layers", "block_count", 12);
    c->model_dim = ph_import_size(in, "hidden_size", "embedding_length", 768);
    c->heads = ph_import_size(in, "num_attention_heads", "attention.head_count", 12);
    c->ff_dim = ph_import_size(in, "intermediate_size", "feed_forward_length", 3072);
    c->types = count_types(in);
    c->norm_eps = (float)ph_import_positive(in, "layer_norm_eps",
                                            "attention.layer_norm_epsilon", 1e-12);
    /* RoBERTa counts positions from the one after that of padding */
    if (!bert) c->position_offset = ph_import_int(in, "pad_token_id", NULL, 1) + 1;
    c->max_len = ph_import_size(in, "max_position_embeddings", "context_length", 512) -
                 c->position_offset;
    const char *name = ph_import_text(in, "hidden_act", NULL, "gelu");
    ph_import_activation(in, "hidden_act", name, 0, c);
    set_end(in, c, PH_POOLER_TANH);
    if (!bert && c->masked && c->activation != PH_GELU_ERF)
        ph_import_fail(
            in, PH_UNSUPPORTED,
            "hidden_act differs from gelu, which RoBERTa's masked tokens have");
}

static void configure_distilbert(ph_import *in, ph_config *c)
{
    set_encoder(c);
    c->layers = ph_import_size(in, "n_layers", NULL, 6);
    c->model_dim = ph_import_size(in, "dim", NULL, 768);
    c->heads = ph_import_size(in, "n_heads", NULL, 12);
    c->ff_dim = ph_import_size(in, "hidden_dim", NULL, 4 * 768);
    c->norm_eps = 1e-12f;
    c->max_len = ph_import_size(in, "max_position_embeddings", NULL, 512);
    const char *name = ph_import_text(in, "activation", NULL, "gelu");
    ph_import_activation(in, "activation", name, 0, c);
    set_end(in, c, PH_POOLER_RELU);
}

/* ---- writing ----------------------------------------------------------------------- */

/* The class of transformers that has what this model ends in; RoBERTa's classifier of
   tokens has another tensor than the one that is written. */
static void publish_class(const ph_config *c, const char *stem, ph_json_writer *json)
{
    char name[64];
    int bert = !strcmp(stem, "Bert"), by_token = c->classes && !c->pooling && bert;
    snprintf(name, sizeof name, "%s%s", stem,
             c->masked    ? "ForMaskedLM"
             : by_token   ? "ForTokenClassification"
             : c->classes ? "ForSequenceClassification"
                          : "Model");
    ph_json_begin_array(json, "architectures");
    ph_json_string(json, NULL, name);
    ph_json_end(json);
}

static void publish_sizes(const ph_config *c, ph_json_writer *json)
{
    ph_json_integer(json, "num_hidden_layers", c->layers);
    ph_json_integer(json, "hidden_size", c->model_dim);
    ph_json_integer(json, "num_attention_heads", c->heads);
    ph_json_integer(json, "intermediate_size", c->ff_dim);
    ph_json_integer(json, "max_position_embeddings", c->max_len + c->position_offset);
    if (c->types) ph_json_integer(json, "type_vocab_size", c->types);
    ph_json_float(json, "layer_norm_eps", c->norm_eps);
    ph_json_string(json, "hidden_act", ph_publish_activation(c));
}

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

static int publish_bert(const ph_config *c, ph_json_writer *json)
{
    publish_class(c, "Bert", json);
    ph_json_string(json, "model_type", "bert");
    publish_sizes(c, json);
    return 0;
}

static int publish_roberta(const ph_config *c, ph_json_writer *json)
{
    publish_class(c, "Roberta", json);
    ph_json_string(json, "model_type", "roberta");
    if (c->position_offset && c->arch == PH_ARCH_ENCODER)
        ph_json_integer(json, "pad_token_id", c->position_offset - 1);
    publish_sizes(c, json);
    return 0;
}

static int publish_distilbert(const ph_config *c, ph_json_writer *json)
{
    publish_class(c, "DistilBert", json);
    ph_json_string(json, "model_type", "distilbert");
    ph_json_integer(json, "n_layers", c->layers);
    ph_json_integer(json, "dim", c->model_dim);
    ph_json_integer(json, "n_heads", c->heads);
    ph_json_integer(json, "hidden_dim", c->ff_dim);
    ph_json_integer(json, "max_position_embeddings", c->max_len);
    ph_json_string(json, "activation", ph_publish_activation(c));
    return 0;
}

const ph_architecture ph_bert = {.types = bert_types,
                                 .gguf = bert_gguf,
                                 .anchor = "embeddings.word_embeddings.weight",
                                 .configure = configure_bert,
                                 .publish = publish_bert,
                                 .prefix = "bert.",
                                 .names = bert_names,
                                 .ignored = ignored};

const ph_architecture ph_roberta = {.types = roberta_types,
                                    .gguf = no_gguf,
                                    .anchor = "embeddings.word_embeddings.weight",
                                    .configure = configure_bert,
                                    .publish = publish_roberta,
                                    .prefix = "roberta.",
                                    .names = roberta_names,
                                    .ignored = ignored};

const ph_architecture ph_distilbert = {.types = distilbert_types,
                                       .gguf = no_gguf,
                                       .anchor = "embeddings.word_embeddings.weight",
                                       .configure = configure_distilbert,
                                       .publish = publish_distilbert,
                                       .prefix = "distilbert.",
                                       .names = distilbert_names};
