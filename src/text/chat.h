/*
 * chat.h - how a message of a user becomes the prompt of a chat model.
 *
 * Published models carry a template in a language of its own. The common ones belong to
 * a few families, which are recognised by the marks they contain; a family is a row of
 * a table, not a program that a file brings along.
 */
#ifndef PH_TEXT_CHAT_H
#define PH_TEXT_CHAT_H

#include <stddef.h>

typedef struct ph_chat {
    const char *name;   /* "chatml" */
    const char *mark;   /* that a template of this family contains */
    const char *bos;    /* where the template begins with one */
    const char *before; /* the message of the user ... */
    const char *after;  /* ... and up to where the model answers */
    const char *end;    /* token that ends an answer */
    int trims;          /* 1: without blanks around the message */
} ph_chat;

#define PH_CHAT_NAMES "chatml, llama3, gemma, phi3, zephyr, llama2 or mistral"

/* The family of a template, or NULL. */
const ph_chat *ph_chat_find(const char *template_text);

/* The prompt of a message, like snprintf: with what the template itself says first. */
size_t ph_chat_print(const ph_chat *chat, const char *template_text, const char *message,
                     char *out, size_t size);

#endif
