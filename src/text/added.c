/*
 * added.c - finding added tokens in a text: of those that match the leftmost, of those
 * that begin there the longest.
 */
#include <string.h>

#include "io/utf8.h"
#include "text/tokenizer.h"

/* The longest token that begins at `at`: its index, and its end in *end; or -1. */
static int32_t match_at(const ph_added_set *set, const char *text, size_t length,
                        size_t at, size_t *end)
{
    int32_t found = -1;
    uint32_t node = 0;
    for (size_t i = at; i < length; i++) {
        node = ph_trie_step(&set->trie, node, (unsigned char)text[i]);
        if (node == 0) break;
        if (set->trie.value[node] < 0) continue;
        found = set->trie.value[node];
        *end = i + 1;
    }
    return found;
}

/* Class bits of the character behind `at`, or before it; 0 at the ends of the text. */
static uint32_t flags_after(const ph_tokenizer *t, const char *text, size_t length,
                            size_t at, size_t *next)
{
    uint32_t point = 0;
    if (at >= length) return 0;
    *next = at + (size_t)ph_utf8_decode(text + at, length - at, &point);
    return ph_char_flags(&t->unicode, point);
}

static uint32_t flags_before(const ph_tokenizer *t, const char *text, size_t at,
                             size_t *start)
{
    size_t next;
    if (at == 0) return 0;
    *start = at - 1;
    while (*start > 0 && ((unsigned char)text[*start] & 0xc0) == 0x80) --*start;
    return flags_after(t, text, at, *start, &next);
}

static int stands_alone(const ph_tokenizer *t, const char *text, size_t length,
                        size_t start, size_t end)
{
    size_t unused;
    return !(flags_before(t, text, start, &unused) & PH_CHAR_WORD) &&
           !(flags_after(t, text, length, end, &unused) & PH_CHAR_WORD);
}

int ph_added_find(const ph_tokenizer *t, const ph_added_set *set, const char *text,
                  size_t length, size_t *at, size_t taken, int special_as_text,
                  ph_found *found)
{
    if (set->count == 0) return 0;
    while (*at < length) {
        size_t start = *at, end = start, other;
        int32_t index = -1;
        if (set->begins[(unsigned char)text[start]])
            index = match_at(set, text, length, start, &end);
        if (index < 0) {
            ++*at;
            continue;
        }
        const ph_added_token *a = &t->added[index];
        *at = end; /* a match that does not count is not looked into again */
        if (special_as_text && a->special) continue;
        if (a->single_word && !stands_alone(t, text, length, start, end)) continue;
        while (a->left && start > taken &&
               flags_before(t, text, start, &other) & PH_CHAR_SPACE)
            start = other;
        while (a->right && flags_after(t, text, length, end, &other) & PH_CHAR_SPACE)
            end = other;
        *found = (ph_found){start, end, a};
        return 1;
    }
    return 0;
}
