/*
 * request.c - parses and authorizes one HTTP request; see request.h.
 */
#include "view/request.h"

#include <stdio.h>
#include <string.h>

int ph_span_is(ph_span span, const char *text)
{
    return span.text && span.length == strlen(text) &&
           memcmp(span.text, text, span.length) == 0;
}

/* ---- request line and headers ---- */

/* Characters of a header name (RFC 9110, token). */
static int is_token(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int to_lower(int c)
{
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

static int is_name(ph_span span, const char *name)
{
    if (span.length != strlen(name)) return 0;
    for (size_t i = 0; i < span.length; i++)
        if (to_lower(span.text[i]) != name[i]) return 0;
    return 1;
}

/* The next line without its CRLF; *at moves behind it. Returns 1, 0 if the line is
   incomplete, -1 if a byte in it is not allowed. */
static int next_line(const char *bytes, size_t count, size_t *at, ph_span *line)
{
    for (size_t i = *at; i < count; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '\n') return -1;
        if (c == '\r') {
            if (i + 1 == count) return 0;
            if (bytes[i + 1] != '\n') return -1;
            *line = (ph_span){bytes + *at, i - *at};
            *at = i + 2;
            return 1;
        }
        if ((c < 0x20 && c != '\t') || c >= 0x7f) return -1;
    }
    return 0;
}

static int read_method(ph_span word, ph_method *out)
{
    static const struct {
        const char *name;
        ph_method method;
    } known[] = {{"GET", PH_GET}, {"HEAD", PH_HEAD}, {"POST", PH_POST}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (ph_span_is(word, known[i].name)) {
            *out = known[i].method;
            return PH_REQUEST_READY;
        }
    if (word.length == 0) return 400;
    for (size_t i = 0; i < word.length; i++)
        if (!is_token((unsigned char)word.text[i])) return 400;
    return 405;
}

/* METHOD SP /target SP HTTP/1.1 */
static int read_request_line(ph_span line, ph_request *out)
{
    const char *end = line.text + line.length;
    const char *space = memchr(line.text, ' ', line.length);
    if (!space) return 400;
    int status =
        read_method((ph_span){line.text, (size_t)(space - line.text)}, &out->method);
    if (status != PH_REQUEST_READY) return status;
    const char *target = space + 1;
    space = memchr(target, ' ', (size_t)(end - target));
    if (!space || target[0] != '/') return 400;
    out->target = (ph_span){target, (size_t)(space - target)};
    if (memchr(target, '\t', out->target.length)) return 400;
    ph_span version = {space + 1, (size_t)(end - space - 1)};
    if (ph_span_is(version, "HTTP/1.1")) return PH_REQUEST_READY;
    return version.length == 8 && !memcmp(version.text, "HTTP/", 5) ? 505 : 400;
}

/* Stores a known header; those that request what is not served are refused. */
static int store_header(ph_request *out, ph_span name, ph_span value)
{
    const struct {
        const char *name;
        ph_span *field;
        int refuse;
    } known[] = {{"host", &out->host, 0},
                 {"origin", &out->origin, 0},
                 {"sec-fetch-site", &out->site, 0},
                 {"content-type", &out->type, 0},
                 {"content-length", &out->length, 0},
                 {"x-polyhead-token", &out->token, 0},
                 {"transfer-encoding", NULL, 501},
                 {"content-encoding", NULL, 415},
                 {"upgrade", NULL, 501},
                 {"expect", NULL, 417},
                 {"range", NULL, 416}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!is_name(name, known[i].name)) continue;
        if (!known[i].field) return known[i].refuse;
        if (known[i].field->text) return 400; /* twice: ambiguous */
        *known[i].field = value;
    }
    return PH_REQUEST_READY;
}

static int read_header(ph_span line, ph_request *out)
{
    size_t colon = 0;
    while (colon < line.length && is_token((unsigned char)line.text[colon])) colon++;
    if (colon == 0 || colon == line.length || line.text[colon] != ':') return 400;
    ph_span value = {line.text + colon + 1, line.length - colon - 1};
    while (value.length && (value.text[0] == ' ' || value.text[0] == '\t'))
        value.text++, value.length--;
    while (value.length &&
           (value.text[value.length - 1] == ' ' || value.text[value.length - 1] == '\t'))
        value.length--;
    return store_header(out, (ph_span){line.text, colon}, value);
}

/* Content-Length: once, in digits, and only where a body is expected. */
static int read_length(ph_request *out)
{
    ph_span length = out->length;
    out->file = ph_span_is(out->type, "application/octet-stream");
    size_t most = out->file ? PH_REQUEST_FILE : PH_REQUEST_BODY;
    if (!length.text) return out->method == PH_POST ? 411 : PH_REQUEST_READY;
    if (length.length == 0) return 400;
    for (size_t i = 0; i < length.length; i++) {
        if (length.text[i] < '0' || length.text[i] > '9') return 400;
        out->body_size = out->body_size * 10 + (size_t)(length.text[i] - '0');
        if (out->body_size > most) return 413;
    }
    return out->body_size && out->method != PH_POST ? 400 : PH_REQUEST_READY;
}

/* The headers have not ended: more input is needed unless a limit is reached. */
static int incomplete(size_t count, size_t at)
{
    if (at == 0 && count > PH_REQUEST_LINE) return 414;
    return count > PH_REQUEST_HEAD ? 431 : PH_REQUEST_MORE;
}

int ph_request_read(const char *bytes, size_t count, ph_request *out)
{
    size_t at = 0;
    ph_span line;
    int status, found = next_line(bytes, count, &at, &line);
    *out = (ph_request){0};
    if (found <= 0) return found ? 400 : incomplete(count, 0);
    if (line.length > PH_REQUEST_LINE) return 414;
    status = read_request_line(line, out);
    while (status == PH_REQUEST_READY) {
        if (at > PH_REQUEST_HEAD) return 431;
        found = next_line(bytes, count, &at, &line);
        if (found <= 0) return found ? 400 : incomplete(count, at);
        if (line.length == 0) break;
        status = read_header(line, out);
    }
    if (status == PH_REQUEST_READY) status = read_length(out);
    out->head_size = at;
    return status;
}

/* ---- authorization ---- */

static int is_loopback(ph_span host, const char *scheme, int port)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    char text[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(text, sizeof text, "%s%s:%d", scheme, names[i], port);
        if (ph_span_is(host, text)) return 1;
    }
    return 0;
}

/* In constant time, wherever the first difference is. */
static int same_token(ph_span given, const char *token)
{
    size_t length = strlen(token);
    unsigned char difference = given.length != length;
    for (size_t i = 0; given.text && i < given.length && i < length; i++)
        difference |= (unsigned char)(given.text[i] ^ token[i]);
    return given.text && !difference;
}

int ph_request_allowed(const ph_request *request, int port, const char *token)
{
    ph_span origin = request->origin, host = request->host;
    if (!is_loopback(host, "", port)) return 403;
    if (origin.text &&
        !(is_loopback(origin, "http://", port) && origin.length == host.length + 7 &&
          !memcmp(origin.text + 7, host.text, host.length)))
        return 403;
    if (request->site.text && !ph_span_is(request->site, "same-origin") &&
        !(request->method != PH_POST && ph_span_is(request->site, "none")))
        return 403;
    if (request->method != PH_POST) return PH_REQUEST_READY;
    if (!same_token(request->token, token)) return 403;
    return request->file || ph_span_is(request->type, "application/json")
               ? PH_REQUEST_READY
               : 415;
}

/* ---- what a status means ---- */

const char *ph_request_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } known[] = {{200, "OK"},
                 {204, "No Content"},
                 {400, "Bad Request"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {411, "Length Required"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {416, "Range Not Satisfiable"},
                 {417, "Expectation Failed"},
                 {422, "Unprocessable Content"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status) return known[i].reason;
    return "Error";
}
