/*
 * test_run.c - numbers of `polyhead run` in core mode, against plain loops in double.
 *
 * The loops follow the formulas of polyhead.h and know nothing of the library. Gradients
 * are judged by central differences of the same loops, so a gradient has no formula here
 * that could be wrong in the same way.
 */
#include <math.h>

#include "check.h"
#include "run_trial.h"
#include "sanitized.h"

/* ---- one problem, and plain loops for it ---- */

enum { MOST = 1024 };

typedef struct problem {
    int batch, q_heads, k_heads, v_heads, q_len, kv_len, qk_dim, v_dim;
    float q[MOST], k[MOST], v[MOST], dout[MOST], dlse[MOST];
    float bias[MOST], gate[MOST], sink[16], alibi[16];
    uint8_t visible[MOST];
    int32_t q_lens[8], kv_lens[8];
    int has_bias, has_visible, has_lens, has_gate, has_sink, has_alibi, has_dlse;
    int gate_rows;           /* 1: gate per row */
    int one_b, one_h, one_i; /* which axes of bias and visible are 1 */
    double scale, softcap;   /* scale 0: default */
    int left, right;         /* -1: no limit */
    int offset;
} problem;

typedef struct result {
    double out[MOST], lse[MOST], weights[4 * MOST], col_sum[MOST], entropy[MOST];
} result;

static int wide(const problem *p, int b, int h, int i, int j) /* into bias, visible */
{
    int heads = p->one_h ? 1 : p->q_heads, rows = p->one_i ? 1 : p->q_len;
    b = p->one_b ? 0 : b, h = p->one_h ? 0 : h, i = p->one_i ? 0 : i;
    return ((b * heads + h) * rows + i) * p->kv_len + j;
}

static double gate_of(const problem *p, int b, int h, int i)
{
    if (p->has_lens && i >= p->q_lens[b]) return 0;
    if (!p->has_gate) return 1;
    return p->gate[p->gate_rows ? (b * p->q_heads + h) * p->q_len + i : h];
}

/* The logit of key j for row i, or -inf when hidden. */
static double logit(const problem *p, int b, int h, int i, int j)
{
    int kh = h / (p->q_heads / p->k_heads), position = i + p->offset;
    double sum = 0, scale = p->scale != 0 ? p->scale : 1 / sqrt(p->qk_dim);
    if (p->left >= 0 && j < position - p->left) return -INFINITY;
    if (p->right >= 0 && j > position + p->right) return -INFINITY;
    if (p->has_lens && j >= p->kv_lens[b]) return -INFINITY;
    if (p->has_visible && !p->visible[wide(p, b, h, i, j)]) return -INFINITY;
    for (int d = 0; d < p->qk_dim; d++)
        sum += (double)p->q[((b * p->q_heads + h) * p->q_len + i) * p->qk_dim + d] *
               (double)p->k[((b * p->k_heads + kh) * p->kv_len + j) * p->qk_dim + d];
    sum *= scale;
    if (p->has_bias) sum += (double)p->bias[wide(p, b, h, i, j)];
    if (p->has_alibi) sum -= (double)p->alibi[h] * fabs((double)(position - j));
    if (p->softcap > 0 && isfinite(sum)) sum = p->softcap * tanh(sum / p->softcap);
    return sum;
}

static void one_row(const problem *p, result *r, int b, int h, int i)
{
    double s[64], top = -INFINITY, sum = 0, gate = gate_of(p, b, h, i);
    int row = (b * p->q_heads + h) * p->q_len + i, vh = h / (p->q_heads / p->v_heads);
    r->lse[row] = -INFINITY;
    if (gate == 0) return;
    for (int j = 0; j < p->kv_len; j++) top = fmax(top, s[j] = logit(p, b, h, i, j));
    if (p->has_sink) top = fmax(top, (double)p->sink[h]);
    if (top == -INFINITY) return;
    if (p->has_sink) sum = exp((double)p->sink[h] - top);
    for (int j = 0; j < p->kv_len; j++) sum += exp(s[j] - top);
    r->lse[row] = top + log(sum);
    for (int j = 0; j < p->kv_len; j++) {
        double w = exp(s[j] - r->lse[row]);
        r->weights[row * p->kv_len + j] = w;
        r->col_sum[(b * p->q_heads + h) * p->kv_len + j] += w;
        if (w > 0) r->entropy[row] -= w * log(w);
        for (int d = 0; w > 0 && d < p->v_dim; d++)
            r->out[row * p->v_dim + d] +=
                gate * w *
                (double)p->v[((b * p->v_heads + vh) * p->kv_len + j) * p->v_dim + d];
    }
}

static void solve(const problem *p, result *r)
{
    memset(r, 0, sizeof *r);
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->q_heads; h++)
            for (int i = 0; i < p->q_len; i++) one_row(p, r, b, h, i);
}

/* What dout and dlse are the gradients of. */
static double loss(const problem *p)
{
    static result r;
    double sum = 0;
    int rows = p->batch * p->q_heads * p->q_len;
    solve(p, &r);
    for (int i = 0; i < rows * p->v_dim; i++) sum += (double)p->dout[i] * r.out[i];
    for (int i = 0; p->has_dlse && i < rows; i++)
        if (isfinite(r.lse[i])) sum += (double)p->dlse[i] * r.lse[i];
    return sum;
}

/* ---- problems ---- */

static void fill(float *x, int n, uint64_t *state)
{
    for (int i = 0; i < n; i++) x[i] = check_normal(state);
}

static problem *make(int batch, int q_heads, int k_heads, int v_heads, int q_len,
                     int kv_len, int qk_dim, int v_dim)
{
    static problem p;
    uint64_t state = check_seed;
    memset(&p, 0, sizeof p);
    p.batch = batch, p.q_heads = q_heads, p.k_heads = k_heads, p.v_heads = v_heads;
    p.q_len = q_len, p.kv_len = kv_len, p.qk_dim = qk_dim, p.v_dim = v_dim;
    p.left = p.right = -1;
    fill(p.q, MOST, &state);
    fill(p.k, MOST, &state);
    fill(p.v, MOST, &state);
    fill(p.dout, MOST, &state);
    fill(p.dlse, MOST, &state);
    fill(p.bias, MOST, &state);
    fill(p.gate, MOST, &state);
    fill(p.sink, 16, &state);
    for (int i = 0; i < 16; i++) p.alibi[i] = 0.25f / (float)(i + 1);
    for (int i = 0; i < MOST; i++) p.visible[i] = check_below(&state, 3) > 0;
    for (int i = 0; i < 8; i++)
        p.q_lens[i] = i % (q_len + 1), p.kv_lens[i] = kv_len - i % 2;
    return &p;
}

static trial load(const problem *p)
{
    trial b = {0};
    int ob = p->one_b ? 1 : p->batch, oh = p->one_h ? 1 : p->q_heads;
    int oi = p->one_i ? 1 : p->q_len;
    trial_add(&b, "q", PH_F32, p->q, p->batch, p->q_heads, p->q_len, p->qk_dim);
    trial_add(&b, "k", PH_F32, p->k, p->batch, p->k_heads, p->kv_len, p->qk_dim);
    trial_add(&b, "v", PH_F32, p->v, p->batch, p->v_heads, p->kv_len, p->v_dim);
    if (p->has_bias) trial_add(&b, "bias", PH_F32, p->bias, ob, oh, oi, p->kv_len);
    if (p->has_visible)
        trial_add(&b, "visible", PH_BOOL, p->visible, ob, oh, oi, p->kv_len);
    if (p->has_lens) trial_add(&b, "q_lens", PH_I32, p->q_lens, p->batch, -1, -1, -1);
    if (p->has_lens) trial_add(&b, "kv_lens", PH_I32, p->kv_lens, p->batch, -1, -1, -1);
    if (p->has_gate && p->gate_rows)
        trial_add(&b, "gate", PH_F32, p->gate, p->batch, p->q_heads, p->q_len, -1);
    else if (p->has_gate)
        trial_add(&b, "gate", PH_F32, p->gate, p->q_heads, -1, -1, -1);
    if (p->has_sink) trial_add(&b, "sink", PH_F32, p->sink, p->q_heads, -1, -1, -1);
    if (p->has_alibi) trial_add(&b, "alibi", PH_F32, p->alibi, p->q_heads, -1, -1, -1);
    return b;
}

/* ---- comparing ---- */

static void same(const ph_file *out, const char *name, const double *expected, int n0,
                 int n1, int n2, int n3)
{
    const ph_tensor *t = ph_file_find(out, name);
    const int sizes[] = {n0, n1, n2, n3};
    int count = 1;
    CHECK(t, "OUT has no %s", name);
    CHECK(t->type == PH_F32, "%s is %s", name, ph_dtype_name(t->type));
    for (int i = 0; i < 4; i++) {
        if (sizes[i] < 0) {
            CHECK(t->rank == i, "%s has rank %d, expected %d", name, t->rank, i);
            break;
        }
        CHECK(i < t->rank && t->shape[i] == (size_t)sizes[i], "axis %d of %s", i, name);
        count *= sizes[i];
    }
    const float *x = t->data;
    for (int i = 0; i < count; i++)
        CHECK((isinf(expected[i]) && (double)x[i] == expected[i]) ||
                  fabs((double)x[i] - expected[i]) < 2e-5 * (1 + fabs(expected[i])),
              "%s[%d] is %.9g, expected %.9g", name, i, (double)x[i], expected[i]);
}

static int tensors_in(const ph_file *file)
{
    int count = 0;
    while (ph_file_tensor(file, (size_t)count)) count++;
    return count;
}

static void forward(const problem *p, const char *words)
{
    static result r;
    char line[200];
    trial b = load(p);
    snprintf(line, sizeof line, "%s --weights --stats", words);
    trial_result got = trial_run(&b, line);
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    CHECK(got.said[0] == 0, "said \"%s\"", got.said);
    solve(p, &r);
    int n = p->batch, h = p->q_heads;
    same(got.out, "out", r.out, n, h, p->q_len, p->v_dim);
    same(got.out, "lse", r.lse, n, h, p->q_len, -1);
    same(got.out, "weights", r.weights, n, h, p->q_len, p->kv_len);
    same(got.out, "col_sum", r.col_sum, n, h, p->kv_len, -1);
    same(got.out, "entropy", r.entropy, n, h, p->q_len, -1);
    CHECK(tensors_in(got.out) == 5, "%d tensors in OUT", tensors_in(got.out));
    trial_free(&got);
}

/* d(loss)/dx by central differences of x, which is part of p. */
static void gradient(problem *p, const ph_file *out, const char *name, float *x, int n0,
                     int n1, int n2, int n3)
{
    static double expected[MOST];
    const int sizes[] = {n0, n1, n2, n3};
    int count = 1;
    for (int i = 0; i < 4 && sizes[i] >= 0; i++) count *= sizes[i];
    for (int i = 0; i < count; i++) {
        const float step = 0x1p-9f, old = x[i];
        x[i] = old + step;
        double up = loss(p), high = (double)x[i];
        x[i] = old - step;
        double down = loss(p), low = (double)x[i];
        x[i] = old;
        expected[i] = (up - down) / (high - low);
    }
    same(out, name, expected, n0, n1, n2, n3);
}

/* Differences of that size agree with a gradient to some 1e-5 of what they add up. */
static void backward(problem *p, const char *words)
{
    trial b = load(p);
    int n = p->batch, h = p->q_heads;
    trial_add(&b, "dout", PH_F32, p->dout, n, h, p->q_len, p->v_dim);
    if (p->has_dlse) trial_add(&b, "dlse", PH_F32, p->dlse, n, h, p->q_len, -1);
    trial_result got = trial_run(&b, words);
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    gradient(p, got.out, "dq", p->q, n, h, p->q_len, p->qk_dim);
    gradient(p, got.out, "dk", p->k, n, p->k_heads, p->kv_len, p->qk_dim);
    gradient(p, got.out, "dv", p->v, n, p->v_heads, p->kv_len, p->v_dim);
    if (p->has_bias)
        gradient(p, got.out, "dbias", p->bias, p->one_b ? 1 : n, p->one_h ? 1 : h,
                 p->one_i ? 1 : p->q_len, p->kv_len);
    if (p->has_gate && p->gate_rows)
        gradient(p, got.out, "dgate", p->gate, n, h, p->q_len, -1);
    else if (p->has_gate)
        gradient(p, got.out, "dgate", p->gate, h, -1, -1, -1);
    if (p->has_sink) gradient(p, got.out, "dsink", p->sink, h, -1, -1, -1);
    int expected = 5 + p->has_bias + p->has_gate + p->has_sink;
    CHECK(tensors_in(got.out) == expected, "%d tensors in OUT", tensors_in(got.out));
    trial_free(&got);
}

/* ---- cases ---- */

static void by_hand(void) /* scores 0 and ln 3: weights 1/4 and 3/4 */
{
    const float q[] = {1}, k[] = {0, 1.0986123f}, v[] = {4, 8};
    const double out[] = {7}, lse[] = {log(4)}, weights[] = {0.25, 0.75};
    trial b = {0};
    trial_add(&b, "q", PH_F32, q, 1, 1, 1, 1);
    trial_add(&b, "k", PH_F32, k, 1, 1, 2, 1);
    trial_add(&b, "v", PH_F32, v, 1, 1, 2, 1);
    trial_result got = trial_run(&b, "--weights");
    CHECK(got.code == 0 && got.out, "%s", got.said);
    same(got.out, "out", out, 1, 1, 1, 1);
    same(got.out, "lse", lse, 1, 1, 1, -1);
    same(got.out, "weights", weights, 1, 1, 1, 2);
    CHECK(tensors_in(got.out) == 3, "%d tensors", tensors_in(got.out));
    trial_free(&got);
}

static void mha(void)
{
    forward(make(2, 4, 2, 1, 5, 7, 8, 6), "");
    forward(make(1, 1, 1, 1, 1, 1, 1, 1), "");
    forward(make(1, 3, 3, 3, 9, 9, 5, 11), "--threads 2");
    forward(make(1, 2, 2, 2, 6, 6, 4, 4), "--isa ref --variant mha --device cpu");
}

static void masks(void)
{
    problem *p = make(2, 2, 1, 2, 6, 6, 4, 4);
    p->right = 0;
    forward(p, "--causal");
    p->left = 2;
    forward(p, "--causal --window 2,-1");
    forward(p, "--causal --window 2,3"); /* the stricter of both */
    p->right = 1;
    forward(p, "--window 2,1");
    p->left = -1;
    forward(p, "--window=-1,1");
    p = make(2, 2, 1, 2, 3, 7, 4, 4);
    p->right = 0, p->offset = 4;
    forward(p, "--causal --offset 4");
    p->offset = -1; /* row 0 sees nothing */
    forward(p, "--causal --offset -1");
    p->has_alibi = 1, p->right = -1, p->offset = 2;
    forward(p, "--offset 2");
}

static void tensors(void)
{
    for (int bits = 0; bits < 8; bits++) {
        problem *p = make(2, 4, 2, 4, 3, 5, 4, 3);
        p->one_b = bits & 1, p->one_h = bits >> 1 & 1, p->one_i = bits >> 2 & 1;
        p->has_bias = 1;
        p->has_visible = bits % 3 != 0;
        p->has_lens = bits % 2;
        p->has_gate = 1, p->gate_rows = bits % 2;
        p->has_sink = bits > 3;
        p->has_alibi = bits % 3 == 1;
        p->bias[1] = -INFINITY;
        p->gate[2] = 0;
        forward(p, "");
    }
}

static void numbers(void)
{
    problem *p = make(1, 2, 2, 2, 4, 4, 4, 4);
    p->softcap = 0.5;
    forward(p, "--softcap 0.5");
    p->scale = -1.5;
    forward(p, "--softcap 0.5 --scale -1.5");
    p = make(1, 2, 2, 2, 4, 4, 4, 4);
    p->scale = 1e-300; /* all logits 0 in float */
    forward(p, "--scale 0");
    forward(p, "--scale 1e-300");
}

static void gradients(void)
{
    backward(make(1, 2, 1, 2, 3, 4, 4, 3), "");
    problem *p = make(2, 2, 2, 1, 3, 4, 3, 2);
    p->has_bias = p->has_gate = p->has_sink = p->has_dlse = 1;
    p->gate_rows = p->one_b = p->one_i = 1;
    backward(p, "");
    p = make(2, 2, 1, 1, 3, 3, 3, 2);
    p->has_visible = p->has_alibi = p->has_gate = p->has_lens = p->has_dlse = 1;
    p->right = 0, p->softcap = 2;
    backward(p, "--causal --softcap 2 --threads 2");
    p = make(1, 1, 1, 1, 2, 3, 2, 2);
    p->scale = 1e-300;
    backward(p, "--scale 0");
}

/* The program holds its tensors once: 1.3 times IN and OUT is enough for all of it. */
static void memory(void)
{
    enum { BATCH = 8, HEADS = 8, LEN = 1024, DIM = 64 };
    if (SANITIZED) SKIP("a sanitizer has memory of its own");
    const size_t count = (size_t)BATCH * HEADS * LEN * DIM, bytes = count * sizeof(float);
    static const char *const names[] = {"q", "k", "v", "dout"};
    float *data = calloc(count, sizeof *data);
    for (size_t i = 0; i < count; i++) data[i] = (float)(i % 31) / 31;
    static const struct {
        int inputs;
        double outputs; /* out, and with dout dq, dk, dv: tensors of floats */
        const char *words;
    } modes[] = {{3, 1, "--window 16,0 --threads 2"},
                 {4, 4, "--window 16,0 --threads 2"},
                 {3, 0.5, "--window 16,0 --threads 2 --dtype bf16"},
                 {4, 2, "--window 16,0 --threads 2 --dtype bf16"}};
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        trial t = {.count = 0};
        for (int n = 0; n < modes[m].inputs; n++)
            trial_add(&t, names[n], PH_F32, data, BATCH, HEADS, LEN, DIM);
        trial_result r = trial_run(&t, modes[m].words);
        CHECK(r.code == 0, "%s", r.said);
        double tensors = (modes[m].inputs + modes[m].outputs) * (double)bytes;
        CHECK((double)r.peak < 1.3 * tensors, "%s: %zu MB for %.0f MB of tensors",
              modes[m].words, r.peak >> 20, tensors / (1 << 20));
        trial_free(&r);
    }
    free(data);
}

static const check_case cases[] = {{"by_hand", by_hand}, {"mha", mha},
                                   {"masks", masks},     {"tensors", tensors},
                                   {"numbers", numbers}, {"gradients", gradients},
                                   {"memory", memory},   {0, 0}};

int main(int argc, char **argv)
{
    if (trial_begin() != 0) return 1;
    int failed = check_main(argc, argv, cases);
    trial_end();
    return failed;
}
