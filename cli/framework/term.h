/*
 * term.h - what the program may do to a terminal: colour, width, a progress line.
 *
 * Colour is decided per stream: a result piped into a file has none even when the
 * messages go to a terminal. Progress is a single line on stderr that is wiped before
 * anything else is printed; where stderr is no terminal there is none at all.
 */
#ifndef PH_CLI_TERM_H
#define PH_CLI_TERM_H

#include <stdio.h>

typedef enum term_style {
    TERM_BOLD,   /* headings */
    TERM_DIM,    /* what may be skipped */
    TERM_GOOD,   /* green */
    TERM_BAD,    /* red */
    TERM_WARN,   /* yellow */
    TERM_NAME,   /* cyan: names of things */
    TERM_HEAD_A, /* the colours of head 1 and head 2 in the worked example */
    TERM_HEAD_B,
    TERM_PLAIN   /* back to normal */
} term_style;

/* choice: 0 auto, 1 always, 2 never */
void term_setup(int choice);

/* 1: escape codes may be written to this stream. */
int term_color(FILE *out);

/* The code that switches a style on, or "" where there is no colour. */
const char *term_on(FILE *out, term_style style);

/* Columns of the stream, 80 where it is no terminal; at most `most`. */
int term_width(FILE *out, int most);

/* Replaces the progress line. Share in [0, 1]. Nothing unless stderr is a terminal. */
void term_progress(double share, const char *what);
void term_progress_end(void);

/* While something takes longer than 2 s, a line on stderr says what, and for how long it
   has been going on; wiped at the end, and before any message. Nothing unless stderr is a
   terminal. */
void term_wait(const char *what);
void term_wait_end(void);

/* Prints text wrapped at `width`, further lines indented by `indent`; `column` is where
   the first line stands already. Newlines in the text stay. Ends with a newline. */
void term_wrap(FILE *out, const char *text, int column, int indent, int width);

/* Prints text and blanks up to `columns`; Chinese characters take two. */
void term_pad(FILE *out, const char *text, int columns);

#endif
