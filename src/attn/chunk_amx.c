/*
 * chunk_amx.c - gradients of a chunk of keys on AMX tiles, see chunk_amx.h.
 *
 * For PH_GRAD_ROWS rows and a block of PH_BLOCK keys:
 *
 *     for each group of PH_AMX_STEP rows      s = q k^T and dp = dout v^T     f32 in L1
 *                                         p and ds                        terms, L2
 *                                         dq += ds k                      f32
 *     for each PH_AMX_BLOCK keys               dv^T += dout^T p, dk^T += q^T ds
 *
 * AMX flushes subnormals to 0, and a bf16x3 split cannot represent Inf or NaN. Such
 * elements of q, k and dout are 0 in the operands, and so is every (row, key) whose ds is
 * non-finite; their products are added one by one, where the row sees the key.
 */
#include "attn/chunk_amx.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

enum { TILE = PH_AMX_TILE * PH_AMX_STEP, TERMS = PH_BF16_TERMS * TILE }; /* elements */

/* Some cache lines of padding avoid 4K aliasing: loads from one array would wait for
   stores to the same offset of another. */
static uint16_t *take_bf16(ph_arena *arena, size_t lines, int elements)
{
    ph_arena_take(arena, 5 * PH_ALIGN);
    return ph_arena_take(arena, lines * (size_t)elements * sizeof(uint16_t));
}

static float *take_strips(ph_arena *arena)
{
    return ph_arena_floats(arena, PH_AMX_STEP * PH_STRIP_LD);
}

void ph_chunk_amx_take(const ph_plan *plan, ph_arena *arena, ph_chunk_amx *t)
{
    const ph_attn *a = &plan->attn;
    const size_t rows = PH_GRAD_ROWS;
    int k_cols = ph_round_up(a->qk_dim, PH_AMX_BLOCK),
        v_cols = ph_round_up(a->v_dim, PH_AMX_BLOCK);
    int wide = ph_max(k_cols, v_cols);
    t->k_cols = k_cols, t->v_cols = v_cols, t->v_steps = v_cols;
    t->k_panels = take_bf16(arena, PH_CHUNK, plan->k_steps);
    t->v_panels = take_bf16(arena, PH_CHUNK, t->v_steps);
    t->k_rows = take_bf16(arena, PH_CHUNK, k_cols);
    t->k_special = ph_arena_take(arena, PH_CHUNK);
    t->v_special = ph_arena_take(arena, PH_CHUNK);
    t->q_rows = take_bf16(arena, rows, plan->k_steps);
    t->dout_rows = take_bf16(arena, rows, t->v_steps);
    t->q_columns = take_bf16(arena, rows, k_cols);
    t->dout_columns = take_bf16(arena, rows, v_cols);
    t->q_special = ph_arena_take(arena, rows);
    t->dout_special = ph_arena_take(arena, rows);
    t->lse = ph_arena_floats(arena, rows);
    t->delta = ph_arena_floats(arena, rows);
    t->gate = ph_arena_floats(arena, rows);
    t->s = take_strips(arena);
    t->dp = take_strips(arena);
    t->drop = take_strips(arena);
    t->derivative = a->softcap > 0 ? take_strips(arena) : NULL;
    t->p_f32 = ph_arena_floats(arena, PH_STRIP_LD);
    t->ds_f32 = ph_arena_floats(arena, PH_STRIP_LD);
    t->lane_max = ph_arena_floats(arena, PH_AMX_TILE * PH_LANES);
    t->p = take_bf16(arena, PH_GROUPS * PH_PANELS, TERMS);
    t->ds = take_bf16(arena, PH_GROUPS * PH_PANELS, TERMS);
    t->ds_rows = take_bf16(arena, PH_PANELS, TERMS);
    t->dq = ph_arena_floats(arena, rows * (size_t)k_cols);
    t->transposed = ph_arena_floats(arena, PH_AMX_BLOCK * (size_t)wide + PH_PACK_SLACK);
    t->lines = ph_arena_take(arena, (size_t)wide * sizeof *t->lines);
}

/* ---- operands ---- */

/* special[r] = 1 for rows with a subnormal or non-finite element. */
static void find_special(const void *const *rows, int n, int dim, uint8_t *special)
{
    for (int r = 0; r < n; r++)
        for (int d = 0; d < dim; d++)
            special[r] |= !ph_is_normal(((const uint16_t *)rows[r])[d]);
}

/* The same, and such elements become 0 in `count` packed elements. */
static void zero_special(uint16_t *packed, int count, const void *const *rows, int n,
                         int dim, uint8_t *special)
{
    for (int i = 0; i < count; i++)
        if (!ph_is_normal(packed[i])) packed[i] = 0;
    find_special(rows, n, dim, special);
}

void ph_chunk_amx_pack_keys(const ph_call *call, ph_chunk_amx *t, const ph_rows *rows,
                            int k0, int keys)
{
    const ph_attn *a = call->attn;
    const ph_bf16_pairs *pairs = call->plan->bf16_pairs;
    const void *k[PH_AMX_STEP], *v[PH_AMX_STEP];
    const ph_keys key = ph_keys_k(call, rows->batch, rows->k_head);
    const ph_keys value = ph_keys_v(call, rows->batch, rows->v_head);
    int k_pad = call->plan->k_pad;
    t->keys_special = 0;
    memset(t->k_special, 0, PH_CHUNK);
    memset(t->v_special, 0, PH_CHUNK);
    for (int c = 0; c < keys; c += PH_AMX_STEP) {
        int n = ph_min(PH_AMX_STEP, keys - c);
        uint16_t *k_pairs = t->k_rows + (int64_t)c * t->k_cols;
        ph_keys_pointers(&key, k0 + c, n, k);
        ph_keys_pointers(&value, k0 + c, n, v);
        for (int h = 0; h < n; h += PH_AMX_TILE) {
            int m = ph_min(PH_AMX_TILE, n - h);
            pairs->pack_panel(t->k_panels + (int64_t)(c + h) * call->plan->k_steps, k + h,
                              m, a->qk_dim, 0);
            pairs->pack_panel(t->v_panels + (int64_t)(c + h) * t->v_steps, v + h, m,
                              a->v_dim, 0);
        }
        if (k_pad < t->k_cols)
            memset(k_pairs + (int64_t)k_pad * PH_AMX_STEP, 0, TILE * sizeof *k_pairs);
        int k_normal = pairs->pack_pairs(k_pairs, k, n, a->qk_dim, 0);
        int v_normal = pairs->all_normal(v, n, a->v_dim);
        if (!k_normal)
            zero_special(k_pairs, t->k_cols * PH_AMX_STEP, k, n, a->qk_dim,
                         t->k_special + c);
        if (!v_normal) find_special(v, n, a->v_dim, t->v_special + c);
        t->keys_special |= !k_normal || !v_normal;
    }
}

/* One of q and dout, PH_AMX_STEP rows from r on: both left operands. */
static int pack_group(const ph_call *call, const ph_rows *rows, int r, const void *base,
                      const ph_strides *s, int dim, int wide, uint16_t *lines,
                      uint16_t *columns, uint8_t *special)
{
    const ph_bf16_pairs *pairs = call->plan->bf16_pairs;
    const void *from[PH_AMX_STEP];
    int m = ph_min(PH_AMX_STEP, rows->count - r);
    ph_rows_pointers(call, rows, r, m, base, s, from);
    for (int h = 0; h < m; h += PH_AMX_TILE)
        pairs->pack_rows(lines + (int64_t)(r + h) * wide, from + h,
                         ph_min(PH_AMX_TILE, m - h), dim);
    columns += (int64_t)r * wide, special += r;
    memset(special, 0, PH_AMX_STEP);
    if (pairs->pack_columns(columns, from, m, dim)) return 0;
    zero_special(columns, ph_round_up(dim, PH_AMX_TILE) * PH_AMX_STEP, from, m, dim,
                 special);
    return 1;
}

static void pack_rows(const ph_call *call, ph_chunk_amx *t, const ph_deltas *deltas,
                      const ph_rows *rows)
{
    const ph_attn *a = call->attn;
    const float *gate = call->args->gate;
    t->any_special = t->keys_special;
    for (int r = 0; r < rows->count; r += PH_AMX_STEP) {
        t->any_special |= pack_group(call, rows, r, call->args->q, &a->q, a->qk_dim,
                                     t->k_cols, t->q_rows, t->q_columns, t->q_special);
        t->any_special |= pack_group(call, rows, r, call->grads->dout,
                                     &call->plan->backward.dout, a->v_dim, t->v_cols,
                                     t->dout_rows, t->dout_columns, t->dout_special);
    }
    for (int r = 0; r < rows->count; r++) {
        int64_t index = ph_rows_index(call, rows, r);
        t->lse[r] = deltas->lse[index];
        t->delta[r] = deltas->delta[index];
        if (gate) t->gate[r] = gate[a->gate == PH_GATE_HEAD ? rows->head[r] : index];
    }
}

/* ---- s and dp ---- */

/* The product of dropout and gate, a factor of p and of dp. Returns 0 if there is
   none. */
static int compute_factors(const ph_call *call, ph_chunk_amx *t, const ph_rows *rows,
                           int r, int m, int j0, int c0, int c1)
{
    int drop = call->plan->drop_limit != 0, end = ph_round_up(c1, PH_LANES);
    if (drop) ph_rows_dropout(call, rows, r, m, j0, c0, c1, t->drop);
    for (int i = 0; i < m && call->args->gate; i++)
        for (int c = c0; c < end; c++) {
            float *f = t->drop + i * PH_STRIP_LD + c;
            *f = drop ? *f * t->gate[r + i] : t->gate[r + i];
        }
    return drop || call->args->gate;
}

/* s and dp of a group, masked. Returns the scale that s still lacks. */
static float compute_s_dp(const ph_call *call, ph_chunk_amx *t, const ph_rows *rows,
                          int r, int m, int j0, int c_block, int c0, int c1)
{
    const ph_plan *plan = call->plan;
    int end = ph_round_up(c1, PH_AMX_TILE), n = end - c0;
    int whole = end % PH_AMX_STEP == 0 && ph_rows_whole(call, rows, r, m, j0, c0, c1);
    const uint16_t *k = t->k_panels + (int64_t)(c_block + c0) * plan->k_steps;
    const uint16_t *v = t->v_panels + (int64_t)(c_block + c0) * t->v_steps;
    for (int h = 0; h < m; h += PH_AMX_TILE) {
        int strip = ph_min(PH_AMX_TILE, m - h);
        float *s = t->s + h * PH_STRIP_LD, *dp = t->dp + h * PH_STRIP_LD;
        float *derivative = t->derivative ? t->derivative + h * PH_STRIP_LD : NULL;
        plan->bf16_pairs->scores(strip, n, plan->k_steps,
                                 t->q_rows + (int64_t)(r + h) * plan->k_steps, k,
                                 plan->scale2, s + c0, whole ? NULL : t->lane_max);
        plan->bf16_pairs->scores(strip, n, t->v_steps,
                                 t->dout_rows + (int64_t)(r + h) * t->v_steps, v, 1,
                                 dp + c0, NULL);
        if (whole) continue;
        ph_score_strip masked = {rows, r + h, strip,       j0,        c0,
                                 c1,   s,     t->lane_max, derivative};
        ph_rows_mask(call, &masked);
        for (int i = 0; i < strip && end % PH_AMX_STEP; i++)
            for (int c = 0; c < PH_AMX_TILE; c++)
                s[i * PH_STRIP_LD + end + c] = -INFINITY;
    }
    return whole ? plan->scale2 : 1;
}

/* ---- subnormal and non-finite elements ---- */

static const uint16_t *row_of(const ph_call *call, const ph_rows *rows, int r,
                              const void *base, const ph_strides *s)
{
    return ph_at(base, call->attn->dtype, ph_rows_at(call, rows, r, s));
}

/* Recomputes dp as an f32 chain where dout or v has subnormal or non-finite elements. */
static void recompute_dp(const ph_call *call, ph_chunk_amx *t, const ph_rows *rows, int r,
                         int m, int j0, int c_block, int c0, int c1)
{
    const ph_keys v = ph_keys_v(call, rows->batch, rows->v_head);
    for (int i = 0; i < m; i++)
        for (int c = c0; c < c1; c++) {
            if (!t->dout_special[r + i] && !t->v_special[c_block + c]) continue;
            const uint16_t *x =
                row_of(call, rows, r + i, call->grads->dout, &call->plan->backward.dout);
            const uint16_t *y = ph_keys_at(&v, j0 + c);
            float sum = 0;
            for (int d = 0; d < v.dim; d++)
                sum = fmaf(ph_from_bf16(x[d]), ph_from_bf16(y[d]), sum);
            t->dp[i * PH_STRIP_LD + c] = sum;
        }
}

/* sums[d * step] += factor * x[d], for all d or for subnormal and non-finite x[d] */
static void add_elements(int n, float factor, const uint16_t *x, int all, float *sums,
                         int step)
{
    for (int d = 0; d < n; d++)
        if (all || !ph_is_normal(x[d])) sums[d * step] += factor * ph_from_bf16(x[d]);
}

/* The three products of one (row, key), of all elements or of those AMX left out. */
static void add_pair(const ph_call *call, ph_chunk_amx *t, const ph_rows *rows, int r,
                     int j, int c, int all, float p, float ds, float *dk, float *dv)
{
    const ph_attn *a = call->attn;
    const uint16_t *q = row_of(call, rows, r, call->args->q, &a->q);
    const uint16_t *dout =
        row_of(call, rows, r, call->grads->dout, &call->plan->backward.dout);
    const ph_keys key = ph_keys_k(call, rows->batch, rows->k_head);
    const uint16_t *k = ph_keys_at(&key, j);
    int64_t matrix = c / PH_AMX_BLOCK * PH_AMX_BLOCK;
    add_elements(a->v_dim, p, dout, all, dv + matrix * t->v_cols + c % PH_AMX_BLOCK,
                 PH_AMX_BLOCK);
    add_elements(a->qk_dim, ds, q, all, dk + matrix * t->k_cols + c % PH_AMX_BLOCK,
                 PH_AMX_BLOCK);
    add_elements(a->qk_dim, ds, k, all, t->dq + (int64_t)r * t->k_cols, 1);
}

/* Adds what AMX leaves out. Where p or ds is non-finite, s becomes -inf, so that AMX
   skips the (row, key); returns 1 if there was one. */
static int add_left_out(const ph_call *call, ph_chunk_amx *t, const ph_rows *rows, int r,
                        int j0, int c_block, int c1, const ph_score_grad *x, float *dk,
                        float *dv)
{
    int taken = 0, c0 = (int)(x->s - t->s);
    for (int i = 0; i < x->m; i++) {
        float *s = t->s + i * PH_STRIP_LD, *p = t->p_f32, *ds = t->ds_f32;
        for (int c = c0; c < c1; c++) p[c] = s[c] * x->scale;
        memcpy(ds + c0, t->dp + i * PH_STRIP_LD + c0, (size_t)(c1 - c0) * sizeof *ds);
        call->kernels->gradient(1, ph_round_up(c1, PH_LANES) - c0, p + c0, ds + c0,
                                x->drop ? x->drop + i * PH_STRIP_LD : NULL,
                                x->derivative ? x->derivative + i * PH_STRIP_LD : NULL,
                                x->lse + i, x->delta + i);
        for (int c = c0; c < c1; c++) {
            int all = !isfinite(p[c]) || !isfinite(ds[c]);
            int some = t->q_special[r + i] || t->dout_special[r + i] ||
                       t->k_special[c_block + c];
            if (!(all || some) || !ph_rows_sees(call, rows, r + i, j0 + c)) continue;
            add_pair(call, t, rows, r + i, j0 + c, c_block + c, all, p[c], ds[c], dk, dv);
            if (all) s[c] = -INFINITY, taken = 1;
        }
    }
    return taken;
}

/* ---- products ---- */

static void add_dq(const ph_call *call, ph_chunk_amx *t, int r, int m, int c, int steps)
{
    int64_t key_step = (int64_t)t->k_cols * PH_AMX_STEP;
    ph_operand ds = {t->ds_rows, PH_BF16_TERMS, TILE, TERMS, 2 * TERMS};
    for (int d = 0; d < t->k_cols; d += PH_AMX_BLOCK) {
        ph_operand k = {t->k_rows + (int64_t)c * t->k_cols + d * PH_AMX_STEP, 1, 0, TILE,
                        key_step};
        call->plan->bf16_pairs->multiply(
            m, steps, &ds, &k, t->dq + (int64_t)r * t->k_cols + d, t->k_cols, 1);
    }
}

/* One of dk and dv: sums += columns * terms for PH_AMX_BLOCK keys, from `first` to `end`
   of the groups. */
static void add_keys(const ph_call *call, const uint16_t *columns, const uint16_t *terms,
                     int dim, int first, int end, float *sums)
{
    int wide = ph_round_up(dim, PH_AMX_BLOCK);
    int64_t group = (int64_t)wide * PH_AMX_STEP;
    ph_operand right = {terms + (int64_t)first * PH_PANELS * TERMS, PH_BF16_TERMS, TILE,
                        TERMS, PH_PANELS * TERMS};
    for (int d = 0; d < dim; d += PH_AMX_BLOCK) {
        ph_operand left = {columns + first * group + d * PH_AMX_STEP, 1, 0, TILE, group};
        call->plan->bf16_pairs->multiply(ph_min(dim - d, PH_AMX_BLOCK), end - first,
                                         &left, &right, sums + d * PH_AMX_BLOCK,
                                         PH_AMX_BLOCK, 1);
    }
}

/* dk and dv of the block, over all groups that have computed its keys. */
static void add_key_gradients(const ph_call *call, ph_chunk_amx *t, int groups, int keys,
                              float *dk, float *dv)
{
    const ph_attn *a = call->attn;
    for (int c = 0; c < keys; c += PH_AMX_BLOCK)
        for (int g = 0, end; g < groups; g = end + 1) {
            for (end = g; end < groups && t->from[end] <= c && c < t->to[end];) end++;
            if (end == g) continue;
            int64_t terms = (int64_t)c / PH_AMX_TILE * TERMS;
            if (call->grads->dv)
                add_keys(call, t->dout_columns, t->p + terms, a->v_dim, g, end,
                         dv + (int64_t)c * t->v_cols);
            if (call->grads->dk)
                add_keys(call, t->q_columns, t->ds + terms, a->qk_dim, g, end,
                         dk + (int64_t)c * t->k_cols);
        }
}

/* ---- a block of rows ---- */

/* PH_AMX_STEP rows from r on against the block. */
static void run_group(const ph_call *call, ph_chunk_amx *t, const ph_rows *rows, int r,
                      int j0, int c_block, float *dk, float *dv)
{
    int m = ph_min(PH_AMX_STEP, rows->count - r), g = r / PH_AMX_STEP, c0, c1;
    t->from[g] = t->to[g] = 0;
    if (!ph_rows_range(call, rows, r, m, j0, &c0, &c1)) return;
    t->from[g] = c0, t->to[g] = ph_round_up(c1, PH_AMX_STEP);
    int64_t terms = ((int64_t)g * PH_PANELS + c0 / PH_AMX_TILE) * TERMS;
    ph_score_grad x = {.m = m,
                       .n = t->to[g] - c0,
                       .s = t->s + c0,
                       .dp = t->dp + c0,
                       .lse = t->lse + r,
                       .delta = t->delta + r,
                       .derivative = t->derivative ? t->derivative + c0 : NULL,
                       .p = t->p + terms,
                       .ds = t->ds + terms,
                       .ds_rows = t->ds_rows};
    x.scale = compute_s_dp(call, t, rows, r, m, j0, c_block, c0, c1);
    if (compute_factors(call, t, rows, r, m, j0, c0, c1)) x.drop = t->drop + c0;
    if (t->any_special) recompute_dp(call, t, rows, r, m, j0, c_block, c0, c1);
    int finite = call->plan->bf16_pairs->score_grad(&x);
    if ((!finite || t->any_special) &&
        add_left_out(call, t, rows, r, j0, c_block, c1, &x, dk, dv))
        call->plan->bf16_pairs->score_grad(&x);
    if (call->grads->dq) add_dq(call, t, r, m, c_block + c0, x.n / PH_AMX_STEP);
}

void ph_chunk_amx_rows(const ph_call *call, ph_chunk_amx *t, const ph_deltas *deltas,
                       const ph_rows *rows, int k0, int keys, float *dk, float *dv)
{
    int groups = ph_div_up(rows->count, PH_AMX_STEP);
    pack_rows(call, t, deltas, rows);
    memset(t->dq, 0, (size_t)(groups * PH_AMX_STEP * t->k_cols) * sizeof(float));
    memset(t->lane_max, 0,
           PH_AMX_TILE * PH_LANES *
               sizeof(float)); /* ph_rows_mask needs it, nothing reads it */
    call->plan->bf16_pairs->begin(PH_AMX_TILE);
    for (int c = 0; c < keys; c += PH_BLOCK) {
        int n = ph_min(PH_BLOCK, keys - c);
        if (rows->high <= k0 + c || rows->low >= k0 + c + n) continue;
        for (int g = 0; g < groups; g++)
            run_group(call, t, rows, g * PH_AMX_STEP, k0 + c, c, dk, dv);
        add_key_gradients(call, t, groups, n, dk + (int64_t)c * t->k_cols,
                          dv + (int64_t)c * t->v_cols);
    }
    call->plan->bf16_pairs->end();
}

const float *ph_chunk_amx_transpose(const ph_call *call, ph_chunk_amx *t,
                                    const float *sums, int c, int dim)
{
    int pad = ph_round_up(dim, PH_LANES);
    sums += (int64_t)c * ph_round_up(dim, PH_AMX_BLOCK);
    for (int d = 0; d < pad; d++) t->lines[d] = sums + (int64_t)d * PH_AMX_BLOCK;
    call->kernels->pack_panel(t->transposed, pad, t->lines, pad, PH_AMX_BLOCK, PH_F32, 1);
    return t->transposed;
}
