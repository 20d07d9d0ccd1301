/*
 * test_run_cache.c - layer mode of `polyhead run` with caches, against the loops in
 * double (layer_loops.h) over the whole sequence: the next tokens give the last rows of
 * out, and the caches hold keys after norm and rotation.
 */
#include <math.h>

#include "check.h"
#include "layer_loops.h"

enum { USAGE = 2, INPUT = 3, UNSUPPORTED = 4 };
enum { BATCH = 2, LEN = 5, NEXT = 2, CAPACITY = 8, HEADS = 4, KV_HEADS = 2, MODEL = 6 };

#define F     PH_F32
#define UNSET 7.5f /* elements of a cache that the call must leave alone */

static const int32_t past[BATCH] = {3, 1};
static float k_cache[BATCH * KV_HEADS * CAPACITY * 4];
static float v_cache[BATCH * KV_HEADS * CAPACITY * 3];
static float x[BATCH * NEXT * MODEL];

/* The cache (batch, heads, capacity, dim) after `tokens` more than past. */
static void fill(const double *rows, int dim, int tokens, float *cache)
{
    for (int i = 0; i < BATCH * KV_HEADS * CAPACITY * dim; i++) {
        int d = i % dim, t = i / dim % CAPACITY, h = i / dim / CAPACITY % KV_HEADS;
        int b = i / dim / CAPACITY / KV_HEADS;
        cache[i] = UNSET;
        if (t < past[b] + tokens)
            cache[i] = (float)rows[((b * LEN + t) * KV_HEADS + h) * dim + d];
    }
}

/* Only the next tokens of x, and caches of those before. */
static trial make(const loops_problem *p, const loops_result *r)
{
    trial t = loops_load(p);
    fill(r->k, 4, 0, k_cache);
    fill(r->v, 3, 0, v_cache);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < NEXT * MODEL; i++)
            x[b * NEXT * MODEL + i] = (float)p->t[X].v[(b * LEN + past[b]) * MODEL + i];
    t.tensor[0].shape[1] = NEXT;
    t.tensor[0].data = x;
    trial_add(&t, "past", PH_I32, past, BATCH, -1, -1, -1);
    trial_add(&t, "k_cache", F, k_cache, BATCH, KV_HEADS, CAPACITY, 4);
    trial_add(&t, "v_cache", F, v_cache, BATCH, KV_HEADS, CAPACITY, 3);
    return t;
}

static loops_problem *problem(void)
{
    loops_problem *p = loops_make(HEADS, KV_HEADS, KV_HEADS, 0, F);
    p->t[DOUT].there = 0;
    p->right = 0;
    return p;
}

static void same_cache(const ph_file *out, const char *name, const double *rows, int dim)
{
    static float expected[BATCH * KV_HEADS * CAPACITY * 4];
    const ph_tensor *t = ph_file_find(out, name);
    CHECK(t && t->type == F && t->rank == 4 && t->shape[2] == CAPACITY, "no %s", name);
    const float *got = t->data;
    fill(rows, dim, NEXT, expected);
    for (int i = 0; i < BATCH * KV_HEADS * CAPACITY * dim; i++)
        CHECK(expected[i] == UNSET ? got[i] == UNSET
                                   : fabsf(got[i] - expected[i]) < 1e-5f,
              "%s[%d] is %g, expected %g", name, i, (double)got[i], (double)expected[i]);
}

static void compare(const loops_problem *p, const char *words)
{
    static loops_result r;
    loops_solve(p, &r);
    trial t = make(p, &r);
    trial_result got = trial_run(&t, words);
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    const ph_tensor *out = ph_file_find(got.out, "out");
    CHECK(out && out->rank == 3 && out->shape[1] == NEXT, "out has another shape");
    const float *y = out->data;
    for (int i = 0; i < BATCH * NEXT * 7; i++) {
        int b = i / 7 / NEXT, row = i / 7 % NEXT;
        double e = r.out[(b * LEN + past[b] + row) * 7 + i % 7];
        CHECK(fabs((double)y[i] - e) < 4e-5 * (1 + fabs(e)), "out[%d] is %g, expected %g",
              i, (double)y[i], e);
    }
    same_cache(got.out, "k_cache", r.k, 4);
    same_cache(got.out, "v_cache", r.v, 3);
    trial_free(&got);
}

#define WORDS "--heads 4 --variant gqa:2"

static void next_tokens(void)
{
    loops_problem *p = problem();
    compare(p, WORDS " --causal");
    loops_put_biases(p, F);
    p->base = 100, p->rope = 1;
    compare(p, WORDS " --causal --rope 100");
    loops_put_norm(p, F);
    compare(p, WORDS " --causal --rope 100 --qk-norm");
    p->left = 2;
    compare(p, WORDS " --window 2,0 --rope 100 --qk-norm --threads 1");
}

static uint16_t k16[sizeof k_cache / 4], v16[sizeof v_cache / 4];

/* The caches of a trial in a type of two bytes. */
static void round_caches(trial *t, ph_dtype type)
{
    ph_tensor *k = &t->tensor[t->count - 2], *v = &t->tensor[t->count - 1];
    k->bytes = sizeof k_cache, v->bytes = sizeof v_cache;
    CHECK(ph_tensor_convert(k, type, k16) == PH_OK, "k_cache cannot be rounded");
    CHECK(ph_tensor_convert(v, type, v16) == PH_OK, "v_cache cannot be rounded");
    k->type = v->type = type;
    k->data = k16, v->data = v16;
    k->bytes /= 2, v->bytes /= 2;
}

/* bf16 caches: read as they are; what the call does not write comes back as it was. */
static void other_type(void)
{
    static loops_result r;
    loops_problem *p = problem();
    loops_solve(p, &r);
    trial t = make(p, &r);
    round_caches(&t, PH_BF16);
    trial_result got = trial_run(&t, WORDS " --causal");
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    const ph_tensor *out = ph_file_find(got.out, "k_cache");
    CHECK(out && out->type == PH_BF16, "k_cache is of another type");
    const uint16_t *y = out->data;
    int changed = 0;
    for (int i = 0; i < BATCH * KV_HEADS * CAPACITY * 4; i++) {
        int at = i / 4 % CAPACITY, b = i / 4 / CAPACITY / KV_HEADS;
        int written = at >= past[b] && at < past[b] + NEXT;
        CHECK(written || y[i] == k16[i], "k_cache[%d] changed", i);
        changed += y[i] != k16[i];
    }
    CHECK(changed == BATCH * KV_HEADS * NEXT * 4, "%d elements changed", changed);
    trial_free(&got);
}

/* One token after the other gives the bits of both at once: what a call appends is
   rounded before it is read. */
static void rounded(ph_dtype type)
{
    static float token[BATCH * MODEL];
    static loops_result r;
    int32_t later[BATCH];
    loops_problem *p = problem();
    loops_solve(p, &r);
    trial t = make(p, &r);
    round_caches(&t, type);
    trial_result whole = trial_run(&t, WORDS " --causal"), got = {0};
    CHECK(whole.code == 0 && whole.out, "code %d: %s", whole.code, whole.said);
    const float *both = ph_file_find(whole.out, "out")->data;
    t.tensor[0].shape[1] = 1, t.tensor[0].data = token;
    t.tensor[t.count - 3].data = later;
    for (int i = 0; i < NEXT; i++) {
        for (int b = 0; b < BATCH; b++) {
            memcpy(token + b * MODEL, x + (b * NEXT + i) * MODEL, sizeof token / BATCH);
            later[b] = past[b] + i;
        }
        got = trial_run(&t, WORDS " --causal");
        CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
        const float *one = ph_file_find(got.out, "out")->data;
        for (int b = 0; b < BATCH; b++)
            CHECK(!memcmp(one + b * 7, both + (b * NEXT + i) * 7, 7 * sizeof *one),
                  "token %d of batch row %d has other bits than with both", i, b);
        memcpy(k16, ph_file_find(got.out, "k_cache")->data, sizeof k16);
        memcpy(v16, ph_file_find(got.out, "v_cache")->data, sizeof v16);
        trial_free(&got);
    }
    trial_free(&whole);
}

static void rounded_before_read(void)
{
    rounded(PH_BF16);
    rounded(PH_F16);
}

static void refuse(const trial *t, const char *words, int code, const char *sentence)
{
    trial_result got = trial_run(t, words);
    CHECK(got.code == code && !got.out, "%s: code %d: %s", sentence, got.code, got.said);
    CHECK(strstr(got.said, sentence), "\"%s\" lacks \"%s\"", got.said, sentence);
}

static void refused(void)
{
    static loops_result r;
    static const int32_t late[BATCH] = {3, 7};
    loops_problem *p = problem();
    loops_solve(p, &r);
    trial good = make(p, &r), t = good;
    refuse(&good, WORDS " --offset 3", USAGE, "option --offset is given");
    t.count--;
    refuse(&t, WORDS, INPUT, "tensor 'v_cache' is missing, expected because past");
    t = good;
    t.tensor[t.count - 1].shape[3] = 4;
    t.tensor[t.count - 1].shape[1] = 1;
    refuse(&t, WORDS, INPUT, "expected F32 (batch = 2, v_heads = 2, cap");
    t = good;
    t.tensor[t.count - 3].data = late;
    refuse(&t, WORDS, INPUT, "past[1] is 7, expected 0 to 6");
    t = good;
    trial_add(&t, "dout", F, v_cache, BATCH, NEXT, 7, -1);
    refuse(&t, WORDS, INPUT, "tensor 'dout' stands beside 'k_cache'");
    t = good;
    trial_add(&t, "kv_lens", PH_I32, past, BATCH, -1, -1, -1);
    refuse(&t, WORDS, INPUT, "tensor 'kv_lens' stands beside 'k_cache'");
}

/* mohsa caches each element once, though heads overlap. */
static void refused_variant(void)
{
    static loops_result r;
    loops_problem *p = loops_make(2, KV_HEADS, KV_HEADS, 0, F);
    p->t[DOUT].there = p->t[WO].there = 0;
    loops_solve(p, &r);
    trial t = make(p, &r);
    refuse(&t, "--heads 2 --variant mohsa:overlap=1", UNSUPPORTED,
           "caches other tensors than k and v");
}

static const check_case cases[] = {{"next_tokens", next_tokens},
                                   {"other_type", other_type},
                                   {"rounded_before_read", rounded_before_read},
                                   {"refused", refused},
                                   {"refused_variant", refused_variant},
                                   {0, 0}};

int main(int argc, char **argv)
{
    loops_seed = &check_seed;
    if (trial_begin() != 0) return 1;
    int failed = check_main(argc, argv, cases);
    trial_end();
    return failed;
}
