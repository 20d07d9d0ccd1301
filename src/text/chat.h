/*
 * chat.h - how a message of a user becomes the prompt of a chat model.
 *
 * Published models carry a template in a language of its own. It is not run: chat.c reads
 * what it writes around the only message of a user, statement by statement, and a
 * statement that it does not know is refused, with its text, wherever it could matter.
 */
#ifndef PH_TEXT_CHAT_H
#define PH_TEXT_CHAT_H

#include "io/io.h"

/* A family of templates. */
typedef struct ph_chat {
    const char *name; /* "chatml" */
    const char *mark; /* that a template of this family contains */
    const char *end;  /* token that ends an answer */
} ph_chat;

#define PH_CHAT_NAMES "chatml, llama3, gemma, phi3, zephyr, llama2 or mistral"

/* The family of a template, or NULL. */
const ph_chat *ph_chat_find(const char *template_text);

typedef struct ph_chat_request {
    const char *template_text, *message;
    const char *bos, *eos; /* texts of these tokens, or NULL: the tokenizer has none */
} ph_chat_request;

/* *prompt, which ph_io_release gives back, is what the template makes of the message.
   PH_UNSUPPORTED: with a sentence that has the statement that is not known. */
ph_status ph_chat_print(const ph_chat_request *request, char **prompt, const ph_io *io);

#endif
