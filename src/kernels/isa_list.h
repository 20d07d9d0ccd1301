/*
 * isa_list.h - one line per level, weakest first: its table, CPU features it needs.
 */
ISA(ref, PH_CPU_BASE)
#if defined(__x86_64__)
ISA(avx2, PH_CPU_AVX2)
ISA(avx512, PH_CPU_AVX512)
ISA(amx, PH_CPU_AVX512 | PH_CPU_AMX)
ISA(amx_f32, PH_CPU_AVX512 | PH_CPU_AMX)
#elif defined(__aarch64__)
ISA(neon, PH_CPU_NEON)
#endif
