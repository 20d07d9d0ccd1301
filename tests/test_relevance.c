/*
 * test_relevance.c - layer-wise relevance against its definition on a graph of neurons.
 */
#include "model/model_text.h"
#include "relevance_graph.h"

/* ---- what it starts from ----------------------------------------------------------- */

static int largest(const graph *g, const int *scores, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (value_of(g, scores[i]) > value_of(g, scores[best])) best = i;
    return scores[best];
}

/* Scores of tokens: x (dim) times rows of the embeddings. */
static void start_token(graph *g, const int *x)
{
    const ph_model *m = g->m;
    const float *w = m->block + m->params[m->output].at;
    const float *bias =
        m->output_bias >= 0 ? m->block + m->params[m->output_bias].at : NULL;
    int h[MODEL_DIM], scores[32] = {0}, vocab = m->config.vocab;
    if (m->masked >= 0) {
        multiply(g, x, MODEL_DIM, MODEL_DIM, tensor(g, "masked", ".w"),
                 tensor(g, "masked", ".b"), h);
        for (int d = 0; d < MODEL_DIM; d++)
            h[d] = unchanged(g, h[d], activate(&m->config, value_of(g, h[d])));
        normalise(g, h, "masked.norm", h);
        x = h;
    }
    for (int t = 0; t < vocab; t++) {
        double sum = bias ? (double)bias[t] : 0;
        for (int d = 0; d < MODEL_DIM; d++)
            sum += value_of(g, x[d]) * (double)w[t * MODEL_DIM + d];
        scores[t] = add(g, sum);
        for (int d = 0; d < MODEL_DIM; d++)
            contribute(g, x[d], value_of(g, x[d]) * (double)w[t * MODEL_DIM + d]);
    }
    g->neurons[largest(g, scores, vocab)].r = 1;
}

static void start_text(graph *g, const int *x, int rows)
{
    const ph_config *c = &g->m->config;
    int v[MODEL_DIM], out[MODEL_DIM], scores[8] = {0};
    for (int d = 0; d < MODEL_DIM; d++) {
        int best = 0;
        for (int i = 1; i < rows; i++)
            if (value_of(g, x[i * MODEL_DIM + d]) > value_of(g, x[best * MODEL_DIM + d]))
                best = i;
        double sum = 0, z[16];
        for (int i = 0; i < rows; i++) {
            int max = c->pooling == PH_POOL_MAX;
            double weight = max ? i == best : c->pooling == PH_POOL_WEIGHTED ? i + 1 : 1;
            sum += z[i] = weight * value_of(g, x[i * MODEL_DIM + d]);
        }
        double all = c->pooling == PH_POOL_MAX        ? 1
                     : c->pooling == PH_POOL_WEIGHTED ? rows * (rows + 1) / 2.0
                                                      : rows;
        v[d] = add(g, sum / all);
        for (int i = 0; i < rows; i++) contribute(g, x[i * MODEL_DIM + d], z[i]);
    }
    if (c->pooler) {
        multiply(g, v, MODEL_DIM, MODEL_DIM, tensor(g, "pooler", ".w"),
                 tensor(g, "pooler", ".b"), out);
        for (int d = 0; d < MODEL_DIM; d++)
            v[d] = unchanged(g, out[d], tanh(value_of(g, out[d])));
    }
    if (c->pooler_norm) {
        normalise(g, v, "pooler.norm", out);
        memcpy(v, out, sizeof *v * MODEL_DIM);
    }
    if (c->classes) {
        multiply(g, v, MODEL_DIM, c->classes, tensor(g, "classifier", ".w"),
                 tensor(g, "classifier", ".b"), scores);
        g->neurons[largest(g, scores, c->classes)].r = 1;
        return;
    }
    scores[0] = add(g, 0);
    for (int d = 0; d < MODEL_DIM; d++)
        contribute(g, v[d], value_of(g, v[d]) * value_of(g, v[d]));
    g->neurons[scores[0]].r = 1;
}

/* Of every word the link with the largest score, a sum of products of its elements. */
static void start_link(graph *g, const int *x, int rows, int word)
{
    int q[MODEL_DIM], k[STATES], scores[16];
    multiply(g, x + word * MODEL_DIM, MODEL_DIM, MODEL_DIM, tensor(g, "links", ".wq"),
             NULL, q);
    for (int j = 0; j < rows; j++) {
        multiply(g, x + j * MODEL_DIM, MODEL_DIM, MODEL_DIM, tensor(g, "links", ".wk"),
                 NULL, k);
        int products[MODEL_DIM];
        double sum = 0;
        for (int d = 0; d < MODEL_DIM; d++) {
            products[d] = product(g, q[d], k[d]);
            sum += value_of(g, products[d]);
        }
        scores[j] = add(g, sum);
        for (int d = 0; d < MODEL_DIM; d++)
            contribute(g, products[d], value_of(g, products[d]));
    }
    g->neurons[largest(g, scores, rows)].r = 1;
}

static void start(graph *g, const bed *b, int text, const int *x, int rows)
{
    const ph_eval_text *t = &b->e->texts[text];
    if (b->m->config.pooling) {
        start_text(g, x, rows);
        return;
    }
    for (int i = 0; i < rows; i++) {
        if (t->labels[i] < 0) continue;
        if (b->m->links >= 0)
            start_link(g, x, rows, i);
        else
            start_token(g, x + i * MODEL_DIM);
    }
}

/* ---- a text ------------------------------------------------------------------------ */

static void clear(graph *g)
{
    g->count = g->most = 0, g->used = 0, g->moved = 0;
    memset(g->head_size, 0, sizeof g->head_size);
}

/* values: of every head its part of its site's relevance. */
static void relevance_of(graph *g, const bed *b, int text, double *values)
{
    int x[STATES], memory[STATES];
    const ph_pass *p = b->e->open;
    int last = p->stack_count - 1;
    const int32_t *rows = p->stacks[last].offsets + text;
    const int32_t *keys = p->stacks[0].offsets + text;
    clear(g);
    if (last) run_stack(g, b, 0, text, NULL, 0, memory);
    run_stack(g, b, last, text, last ? memory : NULL, keys[1] - keys[0], x);
    start(g, b, text, x, rows[1] - rows[0]);
    run_backward(g);
    for (int s = 0; s < b->m->site_count; s++) {
        const ph_eval_site *site = &b->e->sites[s];
        double all = 0;
        for (int h = site->first_head; h < site->first_head + site->heads; h++) {
            values[h] = 0;
            for (int i = 0; i < g->head_size[h]; i++)
                values[h] += g->neurons[g->heads[h][i]].r;
            all += values[h];
        }
        for (int h = site->first_head; h < site->first_head + site->heads; h++)
            values[h] /= all + (all < 0 ? -g->rule.eps : g->rule.eps);
    }
}

/* ---- cases ------------------------------------------------------------------------- */

static const ph_config graphs[] = {
    {.arch = PH_ARCH_DECODER, .kv_heads = 2},
    {.arch = PH_ARCH_DECODER, .activation = PH_SWIGLU, .norm = PH_NORM_RMS},
    {.arch = PH_ARCH_ENCODER_DECODER, .activation = PH_RELU, .norm_place = PH_POST_NORM},
    {.arch = PH_ARCH_ENCODER_DECODER, .kv_heads = 1},
    {.arch = PH_ARCH_ENCODER, .masked = 1, .norm_place = PH_POST_NORM},
    {.arch = PH_ARCH_ENCODER, .pooling = PH_POOL_MEAN, .pooler = 1, .classes = 3},
    {.arch = PH_ARCH_ENCODER,
     .activation = PH_GEGLU_ERF,
     .embed_norm = 1,
     .pooling = PH_POOL_MEAN,
     .pooler = 1,
     .pooler_norm = 1,
     .classes = 3},
    {.arch = PH_ARCH_ENCODER, .pooling = PH_POOL_WEIGHTED, .unit_norm = 1},
    {.arch = PH_ARCH_ENCODER, .pooling = PH_POOL_MAX},
    {.arch = PH_ARCH_ENCODER}};

enum { GRAPHS = sizeof graphs / sizeof graphs[0], HEADS_MOST = 64 };

/* Texts of a model of links, which only recipes can label: every word to the first. */
static void make_links(bed *b)
{
    int32_t *types;
    int count;
    CHECK(ph_eval_open(&b->e, b->m, TEXTS) == PH_OK, "%s", ph_error(b->ctx));
    for (int i = 0; i < TEXTS; i++) {
        ph_eval_text *t = &b->e->texts[i];
        int32_t *tokens;
        ph_status status =
            ph_tokens_take(b->m, texts[i], NULL, 8, &tokens, &types, &count);
        CHECK(status == PH_OK, "%s", ph_error(b->ctx));
        t->source = ph_ctx_alloc(b->ctx, 3 * (size_t)count * sizeof *tokens);
        memset(t->source, 0, 3 * (size_t)count * sizeof *tokens);
        memcpy(t->source, tokens, (size_t)count * sizeof *tokens);
        t->types = t->source + count, t->labels = t->types + count;
        t->target = t->labels;
        t->source_len = t->label_len = t->counted = count;
        ph_ctx_release(b->ctx, tokens);
    }
    CHECK(ph_eval_begin(b->e) == PH_OK, "%s", ph_error(b->ctx));
}

static void make_traced(bed *b, int kind, int threads)
{
    make_model(b, graphs[kind], threads);
    if (b->m->links >= 0)
        make_links(b);
    else
        make_eval(b);
    ph_batch batch = ph_eval_fill(b->e, 0);
    CHECK(b->e->batches == 1 && ph_pass_forward(b->e->open, &batch, 0) == PH_OK, "%s",
          ph_error(b->ctx));
}

static void make_graph(graph *g, const bed *b, int alpha_beta, double eps)
{
    *g = (graph){.m = b->m, .rule = {.alpha_beta = alpha_beta, .eps = eps}};
    g->neurons = malloc(NEURONS * sizeof *g->neurons);
    g->all = malloc(CONTRIBUTIONS * sizeof *g->all);
}

static void free_graph(graph *g)
{
    free(g->neurons);
    free(g->all);
}

/* How far relevance moves when every value is off by a unit of float; the pass rounds at
   every term of its sums, which have up to 12. */
static void compare_text(const bed *b, graph *g, int kind, int text, const double *found)
{
    double exact[HEADS_MOST], rounded[HEADS_MOST], moved = 0, most = 1;
    g->rounding = 0;
    relevance_of(g, b, text, exact);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        g->rounding = seed;
        relevance_of(g, b, text, rounded);
        for (int h = 0; h < b->m->head_count; h++) {
            moved = fmax(moved, fabs(exact[h] - rounded[h]));
            most = fmax(most, fabs(exact[h]));
        }
    }
    for (int h = 0; h < b->m->head_count; h++) {
        double value = found[(size_t)h * (size_t)b->e->batch + (size_t)text];
        double limit = 12 * (moved + (double)FLT_EPSILON * most);
        CHECK(fabs(value - exact[h]) <= limit,
              "model %d, rule %d, text %d, head %d: %.9g, expected %.9g +- %.2g", kind,
              g->rule.alpha_beta, text, h, value, exact[h], limit);
    }
}

static void against_graph(void)
{
    static graph g;
    for (int kind = 0; kind < GRAPHS; kind++)
        for (int alpha_beta = 0; alpha_beta < 2; alpha_beta++) {
            bed b;
            double found[HEADS_MOST * TEXTS];
            make_traced(&b, kind, 1);
            make_graph(&g, &b, alpha_beta, 1e-5);
            CHECK(ph_relevance_batch(b.e, &g.rule, found) == PH_OK, "%s",
                  ph_error(b.ctx));
            for (int t = 0; t < TEXTS; t++) compare_text(&b, &g, kind, t, found);
            free_graph(&g);
            free_bed(&b);
        }
}

/* Without eps a neuron of n contributions loses n roundings of what it propagates. */
static void conserved(void)
{
    static graph g;
    for (int kind = 0; kind < GRAPHS; kind++)
        for (int alpha_beta = 0; alpha_beta < 2; alpha_beta++) {
            bed b;
            double found[HEADS_MOST * TEXTS], moved = 0, parts[HEADS_MOST];
            make_traced(&b, kind, 1);
            make_graph(&g, &b, alpha_beta, 1e-200);
            CHECK(ph_relevance_batch(b.e, &g.rule, found) == PH_OK, "%s",
                  ph_error(b.ctx));
            for (int t = 0; t < TEXTS; t++) {
                relevance_of(&g, &b, t, parts);
                moved += g.moved;
            }
            double lost = fabs(g.rule.leaving - g.rule.entering);
            CHECK(g.rule.entering >= TEXTS && lost <= 2 * g.most * DBL_EPSILON * moved,
                  "model %d, rule %d: %.17g entered, %.17g left, moved %g", kind,
                  alpha_beta, g.rule.entering, g.rule.leaving, moved);
            for (int t = 0; t < TEXTS; t++) {
                double sum = 0, size = 0;
                int heads = b.e->sites[0].heads;
                for (int h = 0; h < heads; h++) {
                    double value = found[(size_t)h * (size_t)b.e->batch + (size_t)t];
                    sum += value, size += fabs(value);
                }
                /* a quotient each, and two sums of as many terms as there are heads */
                CHECK(fabs(sum - 1) <= (heads + 1) * DBL_EPSILON * size,
                      "heads of a site have %.17g", sum);
            }
            free_graph(&g);
            free_bed(&b);
        }
}

static void positions_and_threads(void)
{
    static const ph_worth rules[] = {PH_WORTH_LRP_RATIO, PH_WORTH_LRP_AB};
    for (int kind = 0; kind < KINDS; kind++)
        for (int r = 0; r < 2; r++) {
            ph_estimate one[HEADS_MOST], more[HEADS_MOST];
            bed b;
            make_bed(&b, kinds[kind], 1);
            CHECK(ph_importance(b.e, rules[r], NULL, one) == PH_OK, "%s",
                  ph_error(b.ctx));
            free_bed(&b);
            make_bed(&b, kinds[kind], 3);
            CHECK(ph_importance(b.e, rules[r], NULL, more) == PH_OK, "%s",
                  ph_error(b.ctx));
            CHECK(!memcmp(one, more, (size_t)b.m->head_count * sizeof *one),
                  "model %d: threads change relevance", kind);
            free_bed(&b);
        }
}

static void useless_and_removed(void)
{
    bed b;
    int param;
    size_t count;
    ph_estimate found[HEADS_MOST];
    uint8_t removed[HEADS_MOST] = {0};
    make_bed(&b, kinds[0], 1);
    float *rows = output_rows(b.m, 5, &param, &count);
    memset(rows, 0, count * sizeof *rows);
    removed[2] = 1;
    CHECK(ph_importance(b.e, PH_WORTH_LRP_AB, removed, found) == PH_OK, "%s",
          ph_error(b.ctx));
    double sum = 0;
    for (int h = 0; h < 4; h++) sum += found[h].value;
    /* r / (r + 1e-5) of the relevance r of the site, which is above 0.1 */
    CHECK(found[5].value == 0 && found[2].value == 0 && fabs(sum - 1) < 1e-4,
          "%g of a head that writes nothing, %g of one that is off, %g of all",
          found[5].value, found[2].value, sum);
    free_bed(&b);
}

static void refused(void)
{
    bed b;
    ph_estimate found[HEADS_MOST];
    make_bed(&b, (ph_config){.arch = PH_ARCH_DECODER, .variant = "talking"}, 1);
    CHECK(ph_importance(b.e, PH_WORTH_LRP_AB, NULL, found) == PH_UNSUPPORTED &&
              strstr(ph_error(b.ctx), "plain attention only, and the model has talking"),
          "%s", ph_error(b.ctx));
    free_bed(&b);
    make_bed(&b, (ph_config){.arch = PH_ARCH_DECODER, .parallel = 1}, 1);
    CHECK(ph_importance(b.e, PH_WORTH_LRP_AB, NULL, found) == PH_UNSUPPORTED &&
              strstr(ph_error(b.ctx), "those of the model are parallel"),
          "%s", ph_error(b.ctx));
    free_bed(&b);
}

static const check_case cases[] = {{"against_graph", against_graph},
                                   {"conserved", conserved},
                                   {"positions_and_threads", positions_and_threads},
                                   {"useless_and_removed", useless_and_removed},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
