/*
 * test_attn.c - random plans forward, on every instruction set, against the oracle.
 *
 * out, lse, weights, col_sum, entropy, top-k and rectangles; ph_look after the fact; the
 * caller's workspace; memory that ends or begins at an unreadable page.
 *
 *     test_attn random --case=17 [--seed N]     one case alone, said in full
 */
#include <math.h>

#include "sweep.h"

static void draw(problem *p, int index)
{
    case_size size = index % 50 == 7 ? CASE_LARGE : CASE_SMALL;
    case_draw(&p->attn, &p->with, check_seed, index, size);
    p->attn.backward = index % 10 == 3; /* may change what the plan chooses */
    problem_build(p, check_seed * 1000003 + (uint64_t)index);
}

/* ---- plain calls ------------------------------------------------------------------ */

static void random_case(int index)
{
    problem p;
    judge j;
    int opened = 0;
    uint64_t judged = 0; /* results that are right: other instruction sets share them */
    draw(&p, index);
    FOR_EACH_ISA(isa)
    {
        if (skip_isa(*isa, index)) continue;
        ph_ctx *ctx = drive_ctx(*isa, 2);
        problem_wipe(&p);
        const char *why = ctx ? refused(ctx, drive_forward(ctx, &p)) : "no ctx";
        uint64_t found = problem_digest(&p);
        if (!why && !opened++) judge_open(&j, &p);
        if (!why && found != judged) why = judge_forward(&j, &p);
        if (!why) judged = found;
        sweep_note("random", index, *isa, &p, why);
        if (opened) sweep_tolerance(index, &j);
    }
    if (opened) judge_close(&j);
    problem_free(&p);
}

static void random_plans(void)
{
    sweep_begin();
    int count = 2400 / CASES_SLOW;
    for (int index = 0; index < count; index++)
        if (!left_out(index)) random_case(index);
    sweep_end();
}

/* ---- looking later ---------------------------------------------------------------- */

/* ph_look gives the bits that the forward call gave, without v and out. */
static const char *look_later(ph_ctx *ctx, problem *p, problem *again)
{
    const char *why = refused(ctx, drive_forward(ctx, p));
    if (why) return why;
    for (int b = 0; b < p->lse.batch; b++)
        for (int h = 0; h < p->lse.heads; h++)
            for (int i = 0; i < p->lse.len; i++)
                tensor_copy_row(&again->lse, b, h, i, &p->lse, b, h, i);
    again->args.v = NULL;
    again->args.out = NULL;
    why = refused(ctx, drive_look(ctx, again));
    if (why) return why;
    tensor *x[] = {&p->weights, &p->col_sum, &p->entropy, &p->top_weight, &p->rect};
    tensor *y[] = {&again->weights, &again->col_sum, &again->entropy, &again->top_weight,
                   &again->rect};
    static const char *const names[] = {"weights differ", "col_sum differs",
                                        "entropy differs", "top_weight differs",
                                        "rect differs"};
    for (int n = 0; n < 5; n++)
        if (!tensor_same(x[n], y[n])) return names[n];
    if (p->top_index && memcmp(p->top_index->bytes, again->top_index->bytes,
                               p->top_index->count * p->top_index->size))
        return "top_index differs";
    if (!tensor_same(&p->lse, &again->lse)) return "ph_look changed lse";
    return problem_gaps(again) ? "something was written between the rows" : NULL;
}

static void look_separately(void)
{
    sweep_begin();
    for (int index = 0; index < 300 / CASES_SLOW; index++) {
        problem p = {.slab_count = 0}, again = {.slab_count = 0};
        if (left_out(index)) continue;
        case_draw(&p.attn, &p.with, check_seed + 1, index, CASE_SMALL);
        p.with.lse = p.with.col_sum = p.with.entropy = 1;
        p.with.no_look = 0;
        problem_build(&p, (uint64_t)index);
        problem_twin(&again, &p, (uint64_t)index);
        FOR_EACH_ISA(isa)
        {
            if (skip_isa(*isa, index)) continue;
            problem_wipe(&p);
            problem_wipe(&again);
            const char *why = look_later(drive_ctx(*isa, 2), &p, &again);
            sweep_note("look", index, *isa, &p, why);
        }
        problem_free(&p);
        problem_free(&again);
    }
    sweep_end();
}

/* ---- the caller's workspace ------------------------------------------------------- */

/* Exactly as many bytes as the plan says, then a pattern; same bits as without. */
static const char *with_workspace(ph_ctx *ctx, problem *p)
{
    ph_plan *plan = NULL;
    problem plain = {.attn = p->attn, .with = p->with};
    const char *why = refused(ctx, ph_plan_create(&plan, ctx, &p->attn));
    if (why) return why;
    problem_build(&plain, 5);
    problem_wipe(p);
    problem_wipe(&plain);
    size_t bytes = ph_plan_workspace(plan), whole = (bytes + 63) / 64 * 64 + 64;
    unsigned char *space = aligned_alloc(64, whole);
    memset(space, 0x7e, whole);
    why = refused(ctx, ph_forward(plan, &plain.args));
    p->args.workspace = space, p->args.workspace_size = bytes;
    if (!why) why = refused(ctx, ph_forward(plan, &p->args));
    p->args.workspace = NULL;
    if (!why && !tensor_same(&plain.out, &p->out))
        why = "out differs from the plain call";
    if (!why && !tensor_same(&plain.lse, &p->lse))
        why = "lse differs from the plain call";
    for (size_t n = bytes; !why && n < whole; n++)
        if (space[n] != 0x7e) why = "written behind the workspace";
    free(space);
    ph_plan_free(plan);
    problem_free(&plain);
    return why;
}

static void own_workspace(void)
{
    sweep_begin();
    for (int index = 0; index < 200 / CASES_SLOW; index++) {
        problem p;
        if (left_out(index)) continue;
        case_draw(&p.attn, &p.with, check_seed + 2, index, CASE_SMALL);
        problem_build(&p, 5);
        FOR_EACH_ISA(isa)
        {
            const char *why =
                skip_isa(*isa, index) ? NULL : with_workspace(drive_ctx(*isa, 2), &p);
            sweep_note("own_workspace", index, *isa, &p, why);
        }
        problem_free(&p);
    }
    sweep_end();
}

/* ---- unreadable neighbours -------------------------------------------------------- */

/* Reading or writing one element outside a tensor ends the program here. */
static void guard_pages(void)
{
    sweep_begin();
    for (int index = 0; index < 400 / CASES_SLOW; index++) {
        problem p;
        if (left_out(index)) continue;
        case_guard_pages = index % 2 ? 1 : -1;
        case_draw(&p.attn, &p.with, check_seed + 3, index, CASE_SMALL);
        p.attn.backward = 1;
        problem_build(&p, (uint64_t)index);
        case_guard_pages = 0;
        FOR_EACH_ISA(isa)
        {
            if (skip_isa(*isa, index)) continue;
            ph_ctx *ctx = drive_ctx(*isa, 2);
            const char *why = refused(ctx, drive_backward(ctx, &p));
            sweep_note("guard_pages", index, *isa, &p, why);
        }
        problem_free(&p);
    }
    sweep_end();
}

static const check_case cases[] = {
    {"random", random_plans},
    {"look", look_separately},
    {"own_workspace", own_workspace},
    {"guard_pages", guard_pages},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
