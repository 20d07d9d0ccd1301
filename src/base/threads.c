/*
 * threads.c - the thread pool.
 *
 * Worker w always runs lane w. A job is published by raising `generation` under the lock;
 * a worker that sees a new number copies the job under the same lock, so it can neither
 * miss a job nor run one twice. Both sides look at an atomic for a while before they
 * sleep: the loops of a call follow each other closely, lanes end at different times, and
 * waking a thread costs half of that while.
 */
#define _GNU_SOURCE
#include "base/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { SPINS = 2500 }; /* about 100 microseconds */

typedef struct worker {
    ph_pool *pool;
    int lane;
    pthread_t thread;
} worker;

struct ph_pool {
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    atomic_uint generation; /* number of jobs published so far */
    atomic_int pending;     /* workers that still run the current job */
    int stop;
    int lanes; /* of the current job */
    ph_task *task;
    void *arg;
    pid_t owner; /* process the threads live in; 0: not started */
    int threads; /* lanes at most */
    int started; /* workers running, lanes 1..started */
    worker workers[];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

size_t ph_pool_bytes(int threads)
{
    return sizeof(ph_pool) + (size_t)threads * sizeof(worker);
}

ph_pool *ph_pool_init(void *memory, int threads)
{
    ph_pool *pool = memory;
    memset(pool, 0, ph_pool_bytes(threads));
    pool->threads = threads;
    return pool;
}

/* Waits for a job newer than `seen`; 0 when the pool stops. */
static int next_job(ph_pool *pool, unsigned *seen, int *lanes, ph_task **task, void **arg)
{
    for (int i = 0; i < SPINS && atomic_load(&pool->generation) == *seen; i++) relax();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->generation) == *seen && !pool->stop)
        pthread_cond_wait(&pool->start, &pool->lock);
    *seen = atomic_load(&pool->generation);
    *lanes = pool->lanes, *task = pool->task, *arg = pool->arg;
    int go = !pool->stop;
    pthread_mutex_unlock(&pool->lock);
    return go;
}

static void *work(void *self)
{
    worker *w = self;
    ph_pool *pool = w->pool;
    unsigned seen = 0;
    int lanes;
    ph_task *task;
    void *arg;
    while (next_job(pool, &seen, &lanes, &task, &arg)) {
        if (w->lane >= lanes) continue;
        task(arg, w->lane);
        if (atomic_fetch_sub(&pool->pending, 1) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
    return NULL;
}

/* It is held for moments only: whoever finds it taken looks again before sleeping. */
static void init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
#ifdef __GLIBC__
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(lock, &kind);
    pthread_mutexattr_destroy(&kind);
}

/* Starts the workers with all signals blocked: those belong to the program's threads. */
static void start(ph_pool *pool)
{
    sigset_t all, old;
    init_lock(&pool->lock);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->done, NULL);
    atomic_store(&pool->generation, 0);
    atomic_store(&pool->pending, 0);
    pool->stop = 0;
    pool->owner = getpid();
    pool->started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int lane = 1; lane < pool->threads; lane++) {
        worker *w = &pool->workers[lane];
        w->pool = pool, w->lane = lane;
        if (pthread_create(&w->thread, NULL, work, w) != 0) break;
        pool->started = lane;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void ph_pool_stop(ph_pool *pool)
{
    if (pool->owner != getpid()) return; /* never started, or a child of fork */
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (int lane = 1; lane <= pool->started; lane++)
        pthread_join(pool->workers[lane].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->start);
    pthread_mutex_destroy(&pool->lock);
    pool->owner = 0;
}

static void publish(ph_pool *pool, int lanes, ph_task *task, void *arg)
{
    pthread_mutex_lock(&pool->lock);
    pool->lanes = lanes, pool->task = task, pool->arg = arg;
    atomic_store(&pool->pending, lanes - 1);
    atomic_fetch_add(&pool->generation, 1);
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_broadcast(&pool->start);
}

static void wait_for_workers(ph_pool *pool)
{
    for (int i = 0; i < SPINS && atomic_load(&pool->pending) > 0; i++) relax();
    if (atomic_load(&pool->pending) == 0) return;
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->pending) > 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void ph_pool_run(ph_pool *pool, int lanes, ph_task *task, void *arg)
{
    if (lanes > 1 && pool->owner != getpid()) start(pool);
    int together = lanes > 1 ? ph_min(lanes, pool->started + 1) : 1;
    if (together > 1) publish(pool, together, task, arg);
    task(arg, 0);
    for (int lane = together; lane < lanes; lane++) task(arg, lane);
    if (together > 1) wait_for_workers(pool);
}
