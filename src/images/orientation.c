/*
 * orientation.c - how a photo is rotated and mirrored, as its camera says in EXIF.
 */
#include <string.h>

#include "base/base.h"
#include "images/image.h"

/* The directory of a TIFF file, in the order of bytes that it names. */
typedef struct tiff {
    const uint8_t *bytes;
    size_t size;
    int big;
} tiff;

/* A number of `count` bytes, which are there. */
static size_t number_at(const tiff *t, size_t at, int count)
{
    size_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | t->bytes[at + (size_t)(t->big ? i : count - 1 - i)];
    return value;
}

/* The value of an entry of 12 bytes, if that is an orientation; else 0. */
static int orientation_of(const tiff *t, size_t entry)
{
    enum { ORIENTATION = 0x0112, SHORT = 3, LONG = 4 };
    size_t type = number_at(t, entry + 2, 2);
    if (number_at(t, entry, 2) != ORIENTATION || number_at(t, entry + 4, 4) != 1 ||
        (type != SHORT && type != LONG))
        return 0;
    size_t value = number_at(t, entry + 8, type == SHORT ? 2 : 4);
    return value >= 1 && value <= 8 ? (int)value : 1;
}

int ph_exif_orientation(const uint8_t *bytes, size_t size)
{
    int found = 0;
    if (size < 14 || memcmp(bytes, "Exif\0\0", 6)) return 0;
    tiff t = {bytes + 6, size - 6, bytes[6] == 'M'};
    if (memcmp(t.bytes, t.big ? "MM\0*" : "II*\0", 4)) return 0;
    size_t at = number_at(&t, 4, 4);
    if (at > t.size || t.size - at < 2) return 0;
    size_t entries = number_at(&t, at, 2);
    for (at += 2; entries && t.size - at >= 12; entries--, at += 12) {
        int value = orientation_of(&t, at);
        if (value) found = value;
    }
    return found;
}

/* Where pixel (x, y) of the picture that is shown is stored: its index. */
static size_t stored_at(const ph_image *stored, int orientation, int x, int y)
{
    int across = orientation > 4 ? y : x, down = orientation > 4 ? x : y;
    int mirrored = orientation == 2 || orientation == 3 || orientation > 6;
    int flipped = orientation == 3 || orientation == 4 || orientation == 6 ||
                  orientation == 7;
    if (mirrored) across = stored->width - 1 - across;
    if (flipped) down = stored->height - 1 - down;
    return (size_t)down * (size_t)stored->width + (size_t)across;
}

ph_status ph_image_orient(ph_image *image, const char *name, int orientation,
                          const ph_io *io)
{
    ph_image shown = {0};
    size_t width = (size_t)image->width, height = (size_t)image->height;
    if (orientation < 2) return PH_OK;
    PH_TRY(ph_image_create(&shown, name, orientation > 4 ? height : width,
                           orientation > 4 ? width : height, io));
    uint8_t *to = shown.rgb;
    for (int y = 0; y < shown.height; y++)
        for (int x = 0; x < shown.width; x++, to += 3)
            memcpy(to, image->rgb + 3 * stored_at(image, orientation, x, y), 3);
    ph_image_free(image, io);
    *image = shown;
    return PH_OK;
}
