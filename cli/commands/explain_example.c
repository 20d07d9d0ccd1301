/*
 * explain_example.c - `polyhead explain`: the worked example, every matrix of it.
 *
 *     head_i = softmax( Q_i K_i^T / sqrt(d_k) ) V_i       Q_i = X W_i^Q  and so on
 *     output = [ head_1 head_2 ... ] W_O,  Y = LayerNorm( X + output )
 *
 * The attention is computed by ph_forward, twice: head by head, and from one big matrix
 * per projection whose heads are strides. Nothing that is printed as a result is written
 * down here.
 */
#include <math.h>
#include <string.h>

#include "commands/cmd_explain.h"
#include "framework/panel.h"

enum { N = EXPLAIN_MOST, NN = EXPLAIN_FLOATS };

/* What the article prints for Q1 and Q2. */
static const float wrong_q[2][4] = {{0.85f, -0.05f, -0.29f, 0.74f},
                                    {2.15f, 0.65f, -1.32f, 1.02f}};

/* Matrices are packed: (dim, d), (tokens, d), (tokens, tokens). */
typedef struct example {
    const explain_input *in;
    int tokens, dim, heads, d; /* d: of a head */
    int zh;
    float w[3][N][NN];    /* of q, k, v, per head */
    float part[3][N][NN]; /* q, k, v per head */
    float scores[N][NN], scaled[N][NN], weights[N][NN], lse[N][N];
    float head[N][NN];
    float concat[NN], out[NN], sum[NN], normed[NN];

    /* the other form: one matrix per projection, heads side by side in its columns */
    float big[3][NN], big_concat[NN], big_out[NN];
    int same; /* both forms gave the same bits */
} example;

static const char *say(const example *e, const char *en, const char *zh)
{
    return explain_say(e->zh, en, zh);
}

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

/* The columns of each head as matrices of their own. */
static void cut_heads(example *e)
{
    for (int p = 0; p < 3; p++)
        for (int h = 0; h < e->heads; h++)
            for (int row = 0; row < e->dim; row++)
                memcpy(&e->w[p][h][row * e->d],
                       &e->in->matrix[EXPLAIN_WQ + p][row * e->dim + h * e->d],
                       (size_t)e->d * sizeof(float));
}

/* Head by head, one call each. */
static ph_status per_head(ph_ctx *ctx, example *e)
{
    const ph_attn attn = {.batch = 1,
                          .q_heads = 1,
                          .q_len = e->tokens,
                          .kv_len = e->tokens,
                          .qk_dim = e->d};
    const float *x = e->in->matrix[EXPLAIN_X];
    ph_status status = PH_OK;
    for (int h = 0; h < e->heads && status == PH_OK; h++) {
        for (int p = 0; p < 3; p++)
            product(x, e->w[p][h], e->part[p][h], e->tokens, e->dim, e->d);
        const ph_look_at look = {.weights = e->weights[h]};
        status = attend(ctx, &attn,
                        &(ph_args){.q = e->part[0][h],
                                   .k = e->part[1][h],
                                   .v = e->part[2][h],
                                   .out = e->head[h],
                                   .lse = e->lse[h],
                                   .look = &look});
        for (int i = 0; i < e->tokens; i++)
            memcpy(&e->concat[i * e->dim + h * e->d], &e->head[h][i * e->d],
                   (size_t)e->d * sizeof(float));
    }
    product(e->concat, e->in->matrix[EXPLAIN_WO], e->out, e->tokens, e->dim, e->dim);
    return status;
}

/* One product per projection and one call for all heads; a head is a stride. */
static ph_status all_heads(ph_ctx *ctx, example *e)
{
    const ph_strides side_by_side = {
        .batch = e->tokens * e->dim, .head = e->d, .time = e->dim};
    const ph_attn attn = {.batch = 1,
                          .q_heads = e->heads,
                          .q_len = e->tokens,
                          .kv_len = e->tokens,
                          .qk_dim = e->d,
                          .q = side_by_side,
                          .k = side_by_side,
                          .v = side_by_side,
                          .out = side_by_side};
    for (int p = 0; p < 3; p++)
        product(e->in->matrix[EXPLAIN_X], e->in->matrix[EXPLAIN_WQ + p], e->big[p],
                e->tokens, e->dim, e->dim);
    ph_status status = attend(
        ctx, &attn,
        &(ph_args){.q = e->big[0], .k = e->big[1], .v = e->big[2], .out = e->big_concat});
    product(e->big_concat, e->in->matrix[EXPLAIN_WO], e->big_out, e->tokens, e->dim,
            e->dim);
    return status;
}

/* What the library does not hand out: the scores on their way to the weights. */
static void show_scores(example *e)
{
    for (int h = 0; h < e->heads; h++)
        for (int n = 0; n < e->tokens * e->tokens; n++) {
            const float *q = &e->part[0][h][n / e->tokens * e->d];
            const float *k = &e->part[1][h][n % e->tokens * e->d];
            float score = 0;
            for (int d = 0; d < e->d; d++) score += q[d] * k[d];
            e->scores[h][n] = score;
            e->scaled[h][n] = score / sqrtf((float)e->d);
        }
}

/* Residual connection, then each row to mean 0 and variance 1. */
static void add_and_norm(example *e)
{
    for (int i = 0; i < e->tokens; i++) {
        float *sum = &e->sum[i * e->dim], *normed = &e->normed[i * e->dim];
        double mean = 0, variance = 0;
        for (int c = 0; c < e->dim; c++) {
            int n = i * e->dim + c;
            sum[c] = e->in->matrix[EXPLAIN_X][n] + e->out[n];
            mean += (double)sum[c] / e->dim;
        }
        for (int c = 0; c < e->dim; c++)
            variance += ((double)sum[c] - mean) * ((double)sum[c] - mean) / e->dim;
        for (int c = 0; c < e->dim; c++)
            normed[c] = (float)(((double)sum[c] - mean) / sqrt(variance + 1e-5));
    }
}

static ph_status compute(ph_ctx *ctx, example *e, const explain_input *in, int chinese)
{
    size_t bytes = (size_t)(in->tokens * in->dim) * sizeof(float);
    memset(e, 0, sizeof *e);
    e->in = in;
    e->zh = chinese;
    e->tokens = in->tokens, e->dim = in->dim, e->heads = in->heads;
    e->d = in->dim / in->heads;
    cut_heads(e);
    ph_status status = per_head(ctx, e);
    if (status == PH_OK) status = all_heads(ctx, e);
    show_scores(e);
    add_and_norm(e);
    e->same = !memcmp(e->concat, e->big_concat, bytes) &&
              !memcmp(e->out, e->big_out, bytes);
    return status;
}

/* ---- printing ---- */

void explain_step(int number, const char *title, const char *text)
{
    printf("%s%d  %s%s\n", term_on(stdout, TERM_BOLD), number, title,
           term_on(stdout, TERM_PLAIN));
    if (text) {
        fputs("   ", stdout);
        term_wrap(stdout, text, 3, 3, term_width(stdout, 80));
    }
    putchar('\n');
}

enum { TITLE = 48, IN_A_ROW = 2 };

/* "Q# = X W#_Q" of head 0 is "Q1 = X W1_Q". */
static const char *name_of(const char *pattern, int head, char title[TITLE])
{
    char *to = title;
    for (; *pattern && to < title + TITLE - 1; pattern++)
        *to++ = *pattern == '#' ? (char)('1' + head) : *pattern;
    *to = 0;
    return title;
}

static term_style style_of(int head)
{
    return head % 2 ? TERM_HEAD_B : TERM_HEAD_A;
}

static void show(const char *title, const float *data, int rows, int cols,
                 term_style style)
{
    panel_row(stdout, &(panel){title, data, rows, cols, style}, 1);
}

/* A matrix of every head, two beside each other. */
static void show_heads(const example *e, const char *pattern, const float data[N][NN],
                       int cols)
{
    for (int h = 0; h < e->heads; h += IN_A_ROW) {
        char title[IN_A_ROW][TITLE];
        panel row[IN_A_ROW];
        int count = e->heads - h < IN_A_ROW ? e->heads - h : IN_A_ROW;
        for (int n = 0; n < count; n++)
            row[n] = (panel){name_of(pattern, h + n, title[n]), data[h + n], e->tokens,
                             cols, style_of(h + n)};
        panel_row(stdout, row, count);
    }
}

/* Three matrices of one head, beside each other; first: one more before them. */
static void show_three(int rows, int cols, const panel *first, int head,
                       const char *const patterns[3], const float data[3][N][NN])
{
    char title[3][TITLE];
    panel row[4];
    int count = 0;
    if (first) row[count++] = *first;
    for (int p = 0; p < 3; p++)
        row[count++] = (panel){name_of(patterns[p], head, title[p]), data[p][head], rows,
                               cols, style_of(head)};
    panel_row(stdout, row, count);
}

static void print_start(const example *e)
{
    printf("%s%s%s\n\n", term_on(stdout, TERM_BOLD),
           say(e, "Multi-head attention, step by step", "多头注意力，一步一步"),
           term_on(stdout, TERM_PLAIN));
    printf("   head_i = softmax( Q_i K_i^T / sqrt(d_k) ) V_i    %s Q_i = X W_i^Q,\n",
           say(e, "with", "其中"));
    puts("   output = [ head_1 head_2 ... ] W_O               K_i = X W_i^K,");
    puts("                                                    V_i = X W_i^V\n");
    if (e->zh)
        printf("   一个可以手算的例子：%d 个词元，model_dim %d，%d 个头，d_k = d_v = %d。\n"
               "   下面的一切都由本库现场计算。\n\n",
               e->tokens, e->dim, e->heads, e->d);
    else
        printf("   A small one to follow by hand: %d tokens, model_dim %d, %d head%s "
               "with\n"
               "   d_k = d_v = %d. Everything below is computed now, by the library.\n\n",
               e->tokens, e->dim, e->heads, e->heads == 1 ? "" : "s", e->d);
}

static const char *about_inputs(const example *e)
{
    int made_up = 0;
    for (int m = 0; m < EXPLAIN_MATRICES; m++) made_up += e->in->made_up[m];
    if (e->in->article)
        return say(e,
                   "A row of X is a token. X, W^Q and W_O are those of a widely copied "
                   "article, which gives no W^K and W^V: these are ones and zeros that "
                   "pick two features each.",
                   "X 的一行是一个词元。X、W^Q 和 W_O 取自一篇广为流传的文章，文中没有 W^K "
                   "和 W^V：这里用 0 和 1，各取两个特征。");
    if (made_up)
        return say(e,
                   "A row of X is a token. Matrices that the file does not hold are made "
                   "up.",
                   "X 的一行是一个词元。文件中没有的矩阵是随意给出的。");
    return say(e, "A row of X is a token.", "X 的一行是一个词元。");
}

static void print_inputs(const example *e)
{
    static const char *const patterns[3] = {"W#_Q", "W#_K", "W#_V"};
    const float(*m)[NN] = e->in->matrix;
    const panel x = {"X", m[EXPLAIN_X], e->tokens, e->dim, TERM_BOLD};
    const panel wo = {"W_O", m[EXPLAIN_WO], e->dim, e->dim, TERM_BOLD};
    explain_step(1,
                 say(e, "Tokens, and one set of matrices for each head",
                     "词元，以及每个头的一组矩阵"),
                 about_inputs(e));
    for (int h = 0; h < e->heads; h++)
        show_three(e->dim, e->d, h == 0 ? &x : h == 1 ? &wo : NULL, h, patterns, e->w);
    if (e->heads == 1) panel_row(stdout, &wo, 1);
}

static void print_article_note(const example *e)
{
    printf("   %s%s%s", term_on(stdout, TERM_WARN), say(e, "Note. ", "注意："),
           term_on(stdout, TERM_PLAIN));
    if (e->zh) {
        puts("那篇文章用同样的 X、W1_Q 和 W2_Q 给出了另外的 Q1 和 Q2。");
        puts("   那些是错的，上面的才对。手算 Q1 的第一个数：");
    } else {
        puts("The article prints other numbers for Q1 and Q2, from the same X, W1_Q");
        puts("   and W2_Q. They are wrong; those above are right. By hand, the first of "
             "Q1:");
    }
    puts(say(e,
             "   1 * 0.1 + 0.5 * (-0.2) + (-1) * 1.0 + 2 * 0.5 = 0, where it has 0.85.\n",
             "   1 * 0.1 + 0.5 * (-0.2) + (-1) * 1.0 + 2 * 0.5 = 0，而文中为 0.85。\n"));
    const panel wrong[2] = {{say(e, "Q1 in the article (wrong)", "文中的 Q1（错）"),
                             wrong_q[0], 2, 2, TERM_DIM},
                            {say(e, "Q2 in the article (wrong)", "文中的 Q2（错）"),
                             wrong_q[1], 2, 2, TERM_DIM}};
    panel_row(stdout, wrong, 2);
}

static void print_projections(const example *e)
{
    static const char *const patterns[3] = {"Q# = X W#_Q", "K# = X W#_K", "V# = X W#_V"};
    explain_step(2,
                 say(e, "Queries, keys and values: X times each matrix",
                     "查询、键和值：X 乘以每个矩阵"),
                 NULL);
    for (int h = 0; h < e->heads; h++)
        show_three(e->tokens, e->d, NULL, h, patterns, e->part);
    if (e->in->article) print_article_note(e);
}

static void print_attention(const example *e)
{
    char title[96], pattern[TITLE];
    explain_step(3,
                 say(e, "Scores: how well each query (row) fits each key (column)",
                     "分数：每个查询（行）与每个键（列）有多合"),
                 NULL);
    show_heads(e, "S# = Q# K#^T", e->scores, e->tokens);
    snprintf(title, sizeof title,
             say(e, "Scaled by 1/sqrt(d_k) = 1/sqrt(%d) = %.4f",
                 "乘以 1/sqrt(d_k) = 1/sqrt(%d) = %.4f"),
             e->d, 1 / sqrt(e->d));
    explain_step(4, title,
                 say(e,
                     "Without it long vectors give large scores, and softmax becomes a "
                     "hard choice.",
                     "否则长向量会给出很大的分数，softmax 就成了非此即彼的选择。"));
    snprintf(pattern, sizeof pattern, "S# / sqrt(%d)", e->d);
    show_heads(e, pattern, e->scaled, e->tokens);
    explain_step(5,
                 say(e, "Weights: softmax of each row; every row sums to 1",
                     "权重：每行取 softmax，每行之和为 1"),
                 say(e,
                     "Row 1 says how much token 1 takes from each token. The heads "
                     "disagree, and that is what they are for.",
                     "第 1 行说明词元 1 从每个词元取多少。各个头意见不同，这正是要多个头"
                     "的原因。"));
    show_heads(e, "A# = softmax", e->weights, e->tokens);
    explain_step(6, say(e, "Heads: weights times values", "头：权重乘以值"), NULL);
    show_heads(e, "head # = A# V#", e->head, e->d);
}

static void print_one_matrix(const example *e)
{
    static const char *const names[3][2] = {
        {"W_Q", "Q = X W_Q"}, {"W_K", "K = X W_K"}, {"W_V", "V = X W_V"}};
    explain_step(8,
                 say(e, "The same with one big matrix per projection",
                     "同样的计算，每种投影只用一个大矩阵"),
                 say(e,
                     "W_Q = [ W1_Q W2_Q ... ], and W_K, W_V likewise: one product gives "
                     "the queries of all heads, and a head is a group of columns. One "
                     "call computes them all.",
                     "W_Q = [ W1_Q W2_Q ... ]，W_K、W_V 同样：一次乘积得到所有头的查询，"
                     "一个头是一组列。一次调用算完所有头。"));
    for (int p = 0; p < 3; p++) {
        const panel pair[2] = {
            {names[p][0], e->in->matrix[EXPLAIN_WQ + p], e->dim, e->dim, TERM_BOLD},
            {names[p][1], e->big[p], e->tokens, e->dim, TERM_BOLD}};
        panel_row(stdout, pair, 2);
    }
    show("concat", e->big_concat, e->tokens, e->dim, TERM_BOLD);
    show("output = concat W_O", e->big_out, e->tokens, e->dim, TERM_GOOD);
    printf("   %s%s%s%s%s\n\n",
           say(e, "Both forms give the same output: ", "两种形式的输出相同："),
           term_on(stdout, e->same ? TERM_GOOD : TERM_BAD),
           e->same ? say(e, "the same bits", "每一位都相同")
                   : say(e, "NO, they differ", "不，它们不同"),
           term_on(stdout, TERM_PLAIN), say(e, ".", "。"));
}

static void print_output(const example *e)
{
    explain_step(7, say(e, "Side by side, and mixed by W_O", "并排，再由 W_O 混合"), NULL);
    show("concat = [ head 1  head 2 ... ]", e->concat, e->tokens, e->dim, TERM_BOLD);
    show("output = concat W_O", e->out, e->tokens, e->dim, TERM_GOOD);
    print_one_matrix(e);
    explain_step(9, say(e, "Residual connection and LayerNorm", "残差连接与 LayerNorm"),
                 say(e,
                     "A layer adds what attention found to what the token was, so that "
                     "nothing is lost, and brings each row to mean 0 and variance 1.",
                     "一层把注意力找到的加到词元原有的向量上，什么也不丢失，再把每行化为"
                     "均值 0、方差 1。"));
    show("X + output", e->sum, e->tokens, e->dim, TERM_BOLD);
    show("Y = LayerNorm( X + output )", e->normed, e->tokens, e->dim, TERM_GOOD);
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

static void json_head(ph_json_writer *j, const example *e, int h)
{
    static const char *const names[2][3] = {{"W_Q", "W_K", "W_V"}, {"Q", "K", "V"}};
    ph_json_begin_object(j, NULL);
    for (int p = 0; p < 3; p++) tensor(j, names[0][p], e->w[p][h], e->dim, e->d);
    for (int p = 0; p < 3; p++) tensor(j, names[1][p], e->part[p][h], e->tokens, e->d);
    if (e->in->article) tensor(j, "Q_article_wrong", wrong_q[h], 2, 2);
    tensor(j, "scores", e->scores[h], e->tokens, e->tokens);
    tensor(j, "scaled", e->scaled[h], e->tokens, e->tokens);
    tensor(j, "weights", e->weights[h], e->tokens, e->tokens);
    tensor(j, "head", e->head[h], e->tokens, e->d);
    ph_json_end(j);
}

static void print_json(const example *e, const cost_shape *full)
{
    ph_json_writer j = json_begin("polyhead.explain.example/1");
    tensor(&j, "X", e->in->matrix[EXPLAIN_X], e->tokens, e->dim);
    ph_json_begin_array(&j, "heads");
    for (int h = 0; h < e->heads; h++) json_head(&j, e, h);
    ph_json_end(&j);
    tensor(&j, "concat", e->concat, e->tokens, e->dim);
    tensor(&j, "W_O", e->in->matrix[EXPLAIN_WO], e->dim, e->dim);
    tensor(&j, "output", e->out, e->tokens, e->dim);
    tensor(&j, "output_one_matrix", e->big_out, e->tokens, e->dim);
    ph_json_bool(&j, "same_bits", e->same);
    tensor(&j, "residual", e->sum, e->tokens, e->dim);
    tensor(&j, "layer_norm", e->normed, e->tokens, e->dim);
    explain_shapes_json(&j, full);
    json_end(&j);
}

int explain_example(ph_ctx *ctx, const explain_input *in, int chinese, int as_json)
{
    static const cost_shape full = {
        .batch = 32, .len = 20, .model_dim = 512, .heads = 8, .k_heads = 8};
    example e;
    ph_status status = compute(ctx, &e, in, chinese);
    if (status != PH_OK) return cli_fail_status(status, ctx);
    if (as_json) {
        print_json(&e, &full);
    } else {
        print_start(&e);
        print_inputs(&e);
        print_projections(&e);
        print_attention(&e);
        print_output(&e);
        explain_shapes(&full, chinese);
        puts(say(&e,
                 "   What it costs on this machine: polyhead explain --shape 32,20,512,8",
                 "   在这台机器上的开销：polyhead explain --shape 32,20,512,8"));
    }
    return e.same ? EXIT_OK : EXIT_DIFFERS;
}
