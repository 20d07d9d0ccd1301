/*
 * test_grad.c - random plans backward, on every instruction set, against the oracle.
 *
 * dq, dk, dv, dbias with its broadcast axes summed, dgate, dsink, all also through dlse;
 * gradients that are not wanted; gradients that are overwritten, not added to.
 *
 *     test_grad random --case=17 [--seed N]     one case alone
 */
#include <math.h>

#include "sweep.h"

static void random_case(int index)
{
    problem p;
    judge j;
    uint64_t judged = 0; /* results that are right: other instruction sets share them */
    case_size size = index % 60 == 7 ? CASE_LARGE : CASE_SMALL;
    case_draw(&p.attn, &p.with, check_seed + 100, index, size);
    p.attn.backward = 1;
    if (p.attn.dropout > 0) p.with.no_look = 0;
    problem_build(&p, check_seed * 1000033 + (uint64_t)index);
    FOR_EACH_ISA(isa)
    {
        if (skip_isa(*isa, index)) continue;
        ph_ctx *ctx = drive_ctx(*isa, 2);
        problem_wipe(&p);
        const char *why = ctx ? refused(ctx, drive_backward(ctx, &p)) : "no ctx";
        uint64_t found = problem_digest(&p);
        if (!why && found != judged) {
            judge_open(&j, &p);
            why = judge_backward(&j, &p);
            sweep_tolerance(index, &j);
            judge_close(&j);
            if (!why) judged = found;
        }
        sweep_note("random", index, *isa, &p, why);
    }
    problem_free(&p);
}

static void random_plans(void)
{
    sweep_begin();
    for (int index = 0; index < 1200 / CASES_SLOW; index++)
        if (!left_out(index)) random_case(index);
    sweep_end();
}

/* Rows whose scores all lie far beyond the cap: their derivatives are smaller than the
   last place of 1, and so are their gradients, which still have digits of their own. */
static void beyond_cap(void)
{
    static const ph_dtype types[] = {PH_F32, PH_F16, PH_BF16};
    sweep_begin();
    for (int index = 0; index < 30; index++) {
        problem p = {.attn = {.batch = 1,
                              .q_heads = 2,
                              .q_len = 20 + 60 * (index % 4),
                              .kv_len = 1 + index % 5,
                              .qk_dim = 32,
                              .dtype = types[index % 3],
                              .scale = 1.5f,
                              .softcap = 1,
                              .backward = 1},
                     .with = {.lse = 1}};
        judge j;
        if (left_out(index)) continue;
        problem_build(&p, check_seed * 1000 + (uint64_t)index);
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_backward(ctx, &p));
            judge_open(&j, &p);
            const char *why = judge_backward(&j, &p);
            sweep_tolerance(index, &j);
            sweep_note("beyond_cap", index, *isa, &p, why);
            judge_close(&j);
        }
        problem_free(&p);
    }
    sweep_end();
}

/* ---- parts ------------------------------------------------------------------------ */

static void both(problem *p, problem *q, int index)
{
    case_draw(&p->attn, &p->with, check_seed + 101, index, CASE_SMALL);
    p->attn.backward = 1;
    problem_build(p, (uint64_t)index);
    problem_twin(q, p, (uint64_t)index);
}

static const char *compare(const problem *p, const problem *q, unsigned wanted)
{
    const tensor *x[] = {&p->dq, &p->dk, &p->dv, &p->dbias, &p->dgate, &p->dsink};
    const tensor *y[] = {&q->dq, &q->dk, &q->dv, &q->dbias, &q->dgate, &q->dsink};
    static const char *const names[] = {"dq", "dk", "dv", "dbias", "dgate", "dsink"};
    static char text[100];
    for (int n = 0; n < 6; n++) {
        if (!(wanted >> n & 1) || tensor_same(x[n], y[n])) continue;
        snprintf(text, sizeof text, "%s has other bits when only some are wanted (%#x)",
                 names[n], wanted);
        return text;
    }
    return NULL;
}

/* Any subset of the gradients: each has the bits it has when all are wanted. */
static void not_wanted(void)
{
    sweep_begin();
    for (int index = 0; index < 240 / CASES_SLOW; index++) {
        problem p = {.slab_count = 0}, q = {.slab_count = 0};
        if (left_out(index)) continue;
        both(&p, &q, index);
        unsigned wanted = (unsigned)index * 37 % 64;
        void **pointers[] = {&q.grads.dq, &q.grads.dk, &q.grads.dv};
        float **floats[] = {&q.grads.dbias, &q.grads.dgate, &q.grads.dsink};
        for (int n = 0; n < 3; n++)
            if (!(wanted >> n & 1)) *pointers[n] = NULL;
        for (int n = 3; n < 6; n++)
            if (!(wanted >> n & 1)) *floats[n - 3] = NULL;
        FOR_EACH_ISA(isa)
        {
            if (skip_isa(*isa, index)) continue;
            ph_ctx *ctx = drive_ctx(*isa, 2);
            const char *why = refused(ctx, drive_backward(ctx, &p));
            if (!why) why = refused(ctx, drive_backward(ctx, &q));
            if (!why) why = compare(&p, &q, wanted);
            sweep_note("not_wanted", index, *isa, &p, why);
        }
        problem_free(&p);
        problem_free(&q);
    }
    sweep_end();
}

/* A second backward call writes the same gradients over the first. */
static void overwritten(void)
{
    sweep_begin();
    for (int index = 0; index < 60 / CASES_SLOW; index++) {
        problem p = {.slab_count = 0}, q = {.slab_count = 0};
        if (left_out(index)) continue;
        both(&p, &q, index);
        ph_ctx *ctx = drive_ctx(NULL, 2);
        const char *why = refused(ctx, drive_backward(ctx, &p));
        if (!why) why = refused(ctx, drive_backward(ctx, &q));
        if (!why) why = refused(ctx, drive_backward(ctx, &q));
        if (!why) why = compare(&p, &q, 63);
        sweep_note("overwritten", index, "best", &p, why);
        problem_free(&p);
        problem_free(&q);
    }
    sweep_end();
}

static const check_case cases[] = {
    {"random", random_plans},
    {"beyond_cap", beyond_cap},
    {"not_wanted", not_wanted},
    {"overwritten", overwritten},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
