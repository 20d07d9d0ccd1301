/*
 * stored_copy.c - see stored_copy.h.
 */
#include "stored_copy.h"

#include <math.h>
#include <string.h>

#include "base/quant.h"
#include "guard.h"

/* 32 floats as one block; round to nearest, the largest magnitude sets the scale. */
static void put_block(uint8_t *to, ph_dtype type, const float *x)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) low = fminf(low, x[i]), high = fmaxf(high, x[i]);
    float most = fmaxf(fabsf(low), fabsf(high));
    float scale = type == PH_Q8_0   ? most / 127
                  : type == PH_Q4_0 ? most / 7
                                    : (high - low) / 15;
    uint16_t half = ph_to_f16(scale), least = ph_to_f16(low);
    scale = ph_from_f16(half), low = type == PH_Q4_1 ? ph_from_f16(least) : 0;
    memcpy(to, &half, 2);
    if (type == PH_Q4_1) memcpy(to + 2, &least, 2);
    memset(to + (type == PH_Q4_1 ? 4 : 2), 0, type == PH_Q8_0 ? 32 : 16);
    for (int i = 0; i < 32; i++) {
        int n = scale > 0 ? (int)lrintf((x[i] - low) / scale) : 0;
        if (type == PH_Q8_0)
            to[2 + i] = (uint8_t)(n < -127 ? -127 : n > 127 ? 127 : n);
        else {
            int least_n = type == PH_Q4_0 ? -8 : 0;
            n = n < least_n ? 0 : n > least_n + 15 ? 15 : n - least_n;
            to[(type == PH_Q4_1 ? 4 : 2) + i % 16] |= (uint8_t)(n << i / 16 * 4);
        }
    }
}

void *stored_copy(const float *x, size_t count, ph_dtype type)
{
    uint8_t *to = guard_alloc(ph_dtype_bytes(type, count));
    for (size_t i = 0; i < count; i++) {
        uint16_t half = type == PH_BF16 ? ph_to_bf16(x[i]) : ph_to_f16(x[i]);
        if (type == PH_F32)
            memcpy(to + 4 * i, x + i, 4);
        else if (!ph_dtype_is_block(type))
            memcpy(to + 2 * i, &half, 2);
        else if (i % 32 == 0)
            put_block(to + ph_dtype_bytes(type, i), type, x + i);
    }
    return to;
}
