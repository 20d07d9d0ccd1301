/*
 * json.c - the answer of a command as JSON; see json.h.
 */
#include <stdio.h>

#include "framework/json.h"

static ph_json_writer begin(const char *schema, int indent)
{
    ph_json_writer json = {
        .write = ph_json_write_file, .user = stdout, .indent = indent};
    ph_json_begin_object(&json, NULL);
    ph_json_string(&json, "schema", schema);
    return json;
}

ph_json_writer json_begin(const char *schema)
{
    return begin(schema, 2);
}

ph_json_writer json_begin_line(const char *schema)
{
    return begin(schema, 0);
}

void json_end(ph_json_writer *json)
{
    while (json->depth > 0) ph_json_end(json);
    putchar('\n');
}
