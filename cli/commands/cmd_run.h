/*
 * cmd_run.h - what the files of `polyhead run` share: its options, the job at hand, and
 * the functions that find, check and make tensors.
 *
 *     cmd_run.c      options, the way from IN to OUT
 *     run_tensors.c  tensors of IN: found, checked, converted; tensors of OUT: made
 *     run_core.c     core mode: q, k, v
 *     run_ragged.c   core mode: sequences without padding, pages of keys and values
 *     run_device.c   core mode on an accelerator
 *     run_layer.c    layer mode: x and the weights of a layer
 *
 * Functions that can fail return an exit code, EXIT_OK or another; the sentence has then
 * been printed.
 */
#ifndef PH_CLI_RUN_H
#define PH_CLI_RUN_H

#include "framework/cli.h"
#include "polyhead_io.h"

typedef struct run_options {
    const char *out;
    const char *variant;
    int causal;
    ph_sizes window;
    int64_t offset;
    int has_offset;
    double scale;
    int has_scale;
    double softcap, dropout;
    int64_t seed;
    int weights, stats;
    int dtype, has_dtype;
    int64_t heads, k_heads, v_heads; /* 0: not given; layer mode only */
    const char *rope;                /* layer mode only */
    int64_t rope_dims;               /* layer mode only; 0: not given */
    ph_sizes yarn;                   /* layer mode only */
    int qk_norm;                     /* layer mode only */
    double balance;                  /* layer mode only */
    int transposed;                  /* layer mode only */
    ph_machine machine;
} run_options;

enum { RUN_MOST_OUTPUTS = 64, RUN_MOST_BUFFERS = 192, RUN_MOST_REPLACED = 8 };

/* How a tensor that is found differs from the one of its name in IN. */
typedef enum run_change {
    RUN_COPIED,      /* other elements: padded, or two tensors in one */
    RUN_BATCH_ADDED, /* a first axis of 1 */
    RUN_SWAPPED      /* two axes, the other way round */
} run_change;

/* One run, from IN to OUT. */
typedef struct run_job {
    const run_options *options;
    const char *path; /* of IN */
    ph_file *in;
    ph_ctx *ctx;
    ph_tensor replaced[RUN_MOST_REPLACED]; /* found instead of those of IN, last first */
    run_change changes[RUN_MOST_REPLACED]; /* what each of them is */
    int replaced_count;
    ph_tensor outputs[RUN_MOST_OUTPUTS];
    int output_count;
    void *buffers[RUN_MOST_BUFFERS]; /* freed at the end */
    int buffer_count;
} run_job;

/* ---- checking tensors of IN ---- */

enum { RUN_FREE = -1 }; /* any size */

/* What one axis of a tensor must be. */
typedef struct run_axis {
    const char *name; /* "kv_len" */
    int64_t size;     /* RUN_FREE: found out from this tensor */
    int or_one;       /* 1: size 1 is good too */
} run_axis;

/* Sets of types, as bits. */
#define RUN_TYPE(name) (1u << PH_##name)
#define RUN_FLOATS     (RUN_TYPE(F32) | RUN_TYPE(F16) | RUN_TYPE(BF16))

const ph_tensor *run_find(const run_job *job, const char *name); /* or NULL */

/* Every tensor of IN must be in the NULL-ended list; `mode` stands in the sentence. */
int run_check_names(const run_job *job, const char *mode, const char *const *known);

int run_missing(const run_job *job, const char *name, const char *why);

/* Checks type and shape; a size beyond int is refused too. Sentences name the axes as
   they are in IN. */
int run_check(const run_job *job, const ph_tensor *tensor, unsigned types, int rank,
              const run_axis *axes);

/* Finds a tensor that the library needs; NULL only where it is optional. */
int run_find_param(const run_job *job, const ph_param *param, const ph_tensor **tensor);
int run_check_param(const run_job *job, const ph_tensor *tensor, unsigned types,
                    const ph_param *param);

/* The tensor must be wrong by then: says "tensor 'k' is F32 (...), expected WHAT". */
int run_wrong(const run_job *job, const ph_tensor *tensor, const char *expected);

/* What the library refused; values and shapes of tensors with the name of IN. */
int run_failed(const run_job *job, ph_status status);

/* ---- memory ---- */

/* `count` elements of `size` bytes, zero, owned by the job. NULL: no memory, said so. */
void *run_buffer(run_job *job, size_t count, size_t size);

/* Gives memory that is not read again back to the system, as far as whole pages go. */
void run_discard(const void *data, size_t bytes);

/* The data of a tensor as this type: its own, or a converted copy, and then its own is
   discarded. */
int run_converted(run_job *job, const ph_tensor *tensor, ph_dtype dtype,
                  const void **data);

/* From now on run_find gives this tensor instead of that of its name in IN. Returns
   memory for its elements, zero; NULL: out of memory, said so. */
void *run_replace(run_job *job, const ph_tensor *tensor);
/* The same with the data that the tensor has. */
void run_view(run_job *job, const ph_tensor *tensor, run_change change);

/* A new tensor of OUT, zero; NULL: out of memory, said so. */
void *run_output(run_job *job, const char *name, ph_dtype type, int rank,
                 const size_t *shape);

/* The gradient of a tensor of IN, of its shape: "d" and its name in OUT. */
void *run_gradient(run_job *job, const ph_tensor *of, ph_dtype type);

/* ---- what core and layer mode have in common ---- */

/* Tensors that both modes take, and the sizes they were checked against. */
typedef struct run_common {
    ph_attn attn;
    ph_args args;
    ph_look_at look;
    ph_grads grads;
    int backward; /* `dout` is there */
    int at_end;   /* caches: the last query stands at the last key */
    int ragged;   /* sequences side by side: with a mask and without --offset likewise */
} run_common;

/* Options and tensors other than q, k, v, dout into attn and args; attn has the sizes. */
int run_read_common(run_job *job, run_common *common);

/* out is the mode's own; this makes lse, weights, col_sum, entropy. */
int run_make_looks(run_job *job, run_common *common);

/* dbias, dgate, dsink of the tensors that were given. */
int run_make_common_grads(run_job *job, run_common *common);

/* Both passes of a plan on an accelerator; pointers in `common` are the host's. */
ph_status run_on_device(run_job *job, const ph_plan *plan, run_common *common);

/* ---- run_ragged.c ---- */

/* Ragged tensors as one batch row; afterwards those of OUT without that axis. */
int run_ragged_inputs(run_job *job);
void run_ragged_outputs(run_job *job);
/* The same for layer mode, where IN has offsets. */
int run_ragged_layer_inputs(run_job *job);
/* From one batch row to a ragged batch, once all else is read and IN has offsets. memory:
   keys come from elsewhere than the queries. */
void run_ragged_plan(run_job *job, int memory, ph_attn *attn, ph_args *args);

/* k and v in pages become one block. */
int run_paged_inputs(run_job *job);

int run_core(run_job *job);
int run_layer(run_job *job);

/* Names that stand in IN in core mode, ended by NULL. */
extern const char *const run_core_names[];

#endif
