/*
 * look_ranks.c - how frequent tokens are: from a file, or counted in the texts that are
 * looked at.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_look.h"
#include "io/utf8.h"

/* ---- from the texts ---- */

typedef struct token_count {
    int token, count;
} token_count;

static int by_count(const void *left, const void *right)
{
    const token_count *a = left, *b = right;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    return (a->token > b->token) - (a->token < b->token);
}

static ph_status count_tokens(look_source *source, token_count *tokens, int most)
{
    ph_word *words = malloc((size_t)most * sizeof *words);
    ph_status status = words ? PH_OK : PH_OUT_OF_MEMORY;
    for (int n = 0; n < source->text_count && status == PH_OK; n++) {
        int count = 0;
        status = ph_model_split(source->model, source->texts[n], words, most, &count);
        for (int i = 0; i < count && i < most && status == PH_OK; i++)
            tokens[words[i].token].count++;
    }
    free(words);
    return status;
}

/* A token that does not occur has no rank. */
ph_status look_ranks_count(look_source *source)
{
    const ph_config *config = ph_model_config(source->model);
    size_t vocab = (size_t)config->vocab;
    token_count *tokens = calloc(vocab, sizeof *tokens);
    source->ranks = malloc(vocab * sizeof *source->ranks);
    ph_status status = tokens && source->ranks ? PH_OK : PH_OUT_OF_MEMORY;
    for (size_t v = 0; v < vocab && status == PH_OK; v++) tokens[v].token = (int)v;
    if (status == PH_OK) status = count_tokens(source, tokens, config->max_len);
    if (status == PH_OK) qsort(tokens, vocab, sizeof *tokens, by_count);
    for (size_t v = 0; v < vocab && status == PH_OK; v++)
        source->ranks[tokens[v].token] = tokens[v].count ? (int32_t)v : -1;
    free(tokens);
    return status;
}

/* ---- from a file ---- */

static int by_text(const void *left, const void *right)
{
    return strcmp(((const look_known *)left)->text, ((const look_known *)right)->text);
}

static int by_known_count(const void *left, const void *right)
{
    const look_known *a = left, *b = right;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    return strcmp(a->text, b->text);
}

/* A number of digits and nothing else; -1: it is none, or too large. */
static long long count_of(const char *text)
{
    if (!*text || text[strspn(text, "0123456789")]) return -1;
    errno = 0;
    long long count = strtoll(text, NULL, 10);
    return errno ? -1 : count;
}

/* One line: a token, and where `counts` a tab and its count; without, earlier is more. */
static int read_line(look_known *known, char *line, int number, int counts,
                     const char *path)
{
    char *tab = strchr(line, '\t');
    *known = (look_known){line, LLONG_MAX - number, -1};
    if (!tab != !counts)
        return cli_fail(EXIT_BAD_INPUT,
                        "%s, line %d: %s, expected all lines to have one or none", path,
                        number, tab ? "there is a count" : "there is no count");
    if (!tab) return EXIT_OK;
    *tab = 0;
    known->count = count_of(tab + 1);
    if (tab == line)
        return cli_fail(EXIT_BAD_INPUT, "%s, line %d: before the tab there is no token",
                        path, number);
    if (known->count < 0)
        return cli_fail(EXIT_BAD_INPUT, "%s, line %d: behind the tab there is no count",
                        path, number);
    return EXIT_OK;
}

/* Lines that are not empty, ranked by count, sorted by text. */
static int read_lines(look_frequencies *out, const char *path)
{
    int rc = EXIT_OK, number = 0, counts = -1; /* as the first line has it */
    size_t size = strlen(out->bytes), next;
    char *end = out->bytes + size;
    char *first = out->bytes + ph_utf8_mark(out->bytes, size);
    for (char *at = first; at < end && rc == EXIT_OK; at += next) {
        at[cli_line(at, (size_t)(end - at), &next)] = 0;
        number++;
        if (*at && counts < 0) counts = strchr(at, '\t') != NULL;
        if (*at) rc = read_line(&out->list[out->count++], at, number, counts, path);
    }
    qsort(out->list, out->count, sizeof *out->list, by_known_count);
    for (size_t n = 0; n < out->count; n++) out->list[n].rank = (int32_t)n;
    qsort(out->list, out->count, sizeof *out->list, by_text);
    for (size_t n = 1; n < out->count && rc == EXIT_OK; n++)
        if (!strcmp(out->list[n - 1].text, out->list[n].text))
            rc = cli_fail(EXIT_BAD_INPUT, "%s: the token \"%.60s\" is there twice", path,
                          out->list[n].text);
    return rc;
}

/* All of it, closed by NUL; NULL: it cannot be read, or memory is out. */
static char *read_all(FILE *file, size_t *size)
{
    char *bytes = NULL;
    size_t capacity = 0, used = 0, n = 1;
    while (n > 0) {
        capacity = 2 * capacity + 4096;
        char *more = realloc(bytes, capacity + 1);
        if (!more) break;
        bytes = more;
        n = fread(bytes + used, 1, capacity - used, file);
        used += n;
    }
    *size = used;
    if (bytes && n == 0 && !ferror(file)) {
        bytes[used] = 0;
        return bytes;
    }
    free(bytes);
    return NULL;
}

int look_frequencies_read(look_frequencies *out, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t size = 0;
    if (!file) return cli_fail(EXIT_IO, "cannot read '%s': %s", path, strerror(errno));
    out->bytes = read_all(file, &size);
    fclose(file);
    if (!out->bytes) return cli_fail(EXIT_IO, "%s: cannot be read", path);
    if (strlen(out->bytes) != size)
        return cli_fail(EXIT_BAD_INPUT, "%s: holds a NUL byte", path);
    out->list = calloc(cli_most_lines(out->bytes), sizeof *out->list);
    if (!out->list) return cli_fail(EXIT_MEMORY, "out of memory");
    int rc = read_lines(out, path);
    if (rc == EXIT_OK && out->count == 0)
        rc = cli_fail(EXIT_BAD_INPUT, "%s: holds no token", path);
    return rc;
}

/* ---- ranks of a text ---- */

/* By the model's token where there is a model: words of a text may be cut or joined. */
static int32_t rank_of(const look_source *source, const ph_axis *axis, const int32_t *ids,
                       int i)
{
    if (source->ranks) return source->ranks[ids[i]];
    const look_known wanted = {.text = ids ? ph_model_token(source->model, ids[i])
                                           : axis->tokens[i]};
    const look_known *found = bsearch(&wanted, source->frequencies.list,
                                      source->frequencies.count, sizeof wanted, by_text);
    return found ? found->rank : -1;
}

int32_t *look_ranks(const look_source *source, const ph_report *report,
                    const int32_t *ids, int axis)
{
    if (axis >= report->axis_count || (!source->ranks && !source->frequencies.count))
        return NULL;
    const ph_axis *words = &report->axes[axis];
    int32_t *ranks = malloc((size_t)words->count * sizeof *ranks);
    for (int i = 0; ranks && i < words->count; i++)
        ranks[i] = rank_of(source, words, ids, i);
    return ranks;
}
