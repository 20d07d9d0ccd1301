/*
 * test_safetensors.c - the safetensors reader: what it accepts, and a table of bad files,
 * each with the words of the sentence it must be refused with.
 *
 * A bad file is a header and a number of data bytes; the length in front is made here,
 * except where the length itself is what is wrong.
 */
#include "check.h"
#include "io/safetensors.h"
#include "polyhead_io.h"

/* One tensor of a header; pieces of it where something is to be wrong. */
#define T(name, dtype, shape, offsets)                                                   \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape                             \
    ",\"data_offsets\":" offsets "}"
#define A T("a", "U8", "[4]", "[0,4]") /* good, four bytes */

static char error[512];
static const ph_io io = {.error = error, .error_size = sizeof error};

/* header and data bytes (counting up from 1) as a file in memory. */
static ph_status parse(ph_file **file, const char *header, size_t length, size_t data)
{
    unsigned char *bytes = malloc(8 + length + data);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data; i++) bytes[8 + length + i] = (unsigned char)(i + 1);
    error[0] = 0;
    ph_status status = ph_file_parse(file, "x.st", bytes, 8 + length + data, &io);
    free(bytes);
    return status;
}

/* ---- bad files ---- */

typedef struct bad {
    const char *words; /* in the sentence */
    const char *header;
    size_t data; /* bytes behind it */
} bad;

static void refuse_all(const bad *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ph_file *file = (ph_file *)error; /* must become NULL */
        ph_status status =
            parse(&file, list[i].header, strlen(list[i].header), list[i].data);
        CHECK(status == PH_BAD_FILE, "%s: status %d, expected PH_BAD_FILE",
              list[i].header, status);
        CHECK(file == NULL, "%s: a file came back", list[i].header);
        CHECK(strstr(error, list[i].words), "%s:\n      \"%s\"\n      lacks \"%s\"",
              list[i].header, error, list[i].words);
        CHECK(strncmp(error, "x.st: ", 6) == 0, "\"%s\" does not name the file", error);
    }
}

#define REFUSE_ALL(list) refuse_all(list, sizeof list / sizeof list[0])

static void bad_json(void)
{
    static const bad list[] = {
        {"text ends where a value is expected at byte 0", "", 0},
        {"text ends where a value is expected", "        ", 0},
        {"expected a key in quotes", "{", 0},
        {"expected a key in quotes", "{" A ",}", 4},
        {"expected a key in quotes", "{,}", 0},
        {"expected a key in quotes", "{a:1}", 0},
        {"expected a key in quotes", "{'a':1}", 0},
        {"expected ',' or '}'", "{" A, 4},
        {"expected ',' or '}'", "{" A "]", 4},
        {"expected ',' or '}'", "{" A " " T("b", "U8", "[0]", "[4,4]") "}", 4},
        {"expected ':' after a key", "{\"a\"}", 0},
        {"expected ':' after a key", "{\"a\",1}", 0},
        {"expected a value", "{\"a\":}", 0},
        {"expected a value", "{\"a\":nul}", 0},
        {"expected a value", "{\"a\":NaN}", 0},
        {"expected a value", "/**/{" A "}", 4},
        {"expected a value", "\xef\xbb\xbf{" A "}", 4},
        {"expected a value", "}", 0},
        {"expected a value", "x{}", 0},
        {"string without a closing quote", "{\"a", 0},
        {"string without a closing quote", "{\"a\":{\"dtype\":\"U8}}", 0},
        {"unknown escape", "{\"a\\q\":1}", 0},
        {"four hex digits", "{\"a\\u12g4\":1}", 0},
        {"surrogate pair without the second", "{\"\\ud83d\":1}", 0},
        {"surrogate pair without the first", "{\"\\ude00\":1}", 0},
        {"control character inside a string", "{\"a\nb\":1}", 0},
        {"something follows the end", "{" A "}x", 4},
        {"something follows the end", "{" A "}{}", 4},
        {"something follows the end", "{" A "},", 4},
        {"something follows the end", "{" A "}\v", 4},
        {"expected ',' or ']'", "{" T("a", "U8", "[4 4]", "[0,4]") "}", 4},
        {"expected ',' or ']'", "{" T("a", "U8", "[4}", "[0,4]") "}", 4},
        {"expected a value", "{" T("a", "U8", "[4,]", "[0,4]") "}", 4},
        {"leading zero", "{" T("a", "U8", "[04]", "[0,4]") "}", 4},
        {"expected a value", "{" T("a", "U8", "[+4]", "[0,4]") "}", 4},
        {"expected ',' or ']'", "{" T("a", "U8", "[0x4]", "[0,4]") "}", 4},
        {"digit after the decimal point", "{" T("a", "U8", "[4.]", "[0,4]") "}", 4},
        {"digit in the exponent", "{" T("a", "U8", "[4e]", "[0,4]") "}", 4},
        {"digit after '-'", "{" T("a", "U8", "[-]", "[0,4]") "}", 4},
        {"header is an array, expected an object", "[]", 0},
        {"header is a string, expected an object", "\"{}\"", 0},
        {"header is a number, expected an object", "8", 0},
        {"header is null, expected an object", "null", 0},
        {"header is true, expected an object", "true", 0},
        {"header is false, expected an object", "false", 0},
    };
    REFUSE_ALL(list);
}

static void bad_utf8(void)
{
    static const bad list[] = {
        {"not valid UTF-8 at byte 2", "{\"\xff\":1}", 0},
        {"not valid UTF-8 at byte 2", "{\"\xc3\":1}", 0},
        {"not valid UTF-8 at byte 2", "{\"\xc0\x80\":1}", 0},
        {"not valid UTF-8 at byte 2", "{\"\xed\xa0\x80\":1}", 0},
        {"not valid UTF-8 at byte 2", "{\"\xf4\x90\x80\x80\":1}", 0},
        {"not valid UTF-8 at byte 2", "{\"\xe2\x82\":1}", 0},
        {"not valid UTF-8", "{" A "}\x80", 4},
        {"not valid UTF-8", "{\"__metadata__\":{\"a\":\"\xfe\"}}", 0},
    };
    REFUSE_ALL(list);
}

static void bad_keys(void)
{
    static const bad list[] = {
        {"the key 'a' stands twice", "{" A "," A "}", 4},
        {"the key 'a' stands twice", "{" A "," T("\\u0061", "U8", "[0]", "[4,4]") "}", 4},
        {"the key 'a' stands twice",
         "{" A "," T("b", "U8", "[1]", "[4,5]") "," T("a", "U8", "[1]", "[5,6]") "}", 6},
        {"the key '' stands twice",
         "{" T("", "U8", "[0]", "[0,0]") "," T("", "U8", "[0]", "[0,0]") "}", 0},
        {"the key 'dtype' stands twice",
         "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"data_offsets\":[0,1]}}", 0},
        {"the key 'shape' stands twice",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"shape\":[0],\"data_offsets\":[0,0]}}",
         0},
        {"the key 'data_offsets' stands twice",
         "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[0],\"data_offsets\":"
         "[0,0]}}",
         0},
        {"the key '__metadata__' stands twice",
         "{\"__metadata__\":{},\"__metadata__\":{}}", 0},
        {"the key 'k' stands twice", "{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0},
        {"the key 'y' stands twice",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":[{\"y\":1,"
         "\"y\":1}]}}",
         0},
        {"the key 'x' stands twice",
         "{\"a\":{\"dtype\":\"U8\",\"x\":1,\"shape\":[],\"data_offsets\":[0,1],\"x\":1}}",
         0},
        {"__metadata__ is an array, expected an object", "{\"__metadata__\":[]}", 0},
        {"__metadata__ is a string, expected an object", "{\"__metadata__\":\"x\"}", 0},
        {"__metadata__ is a number, expected an object", "{\"__metadata__\":1}", 0},
        {"__metadata__ is true, expected an object", "{\"__metadata__\":true}", 0},
        {"__metadata__ 'k' is a number, expected a string",
         "{\"__metadata__\":{\"k\":1}}", 0},
        {"__metadata__ 'k' is null, expected a string", "{\"__metadata__\":{\"k\":null}}",
         0},
        {"__metadata__ 'k' is true, expected a string", "{\"__metadata__\":{\"k\":true}}",
         0},
        {"__metadata__ 'k' is an array, expected a string",
         "{\"__metadata__\":{\"k\":[\"x\"]}}", 0},
        {"__metadata__ 'k' is an object, expected a string",
         "{\"__metadata__\":{\"k\":{}}}", 0},
        {"__metadata__ has a key with a NUL byte",
         "{\"__metadata__\":{\"k\\u0000\":\"x\"}}", 0},
        {"__metadata__ 'k' has a NUL byte", "{\"__metadata__\":{\"k\":\"x\\u0000y\"}}",
         0},
        {"its name has a NUL byte", "{" T("a\\u0000b", "U8", "[0]", "[0,0]") "}", 0},
        {"tensor 'a' is null, expected an object", "{\"a\":null}", 0},
        {"tensor 'a' is a number, expected an object", "{\"a\":1}", 0},
        {"tensor 'a' is a string, expected an object", "{\"a\":\"U8\"}", 0},
        {"tensor 'a' is an array, expected an object", "{\"a\":[\"U8\",[0],[0,0]]}", 0},
        {"tensor 'a' is true, expected an object", "{\"a\":true}", 0},
        {"tensor 'a': dtype is missing", "{\"a\":{}}", 0},
        {"tensor 'a': dtype is missing", "{\"a\":{\"shape\":[0],\"data_offsets\":[0,0]}}",
         0},
        {"tensor 'a': dtype is missing",
         "{\"a\":{\"Dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0},
        {"tensor 'a': shape is missing",
         "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0},
        {"tensor 'a': data_offsets is missing",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0},
        {"nested deeper than allowed",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":[[[[[[[1]]]"
         "]]]]}}",
         0},
        {"number too large",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1e999}}",
         0},
    };
    REFUSE_ALL(list);
}

static void bad_types_and_shapes(void)
{
    static const bad list[] = {
        {"tensor 'a': dtype is null, expected a string",
         "{\"a\":{\"dtype\":null,\"shape\":[0],\"data_offsets\":[0,0]}}", 0},
        {"tensor 'a': dtype is a number, expected a string",
         "{\"a\":{\"dtype\":8,\"shape\":[0],\"data_offsets\":[0,0]}}", 0},
        {"tensor 'a': dtype is an object, expected a string",
         "{\"a\":{\"dtype\":{\"U8\":null},\"shape\":[0],\"data_offsets\":[0,0]}}", 0},
        {"tensor 'a': dtype is an array, expected a string",
         "{\"a\":{\"dtype\":[\"U8\"],\"shape\":[0],\"data_offsets\":[0,0]}}", 0},
        {"dtype 'Q4_0' is unknown", "{" T("a", "Q4_0", "[0]", "[0,0]") "}", 0},
        {"dtype 'f32' is unknown", "{" T("a", "f32", "[0]", "[0,0]") "}", 0},
        {"dtype '' is unknown", "{" T("a", "", "[0]", "[0,0]") "}", 0},
        {"dtype 'F32 ' is unknown", "{" T("a", "F32 ", "[0]", "[0,0]") "}", 0},
        {"dtype 'F3' is unknown", "{" T("a", "F3", "[0]", "[0,0]") "}", 0},
        {"dtype 'F32\\u0000' is unknown", "{" T("a", "F32\\u0000", "[0]", "[0,0]") "}",
         0},
        {"dtype '\\u001b[31m' is unknown", "{" T("a", "\\u001b[31m", "[0]", "[0,0]") "}",
         0},
        {"shape is null, expected an array", "{" T("a", "U8", "null", "[0,4]") "}", 4},
        {"shape is a number, expected an array", "{" T("a", "U8", "4", "[0,4]") "}", 4},
        {"shape is a string, expected an array", "{" T("a", "U8", "\"4\"", "[0,4]") "}",
         4},
        {"shape is an object, expected an array", "{" T("a", "U8", "{}", "[0,4]") "}", 4},
        {"shape[0] is -4, expected a whole number without",
         "{" T("a", "U8", "[-4]", "[0,4]") "}", 4},
        {"shape[0] is -1", "{" T("a", "U8", "[-1,-1]", "[0,1]") "}", 1},
        {"shape[0] is -0", "{" T("a", "U8", "[-0]", "[0,0]") "}", 0},
        {"shape[1] is 4.0", "{" T("a", "U8", "[1,4.0]", "[0,4]") "}", 4},
        {"shape[0] is 4e0", "{" T("a", "U8", "[4e0]", "[0,4]") "}", 4},
        {"shape[0] is 0.4E1", "{" T("a", "U8", "[0.4E1]", "[0,4]") "}", 4},
        {"shape[0] is 18446744073709551616",
         "{" T("a", "U8", "[18446744073709551616]", "[0,4]") "}", 4},
        {"shape[0] is 99999999999999999999999999999999999999",
         "{" T("a", "U8", "[99999999999999999999999999999999999999999999]", "[0,4]") "}",
         4},
        {"shape[0] is a string", "{" T("a", "U8", "[\"4\"]", "[0,4]") "}", 4},
        {"shape[0] is null", "{" T("a", "U8", "[null]", "[0,4]") "}", 4},
        {"shape[0] is true", "{" T("a", "U8", "[true]", "[0,4]") "}", 4},
        {"shape[0] is an array", "{" T("a", "U8", "[[4]]", "[0,4]") "}", 4},
        {"shape[1] is an object", "{" T("a", "U8", "[4,{}]", "[0,4]") "}", 4},
        {"shape has more than 8 entries",
         "{" T("a", "U8", "[1,1,1,1,1,1,1,1,4]", "[0,4]") "}", 4},
        {"the product of its shape overflows",
         "{" T("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0},
        {"the product of its shape overflows",
         "{" T("a", "U8", "[18446744073709551615,2]", "[0,4]") "}", 4},
        {"the product of its shape overflows",
         "{" T("a", "F64", "[9223372036854775808]", "[0,0]") "}", 0},
        {"the product of its shape overflows",
         "{" T("a", "F32", "[4611686018427387905]", "[0,4]") "}", 4},
        {"the product of its shape overflows",
         "{" T("a", "U8", "[18446744073709551615,18446744073709551615,0]", "[0,0]") "}",
         0},
        {"its elements do not fill whole bytes", "{" T("a", "F4", "[3]", "[0,2]") "}", 2},
        {"its elements do not fill whole bytes",
         "{" T("a", "F6_E2M3", "[5]", "[0,4]") "}", 4},
        {"its elements do not fill whole bytes", "{" T("a", "F6_E3M2", "[]", "[0,1]") "}",
         1},
    };
    REFUSE_ALL(list);
}

static void bad_offsets(void)
{
    static const bad list[] = {
        {"data_offsets is null", "{" T("a", "U8", "[4]", "null") "}", 4},
        {"data_offsets is a number", "{" T("a", "U8", "[4]", "4") "}", 4},
        {"data_offsets is an object", "{" T("a", "U8", "[4]", "{\"0\":4}") "}", 4},
        {"data_offsets is a string", "{" T("a", "U8", "[4]", "\"0,4\"") "}", 4},
        {"data_offsets has 0 entries, expected 2", "{" T("a", "U8", "[4]", "[]") "}", 4},
        {"data_offsets has 1 entries, expected 2", "{" T("a", "U8", "[4]", "[4]") "}", 4},
        {"data_offsets has more than 2", "{" T("a", "U8", "[4]", "[0,4,8]") "}", 4},
        {"data_offsets[0] is -4", "{" T("a", "U8", "[4]", "[-4,0]") "}", 4},
        {"data_offsets[0] is -0", "{" T("a", "U8", "[4]", "[-0,4]") "}", 4},
        {"data_offsets[1] is 4.0", "{" T("a", "U8", "[4]", "[0,4.0]") "}", 4},
        {"data_offsets[1] is 4e0", "{" T("a", "U8", "[4]", "[0,4e0]") "}", 4},
        {"data_offsets[1] is 18446744073709551620",
         "{" T("a", "U8", "[4]", "[0,18446744073709551620]") "}", 4},
        {"data_offsets[1] is a string", "{" T("a", "U8", "[4]", "[0,\"4\"]") "}", 4},
        {"data_offsets[0] is null", "{" T("a", "U8", "[4]", "[null,4]") "}", 4},
        {"data_offsets[0] is an array", "{" T("a", "U8", "[4]", "[[0,4]]") "}", 4},
        {"data_offsets end at 0, before they begin at 4",
         "{" T("a", "U8", "[4]", "[4,0]") "}", 4},
        {"data_offsets end at 3, before they begin at 18446744073709551615",
         "{" T("a", "U8", "[4]", "[18446744073709551615,3]") "}", 4},
        {"data_offsets span 3 bytes, expected 4 for U8 (4)",
         "{" T("a", "U8", "[4]", "[0,3]") "}", 3},
        {"data_offsets span 5 bytes, expected 4", "{" T("a", "U8", "[4]", "[0,5]") "}",
         5},
        {"data_offsets span 4 bytes, expected 16 for F32 (4)",
         "{" T("a", "F32", "[4]", "[0,4]") "}", 4},
        {"data_offsets span 4 bytes, expected 2 for BF16 ()",
         "{" T("a", "BF16", "[]", "[0,4]") "}", 4},
        {"data_offsets span 4 bytes, expected 0 for F32 (0, 4)",
         "{" T("a", "F32", "[0,4]", "[0,4]") "}", 4},
        {"data_offsets span 0 bytes, expected 8 for I64 (1)",
         "{" T("a", "I64", "[1]", "[0,0]") "}", 0},
        {"data_offsets span 2 bytes, expected 1 for F4 (2)",
         "{" T("a", "F4", "[2]", "[0,2]") "}", 2},
        {"'a': its data begins at byte 1, expected 0 (hole)",
         "{" T("a", "U8", "[4]", "[1,5]") "}", 5},
        {"'b': its data begins at byte 5, expected 4 (hole)",
         "{" A "," T("b", "U8", "[1]", "[5,6]") "}", 6},
        {"'b': its data begins at byte 3, expected 4 (overlap)",
         "{" A "," T("b", "U8", "[2]", "[3,5]") "}", 5},
        {"its data begins at byte 0, expected 4 (overlap)",
         "{" A "," T("b", "U8", "[4]", "[0,4]") "}", 4},
        {"'a': its data begins at byte 0, expected 2 (overlap)",
         "{" A "," T("b", "U8", "[2]", "[0,2]") "}", 4},
        {"'z': its data begins at byte 2, expected 4 (overlap)",
         "{" A "," T("z", "U8", "[0]", "[2,2]") "}", 4},
        {"'z': its data begins at byte 9, expected 4 (hole)",
         "{" A "," T("z", "U8", "[0]", "[9,9]") "}", 4},
        {"'a': its data ends at byte 4, but the file holds only 3 bytes", "{" A "}", 3},
        {"'a': its data ends at byte 4, but the file holds only 0 bytes", "{" A "}", 0},
        {"'a': its data ends at byte 1000000000000, but the file holds only 4",
         "{" T("a", "U8", "[1000000000000]", "[0,1000000000000]") "}", 4},
        {"5 bytes of data, but the tensors end at byte 4", "{" A "}", 5},
        {"1 bytes of data, but the tensors end at byte 0", "{}", 1},
        {"8 bytes of data, but the tensors end at byte 0",
         "{\"__metadata__\":{\"format\":\"pt\"}}", 8},
    };
    REFUSE_ALL(list);
}

/* Where the length in front is wrong, or the file is too short for one. */
static void bad_length(void)
{
    static const struct {
        const char *words;
        uint64_t length;
        size_t size; /* of the whole file */
    } list[] = {
        {"0 bytes are too few for a safetensors file, expected at least 8", 0, 0},
        {"1 bytes are too few", 0, 1},
        {"7 bytes are too few", 2, 7},
        {"header length is 1, but only 0 bytes follow", 1, 8},
        {"header length is 3, but only 2 bytes follow", 3, 10},
        {"header length is 99999999, but only 2 bytes follow", 99999999, 10},
        {"header length is 100000000, but only 2 bytes follow", 100000000, 10},
        {"header length is 100000001, at most 100000000 are allowed", 100000001, 10},
        {"header length is 4294967298, at most", 0x100000002u, 10},
        {"header length is 9223372036854775808, at most", UINT64_C(1) << 63, 10},
        {"header length is 18446744073709551608, at most", UINT64_MAX - 7, 10},
        {"header length is 18446744073709551615, at most", UINT64_MAX, 10},
        {"something follows the end", 3, 11}, /* {} and a NUL */
        {"something follows the end", 10, 18},
        {"2 bytes of data", 2, 12},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        unsigned char bytes[32] = {0};
        ph_file *file = NULL;
        for (int j = 0; j < 8; j++) bytes[j] = (unsigned char)(list[i].length >> 8 * j);
        memcpy(bytes + 8, "{}", 2);
        ph_status status = ph_file_parse(&file, "x.st", bytes, list[i].size, &io);
        CHECK(status == PH_BAD_FILE, "%s: status %d", list[i].words, status);
        CHECK(strstr(error, list[i].words), "\"%s\" lacks \"%s\"", error, list[i].words);
    }
}

static void name_length(void)
{
    char header[1200];
    for (int length = 1023; length <= 1025; length++) {
        ph_file *file = NULL;
        int size = snprintf(header, sizeof header,
                            "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":"
                            "[0],\"data_offsets\":[0,0]}}",
                            length, 0);
        ph_status status = parse(&file, header, (size_t)size, 0);
        CHECK((status == PH_OK) == (length <= 1024), "%d: status %d", length, status);
        CHECK(status == PH_OK ||
                  strstr(error, "its name has 1025 bytes, at most 1024 are allowed"),
              "%s", error);
        ph_file_free(file);
    }
}

static void tensor_count(void)
{
    const size_t most = PH_SAFETENSORS_TENSORS, capacity = (most + 1) * 62;
    char *header = malloc(capacity);
    for (size_t extra = 0; extra < 2; extra++) {
        ph_file *file = NULL;
        size_t at = 0;
        for (size_t i = 0; i < most + extra; i++)
            at += (size_t)sprintf(header + at,
                                  "%c\"%zx\":{\"dtype\":\"U8\",\"shape\":[0],"
                                  "\"data_offsets\":[0,0]}",
                                  i ? ',' : '{', i);
        header[at++] = '}';
        ph_status status = parse(&file, header, at, 0);
        CHECK(status == (extra ? PH_BAD_FILE : PH_OK), "status %d: %s", status, error);
        CHECK(!extra || strstr(error, "more than 1048576 tensors"), "%s", error);
        if (file) {
            const ph_tensor *found = ph_file_find(file, "fffff");
            CHECK(found && ph_file_find(file, "100000") == NULL, "find");
            CHECK(ph_file_tensor(file, most - 1) && !ph_file_tensor(file, most), "count");
        }
        ph_file_free(file);
    }
    free(header);
}

/* ---- good files ---- */

static void accepted(void)
{
    static const struct {
        const char *header;
        size_t data;
        const char *tensors; /* name, type and shape of each in the order of the data */
    } list[] = {
        {"{}", 0, ""},
        {"  \n{}\t\r ", 0, ""},
        {"{\"__metadata__\":{}}", 0, ""},
        {"{\"__metadata__\":null}", 0, ""},
        {"{" A "}", 4, "a U8 (4);"},
        {"{" T("s", "F64", "[]", "[0,8]") "}", 8, "s F64 ();"},
        {"{" T("z", "F32", "[3,0,5]", "[0,0]") "}", 0, "z F32 (3, 0, 5);"},
        {"{" T("z", "U8", "[0,18446744073709551615,18446744073709551615]", "[0,0]") "}",
         0, "z U8 (0, 18446744073709551615, 18446744073709551615);"},
        {"{" T("r", "U8", "[1,1,1,1,1,1,1,2]", "[0,2]") "}", 2,
         "r U8 (1, 1, 1, 1, 1, 1, 1, 2);"},
        {"{" T("b", "U8", "[2]", "[4,6]") "," A "}", 6, "a U8 (4);b U8 (2);"},
        {"{" T("b", "U8", "[0]", "[4,4]") "," A "," T("c", "U8", "[0]", "[0,0]") "}", 4,
         "c U8 (0);a U8 (4);b U8 (0);"},
        {"{" T("", "U8", "[0]", "[0,0]") "}", 0, " U8 (0);"},
        {"{" T("\\u00e9\\ud83d\\ude00\\n", "F4", "[4]", "[0,2]") "}", 2,
         "\xc3\xa9\xf0\x9f\x98\x80\n F4 (4);"},
        {"{" T("a", "\\u0055\\u0038", "[1]", "[0,1]") "}", 1, "a U8 (1);"},
        {"{\"a\":{\"data_offsets\":[0,1],\"extra\":{\"x\":[1,null,\"y\"]},\"shape\":[1],"
         "\"dtype\":\"I8\"}}",
         1, "a I8 (1);"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":[[[[[[1]]]]"
         "]]}}",
         0, "a U8 (0);"},
        {"{" T("__metadata", "BOOL", "[1]", "[0,1]") "}", 1, "__metadata BOOL (1);"},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char found[300] = "", words[128];
        ph_file *file = NULL;
        const ph_tensor *t;
        ph_status status =
            parse(&file, list[i].header, strlen(list[i].header), list[i].data);
        CHECK(status == PH_OK, "%s: %s", list[i].header, error);
        for (size_t k = 0; (t = ph_file_tensor(file, k)) != NULL; k++) {
            ph_tensor_describe(t, words, sizeof words);
            sprintf(found + strlen(found), "%s %s;", t->name, words);
            CHECK(ph_file_find(file, t->name) == t, "%s is not found", t->name);
            CHECK((uintptr_t)t->data % 64 == 0, "%s is not aligned", t->name);
        }
        CHECK(strcmp(found, list[i].tensors) == 0, "%s: found %s, expected %s",
              list[i].header, found, list[i].tensors);
        CHECK(error[0] == 0, "a sentence without a failure: %s", error);
        ph_file_free(file);
    }
}

/* Data that is not aligned in the file is aligned in memory, with the right bytes. */
static void data_bytes(void)
{
    const char *header = "{" T("a", "U8", "[3]", "[0,3]") "," T(
        "b", "F32", "[2]", "[3,11]") "," T("c", "U8", "[2]", "[11,13]") "}";
    ph_file *file = NULL;
    CHECK(parse(&file, header, strlen(header), 13) == PH_OK, "%s", error);
    CHECK(memcmp(ph_file_find(file, "a")->data, "\1\2\3", 3) == 0, "a");
    CHECK(memcmp(ph_file_find(file, "b")->data, "\4\5\6\7\10\11\12\13", 8) == 0, "b");
    CHECK(memcmp(ph_file_find(file, "c")->data, "\14\15", 2) == 0, "c");
    CHECK(ph_file_find(file, "b")->bytes == 8, "bytes");
    CHECK(ph_file_find(file, "ab") == NULL && ph_file_find(file, "") == NULL, "find");
    ph_file_free(file);
}

static void metadata(void)
{
    const char *header =
        "{\"__metadata__\":{\"z\":\"1\",\"format\":\"p\\u0074\",\"\":\"\"}," A "}";
    ph_file *file = NULL;
    CHECK(parse(&file, header, strlen(header), 4) == PH_OK, "%s", error);
    const ph_pair *pair = ph_file_metadata(file, 1);
    CHECK(!strcmp(pair->key, "format") && !strcmp(pair->value, "pt"), "%s", pair->value);
    CHECK(!strcmp(ph_file_metadata(file, 0)->key, "z"), "order");
    CHECK(!strcmp(ph_file_metadata(file, 2)->key, ""), "empty key");
    CHECK(ph_file_metadata(file, 3) == NULL, "end");
    ph_file_free(file);
}

static void types(void)
{
    static const struct {
        ph_dtype type;
        int bits;
    } all[] = {{PH_BOOL, 8},    {PH_F4, 4},          {PH_F6_E2M3, 6},     {PH_F6_E3M2, 6},
               {PH_U8, 8},      {PH_I8, 8},          {PH_F8_E5M2, 8},     {PH_F8_E4M3, 8},
               {PH_F8_E8M0, 8}, {PH_F8_E4M3FNUZ, 8}, {PH_F8_E5M2FNUZ, 8}, {PH_I16, 16},
               {PH_U16, 16},    {PH_F16, 16},        {PH_BF16, 16},       {PH_I32, 32},
               {PH_U32, 32},    {PH_F32, 32},        {PH_C64, 64},        {PH_F64, 64},
               {PH_I64, 64},    {PH_U64, 64}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char header[128];
        ph_file *file = NULL;
        const char *name = ph_dtype_name(all[i].type);
        CHECK(ph_dtype_bytes(all[i].type, 8) == (size_t)all[i].bits, "bits of %s", name);
        int n = snprintf(header, sizeof header, "{" T("a", "%s", "[8]", "[0,%d]") "}",
                         name, all[i].bits);
        CHECK(parse(&file, header, (size_t)n, (size_t)all[i].bits) == PH_OK, "%s", error);
        CHECK(ph_file_tensor(file, 0)->type == all[i].type, "%s", header);
        ph_file_free(file);
    }
}

/* ---- memory ---- */

static int allocations_left;
static size_t memory_in_use;

static void *failing_alloc(void *user, size_t bytes)
{
    (void)user;
    if (allocations_left-- <= 0) return NULL;
    memory_in_use++;
    return malloc(bytes);
}

static void release(void *user, void *ptr)
{
    (void)user;
    if (ptr) memory_in_use--;
    free(ptr);
}

/* Every allocation fails once, then for ever, until none is left to fail. */
static void no_memory(void)
{
    char header[4000] = "{\"__metadata__\":{\"a\":\"b\",\"c\":\"d\"}";
    char text[200] = "";
    ph_io failing = {.error = text, .error_size = sizeof text};
    failing.alloc = failing_alloc, failing.release = release;
    for (int i = 0; i < 40; i++)
        sprintf(header + strlen(header), "," T("t%d", "U8", "[1]", "[%d,%d]"), i, i,
                i + 1);
    strcat(header, "}");
    unsigned char bytes[5000] = {0};
    size_t length = strlen(header);
    bytes[0] = (unsigned char)length;
    bytes[1] = (unsigned char)(length >> 8);
    memcpy(bytes + 8, header, length);
    int refusals = 0;
    for (;; refusals++) {
        ph_file *file = NULL;
        allocations_left = refusals;
        text[0] = 0;
        ph_status status = ph_file_parse(&file, "x.st", bytes, 8 + length + 40, &failing);
        if (status == PH_OK) {
            ph_file_free(file);
            break;
        }
        CHECK(status == PH_OUT_OF_MEMORY && !file, "status %d", status);
        CHECK(strstr(text, "out of memory: no "), "\"%s\"", text);
        CHECK(memory_in_use == 0, "%zu blocks are left", memory_in_use);
    }
    CHECK(memory_in_use == 0, "%zu blocks are left", memory_in_use);
    CHECK(refusals >= 8, "only %d allocations", refusals);
}

static void size_limit(void)
{
    ph_file *file = NULL;
    const ph_io small = {.error = error, .error_size = sizeof error, .max_bytes = 9};
    CHECK(ph_file_parse(&file, "x.st", "\2\0\0\0\0\0\0\0{}", 10, &small) ==
              PH_OUT_OF_MEMORY,
          "10 bytes with a limit of 9");
    CHECK(strstr(error, "'x.st' has 10 bytes, the limit is 9"), "%s", error);
    CHECK(ph_file_parse(&file, "x.st", "\2\0\0\0\0\0\0\0{}", 10, NULL) == PH_OK,
          "NULL io");
    ph_file_free(file);
    ph_file_free(NULL);
}

static const check_case cases[] = {{"bad_json", bad_json},
                                   {"bad_utf8", bad_utf8},
                                   {"bad_keys", bad_keys},
                                   {"bad_types_and_shapes", bad_types_and_shapes},
                                   {"bad_offsets", bad_offsets},
                                   {"bad_length", bad_length},
                                   {"name_length", name_length},
                                   {"tensor_count", tensor_count},
                                   {"accepted", accepted},
                                   {"data_bytes", data_bytes},
                                   {"metadata", metadata},
                                   {"types", types},
                                   {"no_memory", no_memory},
                                   {"size_limit", size_limit},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
