/*
 * 10_ragged.c - sequences of different lengths in one call, without padding.
 *
 * Three sentences of 5, 2 and 9 tokens are side by side: tensors have 16 tokens and no
 * batch axis, and q_offsets says where each sentence begins. Every token sees the tokens
 * before it in its own sentence. The result has the bits of three calls, one for each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polyhead.h>

enum { SENTENCES = 3, TOKENS = 16, HEADS = 4, DIM = 8 };

static const int32_t offsets[SENTENCES + 1] = {0, 5, 7, TOKENS};
static float q[TOKENS][HEADS][DIM], k[TOKENS][HEADS][DIM], v[TOKENS][HEADS][DIM];
static float out[TOKENS][HEADS][DIM], alone[TOKENS][HEADS][DIM];

static void must(ph_status status, const ph_ctx *ctx)
{
    if (status == PH_OK) return;
    fprintf(stderr, "%s: %s\n", ph_status_text(status), ph_error(ctx));
    exit(1);
}

static void fill(float *x)
{
    for (int i = 0; i < TOKENS * HEADS * DIM; i++)
        x[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
}

static void run(ph_ctx *ctx, const ph_attn *attn, const ph_args *args)
{
    ph_plan *plan = NULL;
    must(ph_plan_create(&plan, ctx, attn), ctx);
    must(ph_forward(plan, args), ctx);
    ph_plan_free(plan);
}

int main(void)
{
    ph_ctx *ctx = NULL;
    must(ph_open(&ctx, NULL), ctx);
    srand(1);
    fill(&q[0][0][0]), fill(&k[0][0][0]), fill(&v[0][0][0]);

    const ph_strides tokens = {.head = DIM, .time = HEADS * DIM}; /* no batch axis */
    ph_attn attn = {.batch = SENTENCES,
                    .q_heads = HEADS,
                    .qk_dim = DIM,
                    .mask = PH_MASK_CAUSAL,
                    .q = tokens,
                    .k = tokens,
                    .v = tokens,
                    .out = tokens,
                    .ragged = PH_RAGGED_ALL,
                    .q_total = TOKENS,
                    .kv_total = TOKENS};
    ph_args args = {.q = q, .k = k, .v = v, .out = out, .q_offsets = offsets};
    run(ctx, &attn, &args);

    for (int s = 0; s < SENTENCES; s++) { /* the same, sentence by sentence */
        int first = offsets[s], len = offsets[s + 1] - first;
        ph_attn one = {.batch = 1, .q_heads = HEADS, .qk_dim = DIM};
        one.mask = PH_MASK_CAUSAL, one.q_len = one.kv_len = len;
        one.q = one.k = one.v = one.out = tokens;
        ph_args part = {.q = q[first], .k = k[first], .v = v[first], .out = alone[first]};
        run(ctx, &one, &part);
        printf("sentence %d: %d tokens from %d on\n", s, len, first);
    }
    int same = !memcmp(out, alone, sizeof out);
    printf("one call of %d tokens has %s bits\n", TOKENS, same ? "the same" : "other");
    ph_close(ctx);
    return !same;
}
