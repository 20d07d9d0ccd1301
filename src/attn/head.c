/*
 * head.c - a whole head by one kernel: what it is told, and the forward direction.
 */
#include "attn/head_set.h"

#include <math.h>

#include "attn/stream.h"

enum { FAR = 1 << 20 }; /* beyond any key and row of a tile */

/* Few rows are better off with keys as decoding reads them; few rows of each of several
   heads, with the rows of all heads side by side. */
static int is_whole(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    const ph_kernels *k = plan->kernels;
    return a->dtype == PH_F32 && !plan->drop_limit && a->softcap == 0 &&
           !plan->by_split && a->q_len > (plan->group > 1 ? k->nr - 1 : k->few) &&
           a->qk_dim > 0 && a->v_dim > 0 && (a->kv_len <= PH_BLOCK || k->long_heads);
}

size_t ph_head_forward_room(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int rows = ph_div_up(plan->rows, plan->group);
    return is_whole(plan) ? ph_head_floats(rows, a->kv_len, a->qk_dim, a->v_dim) : 0;
}

int ph_head_plain(const ph_call *call)
{
    const ph_args *args = call->args;
    return !args->bias && !args->visible && !args->relative && !args->alibi &&
           !args->gate && !call->twin;
}

static int within(int64_t x, int low, int high)
{
    return x < low ? low : x > high ? high : (int)x;
}

void ph_head_interval(const ph_call *call, const ph_extent *extent, int token, int k0,
                      int *lo, int *hi)
{
    int64_t low, high;
    ph_rows_window(call->attn, extent, token, &low, &high);
    *lo = within(low - k0, -FAR, FAR);
    *hi = within(high - k0, -FAR, FAR);
}

static const float *head_of(const void *tensor, const ph_strides *s, int batch, int head)
{
    return (const float *)tensor + batch * s->batch + head * s->head;
}

static float *out_of(void *tensor, const ph_strides *s, int batch, int head)
{
    return tensor ? (float *)tensor + batch * s->batch + head * s->head : NULL;
}

/* `count` rows from `first` on of the head, and the keys that are there. */
static void set_head(const ph_call *call, const ph_rows *rows, float *room, int first,
                     int count, ph_head *h)
{
    const ph_attn *a = call->attn;
    const ph_args *args = call->args;
    int b = rows->batch, head = rows->head0;
    int64_t lo, hi;
    *h = (ph_head){.rows = count, .keys = rows->extent.kv_len, .room = room};
    h->k_dim = a->qk_dim, h->v_dim = a->v_dim;
    h->q_ld = a->q.time, h->k_ld = a->k.time;
    h->v_ld = a->v.time, h->out_ld = a->out.time;
    h->scale = call->plan->scale2;
    h->q = head_of(args->q, &a->q, b, head) + first * a->q.time;
    h->k = head_of(args->k, &a->k, b, rows->k_head);
    h->v = head_of(args->v, &a->v, b, rows->v_head);
    h->out = out_of(args->out, &a->out, b, head) + first * a->out.time;
    if (args->lse)
        h->lse = args->lse + ((int64_t)b * a->q_heads + head) * a->q_len + first;
    ph_rows_window(a, &rows->extent, first, &lo, &hi);
    h->lo = within(lo, -count, h->keys);
    h->hi = within(hi, -count, h->keys);
}

void ph_head_beyond(const ph_call *call, const ph_rows *rows, ph_soon *soon)
{
    const ph_attn *a = call->attn;
    const ph_args *args = call->args;
    const ph_strides *dout = &call->plan->back.dout;
    int64_t b = rows->batch, head = rows->head0 + 1;
    int64_t k = head / (a->q_heads / a->k_heads), v = head / (a->q_heads / a->v_heads);
    if (b == a->batch - 1 && head == a->q_heads) return;
    ph_rows_ask(call, soon, 0, args->k, &a->k, b * a->k.batch + k * a->k.head, a->kv_len,
                a->qk_dim);
    ph_rows_ask(call, soon, 1, args->q, &a->q, b * a->q.batch + head * a->q.head,
                a->q_len, a->qk_dim);
    ph_rows_ask(call, soon, 2, args->v, &a->v, b * a->v.batch + v * a->v.head, a->kv_len,
                a->v_dim);
    if (!call->grads) return;
    ph_rows_ask(call, soon, 3, call->grads->dout, dout,
                b * dout->batch + head * dout->head, a->q_len, a->v_dim);
    ph_rows_ask(call, soon, 4, args->out, &a->out, b * a->out.batch + head * a->out.head,
                a->q_len, a->v_dim);
}

/* Whether v is finite where a key is multiplied for a row that does not see it. */
static int hidden_finite(const ph_call *call, const ph_head *h)
{
    const int even = h->v_dim / PH_LANES * PH_LANES, further = h->rows - 1;
    const int from[2] = {ph_max(h->lo, 0), ph_max(h->hi, 0)};
    const int to[2] = {ph_min(h->lo + further, h->keys),
                       ph_min(h->hi + further, h->keys)};
    for (int i = 0; i < 2; i++) {
        const float *v = h->v + from[i] * h->v_ld;
        int n = ph_max(to[i] - from[i], 0);
        if (n && !call->kernels->finite(v, h->v_ld, n, even)) return 0;
        for (int j = 0; j < n; j++, v += h->v_ld)
            for (int c = even; c < h->v_dim; c++)
                if (!isfinite(v[c])) return 0;
    }
    return 1;
}

/* Rows [first, end) of one head. */
static int forward_rows(const ph_call *call, float *room, int batch, int head, int first,
                        int end)
{
    ph_rows rows;
    ph_head h;
    ph_rows_begin(call, &rows, batch, head, 1);
    int count = ph_min(end, rows.extent.q_len) - first;
    if (rows.extent.kv_len < 1) return 0;
    if (count > 0) {
        set_head(call, &rows, room, first, count, &h);
        if (!hidden_finite(call, &h)) return 0;
        if (call->plan->row_blocks == 1) ph_head_beyond(call, &rows, &h.soon);
        call->kernels->head_forward(&h);
    }
    ph_stream_clear(call, &rows, first, end);
    return 1;
}

int ph_head_forward(const ph_call *call, float *room, int batch, int head, int first,
                    int end)
{
    int group = call->plan->group;
    if (!is_whole(call->plan) || !ph_head_plain(call) || call->args->sink) return 0;
    for (int n = 0; n < group; n++) { /* row = token * group + n */
        int from = ph_div_up(ph_max(first - n, 0), group);
        int to = ph_div_up(ph_max(end - n, 0), group);
        if (!forward_rows(call, room, batch, head + n, from, to)) return 0;
    }
    return 1;
}
