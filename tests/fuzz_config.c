/*
 * fuzz_config.c - any bytes as config.json.
 *
 * Beyond not crashing: every key that is accepted is found, and a list has its items.
 */
#include <string.h>

#include "checkpoint/values.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_values v = {0};
    ph_value item;
    ph_status status = ph_values_read(&v, "fuzz", "", (const char *)data, size, &io);
    if (status == PH_OK) status = ph_values_sort(&v, "fuzz", &io);
    REQUIRE(status == PH_OK || (status == PH_BAD_FILE && error[0]));
    for (size_t i = 0; status == PH_OK && i < v.count; i++) {
        const ph_value *value = &v.list[i];
        REQUIRE(ph_values_find(&v, value->key) == value);
        if (value->kind == PH_VALUE_TEXT) REQUIRE(value->text[value->length] == 0);
        for (size_t k = 0; value->kind == PH_VALUE_LIST && k < value->count; k++)
            REQUIRE(ph_values_item(&v, value, k, &item));
    }
    ph_values_free(&v);
    return 0;
}
