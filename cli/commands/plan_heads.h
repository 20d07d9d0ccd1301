/*
 * plan_heads.h - heads that are taken out of a model: by a plan of the live page, or by
 * descriptors as published pruning code writes them.
 */
#ifndef PH_CLI_PLAN_HEADS_H
#define PH_CLI_PLAN_HEADS_H

#include "framework/cli.h"
#include "polyhead_model.h"

#define PH_OPTION_PLAN(struct_name, field, text) \
    {.name = "plan", .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field), .help = text}

/* removed (ph_model_heads) gets 1 for heads that the plan switches off; one that gates or
   averages a head, or changes the pointer, is refused. Returns an exit code. */
int plan_removed(const char *plan, const ph_model *m, ph_ctx *ctx, uint8_t *removed);

/* Takes the heads that are off out of the model, and gates others. Returns an exit
   code. */
int plan_apply(const char *plan, ph_model *m, ph_ctx *ctx);

/* The same of descriptors with spaces between them, "E:1:2,3 A:2:1": encoder, cross-
   attention and decoder, LAYER:HEAD,HEAD alone where there is one stack, from 1 on. */
int listed_removed(const char *list, const ph_model *m, uint8_t *removed);

#endif
