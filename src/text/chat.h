/*
 * chat.h - how a message of a user becomes the prompt of a chat model: by the template
 * that its checkpoint carries, a program in Jinja (jinja.h).
 */
#ifndef PH_TEXT_CHAT_H
#define PH_TEXT_CHAT_H

#include <time.h>

#include "io/io.h"

/* A family of templates. */
typedef struct ph_chat {
    const char *name; /* "chatml" */
    const char *mark; /* that a template of this family contains */
    const char *end;  /* token that ends an answer */
} ph_chat;

/* The family of a template; NULL: only the end tokens of the model end an answer. */
const ph_chat *ph_chat_find(const char *template_text);

/* Tokens that templates write by name. */
enum { PH_CHAT_BOS, PH_CHAT_EOS, PH_CHAT_PAD, PH_CHAT_UNK, PH_CHAT_TOKENS };
extern const char *const ph_chat_names[PH_CHAT_TOKENS]; /* bos_token, ... */

typedef struct ph_chat_request {
    const char *template_text, *message;
    const char *system;     /* a message of a system before it, or NULL */
    const char *tokens[PH_CHAT_TOKENS]; /* their texts; NULL: the tokenizer has none */
    const struct tm *today; /* or NULL: local time */
} ph_chat_request;

/* *prompt, which ph_io_release gives back, is what the template makes of a conversation
   of these messages, without tools and documents, where an answer is asked for.
   PH_UNSUPPORTED: with a sentence that has the line and what is not known there, or what
   the template raises. */
ph_status ph_chat_print(const ph_chat_request *request, char **prompt, const ph_io *io);

#endif
