/*
 * test_formats.c - checkpoints of other programs: what is read, and every lie refused by
 * a sentence.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "check.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "gguf_bytes.h"

static char error[512];
static const ph_io io = {.error = error, .error_size = sizeof error};
static gguf_bytes g;

/* ---- GGUF -------------------------------------------------------------------------- */

static ph_checkpoint *parse_exact(const unsigned char *bytes, size_t size,
                                  ph_status *status)
{
    ph_checkpoint *c = calloc(1, sizeof *c);
    error[0] = 0;
    *status = ph_gguf_read(c, "test.gguf", bytes, size, &io);
    if (*status == PH_OK) return c;
    ph_checkpoint_free(c);
    return NULL;
}

/* In a block of exactly its size, for address checkers. */
static ph_status try_bytes(void)
{
    ph_status status;
    unsigned char *copy = malloc(g.used ? g.used : 1);
    memcpy(copy, g.bytes, g.used);
    ph_checkpoint_free(parse_exact(copy, g.used, &status));
    free(copy);
    return status;
}

static void refused(const char *sentence)
{
    CHECK(try_bytes() == PH_BAD_FILE, "accepted: %s", sentence);
    CHECK(strstr(error, sentence), "\"%s\" lacks \"%s\"", error, sentence);
}

/* The values of a tensor, which a file has beside it as NAME.values. */
static const ph_tensor *values_of(const ph_checkpoint *c, const char *name)
{
    char values[32];
    snprintf(values, sizeof values, "%s.values", name);
    const ph_stored *s = ph_checkpoint_find(c, values);
    CHECK(s && s->tensor.type == PH_F32, "%s is missing", values);
    return &s->tensor;
}

/* Blocks of types that are used as stored: where they lie, and the elements. */
static void stored_blocks(const ph_checkpoint *c)
{
    static const ph_dtype types[] = {PH_Q8_0, PH_Q4_0, PH_Q4_1,
                                     PH_Q4_K, PH_Q5_K, PH_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char name[8] = "";
        for (int l = 0; l < 4; l++)
            name[l] = (char)tolower((unsigned char)ph_dtype_name(types[i])[l]);
        const ph_tensor *t = &ph_checkpoint_find(c, name)->tensor;
        const ph_tensor *expected = values_of(c, name);
        const unsigned char *from = c->map.bytes, *at = t->data;
        size_t count = expected->bytes / sizeof(float);
        CHECK(t->type == types[i] && t->bytes == ph_dtype_bytes(types[i], count), "%s",
              name);
        CHECK(at > from && at + t->bytes <= from + c->map.size, "%s was copied", name);
        for (size_t e = 0; e < count; e++)
            CHECK(ph_bits(ph_element(t->data, t->type, (int64_t)e)) ==
                      ph_bits(((const float *)expected->data)[e]),
                  "element %zu of %s differs from the reference", e, name);
    }
}

/* Blocks of every type as the reference reads them. */
static void block_types(void)
{
    static const char *const names[] = {"q2_k",   "q3_k",   "q5_0",   "q5_1",
                                        "iq4_nl", "iq4_xs", "iq2_xxs"};
    ph_checkpoint *c;
    ph_status status =
        ph_checkpoint_open(&c, "tests/golden/checkpoints/kquants.gguf", &io);
    CHECK(status == PH_OK, "%s", error);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ph_stored *s = ph_checkpoint_find(c, names[i]);
        const ph_tensor *expected = values_of(c, names[i]);
        CHECK(s && !s->tensor.data, "%s is missing", names[i]);
        CHECK(ph_checkpoint_load(c, s, &io) == PH_OK, "%s", error);
        CHECK(s->tensor.type == PH_F32 && s->tensor.bytes == expected->bytes,
              "%s has %zu bytes", names[i], s->tensor.bytes);
        CHECK(!memcmp(s->tensor.data, expected->data, s->tensor.bytes),
              "%s differs from the reference", names[i]);
    }
    stored_blocks(c);
    ph_checkpoint_free(c);
}

/* A value of every type of metadata. */
static void gguf_values(void)
{
    static const struct {
        int type, bytes;
        uint64_t bits;
        double value;
    } list[] = {{PH_GGUF_U8, 1, 255, 255},
                {PH_GGUF_I8, 1, 255, -1},
                {PH_GGUF_U16, 2, 65535, 65535},
                {PH_GGUF_I16, 2, 65535, -1},
                {PH_GGUF_U32, 4, 4294967295u, 4294967295.0},
                {PH_GGUF_I32, 4, 4294967294u, -2},
                {PH_GGUF_F32, 4, 0x3fc00000u, 1.5},
                {PH_GGUF_BOOL, 1, 1, 1},
                {PH_GGUF_U64, 8, 1ull << 40, 1099511627776.0},
                {PH_GGUF_I64, 8, UINT64_MAX, -1},
                {PH_GGUF_F64, 8, 0xbff8000000000000u, -1.5}};
    enum { COUNT = sizeof list / sizeof list[0] };
    char key[16];
    ph_status status;
    put_header(&g, 0, 2 * COUNT + 2);
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "v%d", i);
        put_text(&g, key), put_number(&g, (uint64_t)list[i].type, 4);
        put_number(&g, list[i].bits, list[i].bytes);
        snprintf(key, sizeof key, "l%d", i);
        put_text(&g, key), put_number(&g, PH_GGUF_LIST, 4);
        put_number(&g, (uint64_t)list[i].type, 4), put_number(&g, 2, 8);
        put_number(&g, 0, list[i].bytes), put_number(&g, list[i].bits, list[i].bytes);
    }
    put_text(&g, "text"), put_number(&g, PH_GGUF_TEXT, 4), put_text(&g, "two words");
    put_text(&g, "texts"), put_number(&g, PH_GGUF_LIST, 4);
    put_number(&g, PH_GGUF_TEXT, 4), put_number(&g, 2, 8);
    put_text(&g, ""), put_text(&g, "b");
    ph_checkpoint *c = parse_exact(g.bytes, g.used, &status);
    CHECK(c, "%s", error);
    for (int i = 0; i < COUNT; i++) {
        ph_value item = {0};
        snprintf(key, sizeof key, "v%d", i);
        const ph_value *v = ph_values_find(&c->values, key);
        CHECK(v && v->number == list[i].value, "type %d gave %g", list[i].type,
              v ? v->number : 0);
        snprintf(key, sizeof key, "l%d", i);
        v = ph_values_find(&c->values, key);
        CHECK(v && v->count == 2 && ph_values_item(&c->values, v, 1, &item) &&
                  item.number == list[i].value &&
                  !ph_values_item(&c->values, v, 2, &item),
              "a list of type %d gave %g", list[i].type, item.number);
    }
    const ph_value *v = ph_values_find(&c->values, "texts");
    const unsigned char *at = v->items;
    size_t length;
    ph_gguf_next_text(&at, &length);
    CHECK(v->count == 2 && length == 0, "the first text has %zu bytes", length);
    CHECK(*ph_gguf_next_text(&at, &length) == 'b' && length == 1, "the second is not b");
    CHECK(!strcmp(ph_values_find(&c->values, "text")->text, "two words"), "text");
    ph_checkpoint_free(c);
}

static void put_one_tensor(uint64_t inner, uint64_t type, uint64_t offset, size_t data)
{
    put_header(&g, 1, 0);
    put_tensor(&g, "t", inner, 2, type, offset);
    put_data(&g, 32, data);
}

static void gguf_tensors(void)
{
    ph_status status;
    put_header(&g, 2, 1);
    put_text(&g, "general.alignment"), put_number(&g, PH_GGUF_U32, 4);
    put_number(&g, 64, 4);
    put_tensor(&g, "b", 32, 2, 8, 64);
    put_tensor(&g, "a", 3, 5, 30, 0);
    put_data(&g, 64, 64 + 68);
    ph_checkpoint *c = parse_exact(g.bytes, g.used, &status);
    CHECK(c, "%s", error);
    const ph_tensor *a = &ph_checkpoint_find(c, "a")->tensor;
    const ph_tensor *b = &ph_checkpoint_find(c, "b")->tensor;
    CHECK(a->shape[0] == 5 && a->shape[1] == 3 && a->type == PH_BF16, "a is misread");
    CHECK((const unsigned char *)b->data - (const unsigned char *)a->data == 64 &&
              b->bytes == 68,
          "b lies elsewhere");
    ph_checkpoint_free(c);
}

/* Version 2 has the same bytes. */
static void gguf_versions(void)
{
    for (int version = 2; version <= 3; version++) {
        put_header(&g, 1, 0), put_tensor(&g, "t", 8, 1, 0, 0), put_data(&g, 32, 64);
        g.bytes[4] = (unsigned char)version;
        CHECK(try_bytes() == PH_OK, "version %d: %s", version, error);
    }
}

/* Each number of a good file, made too large or too small. */
static void gguf_lies(void)
{
    put_one_tensor(32, 0, 0, 256);
    CHECK(try_bytes() == PH_OK, "%s", error);
    for (size_t size = 0; size < g.used; size++) {
        gguf_bytes whole = g;
        g.used = size;
        CHECK(try_bytes() == PH_BAD_FILE && error[0], "cut at %zu: accepted", size);
        g = whole;
    }
    put_one_tensor(32, 0, 0, 255), refused("ends at byte 256 of the data");
    put_one_tensor(32, 0, 32, 256), refused("ends at byte 288");
    put_one_tensor(32, 0, 16, 512), refused("multiple of 32");
    put_one_tensor(32, 0, UINT64_MAX & ~31ull, 256), refused("within the file");
    put_one_tensor(31, 2, 0, 256), refused("expected a multiple of 32");
    for (uint64_t type = 10; type <= 14; type++)
        put_one_tensor(32, type, 0, 256), refused("expected a multiple of 256");
    put_one_tensor(256, 12, 0, 287), refused("ends at byte 288 of the data");
    put_one_tensor(256, 13, 0, 351), refused("ends at byte 352 of the data");
    put_one_tensor(256, 14, 0, 419), refused("ends at byte 420 of the data");
    put_header(&g, 1, 0), put_tensor(&g, "t", 1u << 30, 1u << 30, 14, 0);
    put_data(&g, 32, 420), refused("ends at byte");
    put_one_tensor(0, 0, 0, 256), refused("a dimension of 0");
    put_one_tensor(1ull << 40, 0, 0, 256), refused("a dimension of");
    put_one_tensor(32, 9, 0, 256), refused("type 9 (Q8_1)");
    put_one_tensor(33, 6, 0, 256), refused("expected a multiple of 32");
    put_one_tensor(32, 1000, 0, 256), refused("type 1000 (unknown)");
    put_header(&g, UINT64_MAX, 0), refused("more than the file can hold");
    put_header(&g, 0, UINT64_MAX), refused("more than the file can hold");
    put_header(&g, 0, 0), g.bytes[4] = 1, refused("version 1, expected 2 or 3");
    put_header(&g, 2, 0), put_tensor(&g, "t", 8, 1, 0, 0);
    put_tensor(&g, "t", 8, 1, 0, 32), put_data(&g, 32, 64), refused("exists twice");
    put_header(&g, 2, 0), put_tensor(&g, "t", 16, 1, 0, 0);
    put_tensor(&g, "u", 16, 1, 0, 32), put_data(&g, 32, 96), refused("overlaps");
    put_header(&g, 1, 0), put_text(&g, "t"), put_number(&g, 5, 4);
    put_data(&g, 1, 64), refused("rank 5");
    put_header(&g, 1, 0), put_tensor(&g, "", 8, 1, 0, 0), put_data(&g, 32, 64);
    refused("has 0 bytes");
}

static void put_pair(const char *key, int type, uint64_t bits, int bytes)
{
    put_header(&g, 0, 1);
    put_text(&g, key), put_number(&g, (uint64_t)type, 4), put_number(&g, bits, bytes);
}

static void gguf_value_lies(void)
{
    put_pair("general.alignment", PH_GGUF_U32, 24, 4), refused("a power of two");
    put_pair("general.alignment", PH_GGUF_U32, 0, 4), refused("a power of two");
    put_pair("general.alignment", PH_GGUF_F32, 0x7fc00000u, 4), refused("a power of two");
    put_pair("k", PH_GGUF_BOOL, 2, 1), refused("expected 0 or 1");
    put_pair("k", 13, 0, 8), refused("type 13");
    put_pair("k", PH_GGUF_TEXT, UINT64_MAX, 8), refused("the file ends within");
    put_pair("k", PH_GGUF_LIST, 9, 4), put_number(&g, 1, 8), refused("list of type 9");
    put_pair("k", PH_GGUF_LIST, 8, 4), put_number(&g, UINT64_MAX, 8), refused("ends");
    put_pair("k", PH_GGUF_LIST, 10, 4), put_number(&g, UINT64_MAX / 8 + 2, 8);
    refused("ends");
    put_header(&g, 0, 2);
    for (int i = 0; i < 2; i++)
        put_text(&g, "k"), put_number(&g, PH_GGUF_U8, 4), put_number(&g, 1, 1);
    refused("exists twice");
    put_pair("\033[2J", PH_GGUF_BOOL, 2, 1);
    CHECK(try_bytes() == PH_BAD_FILE && !strchr(error, 27), "an escape in the sentence");
}

/* ---- folders ----------------------------------------------------------------------- */

static char folder[64];

static void new_folder(void)
{
    strcpy(folder, "/tmp/test_formats.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
}

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(path_of(name), "wb");
    CHECK(file && fwrite(bytes, 1, count, file) == count, "cannot write %s", name);
    fclose(file);
}

static void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

/* Up to three tensors of four floats. */
static void write_tensors(const char *file, const char *const *names)
{
    static const float data[4] = {1, 2, 3, 4};
    ph_tensor list[3];
    size_t count = 0;
    for (; names[count]; count++)
        list[count] =
            (ph_tensor){.name = names[count], .rank = 1, .shape = {4}, .data = data};
    CHECK(ph_file_write(path_of(file), list, count, NULL, 0, &io) == PH_OK, "%s", error);
}

static void remove_folder(void)
{
    static const char *const names[] = {"config.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json",
                                        "generation_config.json",
                                        "a.safetensors",
                                        "b.safetensors",
                                        "pytorch_model.bin",
                                        "file"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unlink(path_of(names[i]));
    rmdir(folder);
}

static ph_checkpoint *opened(void)
{
    ph_checkpoint *c = NULL;
    error[0] = 0;
    ph_status status = ph_checkpoint_open(&c, folder, &io);
    CHECK((status == PH_OK) == (c != NULL), "%s", error);
    return c;
}

static void not_opened(const char *sentence)
{
    ph_checkpoint *c = opened();
    ph_checkpoint_free(c);
    CHECK(!c && strstr(error, sentence), "\"%s\" lacks \"%s\"", error, sentence);
}

static void one_file(void)
{
    new_folder();
    not_opened("without config.json");
    write_text("config.json", "{\"model_type\": \"x\", \"eos\": [3, 4], \"window\": null,"
                              "\"rope\": {\"type\": \"linear\"}}");
    write_text("generation_config.json", "{\"eos\": 7}");
    not_opened("holds neither model.safetensors nor");
    write_text("pytorch_model.bin", "x");
    not_opened(
        "pytorch_model.bin is a Python pickle, which can run code when read: load");
    write_tensors("model.safetensors",
                  (const char *[]){"a.LayerNorm.gamma", "LayerNorm.beta", "gamma", NULL});
    ph_checkpoint *c = opened();
    CHECK(c, "%s", error);
    CHECK(ph_checkpoint_find(c, "a.LayerNorm.weight") &&
              ph_checkpoint_find(c, "LayerNorm.bias") && ph_checkpoint_find(c, "gamma"),
          "old names of norms");
    ph_value item;
    const ph_value *eos = ph_values_find(&c->values, "eos");
    CHECK(eos && eos->count == 2 && ph_values_item(&c->values, eos, 1, &item) &&
              item.number == 4,
          "eos is no list of two");
    CHECK(ph_values_find(&c->values, "window")->kind == PH_VALUE_NULL, "window");
    CHECK(!ph_values_find(&c->values, "absent"), "absent");
    CHECK(!strcmp(ph_values_find(&c->values, "rope.type")->text, "linear"), "rope.type");
    CHECK(ph_values_find(&c->values, "generation.eos")->number == 7, "generation");
    ph_checkpoint_free(c);
    remove_folder();
}

static void shards(void)
{
    static const char index_name[] = "model.safetensors.index.json";
    new_folder();
    write_text("config.json", "{}");
    write_tensors("a.safetensors", (const char *[]){"x", "y", NULL});
    write_tensors("b.safetensors", (const char *[]){"z", NULL});
#define MAP(text) write_text(index_name, "{\"weight_map\": {" text "}}")
    MAP("\"x\": \"a.safetensors\", \"z\": \"b.safetensors\", \"y\": \"a.safetensors\"");
    ph_checkpoint *c = opened();
    CHECK(c && c->count == 3 && c->file_count == 2, "%s", error);
    CHECK(ph_checkpoint_find(c, "z") && !ph_checkpoint_find(c, "w"), "names");
    ph_checkpoint_free(c);
    MAP("\"x\": \"a.safetensors\", \"z\": \"b.safetensors\""),
        not_opened("the index names 1");
    MAP("\"x\": \"a.safetensors\", \"y\": \"a.safetensors\", \"q\": \"b.safetensors\"");
    not_opened("tensor 'q' lies in 'b.safetensors', but it does not");
    MAP("\"x\": \"../a.safetensors\""), not_opened("in the same folder");
    MAP("\"x\": \"/tmp/a.safetensors\""), not_opened("in the same folder");
    MAP("\"x\": \"a.bin\""), not_opened("expected NAME.safetensors");
    MAP("\"x\": \"a.safetensors\\u0000.safetensors\""), not_opened("in the same folder");
    MAP("\"x\": 1"), not_opened("no file name is given");
    MAP(""), not_opened("no tensor is named");
    MAP("\"x\": \"missing.safetensors\""), not_opened("cannot read");
    write_text(index_name, "[]"), not_opened("it is no object");
    write_text(index_name, "{\"weight_map\": 7}"), not_opened("weight_map is no object");
    write_text(index_name, "{\"metadata\": 7}"), not_opened("weight_map");
    write_text(index_name, "{\"weight_map\": {}"), not_opened("not valid JSON");
    write_tensors("b.safetensors", (const char *[]){"x", NULL});
    /* the sizes of tensors are those of their files, whatever this says */
    write_text(index_name, "{\"metadata\": {\"total_size\": -1e300}, \"weight_map\": "
                           "{\"x\": \"b.safetensors\"}}");
    c = opened();
    CHECK(c && c->count == 1, "%s", error);
    ph_checkpoint_free(c);
    MAP("\"x\": \"a.safetensors\", \"y\": \"a.safetensors\"");
    c = opened();
    CHECK(c, "%s", error);
    ph_checkpoint_free(c);
#undef MAP
    remove_folder();
}

static void config_lies(void)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "{\"a\": 1, \"a\": 2}",
                                      "{\"a\": 01}",
                                      "{\"a.b\": 1, \"a\": {\"b\": 2}}",
                                      "{\"a\\u0000\": 1}"};
    new_folder();
    write_tensors("model.safetensors", (const char *[]){"x", NULL});
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_text("config.json", bad[i]);
        not_opened(i == 4 ? "" : "config.json");
    }
    static const char *const roots[][3] = {
        {"config.json", "[]", "config.json is a list, expected an object"},
        {"generation_config.json", "7", "generation_config.json is 7, expected an"},
        {"sentence_bert_config.json", "null", "sentence_bert_config.json is null"},
        {"modules.json", "{}", "modules.json is an object, expected a list"}};
    for (size_t i = 0; i < 4; i++) {
        write_text("config.json", "{}");
        write_text(roots[i][0], roots[i][1]);
        not_opened(roots[i][2]);
        unlink(path_of(roots[i][0]));
    }
    write_text("config.json", "{\"quantization_config\": {\"quant_method\": \"awq\"}}");
    not_opened("quantization_config 'awq'");
    char *large = calloc(1, PH_VALUES_JSON + 1);
    write_bytes("config.json", large, PH_VALUES_JSON + 1);
    free(large);
    not_opened("expected at most");
    remove_folder();
}

/* ---- single files ------------------------------------------------------------------ */

static void not_a_checkpoint(const char *sentence)
{
    ph_checkpoint *c = NULL;
    ph_status status = ph_checkpoint_open(&c, path_of("file"), &io);
    ph_checkpoint_free(c);
    CHECK(status != PH_OK && !c && strstr(error, sentence), "\"%s\" lacks \"%s\"", error,
          sentence);
}

static void other_files(void)
{
    new_folder();
    write_bytes("file", "PK\3\4...", 7), not_a_checkpoint("file is a Python pickle");
    write_bytes("file", "\x80\2}q.", 5), not_a_checkpoint("file is a Python pickle");
    write_bytes("file", "hello", 5), not_a_checkpoint("is no checkpoint");
    write_bytes("file", "", 0), not_a_checkpoint("is no checkpoint");
    write_tensors("file", (const char *[]){"x", NULL});
    not_a_checkpoint("has no configuration: give the folder");
    remove_folder();
}

static void llama2c(void)
{
    int32_t sizes[7] = {8, 12, 2, 4, 2, 10, 6};
    float values[2048];
    size_t floats = 10 * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 96) + 8 + 2 * 6;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) values[i] = (float)i;
    unsigned char file[sizeof sizes + sizeof values];
    memcpy(file, sizes, sizeof sizes);
    memcpy(file + sizeof sizes, values, sizeof values);
    size_t size = sizeof sizes + 4 * floats;
    new_folder();
    write_bytes("file", file, size);
    ph_checkpoint *c;
    CHECK(ph_checkpoint_open(&c, path_of("file"), &io) == PH_OK, "%s", error);
    const ph_stored *k = ph_checkpoint_find(c, "blk.1.attn_k.weight");
    CHECK(k && k->tensor.shape[0] == 4 && k->tensor.shape[1] == 8 &&
              *(const float *)k->tensor.data == 80 + 16 + 128 + 32,
          "blk.1.attn_k.weight lies elsewhere");
    CHECK(!ph_checkpoint_find(c, "output.weight"), "an output matrix");
    CHECK(ph_values_find(&c->values, "llama.attention.head_count_kv")->number == 2, "kv");
    ph_checkpoint_free(c);
    CHECK(!ph_llama2c_fits(file, size - 4) && !ph_llama2c_fits(file, size + 4), "size");
    sizes[5] = -10, memcpy(file, sizes, sizeof sizes);
    CHECK(ph_llama2c_fits(file, size + 320), "an output matrix of its own");
    for (int i = 0; i < 7; i++) {
        static const int32_t lies[] = {0, INT32_MIN, INT32_MAX, -1, 3};
        for (size_t l = 0; l < sizeof lies / sizeof *lies; l++) {
            int32_t changed[7];
            memcpy(changed, sizes, sizeof sizes);
            changed[i] = lies[l];
            memcpy(file, changed, sizeof changed);
            CHECK(!ph_llama2c_fits(file, size + 320), "size %d as %d", i, lies[l]);
        }
    }
    remove_folder();
}

/* A header that is not padded: its F32 tensor is copied, everything else is in place. */
static void unpadded_header(void)
{
    static const char header[] =
        "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
        "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}  }";
    unsigned char file[512] = {sizeof header - 1};
    const float f[2] = {1.5f, -2};
    ph_file *mapped;
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1 + 4, f, sizeof f);
    CHECK((8 + sizeof header - 1) % 4 != 0, "the header is aligned by accident");
    new_folder();
    write_bytes("file", file, 8 + sizeof header - 1 + 12);
    CHECK(ph_file_map(&mapped, path_of("file"), &io) == PH_OK, "%s", error);
    const ph_tensor *t = ph_file_find(mapped, "f");
    CHECK((uintptr_t)t->data % 4 == 0 && !memcmp(t->data, f, sizeof f), "f is misread");
    ph_file_free(mapped);
    remove_folder();
}

static const check_case cases[] = {{"block_types", block_types},
                                   {"gguf_values", gguf_values},
                                   {"gguf_tensors", gguf_tensors},
                                   {"gguf_versions", gguf_versions},
                                   {"gguf_lies", gguf_lies},
                                   {"gguf_value_lies", gguf_value_lies},
                                   {"one_file", one_file},
                                   {"shards", shards},
                                   {"config_lies", config_lies},
                                   {"other_files", other_files},
                                   {"llama2c", llama2c},
                                   {"unpadded_header", unpadded_header},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
