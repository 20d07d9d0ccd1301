/*
 * format.c - snprintf in the locale "C", for this thread and this call only.
 */
#define _GNU_SOURCE /* uselocale */
#include "base/format.h"

#include <locale.h>
#include <stdio.h>

int ph_format_list(char *text, size_t size, const char *format, va_list list)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = plain ? uselocale(plain) : (locale_t)0;
    int length = vsnprintf(text, size, format, list);
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return length;
}

int ph_format(char *text, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = ph_format_list(text, size, format, list);
    va_end(list);
    return length;
}
