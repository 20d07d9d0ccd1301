/*
 * bench_paged.c - attention over keys and values in pages, and in a type of their own.
 */
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/work.h"

static void *open_pages(ph_ctx *ctx, const bench_shape *s, int page_len, ph_dtype type,
                        ph_status *status)
{
    ph_attn attn = bench_attention(s);
    attn.dtype = PH_F32; /* of q: the shape's is that of keys and values */
    attn.kv_dtype = type;
    attn.page_len = page_len;
    attn.pages = s->batch * ((s->kv_len - 1) / page_len + 1);
    return bench_attention_open(ctx, &attn, status);
}

static double stored_bytes(const bench_shape *s, ph_dtype type)
{
    return 2.0 * s->batch * s->kv_heads * s->kv_len *
           (double)ph_dtype_bytes(type, (size_t)s->dim);
}

#define PAGED(name, page_len, type, bytes)                                               \
    static void *open_##name(ph_ctx *ctx, const bench_shape *s, ph_status *status)       \
    {                                                                                    \
        return open_pages(ctx, s, page_len, type, status);                               \
    }                                                                                    \
    const bench_job bench_##name = {open_##name, bench_forward_run,                      \
                                    bench_attention_close, bench_forward_flops, bytes};
#define DECODE(name, page_len, type)                                                     \
    static double bytes_##name(const bench_shape *s)                                     \
    {                                                                                    \
        return stored_bytes(s, type);                                                    \
    }                                                                                    \
    PAGED(name, page_len, type, bytes_##name)

PAGED(prefill_16, 16, PH_F32, NULL)
PAGED(prefill_128, 128, PH_F32, NULL)
DECODE(decode_16, 16, PH_F32)
DECODE(decode_128, 128, PH_F32)
DECODE(decode_bf16, 128, PH_BF16)
DECODE(decode_q8_0, 128, PH_Q8_0)
DECODE(decode_q4_0, 128, PH_Q4_0)
