/*
 * test_export_safe.c - exports that are given up or refused leave nothing behind.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "export_bed.h"
#include "model/model.h"
#include "polyhead_prune.h"

/* The last of its parameters ends with this element. */
static void write_model(ph_ctx *ctx, const char *path, float last)
{
    const ph_config c = {.arch = PH_ARCH_DECODER,
                         .vocab = 23,
                         .layers = 2,
                         .model_dim = 24,
                         .heads = 4,
                         .max_len = 16,
                         .positions = PH_POS_LEARNED};
    ph_model *m;
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 5) == PH_OK, "%s",
          ph_error(ctx));
    const ph_weight *weight = &m->params[m->param_count - 1];
    if (last != 0) m->block[weight->at + weight->count - 1] = last;
    CHECK(ph_model_write(m, path) == PH_OK, "%s", ph_error(ctx));
    ph_model_free(m);
}

/* ---- stopped ----------------------------------------------------------------------- */

static int calls_left;

static int stops_now(void *unused)
{
    (void)unused;
    return calls_left-- <= 0;
}

/* Given up after 0, 1, 2 ... writes: nothing is left. */
static void check_stopped(ph_ctx *ctx, const char *from, int least)
{
    int calls = 0;
    ph_status status = PH_IO_ERROR;
    for (; status == PH_IO_ERROR && calls < 10000; calls++) {
        calls_left = calls;
        status = ph_model_export(ctx, from, in_place("to"), NULL);
        if (status == PH_OK) break;
        CHECK(strstr(ph_error(ctx), "it was stopped"), "%s", ph_error(ctx));
        DIR *d = opendir(place);
        for (struct dirent *e; (e = readdir(d));)
            CHECK(!strstr(e->d_name, ".polyhead-"), "%s is left", e->d_name);
        closedir(d);
    }
    CHECK(status == PH_OK, "%s", ph_error(ctx));
    CHECK(calls >= least, "stopped %d times, expected %d", calls, least);
    end(), mkdir(place, 0777);
}

static void stopped(void)
{
    char own[256];
        ph_ctx *ctx, *free_ctx;
    begin();
    ph_options o = {.threads = 2, .stopped = stops_now};
    CHECK(ph_open(&ctx, &o) == PH_OK, "ph_open failed");
    CHECK(ph_open(&free_ctx, NULL) == PH_OK, "ph_open failed");
    check_stopped(ctx, FOLDER "llama", 5);
    strcpy(own, in_place("own.safetensors"));
    write_model(free_ctx, own, 0);
    ph_model *m;
    CHECK(ph_model_read(&m, ctx, own) == PH_OK, "%s", ph_error(ctx));
    calls_left = 1;
    CHECK(ph_model_write(m, in_place("again")) == PH_IO_ERROR, "it was written");
    CHECK(entries(place) == 1, "a file is left");
    ph_model_free(m);
    check_stopped(ctx, own, 20);
    ph_close(free_ctx);
    ph_close(ctx);
    end();
}

/* ---- refused ----------------------------------------------------------------------- */

static void check_refused(ph_ctx *ctx, const char *from, const ph_dtype *type,
                          ph_status expected, const char *sentence)
{
    int before = entries(place);
    ph_status status = ph_model_export(ctx, from, in_place("to"), type);
    CHECK(status == expected, "status %d, expected %d: %s", (int)status, (int)expected,
          ph_error(ctx));
    CHECK(strstr(ph_error(ctx), sentence), "expected %s: %s", sentence, ph_error(ctx));
    CHECK(entries(place) == before, "something is left");
}

/* A value that a type cannot hold, from a model and from a folder. */
static void overflow(void)
{
    static const struct {
        float value;
        ph_dtype type;
        const char *sentence; /* NULL: it fits */
    } list[] = {{70000, PH_F16, "holds 70000, which f16 cannot hold: bf16 and f32 can"},
                {65519, PH_F16, NULL},
                {-65520, PH_F16, "holds -65520, which f16 cannot hold"},
                {70000, PH_BF16, NULL},
                {3.4e38f, PH_BF16, "holds 3.4e+38, which bf16 cannot hold: f32 can"},
                {3.4e38f, PH_F16, "which f16 cannot hold: f32 can"},
                {-INFINITY, PH_F16, NULL}};
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char own[256], folder[256];
        begin();
        strcpy(own, in_place("own.safetensors"));
        strcpy(folder, in_place("folder"));
        write_model(ctx, own, list[i].value);
        CHECK(ph_model_export(ctx, own, folder, NULL) == PH_OK, "%s", ph_error(ctx));
        for (int k = 0; k < 2; k++) {
            const char *from = k ? folder : own;
            if (list[i].sentence)
                check_refused(ctx, from, &list[i].type, PH_BAD_VALUE, list[i].sentence);
            else
                CHECK(ph_model_export(ctx, from, in_place(k ? "a" : "b"),
                                      &list[i].type) == PH_OK,
                      "%s", ph_error(ctx));
        }
        if (list[i].sentence)
            CHECK(strstr(ph_error(ctx), "tensor '"), "%s",
                  ph_error(ctx));
        end();
    }
    ph_close(ctx);
}

/* What no command reads is not copied either. */
static void unreadable(void)
{
    char from[256], path[300];
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    begin();
    strcpy(from, in_place("from"));
    CHECK(ph_model_export(ctx, FOLDER "gpt2", from, NULL) == PH_OK, "%s", ph_error(ctx));
    snprintf(path, sizeof path, "%s/config.json", from);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("{\"model_type\": \"gpt2\", \"n_layer\": 9}", f) > 0 && !fclose(f),
          "config.json cannot be written");
    check_refused(ctx, from, NULL, PH_BAD_FILE, "");
    ph_model *m;
    char said[512];
    snprintf(said, sizeof said, "%s", ph_error(ctx));
    CHECK(ph_model_read(&m, ctx, from) == PH_BAD_FILE && !strcmp(said, ph_error(ctx)),
          "read: %s, exported: %s", ph_error(ctx), said);
    ph_close(ctx);
    end();
}

static const check_case cases[] = {
    {"stopped", stopped}, {"overflow", overflow}, {"unreadable", unreadable}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
