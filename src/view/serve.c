/*
 * serve.c - the live page: a small HTTP server for one reader on this machine.
 *
 * One thread, one poll loop, one request per connection. A request is received whole,
 * parsed and authorized (request.c), answered from memory, and the connection closed.
 * Nothing that a client sends names a file. A run blocks the loop: there is one client,
 * and it waits for that very response. Measuring heads takes longer: it goes on in steps
 * between requests.
 *
 *     GET  /         the page without data
 *     POST /run      text and edits  -> length of the JSON, JSON, arrays
 *     POST /window   a window of a map, max-pooled          -> floats
 *     POST /vectors  q and k of a head                      -> floats
 *     POST /save     text and edits  -> name of the plan that was saved
 *     POST /measure  text, edits, method  -> heads begin to be measured
 *     POST /progress                      -> how far it is, in the end what was found
 *     POST /cancel
 */
#define _GNU_SOURCE /* accept4, getrandom */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "io/io.h"
#include "io/json_write.h"
#include "view/page.h"
#include "view/query.h"
#include "view/request.h"

enum {
    CONNECTIONS = 64,
    LISTENERS = 2,          /* 127.0.0.1 and ::1 */
    HEADER_TIMEOUT = 10000, /* ms to receive the headers */
    TIMEOUT = 30000,        /* ms to receive the request, and to send the response */
    LINGER = 2000,          /* ms for the client to close after the response */
    POLL_INTERVAL = 200,    /* ms between calls of stopped */
    TOKEN = 32,             /* hexadecimal digits: 128 bits */
    ERROR_SIZE = 512,
    BUDGET = 64 << 20 /* bytes of arrays in one response */
};

typedef struct connection {
    int fd; /* -1: free */
    ph_bytes in, out;
    size_t sent;
    int64_t since;   /* ms, when it was accepted or last made progress in sending */
    int responded;   /* 1: out is complete */
    uint64_t serial; /* in the order of accept */
} connection;

typedef struct server {
    const ph_live *live;
    const ph_io *io;
    int port;
    char token[TOKEN + 1];
    int listener[LISTENERS];
    const ph_report *reports[2]; /* without edits, with edits; of the last run */
    int measuring;               /* 1: under way */
    ph_live_measured measured;
    ph_status measure_status; /* of the last step, with its sentence */
    char measure_error[ERROR_SIZE];
    uint64_t accepted;
    connection connections[CONNECTIONS];
} server;

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Hexadecimal digits from the system's secure generator. */
static int random_hex(char *text, int count)
{
    unsigned char bytes[TOKEN / 2];
    size_t need = (size_t)count / 2;
    if (getrandom(bytes, need, 0) != (ssize_t)need) return -1;
    for (size_t i = 0; i < need; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* ---- responses ---- */

static void write_headers(ph_bytes *out, int status, const char *type, size_t length,
                          const char *policy)
{
    char text[1024];
    snprintf(text, sizeof text,
             "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
             "Connection: close\r\nCache-Control: no-store\r\n"
             "Content-Security-Policy: %s\r\n"
             "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
             "Cross-Origin-Opener-Policy: same-origin\r\n"
             "Cross-Origin-Resource-Policy: same-origin\r\n%s\r\n",
             status, ph_request_reason(status), type, length,
             policy ? policy : "default-src 'none'",
             status == 405 ? "Allow: GET, HEAD, POST\r\n" : "");
    ph_bytes_text(out, text);
}

/* {"error": sentence} or {"name": text} */
static void respond_json(connection *c, int status, const char *key, const char *words)
{
    ph_bytes body = {.io = c->out.io};
    ph_json_writer json = {.write = ph_bytes_write, .user = &body};
    ph_json_begin_object(&json, NULL);
    ph_json_string(&json, key, words);
    ph_json_end(&json);
    write_headers(&c->out, status, "application/json", body.count, NULL);
    ph_bytes_add(&c->out, body.data, body.count);
    ph_bytes_free(&body);
}

static void respond_status(connection *c, int status)
{
    respond_json(c, status, "error", ph_request_reason(status));
}

static void respond_floats(connection *c, const ph_bytes *body)
{
    write_headers(&c->out, 200, "application/octet-stream", body->count, NULL);
    ph_bytes_add(&c->out, body->data, body->count);
}

/* A failed call; the sentence is for the user of the page. */
static void respond_failure(connection *c, ph_status status, const char *sentence)
{
    int code = status == PH_OUT_OF_MEMORY || status == PH_IO_ERROR ? 500 : 422;
    respond_json(c, code, "error", *sentence ? sentence : ph_status_text(status));
}

/* ---- routes ---- */

static void serve_page(server *s, connection *c, ph_query *query)
{
    char nonce[TOKEN + 1], policy[400];
    ph_bytes page = {.io = s->io};
    (void)query;
    if (random_hex(nonce, TOKEN)) {
        respond_status(c, 500);
        return;
    }
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; "
             "img-src data: blob:; connect-src 'self'; base-uri 'none'; "
             "form-action 'none'; frame-ancestors 'none'",
             nonce, nonce);
    ph_page_frame(&page, NULL, NULL, nonce);
    write_headers(&c->out, 200, "text/html; charset=utf-8", page.count, policy);
    ph_bytes_add(&c->out, page.data, page.count);
    if (page.status) c->out.status = page.status;
    ph_bytes_free(&page);
}

/* Edits that this model does not offer are refused before it runs. */
static ph_status check_edits(const server *s, const ph_live_request *request)
{
    for (int i = 0; i < request->count; i++)
        if (!(s->live->can & 1u << request->edits[i].kind)) return PH_UNSUPPORTED;
    return request->frozen && !(s->live->can & PH_LIVE_FROZEN) ? PH_UNSUPPORTED : PH_OK;
}

static ph_status run(server *s, ph_query *query)
{
    s->reports[0] = s->reports[1] = NULL;
    if (!query->live.text) query->live.text = s->live->text;
    PH_TRY(check_edits(s, &query->live));
    PH_TRY(s->live->run(s->live->user, &query->live, &s->reports[0], &s->reports[1]));
    ph_io io = s->io ? *s->io : (ph_io){0};
    io.error = query->live.error;
    io.error_size = query->live.error_size;
    ph_status status = ph_report_check(s->reports[0], &io);
    if (!status && s->reports[1]) status = ph_report_check(s->reports[1], &io);
    if (status) s->reports[0] = s->reports[1] = NULL;
    return status;
}

/* The length of the JSON in 4 bytes, the JSON padded to a multiple of 4, the arrays. */
static void serve_run(server *s, connection *c, ph_query *query)
{
    ph_bytes json = {.io = s->io}, blob = {.io = s->io}, body = {.io = s->io};
    ph_status status = run(s, query);
    if (!status) {
        ph_page_source source = {.reports = {s->reports[0], s->reports[1]},
                                 .count = s->reports[1] ? 2 : 1,
                                 .page = {.budget = BUDGET},
                                 .io = s->io,
                                 .live = s->live};
        status = ph_page_pack(&source, &json, &blob);
    }
    if (status)
        respond_failure(c, status, query->live.error);
    else {
        while (json.count % 4 != 0) ph_bytes_text(&json, " ");
        ph_bytes_u32(&body, (uint32_t)json.count);
        ph_bytes_add(&body, json.data, json.count);
        ph_bytes_add(&body, blob.data, blob.count);
        respond_floats(c, &body);
    }
    ph_bytes_free(&json);
    ph_bytes_free(&blob);
    ph_bytes_free(&body);
}

static void serve_floats(server *s, connection *c, ph_query *query,
                         ph_status (*make)(const ph_query *, const ph_report *,
                                           ph_bytes *))
{
    const ph_report *report = query->which < 2 ? s->reports[query->which] : NULL;
    ph_bytes body = {.io = s->io};
    if (!report) {
        respond_json(c, 422, "error", "there is no such report: run a text first");
        return;
    }
    ph_status status = make(query, report, &body);
    if (!status) status = body.status;
    if (status)
        respond_failure(c, status, query->live.error);
    else
        respond_floats(c, &body);
    ph_bytes_free(&body);
}

static void serve_window(server *s, connection *c, ph_query *query)
{
    serve_floats(s, c, query, ph_query_window);
}

static void serve_vectors(server *s, connection *c, ph_query *query)
{
    serve_floats(s, c, query, ph_query_vectors);
}

static void serve_save(server *s, connection *c, ph_query *query)
{
    char name[1024] = "";
    if (!query->live.text) query->live.text = s->live->text;
    ph_status status = s->live->save ? check_edits(s, &query->live) : PH_UNSUPPORTED;
    if (!status) status = s->live->save(s->live->user, &query->live, name, sizeof name);
    if (status)
        respond_failure(c, status, query->live.error);
    else
        respond_json(c, 200, "name", name);
}

/* ---- measuring heads ---- */

static void end_measuring(server *s)
{
    s->measuring = 0;
    s->measured = (ph_live_measured){0};
    s->measure_status = PH_OK;
    if (s->live->measuring) s->live->measuring->end(s->live->user);
}

static void serve_measure(server *s, connection *c, ph_query *query)
{
    const ph_live_measuring *how = s->live->measuring;
    if (!query->live.text) query->live.text = s->live->text;
    ph_status status = how ? check_edits(s, &query->live) : PH_UNSUPPORTED;
    if (!status) {
        end_measuring(s);
        status = how->begin(s->live->user, &query->live);
    }
    s->measuring = !status;
    if (status)
        respond_failure(c, status, query->live.error);
    else
        respond_json(c, 200, "method", query->live.method ? query->live.method : "");
}

/* One step; what is found at the last stays until the next measurement begins. */
static void measure_step(server *s)
{
    s->measure_status = s->live->measuring->step(
        s->live->user, &s->measured, s->measure_error, sizeof s->measure_error);
    s->measuring = !s->measure_status && s->measured.done < s->measured.of;
}

static void serve_progress(server *s, connection *c, ph_query *query)
{
    ph_bytes body = {.io = s->io};
    (void)query;
    if (!s->measuring && !s->measured.method && !s->measure_status) {
        respond_json(c, 422, "error", "nothing is being measured");
        return;
    }
    if (s->measure_status) {
        respond_failure(c, s->measure_status, s->measure_error);
        return;
    }
    ph_page_describe_measured(&body, &s->measured);
    write_headers(&c->out, 200, "application/json", body.count, NULL);
    ph_bytes_add(&c->out, body.data, body.count);
    ph_bytes_free(&body);
}

static void serve_cancel(server *s, connection *c, ph_query *query)
{
    (void)query;
    end_measuring(s);
    respond_json(c, 200, "cancelled", "yes");
}

static void serve_empty(server *s, connection *c, ph_query *query)
{
    (void)s, (void)query;
    write_headers(&c->out, 204, "text/plain", 0, NULL);
}

static const struct route {
    const char *target;
    int post;
    void (*serve)(server *, connection *, ph_query *);
} routes[] = {{"/", 0, serve_page},           {"/favicon.ico", 0, serve_empty},
              {"/run", 1, serve_run},         {"/window", 1, serve_window},
              {"/vectors", 1, serve_vectors}, {"/save", 1, serve_save},
              {"/measure", 1, serve_measure}, {"/progress", 1, serve_progress},
              {"/cancel", 1, serve_cancel}};

static const struct route *find_route(const ph_request *request, int *status)
{
    *status = 404;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!ph_span_is(request->target, routes[i].target)) continue;
        if (routes[i].post == (request->method == PH_POST)) return &routes[i];
        *status = 405;
    }
    return NULL;
}

/* HEAD is GET without the body. */
static void drop_body(ph_bytes *out)
{
    const char *end = out->data ? memmem(out->data, out->count, "\r\n\r\n", 4) : NULL;
    if (end) out->count = (size_t)(end + 4 - (const char *)out->data);
}

static void respond(server *s, connection *c, const ph_request *request)
{
    char sentence[ERROR_SIZE] = "";
    ph_query query = {.live = {.error = sentence, .error_size = sizeof sentence}};
    int code = ph_request_allowed(request, s->port, s->token);
    const struct route *route = NULL;
    if (code == PH_REQUEST_READY) route = find_route(request, &code);
    if (!route) {
        respond_status(c, code);
        return;
    }
    ph_status status = PH_OK;
    if (route->post)
        status = ph_query_read(&query, (char *)c->in.data + request->head_size,
                               request->body_size, s->io);
    if (status)
        respond_json(c, 400, "error", *sentence ? sentence : ph_status_text(status));
    else
        route->serve(s, c, &query);
    if (request->method == PH_HEAD) drop_body(&c->out);
    ph_query_free(&query, s->io);
}

/* ---- connections ---- */

static void close_connection(connection *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    ph_bytes_free(&c->in);
    ph_bytes_free(&c->out);
}

/* Responds as soon as the request is complete, or can only be refused. */
static void handle_input(server *s, connection *c)
{
    ph_request request;
    int status = ph_request_read((const char *)c->in.data, c->in.count, &request);
    if (status == PH_REQUEST_MORE) return;
    if (status == PH_REQUEST_READY && c->in.count < request.head_size + request.body_size)
        return;
    if (status != PH_REQUEST_READY)
        respond_status(c, status);
    else if (c->in.count > request.head_size + request.body_size)
        respond_status(c, 400); /* longer than Content-Length */
    else
        respond(s, c, &request);
    c->responded = 1;
    c->since = now_ms();
}

static void receive(server *s, connection *c)
{
    char piece[16384];
    ssize_t got = recv(c->fd, piece, sizeof piece, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        close_connection(c);
        return;
    }
    /* Closing with unread input would reset the connection and lose the response. */
    if (c->responded) return;
    ph_bytes_add(&c->in, piece, (size_t)got);
    if (c->in.status) {
        close_connection(c);
        return;
    }
    handle_input(s, c);
}

static void send_rest(connection *c)
{
    ssize_t sent =
        send(c->fd, c->out.data + c->sent, c->out.count - c->sent, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent > 0) {
        c->sent += (size_t)sent;
        c->since = now_ms();
    }
    if (sent <= 0 || c->out.status) close_connection(c);
    /* All sent: the client closes when it has read it, or LINGER ends. */
    else if (c->sent == c->out.count)
        shutdown(c->fd, SHUT_WR);
}

/* A free slot. Where there is none, the oldest connection whose request is still
   incomplete is closed: a browser sends its request at once, so slow clients cannot
   starve it. NULL if all slots have responses to send. */
static connection *find_slot(server *s)
{
    connection *oldest = NULL;
    for (int i = 0; i < CONNECTIONS; i++) {
        connection *c = &s->connections[i];
        if (c->fd < 0) return c;
        if (!c->responded && (!oldest || c->serial < oldest->serial)) oldest = c;
    }
    if (oldest) close_connection(oldest);
    return oldest;
}

static void accept_one(server *s, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    connection *c = find_slot(s);
    if (!c) {
        close(fd);
        return;
    }
    *c = (connection){.fd = fd, .in = {.io = s->io}, .out = {.io = s->io}};
    c->since = now_ms();
    c->serial = s->accepted++;
}

static int timed_out(const connection *c, int64_t now)
{
    int64_t waited = now - c->since;
    if (c->responded) return waited > (c->sent == c->out.count ? LINGER : TIMEOUT);
    return waited > TIMEOUT ||
           (waited > HEADER_TIMEOUT &&
            (!c->in.data || !memmem(c->in.data, c->in.count, "\r\n\r\n", 4)));
}

/* Waits up to POLL_INTERVAL for sockets to be ready and serves them; then measures. */
static void poll_once(server *s)
{
    struct pollfd polled[LISTENERS + CONNECTIONS];
    int owner[LISTENERS + CONNECTIONS], count = 0;
    for (int i = 0; i < LISTENERS; i++)
        if (s->listener[i] >= 0) {
            owner[count] = -1;
            polled[count++] = (struct pollfd){s->listener[i], POLLIN, 0};
        }
    for (int i = 0; i < CONNECTIONS; i++) {
        connection *c = &s->connections[i];
        if (c->fd < 0) continue;
        int sending = c->responded && c->sent < c->out.count;
        owner[count] = i;
        polled[count++] =
            (struct pollfd){c->fd, (short)(POLLIN | (sending ? POLLOUT : 0)), 0};
    }
    if (poll(polled, (nfds_t)count, s->measuring ? 0 : POLL_INTERVAL) < 0) return;
    for (int i = count - 1; i >= 0; i--) { /* listeners last: accept may reuse a slot */
        connection *c = owner[i] < 0 ? NULL : &s->connections[owner[i]];
        if (!c && polled[i].revents & POLLIN) accept_one(s, polled[i].fd);
        if (c && polled[i].revents & (POLLIN | POLLHUP | POLLERR)) receive(s, c);
        if (c && c->fd >= 0 && c->responded && c->sent < c->out.count) send_rest(c);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        if (s->connections[i].fd >= 0 && timed_out(&s->connections[i], now_ms()))
            close_connection(&s->connections[i]);
    if (s->measuring) measure_step(s);
}

/* ---- start and end ---- */

static int listen_at(int family, const void *address, socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, address, size) == 0 && listen(fd, CONNECTIONS) == 0) return fd;
    int number = errno;
    close(fd);
    errno = number;
    return -1;
}

static ph_status open_listeners(server *s, int port)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t size = sizeof four;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->listener[0] = listen_at(AF_INET, &four, sizeof four);
    if (s->listener[0] < 0 ||
        getsockname(s->listener[0], (struct sockaddr *)&four, &size) != 0)
        return ph_io_fail(s->io, PH_IO_ERROR, "cannot listen on 127.0.0.1 port %d: %s",
                          port, ph_io_system_error(errno).text);
    s->port = ntohs(four.sin_port);
    six.sin6_port = four.sin_port;
    s->listener[1] = listen_at(AF_INET6, &six, sizeof six); /* where there is IPv6 */
    return PH_OK;
}

static ph_status begin(server *s, const ph_live *live, const ph_serve *serve)
{
    s->live = live;
    for (int i = 0; i < LISTENERS; i++) s->listener[i] = -1;
    for (int i = 0; i < CONNECTIONS; i++) s->connections[i].fd = -1;
    if (serve->port < 0 || serve->port > 65535)
        return ph_io_fail(s->io, PH_BAD_ARGUMENT, "port is %d, expected 0 to 65535",
                          serve->port);
    if (!live->run || !live->text || !serve->stopped)
        return ph_io_fail(s->io, PH_BAD_ARGUMENT,
                          "live.run, live.text or stopped is NULL");
    if (random_hex(s->token, TOKEN))
        return ph_io_fail(s->io, PH_IO_ERROR, "no random numbers for a token: %s",
                          ph_io_system_error(errno).text);
    return open_listeners(s, serve->port);
}

ph_status ph_serve_run(const ph_live *live, const ph_serve *serve, const ph_io *io)
{
    if (!live || !serve) return ph_io_null(io, "live or serve");
    char address[128];
    PH_IO_CHECK_RESERVED(io, "ph_live", live->reserved);
    PH_IO_CHECK_RESERVED(io, "ph_serve", serve->reserved);
    server *s = ph_io_alloc(io, sizeof *s);
    if (!s) return ph_io_no_memory(io, sizeof *s, "the server");
    memset(s, 0, sizeof *s);
    s->io = io;
    ph_status status = begin(s, live, serve);
    if (!status && serve->ready) {
        snprintf(address, sizeof address, "http://127.0.0.1:%d/#token=%s", s->port,
                 s->token);
        serve->ready(serve->user, address);
    }
    while (!status && !serve->stopped(serve->user)) poll_once(s);
    for (int i = 0; i < CONNECTIONS; i++)
        if (s->connections[i].fd >= 0) close_connection(&s->connections[i]);
    for (int i = 0; i < LISTENERS; i++)
        if (s->listener[i] >= 0) close(s->listener[i]);
    ph_io_release(io, s);
    return status;
}
