/*
 * neon.c - the kernels for NEON on aarch64.
 */
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/sink.h"

#if defined(__aarch64__)
#include "kernels/vec_neon.h"

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

#define TABLE ph_kernels_neon
#define NAME "neon"
#define VECTORS NAME
#include "kernels/tmpl_table.h"
#endif
