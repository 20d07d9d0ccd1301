/*
 * cmd_explain.h - the parts of `polyhead explain`: a worked example, shapes as a tree and
 * a diagram, what a layer costs.
 */
#ifndef PH_CLI_EXPLAIN_H
#define PH_CLI_EXPLAIN_H

#include "framework/cli.h"
#include "framework/json.h"

/* A layer of attention: model_dim = heads * head_dim, all sizes at least 1. */
typedef struct cost_shape {
    int64_t batch;
    int64_t len;       /* tokens of a sequence; with decode: keys in the cache */
    int64_t model_dim;
    int64_t heads, k_heads;
    int decode;        /* 1: one new token per sequence */
    int causal;        /* 1: half of the scores */
    int dtype;         /* index into cli_dtype_names */
} cost_shape;

/* An example small enough to read: X (tokens, dim), W_Q, W_K, W_V (dim, dim) with heads
   side by side in their columns, W_O (dim, dim). */
enum { EXPLAIN_MOST = 8, EXPLAIN_FLOATS = EXPLAIN_MOST * EXPLAIN_MOST };
enum { EXPLAIN_X, EXPLAIN_WQ, EXPLAIN_WK, EXPLAIN_WV, EXPLAIN_WO, EXPLAIN_MATRICES };

typedef struct explain_input {
    int tokens, dim, heads;
    float matrix[EXPLAIN_MATRICES][EXPLAIN_FLOATS]; /* packed */
    int made_up[EXPLAIN_MATRICES]; /* 1: the reader gave none */
    int article;                   /* 1: the built-in example */
} explain_input;

/* The built-in example (path NULL), or the reader's own: a text file of rows of numbers,
   X alone or each matrix below a line with its name. heads 0: 2, or 1 where dim is odd.
   Returns an exit code. */
int explain_read(explain_input *in, const char *path, int heads);

/* What a reader's language is: each sentence stands beside its translation. */
static inline const char *explain_say(int chinese, const char *en, const char *zh)
{
    return chinese ? zh : en;
}

/* A title and a paragraph below it, or NULL. */
void explain_step(int number, const char *title, const char *text);

/* These print their result and return an exit code. */
int explain_example(ph_ctx *ctx, const explain_input *in, int chinese, int as_json);
int explain_cost(ph_ctx *ctx, const cost_shape *shape, int compare, int chinese,
                 int as_json);

/* Block diagram, tree of shapes, one head against many, other kinds of layers. */
void explain_shapes(const cost_shape *shape, int chinese);
void explain_shapes_json(ph_json_writer *j, const cost_shape *shape);

#endif
