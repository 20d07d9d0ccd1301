/*
 * json_write.h - the JSON writer of the library and of the program.
 *
 *     ph_json_writer json = {.write = ph_json_write_file, .user = stdout, .indent = 2};
 *     ph_json_begin_object(&json, NULL);          {
 *     ph_json_string(&json, "name", "x");           "name": "x",
 *     ph_json_begin_array(&json, "list");           "list": [
 *     ph_json_integer(&json, NULL, 1);                1
 *     ph_json_end(&json);                           ]
 *     ph_json_end(&json);                         }
 *
 * Always valid: unsafe characters (unsafe.h) are escaped, bytes that are no UTF-8 become
 * U+FFFD, numbers have the fewest digits that read back as the same bits, NaN and
 * infinity become null. `key` is NULL inside arrays and for the outermost value. At most
 * 64 levels.
 */
#ifndef PH_IO_JSON_WRITE_H
#define PH_IO_JSON_WRITE_H

#include <stddef.h>
#include <stdint.h>

typedef struct ph_json_writer {
    void (*write)(void *user, const char *bytes, size_t count);
    void *user;
    int indent;      /* blanks per level; 0: all on one line */
    int in_html;     /* 1: <, > and & are escaped too, so no text can end a script */
    int depth;       /* open brackets; 0 at the start */
    int comma;       /* 1: the next value needs a comma in front */
    uint64_t arrays; /* bit per level: 1 array, 0 object */
} ph_json_writer;

void ph_json_write_file(void *file, const char *bytes, size_t count); /* a FILE */

void ph_json_begin_object(ph_json_writer *out, const char *key);
void ph_json_begin_array(ph_json_writer *out, const char *key);
void ph_json_end(ph_json_writer *out); /* the innermost object or array */
void ph_json_string(ph_json_writer *out, const char *key,
                    const char *text); /* NULL: null */
void ph_json_integer(ph_json_writer *out, const char *key, int64_t value);
void ph_json_unsigned(ph_json_writer *out, const char *key, uint64_t value);
void ph_json_double(ph_json_writer *out, const char *key, double value);
void ph_json_float(ph_json_writer *out, const char *key, float value);
void ph_json_raw(ph_json_writer *out, const char *key,
                 const char *json); /* one value, JSON already */
void ph_json_bool(ph_json_writer *out, const char *key, int value);

#endif
