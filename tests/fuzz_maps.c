/*
 * fuzz_maps.c - any bytes as attention maps of another program, with any bytes as words.
 *
 * The first two bytes say how many of those behind them are the file of words; the rest
 * is the safetensors file. What is accepted makes a report whose every row can be read.
 */
#define _GNU_SOURCE
#include "fuzz_file.h"
#include "polyhead_maps.h"

static void read_rows(const ph_report *report)
{
    for (int s = 0; s < report->stack_count; s++) {
        const ph_stack *stack = &report->stacks[s];
        REQUIRE(stack->q_axis < report->axis_count && stack->k_axis < report->axis_count);
        int rows = report->axes[stack->q_axis].count;
        int keys = report->axes[stack->k_axis].count;
        float *row = malloc(((size_t)keys + 1) * sizeof *row);
        REQUIRE(row);
        for (int n = 0; n < stack->layers * stack->heads && n < 64; n++) {
            if (stack->absent && stack->absent[n]) continue;
            for (int i = 0; i < rows && i < 64; i++)
                REQUIRE(report->weights(report->user, s, n / stack->heads,
                                        n % stack->heads, i, 1, row) == PH_OK);
        }
        free(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char sentence[512] = "";
    const ph_io io = {.error = sentence, .error_size = sizeof sentence};
    if (size < 2) return 0;
    size_t words = (size_t)data[0] | (size_t)data[1] << 8;
    data += 2, size -= 2;
    words = words < size ? words : size;
    fuzz_file tokens = fuzz_file_open(data, words);
    fuzz_file weights = fuzz_file_open(data + words, size - words);
    ph_maps_files files = {.weights = weights.path, .tokens = words ? tokens.path : NULL};
    ph_maps *maps = NULL;
    ph_status status = ph_maps_read(&maps, &files, &io);
    REQUIRE(status == PH_OK ? maps != NULL : *sentence != 0);
    if (status == PH_OK) {
        ph_report report = ph_maps_report(maps);
        read_rows(&report);
    }
    ph_maps_free(maps);
    close(tokens.fd);
    close(weights.fd);
    return 0;
}
