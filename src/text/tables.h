/*
 * tables.h - the bytes of unicode.bin, compiled into the library by tools/embed.
 */
#ifndef PH_TEXT_TABLES_H
#define PH_TEXT_TABLES_H

#include <stddef.h>

extern const unsigned char ph_text_unicode_bin[];
extern const size_t ph_text_unicode_bin_size;

#endif
