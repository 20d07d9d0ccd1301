/*
 * train_options.c - options that override a recipe, and the directory, signals and clock
 * of a run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands/cmd_train.h"
#include "io/number.h"

const char *const train_position_names[] = {"sinusoidal", "learned", "rope", "alibi",
                                            "none",       "t5",      "sinusoidal_halves",
                                            "learned_t5", NULL};
const char *const train_norm_names[] = {"layer", "rms", NULL};
const char *const train_norm_place_names[] = {"pre", "post", "sandwich", "output",
                                              NULL};
const char *const train_activation_names[] = {"gelu",  "relu", "swiglu",    "gelu_erf",
                                              "geglu", "silu", "geglu_erf", NULL};
const char *const train_schedule_names[] = {"cosine", "classic", NULL};

/* Where each option goes, in the order of PH_TRAIN_OPTIONS. */
typedef enum kind { INTEGER, REAL, NAME, SEED, TEXT, FLAG } kind;

#define FROM(member) offsetof(train_change, member)
#define TO(member)   offsetof(ph_train, member)

typedef struct train_row {
    kind kind;
    const char *name; /* of the option */
    size_t from, to;
    const char *const *names; /* NAME */
    int flag;                 /* FLAG: what it sets */
} train_row;

#define CONFIG(kind, name, member) {kind, name, FROM(member), TO(config.member), NULL, 0}
#define TRAIN(kind, name, member)  {kind, name, FROM(member), TO(member), NULL, 0}
#define CHOICE(name, member, names)                                                      \
    {NAME, name, FROM(member), TO(config.member), names, 0}
#define SWITCH(name, member, value)                                                      \
    {FLAG, name, FROM(member), TO(config.member), NULL, value}

static const train_row rows[TRAIN_OPTIONS] = {
    TRAIN(INTEGER, "steps", steps),
    TRAIN(INTEGER, "batch", batch),
    TRAIN(INTEGER, "accumulate", accumulate),
    TRAIN(REAL, "lr", lr),
    TRAIN(INTEGER, "warmup", warmup),
    {NAME, "schedule", FROM(schedule), TO(schedule), train_schedule_names, 0},
    TRAIN(REAL, "weight-decay", weight_decay),
    TRAIN(REAL, "max-grad-norm", max_grad_norm),
    TRAIN(REAL, "smoothing", smoothing),
    TRAIN(SEED, "seed", seed),
    CONFIG(INTEGER, "layers", layers),
    CONFIG(INTEGER, "model-dim", model_dim),
    CONFIG(INTEGER, "heads", heads),
    CONFIG(INTEGER, "kv-heads", kv_heads),
    CONFIG(INTEGER, "ff-dim", ff_dim),
    {INTEGER, "length", FROM(length), TO(config.max_len), NULL, 0},
    CONFIG(REAL, "dropout", dropout),
    CHOICE("positions", positions, train_position_names),
    CHOICE("norm", norm, train_norm_names),
    CHOICE("norm-place", norm_place, train_norm_place_names),
    CHOICE("activation", activation, train_activation_names),
    CONFIG(TEXT, "variant", variant),
    CONFIG(TEXT, "cross", cross),
    TRAIN(REAL, "balance", balance),
    SWITCH("no-bias", no_bias, PH_NO_BIAS),
    SWITCH("depth-scaled", depth_scaled, 1),
    SWITCH("untied", untied, 1),
    CONFIG(INTEGER, "buckets", buckets),
    CONFIG(INTEGER, "bucket-distance", bucket_distance),
    {FLAG, "multi-label", FROM(multi_label), TO(config.problem_type), NULL,
     PH_MULTI_LABEL}};

static void apply_row(const train_row *row, const char *from, char *to)
{
    switch (row->kind) {
    case INTEGER: *(int *)(void *)to = (int)*(const int64_t *)(const void *)from; break;
    case SEED:
        *(uint64_t *)(void *)to = (uint64_t) * (const int64_t *)(const void *)from;
        break;
    case REAL: *(float *)(void *)to = (float)*(const double *)(const void *)from; break;
    case NAME: *(int *)(void *)to = *(const int *)(const void *)from; break;
    case FLAG: *(int *)(void *)to = row->flag; break;
    case TEXT:
        snprintf(to, PH_VARIANT_TEXT, "%s", *(const char *const *)(const void *)from);
        break;
    }
}

/* A list of variants that does not fit is refused: cut off, it would be another list. */
static int check_text(const char *option, const char *text)
{
    if (!text || strlen(text) < PH_VARIANT_TEXT) return EXIT_OK;
    return cli_fail(EXIT_USAGE, "--%s has %zu bytes, expected at most %d", option,
                    strlen(text), PH_VARIANT_TEXT - 1);
}

/* Where an option goes: --length is that of texts where the model has its own. */
static size_t target(const ph_train *train, size_t to)
{
    return train->tuned && to == TO(config.max_len) ? TO(length) : to;
}

/* A model that training goes on from stays as it is, but for its dropout. */
static int check_tuned(const train_change *change)
{
    for (int i = 0; i < TRAIN_OPTIONS; i++)
        if (change->given[i] && rows[i].to >= TO(config) &&
            rows[i].to < TO(config) + sizeof(ph_config) &&
            rows[i].to != TO(config.dropout) && rows[i].to != TO(config.max_len) &&
            rows[i].to != TO(config.problem_type))
            return cli_fail(EXIT_USAGE, "--from takes the model as it is: of the options "
                                        "of a model only --length, --dropout and "
                                        "--multi-label go with it");
    return EXIT_OK;
}

int train_apply(const train_change *change, ph_train *train)
{
    int rc = check_text("variant", change->variant);
    if (!rc) rc = check_text("cross", change->cross);
    if (!rc && train->tuned) rc = check_tuned(change);
    for (int i = 0; i < TRAIN_OPTIONS && !rc; i++)
        if (change->given[i])
            apply_row(&rows[i], (const char *)change + rows[i].from,
                      (char *)train + target(train, rows[i].to));
    return rc;
}

/* ---- one option from text ---- */

/* Whole numbers, "no" for a flag, names of choices. */
static int parse_row(const train_row *row, const char *value, train_change *to)
{
    double number = 0;
    char *field = (char *)to + row->from;
    int numeric = row->kind == INTEGER || row->kind == REAL || row->kind == SEED;
    int bad = numeric && ph_number_parse(value, strlen(value), &number) != 0;
    if (row->kind == REAL) *(double *)(void *)field = number;
    if (row->kind == INTEGER || row->kind == SEED) {
        bad |= number != (double)(int64_t)number || fabs(number) > 1 << 24;
        if (!bad) *(int64_t *)(void *)field = (int64_t)number;
    }
    if (row->kind == TEXT) *(const char **)(void *)field = value;
    if (row->kind == FLAG) bad = strcmp(value, "yes") != 0 && strcmp(value, "no") != 0;
    if (row->kind != NAME) return bad;
    for (int i = 0; row->names[i]; i++)
        if (!strcmp(row->names[i], value)) return *(int *)(void *)field = i, 0;
    return 1;
}

int train_set(ph_train *train, const char *name, const char *value)
{
    train_change change = {0};
    for (int i = 0; i < TRAIN_OPTIONS; i++) {
        const train_row *row = &rows[i];
        if (strcmp(row->name, name) != 0) continue;
        if (parse_row(row, value, &change))
            return cli_fail(EXIT_USAGE, "--%s does not take '%s'%s", name, value,
                            row->kind == FLAG ? ", expected yes or no" : "");
        if (row->kind == FLAG && !strcmp(value, "no")) return EXIT_OK;
        change.given[i] = 1;
        return train_apply(&change, train);
    }
    return cli_fail(EXIT_USAGE, "--%s is no option of training or of the model", name);
}

int train_defaults(const char *recipe, ph_train *train)
{
    enum { MOST = 16 };
    const char *names[MOST + 1];
    char list[256] = "", quote[CLI_QUOTE_SIZE];
    int count = 0;
    size_t used = 0;
    if (ph_train_defaults(train, recipe) == PH_OK) return EXIT_OK;
    for (; count < MOST && ph_recipe_name(count); count++) {
        names[count] = ph_recipe_name(count);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 count ? ", " : "", names[count]);
    }
    names[count] = NULL;
    const char *near = cli_nearest(recipe, names);
    cli_quote(recipe, quote, sizeof quote);
    if (near)
        return cli_fail(EXIT_USAGE, "no recipe %s: did you mean %s? There are: %s", quote,
                        near, list);
    return cli_fail(EXIT_USAGE, "no recipe %s; there are: %s", quote, list);
}

int train_set_file(const char *path, ph_train *train)
{
    if (strlen(path) >= sizeof train->file)
        return cli_fail(EXIT_USAGE,
                        "the path of the file has %zu bytes, expected at most %zu",
                        strlen(path), sizeof train->file - 1);
    strcpy(train->file, path);
    return EXIT_OK;
}

/* ---- the run ---- */

double train_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

long train_peak_kib(void)
{
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? use.ru_maxrss : 0;
}

int train_make_directory(const char *path)
{
    char part[4096];
    size_t length = strlen(path);
    struct stat info;
    if (length >= sizeof part) return errno = ENAMETOOLONG, -1;
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i]) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) && errno != EEXIST) return -1;
    }
    if (stat(path, &info)) return -1;
    return S_ISDIR(info.st_mode) ? 0 : (errno = ENOTDIR, -1);
}

/* A lock on the directory itself leaves no file behind, and the system drops it with the
   process. Where a file system has no such locks, training runs without. */
int train_lock_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return EXIT_OK;
    close(fd);
    return cli_fail(EXIT_USAGE,
                    "another training is running in %s: wait for it, or take another -o",
                    path);
}

volatile sig_atomic_t train_signal;

static void caught(int number)
{
    static const char text[] =
        "\npolyhead: stopping after this step; once more: at once\n";
    if (train_signal) _exit(128 + number);
    train_signal = number;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
}

void train_catch_signals(void)
{
    struct sigaction action = {.sa_handler = caught, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL); /* nohup stays nohup */
}
