/*
 * probe.h - what this machine can do at most: multiply-adds per second, bytes per second.
 *
 * The two numbers that every speed is compared with. Both are measured, never looked up,
 * and with the instructions of the kernels in use: with --isa avx2 a share is one of what
 * AVX2 can do. Explain and bench use the same probes, so their shares mean the same.
 */
#ifndef PH_CLI_PROBE_H
#define PH_CLI_PROBE_H

#include <stddef.h>
#include <stdint.h>

typedef struct probe probe;

/* Buffers for measuring with up to `threads` threads and the instructions of the kernels
   called `isa` (ph_isa). The buffer that is read is larger than the last-level cache,
   unless memory is short. NULL: out of memory. */
probe *probe_open(int threads, const char *isa);
void probe_close(probe *p); /* accepts NULL */

/* GFLOP/s of fused multiply-adds in f32 and GB/s of reading memory, with the given number
   of threads, measured for about `seconds`. */
double probe_flops(probe *p, int threads, double seconds);
double probe_read(probe *p, int threads, double seconds);

const char *probe_isa(const probe *p);     /* what the probes run on: "avx512", ... */
size_t probe_buffer_bytes(const probe *p); /* size of the buffer that is read */

/* Seconds since some point in the past; never jumps. */
double probe_clock(void);

#endif
