/*
 * 04_decode.c - text generation: one token at a time against a cache of keys and values.
 *
 * One thing is new here: kv_lens. The plan is made once for the capacity of the cache;
 * each call says how much of it is filled, so a step costs no planning and no copying. 8
 * query heads share 2 key heads, which are read once for all of them. The rows come out
 * with the very bits that one call over the whole prompt gives; the program checks that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polyhead.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 32, CAPACITY = 1024, TIME = 700 };

static float k_cache[KV_HEADS][CAPACITY][DIM], v_cache[KV_HEADS][CAPACITY][DIM];
static float q[TIME][HEADS][DIM], whole[TIME][HEADS][DIM], steps[TIME][HEADS][DIM];

static void must(ph_status status, const ph_ctx *ctx)
{
    if (status == PH_OK) return;
    fprintf(stderr, "%s: %s\n", ph_status_text(status), ph_error(ctx));
    exit(1);
}

static void fill(float *x, int count)
{
    for (int i = 0; i < count; i++) x[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
}

/* Rows of q_len tokens at the end of what the cache holds; the cache is packed. */
static ph_plan *make_plan(ph_ctx *ctx, int q_len)
{
    ph_plan *plan = NULL;
    const ph_strides rows = {
        .batch = TIME * HEADS * DIM, .head = DIM, .time = HEADS * DIM};
    const ph_attn attn = {.batch = 1,
                          .q_heads = HEADS,
                          .k_heads = KV_HEADS,
                          .v_heads = KV_HEADS,
                          .q_len = q_len,
                          .kv_len = CAPACITY,
                          .qk_dim = DIM,
                          .q = rows,
                          .out = rows,
                          .mask = PH_MASK_CAUSAL,
                          .anchor = PH_ANCHOR_END};
    must(ph_plan_create(&plan, ctx, &attn), ctx);
    return plan;
}

int main(void)
{
    ph_ctx *ctx = NULL;
    int32_t filled = 0; /* keys in the cache */
    srand(1);
    fill(&q[0][0][0], TIME * HEADS * DIM);
    must(ph_open(&ctx, NULL), ctx);

    /* One token after the other. */
    ph_plan *one = make_plan(ctx, 1);
    for (int t = 0; t < TIME; t++) {
        for (int h = 0; h < KV_HEADS; h++)
            fill(k_cache[h][t], DIM), fill(v_cache[h][t], DIM);
        filled++;
        const ph_args args = {
            .q = q[t], .k = k_cache, .v = v_cache, .out = steps[t], .kv_lens = &filled};
        must(ph_forward(one, &args), ctx);
    }

    /* The whole prompt at once, from the same cache. */
    ph_plan *all = make_plan(ctx, TIME);
    const ph_args args = {
        .q = q, .k = k_cache, .v = v_cache, .out = whole, .kv_lens = &filled};
    must(ph_forward(all, &args), ctx);

    int same = !memcmp(whole, steps, sizeof whole);
    printf("%d tokens, one at a time and at once: %s\n", TIME,
           same ? "same bits" : "DIFFERENT bits");
    ph_plan_free(one);
    ph_plan_free(all);
    ph_close(ctx);
    return same ? 0 : 1;
}
