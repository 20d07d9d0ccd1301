/*
 * number.h - decimal text to double and back, exactly, in any locale.
 */
#ifndef PH_IO_NUMBER_H
#define PH_IO_NUMBER_H

#include <stddef.h>

enum { PH_NUMBER_TEXT = 32 }; /* bytes that hold any printed number with its NUL */

/* The double nearest to the number (ties to even). The text must be a JSON number, which
   is not checked again. Returns 0, or -1 if it is too large for a double. */
int ph_number_read(const char *text, size_t length, double *out);

/* The same for unchecked text: it may also begin with '+' or a point or end
   with one. -1 if it is no number. */
int ph_number_parse(const char *text, size_t length, double *out);

/* The shortest digits that read back as the same double or float, as a JSON number;
   "null" for non-finite values. Returns the length. */
int ph_number_print(double value, char text[PH_NUMBER_TEXT]);
int ph_number_print_float(float value, char text[PH_NUMBER_TEXT]);

#endif
