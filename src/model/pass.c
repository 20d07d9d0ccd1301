/*
 * pass.c - one forward and backward pass of a model over a batch.
 *
 * The workspace is laid out by one function that first counts and then carves, whenever
 * the sizes of a batch change. With backward every sublayer saves its own activations;
 * without, two buffers alternate. An open pass holds what shape.open says.
 */
#include <string.h>

#include "base/size.h"
#include "model/model_text.h"
#include "model/pass.h"

/* ---- workspace --------------------------------------------------------------------- */

static ph_residual layout_residual(const ph_pass_stack *stack, ph_arena *arena, int dim)
{
    size_t rows = (size_t)stack->rows, floats = rows * (size_t)dim;
    return (ph_residual){.s = ph_arena_floats(arena, floats),
                         .n = ph_arena_floats(arena, floats),
                         .stats = ph_arena_floats(arena, rows * 2)};
}

/* All feed-forward sublayers share its buffers where nothing is saved. */
static const ph_act *first_feed(const ph_pass_stack *stack)
{
    int sublayer = 0;
    while (stack->def->sublayers[sublayer].kind != PH_SUBLAYER_FEED) sublayer++;
    return &stack->acts[sublayer];
}

static void layout_feed(const ph_pass *p, const ph_pass_stack *stack, ph_act *act,
                        ph_arena *arena)
{
    const ph_config *c = &p->model->config;
    size_t rows = (size_t)ph_feed_rows(p, stack);
    const ph_act *other = p->shape.backward ? act : first_feed(stack);
    if (other != act) {
        act->h = other->h, act->g = other->g;
    } else {
        act->h = ph_arena_floats(arena, rows * (size_t)ph_config_ff_width(c));
        act->g = ph_arena_floats(arena, rows * (size_t)c->ff_dim);
    }
}

static void layout_gates(const ph_pass *p, const ph_pass_stack *stack, ph_act *act,
                         ph_arena *arena)
{
    size_t heads = (size_t)ph_layer_about(act->layer).attn->q_heads;
    act->gate = ph_arena_floats(arena, heads * (size_t)stack->rows);
    if (p->shape.backward)
        act->dgate = ph_arena_floats(arena, heads * (size_t)stack->rows);
}

static void layout_act(ph_pass *p, const ph_pass_stack *stack, int sublayer,
                       ph_arena *arena)
{
    const ph_config *c = &p->model->config;
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    ph_act *act = &stack->acts[sublayer];
    size_t rows = (size_t)stack->rows;
    int one = p->shape.open == PH_OPEN_SITE, save = p->shape.backward || p->shape.open;
    int residuals = p->shape.backward || p->shape.open == PH_OPEN_ALL;
    if (def->kind == PH_SUBLAYER_FEED) {
        layout_feed(p, stack, act, arena);
    } else if (act->plan) {
        size_t width = (size_t)def->heads * (size_t)c->head_dim;
        act->heads = ph_arena_floats(arena, 2 * rows * width);
    } else if (save && act->layer) {
        act->saved =
            one ? p->site_saved : ph_arena_take(arena, ph_layer_saved(act->layer));
    }
    if (act->layer && stack->def->buckets >= 0 && def->original)
        act->relative = ph_arena_floats(arena, ph_buckets_floats(p->model));
    if (act->layer && p->shape.gated) layout_gates(p, stack, act, arena);
    if (act->layer && p->shape.open)
        act->heads = one ? p->site_heads
                         : ph_arena_floats(arena, rows * (size_t)ph_act_width(act));
    if (!residuals && sublayer >= 2)
        act->residual = stack->acts[sublayer - 2].residual;
    else
        act->residual = layout_residual(stack, arena, p->model->config.model_dim);
    if (def->post_gain < 0) return;
    int own = p->shape.backward || !sublayer;
    act->post = own ? layout_residual(stack, arena, p->model->config.model_dim)
                    : stack->acts[0].post;
}

/* Buffers for any attention site, the largest among them. */
static void layout_site(ph_pass *p, ph_arena *arena)
{
    size_t saved = 0, heads = 0;
    for (int i = p->first_stack; i < p->stack_count; i++)
        for (int s = 0; s < p->stacks[i].def->count; s++) {
            const ph_act *act = &p->stacks[i].acts[s];
            if (!act->layer) continue;
            size_t floats = (size_t)p->stacks[i].rows * (size_t)ph_act_width(act);
            if (floats > heads) heads = floats;
            if (ph_layer_saved(act->layer) > saved) saved = ph_layer_saved(act->layer);
        }
    p->site_saved = ph_arena_take(arena, saved);
    p->site_heads = ph_arena_floats(arena, heads);
}

static void layout_stack(ph_pass *p, ph_pass_stack *stack, ph_arena *arena)
{
    int biased = stack->def->buckets >= 0;
    size_t floats = ph_buckets_floats(p->model), texts = (size_t)p->shape.batch;
    stack->even = ph_arena_take(arena, (texts + 1) * sizeof *stack->even);
    stack->positions =
        ph_arena_take(arena, (size_t)stack->rows * sizeof *stack->positions);
    stack->position_rows =
        ph_arena_take(arena, (size_t)stack->rows * sizeof *stack->position_rows);
    stack->places = ph_arena_take(arena, (size_t)stack->rows * sizeof *stack->places);
    stack->relative = biased ? ph_arena_floats(arena, floats) : NULL;
    stack->drelative =
        biased && p->shape.backward ? ph_arena_floats(arena, floats) : NULL;
    stack->entry = layout_residual(stack, arena, p->model->config.model_dim);
    if (stack->def->projection >= 0)
        stack->embedded = layout_residual(stack, arena, p->model->config.embed_dim);
    for (int i = 0; i < stack->def->count; i++) {
        layout_act(p, stack, i, arena);
        const ph_residual *from = i ? &stack->acts[i - 1].residual : &stack->entry;
        int normed =
            i ? stack->def->sublayers[i - 1].gain >= 0 : ph_stack_normed(stack->def);
        stack->acts[i].a = normed ? from->n : from->s;
    }
}

/* Number of positions that tokens may have. */
static int longest(const ph_pass *p)
{
    return ph_max(p->shape.source_len, p->shape.target_len);
}

static void layout_gradients(ph_pass *p, ph_arena *arena, size_t rows)
{
    const ph_config *c = &p->model->config;
    size_t dim = (size_t)c->model_dim, memory = (size_t)p->stacks[0].rows * dim;
    size_t widest = (size_t)ph_max(c->model_dim, c->embed_dim);
    p->dr = ph_arena_floats(arena, rows * widest);
    p->da = ph_arena_floats(arena, rows * widest);
    int own = ph_dropout_rate(p) > 0 || c->norm_place == PH_SANDWICH_NORM ||
              c->norm_place == PH_OUTPUT_NORM || c->parallel;
    p->dy = own ? ph_arena_floats(arena, rows * dim) : p->dr;
    p->dg = ph_arena_floats(arena, rows * (size_t)c->ff_dim);
    size_t places = (size_t)p->shape.batch * (size_t)longest(p);
    p->sums = ph_arena_floats(arena, (places / PH_RESIDUAL_ROWS + 1) * 2 * widest);
    if (ph_config_bucketed(c))
        p->layer_drelative = ph_arena_floats(arena, ph_buckets_floats(p->model));
    if (c->layer_groups) p->held = ph_arena_floats(arena, ph_shared_floats(p->model));
    if (p->stack_count < 2) return;
    p->dmemory = ph_arena_floats(arena, memory);
    p->dmemory_part = ph_arena_floats(arena, memory);
}

static void layout_logits(ph_pass *p, ph_arena *arena)
{
    const ph_model *m = p->model;
    const ph_config *c = &m->config;
    size_t rows = (size_t)p->stacks[p->stack_count - 1].rows;
    if (p->shape.kv) rows = (size_t)p->shape.batch;
    p->logits = ph_arena_floats(arena, rows * (size_t)c->vocab);
    if (p->shape.backward && c->output_softcap != 0)
        p->capped = ph_arena_floats(arena, (size_t)m->ctx->threads * (size_t)c->vocab);
    if (p->shape.kv || c->output_scale != 1)
        p->chosen = ph_arena_floats(arena, rows * (size_t)ph_config_embed_dim(c));
}

/* Tokens of a stack, or texts: some may be empty. */
static int most_rows(const ph_pass *p)
{
    const ph_pass_stack *last = &p->stacks[p->stack_count - 1];
    return ph_max(ph_max(p->stacks[0].rows, last->rows), p->shape.batch);
}

/* Terms of the longest sum: rows, or frames, of which a row has two. */
static int most_ones(const ph_pass *p)
{
    int frames = p->model->convolutions >= 0 ? 2 * p->stacks[0].rows : 0;
    return ph_max(most_rows(p), frames);
}

static void layout(ph_pass *p, ph_arena *arena)
{
    const ph_model *m = p->model;
    const ph_config *c = &m->config;
    size_t rows = (size_t)most_rows(p);
    size_t dim = (size_t)c->model_dim;
    if (p->shape.open == PH_OPEN_SITE) layout_site(p, arena);
    for (int i = p->first_stack; i < p->stack_count; i++)
        layout_stack(p, &p->stacks[i], arena);
    p->slopes = NULL;
    if (c->positions == PH_POS_ALIBI)
        p->slopes = ph_arena_floats(arena, (size_t)m->head_count + (size_t)c->heads);
    p->y = ph_arena_floats(arena, rows * dim);
    p->ones = ph_arena_floats(arena, (size_t)most_ones(p));
    p->lanes = ph_arena_floats(arena, (size_t)m->ctx->threads *
                                          (size_t)ph_max(c->model_dim, c->embed_dim));
    p->row_loss = ph_arena_floats(arena, rows);
    p->balance_loss = ph_arena_floats(arena, (size_t)m->site_count);
    if (p->shape.backward) layout_gradients(p, arena, rows);
    if (m->convolutions >= 0 && !p->first_stack) ph_frames_layout(p, arena);
    if (p->shape.encoder_only) return;
    if (m->output >= 0 && !p->shape.pooled_only) layout_logits(p, arena);
    if (m->patches >= 0) ph_patches_layout(p, arena);
    if (m->links >= 0) ph_links_layout(p, arena);
    if (m->masked >= 0 && !p->shape.pooled_only) ph_masked_layout(p, arena);
    if (c->pooling || c->classes) ph_pooled_layout(p, arena);
}

/* ---- making one -------------------------------------------------------------------- */

/* Queries of all texts against cached keys and values of their sources. */
static ph_status make_plan(ph_pass *p, const ph_layer_desc *d, ph_act *act)
{
    ph_attn attn = d->attn;
    int heads = attn.k_heads ? attn.k_heads : attn.q_heads, dim = attn.qk_dim;
    int64_t q = (int64_t)attn.q_heads * dim, k = (int64_t)heads * dim;
    attn.q = attn.out = (ph_strides){0, dim, q};
    attn.k = attn.v = (ph_strides){attn.kv_len * k, dim, k};
    if (p->shape.kv->shape.one_source) attn.k.batch = attn.v.batch = 0;
    return ph_plan_create(&act->plan, p->model->ctx, &attn);
}

static ph_status make_cached(ph_pass *p, const ph_pass_stack *stack,
                             const ph_sublayer *sublayer, ph_act *act)
{
    ph_layer_desc d = ph_kv_layer(p->shape.kv, sublayer, stack->rows, stack->len);
    if (ph_kv_is_plain_cross(sublayer, &d)) return make_plan(p, &d, act);
    if (d.memory_dim && stack->rows != p->shape.batch * stack->len)
        return ph_fail(p->model->ctx, PH_UNSUPPORTED,
                       "texts have different numbers of tokens, expected the same with "
                       "cross-attention %s",
                       sublayer->variant);
    return ph_layer_create(&act->layer, p->model->ctx, &d);
}

static ph_status make_layer(ph_pass *p, const ph_pass_stack *stack,
                            const ph_sublayer *sublayer, ph_act *act)
{
    const ph_pass_stack *keys =
        sublayer->kind == PH_SUBLAYER_CROSS ? &p->stacks[0] : stack;
    if (p->shape.kv) return make_cached(p, stack, sublayer, act);
    ph_layer_desc d = ph_model_layer(p->model, stack->def, sublayer, p->shape.batch,
                                     stack->len, keys->len);
    d.attn.ragged = PH_RAGGED_ALL;
    d.attn.q_total = stack->rows, d.attn.kv_total = keys->rows;
    d.attn.backward = p->shape.backward;
    if (!p->shape.backward || p->shape.no_dropout) d.attn.dropout = 0;
    if (p->shape.gated) d.attn.gate = PH_GATE_ROW;
    d.concat = p->shape.open;
    if (d.concat) d.o_form = PH_FORM_WHOLE, d.wo_dtype = PH_F32;
    return ph_layer_create(&act->layer, p->model->ctx, &d);
}

static ph_status make_layers(ph_pass *p, ph_pass_stack *stack)
{
    for (int i = 0; i < stack->def->count; i++) {
        const ph_sublayer *sublayer = &stack->def->sublayers[i];
        if (sublayer->site >= 0)
            PH_TRY(make_layer(p, stack, sublayer, &stack->acts[i]));
    }
    return PH_OK;
}

static ph_status check_shape(const ph_model *m, const ph_pass_shape *s)
{
    int both = m->config.arch == PH_ARCH_ENCODER_DECODER, most = m->config.max_len;
    int source = ph_config_source_len(&m->config);
    size_t rows, all;
    if (s->batch < 1 || s->source_len < 1 ||
        (both && s->target_len < 1 && !s->encoder_only))
        return ph_fail(m->ctx, PH_BAD_SHAPE, "a batch of %d texts of %d tokens is empty",
                       s->batch, s->source_len);
    if (s->source_len > source || s->target_len > most)
        return ph_fail(m->ctx, PH_BAD_SHAPE,
                       "a text has %d tokens, expected at most %d (max_len)",
                       s->source_len > source ? s->source_len : s->target_len,
                       s->source_len > source ? source : most);
    size_t width = (size_t)ph_max(m->config.vocab, ph_config_ff_width(&m->config));
    if (ph_size_mul((size_t)s->batch, (size_t)ph_max(s->source_len, s->target_len),
                    &rows) ||
        rows > INT32_MAX / 64 || ph_size_mul(rows, width, &all) ||
        all > PTRDIFF_MAX / 65536)
        return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "a batch of %d texts is too large",
                       s->batch);
    return PH_OK;
}

static void free_layers(ph_pass *p)
{
    for (int i = p->first_stack; i < p->stack_count; i++) {
        const ph_pass_stack *stack = &p->stacks[i];
        for (int s = 0; stack->acts && s < stack->def->count; s++) {
            ph_act *act = &stack->acts[s];
            ph_layer_free(act->layer);
            ph_plan_free(act->plan);
            act->layer = NULL, act->plan = NULL;
        }
    }
    if (p->links) ph_plan_free(p->links->plan);
    p->links = NULL;
}

/* Memory for a layout of so many bytes. */
static ph_status reserve(ph_pass *p, size_t bytes)
{
    if (bytes <= p->memory_size) return PH_OK;
    ph_model_give_activations(p->model, p->memory, 0);
    p->memory = ph_model_take_activations(p->model, bytes, &p->memory_size);
    if (p->memory) return PH_OK;
    return ph_fail(p->model->ctx, PH_OUT_OF_MEMORY,
                   "no memory for %zu bytes of activations", bytes);
}

/* Slopes of the heads of every site, by the indices they had before any was removed; the
   list of these lies behind. */
static void fill_slopes(const ph_pass *p)
{
    const ph_model *m = p->model;
    float *all = p->slopes + m->head_count;
    ph_alibi_slopes(m->config.heads, all);
    for (int i = 0; i < m->stack_count; i++)
        for (int s = 0; s < m->stacks[i].count; s++) {
            const ph_sublayer *def = &m->stacks[i].sublayers[s];
            for (int h = 0; def->site >= 0 && h < def->heads; h++)
                p->slopes[def->first_head + h] = all[ph_sublayer_original(def, h)];
        }
}

static void fill_constants(ph_pass *p)
{
    const ph_model *m = p->model;
    for (int i = p->first_stack; i < p->stack_count; i++)
        for (int b = 0; b <= p->shape.batch; b++)
            p->stacks[i].even[b] = b * p->stacks[i].len;
    for (int i = 0; i < most_ones(p); i++) p->ones[i] = 1;
    for (int i = 0; i < m->site_count; i++) p->balance_loss[i] = 0;
    if (p->slopes) fill_slopes(p);
}

/* Layers and workspace for the current sizes. */
static ph_status build(ph_pass *p)
{
    ph_arena count = {0};
    free_layers(p);
    for (int i = p->first_stack; i < p->stack_count; i++)
        PH_TRY(make_layers(p, &p->stacks[i]));
    layout(p, &count);
    p->links = NULL;
    PH_TRY(reserve(p, count.used));
    ph_arena arena = ph_arena_of(p->memory, count.used);
    layout(p, &arena);
    fill_constants(p);
    return p->links ? ph_links_create(p) : PH_OK;
}

static ph_status begin(ph_pass *p)
{
    ph_model *m = p->model;
    for (int i = 0; i < p->stack_count; i++) {
        ph_pass_stack *stack = &p->stacks[i];
        size_t bytes = (size_t)m->stacks[i].count * sizeof *stack->acts;
        stack->def = &m->stacks[i];
        if (i < p->first_stack) continue;
        stack->len = stack->max_len = i ? p->shape.target_len : p->shape.source_len;
        stack->rows = p->shape.batch * stack->len;
        stack->acts = ph_ctx_alloc(m->ctx, bytes);
        if (!stack->acts)
            return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a pass");
        memset(stack->acts, 0, bytes);
    }
    PH_TRY(ph_model_sinusoids(m, longest(p), &p->sinusoids));
    /* while decoding the first batch is smaller than the largest */
    return p->shape.kv || p->shape.encoder_only ? PH_OK : build(p);
}

ph_status ph_pass_create(ph_pass **out, ph_model *m, const ph_pass_shape *shape)
{
    *out = NULL;
    PH_TRY(check_shape(m, shape));
    ph_pass *p = ph_ctx_alloc(m->ctx, sizeof *p);
    if (!p) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a pass");
    *p = (ph_pass){.model = m, .shape = *shape, .stack_count = m->stack_count};
    if (shape->encoder_only) p->stack_count = 1;
    if (shape->kv) p->first_stack = p->stack_count - 1;
    ph_status status = begin(p);
    if (status == PH_OK)
        *out = p;
    else
        ph_pass_free(p);
    return status;
}

void ph_pass_free(ph_pass *p)
{
    if (!p) return;
    ph_ctx *ctx = p->model->ctx;
    free_layers(p);
    for (int i = 0; i < p->stack_count; i++) ph_ctx_release(ctx, p->stacks[i].acts);
    ph_model_give_activations(p->model, p->memory, !p->shape.backward && !p->shape.open);
    ph_ctx_release(ctx, p);
}

/* ---- forward ----------------------------------------------------------------------- */

/* Tokens of the longest text. */
static ph_status check_offsets(const ph_pass *p, const int32_t *offsets, int most,
                               int *longest)
{
    *longest = 0;
    for (int b = 0; b < p->shape.batch; b++) {
        int64_t len = (int64_t)offsets[b + 1] - offsets[b];
        if (offsets[0] != 0 || len < 0 || len > most)
            return ph_fail(p->model->ctx, PH_BAD_SHAPE,
                           "text %d has %lld tokens, expected 0 to %d", b, (long long)len,
                           most);
        *longest = ph_max(*longest, (int)len);
    }
    if (*longest) return PH_OK;
    return ph_fail(p->model->ctx, PH_BAD_SHAPE, "a batch of %d texts is empty",
                   p->shape.batch);
}

/* The sizes of a stack in this batch. */
static ph_status measure(ph_pass *p, ph_pass_stack *stack, const int32_t *offsets,
                         int *changed)
{
    int len = stack->max_len, rows = p->shape.batch * len;
    if (offsets) {
        PH_TRY(check_offsets(p, offsets, len, &len));
        rows = offsets[p->shape.batch];
    }
    *changed |= rows != stack->rows || len != stack->len;
    stack->rows = rows, stack->len = len;
    return PH_OK;
}

/* Rows of the table of learned positions for text b, which goes on from position `at`. An
   encoder whose table has rows before the first position does not count padding, which
   has the last of these. */
static void choose_position_rows(const ph_pass *p, ph_pass_stack *stack, int b, int at)
{
    const ph_config *c = &p->model->config;
    const int32_t *tokens = c->arch == PH_ARCH_ENCODER ? p->batch.source : NULL;
    int padding = c->position_offset - 1;
    for (int r = stack->offsets[b]; r < stack->offsets[b + 1]; r++)
        stack->position_rows[r] =
            tokens && tokens[r] == padding ? padding : padding + ++at;
}

static void place(const ph_pass *p, ph_pass_stack *stack, const int32_t *offsets)
{
    stack->offsets = offsets ? offsets : stack->even;
    for (int b = 0; b < p->shape.batch; b++) {
        int past = p->shape.kv ? p->shape.kv->past[b] : 0;
        int at = past - stack->offsets[b];
        int place = b * stack->max_len - stack->offsets[b];
        for (int r = stack->offsets[b]; r < stack->offsets[b + 1]; r++)
            stack->positions[r] = at + r, stack->places[r] = place + r;
        choose_position_rows(p, stack, b, past);
    }
}

static ph_status set_batch(ph_pass *p, const ph_batch *batch)
{
    const int32_t *offsets[2] = {batch->source_offsets, batch->target_offsets};
    int changed = !p->memory || (p->shape.kv && p->shape.kv->pages != p->pages);
    p->batch = *batch;
    if (p->shape.kv) p->pages = p->shape.kv->pages;
    for (int i = p->first_stack; i < p->stack_count; i++)
        PH_TRY(measure(p, &p->stacks[i], offsets[i], &changed));
    ph_status status = changed ? build(p) : PH_OK;
    for (int i = p->first_stack; i < p->stack_count; i++) {
        if (status == PH_OK)
            place(p, &p->stacks[i], offsets[i]);
        else
            p->stacks[i].rows = 0; /* the next batch builds again */
    }
    return status;
}

static ph_status check_tokens(const ph_pass *p)
{
    int vocab = p->model->config.vocab;
    for (int i = p->first_stack; i < p->stack_count; i++) {
        const int32_t *tokens = i ? p->batch.target : p->batch.source;
        if (!ph_reads_tokens(p, &p->stacks[i])) continue;
        for (int r = 0; r < p->stacks[i].rows; r++)
            if (tokens[r] < 0 || tokens[r] >= vocab)
                return ph_tokens_refuse(p->model, tokens[r]);
    }
    for (int r = 0; p->batch.types && r < p->stacks[0].rows; r++)
        if (p->batch.types[r] < 0 || p->batch.types[r] >= p->model->config.types)
            return ph_fail(p->model->ctx, PH_BAD_VALUE,
                           "token type %d is outside the table of %d", p->batch.types[r],
                           p->model->config.types);
    return PH_OK;
}

ph_status ph_pass_forward(ph_pass *p, const ph_batch *batch, uint64_t seed)
{
    p->seed = seed, p->block = p->model->block;
    PH_TRY(set_batch(p, batch));
    PH_TRY(check_tokens(p));
    if (p->patches) PH_TRY(ph_patches_forward(p));
    if (p->frames) PH_TRY(ph_frames_forward(p));
    for (int i = p->first_stack; i < p->stack_count; i++) {
        const ph_pass_stack *stack = &p->stacks[i];
        PH_TRY(ph_embed_forward(p, stack));
        if (stack->relative) ph_buckets_forward(p, stack);
        for (int s = 0; s < stack->def->count; s++) {
            int feed = stack->def->sublayers[s].kind == PH_SUBLAYER_FEED;
            PH_TRY(feed ? ph_feed_forward(p, i, s) : ph_attend_forward(p, i, s));
            ph_residual_forward(p, stack, s);
        }
    }
    if (p->pooled) PH_TRY(ph_pooled_forward(p));
    return p->links ? ph_links_forward(p) : PH_OK;
}

const float *ph_pass_output(const ph_pass *p)
{
    const ph_pass_stack *stack = &p->stacks[p->stack_count - 1];
    return stack->acts[stack->def->count - 1].residual.n;
}

double ph_pass_balance(const ph_pass *p)
{
    double sum = 0;
    for (int i = 0; i < p->model->site_count; i++) sum += (double)p->balance_loss[i];
    return sum;
}

/* ---- backward ---------------------------------------------------------------------- */

/* Gradients of what an encoder ends in and this loss does not use are 0; so is that of
   the embeddings before the tokens add to it, unless they are the output matrix. */
static void clear_grads(ph_pass *p)
{
    const ph_model *m = p->model;
    int tied = m->output == m->embed && m->classifier < 0 && !p->batch.vectors;
    int first = m->masked >= 0 ? m->masked : m->pooler;
    const ph_weight *words = m->embed < 0 ? NULL : &m->params[m->embed];
    if (words && !tied) memset(p->grads + words->at, 0, words->count * sizeof(float));
    for (int i = first; i >= 0 && i < m->param_count; i++)
        memset(p->grads + m->params[i].at, 0, m->params[i].count * sizeof(float));
}

static ph_status stack_backward(ph_pass *p, int stack_index)
{
    const ph_pass_stack *stack = &p->stacks[stack_index];
    int count = stack->def->count;
    if (stack->drelative)
        memset(stack->drelative, 0, ph_buckets_floats(p->model) * sizeof(float));
    for (int s = count - 1; s >= 0; s--) {
        int feed = stack->def->sublayers[s].kind == PH_SUBLAYER_FEED;
        ph_shared_hold(p, stack, s);
        ph_residual_backward(p, stack, s, s == count - 1);
        PH_TRY(feed ? ph_feed_backward(p, stack_index, s)
                    : ph_attend_backward(p, stack_index, s));
        ph_shared_add(p, stack, s);
    }
    if (stack->drelative) ph_buckets_backward(p, stack);
    PH_TRY(ph_entry_backward(p, stack));
    ph_embed_backward(p, stack);
    if (p->frames && !stack_index) return ph_frames_backward(p);
    return p->patches ? ph_patches_backward(p) : PH_OK;
}

ph_status ph_pass_backward(ph_pass *p, float *grads)
{
    const ph_model *m = p->model;
    size_t memory = (size_t)p->stacks[0].rows * (size_t)m->config.model_dim;
    p->grads = grads;
    clear_grads(p);
    int pooled = m->classifier >= 0 || p->batch.vectors;
    PH_TRY(p->links ? ph_links_backward(p)
           : pooled ? ph_pooled_backward(p)
                    : ph_output_backward(p));
    if (p->stack_count < 2) return stack_backward(p, 0);
    memset(p->dmemory, 0, memory * sizeof(float));
    PH_TRY(stack_backward(p, 1));
    memcpy(p->da, p->dmemory, memory * sizeof(float));
    return stack_backward(p, 0);
}
