/*
 * address.h - where rows and keys lie in memory: ph_row_at and ph_key_at, and their
 * counterparts for packed tensors; ph_slot_at is the same for keys that a layer stores.
 * Nothing else computes addresses of a caller's tensor from a batch row, a head and a
 * token or key.
 */
#ifndef PH_ATTN_ADDRESS_H
#define PH_ATTN_ADDRESS_H

#include "attn/plan.h"

/* Element index of a query's row in a tensor with strides: q, out, dout, dq. */
static inline int64_t ph_row_at(const ph_call *call, const ph_strides *s, int batch,
                                int head, int token)
{
    if (call->attn->ragged)
        return head * s->head + (call->args->q_offsets[batch] + token) * s->time;
    return batch * s->batch + head * s->head + token * s->time;
}

/* Index of a query's row in a packed (batch, q_heads, q_len) tensor: lse, gate, looks,
   and what the backward pass keeps of a row. */
static inline int64_t ph_row_index(const ph_call *call, int batch, int head, int token)
{
    const ph_attn *a = call->attn;
    if (a->ragged)
        return (int64_t)head * a->q_total + call->args->q_offsets[batch] + token;
    return ((int64_t)batch * a->q_heads + head) * a->q_len + token;
}

/* Element index of a key or value in batch rows, or in the pages that a table of
   `table_len` entries per batch row names. */
static inline int64_t ph_slot_at(const ph_attn *a, const int32_t *page_table,
                                 int table_len, const ph_strides *s, int batch, int head,
                                 int key)
{
    int64_t block = batch;
    if (a->page_len) {
        block = page_table[block * table_len + key / a->page_len];
        key %= a->page_len;
    }
    return block * s->batch + head * s->head + key * s->time;
}

/* Element index of a key's row in a tensor with strides: k, v, dk, dv. */
static inline int64_t ph_key_at(const ph_call *call, const ph_strides *s, int batch,
                                int head, int key)
{
    if (call->attn->ragged == PH_RAGGED_ALL)
        return head * s->head + (call->kv_offsets[batch] + key) * s->time;
    return ph_slot_at(call->attn, call->args->page_table, call->plan->table_len, s, batch,
                      head, key);
}

/* How many keys from `key` on lie one stride apart. */
static inline int ph_key_run(const ph_call *call, int key)
{
    const int page_len = call->attn->page_len;
    return page_len ? page_len - key % page_len : INT32_MAX;
}

/* Index of a key in a packed (batch, q_heads, kv_len) tensor: column sums. */
static inline int64_t ph_key_index(const ph_call *call, int batch, int head, int key)
{
    const ph_attn *a = call->attn;
    if (a->ragged == PH_RAGGED_ALL)
        return (int64_t)head * a->kv_total + call->kv_offsets[batch] + key;
    return ((int64_t)batch * a->q_heads + head) * a->kv_len + key;
}

/* Index of a query, and of a key, in a packed (batch, len) tensor: what a variant has of
   each token. */
static inline int64_t ph_token_index(const ph_call *call, int batch, int token)
{
    const ph_attn *a = call->attn;
    if (a->ragged) return call->args->q_offsets[batch] + token;
    return (int64_t)batch * a->q_len + token;
}

static inline int64_t ph_key_token_index(const ph_call *call, int batch, int key)
{
    const ph_attn *a = call->attn;
    if (a->ragged == PH_RAGGED_ALL) return call->kv_offsets[batch] + key;
    return (int64_t)batch * a->kv_len + key;
}

#endif
