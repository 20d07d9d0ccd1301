/*
 * page_pack.c - the large arrays of a page: weights, vectors, value norms; page.h has the
 * layout. The description with their offsets is written by page_json.c.
 *
 * One head is in memory at a time, a block of rows of it as floats.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "io/io.h"
#include "view/page_parts.h"

enum { BLOCK = 1 << 18 }; /* weights read at once, or one row */

typedef struct packer {
    ph_page_parts *parts;
    const ph_report *report;
    int r, s, rows, keys;
    const ph_stack *stack;
    float *block;         /* (block_rows, keys) */
    float *top;           /* (plan.top) of the current row, descending */
    int *top_key;         /* (plan.top) */
    unsigned char *thumb; /* (side, side) */
    float *thumb_max;     /* (side, side) */
    int block_rows;
    /* Of the current head, in the order of page.h. */
    ph_bytes sums, base, digits, exact, cols, cells, high;
} packer;

/* ---- one row ---- */

static ph_status check_row(const packer *p, int layer, int head, int i, const float *w,
                           int seen)
{
    for (int j = 0; j < seen; j++)
        if (!(fabsf(w[j]) <= FLT_MAX))
            return ph_io_fail(p->parts->source->io, PH_BAD_VALUE,
                              "layer %d head %d: the weight of row %d and key %d is %s, "
                              "expected a finite number",
                              layer, head, i, j, isnan(w[j]) ? "NaN" : "infinite");
    return PH_OK;
}

/* The largest of a row into p->top, equal ones by key; returns how many there are. */
static int find_top(packer *p, const float *w, int seen)
{
    int found = 0, most = p->parts->plan.top;
    for (int j = 0; j < seen; j++) {
        int at = found;
        if (found == most && !(w[j] > p->top[most - 1])) continue;
        if (found == most) at--;
        for (; at > 0 && w[j] > p->top[at - 1]; at--) {
            p->top[at] = p->top[at - 1];
            p->top_key[at] = p->top_key[at - 1];
        }
        p->top[at] = w[j];
        p->top_key[at] = j;
        if (found < most) found++;
    }
    return found;
}

static void put_top(packer *p, const float *w, int seen)
{
    int found = find_top(p, w, seen);
    for (int i = 0; i < p->parts->plan.top; i++) {
        uint32_t key = i < found ? (uint32_t)p->top_key[i] : UINT32_MAX;
        ph_bytes_float(&p->exact, i < found ? p->top[i] : 0);
        if (p->parts->plan.col_bytes == 2)
            ph_bytes_u16(&p->cols, key & 0xffff);
        else
            ph_bytes_u32(&p->cols, key);
    }
}

static void put_sum(packer *p, const float *w, int seen)
{
    double sum = 0;
    for (int j = 0; j < seen; j++) sum += w[j];
    ph_bytes_float(&p->sums, (float)sum);
}

/* Decimals of a row whose weights span `reach`: those of the plan, fewer
   where 16 bits would not hold them, more where all weights are tiny. Up to 8, the
   products of a float and a power of ten are exact. */
static int choose_digits(int digits, double reach)
{
    double few = 5 * pow(10, digits - 2); /* values that a row should distinguish */
    while (reach * pow(10, digits) > 65000) digits--;
    while (reach > 0 && digits < 8 && reach * pow(10, digits + 1) <= few) digits++;
    return digits;
}

static void put_row_decimal(packer *p, const float *w, int seen)
{
    double lo = 0, hi = 0;
    for (int j = 0; j < seen; j++) {
        lo = w[j] < lo ? w[j] : lo;
        hi = w[j] > hi ? w[j] : hi;
    }
    int digits = choose_digits(p->parts->plan.digits, hi - lo);
    double unit = pow(10, digits), base = floor(lo * unit + 0.5);
    unsigned char byte = (unsigned char)digits;
    put_sum(p, w, seen);
    ph_bytes_u32(&p->base, (uint32_t)(int32_t)base);
    ph_bytes_add(&p->digits, &byte, 1);
    for (int j = 0; j < p->keys; j++) {
        unsigned n = j < seen ? (unsigned)(floor(w[j] * unit + 0.5) - base) : 0;
        unsigned char low = n & 255, high = (unsigned char)(n >> 8);
        ph_bytes_add(&p->cells, &low, 1);
        ph_bytes_add(&p->high, &high, 1);
    }
}

static void put_row_f32(packer *p, const float *w, int seen)
{
    for (int j = 0; j < p->keys; j++) ph_bytes_float(&p->cells, j < seen ? w[j] : 0);
}

static void put_row_top(packer *p, const float *w, int seen)
{
    put_sum(p, w, seen);
    put_top(p, w, seen);
}

/* Max-pooling: stripes stay visible, means would hide them. */
static void pool_row(packer *p, int i, const float *w, int seen)
{
    int side = p->parts->plan.side;
    int down = ph_min(p->rows, side), across = ph_min(p->keys, side);
    float *to = p->thumb_max + (int64_t)i * down / p->rows * across;
    for (int j = 0; j < seen; j++) {
        int64_t at = (int64_t)j * across / p->keys;
        if (w[j] > to[at]) to[at] = w[j];
    }
}

/* ---- one head ---- */

static ph_status pack_rows(packer *p, int layer, int head, int keep)
{
    static void (*const put[])(packer *, const float *,
                               int) = {[PH_PAGE_F32] = put_row_f32,
                                       [PH_PAGE_DECIMAL] = put_row_decimal,
                                       [PH_PAGE_TOP] = put_row_top};
    const ph_page_plan *plan = &p->parts->plan;
    for (int row0 = 0; row0 < p->rows; row0 += p->block_rows) {
        int rows = ph_min(p->block_rows, p->rows - row0);
        ph_status status =
            p->report->weights(p->report->user, p->s, layer, head, row0, rows, p->block);
        if (status)
            return ph_io_fail(p->parts->source->io, status,
                              "the weights of layer %d head %d could not be had", layer,
                              head);
        for (int i = 0; i < rows; i++) {
            const float *w = p->block + (size_t)i * (size_t)p->keys;
            int64_t limit = (int64_t)row0 + i + p->stack->q_offset + 1;
            int seen = !p->stack->causal ? p->keys
                       : limit < 0       ? 0
                                         : (int)(limit < p->keys ? limit : p->keys);
            PH_TRY(check_row(p, layer, head, row0 + i, w, seen));
            if (keep) put[plan->mode](p, w, seen);
            if (plan->side) pool_row(p, row0 + i, w, seen);
        }
    }
    return PH_OK;
}

static void align(ph_bytes *bytes)
{
    ph_bytes_zeros(bytes, (4 - bytes->count % 4) % 4);
}

static void move_part(ph_bytes *to, ph_bytes *from)
{
    ph_bytes_add(to, from->data, from->count);
    align(to);
    if (from->status) to->status = from->status;
    from->count = 0;
}

/* The arrays of a head in the order of page.h; empty ones take no bytes. */
static void finish_head(packer *p)
{
    ph_bytes *parts[] = {&p->sums, &p->base,  &p->digits, &p->exact,
                         &p->cols, &p->cells, &p->high};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        move_part(p->parts->blob, parts[i]);
}

static void put_thumb(packer *p)
{
    int side = p->parts->plan.side;
    int count = ph_min(p->rows, side) * ph_min(p->keys, side);
    float most = 0;
    for (int i = 0; i < count; i++)
        most = p->thumb_max[i] > most ? p->thumb_max[i] : most;
    for (int i = 0; i < count; i++)
        p->thumb[i] =
            (unsigned char)(most > 0 ? floorf(p->thumb_max[i] / most * 255) : 0);
    ph_bytes_float(p->parts->blob, most);
    ph_bytes_add(p->parts->blob, p->thumb, (size_t)count);
    align(p->parts->blob);
}

static ph_status pack_head(packer *p, int layer, int head)
{
    ph_page_parts *parts = p->parts;
    ph_page_place *place = ph_page_place_of(parts, p->r, p->s, layer, head);
    size_t entry = (size_t)(4 + parts->plan.col_bytes);
    size_t size = (size_t)p->rows * (4 + (size_t)parts->plan.top * entry);
    int keep = parts->plan.mode != PH_PAGE_TOP || size <= parts->plan.map_left;
    if (p->thumb_max)
        memset(p->thumb_max, 0,
               sizeof(float) * (size_t)(parts->plan.side * parts->plan.side));
    PH_TRY(pack_rows(p, layer, head, keep));
    if (keep) {
        place->map = (int64_t)parts->blob->count;
        if (parts->plan.mode == PH_PAGE_TOP) parts->plan.map_left -= size;
        finish_head(p);
    }
    if (parts->plan.side) {
        place->thumb = (int64_t)parts->blob->count;
        put_thumb(p);
    }
    return parts->blob->status;
}

/* ---- vectors ---- */

static ph_status pack_vectors(packer *p, int layer, int head)
{
    ph_page_parts *parts = p->parts;
    size_t dim = (size_t)p->stack->qk_dim;
    size_t q = dim * (size_t)p->rows, k = dim * (size_t)p->keys;
    if (dim == 0 || (q + k) * 4 > parts->plan.pair_left) return PH_OK;
    float *all = ph_io_alloc(parts->source->io, (q + k) * sizeof *all);
    if (!all) return ph_io_no_memory(parts->source->io, (q + k) * 4, "vectors");
    ph_status status =
        p->report->vectors(p->report->user, p->s, layer, head, all, all + q);
    if (status)
        ph_io_fail(parts->source->io, status,
                   "the vectors of layer %d head %d could not be had", layer, head);
    else {
        parts->plan.pair_left -= (q + k) * 4;
        ph_page_place_of(parts, p->r, p->s, layer, head)->vectors =
            (int64_t)parts->blob->count;
        for (size_t i = 0; i < q + k; i++) ph_bytes_float(parts->blob, all[i]);
    }
    ph_io_release(parts->source->io, all);
    return status;
}

/* ---- all heads of a stack ---- */

static ph_status take_memory(packer *p)
{
    const ph_io *io = p->parts->source->io;
    size_t keys = (size_t)ph_max(p->keys, 1), top = (size_t)p->parts->plan.top;
    size_t side = (size_t)(p->parts->plan.side * p->parts->plan.side);
    p->block_rows = ph_min(ph_max(p->rows, 1), ph_max(1, BLOCK / (int)keys));
    p->block = ph_io_alloc(io, (size_t)p->block_rows * keys * sizeof *p->block);
    p->top = ph_io_alloc(io, top * sizeof *p->top);
    p->top_key = ph_io_alloc(io, top * sizeof *p->top_key);
    p->thumb = ph_io_alloc(io, side);
    p->thumb_max = ph_io_alloc(io, side * sizeof *p->thumb_max);
    if (!p->block || !p->top || !p->top_key || !p->thumb || !p->thumb_max)
        return ph_io_no_memory(io, (size_t)p->block_rows * keys * sizeof *p->block,
                               "a block of weights");
    return PH_OK;
}

static void release_memory(packer *p)
{
    const ph_io *io = p->parts->source->io;
    ph_bytes *parts[] = {&p->sums, &p->base,  &p->digits, &p->exact,
                         &p->cols, &p->cells, &p->high};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) ph_bytes_free(parts[i]);
    ph_io_release(io, p->block);
    ph_io_release(io, p->top);
    ph_io_release(io, p->top_key);
    ph_io_release(io, p->thumb);
    ph_io_release(io, p->thumb_max);
}

static packer make_packer(ph_page_parts *parts, int r, int s)
{
    const ph_report *report = parts->source->reports[r];
    const ph_stack *stack = &report->stacks[s];
    ph_bytes none = {.io = parts->source->io};
    return (packer){.parts = parts,
                    .report = report,
                    .r = r,
                    .s = s,
                    .rows = report->axes[stack->q_axis].count,
                    .keys = report->axes[stack->k_axis].count,
                    .stack = stack,
                    .sums = none,
                    .base = none,
                    .digits = none,
                    .exact = none,
                    .cols = none,
                    .cells = none,
                    .high = none};
}

/* What is shown first, then heads with a label, then the others: beyond the budget
   the last ones are left out. */
static int rank_of(const ph_page_source *source, int r, int s, int layer, int head)
{
    const ph_stack *stack = &source->reports[r]->stacks[s];
    const ph_page *page = &source->page;
    if (s == page->stack && layer == page->layer && head == page->head) return 0;
    return stack->role && stack->role[layer * stack->heads + head] ? 1 : 2;
}

static ph_status pack_rank(packer *p, int rank,
                           ph_status (*pack)(packer *, int layer, int head))
{
    ph_status status = PH_OK;
    for (int i = 0; i < p->stack->layers * p->stack->heads && !status; i++) {
        int layer = i / p->stack->heads, head = i % p->stack->heads;
        if (p->stack->absent && p->stack->absent[i]) continue;
        if (rank_of(p->parts->source, p->r, p->s, layer, head) == rank)
            status = pack(p, layer, head);
    }
    return status;
}

static ph_status pack_stack(ph_page_parts *parts, int r, int s, int rank)
{
    packer p = make_packer(parts, r, s);
    ph_status status = take_memory(&p);
    if (!status) status = pack_rank(&p, rank, pack_head);
    if (!status) status = pack_rank(&p, rank, pack_vectors);
    release_memory(&p);
    return status;
}

static void pack_norms(ph_page_parts *parts, int r, int s)
{
    const ph_report *report = parts->source->reports[r];
    const ph_stack *stack = &report->stacks[s];
    size_t count = (size_t)stack->layers * (size_t)stack->heads *
                   (size_t)report->axes[stack->k_axis].count;
    if (!stack->value_norm || count * 4 > parts->plan.map_left) return;
    parts->norms[r][s] = (int64_t)parts->blob->count;
    for (size_t i = 0; i < count; i++) ph_bytes_float(parts->blob, stack->value_norm[i]);
}

ph_status ph_page_pack_arrays(ph_page_parts *parts)
{
    for (int rank = 0; rank < 3 && parts->plan.mode != PH_PAGE_LIVE; rank++)
        for (int r = 0; r < parts->source->count; r++)
            for (int s = 0; s < parts->source->reports[r]->stack_count; s++)
                PH_TRY(pack_stack(parts, r, s, rank));
    for (int r = 0; r < parts->source->count; r++)
        for (int s = 0; s < parts->source->reports[r]->stack_count; s++)
            pack_norms(parts, r, s);
    return parts->blob->status;
}
