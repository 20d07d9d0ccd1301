/*
 * json.h - writes one JSON value to stdout, indented, commas and escapes included.
 *
 *     json j = json_begin();           {
 *     json_text(&j, "name", "x");          "name": "x",
 *     json_open(&j, "list", '[');          "list": [
 *     json_int(&j, NULL, 1);                   1
 *     json_close(&j);                      ]
 *     json_end(&j);                    }
 *
 * Key NULL: inside a list. Reals are printed with the digits that bring the same number
 * back; what JSON cannot say (NaN, infinity) becomes null.
 */
#ifndef PH_CLI_JSON_H
#define PH_CLI_JSON_H

#include <stdint.h>

enum { JSON_DEPTH = 16 };

typedef struct json {
    int depth;
    char closer[JSON_DEPTH]; /* what ends each open level */
    char filled[JSON_DEPTH]; /* 1: the level has an entry already */
} json;

json json_begin(const char *schema); /* opens the object and writes "schema" */
void json_end(json *j);
void json_open(json *j, const char *key, char bracket); /* '{' or '[' */
void json_close(json *j);
void json_text(json *j, const char *key, const char *text); /* NULL: null */
void json_int(json *j, const char *key, int64_t value);
void json_real(json *j, const char *key, double value);
void json_float(json *j, const char *key, float value); /* fewer digits suffice */
void json_bool(json *j, const char *key, int value);

#endif
