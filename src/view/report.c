/*
 * report.c - checks a report before anything is drawn from it; see polyhead_view.h.
 */
#include <ctype.h>
#include <string.h>

#include "base/size.h"
#include "io/io.h"
#include "view/page.h"

#define REFUSE(...) return ph_io_fail(io, PH_BAD_ARGUMENT, "report: " __VA_ARGS__)

/* Keys are words of the filter line. */
static int is_key(const char *key)
{
    if (!key || !isalpha((unsigned char)key[0])) return 0;
    for (; *key; key++)
        if (!isalnum((unsigned char)*key) && *key != '_') return 0;
    return 1;
}

static ph_status check_axes(const ph_report *r, const ph_io *io)
{
    if (r->axis_count < 1 || !r->axes) REFUSE("axes is empty, at least one is needed");
    for (int a = 0; a < r->axis_count; a++) {
        const ph_axis *axis = &r->axes[a];
        if (axis->count < 0 || (axis->count > 0 && !axis->tokens))
            REFUSE("axes[%d] has count %d and no tokens", a, axis->count);
        for (int i = 0; i < axis->count; i++)
            if (!axis->tokens[i]) REFUSE("axes[%d].tokens[%d] is NULL", a, i);
    }
    return PH_OK;
}

/* Patches are whole rows on the only axis. */
static ph_status check_patches(const ph_report *r, const ph_io *io)
{
    int first = r->patch_first, columns = r->patch_columns, count = r->axes[0].count;
    if (columns == 0) return PH_OK;
    if (r->picture && (r->picture_side < 1 || r->picture_side > 4096))
        REFUSE("picture_side is %d, expected 1 to 4096", r->picture_side);
    if (r->axis_count != 1 || first < 0 || first >= count || columns < 0 ||
        columns > count || (count - first) % columns)
        REFUSE("patch_first is %d and patch_columns %d, expected whole rows of the %d "
               "tokens of one axis",
               first, columns, count);
    return PH_OK;
}

static ph_status check_labels(const ph_report *r, const ph_io *io)
{
    if (r->metric_count < 0 || (r->metric_count > 0 && !r->metrics))
        REFUSE("metric_count is %d and metrics is NULL", r->metric_count);
    if (r->role_count < 0 || r->role_count > 255 || (r->role_count > 0 && !r->roles))
        REFUSE("role_count is %d, expected 0 to 255 with roles", r->role_count);
    for (int i = 0; i < r->metric_count; i++)
        if (!is_key(r->metrics[i].key)) REFUSE("metrics[%d].key is no word", i);
    for (int i = 0; i < r->role_count; i++) {
        if (!is_key(r->roles[i].key)) REFUSE("roles[%d].key is no word", i);
        if (!isgraph((unsigned char)r->roles[i].glyph))
            REFUSE("roles[%d].glyph is no printable character", i);
    }
    return PH_OK;
}

static ph_status check_stack(const ph_report *r, int s, const ph_io *io)
{
    const ph_stack *k = &r->stacks[s];
    PH_IO_CHECK_RESERVED(io, "ph_stack", k->reserved);
    if (k->layers < 1 || k->heads < 1 || k->layers > 65535 || k->heads > 65535)
        REFUSE("stacks[%d] has %d layers x %d heads, expected 1 to 65535", s, k->layers,
               k->heads);
    if (k->q_axis < 0 || k->q_axis >= r->axis_count || k->k_axis < 0 ||
        k->k_axis >= r->axis_count)
        REFUSE("stacks[%d] names axes %d and %d, there are %d", s, k->q_axis, k->k_axis,
               r->axis_count);
    if (k->kv_heads < 0 || (k->kv_heads > 0 && k->heads % k->kv_heads))
        REFUSE("stacks[%d].kv_heads is %d, which does not divide %d", s, k->kv_heads,
               k->heads);
    if (k->qk_dim < 0 || (k->qk_dim > 0 && !r->vectors))
        REFUSE("stacks[%d].qk_dim is %d and vectors is NULL", s, k->qk_dim);
    if (k->reach < 0 || k->pair_step < 0 || k->pair_step > k->qk_dim)
        REFUSE("stacks[%d].reach or pair_step is out of range", s);
    for (int i = 0; k->role && i < k->layers * k->heads; i++)
        if (k->role[i] >= r->role_count)
            REFUSE("stacks[%d].role[%d] is %d, there are %d roles", s, i, k->role[i],
                   r->role_count);
    return PH_OK;
}

/* All sizes that the writers multiply must not overflow. */
static ph_status check_size(const ph_report *r, int s, const ph_io *io)
{
    const ph_stack *k = &r->stacks[s];
    int rows = r->axes[k->q_axis].count, keys = r->axes[k->k_axis].count;
    size_t dims[] = {(size_t)k->layers * (size_t)k->heads, (size_t)rows,
                     (size_t)keys + (size_t)k->qk_dim, 8};
    size_t product;
    if (k->layers > INT_MAX / 16 / k->heads || ph_size_product(dims, 4, &product) ||
        product > (size_t)1 << 52)
        REFUSE("stacks[%d] with %d rows and %d keys is too large", s, rows, keys);
    return PH_OK;
}

ph_status ph_report_check(const ph_report *r, const ph_io *io)
{
    if (!r || !r->weights) REFUSE("no report, or its function weights is NULL");
    PH_IO_CHECK_RESERVED(io, "ph_report", r->reserved);
    if (r->stack_count < 1 || !r->stacks) REFUSE("stacks is empty");
    if (r->outcome_count < 0 || (r->outcome_count > 0 && !r->outcomes))
        REFUSE("outcome_count is %d and outcomes is NULL", r->outcome_count);
    ph_status status = check_axes(r, io);
    if (!status) status = check_patches(r, io);
    if (!status) status = check_labels(r, io);
    for (int s = 0; s < r->stack_count && !status; s++) {
        status = check_stack(r, s, io);
        if (!status) status = check_size(r, s, io);
    }
    return status;
}
