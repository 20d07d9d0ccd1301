/*
 * cli.h - what every command of the program shares: the tables, the parser, the errors.
 *
 * A command is a constant ph_command: its name, its texts, its options, its function.
 * The parser, --help, the man page, completions, the JSON list and the suggestions for
 * misspelt words all read the same tables, so they cannot disagree.
 *
 * How a command is written (commands/cmd_heads.c is an example):
 *
 *     typedef struct my_options { int causal; int64_t offset; int has_offset;
 *                                 const char *out; ph_machine machine; } my_options;
 *     #define AT(field) offsetof(my_options, field)
 *     static const ph_option table[] = {
 *         {.name = "causal", .kind = PH_OPT_FLAG, .at = AT(causal), .help = "..."},
 *         {.name = "offset", .kind = PH_OPT_INT, .metavar = "N", .low = -9, .high = 9,
 *          .at = AT(offset), .given = AT(has_offset), .help = "..."},
 *         {.name = "output", .letter = 'o', .kind = PH_OPT_TEXT, .metavar = "OUT",
 *          .at = AT(out), .help = "..."},
 *         PH_MACHINE_OPTIONS(my_options, machine),
 *         {.name = NULL}};
 *     static int run(const void *options, int count, const char *const *words) { ... }
 *     const ph_command command_my = {.name = "my", ..., .options = table,
 *                                    .size = sizeof(my_options), .run = run};
 *
 * The parser zeroes the struct, applies the defaults, then the environment, then the
 * command line; a field therefore always holds a legal value when run() is called.
 */
#ifndef PH_CLI_H
#define PH_CLI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "polyhead.h"

#if defined(__GNUC__)
#define CLI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define CLI_PRINTF(text, first)
#endif

/* ---- exit codes ---- */

enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,      /* anything without a better number */
    EXIT_USAGE = 2,       /* the command line is wrong */
    EXIT_BAD_INPUT = 3,   /* an input file is malformed, or its tensors do not fit */
    EXIT_UNSUPPORTED = 4, /* a variant, device or option this build does not have */
    EXIT_MEMORY = 5,      /* out of memory */
    EXIT_DIFFERS = 6,     /* a verification failed: numbers differ */
    EXIT_IO = 7           /* the system could not read or write */
};

/* ---- options ---- */

typedef enum ph_opt_kind {
    PH_OPT_FLAG,   /* no value;                     field: int, set to 1 */
    PH_OPT_INT,    /* whole number in [low, high];  field: int64_t */
    PH_OPT_REAL,   /* finite number in [least, most]; field: double */
    PH_OPT_TEXT,   /* anything, empty if may_be_empty; field: const char * */
    PH_OPT_CHOICE, /* one of choices;               field: int, its index */
    PH_OPT_SIZES,  /* numbers in [low, high] with commas between; field: ph_sizes */
    PH_OPT_TEXTS   /* like PH_OPT_TEXT, again and again; field: ph_text_list */
} ph_opt_kind;

enum { PH_SIZES_MAX = 8, PH_TEXTS_MAX = 16 };

typedef struct ph_text_list {
    int count; /* how often the option was given */
    const char *value[PH_TEXTS_MAX];
} ph_text_list;

typedef struct ph_sizes {
    int count;                   /* 0: the option was not given */
    int64_t value[PH_SIZES_MAX];
} ph_sizes;

typedef struct ph_option {
    const char *name;    /* long name without dashes: "k-heads" (k_heads works too) */
    char letter;         /* short form, or 0 */
    ph_opt_kind kind;
    const char *metavar; /* what stands for the value in help: "N"; NULL: from the kind */
    const char *help;    /* one sentence, lower case, no full stop */
    const char *group;   /* heading printed before this option, or NULL */
    size_t at;           /* offsetof the field that receives the value */
    size_t given;        /* offsetof an int that becomes 1 when given; 0: not wanted, so
                            such a field cannot stand first in its struct */
    int64_t low, high;   /* PH_OPT_INT, PH_OPT_SIZES: limits, both allowed */
    double least, most;  /* PH_OPT_REAL: limits, both allowed */
    int fewest, longest; /* PH_OPT_SIZES: how many numbers */
    const char *const *choices; /* PH_OPT_CHOICE: ended by NULL */
    const char *fallback;       /* default, written as a user would; NULL: zero */
    const char *env;            /* environment variable that replaces the default */
    int may_be_empty;           /* 1: of PH_OPT_TEXT, an empty value is one too */
    int hidden;                 /* 1: works, but is not listed */
} ph_option;

typedef struct ph_command {
    const char *name;
    const char *summary;         /* one line, lower case, no full stop */
    const char *usage;           /* after the name: "IN.safetensors -o OUT [options]" */
    const char *about;           /* paragraphs, separated by empty lines; or NULL */
    const char *const *examples; /* "polyhead run in.safetensors -o out.safetensors",
                                    each followed by what it does; ended by NULL */
    const ph_option *options;    /* ended by a row whose name is NULL; NULL: none */
    size_t size;                 /* bytes of the struct that the options fill */
    const char *word;            /* what the other arguments are: "NAME"; NULL: none */
    int fewest_words, most_words;
    const char *const *(*known_words)(void); /* for their completion, or NULL */
    int (*run)(const void *options, int count, const char *const *words);
    int hidden;                  /* 1: works, but is not listed */
    int first_word_ends;         /* 1: options end there (the program itself) */
} ph_command;

/* ---- where to run: two options that several commands share ---- */

typedef struct ph_machine {
    int64_t threads; /* 0: all cores this process may use */
    int isa;         /* index into cli_isa_names */
    int device;      /* index into cli_device_names: 0 cpu, 1 cuda; of run and bench */
} ph_machine;

extern const char *const cli_isa_names[];    /* "best", "ref", ... ended by NULL */
extern const char *const cli_device_names[]; /* in the order of ph_device */
extern const char *const cli_dtype_names[];  /* in the order of ph_dtype */

#define PH_OPTION_THREADS(struct_name, field) \
    {.name = "threads", .letter = 't', .kind = PH_OPT_INT, .metavar = "N", .low = 0, \
     .high = 1024, .at = offsetof(struct_name, field.threads), \
     .env = "POLYHEAD_THREADS", .group = "Where to run", \
     .help = "number of threads; 0: one per core this process may use"}
#define PH_OPTION_ISA(struct_name, field) \
    {.name = "isa", .kind = PH_OPT_CHOICE, .metavar = "NAME", .choices = cli_isa_names, \
     .at = offsetof(struct_name, field.isa), .fallback = "best", \
     .help = "use no instruction set above this one (POLYHEAD_ISA lowers it further)"}
#define PH_MACHINE_OPTIONS(struct_name, field) \
    PH_OPTION_THREADS(struct_name, field), PH_OPTION_ISA(struct_name, field)

/* ph_open with these options; checked as in ph_options. On failure says why on stderr
   and returns the exit code. */
int cli_open(ph_ctx **ctx, const ph_machine *machine, int checked);

/* ---- parsing ---- */

enum { CLI_WORDS_MAX = 64, CLI_ERROR_SIZE = 512 };

typedef struct ph_parsed {
    int help;                         /* --help or -h was met: print it, run nothing */
    int version;                      /* --version was met */
    int color;                        /* index into auto, always, never */
    int no_color;                     /* --no-color was met */
    int taken;                        /* how many arguments were read */
    int word_count;
    const char *words[CLI_WORDS_MAX]; /* arguments that are no options */
    char error[CLI_ERROR_SIZE];       /* one sentence when parsing failed */
} ph_parsed;

/* Reads args (without the program's and the command's name) into the struct at `options`
   (command->size bytes) and `parsed`. Returns EXIT_OK or EXIT_USAGE with parsed->error.
   Prints nothing. */
int cli_parse(const ph_command *command, int count, const char *const *args,
              void *options, ph_parsed *parsed);

/* How an option's value is written: "N", "f32|f16|bf16", "B,T,D,H"; NULL for a flag. The
   text is made in `buffer` where the table holds none. */
const char *cli_metavar(const ph_option *option, char *buffer, size_t size);

/* Strict numbers: no blanks, no locale, no overflow, nothing behind. Return 1 if good. */
int cli_read_int(const char *text, int64_t *value);
int cli_read_real(const char *text, double *value); /* finite only */

/* A user's word as it may be printed: shortened, control characters replaced. */
const char *cli_quote(const char *word, char *buffer, size_t size);
enum { CLI_QUOTE_SIZE = 72 };

/* The length of the line that text begins with, which \n, \r\n or \r ends; *next: with
   that end, as far as text has it. And how many lines there are in a text, at most. */
size_t cli_line(const char *text, size_t size, size_t *next);
size_t cli_most_lines(const char *text);

/* ---- saying things ---- */

/* Prints "polyhead: sentence" on stderr and returns code. */
int cli_fail(int code, const char *format, ...) CLI_PRINTF(2, 3);

/* An option that was given although nothing of this call reads it. */
typedef struct cli_idle {
    int idle;
    const char *sentence; /* "--l0 needs --gates" */
} cli_idle;

/* Refuses the first that is idle; the list ends with a sentence of NULL. */
int cli_refuse_idle(const cli_idle *options);

/* cli_fail with the sentence of the ctx and the exit code that belongs to the status. */
int cli_fail_status(ph_status status, const ph_ctx *ctx);
int cli_exit_code(ph_status status);

/* The exit code of a call of the library; where it failed, with cli_fail and its
   sentence, or what the status means where that is "". */
int cli_result(ph_status status, const char *sentence);

/* Prints "polyhead: warning: sentence" on stderr. */
void cli_warn(const char *format, ...) CLI_PRINTF(1, 2);

/* The entry of the NULL-ended list that a misspelt word probably meant, or NULL. */
const char *cli_nearest(const char *word, const char *const *list);

/* A command whose result is no output, such as a training or a server, does not fail
   because its parent closed standard output. */
void cli_output_may_be_closed(void);

/* ---- signals while a model is written (stop.c) ---- */

/* From here on SIGINT, SIGTERM and SIGHUP stop what a ctx of cli_open writes; a second
   one ends the program at once. */
void cli_stop_on_signals(void);
int cli_stopped(void *unused); /* ph_options.stopped */

/* Where one came, ends the program as it would have. */
void cli_end_if_stopped(void);

/* ---- the table of commands (main.c) and what is written from it ---- */

extern const ph_command *const cli_commands[]; /* ended by NULL */
extern const ph_command command_train, command_generate, command_compare, command_plot;
extern const ph_command command_look, command_heads, command_run, command_explain,
    command_bench, command_doctor, command_variants, command_tokens, command_export,
    command_embed, command_fill, command_classify, command_convert,
    command_importance, command_prune,
    command_help, command_man, command_completions;
extern const ph_option cli_global_options[];   /* --help, --version, --color ... */

const ph_command *cli_find(const char *name);  /* NULL: unknown */
void cli_help_short(FILE *out);                /* no argument at all */
void cli_help_program(FILE *out);
void cli_help_command(FILE *out, const ph_command *command);

#endif
