/*
 * llama2c.c - files of llama2.c (version 0): seven int32, then float tensors in a fixed
 * order, each for all layers.
 *
 *     dim, hidden_dim, layers, heads, kv_heads, vocabulary (negative: own output matrix),
 *     longest sequence
 *
 * The format has no magic: a file is one if its sizes give exactly its length. Tensors
 * and sizes get the names GGUF has for a LLaMA model; rotary pairs are interleaved there
 * too.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/size.h"
#include "checkpoint/checkpoint.h"

enum { HEADER = 28, SIZES = 7 };

typedef struct llama2c_sizes {
    size_t dim, hidden, layers, heads, kv_heads, vocab, len;
    size_t q, kv; /* columns of q, of k and v */
    int untied;
} llama2c_sizes;

static int32_t word_at(const unsigned char *at)
{
    return (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                     (uint32_t)at[3] << 24);
}

static int read_sizes(const unsigned char *bytes, llama2c_sizes *s)
{
    int32_t v[SIZES];
    for (int i = 0; i < SIZES; i++) v[i] = word_at(bytes + 4 * i);
    s->untied = v[5] < 0;
    if (v[5] < 0 && v[5] > -(1 << 24)) v[5] = -v[5];
    for (int i = 0; i < SIZES; i++)
        if (v[i] < 1 || v[i] > 1 << 24) return 0;
    if (v[0] % v[3] || v[3] % v[4] || v[2] > 1000) return 0;
    *s = (llama2c_sizes){(size_t)v[0],
                         (size_t)v[1],
                         (size_t)v[2],
                         (size_t)v[3],
                         (size_t)v[4],
                         (size_t)v[5],
                         (size_t)v[6],
                         0,
                         0,
                         s->untied};
    s->q = s->dim, s->kv = s->dim / s->heads * s->kv_heads;
    return 1;
}

/* The tensors in the order of the file; per_layer: one after the other for all layers.
   Those without a name are tables of sines and cosines. */
typedef struct llama2c_piece {
    const char *name;
    int per_layer;
    size_t rows, columns; /* rows 0: a vector */
} llama2c_piece;

enum { PIECES = 14 };

static int list_pieces(const llama2c_sizes *s, llama2c_piece *p)
{
    size_t angles = s->len * (s->dim / s->heads / 2);
    const llama2c_piece all[PIECES] = {{"token_embd.weight", 0, s->vocab, s->dim},
                                       {"attn_norm.weight", 1, 0, s->dim},
                                       {"attn_q.weight", 1, s->q, s->dim},
                                       {"attn_k.weight", 1, s->kv, s->dim},
                                       {"attn_v.weight", 1, s->kv, s->dim},
                                       {"attn_output.weight", 1, s->dim, s->q},
                                       {"ffn_norm.weight", 1, 0, s->dim},
                                       {"ffn_gate.weight", 1, s->hidden, s->dim},
                                       {"ffn_down.weight", 1, s->dim, s->hidden},
                                       {"ffn_up.weight", 1, s->hidden, s->dim},
                                       {"output_norm.weight", 0, 0, s->dim},
                                       {NULL, 0, 0, angles},
                                       {NULL, 0, 0, angles},
                                       {"output.weight", 0, s->vocab, s->dim}};
    memcpy(p, all, sizeof all);
    return s->untied ? PIECES : PIECES - 1;
}

int ph_llama2c_fits(const unsigned char *bytes, size_t size)
{
    llama2c_sizes s;
    llama2c_piece list[PIECES];
    size_t total = HEADER, floats;
    if (size < HEADER || !read_sizes(bytes, &s)) return 0;
    int count = list_pieces(&s, list);
    for (int i = 0; i < count; i++) {
        size_t layers = list[i].per_layer ? s.layers : 1;
        size_t rows = list[i].rows ? list[i].rows : 1;
        if (ph_size_mul(rows, list[i].columns, &floats) ||
            ph_size_mul(floats, 4 * layers, &floats) ||
            ph_size_add(total, floats, &total))
            return 0;
    }
    return total == size;
}

static ph_status add_piece(ph_checkpoint *c, const llama2c_piece *p, size_t layer,
                           const unsigned char *at, const ph_io *io)
{
    ph_stored s = {.tensor = {.type = PH_F32, .rank = p->rows ? 2 : 1, .data = at}};
    char *name;
    PH_TRY(ph_checkpoint_keep(c, 48, (void **)&name, io));
    if (p->per_layer)
        snprintf(name, 48, "blk.%zu.%s", layer, p->name);
    else
        snprintf(name, 48, "%s", p->name);
    s.tensor.name = name;
    s.tensor.shape[0] = p->rows ? p->rows : p->columns;
    s.tensor.shape[1] = p->rows ? p->columns : 0;
    s.tensor.bytes = (p->rows ? p->rows : 1) * p->columns * sizeof(float);
    return ph_checkpoint_add(c, &s, io);
}

static ph_status add_values(ph_checkpoint *c, const llama2c_sizes *s, const ph_io *io)
{
    const ph_value list[] = {
        {.key = "general.architecture",
         .kind = PH_VALUE_TEXT,
         .text = "llama",
         .length = 5},
        {.key = "llama.embedding_length",
         .kind = PH_VALUE_NUMBER,
         .number = (double)s->dim},
        {.key = "llama.feed_forward_length",
         .kind = PH_VALUE_NUMBER,
         .number = (double)s->hidden},
        {.key = "llama.block_count",
         .kind = PH_VALUE_NUMBER,
         .number = (double)s->layers},
        {.key = "llama.attention.head_count",
         .kind = PH_VALUE_NUMBER,
         .number = (double)s->heads},
        {.key = "llama.attention.head_count_kv",
         .kind = PH_VALUE_NUMBER,
         .number = (double)s->kv_heads},
        {.key = "llama.vocab_size", .kind = PH_VALUE_NUMBER, .number = (double)s->vocab},
        {.key = "llama.context_length",
         .kind = PH_VALUE_NUMBER,
         .number = (double)s->len},
        {.key = "llama.attention.layer_norm_rms_epsilon",
         .kind = PH_VALUE_NUMBER,
         .number = 1e-5}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        PH_TRY(ph_values_add(&c->values, &list[i], io));
    return ph_values_sort(&c->values, "llama2.c", io);
}

ph_status ph_llama2c_read(ph_checkpoint *c, const unsigned char *bytes, const ph_io *io)
{
    llama2c_sizes s;
    llama2c_piece list[PIECES];
    const unsigned char *at = bytes + HEADER;
    c->kind = PH_CHECKPOINT_GGUF, c->llama2c = 1;
    read_sizes(bytes, &s);
    int count = list_pieces(&s, list);
    for (int i = 0; i < count; i++) {
        const llama2c_piece *p = &list[i];
        size_t floats = (p->rows ? p->rows : 1) * p->columns;
        for (size_t l = 0; l < (p->per_layer ? s.layers : 1); l++) {
            if (p->name) PH_TRY(add_piece(c, p, l, at, io));
            at += floats * sizeof(float);
        }
    }
    PH_TRY(add_values(c, &s, io));
    return ph_checkpoint_sort(c, "llama2.c", io);
}
