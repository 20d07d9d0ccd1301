/*
 * terminal_patches.c - a picture's patches on the terminal, coloured by the weight the
 * class token gives them: its row is what a classifier reads.
 *
 * First what reaches it through all layers (rollout), then its weights in each head.
 * Weights on hundreds of patches are all small, so unlike those of maps these colours
 * are relative to the largest weight on a patch, which stands above each grid.
 */
#include "base/format.h"
#include "io/io.h"
#include "polyhead_heads.h"
#include "view/terminal.h"

enum { CELL = 2, GAP = 2, LEAST = 24 /* columns of a grid and its title */ };

/* Weights of row 0, `keys` for each pick. */
static ph_status read_rows(const ph_screen *screen, const ph_pick *picks, int count,
                           int keys, float *rows)
{
    const ph_report *report = screen->report;
    for (int n = 0; n < count; n++) {
        ph_status status =
            report->weights(report->user, picks[n].stack, picks[n].layer, picks[n].head,
                            0, 1, rows + (size_t)n * (size_t)keys);
        if (status != PH_OK)
            return ph_io_fail(screen->io, status, "the weights to draw: %s",
                              ph_status_text(status));
    }
    return PH_OK;
}

static float largest(const ph_screen *screen, const float *row, int keys)
{
    float max = 0;
    for (int i = screen->report->patch_first; i < keys; i++)
        if (row[i] > max) max = row[i];
    return max;
}

/* picks NULL: not of a head, but of all layers. */
static void put_title(const ph_screen *screen, const ph_pick *pick, float max, int width)
{
    char name[64], title[96];
    ph_format(title, sizeof title, "%.40s  largest %.3f",
              pick ? ph_pick_name(screen->report, pick, name) : "rollout",
              (double)max);
    ph_put_word(screen, title, width, 0);
}

static void put_patch_row(const ph_screen *screen, const float *row, int y, float max,
                          int keys)
{
    int columns = screen->report->patch_columns;
    for (int x = 0; x < columns; x++) {
        int key = screen->report->patch_first + y * columns + x;
        ph_put_cell(screen, key < keys && max > 0 ? row[key] / max : 0, CELL, NULL);
    }
}

/* Grids side by side. */
static void put_grids(const ph_screen *screen, const ph_pick *picks, int count, int keys,
                      const float *rows)
{
    int columns = screen->report->patch_columns, wide = columns * CELL;
    int slot = wide < LEAST ? LEAST : wide;
    int lines = (keys - screen->report->patch_first) / columns;
    ph_put(screen, "\n");
    for (int y = -1; y < lines; y++) {
        for (int n = 0; n < count; n++) {
            const float *row = rows + (size_t)n * (size_t)keys;
            float max = largest(screen, row, keys);
            ph_put_blanks(screen, GAP);
            if (y < 0) {
                put_title(screen, picks ? &picks[n] : NULL, max, slot);
                continue;
            }
            put_patch_row(screen, row, y, max, keys);
            ph_put_blanks(screen, slot - wide);
        }
        ph_put(screen, "\n");
    }
}

/* What reaches the class token through all layers. */
static ph_status put_rollout(const ph_screen *screen, int keys, float *row)
{
    ph_status status = ph_rollout(screen->report, 0, 0, row, screen->io);
    if (status != PH_OK) return status;
    ph_put(screen, "\n  what the class token draws from each patch through all layers "
                   "(rollout)\n");
    put_grids(screen, NULL, 1, keys, row);
    return PH_OK;
}

ph_status ph_put_patches(const ph_screen *screen, const ph_pick *picks, int count)
{
    const ph_report *report = screen->report;
    int keys = report->axes[0].count, wide = report->patch_columns * CELL;
    int slot = GAP + (wide < LEAST ? LEAST : wide);
    int fit = screen->width > slot ? screen->width / slot : 1;
    size_t bytes = (size_t)keys * (size_t)fit * sizeof(float);
    float *rows = ph_io_alloc(screen->io, bytes);
    if (!rows) return ph_io_no_memory(screen->io, bytes, "patches");
    ph_status status = put_rollout(screen, keys, rows);
    ph_put(screen, "\n  what the class token attends to, relative to the largest "
                   "weight on a patch\n");
    for (int n = 0; n < count && status == PH_OK; n += fit) {
        int some = count - n < fit ? count - n : fit;
        status = read_rows(screen, picks + n, some, keys, rows);
        if (status == PH_OK) put_grids(screen, picks + n, some, keys, rows);
    }
    ph_io_release(screen->io, rows);
    return status;
}
