/*
 * fields.c - structs as JSON objects, by table.
 */
#include <stdio.h>
#include <string.h>

#include "io/json_read.h"
#include "io/json_write.h"
#include "io/utf8.h"
#include "model/fields.h"

/* ---- writing ----------------------------------------------------------------------- */

typedef struct sink {
    char *text;
    size_t size, used;
} sink;

static void sink_write(void *user, const char *bytes, size_t count)
{
    sink *s = user;
    for (size_t i = 0; i < count; i++, s->used++)
        if (s->used + 1 < s->size) s->text[s->used] = bytes[i];
}

/* A path may be any bytes, JSON is UTF-8: percent-encodes '%', what JSON would escape and
   what is not valid UTF-8. */
static void write_path(ph_json_writer *out, const char *key, const char *path)
{
    static const char digits[] = "0123456789ABCDEF";
    char text[3 * PH_FIELD_PATH_MOST];
    size_t used = 0;
    while (*path) {
        uint32_t point;
        unsigned char c = (unsigned char)*path;
        int length = ph_utf8_decode(path, 4, &point);
        if (!length || c < ' ' || c == 0x7f || strchr("%\"\\", c)) {
            text[used++] = '%', text[used++] = digits[c >> 4],
            text[used++] = digits[c & 15];
            length = 1;
        } else {
            memcpy(text + used, path, (size_t)length);
            used += (size_t)length;
        }
        path += length;
    }
    text[used] = 0;
    ph_json_string(out, key, text);
}

static void write_set(ph_json_writer *out, const ph_field *f, int left_out)
{
    if (!left_out || left_out == f->most) {
        ph_json_bool(out, f->name, !left_out);
        return;
    }
    ph_json_begin_array(out, f->name);
    for (int i = 0; f->names[i]; i++)
        if (!(left_out >> i & 1)) ph_json_string(out, NULL, f->names[i]);
    ph_json_end(out);
}

static void write_reals(ph_json_writer *out, const ph_field *f, const float *values)
{
    int count = f->most;
    while (count && values[count - 1] == 0) count--;
    if (!count) return;
    ph_json_begin_array(out, f->name);
    for (int i = 0; i < count; i++) ph_json_float(out, NULL, values[i]);
    ph_json_end(out);
}

static void write_field(ph_json_writer *out, const ph_field *f, const void *value)
{
    int number;
    float real;
    memcpy(&number, value, sizeof number);
    memcpy(&real, value, sizeof real);
    if (f->kind == PH_FIELD_INT) ph_json_integer(out, f->name, number);
    if (f->kind == PH_FIELD_BOOL) ph_json_bool(out, f->name, number != 0);
    if (f->kind == PH_FIELD_NOT) ph_json_bool(out, f->name, number == 0);
    if (f->kind == PH_FIELD_SET) write_set(out, f, number);
    if (f->kind == PH_FIELD_REAL) ph_json_float(out, f->name, real);
    if (f->kind == PH_FIELD_REALS) write_reals(out, f, value);
    if (f->kind == PH_FIELD_WIDE) {
        uint64_t wide;
        memcpy(&wide, value, sizeof wide);
        ph_json_unsigned(out, f->name, wide);
    }
    if (f->kind == PH_FIELD_NAME) ph_json_string(out, f->name, f->names[number]);
    if (f->kind == PH_FIELD_TEXT && *(const char *)value)
        ph_json_string(out, f->name, value);
    if (f->kind == PH_FIELD_PATH && *(const char *)value) write_path(out, f->name, value);
}

int ph_fields_print(const ph_field *fields, int count, const void *base, char *text,
                    size_t size)
{
    if (!text) size = 0;
    if (!base) return snprintf(text, size, "%s", "");
    sink s = {text, size, 0};
    ph_json_writer out = {.write = sink_write, .user = &s};
    ph_json_begin_object(&out, NULL);
    for (int i = 0; i < count; i++)
        write_field(&out, &fields[i], (const char *)base + fields[i].at);
    ph_json_end(&out);
    if (size) text[s.used < size ? s.used : size - 1] = 0;
    return (int)s.used;
}

/* ---- reading ----------------------------------------------------------------------- */

static ph_status wrong(ph_ctx *ctx, const ph_json_reader *json, const ph_field *f,
                       const char *expected)
{
    int shown = json->token == PH_JSON_STRING || json->token == PH_JSON_NUMBER;
    return ph_fail(ctx, PH_BAD_FILE, "%s is %s, expected %s", f->name,
                   shown ? ph_io_quote(json->text, json->length).text : "something else",
                   expected);
}

static ph_status read_name(ph_ctx *ctx, const ph_json_reader *json, const ph_field *f,
                           int *value)
{
    for (int i = 0; f->names[i]; i++)
        if (json->token == PH_JSON_STRING && !strcmp(json->text, f->names[i])) {
            *value = i;
            return PH_OK;
        }
    char list[128] = "";
    for (int i = 0; f->names[i]; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", f->names[i]);
    }
    return wrong(ctx, json, f, list);
}

/* A string, or an array of them that is joined by ';'. */
static ph_status read_text(ph_ctx *ctx, ph_json_reader *json, const ph_field *f, char *to)
{
    size_t used = 0;
    int array = json->token == PH_JSON_ARRAY;
    if (array) ph_json_next(json);
    for (; json->token == PH_JSON_STRING; ph_json_next(json)) {
        if (used + json->length + 2 > (size_t)f->most)
            return wrong(ctx, json, f, "a shorter text");
        if (used) to[used++] = ';';
        memcpy(to + used, json->text, json->length + 1);
        used += json->length;
        if (!array) return PH_OK;
    }
    return json->token == PH_JSON_ARRAY_END ? PH_OK : wrong(ctx, json, f, "text");
}

/* true, false, or an array of names. */
static ph_status read_set(ph_ctx *ctx, ph_json_reader *json, const ph_field *f,
                          int *left_out)
{
    int index = 0;
    *left_out = json->token == PH_JSON_TRUE ? 0 : f->most;
    if (json->token == PH_JSON_TRUE || json->token == PH_JSON_FALSE) return PH_OK;
    if (json->token != PH_JSON_ARRAY)
        return wrong(ctx, json, f, "true, false or an array of names");
    while (ph_json_next(json) == PH_JSON_STRING) {
        PH_TRY(read_name(ctx, json, f, &index));
        *left_out &= ~(1 << index);
    }
    return json->token == PH_JSON_ARRAY_END ? PH_OK : wrong(ctx, json, f, "names");
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static ph_status read_path(ph_ctx *ctx, const ph_json_reader *json, const ph_field *f,
                           char *to)
{
    size_t used = 0;
    if (json->token != PH_JSON_STRING) return wrong(ctx, json, f, "text");
    for (const char *c = json->text; c < json->text + json->length; c++) {
        int high = *c == '%' ? hex_digit(c[1]) : 0;
        int low = *c == '%' && high >= 0 ? hex_digit(c[2]) : 0;
        if (high < 0 || low < 0) return wrong(ctx, json, f, "two hex digits after a %");
        if (used + 1 >= (size_t)f->most) return wrong(ctx, json, f, "a shorter path");
        to[used++] = *c == '%' ? (char)(high << 4 | low) : *c;
        if (!to[used - 1]) return wrong(ctx, json, f, "a path without NUL");
        if (*c == '%') c += 2;
    }
    to[used] = 0;
    return PH_OK;
}

/* What is left out at the end is 0. */
static ph_status read_reals(ph_ctx *ctx, ph_json_reader *json, const ph_field *f,
                            float *to)
{
    double real;
    if (json->token != PH_JSON_ARRAY) return wrong(ctx, json, f, "an array of numbers");
    memset(to, 0, (size_t)f->most * sizeof *to);
    for (int i = 0; ph_json_next(json) != PH_JSON_ARRAY_END; i++) {
        if (json->token != PH_JSON_NUMBER || ph_json_as_double(json, &real))
            return wrong(ctx, json, f, "an array of numbers");
        if (i == f->most) return wrong(ctx, json, f, "fewer numbers");
        to[i] = (float)real;
    }
    return PH_OK;
}

static ph_status read_field(ph_ctx *ctx, ph_json_reader *json, const ph_field *f,
                            void *to)
{
    size_t number = 0;
    double real = 0;
    int is_number = json->token == PH_JSON_NUMBER;
    int is_bool = json->token == PH_JSON_TRUE || json->token == PH_JSON_FALSE;
    int value = json->token == PH_JSON_TRUE;
    if (f->kind == PH_FIELD_TEXT) return read_text(ctx, json, f, to);
    if (f->kind == PH_FIELD_REALS) return read_reals(ctx, json, f, to);
    if (f->kind == PH_FIELD_PATH) return read_path(ctx, json, f, to);
    if (f->kind == PH_FIELD_NAME) {
        PH_TRY(read_name(ctx, json, f, &value));
    } else if (f->kind == PH_FIELD_SET) {
        PH_TRY(read_set(ctx, json, f, &value));
    } else if (f->kind == PH_FIELD_INT) {
        if (!is_number || ph_json_as_size(json, &number) || number > (size_t)f->most)
            return wrong(ctx, json, f, "a whole number that is not too large");
        value = (int)number;
    } else if (f->kind == PH_FIELD_REAL) {
        if (!is_number || ph_json_as_double(json, &real))
            return wrong(ctx, json, f, "a number");
        float as_float = (float)real;
        memcpy(to, &as_float, sizeof as_float);
        return PH_OK;
    } else if (f->kind == PH_FIELD_WIDE) {
        uint64_t wide;
        if (!is_number || ph_json_as_size(json, &number))
            return wrong(ctx, json, f, "a whole number");
        wide = number;
        memcpy(to, &wide, sizeof wide);
        return PH_OK;
    } else if (!is_bool) {
        return wrong(ctx, json, f, "true or false");
    }
    if (f->kind == PH_FIELD_NOT) value = !value;
    memcpy(to, &value, sizeof value);
    return PH_OK;
}

static const ph_field *find_field(const ph_field *fields, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(name, fields[i].name)) return &fields[i];
    return NULL;
}

static ph_status read_fields(ph_ctx *ctx, const char *what, ph_json_reader *json,
                             const ph_field *fields, int count, void *base)
{
    if (ph_json_next(json) != PH_JSON_OBJECT)
        return ph_fail(ctx, PH_BAD_FILE, "%s is no JSON object", what);
    while (ph_json_next(json) == PH_JSON_KEY) {
        const ph_field *f = find_field(fields, count, json->text);
        if (!f)
            return ph_fail(ctx, PH_BAD_FILE, "%s: %s is unknown", what,
                           ph_io_quote(json->text, json->length).text);
        ph_json_next(json);
        PH_TRY(read_field(ctx, json, f, (char *)base + f->at));
    }
    if (json->token == PH_JSON_OBJECT_END && ph_json_next(json) == PH_JSON_END)
        return PH_OK;
    return ph_fail(ctx, PH_BAD_FILE, "%s is no JSON object", what);
}

ph_status ph_fields_read(ph_ctx *ctx, const char *what, const ph_field *fields, int count,
                         void *base, char *text, size_t length)
{
    ph_json_reader json;
    ph_json_open(&json, text, length, (ph_json_limits){4, 4096}, NULL);
    ph_status status = read_fields(ctx, what, &json, fields, count, base);
    ph_json_close(&json);
    return status;
}

/* ---- checks ------------------------------------------------------------------------ */

ph_status ph_fields_check(ph_ctx *ctx, const ph_field *fields, int count,
                          const void *base)
{
    for (int i = 0; i < count; i++) {
        const ph_field *f = &fields[i];
        int value, names = 0;
        memcpy(&value, (const char *)base + f->at, sizeof value);
        while (f->names && f->names[names]) names++;
        if ((f->kind == PH_FIELD_INT || f->kind == PH_FIELD_SET) &&
            (value < f->least || value > f->most))
            return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is %d, expected %d to %d", f->name,
                           value, f->least, f->most);
        if (f->kind == PH_FIELD_NAME && (value < 0 || value >= names))
            return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is %d, expected 0 to %d", f->name,
                           value, names - 1);
    }
    return PH_OK;
}
