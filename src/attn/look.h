/*
 * look.h - stores the weights of a row and their summaries; both drivers use it.
 */
#ifndef PH_ATTN_LOOK_H
#define PH_ATTN_LOOK_H

#include "attn/rows.h"

/* Whether a call wants of rows a rectangle only. */
static inline int ph_look_only_rect(const ph_look_at *look)
{
    return look->rect && !look->weights && !look->entropy && !look->top_index;
}

/* The results of a row that is not computed or sees no key. */
void ph_look_clear(const ph_call *call, int batch, int head, int token);

/* Before the first and after the last weights of a row; index as ph_rows_index. */
void ph_look_begin(const ph_call *call, int64_t index);
void ph_look_end(const ph_call *call, int64_t index, double entropy);

/* n weights of row r from key j on; log holds their log2, -inf where hidden, and is
   overwritten. Columns from n up to a multiple of 16 hold weight 0. */
void ph_look_add(const ph_call *call, const ph_rows *rows, int r, const float *w,
                 float *log, int j, int n, double *entropy);

/* The rectangle of a look at a plan that is not joint, on a CPU, by the calling thread
   alone, which need not own the ctx. Nothing is checked. memory: lane_bytes[PH_DO_LOOK]
   of the plan, aligned to PH_ALIGN. */
void ph_look_rect(const ph_plan *plan, const ph_args *args, void *memory);

#endif
