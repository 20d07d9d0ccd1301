/*
 * settings_bed.h - golden checkpoints with a generation_config.json of a test's own.
 * Included after _GNU_SOURCE.
 */
#ifndef SETTINGS_BED_H
#define SETTINGS_BED_H

#include "golden_checkpoint.h"

/* Settings that are refused, and how the sentence goes on behind the name of the file. */
typedef struct bad_settings {
    const char *settings, *sentence;
} bad_settings;

static inline void begin_folder(void)
{
    strcpy(folder, "/tmp/polyhead-settings-XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
}

/* The checkpoint of a name with this generation_config.json; NULL: without one. */
static inline void make_with(const char *name, const char *settings)
{
    make_folder(name, "", "", "");
    unlink(path_of("generation_config.json"));
    if (!settings) return;
    FILE *out = fopen(path_of("generation_config.json"), "wb");
    CHECK(out, "cannot write");
    fputs(settings, out);
    fclose(out);
}

static inline void refuse_settings(const char *name, const bad_settings *all,
                                   size_t count)
{
    static const char file[] = "generation_config.json: ";
    ph_ctx *ctx = open_ctx();
    begin_folder();
    for (size_t i = 0; i < count; i++) {
        const char *settings = all[i].settings, *sentence = all[i].sentence;
        ph_model *m;
        make_with(name, settings);
        CHECK(ph_model_read(&m, ctx, folder) == PH_BAD_FILE, "%s is taken", settings);
        CHECK(!strncmp(ph_error(ctx), file, strlen(file)) &&
                  !strncmp(ph_error(ctx) + strlen(file), sentence, strlen(sentence)),
              "%s: %s", settings, ph_error(ctx));
    }
    remove_folder();
    ph_close(ctx);
}

#endif
