/*
 * llama_folder.h - a folder of its own with the weights of a tiny Llama and the files
 * that a test writes beside them. Included after _GNU_SOURCE.
 */
#ifndef LLAMA_FOLDER_H
#define LLAMA_FOLDER_H

#include <unistd.h>

#include "check.h"
#include "polyhead_model.h"

static char folder[64];

static inline const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static inline void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "cannot write %s", name);
}

static inline void link_file(const char *name)
{
    char from[256], *here = realpath("tests/golden/checkpoints/llama", NULL);
    snprintf(from, sizeof from, "%s/%s", here, name);
    free(here);
    CHECK(symlink(from, path_of(name)) == 0, "cannot link %s", name);
}

static inline void begin_llama_folder(const char *tokenizer)
{
    snprintf(folder, sizeof folder, "/tmp/test_llama_XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    link_file("config.json");
    link_file("model.safetensors");
    write_file("tokenizer.json", tokenizer);
}

static inline void end_llama_folder(void)
{
    static const char *const names[] = {
        "config.json",           "model.safetensors",      "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unlink(path_of(names[i]));
    rmdir(folder);
}

static inline ph_model *open_model(ph_ctx *ctx)
{
    ph_model *m;
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    return m;
}

#endif
