/*
 * fuzz_json.c - any bytes as JSON.
 *
 * An accepted text is written again token by token and read once more: both readings must
 * give the same tokens, strings and numbers, and the second text must be reproduced
 * exactly by a third. So reader, writer and number conversion check each other.
 */
#include <math.h>
#include <string.h>

#include "fuzz.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "io/number.h"

typedef struct text {
    char *bytes;
    size_t length, capacity;
} text;

static void append(void *user, const char *bytes, size_t count)
{
    text *t = user;
    if (t->length + count > t->capacity) {
        t->capacity = 2 * (t->length + count);
        t->bytes = realloc(t->bytes, t->capacity);
        REQUIRE(t->bytes);
    }
    if (count > 0) memcpy(t->bytes + t->length, bytes, count);
    t->length += count;
}

static void write_number(ph_json_writer *out, const char *key, const ph_json_reader *json)
{
    double value;
    size_t whole;
    if (ph_json_as_size(json, &whole) == 0 && whole <= INT64_MAX)
        ph_json_integer(out, key, (int64_t)whole);
    else if (ph_json_as_double(json, &value) == 0)
        ph_json_double(out, key, value);
    else
        ph_json_string(out, key, NULL);
}

static void write_token(ph_json_writer *out, const char *key, const ph_json_reader *json)
{
    switch (json->token) {
    case PH_JSON_OBJECT: ph_json_begin_object(out, key); break;
    case PH_JSON_ARRAY: ph_json_begin_array(out, key); break;
    case PH_JSON_OBJECT_END:
    case PH_JSON_ARRAY_END: ph_json_end(out); break;
    case PH_JSON_STRING: ph_json_string(out, key, json->text); break;
    case PH_JSON_NUMBER: write_number(out, key, json); break;
    case PH_JSON_TRUE: ph_json_bool(out, key, 1); break;
    case PH_JSON_FALSE: ph_json_bool(out, key, 0); break;
    case PH_JSON_NULL: ph_json_string(out, key, NULL); break;
    default: break;
    }
}

/* Reads bytes (changed by that) and writes what they say to `out`. 1: accepted.
   *nul becomes 1 if a string held a NUL byte, which the writer cannot repeat. */
static int copy(char *bytes, size_t size, text *out, int *nul)
{
    ph_json_reader json;
    ph_json_writer writer = {.write = append, .user = out};
    const ph_json_limits limits = {.depth = 32, .string = 1u << 20};
    const char *key = NULL;
    char words[256];
    ph_json_open(&json, bytes, size, limits, NULL);
    while (ph_json_next(&json) > PH_JSON_END) {
        if (json.token == PH_JSON_KEY || json.token == PH_JSON_STRING) {
            REQUIRE(json.text[json.length] == 0);
            if (strlen(json.text) != json.length) *nul = 1;
        }
        if (json.token == PH_JSON_KEY) {
            key = json.text;
            continue;
        }
        write_token(&writer, key, &json);
        key = NULL;
    }
    if (json.token == PH_JSON_ERROR) {
        ph_json_explain(&json, words, sizeof words);
        REQUIRE(json.status == PH_BAD_FILE && words[0] && json.at <= size);
    }
    REQUIRE(ph_json_next(&json) == json.token);
    ph_json_close(&json);
    return json.token == PH_JSON_END;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    text first = {0}, second = {0}, third = {0};
    int nul = 0;
    append(&first, (const char *)data, size);
    if (copy(first.bytes, size, &second, &nul) && !nul) {
        text again = {0};
        append(&again, second.bytes, second.length);
        REQUIRE(copy(again.bytes, again.length, &third, &nul));
        REQUIRE(third.length == second.length);
        REQUIRE(memcmp(third.bytes, second.bytes, third.length) == 0);
        free(again.bytes);
    }
    free(first.bytes);
    free(second.bytes);
    free(third.bytes);
    return 0;
}
