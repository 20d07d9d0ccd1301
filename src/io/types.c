/*
 * types.c - the element types of safetensors, and the words for a tensor in a sentence.
 */
#include "io/types.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/size.h"

/* In the order of the format's own writer: smallest alignment first. */
static const ph_dtype format_types[] = {
    PH_BOOL,    PH_F4,      PH_F6_E2M3, PH_F6_E3M2,     PH_U8,          PH_I8,
    PH_F8_E5M2, PH_F8_E4M3, PH_F8_E8M0, PH_F8_E4M3FNUZ, PH_F8_E5M2FNUZ, PH_I16,
    PH_U16,     PH_F16,     PH_BF16,    PH_I32,         PH_U32,         PH_F32,
    PH_C64,     PH_F64,     PH_I64,     PH_U64};

enum { FORMAT_TYPES = sizeof format_types / sizeof format_types[0] };

int ph_types_rank(ph_dtype type)
{
    for (int i = 0; i < FORMAT_TYPES; i++)
        if (format_types[i] == type) return i;
    return -1;
}

int ph_types_find(const char *name, size_t length, ph_dtype *out)
{
    for (int i = 0; i < FORMAT_TYPES; i++) {
        const char *known = ph_dtype_name(format_types[i]);
        if (strlen(known) == length && memcmp(known, name, length) == 0) {
            *out = format_types[i];
            return 0;
        }
    }
    return -1;
}

const char *ph_types_bytes(const ph_tensor *tensor, size_t *bytes)
{
    ph_dtype_unit unit = ph_dtype_about(tensor->type);
    size_t elements = 0, bits = 0;
    if (ph_size_product(tensor->shape, tensor->rank, &elements) ||
        ph_size_mul(elements, (size_t)(8 * unit.bytes / unit.elements), &bits))
        return "the product of its shape overflows";
    if (bits % 8 != 0) return "its elements do not fill whole bytes";
    *bytes = bits / 8;
    return NULL;
}

int ph_tensor_describe(const ph_tensor *tensor, char *text, size_t size)
{
    if (!text) size = 0;
    if (!tensor) return snprintf(text, size, "%s", "");
    char all[256];
    const char *name = ph_dtype_name(tensor->type);
    int at = snprintf(all, sizeof all, "%s (", name ? name : "?");
    for (int i = 0; i < tensor->rank && i < PH_MAX_RANK; i++)
        at += snprintf(all + at, sizeof all - (size_t)at, "%s%zu", i ? ", " : "",
                       tensor->shape[i]);
    snprintf(all + at, sizeof all - (size_t)at, ")");
    return snprintf(text, size, "%s", all);
}
