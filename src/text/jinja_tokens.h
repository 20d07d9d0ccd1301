/*
 * jinja_tokens.h - tokens of the tags of a template, read as the parser asks for them,
 * since what follows a tag depends on how it ends: white space goes where it has a -,
 * else the newline behind a statement.
 */
#ifndef PH_TEXT_JINJA_TOKENS_H
#define PH_TEXT_JINJA_TOKENS_H

#include "text/jinja.h"

typedef enum ph_token_kind {
    PH_TOKEN_END, /* of the tag */
    PH_TOKEN_NAME,
    PH_TOKEN_CONSTANT, /* value */
    PH_TOKEN_MARK
} ph_token_kind;

typedef struct ph_jinja_parser {
    ph_jinja *j;
    const char *at, *end;
    const char *close; /* of the tag that is open: "%}" or "}}" */
    int brackets;      /* open in the tag, where }} may end a dict */
    int loops;         /* around the statement */
    ph_token_kind kind;
    const char *text; /* of the token */
    size_t length;
    ph_jinja_value value;
    char tag;           /* that begins behind a text: {, %, #; 0: none */
    ph_jinja_node none; /* stands for others after a failure; nobody reads that tree */
} ph_jinja_parser;

void ph_token_next(ph_jinja_parser *p);
int ph_token_is(const ph_jinja_parser *p, const char *text); /* a name or a mark */
int ph_token_take(ph_jinja_parser *p, const char *text); /* 1: it was so, and is taken */
void ph_token_expect(ph_jinja_parser *p, const char *text);
void ph_token_expect_end(ph_jinja_parser *p);
void ph_token_refuse(ph_jinja_parser *p, const char *expected);

/* Behind the end of the tag at p->at, with the white space that goes with it; or NULL. */
const char *ph_token_tag_end(const ph_jinja_parser *p);

#endif
