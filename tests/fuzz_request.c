/*
 * fuzz_request.c - any bytes as a request to the live server: head, permission, body.
 *
 * What is accepted must be well inside the bytes, and must be accepted again when only
 * its own bytes are there; every shorter beginning must need more bytes or refuse.
 */
#include <string.h>

#include "fuzz.h"
#include "view/query.h"
#include "view/request.h"

static void check_span(ph_span span, const char *bytes, size_t head)
{
    REQUIRE(!span.text ||
            (span.text >= bytes && span.text + span.length <= bytes + head));
}

static void check_head(const ph_request *r, const char *bytes, size_t size)
{
    const ph_span spans[] = {r->target, r->host, r->origin, r->site, r->type, r->token};
    REQUIRE(r->head_size <= size);
    REQUIRE(r->head_size <= PH_REQUEST_HEAD + PH_REQUEST_LINE + 2);
    REQUIRE(r->body_size <= (r->file ? PH_REQUEST_FILE : PH_REQUEST_BODY));
    REQUIRE(r->target.length > 0 && r->target.text[0] == '/');
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        check_span(spans[i], bytes, r->head_size);
}

static void check_body(const char *bytes, size_t size)
{
    char sentence[256] = "", *copy = malloc(size + 1);
    ph_query query = {.live = {.error = sentence, .error_size = sizeof sentence}};
    REQUIRE(copy);
    memcpy(copy, bytes, size);
    copy[size] = 'X'; /* must not be looked at */
    ph_status status = ph_query_read(&query, copy, size, NULL);
    REQUIRE(status == PH_OK || *sentence || status == PH_OUT_OF_MEMORY);
    REQUIRE(query.live.count >= 0 && query.live.count <= PH_QUERY_EDITS);
    REQUIRE(query.rows >= 0 && query.cols >= 0 && query.height >= 0 && query.width >= 0);
    if (status == PH_OK && query.live.text) REQUIRE(strlen(query.live.text) <= size);
    ph_query_free(&query, NULL);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = malloc(size + 1);
    ph_request request, again;
    if (!bytes) return 0;
    memcpy(bytes, data, size);
    int status = ph_request_read(bytes, size, &request);
    if (status == PH_REQUEST_READY) {
        check_head(&request, bytes, size);
        REQUIRE(ph_request_read(bytes, request.head_size, &again) == PH_REQUEST_READY);
        REQUIRE(ph_request_read(bytes, request.head_size - 1, &again) == PH_REQUEST_MORE);
        ph_request_allowed(&request, 8080, "0123456789abcdef0123456789abcdef");
        check_body(bytes + request.head_size, size - request.head_size);
    } else
        check_body(bytes, size);
    free(bytes);
    return 0;
}
