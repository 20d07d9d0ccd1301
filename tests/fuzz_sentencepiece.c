/*
 * fuzz_sentencepiece.c - any bytes as vocab.json and source.spm of a Marian model.
 *
 * Input: vocab.json, NUL, source.spm.
 *
 * Beyond not crashing: a refusal has a sentence, and what is accepted is a tokenizer.json
 * that the other reader takes or refuses with a sentence too.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "polyhead_text.h"
#include "text/sentencepiece.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[512] = "", *json;
    ph_io io = {.error = error, .error_size = sizeof error};
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t vocab_size = end ? (size_t)(end - data) : size, length;
    char *vocab = malloc(vocab_size + 1);
    if (vocab_size) memcpy(vocab, data, vocab_size);
    vocab[vocab_size] = 0;
    ph_spm_files files = {
        "pieces", "vocab",   end ? end + 1 : data, end ? size - vocab_size - 1 : 0,
        vocab,    vocab_size};
    ph_status status = ph_spm_to_json(&files, &json, &length, &io);
    REQUIRE(status == PH_OK ? json && strlen(json) == length : error[0] && !json);
    if (json) {
        ph_tokenizer *t;
        status = ph_tokenizer_parse(&t, "fuzz", json, length, &io);
        REQUIRE(status == PH_OK || (error[0] && !t));
        ph_tokenizer_free(t);
    }
    ph_io_release(&io, json);
    free(vocab);
    return 0;
}
