/*
 * jinja.h - an interpreter of the part of Jinja2 that chat templates use, with the output
 * of transformers: trim_blocks and lstrip_blocks are on, nothing is escaped, and what is
 * undefined prints nothing.
 *
 *     ph_jinja *j = ph_jinja_open(io, limit, today);
 *     ph_jinja_set(j, "bos_token", ph_jinja_string("<s>"));
 *     status = ph_jinja_render(j, template_text, &text, &length);   text lives with j
 *     ph_jinja_close(j);
 *
 * jinja_tokens.c and jinja_parse.c make a tree of a template, jinja.c evaluates it,
 * jinja_builtins.c and jinja_texts.c have filters, tests, methods and functions,
 * jinja_values.c and jinja_print.c what they are made of. A template
 * is untrusted: what is not known is refused when it is reached, with its line; depth,
 * output and work are bounded. All memory is taken from one pool and given back at once,
 * and values never change, except for namespaces.
 *
 * The first failure stays: after it every function returns at once, with an undefined
 * value, NULL or 0, so that callers look at j->status only where they loop.
 */
#ifndef PH_TEXT_JINJA_H
#define PH_TEXT_JINJA_H

#include <string.h>
#include <time.h>

#include "io/io.h"

typedef enum ph_jinja_kind {
    PH_JINJA_UNDEFINED = 0, /* text: the name that was looked up */
    PH_JINJA_NONE,
    PH_JINJA_BOOL,
    PH_JINJA_INT,
    PH_JINJA_FLOAT,
    PH_JINJA_TEXT,
    PH_JINJA_MARKUP, /* text that was declared safe: adding to it would escape */
    PH_JINJA_LIST,
    PH_JINJA_TUPLE,
    PH_JINJA_VIEW,      /* of a dict, or a range: iterable, has a length */
    PH_JINJA_GENERATOR, /* iterable once: items[length] says whether that was */
    PH_JINJA_DICT,      /* items: key, value, key, value, ... */
    PH_JINJA_NAMESPACE,
    PH_JINJA_LOOP,
    PH_JINJA_MACRO,
    PH_JINJA_FUNCTION
} ph_jinja_kind;

typedef struct ph_jinja_value {
    ph_jinja_kind kind;
    size_t length; /* bytes of a text, items of a list, pairs of a dict */
    union {
        int64_t integer;
        double real;
        const char *text;
        struct ph_jinja_value *items;
        struct ph_jinja_scope *scope; /* of a namespace */
        struct ph_jinja_loop *loop;
        const struct ph_jinja_macro *macro;
        const struct ph_jinja_builtin *function;
    };
} ph_jinja_value;

typedef struct ph_jinja_loop {
    const ph_jinja_value *items;
    size_t count, at;
} ph_jinja_loop;

typedef struct ph_jinja_variable {
    const char *name;
    size_t length;
    ph_jinja_value value;
    struct ph_jinja_variable *next;
} ph_jinja_variable;

typedef struct ph_jinja_scope {
    struct ph_jinja_scope *outer;
    ph_jinja_variable *variables;
} ph_jinja_scope;

/* A text that grows. */
typedef struct ph_jinja_buffer {
    char *text;
    size_t length, capacity;
} ph_jinja_buffer;

typedef struct ph_jinja {
    const ph_io *io;
    ph_status status;
    const char *source, *at; /* the template, and where it is being read or run */
    struct ph_jinja_chunk *chunks;
    size_t left;        /* bytes in the newest chunk */
    size_t work, limit; /* work that is left; bytes of a text, at most */
    int depth;
    ph_jinja_scope *scope;
    ph_jinja_buffer *out;
    int jump; /* PH_NODE_BREAK or PH_NODE_CONTINUE: on the way out of a loop's body */
    struct tm today;
} ph_jinja;

/* Chat templates write at most `limit` bytes, and work is bounded by a multiple of it. */
ph_jinja *ph_jinja_open(const ph_io *io, size_t limit, const struct tm *today);
void ph_jinja_close(ph_jinja *j);
void ph_jinja_set(ph_jinja *j, const char *name, ph_jinja_value value);
ph_status ph_jinja_render(ph_jinja *j, const char *template_text, const char **text,
                          size_t *length);

/* ---- jinja_values.c ---------------------------------------------------------------- */

/* PH_UNSUPPORTED, with a sentence that begins with the line; only the first counts. */
void ph_jinja_fail(ph_jinja *j, const char *format, ...) PH_IO_PRINTF(2, 3);
int ph_jinja_charge(ph_jinja *j, size_t work); /* 0: there is no more, or a failure */
int ph_jinja_enter(ph_jinja *j); /* one level deeper: 0, or j->depth-- afterwards */
void *ph_jinja_take(ph_jinja *j, size_t bytes); /* zeroed; NULL: failure */

static inline int ph_jinja_is(ph_jinja_value v, unsigned kinds)
{
    return (int)(kinds >> v.kind & 1);
}

#define PH_JINJA_TEXTS   (1u << PH_JINJA_TEXT | 1u << PH_JINJA_MARKUP)
#define PH_JINJA_WHOLE   (1u << PH_JINJA_BOOL | 1u << PH_JINJA_INT)
#define PH_JINJA_NUMBERS (PH_JINJA_WHOLE | 1u << PH_JINJA_FLOAT)
#define PH_JINJA_ARRAYS  (1u << PH_JINJA_LIST | 1u << PH_JINJA_TUPLE)

ph_jinja_value ph_jinja_undefined(const char *name, size_t length);
ph_jinja_value ph_jinja_bool(int truth);
ph_jinja_value ph_jinja_int(int64_t integer);
ph_jinja_value ph_jinja_string(const char *text); /* not copied */
ph_jinja_value ph_jinja_text(const char *text, size_t length);
ph_jinja_value ph_jinja_items(ph_jinja *j, ph_jinja_kind kind,
                              size_t length); /* none yet */
ph_jinja_value ph_jinja_pair(ph_jinja *j, ph_jinja_value first, ph_jinja_value second);

const char *ph_jinja_name(ph_jinja_value v); /* of its kind, for sentences */
int ph_jinja_says(ph_jinja_value v, const char *text);

void ph_jinja_add(ph_jinja *j, ph_jinja_buffer *to, const char *text, size_t length);
ph_jinja_value ph_jinja_taken(const ph_jinja_buffer *from);

/* The length of the white space at text, or before end; 0: none is there. */
size_t ph_jinja_space(const char *text, const char *end);
size_t ph_jinja_space_before(const char *text, const char *end);

/* A variable of this very scope, or NULL. */
ph_jinja_variable *ph_jinja_find(ph_jinja *j, ph_jinja_scope *scope, const char *name,
                                 size_t length);
void ph_jinja_bind(ph_jinja *j, ph_jinja_scope *scope, const char *name, size_t length,
                   ph_jinja_value value);

int ph_jinja_truth(ph_jinja_value v);
int ph_jinja_equal(ph_jinja *j, ph_jinja_value a, ph_jinja_value b);
int ph_jinja_order(ph_jinja *j, ph_jinja_value a, ph_jinja_value b); /* <0, 0, >0 */
void ph_jinja_sort(ph_jinja *j, ph_jinja_value list, ph_jinja_value keys, int reverse);
int ph_jinja_contains(ph_jinja *j, ph_jinja_value in, ph_jinja_value what);
const char *ph_jinja_search(ph_jinja *j, ph_jinja_value in, ph_jinja_value what);
const ph_jinja_value *ph_jinja_get(ph_jinja *j, ph_jinja_value dict, ph_jinja_value key);
ph_jinja_value ph_jinja_member(ph_jinja *j, ph_jinja_value of, ph_jinja_value key,
                               int attribute);
size_t ph_jinja_length(ph_jinja *j, ph_jinja_value v);
ph_jinja_value ph_jinja_list(ph_jinja *j, ph_jinja_value v); /* what a loop runs over */
ph_jinja_value ph_jinja_slice(ph_jinja *j, ph_jinja_value of, const ph_jinja_value at[3]);

/* jinja_print.c: str(v), repr(v) where `quoted`, and json.dumps. */
typedef struct ph_jinja_json {
    int indent; /* -1: on one line */
    int ascii, sorted;
    ph_jinja_value comma, colon;
} ph_jinja_json;

void ph_jinja_print(ph_jinja *j, ph_jinja_buffer *to, ph_jinja_value v, int quoted);
ph_jinja_value ph_jinja_str(ph_jinja *j, ph_jinja_value v);
void ph_jinja_dump(ph_jinja *j, ph_jinja_buffer *to, ph_jinja_value v,
                   const ph_jinja_json *how, int level);

/* ---- jinja_parse.c ----------------------------------------------------------------- */

typedef enum ph_jinja_op {
    PH_OP_OR,
    PH_OP_AND,
    PH_OP_EQUAL,
    PH_OP_UNEQUAL,
    PH_OP_LESS,
    PH_OP_AT_MOST,
    PH_OP_GREATER,
    PH_OP_AT_LEAST,
    PH_OP_IN,
    PH_OP_NOT_IN,
    PH_OP_ADD,
    PH_OP_SUBTRACT,
    PH_OP_CONCAT,
    PH_OP_MULTIPLY,
    PH_OP_DIVIDE,
    PH_OP_FLOOR,
    PH_OP_MODULO
} ph_jinja_op;

typedef enum ph_jinja_node_kind {
    PH_NODE_CONSTANT = 1, /* value */
    PH_NODE_NAME,
    PH_NODE_LIST,
    PH_NODE_TUPLE,
    PH_NODE_DICT,
    PH_NODE_ITEM, /* a: of a list or tuple, or an argument (called text); b of a dict */
    PH_NODE_ATTRIBUTE, /* a.text */
    PH_NODE_INDEX,     /* a[b] */
    PH_NODE_SLICE,     /* a[b:c:d] */
    PH_NODE_CALL,      /* a(items b); c: the macro `caller` */
    PH_NODE_FILTER,    /* a | text(items b) */
    PH_NODE_TEST,      /* a is text(items b) */
    PH_NODE_NOT,
    PH_NODE_MINUS,
    PH_NODE_BINARY,  /* a op b */
    PH_NODE_CHOICE,  /* b if a else c */
    PH_NODE_CAPTURE, /* what body writes, in a scope of its own */
    PH_NODE_DATA,    /* statements from here: a text */
    PH_NODE_PRINT,   /* a */
    PH_NODE_IF,      /* a: body, else other */
    PH_NODE_FOR,     /* a in b if c: body, else other */
    PH_NODE_SET,     /* a = b */
    PH_NODE_MACRO,   /* text(items b): body */
    PH_NODE_BREAK,
    PH_NODE_CONTINUE
} ph_jinja_node_kind;

typedef struct ph_jinja_node {
    ph_jinja_node_kind kind;
    ph_jinja_op op;
    const char *at; /* in the template */
    const char *text;
    size_t length;
    ph_jinja_value value;
    struct ph_jinja_node *a, *b, *c, *d, *body, *other;
    struct ph_jinja_node *next;
} ph_jinja_node;

/* The statements of a template, whose newlines are \n alone. */
ph_jinja_node *ph_jinja_parse(ph_jinja *j, const char *text, size_t length);

/* ---- jinja_builtins.c -------------------------------------------------------------- */

enum { PH_JINJA_SLOTS = 5 };

typedef struct ph_jinja_argument {
    const char *name; /* NULL: by position */
    size_t length;
    ph_jinja_value value;
} ph_jinja_argument;

typedef struct ph_jinja_arguments {
    ph_jinja_argument *all;
    size_t count;
    const ph_jinja_value *slot[PH_JINJA_SLOTS]; /* by the names of a builtin; or NULL */
} ph_jinja_arguments;

typedef struct ph_jinja_builtin {
    const char *name;
    const char *parameters; /* names with commas between them; "*": any, not bound */
    int needed;             /* so many have no default */
    ph_jinja_value (*run)(ph_jinja *j, ph_jinja_value v, const ph_jinja_arguments *a);
} ph_jinja_builtin;

/* Those of texts, and what they share with others: jinja_texts.c. */
extern const ph_jinja_builtin ph_jinja_text_filters[], ph_jinja_text_methods[];
ph_jinja_value ph_jinja_slot(const ph_jinja_arguments *a, int i, ph_jinja_value fallback);
ph_jinja_value ph_jinja_need_text(ph_jinja *j, ph_jinja_value v);
int64_t ph_jinja_need_int(ph_jinja *j, ph_jinja_value v);
ph_jinja_value ph_jinja_lower(ph_jinja *j, ph_jinja_value text);
ph_jinja_value ph_jinja_join_method(ph_jinja *j, ph_jinja_value v,
                                    const ph_jinja_arguments *a);

ph_jinja_value ph_jinja_filter(ph_jinja *j, ph_jinja_value name, ph_jinja_value v,
                               ph_jinja_arguments *a);
int ph_jinja_test(ph_jinja *j, ph_jinja_value name, ph_jinja_value v,
                  ph_jinja_arguments *a);
ph_jinja_value ph_jinja_method(ph_jinja *j, ph_jinja_value name, ph_jinja_value v,
                               ph_jinja_arguments *a);
ph_jinja_value ph_jinja_call(ph_jinja *j, const ph_jinja_builtin *function,
                             ph_jinja_arguments *a);
ph_jinja_value ph_jinja_function(const char *name, size_t length);

ph_jinja_value ph_jinja_compute(ph_jinja *j, ph_jinja_op op, ph_jinja_value a,
                                ph_jinja_value b); /* jinja.c */

#endif
