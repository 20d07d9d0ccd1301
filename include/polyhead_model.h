/*
 * polyhead_model.h - Transformers around the layer: make, read, look, generate
 *
 *     ph_model_create    a new model from a configuration              -> ph_model
 *     ph_model_read      one from a file; ph_model_embedded: the one in the library
 *     ph_reading_create  run it on a text with everything open to view  -> ph_reading
 *     ph_generate        continue or translate a text; ph_generate_batch: many;
 *                        ph_generate_stream: as they come
 *
 * Training, and sentences to judge heads by, are in polyhead_train.h.
 *
 * The rules of polyhead.h hold here too. A model's parameters are one block of floats
 * with named views; a file holds them as safetensors, with configuration and vocabulary
 * in its metadata. Results have the same bits for any number of threads.
 *
 * A stack is a list of sublayers f with residual connections and norms:
 *
 *     PH_PRE_NORM       x = x + f(norm(x)), a last norm at the end of the stack
 *     PH_POST_NORM      x = norm(x + f(x))
 *     PH_SANDWICH_NORM  x = x + norm(f(norm(x))), a last norm too
 *     PH_OUTPUT_NORM    x = x + norm(f(x)), a last norm too
 *
 * Dropout acts on embeddings, attention
 * weights, activations of the feed-forward layers and the output of every sublayer.
 */
#ifndef POLYHEAD_MODEL_H
#define POLYHEAD_MODEL_H

#include "polyhead.h"
#include "polyhead_io.h"
#include "polyhead_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration ----------------------------------------------------------------- */

typedef enum ph_arch {
    PH_ARCH_ENCODER = 0,    /* points from every word to the word it belongs to, unless
                               masked, pooling or classes say what it is for */
    PH_ARCH_DECODER,        /* next token */
    PH_ARCH_ENCODER_DECODER /* text to text, one vocabulary */
} ph_arch;

typedef enum ph_norm_place {
    PH_PRE_NORM = 0,
    PH_POST_NORM,
    PH_SANDWICH_NORM,
    PH_OUTPUT_NORM
} ph_norm_place;
typedef enum ph_norm { PH_NORM_LAYER = 0, PH_NORM_RMS } ph_norm;
typedef enum ph_activation {
    PH_GELU = 0, /* tanh form */
    PH_RELU,
    PH_SWIGLU,   /* silu(x w1) * (x w3), then w2 */
    PH_GELU_ERF, /* GELU as it is defined: x times the normal distribution function */
    PH_GEGLU,    /* gelu(x w1) * (x w3), then w2; the tanh form */
    PH_SILU,     /* x sigmoid(x) */
    PH_GEGLU_ERF /* PH_GEGLU with PH_GELU_ERF in place of the tanh form */
} ph_activation;

typedef enum ph_positions {
    PH_POS_SINUSOIDAL = 0,
    PH_POS_LEARNED,
    PH_POS_ROPE,
    PH_POS_ALIBI,
    PH_POS_NONE,
    PH_POS_T5, /* a learned bias per head and bucket of distances, added to the scores */
    PH_POS_SINUSOIDAL_HALVES, /* all sines before all cosines, not pair by pair */
    PH_POS_LEARNED_T5         /* a learned table and T5's bias, both (MPNet) */
} ph_positions;

/* How one vector is made of the tokens of a text. */
typedef enum ph_pooling {
    PH_POOL_NONE = 0, /* it does not: what follows acts on every token */
    PH_POOL_FIRST,    /* the first token, a mark */
    PH_POOL_MEAN,
    PH_POOL_MAX,
    PH_POOL_LAST,
    PH_POOL_MEAN_SQRT, /* sum / sqrt(tokens) */
    PH_POOL_WEIGHTED   /* mean with weights 1, 2, 3, ... */
} ph_pooling;

/* A layer behind the pooling: f(x w + b). */
typedef enum ph_pooler {
    PH_POOLER_NONE = 0,
    PH_POOLER_TANH,
    PH_POOLER_RELU,
    PH_POOLER_IDENTITY,
    PH_POOLER_GELU /* as it is defined, PH_GELU_ERF */
} ph_pooler;

/* How the classes of a text or picture are meant. */
typedef enum ph_problem {
    PH_SINGLE_LABEL = 0, /* one is right: a softmax; of one class alone a sigmoid */
    PH_MULTI_LABEL,      /* any number of them may be right: a sigmoid of each score */
    PH_REGRESSION        /* scores are what is asked for, and no probabilities */
} ph_problem;

/* Biases that a model does not have, added together. */
enum {
    PH_NO_BIAS_Q = 1,
    PH_NO_BIAS_K = 2,
    PH_NO_BIAS_V = 4,
    PH_NO_BIAS_O = 8, /* of the output projection */
    PH_NO_BIAS_FF = 16,
    PH_NO_BIAS_NORM = 32, /* RMS norms have none anyway */
    PH_NO_BIAS = 63       /* none at all */
};

enum { PH_VARIANT_TEXT = 256 };

enum { PH_WINDOW_TEXT = 64, PH_ROPE_PAIRS = 128 };

typedef struct ph_config {
    ph_arch arch;
    int vocab;          /* tokens; 0: as many as the vocabulary has */
    int layers;         /* of each stack */
    int layer_groups;   /* encoder with norms after: so many groups of layers that follow
                           each other share their parameters; 0: each has its own */
    int decoder_layers; /* of the decoder; 0: layers */
    int model_dim;
    int heads, kv_heads; /* kv_heads 0: heads */
    int head_dim;        /* 0: model_dim / heads */
    int ff_dim;          /* 0: 4 * model_dim */
    int max_len;         /* longest sequence in tokens */
    int encoder_len;     /* encoder-decoder: of the encoder; 0: max_len */
    int mels;            /* encoder-decoder: features of a frame of sound; the encoder
                            reads frames in place of tokens, two for each of its rows, and
                            encoder_len counts rows; 0: it reads tokens */
    ph_norm_place norm_place;
    int parallel; /* 1: pre-norm without cross-attention: both sublayers of a layer read
                     what is before it, x = x + f(norm1(x)) + g(norm2(x)) */
    ph_norm norm;
    ph_activation activation;
    ph_positions positions;
    int position_offset; /* learned positions: token t has row t + position_offset; of an
                            encoder, token position_offset - 1 is padding, whose row that
                            is and which is not counted (RoBERTa) */
    int buckets;         /* T5's bias: buckets of distances, an even number; 0: 32 */
    int bucket_distance; /* distances from this on share the last bucket; 0: 128 */
    int types;           /* rows of the first stack's table of token types; 0: none */
    int embed_norm;      /* 1: a norm of the embeddings, which layers go on from; in place
                            of a norm before the first sublayer */
    int embed_dim;       /* encoder with embed_norm: columns of embeddings, from which a
                            layer makes model_dim, and of the output; 0: model_dim */
    int untied;          /* 1: the output has a matrix of its own, not the embeddings */
    int output_bias;     /* 1: the scores of tokens have a bias; not of an encoder */
    int no_output;       /* decoder: 1: no output head, so it scores and generates no
                            tokens */
    int no_bias;         /* PH_NO_BIAS_ */
    int depth_scaled;    /* 1: initial matrices of layer l are scaled by 1/sqrt(l) */
    float dropout;
    float norm_eps;        /* added to the variance, also by qk_norm; 0: 1e-5 */
    float embed_scale;     /* embeddings are multiplied by it; 0: sqrt(model_dim) */
    float output_scale;    /* the scores of tokens are multiplied by it; 0: 1 */
    float output_softcap;  /* scores of tokens z become softcap tanh(z / softcap); 0:
                              none */
    float attn_scale;      /* the scores are multiplied by it; 0: 1 / sqrt(head_dim) */
    int scale_by_layer;    /* 1: scores of layer l, from 0, are also divided by l + 1 */
    float attn_softcap;    /* as ph_attn.softcap; 0: none */
    int qk_norm;           /* 1: RMS norm of each head of q and k of self-attention */
    int qk_norm_whole;     /* 1: of all heads of a token together, with qk_norm */
    int rope_interleaved;  /* 1: PH_ROPE_INTERLEAVED, 0: PH_ROPE_HALF */
    float rope_local_base; /* rope_base of layers with a window, whose rope is not scaled;
                              0: rope is the same in all layers */
    float rope_base;       /* these ten as in ph_layer_desc */
    int rope_dims;
    ph_rope_scaling rope_scaling;
    float rope_factor;
    int rope_length;
    float rope_low, rope_high, rope_scale;
    int yarn_untruncated;
    float rope_divisors[PH_ROPE_PAIRS]; /* one for each pair, then zeros */
    char rope_layers[PH_WINDOW_TEXT]; /* a letter for each layer: r rotates (rotary), n
                          has no positions (none); repeated behind the last. "": all r */
    int window;        /* causal self-attention sees so many tokens, its own included;
                          that of an encoder tokens at most window / 2 away; 0: all */
    int window_from;   /* the first layer with that window; those before it see all */
    int window_period; /* every so many-th layer sees all; 0: none */
    char window_layers[PH_WINDOW_TEXT]; /* in place of these two a letter for each layer:
                          s has the window (sliding), f sees all (full); repeated behind
                          the last. "sf": every second layer sees all */
    int image_size;     /* encoder of pictures: pixels of a side; 0: it reads tokens */
    int patch_size;     /* pixels of a side of a patch, which is a row of the encoder */
    int channels;       /* 0: 3 */
    int class_tokens;   /* learned rows before those of the patches */
    int masked;         /* encoder: 1: predicts tokens that are masked: a layer with the
                           activation, without its gate, a norm, the output matrix and a
                           bias */
    ph_pooling pooling; /* encoder, or decoder with no_output: one vector of each text, */
    ph_pooling pooling_more[3]; /* further ways, whose vectors stand behind that one */
    ph_pooler pooler;           /* a layer behind it, or of every token, */
    int pooler_dim;             /* with so many outputs; 0: model_dim */
    int pooler_norm;            /* 1: and a norm of these */
    int unit_norm;              /* 1: scaled to norm 1 */
    int pool_len;     /* texts are truncated to so many tokens before; 0: max_len */
    int classes;      /* scores of so many classes from that vector */
    int no_dense_bias; /* 1: pooler and layer of masked tokens have no bias */
    int no_head_bias;  /* 1: classifier and scores of masked tokens have none */
    ph_problem problem_type; /* of classes of a whole text or picture */
    int distilled;    /* 1: scores are the mean of two classifiers, the second of the
                           row of the second class token */
    char variant[PH_VARIANT_TEXT]; /* of self-attention; "": "mha". Several with ';'
                                      between: one per layer, the last for the rest.
                                      "gqa:2", "mqa": fewer heads of k and v, and a
                                      variant behind a '+' ("gqa:2+talking") */
    char cross[PH_VARIANT_TEXT];   /* of the decoder's cross-attention, likewise. A layer
                                      with "merged" has no self-attention beside it */
    uint64_t reserved[23];
} ph_config;

/* JSON text with every field that is not empty, like snprintf. */
PH_API int ph_config_print(const ph_config *config, char *text, size_t size);

/* ---- models ------------------------------------------------------------------------ */

typedef struct ph_model ph_model;

/* How text becomes tokens. Four come first in every vocabulary: <pad> <s> </s> <unk>. */
typedef enum ph_split {
    PH_SPLIT_WORDS = 0, /* blanks and punctuation; where words stand without blanks
                           between (Chinese), the longest known word */
    PH_SPLIT_CHARS,     /* characters */
    PH_SPLIT_BYTES,     /* 256 of them, no list needed */
    PH_SPLIT_SUBWORDS   /* by the tokenizer of a published checkpoint (polyhead_text.h),
                           whose marks stand where it wants them */
} ph_split;

enum { PH_TOKEN_PAD = 0, PH_TOKEN_START, PH_TOKEN_END, PH_TOKEN_UNKNOWN, PH_TOKEN_FIRST };

/* New parameters from the seed. tokens: `count` texts that follow the first four
   (copied); NULL: the model has no vocabulary and config.vocab counts. */
PH_API ph_status ph_model_create(ph_model **out, ph_ctx *ctx, const ph_config *config,
                                 ph_split split, const char *const *tokens, int count,
                                 uint64_t seed);

/* path: a file of ph_model_write, a Hugging Face folder (config.json and
   model.safetensors or its shards), a GGUF file or a llama2.c file. */
PH_API ph_status ph_model_read(ph_model **out, ph_ctx *ctx, const char *path);

/* What is read in place from a checkpoint becomes f32 in memory of the model, which can
   be trained and written then. If there is not enough memory the model is good for
   ph_model_free only. */
PH_API ph_status ph_model_own(ph_model *model);
PH_API ph_status ph_model_embedded(ph_model **out, ph_ctx *ctx); /* trained: pronouns */
PH_API ph_status ph_model_write(const ph_model *model, const char *path);

/* Writes the model at `from`, anything that ph_model_read takes, as the Hugging Face
   folder `to`, which must be new or empty and appears whole or not at all. Tensors of
   such a folder stay as they are, byte by byte, and so do its files of configuration,
   tokenizer and preprocessing; other models are written in the published type that has
   all they have, or refused with the field that none has. type: what F32, F16 and BF16
   tensors become, and block types, which are refused without one; NULL: as stored.
   Tensors pass through memory a few rows at a time. */
PH_API ph_status ph_model_export(ph_ctx *ctx, const char *from, const char *to,
                                 const ph_dtype *type);
PH_API void ph_model_free(ph_model *model); /* accepts NULL; what uses it goes first */

PH_API const ph_config *ph_model_config(const ph_model *model); /* defaults filled in */

/* The i-th parameter, or NULL after the last. data may be written to through
   ph_model_block. */
PH_API const ph_tensor *ph_model_tensor(const ph_model *model, int i);
PH_API float *ph_model_block(ph_model *model, size_t *floats); /* all parameters */
PH_API int64_t ph_model_parameters(const ph_model *model);     /* how many it uses */

/* Operations of the products of a forward pass over one text of len tokens in every
   stack, as ph_layer_about counts them: only what is done. */
PH_API ph_status ph_model_flops(const ph_model *model, int len, double *flops);

/* ---- text -------------------------------------------------------------------------- */

typedef struct ph_word {
    int token;
    int start, length; /* bytes in the text; length 0: blanks that offsets leave out, or a
                          mark */
    int type;          /* token type, as the tokenizer of a checkpoint says; else 0 */
    int mark;          /* 1: not of the text, but put around it */
} ph_word;

/* Splits text: up to `capacity` words are stored, *count says how many there are. */
PH_API ph_status ph_model_split(const ph_model *model, const char *text, ph_word *words,
                                int capacity, int *count);

/* The family of the chat template of a published checkpoint: "chatml", "llama3", "gemma",
   "phi3", "zephyr", "llama2", "mistral", "cohere", "granite", or "other"; NULL: it has
   none, or one that refuses a message of a user or uses what is not known here. */
PH_API const char *ph_model_chat(const ph_model *model);

/* Settings of a checkpoint's generation_config.json under which transformers would choose
   other tokens, without sampling, and which count for nothing here: "num_beams,
   length_penalty"; NULL: there is none. */
PH_API const char *ph_model_ignored(const ph_model *model);

/* The tokenizer of a published model, as polyhead_text.h takes it, also behind a file of
   ours; NULL: the model has a vocabulary of its own, or none. Lives as long as the
   model. */
struct ph_tokenizer;
PH_API const struct ph_tokenizer *ph_model_tokenizer(const ph_model *model);

/* The text of a token; "" where there is none. Lives as long as the model. */
PH_API const char *ph_model_token(const ph_model *model, int token);

/* The same as it reads in a text: "cat", whatever the tokenizer writes for the blank
   before it (U+0120, U+2581); truncated to size bytes with the NUL. Returns text. */
PH_API const char *ph_model_spell(const ph_model *model, int token, char *text,
                                  size_t size);
PH_API ph_split ph_model_splits(const ph_model *model);

/* 0: the token stands for whatever the vocabulary does not have (<unk>, [UNK]). */
PH_API int ph_model_knows(const ph_model *model, int token);

/* ---- looking inside: a model run on one text --------------------------------------- */

typedef struct ph_reading ph_reading;

typedef enum ph_site_kind {
    PH_SITE_SELF = 0, /* encoder or decoder self-attention */
    PH_SITE_CROSS,    /* decoder to encoder */
    PH_SITE_LINK      /* the pointer at the end of an encoder: one head whose weights are
                         the answer, see ph_reading_links */
} ph_site_kind;

/* One attention site: the attention of one layer, or of an encoder's pointer. */
typedef struct ph_site {
    const char *name; /* "encoder.0.self", "decoder.1.cross", "links" */
    ph_site_kind kind;
    int decoder; /* 1: queries come from the decoder's text */
    int layer;   /* within its stack, from 0 */
    int heads, kv_heads;
    const int *original; /* (heads) index of each before heads were removed from the model
                            (polyhead_prune.h); NULL: none was */
    int q_len, kv_len;   /* words of the texts */
    int qk_dim, v_dim;   /* of one head; v_dim 0: no values (PH_SITE_LINK) */
    const char *variant;
} ph_site;

/* What becomes of a head. */
typedef enum ph_ablation {
    PH_HEAD_ON = 0,
    PH_HEAD_ZERO,     /* its output is 0 */
    PH_HEAD_MEAN,     /* every word gets the mean of its outputs over the words */
    PH_HEAD_RESAMPLED /* ph_eval_loss only: it has its output for another text */
} ph_ablation;

/* Splits text and runs the model on it. target: the decoder's text of an
   encoder-decoder model, NULL: what the model generates for it, at most max_len. The
   model must outlive the reading. Text without a word, or too long, is refused. For an
   encoder of pictures text is the path of a PNG, JPEG or PPM file; its words are rows of
   the encoder, class tokens and then patches, numbered from 0. Where an encoder reads
   sound (mels) text is the path of its log-mel features, F32 (mels, frames) in a .npy
   or safetensors file, an even number of frames. */
PH_API ph_status ph_reading_create(ph_reading **out, const ph_model *model,
                                   const char *text, const char *target);
PH_API void ph_reading_free(ph_reading *reading); /* accepts NULL */

/* The tokens the stacks saw, a start mark included: decoder 0 of the encoder (or
   the only stack), 1 of the decoder of an encoder-decoder. start and length count bytes
   in the text; length 0: a mark. NULL beyond the last. */
PH_API const ph_word *ph_reading_word(const ph_reading *reading, int decoder, int i);
PH_API int ph_reading_length(const ph_reading *reading, int decoder);

/* The i-th attention site, or NULL after the last. */
PH_API const ph_site *ph_reading_site(const ph_reading *reading, int i);

/* Weights of a site as ph_look gives them, batch 1; fields of `at` as there. */
PH_API ph_status ph_reading_look(const ph_reading *reading, int site,
                                 const ph_look_at *at);

/* Vectors of one head as attention sees them (after norm and rotation): q (q_len,
   qk_dim), k (kv_len, qk_dim), v (kv_len, v_dim), and its output, out (q_len, v_dim),
   after ablation. Each may be NULL. */
PH_API ph_status ph_reading_vectors(const ph_reading *reading, int site, int head,
                                    float *q, float *k, float *v, float *out);

/* Runs again with heads changed: ablation holds one ph_ablation for each head of each
   site, in order (PH_SITE_LINK included); NULL: all on. frozen 1: the weights of every
   site stay those of the first run and only values change, so that the effect through
   later attention patterns is left out. */
PH_API ph_status ph_reading_run(ph_reading *reading, const uint8_t *ablation, int frozen);

/* A reading that holds one attention site at a time, which takes a fraction of the memory
   of ph_reading_create where a text is long. ph_reading_prepare does not run the model
   yet, ph_reading_pass does: `see` is called behind each site, which may then be looked
   at; if it returns another status than PH_OK the run ends with that. There are no
   answers and no other runs. */
PH_API ph_status ph_reading_prepare(ph_reading **out, const ph_model *model,
                                    const char *text, const char *target);
PH_API ph_status ph_reading_pass(ph_reading *reading,
                                 ph_status (*see)(void *user, int site), void *user);

/* From the next ph_reading_run on, the output of each head of each site is multiplied by
   its gate, 0 to 1; NULL: all 1. */
PH_API ph_status ph_reading_gates(ph_reading *reading, const float *gates);

/* Encoder: p (q_len, q_len), row i says how likely word i belongs to each word. */
PH_API ph_status ph_reading_links(const ph_reading *reading, float *p);

/* Log-probabilities (tokens, vocab): decoders: of the token after each one; masked: of
   the token in its place. */
PH_API ph_status ph_reading_next(const ph_reading *reading, float *log_p);

/* Probabilities (classes) of the text or picture, for models that classify it whole; of a
   regression its scores (ph_model_has_probabilities). */
PH_API ph_status ph_reading_classes(const ph_reading *reading, float *p);

/* Probabilities (tokens, classes) of every token, for models that classify each. */
PH_API ph_status ph_reading_token_classes(const ph_reading *reading, float *p);

/* The vector (ph_model_vector_dim) of the text, for models that give one (pooling). */
PH_API ph_status ph_reading_embedding(const ph_reading *reading, float *vector);

/* The picture that was read, as the encoder saw it: rgb (image_size, image_size, 3). */
PH_API ph_status ph_reading_picture(const ph_reading *reading, uint8_t *rgb);

/* ---- encoders: vectors and classes of texts ---------------------------------------- */

/* Texts, or pairs of them: a question and a passage, say. */
typedef struct ph_texts {
    const char *const *texts;
    const char *const *pairs; /* the second of each, or NULL */
    int count;
    int *truncated; /* how many had more tokens than the model takes, for embed and
                       classify; may be NULL */
    uint64_t reserved[3];
} ph_texts;

/* Elements of the vector of a text or picture: model_dim, unless several ways to pool or
   pooler_dim make it another; 0: the model gives none. */
PH_API int ph_model_vector_dim(const ph_model *model);

/* A vector of each text, out (count, ph_model_vector_dim), as the configuration pools it,
   with the prompt before it that a sentence encoder asks for. Longer texts than pool_len
   are truncated. Every text has the bits it has alone. */
PH_API ph_status ph_model_embed(const ph_model *model, const ph_texts *texts, float *out);

/* Scores (count, classes) of each text, before ph_class_probabilities. */
PH_API ph_status ph_model_classify(const ph_model *model, const ph_texts *texts,
                                   float *scores);

/* Probabilities from the scores (classes) of one text, picture or token, in place, by
   problem_type; a class of a token is always one of a softmax. Scores of a regression
   stay as they are: ph_model_has_probabilities is 0 for it, and without classes. */
PH_API void ph_class_probabilities(const ph_model *model, float *scores);
PH_API int ph_model_has_probabilities(const ph_model *model);

/* Vectors (count, ph_model_vector_dim) and scores (count, classes) of pictures; either
   may be NULL.
   pixels (count, channels, image_size, image_size), scaled as the model's
   preprocessor_config.json says. */
PH_API ph_status ph_model_pictures(const ph_model *model, const float *pixels, int count,
                                   float *vectors, float *scores);

/* The picture in a PNG, JPEG or PPM file as such pixels (channels, image_size,
   image_size): resized, cropped and scaled as preprocessor_config.json said, or by the
   defaults of its architecture. Needs a model with 3 channels. */
PH_API ph_status ph_model_open_picture(const ph_model *model, const char *path,
                                       float *pixels);

/* What a class is called; "" where the checkpoint does not say. */
PH_API const char *ph_model_class(const ph_model *model, int i);

/* The token that stands for a hidden one, [MASK]; -1: there is none. */
PH_API int ph_model_mask(const ph_model *model);

/* ---- generating -------------------------------------------------------------------- */

typedef struct ph_generation {
    int max_tokens;    /* 0: max_new_tokens or max_length of the checkpoint, or as many as
                          fit */
    float temperature; /* 0: greedy */
    int top_k;         /* sample from the k likeliest tokens; 0: from all */
    float top_p;       /* nucleus: from the likeliest that sum to this share of what
                          top_k leaves; 0: all */
    int beams;         /* encoder-decoder: width of beam search, which does not sample:
                          temperature, top_k, top_p are ignored; 0: 1 */
    uint64_t seed;
    ph_dtype kv_dtype; /* of cached keys and values of self-attention: PH_F32, PH_F16,
                             PH_BF16, PH_Q8_0, PH_Q4_0, PH_Q4_1 */
    int chat;          /* 1: prompts are messages of a user, and the chat template of
                             the checkpoint goes around them, see ph_model_chat */
    int batch;         /* texts that are decoded side by side; 0: 16 */
    const char *const *stop; /* a text ends before the first of these that comes up */
    int stop_count;
    void (*each)(void *user, int text, const char *piece); /* called with each piece of
                             the new text of prompt number `text` as it is generated, or
                             NULL; with beams once */
    void *user;
    const char *system; /* with chat: a message of a system before each, or NULL */
    uint64_t reserved[7];
} ph_generation;

/* A text, and the new one that follows from it. */
typedef struct ph_prompt {
    const char *text;
    uint64_t number; /* equal texts with other numbers get other samples */
    char *out;       /* the new text, like snprintf */
    size_t size;
    int length; /* set to its full length */
    int tokens; /* set to the tokens that were generated */
    uint64_t reserved[4];
} ph_prompt;

/* Continues text (decoder) or translates it (encoder-decoder; of sound text is the path
   of its features, see ph_reading_create): the new text, like snprintf, its full length
   in *length, which may be NULL. A model without a vocabulary writes ids. A NUL byte that
   is generated becomes U+FFFD. Keys and values are cached, in pages that are taken as the
   text grows. how may be NULL. */
PH_API ph_status ph_generate(const ph_model *model, const char *text,
                             const ph_generation *how, char *out, size_t size,
                             int *length);

/* The same for many prompts: they are decoded side by side, without padding, long prompts
   in chunks, and when one ends the next takes its place. Each gets the text it gets
   alone. A prompt that is refused, empty or too long, refuses the call. */
PH_API ph_status ph_generate_batch(const ph_model *model, ph_prompt *prompts, int count,
                                   const ph_generation *how);

/* Prompts that come one after the other, such as lines of a file, and go when they are
   done: no more than how->batch and 2 are held at a time. */
typedef struct ph_prompt_stream {
    /* The next prompt: 1: it is in *prompt, and what it points to stays until done; 0:
       there is none yet; -1: there are no more. wait: 1: nothing else is left to do, so
       the call should wait for one; 0 ends the stream then. */
    int (*next)(void *user, ph_prompt *prompt, int wait);
    /* Prompt number `text`, from 0 in the order they came, has its new text, or is
       refused and ph_error says why. Prompts end in any order. */
    void (*done)(void *user, int text, const ph_prompt *prompt, ph_status status);
    void *user;
    uint64_t reserved[4];
} ph_prompt_stream;

/* ph_generate_batch for a stream: each prompt gets the text it gets alone, and the next
   one takes its place at once. Where the call fails those that are not done have no text:
   one of them made the model fail. */
PH_API ph_status ph_generate_stream(const ph_model *model, const ph_prompt_stream *stream,
                                    const ph_generation *how);

#ifdef __cplusplus
}
#endif

#include "polyhead_train.h"
#endif
