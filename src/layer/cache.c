/*
 * cache.c - rows of keys and values in the type and the pages of a cache.
 *
 * Blocks of 32 elements are rounded as GGUF files are made: the scale maps the largest
 * element to the end of the range, in f16, and elements are rounded to the nearest step.
 * A block with NaN or Inf gets the scale NaN.
 */
#include <math.h>

#include "base/quant.h"
#include "layer/layer.h"

int ph_shape_takes_pages(const ph_shape *s)
{
    return s->k.heads && s->v.heads && !s->k.pad && !s->v.pad && !s->makes_kv &&
           !s->cache && !s->sums_keys && !s->attn.k.time && !s->attn.v.time;
}

ph_status ph_layer_check_pages(const ph_layer *l)
{
    const ph_attn *a = &l->desc.attn;
    if (!a->page_len && !a->pages && !a->kv_dtype) return PH_OK;
    if (!l->desc.cache)
        return ph_fail(l->ctx, PH_BAD_ARGUMENT,
                       "attn.page_len is %d and attn.kv_dtype %d without a cache, "
                       "expected cache 1",
                       a->page_len, (int)a->kv_dtype);
    if (!l->takes_pages)
        return ph_fail(l->ctx, PH_UNSUPPORTED,
                       "variant %s caches other tensors than k and v, expected "
                       "attn.page_len 0 and attn.kv_dtype 0",
                       l->desc.attn.variant);
    return PH_OK;
}

static void put_half(float x, uint8_t *to)
{
    uint16_t half = ph_to_f16(x);
    memcpy(to, &half, sizeof half);
}

/* x / step, rounded, within [low, high]; a step of 0 gives 0. */
static int steps_of(float x, float step, int low, int high)
{
    float n = step != 0 ? rintf(x / step) : 0;
    return n < (float)low ? low : n > (float)high ? high : (int)n;
}

static void store_bytes(const float *x, float largest, uint8_t *to)
{
    float step = fabsf(largest) / 127;
    put_half(step, to);
    for (int i = 0; i < PH_QUANT_BLOCK; i++)
        to[2 + i] = (uint8_t)steps_of(x[i], step, -127, 127);
}

/* Nibbles of x - from in steps, `zero` of them added. */
static void store_nibbles(const float *x, float from, float step, int zero, uint8_t *to)
{
    for (int i = 0; i < PH_QUANT_BLOCK / 2; i++) {
        int low = steps_of(x[i] - from, step, -zero, 15 - zero) + zero;
        int high = steps_of(x[i + 16] - from, step, -zero, 15 - zero) + zero;
        to[i] = (uint8_t)(low | high << 4);
    }
}

static void store_block(const float *x, ph_dtype type, uint8_t *to)
{
    float largest = x[0], least = x[0], most = x[0], finite = 0;
    for (int i = 0; i < PH_QUANT_BLOCK; i++) {
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
        least = fminf(least, x[i]), most = fmaxf(most, x[i]);
        finite += x[i] * 0;
    }
    if (finite != 0) { /* NaN */
        memset(to, 0, (size_t)ph_offset(type, PH_QUANT_BLOCK));
        put_half(NAN, to);
    } else if (type == PH_Q8_0) {
        store_bytes(x, largest, to);
    } else if (type == PH_Q4_0) { /* the largest becomes -8 steps */
        put_half(largest / -8, to);
        store_nibbles(x, 0, largest / -8, 8, to + 2);
    } else {
        put_half((most - least) / 15, to), put_half(least, to + 2);
        store_nibbles(x, least, (most - least) / 15, 0, to + 4);
    }
}

void ph_layer_store(const ph_layer *l, const float *x, int n, ph_dtype type, void *to)
{
    uint8_t *bytes = to;
    if (!ph_dtype_is_block(type)) {
        l->ctx->kernels->store_row(to, x, n, type, 1);
        return;
    }
    for (int i = 0; i < n; i += PH_QUANT_BLOCK)
        store_block(x + i, type, bytes + ph_offset(type, i));
}
