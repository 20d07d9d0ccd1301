/*
 * bench.h - the named shapes that `polyhead bench` measures, and how each kind is run.
 *
 * A shape names a job: a table of functions that know how to prepare it, run it once,
 * clean up, and count its work. Attention and whole layers differ only in their jobs, so
 * the measuring itself (bench.c) knows neither.
 */
#ifndef PH_CLI_BENCH_H
#define PH_CLI_BENCH_H

#include "framework/cli.h"

struct bench_job;

typedef struct bench_shape {
    const char *name; /* up to its first dash: the group */
    const struct bench_job *job;
    int batch; /* 0: as many sequences as it takes to exceed the last-level cache */
    int q_heads, kv_heads, q_len, kv_len;
    int dim;   /* of a head */
    int dtype; /* a ph_dtype */
    int causal;
} bench_shape;

typedef struct bench_job {
    /* Makes the state of a shape, or NULL with the status and, in ctx, its sentence. */
    void *(*open)(ph_ctx *ctx, const bench_shape *shape, ph_status *status);
    ph_status (*run)(void *state);
    void (*close)(void *state);
    double (*flops)(const bench_shape *shape); /* useful ones of one run */
    double (*bytes)(const bench_shape *shape); /* that must be read at least; NULL where
                                                  reading is not what limits it */
} bench_job;

extern const bench_shape bench_shapes[];                       /* ended by a NULL name */
extern const bench_job bench_layer_forward, bench_layer_train; /* bench_layer.c */
/* bench_ragged.c */
extern const bench_job bench_ragged_forward, bench_ragged_forward_parts,
    bench_ragged_backward, bench_ragged_backward_parts, bench_uneven_forward,
    bench_uneven_forward_parts, bench_uneven_backward, bench_uneven_backward_parts;

/* Keys and values in pages of 16 or 128, in no order, and in a type of their own
   (bench_paged.c). */
extern const bench_job bench_prefill_16, bench_prefill_128, bench_decode_16,
    bench_decode_128, bench_decode_bf16, bench_decode_q8_0, bench_decode_q4_0;

/* What they share with other attention (bench_shapes.c). */
double bench_forward_flops(const bench_shape *shape);
ph_status bench_forward_run(void *state);

/* Attention of a shape, and its work, or NULL and why. */
ph_attn bench_attention(const bench_shape *s);
void *bench_attention_open(ph_ctx *ctx, const ph_attn *attn, ph_status *status);
void bench_attention_close(void *state);

/* Decoding through layers whose matrices are stored as dtype says, (out, in) and
   (in, out) (bench_few_rows.c). */
extern const bench_job bench_few_rows_linear, bench_few_rows_whole;

/* Which variants are to be measured beside plain attention. */
typedef struct bench_choice {
    const char *const *words; /* names and patterns; none: all */
    int count;
    const char *filter; /* what a name must contain, or NULL */
} bench_choice;

/* `polyhead bench --variants` with each ctx (bench_variants.c); returns an exit code. */
int bench_variants(ph_ctx *const *ctx, int count, const bench_choice *choice,
                   double seconds, int as_json);

/* `polyhead bench --device cuda` (bench_device.c); returns an exit code. */
int bench_device(ph_ctx *ctx, const bench_choice *choice, int as_json);

/* The shape with its batch filled in for this machine; 0 if memory does not suffice. */
int bench_fit(bench_shape *shape);

/* Length of the group in the name. */
int bench_group(const bench_shape *shape);

#endif
