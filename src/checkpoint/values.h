/*
 * values.h - what a checkpoint says about itself: keys with values of a type.
 *
 * The same for config.json and the metadata of GGUF, so that an architecture asks one
 * way. JSON is flattened: {"rope": {"type": "linear"}, "eos": [1, 2]} has the keys
 * rope.type, eos, eos.0 and eos.1. Absent and null differ: a key that is absent takes
 * the default of its architecture, null switches something off.
 */
#ifndef PH_CHECKPOINT_VALUES_H
#define PH_CHECKPOINT_VALUES_H

#include "io/io.h"

typedef enum ph_value_kind {
    PH_VALUE_NULL = 0,
    PH_VALUE_BOOL,
    PH_VALUE_NUMBER,
    PH_VALUE_TEXT,
    PH_VALUE_LIST,
    PH_VALUE_OBJECT
} ph_value_kind;

typedef struct ph_value {
    const char *key;
    ph_value_kind kind;
    double number;    /* PH_VALUE_NUMBER; PH_VALUE_BOOL: 0 or 1 */
    const char *text; /* PH_VALUE_TEXT, ended by NUL */
    size_t length;    /* its bytes */

    size_t count;               /* PH_VALUE_LIST: items */
    const unsigned char *items; /* a GGUF list, in place in the file; NULL: JSON */
    int item_type;              /* of GGUF */
} ph_value;

typedef struct ph_values {
    ph_io io; /* hooks */
    ph_value *list;
    size_t count, capacity;
    char **texts; /* memory of keys and texts */
    size_t text_count, text_capacity;
    void (*asked)(const char *key); /* is told each key that is looked for; may be NULL */
} ph_values;

void ph_values_free(ph_values *values); /* accepts a cleared one */

/* Reads a JSON document of at most PH_VALUES_JSON bytes; name stands in sentences. Keys
   become prefix + path. After one or more calls, ph_values_sort. */
enum { PH_VALUES_JSON = 4 << 20 };
ph_status ph_values_read(ph_values *values, const char *name, const char *prefix,
                         const char *bytes, size_t size, const ph_io *io);

/* Whether the document that begins with value `first` is of that kind, an object or a
   list; path stands in the sentence. */
ph_status ph_values_check_root(const ph_values *values, size_t first, ph_value_kind kind,
                               const char *path, const ph_io *io);

/* Adds a copy of a value; key and text (of `length` bytes) are copied. */
ph_status ph_values_add(ph_values *values, const ph_value *value, const ph_io *io);

/* Makes keys findable; a key that exists twice is refused. */
ph_status ph_values_sort(ph_values *values, const char *name, const ph_io *io);

const ph_value *ph_values_find(const ph_values *values, const char *key); /* or NULL */

/* What stands around a key and cannot hold anything: in "rope": 7 the key rope.type is
   absent, but not because it was left out. NULL: nothing of the kind. */
const ph_value *ph_values_around(const ph_values *values, const char *key);

/* A value as a sentence shows it. */
ph_io_quoted ph_value_show(const ph_value *value);

/* A key as a sentence names it: the file beside config.json that it stands in, and the
   field there. */
typedef struct ph_value_name {
    char text[192];
} ph_value_name;

ph_value_name ph_value_field(const char *key);

/* Item i of a list of JSON, or of numbers and booleans of GGUF; 0: there is none. */
int ph_values_item(const ph_values *values, const ph_value *list, size_t i,
                   ph_value *out);

#endif
