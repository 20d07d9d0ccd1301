/*
 * ignored_settings.h - what a checkpoint says of generating texts and nobody obeys.
 */
#ifndef PH_CLI_IGNORED_SETTINGS_H
#define PH_CLI_IGNORED_SETTINGS_H

#include "polyhead_model.h"

/* Warns once of settings under which transformers would choose other tokens. */
void warn_ignored_settings(const ph_model *m);

#endif
