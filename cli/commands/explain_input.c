/*
 * explain_input.c - the matrices of the worked example: those of an article, or the
 * reader's own.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "commands/cmd_explain.h"
#include "io/number.h"

static const char *const names[EXPLAIN_MATRICES] = {"X", "W_Q", "W_K", "W_V", "W_O"};

/* X, W_Q and W_O: as the article that made the example popular has them. W_K and W_V are
   our own, since it has none: head 1 compares by the first two features and passes on the
   last two, head 2 the other way round. */
static const explain_input article = {
    .tokens = 2,
    .dim = 4,
    .heads = 2,
    .matrix = {{1, 0.5f, -1, 2, -0.5f, 1, 0.3f, -2},
               {0.1f, 0.4f, -0.3f, 0.2f, -0.2f, 0.3f, 1.1f, 0.6f, 1.0f, -0.5f, -0.4f,
                0.8f, 0.5f, 0.2f, 0.7f, -0.1f},
               {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
               {0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0},
               {0.5f, -0.2f, 1.1f, 0.3f, 0.1f, 0.8f, -0.4f, 0.6f, -0.3f, 0.7f, 0.2f, 1.0f,
                0.9f, -0.5f, 0.3f, -0.8f}},
    .article = 1};

/* ---- reading ---- */

typedef struct x_reader {
    const char *path;
    int line;  /* counted from 1 */
    int which; /* the matrix that rows go to */
    int rows[EXPLAIN_MATRICES], cols[EXPLAIN_MATRICES];
    explain_input *in;
} x_reader;

static int refuse(const x_reader *r, const char *what)
{
    return cli_fail(EXIT_BAD_INPUT, "%s, line %d: %s", r->path, r->line, what);
}

static int begin_matrix(x_reader *r, const char *word)
{
    for (int m = 0; m < EXPLAIN_MATRICES; m++) {
        if (strcmp(word, names[m]) != 0) continue;
        if (r->rows[m]) return refuse(r, "this matrix stands here twice");
        r->which = m;
        return EXIT_OK;
    }
    return refuse(r, "expected numbers, or one of the names X, W_Q, W_K, W_V, W_O");
}

/* One row of numbers, separated by blanks or commas. */
static int read_row(x_reader *r, char *text)
{
    int cols = 0, *rows = &r->rows[r->which];
    float *row = r->in->matrix[r->which];
    if (*rows == EXPLAIN_MOST)
        return refuse(r, "more than 8 rows: the example must stay readable");
    row += *rows * (*rows ? r->cols[r->which] : 0);
    for (char *word = strtok(text, " \t,"); word; word = strtok(NULL, " \t,")) {
        double value = 0;
        if (cols == EXPLAIN_MOST)
            return refuse(r, "more than 8 columns: the example must stay readable");
        if (ph_number_parse(word, strlen(word), &value) || !(fabs(value) <= 1e6))
            return refuse(r, "expected numbers from -1e6 to 1e6");
        row[cols++] = (float)value;
    }
    if (*rows && cols != r->cols[r->which])
        return refuse(r, "as many numbers as in the row before were expected");
    r->cols[r->which] = cols;
    ++*rows;
    return EXIT_OK;
}

static int read_lines(x_reader *r, FILE *file)
{
    char text[1024];
    int rc = EXIT_OK;
    while (rc == EXIT_OK && fgets(text, sizeof text, file)) {
        r->line++;
        if (!*text) return refuse(r, "a byte is 0, expected text");
        text[strcspn(text, "#\r\n")] = 0;
        char *at = text + strspn(text, " \t");
        if (!*at) continue;
        if (isalpha((unsigned char)*at)) {
            at[strcspn(at, " \t:=")] = 0;
            rc = begin_matrix(r, at);
        } else {
            rc = read_row(r, at);
        }
    }
    return rc;
}

/* ---- what is not given ---- */

/* One decimal from -0.9 to 0.9, the same for everybody. */
static void make_up(explain_input *in, int m)
{
    unsigned state = 40503u * (unsigned)(m + 1);
    for (int n = 0; n < in->dim * in->dim; n++) {
        state = state * 1664525u + 1013904223u;
        in->matrix[m][n] = (float)((int)(state >> 24) % 19 - 9) / 10;
    }
    in->made_up[m] = 1;
}

static int complete(x_reader *r, int heads)
{
    explain_input *in = r->in;
    in->tokens = r->rows[EXPLAIN_X];
    in->dim = r->cols[EXPLAIN_X];
    if (!in->tokens) return cli_fail(EXIT_BAD_INPUT, "%s holds no X", r->path);
    in->heads = heads ? heads : in->dim % 2 ? 1 : 2;
    if (in->dim % in->heads)
        return cli_fail(EXIT_USAGE,
                        "option --heads: %d columns of X are no multiple of %d", in->dim,
                        in->heads);
    for (int m = EXPLAIN_WQ; m < EXPLAIN_MATRICES; m++) {
        if (!r->rows[m])
            make_up(in, m);
        else if (r->rows[m] != in->dim || r->cols[m] != in->dim)
            return cli_fail(EXIT_BAD_INPUT,
                            "%s: %s is %d x %d, expected %d x %d as X has %d columns",
                            r->path, names[m], r->rows[m], r->cols[m], in->dim, in->dim,
                            in->dim);
    }
    return EXIT_OK;
}

int explain_read(explain_input *in, const char *path, int heads)
{
    if (!path) {
        *in = article;
        return EXIT_OK;
    }
    *in = (explain_input){0};
    x_reader r = {.path = path, .in = in};
    FILE *file = fopen(path, "r");
    if (!file)
        return cli_fail(EXIT_IO, "cannot read '%s': %s", path, strerror(errno));
    int rc = read_lines(&r, file);
    fclose(file);
    return rc == EXIT_OK ? complete(&r, heads) : rc;
}
