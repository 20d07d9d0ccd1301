/*
 * bert.c - encoders with norm after and learned positions: BERT (MiniLM is one), ELECTRA,
 * ALBERT, RoBERTa and its kin, MPNet, DistilBERT; masked tokens, classifiers, or one
 * vector of a text as sentence-transformers pools it.
 */
#include <string.h>

#include "architectures/architecture.h"

static const char *const bert_types[] = {"bert", NULL};
static const char *const electra_types[] = {"electra", NULL};
static const char *const albert_types[] = {"albert", NULL};
static const char *const roberta_types[] = {"roberta", "xlm-roberta", "camembert", NULL};
static const char *const mpnet_types[] = {"mpnet", NULL};
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

static const ph_tensor_name electra_names[] = {
    ENCODER,
    LAYER("encoder.project", "embeddings_project"),
    LAYER("masked", "/generator_predictions.dense"),
    NORM("masked.norm", "/generator_predictions.LayerNorm"),
    PH_TENSOR("masked.bias", "/generator_lm_head.bias", NULL),
    PH_TABLE("output", "/generator_lm_head.weight", NULL),
    LAYER("pooler", "/classifier.dense"),
    DENSE,
    LAYER("classifier", "/classifier.out_proj"),
    SECOND("classifier.w", "/classifier.weight"),
    SECOND("classifier.b", "/classifier.bias"),
    LAYER("classifier", "/qa_outputs"),
    PH_TENSOR(NULL, NULL, NULL)};

/* Layers of a group have one set of tensors. */
#define ALBERT_LAYER "encoder.albert_layer_groups.#.albert_layers.0."

static const ph_tensor_name albert_names[] = {
    PH_TABLE("embed", "embeddings.word_embeddings.weight", NULL),
    PH_TABLE("encoder.positions", "embeddings.position_embeddings.weight", NULL),
    PH_TABLE("encoder.types", "embeddings.token_type_embeddings.weight", NULL),
    NORM("encoder.embed_norm", "embeddings.LayerNorm"),
    LAYER("encoder.project", "encoder.embedding_hidden_mapping_in"),
    BOTH("encoder.#.self.wq", "encoder.#.self.bq", ALBERT_LAYER "attention.query"),
    BOTH("encoder.#.self.wk", "encoder.#.self.bk", ALBERT_LAYER "attention.key"),
    BOTH("encoder.#.self.wv", "encoder.#.self.bv", ALBERT_LAYER "attention.value"),
    BOTH("encoder.#.self.wo", "encoder.#.self.bo", ALBERT_LAYER "attention.dense"),
    NORM("encoder.#.norm1", ALBERT_LAYER "attention.LayerNorm"),
    BOTH("encoder.#.ff.w1", "encoder.#.ff.b1", ALBERT_LAYER "ffn"),
    BOTH("encoder.#.ff.w2", "encoder.#.ff.b2", ALBERT_LAYER "ffn_output"),
    NORM("encoder.#.norm2", ALBERT_LAYER "full_layer_layer_norm"),
    LAYER("masked", "/predictions.dense"),
    NORM("masked.norm", "/predictions.LayerNorm"),
    PH_TENSOR("masked.bias", "/predictions.bias", NULL),
    SECOND("masked.bias", "/predictions.decoder.bias"),
    PH_TABLE("output", "/predictions.decoder.weight", NULL),
    LAYER("pooler", "pooler"),
    DENSE,
    LAYER("classifier", "/classifier"),
    LAYER("classifier", "/qa_outputs"),
    PH_TENSOR(NULL, NULL, NULL)};

/* What RoBERTa and MPNet end in. A classifier of tokens has a name of its own. */
#define ROBERTA_ENDS                                                                     \
    LAYER("masked", "/lm_head.dense"), NORM("masked.norm", "/lm_head.layer_norm"),       \
        PH_TENSOR("masked.bias", "/lm_head.bias", NULL),                                 \
        SECOND("masked.bias", "/lm_head.decoder.bias"),                                  \
        PH_TABLE("output", "/lm_head.decoder.weight", NULL),                             \
        LAYER("pooler", "/classifier.dense"), DENSE,                                     \
        LAYER("classifier", "/classifier.out_proj"),                                     \
        SECOND("classifier.w", "/classifier.weight"),                                    \
        SECOND("classifier.b", "/classifier.bias"), LAYER("classifier", "/qa_outputs")

static const ph_tensor_name roberta_names[] = {ENCODER, ROBERTA_ENDS,
                                               PH_TENSOR(NULL, NULL, NULL)};

static const ph_tensor_name mpnet_names[] = {
    PH_TABLE("embed", "embeddings.word_embeddings.weight", NULL),
    PH_TABLE("encoder.positions", "embeddings.position_embeddings.weight", NULL),
    PH_TABLE("encoder.buckets", "encoder.relative_attention_bias.weight", NULL),
    NORM("encoder.embed_norm", "embeddings.LayerNorm"),
    BOTH("encoder.#.self.wq", "encoder.#.self.bq", "encoder.layer.#.attention.attn.q"),
    BOTH("encoder.#.self.wk", "encoder.#.self.bk", "encoder.layer.#.attention.attn.k"),
    BOTH("encoder.#.self.wv", "encoder.#.self.bv", "encoder.layer.#.attention.attn.v"),
    BOTH("encoder.#.self.wo", "encoder.#.self.bo", "encoder.layer.#.attention.attn.o"),
    NORM("encoder.#.norm1", "encoder.layer.#.attention.LayerNorm"),
    BOTH("encoder.#.ff.w1", "encoder.#.ff.b1", "encoder.layer.#.intermediate.dense"),
    BOTH("encoder.#.ff.w2", "encoder.#.ff.b2", "encoder.layer.#.output.dense"),
    NORM("encoder.#.norm2", "encoder.layer.#.output.LayerNorm"),
    ROBERTA_ENDS,
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

/* ALBERT was trained on the order of two sentences. */
static const char *const albert_ignored[] = {
    "pooler.weight", "pooler.bias", "/predictions.bias", "/sop_classifier.*", NULL};

/* Which tokens were replaced is what ELECTRA was trained on. */
static const char *const electra_ignored[] = {"/discriminator_predictions.*", NULL};

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

/* The reference counts 32 buckets up to a distance of 128, whatever the file says. */
static void set_mpnet(ph_import *in, ph_config *c)
{
    c->positions = PH_POS_LEARNED_T5;
    c->position_offset = 2;
    c->buckets = ph_import_size(in, "relative_attention_num_buckets", NULL, 32);
    c->bucket_distance = 128;
    if (c->buckets != 32)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "relative_attention_num_buckets is %d, expected 32", c->buckets);
}

static void configure_bert(ph_import *in, ph_config *c)
{
    int bert = ph_import_is(in, "bert"), mpnet = ph_import_is(in, "mpnet");
    int electra = ph_import_is(in, "electra"), from_padding = !bert && !electra;
    set_encoder(c);
    refuse_decoders(in);
    c->layers = ph_import_size(in, "num_hidden_layers", "block_count", 12);
    c->model_dim =
        ph_import_size(in, "hidden_size", "embedding_length", electra ? 256 : 768);
    c->heads = ph_import_size(in, "num_attention_heads", "attention.head_count",
                              electra ? 4 : 12);
    c->ff_dim = ph_import_size(in, "intermediate_size", "feed_forward_length",
                               electra ? 1024 : 3072);
    c->types = mpnet ? 0 : count_types(in);
    c->norm_eps = (float)ph_import_positive(in, "layer_norm_eps",
                                            "attention.layer_norm_epsilon", 1e-12);
    /* RoBERTa counts positions from the one after that of padding, which MPNet has at 1
       whatever its configuration says */
    if (from_padding) c->position_offset = ph_import_int(in, "pad_token_id", NULL, 1) + 1;
    if (mpnet) set_mpnet(in, c);
    int embed_dim = electra ? ph_import_size(in, "embedding_size", NULL, 128) : 0;
    c->embed_dim = embed_dim == c->model_dim ? 0 : embed_dim;
    c->max_len = ph_import_size(in, "max_position_embeddings", "context_length", 512) -
                 c->position_offset;
    const char *name = ph_import_text(in, "hidden_act", NULL, "gelu");
    ph_import_activation(in, "hidden_act", name, 0, c);
    set_end(in, c, electra ? PH_POOLER_GELU : PH_POOLER_TANH);
    if (!bert && c->masked && c->activation != PH_GELU_ERF && !in->trial)
        ph_import_fail(
            in, PH_UNSUPPORTED,
            "hidden_act differs from gelu, which masked tokens of its type have");
}

/* The layers of a group follow each other; the reference has the sizes of xxlarge for
   what is absent. */
static void configure_albert(ph_import *in, ph_config *c)
{
    set_encoder(c);
    refuse_decoders(in);
    c->layers = ph_import_size(in, "num_hidden_layers", NULL, 12);
    c->layer_groups = ph_import_size(in, "num_hidden_groups", NULL, 1);
    c->model_dim = ph_import_size(in, "hidden_size", NULL, 4096);
    c->embed_dim = ph_import_size(in, "embedding_size", NULL, 128);
    c->heads = ph_import_size(in, "num_attention_heads", NULL, 64);
    c->ff_dim = ph_import_size(in, "intermediate_size", NULL, 16384);
    c->types = ph_import_int(in, "type_vocab_size", NULL, 2);
    c->norm_eps = (float)ph_import_positive(in, "layer_norm_eps", NULL, 1e-12);
    c->max_len = ph_import_size(in, "max_position_embeddings", NULL, 512);
    const char *name = ph_import_text(in, "hidden_act", NULL, "gelu_new");
    ph_import_activation(in, "hidden_act", name, 0, c);
    set_end(in, c, PH_POOLER_TANH);
    int inner = ph_import_size(in, "inner_group_num", NULL, 1);
    if (inner != 1)
        ph_import_fail(in, PH_UNSUPPORTED, "inner_group_num is %d, expected 1", inner);
    if (c->layer_groups && c->layers % c->layer_groups)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "num_hidden_layers is %d, expected a multiple of "
                       "num_hidden_groups, %d",
                       c->layers, c->layer_groups);
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

static int publish_bert(const ph_config *c, ph_json_writer *json)
{
    ph_publish_encoder_class(c, "Bert", json);
    ph_json_string(json, "model_type", "bert");
    publish_sizes(c, json);
    return 0;
}

static int publish_electra(const ph_config *c, ph_json_writer *json)
{
    ph_publish_encoder_class(c, "Electra", json);
    ph_json_string(json, "model_type", "electra");
    ph_json_integer(json, "embedding_size", c->embed_dim ? c->embed_dim : c->model_dim);
    publish_sizes(c, json);
    return 0;
}

static int publish_albert(const ph_config *c, ph_json_writer *json)
{
    ph_publish_encoder_class(c, "Albert", json);
    ph_json_string(json, "model_type", "albert");
    ph_json_integer(json, "embedding_size", c->embed_dim ? c->embed_dim : c->model_dim);
    ph_json_integer(json, "num_hidden_groups", c->layer_groups ? c->layer_groups : 1);
    ph_json_integer(json, "inner_group_num", 1);
    publish_sizes(c, json);
    return 0;
}

static int publish_roberta(const ph_config *c, ph_json_writer *json)
{
    ph_publish_encoder_class(c, "Roberta", json);
    ph_json_string(json, "model_type", "roberta");
    if (c->position_offset && c->arch == PH_ARCH_ENCODER)
        ph_json_integer(json, "pad_token_id", c->position_offset - 1);
    publish_sizes(c, json);
    return 0;
}

static int publish_mpnet(const ph_config *c, ph_json_writer *json)
{
    ph_publish_encoder_class(c, "MPNet", json);
    ph_json_string(json, "model_type", "mpnet");
    ph_json_integer(json, "relative_attention_num_buckets", 32);
    publish_sizes(c, json);
    return 0;
}

static int publish_distilbert(const ph_config *c, ph_json_writer *json)
{
    ph_publish_encoder_class(c, "DistilBert", json);
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

const ph_architecture ph_electra = {.types = electra_types,
                                    .gguf = no_gguf,
                                    .anchor = "embeddings.word_embeddings.weight",
                                    .configure = configure_bert,
                                    .publish = publish_electra,
                                    .prefix = "electra.",
                                    .names = electra_names,
                                    .ignored = electra_ignored};

const ph_architecture ph_albert = {.types = albert_types,
                                   .gguf = no_gguf,
                                   .anchor = "embeddings.word_embeddings.weight",
                                   .configure = configure_albert,
                                   .publish = publish_albert,
                                   .prefix = "albert.",
                                   .names = albert_names,
                                   .ignored = albert_ignored};

const ph_architecture ph_roberta = {.types = roberta_types,
                                    .gguf = no_gguf,
                                    .anchor = "embeddings.word_embeddings.weight",
                                    .configure = configure_bert,
                                    .publish = publish_roberta,
                                    .prefix = "roberta.",
                                    .names = roberta_names,
                                    .ignored = ignored};

const ph_architecture ph_mpnet = {.types = mpnet_types,
                                  .gguf = no_gguf,
                                  .anchor = "embeddings.word_embeddings.weight",
                                  .configure = configure_bert,
                                  .publish = publish_mpnet,
                                  .prefix = "mpnet.",
                                  .names = mpnet_names,
                                  .ignored = ignored};

const ph_architecture ph_distilbert = {.types = distilbert_types,
                                       .gguf = no_gguf,
                                       .anchor = "embeddings.word_embeddings.weight",
                                       .configure = configure_distilbert,
                                       .publish = publish_distilbert,
                                       .prefix = "distilbert.",
                                       .names = distilbert_names};
