/*
 * app.c - a program of somebody who has installed Polyhead.
 *
 * One query, two keys with equal scores: the output is the mean of the two values.
 * Uses nothing but the public headers. Exit status 0 and the version on stdout if all is
 * well; else a sentence on stderr.
 */
#include <math.h>
#include <stdio.h>

#include <polyhead.h>

int main(void)
{
    float q[2] = {1, 0}, k[4] = {0, 1, 0, -1}, v[4] = {1, 2, 3, 6}, out[2] = {0, 0};
    ph_attn attn = {.batch = 1, .q_heads = 1, .q_len = 1, .kv_len = 2, .qk_dim = 2};
    ph_args args = {.q = q, .k = k, .v = v, .out = out};
    char refused[200] = "";
    ph_options options = {.threads = 1, .error = refused, .error_size = sizeof refused};
    ph_ctx *ctx = NULL;
    ph_plan *plan = NULL;

    ph_status status = ph_open(&ctx, &options);
    if (!status) status = ph_plan_create(&plan, ctx, &attn);
    if (!status) status = ph_forward(plan, &args);
    if (status) {
        const char *sentence = ctx ? ph_error(ctx) : refused;
        fprintf(stderr, "%s: %s\n", ph_status_text(status), sentence);
    }
    ph_plan_free(plan);
    ph_close(ctx);
    if (status) return 1;

    if (fabsf(out[0] - 2) > 1e-6f || fabsf(out[1] - 4) > 1e-6f) {
        fprintf(stderr, "got %g %g, expected 2 4\n", out[0], out[1]);
        return 1;
    }
    printf("%s\n", ph_version());
    return 0;
}
