/*
 * test_maps.c - attention maps from files as reports: shapes, types, layers by number,
 * several stacks, words as lines and as JSON, causal maps, and what is refused.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <unistd.h>

#include "check.h"
#include "polyhead_heads.h"
#include "polyhead_maps.h"

enum { TENSORS = 16 };

static char error[300];
static const ph_io io = {.error = error, .error_size = sizeof error};

/* ---- files ---- */

static const char *path_of(const char *name)
{
    static char paths[4][200];
    static int next;
    char *path = paths[next++ % 4];
    const char *folder = getenv("TMPDIR");
    snprintf(path, 200, "%s/polyhead-maps-%ld-%s", folder ? folder : "/tmp",
             (long)getpid(), name);
    return path;
}

static const char *write_bytes(const char *name, const char *bytes, size_t count)
{
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, count, f) == count, "cannot write %s", path);
    fclose(f);
    return path;
}

static const char *write_text(const char *name, const char *text)
{
    return write_bytes(name, text, strlen(text));
}

/* Weights that say where they are: layer, head, row and key in one number. */
static float weight_of(size_t l, size_t h, size_t i, size_t j)
{
    return (float)(((l * 8 + h) * 16 + i) * 16 + j) / 4096;
}

/* (layers, heads, rows, keys) from layer `first` on; layers 0: rank 3. */
static ph_tensor make(const char *name, ph_dtype type, size_t first, size_t layers,
                      size_t heads, size_t rows, size_t keys)
{
    size_t all = (layers ? layers : 1) * heads * rows * keys, n = 0;
    float *data = malloc(all * sizeof *data), *half = malloc(all * sizeof *half);
    for (size_t l = 0; l < (layers ? layers : 1); l++)
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < rows; i++)
                for (size_t j = 0; j < keys; j++)
                    data[n++] = weight_of(first + l, h, i, j);
    ph_tensor t = {.name = name, .type = PH_F32, .rank = layers ? 4 : 3, .data = data};
    const size_t shape[] = {layers, heads, rows, keys};
    memcpy(t.shape, shape + !layers, sizeof shape - (layers ? 0 : sizeof *shape));
    if (type == PH_F32) {
        free(half);
        return t;
    }
    CHECK(ph_tensor_convert(&t, type, half) == PH_OK, "no conversion");
    free(data);
    t.type = type;
    t.data = half;
    return t;
}

static const char *write_tensors(ph_tensor *list, size_t count)
{
    const char *path = path_of("maps");
    CHECK(ph_file_write(path, list, count, NULL, 0, &io) == PH_OK, "%s", error);
    for (size_t n = 0; n < count; n++) free((void *)list[n].data);
    return path;
}

static ph_maps *open_maps(const char *weights, const char *tokens, const char *rows)
{
    ph_maps *maps = NULL;
    const ph_maps_files files = {
        .weights = weights, .tokens = tokens, .row_tokens = rows};
    CHECK(ph_maps_read(&maps, &files, &io) == PH_OK, "refused: %s", error);
    return maps;
}

/* Every weight of a stack, read two rows at a time. */
static void check_weights(const ph_report *report, int stack, int first, double error_of)
{
    const ph_stack *s = &report->stacks[stack];
    int rows = report->axes[s->q_axis].count, keys = report->axes[s->k_axis].count;
    float two[64];
    for (int l = 0; l < s->layers; l++)
        for (int h = 0; h < s->heads; h++) {
            if (s->absent && s->absent[l * s->heads + h]) continue;
            for (int i = 0; i < rows; i += 2) {
                int count = rows - i < 2 ? 1 : 2;
                CHECK(report->weights(report->user, stack, l, h, i, count, two) == PH_OK,
                      "no weights");
                for (int n = 0; n < count * keys; n++) {
                    float expected =
                        weight_of((size_t)(first + l), (size_t)h, (size_t)(i + n / keys),
                                  (size_t)(n % keys));
                    CHECK(fabs((double)(two[n] - expected)) <=
                              error_of * (double)expected,
                          "stack %d layer %d head %d row %d: %g, expected %g", stack, l,
                          h, i + n / keys, (double)two[n], (double)expected);
                }
            }
        }
}

/* ---- shapes and types ---- */

static void one_tensor(void)
{
    static const ph_dtype types[] = {PH_F32, PH_F16, PH_BF16};
    static const double errors[] = {0, 1e-3, 1e-2};
    for (int t = 0; t < 3; t++)
        for (size_t layers = 0; layers < 4; layers++) {
            ph_tensor tensor = make("attn", types[t], 0, layers, 3, 5, 5);
            ph_maps *maps = open_maps(write_tensors(&tensor, 1), NULL, NULL);
            ph_report report = ph_maps_report(maps);
            CHECK(report.stack_count == 1 && report.axis_count == 1, "one text");
            CHECK(report.stacks[0].layers == (int)(layers ? layers : 1) &&
                      report.stacks[0].heads == 3,
                  "%d layers of %d heads", report.stacks[0].layers,
                  report.stacks[0].heads);
            CHECK(!strcmp(report.axes[0].tokens[4], "5"), "words are numbers");
            check_weights(&report, 0, 0, errors[t]);
            ph_maps_free(maps);
        }
}

/* Numbers count as numbers: 10 comes after 9. Narrow layers lack heads. */
static void numbered_layers(void)
{
    ph_tensor list[12];
    char names[12][32];
    for (size_t n = 0; n < 12; n++) {
        snprintf(names[n], sizeof names[n], "model.%zu.attn", 11 - n);
        list[n] = make(names[n], PH_F32, 11 - n, n % 2, n == 3 ? 2 : 4, 3, 3);
    }
    ph_maps *maps = open_maps(write_tensors(list, 12), NULL, NULL);
    ph_report report = ph_maps_report(maps);
    const ph_stack *stack = &report.stacks[0];
    CHECK(report.stack_count == 1 && stack->layers == 12 && stack->heads == 4,
          "%d stacks, %d layers", report.stack_count, stack->layers);
    CHECK(stack->absent && stack->absent[8 * 4 + 2] && !stack->absent[8 * 4 + 1],
          "layer 8 has two heads");
    check_weights(&report, 0, 0, 0);
    ph_maps_free(maps);
}

/* Encoder, decoder and cross-attention, with two texts. */
static void three_stacks(void)
{
    ph_tensor list[] = {make("encoder", PH_F32, 0, 2, 2, 4, 4),
                        make("decoder", PH_F32, 0, 1, 2, 3, 3),
                        make("cross", PH_F32, 0, 1, 2, 3, 4)};
    const char *words = write_text("words", "a\nb\nc\nd\n");
    const char *rows = write_text("rows", "x\ny\nz");
    ph_maps *maps = open_maps(write_tensors(list, 3), words, rows);
    ph_report report = ph_maps_report(maps);
    CHECK(report.stack_count == 3 && report.axis_count == 2, "%d stacks, %d texts",
          report.stack_count, report.axis_count);
    for (int s = 0; s < 3; s++) {
        const ph_stack *stack = &report.stacks[s];
        int decoder = !strcmp(stack->name, "decoder"),
            cross = !strcmp(stack->name, "cross");
        CHECK(stack->q_axis == (decoder || cross) && stack->k_axis == decoder,
              "%s has rows of text %d and keys of text %d", stack->name, stack->q_axis,
              stack->k_axis);
        check_weights(&report, s, 0, 0);
    }
    ph_maps_free(maps);
}

/* Two texts of the same length: names tell. */
static void same_length(void)
{
    ph_tensor list[] = {make("enc.0", PH_F32, 0, 0, 1, 3, 3),
                        make("dec.0", PH_F32, 0, 0, 1, 3, 3),
                        make("dec.cross.0", PH_F32, 0, 0, 1, 3, 3)};
    const char *words = write_text("words", "a\nb\nc");
    const char *rows = write_text("rows", "x\ny\nz");
    ph_maps *maps = open_maps(write_tensors(list, 3), words, rows);
    ph_report report = ph_maps_report(maps);
    for (int s = 0; s < 3; s++) {
        const ph_stack *stack = &report.stacks[s];
        int cross = strstr(stack->name, "cross") != NULL;
        int decoder = !strncmp(stack->name, "dec", 3);
        CHECK(stack->q_axis == decoder && stack->k_axis == (decoder && !cross),
              "%s: rows %d, keys %d", stack->name, stack->q_axis, stack->k_axis);
    }
    ph_maps_free(maps);
}

/* ---- causal maps ---- */

static ph_tensor triangle(size_t rows, size_t keys, float corner)
{
    ph_tensor t = make("attn", PH_F32, 0, 1, 1, rows, keys);
    float *w = (float *)t.data;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < keys; j++) {
            size_t place = i + keys - rows;
            w[i * keys + j] = j <= place ? 1 / (float)(place + 1) : 0;
        }
    if (corner > 0) w[keys - 1] = corner;
    return t;
}

static void causal(void)
{
    ph_tensor whole = triangle(5, 5, 0), not_quite = triangle(5, 5, 1e-6f);
    ph_tensor end = triangle(2, 5, 0);
    const char *words = write_text("words", "a\nb\nc\nd\ne");
    ph_maps *maps = open_maps(write_tensors(&whole, 1), words, NULL);
    ph_report report = ph_maps_report(maps);
    CHECK(report.stacks[0].causal && report.stacks[0].q_offset == 0, "a triangle");
    ph_maps_free(maps);
    maps = open_maps(write_tensors(&not_quite, 1), words, NULL);
    report = ph_maps_report(maps);
    CHECK(!report.stacks[0].causal, "a weight in the upper corner, however small");
    ph_maps_free(maps);
    maps = open_maps(write_tensors(&end, 1), words, NULL);
    report = ph_maps_report(maps);
    const ph_stack *stack = &report.stacks[0];
    CHECK(stack->causal && stack->q_offset == 3, "the last two rows of a text");
    CHECK(!strcmp(report.axes[stack->q_axis].tokens[0], "d"), "the rows are d and e");
    ph_maps_free(maps);
}

/* ---- words ---- */

static const struct {
    const char *file, *words[3];
} word_files[] = {{"a\nb\nc", {"a", "b", "c"}},
                  {"a\nb\nc\n", {"a", "b", "c"}},
                  {"a\r\nb\r\nc\r\n", {"a", "b", "c"}},
                  {"[CLS]\nb\n[SEP]", {"[CLS]", "b", "[SEP]"}},
                  {"\xe2\x96\x81the\n\xc4\xa0"
                   "dog\n\xe2\x96\x81",
                   {"the", "dog", "\xe2\x96\x81"}},
                  {"a\n\nc", {"a", "", "c"}},
                  {"\xff\n\x1b[2J\n<b>", {"\xff", "\x1b[2J", "<b>"}},
                  {" [\"a\", \"\\u4e2d\", \"x\\ny\"]", {"a", "\xe4\xb8\xad", "x\ny"}}};

static void words_of_files(void)
{
    for (size_t n = 0; n < sizeof word_files / sizeof word_files[0]; n++) {
        ph_tensor tensor = make("attn", PH_F32, 0, 1, 1, 3, 3);
        const char *words = write_text("words", word_files[n].file);
        ph_maps *maps = open_maps(write_tensors(&tensor, 1), words, NULL);
        ph_report report = ph_maps_report(maps);
        for (int i = 0; i < 3; i++)
            CHECK(!strcmp(report.axes[0].tokens[i], word_files[n].words[i]),
                  "file %zu, word %d is '%s'", n, i, report.axes[0].tokens[i]);
        ph_maps_free(maps);
    }
}

/* ---- refusals ---- */

static void refuse(const char *weights, const char *tokens, const char *rows,
                   ph_status status, const char *sentence)
{
    ph_maps *maps = (ph_maps *)error;
    const ph_maps_files files = {
        .weights = weights, .tokens = tokens, .row_tokens = rows};
    error[0] = 0;
    ph_status found = ph_maps_read(&maps, &files, &io);
    CHECK(found == status && maps == NULL, "status %d, expected %d: %s", found, status,
          error);
    CHECK(strstr(error, sentence), "'%s', expected '%s'", error, sentence);
}

static void refused_tensors(void)
{
    ph_tensor flat = make("attn", PH_F32, 0, 1, 1, 3, 3);
    flat.rank = 2;
    flat.shape[0] = 3;
    refuse(write_tensors(&flat, 1), NULL, NULL, PH_BAD_SHAPE,
           "tensor 'attn' is F32 (3, 1), expected (layers, heads, rows, keys)");
    ph_tensor whole = make("attn", PH_F32, 0, 1, 1, 3, 3);
    whole.type = PH_I32;
    refuse(write_tensors(&whole, 1), NULL, NULL, PH_BAD_SHAPE,
           "expected F32, F16 or BF16");
    ph_tensor two[] = {make("a.0", PH_F32, 0, 2, 1, 3, 3),
                       make("a.1", PH_F32, 0, 2, 1, 3, 3)};
    refuse(write_tensors(two, 2), NULL, NULL, PH_BAD_SHAPE, "one layer of several");
    ph_tensor uneven[] = {make("a.0", PH_F32, 0, 0, 1, 3, 3),
                          make("a.1", PH_F32, 0, 0, 1, 4, 3)};
    refuse(write_tensors(uneven, 2), NULL, NULL, PH_BAD_SHAPE, "as many rows and keys");
    ph_tensor empty = make("attn", PH_F32, 0, 1, 1, 3, 3);
    empty.shape[1] = 0;
    refuse(write_tensors(&empty, 1), NULL, NULL, PH_BAD_SHAPE, "no empty axis");
    refuse(write_tensors(NULL, 0), NULL, NULL, PH_BAD_FILE, "no tensors");
    refuse(path_of("none"), NULL, NULL, PH_IO_ERROR, "");
}

static void refused_words(void)
{
    ph_tensor tensor = make("attn", PH_F32, 0, 1, 1, 3, 3);
    char maps[200];
    snprintf(maps, sizeof maps, "%s", write_tensors(&tensor, 1));
    refuse(maps, write_text("words", "a\nb"), NULL, PH_BAD_SHAPE,
           "the maps 'attn' have 3 keys, but there are 2 words");
    refuse(maps, write_bytes("words", "a\0b\nc\nd", 7), NULL, PH_BAD_FILE, "NUL byte");
    refuse(maps, write_text("words", "[\"a\", 2, \"c\"]"), NULL, PH_BAD_FILE,
           "the list holds a number, expected strings");
    refuse(maps, write_text("words", "[\"a\", \"b\", \"c\"] x"), NULL, PH_BAD_FILE, "");
    refuse(maps, write_text("words", "[\"a\", \"b\\u0000\", \"c\"]"), NULL, PH_BAD_FILE,
           "word 2 holds a NUL");
    refuse(maps, write_text("words", "[\"a\", \"b\""), NULL, PH_BAD_FILE, "");
    refuse(maps, path_of("none"), NULL, PH_IO_ERROR, "");
    refuse(maps, "/", NULL, PH_IO_ERROR, "");
    ph_tensor cross = make("cross", PH_F32, 0, 1, 1, 2, 3);
    snprintf(maps, sizeof maps, "%s", write_tensors(&cross, 1));
    refuse(maps, write_text("words", "a\nb\nc"), write_text("rows", "x"), PH_BAD_SHAPE,
           "have 2 rows");
}

/* ---- memory ---- */

static int allowed;
static void *few(void *user, size_t bytes)
{
    (void)user;
    return allowed-- > 0 ? malloc(bytes) : NULL;
}
static void give_back(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

/* Each allocation fails once: the answer is a status, and nothing leaks. */
static void out_of_memory(void)
{
    const ph_io scarce = {
        .alloc = few, .release = give_back, .error = error, .error_size = sizeof error};
    ph_tensor tensor = make("attn", PH_F32, 0, 2, 2, 5, 5);
    const ph_maps_files files = {.weights = write_tensors(&tensor, 1),
                                 .tokens = write_text("words", "a\nb\nc\nd\na")};
    int count = 0;
    for (ph_status status = PH_OUT_OF_MEMORY; status != PH_OK; count++) {
        ph_maps *maps = NULL;
        ph_survey *survey = NULL;
        allowed = count;
        status = ph_maps_read(&maps, &files, &scarce);
        ph_report report = {0};
        if (status == PH_OK) {
            report = ph_maps_report(maps);
            status = ph_survey_create(&survey, &report, &scarce);
        }
        if (status == PH_OK) status = ph_survey_text(survey, &report, NULL, &scarce);
        if (status == PH_OK) status = ph_survey_end(survey, &report, NULL, &scarce);
        CHECK(status == PH_OK || status == PH_OUT_OF_MEMORY, "status %d: %s", status,
              error);
        ph_survey_free(survey);
        ph_maps_free(maps);
        CHECK(count < 200, "no end");
    }
    CHECK(count > 10, "only %d allocations", count);
}

static const check_case cases[] = {{"one_tensor", one_tensor},
                                   {"numbered_layers", numbered_layers},
                                   {"three_stacks", three_stacks},
                                   {"same_length", same_length},
                                   {"causal", causal},
                                   {"words_of_files", words_of_files},
                                   {"refused_tensors", refused_tensors},
                                   {"refused_words", refused_words},
                                   {"out_of_memory", out_of_memory},
                                   {0, 0}};

int main(int argc, char **argv)
{
    int failed = check_main(argc, argv, cases);
    remove(path_of("maps"));
    remove(path_of("words"));
    remove(path_of("rows"));
    return failed;
}
