/*
 * architecture.h - published architectures as tables: which fields of a configuration and
 * which tensors of a checkpoint are which of ours.
 *
 * One file per family, one line in list.c. Names come in pairs: as a Hugging Face folder
 * has them and as a GGUF file has them. In names of tensors '#' stands for the number of
 * the layer; a '/' in front means that the prefix of the folder does not belong to it.
 */
#ifndef PH_ARCHITECTURES_ARCHITECTURE_H
#define PH_ARCHITECTURES_ARCHITECTURE_H

#include "base/ctx.h"
#include "checkpoint/checkpoint.h"
#include "io/json_write.h"
#include "polyhead_model.h"

typedef struct ph_import ph_import;

/* One parameter of ours and its tensor. Matrices are stored (out, in) unless `table`. */
typedef struct ph_tensor_name {
    const char *ours, *folder, *gguf;
    int table;       /* 1: rows belong to tokens or positions, as in our own */
    int part, parts; /* of a tensor that holds `parts` of ours side by side, each with the
                        outputs it has; 0: whole */
    int minus_one;   /* 1: a folder holds it minus 1 */
    int second;      /* 1: its name where the feed-forward sublayer is gated, where there
                        are two classifiers, or where masked tokens have an output matrix
                        of their own; of two that exist this one counts */
    int linear;      /* 1: (out, in) where other matrices of a folder are (in, out) */
    int by_head;     /* 1: of a folder, parts alternate: head 0 of each, then head 1 */
} ph_tensor_name;

#define PH_TENSOR(ours, folder, gguf)                                                    \
    {                                                                                    \
        ours, folder, gguf, 0, 0, 0, 0, 0, 0, 0                                          \
    }
#define PH_TABLE(ours, folder, gguf)                                                     \
    {                                                                                    \
        ours, folder, gguf, 1, 0, 0, 0, 0, 0, 0                                          \
    }
#define PH_PART(ours, folder, gguf, part, parts)                                         \
    {                                                                                    \
        ours, folder, gguf, 0, part, parts, 0, 0, 0, 0                                   \
    }

/* A matrix of a folder whose other ones are (in, out), and its bias. */
#define PH_LINEAR(ours, folder)                                                          \
    {ours ".w", folder ".weight", NULL, 0, 0, 0, 0, 0, 1, 0},                            \
        PH_TENSOR(ours ".b", folder ".bias", NULL)

typedef struct ph_architecture {
    const char *const *types; /* model_type, ended by NULL */
    const char *const *gguf;  /* general.architecture, ended by NULL */
    const char *anchor;       /* tensor of a folder that is there once: before it stands
                                 the prefix of all others */
    int text_config;          /* 1: with pictures, the fields stand in an object of that
                                 name */
    int partial_rope;         /* 1: some elements of a head may be left unrotated */
    int rotary_names;         /* 1: of rope, config.json has rotary_emb_base and
                                 rotary_pct, other types' names count for nothing */
    int conv1d;               /* 1: matrices of a folder are (in, out) */
    int untied;               /* 1: the output has a matrix of its own, unless
                                 tie_word_embeddings is true */
    void (*configure)(ph_import *in, ph_config *config);
    /* The inverse: what config.json of such a model says, as far as the type can say it
       (what configure makes of it is compared with the model). Gives the PH_NO_BIAS_
       that the type implies. NULL: models are not written in this architecture. */
    int (*publish)(const ph_config *config, ph_json_writer *json);
    int pictures;                /* 1: publish is for encoders of pictures */
    int scaled;                  /* 1: the type multiplies embeddings by embed_scale */
    int copies;                  /* 1: with an output matrix of its own, embeddings are
                                    written under all their names */
    const char *prefix;          /* of tensors that are written */
    const ph_tensor_name *names; /* ended by one without names */
    const char *const *ignored;  /* tensors of a folder that nothing here needs, each with
                                    its reason; a '*' ends the name of many; ended by
                                    NULL */
} ph_architecture;

extern const ph_architecture ph_llama, ph_gpt2, ph_bert, ph_electra, ph_roberta, ph_mpnet,
    ph_distilbert, ph_vit, ph_deit, ph_t5_family, ph_gemma, ph_gemma_1, ph_marian,
    ph_whisper, ph_phi3, ph_gpt_neox, ph_opt, ph_smollm3, ph_olmo2, ph_modernbert,
    ph_bart, ph_albert;

/* What the import of a checkpoint has found so far. The first error stays: functions
   below do nothing after it. */
struct ph_import {
    ph_ctx *ctx;
    ph_checkpoint *checkpoint;
    const ph_architecture *architecture;
    const char *type;    /* as the checkpoint says it: "mistral" */
    const char *section; /* of config.json: "", or "text_config." */
    char prefix[128];    /* of the tensors of a folder */
    int second;          /* writing: a parameter with two names has the second */
    int trial;           /* writing: any model is tried, tensors may be missing */
    ph_status status;
};

/* The i-th architecture, or NULL after the last. */
const ph_architecture *ph_architecture_at(int i);

/* Finds the architecture and the prefix. */
ph_status ph_import_begin(ph_import *in, ph_ctx *ctx, ph_checkpoint *checkpoint);

/* Sets the error. */
void ph_import_fail(ph_import *in, ph_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- fields ------------------------------------------------------------------------ */

int ph_import_is_gguf(const ph_import *in);
int ph_import_is(const ph_import *in, const char *type);

/* The value under a key of config.json or, without general.architecture and its dot, of
   GGUF; NULL: it is absent, or this kind of checkpoint has no such key (NULL). */
const ph_value *ph_import_value(ph_import *in, const char *folder, const char *gguf);

/* Fallback: where it is absent or null; PH_IMPORT_REQUIRED: that is an error. */
enum { PH_IMPORT_REQUIRED = -1 };
int ph_import_int(ph_import *in, const char *folder, const char *gguf, int fallback);
int ph_import_size(ph_import *in, const char *folder, const char *gguf, int fallback);
double ph_import_positive(ph_import *in, const char *folder, const char *gguf,
                          double fallback);
double ph_import_real(ph_import *in, const char *folder, const char *gguf,
                      double fallback);
int ph_import_flag(ph_import *in, const char *folder, const char *gguf, int fallback);
const char *ph_import_text(ph_import *in, const char *folder, const char *gguf,
                           const char *fallback);

/* All fields: those of the architecture, and those that every one may have. */
void ph_import_config(ph_import *in, ph_config *config);

/* A list of config.json; NULL: absent or null. */
const ph_value *ph_import_list(ph_import *in, const char *folder);

/* layer_types of config.json, any list of sliding_attention and full_attention: stored as
   window_layers unless it says what the window's other fields do already. */
void ph_import_layer_types(ph_import *in, ph_config *config);

/* no_rope_layers of config.json, a list of 1 (rotary positions) and 0 (none), or else
   every no_rope_layer_interval-th layer has none: stored as rope_layers. And the list. */
void ph_import_rope_layers(ph_import *in, ph_config *config);
void ph_publish_rope_layers(const ph_config *config, ph_json_writer *json);

/* The same list of a configuration. */
void ph_publish_layer_types(const ph_config *config, ph_json_writer *json);

/* rope_theta, rope_scaling or rope_parameters, rope_freqs of GGUF; the first alone: base
   and how much of a head is rotated (rope_dims as it is where no field says it), without
   scaling. */
void ph_import_rope_base(ph_import *in, ph_config *config, double base);
void ph_import_rope(ph_import *in, ph_config *config, double base);

/* The base of layers with a window, in rope_parameters.sliding_attention. */
void ph_import_rope_local(ph_import *in, ph_config *config, double base);

/* The key of a field of rope: in rope_parameters or, as older files have it, in
   rope_scaling. */
enum { PH_IMPORT_KEY = 160 };
void ph_import_rope_key(ph_import *in, const char *name, char key[PH_IMPORT_KEY]);
const char *ph_import_rope_type(ph_import *in);

/* Sizes of a decoder in config.json, as LLaMA and its relatives name them. */
void ph_publish_sizes(const ph_config *config, ph_json_writer *json);

/* rope_theta and rope_scaling of config.json. */
void ph_publish_rope(const ph_config *config, ph_json_writer *json);

/* partial_rotary_factor, which a reader multiplies by head_dim and rounds down. */
double ph_publish_rope_part(const ph_config *config);

/* How a text is pooled: fields of 1_Pooling/config.json. */
void ph_publish_pooling(const ph_config *config, ph_json_writer *json);

/* hidden_act of an encoder, activation_function. */
const char *ph_publish_activation(const ph_config *config);
const char *ph_publish_problem(const ph_config *config); /* problem_type */

/* The activation of a feed-forward layer by the name that stands there under a key;
   gated: with a second factor. */
void ph_import_activation(ph_import *in, const char *key, const char *name, int gated,
                          ph_config *config);

/* A classifier: the number of its classes, which it stores; 0: there is none. */
int ph_import_classes(ph_import *in, ph_config *config);

/* Whether the class that wrote the checkpoint has scores for every token. */
int ph_import_by_token(ph_import *in);

/* One vector of a text, as modules.json or pooling_type of GGUF say it; by the mean where
   there are none. */
void ph_import_pooling(ph_import *in, ph_config *config);

/* What a decoder ends in, in place of an output head: a classifier of the last token or
   of every token, or one vector of a text. */
void ph_import_decoder_end(ph_import *in, ph_config *config);

/* The class of transformers that has what a decoder ends in; stem: "Llama", causal:
   "ForCausalLM". */
void ph_publish_decoder_class(const ph_config *config, const char *stem,
                              const char *causal, const char *bare, ph_json_writer *json);

/* The same of an encoder; stem: "Bert". */
void ph_publish_encoder_class(const ph_config *config, const char *stem,
                              ph_json_writer *json);

/* ---- tensors ----------------------------------------------------------------------- */

/* Our parameter's line in the table (of several the one whose tensor exists), the name
   of its tensor in this checkpoint ("": the table has none), and the tensor; NULL: there
   is none. */
enum { PH_IMPORT_NAME = 256 };
const ph_tensor_name *ph_import_name(const ph_import *in, const char *ours);
void ph_import_tensor(const ph_import *in, const char *ours, char out[PH_IMPORT_NAME]);
ph_stored *ph_import_find(const ph_import *in, const char *ours);

/* Whether the matrix of a line is (out, in) in a folder. */
static inline int ph_import_is_linear(const ph_architecture *a, const ph_tensor_name *n)
{
    return !n->table && (!a->conv1d || n->linear);
}

/* Where outputs of a parameter lie among those of its tensor. */
typedef struct ph_fused {
    size_t total;     /* outputs of the tensor */
    size_t first;     /* where they begin, ... */
    size_t run, step; /* ... `run` of them together, those of the next head `step` apart;
                         run 0: all together */
} ph_fused;

ph_fused ph_import_fused(const ph_import *in, const ph_config *config,
                         const ph_tensor_name *line, size_t outputs);

static inline size_t ph_fused_at(const ph_fused *f, size_t output)
{
    if (!f->run) return f->first + output;
    return f->first + output / f->run * f->step + output % f->run;
}

/* An error that names a tensor which was not read and is not ignored. */
ph_status ph_import_check_read(ph_import *in);

#endif
