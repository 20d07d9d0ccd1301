/*
 * model.c - the parameters of a model: where they lie, their initial values, the handle.
 *
 * model_list.c lists them. In the block matrices come first and vectors after them, so
 * that weight decay acts on one contiguous range.
 *
 * Initial values: embeddings N(0, 1/model_dim); matrices uniform in
 * +-sqrt(6 / (in + out)), with depth_scaled divided by sqrt(layer); biases 0, gains 1.
 * Element n of parameter p comes from the counter generator at (seed, p, n), so values do
 * not depend on order.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/size.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"

enum {
    SUBLAYER_PARAMS = PH_LAYER_PARAMS + 4,
    MODEL_PARAMS = 40 + PH_CLASS_TOKENS
}; /* at most; norms counted with their sublayer */

/* ---- layout of the parameters ------------------------------------------------------ */

static ph_status assign_offsets(ph_model *m, int matrices)
{
    for (int i = 0; i < m->param_count; i++) {
        ph_weight *p = &m->params[i];
        size_t aligned;
        if ((p->rank > 1) != matrices || p->stored.data) continue;
        p->at = m->floats;
        if (ph_size_align_up(p->count, PH_ALIGN / sizeof(float), &aligned) ||
            ph_size_add(m->floats, aligned, &m->floats) ||
            m->floats > PTRDIFF_MAX / sizeof(float) / 8)
            return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "the model is too large");
    }
    return PH_OK;
}

ph_status ph_model_layout(ph_model *m)
{
    m->floats = 0;
    PH_TRY(assign_offsets(m, 1));
    m->decayed = m->floats;
    return assign_offsets(m, 0);
}

ph_status ph_model_allocate(ph_model *m)
{
    m->block = ph_ctx_alloc(m->ctx, m->floats * sizeof *m->block);
    m->tensors = ph_ctx_alloc(m->ctx, (size_t)m->param_count * sizeof *m->tensors);
    if (!m->block || !m->tensors)
        return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for %zu parameters",
                       m->floats);
    memset(m->block, 0, m->floats * sizeof *m->block);
    for (int i = 0; i < m->param_count; i++) {
        const ph_weight *p = &m->params[i];
        ph_tensor *t = &m->tensors[i];
        *t = (ph_tensor){.name = p->name, .type = PH_F32, .rank = p->rank};
        for (int d = 0; d < p->rank; d++) t->shape[d] = (size_t)p->dims[d];
        t->data = m->block + p->at, t->bytes = p->count * sizeof(float);
        if (p->stored.data) ph_model_show_stored(p, t);
    }
    return PH_OK;
}

static ph_status build(ph_model *m)
{
    const ph_config *c = &m->config;
    int both = c->arch == PH_ARCH_ENCODER_DECODER;
    int sublayers[2] = {2 * c->layers, both ? 3 * c->decoder_layers : 0};
    size_t most = (size_t)(sublayers[0] + sublayers[1]) * SUBLAYER_PARAMS + MODEL_PARAMS;
    m->stack_count = both ? 2 : 1;
    m->stacks[0].causal = c->arch == PH_ARCH_DECODER;
    m->stacks[1].causal = m->stacks[1].decoder = both;
    m->params = ph_ctx_alloc(m->ctx, most * sizeof *m->params);
    for (int i = 0; i < m->stack_count; i++)
        m->stacks[i].sublayers =
            ph_ctx_alloc(m->ctx, (size_t)sublayers[i] * sizeof(ph_sublayer));
    if (!m->params || !m->stacks[0].sublayers || (both && !m->stacks[1].sublayers))
        return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a model");
    PH_TRY(ph_model_list(m));
    return ph_model_layout(m);
}

ph_status ph_model_check_unshared(const ph_model *m)
{
    if (!m->config.layer_groups) return PH_OK;
    return ph_fail(m->ctx, PH_UNSUPPORTED,
                   "heads cannot be removed where layers share parameters "
                   "(layer_groups)");
}

static ph_status keep_heads(ph_model *m, ph_kept *kept)
{
    size_t heads = 1;
    if (!kept || !kept->removed) return PH_OK;
    PH_TRY(ph_model_check_unshared(m));
    m->kept = *kept;
    *kept = (ph_kept){0};
    for (int i = 0; i < m->kept.places; i++)
        if (m->kept.group[i]) heads += (size_t)ph_kept_count(&m->kept, i);
    m->original = ph_ctx_alloc(m->ctx, heads * sizeof *m->original);
    return m->original ? PH_OK
                       : ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a model");
}

ph_status ph_model_shape(ph_model **out, ph_ctx *ctx, const ph_config *config,
                         ph_kept *kept, ph_split split, const char *const *tokens,
                         int count)
{
    ph_model *m = ph_ctx_alloc(ctx, sizeof *m);
    if (!m) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for a model");
    *m = (ph_model){.ctx = ctx, .config = *config};
    m->marks = (ph_marks){
        .start = PH_TOKEN_START, .mask = -1, .ends = {PH_TOKEN_END}, .end_count = 1};
    m->marks.padding = PH_TOKEN_PAD;
    m->spans = ph_spans_pick(ctx->kernels->vectors);
    ph_preprocess_default(m);
    ph_status status = ph_vocab_create(&m->vocab, ctx, split, tokens, count);
    if (status == PH_OK) status = ph_config_check(ctx, &m->config, m->vocab.count);
    if (status == PH_OK) status = keep_heads(m, kept);
    if (status == PH_OK) status = build(m);
    if (status == PH_OK)
        *out = m;
    else
        ph_model_free(m);
    return status;
}

void ph_model_free(ph_model *m)
{
    if (!m) return;
    ph_model_drop_panels(m);
    ph_model_drop_lanes(m);
    ph_ctx_release(m->ctx, atomic_load(&m->activations));
    ph_vocab_free(&m->vocab, m->ctx);
    ph_tokenizer_free(m->tokenizer);
    ph_tokenizer_free(m->target_tokenizer);
    ph_checkpoint_free(m->checkpoint);
    ph_ctx_release(m->ctx, m->tokenizer_file);
    ph_ctx_release(m->ctx, m->target_file);
    ph_ctx_release(m->ctx, m->chat_template);
    for (int i = 0; i < PH_CHAT_TOKENS; i++) ph_ctx_release(m->ctx, m->chat_tokens[i]);
    ph_ctx_release(m->ctx, m->prompt);
    ph_ctx_release(m->ctx, m->suppressed);
    ph_ctx_release(m->ctx, m->banned);
    ph_ctx_release(m->ctx, m->ignored);
    ph_ctx_release(m->ctx, m->labels);
    ph_ctx_release(m->ctx, m->stacks[0].sublayers);
    ph_ctx_release(m->ctx, m->stacks[1].sublayers);
    ph_ctx_release(m->ctx, m->params);
    ph_ctx_release(m->ctx, m->tensors);
    ph_ctx_release(m->ctx, m->block);
    ph_ctx_release(m->ctx, m->original);
    ph_kept_free(&m->kept, m->ctx);
    ph_model_free_sinusoids(m);
    ph_ctx_release(m->ctx, m);
}

/* ---- initial values ---------------------------------------------------------------- */

/* Random number n of the key, in (0, 1). */
static double unit(uint64_t key, uint32_t n)
{
    return ((double)ph_rng_at(key, n) + 0.5) / 4294967296.0;
}

/* A normal variate from two uniform ones (Box-Muller). */
static double normal(uint64_t key, uint32_t n)
{
    double u = unit(key, 2 * n), v = unit(key, 2 * n + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

void ph_model_start(ph_model *m, int index, uint64_t seed)
{
    const ph_weight *p = &m->params[index];
    float *x = m->block + p->at;
    size_t columns = (size_t)p->dims[p->rank - 1], rows = p->count / columns;
    for (size_t i = 0; i < p->count; i++) {
        size_t row = i / columns, column = i % columns;
        uint64_t key = ph_rng_key(seed, 1, (uint64_t)index, i >> 24);
        uint32_t n = (uint32_t)(i & 0xffffff);
        if (p->start == PH_START_ZERO) x[i] = 0;
        if (p->start == PH_START_ONE) x[i] = 1;
        if (p->start == PH_START_EYE) x[i] = row == column;
        if (p->start == PH_START_BLOCK) x[i] = column * rows / columns == row;
        if (p->start == PH_START_NORMAL) x[i] = (float)(p->size * normal(key, n));
        if (p->start == PH_START_UNIFORM)
            x[i] = (float)(p->size * (2 * unit(key, n) - 1));
    }
}

static ph_status create(ph_model **out, ph_ctx *ctx, const ph_config *config,
                        ph_split split, const char *const *tokens, int count,
                        uint64_t seed)
{
    if (!config) return ph_fail(ctx, PH_BAD_ARGUMENT, "config is NULL");
    PH_TRY(ph_model_shape(out, ctx, config, NULL, split, tokens, count));
    ph_status status = ph_model_allocate(*out);
    if (status != PH_OK) {
        ph_model_free(*out);
        *out = NULL;
        return status;
    }
    for (int i = 0; i < (*out)->param_count; i++) ph_model_start(*out, i, seed);
    return PH_OK;
}

ph_status ph_model_create(ph_model **out, ph_ctx *ctx, const ph_config *config,
                          ph_split split, const char *const *tokens, int count,
                          uint64_t seed)
{
    if (out) *out = NULL;
    if (!out || !ctx) return ph_ctx_null(ctx, "out");
    return PH_WITHIN(ctx, create(out, ctx, config, split, tokens, count, seed));
}

/* ---- accessors --------------------------------------------------------------------- */

const ph_config *ph_model_config(const ph_model *m)
{
    return m ? &m->config : NULL;
}

int ph_model_vector_dim(const ph_model *m)
{
    return m && m->config.pooling ? ph_config_vector_dim(&m->config) : 0;
}

const ph_tensor *ph_model_tensor(const ph_model *m, int i)
{
    return m && i >= 0 && i < m->param_count ? &m->tensors[i] : NULL;
}

float *ph_model_block(ph_model *m, size_t *floats)
{
    if (floats) *floats = m ? m->floats : 0;
    return m ? m->block : NULL;
}

const char *ph_model_class(const ph_model *m, int i)
{
    const char *at = m ? m->labels : NULL;
    if (!at || i < 0 || i >= m->config.classes) return "";
    while (i-- > 0) at += strlen(at) + 1;
    return at;
}

int ph_model_mask(const ph_model *m)
{
    return m ? m->marks.mask : -1;
}

int64_t ph_model_parameters(const ph_model *m)
{
    int64_t sum = 0;
    for (int i = 0; m && i < m->param_count; i++)
        sum += (int64_t)(m->params[i].count - m->params[i].unused);
    return sum;
}
