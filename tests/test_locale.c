/*
 * test_locale.c - a process whose locale has a decimal comma gets and gives the same
 * numbers: options, sentences, labels, pictures, plans, what is saved with a model.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"
#include "comma_locale.h"
#include "polyhead_heads.h"
#include "polyhead_picture.h"
#include "polyhead_scene.h"
#include "polyhead_train.h"
#include "report_case.h"

static void with_comma(void)
{
    char text[8];
    if (!comma_locale_set())
        SKIP("no locale with a decimal comma: install the package locales");
    snprintf(text, sizeof text, "%.1f", 0.5);
    CHECK(!strcmp(text, "0,5"), "the locale prints %s", text);
}

static ph_ctx *need_ctx(void)
{
    ph_ctx *ctx = NULL;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    return ctx;
}

static void options(void)
{
    with_comma();
    ph_ctx *ctx = need_ctx();
    ph_plan *plan = NULL;
    ph_attn attn = {.batch = 1, .q_heads = 2, .q_len = 3, .kv_len = 3, .qk_dim = 4};
    attn.variant = "entmax:alpha=1.5";
    CHECK(ph_plan_create(&plan, ctx, &attn) == PH_OK, "%s", ph_error(ctx));
    ph_plan_free(plan);
    attn.variant = "entmax:alpha=1,5";
    CHECK(ph_plan_create(&plan, ctx, &attn) != PH_OK, "a comma was accepted");
    attn.variant = NULL;
    attn.dropout = 1.5f;
    CHECK(ph_plan_create(&plan, ctx, &attn) == PH_BAD_ARGUMENT, "dropout of 1.5");
    CHECK(strstr(ph_error(ctx), "1.5"), "%s", ph_error(ctx));
    ph_close(ctx);
}

static void labels(void)
{
    ph_head_stats head = {0};
    char text[100];
    with_comma();
    ph_label label = {ph_label_rules(4), 0.834, 0};
    ph_label_why(&label, &head, NULL, text, sizeof text);
    CHECK(!strcmp(text, "prev 0.83 > 0.50"), "%s", text);
}

typedef struct text {
    char *bytes;
    size_t count;
} text;

static void append(void *user, const char *bytes, size_t count)
{
    text *t = user;
    t->bytes = realloc(t->bytes, t->count + count + 1);
    memcpy(t->bytes + t->count, bytes, count);
    t->count += count;
    t->bytes[t->count] = 0;
}

static text read_file(const char *path)
{
    text t = {0};
    char part[4096];
    FILE *f = fopen(path, "rb");
    for (size_t n; f && (n = fread(part, 1, sizeof part, f)) > 0;) append(&t, part, n);
    if (f) fclose(f);
    unlink(path);
    return t;
}

/* The terminal, the figure and the page of one report. */
static void draw(text out[3])
{
    report_case c;
    char path[64];
    const ph_pick pick = {.layer = 1, .head = 1};
    ph_terminal terminal = {
        .width = 100, .picks = &pick, .pick_count = 1, .write = append, .user = &out[0]};
    ph_figure figure = {.picks = &pick, .pick_count = 1};
    snprintf(path, sizeof path, "build/locale-%ld", (long)getpid());
    CHECK(report_case_make(&c, "demo") == 0, "no report");
    CHECK(ph_terminal_write(&c.report, &terminal, NULL) == PH_OK, "terminal");
    CHECK(ph_figure_write(path, &c.report, &figure, NULL) == PH_OK, "figure");
    out[1] = read_file(path);
    CHECK(ph_page_write(path, &c.report, NULL, NULL, NULL) == PH_OK, "page");
    out[2] = read_file(path);
    report_case_free(&c);
}

static void pictures(void)
{
    static const char *const names[] = {"terminal", "figure", "page"};
    text right[3] = {{0}}, found[3] = {{0}};
    setlocale(LC_NUMERIC, "C");
    draw(right);
    with_comma();
    draw(found);
    for (int i = 0; i < 3; i++) {
        CHECK(right[i].count == found[i].count &&
                  !memcmp(right[i].bytes, found[i].bytes, right[i].count),
              "%s: other bytes", names[i]);
        free(right[i].bytes);
        free(found[i].bytes);
    }
}

/* What is written beside a model, and a plan of heads. */
static void settings(void)
{
    static const char *const words[] = {"the", "dog"};
    ph_config config = {.arch = PH_ARCH_ENCODER,
                        .layers = 1,
                        .model_dim = 16,
                        .heads = 2,
                        .max_len = 8,
                        .dropout = 0.1f};
    ph_train train;
    char printed[2][2048], path[64];
    CHECK(ph_train_defaults(&train, "copy") == PH_OK, "no recipe");
    setlocale(LC_NUMERIC, "C");
    ph_train_print(&train, printed[0], sizeof printed[0]);
    with_comma();
    ph_train_print(&train, printed[1], sizeof printed[1]);
    CHECK(!strcmp(printed[0], printed[1]), "%s", printed[1]);

    ph_ctx *ctx = need_ctx();
    ph_model *model;
    ph_reading *reading;
    ph_prune plan, again;
    CHECK(ph_model_create(&model, ctx, &config, PH_SPLIT_WORDS, words, 2, 7) == PH_OK,
          "%s", ph_error(ctx));
    CHECK(ph_reading_create(&reading, model, "the dog", NULL) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_prune_create(&plan, reading, NULL) == PH_OK, "no plan");
    plan.gates[0] = 0.25f;
    snprintf(path, sizeof path, "build/locale-%ld.json", (long)getpid());
    CHECK(ph_prune_write(&plan, path, reading, NULL) == PH_OK, "not written");
    CHECK(ph_prune_read(&again, path, reading, NULL) == PH_OK && again.gates[0] == 0.25f,
          "another plan came back");
    text file = read_file(path);
    CHECK(strstr(file.bytes, "0.25"), "%s", file.bytes);
    free(file.bytes);
    ph_prune_free(&plan, NULL);
    ph_prune_free(&again, NULL);
    ph_reading_free(reading);
    ph_model_free(model);
    ph_close(ctx);
}

static const check_case cases[] = {{"options", options},
                                   {"labels", labels},
                                   {"pictures", pictures},
                                   {"settings", settings},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
