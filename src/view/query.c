/*
 * query.c - request bodies, and responses made of weights; see query.h.
 */
#include "view/query.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/size.h"
#include "io/io.h"
#include "io/json_read.h"

enum { BLOCK = 1 << 18 }; /* weights per read, but at least one row */

#define REFUSE(query, ...)                                                               \
    return (snprintf((query)->live.error, (query)->live.error_size, __VA_ARGS__),        \
            PH_BAD_ARGUMENT)

/* ---- parsing ---- */

/* The next value, a non-negative integer. */
static ph_status read_int(ph_query *query, ph_json_reader *json, const char *key,
                          int *out)
{
    size_t value;
    if (ph_json_next(json) != PH_JSON_NUMBER || ph_json_as_size(json, &value) ||
        ph_size_to_int(value, out))
        REFUSE(query, "%s must be a non-negative integer", key);
    return PH_OK;
}

static ph_status read_kind(ph_query *query, ph_json_reader *json, ph_edit_kind *out)
{
    static const char *const names[] = {"zero", "mean", "gate", "mask"};
    if (ph_json_next(json) == PH_JSON_STRING)
        for (int i = 0; i < 4; i++)
            if (!strcmp(json->text, names[i])) {
                *out = (ph_edit_kind)i;
                return PH_OK;
            }
    REFUSE(query, "kind must be zero, mean, gate or mask");
}

static ph_status read_gate(ph_query *query, ph_json_reader *json, float *out)
{
    double value;
    if (ph_json_next(json) != PH_JSON_NUMBER || ph_json_as_double(json, &value) ||
        !(value >= 0 && value <= 1))
        REFUSE(query, "gate must be a number from 0 to 1");
    *out = (float)value;
    return PH_OK;
}

typedef struct int_field {
    const char *key;
    int *value;
} int_field;

/* Reads the value of an integer key; PH_UNSUPPORTED: not one of these keys. */
static ph_status read_field(ph_query *query, ph_json_reader *json,
                            const int_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(json->text, fields[i].key))
            return read_int(query, json, fields[i].key, fields[i].value);
    return PH_UNSUPPORTED;
}

static ph_status read_edit(ph_query *query, ph_json_reader *json, ph_edit *edit)
{
    const int_field fields[] = {{"stack", &edit->stack},
                                {"layer", &edit->layer},
                                {"head", &edit->head},
                                {"axis", &edit->axis},
                                {"word", &edit->word}};
    ph_json_token token;
    *edit = (ph_edit){.gate = 1};
    while ((token = ph_json_next(json)) == PH_JSON_KEY) {
        ph_status status =
            read_field(query, json, fields, sizeof fields / sizeof *fields);
        if (status == PH_UNSUPPORTED && !strcmp(json->text, "kind"))
            status = read_kind(query, json, &edit->kind);
        else if (status == PH_UNSUPPORTED && !strcmp(json->text, "gate"))
            status = read_gate(query, json, &edit->gate);
        else if (status == PH_UNSUPPORTED)
            REFUSE(query, "an edit has an unknown key");
        PH_TRY(status);
    }
    if (token != PH_JSON_OBJECT_END) REFUSE(query, "an edit is not a JSON object");
    return PH_OK;
}

static ph_status read_edits(ph_query *query, ph_json_reader *json, const ph_io *io)
{
    void *edits = NULL;
    size_t capacity = 0;
    ph_status status = PH_OK;
    if (ph_json_next(json) != PH_JSON_ARRAY) REFUSE(query, "edits must be a list");
    while (!status && ph_json_next(json) == PH_JSON_OBJECT) {
        if (query->live.count == PH_QUERY_EDITS)
            REFUSE(query, "more than %d edits", PH_QUERY_EDITS);
        status = ph_io_grow(io, &edits, &capacity, (size_t)query->live.count + 1,
                            sizeof(ph_edit));
        query->edits = edits;
        query->live.edits = edits;
        if (!status) status = read_edit(query, json, &query->edits[query->live.count++]);
    }
    if (!status && json->token != PH_JSON_ARRAY_END)
        REFUSE(query, "edits must be a list");
    return status;
}

static ph_status read_text(ph_query *query, ph_json_reader *json, const char *key,
                           const char **out)
{
    if (ph_json_next(json) != PH_JSON_STRING) REFUSE(query, "%s must be a string", key);
    if (strlen(json->text) != json->length)
        REFUSE(query, "%s holds a NUL character", key);
    *out = json->text;
    return PH_OK;
}

static ph_status read_bool(ph_query *query, ph_json_reader *json, const char *key,
                           int *out)
{
    ph_json_token token = ph_json_next(json);
    if (token != PH_JSON_TRUE && token != PH_JSON_FALSE)
        REFUSE(query, "%s must be true or false", key);
    *out = token == PH_JSON_TRUE;
    return PH_OK;
}

static ph_status read_key(ph_query *query, ph_json_reader *json, const ph_io *io)
{
    const int_field fields[] = {{"which", &query->which},   {"stack", &query->stack},
                                {"layer", &query->layer},   {"head", &query->head},
                                {"row0", &query->row0},     {"rows", &query->rows},
                                {"col0", &query->col0},     {"cols", &query->cols},
                                {"height", &query->height}, {"width", &query->width}};
    ph_live_request *live = &query->live;
    const struct {
        const char *key, **value;
    } texts[] = {{"text", &live->text},
                 {"target", &live->target},
                 {"file", &live->file},
                 {"method", &live->method}};
    const int_field bools[] = {
        {"frozen", &live->frozen}, {"data", &live->data}, {"words", &live->words}};
    ph_status status = read_field(query, json, fields, sizeof fields / sizeof *fields);
    if (status != PH_UNSUPPORTED) return status;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(json->text, texts[i].key))
            return read_text(query, json, texts[i].key, texts[i].value);
    for (size_t i = 0; i < sizeof bools / sizeof *bools; i++)
        if (!strcmp(json->text, bools[i].key))
            return read_bool(query, json, bools[i].key, bools[i].value);
    if (!strcmp(json->text, "edits")) return read_edits(query, json, io);
    REFUSE(query, "the body has an unknown key");
}

ph_status ph_query_read(ph_query *query, char *body, size_t count, const ph_io *io)
{
    const ph_json_limits limits = {.depth = 4, .string = count};
    ph_json_reader json;
    ph_status status = PH_OK;
    ph_json_open(&json, body, count, limits, io);
    if (ph_json_next(&json) != PH_JSON_OBJECT) status = PH_BAD_FILE;
    while (!status && ph_json_next(&json) == PH_JSON_KEY)
        status = read_key(query, &json, io);
    if (!status &&
        (json.token != PH_JSON_OBJECT_END || ph_json_next(&json) != PH_JSON_END))
        status = PH_BAD_FILE;
    if (status == PH_BAD_FILE)
        snprintf(query->live.error, query->live.error_size,
                 "the body is not a JSON object");
    ph_json_close(&json);
    return status;
}

void ph_query_free(ph_query *query, const ph_io *io)
{
    ph_io_release(io, query->edits);
    query->edits = NULL;
}

/* ---- weights ---- */

static ph_status check_head(const ph_query *query, const ph_report *report)
{
    if (query->stack >= report->stack_count)
        REFUSE(query, "stack is %d, there are %d", query->stack, report->stack_count);
    const ph_stack *s = &report->stacks[query->stack];
    if (query->layer >= s->layers || query->head >= s->heads)
        REFUSE(query, "there is no layer %d with a head %d", query->layer, query->head);
    if (s->absent && s->absent[query->layer * s->heads + query->head])
        REFUSE(query, "layer %d head %d was pruned", query->layer, query->head);
    return PH_OK;
}

static ph_status check_window(const ph_query *query, int rows, int keys)
{
    if (query->rows < 1 || query->row0 > rows - query->rows)
        REFUSE(query, "rows %d from %d on: there are %d", query->rows, query->row0, rows);
    if (query->cols < 1 || query->col0 > keys - query->cols)
        REFUSE(query, "cols %d from %d on: there are %d", query->cols, query->col0, keys);
    if (query->height < 1 || query->height > query->rows || query->width < 1 ||
        query->width > query->cols || query->height > PH_QUERY_CELLS / query->width)
        REFUSE(query, "height x width is %d x %d, too large or empty", query->height,
               query->width);
    return PH_OK;
}

/* Max-pools one row of weights into a row of the output. */
static void pool_row(const ph_query *query, const float *w, int seen, float *pooled)
{
    int last = ph_min(query->cols, seen - query->col0);
    for (int j = 0; j < last; j++) {
        int64_t at = (int64_t)j * query->width / query->cols;
        float v = w[query->col0 + j];
        if (fabsf(v) > fabsf(pooled[at])) pooled[at] = v;
    }
}

static ph_status pool_window(const ph_query *query, const ph_report *report, float *block,
                             int step, float *pooled)
{
    const ph_stack *s = &report->stacks[query->stack];
    int keys = report->axes[s->k_axis].count;
    for (int from = 0; from < query->rows; from += step) {
        int rows = ph_min(step, query->rows - from);
        PH_TRY(report->weights(report->user, query->stack, query->layer, query->head,
                               query->row0 + from, rows, block));
        for (int i = 0; i < rows; i++) {
            int64_t limit = (int64_t)query->row0 + from + i + s->q_offset + 1;
            int64_t line = (int64_t)(from + i) * query->height / query->rows;
            int seen = s->causal && limit < keys ? (int)(limit > 0 ? limit : 0) : keys;
            pool_row(query, block + (size_t)i * (size_t)keys, seen,
                     pooled + line * query->width);
        }
    }
    return PH_OK;
}

ph_status ph_query_window(const ph_query *query, const ph_report *report, ph_bytes *out)
{
    PH_TRY(check_head(query, report));
    const ph_stack *s = &report->stacks[query->stack];
    int keys = report->axes[s->k_axis].count;
    PH_TRY(check_window(query, report->axes[s->q_axis].count, keys));
    int step = ph_min(query->rows, ph_max(1, BLOCK / keys));
    size_t cells = (size_t)query->height * (size_t)query->width;
    float *block = ph_io_alloc(out->io, (size_t)step * (size_t)keys * sizeof *block);
    float *pooled = ph_io_alloc(out->io, cells * sizeof *pooled);
    ph_status status = block && pooled ? PH_OK : PH_OUT_OF_MEMORY;
    if (!status) {
        memset(pooled, 0, cells * sizeof *pooled);
        status = pool_window(query, report, block, step, pooled);
    }
    for (size_t i = 0; i < cells && !status; i++) ph_bytes_float(out, pooled[i]);
    ph_io_release(out->io, block);
    ph_io_release(out->io, pooled);
    return status;
}

ph_status ph_query_vectors(const ph_query *query, const ph_report *report, ph_bytes *out)
{
    PH_TRY(check_head(query, report));
    const ph_stack *s = &report->stacks[query->stack];
    size_t dim = (size_t)s->qk_dim;
    if (dim == 0) REFUSE(query, "this report has no vectors");
    size_t q = dim * (size_t)report->axes[s->q_axis].count;
    size_t count = q + dim * (size_t)report->axes[s->k_axis].count;
    float *all = ph_io_alloc(out->io, count * sizeof *all);
    if (!all) return PH_OUT_OF_MEMORY;
    ph_status status = report->vectors(report->user, query->stack, query->layer,
                                       query->head, all, all + q);
    for (size_t i = 0; i < count && !status; i++) ph_bytes_float(out, all[i]);
    ph_io_release(out->io, all);
    return status;
}
