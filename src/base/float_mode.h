/*
 * float_mode.h - the floating-point mode of a thread: rounding, flush-to-zero, traps.
 *
 * Results have the same bits whatever mode the caller is in, so everything is computed in
 * the default one: round to nearest, subnormals kept, no exception traps.
 */
#ifndef PH_BASE_FLOAT_MODE_H
#define PH_BASE_FLOAT_MODE_H

#include <stdint.h>

typedef uint64_t ph_float_mode;

#if defined(__x86_64__)

static inline void ph_float_mode_set(ph_float_mode mode)
{
    __builtin_ia32_ldmxcsr((unsigned)mode);
}

/* Switches to the default mode and returns the one before. */
static inline ph_float_mode ph_float_mode_default(void)
{
    ph_float_mode before = __builtin_ia32_stmxcsr();
    ph_float_mode_set(0x1f80);
    return before;
}

#elif defined(__aarch64__)

static inline void ph_float_mode_set(ph_float_mode mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}

static inline ph_float_mode ph_float_mode_default(void)
{
    ph_float_mode before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    ph_float_mode_set(0);
    return before;
}

#else

#include <fenv.h>

static inline void ph_float_mode_set(ph_float_mode mode)
{
    fesetround((int)mode);
}

static inline ph_float_mode ph_float_mode_default(void)
{
    ph_float_mode before = (ph_float_mode)fegetround();
    fesetround(FE_TONEAREST);
    return before;
}

#endif
#endif
