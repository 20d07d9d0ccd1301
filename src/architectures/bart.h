/*
 * bart.h - what encoder-decoders with BART's names have in common: BART itself, Marian
 * and Whisper.
 */
#ifndef PH_ARCHITECTURES_BART_H
#define PH_ARCHITECTURES_BART_H

#include "architectures/architecture.h"

/* Weight and bias: w and b of ours. */
#define PH_BART_LINEAR(ours_w, ours_b, theirs)                                           \
    PH_TENSOR(ours_w, theirs ".weight", NULL), PH_TENSOR(ours_b, theirs ".bias", NULL)

#define PH_BART_NORM(ours, theirs) PH_BART_LINEAR(ours ".gain", ours ".bias", theirs)

#define PH_BART_ATTENTION(ours, theirs)                                                  \
    PH_BART_LINEAR(ours ".wq", ours ".bq", theirs ".q_proj"),                            \
        PH_BART_LINEAR(ours ".wk", ours ".bk", theirs ".k_proj"),                        \
        PH_BART_LINEAR(ours ".wv", ours ".bv", theirs ".v_proj"),                        \
        PH_BART_LINEAR(ours ".wo", ours ".bo", theirs ".out_proj")

#define PH_BART_FEED(stack)                                                              \
    PH_BART_LINEAR(stack ".#.ff.w1", stack ".#.ff.b1", stack ".layers.#.fc1"),           \
        PH_BART_LINEAR(stack ".#.ff.w2", stack ".#.ff.b2", stack ".layers.#.fc2")

/* All layers of both stacks. */
#define PH_BART_LAYERS                                                                   \
    PH_BART_ATTENTION("encoder.#.self", "encoder.layers.#.self_attn"),                   \
        PH_BART_NORM("encoder.#.norm1", "encoder.layers.#.self_attn_layer_norm"),        \
        PH_BART_FEED("encoder"),                                                         \
        PH_BART_NORM("encoder.#.norm2", "encoder.layers.#.final_layer_norm"),            \
        PH_BART_ATTENTION("decoder.#.self", "decoder.layers.#.self_attn"),               \
        PH_BART_NORM("decoder.#.norm1", "decoder.layers.#.self_attn_layer_norm"),        \
        PH_BART_ATTENTION("decoder.#.cross", "decoder.layers.#.encoder_attn"),           \
        PH_BART_NORM("decoder.#.norm2", "decoder.layers.#.encoder_attn_layer_norm"),     \
        PH_BART_FEED("decoder"),                                                         \
        PH_BART_NORM("decoder.#.norm3", "decoder.layers.#.final_layer_norm")

/* Before it stands the prefix. */
#define PH_BART_ANCHOR "decoder.layers.0.encoder_attn.q_proj.weight"

/* Sizes of both stacks, which must be the same but for the number of layers; layers,
   model_dim, heads and ff_dim as `c` has them are the defaults. */
void ph_import_bart(ph_import *in, ph_config *c);

/* The inverse, with the name of the type and of its class. */
void ph_publish_bart(const ph_config *c, const char *type, const char *class,
                     ph_json_writer *json);

#endif
