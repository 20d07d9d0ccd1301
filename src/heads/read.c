/*
 * read.c - from sums to the measures of one head; see heads.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "heads/heads.h"

int ph_heads_commonest(const int64_t counts[PH_OFFSETS])
{
    int best = 0;
    for (int step = 1; step <= PH_REACH; step++) {
        if (counts[PH_REACH - step] > counts[PH_REACH + best]) best = -step;
        if (counts[PH_REACH + step] > counts[PH_REACH + best]) best = step;
    }
    return best;
}

static void read_positions(const ph_tally *t, ph_head_stats *out)
{
    int top = ph_heads_commonest(t->hits);
    int64_t hits = t->hits[top + PH_REACH], possible = t->possible[top + PH_REACH];
    memcpy(out->hits, t->hits, sizeof out->hits);
    for (int n = 0; n < PH_OFFSETS && t->rows > 0; n++)
        out->mass[n] = t->mass[n] / (double)t->rows;
    if (hits == 0) return;
    out->top_offset = top;
    out->value[PH_POSITIONAL] = (double)hits / (double)possible;
    out->count[PH_POSITIONAL] = possible;
}

static void read_links(const ph_heads *heads, const ph_tally *t, ph_head_stats *out)
{
    out->relation = -1;
    for (int r = 0; r < PH_MAX_RELATIONS; r++) {
        const int64_t *offsets = heads->link_offsets[r];
        ph_link_score *score = &out->link[r];
        score->links = heads->links_of[r];
        if (score->links == 0) continue;
        score->right = t->right[r];
        score->best_offset = ph_heads_commonest(offsets);
        score->baseline = offsets[score->best_offset + PH_REACH];
        double margin = (double)(score->right - score->baseline) / (double)score->links;
        if (out->relation >= 0 && margin <= out->value[PH_LINK]) continue;
        out->relation = r;
        out->value[PH_LINK] = margin;
        out->count[PH_LINK] = score->links;
    }
}

ph_status ph_heads_read(const ph_heads *heads, int layer, int head, ph_head_stats *out)
{
    if (!heads || !out) return PH_BAD_ARGUMENT;
    if (layer < 0 || layer >= heads->layers || head < 0 || head >= heads->heads)
        return PH_BAD_ARGUMENT;
    const ph_tally *t =
        &heads->tally[(size_t)layer * (size_t)heads->heads + (size_t)head];
    memset(out, 0, sizeof *out);
    for (int m = 0; m < PH_MEASURES; m++) {
        out->value[m] = t->texts[m] ? t->total[m] / (double)t->texts[m] : (double)NAN;
        out->count[m] = t->count[m];
    }
    out->rows = t->rows;
    out->skipped = t->skipped;
    out->invalid = t->invalid;
    out->texts = heads->texts;
    read_positions(t, out);
    read_links(heads, t, out);
    return PH_OK;
}
