/*
 * explain_shapes.c - a layer at full size: block diagram, tree of shapes, one head
 * against many, and attention against recurrence and convolution.
 *
 * The last table is that of the paper which introduced the Transformer, with numbers:
 * multiply-adds of a layer, steps that must wait for each other, and the longest path
 * between two tokens. The width of a convolution is 3, as usual for text.
 */
#include <math.h>
#include <string.h>

#include "commands/cmd_explain.h"
#include "framework/panel.h"
#include "polyhead_picture.h"

enum { SHAPE = 48, KERNEL = 3 };

/* ---- block diagram ---- */

static void print_diagram(const cost_shape *s, int zh)
{
    char head[64];
    snprintf(head, sizeof head, "%lld x softmax(Q K^T / sqrt(%lld)) V",
             (long long)s->heads, (long long)(s->model_dim / s->heads));
    printf("%s%s%s\n\n", term_on(stdout, TERM_BOLD),
           explain_say(zh, "The layer as a block diagram", "整层的框图"),
           term_on(stdout, TERM_PLAIN));
    puts("                        X");
    puts("                        |");
    puts("          +-------------+-------------+-----------+");
    puts("          |             |             |           |");
    puts("        [W_Q]         [W_K]         [W_V]         |");
    puts("          | Q           | K           | V         |");
    puts("     +----+-------------+-------------+----+      |");
    printf("     |  %-35s|      |\n", head);
    puts("     +------------------+------------------+      |");
    puts("                        | concat                  |");
    puts("                      [W_O]                       |");
    puts("                        | output                  |");
    printf("                       (+)------------------------+  %s\n",
           explain_say(zh, "residual", "残差"));
    puts("                        |");
    puts("                   [LayerNorm]");
    puts("                        |");
    puts("                        Y\n");
}

/* ---- tree of shapes ---- */

typedef struct tree_row {
    int depth;
    const char *name, *how, *how_zh;
    double elements;
    char shape[SHAPE];
} tree_row;

enum { ROWS = 11 };

static void write_shape(char shape[SHAPE], double *elements, int count, const int64_t *n)
{
    size_t used = 0;
    *elements = 1;
    for (int i = 0; i < count; i++) {
        *elements *= (double)n[i];
        used += (size_t)snprintf(shape + used, SHAPE - used, "%s%lld", i ? ", " : "(",
                                 (long long)n[i]);
    }
    snprintf(shape + used, SHAPE - used, ")");
}

static void list_rows(const cost_shape *s, tree_row rows[ROWS])
{
    static const tree_row names[ROWS] = {
        {0, "X", "tokens as vectors", "词元的向量", 0, ""},
        {1, "Q = X W_Q", "what each token looks for", "每个词元找什么", 0, ""},
        {1, "K = X W_K", "what each token offers", "每个词元提供什么", 0, ""},
        {1, "V = X W_V", "what it passes on", "它传递什么", 0, ""},
        {2, "as heads", "the same, by strides", "同样的 Q，按步长来看", 0, ""},
        {3, "scores", "Q K^T / sqrt(d)", "每个头的 Q K^T / sqrt(d)", 0, ""},
        {4, "weights", "softmax of each row", "对最后一维取 softmax", 0, ""},
        {5, "heads", "weights V", "权重乘以 V", 0, ""},
        {6, "concat", "side by side, by strides", "按步长并排", 0, ""},
        {7, "output", "concat W_O: as X came in", "concat W_O：与 X 同形", 0, ""},
        {8, "Y", "LayerNorm( X + output )", "LayerNorm( X + output )", 0, ""}};
    int64_t b = s->batch, tk = s->len, tq = s->decode ? 1 : tk, dim = s->model_dim;
    int64_t h = s->heads, d = dim / h, kv = s->k_heads * d;
    const int64_t wide[3] = {b, tq, dim}, narrow[3] = {b, tq, kv};
    const int64_t cut[4] = {b, h, tq, d}, square[4] = {b, h, tq, tk};
    const int64_t *const shapes[ROWS] = {wide, wide,   narrow, narrow, cut, square,
                                         square, cut, wide,   wide,   wide};
    memcpy(rows, names, sizeof names);
    for (int i = 0; i < ROWS; i++)
        write_shape(rows[i].shape, &rows[i].elements, i >= 4 && i <= 7 ? 4 : 3,
                    shapes[i]);
}

static void print_tree(const cost_shape *s, int zh)
{
    tree_row rows[ROWS];
    list_rows(s, rows);
    printf("%s%s%s: ", term_on(stdout, TERM_BOLD),
           explain_say(zh, "Shapes as a tree", "形状之树"), term_on(stdout, TERM_PLAIN));
    printf(explain_say(zh,
                       "batch %lld, %lld tokens, model_dim %lld, %lld heads of %lld\n\n",
                       "批量 %lld，%lld 个词元，model_dim %lld，%lld 个头，每头 %lld 维\n\n"),
           (long long)s->batch, (long long)(s->decode ? 1 : s->len),
           (long long)s->model_dim, (long long)s->heads,
           (long long)(s->model_dim / s->heads));
    for (int i = 0; i < ROWS; i++) {
        const tree_row *r = &rows[i];
        char name[64], elements[24];
        snprintf(name, sizeof name, "%*s%s%s", 2 * (r->depth > 0 ? r->depth - 1 : 0), "",
                 r->depth ? "+-" : "", r->name);
        printf("   %s%-20s%s %-18s %7s  %s\n", term_on(stdout, TERM_NAME), name,
               term_on(stdout, TERM_PLAIN), r->shape,
               panel_count(r->elements, "", elements, sizeof elements),
               explain_say(zh, r->how, r->how_zh));
    }
    puts(explain_say(
        zh,
        "\n   Scores and weights are the only tensors that grow with the square of the\n"
        "   length. Polyhead never stores them: they are made and used up in blocks.\n",
        "\n   只有分数和权重随长度的平方增长。Polyhead 从不保存它们：按块算出，随即用掉。\n"));
}

/* ---- one head against many ---- */

typedef struct head_costs {
    double params, project, attend, softmax, cache;
} head_costs;

/* As many heads as given, all with keys of their own. */
static head_costs count_heads(const cost_shape *s, double heads)
{
    double b = (double)s->batch, tk = (double)s->len, tq = s->decode ? 1 : tk;
    double dim = (double)s->model_dim, d = dim / heads;
    double half = s->causal && !s->decode ? 0.5 : 1;
    return (head_costs){.params = 4 * dim * heads * d,
                        .project = 8 * b * tq * dim * heads * d,
                        .attend = 4 * half * b * heads * tq * tk * d,
                        .softmax = 5 * half * b * heads * tq * tk,
                        .cache = 2 * b * tk * heads * d};
}

/* Pads by columns: Chinese letters take two. */
static void put_padded(const char *text, int columns)
{
    int pad = columns - ph_text_columns(text);
    printf("%s%*s", text, pad > 0 ? pad : 0, "");
}

static void print_against(const cost_shape *s, int zh)
{
    const head_costs one = count_heads(s, 1), many = count_heads(s, (double)s->heads);
    const struct {
        const char *en, *zh;
        double one, many;
    } rows[] = {{"parameters", "参数", one.params, many.params},
                {"FLOPs, projections", "投影的 FLOPs", one.project, many.project},
                {"FLOPs, scores and V", "分数与 V 的 FLOPs", one.attend, many.attend},
                {"FLOPs, softmax", "softmax 的 FLOPs", one.softmax, many.softmax},
                {"keys and values", "键和值", one.cache, many.cache}};
    char title[2][40], a[24], b[24];
    printf("%s%s%s\n\n", term_on(stdout, TERM_BOLD),
           explain_say(zh, "One head against many", "一个头与多个头"),
           term_on(stdout, TERM_PLAIN));
    snprintf(title[0], sizeof title[0], explain_say(zh, "1 head of %lld", "1 头，%lld 维"),
             (long long)s->model_dim);
    snprintf(title[1], sizeof title[1],
             explain_say(zh, "%lld heads of %lld", "%lld 头，各 %lld 维"),
             (long long)s->heads, (long long)(s->model_dim / s->heads));
    fputs("   ", stdout);
    put_padded("", 24);
    put_padded(title[0], 20);
    printf("%s\n", title[1]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int same = rows[i].one == rows[i].many;
        fputs("   ", stdout);
        put_padded(explain_say(zh, rows[i].en, rows[i].zh), 24);
        put_padded(panel_count(rows[i].one, "", a, sizeof a), 20);
        put_padded(panel_count(rows[i].many, "", b, sizeof b), 12);
        puts(same ? explain_say(zh, "the same", "相同") : explain_say(zh, "more", "更多"));
    }
    puts(explain_say(
        zh,
        "\n   Many heads cost what one costs, but for the softmax: h maps of attention\n"
        "   instead of one, each over a part of the features.\n",
        "\n   除 softmax 外，多个头的开销与一个头相同：注意力图从一张变为 h 张，每张只看\n"
        "   一部分特征。\n"));
}

/* ---- other kinds of layers ---- */

typedef struct layer_kind {
    const char *en, *zh, *formula;
    double operations, steps, path;
} layer_kind;

enum { KINDS = 3 };

static void list_kinds(const cost_shape *s, layer_kind kinds[KINDS])
{
    double n = (double)s->len, d = (double)s->model_dim;
    double path = n > 1 ? ceil(log(n) / log(KERNEL) - 1e-9) : 1;
    const layer_kind list[KINDS] = {
        {"self-attention", "自注意力", "n^2 d", n * n * d, 1, 1},
        {"recurrence", "循环", "n d^2", n * d * d, n, n},
        {"convolution", "卷积", "3 n d^2", KERNEL * n * d * d, 1, path}};
    memcpy(kinds, list, sizeof list);
}

static void print_kinds(const cost_shape *s, int zh)
{
    layer_kind kinds[KINDS];
    list_kinds(s, kinds);
    printf("%s%s%s: ", term_on(stdout, TERM_BOLD),
           explain_say(zh, "Against recurrence and convolution", "与循环、卷积相比"),
           term_on(stdout, TERM_PLAIN));
    printf(explain_say(zh, "n = %lld tokens, d = %lld\n\n", "n = %lld 个词元，d = %lld\n\n"),
           (long long)s->len, (long long)s->model_dim);
    fputs("   ", stdout);
    put_padded(explain_say(zh, "layer", "层"), 17);
    put_padded(explain_say(zh, "operations", "运算量"), 22);
    put_padded(explain_say(zh, "sequential steps", "须依次进行的步数"), 20);
    puts(explain_say(zh, "longest path", "最长路径"));
    for (int i = 0; i < KINDS; i++) {
        const layer_kind *k = &kinds[i];
        char operations[24], cell[48];
        fputs("   ", stdout);
        put_padded(explain_say(zh, k->en, k->zh), 17);
        snprintf(cell, sizeof cell, "%-8s %s", k->formula,
                 panel_count(k->operations, "", operations, sizeof operations));
        put_padded(cell, 22);
        snprintf(cell, sizeof cell, "%.0f", k->steps);
        put_padded(cell, 20);
        printf("%.0f\n", k->path);
    }
    static const char *const notes[2][2] = {
        {"\n   More tokens than features: attention does more work, but at once.\n",
         "\n   词元数多于特征数：注意力的运算量更多，但可以同时进行。\n"},
        {"\n   Fewer tokens than features: attention does the least work.\n",
         "\n   词元数少于特征数：注意力的运算量最少。\n"}};
    puts(notes[s->len < s->model_dim][zh]);
}

/* ---- all of it ---- */

void explain_shapes(const cost_shape *shape, int chinese)
{
    print_diagram(shape, chinese);
    print_tree(shape, chinese);
    print_against(shape, chinese);
    print_kinds(shape, chinese);
}

static void json_heads(ph_json_writer *j, const cost_shape *s, int64_t heads)
{
    const head_costs c = count_heads(s, (double)heads);
    ph_json_begin_object(j, NULL);
    ph_json_integer(j, "heads", heads);
    ph_json_double(j, "params", c.params);
    ph_json_double(j, "flops_projections", c.project);
    ph_json_double(j, "flops_attention", c.attend);
    ph_json_double(j, "flops_softmax", c.softmax);
    ph_json_double(j, "kv_elements", c.cache);
    ph_json_end(j);
}

void explain_shapes_json(ph_json_writer *j, const cost_shape *shape)
{
    tree_row rows[ROWS];
    layer_kind kinds[KINDS];
    list_rows(shape, rows);
    list_kinds(shape, kinds);
    ph_json_begin_array(j, "flow");
    for (int i = 0; i < ROWS; i++) {
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "tensor", rows[i].name);
        ph_json_string(j, "shape", rows[i].shape);
        ph_json_string(j, "how", rows[i].how);
        ph_json_double(j, "elements", rows[i].elements);
        ph_json_end(j);
    }
    ph_json_end(j);
    ph_json_begin_array(j, "one_head_against_many");
    json_heads(j, shape, 1);
    json_heads(j, shape, shape->heads);
    ph_json_end(j);
    ph_json_begin_array(j, "layer_kinds");
    for (int i = 0; i < KINDS; i++) {
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "layer", kinds[i].en);
        ph_json_double(j, "operations", kinds[i].operations);
        ph_json_double(j, "sequential_steps", kinds[i].steps);
        ph_json_double(j, "longest_path", kinds[i].path);
        ph_json_end(j);
    }
    ph_json_end(j);
}
