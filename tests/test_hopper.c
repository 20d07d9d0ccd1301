/*
 * test_hopper.c - what the fast GPU kernels take for granted, on the host: tensor copies
 * and wgmma mean the same place in shared memory, fragments of a product cover it, and
 * every tile is computed once.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cuda/schedule.h"

/* ---- operands ---- */

/* Where a tensor copy puts element (row, column) of a tile of so many rows: panels of 64
   columns one behind the other, swizzled. */
static uint32_t copied_to(uint32_t base, int rows, int row, int column)
{
    uint32_t panel = base + (uint32_t)(column / 64 * rows * PH_LINE);
    return panel + ph_swizzled((uint32_t)(row * PH_LINE + column % 64 * 2));
}

static uint32_t start_of(uint64_t descriptor)
{
    return (uint32_t)(descriptor & 0x3fff) << 4;
}

static uint32_t lead_of(uint64_t descriptor)
{
    return (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
}

static uint32_t stride_of(uint64_t descriptor)
{
    return (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
}

/* Where wgmma reads term t of row r of a K-major operand: the hardware swizzles the
   address it computes. */
static uint32_t read_k_major(uint64_t descriptor, int r, int t)
{
    uint32_t at = start_of(descriptor) + (uint32_t)(r / 8) * stride_of(descriptor);
    return ph_swizzled(at + (uint32_t)(r % 8 * PH_LINE + t * 2));
}

/* ... and row t of column c of an MN-major one. */
static uint32_t read_mn_major(uint64_t descriptor, int c, int t)
{
    uint32_t at = start_of(descriptor) + (uint32_t)(c / 64) * lead_of(descriptor);
    at += (uint32_t)(t / 8) * stride_of(descriptor);
    return ph_swizzled(at + (uint32_t)(t % 8 * PH_LINE + c % 64 * 2));
}

static void k_major(void)
{
    static const uint32_t base = 3 * PH_ATOM;
    for (int dim = 64; dim <= 256; dim *= 2)
        for (int rows = 64; rows <= 192; rows += 64)
            for (int r = 0; r < rows; r++)
                for (int d = 0; d < dim; d++) {
                    uint32_t operand = ph_wgmma_operand(base, 16);
                    uint64_t x =
                        ph_wgmma_descriptor(operand, ph_k_major_step(d / PH_DEPTH, rows));
                    CHECK(x >> 62 == 1, "the swizzle is not that of 128 bytes");
                    CHECK(read_k_major(x, r, d % PH_DEPTH) == copied_to(base, rows, r, d),
                          "%d rows, dim %d: element (%d,%d)", rows, dim, r, d);
                }
}

static void mn_major(void)
{
    static const uint32_t base = 5 * PH_ATOM;
    for (int keys = PH_FAST_KEYS_256; keys <= PH_FAST_KEYS; keys *= 2)
        for (int key = 0; key < keys; key++)
            for (int d = 0; d < 256; d++) {
                uint32_t operand = ph_wgmma_operand(base, (uint32_t)keys * PH_LINE);
                uint64_t x =
                    ph_wgmma_descriptor(operand, ph_mn_major_step(key / PH_DEPTH));
                CHECK(read_mn_major(x, d, key % PH_DEPTH) ==
                          copied_to(base, keys, key, d),
                      "%d keys: key %d, column %d", keys, key, d);
            }
}

/* ---- fragments ---- */

/* Every element of 64 x 128 belongs to one thread; and as the A operand of the next
   product, register y of a thread holds two neighbours of its row within a step. */
static void fragments(void)
{
    static char seen[64][PH_FAST_KEYS];
    memset(seen, 0, sizeof seen);
    for (int thread = 0; thread < PH_WARPGROUP; thread++)
        for (int x = 0; x < PH_FAST_KEYS / 2; x++) {
            int r = ph_fragment_row(thread, x), c = ph_fragment_column(thread, x);
            CHECK(r >= 0 && r < 64 && c >= 0 && c < PH_FAST_KEYS && !seen[r][c]++,
                  "thread %d, element %d: (%d,%d)", thread, x, r, c);
            int y = x / 2, step = y / 4, slot = y % 4; /* register of the A operand */
            CHECK(r == thread / 32 * 16 + thread % 32 / 4 + slot % 2 * 8 &&
                      c == step * PH_DEPTH + slot / 2 * 8 + thread % 4 * 2 + x % 2,
                  "thread %d: element %d is not in register %d of step %d", thread, x,
                  slot, step);
        }
}

/* ---- schedule ---- */

static void divisors(void)
{
    static const int ends[] = {0, 1, 2, 6, 7, 1000, 65535, 1 << 30, INT32_MAX};
    for (int64_t by = 1; by <= INT32_MAX; by += by < 300 ? 1 : by / 3) {
        ph_divisor d = ph_divisor_of((int)by);
        for (int i = 0; i < 9; i++)
            for (int64_t n = ends[i] - by; n <= ends[i] + by; n += by < 4 ? 1 : by - 1) {
                if (n < 0 || n > INT32_MAX) continue;
                CHECK(ph_divide((int)n, &d) == n / by, "%d / %d is not %d", (int)n,
                      (int)by, ph_divide((int)n, &d));
            }
    }
}

static void every_tile_once(void)
{
    for (int heads = 1; heads <= 40; heads += 3)
        for (int tiles = 1; tiles <= 9; tiles += 2)
            for (int shift = 0; 1 << shift <= heads; shift++) {
                int last = (heads - tiles % 4 * heads / 4) >> shift << shift;
                ph_cuda_schedule s = {.units = heads,
                                      .row_tiles = ph_divisor_of(tiles),
                                      .items = heads * tiles,
                                      .section_shift = shift,
                                      .last = last,
                                      .last_units =
                                          ph_divisor_of(last < heads ? heads - last : 1)};
                char *seen = calloc((size_t)s.items, 1);
                for (int n = 0; n < s.items; n++) {
                    int head = -1, tile = -1;
                    ph_cuda_item(&s, n, &head, &tile);
                    CHECK(head >= 0 && head < heads && tile >= 0 && tile < tiles &&
                              !seen[head * tiles + tile]++,
                          "%d heads, %d tiles, section %d, last %d: item %d is (%d,%d)",
                          heads, tiles, 1 << shift, last, n, head, tile);
                }
                free(seen);
            }
}

static void every_split_once(void)
{
    for (int units = 1; units <= 10; units += 3)
        for (int tiles = 1; tiles <= 5; tiles += 2)
            for (int splits = 1; splits <= 9; splits += 4) {
                ph_cuda_schedule s = {
                    .units = units,
                    .row_tiles = ph_divisor_of(tiles),
                    .splits = ph_divisor_of(splits)};
                char *seen = calloc((size_t)(units * tiles * splits), 1);
                for (int n = 0; n < units * tiles * splits; n++) {
                    int u = -1, t = -1, x = -1;
                    ph_cuda_split_item(&s, n, &u, &t, &x);
                    CHECK(u >= 0 && u < units && t >= 0 && t < tiles && x >= 0 &&
                              x < splits && !seen[(u * tiles + t) * splits + x]++,
                          "%d units, %d tiles, %d splits: item %d is (%d,%d,%d)", units,
                          tiles, splits, n, u, t, x);
                }
                free(seen);
            }
}

static const check_case cases[] = {
    {"k_major", k_major},
    {"mn_major", mn_major},
    {"fragments", fragments},
    {"divisors", divisors},
    {"every_tile_once", every_tile_once},
    {"every_split_once", every_split_once},
    {0, 0},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
