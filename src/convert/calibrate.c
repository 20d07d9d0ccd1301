/*
 * calibrate.c - texts through a model: Gram matrices of what its attention sees, its
 * loss, and how far another model's outputs are from its own.
 */
#include <math.h>
#include <string.h>

#include "convert/convert.h"
#include "model/model_text.h"
#include "model/pass.h"

enum { MAX_TOKENS = 512 };

/* ---- texts ------------------------------------------------------------------------- */

static ph_status take_tokens(ph_calibration *c, const char *text, int most,
                             int32_t **tokens, int32_t **types, int *count)
{
    int32_t *found, *found_types;
    PH_TRY(ph_tokens_take(c->m, text, NULL, most, &found, &found_types, count));
    size_t bytes = (size_t)*count * sizeof *found;
    ph_status status =
        ph_chain_take(&c->chain, (size_t)*count + 1, sizeof *found, tokens);
    if (status == PH_OK && types)
        status = ph_chain_take(&c->chain, (size_t)*count + 1, sizeof *found, types);
    if (status == PH_OK && bytes) memcpy(*tokens, found, bytes);
    if (status == PH_OK && bytes && types) memcpy(*types, found_types, bytes);
    ph_ctx_release(c->m->ctx, found);
    if (status != PH_OK || *count) return status;
    return ph_fail(c->m->ctx, PH_BAD_SHAPE, "a text is empty, expected a word in each");
}

/* The decoder reads a start mark and the text, and predicts the text and an end mark. */
static ph_status take_target(ph_calibration *c, const char *text, int most,
                             ph_calibration_text *to)
{
    int32_t *tokens;
    int count;
    PH_TRY(take_tokens(c, text, most - 1, &tokens, NULL, &count));
    int rows = to->target_count = count + 1;
    PH_TRY(ph_chain_take(&c->chain, 2 * (size_t)rows, sizeof *tokens, &to->target));
    to->target[0] = c->m->marks.start;
    memcpy(to->target + 1, tokens, (size_t)count * sizeof *tokens);
    memcpy(to->target + rows, tokens, (size_t)count * sizeof *tokens);
    to->target[2 * rows - 1] = c->m->marks.end_count ? c->m->marks.ends[0] : -1;
    return PH_OK;
}

static ph_status take_text(ph_calibration *c, const ph_texts *texts, int i, int most)
{
    ph_calibration_text *to = &c->texts[i];
    if (!texts->texts[i])
        return ph_fail(c->m->ctx, PH_BAD_ARGUMENT, "text %d is NULL, expected a string",
                       i + 1);
    if (c->m->config.mels)
        return ph_fail(c->m->ctx, PH_UNSUPPORTED,
                       "the model reads sound, expected no texts: its weights alone can "
                       "be converted");
    if (c->m->config.image_size) {
        to->path = texts->texts[i], to->count = c->m->config.max_len;
        return PH_OK;
    }
    PH_TRY(take_tokens(c, texts->texts[i], most, &to->tokens, &to->types, &to->count));
    if (c->m->config.arch != PH_ARCH_ENCODER_DECODER) return PH_OK;
    if (!texts->pairs || !texts->pairs[i])
        return ph_fail(c->m->ctx, PH_BAD_ARGUMENT,
                       "a text has no target, expected pairs of texts for an "
                       "encoder-decoder");
    return take_target(c, texts->pairs[i], most, to);
}

static ph_status take_texts(ph_calibration *c, const ph_texts *texts, int max_tokens)
{
    int most = ph_min(max_tokens ? max_tokens : MAX_TOKENS, c->m->config.max_len);
    c->count = texts->count;
    c->fit = ph_max(1, c->count / 2), c->test = c->count > 1 ? c->fit : 0;
    PH_TRY(ph_chain_take(&c->chain, (size_t)c->count, sizeof *c->texts, &c->texts));
    for (int i = 0; i < c->count; i++) {
        PH_TRY(take_text(c, texts, i, most));
        const ph_calibration_text *t = &c->texts[i];
        int rows = t->target_count ? t->target_count : t->count;
        c->longest = ph_max(c->longest, t->count);
        c->longest_target = ph_max(c->longest_target, t->target_count);
        if (i < c->fit) c->tokens += rows;
        if (i >= c->test) c->test_tokens += rows;
    }
    return PH_OK;
}

/* ---- a text through a model -------------------------------------------------------- */

static ph_status make_pass(const ph_calibration *c, ph_model *m, int open, ph_pass **pass)
{
    ph_pass_shape shape = {.batch = 1,
                           .source_len = c->longest,
                           .target_len = c->longest_target,
                           .open = open};
    return ph_pass_create(pass, m, &shape);
}

typedef struct run_memory {
    int32_t *labels;
    float *pixels;
} run_memory;

static ph_status run_text(const ph_calibration_text *t, ph_pass *p, run_memory *memory)
{
    const ph_config *c = &p->model->config;
    const int32_t offsets[2] = {0, t->count}, targets[2] = {0, t->target_count};
    ph_batch batch = {.source = t->tokens,
                      .source_offsets = offsets,
                      .target = t->target,
                      .target_offsets = targets,
                      .labels = memory->labels};
    if (c->types) batch.types = t->types;
    if (t->path) {
        PH_TRY(ph_model_open_picture(p->model, t->path, memory->pixels));
        batch = (ph_batch){.pixels = memory->pixels};
    }
    if (t->target)
        memcpy(memory->labels, t->target + t->target_count,
               (size_t)t->target_count * sizeof *t->target);
    for (int i = 0; !t->target && t->tokens && i < t->count; i++)
        memory->labels[i] = i + 1 < t->count ? t->tokens[i + 1] : -1;
    return ph_pass_forward(p, &batch, 0);
}

static ph_status take_memory(ph_calibration *c, run_memory *memory)
{
    const ph_config *config = &c->m->config;
    size_t pixels = (size_t)config->image_size * (size_t)config->image_size;
    size_t labels = (size_t)ph_max(c->longest, c->longest_target);
    PH_TRY(ph_chain_take(&c->chain, labels, sizeof(int32_t), &memory->labels));
    return ph_chain_take(&c->chain, pixels * (size_t)config->channels + 1, sizeof(float),
                         &memory->pixels);
}

/* ---- Gram matrices ----------------------------------------------------------------- */

/* gram += [x 1]^T [x 1]; products of one text in f32 like those of the model. */
static ph_status add_rows(const ph_model *m, int rows, const float *x, float *products,
                          double *gram)
{
    size_t n = (size_t)m->config.model_dim;
    ph_gemm g = {.m = (int)n, .n = (int)n, .k = rows};
    g.a = x, g.a_row = 1, g.a_col = (int64_t)n;
    g.b = x, g.b_row = (int64_t)n, g.b_col = 1;
    g.c = products, g.c_row = (int64_t)n;
    PH_TRY(ph_model_multiply(m, &g, 1));
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            gram[i * (n + 1) + j] += (double)products[i * n + j];
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t i = 0; i < n; i++) gram[i * (n + 1) + n] += (double)x[r * n + i];
    gram[n * (n + 1) + n] += rows;
    return PH_OK;
}

/* What the encoder gives to cross-attention. */
static const float *memory_of(const ph_pass *p)
{
    const ph_pass_stack *stack = &p->stacks[0];
    return stack->acts[stack->def->count - 1].residual.n;
}

static ph_status add_text(ph_calibration *c, const ph_pass *p, float *products)
{
    for (int i = 0; i < p->stack_count; i++) {
        const ph_pass_stack *stack = &p->stacks[i];
        for (int s = 0; s < stack->def->count; s++) {
            const ph_sublayer *sublayer = &stack->def->sublayers[s];
            if (sublayer->kind == PH_SUBLAYER_FEED) continue;
            PH_TRY(add_rows(c->m, stack->rows, stack->acts[s].a, products,
                            c->grams[sublayer->site]));
        }
    }
    if (!c->memory_gram) return PH_OK;
    return add_rows(c->m, p->stacks[0].rows, memory_of(p), products, c->memory_gram);
}

/* Sums were kept in the last column only. */
static void mirror(const ph_calibration *c, double *gram)
{
    size_t n = (size_t)c->m->config.model_dim;
    for (size_t i = 0; i < n; i++) gram[n * (n + 1) + i] = gram[i * (n + 1) + n];
}

static int is_finite(const ph_calibration *c, const double *gram)
{
    size_t n = (size_t)c->m->config.model_dim + 1, i = 0;
    while (gram && i < n * n && isfinite(gram[i])) i++;
    return !gram || i == n * n;
}

static ph_status check_grams(const ph_calibration *c)
{
    for (int i = 0; i < c->m->stack_count; i++)
        for (int s = 0; s < c->m->stacks[i].count; s++) {
            const ph_sublayer *def = &c->m->stacks[i].sublayers[s];
            if (def->kind == PH_SUBLAYER_FEED || is_finite(c, c->grams[def->site]))
                continue;
            return ph_fail(c->m->ctx, PH_BAD_VALUE,
                           "what attention of %s layer %d reads became NaN or Inf, "
                           "expected a model whose activations stay finite",
                           c->m->stacks[i].causal ? "decoder" : "encoder", def->layer);
        }
    if (is_finite(c, c->memory_gram)) return PH_OK;
    return ph_fail(c->m->ctx, PH_BAD_VALUE,
                   "the output of the encoder became NaN or Inf, expected finite "
                   "activations");
}

static ph_status fill_grams(ph_calibration *c)
{
    ph_pass *p = NULL;
    run_memory memory;
    float *products;
    size_t n = (size_t)c->m->config.model_dim;
    PH_TRY(take_memory(c, &memory));
    PH_TRY(ph_chain_take(&c->chain, n * n, sizeof *products, &products));
    ph_status status = make_pass(c, c->m, 1, &p);
    for (int i = 0; status == PH_OK && i < c->fit; i++) {
        status = run_text(&c->texts[i], p, &memory);
        if (status == PH_OK) status = add_text(c, p, products);
    }
    ph_pass_free(p);
    for (int i = 0; i < c->m->site_count; i++) mirror(c, c->grams[i]);
    if (c->memory_gram) mirror(c, c->memory_gram);
    return status == PH_OK ? check_grams(c) : status;
}

static void set_identity(const ph_calibration *c, double *gram)
{
    size_t n = (size_t)c->m->config.model_dim + 1;
    for (size_t i = 0; gram && i < n; i++) gram[i * (n + 1)] = 1;
}

static ph_status take_grams(ph_calibration *c)
{
    size_t n = (size_t)c->m->config.model_dim + 1, sites = (size_t)c->m->site_count;
    PH_TRY(ph_chain_take(&c->chain, sites, sizeof *c->grams, &c->grams));
    for (size_t i = 0; i < sites; i++)
        PH_TRY(ph_chain_doubles(&c->chain, n * n, &c->grams[i]));
    if (c->m->stack_count < 2) return PH_OK;
    return ph_chain_doubles(&c->chain, n * n, &c->memory_gram);
}

ph_status ph_calibrate(ph_calibration *c, ph_model *m, const ph_texts *texts,
                       int max_tokens)
{
    *c = (ph_calibration){.m = m, .chain = {.ctx = m->ctx}};
    PH_TRY(take_grams(c));
    if (texts) {
        PH_TRY(take_texts(c, texts, max_tokens));
        return fill_grams(c);
    }
    for (int i = 0; i < m->site_count; i++) set_identity(c, c->grams[i]);
    set_identity(c, c->memory_gram);
    return PH_OK;
}

void ph_calibration_free(ph_calibration *c)
{
    ph_chain_free(&c->chain);
}

/* ---- the test ---------------------------------------------------------------------- */

typedef struct test_sums {
    double loss, squares, differences;
    int64_t predicted;
    size_t at; /* floats of outputs so far */
} test_sums;

static void compare(const ph_calibration *c, const float *y, size_t count, int first,
                    test_sums *s)
{
    float *stored = c->outputs + s->at;
    if (first) memcpy(stored, y, count * sizeof *y);
    for (size_t i = 0; i < count; i++) {
        double d = (double)y[i] - (double)stored[i];
        s->differences += d * d;
        s->squares += (double)stored[i] * (double)stored[i];
    }
    s->at += count;
}

static ph_status test_text(ph_calibration *c, const ph_calibration_text *t, ph_pass *p,
                           run_memory *memory, int first, test_sums *s)
{
    double loss;
    int rows = t->target_count ? t->target_count : t->count;
    PH_TRY(run_text(t, p, memory));
    compare(c, ph_pass_output(p), (size_t)rows * (size_t)c->m->config.model_dim, first,
            s);
    if (p->model->config.arch == PH_ARCH_ENCODER || p->model->output < 0) return PH_OK;
    PH_TRY(ph_pass_loss(p, 0, 1, &loss));
    s->loss += loss;
    for (int i = 0; i < rows; i++) s->predicted += memory->labels[i] >= 0;
    return PH_OK;
}

ph_status ph_calibration_test(ph_calibration *c, ph_model *m, double *loss,
                              double *distance)
{
    ph_pass *p = NULL;
    run_memory memory;
    test_sums s = {0};
    int first = !c->outputs;
    size_t floats = (size_t)c->test_tokens * (size_t)m->config.model_dim;
    *loss = NAN, *distance = 0;
    if (!c->count) return PH_OK;
    PH_TRY(take_memory(c, &memory));
    if (first) PH_TRY(ph_chain_take(&c->chain, floats, sizeof(float), &c->outputs));
    ph_status status = make_pass(c, m, 0, &p);
    for (int i = c->test; status == PH_OK && i < c->count; i++)
        status = test_text(c, &c->texts[i], p, &memory, first, &s);
    ph_pass_free(p);
    if (s.predicted) *loss = s.loss / (double)s.predicted;
    if (s.squares > 0) *distance = sqrt(s.differences / s.squares);
    return status;
}
