/*
 * gguf.h - lists in the metadata of a GGUF file, and its blocks of elements.
 */
#ifndef PH_CHECKPOINT_GGUF_H
#define PH_CHECKPOINT_GGUF_H

#include "checkpoint/values.h"

/* Types of metadata. */
enum {
    PH_GGUF_U8 = 0,
    PH_GGUF_I8,
    PH_GGUF_U16,
    PH_GGUF_I16,
    PH_GGUF_U32,
    PH_GGUF_I32,
    PH_GGUF_F32,
    PH_GGUF_BOOL,
    PH_GGUF_TEXT,
    PH_GGUF_LIST,
    PH_GGUF_U64,
    PH_GGUF_I64,
    PH_GGUF_F64,
    PH_GGUF_TYPES
};

/* Number or boolean i of a list; 0: it holds texts. */
int ph_gguf_item(const ph_value *list, size_t i, ph_value *out);

/* Walks over a list of texts: *at begins as list->items; gives the text, which no NUL
   ends, and its length, and moves on. */
const char *ph_gguf_next_text(const unsigned char **at, size_t *length);

/* Types that become F32 on reading: bytes and elements of a block; 0: no such type. */
size_t ph_kquant_bytes(int type);
size_t ph_kquant_block(int type);

/* Whole blocks as floats. */
void ph_kquant_floats(int type, const unsigned char *from, size_t elements, float *to);

/* The codebook of IQ2_XXS: words of eight sizes, two bits each from the lowest up. */
extern const uint16_t ph_iq2_xxs_words[256];

#endif
