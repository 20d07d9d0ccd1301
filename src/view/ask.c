/*
 * ask.c - bodies of requests, and answers made of weights; see ask.h.
 */
#include "view/ask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/size.h"
#include "io/io.h"
#include "io/json_read.h"

enum { BLOCK = 1 << 18 }; /* weights read at once, or one row */

#define REFUSE(ask, ...)                                                                 \
    return (snprintf((ask)->live.error, (ask)->live.error_size, __VA_ARGS__),            \
            PH_BAD_ARGUMENT)

/* ---- reading ---- */

/* The next value, a non-negative integer. */
static ph_status read_int(ph_ask *ask, ph_json_reader *json, const char *key, int *out)
{
    size_t value;
    if (ph_json_next(json) != PH_JSON_NUMBER || ph_json_as_size(json, &value) ||
        ph_size_to_int(value, out))
        REFUSE(ask, "%s must be a whole number from 0 on", key);
    return PH_OK;
}

static ph_status read_kind(ph_ask *ask, ph_json_reader *json, ph_edit_kind *out)
{
    static const char *const names[] = {"zero", "mean", "gate", "mask"};
    if (ph_json_next(json) == PH_JSON_STRING)
        for (int i = 0; i < 4; i++)
            if (!strcmp(json->text, names[i])) {
                *out = (ph_edit_kind)i;
                return PH_OK;
            }
    REFUSE(ask, "kind must be zero, mean, gate or mask");
}

static ph_status read_gate(ph_ask *ask, ph_json_reader *json, float *out)
{
    double value;
    if (ph_json_next(json) != PH_JSON_NUMBER || ph_json_as_double(json, &value) ||
        !(value >= 0 && value <= 1))
        REFUSE(ask, "gate must be a number from 0 to 1");
    *out = (float)value;
    return PH_OK;
}

typedef struct int_field {
    const char *key;
    int *place;
} int_field;

/* Reads the value of an integer key; PH_UNSUPPORTED: no such key. */
static ph_status read_field(ph_ask *ask, ph_json_reader *json, const int_field *fields,
                            size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(json->text, fields[i].key))
            return read_int(ask, json, fields[i].key, fields[i].place);
    return PH_UNSUPPORTED;
}

static ph_status read_edit(ph_ask *ask, ph_json_reader *json, ph_edit *edit)
{
    const int_field fields[] = {{"stack", &edit->stack},
                                {"layer", &edit->layer},
                                {"head", &edit->head},
                                {"axis", &edit->axis},
                                {"word", &edit->word}};
    ph_json_token token;
    *edit = (ph_edit){.gate = 1};
    while ((token = ph_json_next(json)) == PH_JSON_KEY) {
        ph_status status = read_field(ask, json, fields, sizeof fields / sizeof *fields);
        if (status == PH_UNSUPPORTED && !strcmp(json->text, "kind"))
            status = read_kind(ask, json, &edit->kind);
        else if (status == PH_UNSUPPORTED && !strcmp(json->text, "gate"))
            status = read_gate(ask, json, &edit->gate);
        else if (status == PH_UNSUPPORTED)
            REFUSE(ask, "a change has an unknown key");
        PH_TRY(status);
    }
    if (token != PH_JSON_OBJECT_END) REFUSE(ask, "a change is no JSON object");
    return PH_OK;
}

static ph_status read_edits(ph_ask *ask, ph_json_reader *json, const ph_io *io)
{
    void *edits = NULL;
    size_t capacity = 0;
    ph_status status = PH_OK;
    if (ph_json_next(json) != PH_JSON_ARRAY) REFUSE(ask, "edits must be a list");
    while (!status && ph_json_next(json) == PH_JSON_OBJECT) {
        if (ask->live.count == PH_ASK_EDITS)
            REFUSE(ask, "more than %d changes", PH_ASK_EDITS);
        status = ph_io_grow(io, &edits, &capacity, (size_t)ask->live.count + 1,
                            sizeof(ph_edit));
        ask->edits = edits;
        ask->live.edits = edits;
        if (!status) status = read_edit(ask, json, &ask->edits[ask->live.count++]);
    }
    if (!status && json->token != PH_JSON_ARRAY_END) REFUSE(ask, "edits must be a list");
    return status;
}

static ph_status read_text(ph_ask *ask, ph_json_reader *json)
{
    if (ph_json_next(json) != PH_JSON_STRING) REFUSE(ask, "text must be a string");
    if (strlen(json->text) != json->length) REFUSE(ask, "text holds a NUL character");
    ask->live.text = json->text;
    return PH_OK;
}

static ph_status read_frozen(ph_ask *ask, ph_json_reader *json)
{
    ph_json_token token = ph_json_next(json);
    if (token != PH_JSON_TRUE && token != PH_JSON_FALSE)
        REFUSE(ask, "frozen must be true or false");
    ask->live.frozen = token == PH_JSON_TRUE;
    return PH_OK;
}

static ph_status read_key(ph_ask *ask, ph_json_reader *json, const ph_io *io)
{
    const int_field fields[] = {{"which", &ask->which},   {"stack", &ask->stack},
                                {"layer", &ask->layer},   {"head", &ask->head},
                                {"row0", &ask->row0},     {"rows", &ask->rows},
                                {"col0", &ask->col0},     {"cols", &ask->cols},
                                {"height", &ask->height}, {"width", &ask->width}};
    ph_status status = read_field(ask, json, fields, sizeof fields / sizeof *fields);
    if (status != PH_UNSUPPORTED) return status;
    if (!strcmp(json->text, "text")) return read_text(ask, json);
    if (!strcmp(json->text, "edits")) return read_edits(ask, json, io);
    if (!strcmp(json->text, "frozen")) return read_frozen(ask, json);
    REFUSE(ask, "an unknown key");
}

ph_status ph_ask_read(ph_ask *ask, char *body, size_t count, const ph_io *io)
{
    const ph_json_limits limits = {.depth = 4, .string = count};
    ph_json_reader json;
    ph_status status = PH_OK;
    ph_json_open(&json, body, count, limits, io);
    if (ph_json_next(&json) != PH_JSON_OBJECT) status = PH_BAD_FILE;
    while (!status && ph_json_next(&json) == PH_JSON_KEY)
        status = read_key(ask, &json, io);
    if (!status &&
        (json.token != PH_JSON_OBJECT_END || ph_json_next(&json) != PH_JSON_END))
        status = PH_BAD_FILE;
    if (status == PH_BAD_FILE)
        snprintf(ask->live.error, ask->live.error_size, "the body is no JSON object");
    ph_json_close(&json);
    return status;
}

void ph_ask_free(ph_ask *ask, const ph_io *io)
{
    ph_io_release(io, ask->edits);
    ask->edits = NULL;
}

/* ---- weights ---- */

static ph_status check_head(const ph_ask *ask, const ph_report *report)
{
    if (ask->stack >= report->stack_count)
        REFUSE(ask, "stack is %d, there are %d", ask->stack, report->stack_count);
    const ph_stack *s = &report->stacks[ask->stack];
    if (ask->layer >= s->layers || ask->head >= s->heads)
        REFUSE(ask, "there is no layer %d with a head %d", ask->layer, ask->head);
    if (s->absent && s->absent[ask->layer * s->heads + ask->head])
        REFUSE(ask, "layer %d head %d was pruned", ask->layer, ask->head);
    return PH_OK;
}

static ph_status check_window(const ph_ask *ask, int rows, int keys)
{
    if (ask->rows < 1 || ask->row0 > rows - ask->rows)
        REFUSE(ask, "rows %d from %d on: there are %d", ask->rows, ask->row0, rows);
    if (ask->cols < 1 || ask->col0 > keys - ask->cols)
        REFUSE(ask, "cols %d from %d on: there are %d", ask->cols, ask->col0, keys);
    if (ask->height < 1 || ask->height > ask->rows || ask->width < 1 ||
        ask->width > ask->cols || ask->height > PH_ASK_CELLS / ask->width)
        REFUSE(ask, "a picture of %d x %d is too large or empty", ask->height,
               ask->width);
    return PH_OK;
}

/* Max-pools one row of weights into a row of the picture. */
static void pool_row(const ph_ask *ask, const float *w, int seen, float *picture)
{
    int last = ph_min(ask->cols, seen - ask->col0);
    for (int j = 0; j < last; j++) {
        int64_t at = (int64_t)j * ask->width / ask->cols;
        float v = w[ask->col0 + j];
        if (fabsf(v) > fabsf(picture[at])) picture[at] = v;
    }
}

static ph_status pool(const ph_ask *ask, const ph_report *report, float *block, int step,
                      float *picture)
{
    const ph_stack *s = &report->stacks[ask->stack];
    int keys = report->axes[s->k_axis].count;
    for (int from = 0; from < ask->rows; from += step) {
        int rows = ph_min(step, ask->rows - from);
        PH_TRY(report->weights(report->user, ask->stack, ask->layer, ask->head,
                               ask->row0 + from, rows, block));
        for (int i = 0; i < rows; i++) {
            int64_t limit = (int64_t)ask->row0 + from + i + s->q_offset + 1;
            int64_t line = (int64_t)(from + i) * ask->height / ask->rows;
            int seen = s->causal && limit < keys ? (int)(limit > 0 ? limit : 0) : keys;
            pool_row(ask, block + (size_t)i * (size_t)keys, seen,
                     picture + line * ask->width);
        }
    }
    return PH_OK;
}

ph_status ph_ask_window(const ph_ask *ask, const ph_report *report, ph_bytes *out)
{
    PH_TRY(check_head(ask, report));
    const ph_stack *s = &report->stacks[ask->stack];
    int keys = report->axes[s->k_axis].count;
    PH_TRY(check_window(ask, report->axes[s->q_axis].count, keys));
    int step = ph_min(ask->rows, ph_max(1, BLOCK / keys));
    size_t cells = (size_t)ask->height * (size_t)ask->width;
    float *block = ph_io_alloc(out->io, (size_t)step * (size_t)keys * sizeof *block);
    float *picture = ph_io_alloc(out->io, cells * sizeof *picture);
    ph_status status = block && picture ? PH_OK : PH_OUT_OF_MEMORY;
    if (!status) {
        memset(picture, 0, cells * sizeof *picture);
        status = pool(ask, report, block, step, picture);
    }
    for (size_t i = 0; i < cells && !status; i++) ph_bytes_float(out, picture[i]);
    ph_io_release(out->io, block);
    ph_io_release(out->io, picture);
    return status;
}

ph_status ph_ask_vectors(const ph_ask *ask, const ph_report *report, ph_bytes *out)
{
    PH_TRY(check_head(ask, report));
    const ph_stack *s = &report->stacks[ask->stack];
    size_t dim = (size_t)s->qk_dim;
    if (dim == 0) REFUSE(ask, "this report has no vectors");
    size_t q = dim * (size_t)report->axes[s->q_axis].count;
    size_t count = q + dim * (size_t)report->axes[s->k_axis].count;
    float *all = ph_io_alloc(out->io, count * sizeof *all);
    if (!all) return PH_OUT_OF_MEMORY;
    ph_status status =
        report->vectors(report->user, ask->stack, ask->layer, ask->head, all, all + q);
    for (size_t i = 0; i < count && !status; i++) ph_bytes_float(out, all[i]);
    ph_io_release(out->io, all);
    return status;
}
