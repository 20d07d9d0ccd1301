/*
 * fuzz_merges.c - any bytes as the files of a folder with merges.txt.
 *
 * Input: the files in the order of ph_merge_file, a NUL between them; an empty one is not
 * there.
 *
 * Beyond not crashing: a refusal has a sentence, and what is accepted is a tokenizer.json
 * that the other reader takes or refuses with a sentence too.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "polyhead_text.h"
#include "text/merge_files.h"

static void use(const ph_merge_text files[PH_MERGE_FILES])
{
    char error[512] = "", *json;
    ph_io io = {.error = error, .error_size = sizeof error};
    size_t length;
    ph_status status = ph_merges_to_json(files, &json, &length, &io);
    REQUIRE(status == PH_OK ? json && strlen(json) == length : error[0] && !json);
    if (!json) return;
    ph_tokenizer *t;
    status = ph_tokenizer_parse(&t, "fuzz", json, length, &io);
    REQUIRE(status == PH_OK || (error[0] && !t));
    ph_tokenizer_free(t);
    ph_io_release(&io, json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ph_merge_text files[PH_MERGE_FILES];
    size_t at = 0;
    for (int i = 0; i < PH_MERGE_FILES; i++) {
        const uint8_t *end = at < size ? memchr(data + at, 0, size - at) : NULL;
        size_t count =
            end && i + 1 < PH_MERGE_FILES ? (size_t)(end - data) - at : size - at;
        files[i] = (ph_merge_text){.name = "file"};
        if (count) {
            files[i].text = malloc(count + 1);
            memcpy(files[i].text, data + at, count);
            files[i].text[files[i].size = count] = 0;
        }
        at += count + (at + count < size);
    }
    use(files);
    for (int i = 0; i < PH_MERGE_FILES; i++) free(files[i].text);
    return 0;
}
