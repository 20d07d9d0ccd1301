/*
 * fuzz_index.c - any bytes as model.safetensors.index.json.
 *
 * Beyond not crashing: no file name leads out of the folder, and files come in order.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_index x;
    ph_status status = ph_index_read(&x, "fuzz", (const char *)data, size, &io);
    REQUIRE(status == PH_OK || (status == PH_BAD_FILE && error[0]));
    REQUIRE(status != PH_OK || (x.count > 0 && x.files > 0 && x.files <= x.count));
    for (size_t i = 0; status == PH_OK && i < x.count; i++) {
        REQUIRE(!strchr(x.list[i].file, '/') && x.list[i].file[0] != '.');
        REQUIRE(i == 0 || strcmp(x.list[i - 1].file, x.list[i].file) <= 0);
    }
    ph_index_free(&x, &io);
    return 0;
}
