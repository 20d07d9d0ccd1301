/*
 * gguf.c - GGUF files, version 3, and 2, which differs in nothing that is read here.
 *
 *     "GGUF", u32 version, u64 tensors, u64 pairs
 *     pairs    text key, u32 type, value           text: u64 length, bytes
 *     tensors  text name, u32 rank, u64 dims (innermost first), u32 type, u64 offset
 *     data     from the next multiple of general.alignment on
 *
 * Everything is little-endian and read through a cursor that knows the end of the file.
 */
#include "checkpoint/gguf.h"

#include <string.h>

#include "base/base.h"
#include "base/format.h"
#include "base/size.h"
#include "checkpoint/checkpoint.h"
#include "io/sort.h"

enum { NAME = 1024, RANK = 4, KEY = 256 };

typedef struct gguf {
    ph_checkpoint *c;
    const ph_io *io;
    const char *name;
    const unsigned char *bytes;
    size_t size, at;
    size_t data, alignment; /* where tensors begin */
} gguf;

static ph_status bad(const gguf *g, const char *format, ...) PH_IO_PRINTF(2, 3);

static ph_status bad(const gguf *g, const char *format, ...)
{
    char text[320];
    va_list list;
    va_start(list, format);
    ph_format_list(text, sizeof text, format, list);
    va_end(list);
    return ph_io_fail(g->io, PH_BAD_FILE, "%.200s: %s", g->name, text);
}

/* Names come from the file: fit for a terminal. */
static ph_io_quoted quoted(const char *name)
{
    return ph_io_quote(name, strlen(name));
}

/* ---- the cursor -------------------------------------------------------------------- */

static uint64_t number_at(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static size_t left(const gguf *g)
{
    return g->size - g->at;
}

static ph_status ends(const gguf *g, const char *what)
{
    return bad(g, "the file ends within %s", what);
}

static ph_status take(gguf *g, int bytes, const char *what, uint64_t *out)
{
    if (left(g) < (size_t)bytes) return ends(g, what);
    *out = number_at(g->bytes + g->at, bytes);
    g->at += (size_t)bytes;
    return PH_OK;
}

static ph_status take_text(gguf *g, const char *what, const char **text, size_t *length)
{
    uint64_t bytes = 0;
    PH_TRY(take(g, 8, what, &bytes));
    if (bytes > left(g)) return ends(g, what);
    *text = (const char *)g->bytes + g->at;
    *length = (size_t)bytes;
    g->at += *length;
    return PH_OK;
}

static ph_status take_name(gguf *g, const char *what, size_t most, char *to)
{
    const char *text = NULL;
    size_t length = 0;
    PH_TRY(take_text(g, what, &text, &length));
    if (length == 0 || length >= most || memchr(text, 0, length))
        return bad(g, "%s %s has %zu bytes, expected 1 to %zu and no NUL", what,
                   ph_io_quote(text, length).text, length, most - 1);
    memcpy(to, text, length);
    to[length] = 0;
    return PH_OK;
}

/* ---- metadata ---------------------------------------------------------------------- */

static const struct {
    const char *name;
    int bytes; /* 0: not of one size */
} value_types[PH_GGUF_TYPES] = {
    [PH_GGUF_U8] = {"u8", 1},     [PH_GGUF_I8] = {"i8", 1},
    [PH_GGUF_U16] = {"u16", 2},   [PH_GGUF_I16] = {"i16", 2},
    [PH_GGUF_U32] = {"u32", 4},   [PH_GGUF_I32] = {"i32", 4},
    [PH_GGUF_F32] = {"f32", 4},   [PH_GGUF_BOOL] = {"bool", 1},
    [PH_GGUF_TEXT] = {"text", 0}, [PH_GGUF_LIST] = {"list", 0},
    [PH_GGUF_U64] = {"u64", 8},   [PH_GGUF_I64] = {"i64", 8},
    [PH_GGUF_F64] = {"f64", 8}};

static double real_at(int type, uint64_t bits)
{
    uint32_t word = (uint32_t)bits;
    float single;
    double wide;
    memcpy(&single, &word, sizeof single);
    memcpy(&wide, &bits, sizeof wide);
    switch (type) {
    case PH_GGUF_I8: return (double)(int8_t)bits;
    case PH_GGUF_I16: return (double)(int16_t)bits;
    case PH_GGUF_I32: return (double)(int32_t)bits;
    case PH_GGUF_I64: return (double)(int64_t)bits;
    case PH_GGUF_F32: return (double)single;
    case PH_GGUF_F64: return wide;
    default: return (double)bits;
    }
}

static ph_value scalar_at(int type, const unsigned char *at)
{
    ph_value value = {.kind = type == PH_GGUF_BOOL ? PH_VALUE_BOOL : PH_VALUE_NUMBER};
    value.number = real_at(type, number_at(at, value_types[type].bytes));
    return value;
}

int ph_gguf_item(const ph_value *list, size_t i, ph_value *out)
{
    size_t bytes = (size_t)value_types[list->item_type].bytes;
    if (!bytes) return 0;
    *out = scalar_at(list->item_type, list->items + i * bytes);
    return 1;
}

const char *ph_gguf_next_text(const unsigned char **at, size_t *length)
{
    const char *text = (const char *)*at + 8;
    *length = (size_t)number_at(*at, 8);
    *at += 8 + *length;
    return text;
}

static ph_status check_bool(const gguf *g, const char *key, int type,
                            const unsigned char *at, size_t count)
{
    for (size_t i = 0; type == PH_GGUF_BOOL && i < count; i++)
        if (at[i] > 1) return bad(g, "%s is %d, expected 0 or 1 for a bool", key, at[i]);
    return PH_OK;
}

static ph_status read_list(gguf *g, const char *key, ph_value *value)
{
    uint64_t type = 0, count = 0;
    PH_TRY(take(g, 4, key, &type));
    PH_TRY(take(g, 8, key, &count));
    if (type >= PH_GGUF_TYPES || type == PH_GGUF_LIST)
        return bad(g, "%s is a list of type %llu, expected numbers or texts", key,
                   (unsigned long long)type);
    size_t bytes = (size_t)value_types[type].bytes;
    if (count > left(g) / (bytes ? bytes : 8)) return ends(g, key);
    *value = (ph_value){.kind = PH_VALUE_LIST, .count = (size_t)count};
    value->items = g->bytes + g->at, value->item_type = (int)type;
    PH_TRY(check_bool(g, key, (int)type, value->items, value->count));
    g->at += bytes * value->count;
    for (size_t i = 0; type == PH_GGUF_TEXT && i < value->count; i++) {
        const char *text;
        size_t length;
        PH_TRY(take_text(g, key, &text, &length));
    }
    return PH_OK;
}

static ph_status read_value(gguf *g, const char *key, ph_value *value)
{
    uint64_t type = 0;
    PH_TRY(take(g, 4, key, &type));
    if (type >= PH_GGUF_TYPES)
        return bad(g, "%s has type %llu, expected 0 to %d", key, (unsigned long long)type,
                   PH_GGUF_TYPES - 1);
    if (type == PH_GGUF_LIST) return read_list(g, key, value);
    if (type == PH_GGUF_TEXT) {
        value->kind = PH_VALUE_TEXT;
        PH_TRY(take_text(g, key, &value->text, &value->length));
        if (value->length && memchr(value->text, 0, value->length))
            return bad(g, "%s has a NUL byte in its text", key);
        return PH_OK;
    }
    size_t bytes = (size_t)value_types[type].bytes;
    if (left(g) < bytes) return ends(g, key);
    PH_TRY(check_bool(g, key, (int)type, g->bytes + g->at, 1));
    *value = scalar_at((int)type, g->bytes + g->at);
    g->at += bytes;
    return PH_OK;
}

static ph_status read_pairs(gguf *g, uint64_t count)
{
    if (count > left(g) / 13)
        return bad(g, "it says %llu pairs of metadata, more than the file can hold",
                   (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        char key[KEY];
        ph_value value = {0};
        PH_TRY(take_name(g, "a key", sizeof key, key));
        PH_TRY(read_value(g, quoted(key).text, &value));
        value.key = key;
        PH_TRY(ph_values_add(&g->c->values, &value, g->io));
    }
    return ph_values_sort(&g->c->values, g->name, g->io);
}

static ph_status read_alignment(gguf *g)
{
    const ph_value *v = ph_values_find(&g->c->values, "general.alignment");
    double value = v ? v->number : 32;
    if (v && (v->kind != PH_VALUE_NUMBER || !(value >= 8) || value > 65536 ||
              (double)((unsigned)value & -(unsigned)value) != value))
        return bad(g, "general.alignment is %g, expected a power of two, 8 to 65536",
                   value);
    g->alignment = (size_t)value;
    return PH_OK;
}

/* ---- tensors ----------------------------------------------------------------------- */

static const struct {
    int type;
    ph_dtype dtype;
} tensor_types[] = {{0, PH_F32},   {1, PH_F16},   {2, PH_Q4_0},
                    {3, PH_Q4_1},  {8, PH_Q8_0},  {12, PH_Q4_K},
                    {13, PH_Q5_K}, {14, PH_Q6_K}, {30, PH_BF16}};

/* Types that exist but are not read, for the sentence. */
static const char *other_type(uint64_t type)
{
    static const struct {
        unsigned type;
        const char *name;
    } others[] = {{9, "Q8_1"},   {15, "Q8_K"},  {17, "IQ2_XS"}, {18, "IQ3_XXS"},
                  {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},  {24, "I8"},
                  {25, "I16"},   {26, "I32"},   {27, "I64"},    {28, "F64"},
                  {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"},  {39, "MXFP4"}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].type == type) return others[i].name;
    return "unknown";
}

/* Type and bytes from the shape; *bytes 0: more than a size can hold. */
static ph_status set_type(gguf *g, ph_stored *s, uint64_t type, size_t elements,
                          size_t *bytes)
{
    ph_tensor *t = &s->tensor;
    size_t row = t->rank ? t->shape[t->rank - 1] : 1, block = 256, k = 0;
    for (size_t i = 0; i < sizeof tensor_types / sizeof tensor_types[0]; i++)
        if ((uint64_t)tensor_types[i].type == type) {
            t->type = tensor_types[i].dtype;
            block = (size_t)ph_dtype_about(t->type).elements;
            *bytes = row % block ? 0 : ph_dtype_bytes(t->type, elements);
            k = 1;
        }
    if (!k) {
        k = type < 256 ? ph_kquant_bytes((int)type) : 0;
        if (k) block = ph_kquant_block((int)type);
        t->type = PH_F32, s->raw_type = (int)type;
        if (k && ph_size_mul(elements / block, k, bytes)) *bytes = 0;
    }
    if (!k)
        return bad(g,
                   "tensor %s has type %llu (%s), expected F32, F16, BF16, Q8_0, Q4_0, "
                   "Q4_1, Q5_0, Q5_1, a K type, IQ4_NL, IQ4_XS or IQ2_XXS",
                   quoted(t->name).text, (unsigned long long)type, other_type(type));
    if (row % block)
        return bad(g, "tensor %s has rows of %zu elements, expected a multiple of %zu",
                   quoted(t->name).text, row, block);
    if (!*bytes)
        return bad(g, "tensor %s: the product of its shape overflows",
                   quoted(t->name).text);
    return PH_OK;
}

static ph_status read_shape(gguf *g, ph_tensor *t, size_t *elements)
{
    uint64_t rank = 0, dim = 0;
    PH_TRY(take(g, 4, "a tensor", &rank));
    if (rank > RANK)
        return bad(g, "tensor %s has rank %llu, expected at most %d",
                   quoted(t->name).text, (unsigned long long)rank, RANK);
    t->rank = (int)rank;
    for (int d = t->rank - 1; d >= 0; d--) {
        PH_TRY(take(g, 8, "a tensor", &dim));
        if (dim == 0 || dim > INT32_MAX)
            return bad(g, "tensor %s has a dimension of %llu, expected 1 to %d",
                       quoted(t->name).text, (unsigned long long)dim, INT32_MAX);
        t->shape[d] = (size_t)dim;
    }
    if (ph_size_product(t->shape, t->rank, elements))
        return bad(g, "tensor %s: the product of its shape overflows",
                   quoted(t->name).text);
    return PH_OK;
}

/* Where data begins is known after the last tensor: until then the offset stays apart. */
static ph_status read_tensor(gguf *g, size_t *offset)
{
    ph_stored s = {0};
    uint64_t type = 0, at = 0;
    size_t elements = 0;
    char name[NAME], *copy;
    PH_TRY(take_name(g, "a tensor", sizeof name, name));
    PH_TRY(ph_checkpoint_keep(g->c, strlen(name) + 1, (void **)&copy, g->io));
    s.tensor.name = strcpy(copy, name);
    PH_TRY(read_shape(g, &s.tensor, &elements));
    PH_TRY(take(g, 4, "a tensor", &type));
    PH_TRY(take(g, 8, "a tensor", &at));
    PH_TRY(set_type(g, &s, type, elements, &s.tensor.bytes));
    if (at % g->alignment || at > g->size)
        return bad(g,
                   "tensor %s begins at byte %llu of the data, expected a multiple of "
                   "%zu within the file",
                   quoted(s.tensor.name).text, (unsigned long long)at, g->alignment);
    *offset = (size_t)at;
    return ph_checkpoint_add(g->c, &s, g->io);
}

typedef struct extent {
    size_t begin, end;
    const char *name;
} extent;

static int compare_extents(const void *left_one, const void *right_one)
{
    const extent *a = left_one, *b = right_one;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static ph_status place_tensors(gguf *g, extent *list)
{
    size_t available = g->size - g->data;
    for (size_t i = 0; i < g->c->count; i++) {
        ph_stored *s = &g->c->tensors[i];
        size_t begin = list[i].begin;
        if (begin > available || s->tensor.bytes > available - begin)
            return bad(g, "tensor %s ends at byte %zu of the data, but there are %zu",
                       quoted(s->tensor.name).text, begin + s->tensor.bytes, available);
        list[i] = (extent){begin, begin + s->tensor.bytes, s->tensor.name};
        const unsigned char *at = g->bytes + g->data + begin;
        if (s->raw_type) {
            s->raw = at;
            s->tensor.bytes = s->tensor.bytes / ph_kquant_bytes(s->raw_type) *
                              ph_kquant_block(s->raw_type) * sizeof(float);
        } else {
            s->tensor.data = at;
        }
    }
    ph_sort(list, g->c->count, sizeof *list, compare_extents);
    for (size_t i = 1; i < g->c->count; i++)
        if (list[i].begin < list[i - 1].end)
            return bad(g, "tensor %s overlaps tensor %s", quoted(list[i].name).text,
                       quoted(list[i - 1].name).text);
    return PH_OK;
}

static ph_status read_tensors(gguf *g, uint64_t count, extent *list)
{
    for (uint64_t i = 0; i < count; i++) PH_TRY(read_tensor(g, &list[i].begin));
    if (ph_size_align_up(g->at, g->alignment, &g->data) || g->data > g->size)
        g->data = g->size;
    PH_TRY(place_tensors(g, list));
    return ph_checkpoint_sort(g->c, g->name, g->io);
}

static ph_status read_all(gguf *g)
{
    uint64_t magic = 0, version = 0, tensors = 0, pairs = 0;
    PH_TRY(take(g, 4, "the header", &magic));
    PH_TRY(take(g, 4, "the header", &version));
    if (magic != 0x46554747u) return bad(g, "not a GGUF file");
    if (version != 2 && version != 3)
        return bad(g, "GGUF version %llu, expected 2 or 3", (unsigned long long)version);
    PH_TRY(take(g, 8, "the header", &tensors));
    PH_TRY(take(g, 8, "the header", &pairs));
    PH_TRY(read_pairs(g, pairs));
    g->c->metadata = g->at;
    PH_TRY(read_alignment(g));
    if (tensors > left(g) / 25)
        return bad(g, "it says %llu tensors, more than the file can hold",
                   (unsigned long long)tensors);
    size_t bytes = (size_t)tensors * sizeof(extent);
    extent *list = ph_io_alloc(g->io, bytes);
    if (!list) return ph_io_no_memory(g->io, bytes, "the list of tensors");
    ph_status status = read_tensors(g, tensors, list);
    ph_io_release(g->io, list);
    return status;
}

ph_status ph_gguf_read(ph_checkpoint *c, const char *name, const unsigned char *bytes,
                       size_t size, const ph_io *io)
{
    gguf g = {.c = c, .io = io, .name = name, .bytes = bytes, .size = size};
    c->kind = PH_CHECKPOINT_GGUF;
    return read_all(&g);
}
