/*
 * ignored_settings.c - what a checkpoint says of generating texts and nobody obeys.
 */
#include "commands/ignored_settings.h"

#include "framework/cli.h"

void warn_ignored_settings(const ph_model *m)
{
    if (ph_model_ignored(m))
        cli_warn("the checkpoint also sets %s, which count for nothing here: "
                 "transformers may write another text",
                 ph_model_ignored(m));
}
