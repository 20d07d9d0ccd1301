/*
 * generate_lines.c - `polyhead generate` with many prompts: lines of a file or of stdin.
 *
 * Lines are read as slots of the decoder get free, and answers are printed in their
 * order, each once it and all before it are done. So a program that writes one line and
 * waits for its answer gets it, and a file may have any length: no more than WINDOW lines
 * and a few times HELD_BYTES are held. Nothing of this changes an answer.
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
#include "io/utf8.h"

/* Lines held at a time: answers that wait for a long one before them. */
enum { WINDOW = 8192, HELD_BYTES = 1 << 26, READ = 1 << 16 };

/* A line, and what became of it. */
typedef struct prompt_line {
    char *text;
    size_t length;
    uint64_t number; /* from 1 */
    int blank;       /* 1: white space, or without a token */
    int refused;     /* 1: with a sentence on stderr */
    int done;        /* 1: its answer may be printed */
    answer_buffer out;
} prompt_line;

typedef struct line_reader {
    int file;
    char *bytes; /* that were read; those before `at` have been cut into lines */
    size_t at, used, capacity;
    int begun, ended; /* begun: what may be a byte order mark is behind */
    uint64_t lines;
} line_reader;

typedef struct line_answers {
    const answer_job *job;
    line_reader in;
    prompt_line *lines;  /* (WINDOW) line n at n % WINDOW ... */
    uint64_t first, end; /* ... for n in [first, end), counted from 0 */
    size_t held;         /* bytes of them */
    uint64_t *numbers;   /* (WINDOW) of prompts that the library has, as above */
    uint64_t given;      /* prompts in this stream */
    int rc, failed;      /* of answers; of reading: then all is over */
    unknown_words unknown;
} line_answers;

/* ---- lines ---- */

/* Whether something can be read without waiting. */
static int has_more(const line_reader *r)
{
    struct pollfd wait = {.fd = r->file, .events = POLLIN};
    return poll(&wait, 1, 0) > 0;
}

static int read_more(line_reader *r)
{
    r->used -= r->at;
    if (r->at) memmove(r->bytes, r->bytes + r->at, r->used);
    r->at = 0;
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

/* Steps over a byte order mark; 0: what was read may be the first bytes of one. */
static int skip_mark(line_reader *r)
{
    size_t left = r->used - r->at;
    if (r->begun) return 1;
    if (left < 3 && !r->ended && !memcmp(r->bytes, "\xef\xbb", left < 2 ? left : 2))
        return 0;
    r->begun = 1, r->at = ph_utf8_mark(r->bytes, left);
    return 1;
}

/* Cuts the first line off; 0: it is not complete. A \r at the end of what was read may be
   the first half of \r\n. */
static int take_line(line_reader *r, prompt_line *line)
{
    if (r->used == r->at || !skip_mark(r)) return 0;
    const char *from = r->bytes + r->at;
    size_t left = r->used - r->at, next, length = cli_line(from, left, &next);
    int half = length + 1 == left && from[length] == '\r';
    if (!left || ((length == left || half) && !r->ended)) return 0;
    *line = (prompt_line){.length = length, .number = ++r->lines};
    line->text = malloc(length + 1);
    if (line->text) memcpy(line->text, from, length);
    if (line->text) line->text[length] = 0;
    r->at += next;
    return 1;
}

/* The next line; NULL: there is none, yet unless `wait`, or the window is full. */
static prompt_line *next_line(line_answers *a, int wait)
{
    line_reader *r = &a->in;
    prompt_line *line = &a->lines[a->end % WINDOW];
    while (!a->failed && a->end - a->first < WINDOW && a->held < HELD_BYTES) {
        if (take_line(r, line)) {
            if (!line->text) a->failed = EXIT_MEMORY;
            if (line->text) a->end++, a->held += line->length;
            return line->text ? line : NULL;
        }
        if (r->ended || (!wait && !has_more(r))) return NULL;
        a->failed = read_more(r);
    }
    return NULL;
}

/* ---- answers ---- */

static void refuse(line_answers *a, prompt_line *line, int code, const char *sentence)
{
    line->refused = 1;
    if (!a->rc) a->rc = code;
    cli_fail(code, "line %llu: %s", (unsigned long long)line->number, sentence);
}

/* Lines that cannot be answered: with a byte 0, and blank ones, whose answer is empty. */
static void sort_out(line_answers *a, prompt_line *line)
{
    int tokens = 0;
    if (strlen(line->text) < line->length)
        refuse(a, line, EXIT_BAD_INPUT, "a byte is 0, expected text");
    else if (ph_model_split(a->job->m, line->text, NULL, 0, &tokens) == PH_OK)
        line->blank = tokens == 0 || !line->text[strspn(line->text, " \t")];
    if (!line->refused) unknown_words_add(&a->unknown, a->job->m, line->text);
    line->done = line->blank || line->refused;
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

static void print_line(const answer_job *job, const prompt_line *line)
{
    int is_text = strlen(line->text) == line->length;
    const char *out = line->out.length ? line->out.text : "";
    if (line->blank && !job->json)
        putchar('\n');
    else
        answer_print(job, is_text ? line->text : NULL, line->refused ? NULL : out);
}

static void free_first(line_answers *a)
{
    prompt_line *line = &a->lines[a->first++ % WINDOW];
    a->held -= line->length;
    free(line->text);
    free(line->out.text);
    *line = (prompt_line){0};
}

/* The answers that are done, up to the first that is not. */
static void print_done(line_answers *a)
{
    uint64_t before = a->first;
    while (a->first < a->end && a->lines[a->first % WINDOW].done) {
        print_line(a->job, &a->lines[a->first % WINDOW]);
        free_first(a);
    }
    if (a->first > before) fflush(stdout);
}

/* ---- a decoder ---- */

static prompt_line *line_of(const line_answers *a, int prompt)
{
    return &a->lines[a->numbers[prompt % WINDOW] % WINDOW];
}

/* ph_prompt_stream.next */
static int next_prompt(void *user, ph_prompt *prompt, int wait)
{
    line_answers *a = user;
    prompt_line *line;
    while ((line = next_line(a, wait)) != NULL) {
        sort_out(a, line);
        if (!line->done) {
            a->numbers[a->given++ % WINDOW] = line->number - 1;
            *prompt = (ph_prompt){.text = line->text, .number = line->number - 1};
            return 1;
        }
        print_done(a);
    }
    return a->failed || a->in.ended ? -1 : 0;
}

/* Another piece of the answer to one of the lines. */
static void add_piece(void *user, int prompt, const char *piece)
{
    answer_append(&line_of(user, prompt)->out, piece);
}

/* ph_prompt_stream.done */
static void end_prompt(void *user, int text, const ph_prompt *prompt, ph_status status)
{
    line_answers *a = user;
    prompt_line *line = line_of(a, text);
    (void)prompt;
    if (status != PH_OK) refuse(a, line, cli_exit_code(status), ph_error(a->job->ctx));
    if (line->out.lost) refuse(a, line, EXIT_MEMORY, "out of memory");
    line->done = 1;
    print_done(a);
}

static void add_alone(void *user, int prompt, const char *piece)
{
    (void)prompt;
    answer_append(user, piece);
}

/* Each that is not done alone, so that those that are refused cost only their own
   answers. */
static void answer_rest(line_answers *a)
{
    for (uint64_t n = a->first; n < a->end; n++) {
        prompt_line *line = &a->lines[n % WINDOW];
        if (line->done) continue;
        ph_generation how = a->job->how;
        ph_prompt prompt = {.text = line->text, .number = line->number - 1};
        line->out.length = 0;
        how.each = add_alone, how.user = &line->out;
        ph_status status = ph_generate_batch(a->job->m, &prompt, 1, &how);
        if (status != PH_OK)
            refuse(a, line, cli_exit_code(status), ph_error(a->job->ctx));
        else if (line->out.lost)
            refuse(a, line, EXIT_MEMORY, "out of memory");
        line->done = 1;
    }
    print_done(a);
}

static void generate(line_answers *a)
{
    const ph_prompt_stream stream = {.next = next_prompt, .done = end_prompt, .user = a};
    ph_generation how = a->job->how;
    ph_status status;
    how.each = add_piece, how.user = a;
    do {
        a->given = 0;
        status = ph_generate_stream(a->job->m, &stream, &how);
        answer_rest(a);
    } while (status != PH_OK && !a->failed && !(a->in.ended && a->in.at == a->in.used));
}

/* ---- an encoder ---- */

/* Its answers have many lines; an empty one ends each. */
static void print_links(line_answers *a, prompt_line *line)
{
    const answer_job *job = a->job;
    ph_status status = PH_OK;
    int asked = !line->done;
    if (asked) status = answer_links(job, line->text);
    if (status != PH_OK) refuse(a, line, cli_exit_code(status), ph_error(job->ctx));
    if (!asked || status != PH_OK) answer_no_links(job);
    if (!job->json) printf("\n");
    fflush(stdout);
}

static void link_lines(line_answers *a)
{
    prompt_line *line;
    while ((line = next_line(a, 1)) != NULL) {
        sort_out(a, line);
        print_links(a, line);
        free_first(a);
    }
}

/* ---- all of it ---- */

static int answer_all(line_answers *a, const char *name)
{
    a->lines = calloc(WINDOW, sizeof *a->lines);
    a->numbers = calloc(WINDOW, sizeof *a->numbers);
    if (!a->lines || !a->numbers)
        a->failed = EXIT_MEMORY;
    else
        (answer_is_encoder(a->job) ? link_lines : generate)(a);
    int number = errno;
    unknown_words_warn(&a->unknown);
    if (a->failed == EXIT_IO)
        cli_fail(EXIT_IO, "cannot read %s: %s", name, strerror(number));
    if (a->failed == EXIT_MEMORY) cli_fail(EXIT_MEMORY, "out of memory");
    return a->failed ? a->failed : a->rc;
}

int answer_lines(const answer_job *job, const char *path)
{
    line_answers a = {.job = job};
    double start = train_now();
    a.in.file = path ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (a.in.file < 0)
        return cli_fail(EXIT_IO, "cannot open '%s': %s", path, strerror(errno));
    int rc = answer_all(&a, path ? path : "stdin");
    answer_time(job, start);
    while (a.lines && a.first < a.end) free_first(&a);
    free(a.lines);
    free(a.numbers);
    free(a.in.bytes);
    if (path) close(a.in.file);
    return rc;
}
