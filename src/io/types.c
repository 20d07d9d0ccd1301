/*
 * types.c - the element types of safetensors, and the words for a tensor in a sentence.
 */
#include "io/types.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"

static const struct {
    const char *name;
    int bits;
} types[PH_TYPE_COUNT] = {
    [PH_TYPE_BOOL] = {"BOOL", 8},
    [PH_TYPE_F4] = {"F4", 4},
    [PH_TYPE_F6_E2M3] = {"F6_E2M3", 6},
    [PH_TYPE_F6_E3M2] = {"F6_E3M2", 6},
    [PH_TYPE_U8] = {"U8", 8},
    [PH_TYPE_I8] = {"I8", 8},
    [PH_TYPE_F8_E5M2] = {"F8_E5M2", 8},
    [PH_TYPE_F8_E4M3] = {"F8_E4M3", 8},
    [PH_TYPE_F8_E8M0] = {"F8_E8M0", 8},
    [PH_TYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [PH_TYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [PH_TYPE_I16] = {"I16", 16},
    [PH_TYPE_U16] = {"U16", 16},
    [PH_TYPE_F16] = {"F16", 16},
    [PH_TYPE_BF16] = {"BF16", 16},
    [PH_TYPE_I32] = {"I32", 32},
    [PH_TYPE_U32] = {"U32", 32},
    [PH_TYPE_F32] = {"F32", 32},
    [PH_TYPE_C64] = {"C64", 64},
    [PH_TYPE_F64] = {"F64", 64},
    [PH_TYPE_I64] = {"I64", 64},
    [PH_TYPE_U64] = {"U64", 64},
};

static int is_type(ph_tensor_type type)
{
    return (int)type >= 0 && type < PH_TYPE_COUNT;
}

const char *ph_tensor_type_name(ph_tensor_type type)
{
    return is_type(type) ? types[type].name : NULL;
}

int ph_tensor_type_bits(ph_tensor_type type)
{
    return is_type(type) ? types[type].bits : 0;
}

int ph_types_find(const char *name, size_t length, ph_tensor_type *out)
{
    for (int i = 0; i < PH_TYPE_COUNT; i++)
        if (strlen(types[i].name) == length && memcmp(types[i].name, name, length) == 0) {
            *out = (ph_tensor_type)i;
            return 0;
        }
    return -1;
}

const char *ph_types_bytes(const ph_tensor *tensor, size_t *bytes)
{
    size_t elements = 0, bits = 0;
    if (ph_size_product(tensor->shape, tensor->rank, &elements) ||
        ph_size_mul(elements, (size_t)ph_tensor_type_bits(tensor->type), &bits))
        return "the product of its shape overflows";
    if (bits % 8 != 0) return "its elements do not fill whole bytes";
    *bytes = bits / 8;
    return NULL;
}

int ph_tensor_describe(const ph_tensor *tensor, char *text, size_t size)
{
    char all[256];
    const char *name = ph_tensor_type_name(tensor->type);
    int at = snprintf(all, sizeof all, "%s (", name ? name : "?");
    for (int i = 0; i < tensor->rank && i < PH_MAX_RANK; i++)
        at += snprintf(all + at, sizeof all - (size_t)at, "%s%zu", i ? ", " : "",
                       tensor->shape[i]);
    snprintf(all + at, sizeof all - (size_t)at, ")");
    return snprintf(text, size, "%s", all);
}
