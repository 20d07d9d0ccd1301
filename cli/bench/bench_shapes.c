/*
 * bench_shapes.c - the table of shapes and the jobs of attention; see bench.h.
 *
 * FLOPs are useful ones: forward two products of 2 B H Tq Tk d, backward five; causal
 * counts half. Decoding reads every key and value once.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/machine.h"
#include "bench/work.h"

/* ---- attention ---- */

static double scores(const bench_shape *s)
{
    double all = (double)s->batch * s->q_heads * s->q_len * s->kv_len;
    return s->causal ? all / 2 : all;
}

double bench_forward_flops(const bench_shape *s)
{
    return 2 * 2 * scores(s) * s->dim;
}

static double backward_flops(const bench_shape *s)
{
    return 5 * 2 * scores(s) * s->dim;
}

static double cache_bytes(const bench_shape *s)
{
    return 2.0 * s->batch * s->kv_heads * s->kv_len * s->dim *
           (double)ph_dtype_bytes((ph_dtype)s->dtype, 1);
}

ph_attn bench_attention(const bench_shape *s)
{
    return (ph_attn){.batch = s->batch,
                     .q_heads = s->q_heads,
                     .k_heads = s->kv_heads,
                     .v_heads = s->kv_heads,
                     .q_len = s->q_len,
                     .kv_len = s->kv_len,
                     .qk_dim = s->dim,
                     .dtype = (ph_dtype)s->dtype,
                     .mask = s->causal ? PH_MASK_CAUSAL : PH_MASK_NONE};
}

void *bench_attention_open(ph_ctx *ctx, const ph_attn *attn, ph_status *status)
{
    work *w = malloc(sizeof *w);
    *status = w ? work_open(w, ctx, attn, NULL) : PH_OUT_OF_MEMORY;
    if (*status == PH_OK) return w;
    free(w);
    return NULL;
}

static void *forward_open(ph_ctx *ctx, const bench_shape *s, ph_status *status)
{
    const ph_attn attn = bench_attention(s);
    return bench_attention_open(ctx, &attn, status);
}

static void *backward_open(ph_ctx *ctx, const bench_shape *s, ph_status *status)
{
    ph_attn attn = bench_attention(s);
    attn.backward = 1;
    return bench_attention_open(ctx, &attn, status);
}

ph_status bench_forward_run(void *state)
{
    return work_forward(state);
}

static ph_status backward_run(void *state)
{
    return work_backward(state);
}

void bench_attention_close(void *state)
{
    work_close(state);
    free(state);
}

static const bench_job forward = {forward_open, bench_forward_run, bench_attention_close,
                                  bench_forward_flops, NULL};
static const bench_job backward = {backward_open, backward_run, bench_attention_close,
                                   backward_flops, NULL};
static const bench_job decode = {forward_open, bench_forward_run, bench_attention_close,
                                 bench_forward_flops, cache_bytes};

/* ---- the table ---- */

enum {
    F32 = PH_F32,
    F16 = PH_F16,
    BF16 = PH_BF16,
    Q8_0 = PH_Q8_0,
    Q4_0 = PH_Q4_0,
    Q4_1 = PH_Q4_1,
    Q4_K = PH_Q4_K,
    Q5_K = PH_Q5_K,
    Q6_K = PH_Q6_K
};

/* clang-format off */
const bench_shape bench_shapes[] = {
    /* name, job, batch, heads, key heads, rows, keys, head size, type, causal */
    {"short-20",                 &forward, 32,  8,  8,   20,   20,  64, F32,  0},
    {"short-20-bf16",            &forward, 32,  8,  8,   20,   20,  64, BF16, 0},
    {"short-64",                 &forward, 16,  8,  8,   64,   64,  64, F32,  0},
    {"short-128",                &forward,  8,  8,  8,  128,  128,  64, F32,  0},
    {"training-512",             &forward,  4,  8,  8,  512,  512,  64, F32,  0},
    {"training-512-causal",      &forward,  4,  8,  8,  512,  512,  64, F32,  1},
    {"training-512-bf16",        &forward,  4,  8,  8,  512,  512,  64, BF16, 0},
    {"training-512-f16",         &forward,  4,  8,  8,  512,  512,  64, F16,  0},
    {"prefill-2048",             &forward,  1,  8,  8, 2048, 2048,  64, F32,  0},
    {"prefill-2048-causal",      &forward,  1,  8,  8, 2048, 2048,  64, F32,  1},
    {"prefill-2048-d128",        &forward,  1,  4,  4, 2048, 2048, 128, F32,  0},
    {"prefill-2048-d128-causal", &forward,  1,  4,  4, 2048, 2048, 128, F32,  1},
    {"prefill-2048-bf16",        &forward,  1,  8,  8, 2048, 2048,  64, BF16, 0},
    {"prefill-one-head",         &forward,  1,  1,  1, 2048, 2048,  64, F32,  0},
    {"long-8192-causal",         &forward,  1,  2,  2, 8192, 8192,  64, F32,  1},
    {"odd-59",                   &forward,  2,  8,  8,  500,  500,  59, F32,  0},
    {"odd-111",                  &forward,  2,  8,  8,  500,  500, 111, F32,  0},
    {"odd-cross",                &forward,  2,  8,  8,  333,  777,  80, F32,  0},
    {"gqa-1024-causal",          &forward,  1, 32,  8, 1024, 1024, 128, F32,  1},
    {"gqa-1024-causal-bf16",     &forward,  1, 32,  8, 1024, 1024, 128, BF16, 1},
    {"decode-gqa",               &decode,   1, 32,  8,    1, 4096, 128, F32,  0},
    {"decode-gqa-bf16",          &decode,   1, 32,  8,    1, 4096, 128, BF16, 0},
    {"decode-gqa-f16",           &decode,   1, 32,  8,    1, 4096, 128, F16,  0},
    {"decode-large",             &decode,   0, 32,  8,    1, 4096, 128, F32,  0},
    {"decode-large-bf16",        &decode,   0, 32,  8,    1, 4096, 128, BF16, 0},
    {"decode-large-mha",         &decode,   0,  8,  8,    1, 4096,  64, F32,  0},
    {"paged-prefill-whole",      &forward,  1,  8,  8, 2048, 2048,  64, F32,  1},
    {"paged-prefill-128", &bench_prefill_128, 1, 8, 8, 2048, 2048,  64, F32,  1},
    {"paged-prefill-16", &bench_prefill_16,  1,  8,  8, 2048, 2048, 64, F32,  1},
    {"paged-decode-whole",       &decode,   8, 32,  8,    1, 4096, 128, F32,  0},
    {"paged-decode-128", &bench_decode_128,  8, 32,  8,   1, 4096, 128, F32,  0},
    {"paged-decode-16", &bench_decode_16,    8, 32,  8,   1, 4096, 128, F32,  0},
    {"paged-decode-bf16", &bench_decode_bf16, 8, 32, 8,   1, 4096, 128, F32,  0},
    {"paged-decode-q8_0", &bench_decode_q8_0, 8, 32, 8,   1, 4096, 128, F32,  0},
    {"paged-decode-q4_0", &bench_decode_q4_0, 8, 32, 8,   1, 4096, 128, F32,  0},
    {"backward-20",              &backward,32,  8,  8,   20,   20,  64, F32,  0},
    {"backward-128",             &backward, 8,  8,  8,  128,  128,  64, F32,  0},
    {"backward-512",             &backward, 4,  8,  8,  512,  512,  64, F32,  0},
    {"backward-512-causal",      &backward, 4,  8,  8,  512,  512,  64, F32,  1},
    {"backward-512-bf16",        &backward, 4,  8,  8,  512,  512,  64, BF16, 0},
    {"backward-512-f16",         &backward, 4,  8,  8,  512,  512,  64, F16,  0},
    {"backward-2048",            &backward, 1,  8,  8, 2048, 2048,  64, F32,  0},
    {"backward-2048-causal",     &backward, 1,  8,  8, 2048, 2048,  64, F32,  1},
    {"backward-2048-d128",       &backward, 1,  4,  4, 2048, 2048, 128, F32,  0},
    {"backward-8192-causal",     &backward, 1,  2,  2, 8192, 8192,  64, F32,  1},
    {"backward-odd-59",          &backward, 2,  8,  8,  500,  500,  59, F32,  0},
    {"backward-odd-111",         &backward, 2,  8,  8,  500,  500, 111, F32,  0},
    {"backward-gqa-causal",      &backward, 1, 32,  8, 1024, 1024, 128, F32,  1},
    {"layer-20", &bench_layer_forward,       32,  8,  8,   20,   20,  64, F32,  0},
    {"layer-20-train", &bench_layer_train,   32,  8,  8,   20,   20,  64, F32,  0},
    {"layer-512", &bench_layer_forward,       4,  8,  8,  512,  512,  64, F32,  0},
    {"layer-512-train", &bench_layer_train,   4,  8,  8,  512,  512,  64, F32,  0},
    {"layer-512-train-bf16", &bench_layer_train, 4, 8, 8, 512,  512,  64, BF16, 0},
    {"few-rows-2048-f32",   &bench_few_rows_linear, 1, 32, 32, 1, 1, 64, F32,  0},
    {"few-rows-2048-bf16",  &bench_few_rows_linear, 1, 32, 32, 1, 1, 64, BF16, 0},
    {"few-rows-4096-bf16",  &bench_few_rows_linear, 1, 64, 64, 1, 1, 64, BF16, 0},
    {"few-rows-4096-q8_0",  &bench_few_rows_linear, 1, 64, 64, 1, 1, 64, Q8_0, 0},
    {"few-rows-4096-q4_0",  &bench_few_rows_linear, 1, 64, 64, 1, 1, 64, Q4_0, 0},
    {"few-rows-4096-q4_1",  &bench_few_rows_linear, 1, 64, 64, 1, 1, 64, Q4_1, 0},
    {"few-rows-4096-q4_k",  &bench_few_rows_linear, 1, 64, 64, 1, 1, 64, Q4_K, 0},
    {"few-rows-4096-q5_k",  &bench_few_rows_linear, 1, 64, 64, 1, 1, 64, Q5_K, 0},
    {"few-rows-4096-q6_k",  &bench_few_rows_linear, 1, 64, 64, 1, 1, 64, Q6_K, 0},
    {"few-rows-in-out-f32",  &bench_few_rows_whole, 1, 64, 64, 1, 1, 64, F32,  0},
    {"few-rows-in-out-bf16", &bench_few_rows_whole, 1, 64, 64, 1, 1, 64, BF16, 0},
    {"few-rows-in-out-q8_0", &bench_few_rows_whole, 1, 64, 64, 1, 1, 64, Q8_0, 0},
    {"few-rows-in-out-q4_0", &bench_few_rows_whole, 1, 64, 64, 1, 1, 64, Q4_0, 0},
    /* rows: of the longest sequence, keys: of the shortest; "parts": one call each */
    {"ragged-mixed",       &bench_ragged_forward,       16, 8, 8, 1024,  16, 64, F32, 1},
    {"ragged-mixed-parts", &bench_ragged_forward_parts, 16, 8, 8, 1024,  16, 64, F32, 1},
    {"ragged-short",       &bench_ragged_forward,       64, 8, 8,   64,   4, 64, F32, 0},
    {"ragged-short-parts", &bench_ragged_forward_parts, 64, 8, 8,   64,   4, 64, F32, 0},
    {"ragged-uneven",      &bench_uneven_forward,       32, 8, 8, 2048,  20, 64, F32, 1},
    {"ragged-uneven-parts", &bench_uneven_forward_parts, 32, 8, 8, 2048, 20, 64, F32, 1},
    {"ragged-backward",    &bench_ragged_backward,      16, 8, 8, 1024,  16, 64, F32, 1},
    {"ragged-backward-parts", &bench_ragged_backward_parts,
                                                        16, 8, 8, 1024,  16, 64, F32, 1},
    {"ragged-backward-uneven", &bench_uneven_backward,  32, 8, 8, 2048,  20, 64, F32, 1},
    {"ragged-backward-uneven-parts", &bench_uneven_backward_parts,
                                                        32, 8, 8, 2048,  20, 64, F32, 1},
    {.name = NULL}};
/* clang-format on */

int bench_group(const bench_shape *shape)
{
    static const char few_rows[] = "few-rows"; /* the one group with a dash */
    const size_t dashed = sizeof few_rows - 1;
    if (!strncmp(shape->name, few_rows, dashed)) return (int)dashed;
    return (int)strcspn(shape->name, "-");
}

int bench_fit(bench_shape *shape)
{
    machine_facts facts;
    if (shape->batch) return 1;
    machine_look(&facts);
    shape->batch = 1;
    double one = cache_bytes(shape);
    double wanted = 2.0 * (double)facts.cache[2];
    double limit = facts.memory_free ? 0.5 * (double)facts.memory_free : wanted;
    if (wanted < 128e6) wanted = 128e6; /* where the cache's size is not known */
    if (wanted > limit) return 0;
    shape->batch = (int)(wanted / one) + 1;
    return 1;
}
