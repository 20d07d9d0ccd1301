/*
 * test_safetensors_write.c - the safetensors writer: exact bytes, round trips, what it
 * refuses; and conversion between the float types.
 */
#define _XOPEN_SOURCE 700
#include <unistd.h>

#include "check.h"
#include "polyhead_io.h"

static char path[64]; /* the file that is written */
static char error[512];
static const ph_io io = {.error = error, .error_size = sizeof error};

static void put_file(const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0, "cannot write");
}

static size_t get_file(char *bytes, size_t size)
{
    FILE *f = fopen(path, "rb");
    CHECK(f, "no file %s", path);
    size_t count = fread(bytes, 1, size, f);
    fclose(f);
    return count;
}

static void exact_bytes(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"a\":\"1\",\"b\":\"\\\"\"},"
        "\"w\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
        "\"h\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[16,18]},"
        "\"c\":{\"dtype\":\"U8\",\"shape\":[1,3],\"data_offsets\":[18,21]},"
        "\"d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[21,21]},"
        "\"m\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[21,22]}}";
    ph_tensor t[] = {
        {.name = "d", .type = PH_U8, .rank = 1, .shape = {0}},
        {.name = "m", .type = PH_BOOL, .rank = 1, .shape = {1}, .data = "M"},
        {.name = "a", .type = PH_F32, .rank = 1, .shape = {2}, .data = "aaaabbbb"},
        {.name = "c", .type = PH_U8, .rank = 2, .shape = {1, 3}, .data = "xyz"},
        {.name = "w", .type = PH_I64, .rank = 0, .data = "12345678"},
        {.name = "h", .type = PH_BF16, .rank = 1, .shape = {1}, .data = "HH"}};
    ph_pair pairs[] = {{"b", "\""}, {"a", "1"}};
    char expected[1000] = {0}, found[1000];
    size_t length = (sizeof header - 1 + 7) / 8 * 8;
    expected[0] = (char)(length & 255);
    expected[1] = (char)(length >> 8);
    memset(expected + 8, ' ', length);
    memcpy(expected + 8, header, sizeof header - 1);
    memcpy(expected + 8 + length, "12345678aaaabbbbHHxyzM", 22);
    for (int turn = 0; turn < 6; turn++) { /* the order of the call does not matter */
        CHECK(ph_file_write(path, t, 6, pairs, 2, &io) == PH_OK, "%s", error);
        size_t size = get_file(found, sizeof found);
        CHECK(size == 8 + length + 22, "%zu bytes, expected %zu", size, 8 + length + 22);
        CHECK(memcmp(found, expected, size) == 0, "other bytes in turn %d: %s", turn,
              found + 8);
        ph_tensor first = t[0];
        memmove(t, t + 1, 5 * sizeof t[0]);
        t[5] = first;
        ph_pair pair = pairs[0];
        pairs[0] = pairs[1];
        pairs[1] = pair;
    }
}

/* Types of the format: all but block types. */
enum { BLOCK_TYPES = PH_F64 - PH_Q8_0, TYPES = PH_DTYPE_COUNT - BLOCK_TYPES };

static void round_trip(void)
{
    uint64_t state = check_seed;
    static unsigned char data[TYPES][8 * 24 * 8];
    ph_tensor t[TYPES];
    char names[TYPES][32];
    for (int i = 0; i < TYPES; i++) {
        snprintf(names[i], sizeof names[i], "t\"%d\n\xc3\xa9\\", i);
        t[i] = (ph_tensor){
            .name = names[i],
            .type = (ph_dtype)(i < PH_Q8_0 ? i : i + BLOCK_TYPES),
            .rank = 3,
            .data = data[i],
            .shape = {8, (size_t)check_below(&state, 5), (size_t)check_below(&state, 5)}};
        for (size_t k = 0; k < sizeof data[i]; k++)
            data[i][k] = (unsigned char)check_random(&state);
    }
    CHECK(ph_file_write(path, t, TYPES, NULL, 0, &io) == PH_OK, "%s", error);
    ph_file *file = NULL;
    CHECK(ph_file_read(&file, path, &io) == PH_OK, "%s", error);
    for (int i = 0; i < TYPES; i++) {
        const ph_tensor *f = ph_file_find(file, names[i]);
        CHECK(f && f->type == t[i].type && f->rank == 3, "tensor %d", i);
        CHECK(memcmp(f->shape, t[i].shape, 3 * sizeof t[i].shape[0]) == 0, "shape %d", i);
        size_t elements = 8 * t[i].shape[1] * t[i].shape[2];
        CHECK(f->bytes == ph_dtype_bytes(t[i].type, elements), "bytes %d", i);
        CHECK(memcmp(f->data, data[i], f->bytes) == 0, "data %d", i);
    }
    CHECK(ph_file_tensor(file, TYPES) == NULL, "too many");
    ph_file_free(file);
}

static void conversion(void)
{
    static const float in[] = {0,     -1.5f,      65504, 65520,
                               1e-8f, 3.1415927f, 1e30f, 5.96e-8f};
    static const uint16_t f16[] = {0, 0xbe00, 0x7bff, 0x7c00, 0, 0x4248, 0x7c00, 1};
    static const uint16_t bf16[] = {0,      0xbfc0, 0x4780, 0x4780,
                                    0x322c, 0x4049, 0x714a, 0x3380};
    uint16_t half[8];
    float back[8];
    ph_tensor t = {.name = "t", .type = PH_F32, .rank = 2, .shape = {2, 4}, .data = in};
    CHECK(ph_tensor_convert(&t, PH_F16, half) == PH_OK, "f16");
    for (int i = 0; i < 8; i++) CHECK(half[i] == f16[i], "f16 %d: %04x", i, half[i]);
    CHECK(ph_tensor_convert(&t, PH_BF16, half) == PH_OK, "bf16");
    for (int i = 0; i < 8; i++) CHECK(half[i] == bf16[i], "bf16 %d: %04x", i, half[i]);
    t.type = PH_BF16;
    t.data = half;
    CHECK(ph_tensor_convert(&t, PH_F32, back) == PH_OK && back[1] == -1.5f, "back");
    CHECK(ph_tensor_convert(&t, PH_BF16, half) == PH_OK, "same type"); /* onto itself */
    CHECK(ph_tensor_convert(&t, PH_I32, back) == PH_UNSUPPORTED, "I32");
    t.type = PH_BOOL;
    CHECK(ph_tensor_convert(&t, PH_F32, back) == PH_UNSUPPORTED, "BOOL");
}

/* Types the format lacks have a size, but no file holds them. */
static void block_types(void)
{
    static const struct {
        ph_dtype type;
        size_t block;
    } all[] = {{PH_Q8_0, 34},  {PH_Q4_0, 18},  {PH_Q4_1, 20},
               {PH_Q4_K, 144}, {PH_Q5_K, 176}, {PH_Q6_K, 210}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const char data[210] = "";
        size_t elements = i < 3 ? 32 : 256;
        ph_tensor t = {.name = "a",
                       .type = all[i].type,
                       .rank = 1,
                       .shape = {elements},
                       .data = data};
        CHECK(ph_dtype_bytes(all[i].type, 3 * elements) == 3 * all[i].block,
              "three blocks");
        CHECK(ph_dtype_bytes(all[i].type, elements + 1) == 0, "part of a block");
        CHECK(ph_file_write(path, &t, 1, NULL, 0, &io) == PH_BAD_ARGUMENT, "written");
        CHECK(strstr(error, ph_dtype_name(all[i].type)), "%s", error);
    }
    CHECK(!ph_dtype_name(PH_DTYPE_COUNT) && !ph_dtype_bytes((ph_dtype)-1, 1), "no type");
    CHECK(ph_dtype_bytes(PH_F64, SIZE_MAX / 4) == 0, "overflow");
}

static void writer_refuses(void)
{
    static char long_name[1026];
    memset(long_name, 'n', 1025);
    const ph_tensor good = {
        .name = "a", .type = PH_U8, .rank = 1, .shape = {1}, .data = "x"};
    struct {
        const char *words;
        ph_tensor t[2];
        ph_pair pairs[2];
        int pair_count;
    } list[] = {
        {.words = "tensor name is NULL"},
        {.words = "tensor name '\\xff' is not valid UTF-8"},
        {.words = "its name has 1025 bytes, at most 1024"},
        {.words = "the format keeps this name for metadata"},
        {.words = "type 28 (unknown) is none of the format"},
        {.words = "rank is 9, expected 0 to 8"},
        {.words = "rank is -1, expected 0 to 8"},
        {.words = "the product of its shape overflows"},
        {.words = "its elements do not fill whole bytes"},
        {.words = "a size in its shape is above 2^63"},
        {.words = "its data is NULL"},
        {.words = "two tensors are called 'a'"},
        {.words = "two metadata keys are 'k'",
         .pair_count = 2,
         .pairs = {{"k", "1"}, {"k", "2"}}},
        {.words = "metadata key is NULL", .pair_count = 1},
        {.words = "metadata value is NULL", .pair_count = 1, .pairs = {{"k", NULL}}},
        {.words = "metadata value '\\x80' is not valid UTF-8",
         .pair_count = 1,
         .pairs = {{"k", "\x80"}}}};
    const int count = sizeof list / sizeof list[0];
    for (int i = 0; i < count; i++) {
        list[i].t[0] = list[i].t[1] = good;
        if (i != 11) list[i].t[1].name = "b";
    }
    list[0].t[1].name = NULL;
    list[1].t[1].name = "\xff";
    list[2].t[1].name = long_name;
    list[3].t[1].name = "__metadata__";
    list[4].t[1].type = PH_DTYPE_COUNT;
    list[5].t[1].rank = 9;
    list[6].t[1].rank = -1;
    list[7].t[1].rank = 2, list[7].t[1].shape[0] = list[7].t[1].shape[1] = INT64_MAX;
    list[8].t[1].type = PH_F4;
    list[9].t[1].rank = 2, list[9].t[1].shape[0] = 0, list[9].t[1].shape[1] = SIZE_MAX;
    list[10].t[1].data = NULL;
    put_file("old", 3);
    for (int i = 0; i < count; i++) {
        char bytes[8];
        ph_status status = ph_file_write(path, list[i].t, 2, list[i].pairs,
                                         (size_t)list[i].pair_count, &io);
        CHECK(status == PH_BAD_ARGUMENT, "%s: status %d", list[i].words, status);
        CHECK(strstr(error, list[i].words), "\"%s\" lacks \"%s\"", error, list[i].words);
        CHECK(get_file(bytes, sizeof bytes) == 3 && !memcmp(bytes, "old", 3), "changed");
    }
}

static const check_case cases[] = {
    {"exact_bytes", exact_bytes},       {"round_trip", round_trip},
    {"conversion", conversion},         {"block_types", block_types},
    {"writer_refuses", writer_refuses}, {0, 0}};

int main(int argc, char **argv)
{
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%.40s/polyhead-XXXXXX", base ? base : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    int failed = check_main(argc, argv, cases);
    unlink(path);
    return failed;
}
