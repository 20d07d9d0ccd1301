/*
 * test_runtime.c - what surrounds a call: fork, several threads on one ctx, and the
 * floating-point mode of the caller.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/ctx.h"
#include "base/threads.h"
#include "layer_bed.h"
#include "polyhead_model.h"
#include "sweep.h"

/* Two problems with the same elements, large enough for several threads. */
static void twins(problem *p, problem *q)
{
    int items, number = 3;
    do {
        case_draw(&p->attn, &p->with, check_seed, number++, CASE_SMALL);
        items = p->attn.batch * (p->attn.k_heads ? p->attn.k_heads : p->attn.q_heads);
    } while (items < 2 || !p->attn.q_len || !p->attn.kv_len);
    p->attn.backward = 1;
    q->attn = p->attn;
    q->with = p->with;
    problem_build(p, 3);
    problem_build(q, 3);
}

static int same(const problem *p, const problem *q)
{
    return tensor_same(&p->out, &q->out) && tensor_same(&p->lse, &q->lse) &&
           tensor_same(&p->dq, &q->dq) && tensor_same(&p->dk, &q->dk) &&
           tensor_same(&p->dv, &q->dv);
}

/* ---- fork ------------------------------------------------------------------------- */

/* A pool that hangs ends here; process 1 of a namespace dies of no signal by itself. */
static void give_up(int signal)
{
    (void)signal;
    _exit(99);
}

static void limit_time(unsigned seconds)
{
    signal(SIGALRM, give_up);
    alarm(seconds);
}

/* 0 if the ctx of the parent computes the right bits in this child. */
static int child(ph_ctx *ctx, problem *q, const problem *right)
{
    limit_time(20);
    problem_wipe(q);
    return !(drive_backward(ctx, q) == PH_OK && same(q, right));
}

static int wait_for(pid_t pid)
{
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

/* Process 1 of a pid namespace computes, and so does its child, process 1 of another. */
static int two_namespaces(problem *p, problem *q)
{
    limit_time(30);
    ph_options options = {.threads = 3};
    ph_ctx *ctx = NULL;
    if (getpid() != 1 || ph_open(&ctx, &options) != PH_OK) return 10;
    if (drive_backward(ctx, p) != PH_OK) return 11;
    if (unshare(CLONE_NEWPID)) return 12;
    pid_t pid = fork();
    if (pid < 0) return 13;
    if (pid == 0) _exit(getpid() == 1 ? child(ctx, q, p) : 14);
    int status = wait_for(pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 15;
}

static void equal_process_ids(void)
{
    problem p, q;
    if (CASES_TSAN) SKIP("the thread sanitizer starts no threads after fork");
    twins(&p, &q);
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork failed");
    if (pid == 0) {
        if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID)) _exit(77);
        pid_t first = fork();
        if (first == 0) _exit(two_namespaces(&p, &q));
        int status = wait_for(first);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 16);
    }
    int status = wait_for(pid);
    problem_free(&p);
    problem_free(&q);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("this system allows no pid namespaces");
    CHECK(status == 0, "the children ended with status %#x", (unsigned)status);
}

/* A child of a child, and the parent goes on. */
static void plain_fork(void)
{
    problem p, q;
    if (CASES_TSAN) SKIP("the thread sanitizer starts no threads after fork");
    twins(&p, &q);
    ph_ctx *ctx = drive_ctx(NULL, 3);
    must(ctx, drive_backward(ctx, &p));
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork failed");
    if (pid == 0) {
        if (child(ctx, &q, &p)) _exit(1);
        pid_t next = fork();
        if (next == 0) _exit(child(ctx, &q, &p));
        _exit(wait_for(next) ? 2 : child(ctx, &q, &p));
    }
    must(ctx, drive_backward(ctx, &q));
    CHECK(same(&p, &q), "the parent has other bits");
    int status = wait_for(pid);
    CHECK(status == 0, "the children ended with status %#x", (unsigned)status);
    problem_free(&p);
    problem_free(&q);
}

/* ---- several threads on one ctx ---------------------------------------------------- */

/* A loop of the caller's that stands still until it is let go. */
typedef struct gate {
    sem_t inside, go;
    int closed;
} gate;

static void held_loop(void *user, int count, ph_task *task, void *arg)
{
    gate *g = user;
    if (g->closed) {
        g->closed = 0;
        sem_post(&g->inside);
        sem_wait(&g->go);
    }
    for (int i = 0; i < count; i++) task(arg, i);
}

typedef struct caller {
    ph_ctx *ctx;
    problem *p;
    gate *gate;
    ph_status status;
} caller;

static void *call_backward(void *arg)
{
    caller *c = arg;
    c->status = drive_backward(c->ctx, c->p);
    return NULL;
}

static void one_call_at_a_time(void)
{
    gate g = {.closed = 1};
    ph_options options = {.threads = 4, .parallel = held_loop, .user = &g};
    problem p, q;
    ph_ctx *ctx = NULL;
    ph_plan *plan = NULL, *other = (ph_plan *)&g;
    ph_layer *layer = (ph_layer *)&g;
    ph_layer_desc desc = {
        .model_dim = 8,
        .attn = {.batch = 1, .q_heads = 2, .q_len = 3, .kv_len = 3, .qk_dim = 4}};
    pthread_t thread;
    sem_init(&g.inside, 0, 0);
    sem_init(&g.go, 0, 0);
    twins(&p, &q);
    CHECK(ph_open(&ctx, &options) == PH_OK, "no ctx");
    must(ctx, ph_plan_create(&plan, ctx, &q.attn));
    caller c = {.ctx = ctx, .p = &p};
    pthread_create(&thread, NULL, call_backward, &c);
    sem_wait(&g.inside); /* the other thread is inside ph_forward */
    ph_status forward = ph_forward(plan, &q.args);
    ph_status backward = ph_backward(plan, &q.args, &q.grads);
    ph_status created = ph_plan_create(&other, ctx, &q.attn);
    ph_status made = ph_layer_create(&layer, ctx, &desc);
    int untouched = problem_untouched(&q);
    sem_post(&g.go);
    pthread_join(thread, NULL);
    CHECK(forward == PH_BUSY && backward == PH_BUSY && created == PH_BUSY &&
              made == PH_BUSY,
          "%d %d %d %d, expected PH_BUSY", forward, backward, created, made);
    CHECK(!other && !layer, "a refused call made something");
    CHECK(untouched, "a refused call wrote outputs");
    CHECK(strstr(ph_status_text(PH_BUSY), "another thread"), "no sentence");
    CHECK(c.status == PH_OK && !*ph_error(ctx), "the first call: %s", ph_error(ctx));
    must(ctx, drive_backward(ctx, &q)); /* and the ctx is free again */
    CHECK(same(&p, &q), "other bits");
    ph_plan_free(plan);
    ph_close(ctx);
    problem_free(&p);
    problem_free(&q);
}

/* Threads that try until they are let in: each gets the right bits. */
static void *try_again(void *arg)
{
    caller *c = arg;
    ph_plan *plan = NULL;
    while ((c->status = ph_plan_create(&plan, c->ctx, &c->p->attn)) == PH_BUSY)
        sched_yield();
    for (int i = 0; i < 5 && c->status == PH_OK; i++) {
        while ((c->status = ph_forward(plan, &c->p->args)) == PH_BUSY) sched_yield();
        if (c->status != PH_OK) break;
        while ((c->status = ph_backward(plan, &c->p->args, &c->p->grads)) == PH_BUSY)
            sched_yield();
    }
    ph_plan_free(plan);
    return NULL;
}

static void taking_turns(void)
{
    enum { CALLERS = 3 };
    ph_ctx *ctx = drive_ctx(NULL, 2);
    problem p[CALLERS], right;
    caller c[CALLERS];
    pthread_t thread[CALLERS];
    for (int n = 0; n < CALLERS; n++) {
        twins(&p[n], &right);
        if (n < CALLERS - 1) problem_free(&right);
        c[n] = (caller){.ctx = ctx, .p = &p[n]};
    }
    must(ctx, drive_backward(ctx, &right));
    for (int n = 0; n < CALLERS; n++) pthread_create(&thread[n], NULL, try_again, &c[n]);
    for (int n = 0; n < CALLERS; n++) pthread_join(thread[n], NULL);
    for (int n = 0; n < CALLERS; n++) {
        CHECK(c[n].status == PH_OK, "thread %d: %s", n, ph_status_text(c[n].status));
        CHECK(same(&p[n], &right), "thread %d: other bits", n);
        problem_free(&p[n]);
    }
    problem_free(&right);
}

/* ---- floating-point mode ---------------------------------------------------------- */

/* Rounding and flush-to-zero as no caller should have them; returns the control bits. */
#if defined(__x86_64__)
static unsigned mode_now(void)
{
    return __builtin_ia32_stmxcsr() & ~0x3fu; /* without the sticky flags */
}

static void upward_mode(void)
{
    __builtin_ia32_ldmxcsr(0x1f80 | 0x8040 | 0x4000); /* flush, zero, round upwards */
}

static void usual_mode(void)
{
    __builtin_ia32_ldmxcsr(0x1f80);
}
#else
static unsigned mode_now(void)
{
    return (unsigned)fegetround();
}

static void upward_mode(void)
{
    fesetround(FE_UPWARD);
}

static void usual_mode(void)
{
    fesetround(FE_TONEAREST);
}
#endif

/* Attention whose values and gradients are partly subnormal, twice. */
static void subnormal_twins(problem *p, problem *q)
{
    case_draw(&p->attn, &p->with, check_seed, 3, CASE_SMALL);
    p->attn.backward = 1, p->attn.dtype = PH_F32, p->with.v_gain = 3e-39f;
    q->attn = p->attn, q->with = p->with;
    problem_build(p, 3);
    problem_build(q, 3);
}

static void mode_of_attention(void)
{
    problem p, q;
    subnormal_twins(&p, &q);
    ph_ctx *ctx = need_ctx(NULL);
    must(ctx, drive_backward(ctx, &p));
    for (int threads = 1; threads <= 4; threads += 3) {
        ph_options options = {.threads = threads};
        ph_ctx *fresh = NULL;
        problem_wipe(&q);
        upward_mode(); /* workers are started in this mode too */
        unsigned before = mode_now();
        ph_status status = ph_open(&fresh, &options);
        if (status == PH_OK) status = drive_backward(fresh, &q);
        unsigned after = mode_now();
        usual_mode();
        must(fresh, status);
        CHECK(same(&p, &q), "%d threads: other bits than in the default mode", threads);
        CHECK(before == after, "mode %#x became %#x", before, after);
        problem_wipe(&q);
        must(fresh, drive_backward(fresh, &q)); /* the workers' mode of birth is gone */
        CHECK(same(&p, &q), "%d threads: other bits afterwards", threads);
        ph_close(fresh);
    }
    problem_free(&p);
    problem_free(&q);
}

/* Threads of the caller, whose mode is theirs. */
static void upward_loop(void *user, int count, ph_task *task, void *arg)
{
    (void)user;
    for (int i = 0; i < count; i++) {
        upward_mode();
        unsigned before = mode_now();
        task(arg, i);
        unsigned after = mode_now();
        usual_mode();
        CHECK(before == after, "mode %#x became %#x", before, after);
    }
}

static void mode_of_callers_threads(void)
{
    problem p, q;
    subnormal_twins(&p, &q);
    ph_ctx *ctx = need_ctx(NULL), *own;
    must(ctx, drive_backward(ctx, &p));
    ph_options options = {.threads = 4, .parallel = upward_loop};
    CHECK(ph_open(&own, &options) == PH_OK, "no ctx");
    must(own, drive_backward(own, &q));
    CHECK(same(&p, &q), "other bits on threads in another mode");
    ph_close(own);
    problem_free(&p);
    problem_free(&q);
}

static void mode_of_layers(void)
{
    ph_layer_desc desc = {.model_dim = 24,
                          .rope = PH_ROPE_HALF,
                          .rope_base = 10000,
                          .attn = {.batch = 2,
                                   .q_heads = 4,
                                   .v_heads = 2,
                                   .q_len = 19,
                                   .kv_len = 19,
                                   .qk_dim = 8,
                                   .v_dim = 16,
                                   .variant = "diff:depth=3",
                                   .backward = 1}};
    layer_bed right, b;
    must(need_ctx(NULL), layer_bed_make(&right, need_ctx(NULL), &desc, 5));
    must(right.ctx, layer_bed_run(&right));
    for (int threads = 1; threads <= 4; threads += 3) {
        ph_ctx *ctx = drive_ctx(NULL, threads);
        upward_mode();
        ph_layer *layer = NULL;
        ph_status made = ph_layer_create(&layer, ctx, &desc);
        usual_mode();
        must(ctx, made);
        must(ctx, layer_bed_make(&b, ctx, &desc, 5)); /* draws its elements as before */
        ph_layer_free(b.layer);
        b.layer = layer;
        upward_mode();
        ph_status status = layer_bed_run(&b);
        usual_mode();
        must(ctx, status);
        CHECK(!memcmp(b.out, right.out, b.out_count * sizeof(float)), "out differs");
        CHECK(!memcmp(b.dx, right.dx, b.x_count * sizeof(float)), "dx differs");
        for (int i = 0; i < b.params; i++)
            CHECK(!memcmp(b.dw[i], right.dw[i], b.count[i] * sizeof(float)),
                  "d%s differs", b.param[i]->name);
        layer_bed_free(&b);
    }
    layer_bed_free(&right);
}

/* Two steps of training; the loss of the second depends on every number of the first. */
static double train_two(int threads, void (*mode)(void))
{
    ph_train train;
    ph_trainer *t = NULL;
    ph_progress progress = {0};
    ph_ctx *ctx = drive_ctx(NULL, threads);
    must(ctx, ph_train_defaults(&train, "copy"));
    train.batch = 4;
    mode();
    ph_status status = ph_trainer_create(&t, ctx, &train);
    for (int i = 0; i < 2 && status == PH_OK; i++) status = ph_trainer_step(t, &progress);
    usual_mode();
    must(ctx, status);
    ph_trainer_free(t);
    return progress.loss;
}

static void mode_of_training(void)
{
    double right = train_two(1, usual_mode);
    for (int threads = 1; threads <= 4; threads += 3)
        CHECK(train_two(threads, upward_mode) == right, "%d threads: another loss",
              threads);
}

/* A thread that owns the ctx until it is let go. */
static void *own_ctx(void *arg)
{
    caller *c = arg;
    c->status = ph_ctx_enter(c->ctx);
    sem_post(&c->gate->inside);
    sem_wait(&c->gate->go);
    ph_ctx_leave(c->ctx, PH_OK);
    return NULL;
}

/* Calls on models are calls on their ctx. */
static void models_too(void)
{
    gate g = {0};
    ph_ctx *ctx = NULL;
    ph_model *model = NULL, *other = NULL;
    ph_reading *reading = NULL, *second = NULL;
    ph_sentences *sentences = NULL;
    pthread_t thread;
    ph_word word;
    int count;
    sem_init(&g.inside, 0, 0);
    sem_init(&g.go, 0, 0);
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    must(ctx, ph_model_embedded(&model, ctx));
    must(ctx, ph_reading_create(&reading, model, "the cat saw it", NULL));
    caller c = {.ctx = ctx, .gate = &g};
    pthread_create(&thread, NULL, own_ctx, &c);
    sem_wait(&g.inside);
    const ph_status busy[] = {ph_model_embedded(&other, ctx),
                              ph_model_read(&other, ctx, "none"),
                              ph_model_write(model, "/nonexistent/model"),
                              ph_model_split(model, "a", &word, 1, &count),
                              ph_reading_create(&second, model, "a", NULL),
                              ph_reading_vectors(reading, 0, 0, NULL, NULL, NULL, NULL),
                              ph_reading_gates(reading, NULL),
                              ph_reading_run(reading, NULL, 0),
                              ph_reading_links(reading, NULL),
                              ph_sentences_create(&sentences, ctx)};
    sem_post(&g.go);
    pthread_join(thread, NULL);
    CHECK(c.status == PH_OK, "the other thread did not get the ctx");
    for (size_t i = 0; i < sizeof busy / sizeof busy[0]; i++)
        CHECK(busy[i] == PH_BUSY, "call %zu: %s", i, ph_status_text(busy[i]));
    CHECK(!other && !second && !sentences, "a refused call made something");
    must(ctx, ph_reading_run(reading, NULL, 0));
    ph_reading_free(reading);
    ph_model_free(model);
    ph_close(ctx);
    sem_destroy(&g.inside);
    sem_destroy(&g.go);
}

/* ---- workers that slept ------------------------------------------------------------ */

typedef struct lane_cpus {
    int at[2];
    cpu_set_t may[2];
} lane_cpus;

static void note_cpus(void *arg, int lane)
{
    lane_cpus *c = arg;
    struct timespec begin, now;
    c->at[lane] = sched_getcpu();
    sched_getaffinity(0, sizeof c->may[lane], &c->may[lane]);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do { /* long enough for both to run at once */
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec <
             2000000);
}

/* A worker that is woken may use the CPUs it could use before, and mostly is on another
   than its caller. */
static void woken_workers(void)
{
    enum { TIMES = 20 };
    _Alignas(64) static char memory[1 << 16];
    cpu_set_t all;
    int shared = 0;
    CHECK(ph_pool_bytes(2) <= sizeof memory, "%zu bytes", ph_pool_bytes(2));
    ph_pool *pool = ph_pool_init(memory, 2);
    sched_getaffinity(0, sizeof all, &all);
    for (int n = 0; n < TIMES; n++) {
        lane_cpus c;
        ph_pool_run(pool, 2, note_cpus, &c);
        usleep(10000); /* longer than it spins */
        CHECK(CPU_EQUAL(&c.may[0], &all) && CPU_EQUAL(&c.may[1], &all),
              "a lane may use other CPUs than the process");
        shared += c.at[0] == c.at[1];
    }
    ph_pool_stop(pool);
    if (CPU_COUNT(&all) > 1 && shared)
        printf("    %d of %d shared a CPU\n", shared, TIMES);
}

static const check_case cases[] = {{"equal_process_ids", equal_process_ids},
                                   {"plain_fork", plain_fork},
                                   {"one_call_at_a_time", one_call_at_a_time},
                                   {"models_too", models_too},
                                   {"taking_turns", taking_turns},
                                   {"mode_of_attention", mode_of_attention},
                                   {"mode_of_callers_threads", mode_of_callers_threads},
                                   {"mode_of_layers", mode_of_layers},
                                   {"mode_of_training", mode_of_training},
                                   {"woken_workers", woken_workers},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
