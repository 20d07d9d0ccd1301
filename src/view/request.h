/*
 * request.h - one HTTP request: what it says, and whether it may.
 *
 * The reader is strict: HTTP/1.1, CRLF, no folded lines, no header of ours twice, nothing
 * but visible ASCII. What it does not understand it refuses; nothing is repaired. Numbers
 * that it returns are status codes of HTTP.
 */
#ifndef PH_VIEW_REQUEST_H
#define PH_VIEW_REQUEST_H

#include <stddef.h>

enum {
    PH_REQUEST_LINE = 8 << 10, /* bytes at most, like everything below */
    PH_REQUEST_HEAD = 32 << 10,
    PH_REQUEST_BODY = 1 << 20
};

typedef enum ph_method { PH_GET, PH_HEAD, PH_POST } ph_method;

/* A part of the request where it stands; text NULL: not there. */
typedef struct ph_span {
    const char *text;
    size_t length;
} ph_span;

typedef struct ph_request {
    ph_method method;
    ph_span target;
    ph_span host, origin, site, type, token, length; /* headers that matter */
    size_t head;                                     /* bytes up to the body */
    size_t body;                                     /* bytes of the body */
} ph_request;

enum { PH_REQUEST_MORE = 0, PH_REQUEST_READY = 200 };

/* Reads the head of a request: PH_REQUEST_MORE if there is more to come, PH_REQUEST_READY
   if *out is filled, else the status of a refusal. */
int ph_request_read(const char *bytes, size_t count, ph_request *out);

/* Who may ask: PH_REQUEST_READY or the status of a refusal. The host must be this very
   port on the loopback, by name or number; requests from other sites are refused; POST
   must be JSON and carry the token. */
int ph_request_allowed(const ph_request *request, int port, const char *token);

int ph_span_is(ph_span span, const char *text);

#endif
