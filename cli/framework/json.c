/*
 * json.c - the answer of a command as JSON; see json.h.
 */
#include <stdio.h>

#include "framework/json.h"

ph_json_writer json_begin(const char *schema)
{
    ph_json_writer json = {.write = ph_json_write_file, .user = stdout, .indent = 2};
    ph_json_begin_object(&json, NULL);
    ph_json_string(&json, "schema", schema);
    return json;
}

void json_end(ph_json_writer *json)
{
    while (json->depth > 0) ph_json_end(json);
    putchar('\n');
}
