/*
 * request.h - one HTTP request: parsing and authorization.
 *
 * The parser is strict: HTTP/1.1, CRLF, no folded lines, no known header twice, nothing
 * but visible ASCII. What it does not know it refuses; nothing is repaired. Results are
 * HTTP status codes.
 */
#ifndef PH_VIEW_REQUEST_H
#define PH_VIEW_REQUEST_H

#include <stddef.h>

enum {
    PH_REQUEST_LINE = 8 << 10, /* limits in bytes */
    PH_REQUEST_HEAD = 32 << 10,
    PH_REQUEST_BODY = 1 << 20,
    PH_REQUEST_FILE = 64 << 20 /* a body that is a file */
};

typedef enum ph_method { PH_GET, PH_HEAD, PH_POST } ph_method;

/* A view into the bytes of the request; text NULL: absent. */
typedef struct ph_span {
    const char *text;
    size_t length;
} ph_span;

typedef struct ph_request {
    ph_method method;
    ph_span target;
    ph_span host, origin, site, type, token, length; /* headers */
    int file;                                        /* 1: the body is no JSON */
    size_t head_size;                                /* bytes in front of the body */
    size_t body_size;
} ph_request;

enum { PH_REQUEST_MORE = 0, PH_REQUEST_READY = 200 };

/* Parses request line and headers: PH_REQUEST_MORE if they are incomplete,
   PH_REQUEST_READY if *out is filled, else the status to refuse with. */
int ph_request_read(const char *bytes, size_t count, ph_request *out);

/* PH_REQUEST_READY, or the status to refuse with. Host must be this port on the loopback,
   by name or address; cross-origin requests are refused; POST must be JSON or a file
   (application/octet-stream) and carry the token. */
int ph_request_allowed(const ph_request *request, int port, const char *token);

int ph_span_is(ph_span span, const char *text);

/* "Not Found": the words of a status. */
const char *ph_request_reason(int status);

#endif
