/*
 * sort.h - heap sort.
 *
 * Takes no memory of its own and n log n steps whatever the input, so a hostile file
 * cannot make it slow; qsort promises neither. Equal elements end in no particular order.
 * Inline, so that `size` and `compare` are constants where it is used.
 */
#ifndef PH_IO_SORT_H
#define PH_IO_SORT_H

#include <stddef.h>
#include <string.h>

enum { PH_SORT_MAX_SIZE = 256 }; /* bytes of one element */

typedef int ph_sort_compare(const void *a, const void *b); /* <0, 0, >0 */

/* Moves the element at `at` down until both children are smaller or equal. */
static inline void ph_sort_sink(char *items, size_t at, size_t count, size_t size,
                                ph_sort_compare *compare)
{
    char value[PH_SORT_MAX_SIZE];
    memcpy(value, items + at * size, size);
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count &&
            compare(items + child * size, items + (child + 1) * size) < 0)
            child++;
        if (compare(value, items + child * size) >= 0) break;
        memcpy(items + at * size, items + child * size, size);
        at = child;
    }
    memcpy(items + at * size, value, size);
}

static inline void ph_sort(void *array, size_t count, size_t size,
                           ph_sort_compare *compare)
{
    char *items = array, largest[PH_SORT_MAX_SIZE];
    size_t sorted = 1; /* often everything is in order already */
    while (sorted < count &&
           compare(items + (sorted - 1) * size, items + sorted * size) <= 0)
        sorted++;
    if (sorted >= count) return;
    for (size_t i = count / 2; i > 0; i--)
        ph_sort_sink(items, i - 1, count, size, compare);
    for (size_t end = count; end > 1; end--) {
        memcpy(largest, items, size);
        memcpy(items, items + (end - 1) * size, size);
        memcpy(items + (end - 1) * size, largest, size);
        ph_sort_sink(items, 0, end - 1, size, compare);
    }
}

#endif
