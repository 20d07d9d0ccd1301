/*
 * convert.c - ph_tensor_convert of polyhead_io.h: F32, F16 and BF16 into each other.
 *
 * Every step goes through F32, which holds the other two exactly, so an element is
 * rounded once at most.
 */
#include <string.h>

#include "base/half.h"
#include "io/types.h"

static float load(const void *from, ph_dtype type, size_t i)
{
    if (type == PH_F32) return ((const float *)from)[i];
    uint16_t half = ((const uint16_t *)from)[i];
    return type == PH_F16 ? ph_from_f16(half) : ph_from_bf16(half);
}

static void store(void *to, ph_dtype type, size_t i, float value)
{
    if (type == PH_F32)
        ((float *)to)[i] = value;
    else
        ((uint16_t *)to)[i] = type == PH_F16 ? ph_to_f16(value) : ph_to_bf16(value);
}

static int is_known(ph_dtype type)
{
    return type == PH_F32 || type == PH_F16 || type == PH_BF16;
}

ph_status ph_tensor_convert(const ph_tensor *tensor, ph_dtype type, void *out)
{
    if (!tensor) return PH_BAD_ARGUMENT;
    size_t bytes = 0;
    if (!is_known(tensor->type) || !is_known(type)) return PH_UNSUPPORTED;
    if (ph_types_bytes(tensor, &bytes)) return PH_BAD_SHAPE;
    if (bytes == 0) return PH_OK;
    if (!out || !tensor->data) return PH_BAD_ARGUMENT;
    if (tensor->type == type) {
        memcpy(out, tensor->data, bytes);
        return PH_OK;
    }
    size_t count = bytes / ph_dtype_bytes(tensor->type, 1);
    for (size_t i = 0; i < count; i++)
        store(out, type, i, load(tensor->data, tensor->type, i));
    return PH_OK;
}
