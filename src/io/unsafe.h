/*
 * unsafe.h - characters that must be escaped before people or browsers see the text.
 *
 * Controls, direction marks, invisible formats and line separators move the cursor of a
 * terminal, hide text or reorder it. Everything that prints text of a user or of a file
 * uses this table; how the escape is written depends on the format.
 */
#ifndef PH_IO_UNSAFE_H
#define PH_IO_UNSAFE_H

#include <stddef.h>
#include <stdint.h>

int ph_unsafe_character(uint32_t point);

/* What stands for a byte in HTML and SVG; NULL: the byte itself. */
static inline const char *ph_markup_entity(char c)
{
    switch (c) {
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '&': return "&amp;";
    case '"': return "&quot;";
    default: return NULL;
    }
}

#endif
