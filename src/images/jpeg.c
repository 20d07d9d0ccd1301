/*
 * jpeg.c - JPEG files, baseline and progressive, grey or in colours: their markers; see
 * jpeg.h.
 */
#include "images/jpeg.h"

#include <string.h>

#include "base/base.h"

enum { SCANS_MOST = 256 }; /* a scan of no bytes still goes over every block */

static ph_status bad(const ph_jpeg *j, const char *what)
{
    return ph_io_fail(j->io, PH_BAD_FILE, "%.200s: %s", j->name, what);
}

static int word_at(const uint8_t *at)
{
    return at[0] << 8 | at[1];
}

/* ---- tables ------------------------------------------------------------------------ */

static ph_status read_quant(ph_jpeg *j, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        int wide = *at >> 4, index = *at & 15;
        at++;
        if (wide > 1 || index >= PH_JPEG_TABLES || end - at < 64 * (1 + wide))
            return bad(j, "a quantisation table is malformed");
        for (int k = 0; k < 64; k++, at += 1 + wide)
            j->quant[index][k] = (uint16_t)(wide ? word_at(at) : *at);
        j->has_quant[index] = 1;
    }
    return PH_OK;
}

static ph_status read_codes(ph_jpeg *j, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        int kind = *at >> 4, index = *at & 15, count = 0;
        if (end - at < 17 || kind > 1 || index >= PH_JPEG_TABLES)
            return bad(j, "a table of codes is malformed");
        for (int i = 1; i <= 16; i++) count += at[i];
        if (count > 256 || end - at < 17 + count)
            return bad(j, "a table of codes is malformed");
        memcpy(j->codes[kind][index].values, at + 17, (size_t)count);
        if (ph_jpeg_set_codes(&j->codes[kind][index], at + 1))
            return bad(j, "a table has more codes than there are");
        at += 17 + count;
    }
    return PH_OK;
}

/* ---- the frame --------------------------------------------------------------------- */

static ph_status size_part(ph_jpeg *j, ph_jpeg_part *part)
{
    part->width = ph_div_up(ph_div_up(j->width * part->h, j->h), 8);
    part->height = ph_div_up(ph_div_up(j->height * part->v, j->v), 8);
    part->across = j->units_x * part->h, part->down = j->units_y * part->v;
    size_t samples = 64 * (size_t)part->across * (size_t)part->down;
    part->blocks = ph_io_alloc(j->io, samples * sizeof *part->blocks);
    part->samples = ph_io_alloc(j->io, samples);
    if (!part->blocks || !part->samples)
        return ph_io_no_memory(j->io, 3 * samples, "a picture");
    memset(part->blocks, 0, samples * sizeof *part->blocks);
    return PH_OK;
}

/* A block takes a bit at least: a header alone cannot claim memory. */
static ph_status size_parts(ph_jpeg *j)
{
    size_t blocks = 0;
    j->units_x = ph_div_up(j->width, 8 * j->h),
    j->units_y = ph_div_up(j->height, 8 * j->v);
    for (int i = 0; i < j->part_count; i++) {
        const ph_jpeg_part *part = &j->parts[i];
        if (j->h % part->h || j->v % part->v)
            return ph_io_fail(j->io, PH_UNSUPPORTED,
                              "%.200s: colours have no whole fraction of the resolution",
                              j->name);
        blocks += (size_t)(part->h * part->v) * (size_t)j->units_x * (size_t)j->units_y;
    }
    if (blocks / 8 > (size_t)(j->end - j->at)) return bad(j, "the data end too early");
    for (int i = 0; i < j->part_count; i++) PH_TRY(size_part(j, &j->parts[i]));
    return PH_OK;
}

static ph_status read_frame(ph_jpeg *j, int marker, const uint8_t *at, const uint8_t *end)
{
    if (marker > 0xc2)
        return ph_io_fail(j->io, PH_UNSUPPORTED,
                          "%.200s: JPEG of kind %d, expected baseline or progressive",
                          j->name, marker - 0xc0);
    if (j->part_count) return bad(j, "there are two frames, expected one");
    if (end - at < 6 || end - at < 6 + 3 * at[5]) return bad(j, "the frame is malformed");
    int count = at[5];
    j->height = word_at(at + 1), j->width = word_at(at + 3);
    j->progressive = marker == 0xc2;
    if (at[0] != 8 || (count != 1 && count != 3))
        return ph_io_fail(j->io, PH_UNSUPPORTED,
                          "%.200s: %d components of %d bits, expected 1 or 3 of 8",
                          j->name, count, at[0]);
    PH_TRY(ph_image_check(j->name, (size_t)j->width, (size_t)j->height, j->io));
    for (int i = 0; i < count; i++) {
        const uint8_t *p = at + 6 + 3 * i;
        j->parts[i] =
            (ph_jpeg_part){.id = p[0], .h = p[1] >> 4, .v = p[1] & 15, .quant = p[2]};
        if (count == 1) j->parts[i].h = j->parts[i].v = 1; /* it means nothing then */
        ph_jpeg_part *part = &j->parts[i];
        if (part->h < 1 || part->h > 4 || part->v < 1 || part->v > 4 ||
            part->quant >= PH_JPEG_TABLES)
            return bad(j, "the frame is malformed");
        j->h = ph_max(j->h, part->h), j->v = ph_max(j->v, part->v);
    }
    j->part_count = count;
    return size_parts(j);
}

/* ---- scans ------------------------------------------------------------------------- */

static ph_jpeg_part *find_part(ph_jpeg *j, int id)
{
    for (int i = 0; i < j->part_count; i++)
        if (j->parts[i].id == id) return &j->parts[i];
    return NULL;
}

/* Whether the tables that codes of this scan refer to were read. */
static int has_tables(const ph_jpeg *j, const ph_jpeg_part *part)
{
    int dc = j->from == 0 && !j->high, ac = j->to > 0;
    return part->dc < PH_JPEG_TABLES && part->ac < PH_JPEG_TABLES &&
           (!dc || j->codes[0][part->dc].known) && (!ac || j->codes[1][part->ac].known);
}

static int is_sensible(const ph_jpeg *j)
{
    if (!j->progressive) return j->from == 0 && j->to == 63 && !j->high && !j->low;
    return j->from <= j->to && j->to < 64 && (j->from > 0 || j->to == 0) &&
           (j->from == 0 || j->list_count == 1) && j->low <= 13 && j->high <= 14 &&
           (!j->high || j->high == j->low + 1);
}

static ph_status read_scan(ph_jpeg *j, const uint8_t *at, const uint8_t *end)
{
    int count = at < end ? at[0] : 0;
    if (!j->part_count) return bad(j, "a scan stands before the frame");
    if (count < 1 || count > j->part_count || end - at != 4 + 2 * count)
        return bad(j, "a scan is malformed");
    const uint8_t *rest = at + 1 + 2 * count;
    j->from = rest[0], j->to = rest[1], j->high = rest[2] >> 4, j->low = rest[2] & 15;
    j->list_count = count;
    int good = is_sensible(j);
    for (int i = 0; i < count && good; i++) {
        ph_jpeg_part *part = find_part(j, at[1 + 2 * i]);
        for (int k = 0; k < i; k++) good &= j->list[k] != part;
        good &= part != NULL;
        if (!good) break;
        part->dc = at[2 + 2 * i] >> 4, part->ac = at[2 + 2 * i] & 15;
        j->list[i] = part;
        good = has_tables(j, part);
    }
    if (!good) return bad(j, "a scan is malformed");
    if (ph_jpeg_scan(j))
        return bad(j, "the codes of a scan are malformed or end too early");
    return PH_OK;
}

/* ---- markers ----------------------------------------------------------------------- */

/* Adobe says whether three components are red, green and blue. */
static void read_adobe(ph_jpeg *j, const uint8_t *at, const uint8_t *end)
{
    if (end - at >= 12 && !memcmp(at, "Adobe", 5)) j->rgb = at[11] == 0;
}

/* The next marker; bytes in front of it are what a scan did not need. -1: none. */
static int next_marker(ph_jpeg *j)
{
    while (j->end - j->at >= 2) {
        int found = j->at[0] == 0xff && j->at[1] != 0xff && j->at[1] != 0;
        if (found) {
            j->at += 2;
            return j->at[-1];
        }
        j->at++;
    }
    return -1;
}

static int is_frame(int marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
           marker != 0xcc;
}

static ph_status read_segment(ph_jpeg *j, int marker)
{
    if (j->end - j->at < 2 || word_at(j->at) < 2 || j->end - j->at < word_at(j->at))
        return bad(j, "a segment is longer than the file");
    const uint8_t *at = j->at + 2, *end = j->at + word_at(j->at);
    j->at = end;
    if (marker == 0xdb) return read_quant(j, at, end);
    if (marker == 0xc4) return read_codes(j, at, end);
    if (is_frame(marker)) return read_frame(j, marker, at, end);
    if (marker == 0xda) return read_scan(j, at, end);
    if (marker == 0xee) read_adobe(j, at, end);
    if (marker == 0xe1 && !j->list_count && !j->orientation)
        j->orientation = ph_exif_orientation(at, (size_t)(end - at));
    if (marker == 0xdd && end - at >= 2) j->restart = word_at(at);
    return PH_OK;
}

static ph_status read_all(ph_jpeg *j, ph_image *out)
{
    int scans = 0, marker;
    while ((marker = next_marker(j)) >= 0 && marker != 0xd9) {
        if (marker == 0xd8 || marker == 0x01 || (marker & 0xf8) == 0xd0) continue;
        PH_TRY(read_segment(j, marker));
        scans += marker == 0xda;
        if (scans > SCANS_MOST) return bad(j, "there are more than 256 scans");
    }
    if (!scans) return bad(j, "there is no scan");
    for (int i = 0; i < j->part_count; i++)
        if (!j->has_quant[j->parts[i].quant])
            return bad(j, "a quantisation table is missing");
    PH_TRY(ph_image_create(out, j->name, (size_t)j->width, (size_t)j->height, j->io));
    ph_jpeg_pixels(j, out->rgb);
    return ph_image_orient(out, j->name, j->orientation, j->io);
}

ph_status ph_jpeg_read(ph_image *out, const char *name, const uint8_t *bytes, size_t size,
                       const ph_io *io)
{
    ph_jpeg *j = ph_io_alloc(io, sizeof *j);
    if (!j) return ph_io_no_memory(io, sizeof *j, "a picture");
    memset(j, 0, sizeof *j);
    j->name = name, j->io = io, j->at = bytes, j->end = bytes + size;
    ph_status status = read_all(j, out);
    for (int i = 0; i < PH_JPEG_PARTS; i++) {
        ph_io_release(io, j->parts[i].blocks);
        ph_io_release(io, j->parts[i].samples);
    }
    ph_io_release(io, j);
    return status;
}
