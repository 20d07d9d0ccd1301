/*
 * fields.h - structs as JSON objects: a table names each field, its type and its
 * limits.
 */
#ifndef PH_MODEL_FIELDS_H
#define PH_MODEL_FIELDS_H

#include "base/ctx.h"

typedef enum ph_field_kind {
    PH_FIELD_INT,  /* int */
    PH_FIELD_BOOL, /* int */
    PH_FIELD_OLDER, /* int; a bool of older files for 0 and 1, never written */
    PH_FIELD_NOT,  /* int; true is stored as 0 */
    PH_FIELD_REAL, /* float */
    PH_FIELD_WIDE, /* uint64_t */
    PH_FIELD_NAME, /* int, its index among the names */
    PH_FIELD_SET,  /* int, bits of the names that are left out, up to `most`: true is all,
                      false none, else an array of the names */
    PH_FIELD_REALS, /* float[most]; zeros at the end are left out, and so is an array of
                       zeros */
    PH_FIELD_TEXT, /* char[most]; an array of strings is joined by ';'; "" is left out */
    PH_FIELD_PATH  /* char[most] of any bytes; what JSON cannot hold is percent-encoded */
} ph_field_kind;

enum { PH_FIELD_PATH_MOST = 1024 };

typedef struct ph_field {
    const char *name;
    ph_field_kind kind;
    size_t at;
    int least, most;          /* PH_FIELD_INT: limits; PH_FIELD_TEXT, _REALS: capacity */
    const char *const *names; /* PH_FIELD_NAME, ended by NULL */
} ph_field;

/* JSON text of the struct at base, like snprintf. */
int ph_fields_print(const ph_field *fields, int count, const void *base, char *text,
                    size_t size);

/* Sets the fields that the JSON `text` names; it is parsed in place. `what` names it in
   errors. */
ph_status ph_fields_read(ph_ctx *ctx, const char *what, const ph_field *fields, int count,
                         void *base, char *text, size_t length);

/* Checks integers and names against their limits. */
ph_status ph_fields_check(ph_ctx *ctx, const ph_field *fields, int count,
                          const void *base);

#endif
