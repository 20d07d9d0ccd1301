/*
 * section_json.h - what every writer of a tokenizer.json needs: memory that a JSON writer
 * fills, and the section of the tokens around a text.
 */
#ifndef PH_TEXT_SECTION_JSON_H
#define PH_TEXT_SECTION_JSON_H

#include "io/io.h"
#include "io/json_write.h"

/* Ends with NUL; ph_io_release gives bytes back. Use: {.write = ph_json_text_append}. */
typedef struct ph_json_text {
    const ph_io *io;
    char *bytes;
    size_t length, capacity;
    ph_status status; /* PH_OUT_OF_MEMORY: it is not whole */
} ph_json_text;

void ph_json_text_append(void *text, const char *bytes, size_t count);

enum { PH_TEMPLATE_BEFORE = 4 };

typedef struct ph_template_mark {
    const char *text;
    int64_t id;
} ph_template_mark;

typedef struct ph_template_marks {
    ph_template_mark before[PH_TEMPLATE_BEFORE], after; /* after.text NULL: none */
    int count;                                          /* of `before` */
    int around_both; /* around each text of a pair, not around both together */
    int second_type; /* token type of the second text */
} ph_template_marks;

void ph_json_template(ph_json_writer *out, const ph_template_marks *marks);

#endif
