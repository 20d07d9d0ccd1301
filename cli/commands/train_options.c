/*
 * train_options.c - options that override a recipe, and the directory, signals and clock
 * of a run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands/cmd_train.h"

const char *const train_position_names[] = {"sinusoidal", "learned", "rope", "alibi",
                                            "none",       "t5",      "sinusoidal_halves",
                                            NULL};
const char *const train_norm_names[] = {"layer", "rms", NULL};
const char *const train_norm_place_names[] = {"pre", "post", "sandwich", NULL};
const char *const train_activation_names[] = {"gelu", "relu", "swiglu", "gelu_erf",
                                              "geglu", "silu", NULL};
const char *const train_schedule_names[] = {"cosine", "classic", NULL};

/* Where each option goes, in the order of PH_TRAIN_OPTIONS. */
typedef enum kind { INTEGER, REAL, NAME, SEED, TEXT } kind;

#define FROM(member) offsetof(train_change, member)
#define TO(member)   offsetof(ph_train, member)

static const struct {
    kind kind;
    size_t from, to;
} rows[TRAIN_OPTIONS] = {{INTEGER, FROM(steps), TO(steps)},
                         {INTEGER, FROM(batch), TO(batch)},
                         {INTEGER, FROM(accumulate), TO(accumulate)},
                         {REAL, FROM(lr), TO(lr)},
                         {INTEGER, FROM(warmup), TO(warmup)},
                         {NAME, FROM(schedule), TO(schedule)},
                         {REAL, FROM(weight_decay), TO(weight_decay)},
                         {REAL, FROM(max_grad_norm), TO(max_grad_norm)},
                         {REAL, FROM(smoothing), TO(smoothing)},
                         {SEED, FROM(seed), TO(seed)},
                         {INTEGER, FROM(layers), TO(config.layers)},
                         {INTEGER, FROM(model_dim), TO(config.model_dim)},
                         {INTEGER, FROM(heads), TO(config.heads)},
                         {INTEGER, FROM(kv_heads), TO(config.kv_heads)},
                         {INTEGER, FROM(ff_dim), TO(config.ff_dim)},
                         {INTEGER, FROM(length), TO(config.max_len)},
                         {REAL, FROM(dropout), TO(config.dropout)},
                         {NAME, FROM(positions), TO(config.positions)},
                         {NAME, FROM(norm), TO(config.norm)},
                         {NAME, FROM(norm_place), TO(config.norm_place)},
                         {NAME, FROM(activation), TO(config.activation)},
                         {TEXT, FROM(variant), TO(config.variant)},
                         {TEXT, FROM(cross), TO(config.cross)}};

static void apply_row(kind what, const char *from, char *to)
{
    if (what == INTEGER) *(int *)(void *)to = (int)*(const int64_t *)(const void *)from;
    if (what == SEED)
        *(uint64_t *)(void *)to = (uint64_t) * (const int64_t *)(const void *)from;
    if (what == REAL) *(float *)(void *)to = (float)*(const double *)(const void *)from;
    if (what == NAME) *(int *)(void *)to = *(const int *)(const void *)from;
    if (what == TEXT)
        snprintf(to, PH_VARIANT_TEXT, "%s", *(const char *const *)(const void *)from);
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
            rows[i].to != TO(config.dropout) && rows[i].to != TO(config.max_len))
            return cli_fail(EXIT_USAGE, "--from takes the model as it is: of the options "
                                        "of a model only --length and --dropout go "
                                        "with it");
    return EXIT_OK;
}

int train_apply(const train_change *change, ph_train *train)
{
    int rc = check_text("variant", change->variant);
    if (!rc) rc = check_text("cross", change->cross);
    if (!rc && train->tuned) rc = check_tuned(change);
    for (int i = 0; i < TRAIN_OPTIONS && !rc; i++)
        if (change->given[i])
            apply_row(rows[i].kind, (const char *)change + rows[i].from,
                      (char *)train + target(train, rows[i].to));
    return rc;
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
