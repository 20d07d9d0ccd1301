/*
 * bpe.c - byte-pair encoding: the symbols of a piece are merged pair by pair, the pair of
 * the lowest rank first, of equal ones the leftmost.
 *
 * Short pieces are scanned for the lowest rank again and again, which is fastest; long
 * ones keep a heap of candidates, so that a text without blanks costs n log n.
 */
#include <string.h>

#include "base/base.h"
#include "base/rng.h"
#include "io/utf8.h"
#include "text/byte_alphabet.h"
#include "text/models.h"

enum { SHORT_PIECE = 32 }; /* symbols */

/* ---- pairs ---- */

/* The upper half of the hash, scaled to any number of slots. */
static size_t pair_slot(const ph_cut_model *model, uint64_t pair)
{
    uint64_t hash = ph_rng_mix(pair ^ model->tokens->seed) >> 32;
    size_t slot = (size_t)(hash * model->pair_slots >> 32);
    while (model->pairs[slot].pair != pair && model->pairs[slot].pair != UINT64_MAX)
        slot = slot + 1 < model->pair_slots ? slot + 1 : 0;
    return slot;
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

ph_status ph_model_pairs(ph_cut_model *model, size_t count, const ph_io *io)
{
    size_t slots = count + count / 2 + 16; /* a third stays free */
    model->pairs = ph_io_alloc(io, slots * sizeof *model->pairs);
    if (!model->pairs) return ph_io_no_memory(io, slots * sizeof *model->pairs, "merges");
    for (size_t i = 0; i < slots; i++)
        model->pairs[i] = (ph_pair_slot){.pair = UINT64_MAX};
    model->pair_slots = slots;
    return PH_OK;
}

void ph_model_add_pair(ph_cut_model *model, int32_t left, int32_t right, uint32_t rank,
                       int32_t merged)
{
    uint64_t pair = pair_of(left, right);
    model->pairs[pair_slot(model, pair)] = (ph_pair_slot){pair, rank, merged};
}

/* The merge of two ids; its rank is UINT32_MAX if there is none. */
static ph_pair_slot find_pair(const ph_cut_model *model, int32_t left, int32_t right)
{
    ph_pair_slot found = model->pairs[pair_slot(model, pair_of(left, right))];
    if (found.pair == UINT64_MAX) found.rank = UINT32_MAX;
    return found;
}

static int ends_with(const ph_token_table *tokens, int32_t id, const char *mark)
{
    size_t length = strlen(mark), size = tokens->entries[id].length;
    return size >= length &&
           !memcmp(ph_token_text(tokens, id) + size - length, mark, length);
}

/* Is the mark a token, and does no merge reach over its start? */
static int begins_words(const ph_cut_model *model, const char *mark)
{
    const ph_token_table *tokens = model->tokens;
    size_t length = strlen(mark);
    if (ph_model_find(model, mark, length) < 0) return 0;
    for (size_t i = 0; i < model->pair_slots; i++) {
        if (model->pairs[i].pair == UINT64_MAX) continue;
        int32_t left = (int32_t)(model->pairs[i].pair >> 32);
        int32_t right = (int32_t)(uint32_t)model->pairs[i].pair;
        if (!strncmp(ph_token_text(tokens, right), mark, length) &&
            !ends_with(tokens, left, mark))
            return 0;
    }
    return 1;
}

void ph_model_find_words(ph_cut_model *model)
{
    static const char *const marks[] = {"\xe2\x96\x81", " "};
    for (int i = 0; i < 2 && !model->word_mark && !model->ignore_merges; i++) {
        if (!begins_words(model, marks[i])) continue;
        model->word_mark = marks[i];
        model->word_mark_length = strlen(marks[i]);
    }
}

/* ---- symbols ---- */

static ph_status add_symbol(ph_cutter *cutter, int32_t id, size_t length)
{
    void *symbols = cutter->symbols;
    int32_t at = (int32_t)cutter->symbol_count;
    ph_status status = ph_io_grow(cutter->io, &symbols, &cutter->symbol_capacity,
                                  cutter->symbol_count + 1, sizeof(ph_symbol));
    cutter->symbols = symbols;
    if (status != PH_OK) return status;
    cutter->symbols[cutter->symbol_count++] =
        (ph_symbol){id, (uint32_t)length, at - 1, at + 1};
    return PH_OK;
}

/* Bytes that the vocabulary lacks are unknown, or left out where there is no unknown
   token; *dropped says that there were some. */
static ph_status byte_symbols(const ph_cut_model *model, ph_cutter *cutter,
                              const char *piece, size_t length, int *dropped)
{
    int fuses = 0; /* is the symbol before unknown, and may it grow? */
    for (size_t i = 0; i < length; i++) {
        int32_t id = model->bytes[(unsigned char)piece[i]];
        int known = id != PH_TOKEN_NONE;
        if (!known && model->unknown == PH_TOKEN_NONE)
            *dropped = 1;
        else if (!known && fuses)
            cutter->symbols[cutter->symbol_count - 1].length++;
        else
            PH_TRY(add_symbol(cutter, known ? id : model->unknown, 1));
        fuses = !known && model->fuse_unknown;
    }
    return PH_OK;
}

/* Adds the byte tokens of a character; *done says if there are all of them. */
static ph_status fall_back(const ph_cut_model *model, ph_cutter *cutter, const char *text,
                           size_t length, int *done)
{
    *done = 0;
    for (size_t i = 0; i < length; i++)
        if (model->bytes[(unsigned char)text[i]] == PH_TOKEN_NONE) return PH_OK;
    for (size_t i = 0; i < length; i++)
        PH_TRY(add_symbol(cutter, model->bytes[(unsigned char)text[i]], 1));
    *done = 1;
    return PH_OK;
}

/* One symbol per character. Unknown ones wait in `unknown` bytes, so that they can be
   fused; byte tokens do not end the waiting, as in the reference. */
static ph_status character_symbols(const ph_cut_model *model, ph_cutter *cutter,
                                   const char *piece, size_t length)
{
    size_t unknown = 0;
    for (size_t i = 0; i < length;) {
        uint32_t point = 0;
        size_t step = (size_t)ph_utf8_decode(piece + i, length - i, &point);
        const char *text = piece + i;
        int32_t id = point < 128 ? model->ascii[point] : ph_model_find(model, text, step);
        int done = 0;
        i += step;
        if (id == PH_TOKEN_NONE && model->byte_fallback)
            PH_TRY(fall_back(model, cutter, text, step, &done));
        if (done || (id == PH_TOKEN_NONE && model->unknown == PH_TOKEN_NONE)) continue;
        if (unknown && !(id == PH_TOKEN_NONE && model->fuse_unknown)) {
            PH_TRY(add_symbol(cutter, model->unknown, unknown));
            unknown = 0;
        }
        if (id == PH_TOKEN_NONE)
            unknown += step;
        else
            PH_TRY(add_symbol(cutter, id, step));
    }
    return unknown ? add_symbol(cutter, model->unknown, unknown) : PH_OK;
}

/* ---- merging ---- */

/* Scans for the lowest rank; symbols move together as they merge. */
static void merge_short(const ph_cut_model *model, ph_cutter *cutter)
{
    ph_symbol *s = cutter->symbols;
    ph_pair_slot pair[SHORT_PIECE]; /* of each symbol with the next */
    size_t count = cutter->symbol_count;
    for (size_t i = 0; i + 1 < count; i++)
        pair[i] = find_pair(model, s[i].id, s[i + 1].id);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (pair[i].rank < pair[best].rank) best = i;
        if (pair[best].rank == UINT32_MAX) break;
        s[best].id = pair[best].merged;
        s[best].length += s[best + 1].length;
        count--;
        memmove(s + best + 1, s + best + 2, (count - best - 1) * sizeof *s);
        memmove(pair + best, pair + best + 1, (count - best) * sizeof *pair);
        if (best > 0) pair[best - 1] = find_pair(model, s[best - 1].id, s[best].id);
        if (best + 1 < count) pair[best] = find_pair(model, s[best].id, s[best + 1].id);
    }
    cutter->symbol_count = count;
}

static int comes_first(const ph_merge *a, const ph_merge *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* The heap holds at most one merge per symbol at the start and one per merge done. */
static void push(ph_cutter *cutter, ph_merge merge)
{
    size_t at = cutter->heap_count++;
    for (; at > 0; at = (at - 1) / 2) {
        if (!comes_first(&merge, &cutter->heap[(at - 1) / 2])) break;
        cutter->heap[at] = cutter->heap[(at - 1) / 2];
    }
    cutter->heap[at] = merge;
}

static ph_merge pop(ph_cutter *cutter)
{
    ph_merge *heap = cutter->heap, top = heap[0], last = heap[--cutter->heap_count];
    size_t at = 0, count = cutter->heap_count;
    for (size_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && comes_first(&heap[child + 1], &heap[child])) child++;
        if (!comes_first(&heap[child], &last)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static void push_pair(const ph_cut_model *model, ph_cutter *cutter, int32_t left,
                      int32_t right)
{
    const ph_symbol *s = cutter->symbols;
    ph_pair_slot pair = find_pair(model, s[left].id, s[right].id);
    if (pair.rank != UINT32_MAX) push(cutter, (ph_merge){pair.rank, left, pair.merged});
}

static ph_status merge_long(const ph_cut_model *model, ph_cutter *cutter)
{
    ph_symbol *s = cutter->symbols;
    int32_t count = (int32_t)cutter->symbol_count;
    void *heap = cutter->heap;
    PH_TRY(ph_io_grow(cutter->io, &heap, &cutter->heap_capacity, 3 * cutter->symbol_count,
                      sizeof(ph_merge)));
    cutter->heap = heap;
    cutter->heap_count = 0;
    s[count - 1].next = -1;
    for (int32_t i = 0; i + 1 < count; i++) push_pair(model, cutter, i, i + 1);
    while (cutter->heap_count > 0) {
        ph_merge merge = pop(cutter);
        ph_symbol *left = &s[merge.at];
        if (left->length == 0 || left->next < 0) continue;
        ph_symbol *right = &s[left->next];
        ph_pair_slot now = find_pair(model, left->id, right->id);
        if (now.rank == UINT32_MAX || now.merged != merge.merged) continue; /* stale */
        left->id = merge.merged;
        left->length += right->length;
        left->next = right->next;
        right->length = 0;
        if (left->next >= 0) s[left->next].before = merge.at;
        if (left->before >= 0) push_pair(model, cutter, left->before, merge.at);
        if (left->next >= 0) push_pair(model, cutter, merge.at, left->next);
    }
    return PH_OK;
}

/* ---- a piece ---- */

/* The id of the whole piece, if it is a token; byte-level tokens are stored in an
   alphabet of their own. */
static ph_status find_whole(const ph_cut_model *model, ph_cutter *cutter,
                            const char *piece, size_t length, int32_t *id)
{
    if (model->byte_level) {
        void *mapped = cutter->mapped;
        ph_status status =
            ph_io_grow(cutter->io, &mapped, &cutter->mapped_capacity, 2 * length, 1);
        cutter->mapped = mapped;
        if (status != PH_OK) return status;
        length = ph_byte_alphabet_write(piece, length, cutter->mapped);
        piece = cutter->mapped;
    }
    *id = ph_model_find(model, piece, length);
    return PH_OK;
}

/* Moves *raw on to the byte that the byte `mapped` of its alphabet belongs to; *at is
   where *raw stands in the alphabet. */
static void move_to(const char *piece, size_t mapped, size_t *raw, size_t *at)
{
    char text[4];
    for (;; ++*raw) {
        uint32_t point = ph_byte_alphabet_char((unsigned char)piece[*raw]);
        size_t size = (size_t)ph_utf8_encode(point, text);
        if (mapped < *at + size) return;
        *at += size;
    }
}

/* Tokens of a piece that lost bytes. The reference lays them side by side from the start,
   counting in characters of the alphabet, and so shall their offsets be. */
static ph_status add_shifted(const ph_cut_model *model, ph_cutter *cutter,
                             const char *piece)
{
    size_t mapped = 0, raw = 0, at = 0;
    for (size_t i = 0; i < cutter->symbol_count; i++) {
        const ph_symbol *s = &cutter->symbols[i];
        if (s->length == 0) continue;
        move_to(piece, mapped, &raw, &at);
        size_t start = raw;
        mapped += model->tokens->entries[s->id].length;
        move_to(piece, mapped - 1, &raw, &at);
        PH_TRY(ph_cutter_add(cutter, s->id, start, raw + 1));
    }
    return PH_OK;
}

/* The tokens of a word; *at is where the first one stands in its piece. */
static ph_status cut_word(const ph_cut_model *model, ph_cutter *cutter, const char *word,
                          size_t length, size_t *at)
{
    int dropped = 0;
    cutter->symbol_count = 0;
    if (model->byte_level)
        PH_TRY(byte_symbols(model, cutter, word, length, &dropped));
    else
        PH_TRY(character_symbols(model, cutter, word, length));
    if (cutter->symbol_count > SHORT_PIECE)
        PH_TRY(merge_long(model, cutter));
    else
        merge_short(model, cutter);
    if (dropped) return add_shifted(model, cutter, word);
    for (size_t i = 0; i < cutter->symbol_count; i++) {
        const ph_symbol *s = &cutter->symbols[i];
        if (s->length == 0) continue;
        PH_TRY(ph_cutter_add(cutter, s->id, *at, *at + s->length));
        *at += s->length;
    }
    return PH_OK;
}

static int is_mark(const ph_cut_model *model, const char *text, size_t left)
{
    return left >= model->word_mark_length &&
           !memcmp(text, model->word_mark, model->word_mark_length);
}

/* The end of the word that begins at `start`: marks, then all up to the next mark. */
static size_t word_end(const ph_cut_model *model, const char *piece, size_t length,
                       size_t start)
{
    const char first = model->word_mark[0];
    size_t at = start;
    while (is_mark(model, piece + at, length - at)) at += model->word_mark_length;
    while (at < length &&
           !(piece[at] == first && is_mark(model, piece + at, length - at)))
        at++;
    return at;
}

ph_status ph_cut_bpe(const ph_cut_model *model, ph_cutter *cutter, const char *piece,
                     size_t length)
{
    size_t at = 0;
    int32_t whole = PH_TOKEN_NONE;
    if (model->ignore_merges) PH_TRY(find_whole(model, cutter, piece, length, &whole));
    if (whole != PH_TOKEN_NONE) return ph_cutter_add(cutter, whole, 0, length);
    if (!model->word_mark) return cut_word(model, cutter, piece, length, &at);
    for (size_t start = 0; start < length;) {
        size_t end = word_end(model, piece, length, start);
        PH_TRY(cut_word(model, cutter, piece + start, end - start, &at));
        start = end;
    }
    return PH_OK;
}
