/*
 * chat_values.h - what an expression of a chat template is worth where the conversation
 * is one message of a user, without tools and documents, and an answer is asked for.
 */
#ifndef PH_TEXT_CHAT_VALUES_H
#define PH_TEXT_CHAT_VALUES_H

#include <stddef.h>

typedef enum ph_chat_kind {
    PH_CHAT_UNKNOWN = 0, /* something that is not understood here */
    PH_CHAT_UNDEFINED,
    PH_CHAT_NONE,
    PH_CHAT_BOOL,
    PH_CHAT_NUMBER,
    PH_CHAT_TEXT,
    PH_CHAT_MESSAGE,  /* the only one */
    PH_CHAT_MESSAGES, /* the list of it */
    PH_CHAT_EMPTY     /* an empty list */
} ph_chat_kind;

/* In a text the message of the user is one byte, as is the message without white space
   around it. */
enum { PH_CHAT_CONTENT = 1, PH_CHAT_TRIMMED = 2 };

typedef struct ph_chat_value {
    ph_chat_kind kind;
    int number; /* of BOOL, NUMBER */
    const char *text;
    size_t length;
} ph_chat_value;

typedef struct ph_chat_variable {
    char name[64];
    ph_chat_value value;
} ph_chat_variable;

enum { PH_CHAT_VARIABLES = 64, PH_CHAT_DEPTH = 48 };

/* Variables of a template, and memory for texts, which is never given back before all of
   it. */
typedef struct ph_chat_scope {
    const char *bos, *eos; /* texts of these tokens, or NULL */
    ph_chat_variable variables[PH_CHAT_VARIABLES];
    int count;
    char loop[64]; /* the name of a message in its loop */
    char *memory;
    size_t used, size;
} ph_chat_scope;

/* The value of [text, text + length); what cannot be understood is UNKNOWN. */
ph_chat_value ph_chat_evaluate(ph_chat_scope *scope, const char *text, size_t length);

/* 1, 0, or -1: not known. */
int ph_chat_truth(const ph_chat_value *value);

/* Gives a variable a value; it is dropped where there are too many. */
void ph_chat_set(ph_chat_scope *scope, const char *name, size_t length,
                 ph_chat_value value);

#endif
