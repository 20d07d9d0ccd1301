/*
 * serve_routes.c - what the live server answers; see serve_inside.h.
 *
 *     GET  /         the page without data
 *     POST /run      text and edits  -> length of the JSON, JSON, arrays
 *     POST /file     bytes of a picture or of features -> what /run and others name it by
 *     POST /window   a window of a map, max-pooled          -> floats
 *     POST /vectors  q and k of a head                      -> floats
 *     POST /save     text and edits  -> name of the plan that was saved
 *     POST /measure  text, edits, method  -> heads begin to be measured
 *     POST /progress                      -> how far it is, in the end what was found
 *     POST /cancel
 */
#define _GNU_SOURCE /* getrandom, memmem */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/base.h"
#include "io/json_write.h"
#include "view/query.h"
#include "view/serve_inside.h"

enum {
    BUDGET = 64 << 20, /* bytes of arrays in one response */
    FILES = PH_LIVE_PICTURE | PH_LIVE_SOUND
};

static void write_hex(char *text, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

int ph_serve_random(char *text, int count)
{
    unsigned char bytes[PH_SERVE_TOKEN / 2];
    size_t need = (size_t)count / 2;
    if (getrandom(bytes, need, 0) != (ssize_t)need) return -1;
    write_hex(text, bytes, need);
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

void ph_serve_refuse(connection *c, int status)
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
    char nonce[PH_SERVE_TOKEN + 1], policy[400];
    ph_bytes page = {.io = s->io};
    (void)query;
    if (ph_serve_random(nonce, PH_SERVE_TOKEN)) {
        ph_serve_refuse(c, 500);
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

static ph_status check_file(const server *s, ph_live_request *request)
{
    if (!request->file) return PH_OK;
    if (!(s->live->can & FILES)) return PH_UNSUPPORTED;
    if (strcmp(request->file, s->digest)) {
        snprintf(request->error, request->error_size,
                 "this file is not there any more: choose it again");
        return PH_BAD_VALUE;
    }
    request->bytes = s->file.data, request->size = s->file.count;
    return PH_OK;
}

/* What this model does not offer is refused before it runs. */
static ph_status check_request(const server *s, ph_live_request *request)
{
    unsigned need = (request->frozen ? PH_LIVE_FROZEN : 0) |
                    (request->words ? PH_LIVE_WORDS : 0) |
                    (request->target != s->live->target ? PH_LIVE_TARGET : 0);
    for (int i = 0; i < request->count; i++) need |= 1u << request->edits[i].kind;
    if (need & ~s->live->can) return PH_UNSUPPORTED;
    if (request->target && !*request->target) request->target = NULL;
    if (request->file && !*request->file) request->file = NULL;
    return check_file(s, request);
}

static ph_status run(server *s, ph_query *query)
{
    s->reports[0] = s->reports[1] = NULL;
    PH_TRY(check_request(s, &query->live));
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
    ph_status status = s->live->save ? check_request(s, &query->live) : PH_UNSUPPORTED;
    if (!status) status = s->live->save(s->live->user, &query->live, name, sizeof name);
    if (status)
        respond_failure(c, status, query->live.error);
    else
        respond_json(c, 200, "name", name);
}

/* Takes the bytes behind the head of the request; runs name them by their digest. */
static void serve_file(server *s, connection *c, ph_query *query)
{
    unsigned char digest[PH_SERVE_DIGEST];
    (void)query;
    if (!(s->live->can & FILES)) {
        respond_failure(c, PH_UNSUPPORTED, "the model reads no files");
        return;
    }
    s->file.count = 0, s->digest[0] = 0;
    ph_bytes_add(&s->file, c->in.data + c->head, c->in.count - c->head);
    if (s->file.status) {
        ph_status status = s->file.status;
        ph_bytes_free(&s->file);
        s->file = (ph_bytes){.io = s->io};
        respond_failure(c, status, "");
        return;
    }
    ph_sha256(s->file.data, s->file.count, digest);
    write_hex(s->digest, digest, PH_SERVE_DIGEST);
    respond_json(c, 200, "file", s->digest);
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
    ph_status status = how ? check_request(s, &query->live) : PH_UNSUPPORTED;
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

/* What is found at the last stays until the next measurement begins. */
void ph_serve_measure(server *s)
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

typedef enum body_kind { NO_BODY, JSON, BYTES } body_kind;

static const struct route {
    const char *target;
    body_kind body;
    void (*serve)(server *, connection *, ph_query *);
} routes[] = {{"/", NO_BODY, serve_page},        {"/favicon.ico", NO_BODY, serve_empty},
              {"/run", JSON, serve_run},         {"/window", JSON, serve_window},
              {"/vectors", JSON, serve_vectors}, {"/save", JSON, serve_save},
              {"/measure", JSON, serve_measure}, {"/progress", JSON, serve_progress},
              {"/cancel", JSON, serve_cancel},   {"/file", BYTES, serve_file}};

const struct route *ph_serve_route(const ph_request *request, int *status)
{
    int post = request->method == PH_POST;
    *status = 404;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!ph_span_is(request->target, routes[i].target)) continue;
        *status = (routes[i].body != NO_BODY) != post ? 405 : 415;
        if (*status == 415 && (!post || (routes[i].body == BYTES) == request->file))
            return &routes[i];
    }
    return NULL;
}

/* HEAD is GET without the body. */
static void drop_body(ph_bytes *out)
{
    const char *end = out->data ? memmem(out->data, out->count, "\r\n\r\n", 4) : NULL;
    if (end) out->count = (size_t)(end + 4 - (const char *)out->data);
}

void ph_serve_respond(server *s, connection *c, const ph_request *request,
                      const struct route *route)
{
    char sentence[PH_SERVE_ERROR] = "";
    ph_query query = {.live = {.error = sentence,
                               .error_size = sizeof sentence,
                               .text = s->live->text,
                               .target = s->live->target,
                               .words = s->live->words}};
    ph_status status = PH_OK;
    c->head = request->head_size;
    if (route->body == JSON)
        status = ph_query_read(&query, (char *)c->in.data + request->head_size,
                               request->body_size, s->io);
    if (status)
        respond_json(c, 400, "error", *sentence ? sentence : ph_status_text(status));
    else
        route->serve(s, c, &query);
    if (request->method == PH_HEAD) drop_body(&c->out);
    ph_query_free(&query, s->io);
}
