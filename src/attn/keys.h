/*
 * keys.h - the keys or the values of one head: found, packed, converted, prefetched.
 */
#ifndef PH_ATTN_KEYS_H
#define PH_ATTN_KEYS_H

#include "attn/address.h"

typedef struct ph_keys {
    const ph_call *call;
    const void *base; /* k or v of the call */
    const ph_strides *strides;
    ph_dtype type;
    int dim, pad; /* pad: dim rounded up to 16 */
    int batch, head;
    int len; /* valid keys; what lies behind them is not read */
} ph_keys;

ph_keys ph_keys_k(const ph_call *call, int batch, int head);
ph_keys ph_keys_v(const ph_call *call, int batch, int head);

/* Key j in place. */
static inline const void *ph_keys_at(const ph_keys *keys, int j)
{
    return ph_at(keys->base, keys->type,
                 ph_key_at(keys->call, keys->strides, keys->batch, keys->head, j));
}

/* Pointers to keys [j, j + count). */
void ph_keys_pointers(const ph_keys *keys, int j, int count, const void **out);

/* Whether keys [j, j + count) lie one stride apart. */
static inline int ph_keys_adjoin(const ph_keys *keys, int j, int count)
{
    return count <= ph_key_run(keys->call, j);
}

/* Prefetch distance in bytes: from key j to the same key of the next block. */
int64_t ph_keys_next_block(const ph_keys *keys, int j);

/* Range i of a prefetch: keys [j, j + n), if they are contiguous. */
void ph_keys_prefetch(const ph_keys *keys, int j, int n, ph_prefetch *ahead, int i);

/* Prefetches keys [j, j + n) into L2, those that are valid. */
void ph_keys_prefetch_all(const ph_keys *keys, int j, int n);

/* Prefetches up to `count` vectors of the page that begins at key j, if one does:
   hardware prefetchers do not follow a page table. later: into L2, not needed at once. */
void ph_keys_prefetch_page(const ph_keys *keys, int j, int count, int later);

/* Packs keys [j0 + c0, j0 + c1), c0 a multiple of nr, into K-major panels. */
void ph_keys_panels(const ph_keys *keys, int j0, int c0, int c1, float *panels);

/* The same keys row-major in f32, with `pad` columns: in place where they have that
   layout and reading them there is cheap, else a copy in `scratch`. Key j0 + c is at
   result + c * *ld. */
const float *ph_keys_rows(const ph_keys *keys, int j0, int c0, int c1, int in_place,
                          float *scratch, int64_t *ld);

/* Range i of a prefetch: n contiguous vectors of a tensor from element `at` on. */
void ph_prefetch_rows(ph_prefetch *ahead, int i, const void *base, ph_dtype type,
                      const ph_strides *strides, int64_t at, int n, int dim);

#endif
