/*
 * checkpoint.c - checkpoints: the whole state of a training, so that a resumed one ends
 * with the same bits.
 *
 *     directory/step-00001000.safetensors    the model, both moments of the optimiser,
 *                                             polyhead.train and polyhead.step
 *
 * Writes are atomic (temporary file, fsync, rename, fsync of the directory) and files
 * carry a hash. Older ones are removed only after that. A directory belongs to one
 * training; the newest undamaged checkpoint counts.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/io.h"
#include "model/fields.h"
#include "model/store.h"
#include "model/train.h"

enum { NAME_SIZE = 32, PATH_SIZE = 4096, TRAIN_TEXT = 8192 };

#define AT(member) offsetof(ph_train, member)

static const char *const schedule_names[] = {"cosine", "classic", NULL};

static const ph_field fields[] = {
    {"recipe", PH_FIELD_TEXT, AT(recipe), 0, PH_RECIPE_TEXT, NULL},
    {"file", PH_FIELD_PATH, AT(file), 0, PH_PATH_TEXT, NULL},
    {"tuned", PH_FIELD_BOOL, AT(tuned), 0, 0, NULL},
    {"from", PH_FIELD_PATH, AT(from), 0, PH_PATH_TEXT, NULL},
    {"length", PH_FIELD_INT, AT(length), 0, 1 << 24, NULL},
    {"steps", PH_FIELD_INT, AT(steps), 0, PH_STEPS_MOST, NULL},
    {"batch", PH_FIELD_INT, AT(batch), 1, 65536, NULL},
    {"accumulate", PH_FIELD_INT, AT(accumulate), 1, 4096, NULL},
    {"lr", PH_FIELD_REAL, AT(lr), 0, 0, NULL},
    {"warmup", PH_FIELD_INT, AT(warmup), 0, PH_STEPS_MOST, NULL},
    {"schedule", PH_FIELD_NAME, AT(schedule), 0, 0, schedule_names},
    {"weight_decay", PH_FIELD_REAL, AT(weight_decay), 0, 0, NULL},
    {"max_grad_norm", PH_FIELD_REAL, AT(max_grad_norm), 0, 0, NULL},
    {"smoothing", PH_FIELD_REAL, AT(smoothing), 0, 0, NULL},
    {"balance", PH_FIELD_REAL, AT(balance), 0, 0, NULL},
    {"seed", PH_FIELD_WIDE, AT(seed), 0, 0, NULL},
    {"data_hash", PH_FIELD_WIDE, AT(data_hash), 0, 0, NULL},
    {"checkpoint_every", PH_FIELD_INT, AT(pace.checkpoint_every), 0, PH_STEPS_MOST, NULL},
    {"keep", PH_FIELD_INT, AT(pace.keep), 0, PH_STEPS_MOST, NULL},
    {"log_every", PH_FIELD_INT, AT(pace.log_every), 0, PH_STEPS_MOST, NULL},
    {"test_texts", PH_FIELD_INT, AT(pace.test_texts), 0, 1 << 30, NULL}};

_Static_assert((int)PH_PATH_TEXT <= (int)PH_FIELD_PATH_MOST, "paths must fit fields.c");

enum { FIELDS = sizeof fields / sizeof fields[0] };

int ph_train_print(const ph_train *train, char *text, size_t size)
{
    return ph_fields_print(fields, FIELDS, train, text, size);
}

/* ---- names ------------------------------------------------------------------------- */

static void name_of(int step, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "step-%08d.safetensors", step);
}

/* The step in a checkpoint's name; -1: it is none. */
static int step_of(const char *name)
{
    char again[NAME_SIZE];
    int step;
    if (sscanf(name, "step-%8d", &step) != 1 || step < 0) return -1;
    name_of(step, again);
    return strcmp(name, again) ? -1 : step;
}

static int join_path(char *path, const char *directory, const char *name)
{
    int n = snprintf(path, PATH_SIZE, "%s/%s", directory, name);
    return n > 0 && n < PATH_SIZE;
}

static int newest_first(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return *y - *x;
}

/* Steps of all checkpoints in the directory, newest first; to be freed. */
static ph_status list(ph_ctx *ctx, const char *directory, int **steps, int *count)
{
    DIR *d = opendir(directory);
    void *found = NULL;
    size_t capacity = 0;
    ph_status status = PH_OK;
    *count = 0, *steps = NULL;
    if (!d)
        return ph_fail(ctx, PH_IO_ERROR, "%s: %s", directory,
                       ph_io_system_error(errno).text);
    for (struct dirent *e; status == PH_OK && (e = readdir(d));) {
        int step = step_of(e->d_name);
        if (step < 0) continue;
        status = ph_io_grow(NULL, &found, &capacity, (size_t)*count + 1, sizeof **steps);
        if (status == PH_OK) ((int *)found)[(*count)++] = step;
    }
    closedir(d);
    if (*count) qsort(found, (size_t)*count, sizeof **steps, newest_first);
    *steps = found;
    return status == PH_OK ? PH_OK
                           : ph_fail(ctx, status, "no memory for a list of checkpoints");
}

/* ---- writing ----------------------------------------------------------------------- */

/* Failures do not matter: an old checkpoint more is harmless. */
static void remove_old(ph_ctx *ctx, const char *directory, int keep)
{
    int *steps, count;
    char name[NAME_SIZE], path[PATH_SIZE];
    if (list(ctx, directory, &steps, &count) != PH_OK) return;
    for (int i = keep; i < count; i++) {
        name_of(steps[i], name);
        if (join_path(path, directory, name)) unlink(path);
    }
    free(steps);
}

static ph_status save(ph_trainer *t, const char *directory)
{
    char name[NAME_SIZE], path[PATH_SIZE], train[TRAIN_TEXT], step[16];
    if (ph_train_print(&t->train, train, sizeof train) >= (int)sizeof train)
        return ph_fail(t->ctx, PH_BAD_ARGUMENT,
                       "the options of the training are too long");
    snprintf(step, sizeof step, "%d", t->step);
    ph_tensor tensors[2] = {
        {.name = "optimiser.first_moment", .data = t->first_moment},
        {.name = "optimiser.second_moment", .data = t->second_moment}};
    for (int i = 0; i < 2; i++) {
        tensors[i].rank = 1, tensors[i].shape[0] = t->model->floats;
        tensors[i].bytes = t->model->floats * sizeof(float);
    }
    ph_pair pairs[2] = {{"polyhead.train", train}, {"polyhead.step", step}};
    ph_store_extra more = {tensors, 2, pairs, 2};
    name_of(t->step, name);
    if (!join_path(path, directory, name))
        return ph_fail(t->ctx, PH_BAD_ARGUMENT, "the path of the directory is too long");
    PH_TRY(ph_store_write(t->model, path, &more));
    if (t->train.pace.keep > 0) remove_old(t->ctx, directory, t->train.pace.keep);
    return PH_OK;
}

ph_status ph_trainer_save(ph_trainer *t, const char *directory)
{
    if (!t) return PH_BAD_ARGUMENT;
    if (!directory) return ph_ctx_null(t->ctx, "directory");
    return PH_WITHIN(t->ctx, save(t, directory));
}

/* ---- resuming ---------------------------------------------------------------------- */

/* A whole number of up to eight digits and nothing else. */
static ph_status read_step(ph_ctx *ctx, const char *text, int *step)
{
    size_t digits = strspn(text, "0123456789");
    if (!digits || digits > 8 || text[digits])
        return ph_fail(ctx, PH_BAD_FILE, "polyhead.step is %s, expected 0 to %d",
                       ph_io_quote(text, strlen(text)).text, PH_STEPS_MOST);
    *step = atoi(text);
    return PH_OK;
}

ph_status ph_checkpoint_options(ph_ctx *ctx, const ph_file *file, ph_train *train,
                                int *step)
{
    const char *text = ph_store_pair(file, "polyhead.train");
    const char *number = ph_store_pair(file, "polyhead.step");
    char copy[TRAIN_TEXT];
    *train = (ph_train){0};
    if (!text || !number)
        return ph_fail(ctx, PH_BAD_FILE, "this is a model, not a checkpoint");
    if (strlen(text) >= sizeof copy)
        return ph_fail(ctx, PH_BAD_FILE, "polyhead.train is too long");
    PH_TRY(read_step(ctx, number, step));
    strcpy(copy, text);
    return ph_fields_read(ctx, "polyhead.train", fields, FIELDS, train, copy,
                          strlen(copy));
}

static ph_status resume_from(ph_trainer **out, ph_ctx *ctx, const ph_file *file,
                             const char *path)
{
    ph_train train;
    ph_model *model;
    int step = 0;
    PH_TRY(ph_checkpoint_options(ctx, file, &train, &step));
    PH_TRY(ph_store_model(&model, ctx, file, path));
    train.config = model->config;
    PH_TRY(ph_trainer_begin(out, ctx, &train, model));
    ph_trainer *t = *out;
    size_t floats = t->model->floats;
    ph_status status =
        ph_store_floats(ctx, file, "optimiser.first_moment", t->first_moment, floats);
    if (status == PH_OK)
        status = ph_store_floats(ctx, file, "optimiser.second_moment", t->second_moment,
                                 floats);
    t->step = step;
    if (status == PH_OK) return PH_OK;
    ph_trainer_free(t);
    *out = NULL;
    return status;
}

static void note_damage(char *note, size_t size, const char *sentence)
{
    size_t used = size ? strlen(note) : 0;
    if (used + 1 < size)
        snprintf(note + used, size - used, "%s%s", used ? "; " : "", sentence);
}

static ph_status resume(ph_trainer **out, ph_ctx *ctx, const char *directory, char *note,
                        size_t note_size)
{
    int *steps, count;
    char name[NAME_SIZE], path[PATH_SIZE];
    if (note_size) note[0] = 0;
    PH_TRY(list(ctx, directory, &steps, &count));
    ph_status status = ph_fail(ctx, PH_IO_ERROR, "%s holds no checkpoint", directory);
    for (int i = 0; i < count; i++) {
        ph_file *file;
        name_of(steps[i], name);
        if (!join_path(path, directory, name)) break;
        status = ph_store_open(&file, ctx, path);
        if (status == PH_BAD_FILE) { /* damaged: fall back to the one before it */
            note_damage(note, note_size, ph_error(ctx));
            continue;
        }
        if (status == PH_OK) {
            status = resume_from(out, ctx, file, path);
            ph_file_free(file);
        }
        break;
    }
    free(steps);
    return status;
}

ph_status ph_trainer_resume(ph_trainer **out, ph_ctx *ctx, const char *directory,
                            char *note, size_t note_size)
{
    if (out) *out = NULL;
    if (!out || !ctx || !directory) return ph_ctx_null(ctx, "out or directory");
    return PH_WITHIN(ctx, resume(out, ctx, directory, note, note_size));
}
