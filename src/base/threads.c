/*
 * threads.c - the thread pool.
 *
 * Worker w always runs lane w. A job is published by one atomic word, `job`, that holds
 * its number and how many lanes it has: a worker whose lane takes part may then read
 * `task` and `arg`, because the caller waits for it before it publishes the next job; a
 * worker whose lane does not take part reads nothing else. No lock is on this path.
 *
 * The loops of a call, and calls, often follow each other closely, and waking a thread
 * costs as much as a short loop. So a worker spins for SPIN_NS after a job before it
 * sleeps, and the caller spins while it waits for the last lanes. With more threads than
 * CPUs nobody spins: the CPU belongs to a thread that has work.
 *
 * Some kernels wake a thread on the CPU of the one that wakes it, though another is idle,
 * and both then share that CPU for milliseconds. So a worker that sleeps is barred from
 * it before it is woken, and lifts that itself once it runs.
 */
#define _GNU_SOURCE
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"

enum {
    SPIN_NS = 50 * 1000,        /* a worker without a job */
    CALLER_SPIN_NS = 500 * 1000 /* the caller: its CPU has nothing else to do */
};

/* Where a thread sleeps. `asleep` is set before the condition is tested a last time, so
   whoever makes the condition true and then reads `asleep` 0 need not signal. */
typedef struct parking {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_int asleep;
} parking;

typedef struct pool_worker {
    _Alignas(PH_ALIGN) ph_pool *pool;
    int lane;
    pthread_t thread;
    parking parking;
    int barred;      /* from the CPU of its waker; under the lock of its parking */
    cpu_set_t usual; /* CPUs it has otherwise */
} pool_worker;

struct ph_pool {
    _Alignas(PH_ALIGN) atomic_ullong job; /* number * LANES + lanes of the newest job */
    ph_task *task;
    void *arg;
    atomic_int stop;
    _Alignas(PH_ALIGN) atomic_int pending; /* workers that still run the current job */
    parking caller;
    int spins;       /* 1: waiting threads spin before they sleep */
    int threads;     /* lanes at most */
    int started;     /* workers running, lanes 1..started */
    int running;     /* 1: the workers were started... */
    unsigned forked; /* ...when this process had this count of forks behind it */
    pool_worker workers[];
};

enum { LANES = 1 << 16 }; /* above the most threads of a pool */

/* ---- fork ---- */

/* A child of fork has none of its parent's threads. Process ids do not tell: a child that
   is the first of a pid namespace has the id 1, as its parent may have. */
static atomic_uint forks;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

static int is_running(const ph_pool *pool)
{
    return pool->running && pool->forked == atomic_load(&forks);
}

/* ---- waiting ---- */

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The condition a thread waits for. */
typedef int condition(ph_pool *pool, unsigned long long seen);

static int has_job(ph_pool *pool, unsigned long long seen)
{
    return atomic_load(&pool->job) != seen || atomic_load(&pool->stop);
}

static int all_done(ph_pool *pool, unsigned long long seen)
{
    (void)seen;
    return atomic_load(&pool->pending) == 0;
}

/* A pause takes 10 to 140 cycles, depending on the CPU, so the clock ends the spin. */
static int spin(ph_pool *pool, condition *holds, unsigned long long seen, int64_t limit)
{
    enum { POLLS = 32 }; /* between two readings of the clock */
    if (holds(pool, seen)) return 1;
    if (!pool->spins) return 0;
    int64_t end = now_ns() + limit;
    do {
        for (int i = 0; i < POLLS; i++) {
            if (holds(pool, seen)) return 1;
            relax();
        }
    } while (now_ns() < end);
    return 0;
}

static void park(ph_pool *pool, parking *at, condition *holds, unsigned long long seen)
{
    pthread_mutex_lock(&at->lock);
    atomic_store(&at->asleep, 1);
    while (!holds(pool, seen)) pthread_cond_wait(&at->wake, &at->lock);
    atomic_store(&at->asleep, 0);
    pthread_mutex_unlock(&at->lock);
}

static void unpark(parking *at)
{
    if (!atomic_load(&at->asleep)) return;
    pthread_mutex_lock(&at->lock);
    pthread_cond_signal(&at->wake);
    pthread_mutex_unlock(&at->lock);
}

static void init_parking(parking *at)
{
    pthread_mutex_init(&at->lock, NULL);
    pthread_cond_init(&at->wake, NULL);
    atomic_store(&at->asleep, 0);
}

static void destroy_parking(parking *at)
{
    pthread_cond_destroy(&at->wake);
    pthread_mutex_destroy(&at->lock);
}

/* ---- workers ---- */

/* Before a sleeping worker is woken. One that has no other CPU is left alone, and so are
   all where the kernel has more CPUs than a cpu_set_t. */
static void bar_from_this_cpu(pool_worker *w)
{
    const int cpu = sched_getcpu();
    cpu_set_t others;
    if (cpu < 0 || cpu >= CPU_SETSIZE || w->barred ||
        pthread_getaffinity_np(w->thread, sizeof w->usual, &w->usual) != 0)
        return;
    others = w->usual;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) == 0 || CPU_EQUAL(&others, &w->usual)) return;
    w->barred = pthread_setaffinity_np(w->thread, sizeof others, &others) == 0;
}

static void lift_bar(pool_worker *w)
{
    if (!w->barred) return;
    pthread_setaffinity_np(w->thread, sizeof w->usual, &w->usual);
    w->barred = 0;
}

static void unpark_worker(pool_worker *w)
{
    parking *at = &w->parking;
    if (!atomic_load(&at->asleep)) return;
    pthread_mutex_lock(&at->lock);
    if (atomic_load(&at->asleep) && w->pool->spins) bar_from_this_cpu(w);
    pthread_cond_signal(&at->wake);
    pthread_mutex_unlock(&at->lock);
}

/* Waking costs a system call each, so lanes share it as a binary tree: lane n wakes
   2n + 1 and 2n + 2. */
static void unpark_children(ph_pool *pool, int lane, int lanes)
{
    for (int child = 2 * lane + 1; child <= 2 * lane + 2; child++)
        if (child < lanes) unpark_worker(&pool->workers[child]);
}

static void *work(void *self)
{
    pool_worker *w = self;
    ph_pool *pool = w->pool;
    unsigned long long seen = 0;
    for (;;) {
        if (!spin(pool, has_job, seen, SPIN_NS)) {
            park(pool, &w->parking, has_job, seen);
            lift_bar(w);
        }
        if (atomic_load(&pool->stop)) return NULL;
        seen = atomic_load(&pool->job);
        int lanes = (int)(seen % LANES);
        if (w->lane >= lanes) continue;
        unpark_children(pool, w->lane, lanes);
        pool->task(pool->arg, w->lane);
        if (atomic_fetch_sub(&pool->pending, 1) == 1) unpark(&pool->caller);
    }
}

/* Starts the workers with all signals blocked: those belong to the program's threads. */
static void start(ph_pool *pool)
{
    sigset_t all, old;
    pthread_once(&fork_once, watch_forks);
    atomic_store(&pool->job, 0);
    atomic_store(&pool->pending, 0);
    atomic_store(&pool->stop, 0);
    init_parking(&pool->caller);
    pool->spins = pool->threads <= ph_cpu_count();
    pool->running = 1;
    pool->forked = atomic_load(&forks);
    pool->started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int lane = 1; lane < pool->threads; lane++) {
        pool_worker *w = &pool->workers[lane];
        w->pool = pool, w->lane = lane, w->barred = 0;
        init_parking(&w->parking);
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            destroy_parking(&w->parking);
            break;
        }
        pool->started = lane;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- the pool ---- */

size_t ph_pool_bytes(int threads)
{
    return sizeof(ph_pool) + (size_t)threads * sizeof(pool_worker);
}

ph_pool *ph_pool_init(void *memory, int threads)
{
    ph_pool *pool = memory;
    memset(pool, 0, ph_pool_bytes(threads));
    pool->threads = threads;
    return pool;
}

void ph_pool_stop(ph_pool *pool)
{
    if (!is_running(pool)) return; /* never started, or in a child of fork */
    atomic_store(&pool->stop, 1);
    for (int lane = 1; lane <= pool->started; lane++)
        unpark(&pool->workers[lane].parking);
    for (int lane = 1; lane <= pool->started; lane++) {
        pthread_join(pool->workers[lane].thread, NULL);
        destroy_parking(&pool->workers[lane].parking);
    }
    destroy_parking(&pool->caller);
    pool->running = 0;
}

static void publish(ph_pool *pool, int lanes, ph_task *task, void *arg)
{
    unsigned long long number = atomic_load(&pool->job) / LANES + 1;
    pool->task = task, pool->arg = arg;
    atomic_store(&pool->pending, lanes - 1);
    atomic_store(&pool->job, number * LANES + (unsigned)lanes);
    unpark_children(pool, 0, lanes);
}

static void wait_for_workers(ph_pool *pool)
{
    if (!spin(pool, all_done, 0, CALLER_SPIN_NS)) park(pool, &pool->caller, all_done, 0);
}

void ph_pool_run(ph_pool *pool, int lanes, ph_task *task, void *arg)
{
    if (lanes > 1 && !is_running(pool)) start(pool);
    int together = lanes > 1 ? ph_min(lanes, pool->started + 1) : 1;
    if (together > 1) publish(pool, together, task, arg);
    task(arg, 0);
    for (int lane = together; lane < lanes; lane++) task(arg, lane);
    if (together > 1) wait_for_workers(pool);
}
