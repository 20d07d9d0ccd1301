/*
 * term.c - colour, width and progress; the rules stand in term.h.
 */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "framework/term.h"
#include "polyhead_picture.h"

static int color_choice; /* 0 auto, 1 always, 2 never */
static int progress_shown;

static const char *const codes[] = {
    [TERM_BOLD] = "\033[1m",    [TERM_DIM] = "\033[2m",     [TERM_GOOD] = "\033[32m",
    [TERM_BAD] = "\033[31m",    [TERM_WARN] = "\033[33m",   [TERM_NAME] = "\033[36m",
    [TERM_HEAD_A] = "\033[34m", [TERM_HEAD_B] = "\033[35m", [TERM_PLAIN] = "\033[0m"};

void term_setup(int choice)
{
    color_choice = choice;
}

int term_color(FILE *out)
{
    if (color_choice) return color_choice == 1;
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    if ((none && *none) || !term || !*term || !strcmp(term, "dumb")) return 0;
    return isatty(fileno(out));
}

const char *term_on(FILE *out, term_style style)
{
    return term_color(out) ? codes[style] : "";
}

int term_width(FILE *out, int most)
{
    struct winsize size;
    int width = 80;
    if (isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col)
        width = size.ws_col;
    return width < most ? width : most;
}

/* What stands beside the bar matters more: the bar is as long as the line allows. */
void term_progress(double share, const char *what)
{
    enum { LEAST = 4, MOST = 20, AROUND = 10 }; /* AROUND: brackets, share, blanks */
    if (!isatty(STDERR_FILENO)) return;
    const char *term = getenv("TERM");
    if (!term || !strcmp(term, "dumb")) return;
    int width = term_width(stderr, 100), bar = width - AROUND - (int)strlen(what);
    if (bar > MOST) bar = MOST;
    if (bar < LEAST) bar = 0;
    int full = (int)(share * bar + 0.5), columns = width - AROUND - bar + (bar ? 0 : 3);
    fflush(stdout); /* so that lines already printed stand above the bar */
    fprintf(stderr, "\r\033[K%s", bar ? "[" : "");
    for (int i = 0; i < bar; i++) fputc(i < full ? '#' : '.', stderr);
    fprintf(stderr, "%s%3d %% %.*s", bar ? "] " : "", (int)(share * 100),
            columns > 0 ? columns : 0, what);
    fflush(stderr);
    progress_shown = 1;
}

void term_progress_end(void)
{
    if (!progress_shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress_shown = 0;
}

/* From U+3000 on: Chinese, two columns wide. */
static int is_wide(char lead)
{
    return (unsigned char)lead >= 0xe3 && (unsigned char)lead <= 0xef;
}

/* Whether text begins with a sign that must not begin a line. */
static int is_closing(const char *text)
{
    static const char *const signs[] = {"，", "。", "、", "：", "；", "）", "？", "！"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (!strncmp(text, signs[i], 3)) return 1;
    return 0;
}

/* Bytes up to the next place where a line may end: a blank, or any Chinese character
   that no closing sign follows. */
static size_t piece_length(const char *text)
{
    size_t n = 0;
    if (is_wide(text[0]))
        do n++;
        while (((unsigned char)text[n] & 0xc0) == 0x80);
    else
        while (text[n] && text[n] != ' ' && text[n] != '\n' && !is_wide(text[n])) n++;
    while (is_closing(text + n)) n += 3;
    return n;
}

static int columns_of(const char *text, size_t length)
{
    int columns = 0;
    for (size_t i = 0; i < length; i++)
        columns += ((unsigned char)text[i] & 0xc0) == 0x80 ? 0 : 1 + is_wide(text[i]);
    return columns;
}

void term_wrap(FILE *out, const char *text, int column, int indent, int width)
{
    int gap = 0, fresh = 1; /* nothing stands on this line but blanks */
    while (*text) {
        size_t length = piece_length(text);
        int columns = columns_of(text, length);
        if (!fresh && column + gap + columns > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            fresh = 1;
        }
        fprintf(out, "%s%.*s", gap && !fresh ? " " : "", (int)length, text);
        column += columns + (gap && !fresh);
        fresh = 0;
        text += length;
        gap = *text == ' ';
        if (*text == '\n') {
            fprintf(out, "\n%*s", text[1] && text[1] != '\n' ? indent : 0, "");
            column = indent;
            fresh = 1;
        }
        if (gap || fresh) text++;
    }
    fputc('\n', out);
}

void term_pad(FILE *out, const char *text, int columns)
{
    int blanks = columns - ph_text_columns(text);
    fprintf(out, "%s%*s", text, blanks > 0 ? blanks : 0, "");
}
