/*
 * reserved.h - the part of a public struct that a later version may use; see
 * "Compatibility" in polyhead.h.
 */
#ifndef PH_BASE_RESERVED_H
#define PH_BASE_RESERVED_H

#include <stddef.h>
#include <stdint.h>

#define PH_RESERVED_WORDS                                                                \
    "is not 0, expected 0: not initialised, or a field of a later version"

static inline int ph_words_are_zero(const uint64_t *words, size_t count)
{
    uint64_t any = 0;
    for (size_t i = 0; i < count; i++) any |= words[i];
    return any == 0;
}

#define PH_ALL_ZERO(words) ph_words_are_zero(words, sizeof(words) / sizeof *(words))

/* Returns from the function if a program uses what this version does not know. */
#define PH_CHECK_RESERVED(ctx, name, words)                                              \
    do {                                                                                 \
        if (!PH_ALL_ZERO(words))                                                         \
            return ph_fail(ctx, PH_BAD_ARGUMENT, name ".reserved " PH_RESERVED_WORDS);   \
    } while (0)

#endif
