/*
 * avx512.c - the kernels for AVX-512, and the same with AMX beside them.
 */
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/sink.h"

#if defined(__x86_64__)
#include "kernels/vec_avx512.h"

#include "kernels/tmpl_math.h"
#include "kernels/tmpl_gemm.h"
#include "kernels/tmpl_pack.h"
#include "kernels/tmpl_in_place.h"
#include "kernels/tmpl_rows.h"
#include "kernels/tmpl_lanes.h"
#include "kernels/tmpl_head.h"
#include "kernels/tmpl_head_back.h"
#include "kernels/tmpl_joint.h"
#include "kernels/tmpl_layer.h"
#include "kernels/tmpl_few_rows.h"
#include "kernels/tmpl_few_rows_t.h"

#define VECTORS "avx512"

#define TABLE ph_kernels_avx512
#define NAME VECTORS
#include "kernels/tmpl_table.h"
#undef TABLE
#undef NAME
#undef SCORES_IN_PLACE
#define SCORES_IN_PLACE scores_in_place_prefetched

#define TABLE ph_kernels_amx
#define NAME "amx"
#define BF16_PAIRS &ph_bf16_pairs_amx
#include "kernels/tmpl_table.h"
#undef TABLE
#undef NAME

#define TABLE ph_kernels_amx_f32
#define NAME "amx-f32"
#define F32_TILES 1
#include "kernels/tmpl_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
