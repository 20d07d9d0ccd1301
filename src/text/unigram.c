/*
 * unigram.c - the Unigram model: of all ways to cut a piece the one whose tokens have the
 * largest sum of scores, found by the Viterbi algorithm.
 *
 * Sums are made in double, from left to right, and a path is replaced by a strictly
 * better one only, shorter last tokens last: equal sums fall as in the reference.
 */
#include <string.h>

#include "base/base.h"
#include "io/utf8.h"
#include "text/models.h"

enum { UNREACHED = UINT32_MAX };

static void offer(ph_path *path, double score, int32_t id, size_t start)
{
    if (path->start != UNREACHED && score <= path->score) return;
    *path = (ph_path){score, id, (uint32_t)start};
}

/* Best paths to every place: each token that begins at each character. */
static void find_paths(const ph_cut_model *model, ph_path *paths, const char *piece,
                       size_t length)
{
    const ph_trie *trie = &model->trie;
    for (size_t i = 0; i <= length; i++) paths[i] = (ph_path){.start = UNREACHED};
    for (size_t start = 0; start < length;) {
        uint32_t point, node = 0;
        size_t step = (size_t)ph_utf8_decode(piece + start, length - start, &point);
        int single = 0; /* is there a token for the one character? */
        double score = paths[start].score;
        for (size_t i = start; i < length; i++) {
            node = ph_trie_step(trie, node, (unsigned char)piece[i]);
            if (node == 0) break;
            int32_t id = trie->value[node];
            if (id < 0) continue;
            offer(&paths[i + 1], model->scores[id] + score, id, start);
            if (i + 1 == start + step) single = 1;
        }
        if (!single)
            offer(&paths[start + step], model->unknown_score + score, model->unknown,
                  start);
        start += step;
    }
}

/* The token of [start, end): its id by text, bytes, or unknown. Runs of unknown
   characters come here as one text. */
static ph_status add_token(const ph_cut_model *model, ph_cutter *cutter,
                           const char *piece, size_t start, size_t end)
{
    int32_t id = ph_model_find(model, piece + start, end - start);
    int bytes = id == PH_TOKEN_NONE && model->byte_fallback;
    for (size_t i = start; bytes && i < end; i++)
        if (model->bytes[(unsigned char)piece[i]] == PH_TOKEN_NONE) bytes = 0;
    for (size_t i = start; bytes && i < end; i++)
        PH_TRY(ph_cutter_add(cutter, model->bytes[(unsigned char)piece[i]], start, end));
    if (bytes) return PH_OK;
    return ph_cutter_add(cutter, id == PH_TOKEN_NONE ? model->unknown : id, start, end);
}

/* Reverses the links of the best path: afterwards paths[start] says where the token
   that begins there ends. Neighbouring unknown tokens become one. */
static void reverse_path(const ph_cut_model *model, ph_path *paths, size_t length)
{
    size_t end = length, run_end = length;
    int32_t id = paths[end].id; /* of the token that ends at `end` */
    int in_run = 0;             /* is what begins at `end` unknown? */
    while (end > 0) {
        int unknown = id == model->unknown;
        if (!(unknown && in_run)) run_end = end;
        in_run = unknown;
        end = paths[end].start;
        id = paths[end].id;
        paths[end].id = (int32_t)run_end;
    }
}

ph_status ph_cut_unigram(const ph_cut_model *model, ph_cutter *cutter, const char *piece,
                         size_t length)
{
    void *paths = cutter->paths;
    ph_status status = ph_io_grow(cutter->io, &paths, &cutter->path_capacity, length + 1,
                                  sizeof(ph_path));
    cutter->paths = paths;
    if (status != PH_OK) return status;
    find_paths(model, cutter->paths, piece, length);
    reverse_path(model, cutter->paths, length);
    for (size_t start = 0; start < length;) {
        size_t end = (size_t)cutter->paths[start].id;
        PH_TRY(add_token(model, cutter, piece, start, end));
        start = end;
    }
    return PH_OK;
}
