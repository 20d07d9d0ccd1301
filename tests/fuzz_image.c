/*
 * fuzz_image.c - any bytes as a picture.
 *
 * Beyond not crashing: a refusal has a sentence, and what is accepted can be resized.
 */
#include "fuzz.h"
#include "images/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_image image, small;
    ph_status status = ph_image_read(&image, "fuzz", data, size, &io);
    REQUIRE(status == PH_OK || (error[0] && !image.rgb));
    if (status != PH_OK) return 0;
    REQUIRE(image.width > 0 && image.height > 0 && image.rgb);
    REQUIRE(ph_image_resize(&small, &image, 7, 5, PH_RESAMPLE_BICUBIC, &io) == PH_OK);
    ph_image_free(&small, &io);
    ph_image_free(&image, &io);
    return 0;
}
