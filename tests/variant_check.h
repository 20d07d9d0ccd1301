/*
 * variant_check.h - comparing results of the oracle of variants, for its own tests.
 *
 * A header, because a failed CHECK leaves through a jump buffer that each program owns.
 */
#ifndef VARIANT_CHECK_H
#define VARIANT_CHECK_H

#include <math.h>

#include "check.h"
#include "variant_case.h"

static inline bag solve(const variant_case *c)
{
    variant_options o = c->o;
    bag out = {.count = 0};
    o.variant = c->spec; /* c may be a copy */
    variant_forward(&o, &c->in, &out);
    return out;
}

/* All of a tensor within `tolerance`; infinities must be equal. */
static inline void near(const char *what, const double *found, const double *expected,
                        int count, double tolerance)
{
    CHECK(found && expected, "%s: missing", what);
    for (int i = 0; i < count; i++)
        CHECK(found[i] == expected[i] || fabs(found[i] - expected[i]) <= tolerance,
              "%s[%d] is %.12g, expected %.12g", what, i, found[i], expected[i]);
}

/* The same tensors of two results. */
static inline void same(const bag *a, const bag *b, const char *name, double tolerance)
{
    const bag_tensor *t = bag_find(a, name), *u = bag_find(b, name);
    CHECK(t && u, "no %s to compare", name);
    CHECK(bag_size(t) == bag_size(u), "%s: %d elements, expected %d", name, bag_size(t),
          bag_size(u));
    near(name, t->data, u->data, bag_size(t), tolerance);
}

/* Two problems with the same result: out, lse and weights. */
static inline void equal(const variant_case *c, const variant_case *d, double tolerance)
{
    bag a = solve(c), b = solve(d);
    same(&a, &b, "out", tolerance);
    same(&a, &b, "lse", tolerance);
    same(&a, &b, "weights", tolerance);
    bag_free(&a), bag_free(&b);
}

/* The whole gradient of one tensor, none of it at a corner; release it with free. */
static inline double *gradient(variant_case *c, const char *name)
{
    bag_tensor *t = bag_find(&c->in, name);
    double *g = malloc(((size_t)bag_size(t) + 1) * sizeof *g);
    int kink;
    c->o.variant = c->spec;
    double *frozen = variant_freeze(&c->o, &c->in);
    c->o.frozen = frozen;
    for (int i = 0; i < bag_size(t); i++) {
        g[i] = variant_gradient(&c->o, &c->in, t, i, &kink);
        CHECK(!kink, "d%s[%d] is at a corner", name, i);
    }
    c->o.frozen = NULL;
    free(frozen);
    return g;
}

/* The same problem under another variant string. */
static inline variant_case renamed(const variant_case *c, const char *spec)
{
    variant_case d = *c;
    d.in = bag_copy(&c->in);
    snprintf(d.spec, sizeof d.spec, "%s", spec);
    return d;
}

#endif
