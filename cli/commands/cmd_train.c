/*
 * cmd_train.c - `polyhead train RECIPE`: trains a model, writes checkpoints, log, model.
 *
 * Everything is in one directory:
 *
 *     step-NNNNNNNN.safetensors   the last checkpoints; --resume takes the newest
 *     model.safetensors           the model at the end
 *     log.jsonl                   what `polyhead plot` draws
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "commands/cmd_train.h"
#include "commands/plan_heads.h"
#include "commands/train_log.h"
#include "framework/term.h"
#include "polyhead_picture.h"

typedef struct train_options {
    const char *out, *pairs, *from, *plan;
    train_change change;
    int resume, json, quiet;
    int64_t checkpoint_every, keep, test, log_every, draw;
    struct {
        int checkpoint_every, keep, test, log_every;
    } given;
    ph_machine machine;
} train_options;

#define AT(field) offsetof(train_options, field)

static const ph_option table[] = {
    {.name = "output",
     .letter = 'o',
     .kind = PH_OPT_TEXT,
     .metavar = "DIR",
     .at = AT(out),
     .help = "where checkpoints, log and model go (default: runs/RECIPE)"},
    {.name = "pairs",
     .kind = PH_OPT_TEXT,
     .metavar = "FILE.tsv",
     .at = AT(pairs),
     .help = "learn from your own lines, text TAB text; no RECIPE then"},
    {.name = "from",
     .kind = PH_OPT_TEXT,
     .metavar = "MODEL",
     .at = AT(from),
     .help = "go on from this model instead of a new one: a Hugging Face folder, a GGUF "
             "file, a llama2.c file or a checkpoint of this program. Defaults then: --lr "
             "5e-5, --steps 200, --batch 8, --length 128 or what the model takes, "
             "--dropout 0"},
    PH_OPTION_PLAN(train_options, plan,
                   "with --from: heads off or gated as a plan of the live page says; "
                   "tests then tell what that does"),
    {.name = "resume",
     .kind = PH_OPT_FLAG,
     .at = AT(resume),
     .help = "continue from the newest checkpoint in DIR, bit for bit"},
    {.name = "checkpoint-every",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 1,
     .high = 1 << 24,
     .at = AT(checkpoint_every),
     .given = AT(given.checkpoint_every),
     .fallback = "500",
     .help = "steps between checkpoints"},
    {.name = "keep",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 1,
     .high = 1000,
     .at = AT(keep),
     .given = AT(given.keep),
     .fallback = "3",
     .help = "number of checkpoints kept, the newest ones"},
    {.name = "test",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 0,
     .high = 1000000,
     .at = AT(test),
     .given = AT(given.test),
     .fallback = "1000",
     .help =
         "held-out samples of the test at the end; a tenth of them at every checkpoint"},
    {.name = "log-every",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 1,
     .high = 1 << 24,
     .at = AT(log_every),
     .given = AT(given.log_every),
     .fallback = "10",
     .help = "steps between lines of the log"},
    {.name = "draw",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 1,
     .high = 10000,
     .at = AT(draw),
     .help = "recipe shapes: instead of training, write N pictures that it never sees "
             "into DIR, as PNG files"},
    {.name = "json",
     .kind = PH_OPT_FLAG,
     .at = AT(json),
     .help = "print the log (JSON lines) on stdout instead of text"},
    {.name = "quiet",
     .letter = 'q',
     .kind = PH_OPT_FLAG,
     .at = AT(quiet),
     .help = "no progress"},
    PH_TRAIN_OPTIONS(train_options, change),
    PH_MACHINE_OPTIONS(train_options, machine),
    {.name = NULL}};

/* A training run. */
typedef struct train_job {
    const train_options *options;
    char directory[4096];
    ph_ctx *ctx;
    ph_trainer *trainer;
    const ph_pace *pace;
    train_log log;
    int step, steps;       /* done; in total */
    int saved;             /* step of the last checkpoint, or -1 */
    int first;             /* step at which this process began */
    double began, printed; /* clock at the start and at the last progress line */
    int64_t tokens;        /* trained on by this process */
    ph_progress last;
} train_job;

/* ---- output ---- */

static void describe(const train_job *j, char *text, size_t size)
{
    double passed = train_now() - j->began;
    int done = j->step - j->first;
    double rate = passed > 0 ? (double)j->tokens / passed : 0;
    double left = done ? passed / done * (j->steps - j->step) : 0;
    snprintf(text, size,
             "%d/%d, %d:%02d left, loss %.3f, lr %.1e, %.0f tokens/s, %ld MiB", j->step,
             j->steps, (int)left / 60, (int)left % 60, j->last.loss, j->last.lr, rate,
             train_peak_kib() / 1024);
}

static void show_progress(train_job *j)
{
    char text[160];
    double now = train_now();
    int terminal = isatty(STDERR_FILENO);
    if (j->options->quiet || j->options->json || now - j->printed < (terminal ? 0.1 : 30))
        return;
    j->printed = now;
    describe(j, text, sizeof text);
    if (terminal)
        term_progress(j->steps ? (double)j->step / j->steps : 1, text);
    else
        fprintf(stderr, "step %s\n", text);
}

static void print_score(const train_job *j, const ph_score *s)
{
    if (j->options->json || j->options->quiet) return;
    const ph_config *c = ph_model_config(ph_trainer_model(j->trainer));
    term_progress_end();
    if (c->image_size) {
        fprintf(stderr, "step %d: test loss %.4f, accuracy %.2f %% of %d pictures\n",
                j->step, s->loss, 100 * s->exact_match, s->texts);
        return;
    }
    fprintf(stderr,
            "step %d: test loss %.4f, token accuracy %.2f %%, exact match %.2f %% of "
            "%d texts\n",
            j->step, s->loss, 100 * s->token_accuracy, 100 * s->exact_match, s->texts);
}

/* ---- steps ---- */

static int failed(const train_job *j, ph_status status)
{
    term_progress_end();
    return cli_fail_status(status, j->ctx);
}

static int test(train_job *j, int texts)
{
    ph_score score;
    if (texts < 1) return EXIT_OK;
    ph_status status = ph_trainer_test(j->trainer, texts, &score);
    if (status != PH_OK) return failed(j, status);
    train_log_test(&j->log, j->step, &score);
    print_score(j, &score);
    return EXIT_OK;
}

static int save(train_job *j)
{
    if (j->saved == j->step) return EXIT_OK;
    ph_status status = ph_trainer_save(j->trainer, j->directory);
    if (status != PH_OK) return failed(j, status);
    j->saved = j->step;
    return EXIT_OK;
}

static int is_due(const train_job *j, int every)
{
    return every > 0 && j->step % every == 0;
}

static int one_step(train_job *j)
{
    ph_status status = ph_trainer_step(j->trainer, &j->last);
    if (status != PH_OK) return failed(j, status);
    j->step = j->last.step;
    j->tokens += j->last.tokens;
    double passed = train_now() - j->began;
    if (is_due(j, j->pace->log_every) || j->step == j->steps)
        train_log_step(&j->log, &j->last, passed > 0 ? (double)j->tokens / passed : 0,
                       passed);
    show_progress(j);
    if (!is_due(j, j->pace->checkpoint_every) || j->step == j->steps) return EXIT_OK;
    int rc = save(j);
    return rc ? rc : test(j, j->pace->test_texts / 10);
}

static int stopped(train_job *j)
{
    int rc = save(j), number = train_signal;
    if (rc) return rc;
    term_progress_end();
    fprintf(stderr,
            "stopped at step %d of %d; resume with: polyhead train --resume -o %s\n",
            j->step, j->steps, j->directory);
    return 128 + number;
}

static int finish(train_job *j)
{
    char path[4200];
    int rc = save(j);
    if (!rc) rc = test(j, j->pace->test_texts);
    if (rc) return rc;
    snprintf(path, sizeof path, "%s/model.safetensors", j->directory);
    ph_status status = ph_model_write(ph_trainer_model(j->trainer), path);
    if (status != PH_OK) return failed(j, status);
    term_progress_end();
    if (!j->options->json) printf("%s\n", path);
    return EXIT_OK;
}

static int loop(train_job *j)
{
    int rc = EXIT_OK;
    j->began = j->printed = train_now();
    while (!rc && j->step < j->steps && !train_signal) rc = one_step(j);
    if (rc) return rc;
    return j->step < j->steps ? stopped(j) : finish(j);
}

/* ---- starting and resuming ---- */

static int has_checkpoints(const char *directory)
{
    DIR *d = opendir(directory);
    int found = 0;
    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = !strncmp(e->d_name, "step-", 5) && strstr(e->d_name, ".safetensors");
    if (d) closedir(d);
    return found;
}

/* The model of --from, without the heads of the plan. */
static int start_planned(train_job *j, const ph_train *train)
{
    const train_options *o = j->options;
    ph_train tuned = *train;
    ph_model *m = NULL;
    tuned.from[0] = 0; /* it is given */
    ph_status status = ph_model_read(&m, j->ctx, o->from);
    if (status != PH_OK) return failed(j, status);
    int rc = plan_apply(o->plan, m, j->ctx);
    if (rc) {
        ph_model_free(m);
        return rc;
    }
    status = ph_trainer_tune(&j->trainer, j->ctx, &tuned, m);
    return status == PH_OK ? EXIT_OK : failed(j, status);
}

static int create_trainer(train_job *j, const ph_train *train)
{
    if (j->options->plan) return start_planned(j, train);
    ph_status status = ph_trainer_create(&j->trainer, j->ctx, train);
    return status == PH_OK ? EXIT_OK : failed(j, status);
}

/* Makes the directory last, so that refused options leave nothing behind. */
static int start_new(train_job *j, const ph_train *train)
{
    int rc = create_trainer(j, train);
    if (rc) return rc;
    if (train_make_directory(j->directory))
        return cli_fail(EXIT_IO, "%s: %s", j->directory, strerror(errno));
    rc = train_lock_directory(j->directory);
    if (rc) return rc;
    if (has_checkpoints(j->directory))
        return cli_fail(EXIT_USAGE,
                        "%s holds an earlier training: --resume continues it, another "
                        "-o starts anew",
                        j->directory);
    return EXIT_OK;
}

/* Recipe and file may be repeated, but not changed. */
static int check_same(const train_job *j, const ph_train *asked)
{
    const ph_train *all = ph_trainer_options(j->trainer);
    if (asked->recipe[0] && strcmp(asked->recipe, all->recipe) != 0)
        return cli_fail(EXIT_USAGE, "%s holds a training of %s, not of %s", j->directory,
                        all->recipe, asked->recipe);
    if (asked->file[0] && strcmp(asked->file, all->file) != 0)
        return cli_fail(EXIT_USAGE, "%s holds a training on %s, not on %s", j->directory,
                        all->file, asked->file);
    return EXIT_OK;
}

static int resume(train_job *j, const ph_train *asked)
{
    char note[1024];
    int rc = train_lock_directory(j->directory);
    if (rc) return rc;
    for (int i = 0; i < TRAIN_OPTIONS; i++)
        if (j->options->change.given[i] || j->options->from)
            return cli_fail(EXIT_USAGE, "--resume takes everything from the checkpoint: "
                                        "no option of training or model beside it");
    ph_status status =
        ph_trainer_resume(&j->trainer, j->ctx, j->directory, note, sizeof note);
    if (status != PH_OK) return failed(j, status);
    if (note[0]) cli_warn("%s; the checkpoint before it is used", note);
    return check_same(j, asked);
}

/* What was given changes the recipe's pace, or that of the training that is resumed. */
static void set_pace(train_job *j)
{
    const train_options *o = j->options;
    ph_pace *pace = ph_trainer_pace(j->trainer);
    if (o->given.checkpoint_every) pace->checkpoint_every = (int)o->checkpoint_every;
    if (o->given.keep) pace->keep = (int)o->keep;
    if (o->given.test) pace->test_texts = (int)o->test;
    if (o->given.log_every) pace->log_every = (int)o->log_every;
    j->pace = pace;
}

static int begin(train_job *j, const ph_train *train)
{
    ph_progress none = {0};
    int rc = j->options->resume ? resume(j, train) : start_new(j, train);
    if (rc) return rc;
    set_pace(j);
    const ph_train *all = ph_trainer_options(j->trainer);
    j->step = j->first = ph_trainer_steps(j->trainer);
    j->steps = all->steps, j->last = none;
    j->saved = j->options->resume ? j->step : -1;
    rc = train_log_open(&j->log, j->directory, j->step, j->options->json);
    if (rc) return rc;
    int64_t parameters = ph_model_parameters(ph_trainer_model(j->trainer));
    if (!j->step) train_log_begin(&j->log, all, parameters);
    if (!j->options->json && !j->options->quiet)
        fprintf(stderr, "%s: %lld parameters, %d steps, into %s\n", all->recipe,
                (long long)parameters, j->steps, j->directory);
    train_catch_signals();
    cli_output_may_be_closed();
    return loop(j);
}

static int choose(const train_options *o, int count, const char *const *words,
                  ph_train *train)
{
    if (o->plan && !o->from)
        return cli_fail(EXIT_USAGE, "--plan is for a model that exists: it needs --from; "
                                    "polyhead prune MODEL --recipe NAME --plan FILE "
                                    "tests one that a recipe trained");
    const char *recipe = o->pairs ? "pairs" : count ? words[0] : NULL;
    const char *file = o->pairs ? o->pairs : count > 1 ? words[1] : NULL;
    if (o->pairs && count)
        return cli_fail(EXIT_USAGE, "--pairs and a recipe: expected one of them");
    if (!recipe)
        return cli_fail(EXIT_USAGE,
                        "train needs a RECIPE (copy, dates, pronouns, shapes, text, "
                        "classes) or --pairs FILE.tsv");
    int rc = train_defaults(recipe, train);
    if (rc) return rc;
    if (file) rc = train_set_file(file, train);
    if (!rc && o->from && ph_train_from(train, o->from) != PH_OK)
        rc = cli_fail(EXIT_USAGE, "the path of --from has %zu bytes, at most %d",
                      strlen(o->from), PH_PATH_TEXT - 1);
    return rc ? rc : train_apply(&o->change, train);
}

/* Pictures of recipe shapes, each named by its shape. */
static int draw_shapes(const char *directory, int count)
{
    uint8_t rgb[3 * PH_SHAPE_SIDE * PH_SHAPE_SIDE];
    char path[4200], error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    if (train_make_directory(directory))
        return cli_fail(EXIT_IO, "%s: %s", directory, strerror(errno));
    for (int i = 0; i < count; i++) {
        int kind = ph_shape_draw((uint64_t)i, rgb);
        snprintf(path, sizeof path, "%s/%s-%d.png", directory, ph_shape_name(kind),
                 i + 1);
        ph_status status = ph_picture_write(path, rgb, PH_SHAPE_SIDE, PH_SHAPE_SIDE, &io);
        if (status != PH_OK) return cli_fail(cli_exit_code(status), "%s", error);
        printf("%s\n", path);
    }
    return EXIT_OK;
}

static int run(const void *chosen, int count, const char *const *words)
{
    const train_options *o = chosen;
    ph_train train = {0};
    train_job j = {.options = o};
    int rc = o->resume && o->out && !count ? EXIT_OK : choose(o, count, words, &train);
    if (rc) return rc;
    if (o->out)
        snprintf(j.directory, sizeof j.directory, "%s", o->out);
    else
        snprintf(j.directory, sizeof j.directory, "runs/%s", train.recipe);
    if (o->draw && strcmp(train.recipe, "shapes"))
        return cli_fail(EXIT_USAGE, "--draw goes with recipe shapes only");
    if (o->draw) return draw_shapes(j.directory, (int)o->draw);
    rc = cli_open(&j.ctx, &o->machine, 0);
    if (rc) return rc;
    rc = begin(&j, &train);
    train_log_close(&j.log);
    ph_trainer_free(j.trainer);
    ph_close(j.ctx);
    return rc;
}

static const char *const *recipe_names(void)
{
    static const char *names[17];
    int count = 0;
    for (; count < 16 && ph_recipe_name(count); count++)
        names[count] = ph_recipe_name(count);
    names[count] = NULL;
    return names;
}

static const char *const examples[] = {
    "polyhead train copy",
    "an encoder-decoder learns to repeat letters, in about a minute",
    "polyhead train text story.txt -o runs/story",
    "a decoder learns to continue your text",
    "polyhead train --pairs lines.tsv",
    "an encoder-decoder learns from your lines, text TAB text",
    "polyhead train shapes --draw 12 -o pictures",
    "pictures to try a model of recipe shapes on: classify, look --model",
    "polyhead train text notes.txt --from ./SmolLM2-135M -o runs/notes",
    "a published model goes on learning, from your text",
    "polyhead train classes reviews.tsv --from ./bert-base-uncased",
    "one learns to classify: lines label TAB text",
    "polyhead train --resume -o runs/story",
    "continues where Ctrl-C stopped it, bit for bit",
    NULL};

const ph_command command_train = {
    .name = "train",
    .summary = "train a Transformer on the CPU",
    .usage = "RECIPE [FILE] [-o DIR] [options]",
    .about =
        "RECIPE, each with defaults for everything, is copy (repeats letters, the "
        "classic first exercise), dates (as people write them to ISO), pronouns (what "
        "every word belongs to: the model in the program), shapes (a ViT that tells "
        "shapes in pictures apart, drawn by the program), text FILE (continues "
        "your text), pairs FILE (from your own lines, text TAB text) or classes FILE "
        "(label TAB text).\n\n"
        "With --from, text, classes and pairs go on from a model you have, with its "
        "tokenizer: a decoder learns to predict the next token, an encoder masked tokens "
        "(15 % of them, as BERT was trained) or the labels, for which it keeps its "
        "classifier if it knows them and gets a new one if not (several of a text, with "
        "commas between, where the checkpoint is multi-label), an encoder-decoder the "
        "second text of each pair. The model written at the end has the tokenizer in it; "
        "export makes a Hugging Face folder of it.\n\n"
        "Ctrl-C, SIGTERM and SIGHUP write a checkpoint and say how to resume. The same "
        "command gives the same bits, stopped or not, with any number of threads.",
    .examples = examples,
    .options = table,
    .size = sizeof(train_options),
    .word = "RECIPE",
    .most_words = 2,
    .known_words = recipe_names,
    .run = run};
