/*
 * fuzz_gguf.c - any bytes as a GGUF file.
 *
 * Beyond not crashing: what is accepted lies within the input, every element of a list
 * and every byte of a tensor can be read, and each tensor is found by its name.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "fuzz.h"

/* Keeps the compiler from leaving out reads. */
static volatile size_t read_bytes;

static size_t sum_of(const void *data, size_t bytes)
{
    size_t sum = 0;
    for (size_t i = 0; i < bytes; i++) sum += ((const unsigned char *)data)[i];
    return sum;
}

static size_t read_list(const ph_values *values, const ph_value *list)
{
    const unsigned char *at = list->items;
    size_t sum = 0, length;
    ph_value item;
    for (size_t i = 0; i < list->count; i++) {
        if (ph_values_item(values, list, i, &item)) {
            sum += item.number != 0;
            continue;
        }
        const char *text = ph_gguf_next_text(&at, &length);
        sum += sum_of(text, length);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    size_t sum = 0;
    ph_checkpoint *c = calloc(1, sizeof *c);
    REQUIRE(c);
    ph_status status = ph_gguf_read(c, "fuzz", data, size, &io);
    REQUIRE(status == PH_OK || (status == PH_BAD_FILE && error[0]));
    for (size_t i = 0; status == PH_OK && i < c->values.count; i++)
        if (c->values.list[i].kind == PH_VALUE_LIST)
            sum += read_list(&c->values, &c->values.list[i]);
    for (size_t i = 0; status == PH_OK && i < c->count; i++) {
        ph_stored *s = &c->tensors[i];
        REQUIRE(ph_checkpoint_find(c, s->tensor.name) == s);
        REQUIRE(ph_checkpoint_load(c, s, &io) == PH_OK);
        sum += sum_of(s->tensor.data, s->tensor.bytes);
    }
    read_bytes = sum;
    ph_checkpoint_free(c);
    return 0;
}
