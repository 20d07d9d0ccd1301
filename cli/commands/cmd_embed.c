/*
 * cmd_embed.c - `polyhead embed MODEL TEXT...`: a vector of each text or picture.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "commands/encoder_input.h"
#include "framework/json.h"

typedef struct embed_options {
    const char *file, *npy;
    int json;
    ph_machine machine;
} embed_options;

#define AT(field) offsetof(embed_options, field)
static const ph_option table[] = {
    ENCODER_OPTION_FILE(embed_options),
    {.name = "npy",
     .kind = PH_OPT_TEXT,
     .metavar = "OUT",
     .at = AT(npy),
     .help = "write the vectors to OUT for NumPy, one row for each text or picture"},
    {.name = "json",
     .kind = PH_OPT_FLAG,
     .at = AT(json),
     .help = "one JSON object with vectors, and the texts or names of files"},
    PH_MACHINE_OPTIONS(embed_options, machine),
    {.name = NULL}};

static void print_vectors(const encoder_input *in, const float *vectors)
{
    int dim = ph_model_vector_dim(in->m);
    for (int i = 0; i < in->count; i++)
        for (int d = 0; d < dim; d++)
            printf("%.9g%c", (double)vectors[(size_t)i * (size_t)dim + (size_t)d],
                   d + 1 < dim ? ' ' : '\n');
}

static void print_json(const encoder_input *in, const float *vectors)
{
    ph_json_writer j = json_begin("polyhead.embed/1");
    int dim = ph_model_vector_dim(in->m);
    int pictures = ph_model_config(in->m)->image_size > 0;
    ph_json_integer(&j, "dim", dim);
    ph_json_begin_array(&j, pictures ? "pictures" : "texts");
    for (int i = 0; i < in->count; i++) {
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, pictures ? "file" : "text", in->texts[i]);
        int indent = j.indent;
        ph_json_begin_array(&j, "vector");
        j.indent = 0; /* a vector is one line */
        for (int d = 0; d < dim; d++)
            ph_json_float(&j, NULL, vectors[(size_t)i * (size_t)dim + (size_t)d]);
        ph_json_end(&j);
        j.indent = indent;
        ph_json_end(&j);
    }
    json_end(&j);
}

/* Format 1.0 of NumPy: a header of whole 64 bytes, then little-endian floats. */
static int write_npy(const encoder_input *in, const float *vectors, const char *path)
{
    unsigned char header[128] = "\x93NUMPY\x01\x00\x76\x00";
    size_t dim = (size_t)ph_model_vector_dim(in->m), used = 10;
    used += (size_t)snprintf((char *)header + used, sizeof header - used,
                             "{'descr': '<f4', 'fortran_order': False, "
                             "'shape': (%d, %zu), }",
                             in->count, dim);
    memset(header + used, ' ', sizeof header - used);
    header[sizeof header - 1] = '\n';
    FILE *file = fopen(path, "wb");
    if (!file) return cli_fail(EXIT_IO, "cannot write '%s': %s", path, strerror(errno));
    size_t floats = (size_t)in->count * dim;
    int good = fwrite(header, 1, sizeof header, file) == sizeof header;
    for (size_t i = 0; i < floats; i++) {
        uint32_t bits;
        memcpy(&bits, &vectors[i], sizeof bits);
        const unsigned char four[4] = {(unsigned char)bits, (unsigned char)(bits >> 8),
                                       (unsigned char)(bits >> 16),
                                       (unsigned char)(bits >> 24)};
        good &= fwrite(four, 1, 4, file) == 4;
    }
    good &= fclose(file) == 0;
    return good ? EXIT_OK
                : cli_fail(EXIT_IO, "cannot write '%s': %s", path, strerror(errno));
}

static int show(const encoder_input *in, const embed_options *o)
{
    size_t dim = (size_t)ph_model_vector_dim(in->m);
    float *vectors = malloc((size_t)in->count * dim * sizeof *vectors);
    if (!vectors) return cli_fail(EXIT_MEMORY, "out of memory");
    int truncated = 0;
    const ph_texts all = {
        .texts = in->texts, .count = in->count, .truncated = &truncated};
    ph_status status = ph_model_config(in->m)->image_size
                           ? encoder_pictures(in, vectors, NULL)
                           : ph_model_embed(in->m, &all, vectors);
    int rc = status == PH_OK ? EXIT_OK : encoder_fail(in, status);
    if (!rc) encoder_say_truncated(in, truncated);
    if (!rc && o->npy) rc = write_npy(in, vectors, o->npy);
    if (!rc && o->json) print_json(in, vectors);
    if (!rc && !o->json && !o->npy) print_vectors(in, vectors);
    free(vectors);
    return rc;
}

static int run(const void *chosen, int count, const char *const *words)
{
    const embed_options *o = chosen;
    encoder_input in = {0};
    int rc = encoder_open(&in, words[0], &o->machine);
    if (!rc) rc = encoder_texts(&in, count - 1, words + 1, o->file, ENCODER_EVERY_LINE);
    if (!rc) rc = show(&in, o);
    encoder_close(&in);
    return rc;
}

static const char *const examples[] = {
    "polyhead embed all-MiniLM-L6-v2 \"A cat sat on the mat.\" --json",
    "the vector of a sentence",
    "polyhead embed all-MiniLM-L6-v2 --file sentences.txt --npy vectors.npy",
    "those of the lines of a file, for NumPy", NULL};

const ph_command command_embed = {
    .name = "embed",
    .summary = "a vector of each text or picture",
    .usage = "MODEL [TEXT|PICTURE...] [options]",
    .about =
        "MODEL is an encoder, BERT or a sentence encoder, or a decoder that is one "
        "(docs/MODELS.md). Tokens are pooled as its folder says, by their mean where it "
        "says nothing; texts that are too long are truncated as the folder says, which "
        "a line on stderr tells. Without TEXT, or with '-', every line of standard input "
        "is one, so that there is a vector for each line. A text has the same bits alone "
        "and among others. An encoder of pictures reads PICTURE, a PNG, JPEG or PPM "
        "file, and gives the row of its class token, or what its pooler makes of that.",
    .examples = examples,
    .options = table,
    .size = sizeof(embed_options),
    .word = "MODEL and TEXT or PICTURE",
    .fewest_words = 1,
    .most_words = CLI_WORDS_MAX,
    .run = run};
