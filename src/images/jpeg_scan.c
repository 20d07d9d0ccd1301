/*
 * jpeg_scan.c - the codes of a scan; see jpeg.h.
 */
#include "base/base.h"
#include "images/jpeg.h"

const uint8_t ph_jpeg_zigzag[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18,
                                    11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
                                    13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43,
                                    36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45,
                                    38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* ---- codes ------------------------------------------------------------------------- */

static void set_fast(ph_jpeg_codes *c, int code, int length, uint8_t value)
{
    int spare = PH_JPEG_FAST - length;
    for (int i = 0; spare >= 0 && i < 1 << spare; i++)
        c->fast[(code << spare) + i] = (uint16_t)(length << 8 | value);
}

int ph_jpeg_set_codes(ph_jpeg_codes *c, const uint8_t counts[16])
{
    int code = 0, index = 0;
    for (int i = 0; i < 1 << PH_JPEG_FAST; i++) c->fast[i] = 0;
    for (int length = 1; length <= 16; length++, code <<= 1) {
        int count = counts[length - 1];
        if (code + count > 1 << length) return -1;
        c->first[length] = code, c->index[length] = index;
        for (int i = 0; i < count; i++) set_fast(c, code++, length, c->values[index++]);
        c->last[length] = count ? code - 1 : -1;
    }
    c->known = 1;
    return 0;
}

/* ---- bits -------------------------------------------------------------------------- */

/* A byte 0xff is data only if a 0 follows, which is not; anything else is a marker. */
static void fill(ph_jpeg *j)
{
    while (j->bit_count <= 24 && j->at < j->end) {
        if (*j->at == 0xff && (j->end - j->at < 2 || j->at[1] != 0)) return;
        j->bits |= (uint32_t)*j->at << (24 - j->bit_count);
        j->bit_count += 8;
        j->at += *j->at == 0xff ? 2 : 1;
    }
}

static int take_bits(ph_jpeg *j, int count)
{
    if (!count) return 0;
    if (j->bit_count < count) fill(j);
    if (j->bit_count < count) {
        j->failed = 1;
        return 0;
    }
    int value = (int)(j->bits >> (32 - count));
    j->bits <<= count, j->bit_count -= count;
    return value;
}

static int take_code(ph_jpeg *j, const ph_jpeg_codes *c)
{
    if (j->bit_count < 16) fill(j);
    int fast = c->fast[j->bits >> (32 - PH_JPEG_FAST)];
    if (fast && fast >> 8 <= j->bit_count) {
        take_bits(j, fast >> 8);
        return fast & 255;
    }
    for (int length = 1; length <= 16 && length <= j->bit_count; length++) {
        int code = (int)(j->bits >> (32 - length));
        if (code > c->last[length] || code < c->first[length]) continue;
        take_bits(j, length);
        return c->values[c->index[length] + code - c->first[length]];
    }
    j->failed = 1;
    return 0;
}

/* A number of so many bits: the upper half of its range is positive. */
static int take_number(ph_jpeg *j, int count)
{
    int value = take_bits(j, count);
    return count && value < 1 << (count - 1) ? value - (1 << count) + 1 : value;
}

/* ---- blocks ------------------------------------------------------------------------ */

/* Coefficients of damaged files wrap around instead of overflowing. */
static int16_t wrap(int value)
{
    return (int16_t)(uint16_t)((unsigned)value & 0xffff);
}

static void read_dc(ph_jpeg *j, ph_jpeg_part *part, int16_t *block)
{
    int length = take_code(j, &j->codes[0][part->dc]);
    if (length > 15) {
        j->failed = 1;
        return;
    }
    part->previous = wrap(part->previous + take_number(j, length));
    block[0] = wrap(part->previous * (1 << j->low));
}

/* Coefficients from..to for the first time; a code may end this block and more. */
static void read_ac(ph_jpeg *j, const ph_jpeg_part *part, int16_t *block)
{
    if (j->run > 0) {
        j->run--;
        return;
    }
    for (int k = ph_max(j->from, 1); k <= j->to && !j->failed; k++) {
        int code = take_code(j, &j->codes[1][part->ac]), zeros = code >> 4,
            length = code & 15;
        if (!length && zeros < 15) {
            j->run = (1 << zeros) - 1 + (zeros ? take_bits(j, zeros) : 0);
            if (j->run && !j->progressive) j->failed = 1;
            return;
        }
        k += zeros;
        if (k > j->to) j->failed = 1;
        if (!j->failed && length)
            block[ph_jpeg_zigzag[k]] = wrap(take_number(j, length) * (1 << j->low));
    }
}

/* One bit more of a coefficient that is not zero. */
static void refine(ph_jpeg *j, int16_t *value)
{
    if (take_bits(j, 1) && !(*value & (1 << j->low)))
        *value = wrap(*value + (*value > 0 ? 1 : -1) * (1 << j->low));
}

/* Refines coefficients from k on and passes over `zeros` that stay zero; returns the one
   behind them. */
static int refine_over(ph_jpeg *j, int16_t *block, int k, int zeros)
{
    for (; k <= j->to && !j->failed; k++) {
        int16_t *value = &block[ph_jpeg_zigzag[k]];
        if (*value)
            refine(j, value);
        else if (zeros-- == 0)
            break;
    }
    return k;
}

static void refine_ac(ph_jpeg *j, const ph_jpeg_part *part, int16_t *block)
{
    int k = j->from;
    for (; j->run == 0 && k <= j->to && !j->failed; k++) {
        int code = take_code(j, &j->codes[1][part->ac]), zeros = code >> 4, fresh = 0;
        if (!(code & 15) && zeros < 15) {
            j->run = (1 << zeros) + (zeros ? take_bits(j, zeros) : 0);
            break;
        }
        if (code & 15) fresh = (take_bits(j, 1) ? 1 : -1) * (1 << j->low);
        k = refine_over(j, block, k, zeros);
        if (k <= j->to && fresh) block[ph_jpeg_zigzag[k]] = wrap(fresh);
    }
    if (j->run == 0) return;
    refine_over(j, block, k, 64);
    j->run--;
}

static void read_block(ph_jpeg *j, ph_jpeg_part *part, int x, int y)
{
    int16_t *block = part->blocks + 64 * ((size_t)y * (size_t)part->across + (size_t)x);
    if (j->from == 0 && j->high)
        block[0] = wrap(block[0] | take_bits(j, 1) * (1 << j->low));
    else if (j->from == 0)
        read_dc(j, part, block);
    if (j->to > 0 && j->high)
        refine_ac(j, part, block);
    else if (j->to > 0)
        read_ac(j, part, block);
}

/* ---- the scan ---------------------------------------------------------------------- */

/* Behind so many units stands a marker, and everything begins anew. */
static int begin_again(ph_jpeg *j)
{
    j->bits = 0, j->bit_count = 0, j->run = 0;
    for (int i = 0; i < j->list_count; i++) j->list[i]->previous = 0;
    while (j->end - j->at >= 2 && j->at[0] == 0xff && j->at[1] == 0xff) j->at++;
    if (j->end - j->at < 2 || j->at[0] != 0xff || (j->at[1] & 0xf8) != 0xd0) return -1;
    j->at += 2;
    return 0;
}

/* A unit of a scan of several components holds blocks of each; one alone goes block by
   block. */
static void read_unit(ph_jpeg *j, int x, int y)
{
    if (j->list_count == 1) {
        read_block(j, j->list[0], x, y);
        return;
    }
    for (int i = 0; i < j->list_count; i++) {
        ph_jpeg_part *part = j->list[i];
        for (int b = 0; b < part->h * part->v; b++)
            read_block(j, part, x * part->h + b % part->h, y * part->v + b / part->h);
    }
}

int ph_jpeg_scan(ph_jpeg *j)
{
    int alone = j->list_count == 1, done = 0;
    int width = alone ? j->list[0]->width : j->units_x;
    int height = alone ? j->list[0]->height : j->units_y;
    j->bits = 0, j->bit_count = 0, j->run = 0, j->failed = 0;
    for (int i = 0; i < j->list_count; i++) j->list[i]->previous = 0;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, done++) {
            if (j->restart && done == j->restart) {
                if (begin_again(j)) return -1;
                done = 0;
            }
            read_unit(j, x, y);
            if (j->failed) return -1;
        }
    return 0;
}
