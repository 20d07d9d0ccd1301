/*
 * cut.c - see cut.h.
 */
#include "attn/cut.h"

#include <string.h>

void ph_cut_take(const ph_plan *plan, ph_arena *arena, ph_work_cut *cut)
{
    size_t n = plan->attn.ragged ? (size_t)plan->attn.batch : 0;
    *cut = (ph_work_cut){0};
    if (!n) return;
    cut->order = ph_arena_take(arena, n * sizeof *cut->order);
    cut->starts = ph_arena_take(arena, (n + 1) * sizeof *cut->starts);
}

/* The power of two that a count is below: counts are sorted by it. */
static int magnitude(int count)
{
    int bits = 0;
    for (; count > 0; count /= 2) bits++;
    return bits;
}

/* Sorts the sequences by the magnitude of their counts of blocks, the largest first;
   `starts` holds the counts, by sequence. */
static void sort(ph_work_cut *cut)
{
    int at[33] = {0}, next = 0;
    for (int i = 0; i < cut->sequences; i++) at[magnitude(cut->starts[i])]++;
    for (int m = 32; m >= 0; m--) {
        int sequences = at[m];
        at[m] = next, next += sequences;
    }
    for (int i = 0; i < cut->sequences; i++)
        cut->order[at[magnitude(cut->starts[i])]++] = cut->first + i;
}

/* Blocks of a sequence. */
typedef int block_count(const ph_call *call, int batch, int per_token, int size);

static int row_blocks(const ph_call *call, int batch, int per_token, int size)
{
    return ph_div_up(ph_rows_extent(call, batch).q_size * per_token, size);
}

static int key_blocks(const ph_call *call, int batch, int per_token, int size)
{
    return ph_div_up(ph_rows_extent(call, batch).kv_size * per_token, size);
}

static void cut_by(const ph_call *call, int first, int sequences, int per_token, int size,
                   block_count *count, ph_work_cut *cut)
{
    cut->first = first, cut->sequences = sequences, cut->count = 0;
    if (!cut->order) {
        cut->blocks = sequences ? count(call, first, per_token, size) : 0;
        cut->count = sequences * cut->blocks;
        return;
    }
    for (int i = 0; i < sequences; i++)
        cut->starts[i] = count(call, first + i, per_token, size);
    sort(cut);
    for (int i = 0; i < sequences; i++) {
        cut->starts[i] = cut->count;
        cut->count += count(call, cut->order[i], per_token, size);
    }
    cut->starts[sequences] = cut->count;
}

void ph_cut_rows(const ph_call *call, int first, int sequences, int per_token, int size,
                 ph_work_cut *cut)
{
    cut_by(call, first, sequences, per_token, size, row_blocks, cut);
}

void ph_cut_keys(const ph_call *call, int first, int sequences, int size,
                 ph_work_cut *cut)
{
    cut_by(call, first, sequences, 1, size, key_blocks, cut);
}

static ph_piece find_dense(const ph_work_cut *cut, int i)
{
    int n = cut->block_major ? cut->sequences : 1, blocks = cut->blocks;
    if (cut->block_major) return (ph_piece){cut->first + i % n, blocks - 1 - i / n};
    return (ph_piece){cut->first + i / blocks, blocks - 1 - i % blocks};
}

ph_piece ph_cut_find(const ph_work_cut *cut, int i)
{
    int low = 0, high = cut->sequences;
    if (!cut->order) return find_dense(cut, i);
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (cut->starts[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return (ph_piece){cut->order[low], cut->starts[low + 1] - 1 - i};
}
