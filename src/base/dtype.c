/*
 * dtype.c - names and sizes of the element types.
 */
#include "base/quant.h"
#include "base/size.h"

static const ph_dtype_unit units[PH_DTYPE_COUNT] = {
    [PH_F32] = {"F32", 1, 4},
    [PH_F16] = {"F16", 1, 2},
    [PH_BF16] = {"BF16", 1, 2},
    [PH_Q8_0] = {"Q8_0", 32, PH_Q8_0_BYTES},
    [PH_Q4_0] = {"Q4_0", 32, PH_Q4_0_BYTES},
    [PH_Q4_1] = {"Q4_1", 32, PH_Q4_1_BYTES},
    [PH_Q4_K] = {"Q4_K", 256, PH_Q4_K_BYTES},
    [PH_Q5_K] = {"Q5_K", 256, PH_Q5_K_BYTES},
    [PH_Q6_K] = {"Q6_K", 256, PH_Q6_K_BYTES},
    [PH_F64] = {"F64", 1, 8},
    [PH_C64] = {"C64", 1, 8},
    [PH_I64] = {"I64", 1, 8},
    [PH_U64] = {"U64", 1, 8},
    [PH_I32] = {"I32", 1, 4},
    [PH_U32] = {"U32", 1, 4},
    [PH_I16] = {"I16", 1, 2},
    [PH_U16] = {"U16", 1, 2},
    [PH_I8] = {"I8", 1, 1},
    [PH_U8] = {"U8", 1, 1},
    [PH_BOOL] = {"BOOL", 1, 1},
    [PH_F8_E8M0] = {"F8_E8M0", 1, 1},
    [PH_F8_E4M3] = {"F8_E4M3", 1, 1},
    [PH_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 1, 1},
    [PH_F8_E5M2] = {"F8_E5M2", 1, 1},
    [PH_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 1, 1},
    [PH_F6_E3M2] = {"F6_E3M2", 4, 3},
    [PH_F6_E2M3] = {"F6_E2M3", 4, 3},
    [PH_F4] = {"F4", 2, 1},
};

ph_dtype_unit ph_dtype_about(ph_dtype dtype)
{
    return (unsigned)dtype < PH_DTYPE_COUNT ? units[dtype] : (ph_dtype_unit){0};
}

const char *ph_dtype_name(ph_dtype dtype)
{
    return ph_dtype_about(dtype).name;
}

size_t ph_dtype_bytes(ph_dtype dtype, size_t elements)
{
    ph_dtype_unit unit = ph_dtype_about(dtype);
    size_t bytes = 0;
    if (!unit.name || elements % (size_t)unit.elements) return 0;
    if (ph_size_mul(elements / (size_t)unit.elements, (size_t)unit.bytes, &bytes))
        return 0;
    return bytes;
}
