/*
 * generate_lines.c - `polyhead generate` with many prompts: lines of a file or of stdin.
 *
 * Lines that are there are decoded together, up to GROUP of them; a program that writes
 * one line and waits for its answer gets it. Nothing of this changes an answer.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/answers.h"
#include "commands/cmd_train.h"
#include "commands/unknown_words.h"
#include "framework/cli.h"

enum { GROUP = 64, READ = 1 << 16 };

/* A line, and what became of it. */
typedef struct prompt_line {
    char *text;
    size_t length;
    uint64_t number; /* from 1 */
    int blank;       /* 1: white space, or without a token */
    int refused;     /* 1: with a sentence on stderr */
    answer_buffer out;
} prompt_line;

typedef struct line_reader {
    int file;
    char *bytes; /* that were read and belong to no line yet */
    size_t used, capacity;
    int ended;
    uint64_t lines;
} line_reader;

/* ---- lines ---- */

/* Whether something can be read without waiting. */
static int has_more(const line_reader *r)
{
    struct pollfd wait = {.fd = r->file, .events = POLLIN};
    return poll(&wait, 1, 0) > 0;
}

static int read_more(line_reader *r)
{
    if (r->capacity - r->used < READ) {
        char *more = realloc(r->bytes, 2 * r->capacity + READ);
        if (!more) return EXIT_MEMORY;
        r->bytes = more, r->capacity = 2 * r->capacity + READ;
    }
    ssize_t count = read(r->file, r->bytes + r->used, READ);
    if (count < 0 && errno != EINTR) return EXIT_IO;
    if (count == 0) r->ended = 1;
    if (count > 0) r->used += (size_t)count;
    return EXIT_OK;
}

/* Cuts the first line off; 0: it is not complete. A \r at the end of what was read may be
   the first half of \r\n. */
static int take_line(line_reader *r, prompt_line *line)
{
    size_t next, length = cli_line(r->bytes, r->used, &next);
    int half = length + 1 == r->used && r->bytes[length] == '\r';
    if (!r->used || ((length == r->used || half) && !r->ended)) return 0;
    *line = (prompt_line){.length = length, .number = ++r->lines};
    line->text = malloc(length + 1);
    if (line->text) memcpy(line->text, r->bytes, length);
    if (line->text) line->text[length] = 0;
    r->used -= next;
    memmove(r->bytes, r->bytes + next, r->used);
    return 1;
}

/* The lines that are there, at least one unless the file ends. */
static int take_group(line_reader *r, prompt_line *group, int *count)
{
    *count = 0;
    while (*count < GROUP) {
        if (take_line(r, &group[*count])) {
            if (!group[(*count)++].text) return EXIT_MEMORY;
            continue;
        }
        if (r->ended || (*count && !has_more(r))) break;
        int rc = read_more(r);
        if (rc) return rc;
    }
    return EXIT_OK;
}

/* ---- answers ---- */

static void refuse(prompt_line *line, int *rc, int code, const char *sentence)
{
    line->refused = 1;
    if (!*rc) *rc = code;
    cli_fail(code, "line %llu: %s", (unsigned long long)line->number, sentence);
}

/* Lines that cannot be answered: with a byte 0, and blank ones, whose answer is empty. */
static void sort_out(const answer_job *job, prompt_line *group, int count, int *rc)
{
    for (int i = 0; i < count; i++) {
        int tokens = 0;
        if (strlen(group[i].text) < group[i].length)
            refuse(&group[i], rc, EXIT_BAD_INPUT, "a byte is 0, expected text");
        else if (ph_model_split(job->m, group[i].text, NULL, 0, &tokens) == PH_OK)
            group[i].blank =
                tokens == 0 || !group[i].text[strspn(group[i].text, " \t")];
    }
}

static void warn_unknown(const answer_job *job, const prompt_line *group, int count)
{
    const char *texts[GROUP];
    int some = 0;
    for (int i = 0; i < count; i++)
        if (!group[i].refused) texts[some++] = group[i].text;
    warn_unknown_words(job->m, texts, some);
}

void answer_append(answer_buffer *to, const char *piece)
{
    size_t length = strlen(piece), wanted = to->length + length + 1;
    if (wanted > to->capacity) {
        char *more = realloc(to->text, 2 * wanted);
        to->lost |= !more;
        if (!more) return;
        to->text = more, to->capacity = 2 * wanted;
    }
    memcpy(to->text + to->length, piece, length + 1);
    to->length += length;
}

/* Another piece of the answer to one of the lines. */
static void add_piece(void *user, int index, const char *piece)
{
    answer_append(&((prompt_line **)user)[index]->out, piece);
}

/* Each alone, so that those that are refused cost only their own answers. */
static void answer_each(const answer_job *job, ph_generation *how, ph_prompt *prompts,
                        prompt_line **lines, int count, int *rc)
{
    for (int i = 0; i < count; i++) {
        lines[i]->out.length = 0, how->user = &lines[i];
        ph_status status = ph_generate_batch(job->m, &prompts[i], 1, how);
        if (status != PH_OK)
            refuse(lines[i], rc, cli_exit_code(status), ph_error(job->ctx));
    }
}

static void generate(const answer_job *job, prompt_line *group, int count, int *rc)
{
    ph_prompt prompts[GROUP];
    prompt_line *lines[GROUP];
    ph_generation how = job->how;
    int asked = 0;
    for (int i = 0; i < count; i++) {
        if (group[i].blank || group[i].refused) continue;
        lines[asked] = &group[i];
        prompts[asked++] =
            (ph_prompt){.text = group[i].text, .number = group[i].number - 1};
    }
    how.each = add_piece, how.user = lines;
    if (ph_generate_batch(job->m, prompts, asked, &how) != PH_OK)
        answer_each(job, &how, prompts, lines, asked, rc);
    for (int i = 0; i < asked; i++)
        if (lines[i]->out.lost) refuse(lines[i], rc, EXIT_MEMORY, "out of memory");
}

static void print_line(const answer_job *job, const prompt_line *line)
{
    int is_text = strlen(line->text) == line->length;
    const char *out = line->out.length ? line->out.text : "";
    if (line->blank && !job->json)
        putchar('\n');
    else
        answer_print(job, is_text ? line->text : NULL, line->refused ? NULL : out);
}

/* The answers of an encoder have many lines; an empty one ends each. */
static void print_links(const answer_job *job, prompt_line *line, int *rc)
{
    ph_status status = PH_OK;
    int asked = !line->blank && !line->refused;
    if (asked) status = answer_links(job->m, line->text, job->json);
    if (status != PH_OK) refuse(line, rc, cli_exit_code(status), ph_error(job->ctx));
    if (!asked || status != PH_OK) answer_no_links(job->m, job->json);
    if (!job->json) printf("\n");
}

static int answer_group(const answer_job *job, prompt_line *group, int count)
{
    int rc = EXIT_OK;
    double start = train_now();
    sort_out(job, group, count, &rc);
    warn_unknown(job, group, count);
    if (!answer_is_encoder(job)) generate(job, group, count, &rc);
    if (job->time) fprintf(stderr, "%.6f seconds\n", train_now() - start);
    for (int i = 0; i < count; i++) {
        if (answer_is_encoder(job))
            print_links(job, &group[i], &rc);
        else
            print_line(job, &group[i]);
        free(group[i].text);
        free(group[i].out.text);
    }
    fflush(stdout);
    return rc;
}

static int answer_all(const answer_job *job, line_reader *r)
{
    prompt_line group[GROUP];
    int rc = EXIT_OK, count;
    do {
        int last = take_group(r, group, &count);
        if (last == EXIT_OK && count) last = answer_group(job, group, count);
        if (rc == EXIT_OK) rc = last;
        if (last != EXIT_OK && last != EXIT_BAD_INPUT) return rc;
    } while (count);
    return rc;
}

int answer_lines(const answer_job *job, const char *path)
{
    line_reader r = {.file = path ? open(path, O_RDONLY) : STDIN_FILENO};
    if (r.file < 0)
        return cli_fail(EXIT_IO, "cannot open '%s': %s", path, strerror(errno));
    int rc = answer_all(job, &r);
    if (rc == EXIT_IO)
        cli_fail(rc, "cannot read %s: %s", path ? path : "stdin", strerror(errno));
    if (rc == EXIT_MEMORY) cli_fail(rc, "out of memory");
    free(r.bytes);
    if (path) close(r.file);
    return rc;
}
