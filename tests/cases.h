/*
 * cases.h - random attention problems for the tests: descriptions, data, memory layouts.
 *
 *     problem p;
 *     case_draw(&p.attn, &p.with, seed, index, CASE_SMALL);   a random description
 *     problem_build(&p, seed);                                memory and values for it
 *     ph_forward(plan, &p.args);
 *     problem_gaps(&p)                                        writes outside its outputs?
 *     problem_free(&p);
 *
 * A description can also be written by hand: set p.attn and p.with, then problem_build.
 *
 * Every tensor is part of a slab. The padding around them is NaN in inputs and a fixed
 * pattern in outputs, so that reading or writing outside shows. Elements that no row sees
 * are NaN, Inf or random bits too unless with.clean is set.
 */
#ifndef CASES_H
#define CASES_H

#include <stddef.h>
#include <stdint.h>

#include "oracle.h"
#include "polyhead.h"
#include "sanitized.h"

/* Sanitized builds get fewer random cases. */
#define CASES_TSAN SANITIZED_THREADS
#define CASES_SLOW (SANITIZED ? 8 : 1)

typedef enum slab_kind { SLAB_INPUT, SLAB_OUTPUT, SLAB_GRADIENT } slab_kind;

typedef struct slab {
    const char *name;
    slab_kind kind;
    size_t count;         /* elements                                                 */
    size_t size;          /* bytes of one                                             */
    unsigned char *bytes; /* the elements                                             */
    unsigned char *mark;  /* (count) 1: belongs to a tensor; NULL for inputs          */
    void *block;          /* what was allocated                                       */
    size_t mapped;        /* bytes mapped at block; 0: block came from malloc         */
} slab;

typedef struct tensor {
    ph_dtype dtype;
    int batch, heads, len, dim;
    ph_strides at;  /* never zero-means-packed: the real distances */
    slab *mem;      /* NULL: no such tensor                        */
    int64_t origin; /* index of the first element in mem           */
} tensor;

typedef enum case_layout {
    LAYOUT_PACKED,      /* strides 0                                        */
    LAYOUT_EXPLICIT,    /* the same, said                                   */
    LAYOUT_PADDED,      /* gaps between rows, heads and batch rows          */
    LAYOUT_TIME,        /* (batch, time, head, dim), sometimes with gaps    */
    LAYOUT_HEAD,        /* (head, batch, time, dim)                         */
    LAYOUT_INTERLEAVED, /* q, k, v of a token side by side in one slab      */
    LAYOUT_OVERLAP,     /* neighbouring heads share elements; reading only  */
    LAYOUT_REPEAT,      /* batch stride 0; reading only                     */
    LAYOUT_COUNT
} case_layout;

/* What a call has besides what ph_attn says. */
typedef struct case_with {
    int gate, sink, alibi, q_lens, kv_lens, dlse;
    int lse;              /* the caller wants it                                  */
    int gate_zeros;       /* some gates are 0                                     */
    int bias_holes;       /* some biases are -inf, or (1) as good as
          */
    case_layout layout;   /* of q, k, v                                           */
    case_layout out, dq;  /* of out, and of dq, dk, dv; never a reading-only one  */
    int dq_said;          /* dq, dk, dv have strides of their own                 */
    float q_gain, v_gain; /* size of the values; 0: 1                             */
    float v_shift;        /* mean of v                                            */
    float hidden;         /* share of visible that is 0                           */
    int same_keys;        /* all keys equal: every weight ties                    */
    int clean;            /* no masked NaN                                         */
    int again;            /* on a GPU: the forward pass runs twice with one plan   */
    int weights, col_sum, entropy, top_k, rect; /* look inside                          */
    int no_look; /* draw it, but do not put it into the call             */
} case_with;

/* Holds pointers into itself: never copied or moved once built. */
typedef struct problem {
    ph_attn attn;
    case_with with;
    ph_args args;
    ph_grads grads;
    ph_look_at look;
    tensor q, k, v, out, dout, dq, dk, dv;
    tensor lse, dlse, bias, gate, sink, alibi, dbias, dgate, dsink;
    tensor weights, col_sum, entropy, top_weight, rect;
    uint8_t *visible;
    int32_t *q_lens, *kv_lens;
    slab *top_index; /* int32_t */
    slab slabs[32];
    int slab_count;
    int tensor_cores; /* the GPU computed out with them: weights are rounded */
    int tensor_grads; /* ... dq, dk and dv */
} problem;

/* How much work a case may be. */
typedef enum case_size { CASE_TINY, CASE_SMALL, CASE_LARGE } case_size;

/* A random description, the same for the same seed and index. */
void case_draw(ph_attn *attn, case_with *with, uint64_t seed, int index, case_size size);

/* Allocates everything that p->attn and p->with need, inputs full of NaN; returns the
   random state that problem_build goes on with. */
uint64_t problem_make(problem *p, uint64_t seed);
/* Allocates and fills it. */
void problem_build(problem *p, uint64_t seed);
/* The same problem again, in memory of its own: `of` was built with this seed. */
void problem_twin(problem *p, const problem *of, uint64_t seed);
void problem_free(problem *p);

/* Puts the pattern over all outputs: out, lse, looks, gradients. */
void problem_wipe(problem *p);
/* Like problem_wipe for the gradients alone. */
void problem_wipe_grads(problem *p);
/* A hash of everything that outputs hold, gaps included. */
uint64_t problem_digest(const problem *p);
/* Name of a slab in which something besides the outputs was written; NULL: none. */
const char *problem_gaps(const problem *p);
/* 1: every output still holds the pattern everywhere. */
int problem_untouched(const problem *p);

/* One line that says what the problem is. */
const char *problem_text(const problem *p);

/* ---- memory ----------------------------------------------------------------------- */

/* What outputs hold before a call, byte by byte. As float -2.6e36, as f16 about -65000,
   as
   int32_t negative: nothing computes it. */
enum { SLAB_PATTERN = 0xfb };

slab *slab_new(problem *p, const char *name, slab_kind kind, size_t count, size_t size);
void slab_free(slab *s);

/* New slabs put their last element before an unreadable page (1), their first after one
   (-1), or neither (0). */
extern int case_guard_pages;

/* Gaps in a layout are multiples of so many elements: 1, or 8 where the GPU's copy engine
   is to take 16-bit tensors. */
extern int case_gap;

/* ---- elements --------------------------------------------------------------------- */

int64_t tensor_at(const tensor *t, int b, int h, int i, int d); /* index in its slab */
void *tensor_data(const tensor *t);                             /* NULL without tensor */
double tensor_get(const tensor *t, int b, int h, int i, int d);
void tensor_set(tensor *t, int b, int h, int i, int d, double value);
void tensor_set_row(tensor *t, int b, int h, int i, double value);
uint32_t tensor_bits(const tensor *t, int b, int h, int i, int d);
/* Rows equal bit by bit: row (b, h, i) of x and row (c, g, j) of y. */
int tensor_same_row(const tensor *x, int b, int h, int i, const tensor *y, int c, int g,
                    int j);
/* All elements equal bit by bit; both may be missing. */
int tensor_same(const tensor *x, const tensor *y);
/* Copies a row, keeping the bits. */
void tensor_copy_row(tensor *to, int b, int h, int i, const tensor *from, int c, int g,
                     int j);
size_t tensor_count(const tensor *t);

#endif
