/*
 * unsafe.c - which characters must be escaped, see unsafe.h;
 * made by tools/unicode-tables from Unicode 14.0.0.
 * Inclusive ranges, ascending.
 */
#include <stddef.h>

#include "io/unsafe.h"

/* clang-format off */

/* controls, direction marks, invisible formats, line separators */
static const struct { uint32_t first, last; } unsafe[] = {
    {0x0, 0x1f}, {0x7f, 0x9f}, {0xad, 0xad}, {0x600, 0x605}, {0x61c, 0x61c},
    {0x6dd, 0x6dd}, {0x70f, 0x70f}, {0x890, 0x891}, {0x8e2, 0x8e2}, {0x180e, 0x180e},
    {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
    {0xd800, 0xdfff}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0x110bd, 0x110bd},
    {0x110cd, 0x110cd}, {0x13430, 0x13438}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
    {0xe0001, 0xe007f},
};
/* clang-format on */

int ph_unsafe_character(uint32_t point)
{
    size_t i = 0;
    while (i + 1 < sizeof unsafe / sizeof *unsafe && point > unsafe[i].last) i++;
    return point >= unsafe[i].first && point <= unsafe[i].last;
}
