/*
 * threads.h - a pool of threads with one function: run every lane once.
 *
 * A lane is the slot of a worker: its index is below the pool's thread count and no two
 * threads hold the same lane at the same time, so it indexes scratch memory.
 */
#ifndef PH_BASE_THREADS_H
#define PH_BASE_THREADS_H

#include "base/base.h"

typedef struct ph_pool ph_pool;

/* `memory` holds ph_pool_bytes(threads) bytes and stays with the caller. */
size_t ph_pool_bytes(int threads);
ph_pool *ph_pool_init(void *memory, int threads);
void ph_pool_stop(ph_pool *pool);

/* Calls task(arg, lane) for every lane in [0, lanes), lanes <= threads, and returns when
   all are done. Lane 0 runs on the calling thread. In a child of fork the threads are
   started anew; where threads cannot be started the caller runs every lane itself. */
void ph_pool_run(ph_pool *pool, int lanes, ph_task *task, void *arg);

#endif
