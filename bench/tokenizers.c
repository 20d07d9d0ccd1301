/*
 * tokenizers.c - how fast text is encoded, on one thread:
 *
 *     build/bench/tokenizers TEXT TOKENIZER...
 *
 * TEXT is cut into paragraphs of 150 bytes or more at line ends; both these and the whole
 * text are encoded, each at least three times, and the best time counts.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "polyhead_text.h"

static char sentence[400];
static const ph_io io = {.error = sentence, .error_size = sizeof sentence};

static double now(void) /* CPU time: other programs do not count */
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *read_text(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    text = malloc(*size + 1);
    if (text && fread(text, 1, *size, file) != *size) *size = 0;
    fclose(file);
    return text;
}

/* Encodes the text in parts of `least` bytes or more; returns the number of tokens. */
static size_t encode_parts(ph_encoder *encoder, const char *text, size_t size,
                           size_t least)
{
    size_t total = 0, start = 0;
    while (start < size) {
        size_t end = start + least < size ? start + least : size, count = 0;
        const ph_text_token *tokens;
        while (end < size && text[end - 1] != '\n') end++;
        if (ph_encode(encoder,
                      &(ph_encode_args){.text = text + start, .length = end - start},
                      &tokens, &count) != PH_OK) {
            fprintf(stderr, "%s\n", sentence);
            exit(1);
        }
        total += count;
        start = end;
    }
    return total;
}

static double best_time(ph_encoder *encoder, const char *text, size_t size, size_t least,
                        size_t *tokens)
{
    double best = 1e30, began = now();
    for (int i = 0; i < 3 || now() - began < 1; i++) {
        double start = now();
        *tokens = encode_parts(encoder, text, size, least);
        double taken = now() - start;
        if (taken < best) best = taken;
    }
    return best;
}

int main(int argc, char **argv)
{
    size_t size = 0, tokens = 0;
    char *text = argc > 2 ? read_text(argv[1], &size) : NULL;
    if (!text) {
        fprintf(stderr, "usage: tokenizers TEXT TOKENIZER...\n");
        return 2;
    }
    printf("%-40s %8s %12s %12s %14s\n", "tokenizer", "open ms", "150 B MB/s",
           "whole MB/s", "bytes/token");
    for (int i = 2; i < argc; i++) {
        ph_tokenizer *tokenizer = NULL;
        ph_encoder *encoder = NULL;
        double start = now();
        if (ph_tokenizer_read(&tokenizer, argv[i], &io) != PH_OK ||
            ph_encoder_create(&encoder, tokenizer, &io) != PH_OK) {
            fprintf(stderr, "%s\n", sentence);
            return 1;
        }
        double opened = now() - start;
        double parts = best_time(encoder, text, size, 150, &tokens);
        double whole = best_time(encoder, text, size, size, &tokens);
        const char *name =
            strlen(argv[i]) > 40 ? argv[i] + strlen(argv[i]) - 40 : argv[i];
        printf("%-40s %8.1f %12.1f %12.1f %14.2f\n", name, 1e3 * opened,
               1e-6 * (double)size / parts, 1e-6 * (double)size / whole,
               (double)size / (double)tokens);
        ph_encoder_free(encoder);
        ph_tokenizer_free(tokenizer);
    }
    free(text);
    return 0;
}
