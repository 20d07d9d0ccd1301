/*
 * image.c - which format a file has, and the memory of a picture.
 */
#include <string.h>

#include "base/base.h"
#include "images/image.h"
#include "io/map.h"

ph_status ph_image_check(const char *name, size_t width, size_t height, const ph_io *io)
{
    if (!width || !height || width > PH_IMAGE_SIDE || height > PH_IMAGE_SIDE ||
        width > PH_IMAGE_PIXELS / height)
        return ph_io_fail(io, PH_BAD_FILE,
                          "%.200s has %zu x %zu pixels, expected 1 to %d a side and at "
                          "most %d",
                          name, width, height, PH_IMAGE_SIDE, PH_IMAGE_PIXELS);
    return PH_OK;
}

ph_status ph_image_create(ph_image *out, const char *name, size_t width, size_t height,
                          const ph_io *io)
{
    PH_TRY(ph_image_check(name, width, height, io));
    size_t bytes = width * height * 3;
    out->rgb = ph_io_alloc(io, bytes);
    if (!out->rgb) return ph_io_no_memory(io, bytes, "a picture");
    out->width = (int)width, out->height = (int)height;
    return PH_OK;
}

void ph_image_free(ph_image *image, const ph_io *io)
{
    if (image->rgb) ph_io_release(io, image->rgb);
    *image = (ph_image){0};
}

static int begins(const uint8_t *bytes, size_t size, const char *with)
{
    return size >= strlen(with) && !memcmp(bytes, with, strlen(with));
}

static ph_status read_any(ph_image *out, const char *name, const uint8_t *bytes,
                          size_t size, const ph_io *io)
{
    if (begins(bytes, size, "\x89PNG\r\n\x1a\n"))
        return ph_png_read(out, name, bytes, size, io);
    if (begins(bytes, size, "P6") || begins(bytes, size, "P3"))
        return ph_ppm_read(out, name, bytes, size, io);
    if (begins(bytes, size, "\xff\xd8\xff"))
        return ph_jpeg_read(out, name, bytes, size, io);
    return ph_io_fail(io, PH_BAD_FILE, "%.200s is no picture, expected PNG, JPEG or PPM",
                      name);
}

ph_status ph_image_read(ph_image *out, const char *name, const uint8_t *bytes,
                        size_t size, const ph_io *io)
{
    *out = (ph_image){0};
    ph_status status = read_any(out, name, bytes, size, io);
    if (status != PH_OK) ph_image_free(out, io);
    return status;
}

ph_status ph_image_open(ph_image *out, const char *path, const ph_io *io)
{
    ph_map map;
    *out = (ph_image){0};
    PH_TRY(ph_map_open(&map, path, io));
    ph_status status = ph_image_read(out, path, map.bytes, map.size, io);
    ph_map_close(&map);
    return status;
}
