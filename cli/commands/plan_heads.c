/*
 * plan_heads.c - a plan of the live page as heads that are taken out of a model.
 */
#include "commands/plan_heads.h"

#include <stdlib.h>

#include "polyhead_prune.h"
#include "polyhead_scene.h"

/* Heads of a plan must be off: a gate or a mean is no removal. */
static int take_heads(const char *path, const ph_prune *plan, int heads, uint8_t *removed)
{
    for (int i = 0; i < plan->count; i++) {
        int off = plan->ablation[i] == PH_HEAD_ZERO;
        if (plan->ablation[i] == PH_HEAD_MEAN || plan->gates[i] < 1 ||
            (off && i >= heads))
            return cli_fail(EXIT_BAD_INPUT,
                            "'%s' gates or averages a head, or changes a link head, "
                            "expected heads that are off",
                            path);
        if (off) removed[i] = 1;
    }
    return EXIT_OK;
}

int plan_removed(const char *path, const ph_model *m, ph_ctx *ctx, const char *text,
                 uint8_t *removed)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    ph_reading *reading = NULL;
    ph_prune plan;
    ph_status status = ph_reading_create(&reading, m, text, NULL);
    if (status != PH_OK) return cli_fail_status(status, ctx);
    status = ph_prune_read(&plan, path, reading, &io);
    int rc = cli_result(status, error);
    if (!rc) rc = take_heads(path, &plan, ph_model_heads(m), removed);
    if (status == PH_OK) ph_prune_free(&plan, &io);
    ph_reading_free(reading);
    return rc;
}

int plan_apply(const char *path, ph_model *m, ph_ctx *ctx)
{
    uint8_t *removed = calloc((size_t)ph_model_heads(m) + 1, 1);
    if (!removed) return cli_fail(EXIT_MEMORY, "out of memory for a plan");
    int rc = plan_removed(path, m, ctx, "a", removed);
    if (!rc) rc = cli_fail_status(ph_model_own(m), ctx);
    if (!rc) rc = cli_fail_status(ph_model_remove(m, removed), ctx);
    free(removed);
    return rc;
}
