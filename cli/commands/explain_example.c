/*
 * explain_example.c - `polyhead explain` without a shape: the worked example, then the
 * full flow.
 *
 *     head_i = softmax( Q_i K_i^T / sqrt(d_k) ) V_i       Q_i = X W_i^Q  and so on
 *     output = [ head_1 head_2 ] W_O
 *
 * Two tokens, model_dim 4, two heads of 2. The attention is computed by ph_forward,
 * twice: head by head, and from one big matrix per projection whose heads are strides.
 * Nothing that is printed as a result is written down here.
 */
#include <math.h>
#include <string.h>

#include "commands/cmd_explain.h"
#include "framework/json.h"
#include "framework/panel.h"

enum { TOKENS = 2, MODEL = 4, HEADS = 2, DIM = 2 };

/* The given part: as the article that made the example popular has it. */
static const float x[TOKENS][MODEL] = {{1, 0.5f, -1, 2}, {-0.5f, 1, 0.3f, -2}};
static const float wq[HEADS][MODEL][DIM] = {
    {{0.1f, 0.4f}, {-0.2f, 0.3f}, {1.0f, -0.5f}, {0.5f, 0.2f}},
    {{-0.3f, 0.2f}, {1.1f, 0.6f}, {-0.4f, 0.8f}, {0.7f, -0.1f}}};
static const float wo[HEADS * DIM][MODEL] = {{0.5f, -0.2f, 1.1f, 0.3f},
                                             {0.1f, 0.8f, -0.4f, 0.6f},
                                             {-0.3f, 0.7f, 0.2f, 1.0f},
                                             {0.9f, -0.5f, 0.3f, -0.8f}};

/* Our own part, since the article has none: head 1 compares by the first two features and
   passes on the last two, head 2 the other way round. */
static const float first_two[MODEL][DIM] = {{1, 0}, {0, 1}, {0, 0}, {0, 0}};
static const float last_two[MODEL][DIM] = {{0, 0}, {0, 0}, {1, 0}, {0, 1}};

/* What the article prints for Q1 and Q2. */
static const float wrong_q[HEADS][TOKENS][DIM] = {{{0.85f, -0.05f}, {-0.29f, 0.74f}},
                                                  {{2.15f, 0.65f}, {-1.32f, 1.02f}}};

typedef struct example {
    float wk[HEADS][MODEL][DIM], wv[HEADS][MODEL][DIM];
    float q[HEADS][TOKENS][DIM], k[HEADS][TOKENS][DIM], v[HEADS][TOKENS][DIM];
    float scores[HEADS][TOKENS][TOKENS], scaled[HEADS][TOKENS][TOKENS];
    float weights[HEADS][TOKENS][TOKENS], lse[HEADS][TOKENS];
    float heads[HEADS][TOKENS][DIM];
    float concat[TOKENS][HEADS * DIM], out[TOKENS][MODEL];

    /* the other form: one matrix per projection, heads side by side in its columns */
    float big_w[3][MODEL][HEADS * DIM]; /* q, k, v */
    float big[3][TOKENS][HEADS * DIM];
    float big_concat[TOKENS][HEADS * DIM], big_out[TOKENS][MODEL];
    int same; /* both forms gave the same bits */
} example;

/* ---- computing ---- */

/* c (rows, cols) = a (rows, inner) b (inner, cols), all packed */
static void product(const float *a, const float *b, float *c, int rows, int inner,
                    int cols)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float sum = 0;
            for (int d = 0; d < inner; d++) sum += a[i * inner + d] * b[d * cols + j];
            c[i * cols + j] = sum;
        }
}

/* One call of the library; the plan lives as long as the call. */
static ph_status attend(ph_ctx *ctx, const ph_attn *attn, const ph_args *args)
{
    ph_plan *plan = NULL;
    ph_status status = ph_plan_create(&plan, ctx, attn);
    if (status == PH_OK) status = ph_forward(plan, args);
    ph_plan_free(plan);
    return status;
}

/* Head by head, one call each. */
static ph_status per_head(ph_ctx *ctx, example *e)
{
    const ph_attn attn = {
        .batch = 1, .q_heads = 1, .q_len = TOKENS, .kv_len = TOKENS, .qk_dim = DIM};
    ph_status status = PH_OK;
    for (int h = 0; h < HEADS && status == PH_OK; h++) {
        product(x[0], wq[h][0], e->q[h][0], TOKENS, MODEL, DIM);
        product(x[0], e->wk[h][0], e->k[h][0], TOKENS, MODEL, DIM);
        product(x[0], e->wv[h][0], e->v[h][0], TOKENS, MODEL, DIM);
        const ph_look_at look = {.weights = e->weights[h][0]};
        status = attend(ctx, &attn,
                        &(ph_args){.q = e->q[h],
                                   .k = e->k[h],
                                   .v = e->v[h],
                                   .out = e->heads[h],
                                   .lse = e->lse[h],
                                   .look = &look});
        for (int i = 0; i < TOKENS; i++)
            memcpy(&e->concat[i][h * DIM], e->heads[h][i], sizeof e->heads[h][i]);
    }
    product(e->concat[0], wo[0], e->out[0], TOKENS, HEADS * DIM, MODEL);
    return status;
}

/* One product per projection and one call for all heads; a head is a stride. */
static ph_status all_heads(ph_ctx *ctx, example *e)
{
    const ph_strides side_by_side = {
        .batch = TOKENS * HEADS * DIM, .head = DIM, .time = HEADS * DIM};
    const ph_attn attn = {.batch = 1,
                          .q_heads = HEADS,
                          .q_len = TOKENS,
                          .kv_len = TOKENS,
                          .qk_dim = DIM,
                          .q = side_by_side,
                          .k = side_by_side,
                          .v = side_by_side,
                          .out = side_by_side};
    for (int h = 0; h < HEADS; h++)
        for (int row = 0; row < MODEL; row++) {
            memcpy(&e->big_w[0][row][h * DIM], wq[h][row], sizeof wq[h][row]);
            memcpy(&e->big_w[1][row][h * DIM], e->wk[h][row], sizeof e->wk[h][row]);
            memcpy(&e->big_w[2][row][h * DIM], e->wv[h][row], sizeof e->wv[h][row]);
        }
    for (int p = 0; p < 3; p++)
        product(x[0], e->big_w[p][0], e->big[p][0], TOKENS, MODEL, HEADS * DIM);
    ph_status status = attend(
        ctx, &attn,
        &(ph_args){.q = e->big[0], .k = e->big[1], .v = e->big[2], .out = e->big_concat});
    product(e->big_concat[0], wo[0], e->big_out[0], TOKENS, HEADS * DIM, MODEL);
    return status;
}

/* What the library does not hand out: the scores on their way to the weights. */
static void show_scores(example *e)
{
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < TOKENS; i++)
            for (int j = 0; j < TOKENS; j++) {
                float score = 0;
                for (int d = 0; d < DIM; d++) score += e->q[h][i][d] * e->k[h][j][d];
                e->scores[h][i][j] = score;
                e->scaled[h][i][j] = score / sqrtf(DIM);
            }
}

static ph_status compute(ph_ctx *ctx, example *e)
{
    memset(e, 0, sizeof *e);
    memcpy(e->wk[0], first_two, sizeof first_two);
    memcpy(e->wk[1], last_two, sizeof last_two);
    memcpy(e->wv[0], last_two, sizeof last_two);
    memcpy(e->wv[1], first_two, sizeof first_two);
    ph_status status = per_head(ctx, e);
    if (status == PH_OK) status = all_heads(ctx, e);
    show_scores(e);
    e->same = !memcmp(e->concat, e->big_concat, sizeof e->concat) &&
              !memcmp(e->out, e->big_out, sizeof e->out);
    return status;
}

/* ---- printing ---- */

static void step(int number, const char *title, const char *text)
{
    printf("%s%d  %s%s\n", term_on(stdout, TERM_BOLD), number, title,
           term_on(stdout, TERM_PLAIN));
    if (text) {
        fputs("   ", stdout);
        term_wrap(stdout, text, 3, 3, term_width(stdout, 80));
    }
    putchar('\n');
}

#define SHOW(...)                                                                        \
    panel_row(stdout, (const panel[]){__VA_ARGS__},                                      \
              (int)(sizeof((const panel[]){__VA_ARGS__}) / sizeof(panel)))
#define MATRIX(name, m, head)                                                            \
    {                                                                                    \
        name, (const float *)(m), (int)(sizeof(m) / sizeof((m)[0])),                     \
            (int)(sizeof((m)[0]) / sizeof(float)), head                                  \
    }

static void print_start(void)
{
    printf("%sMulti-head attention, step by step%s\n\n", term_on(stdout, TERM_BOLD),
           term_on(stdout, TERM_PLAIN));
    puts("   head_i = softmax( Q_i K_i^T / sqrt(d_k) ) V_i    with Q_i = X W_i^Q,");
    puts("   output = [ head_1 head_2 ... ] W_O               K_i = X W_i^K,");
    puts("                                                    V_i = X W_i^V\n");
    puts("   A small one to follow by hand: 2 tokens, model_dim 4, 2 heads with");
    puts("   d_k = d_v = 2. Everything below is computed now, by the library.\n");
}

static void print_inputs(const example *e)
{
    step(1, "Tokens, and one set of matrices for each head",
         "A row of X is a token. W^K and W^V are our own, since the example is usually "
         "printed without: ones and zeros that pick two features each.");
    SHOW(MATRIX("X", x, TERM_BOLD), MATRIX("W1_Q", wq[0], TERM_HEAD_A),
         MATRIX("W1_K", e->wk[0], TERM_HEAD_A), MATRIX("W1_V", e->wv[0], TERM_HEAD_A));
    SHOW(MATRIX("W_O", wo, TERM_BOLD), MATRIX("W2_Q", wq[1], TERM_HEAD_B),
         MATRIX("W2_K", e->wk[1], TERM_HEAD_B), MATRIX("W2_V", e->wv[1], TERM_HEAD_B));
}

static void print_projections(const example *e)
{
    step(2, "Queries, keys and values: X times each matrix", NULL);
    SHOW(MATRIX("Q1 = X W1_Q", e->q[0], TERM_HEAD_A),
         MATRIX("K1 = X W1_K", e->k[0], TERM_HEAD_A),
         MATRIX("V1 = X W1_V", e->v[0], TERM_HEAD_A));
    SHOW(MATRIX("Q2 = X W2_Q", e->q[1], TERM_HEAD_B),
         MATRIX("K2 = X W2_K", e->k[1], TERM_HEAD_B),
         MATRIX("V2 = X W2_V", e->v[1], TERM_HEAD_B));
    printf("   %sNote.%s ", term_on(stdout, TERM_WARN), term_on(stdout, TERM_PLAIN));
    puts("A widely copied article prints other numbers for Q1 and Q2, from the");
    puts("   same X, W1_Q and W2_Q. They are wrong; those above are right. By hand, the");
    puts("   first of Q1:");
    printf("   1 * 0.1 + 0.5 * (-0.2) + (-1) * 1.0 + 2 * 0.5 = %g, where it has %g.\n\n",
           (double)e->q[0][0][0], (double)wrong_q[0][0][0]);
    SHOW(MATRIX("Q1 in the article (wrong)", wrong_q[0], TERM_DIM),
         MATRIX("Q2 in the article (wrong)", wrong_q[1], TERM_DIM));
}

static void print_attention(const example *e)
{
    step(3, "Scores: how well each query (row) fits each key (column)", NULL);
    SHOW(MATRIX("S1 = Q1 K1^T", e->scores[0], TERM_HEAD_A),
         MATRIX("S2 = Q2 K2^T", e->scores[1], TERM_HEAD_B));
    step(4, "Scaled by 1/sqrt(d_k) = 1/sqrt(2) = 0.7071",
         "Without it long vectors give large scores, and softmax becomes a hard choice.");
    SHOW(MATRIX("S1 / sqrt(2)", e->scaled[0], TERM_HEAD_A),
         MATRIX("S2 / sqrt(2)", e->scaled[1], TERM_HEAD_B));
    step(5, "Weights: softmax of each row; every row sums to 1",
         "Row 1 says how much token 1 takes from token 1 and from token 2. The heads "
         "disagree, and that is what they are for.");
    SHOW(MATRIX("A1 = softmax", e->weights[0], TERM_HEAD_A),
         MATRIX("A2 = softmax", e->weights[1], TERM_HEAD_B));
    step(6, "Heads: weights times values", NULL);
    SHOW(MATRIX("head 1 = A1 V1", e->heads[0], TERM_HEAD_A),
         MATRIX("head 2 = A2 V2", e->heads[1], TERM_HEAD_B));
}

static void print_output(const example *e)
{
    step(7, "Side by side, and mixed by W_O", NULL);
    SHOW(MATRIX("concat = [ head 1  head 2 ]", e->concat, TERM_BOLD));
    SHOW(MATRIX("output = concat W_O", e->out, TERM_GOOD));
    step(8, "The same with one big matrix per projection",
         "W_Q = [ W1_Q W2_Q ], and W_K, W_V likewise: one product gives the queries of "
         "all heads, and a head is a group of columns. One call computes them all.");
    SHOW(MATRIX("W_Q", e->big_w[0], TERM_BOLD),
         MATRIX("Q = X W_Q", e->big[0], TERM_BOLD));
    SHOW(MATRIX("W_K", e->big_w[1], TERM_BOLD),
         MATRIX("K = X W_K", e->big[1], TERM_BOLD));
    SHOW(MATRIX("W_V", e->big_w[2], TERM_BOLD),
         MATRIX("V = X W_V", e->big[2], TERM_BOLD));
    SHOW(MATRIX("concat", e->big_concat, TERM_BOLD));
    SHOW(MATRIX("output = concat W_O", e->big_out, TERM_GOOD));
    printf("   Both forms give the same output: %s%s%s.\n\n",
           term_on(stdout, e->same ? TERM_GOOD : TERM_BAD),
           e->same ? "the same bits" : "NO, they differ", term_on(stdout, TERM_PLAIN));
}

/* ---- the flow at full size ---- */

typedef struct flow_row {
    const char *name, *shape, *how;
    int64_t elements;
} flow_row;

enum { B = 32, T = 20, D = 512, H = 8, DK = D / H };

static const flow_row flow[] = {
    {"X", "(32, 20, 512)", "32 sequences of 20 tokens", B *T *D},
    {"W_Q, W_K, W_V", "(512, 512) each", "all heads side by side", 3 * D *D},
    {"Q, K, V", "(32, 20, 512) each", "X W_Q, X W_K, X W_V", 3 * B *T *D},
    {"  as heads", "(32, 8, 20, 64) each", "the same, seen by strides", 0},
    {"scores", "(32, 8, 20, 20)", "Q K^T / sqrt(64), per head", B *H *T *T},
    {"weights", "(32, 8, 20, 20)", "softmax over the last axis", B *H *T *T},
    {"heads", "(32, 8, 20, 64)", "weights V", B *H *T *DK},
    {"concat", "(32, 20, 512)", "side by side, by strides", 0},
    {"W_O", "(512, 512)", "mixes the heads", D *D},
    {"output", "(32, 20, 512)", "concat W_O: as X came in", B *T *D},
};

static void print_flow(void)
{
    printf("%sThe same at full size%s: ", term_on(stdout, TERM_BOLD),
           term_on(stdout, TERM_PLAIN));
    puts("batch 32, 20 tokens, model_dim 512, 8 heads of 64\n");
    printf("   %-14s %-21s %8s  %s\n", "tensor", "shape", "elements", "how");
    for (size_t i = 0; i < sizeof flow / sizeof flow[0]; i++) {
        char elements[24] = "";
        if (flow[i].elements)
            snprintf(elements, sizeof elements, "%lld", (long long)flow[i].elements);
        printf("   %s%-14s%s %-21s %8s  %s\n", term_on(stdout, TERM_NAME), flow[i].name,
               term_on(stdout, TERM_PLAIN), flow[i].shape, elements, flow[i].how);
    }
    puts("\n   Scores and weights are the only tensors that grow with the square of the");
    puts("   length. Polyhead never stores them: they are made and used up in tiles.\n");
    puts("   What it costs on this machine: polyhead explain --shape 32,20,512,8");
}

/* ---- JSON ---- */

static void tensor(ph_json_writer *j, const char *name, const float *data, int rows,
                   int cols)
{
    ph_json_begin_array(j, name);
    for (int i = 0; i < rows; i++) {
        ph_json_begin_array(j, NULL);
        for (int c = 0; c < cols; c++) ph_json_float(j, NULL, data[i * cols + c]);
        ph_json_end(j);
    }
    ph_json_end(j);
}

#define TENSOR(name, m)                                                                  \
    tensor(&j, name, (const float *)(m), (int)(sizeof(m) / sizeof((m)[0])),              \
           (int)(sizeof((m)[0]) / sizeof(float)))

static void print_json(const example *e)
{
    ph_json_writer j = json_begin("polyhead.explain.example/1");
    TENSOR("X", x);
    ph_json_begin_array(&j, "heads");
    for (int h = 0; h < HEADS; h++) {
        ph_json_begin_object(&j, NULL);
        TENSOR("W_Q", wq[h]);
        TENSOR("W_K", e->wk[h]);
        TENSOR("W_V", e->wv[h]);
        TENSOR("Q", e->q[h]);
        TENSOR("Q_article_wrong", wrong_q[h]);
        TENSOR("K", e->k[h]);
        TENSOR("V", e->v[h]);
        TENSOR("scores", e->scores[h]);
        TENSOR("scaled", e->scaled[h]);
        TENSOR("weights", e->weights[h]);
        TENSOR("head", e->heads[h]);
        ph_json_end(&j);
    }
    ph_json_end(&j);
    TENSOR("concat", e->concat);
    TENSOR("W_O", wo);
    TENSOR("output", e->out);
    TENSOR("output_one_matrix", e->big_out);
    ph_json_bool(&j, "same_bits", e->same);
    ph_json_begin_array(&j, "flow");
    for (size_t i = 0; i < sizeof flow / sizeof flow[0]; i++) {
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, "tensor", flow[i].name + strspn(flow[i].name, " "));
        ph_json_string(&j, "shape", flow[i].shape);
        ph_json_string(&j, "how", flow[i].how);
        ph_json_end(&j);
    }
    json_end(&j);
}

int explain_example(ph_ctx *ctx, int as_json)
{
    example e;
    ph_status status = compute(ctx, &e);
    if (status != PH_OK) return cli_fail_status(status, ctx);
    if (as_json) {
        print_json(&e);
    } else {
        print_start();
        print_inputs(&e);
        print_projections(&e);
        print_attention(&e);
        print_output(&e);
        print_flow();
    }
    return e.same ? EXIT_OK : EXIT_DIFFERS;
}
