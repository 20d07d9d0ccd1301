/*
 * test_twins.c - heads in pairs that share v and, but for a factor, dout: the gradients
 * of a call that is given one dout for each pair are those of a call that is given both,
 * on every instruction set; their bits depend neither on threads nor on hidden elements.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn/plan.h"
#include "cases.h"
#include "check.h"

enum { Q, K, V, OUT, LSE, DOUT, BOTH, TWIN, GATE, SINK, BIAS, DLSE, INPUTS };
enum { DQ, DK, DV, DGATE, DSINK, DBIAS, RESULTS };
static const char *const result_names[] = {"dq", "dk", "dv", "dgate", "dsink", "dbias"};

typedef struct sample {
    ph_attn attn;
    size_t size[INPUTS];
    float *in[INPUTS]; /* NULL: not given */
    uint8_t *visible;
} sample;

typedef struct results {
    size_t size[RESULTS];
    float *x[RESULTS];
} results;

static void free_all(float **x, int n)
{
    for (int i = 0; i < n; i++) free(x[i]), x[i] = NULL;
}

static float *new_floats(uint64_t *state, size_t n)
{
    float *x = malloc(n * sizeof *x + 1);
    for (size_t i = 0; i < n; i++) x[i] = check_normal(state);
    return x;
}

static int one_of(uint64_t *state, const int *list, int n)
{
    return list[check_below(state, n)];
}

/* Heads that share k or not, and all that acts on scores. */
static void draw_rest(uint64_t *state, ph_attn *a)
{
    static const int dims[] = {4, 10, 16, 48};
    static const char *const variants[] = {"mha", "mha", "mha", "entmax:alpha=1.5"};
    int pairs = 1 + check_below(state, 3), heads = 2 * pairs;
    a->batch = 1 + check_below(state, 2), a->q_heads = heads;
    a->v_heads = check_below(state, 3) ? pairs : 1;
    a->k_heads = check_below(state, 3) ? heads : check_below(state, 2) ? pairs : 1;
    a->qk_dim = one_of(state, dims, 4), a->v_dim = one_of(state, dims, 4);
    a->variant = variants[check_below(state, 4)];
    a->mask = check_below(state, 2) ? PH_MASK_CAUSAL : PH_MASK_NONE;
    a->softcap = check_below(state, 4) ? 0 : 3;
    a->dropout = check_below(state, 4) ? 0 : 0.2f;
}

/* Lengths on both sides of one flush of the partial sums, and of one and two chunks;
   long texts with few heads of few dims, so that plain loops take milliseconds. */
static ph_attn draw(uint64_t *state)
{
    static const int queries[] = {1, 30, 130, 300, 800}, keys[] = {1, 30, 130, 300, 530};
    ph_attn a = {.backward = 1, .anchor = PH_ANCHOR_END, .gate = PH_GATE_ROW};
    int64_t work = INT64_MAX;
    a.q_len = one_of(state, queries, 5), a.kv_len = one_of(state, keys, 5);
    while (work > 1 << 23) {
        draw_rest(state, &a);
        work = (int64_t)a.batch * a.q_heads * a.q_len * a.kv_len * (a.qk_dim + a.v_dim);
    }
    return a;
}

static void count(sample *p)
{
    const ph_attn *a = &p->attn;
    size_t heads = (size_t)a->batch * (size_t)a->q_heads, rows = heads * (size_t)a->q_len;
    size_t keys = (size_t)a->batch * (size_t)a->kv_len, v_dim = (size_t)a->v_dim;
    p->size[Q] = rows * (size_t)a->qk_dim;
    p->size[K] = keys * (size_t)(a->k_heads * a->qk_dim);
    p->size[V] = keys * (size_t)a->v_heads * v_dim;
    p->size[OUT] = p->size[BOTH] = rows * v_dim, p->size[DOUT] = rows / 2 * v_dim;
    p->size[LSE] = p->size[GATE] = p->size[DLSE] = rows;
    p->size[TWIN] = (size_t)a->q_heads / 2, p->size[SINK] = (size_t)a->q_heads;
    p->size[BIAS] = (size_t)a->q_heads * (size_t)a->kv_len;
}

/* dout of both heads of a pair, from that of the pair. */
static void spread(sample *p)
{
    const ph_attn *a = &p->attn;
    size_t head = (size_t)a->q_len * (size_t)a->v_dim;
    for (size_t h = 0; h < (size_t)(a->batch * a->q_heads); h++) {
        float factor = h % 2 ? p->in[TWIN][h / 2 % (size_t)(a->q_heads / 2)] : 1;
        for (size_t i = 0; i < head; i++)
            p->in[BOTH][h * head + i] = factor * p->in[DOUT][h / 2 * head + i];
    }
}

static sample make(uint64_t *state)
{
    sample p = {.attn = draw(state)};
    count(&p);
    for (int i = 0; i < INPUTS; i++)
        if (i < GATE || !check_below(state, 4)) p.in[i] = new_floats(state, p.size[i]);
    for (size_t i = 0; p.in[GATE] && i < p.size[GATE]; i++)
        if (!check_below(state, 3)) p.in[GATE][i] = 0;
    if (!check_below(state, 3)) p.visible = calloc(p.size[BIAS] + 1, 1);
    for (size_t i = 0; p.visible && i < p.size[BIAS]; i++)
        p.visible[i] = check_below(state, 5) != 0;
    if (!check_below(state, 4)) p.in[TWIN][0] = 0;
    spread(&p);
    return p;
}

static ph_plan *plan_of(const sample *p, ph_ctx *ctx, int twins)
{
    ph_plan *plan;
    ph_attn attn = p->attn, *a = &attn;
    if (p->in[BIAS]) a->bias = (ph_broadcast){1, a->q_heads, 1};
    if (p->visible) a->visible = (ph_broadcast){1, a->q_heads, 1};
    int64_t head = (int64_t)a->q_len * a->v_dim;
    ph_backward_layout back = {.dout = {a->q_heads / 2 * head, head, a->v_dim},
                               .twins = 1};
    if (!twins) back = (ph_backward_layout){0};
    CHECK(ph_plan_make(&plan, ctx, a, &back) == PH_OK, "%s", ph_error(ctx));
    return plan;
}

static results run(const sample *p, ph_ctx *ctx, int twins)
{
    ph_plan *plan = plan_of(p, ctx, twins);
    float *const *in = p->in;
    results r = {.size = {p->size[Q], p->size[K], p->size[V], p->size[GATE],
                          p->size[SINK], p->size[BIAS]}};
    for (int i = 0; i < RESULTS; i++) r.x[i] = calloc(r.size[i] + 1, sizeof(float));
    ph_args args = {.q = in[Q],
                    .k = in[K],
                    .v = in[V],
                    .out = in[OUT],
                    .lse = in[LSE],
                    .gate = in[GATE],
                    .sink = in[SINK],
                    .bias = in[BIAS],
                    .visible = p->visible};
    ph_grads grads = {.dout = in[twins ? DOUT : BOTH],
                      .dlse = in[DLSE],
                      .dq = r.x[DQ],
                      .dk = r.x[DK],
                      .dv = r.x[DV],
                      .dgate = in[GATE] ? r.x[DGATE] : NULL,
                      .dsink = in[SINK] ? r.x[DSINK] : NULL,
                      .dbias = in[BIAS] ? r.x[DBIAS] : NULL};
    CHECK(ph_forward(plan, &args) == PH_OK, "%s", ph_error(ctx));
    ph_status status = ph_backward_twins(plan, &args, &grads, twins ? in[TWIN] : NULL);
    CHECK(status == PH_OK, "%s", ph_error(ctx));
    ph_plan_free(plan);
    return r;
}

static double largest(size_t n, const float *x)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

/* What a gradient of the weights is multiplied with on its way: the factor of the twin,
   the gate, and that of dropout. */
static double largest_factor(const sample *p)
{
    double factor = fmax(1, largest(p->size[TWIN], p->in[TWIN]));
    if (p->in[GATE]) factor *= fmax(1, largest(p->size[GATE], p->in[GATE]));
    return factor / (1 - (double)p->attn.dropout);
}

/* Both are right to a few units of what was summed: dout v^T, v_dim terms times a factor,
   over the queries of all texts (dbias). Where a row sees one key these cancel to 0 and
   nothing but rounding is left. */
static void near(const sample *p, const results *x, const results *y, const char *isa,
                 int trial)
{
    double rows = (double)p->attn.batch * p->attn.q_len;
    double terms = largest_factor(p) * sqrt(rows * p->attn.v_dim);
    for (int i = 0; i < RESULTS; i++) {
        double bound = 4e-6 * largest(y->size[i], y->x[i]) + 4e-7 * terms;
        for (size_t e = 0; e < x->size[i]; e++)
            CHECK(fabs((double)x->x[i][e] - y->x[i][e]) <= bound,
                  "%s, trial %d: %s[%zu] is %.9g with twins, %.9g without", isa, trial,
                  result_names[i], e, (double)x->x[i][e], (double)y->x[i][e]);
    }
}

static void same(const results *x, const results *y, const char *what, int trial)
{
    for (int i = 0; i < RESULTS; i++)
        CHECK(!memcmp(x->x[i], y->x[i], x->size[i] * sizeof(float)),
              "trial %d: %s changes %s", trial, what, result_names[i]);
}

static ph_ctx *open_ctx(const char *isa, int threads)
{
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.isa = isa, .threads = threads}) == PH_OK,
          "no context");
    return ctx;
}

static void free_sample(sample *p)
{
    free_all(p->in, INPUTS);
    free(p->visible);
}

static void equal_to_both(void)
{
    uint64_t state = check_seed;
    for (int trial = 0; trial < 60 / CASES_SLOW; trial++) {
        sample p = make(&state);
        for (const char *const *isa = ph_isa_list(); *isa; isa++) {
            if (!strcmp(*isa, "ref") && trial % 3) continue; /* it is slow */
            ph_ctx *ctx = open_ctx(*isa, 1);
            results x = run(&p, ctx, 1), y = run(&p, ctx, 0);
            near(&p, &x, &y, *isa, trial);
            free_all(x.x, RESULTS), free_all(y.x, RESULTS);
            ph_close(ctx);
        }
        free_sample(&p);
    }
}

static void same_over_threads(void)
{
    uint64_t state = check_seed + 1;
    ph_ctx *one = open_ctx(NULL, 1), *three = open_ctx(NULL, 3);
    for (int trial = 0; trial < 40; trial++) {
        sample p = make(&state);
        results x = run(&p, one, 1), y = run(&p, three, 1);
        same(&x, &y, "the number of threads", trial);
        free_all(x.x, RESULTS), free_all(y.x, RESULTS);
        free_sample(&p);
    }
    ph_close(one), ph_close(three);
}

/* Keys of the first head of k that no head of q sees. */
static void hide_some(sample *p)
{
    const ph_attn *a = &p->attn;
    free(p->visible);
    p->visible = malloc(p->size[BIAS] + 1);
    for (size_t i = 0; i < p->size[BIAS]; i++)
        p->visible[i] = i % (size_t)a->kv_len % 7 != 3;
}

static void fill_masked(sample *p)
{
    const ph_attn *a = &p->attn;
    for (size_t i = 0; i < p->size[K]; i++)
        if (i / (size_t)a->qk_dim % (size_t)a->kv_len % 7 == 3) p->in[K][i] = NAN;
    for (size_t i = 0; i < p->size[V]; i++)
        if (i / (size_t)a->v_dim % (size_t)a->kv_len % 7 == 3) p->in[V][i] = INFINITY;
}

static void hidden_is_not_read(void)
{
    uint64_t state = check_seed + 2;
    ph_ctx *ctx = open_ctx(NULL, 2);
    for (int trial = 0; trial < 30; trial++) {
        sample p = make(&state);
        hide_some(&p);
        results x = run(&p, ctx, 1);
        fill_masked(&p);
        results y = run(&p, ctx, 1);
        same(&x, &y, "a hidden element", trial);
        free_all(x.x, RESULTS), free_all(y.x, RESULTS);
        free_sample(&p);
    }
    ph_close(ctx);
}

int main(int argc, char **argv)
{
    static const check_case cases[] = {{"equal_to_both", equal_to_both},
                                       {"same_over_threads", same_over_threads},
                                       {"hidden_is_not_read", hidden_is_not_read},
                                       {0, 0}};
    return check_main(argc, argv, cases);
}
