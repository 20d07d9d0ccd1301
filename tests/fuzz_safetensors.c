/*
 * fuzz_safetensors.c - any bytes as a safetensors file, and any bytes as its header.
 *
 * The input is read as it is; then once more with its first byte as the number of data
 * bytes and the rest as the header, so that most inputs get past the length.
 *
 * Beyond not crashing: memory in use never passes 8 times the input (and a constant), all
 * of it comes back, and an accepted file has the properties the header promises.
 */
#include <string.h>

#include "fuzz.h"
#include "polyhead_io.h"

/* ---- an allocator that counts ---- */

typedef struct tally {
    size_t now, peak; /* bytes */
} tally;

enum { FRONT = 16 }; /* keeps the size of a block, and its alignment */

static void *counted_alloc(void *user, size_t bytes)
{
    tally *t = user;
    char *block = malloc(bytes + FRONT);
    REQUIRE(block);
    memcpy(block, &bytes, sizeof bytes);
    t->now += bytes;
    if (t->now > t->peak) t->peak = t->now;
    return block + FRONT;
}

static void counted_release(void *user, void *ptr)
{
    tally *t = user;
    size_t bytes;
    if (!ptr) return;
    memcpy(&bytes, (char *)ptr - FRONT, sizeof bytes);
    t->now -= bytes;
    free((char *)ptr - FRONT);
}

/* ---- what must hold for an accepted file ---- */

static volatile unsigned char sink;

static void check_tensor(const ph_file *file, const ph_tensor *tensor)
{
    size_t elements = 1;
    const unsigned char *bytes = tensor->data;
    REQUIRE(ph_file_find(file, tensor->name) == tensor);
    REQUIRE(tensor->rank >= 0 && tensor->rank <= PH_MAX_RANK);
    for (int i = 0; i < tensor->rank; i++) elements *= tensor->shape[i];
    REQUIRE(ph_dtype_bytes(tensor->type, elements) == tensor->bytes);
    REQUIRE((uintptr_t)tensor->data % 64 == 0);
    for (size_t i = 0; i < tensor->bytes; i++) sink ^= bytes[i];
}

static size_t check_file(const ph_file *file)
{
    size_t total = 0;
    const ph_tensor *tensor;
    const ph_pair *pair;
    for (size_t i = 0; (tensor = ph_file_tensor(file, i)) != NULL; i++) {
        check_tensor(file, tensor);
        total += tensor->bytes;
    }
    for (size_t i = 0; (pair = ph_file_metadata(file, i)) != NULL; i++)
        sink ^= (unsigned char)(strlen(pair->key) + strlen(pair->value));
    return total;
}

static void read_one(const uint8_t *data, size_t size)
{
    char error[512] = "";
    tally t = {0, 0};
    ph_io io = {.alloc = counted_alloc,
                .release = counted_release,
                .user = &t,
                .error = error,
                .error_size = sizeof error};
    ph_file *file = NULL;
    ph_status status = ph_file_parse(&file, "fuzz", data, size, &io);
    REQUIRE(status == PH_OK || status == PH_BAD_FILE);
    REQUIRE((status == PH_OK) == (file != NULL));
    REQUIRE((status == PH_OK) == (error[0] == 0));
    REQUIRE(t.peak <= 8 * size + 8192);
    if (file) REQUIRE(check_file(file) <= size);
    ph_file_free(file);
    REQUIRE(t.now == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_one(data, size);
    if (size > 0) {
        size_t header = size - 1, all = 8 + header + data[0];
        uint8_t *whole = calloc(1, all);
        REQUIRE(whole);
        for (int i = 0; i < 8; i++) whole[i] = (uint8_t)((uint64_t)header >> 8 * i);
        memcpy(whole + 8, data + 1, header);
        read_one(whole, all);
        free(whole);
    }
    return 0;
}
