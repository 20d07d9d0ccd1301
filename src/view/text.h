/*
 * text.h - words on a terminal or in a figure: made safe, measured in columns, cut to
 * fit.
 *
 * A word is first cleaned, once; everything else takes clean text. Columns are counted by
 * clusters: a character with its combining marks, a pair of flag letters, emoji joined by
 * U+200D. Chinese, Japanese and Korean characters and emoji take two columns.
 */
#ifndef PH_VIEW_TEXT_H
#define PH_VIEW_TEXT_H

#include <stddef.h>

#include "polyhead_picture.h" /* ph_text_clean, ph_text_columns */

/* Bytes of the first cluster of clean text and, in *columns, how wide it is (0 to 2). 0
   bytes: the text is over. */
size_t ph_text_cluster(const char *text, int *columns);

/* Copies as much of clean text as fits into `columns`, with an ellipsis where it was cut,
   and fills up with blanks (on the left if right_aligned). size: at least the bytes of
   the text plus columns plus 4. */
void ph_text_fit(const char *text, int columns, int ascii, int right_aligned, char *out,
                 size_t size);

#endif
