/*
 * gemm_bench.h - what test_gemm and its bench share: contexts without the engine, and
 * workspaces that end at an unmapped page.
 */
#ifndef GEMM_BENCH_H
#define GEMM_BENCH_H

#include "kernels/gemm.h"
#include "kernels/kernels.h"

ph_ctx gemm_ctx_new(const ph_kernels *kernels, int threads);
void gemm_ctx_free(ph_ctx *ctx);
ph_workspace gemm_workspace(const ph_ctx *ctx, const ph_gemm *list, int count);

int gemm_bench(int argc, char **argv);

#endif
