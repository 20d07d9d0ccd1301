/*
 * joint_pack.c - keys of the joint driver, packed for products: those of whole batch rows
 * beforehand by all threads, or one block at a time by the thread that needs it.
 */
#include <string.h>

#include "attn/joint_grad.h"

/* Products read f32 rows of k in place if they need no padding. */
static int rows_in_place(const ph_plan *plan)
{
    return plan->attn.dtype == PH_F32 && plan->attn.qk_dim == plan->k_pad;
}

static size_t panel_floats(int dim)
{
    return (size_t)PH_BLOCK * (size_t)dim + PH_PACK_SLACK;
}

static size_t plane_index(const ph_joint_span *s, int batch, int j0, int head, int heads)
{
    size_t plane = (size_t)(batch - s->batch) * (size_t)heads + (size_t)head;
    return plane * (size_t)s->blocks + (size_t)(j0 / PH_BLOCK - s->block);
}

static size_t k_index(const ph_joint_keys *keys, int batch, int head, int j0)
{
    const ph_joint_span *s = &keys->span;
    return plane_index(s, batch, j0, head - s->k_head, s->k_heads);
}

static size_t v_index(const ph_joint_keys *keys, int batch, int head, int j0)
{
    const ph_joint_span *s = &keys->span;
    return plane_index(s, batch, j0, head - s->v_head, s->v_heads);
}

/* ---- layout ---- */

ph_joint_span ph_joint_batch_rows(const ph_plan *plan, int first, int count)
{
    return (ph_joint_span){.batch = first,
                           .batches = count,
                           .k_heads = plan->attn.k_heads,
                           .v_heads = plan->attn.v_heads,
                           .blocks = plan->joint.key_blocks};
}

ph_joint_span ph_joint_one_block(const ph_plan *plan, int batch, int set, int j0)
{
    const ph_attn *a = &plan->attn;
    int head = set * plan->joint.per_token, mixes = plan->joint.mixes;
    return (ph_joint_span){.batch = batch,
                           .batches = 1,
                           .k_head = mixes ? 0 : head * a->k_heads / a->q_heads,
                           .k_heads = mixes ? a->k_heads : 1,
                           .v_head = mixes ? 0 : head * a->v_heads / a->q_heads,
                           .v_heads = mixes ? a->v_heads : 1,
                           .block = j0 / PH_BLOCK,
                           .blocks = 1};
}

size_t ph_joint_mix_floats(const ph_plan *plan, int place)
{
    size_t factors = 2 * (size_t)plan->needs.key_rank[place] + 1;
    if (!plan->needs.key_rank[place]) return 0;
    return factors * (size_t)plan->joint.heads * PH_BLOCK;
}

void ph_joint_keys_take(const ph_plan *plan, ph_arena *arena, const ph_joint_span *span,
                        int backward, ph_joint_keys *out)
{
    const ph_attn *a = &plan->attn;
    size_t blocks = (size_t)span->batches * (size_t)span->blocks;
    size_t k = blocks * (size_t)span->k_heads, v = blocks * (size_t)span->v_heads;
    *out = (ph_joint_keys){.span = *span};
    if (!span->batches) return;
    for (int p = 0; p < 2; p++)
        if (plan->needs.key_rank[p])
            out->key_factors[p] =
                ph_arena_floats(arena, blocks * ph_joint_mix_floats(plan, p));
    out->k_panels = ph_arena_floats(arena, k * panel_floats(a->qk_dim));
    if (!backward) return;
    out->v_panels = ph_arena_floats(arena, v * panel_floats(a->v_dim));
    if (!rows_in_place(plan))
        out->k_rows = ph_arena_floats(arena, k * PH_BLOCK * (size_t)plan->k_pad);
    out->k_finite = ph_arena_take(arena, k);
    out->v_finite = ph_arena_take(arena, v);
}

/* ---- packing ---- */

typedef struct joint_pack_job {
    const ph_call *call;
    ph_joint_keys *keys;
} joint_pack_job;

static void pack_k(const ph_call *call, ph_joint_keys *keys, int batch, int head, int j0,
                   int n)
{
    const ph_keys k = ph_keys_k(call, batch, head);
    int64_t ld;
    size_t at = k_index(keys, batch, head, j0);
    ph_keys_panels(&k, j0, 0, n, keys->k_panels + at * panel_floats(k.dim));
    if (!keys->k_finite) return; /* forward */
    float *scratch = keys->k_rows ? keys->k_rows + at * PH_BLOCK * (size_t)k.pad : NULL;
    const float *rows = ph_keys_rows(&k, j0, 0, n, 1, scratch, &ld);
    keys->k_finite[at] = (uint8_t)call->kernels->finite(rows, ld, n, k.pad);
}

static void pack_v(const ph_call *call, ph_joint_keys *keys, int batch, int head, int j0,
                   int n)
{
    const ph_keys v = ph_keys_v(call, batch, head);
    size_t at = v_index(keys, batch, head, j0);
    float *panels = keys->v_panels + at * panel_floats(v.dim);
    int width = call->kernels->nr, end = ph_round_up(n, width);
    ph_keys_panels(&v, j0, 0, n, panels);
    keys->v_finite[at] = (uint8_t)call->kernels->finite(panels, PH_LANES,
                                                        end * v.dim / PH_LANES, PH_LANES);
}

/* The variant's w1, w2, g of one block of keys; 0 after the last key. */
static void make_key_factors(const ph_call *call, int place, int batch, int j0, float *w)
{
    int n = ph_min(PH_BLOCK, ph_rows_extent(call, batch).kv_len - j0);
    memset(w, 0, ph_joint_mix_floats(call->plan, place) * sizeof(float));
    call->plan->mixer->key_weights(call, (ph_mix_at)place, batch, j0, n, w);
}

static float *packed_key_factors(const ph_call *call, const ph_joint_keys *keys,
                                 int place, int batch, int j0)
{
    if (!keys->key_factors[place]) return NULL;
    return keys->key_factors[place] + plane_index(&keys->span, batch, j0, 0, 1) *
                                          ph_joint_mix_floats(call->plan, place);
}

static void pack_key_factors(const ph_call *call, ph_joint_keys *keys, int batch, int j0)
{
    for (int p = 0; p < 2; p++) {
        float *w = packed_key_factors(call, keys, p, batch, j0);
        if (w) make_key_factors(call, p, batch, j0, w);
    }
}

static int count_planes(const ph_joint_span *s)
{
    return s->k_heads + s->v_heads + 1;
}

static void pack_item(void *arg, int lane, int index)
{
    const joint_pack_job *job = arg;
    const ph_call *call = job->call;
    const ph_joint_span *s = &job->keys->span;
    int j0 = (s->block + index % s->blocks) * PH_BLOCK, plane = index / s->blocks;
    int batch = s->batch + plane / count_planes(s), head = plane % count_planes(s);
    int n = ph_min(PH_BLOCK, ph_rows_extent(call, batch).kv_len - j0);
    (void)lane;
    if (n <= 0) return;
    if (head < s->k_heads)
        pack_k(call, job->keys, batch, s->k_head + head, j0, n);
    else if (head == s->k_heads + s->v_heads)
        pack_key_factors(call, job->keys, batch, j0);
    else if (job->keys->v_panels)
        pack_v(call, job->keys, batch, s->v_head + head - s->k_heads, j0, n);
}

void ph_joint_keys_pack(const ph_call *call, ph_joint_keys *keys, int first)
{
    joint_pack_job job = {.call = call, .keys = keys};
    int rows = ph_min(keys->span.batches, call->attn->batch - first);
    keys->span.batch = first;
    if (rows > 0)
        ph_ctx_run(call->plan->ctx, rows * count_planes(&keys->span) * keys->span.blocks,
                   pack_item, &job);
}

const ph_joint_keys *ph_joint_keys_find(const ph_call *call, const ph_joint_keys *packed,
                                        ph_joint_keys *own, int batch, int set, int j0)
{
    joint_pack_job job = {.call = call, .keys = own};
    if (packed->k_panels) return packed;
    own->span = ph_joint_one_block(call->plan, batch, set, j0);
    for (int i = 0; i < count_planes(&own->span); i++) pack_item(&job, 0, i);
    return own;
}

/* ---- packed keys ---- */

const float *ph_joint_k(const ph_call *call, const ph_joint_keys *keys, int batch,
                        int head, int j0, int n, float *scratch)
{
    const ph_keys k = ph_keys_k(call, batch, head);
    if (keys->k_panels)
        return keys->k_panels + k_index(keys, batch, head, j0) * panel_floats(k.dim);
    ph_keys_panels(&k, j0, 0, n, scratch);
    return scratch;
}

const float *ph_joint_v(const ph_call *call, const ph_joint_keys *keys, int batch,
                        int head, int j0)
{
    return keys->v_panels +
           v_index(keys, batch, head, j0) * panel_floats(call->attn->v_dim);
}

const float *ph_joint_k_rows(const ph_call *call, const ph_joint_keys *keys, int batch,
                             int head, int j0, int64_t *ld)
{
    const ph_keys k = ph_keys_k(call, batch, head);
    size_t at = k_index(keys, batch, head, j0);
    *ld = keys->k_rows ? k.pad : k.strides->time;
    if (keys->k_rows) return keys->k_rows + at * PH_BLOCK * (size_t)k.pad;
    return ph_keys_at(&k, j0);
}

int ph_joint_k_finite(const ph_joint_keys *keys, int batch, int head, int j0)
{
    return keys->k_finite[k_index(keys, batch, head, j0)];
}

int ph_joint_v_finite(const ph_joint_keys *keys, int batch, int head, int j0)
{
    return keys->v_finite[v_index(keys, batch, head, j0)];
}

void ph_joint_key_factors(const ph_call *call, const ph_joint_keys *keys,
                          const ph_joint_rows *r, ph_joint_block *t,
                          float *const scratch[2])
{
    for (int p = 0; p < 2; p++) {
        if (!call->plan->needs.key_rank[p]) continue;
        t->keys[p] = packed_key_factors(call, keys, p, r->batch, t->j0);
        if (t->keys[p]) continue;
        make_key_factors(call, p, r->batch, t->j0, scratch[p]);
        t->keys[p] = scratch[p];
    }
}
