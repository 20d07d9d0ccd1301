// app.cpp - the same as app.c for somebody who writes C++: every public header must
// compile there, and its functions must link. test_install.sh makes public_headers.h.
#include <cmath>
#include <cstdio>

#include "public_headers.h"

int main()
{
    float q[2] = {1, 0}, k[4] = {0, 1, 0, -1}, v[4] = {1, 2, 3, 6}, out[2] = {0, 0};
    ph_attn attn = {};
    attn.batch = attn.q_heads = attn.q_len = 1;
    attn.kv_len = attn.qk_dim = 2;
    ph_args args = {};
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;

    ph_ctx *ctx = nullptr;
    ph_plan *plan = nullptr;
    ph_status status = ph_open(&ctx, nullptr);
    if (!status) status = ph_plan_create(&plan, ctx, &attn);
    if (!status) status = ph_forward(plan, &args);
    ph_plan_free(plan);
    ph_close(ctx);
    if (status || std::fabs(out[0] - 2) > 1e-6f || std::fabs(out[1] - 4) > 1e-6f) {
        std::fprintf(stderr, "status %d, got %g %g\n", status, out[0], out[1]);
        return 1;
    }
    std::printf("%s\n", ph_version());
    return 0;
}
