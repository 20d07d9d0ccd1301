/*
 * tensor.c - slabs of memory and the typed, strided tensors in them; see cases.h.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"

int case_guard_pages = 0;
int case_gap = 1;

slab *slab_new(problem *p, const char *name, slab_kind kind, size_t count, size_t size)
{
    slab *s = &p->slabs[p->slab_count++];
    s->name = name;
    s->kind = kind;
    s->count = count;
    s->size = size;
    size_t bytes = count * size;
    if (case_guard_pages) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        size_t whole = (bytes + page - 1) / page * page;
        s->mapped = whole + 2 * page;
        s->block = mmap(NULL, s->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *inside = (char *)s->block + page;
        if (whole) mprotect(inside, whole, PROT_READ | PROT_WRITE);
        s->bytes =
            (unsigned char *)(case_guard_pages > 0 ? inside + (whole - bytes) : inside);
    } else {
        s->mapped = 0;
        s->block = malloc(bytes ? bytes : 1);
        s->bytes = s->block;
    }
    s->mark = kind != SLAB_INPUT ? calloc(count + 1, 1) : NULL;
    /* NaN in every type; outputs get their pattern. */
    memset(s->bytes, kind != SLAB_INPUT ? SLAB_PATTERN : 0xff, bytes);
    return s;
}

void slab_free(slab *s)
{
    if (s->mapped)
        munmap(s->block, s->mapped);
    else
        free(s->block);
    free(s->mark);
}

size_t tensor_count(const tensor *t)
{
    return (size_t)t->batch * (size_t)t->heads * (size_t)t->len * (size_t)t->dim;
}

int64_t tensor_at(const tensor *t, int b, int h, int i, int d)
{
    return t->origin + b * t->at.batch + h * t->at.head + i * t->at.time + d;
}

void *tensor_data(const tensor *t)
{
    return t->mem ? t->mem->bytes + t->origin * (int64_t)t->mem->size : NULL;
}

double tensor_get(const tensor *t, int b, int h, int i, int d)
{
    return oracle_decode(t->dtype, t->mem->bytes, tensor_at(t, b, h, i, d));
}

void tensor_set(tensor *t, int b, int h, int i, int d, double value)
{
    oracle_encode(t->dtype, t->mem->bytes, tensor_at(t, b, h, i, d), value);
}

void tensor_set_row(tensor *t, int b, int h, int i, double value)
{
    for (int d = 0; d < t->dim; d++) tensor_set(t, b, h, i, d, value);
}

uint32_t tensor_bits(const tensor *t, int b, int h, int i, int d)
{
    const unsigned char *at =
        t->mem->bytes + tensor_at(t, b, h, i, d) * (int64_t)t->mem->size;
    uint32_t wide;
    uint16_t narrow;
    if (t->dtype != PH_F32) {
        memcpy(&narrow, at, 2);
        return narrow;
    }
    memcpy(&wide, at, 4);
    return wide;
}

int tensor_same_row(const tensor *x, int b, int h, int i, const tensor *y, int c, int g,
                    int j)
{
    return memcmp(x->mem->bytes + tensor_at(x, b, h, i, 0) * (int64_t)x->mem->size,
                  y->mem->bytes + tensor_at(y, c, g, j, 0) * (int64_t)y->mem->size,
                  (size_t)x->dim * x->mem->size) == 0;
}

int tensor_same(const tensor *x, const tensor *y)
{
    if (!x->mem || !y->mem) return x->mem == y->mem;
    for (int b = 0; b < x->batch; b++)
        for (int h = 0; h < x->heads; h++)
            for (int i = 0; i < x->len; i++)
                if (!tensor_same_row(x, b, h, i, y, b, h, i)) return 0;
    return 1;
}

void tensor_copy_row(tensor *to, int b, int h, int i, const tensor *from, int c, int g,
                     int j)
{
    memcpy(to->mem->bytes + tensor_at(to, b, h, i, 0) * (int64_t)to->mem->size,
           from->mem->bytes + tensor_at(from, c, g, j, 0) * (int64_t)from->mem->size,
           (size_t)from->dim * from->mem->size);
}
