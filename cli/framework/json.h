/*
 * json.h - the answer of a command with --json: one object on stdout, which says its
 * schema first. What lies between is written with io/json_write.h.
 */
#ifndef PH_CLI_JSON_H
#define PH_CLI_JSON_H

#include "io/json_write.h"

ph_json_writer json_begin(const char *schema);
ph_json_writer json_begin_line(const char *schema); /* one of many, each on a line */
void json_end(ph_json_writer *json); /* closes all that is open */

#endif
