/*
 * test_checkpoint.c - what a checkpoint must carry to go on: seed, step, paths of any
 * bytes, the pace, and the hash of the file that is learned from.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "model/store.h"
#include "model/train.h"

static char folder[] = "/tmp/test_checkpoint.XXXXXX";

static ph_ctx *open_ctx(void)
{
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    return ctx;
}

static ph_train small(const char *recipe)
{
    ph_train train;
    CHECK(ph_train_defaults(&train, recipe) == PH_OK, "no recipe %s", recipe);
    train.batch = 2, train.steps = 10;
    train.config.layers = 1, train.config.model_dim = 16, train.config.ff_dim = 16;
    if (!strcmp(recipe, "text")) train.config.max_len = 16;
    return train;
}

/* One step of a training, and its checkpoint. */
static void begin(ph_ctx *ctx, const ph_train *train)
{
    ph_trainer *t;
    ph_progress p;
    CHECK(ph_trainer_create(&t, ctx, train) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_trainer_step(t, &p) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_trainer_save(t, folder) == PH_OK, "%s", ph_error(ctx));
    ph_trainer_free(t);
}

static ph_status resume(ph_ctx *ctx, ph_trainer **out)
{
    char note[256];
    return ph_trainer_resume(out, ctx, folder, note, sizeof note);
}

static void write_text(const char *path, const char *words)
{
    FILE *file = fopen(path, "w");
    CHECK(file, "%s: %s", path, strerror(errno));
    for (int i = 0; i < 100; i++) fprintf(file, "%s %d. ", words, i);
    fclose(file);
}

static void seeds(void)
{
    static const uint64_t seeds[] = {0, 1ull << 53, 1ull << 63, UINT64_MAX};
    ph_ctx *ctx = open_ctx();
    for (int i = 0; i < 4; i++) {
        ph_trainer *t;
        ph_train train = small("copy");
        train.seed = seeds[i];
        begin(ctx, &train);
        CHECK(resume(ctx, &t) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_trainer_options(t)->seed == seeds[i], "seed %llu",
              (unsigned long long)ph_trainer_options(t)->seed);
        ph_trainer_free(t);
    }
    ph_close(ctx);
}

static void pace(void)
{
    ph_ctx *ctx = open_ctx();
    ph_trainer *t;
    ph_train train = small("copy");
    train.pace =
        (ph_pace){.checkpoint_every = 7, .keep = 2, .log_every = 3, .test_texts = 50};
    begin(ctx, &train);
    CHECK(resume(ctx, &t) == PH_OK, "%s", ph_error(ctx));
    CHECK(!memcmp(ph_trainer_pace(t), &train.pace, sizeof train.pace), "another pace");
    ph_trainer_free(t);
    ph_close(ctx);
}

/* The step is eight digits at most: anything else is refused, not half read. */
static void steps(void)
{
    static const char *const wrong[] = {"", "-1", "1e3", " 7", "7 ", "123456789", "0x10"};
    ph_ctx *ctx = open_ctx();
    ph_train train = small("copy");
    char path[128], text[8192];
    begin(ctx, &train);
    ph_train_print(&train, text, sizeof text);
    snprintf(path, sizeof path, "%s/step-00000001.safetensors", folder);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ph_model *model;
        ph_trainer *t;
        ph_pair pairs[2] = {{"polyhead.train", text}, {"polyhead.step", wrong[i]}};
        ph_store_extra more = {NULL, 0, pairs, 2};
        CHECK(ph_model_read(&model, ctx, path) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_store_write(model, path, &more) == PH_OK, "%s", ph_error(ctx));
        CHECK(resume(ctx, &t) == PH_BAD_FILE && strstr(ph_error(ctx), "polyhead.step is"),
              "\"%s\": %s", wrong[i], ph_error(ctx));
        ph_model_free(model);
    }
    ph_close(ctx);
}

/* An edited file has other tokens and other samples: a sentence, not a broken model. */
static void edited(void)
{
    static const char *const edits[] = {"the zebra", "the cats", "the bat"};
    ph_ctx *ctx = open_ctx();
    ph_train train = small("text");
    ph_trainer *t;
    snprintf(train.file, sizeof train.file, "%s/story.txt", folder);
    write_text(train.file, "the cat");
    begin(ctx, &train);
    CHECK(resume(ctx, &t) == PH_OK, "%s", ph_error(ctx));
    ph_trainer_free(t);
    for (int i = 0; i < 3; i++) {
        write_text(train.file, edits[i]);
        CHECK(resume(ctx, &t) == PH_BAD_FILE, "%s was accepted", edits[i]);
        CHECK(strstr(ph_error(ctx), "story.txt has changed since"), "%s", ph_error(ctx));
    }
    ph_close(ctx);
}

/* Paths are bytes. The longest one has several, each escaped in JSON or in UTF-8. */
static void paths(void)
{
    static const char *const names[] = {"caf\xe9.txt", "100%.txt", "a\"b\\c\n\x01.txt",
                                        "\xff\xfe\x80", "\xe6\x9c\xac%41"};
    ph_ctx *ctx = open_ctx();
    for (int i = 0; i <= 5; i++) {
        ph_train train = small("text");
        ph_trainer *t;
        int used = snprintf(train.file, sizeof train.file, "%s/", folder);
        for (int deep = 0; i == 5 && deep < 4; deep++) { /* 4 folders of 240 bytes */
            memset(train.file + used, '\x01' + deep, 239);
            used += 239;
            train.file[used++] = '/', train.file[used] = 0;
            CHECK(!mkdir(train.file, 0777) || errno == EEXIST, "%s", strerror(errno));
        }
        strcpy(train.file + used, i < 5 ? names[i] : "\xff");
        write_text(train.file, "the cat");
        begin(ctx, &train);
        CHECK(resume(ctx, &t) == PH_OK, "path %d: %s", i, ph_error(ctx));
        CHECK(!strcmp(ph_trainer_options(t)->file, train.file), "path %d", i);
        ph_trainer_free(t);
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"seeds", seeds},   {"pace", pace},   {"steps", steps},
                                   {"edited", edited}, {"paths", paths}, {0, 0}};

int main(int argc, char **argv)
{
    char command[64];
    CHECK(mkdtemp(folder), "no folder: %s", strerror(errno));
    int rc = check_main(argc, argv, cases);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) ? 1 : rc;
}
