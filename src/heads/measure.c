/*
 * measure.c - from rows of weights to sums; see heads.h.
 *
 * row_sums.c reads a row once; then one small function per group of measures (shares,
 * breadth, positions, repeats, rare words, links) adds to sums, from these and from the
 * few keys it is about. What depends on the text alone is computed once in
 * ph_heads_begin.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/size.h"
#include "heads/heads.h"
#include "io/io.h"
#include "io/sort.h"

/* Of a row's sum: rounding weights to bf16 moves it by up to 2^-8. */
static const double ROW_SUM_ERROR = 4e-3;

/* One row, and what several groups of measures need of it. */
typedef struct row {
    const float *w;
    int position;     /* of the row among the keys */
    int seen;         /* keys it may attend to: w[0 .. seen) */
    ph_row_sums sums; /* over these */
} row;

/* ---- a text begins ---- */

typedef struct place_of_id {
    int32_t id, place;
} place_of_id;

static int by_id(const void *left, const void *right)
{
    const place_of_id *a = left, *b = right;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static ph_status find_earlier(ph_heads *heads, const ph_heads_text *text)
{
    size_t count = (size_t)text->keys;
    heads->earlier = ph_io_alloc(&heads->hooks, count * sizeof *heads->earlier);
    place_of_id *list = ph_io_alloc(&heads->hooks, count * sizeof *list);
    for (size_t j = 0; list && j < count; j++)
        list[j] = (place_of_id){text->ids[j], (int32_t)j};
    if (list) ph_sort(list, count, sizeof *list, by_id);
    for (size_t j = 0; list && heads->earlier && j < count; j++) {
        int again = j > 0 && list[j - 1].id == list[j].id;
        heads->earlier[list[j].place] = again ? list[j - 1].place : -1;
    }
    ph_io_release(&heads->hooks, list);
    return list && heads->earlier ? PH_OK : PH_OUT_OF_MEMORY;
}

/* Keys of a class, key 0 left out: it is counted apart. */
static ph_status list_keys(ph_heads *heads, const ph_heads_text *text, int class,
                           ph_key_list *list)
{
    list->keys = ph_io_alloc(&heads->hooks, (size_t)text->keys * sizeof *list->keys);
    if (!list->keys) return PH_OUT_OF_MEMORY;
    for (int j = 1; j < text->keys; j++)
        if (text->classes[j] & class) list->keys[list->count++] = j;
    return PH_OK;
}

static ph_status list_classes(ph_heads *heads, const ph_heads_text *text)
{
    ph_status status = list_keys(heads, text, PH_CLASS_SEPARATOR, &heads->separators);
    if (status == PH_OK)
        status = list_keys(heads, text, PH_CLASS_PUNCTUATION, &heads->punctuation);
    return status;
}

static int by_row(const void *left, const void *right)
{
    const ph_link *a = left, *b = right;
    return (a->from > b->from) - (a->from < b->from);
}

static ph_status sort_links(ph_heads *heads, const ph_heads_text *text)
{
    size_t bytes = (size_t)text->link_count * sizeof *text->links;
    heads->links = ph_io_alloc(&heads->hooks, bytes);
    if (!heads->links) return PH_OUT_OF_MEMORY;
    memcpy(heads->links, text->links, bytes);
    ph_sort(heads->links, (size_t)text->link_count, sizeof *heads->links, by_row);
    return PH_OK;
}

/* The two keys of the highest ranks, the first of equal ones. */
static void find_rarest(ph_heads *heads, const ph_heads_text *text)
{
    int *rarest = heads->rarest;
    rarest[0] = rarest[1] = -1;
    for (int j = 0; text->ranks && j < text->keys; j++) {
        int32_t rank = text->ranks[j];
        if (rank < 0) continue;
        if (rarest[0] < 0 || rank > text->ranks[rarest[0]]) {
            rarest[1] = rarest[0];
            rarest[0] = j;
        } else if (rarest[1] < 0 || rank > text->ranks[rarest[1]]) {
            rarest[1] = j;
        }
    }
    if (rarest[0] >= 0 && text->ranks[rarest[0]] < PH_COMMON_TOKENS) rarest[0] = -1;
}

static ph_status check_links(const ph_heads_text *text, const ph_io *io)
{
    for (int n = 0; n < text->link_count; n++) {
        const ph_link *link = &text->links[n];
        int inside = link->from >= 0 && link->from < text->keys && link->to >= 0 &&
                     link->to < text->keys && link->relation >= 0 &&
                     link->relation < PH_MAX_RELATIONS;
        if (!inside)
            return ph_io_fail(
                io, PH_BAD_ARGUMENT,
                "link %d goes from %d to %d by relation %d, expected places "
                "below %d and a relation below %d",
                n, link->from, link->to, link->relation, text->keys,
                (int)PH_MAX_RELATIONS);
    }
    return PH_OK;
}

static ph_status check_text(const ph_heads *heads, const ph_heads_text *text,
                            const ph_io *io)
{
    PH_IO_CHECK_RESERVED(io, "ph_heads_text", text->reserved);
    if (heads->open)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "a text begins before the last one ended");
    if (text->rows < 0 || text->keys < 0 || text->q_offset < 0)
        return ph_io_fail(io, PH_BAD_SHAPE,
                          "%d rows, %d keys, q_offset %d, expected nothing negative",
                          text->rows, text->keys, text->q_offset);
    if (!text->cross && text->rows > text->keys - text->q_offset)
        return ph_io_fail(io, PH_BAD_SHAPE,
                          "%d rows from place %d on, expected at most the %d keys",
                          text->rows, text->q_offset, text->keys);
    if (text->link_count > 0 && (text->cross || !text->links))
        return ph_io_fail(io, PH_BAD_ARGUMENT, "links need a text that looks at itself");
    return check_links(text, io);
}

static void forget_text(ph_heads *heads)
{
    ph_io_release(&heads->hooks, heads->earlier);
    ph_io_release(&heads->hooks, heads->links);
    ph_io_release(&heads->hooks, heads->separators.keys);
    ph_io_release(&heads->hooks, heads->punctuation.keys);
    heads->earlier = NULL;
    heads->links = NULL;
    heads->separators = heads->punctuation = (ph_key_list){0};
    heads->open = 0;
}

ph_status ph_heads_begin(ph_heads *heads, const ph_heads_text *text, const ph_io *io)
{
    if (!heads || !text) return ph_io_null(io, "heads or text");
    ph_status status = check_text(heads, text, io);
    if (status != PH_OK) return status;
    if (text->ids && !text->cross) status = find_earlier(heads, text);
    if (status == PH_OK && text->classes) status = list_classes(heads, text);
    if (status == PH_OK && text->link_count > 0) status = sort_links(heads, text);
    if (status != PH_OK) {
        forget_text(heads);
        return ph_io_fail(io, status, "out of memory for a text of %d keys", text->keys);
    }
    find_rarest(heads, text);
    heads->text = *text;
    heads->open = 1;
    return PH_OK;
}

/* ---- topics ---- */

static void note(ph_tally *t, ph_measure measure, double value)
{
    t->text_sum[measure] += value;
    t->text_count[measure]++;
}

static double weight_at(const row *r, int j)
{
    return j >= 0 && j < r->seen ? (double)r->w[j] : 0;
}

static int is_class(const ph_heads_text *text, int j, int class)
{
    return text->classes && (text->classes[j] & class) != 0;
}

/* Weight on the keys of a list, which ascends. */
static double weight_on(const row *r, const ph_key_list *list)
{
    double sum = 0;
    for (int n = 0; n < list->count && list->keys[n] < r->seen; n++)
        sum += (double)r->w[list->keys[n]];
    return sum;
}

static void add_shares(ph_tally *t, const row *r, const ph_heads *heads)
{
    const ph_heads_text *text = &heads->text;
    static const ph_measure whole[] = {PH_PREV, PH_NEXT, PH_SELF, PH_SEP, PH_PUNCT};
    static const ph_measure bare[] = {PH_BARE_PREV, PH_BARE_NEXT, PH_BARE_SELF,
                                      PH_BARE_SEP, PH_BARE_PUNCT};
    double first = weight_at(r, 0), rest = r->sums.sum - first;
    const double without_first[] = {
        r->position == 1 ? 0 : weight_at(r, r->position - 1),
        weight_at(r, r->position + 1), r->position == 0 ? 0 : weight_at(r, r->position),
        weight_on(r, &heads->separators), weight_on(r, &heads->punctuation)};
    const int counts_first[] = {r->position == 1, 0, r->position == 0,
                                is_class(text, 0, PH_CLASS_SEPARATOR),
                                is_class(text, 0, PH_CLASS_PUNCTUATION)};
    for (int n = 0; n < 5; n++) {
        if (n >= 3 && !text->classes) break;
        note(t, whole[n], without_first[n] + (counts_first[n] ? first : 0));
        if (rest > 1e-6 * r->sums.sum) note(t, bare[n], without_first[n] / rest);
    }
    note(t, PH_FIRST, first);
    if (!text->classes || text->cross) return;
    double sep = without_first[3] + (counts_first[3] ? first : 0);
    note(t, is_class(text, r->position, PH_CLASS_SEPARATOR) ? PH_SEP_SEP : PH_REST_SEP,
         sep);
}

static void add_breadth(ph_tally *t, const row *r)
{
    note(t, PH_ENTROPY, r->sums.entropy);
    note(t, PH_DISTANCE, r->sums.distance);
    if (r->seen >= 2) note(t, PH_BREADTH, r->sums.entropy / log(r->seen));
}

/* Class tokens have no place in a picture: neither rows nor keys. */
static void add_patches(ph_tally *t, const row *r, const ph_heads_text *text)
{
    int first = text->patch_first, columns = text->patch_columns;
    int place = r->position - first;
    double sum = 0, distance = 0;
    if (!columns || text->cross || place < 0) return;
    for (int j = 0; j + first < r->seen; j++) {
        double w = (double)r->w[j + first];
        double x = j % columns - place % columns, y = j / columns - place / columns;
        sum += w, distance += w * sqrt(x * x + y * y);
    }
    if (sum > 1e-6 * r->sums.sum)
        note(t, PH_PATCH_DISTANCE, text->patch_size * distance / sum);
}

static void add_confidence(ph_tally *t, const row *r, const ph_heads_text *text)
{
    double best = 0;
    if (!text->cross && is_class(text, r->position, PH_CLASS_SEPARATOR)) return;
    if (!is_class(text, r->sums.best, PH_CLASS_SEPARATOR)) {
        note(t, PH_CONFIDENCE, (double)r->w[r->sums.best]);
        return;
    }
    for (int j = 0; j < r->seen; j++)
        if ((double)r->w[j] > best && !is_class(text, j, PH_CLASS_SEPARATOR))
            best = (double)r->w[j];
    note(t, PH_CONFIDENCE, best);
}

static void add_offsets(ph_tally *t, const row *r)
{
    int low = r->position < PH_REACH ? -r->position : -PH_REACH;
    int high =
        r->seen - 1 - r->position < PH_REACH ? r->seen - 1 - r->position : PH_REACH;
    for (int offset = low; offset <= high; offset++) {
        t->possible[offset + PH_REACH]++;
        t->mass[offset + PH_REACH] += (double)r->w[r->position + offset];
    }
    int offset = r->sums.best - r->position;
    if (offset >= low && offset <= high) t->hits[offset + PH_REACH]++;
}

/* Earlier positions of the same token, and the keys just after them. */
static void add_repeats(ph_tally *t, const row *r, const int32_t *earlier)
{
    double same = 0, after = 0, first = 0, rest = r->sums.sum - weight_at(r, 0);
    int count = 0;
    for (int j = earlier[r->position]; j >= 0; j = earlier[j], count++) {
        if (j == 0) first = weight_at(r, 0);
        same += weight_at(r, j);
        after += weight_at(r, j + 1);
    }
    if (count == 0) return;
    note(t, PH_DUPLICATE, same);
    note(t, PH_DUPLICATE_CHANCE, (double)count / r->seen);
    note(t, PH_INDUCTION, after);
    note(t, PH_INDUCTION_CHANCE, (double)count / r->seen);
    if (rest > 1e-6 * r->sums.sum) {
        note(t, PH_BARE_DUPLICATE, (same - first) / rest);
        note(t, PH_BARE_INDUCTION, after / rest);
    }
    t->text_sum[PH_PREFIX_ENTRY] += after;
    t->text_count[PH_PREFIX_ENTRY] += count;
}

static void add_rare(ph_tally *t, const row *r, const int rarest[2])
{
    if (rarest[0] < 0) return;
    int second = r->sums.best == rarest[1];
    int visible = (rarest[0] < r->seen) + (rarest[1] >= 0 && rarest[1] < r->seen);
    note(t, PH_RAREST, r->sums.best == rarest[0]);
    note(t, PH_RARE, r->sums.best == rarest[0] || second);
    note(t, PH_RARE_CHANCE, (double)visible / r->seen);
}

/* The key with the largest weight, itself and separators left out. */
static int pointed_at(const row *r, const ph_heads_text *text)
{
    int best = -1;
    for (int j = 0; j < r->seen; j++) {
        if (j == r->position || is_class(text, j, PH_CLASS_SEPARATOR)) continue;
        if (best < 0 || r->w[j] > r->w[best]) best = j;
    }
    return best;
}

static void add_links(ph_tally *t, const row *r, const ph_heads *heads)
{
    int low = 0, high = heads->text.link_count, best = -1;
    while (low < high) { /* the first link of this row */
        int middle = low + (high - low) / 2;
        if (heads->links[middle].from < r->position)
            low = middle + 1;
        else
            high = middle;
    }
    for (int n = low; n < heads->text.link_count; n++) {
        const ph_link *link = &heads->links[n];
        if (link->from != r->position) break;
        if (n == low) best = pointed_at(r, &heads->text);
        t->right[link->relation] += best == link->to;
    }
}

/* ---- rows ---- */

static void add_row(ph_heads *heads, ph_tally *t, int i, const float *weights)
{
    const ph_heads_text *text = &heads->text;
    row r = {.w = weights, .position = i + text->q_offset, .seen = text->keys};
    if (text->causal && r.position + 1 < r.seen) r.seen = r.position + 1;
    int alone = text->causal && r.position == 0;
    if (!alone) r.sums = heads->sum_row(r.w, r.seen, r.position);
    int good = alone || r.sums.good;
    double sum = r.sums.sum;
    t->invalid += !good || (sum != 0 && fabs(sum - 1) > ROW_SUM_ERROR);
    if (alone || !good || sum == 0) {
        t->skipped++;
        return;
    }
    t->rows++;
    add_shares(t, &r, heads);
    add_breadth(t, &r);
    add_confidence(t, &r, text);
    add_patches(t, &r, text);
    add_offsets(t, &r);
    if (heads->earlier) add_repeats(t, &r, heads->earlier);
    add_rare(t, &r, heads->rarest);
    if (heads->links) add_links(t, &r, heads);
}

ph_status ph_heads_add(ph_heads *heads, int layer, int head, int row0, int rows,
                       const float *weights)
{
    if (!heads || !weights) return PH_BAD_ARGUMENT;
    if (!heads->open || layer < 0 || layer >= heads->layers || head < 0 ||
        head >= heads->heads || row0 < 0 || rows < 0 || rows > heads->text.rows - row0)
        return PH_BAD_ARGUMENT;
    ph_tally *t = &heads->tally[(size_t)layer * (size_t)heads->heads + (size_t)head];
    for (int i = 0; i < rows; i++)
        add_row(heads, t, row0 + i, weights + (size_t)i * (size_t)heads->text.keys);
    return PH_OK;
}

/* ---- a text ends ---- */

static void close_text(ph_tally *t)
{
    for (int m = 0; m < PH_MEASURES; m++) {
        if (t->text_count[m] == 0) continue;
        t->total[m] += t->text_sum[m] / (double)t->text_count[m];
        t->count[m] += t->text_count[m];
        t->texts[m]++;
    }
    memset(t->text_sum, 0, sizeof t->text_sum);
    memset(t->text_count, 0, sizeof t->text_count);
}

void ph_heads_end(ph_heads *heads)
{
    if (!heads || !heads->open) return;
    for (int n = 0; n < heads->layers * heads->heads; n++) close_text(&heads->tally[n]);
    for (int n = 0; heads->links && n < heads->text.link_count; n++) {
        const ph_link *link = &heads->links[n];
        int offset = link->to - link->from;
        heads->links_of[link->relation]++;
        if (abs(offset) <= PH_REACH)
            heads->link_offsets[link->relation][offset + PH_REACH]++;
    }
    heads->texts++;
    forget_text(heads);
}

/* ---- making and freeing ---- */

ph_status ph_heads_create(ph_heads **out, int layers, int heads, const ph_io *io)
{
    if (!out) return ph_io_null(io, "out");
    *out = NULL;
    if (layers < 1 || heads < 1 || layers > INT32_MAX / heads)
        return ph_io_fail(io, PH_BAD_SHAPE,
                          "%d layers of %d heads, expected at least one of each", layers,
                          heads);
    size_t count = (size_t)layers * (size_t)heads, bytes = 0;
    ph_heads *h = ph_io_alloc(io, sizeof *h);
    if (h) memset(h, 0, sizeof *h);
    if (h && ph_size_mul(count, sizeof *h->tally, &bytes) == 0)
        h->tally = ph_io_alloc(io, bytes);
    if (!h || !h->tally) {
        ph_io_release(io, h);
        return ph_io_no_memory(io, bytes, "the sums of heads");
    }
    memset(h->tally, 0, bytes);
    h->layers = layers;
    h->heads = heads;
    h->hooks = ph_io_hooks(io);
    h->sum_row = ph_row_sums_pick(ph_cpu_features());
    *out = h;
    return PH_OK;
}

void ph_heads_free(ph_heads *heads)
{
    if (!heads) return;
    ph_io hooks = heads->hooks;
    forget_text(heads);
    ph_io_release(&hooks, heads->tally);
    ph_io_release(&hooks, heads);
}
