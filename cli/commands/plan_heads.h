/*
 * plan_heads.h - a plan of the live page as heads that are taken out of a model.
 */
#ifndef PH_CLI_PLAN_HEADS_H
#define PH_CLI_PLAN_HEADS_H

#include "framework/cli.h"
#include "polyhead_model.h"

#define PH_OPTION_PLAN(struct_name, field, text) \
    {.name = "plan", .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field), .help = text}

/* removed (ph_model_heads) gets 1 for heads that the plan switches off; one that gates or
   averages a head, or changes a link head, is refused. text: any that the model reads.
   Returns an exit code. */
int plan_removed(const char *plan, const ph_model *m, ph_ctx *ctx, const char *text,
                 uint8_t *removed);

/* Takes the heads of the plan out of the model. Returns an exit code. */
int plan_apply(const char *plan, ph_model *m, ph_ctx *ctx);

#endif
