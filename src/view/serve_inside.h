/*
 * serve_inside.h - the inside of the live server.
 *
 *     serve.c         sockets: connections, the poll loop
 *     serve_routes.c  responses: what each request is answered with
 */
#ifndef PH_VIEW_SERVE_INSIDE_H
#define PH_VIEW_SERVE_INSIDE_H

#include "view/bytes.h"
#include "view/page.h"
#include "view/request.h"

enum {
    PH_SERVE_CONNECTIONS = 64,
    PH_SERVE_LISTENERS = 2, /* 127.0.0.1 and ::1 */
    PH_SERVE_TOKEN = 32,    /* hexadecimal digits: 128 bits */
    PH_SERVE_DIGEST = 32,   /* bytes of SHA-256 */
    PH_SERVE_ERROR = 512    /* bytes of a sentence */
};

typedef struct connection {
    int fd; /* -1: free */
    ph_bytes in, out;
    size_t sent;
    int64_t since;   /* ms, when it was accepted or last made progress in sending */
    int responded;   /* 1: out is complete */
    size_t head;     /* bytes in front of the body, once it is there */
    uint64_t serial; /* in the order of accept */
} connection;

typedef struct server {
    const ph_live *live;
    const ph_io *io;
    int port;
    char token[PH_SERVE_TOKEN + 1];
    int listener[PH_SERVE_LISTENERS];
    const ph_report *reports[2];          /* without edits, with edits; of the last run */
    ph_bytes file;                        /* the last one that was sent */
    char digest[2 * PH_SERVE_DIGEST + 1]; /* of it */
    int measuring;                        /* 1: under way */
    ph_live_measured measured;
    ph_status measure_status; /* of the last step, with its sentence */
    char measure_error[PH_SERVE_ERROR];
    uint64_t accepted;
    connection connections[PH_SERVE_CONNECTIONS];
} server;

struct route;

/* Hexadecimal digits from the system's secure generator; not 0: there are none. */
int ph_serve_random(char *text, int count);

/* Who answers; NULL: nobody, *status says why. */
const struct route *ph_serve_route(const ph_request *request, int *status);

/* Appends the response to a request that is complete, or to one that is refused. */
void ph_serve_respond(server *s, connection *c, const ph_request *request,
                      const struct route *route);
void ph_serve_refuse(connection *c, int status);

/* One step of measuring heads. */
void ph_serve_measure(server *s);

#endif
