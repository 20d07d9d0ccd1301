/*
 * variant_bag.c - tensors under names; see variant_oracle.h.
 */
#include <stdlib.h>
#include <string.h>

#include "variant_oracle.h"

int bag_size(const bag_tensor *t)
{
    int count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->dim[i];
    return count;
}

bag_tensor *bag_find(const bag *b, const char *name)
{
    for (int i = 0; i < b->count; i++)
        if (!strcmp(b->t[i].name, name)) return (bag_tensor *)(uintptr_t)&b->t[i];
    return NULL;
}

double *bag_data(const bag *b, const char *name)
{
    const bag_tensor *t = bag_find(b, name);
    return t ? t->data : NULL;
}

void bag_drop(bag *b, const char *name)
{
    bag_tensor *t = bag_find(b, name);
    if (!t) return;
    free(t->data);
    *t = b->t[--b->count];
}

double *bag_put(bag *b, const char *name, int n0, int n1, int n2, int n3)
{
    const int dim[] = {n0, n1, n2, n3};
    bag_tensor t = {.name = name};
    bag_drop(b, name);
    if (b->count == BAG_MOST) abort();
    while (t.rank < 4 && dim[t.rank] >= 0) t.dim[t.rank] = dim[t.rank], t.rank++;
    t.data = calloc((size_t)bag_size(&t) + 1, sizeof(double));
    b->t[b->count++] = t;
    return t.data;
}

bag bag_copy(const bag *b)
{
    bag copy = *b;
    for (int i = 0; i < b->count; i++) {
        size_t bytes = (size_t)bag_size(&b->t[i]) * sizeof(double);
        copy.t[i].data = malloc(bytes + 1);
        memcpy(copy.t[i].data, b->t[i].data, bytes);
    }
    return copy;
}

void bag_free(bag *b)
{
    for (int i = 0; i < b->count; i++) free(b->t[i].data);
    b->count = 0;
}
