/*
 * help.h - texts that belong to no single command, shared by help and the man page.
 */
#ifndef PH_CLI_HELP_H
#define PH_CLI_HELP_H

#include "framework/cli.h"

#define CLI_DATE    "2026-11-15" /* of this version, for the manual page */
#define CLI_SUMMARY "multi-head attention: compute it, explain it, measure it"

/* Something `polyhead help NAME` tells; text is preformatted lines. */
typedef struct cli_topic {
    const char *name, *summary, *text;
} cli_topic;

extern const cli_topic cli_topics[]; /* ended by a NULL name */

/* "-o, --output OUT"; without a letter its place stays blank. */
void cli_option_spelling(const ph_option *option, char *buffer, size_t size);

#endif
