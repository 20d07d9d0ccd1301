/*
 * test_refused.c - calls that must be refused: ph_forward, ph_backward and ph_look with a
 * missing pointer, a wrong length or a forbidden number. The right code, a sentence that
 * names the field, and not one byte of any output changed.
 */
#include <math.h>

#include "sweep.h"

/* A call with every tensor there is. */
static void full(problem *p)
{
    problem made = {.attn = {.batch = 2,
                             .q_heads = 4,
                             .k_heads = 2,
                             .v_heads = 1,
                             .q_len = 9,
                             .kv_len = 13,
                             .qk_dim = 8,
                             .v_dim = 6,
                             .bias = {2, 4, 9},
                             .visible = {1, 1, 9},
                             .gate = PH_GATE_ROW,
                             .backward = 1},
                    .with = {.lse = 1,
                             .gate = 1,
                             .sink = 1,
                             .alibi = 1,
                             .q_lens = 1,
                             .kv_lens = 1,
                             .dlse = 1,
                             .clean = 1,
                             .weights = 1,
                             .col_sum = 1,
                             .entropy = 1,
                             .top_k = 3,
                             .rect = 1}};
    *p = made;
    problem_build(p, 6);
}

typedef enum call { FORWARD, BACKWARD, LOOK } call;
static const char *const call_names[] = {"ph_forward", "ph_backward", "ph_look"};

static ph_status run(const ph_plan *plan, problem *p, call which)
{
    if (which == FORWARD) return ph_forward(plan, &p->args);
    if (which == LOOK) return ph_look(plan, &p->args);
    return ph_backward(plan, &p->args, &p->grads);
}

/* Makes p's call on a ctx and expects this code, this word, and no change. */
static void refuse(ph_ctx *ctx, problem *p, call which, ph_status code, ph_status or_code,
                   const char *word)
{
    ph_plan *plan = NULL;
    must(ctx, ph_plan_create(&plan, ctx, &p->attn));
    problem_wipe(p);
    ph_status status = run(plan, p, which);
    ph_plan_free(plan);
    CHECK(status == code || status == or_code,
          "%s with a bad %s: status \"%s\", expected \"%s\" (%s)", call_names[which],
          word, ph_status_text(status), ph_status_text(code), ph_error(ctx));
    CHECK(strstr(ph_error(ctx), word), "%s: \"%s\" does not name %s", call_names[which],
          ph_error(ctx), word);
    CHECK(problem_untouched(p), "%s with a bad %s wrote into an output",
          call_names[which], word);
}

/* ---- pointers --------------------------------------------------------------------- */

typedef struct needed {
    size_t field; /* in ph_args */
    const char *name;
    int forward, backward, look; /* needed by that call */
} needed;

static const needed pointers[] = {
    {offsetof(ph_args, q), "q", 1, 1, 1},
    {offsetof(ph_args, k), "k", 1, 1, 1},
    {offsetof(ph_args, v), "v", 1, 1, 0},
    {offsetof(ph_args, out), "out", 1, 1, 0},
    {offsetof(ph_args, lse), "lse", 0, 1, 1},
    {offsetof(ph_args, bias), "bias", 1, 1, 1},
    {offsetof(ph_args, look), "look", 0, 0, 1},
    {offsetof(ph_args, visible), "visible", 1, 1, 1},
};

static void missing_pointers(void)
{
    for (size_t n = 0; n < sizeof pointers / sizeof *pointers; n++) {
        const int wants[] = {pointers[n].forward, pointers[n].backward, pointers[n].look};
        for (int c = FORWARD; c <= LOOK; c++) {
            problem p;
            if (!wants[c]) continue;
            full(&p);
            memset((char *)&p.args + pointers[n].field, 0, sizeof(void *));
            refuse(need_ctx(NULL), &p, (call)c, PH_BAD_ARGUMENT, PH_BAD_ARGUMENT,
                   pointers[n].name);
            problem_free(&p);
        }
    }
    problem p;
    full(&p);
    p.grads.dout = NULL;
    refuse(need_ctx(NULL), &p, BACKWARD, PH_BAD_ARGUMENT, PH_BAD_ARGUMENT, "dout");
    problem_free(&p);
}

static void missing_structs(void)
{
    problem p;
    ph_plan *plan = NULL;
    ph_ctx *ctx = need_ctx(NULL);
    full(&p);
    must(ctx, ph_plan_create(&plan, ctx, &p.attn));
    CHECK(ph_forward(plan, NULL) == PH_BAD_ARGUMENT, "ph_forward without args");
    CHECK(ph_forward(NULL, &p.args) == PH_BAD_ARGUMENT, "ph_forward without plan");
    CHECK(ph_backward(plan, NULL, &p.grads) == PH_BAD_ARGUMENT,
          "ph_backward without args");
    CHECK(ph_backward(plan, &p.args, NULL) == PH_BAD_ARGUMENT,
          "ph_backward without grads");
    CHECK(ph_backward(NULL, &p.args, &p.grads) == PH_BAD_ARGUMENT,
          "ph_backward without plan");
    CHECK(ph_look(plan, NULL) == PH_BAD_ARGUMENT, "ph_look without args");
    CHECK(ph_look(NULL, &p.args) == PH_BAD_ARGUMENT, "ph_look without plan");
    CHECK(problem_untouched(&p), "an output was written");
    ph_plan_free(plan);
    problem_free(&p);
}

/* Tensors the plan does not know, gradients of tensors that were not given. */
static void too_many(void)
{
    static float number[4];
    static uint8_t shown[4];
    ph_ctx *ctx = need_ctx(NULL);
    for (int way = 0; way < 6; way++) {
        static const char *const words[] = {"bias",  "visible", "dbias",
                                            "dgate", "dsink",   "backward"};
        problem p = {.attn = {.batch = 1,
                              .q_heads = 1,
                              .q_len = 2,
                              .kv_len = 2,
                              .qk_dim = 2,
                              .backward = way != 5},
                     .with = {.lse = 1}};
        problem_build(&p, 1);
        ph_status other = way == 5 ? PH_UNSUPPORTED : PH_BAD_ARGUMENT;
        if (way == 0) p.args.bias = number;
        if (way == 1) p.args.visible = shown;
        if (way == 2) p.grads.dbias = number;
        if (way == 3) p.grads.dgate = number;
        if (way == 4) p.grads.dsink = number;
        if (way == 5) p.grads.dout = p.args.q;
        refuse(ctx, &p, way < 2 ? FORWARD : BACKWARD, PH_BAD_ARGUMENT, other, words[way]);
        problem_free(&p);
    }
}

/* ---- lengths and places ----------------------------------------------------------- */

static void lengths(void)
{
    static const int wrong[] = {-1, 1, 1000000, -2147483647};
    for (int c = FORWARD; c <= LOOK; c++)
        for (int n = 0; n < 4; n++)
            for (int which = 0; which < 2; which++) {
                problem p;
                full(&p);
                int full_len = which ? p.attn.kv_len : p.attn.q_len;
                int32_t *lens = which ? p.kv_lens : p.q_lens;
                lens[1] = wrong[n] == 1 ? full_len + 1 : wrong[n];
                refuse(need_ctx(NULL), &p, (call)c, PH_BAD_SHAPE, PH_BAD_SHAPE,
                       which ? "kv_lens" : "q_lens");
                problem_free(&p);
            }
}

static void places(void)
{
    for (int way = 0; way < 9; way++)
        for (int c = FORWARD; c <= LOOK; c += LOOK) {
            problem p;
            full(&p);
            ph_look_at *l = &p.look;
            l->rect_batch = l->rect_head = l->row0 = l->col0 = 0;
            l->rows = l->cols = 1;
            if (way == 0) l->rect_batch = 2;
            if (way == 1) l->rect_batch = -1;
            if (way == 2) l->rect_head = 4;
            if (way == 3) l->row0 = 9;
            if (way == 4) l->rows = -1;
            if (way == 5) l->cols = 14;
            if (way == 6) l->col0 = -1;
            if (way == 7) l->rows = 2147483647;
            if (way == 8) l->top_k = -1;
            refuse(need_ctx(NULL), &p, (call)c, PH_BAD_SHAPE, PH_BAD_ARGUMENT,
                   way == 8 ? "top_k" : "rect");
            problem_free(&p);
        }
}

static void workspace(void)
{
    for (int c = FORWARD; c <= LOOK; c++) {
        problem p;
        full(&p);
        char *space = aligned_alloc(64, 1 << 22);
        p.args.workspace = space + 8;
        refuse(need_ctx(NULL), &p, (call)c, PH_BAD_ARGUMENT, PH_BAD_ARGUMENT,
               "workspace");
        free(space);
        problem_free(&p);
    }
}

/* One byte less than ph_plan_workspace: refused, and the workspace is not touched. */
static void small_workspace(void)
{
    for (int c = FORWARD; c <= LOOK; c++) {
        problem p;
        ph_plan *plan = NULL;
        full(&p);
        must(need_ctx(NULL), ph_plan_create(&plan, need_ctx(NULL), &p.attn));
        size_t least = ph_plan_workspace(plan), whole = (least + 63) / 64 * 64;
        ph_plan_free(plan);
        unsigned char *space = aligned_alloc(64, whole);
        memset(space, 0x7e, whole);
        p.args.workspace = space, p.args.workspace_size = least - 1;
        refuse(need_ctx(NULL), &p, (call)c, PH_BAD_ARGUMENT, PH_BAD_ARGUMENT,
               "workspace_size");
        for (size_t i = 0; i < whole; i++) CHECK(space[i] == 0x7e, "byte %zu changed", i);
        free(space);
        problem_free(&p);
    }
}

/* ---- numbers that a checked ctx refuses ------------------------------------------- */

static void forbidden_numbers(void)
{
    ph_ctx *ctx = NULL;
    ph_options options = {.checked = 1, .threads = 2};
    CHECK(ph_open(&ctx, &options) == PH_OK, "no checked ctx");
    for (int c = FORWARD; c <= LOOK; c++)
        for (int way = 0; way < 5; way++) {
            static const char *const words[] = {"bias", "bias", "gate", "sink", "alibi"};
            problem p;
            full(&p);
            tensor *t = way < 2    ? &p.bias
                        : way == 2 ? &p.gate
                        : way == 3 ? &p.sink
                                   : &p.alibi;
            tensor_set(t, t->batch - 1, t->heads - 1, t->len - 1, t->dim - 1,
                       way == 1 ? INFINITY : (double)NAN);
            if (way == 2 && c == LOOK) tensor_set_row(t, 0, 0, 0, (double)NAN);
            refuse(ctx, &p, (call)c, PH_BAD_VALUE, PH_BAD_VALUE, words[way]);
            problem_free(&p);
        }
    ph_close(ctx);
}

/* What a checked ctx allows: -inf in the bias, everything in hidden keys. */
static void allowed_numbers(void)
{
    ph_ctx *ctx = NULL;
    ph_options options = {.checked = 1};
    CHECK(ph_open(&ctx, &options) == PH_OK, "no checked ctx");
    problem p;
    full(&p);
    tensor_set_row(&p.bias, 0, 0, 0, -INFINITY);
    tensor_set_row(&p.k, 0, 0, 0, (double)NAN);
    tensor_set(&p.sink, 0, 0, 0, 0, -INFINITY);
    must(ctx, drive_backward(ctx, &p));
    problem_free(&p);
    ph_close(ctx);
}

/* A refused call leaves the ctx as it was: the next one works, with the same bits. */
static void goes_on(void)
{
    ph_ctx *ctx = need_ctx(NULL);
    problem p, q;
    full(&p);
    full(&q);
    must(ctx, drive_backward(ctx, &p));
    int32_t keep = q.kv_lens[0];
    q.kv_lens[0] = -5;
    refuse(ctx, &q, FORWARD, PH_BAD_SHAPE, PH_BAD_SHAPE, "kv_lens");
    q.kv_lens[0] = keep;
    must(ctx, drive_backward(ctx, &q));
    CHECK(tensor_same(&p.out, &q.out) && tensor_same(&p.dk, &q.dk),
          "other bits afterwards");
    problem_free(&p);
    problem_free(&q);
}

static const check_case cases[] = {
    {"missing_pointers", missing_pointers},
    {"missing_structs", missing_structs},
    {"too_many", too_many},
    {"lengths", lengths},
    {"places", places},
    {"workspace", workspace},
    {"small_workspace", small_workspace},
    {"forbidden_numbers", forbidden_numbers},
    {"allowed_numbers", allowed_numbers},
    {"goes_on", goes_on},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
