/*
 * serve.c - the live page: a small HTTP server for one reader on this machine.
 *
 * One thread, one poll loop, one request per connection. A request is received whole,
 * parsed and authorized (request.c), answered from memory (serve_routes.c), and the
 * connection closed. Nothing that a client sends names a file. A run blocks the loop:
 * there is one client, and it waits for that very response. Measuring heads takes longer:
 * it goes on in steps between requests.
 */
#define _GNU_SOURCE /* accept4 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "io/io.h"
#include "view/serve_inside.h"

enum {
    HEADER_TIMEOUT = 10000, /* ms to receive the headers */
    TIMEOUT = 30000,        /* ms to receive the request, and to send the response */
    LINGER = 2000,          /* ms for the client to close after the response */
    POLL_INTERVAL = 200     /* ms between calls of stopped */
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- connections ---- */

static void close_connection(connection *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    ph_bytes_free(&c->in);
    ph_bytes_free(&c->out);
}

/* Responds as soon as the request is complete, or can only be refused: no body is waited
   for from whoever may not send it. */
static void handle_input(server *s, connection *c)
{
    ph_request request;
    const struct route *route = NULL;
    int status = ph_request_read((const char *)c->in.data, c->in.count, &request);
    if (status == PH_REQUEST_MORE) return;
    if (status == PH_REQUEST_READY)
        status = ph_request_allowed(&request, s->port, s->token);
    if (status == PH_REQUEST_READY) route = ph_serve_route(&request, &status);
    if (route && c->in.count < request.head_size + request.body_size) return;
    if (!route)
        ph_serve_refuse(c, status);
    else if (c->in.count > request.head_size + request.body_size)
        ph_serve_refuse(c, 400); /* longer than Content-Length */
    else
        ph_serve_respond(s, c, &request, route);
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
    for (int i = 0; i < PH_SERVE_CONNECTIONS; i++) {
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
    struct pollfd polled[PH_SERVE_LISTENERS + PH_SERVE_CONNECTIONS];
    int owner[PH_SERVE_LISTENERS + PH_SERVE_CONNECTIONS], count = 0;
    for (int i = 0; i < PH_SERVE_LISTENERS; i++)
        if (s->listener[i] >= 0) {
            owner[count] = -1;
            polled[count++] = (struct pollfd){s->listener[i], POLLIN, 0};
        }
    for (int i = 0; i < PH_SERVE_CONNECTIONS; i++) {
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
    for (int i = 0; i < PH_SERVE_CONNECTIONS; i++)
        if (s->connections[i].fd >= 0 && timed_out(&s->connections[i], now_ms()))
            close_connection(&s->connections[i]);
    if (s->measuring) ph_serve_measure(s);
}

/* ---- start and end ---- */

static int listen_at(int family, const void *address, socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, address, size) == 0 && listen(fd, PH_SERVE_CONNECTIONS) == 0) return fd;
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
    for (int i = 0; i < PH_SERVE_LISTENERS; i++) s->listener[i] = -1;
    for (int i = 0; i < PH_SERVE_CONNECTIONS; i++) s->connections[i].fd = -1;
    if (serve->port < 0 || serve->port > 65535)
        return ph_io_fail(s->io, PH_BAD_ARGUMENT, "port is %d, expected 0 to 65535",
                          serve->port);
    if (!live->run || !live->text || !serve->stopped)
        return ph_io_fail(s->io, PH_BAD_ARGUMENT,
                          "live.run, live.text or stopped is NULL");
    if (ph_serve_random(s->token, PH_SERVE_TOKEN))
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
    s->io = s->file.io = io;
    ph_status status = begin(s, live, serve);
    if (!status && serve->ready) {
        snprintf(address, sizeof address, "http://127.0.0.1:%d/#token=%s", s->port,
                 s->token);
        serve->ready(serve->user, address);
    }
    while (!status && !serve->stopped(serve->user)) poll_once(s);
    for (int i = 0; i < PH_SERVE_CONNECTIONS; i++)
        if (s->connections[i].fd >= 0) close_connection(&s->connections[i]);
    for (int i = 0; i < PH_SERVE_LISTENERS; i++)
        if (s->listener[i] >= 0) close(s->listener[i]);
    ph_bytes_free(&s->file);
    ph_io_release(io, s);
    return status;
}
