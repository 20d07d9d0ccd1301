/*
 * 08_device.c - attention on a GPU if there is one, else on the CPU: the same calls.
 *
 *     cc 08_device.c -lpolyhead -lm
 */
#include <polyhead.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, HEADS = 4, TOKENS = 300, DIM = 64 };
enum { COUNT = BATCH * HEADS * TOKENS * DIM };

static ph_ctx *open_somewhere(void)
{
    ph_ctx *ctx = NULL;
    char why[300] = "";
    ph_options gpu = {.device = PH_CUDA, .error = why, .error_size = sizeof why};
    if (ph_open(&ctx, &gpu) == PH_OK) return ctx;
    printf("on the CPU: %s\n", why);
    return ph_open(&ctx, NULL) == PH_OK ? ctx : NULL;
}

static int fail(const ph_ctx *ctx)
{
    fprintf(stderr, "%s\n", ph_error(ctx));
    return 1;
}

int main(void)
{
    static float host[COUNT];
    float *tensor[4]; /* q, k, v, out */
    ph_plan *plan = NULL;
    ph_ctx *ctx = open_somewhere();
    if (!ctx) return 1;
    ph_attn attn = {.batch = BATCH,
                    .q_heads = HEADS,
                    .q_len = TOKENS,
                    .kv_len = TOKENS,
                    .qk_dim = DIM,
                    .mask = PH_MASK_CAUSAL};
    if (ph_plan_create(&plan, ctx, &attn) != PH_OK) return fail(ctx);
    for (int t = 0; t < 4; t++) {
        void *memory = NULL;
        for (int i = 0; i < COUNT; i++) host[i] = (float)rand() / (float)RAND_MAX - 0.5f;
        if (ph_device_alloc(ctx, sizeof host, &memory) != PH_OK ||
            ph_device_copy(ctx, memory, host, sizeof host, NULL) != PH_OK)
            return fail(ctx);
        tensor[t] = memory;
    }
    ph_args args = {.q = tensor[0], .k = tensor[1], .v = tensor[2], .out = tensor[3]};
    if (ph_forward(plan, &args) != PH_OK || /* the work is in the stream now ... */
        ph_device_copy(ctx, host, tensor[3], sizeof host, NULL) != PH_OK ||
        ph_sync(ctx, NULL) != PH_OK) /* ... and done here */
        return fail(ctx);
    printf("%s: the first row of the first head begins with %.4f %.4f %.4f\n",
           ph_isa(ctx), (double)host[0], (double)host[1], (double)host[2]);
    for (int t = 0; t < 4; t++) ph_device_free(ctx, tensor[t]);
    ph_plan_free(plan);
    ph_close(ctx);
    return 0;
}
