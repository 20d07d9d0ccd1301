/*
 * test_alloc.c - memory runs out at every place where memory is allocated.
 *
 * A session (open, plan, forward, look, backward, close) runs with an allocator that
 * fails
 * at its n-th request, for n = 1, 2, 3, ... until the session goes through; once failing
 * that one time, once failing from then on. Each time: PH_OUT_OF_MEMORY, no output
 * changed
 * by the call that failed, nothing leaked, and after memory is back the same ctx finishes
 * the session with the right bits. The allocator hands out memory aligned to 16 bytes and
 * not more.
 */
#include <stdatomic.h>

#include "sweep.h"

typedef struct heap {
    atomic_long asked, live;
    long fail_at; /* 0: never           */
    int forever;  /* fail from there on */
    atomic_int failed;
} heap;

static void *heap_alloc(void *user, size_t bytes)
{
    heap *h = user;
    long n = atomic_fetch_add(&h->asked, 1) + 1;
    if (h->fail_at && (n == h->fail_at || (h->forever && n > h->fail_at))) {
        atomic_fetch_add(&h->failed, 1);
        return NULL;
    }
    char *block = aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);
    if (!block) return NULL;
    atomic_fetch_add(&h->live, 1);
    memset(block, 0xcd, bytes + 64); /* fresh memory is never zero */
    return block + 16;
}

static void heap_release(void *user, void *ptr)
{
    heap *h = user;
    if (!ptr) return;
    atomic_fetch_sub(&h->live, 1);
    free((char *)ptr - 16);
}

/* The steps of a session; each returns the library's status. */
typedef struct session {
    heap *heap;
    problem *p;
    int threads;
    ph_ctx *ctx;
    ph_plan *plan;
} session;

static ph_status step(session *s, int number)
{
    ph_options options = {.threads = s->threads,
                          .alloc = heap_alloc,
                          .release = heap_release,
                          .user = s->heap};
    switch (number) {
    case 0: return ph_open(&s->ctx, &options);
    case 1: return ph_plan_create(&s->plan, s->ctx, &s->p->attn);
    case 2: return ph_forward(s->plan, &s->p->args);
    case 3: return ph_look(s->plan, &s->p->args);
    default: return ph_backward(s->plan, &s->p->args, &s->p->grads);
    }
}

static const char *const step_names[] = {"ph_open", "ph_plan_create", "ph_forward",
                                         "ph_look", "ph_backward"};

/* 1: the outputs this step would write still hold the pattern. */
static int step_untouched(const problem *p, int number)
{
    if (number < 3) return problem_untouched(p);
    if (number == 3) return 1; /* ph_look writes what ph_forward wrote: same bits below */
    const slab *s = p->slabs;
    for (int n = 0; n < p->slab_count; n++)
        for (size_t e = 0; s[n].kind == SLAB_GRADIENT && e < s[n].count * s[n].size; e++)
            if (s[n].bytes[e] != SLAB_PATTERN) return 0;
    return 1;
}

/* Runs the session with the n-th request failing. Returns how many requests failed. */
static int run_session(problem *p, const problem *right, int threads, long n, int forever)
{
    heap h = {.fail_at = n, .forever = forever};
    session s = {.heap = &h, .p = p, .threads = threads};
    problem_wipe(p);
    for (int number = 0; number < 5; number++) {
        s.plan = number < 2 ? (ph_plan *)p : s.plan; /* must become NULL on failure */
        if (number == 0) s.ctx = (ph_ctx *)p;
        ph_status status = step(&s, number);
        if (status != PH_OK) {
            CHECK(status == PH_OUT_OF_MEMORY, "request %ld: %s gave \"%s\"", n,
                  step_names[number], ph_status_text(status));
            CHECK(h.failed > 0, "%s said no memory, but none was refused",
                  step_names[number]);
            CHECK(number != 0 || !s.ctx, "request %ld: a ctx came back", n);
            CHECK(number != 1 || !s.plan, "request %ld: a plan came back", n);
            CHECK(number == 0 || *ph_error(s.ctx), "%s: no sentence", step_names[number]);
            CHECK(step_untouched(p, number), "request %ld: %s failed and wrote", n,
                  step_names[number]);
            h.fail_at = 0; /* memory is back */
            if (number == 0) s.plan = NULL;
            status = step(&s, number);
        }
        CHECK(status == PH_OK, "request %ld: %s afterwards gave \"%s\"", n,
              step_names[number], ph_status_text(status));
    }
    CHECK(tensor_same(&p->out, &right->out) &&
              tensor_same(&p->weights, &right->weights) &&
              tensor_same(&p->dq, &right->dq) && tensor_same(&p->dk, &right->dk) &&
              tensor_same(&p->dv, &right->dv) && tensor_same(&p->dbias, &right->dbias),
          "request %ld: other bits than with enough memory", n);
    ph_plan_free(s.plan);
    ph_close(s.ctx);
    CHECK(h.live == 0, "request %ld failing%s: %ld blocks leaked", n,
          forever ? " and all later ones" : "", (long)h.live);
    return h.failed;
}

/* Different drivers want different memory. */
static ph_attn shapes(int n)
{
    static const ph_attn all[] = {
        {.batch = 2,
         .q_heads = 4,
         .k_heads = 2,
         .v_heads = 2,
         .q_len = 70,
         .kv_len = 90,
         .qk_dim = 24,
         .v_dim = 17,
         .bias = {1, 4, 70},
         .visible = {2, 1, 1},
         .dropout = 0.1f},
        {.batch = 1,
         .q_heads = 8,
         .k_heads = 1,
         .v_heads = 1,
         .q_len = 1,
         .kv_len = 1100,
         .qk_dim = 16},
        {.batch = 3,
         .q_heads = 2,
         .q_len = 5,
         .kv_len = 5,
         .qk_dim = 3,
         .dtype = PH_BF16,
         .mask = PH_MASK_CAUSAL},
        {.batch = 1,
         .q_heads = 6,
         .k_heads = 3,
         .v_heads = 2,
         .q_len = 300,
         .kv_len = 300,
         .qk_dim = 40,
         .dtype = PH_F16,
         .mask = PH_MASK_BAND,
         .band_left = 100,
         .softcap = 9,
         .bias = {1, 1, 1}},
    };
    return all[n];
}

static void fail_everywhere(void)
{
    for (int shape = 0; shape < 4; shape++) {
        problem p = {.attn = shapes(shape),
                     .with = {.lse = 1,
                              .weights = 1,
                              .col_sum = 1,
                              .entropy = 1,
                              .top_k = 4,
                              .sink = 1,
                              .gate = 1,
                              .alibi = 1,
                              .dlse = 1}};
        p.attn.backward = 1;
        problem right = {.attn = p.attn, .with = p.with};
        problem_build(&p, 3);
        problem_build(&right, 3);
        for (int threads = 1; threads <= 3; threads += 2)
            for (int forever = 0; forever < 2; forever++) {
                ph_ctx *ctx = drive_ctx(NULL, threads);
                must(ctx, drive_backward(ctx, &right));
                long n = 1;
                while (run_session(&p, &right, threads, n, forever)) {
                    n++;
                    CHECK(n < 2000, "2000 requests and no end");
                }
                CHECK(n > 2, "only %ld requests: the allocator is not used", n - 1);
            }
        problem_free(&p);
        problem_free(&right);
    }
}

/* A loop of calls does not pile up memory. */
static void steady_state(void)
{
    heap h = {.fail_at = 0};
    problem p = {.attn = shapes(0), .with = {.lse = 1, .weights = 1}};
    p.attn.backward = 1;
    problem_build(&p, 3);
    session s = {.heap = &h, .p = &p, .threads = 2};
    for (int number = 0; number < 5; number++)
        CHECK(step(&s, number) == PH_OK, "%s failed", step_names[number]);
    long live = h.live;
    for (int round = 0; round < 10; round++)
        for (int number = 2; number < 5; number++)
            CHECK(step(&s, number) == PH_OK, "%s failed", step_names[number]);
    CHECK(h.live == live, "30 more calls left %ld more blocks", (long)h.live - live);
    ph_plan_free(s.plan);
    ph_close(s.ctx);
    CHECK(h.live == 0, "%ld blocks leaked", (long)h.live);
    problem_free(&p);
}

static const check_case cases[] = {
    {"fail_everywhere", fail_everywhere},
    {"steady_state", steady_state},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
