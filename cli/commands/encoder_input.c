/*
 * encoder_input.c - a model and texts for embed, fill and classify.
 */
#define _POSIX_C_SOURCE 200809L
#include "commands/encoder_input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands/cmd_train.h"
#include "commands/refused_text.h"
#include "io/utf8.h"

ph_status encoder_read(ph_model **m, ph_ctx *ctx, const char *name)
{
    struct stat info;
    int embedded = !strcmp(name, "pronouns") && stat(name, &info) != 0;
    return embedded ? ph_model_embedded(m, ctx) : ph_model_read(m, ctx, name);
}

int encoder_open(encoder_input *in, const char *model, const ph_machine *machine)
{
    int rc = cli_open(&in->ctx, machine, 0);
    if (rc) return rc;
    ph_status status = encoder_read(&in->m, in->ctx, model);
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, in->ctx);
}

void encoder_close(encoder_input *in)
{
    free((void *)in->texts);
    free(in->bytes);
    ph_model_free(in->m);
    ph_close(in->ctx);
}

/* All bytes of a file, closed by a NUL. */
static int read_all(encoder_input *in, FILE *file, const char *name)
{
    size_t used = 0, got, capacity = 0;
    do {
        capacity = 2 * capacity + (1 << 16);
        char *more = realloc(in->bytes, capacity);
        if (!more) return cli_fail(EXIT_MEMORY, "out of memory");
        in->bytes = more;
        got = fread(in->bytes + used, 1, capacity - 1 - used, file);
        if (memchr(in->bytes + used, 0, got)) /* at once: /dev/zero never ends */
            return cli_fail(EXIT_BAD_INPUT, "'%s' holds a byte that is 0, expected text",
                            name);
        used += got;
    } while (used + 1 == capacity);
    if (ferror(file)) return cli_fail(EXIT_IO, "cannot read '%s'", name);
    in->bytes[used] = 0;
    return EXIT_OK;
}

static int split_lines(encoder_input *in, const char *name, encoder_lines which)
{
    size_t lines = cli_most_lines(in->bytes), next;
    char *end = in->bytes + strlen(in->bytes);
    char *first = in->bytes + ph_utf8_mark(in->bytes, strlen(in->bytes));
    in->texts = calloc(lines, sizeof *in->texts);
    if (!in->texts || lines > INT32_MAX) return cli_fail(EXIT_MEMORY, "out of memory");
    for (char *at = first; at < end; at += next) {
        at[cli_line(at, (size_t)(end - at), &next)] = 0;
        if (which == ENCODER_EVERY_LINE || at[strspn(at, " \t")])
            in->texts[in->count++] = at;
    }
    if (in->count) return EXIT_OK;
    return cli_fail(EXIT_BAD_INPUT, "'%s' holds no text", name);
}

static int read_lines(encoder_input *in, const char *name, encoder_lines which)
{
    int from_stdin = !strcmp(name, "-");
    FILE *file = from_stdin ? stdin : fopen(name, "rb");
    if (!file) return cli_fail(EXIT_IO, "cannot read '%s': %s", name, strerror(errno));
    in->file = from_stdin ? "standard input" : name;
    int rc = read_all(in, file, name);
    if (!from_stdin) fclose(file);
    return rc ? rc : split_lines(in, name, which);
}

int encoder_stdin(encoder_input *in, const char **text)
{
    if (strcmp(*text, "-")) return EXIT_OK;
    int rc = read_all(in, stdin, "standard input");
    if (rc) return rc;
    size_t length = strlen(in->bytes);
    while (length > 0 && strchr("\r\n", in->bytes[length - 1])) length--;
    in->bytes[length] = 0;
    *text = in->bytes + ph_utf8_mark(in->bytes, length);
    return EXIT_OK;
}

int encoder_texts(encoder_input *in, int count, const char *const *words,
                  const char *file, encoder_lines which)
{
    if (count && file)
        return cli_fail(EXIT_USAGE, "a text and --file exclude each other");
    if (count == 1 && !strcmp(words[0], "-")) count = 0;
    if (!count) return read_lines(in, file ? file : "-", which);
    in->texts = calloc((size_t)count, sizeof *in->texts);
    if (!in->texts) return cli_fail(EXIT_MEMORY, "out of memory");
    memcpy(in->texts, words, (size_t)count * sizeof *words);
    in->count = count;
    return EXIT_OK;
}

int encoder_fail(const encoder_input *in, ph_status status)
{
    const text_origin from = {in->texts, in->count, in->file, in->bytes};
    return fail_with_text(&from, in->m, in->ctx, status);
}

/* One by one: pixels of many pictures would take much memory. */
ph_status encoder_pictures(const encoder_input *in, float *vectors, float *scores)
{
    const ph_config *c = ph_model_config(in->m);
    size_t side = (size_t)c->image_size, dim = (size_t)ph_model_vector_dim(in->m);
    float *pixels = malloc((size_t)c->channels * side * side * sizeof *pixels);
    ph_status status = pixels ? PH_OK : PH_OUT_OF_MEMORY;
    for (size_t i = 0; i < (size_t)in->count && status == PH_OK; i++) {
        status = ph_model_open_picture(in->m, in->texts[i], pixels);
        if (status == PH_OK)
            status = ph_model_pictures(in->m, pixels, 1,
                                       vectors ? vectors + i * dim : NULL,
                                       scores ? scores + i * (size_t)c->classes : NULL);
    }
    free(pixels);
    return status;
}

void encoder_say_truncated(const encoder_input *in, int truncated)
{
    const ph_config *c = ph_model_config(in->m);
    if (truncated)
        cli_warn("%d of %d texts %s more than %d tokens and %s truncated", truncated,
                 in->count, truncated > 1 ? "have" : "has",
                 c->pool_len ? c->pool_len : c->max_len, truncated > 1 ? "were" : "was");
}

int encoder_pairs(encoder_input *in, const char *expected, const char ***pairs)
{
    *pairs = calloc((size_t)in->count + 1, sizeof **pairs);
    if (!*pairs) return cli_fail(EXIT_MEMORY, "out of memory");
    for (int i = 0; i < in->count; i++) {
        char *tab = strchr((char *)in->texts[i], '\t');
        if (!tab)
            return cli_fail(EXIT_BAD_INPUT, "text %d has no tab, expected %s", i + 1,
                            expected);
        *tab = 0, (*pairs)[i] = tab + 1;
    }
    return EXIT_OK;
}

int encoder_labels(encoder_input *in, const char ***labels)
{
    int rc = encoder_pairs(in, "label TAB text", labels);
    for (int i = 0; !rc && i < in->count; i++) {
        const char *label = in->texts[i];
        in->texts[i] = (*labels)[i], (*labels)[i] = label;
    }
    return rc;
}

static int output_path(char *path, size_t size, const char *directory)
{
    int length = snprintf(path, size, "%s/model.safetensors", directory);
    if (length < 0 || (size_t)length >= size)
        return cli_fail(EXIT_USAGE, "the path of --out is too long");
    if (access(path, F_OK) == 0)
        return cli_fail(EXIT_IO, "'%s' exists, expected a new directory", path);
    if (errno == ENOTDIR)
        return cli_fail(EXIT_IO, "cannot make the directory '%s': %s", directory,
                        strerror(errno));
    return EXIT_OK;
}

int encoder_check_out(const char *directory)
{
    char path[4096];
    return directory ? output_path(path, sizeof path, directory) : EXIT_OK;
}

int encoder_write(const encoder_input *in, const char *directory)
{
    char path[4096];
    int rc = output_path(path, sizeof path, directory);
    if (rc) return rc;
    int is_new = access(directory, F_OK) != 0;
    if (train_make_directory(directory))
        return cli_fail(EXIT_IO, "cannot make the directory '%s': %s", directory,
                        strerror(errno));
    ph_status status = ph_model_write(in->m, path);
    if (status == PH_OK) return EXIT_OK;
    if (is_new) rmdir(directory); /* it was made for this file */
    return cli_fail_status(status, in->ctx);
}
