/*
 * format.h - snprintf that writes a decimal point in every locale.
 */
#ifndef PH_BASE_FORMAT_H
#define PH_BASE_FORMAT_H

#include <stdarg.h>
#include <stddef.h>

int ph_format(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int ph_format_list(char *text, size_t size, const char *format, va_list list)
    __attribute__((format(printf, 3, 0)));

#endif
