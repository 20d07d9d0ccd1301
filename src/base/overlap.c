/*
 * overlap.c - overlap of strided tensors; see overlap.h.
 */
#include "base/overlap.h"

void ph_mem_ranges_add(ph_mem_ranges *s, const char *prefix, const char *name,
                       const void *base, size_t bytes, int written)
{
    if (!base || !bytes || s->count == PH_SPANS_MAX) return;
    s->span[s->count++] = (ph_mem_range){.prefix = prefix,
                                         .name = name,
                                         .base = base,
                                         .written = written,
                                         .run = (int64_t)bytes};
}

/* Axes sorted by step, largest first; those that continue the run become part of it. */
static void add_axis(ph_mem_range *t, int64_t count, int64_t step)
{
    int at = t->axes++;
    for (; at > 0 && t->step[at - 1] < step; at--) {
        t->step[at] = t->step[at - 1];
        t->count[at] = t->count[at - 1];
    }
    t->step[at] = step;
    t->count[at] = count;
}

static void merge_axes(ph_mem_range *t)
{
    while (t->axes > 0 && t->step[t->axes - 1] == t->run) t->run *= t->count[--t->axes];
}

void ph_spans_add_rows(ph_mem_ranges *s, const char *name, const void *base,
                       ph_dtype type, const int sizes[4], const ph_strides *strides,
                       int written)
{
    const int64_t steps[PH_SPAN_AXES] = {strides->batch, strides->head, strides->time};
    for (int i = 0; i < 4; i++)
        if (sizes[i] <= 0) return;
    int before = s->count;
    ph_mem_ranges_add(s, "", name, base, (size_t)ph_offset(type, sizes[3]), written);
    if (s->count == before) return;
    ph_mem_range *t = &s->span[before];
    for (int i = 0; i < PH_SPAN_AXES; i++)
        if (sizes[i] > 1) add_axis(t, sizes[i], ph_offset(type, steps[i]));
    merge_axes(t);
}

/* Bytes from the first to behind the last, axes from `axis` on. */
static int64_t extent(const ph_mem_range *t, int axis)
{
    int64_t sum = t->run;
    for (int i = axis; i < t->axes; i++) sum += t->step[i] * (t->count[i] - 1);
    return sum;
}

/* Whether t, counted from its base and with axes from `axis` on, touches [low, high). */
static int touches(const ph_mem_range *t, int axis, int64_t low, int64_t high)
{
    int64_t inner = axis < t->axes ? extent(t, axis + 1) : t->run;
    if (axis == t->axes) return low < inner && high > 0;
    int64_t step = t->step[axis], first = 0, last = t->count[axis] - 1;
    if (step == 0) return touches(t, axis + 1, low, high);
    if (high <= 0) return 0;
    if (low >= inner) first = (low - inner) / step + 1;
    if ((high - 1) / step < last) last = (high - 1) / step;
    for (int64_t i = first; i <= last; i++)
        if (touches(t, axis + 1, low - i * step, high - i * step)) return 1;
    return 0;
}

/* Whether a run of x, whose base is `at` bytes behind that of t, touches t. */
static int meets(const ph_mem_range *x, int64_t at, const ph_mem_range *t)
{
    int64_t runs = 1;
    for (int i = 0; i < x->axes; i++) runs *= x->count[i];
    for (int64_t n = 0; n < runs; n++) {
        int64_t rest = n, start = at;
        for (int i = x->axes - 1; i >= 0; i--) {
            start += rest % x->count[i] * x->step[i];
            rest /= x->count[i];
        }
        if (touches(t, 0, start, start + x->run)) return 1;
    }
    return 0;
}

static int overlap(const ph_mem_range *x, const ph_mem_range *y)
{
    uintptr_t a = (uintptr_t)x->base, b = (uintptr_t)y->base;
    if (a + (uintptr_t)extent(x, 0) <= b || b + (uintptr_t)extent(y, 0) <= a) return 0;
    return meets(x, (int64_t)(a - b), y);
}

ph_status ph_mem_ranges_check(const ph_mem_ranges *s, ph_ctx *ctx)
{
    for (int i = 0; i < s->count; i++)
        for (int j = 0; j < i; j++) {
            const ph_mem_range *x = &s->span[i], *y = &s->span[j];
            if ((x->written || y->written) && overlap(x, y))
                return ph_fail(
                    ctx, PH_BAD_ARGUMENT,
                    "%s%s and %s%s overlap in memory, expected an output apart "
                    "from every other tensor",
                    y->prefix, y->name, x->prefix, x->name);
        }
    return PH_OK;
}
