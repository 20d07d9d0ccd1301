/*
 * drive.c - contexts and calls of the engine for the tests; see judge.h.
 */
#include <stdio.h>
#include <string.h>

#include "guard.h"
#include "judge.h"

/* Every ctx opened so far, by instruction set and threads. */
static struct {
    char isa[16];
    int threads;
    ph_ctx *ctx;
} kept[64];
static int kept_count;

ph_device drive_device = PH_CPU;

const char *const *drive_isas(void)
{
    static const char *const accelerator[] = {"sm90", NULL};
    return drive_device == PH_CPU ? ph_isa_list() : accelerator;
}

ph_ctx *drive_ctx(const char *isa, int threads)
{
    for (int n = 0; n < kept_count; n++)
        if (!strcmp(kept[n].isa, isa ? isa : "") && kept[n].threads == threads)
            return kept[n].ctx;
    ph_options options = guard_options(drive_device == PH_CPU ? isa : NULL, threads);
    options.device = drive_device;
    ph_ctx *ctx = NULL;
    if (kept_count == 64 || ph_open(&ctx, &options) != PH_OK) return NULL;
    snprintf(kept[kept_count].isa, sizeof kept[0].isa, "%s", isa ? isa : "");
    kept[kept_count].threads = threads;
    kept[kept_count++].ctx = ctx;
    return ctx;
}

void drive_close(void)
{
    for (int n = 0; n < kept_count; n++) ph_close(kept[n].ctx);
    kept_count = 0;
}

typedef ph_status call(const ph_plan *plan, problem *p);

static ph_status with_plan(ph_ctx *ctx, problem *p, call *run)
{
    ph_plan *plan = NULL;
    ph_status status = ph_plan_create(&plan, ctx, &p->attn);
    if (status == PH_OK) status = run(plan, p);
    ph_plan_free(plan);
    return status;
}

static ph_status forward(const ph_plan *plan, problem *p)
{
    return ph_forward(plan, &p->args);
}

static ph_status look(const ph_plan *plan, problem *p)
{
    return ph_look(plan, &p->args);
}

static ph_status backward(const ph_plan *plan, problem *p)
{
    ph_status status = ph_forward(plan, &p->args);
    return status == PH_OK ? ph_backward(plan, &p->args, &p->grads) : status;
}

ph_status drive_forward(ph_ctx *ctx, problem *p)
{
    if (drive_device != PH_CPU) return device_run(ctx, p, 0);
    return with_plan(ctx, p, forward);
}

ph_status drive_look(ph_ctx *ctx, problem *p)
{
    return with_plan(ctx, p, look);
}

ph_status drive_backward(ph_ctx *ctx, problem *p)
{
    if (drive_device != PH_CPU) return device_run(ctx, p, 1);
    return with_plan(ctx, p, backward);
}
