/*
 * test_bits.c - the same bits whatever surrounds a row: number of threads, batch,
 * padding,
 * the caller's own parallel loop, the instruction set, and how a prompt is cut into
 * calls.
 *
 *     test_bits chunks --case=17 [--seed N]     one case alone
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ctx.h"
#include "kernels/kernels.h"
#include "sweep.h"

/* Name of the first output in which the two problems differ, or NULL. */
static const char *differs(const problem *p, const problem *q)
{
    const tensor *x[] = {&p->out,        &p->lse,   &p->weights, &p->col_sum, &p->entropy,
                         &p->top_weight, &p->rect,  &p->dq,      &p->dk,      &p->dv,
                         &p->dbias,      &p->dgate, &p->dsink};
    const tensor *y[] = {&q->out,        &q->lse,   &q->weights, &q->col_sum, &q->entropy,
                         &q->top_weight, &q->rect,  &q->dq,      &q->dk,      &q->dv,
                         &q->dbias,      &q->dgate, &q->dsink};
    static const char *const names[] = {
        "out differs",     "lse differs",        "weights differ", "col_sum differs",
        "entropy differs", "top_weight differs", "rect differs",   "dq differs",
        "dk differs",      "dv differs",         "dbias differs",  "dgate differs",
        "dsink differs"};
    for (size_t n = 0; n < sizeof x / sizeof *x; n++)
        if (!tensor_same(x[n], y[n])) return names[n];
    if (p->top_index && memcmp(p->top_index->bytes, q->top_index->bytes,
                               p->top_index->count * p->top_index->size))
        return "top_index differs";
    return NULL;
}

/* The same random problem twice. */
static void twins(problem *p, problem *q, int index, uint64_t salt)
{
    case_size size = index % 25 == 7 ? CASE_LARGE : CASE_SMALL;
    case_draw(&p->attn, &p->with, check_seed + salt, index, size);
    p->attn.backward = 1;
    problem_build(p, (uint64_t)index);
    problem_twin(q, p, (uint64_t)index);
}

/* ---- threads, instruction sets, the caller's loop --------------------------------- */

static void threads(void)
{
    static const int counts[] = {2, 7, 3};
    sweep_begin();
    for (int index = 0; index < 250 / CASES_SLOW; index++) {
        problem p, q;
        if (left_out(index)) continue;
        twins(&p, &q, index, 400);
        FOR_EACH_ISA(isa)
        {
            if (skip_isa(*isa, index)) continue;
            ph_ctx *one = drive_ctx(*isa, 1), *many = drive_ctx(*isa, counts[index % 3]);
            CHECK(one && many, "no ctx for %s", *isa);
            problem_wipe(&p);
            problem_wipe(&q);
            const char *why = refused(one, drive_backward(one, &p));
            if (!why) why = refused(many, drive_backward(many, &q));
            sweep_note("threads", index, *isa, &p, why ? why : differs(&p, &q));
        }
        problem_free(&p);
        problem_free(&q);
    }
    sweep_end();
}

/* ref, or ref that multiplies bf16 as the tiles of AMX do: what the table's bits are. */
static ph_ctx *plain_loops(const char *isa)
{
    static ph_kernels tiled;
    ph_ctx *ref = drive_ctx("ref", 2);
    const ph_kernels *table = ph_kernels_pick(isa);
    CHECK(ref && table, "no ctx for %s", isa);
    tiled = ph_kernels_ref;
    tiled.bf16_pairs = table->bf16_pairs ? &ph_bf16_pairs_ref : NULL;
    ref->kernels = table->bf16_pairs ? &tiled : &ph_kernels_ref;
    return ref;
}

static void instruction_sets(void)
{
    sweep_begin();
    for (int index = 0; index < 250 / CASES_SLOW; index++) {
        problem p, q;
        if (left_out(index)) continue;
        twins(&p, &q, index, 500);
        const ph_bf16_pairs *last = NULL; /* p was made like tables that have these */
        problem_wipe(&p);
        must(plain_loops("ref"), drive_backward(plain_loops("ref"), &p));
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            CHECK(!strcmp(ph_isa(ctx), *isa), "asked for %s, got %s", *isa, ph_isa(ctx));
            if (last != ctx->kernels->bf16_pairs) {
                ph_ctx *ref = plain_loops(*isa);
                problem_wipe(&p);
                must(ref, drive_backward(ref, &p));
                plain_loops("ref");
                last = ctx->kernels->bf16_pairs;
            }
            problem_wipe(&q);
            const char *why = refused(ctx, drive_backward(ctx, &q));
            sweep_note("instruction_sets", index, *isa, &p, why ? why : differs(&p, &q));
        }
        problem_free(&p);
        problem_free(&q);
    }
    sweep_end();
}

/* Three ways to run a parallel loop: in order, backwards, on new threads. */
static void serial(void *user, int count, ph_task *task, void *arg)
{
    (void)user;
    for (int n = 0; n < count; n++) task(arg, n);
}

static void backwards(void *user, int count, ph_task *task, void *arg)
{
    (void)user;
    for (int n = count - 1; n >= 0; n--) task(arg, n);
}

typedef struct share {
    ph_task *task;
    void *arg;
    int first, count;
} share;

static void *run_share(void *arg)
{
    const share *s = arg;
    for (int n = s->first; n < s->count; n += 3) s->task(s->arg, n);
    return NULL;
}

static void on_threads(void *user, int count, ph_task *task, void *arg)
{
    (void)user;
    pthread_t thread[3];
    share shares[3];
    for (int n = 0; n < 3; n++) {
        shares[n] = (share){task, arg, n, count};
        pthread_create(&thread[n], NULL, run_share, &shares[n]);
    }
    for (int n = 0; n < 3; n++) pthread_join(thread[n], NULL);
}

static void own_loop(void)
{
    static void (*const loops[])(void *, int, ph_task *, void *) = {serial, backwards,
                                                                    on_threads};
    sweep_begin();
    for (int index = 0; index < 90 / CASES_SLOW; index++) {
        problem p, q;
        if (left_out(index)) continue;
        twins(&p, &q, index, 600);
        ph_options options = {.threads = 1 + index % 4, .parallel = loops[index % 3]};
        ph_ctx *plain = need_ctx(NULL), *own = NULL;
        CHECK(ph_open(&own, &options) == PH_OK, "no ctx with a loop of its own");
        must(plain, drive_backward(plain, &p));
        const char *why = refused(own, drive_backward(own, &q));
        sweep_note("own_loop", index, "best", &p, why ? why : differs(&p, &q));
        ph_close(own);
        problem_free(&p);
        problem_free(&q);
    }
    sweep_end();
}

/* ---- alone and in company --------------------------------------------------------- */

/* Copies batch row c of q, with all that belongs to it, into batch row b of p. */
static void adopt(problem *p, int b, const problem *q, int c)
{
    tensor *to[] = {&p->q, &p->k, &p->v, &p->dout, &p->dlse};
    const tensor *from[] = {&q->q, &q->k, &q->v, &q->dout, &q->dlse};
    for (int n = 0; n < 5; n++)
        for (int h = 0; from[n]->mem && h < from[n]->heads; h++)
            for (int i = 0; i < from[n]->len; i++)
                tensor_copy_row(to[n], b, h, i, from[n], c, h, i);
    if (p->gate.mem && p->attn.gate == PH_GATE_ROW)
        for (int h = 0; h < q->gate.heads; h++)
            for (int i = 0; i < q->gate.len; i++)
                tensor_copy_row(&p->gate, b, h, i, &q->gate, c, h, i);
    p->q_lens[b] = q->q_lens[c];
    p->kv_lens[b] = q->kv_lens[c];
}

/* Everything that belongs to batch row b of p has the bits of row c of q, rows beyond the
   smaller problem's lengths aside. */
static const char *same_batch_row(const problem *p, int b, const problem *q, int c)
{
    static char text[100];
    const tensor *x[] = {&p->out, &p->lse, &p->dq, &p->dk, &p->dv};
    const tensor *y[] = {&q->out, &q->lse, &q->dq, &q->dk, &q->dv};
    static const char *const names[] = {"out", "lse", "dq", "dk", "dv"};
    for (int n = 0; n < 5; n++)
        for (int h = 0; h < x[n]->heads; h++)
            for (int i = 0; i < x[n]->len && i < y[n]->len; i++)
                if (!tensor_same_row(x[n], b, h, i, y[n], c, h, i)) {
                    snprintf(text, sizeof text, "%s differs in row (%d,%d,%d)", names[n],
                             b, h, i);
                    return text;
                }
    return NULL;
}

static void company_case(int index)
{
    uint64_t rng = check_seed * 91 + (uint64_t)index;
    problem alone, many;
    case_draw(&alone.attn, &alone.with, check_seed + 700, index, CASE_SMALL);
    alone.attn.backward = 1;
    alone.attn.batch = 1;
    alone.attn.dropout = 0; /* the mask depends on where a row stands in the batch */
    memset(&alone.attn.bias, 0, sizeof alone.attn.bias);
    memset(&alone.attn.visible, 0, sizeof alone.attn.visible);
    alone.with.q_lens = alone.with.kv_lens = alone.with.lse = 1;
    alone.with.no_look = 1;
    if (alone.with.layout >= LAYOUT_OVERLAP) alone.with.layout = LAYOUT_TIME;
    many.attn = alone.attn;
    many.with = alone.with;
    many.attn.batch = 2 + check_below(&rng, 3);
    many.attn.q_len += check_below(&rng, 3) * 7; /* more capacity than is used */
    many.attn.kv_len += check_below(&rng, 3) * 37;
    many.with.layout = LAYOUT_PADDED;
    if (many.attn.mask && many.attn.anchor == PH_ANCHOR_UNSET)
        alone.attn.anchor = many.attn.anchor = PH_ANCHOR_OFFSET;
    problem_build(&alone, (uint64_t)index);
    problem_build(&many, (uint64_t)index + 99);
    int at = check_below(&rng, many.attn.batch);
    adopt(&many, at, &alone, 0);
    tensor *shared[] = {&many.sink, &many.alibi, &many.gate};
    const tensor *from[] = {&alone.sink, &alone.alibi, &alone.gate};
    for (int n = 0; n < 3; n++)
        for (int h = 0; from[n]->mem && from[n]->len == 1 && h < from[n]->heads; h++)
            if (n < 2 || alone.attn.gate == PH_GATE_HEAD)
                tensor_copy_row(shared[n], 0, h, 0, from[n], 0, h, 0);
    FOR_EACH_ISA(isa)
    {
        if (skip_isa(*isa, index)) continue;
        ph_ctx *ctx = need_ctx(*isa);
        const char *why = refused(ctx, drive_backward(ctx, &alone));
        if (!why) why = refused(ctx, drive_backward(ctx, &many));
        sweep_note("company", index, *isa, &many,
                   why ? why : same_batch_row(&many, at, &alone, 0));
    }
    problem_free(&alone);
    problem_free(&many);
}

/* Alone, and in a batch with other neighbours and more capacity: the same bits. */
static void company(void)
{
    sweep_begin();
    for (int index = 0; index < 300 / CASES_SLOW; index++)
        if (!left_out(index)) company_case(index);
    sweep_end();
}

/* ---- rows that are gathered ------------------------------------------------------- */

/* out, lse and dq of all tokens but the last have the same bits. */
static const char *same_but_last(const problem *p, const problem *q)
{
    const tensor *x[] = {&p->out, &p->lse, &p->dq}, *y[] = {&q->out, &q->lse, &q->dq};
    static const char *const names[] = {"out differs", "lse differs", "dq differs"};
    for (int n = 0; n < 3; n++)
        for (int b = 0; b < x[n]->batch; b++)
            for (int h = 0; h < x[n]->heads; h++)
                for (int i = 0; i < x[n]->len - 1; i++)
                    if (!tensor_same_row(x[n], b, h, i, y[n], b, h, i)) return names[n];
    return NULL;
}

/* A row that is gated off is left out when rows are gathered, which the head kernels do
   not do: the other rows have the same bits either way, whatever options a call has. */
static void gathered_case(int index)
{
    problem p, q;
    case_draw(&p.attn, &p.with, check_seed + 900, index, CASE_SMALL);
    p.attn.backward = 1;
    p.attn.dtype = PH_F32;
    p.attn.gate = PH_GATE_ROW;
    p.with.gate = 1, p.with.gate_zeros = 0, p.with.no_look = 1, p.with.lse = 1;
    problem_build(&p, (uint64_t)index);
    problem_twin(&q, &p, (uint64_t)index);
    for (int b = 0; b < q.gate.batch; b++)
        for (int h = 0; h < q.gate.heads && q.gate.len; h++)
            tensor_set(&q.gate, b, h, q.gate.len - 1, 0, 0);
    FOR_EACH_ISA(isa)
    {
        if (skip_isa(*isa, index)) continue;
        ph_ctx *ctx = need_ctx(*isa);
        const char *why = refused(ctx, drive_backward(ctx, &p));
        if (!why) why = refused(ctx, drive_backward(ctx, &q));
        sweep_note("gathered", index, *isa, &p, why ? why : same_but_last(&p, &q));
    }
    problem_free(&p);
    problem_free(&q);
}

static void gathered(void)
{
    sweep_begin();
    for (int index = 0; index < 200 / CASES_SLOW; index++)
        if (!left_out(index)) gathered_case(index);
    sweep_end();
}

/* ---- a prompt cut into calls ------------------------------------------------------ */

/* Rows first .. first + count of the whole prompt, against keys up to the last of them.
   */
static const char *one_chunk(ph_ctx *ctx, const problem *whole, int first, int count,
                             int style)
{
    static char text[200];
    problem part = {.attn = whole->attn, .with = whole->with};
    part.attn.q_len = count;
    part.attn.kv_len = first + count;
    if (style & 1) part.attn.kv_len = whole->attn.kv_len; /* a cache with capacity left */
    part.attn.anchor = style & 2 ? PH_ANCHOR_OFFSET : PH_ANCHOR_END;
    part.attn.q_offset = style & 2 ? first : 0;
    part.with.kv_lens = style & 1;
    part.with.layout = style & 4 ? LAYOUT_TIME : LAYOUT_PACKED;
    problem_make(&part, 1);
    const char *why = NULL;
    tensor *to[] = {&part.q,    &part.k,    &part.v,    &part.dout,
                    &part.dlse, &part.sink, &part.alibi};
    const tensor *from[] = {&whole->q,    &whole->k,    &whole->v,    &whole->dout,
                            &whole->dlse, &whole->sink, &whole->alibi};
    for (int b = 0; b < part.attn.batch; b++) {
        if (part.kv_lens) part.kv_lens[b] = first + count;
        for (int n = 0; n < 7; n++)
            for (int h = 0; from[n]->mem && b < from[n]->batch && h < from[n]->heads; h++)
                for (int i = 0; i < to[n]->len; i++) {
                    int rows = n == 0 || n == 3 || n == 4;
                    if (!rows && n < 3 && i >= first + count)
                        tensor_set_row(to[n], b, h, i, 0);
                    else
                        tensor_copy_row(to[n], b, h, i, from[n], b, h,
                                        rows ? first + i : i);
                }
    }
    why = refused(ctx, drive_backward(ctx, &part));
    const tensor *x[] = {&part.out, &part.lse, &part.dq},
                 *y[] = {&whole->out, &whole->lse, &whole->dq};
    static const char *const names[] = {"out", "lse", "dq"};
    for (int n = 0; n < 3 && !why; n++)
        for (int b = 0; b < part.attn.batch && !why; b++)
            for (int h = 0; h < part.attn.q_heads && !why; h++)
                for (int i = 0; i < count && !why; i++)
                    if (!tensor_same_row(x[n], b, h, i, y[n], b, h, first + i)) {
                        snprintf(
                            text, sizeof text,
                            "%s of row (%d,%d,%d) differs when rows %d to %d are one "
                            "call (style %d)",
                            names[n], b, h, first + i, first, first + count - 1, style);
                        why = text;
                    }
    problem_free(&part);
    return why;
}

static void chunk_case(int index)
{
    static const int lens[] = {33, 65, 130, 260, 520, 700, 1030, 1100};
    static const int heads[][3] = {{1, 1, 1}, {2, 2, 2}, {4, 2, 2},
                                   {4, 1, 1}, {6, 3, 2}, {8, 1, 1}};
    static const int dims[] = {4, 8, 16, 17, 40, 64};
    uint64_t rng = check_seed * 17 + (uint64_t)index;
    const int *g = heads[check_below(&rng, 6)];
    problem p = {.attn = {.batch = 1 + check_below(&rng, 2),
                          .q_heads = g[0],
                          .k_heads = g[1],
                          .v_heads = g[2],
                          .qk_dim = dims[check_below(&rng, 6)],
                          .v_dim = dims[check_below(&rng, 6)],
                          .backward = 1},
                 .with = {.lse = 1, .clean = 1, .dlse = 1}};
    int len = lens[index % 8] + check_below(&rng, 3);
    p.attn.q_len = p.attn.kv_len = len;
    p.attn.mask = index % 3 ? PH_MASK_CAUSAL : PH_MASK_BAND;
    p.attn.band_left = check_below(&rng, len);
    p.attn.dtype = (ph_dtype)(index % 5 < 3 ? 0 : index % 5 - 2);
    p.with.sink = check_below(&rng, 2);
    p.with.alibi = check_below(&rng, 3) == 0;
    p.attn.softcap = check_below(&rng, 4) ? 0 : 10;
    problem_build(&p, (uint64_t)index);
    FOR_EACH_ISA(isa)
    {
        if (!strcmp(*isa, "ref") && (index % 8 > 2 || skip_isa(*isa, index))) continue;
        ph_ctx *ctx = need_ctx(*isa);
        const char *why = refused(ctx, drive_backward(ctx, &p));
        int most = index % 4 == 0 ? 1 : index % 4 == 1 ? 5 : index % 4 == 2 ? 64 : 300;
        for (int first = 0; first < len && !why;) {
            int count = 1 + check_below(&rng, most);
            if (first + count > len) count = len - first;
            /* One token at a time is long: begin near the end, behind a large cache. */
            if (most == 1 && first == 0 && len > 80) first = len - 70;
            why = one_chunk(ctx, &p, first, count, check_below(&rng, 8));
            first += count;
        }
        sweep_note("chunks", index, *isa, &p, why);
    }
    problem_free(&p);
}

static void chunks(void)
{
    sweep_begin();
    for (int index = 0; index < 48 / CASES_SLOW; index++)
        if (!left_out(index)) chunk_case(index);
    sweep_end();
}

/* ---- after fork ------------------------------------------------------------------- */

/* The child computes with the ctx it inherited, the parent goes on; all have the bits. */
static void after_fork(void)
{
    problem p, q;
    if (CASES_TSAN) SKIP("the thread sanitizer starts no threads after fork");
    twins(&p, &q, 3, 800);
    ph_ctx *ctx = need_ctx(NULL);
    must(ctx, drive_backward(ctx, &p));
    for (int round = 0; round < 5; round++) {
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0, "fork failed");
        if (child == 0) {
            alarm(20); /* a pool that hangs ends here */
            int fine = drive_backward(ctx, &q) == PH_OK && !differs(&p, &q);
            ph_ctx *fresh = NULL;
            fine = fine && ph_open(&fresh, NULL) == PH_OK;
            problem_wipe(&q);
            fine = fine && drive_backward(fresh, &q) == PH_OK && !differs(&p, &q);
            ph_close(fresh);
            _exit(fine ? 0 : 1);
        }
        must(ctx, drive_backward(ctx, &q));
        const char *why = differs(&p, &q);
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(!why, "parent: %s", why);
        CHECK(status == 0, "the child ended with status %#x", (unsigned)status);
    }
    problem_free(&p);
    problem_free(&q);
}

/* ---- many at once ----------------------------------------------------------------- */

typedef struct worker {
    ph_ctx *ctx;
    problem p;
    const problem *right;
    const char *why;
} worker;

/* One plan, four rounds over it, with a smaller call in between. */
static void *work(void *arg)
{
    worker *w = arg;
    ph_plan *plan = NULL, *other = NULL;
    ph_attn small = {.batch = 1, .q_heads = 1, .q_len = 1, .kv_len = 1, .qk_dim = 1};
    float one[1] = {1}, out[1];
    ph_args args = {.q = one, .k = one, .v = one, .out = out};
    w->why = refused(w->ctx, ph_plan_create(&plan, w->ctx, &w->p.attn));
    if (!w->why) w->why = refused(w->ctx, ph_plan_create(&other, w->ctx, &small));
    for (int round = 0; round < 4 && !w->why; round++) {
        problem_wipe(&w->p);
        w->why = refused(w->ctx, ph_forward(plan, &w->p.args));
        if (!w->why) w->why = refused(w->ctx, ph_forward(other, &args));
        if (!w->why) w->why = refused(w->ctx, ph_backward(plan, &w->p.args, &w->p.grads));
        if (!w->why) w->why = differs(&w->p, w->right);
    }
    ph_plan_free(other);
    ph_plan_free(plan);
    return NULL;
}

/* Several ctx at the same time, on threads of the caller: they do not disturb each
   other. */
static void many_ctx(void)
{
    enum { WORKERS = 4 };
    static worker all[WORKERS];
    for (int index = 0; index < 30 / CASES_SLOW; index++) {
        problem right;
        pthread_t thread[WORKERS];
        if (left_out(index)) continue;
        for (int n = 0; n < WORKERS; n++) {
            ph_options options = {.threads = 1 + n % 3};
            twins(&all[n].p, &right, index, 900);
            if (n < WORKERS - 1) problem_free(&right);
            all[n].right = &right;
            CHECK(ph_open(&all[n].ctx, &options) == PH_OK, "no ctx %d", n);
        }
        ph_ctx *ctx = need_ctx(NULL);
        must(ctx, drive_backward(ctx, &right));
        for (int n = 0; n < WORKERS; n++) pthread_create(&thread[n], NULL, work, &all[n]);
        for (int n = 0; n < WORKERS; n++) pthread_join(thread[n], NULL);
        for (int n = 0; n < WORKERS; n++) {
            CHECK(!all[n].why, "case %d, ctx %d: %s", index, n, all[n].why);
            ph_close(all[n].ctx);
            problem_free(&all[n].p);
        }
        problem_free(&right);
    }
}

static const check_case cases[] = {
    {"threads", threads},
    {"instruction_sets", instruction_sets},
    {"own_loop", own_loop},
    {"company", company},
    {"chunks", chunks},
    {"after_fork", after_fork},
    {"many_ctx", many_ctx},
    {"gathered", gathered},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
