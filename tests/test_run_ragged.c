/*
 * test_run_ragged.c - core mode of `polyhead run` over ragged batches, against loops in
 * double and their central differences, and over pages, against the same keys in one
 * block.
 */
#include <math.h>

#include "check.h"
#include "run_trial.h"

enum { INPUT = 3, UNSUPPORTED = 4 };
enum {
    HEADS = 4,
    KV_HEADS = 2,
    QK = 3,
    V = 2,
    TOTAL_Q = 8,
    TOTAL_KV = 10,
    SEQUENCES = 4
};
enum { Q, K, VALUES, GATE, SINK, DOUT, DLSE, TENSORS };

#define F PH_F32

/* One sequence without queries, one with more queries than keys. */
static const int32_t q_offsets[] = {0, 3, 3, 7, 8}, kv_offsets[] = {0, 4, 5, 8, 10};

static const int counts[TENSORS] = {HEADS * TOTAL_Q * QK,
                                    KV_HEADS *TOTAL_KV *QK,
                                    KV_HEADS *TOTAL_KV *V,
                                    HEADS *TOTAL_Q,
                                    HEADS,
                                    HEADS *TOTAL_Q *V,
                                    HEADS *TOTAL_Q};
static float in[TENSORS][256];
static double value[TENSORS][256], out[256], lse[64];

static void draw(void)
{
    uint64_t state = check_seed;
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < counts[t]; i++)
            value[t][i] = (double)(in[t][i] = check_normal(&state));
}

static double score(int h, int i, int j)
{
    double sum = 0;
    for (int d = 0; d < QK; d++)
        sum += value[Q][(h * TOTAL_Q + i) * QK + d] *
               value[K][(h / 2 * TOTAL_KV + j) * QK + d];
    return sum / sqrt(QK);
}

/* Query i of all, which sees the keys from `first` up to `end`. */
static void solve_row(int h, int i, int first, int end)
{
    int row = h * TOTAL_Q + i;
    double sum = exp(value[SINK][h]);
    for (int j = first; j < end; j++) sum += exp(score(h, i, j));
    lse[row] = log(sum);
    for (int d = 0; d < V; d++) out[row * V + d] = 0;
    for (int j = first; j < end; j++)
        for (int d = 0; d < V; d++)
            out[row * V + d] += value[GATE][row] * exp(score(h, i, j)) / sum *
                                value[VALUES][(h / 2 * TOTAL_KV + j) * V + d];
}

/* position: of a sequence's first query among its keys; INT32_MIN: the last of each
   stands at the last key. */
static double solve(int causal, int position)
{
    double loss = 0;
    for (int s = 0; s < SEQUENCES; s++)
        for (int i = q_offsets[s]; i < q_offsets[s + 1]; i++) {
            int first = kv_offsets[s], end = kv_offsets[s + 1];
            int at = position == INT32_MIN ? end - (q_offsets[s + 1] - i)
                                           : first + position + i - q_offsets[s];
            if (causal && at + 1 < end) end = at + 1;
            for (int h = 0; h < HEADS; h++) solve_row(h, i, first, end);
        }
    for (int i = 0; i < HEADS * TOTAL_Q; i++) loss += value[DLSE][i] * lse[i];
    for (int i = 0; i < HEADS * TOTAL_Q * V; i++) loss += value[DOUT][i] * out[i];
    return loss;
}

static void near(const ph_file *file, const char *name, int rank, const double *expected,
                 int count)
{
    const ph_tensor *t = ph_file_find(file, name);
    CHECK(t && t->type == F && t->rank == rank, "%s is missing or of another rank", name);
    CHECK(t->bytes == (size_t)count * 4, "%s has %zu bytes", name, t->bytes);
    const float *x = t->data;
    for (int i = 0; i < count; i++)
        CHECK(fabs((double)x[i] - expected[i]) < 4e-5 * (1 + fabs(expected[i])),
              "%s[%d] is %g, expected %g", name, i, (double)x[i], expected[i]);
}

static trial make(void)
{
    trial t = {0};
    trial_add(&t, "q", F, in[Q], HEADS, TOTAL_Q, QK, -1);
    trial_add(&t, "k", F, in[K], KV_HEADS, TOTAL_KV, QK, -1);
    trial_add(&t, "v", F, in[VALUES], KV_HEADS, TOTAL_KV, V, -1);
    trial_add(&t, "gate", F, in[GATE], HEADS, TOTAL_Q, -1, -1);
    trial_add(&t, "sink", F, in[SINK], HEADS, -1, -1, -1);
    trial_add(&t, "dout", F, in[DOUT], HEADS, TOTAL_Q, V, -1);
    trial_add(&t, "dlse", F, in[DLSE], HEADS, TOTAL_Q, -1, -1);
    trial_add(&t, "q_offsets", PH_I32, q_offsets, SEQUENCES + 1, -1, -1, -1);
    trial_add(&t, "kv_offsets", PH_I32, kv_offsets, SEQUENCES + 1, -1, -1, -1);
    return t;
}

static void compare(const char *words, int causal, int position)
{
    static const char *const names[] = {"dq", "dk", "dv", "dgate", "dsink"};
    static const int ranks[] = {3, 3, 3, 2, 1};
    static double expected[256];
    const double step = 0x1p-13;
    draw();
    trial t = make();
    trial_result got = trial_run(&t, words);
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    solve(causal, position);
    near(got.out, "out", 3, out, HEADS * TOTAL_Q * V);
    near(got.out, "lse", 2, lse, HEADS * TOTAL_Q);
    for (int n = 0; n <= SINK; n++) {
        for (int i = 0; i < counts[n]; i++) {
            double old = value[n][i];
            value[n][i] = old + step;
            double up = solve(causal, position);
            value[n][i] = old - step;
            expected[i] = (up - solve(causal, position)) / (2 * step);
            value[n][i] = old;
        }
        near(got.out, names[n], ranks[n], expected, counts[n]);
    }
    trial_free(&got);
}

/* Talking heads that only listen to themselves are plain attention; a variant's tensors,
   looks and dropout go with offsets too. */
static void ragged_options(void)
{
    static float eye[HEADS * HEADS];
    for (int h = 0; h < HEADS; h++) eye[h * HEADS + h] = 1;
    draw();
    solve(0, 0);
    trial t = make();
    trial_add(&t, "w_logits", F, eye, HEADS, HEADS, -1, -1);
    trial_add(&t, "w_weights", F, eye, HEADS, HEADS, -1, -1);
    trial_result got = trial_run(&t, "--variant talking --stats");
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    near(got.out, "out", 3, out, HEADS * TOTAL_Q * V);
    const ph_tensor *sums = ph_file_find(got.out, "col_sum");
    CHECK(sums && sums->rank == 2 && sums->shape[1] == TOTAL_KV, "col_sum is missing");
    trial_free(&got);
    t = make();
    got = trial_run(&t, "--dropout 0.5 --seed 3");
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    near(got.out, "lse", 2, lse, HEADS * TOTAL_Q); /* before dropout */
    trial_free(&got);
}

enum { MODEL = 6, LONG = TOTAL_Q + SEQUENCES };

static float x[LONG * MODEL];

/* The weights of a layer, and x drawn. */
static trial layer(void)
{
    static const char *const names[] = {"wq", "wk", "wv", "wo"};
    static float w[4][MODEL * MODEL];
    uint64_t seed = check_seed;
    trial t = {0};
    for (int i = 0; i < LONG * MODEL; i++) x[i] = check_normal(&seed);
    for (int n = 0; n < 4; n++) {
        for (int i = 0; i < MODEL * MODEL; i++) w[n][i] = check_normal(&seed);
        trial_add(&t, names[n], F, w[n], MODEL, MODEL, -1, -1);
    }
    return t;
}

/* A layer over sequences side by side gives each the bits it has alone. */
static void ragged_layer(void)
{
    const char *words = "--heads 3 --causal --rope 100 --threads 2";
    trial all = layer();
    trial one = all;
    trial_add(&all, "x", F, x, TOTAL_Q, MODEL, -1, -1);
    trial_add(&all, "dout", F, x, TOTAL_Q, MODEL, -1, -1);
    trial_add(&all, "q_offsets", PH_I32, q_offsets, SEQUENCES + 1, -1, -1, -1);
    trial_result got = trial_run(&all, words);
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    const ph_tensor *out_all = ph_file_find(got.out, "out");
    const ph_tensor *dx_all = ph_file_find(got.out, "dx");
    CHECK(out_all && out_all->rank == 2 && dx_all && dx_all->rank == 2, "wrong ranks");
    for (int s = 0; s < SEQUENCES; s++) {
        int first = q_offsets[s], len = q_offsets[s + 1] - first;
        size_t bytes = (size_t)(len * MODEL) * sizeof *x;
        trial t = one;
        if (!len) continue;
        trial_add(&t, "x", F, x + first * MODEL, 1, len, MODEL, -1);
        trial_add(&t, "dout", F, x + first * MODEL, 1, len, MODEL, -1);
        trial_result part = trial_run(&t, words);
        CHECK(part.code == 0 && part.out, "code %d: %s", part.code, part.said);
        CHECK(!memcmp((const float *)out_all->data + first * MODEL,
                      ph_file_find(part.out, "out")->data, bytes),
              "out of sequence %d differs from that alone", s);
        CHECK(!memcmp((const float *)dx_all->data + first * MODEL,
                      ph_file_find(part.out, "dx")->data, bytes),
              "dx of sequence %d differs from that alone", s);
        trial_free(&part);
    }
    trial_free(&got);
}

/* Cross-attention of a layer: with a mask a sequence has the bits it has alone where its
   last query stands at the last key, for mask and rotation alike. */
static void ragged_memory(void)
{
    const int32_t longer[] = {0, 3, 4, 9, LONG}; /* than q_offsets, or as long */
    trial all = layer();
    trial one = all, t;
    trial_add(&all, "x", F, x, TOTAL_Q, MODEL, -1, -1);
    trial_add(&all, "memory", F, x, LONG, MODEL, -1, -1);
    trial_add(&all, "q_offsets", PH_I32, q_offsets, SEQUENCES + 1, -1, -1, -1);
    trial_add(&all, "kv_offsets", PH_I32, longer, SEQUENCES + 1, -1, -1, -1);
    trial_result got = trial_run(&all, "--heads 3 --causal --rope 100");
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    const float *out_all = ph_file_find(got.out, "out")->data;
    for (int s = 0; s < SEQUENCES; s++) {
        int first = q_offsets[s], len = q_offsets[s + 1] - first;
        int keys = longer[s + 1] - longer[s];
        char words[80];
        t = one;
        if (!len) continue;
        trial_add(&t, "x", F, x + first * MODEL, 1, len, MODEL, -1);
        trial_add(&t, "memory", F, x + longer[s] * MODEL, 1, keys, MODEL, -1);
        snprintf(words, sizeof words, "--heads 3 --causal --rope 100 --offset %d",
                 keys - len);
        trial_result part = trial_run(&t, words);
        CHECK(part.code == 0 && part.out, "code %d: %s", part.code, part.said);
        CHECK(!memcmp(out_all + first * MODEL, ph_file_find(part.out, "out")->data,
                      (size_t)(len * MODEL) * sizeof *x),
              "sequence %d differs from that alone", s);
        trial_free(&part);
    }
    trial_free(&got);
    t = all, t.tensor[5].shape[0] = TOTAL_KV, t.tensor[7].data = kv_offsets;
    got = trial_run(&t, "--heads 3 --causal --rope 100");
    CHECK(got.code == INPUT &&
              strstr(got.said, "sequence 2 has 1 more queries than keys"),
          "code %d: %s", got.code, got.said);
    got = trial_run(&t, "--heads 3 --causal");
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    trial_free(&got);
}

/* Without a mask positions count from 0, as in a batch. */
static void ragged_positions(void)
{
    static const float slopes[HEADS] = {0.5f, 0.25f, 1, 2};
    static const int32_t one[] = {0, TOTAL_Q}, keys[] = {0, TOTAL_KV};
    draw();
    trial t = {0}, dense;
    trial_add(&t, "q", F, in[Q], HEADS, TOTAL_Q, QK, -1);
    trial_add(&t, "k", F, in[K], KV_HEADS, TOTAL_KV, QK, -1);
    trial_add(&t, "v", F, in[VALUES], KV_HEADS, TOTAL_KV, V, -1);
    trial_add(&t, "alibi", F, slopes, HEADS, -1, -1, -1);
    dense = t;
    for (int i = 0; i < 3; i++) {
        ph_tensor *d = &dense.tensor[i];
        d->rank = 4, d->shape[3] = d->shape[2], d->shape[2] = d->shape[1],
        d->shape[1] = d->shape[0], d->shape[0] = 1;
    }
    trial_add(&t, "q_offsets", PH_I32, one, 2, -1, -1, -1);
    trial_add(&t, "kv_offsets", PH_I32, keys, 2, -1, -1, -1);
    trial_result got = trial_run(&t, ""), expected = trial_run(&dense, "");
    CHECK(got.out && expected.out, "%s %s", got.said, expected.said);
    CHECK(!memcmp(ph_file_find(got.out, "out")->data,
                  ph_file_find(expected.out, "out")->data, HEADS * TOTAL_Q * V * 4),
          "other positions than in a batch");
    trial_free(&got);
    trial_free(&expected);
}

static void ragged(void)
{
    compare("", 0, 0);
    compare("--causal", 1, INT32_MIN);
    compare("--causal --offset 1 --threads 1 --variant gqa:2", 1, 1);
}

static void refuse(const trial *t, const char *words, int code, const char *sentence)
{
    trial_result got = trial_run(t, words);
    CHECK(got.code == code && !got.out, "%s: code %d: %s", sentence, got.code, got.said);
    CHECK(strstr(got.said, sentence), "\"%s\" lacks \"%s\"", got.said, sentence);
}

static void ragged_refused(void)
{
    static const int32_t backwards[] = {0, 5, 3, 7, 8}, outside[] = {0, 3, 3, 7, 9},
                         late[] = {1, 3, 3, 7, 8}, negative[] = {0, -1, 3, 7, 8};
    const int32_t *const bad[] = {backwards, outside, late, negative};
    static const char *const where[] = {"'q_offsets' has 3 at 2, expected ascending",
                                        "'q_offsets' has 9 at 4, expected ascending",
                                        "'q_offsets' has 1 at 0, expected ascending",
                                        "'q_offsets' has -1 at 1, expected ascending"};
    draw();
    const trial good = make();
    trial t = good;
    for (int i = 0; i < 4; i++) {
        t.tensor[7].data = bad[i];
        refuse(&t, "", INPUT, where[i]);
    }
    t = good, t.count--;
    refuse(&t, "", INPUT, "tensor 'kv_offsets' is missing");
    t = good, t.tensor[8].shape[0] = SEQUENCES;
    refuse(&t, "", INPUT, "'kv_offsets' is I32 (4), expected I32 (sequences + 1 = 5)");
    t = good;
    trial_add(&t, "bias", F, in[Q], 1, 1, TOTAL_Q, TOTAL_KV);
    refuse(&t, "", INPUT, "tensor 'bias' stands beside 'q_offsets'");
    refuse(&good, "--weights", UNSUPPORTED, "option --weights is given");
}

/* Shapes are named as they are in IN. */
static void ragged_shapes_refused(void)
{
    draw();
    trial t = make();
    ph_tensor *dout = &t.tensor[DOUT], *gate = &t.tensor[GATE];
    dout->shape[1]--;
    refuse(&t, "", INPUT, "'dout' is F32 (4, 7, 2), expected");
    refuse(&t, "", INPUT, "(q_heads = 4, total_q = 8, v_dim = 2)");
    dout->shape[1]++, gate->shape[0]--;
    refuse(&t, "", INPUT,
           "'gate' is F32 (3, 8), expected F32 (q_heads = 4, total_q = 8)");
}

/* ---- pages ---- */

enum { BATCH = 2, SLOTS = 3, PAGES = 5, PAGE = 4, CAPACITY = SLOTS * PAGE };

static const int32_t table[BATCH * SLOTS] = {3, 0, 4, 1, -7, 99}, lens[BATCH] = {11, 4};
static float pages[2][PAGES * KV_HEADS * PAGE * QK],
    block[2][BATCH * KV_HEADS * CAPACITY * QK];

static trial paged(void)
{
    trial t = {0};
    trial_add(&t, "q", F, in[Q], BATCH, HEADS, 1, QK);
    trial_add(&t, "k", F, pages[0], PAGES, KV_HEADS, PAGE, QK);
    trial_add(&t, "v", F, pages[1], PAGES, KV_HEADS, PAGE, QK);
    trial_add(&t, "kv_lens", PH_I32, lens, BATCH, -1, -1, -1);
    trial_add(&t, "page_table", PH_I32, table, BATCH, SLOTS, -1, -1);
    return t;
}

static void fill_pages(void)
{
    uint64_t state = check_seed;
    draw();
    for (int i = 0; i < PAGES * KV_HEADS * PAGE * QK; i++)
        pages[0][i] = check_normal(&state), pages[1][i] = check_normal(&state);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < KV_HEADS; h++)
            for (int j = 0; j < lens[b]; j++)
                for (int d = 0; d < QK; d++) {
                    int page = table[b * SLOTS + j / PAGE];
                    int to = ((b * KV_HEADS + h) * CAPACITY + j) * QK + d;
                    int from = ((page * KV_HEADS + h) * PAGE + j % PAGE) * QK + d;
                    block[0][to] = pages[0][from], block[1][to] = pages[1][from];
                }
}

static void same_bits(void)
{
    fill_pages();
    trial t = paged(), whole = t;
    whole.count--;
    for (int i = 0; i < 2; i++) {
        whole.tensor[1 + i].data = block[i];
        whole.tensor[1 + i].shape[0] = BATCH;
        whole.tensor[1 + i].shape[2] = CAPACITY;
    }
    trial_result one = trial_run(&whole, "");
    CHECK(one.code == 0 && one.out, "code %d: %s", one.code, one.said);
    trial_result got = trial_run(&t, "");
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "lse" : "out";
        const ph_tensor *a = ph_file_find(one.out, name),
                        *b = ph_file_find(got.out, name);
        CHECK(a && b && a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes),
              "%s has other bits", name);
    }
    trial_free(&one);
    trial_free(&got);
}

static void paged_refused(void)
{
    static const int32_t far[BATCH] = {13, 4}, into[BATCH] = {11, 5};
    fill_pages();
    trial good = paged(), t = good;
    t.tensor[3].data = far;
    refuse(&t, "", INPUT, "'kv_lens' has 13 at element 0, expected 0 to 12");
    t.tensor[3].data = into;
    refuse(&t, "", INPUT, "'page_table' has -7 at (1, 1), expected one of the 5 pages");
    t = good;
    t.tensor[3] = t.tensor[--t.count];
    refuse(&t, "", INPUT, "tensor 'kv_lens' is missing");
    t = good;
    trial_add(&t, "dout", F, in[DOUT], BATCH, HEADS, 1, QK);
    refuse(&t, "", INPUT, "tensor 'dout' stands beside 'page_table'");
}

static const check_case cases[] = {{"ragged", ragged},
                                   {"ragged_options", ragged_options},
                                   {"ragged_layer", ragged_layer},
                                   {"ragged_memory", ragged_memory},
                                   {"ragged_positions", ragged_positions},
                                   {"ragged_refused", ragged_refused},
                                   {"ragged_shapes_refused", ragged_shapes_refused},
                                   {"paged_same_bits", same_bits},
                                   {"paged_refused", paged_refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    if (trial_begin() != 0) return 1;
    int failed = check_main(argc, argv, cases);
    trial_end();
    return failed;
}
