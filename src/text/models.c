/*
 * models.c - what the models share, WordPiece and WordLevel; see models.h.
 */
#include "text/models.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "io/utf8.h"

void ph_cutter_free(ph_cutter *cutter)
{
    ph_io_release(cutter->io, cutter->cuts);
    ph_io_release(cutter->io, cutter->symbols);
    ph_io_release(cutter->io, cutter->heap);
    ph_io_release(cutter->io, cutter->paths);
    ph_io_release(cutter->io, cutter->mapped);
}

ph_status ph_cutter_add(ph_cutter *cutter, int32_t id, size_t start, size_t end)
{
    void *cuts = cutter->cuts;
    ph_status status = ph_io_grow(cutter->io, &cuts, &cutter->capacity, cutter->count + 1,
                                  sizeof(ph_cut));
    cutter->cuts = cuts;
    if (status == PH_OK)
        cutter->cuts[cutter->count++] = (ph_cut){id, (uint32_t)start, (uint32_t)end};
    return status;
}

int32_t ph_model_find(const ph_cut_model *model, const char *text, size_t length)
{
    int32_t id = ph_token_table_find(model->tokens, text, length);
    return id != PH_TOKEN_NONE && model->tokens->entries[id].outside ? PH_TOKEN_NONE : id;
}

void ph_model_find_bytes(ph_cut_model *model)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        model->bytes[i] = ph_model_find(model, name, 6);
    }
}

/* ---- WordPiece ---- */

static size_t count_characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* The longest token that begins at `start`: its id, and its end in *end. */
static int32_t longest_match(const ph_cut_model *model, const char *piece, size_t length,
                             size_t start, size_t *end)
{
    const ph_trie *trie = &model->trie;
    int32_t found = PH_TOKEN_NONE;
    uint32_t node = start > 0 ? model->continuing : 0;
    if (start > 0 && !model->has_continuing) return PH_TOKEN_NONE;
    for (size_t i = start; i < length; i++) {
        node = ph_trie_step(trie, node, (unsigned char)piece[i]);
        if (node == 0) break;
        if (trie->value[node] < 0) continue;
        found = trie->value[node];
        *end = i + 1;
    }
    return found;
}

static ph_status cut_wordpiece(const ph_cut_model *model, ph_cutter *cutter,
                               const char *piece, size_t length)
{
    size_t before = cutter->count, start = 0, end = 0;
    int fits = length <= model->max_characters ||
               count_characters(piece, length) <= model->max_characters;
    while (fits && start < length) {
        int32_t id = longest_match(model, piece, length, start, &end);
        fits = id != PH_TOKEN_NONE;
        if (fits) PH_TRY(ph_cutter_add(cutter, id, start, end));
        start = end;
    }
    if (fits) return PH_OK;
    cutter->count = before; /* one part unknown: so is all of it */
    return ph_cutter_add(cutter, model->unknown, 0, length);
}

static ph_status take_word(const ph_cut_model *model, ph_cutter *cutter,
                           const char *piece, size_t length)
{
    int32_t id = ph_model_find(model, piece, length);
    return ph_cutter_add(cutter, id == PH_TOKEN_NONE ? model->unknown : id, 0, length);
}

ph_status ph_cut_piece(const ph_cut_model *model, ph_cutter *cutter, const char *piece,
                       size_t length)
{
    switch (model->kind) {
    case PH_MODEL_WORDPIECE: return cut_wordpiece(model, cutter, piece, length);
    case PH_MODEL_WORDLEVEL: return take_word(model, cutter, piece, length);
    case PH_MODEL_BPE: return ph_cut_bpe(model, cutter, piece, length);
    default: return ph_cut_unigram(model, cutter, piece, length);
    }
}
