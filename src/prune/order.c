/*
 * order.c - in which order heads go: those that are worth least first.
 *
 * What goes is a unit: a head, all heads of a group, or one head of every group of a
 * site. The heads that must stay in every site come last, whatever they are worth.
 */
#include <string.h>

#include "base/reserved.h"
#include "base/rng.h"
#include "prune/eval.h"

enum { STREAM_ORDER = 11 };

typedef struct ordering {
    ph_eval *e;
    const ph_order *how;
    ph_estimate *values; /* (heads) */
    uint8_t *removed;    /* (heads) */
    int *group;          /* (heads) the first head of each one's group, or itself */
    int *left;           /* (heads) of each first head of a site: heads left there */
    int *site;           /* (heads) that first head */
} ordering;

static ph_status find_groups(ordering *o)
{
    const ph_model *m = o->e->m;
    ph_head_place place, last = {0};
    for (int i = 0, first = 0, group = 0; i < m->head_count; i++) {
        PH_TRY(ph_model_head(m, i, &place));
        int same = i && !strcmp(place.site, last.site);
        if (!same) first = i;
        if (!same || !o->how->groups || place.group != last.group) group = i;
        o->site[i] = first, o->group[i] = group;
        o->left[first]++;
        last = place;
    }
    return PH_OK;
}

static ph_status measure(ordering *o)
{
    const ph_model *m = o->e->m;
    uint64_t key = ph_rng_key(o->how->seed, STREAM_ORDER, 0, 0);
    if (o->how->random) {
        for (int i = 0; i < m->head_count; i++)
            o->values[i] = (ph_estimate){ph_rng_at(key, (uint32_t)i), 0};
        return PH_OK;
    }
    PH_TRY(ph_importance(o->e, o->how->method, o->removed, o->values));
    if (o->how->layered) ph_importance_normalise(m, o->values);
    return PH_OK;
}

/* Whether head h is in the unit that begins with head i: with a group, or with a site,
   of which it has the head of each group that is worth least. */
static int is_in_unit(const ordering *o, int i, int h)
{
    int last = h + 1 == o->e->m->head_count || o->group[h + 1] != h;
    int single = o->group[h] == h && last; /* keys and values of its own */
    if (o->removed[h]) return 0;
    if (o->how->groups != PH_ORDER_EVEN || single) return o->group[h] == i;
    if (o->site[h] != i) return 0;
    for (int k = o->group[h]; k < o->e->m->head_count && o->group[k] == o->group[h]; k++)
        if (!o->removed[k] && (o->values[k].value < o->values[h].value ||
                               (o->values[k].value == o->values[h].value && k < h)))
            return 0;
    return 1;
}

/* Heads of the unit that begins with head i, in `heads` where it is not NULL, and what
   they are worth together. */
static int unit_of(const ordering *o, int i, int *heads, double *value)
{
    int count = 0;
    *value = 0;
    for (int h = i; h < o->e->m->head_count && o->site[h] == o->site[i]; h++) {
        if (!is_in_unit(o, i, h)) continue;
        if (heads) heads[count] = h;
        *value += o->values[h].value, count++;
    }
    return count;
}

/* The unit that is worth least; keeping 1: of sites with more heads than must stay. */
static int least_unit(const ordering *o, int keeping)
{
    int best = -1;
    double least = 0, value;
    for (int i = 0; i < o->e->m->head_count; i++) {
        int size = unit_of(o, i, NULL, &value);
        if (!size || (keeping && o->left[o->site[i]] - size < o->how->keep)) continue;
        if (best < 0 || value < least) best = i, least = value;
    }
    return best;
}

static ph_status put_in_order(ordering *o, int *order)
{
    int done = 0, scored = 0;
    PH_TRY(measure(o));
    while (done < o->e->m->head_count) {
        int unit = least_unit(o, 1);
        if (unit < 0) unit = least_unit(o, 0);
        double value;
        int size = unit_of(o, unit, order + done, &value);
        for (int i = 0; i < size; i++) o->removed[order[done++]] = 1;
        o->left[o->site[unit]] -= size;
        int again = o->how->rescore && !o->how->random && done < o->e->m->head_count;
        if (!again || done - scored < o->how->rescore) continue;
        PH_TRY(measure(o));
        scored = done;
    }
    return PH_OK;
}

static ph_status make_order(ph_eval *e, const ph_order *how, int *order)
{
    size_t heads = (size_t)e->m->head_count;
    if (how->rescore < 0 || how->keep < 0 || (unsigned)how->groups > PH_ORDER_EVEN)
        return ph_fail(e->m->ctx, PH_BAD_ARGUMENT,
                       "rescore or keep below 0, or groups unknown");
    PH_CHECK_RESERVED(e->m->ctx, "ph_order", how->reserved);
    size_t bytes = heads * (sizeof(ph_estimate) + 3 * sizeof(int) + 1);
    char *memory = ph_ctx_alloc(e->m->ctx, bytes);
    if (!memory) return ph_fail(e->m->ctx, PH_OUT_OF_MEMORY, "no memory for heads");
    memset(memory, 0, bytes);
    ordering o = {.e = e, .how = how, .values = (ph_estimate *)memory};
    o.group = (int *)(o.values + heads), o.left = o.group + heads;
    o.site = o.left + heads, o.removed = (uint8_t *)(o.site + heads);
    ph_status status = find_groups(&o);
    if (status == PH_OK) status = put_in_order(&o, order);
    ph_ctx_release(e->m->ctx, memory);
    return status;
}

ph_status ph_importance_order(ph_eval *e, const ph_order *how, int *order)
{
    if (!e) return PH_BAD_ARGUMENT;
    if (!how || !order) return ph_ctx_null(e->m->ctx, "how or order");
    return PH_WITHIN(e->m->ctx, make_order(e, how, order));
}
