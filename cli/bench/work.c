/*
 * work.c - one attention problem with random data; see work.h.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/work.h"

/* Places in work.memory. Inputs first, then outputs. */
enum { Q, K, V, DOUT, INPUTS, OUT = INPUTS, LSE, DQ, DK, DV, USED };

/* ---- random values ---- */

/* splitmix64 */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A float with at most 8 significant bits and a usual exponent: exact in both. */
static uint16_t narrow(float value, ph_dtype dtype)
{
    uint32_t bits = bits_of(value);
    if (dtype == PH_BF16 || value == 0) return (uint16_t)(bits >> 16);
    uint32_t exponent = ((bits >> 23) & 255) - 127 + 15;
    return (uint16_t)((bits >> 31 << 15) | (exponent << 10) | ((bits >> 13) & 1023));
}

/* Blocks of 32 elements: a scale of 1/16 in f16, a minimum of 0, random bytes. */
static void fill_blocks(unsigned char *data, size_t count, ph_dtype dtype, uint64_t seed)
{
    size_t bytes = ph_dtype_bytes(dtype, 32), fixed = dtype == PH_Q4_1 ? 4 : 2;
    for (size_t b = 0; b < count / 32; b++, data += bytes) {
        memset(data, 0, fixed);
        data[1] = 0x2c;
        for (size_t i = fixed; i < bytes; i++)
            data[i] = (unsigned char)mix(seed + b * bytes + i);
    }
}

void work_fill(void *data, size_t count, ph_dtype dtype, uint64_t seed)
{
    if (dtype >= PH_Q8_0 && dtype <= PH_Q4_1) {
        fill_blocks(data, count, dtype, seed);
        return;
    }
    float *wide = data;
    uint16_t *half = data;
    for (size_t i = 0; i < count; i++) {
        uint64_t r = mix(seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
        if (dtype == PH_F32)
            wide[i] = (float)(int32_t)(r >> 32) * 0x1p-31f;
        else
            half[i] = narrow((float)((int)(r >> 56) - 128) * 0x1p-7f, dtype);
    }
}

/* ---- opening ---- */

/* Large tensors get large pages, as a serious cache of keys and values would: without
   them the time goes into address translation and not into attention. */
void *work_allocate(size_t bytes)
{
    enum { LARGE = 2 << 20 };
    size_t align = bytes >= LARGE ? LARGE : 64;
    void *data = aligned_alloc(align, (bytes + align) / align * align);
    if (data && align == LARGE) madvise(data, bytes, MADV_HUGEPAGE);
    return data;
}

static void sizes_of(const ph_attn *a, size_t *count)
{
    size_t k_heads = (size_t)(a->k_heads ? a->k_heads : a->q_heads);
    size_t v_heads = (size_t)(a->v_heads ? a->v_heads : a->q_heads);
    size_t v_dim = (size_t)(a->v_dim ? a->v_dim : a->qk_dim);
    size_t tokens = (size_t)a->batch * (size_t)a->q_len;
    size_t keys = a->page_len ? (size_t)a->pages * (size_t)a->page_len
                              : (size_t)a->batch * (size_t)a->kv_len;
    if (a->ragged) tokens = (size_t)a->q_total, keys = (size_t)a->kv_total;
    size_t rows = tokens * (size_t)a->q_heads;
    count[Q] = rows * (size_t)a->qk_dim;
    count[K] = keys * k_heads * (size_t)a->qk_dim;
    count[V] = keys * v_heads * v_dim;
    count[OUT] = rows * v_dim;
    count[LSE] = rows;
    count[DOUT] = a->backward ? count[OUT] : 0;
    count[DQ] = a->backward ? count[Q] : 0;
    count[DK] = a->backward ? count[K] : 0;
    count[DV] = a->backward ? count[V] : 0;
}

/* Each page once, in random order. */
static int32_t *make_table(int pages)
{
    int32_t *table = malloc(((size_t)pages + 1) * sizeof *table);
    for (int i = 0; table && i < pages; i++) {
        int other = (int)(mix((uint64_t)i) % (uint64_t)(i + 1));
        table[i] = table[other];
        table[other] = i;
    }
    return table;
}

static ph_status fill(work *w, const int32_t *offsets)
{
    size_t count[USED];
    sizes_of(&w->attn, count);
    if (w->attn.page_len) w->table = make_table(w->attn.pages);
    if (w->attn.page_len && !w->table) return PH_OUT_OF_MEMORY;
    for (int i = 0; i < USED; i++) {
        ph_dtype dtype = i == LSE ? PH_F32 : w->attn.dtype;
        if ((i == K || i == V) && w->attn.kv_dtype) dtype = w->attn.kv_dtype;
        w->memory[i].bytes = ph_dtype_bytes(dtype, count[i]);
        if (!count[i]) continue;
        w->memory[i].data = work_allocate(w->memory[i].bytes);
        if (!w->memory[i].data) return PH_OUT_OF_MEMORY;
        if (i < INPUTS)
            work_fill(w->memory[i].data, count[i], dtype, (uint64_t)i << 40);
        else
            memset(w->memory[i].data, 0, w->memory[i].bytes);
    }
    w->args = (ph_args){.q = w->memory[Q].data,
                        .k = w->memory[K].data,
                        .v = w->memory[V].data,
                        .out = w->memory[OUT].data,
                        .lse = w->memory[LSE].data,
                        .page_table = w->table,
                        .q_offsets = offsets};
    w->grads = (ph_grads){.dout = w->memory[DOUT].data,
                          .dq = w->memory[DQ].data,
                          .dk = w->memory[DK].data,
                          .dv = w->memory[DV].data};
    return PH_OK;
}

ph_status work_open(work *w, ph_ctx *ctx, const ph_attn *attn, const int32_t *offsets)
{
    memset(w, 0, sizeof *w);
    w->attn = *attn;
    ph_status status = ph_plan_create(&w->plan, ctx, attn);
    if (status == PH_OK) status = fill(w, offsets);
    if (status == PH_OK) status = work_forward(w);
    if (status != PH_OK) work_close(w);
    return status;
}

void work_close(work *w)
{
    ph_plan_free(w->plan);
    for (int i = 0; i < USED; i++) free(w->memory[i].data);
    free(w->table);
    memset(w, 0, sizeof *w);
}

/* ---- running ---- */

ph_status work_forward(work *w)
{
    return ph_forward(w->plan, &w->args);
}

ph_status work_backward(work *w)
{
    return ph_backward(w->plan, &w->args, &w->grads);
}

int work_same(const work *a, const work *b)
{
    for (int i = INPUTS; i < USED; i++) {
        if (a->memory[i].bytes != b->memory[i].bytes) return 0;
        if (!a->memory[i].bytes) continue;
        if (memcmp(a->memory[i].data, b->memory[i].data, a->memory[i].bytes)) return 0;
    }
    return 1;
}
