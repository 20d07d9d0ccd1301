/*
 * run_layer.c - layer mode of `polyhead run`: x and the weights of a layer.
 */
#include "run.h"

const char *const run_layer_names[] = {
    "x",    "memory", "wq",     "wk",     "wv",   "wo",      "bq",     "bk",
    "bv",   "bo",     "q_norm", "k_norm", "bias", "visible", "q_lens", "kv_lens",
    "gate", "sink",   "alibi",  "dout",   "dlse", NULL};

int run_layer(run_job *job)
{
    int rc = run_check_names(job, "layer mode", run_layer_names);
    if (rc) return rc;
    return cli_fail(EXIT_UNSUPPORTED,
                    "%s: tensor 'x' asks for layer mode, which this build "
                    "does not have; expected q, k and v",
                    job->path);
}
