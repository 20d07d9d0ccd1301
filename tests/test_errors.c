/*
 * test_errors.c - everything that must be refused: the right code, a sentence that names
 * the
 * field, outputs untouched, *out NULL after a failed creation.
 *
 * The codes that only files can cause (PH_BAD_FILE, PH_IO_ERROR) are not reachable here;
 * PH_OUT_OF_MEMORY has a program of its own.
 */
#define _GNU_SOURCE
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>

#include "sweep.h"

/* The sentence must name this word; the code must be one of the two (often the same). */
static void expect(ph_ctx *ctx, ph_status status, ph_status code, ph_status or_code,
                   const char *word, const char *what)
{
    CHECK(status == code || status == or_code, "%s: status \"%s\", expected \"%s\" (%s)",
          what, ph_status_text(status), ph_status_text(code), ph_error(ctx));
    CHECK(strstr(ph_error(ctx), word), "%s: \"%s\" does not name %s", what, ph_error(ctx),
          word);
    CHECK(strlen(ph_error(ctx)) > strlen(word) + 5, "%s: \"%s\" is no sentence", what,
          ph_error(ctx));
}

/* ---- opening ---------------------------------------------------------------------- */

static void *some_alloc(void *user, size_t bytes)
{
    (void)user;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void refuse_open(ph_options options, ph_status code, ph_status or_code,
                        const char *word)
{
    ph_ctx *ctx = (ph_ctx *)&options;
    char text[200];
    memset(text, 'x', sizeof text);
    options.error = text;
    options.error_size = sizeof text;
    ph_status status = ph_open(&ctx, &options);
    CHECK(status == code || status == or_code, "%s: status \"%s\"", word,
          ph_status_text(status));
    CHECK(!ctx, "%s: a ctx came back", word);
    CHECK(memchr(text, 0, sizeof text), "%s: the sentence has no end", word);
    CHECK(strstr(text, word), "\"%s\" does not name %s", text, word);
    memset(text, 'x', sizeof text);
    options.error_size = 7; /* cut, never beyond */
    status = ph_open(&ctx, &options);
    CHECK(status != PH_OK && strlen(text) == 6 && text[7] == 'x',
          "%s: cut sentence \"%.9s\"", word, text);
    options.error_size = 0;
    memset(text, 'x', sizeof text);
    CHECK(ph_open(&ctx, &options) != PH_OK && text[0] == 'x',
          "%s: written to a buffer of 0 bytes", word);
    options.error = NULL;
    CHECK(ph_open(&ctx, &options) != PH_OK && !ctx, "%s: accepted without error buffer",
          word);
}

static void opening(void)
{
    ph_options none = {.threads = 0}, o = none;
    o.threads = -1;
    refuse_open(o, PH_BAD_ARGUMENT, PH_BAD_ARGUMENT, "threads");
    o = none;
    o.device = (ph_device)99;
    refuse_open(o, PH_BAD_ARGUMENT, PH_BAD_ARGUMENT, "device");
    o = none;
    o.isa = "sse9";
    refuse_open(o, PH_BAD_ARGUMENT, PH_UNSUPPORTED, "sse9");
    o = none;
    o.alloc = some_alloc; /* without release */
    refuse_open(o, PH_BAD_ARGUMENT, PH_BAD_ARGUMENT, "release");
    CHECK(ph_open(NULL, NULL) == PH_BAD_ARGUMENT, "no place for the ctx was accepted");
    ph_ctx *ctx = NULL;
    CHECK(ph_open(&ctx, NULL) == PH_OK && ctx, "no options were refused");
    CHECK(ph_error(ctx) && !*ph_error(ctx), "a sentence before the first fault: %s",
          ph_error(ctx));
    CHECK(ph_threads(ctx) >= 1, "threads %d", ph_threads(ctx));
    ph_close(ctx);
    ph_close(NULL);
    ph_plan_free(NULL);
}

/* A device this build has not: legal, but unsupported. With an accelerator it may open.
   */
static void other_device(void)
{
    ph_ctx *ctx = NULL;
    char text[300] = "";
    ph_options o = {.device = PH_CUDA, .error = text, .error_size = sizeof text};
    ph_status status = ph_open(&ctx, &o);
    if (status == PH_OK) {
        ph_close(ctx);
        SKIP("this build has an accelerator");
    }
    CHECK(status == PH_UNSUPPORTED && !ctx && *text, "status \"%s\", \"%s\"",
          ph_status_text(status), text);
}

static void texts(void)
{
    for (int n = 0; n <= PH_BUSY; n++) {
        const char *text = ph_status_text((ph_status)n);
        CHECK(text && *text, "status %d has no text", n);
        for (int m = 0; m < n; m++)
            CHECK(strcmp(text, ph_status_text((ph_status)m)), "statuses %d and %d: %s", m,
                  n, text);
    }
    CHECK(ph_status_text((ph_status)12345), "no text for an unknown status");
    CHECK(!strcmp(ph_version(), "0.1.0") || strchr(ph_version(), '.'), "version %s",
          ph_version());
}

/* ---- plans ------------------------------------------------------------------------ */

static const ph_attn good = {.batch = 2,
                             .q_heads = 4,
                             .k_heads = 2,
                             .v_heads = 2,
                             .q_len = 5,
                             .kv_len = 7,
                             .qk_dim = 8,
                             .v_dim = 6};

static void refuse_plan(const ph_attn *attn, ph_status code, ph_status or_code,
                        const char *word, const char *what)
{
    ph_ctx *ctx = need_ctx(NULL);
    ph_plan *plan = (ph_plan *)&good;
    ph_status status = ph_plan_create(&plan, ctx, attn);
    if (status == PH_OK) ph_plan_free(plan);
    expect(ctx, status, code, or_code, word, what);
    CHECK(!plan, "%s: a plan came back", what);
}

typedef struct bad_int {
    size_t field;
    int value;
    const char *name;
    ph_status code;
} bad_int;

static const bad_int bad_ints[] = {
    {offsetof(ph_attn, batch), -1, "batch", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, q_heads), 0, "q_heads", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, q_heads), -4, "q_heads", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, k_heads), -1, "k_heads", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, k_heads), 3, "k_heads", PH_BAD_SHAPE},
    {offsetof(ph_attn, k_heads), 8, "k_heads", PH_BAD_SHAPE},
    {offsetof(ph_attn, v_heads), -1, "v_heads", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, v_heads), 3, "v_heads", PH_BAD_SHAPE},
    {offsetof(ph_attn, q_len), -1, "q_len", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, kv_len), -1, "kv_len", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, qk_dim), -1, "qk_dim", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, v_dim), -1, "v_dim", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, dtype), 17, "dtype", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, dtype), -1, "dtype", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, mask), 9, "mask", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, anchor), 9, "anchor", PH_BAD_ARGUMENT},
    {offsetof(ph_attn, gate), 9, "gate", PH_BAD_ARGUMENT},
};

static void plan_integers(void)
{
    for (size_t n = 0; n < sizeof bad_ints / sizeof *bad_ints; n++) {
        ph_attn attn = good;
        const bad_int *b = &bad_ints[n];
        char what[60];
        memcpy((char *)&attn + b->field, &b->value, sizeof(int));
        snprintf(what, sizeof what, "%s = %d", b->name, b->value);
        refuse_plan(&attn, b->code, b->code, b->name, what);
    }
}

static void plan_numbers(void)
{
    static const struct {
        size_t field;
        float value;
        const char *name;
    } bad[] = {
        {offsetof(ph_attn, scale), NAN, "scale"},
        {offsetof(ph_attn, scale), INFINITY, "scale"},
        {offsetof(ph_attn, softcap), NAN, "softcap"},
        {offsetof(ph_attn, softcap), -1, "softcap"},
        {offsetof(ph_attn, softcap), INFINITY, "softcap"},
        {offsetof(ph_attn, dropout), NAN, "dropout"},
        {offsetof(ph_attn, dropout), -0.1f, "dropout"},
        {offsetof(ph_attn, dropout), 1, "dropout"},
        {offsetof(ph_attn, dropout), 2, "dropout"},
    };
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        ph_attn attn = good;
        char what[60];
        memcpy((char *)&attn + bad[n].field, &bad[n].value, sizeof(float));
        snprintf(what, sizeof what, "%s = %g", bad[n].name, (double)bad[n].value);
        refuse_plan(&attn, PH_BAD_ARGUMENT, PH_BAD_ARGUMENT, bad[n].name, what);
    }
}

static void plan_masks(void)
{
    static const ph_broadcast wrong[] = {{3, 1, 1}, {1, 2, 1}, {1, 1, 4}, {-1, 1, 1},
                                         {1, 0, 1}, {0, 1, 1}, {1, 1, 0}};
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        ph_attn attn = good;
        attn.bias = wrong[n];
        refuse_plan(&attn, PH_BAD_SHAPE, PH_BAD_ARGUMENT, "bias", "shape of bias");
        attn = good;
        attn.visible = wrong[n];
        refuse_plan(&attn, PH_BAD_SHAPE, PH_BAD_ARGUMENT, "visible", "shape of visible");
    }
    for (int mask = PH_MASK_CAUSAL; mask <= PH_MASK_BAND; mask++) {
        ph_attn attn = good; /* lengths differ, and nobody says where query 0 stands */
        attn.mask = (ph_mask)mask;
        refuse_plan(&attn, PH_BAD_ARGUMENT, PH_BAD_SHAPE, "anchor",
                    "mask without anchor");
    }
    ph_attn attn = good;
    attn.variant = "no-such-variant";
    refuse_plan(&attn, PH_UNSUPPORTED, PH_UNSUPPORTED, "no-such-variant", "variant");
    attn.variant = "mha:nonsense=1";
    refuse_plan(&attn, PH_BAD_ARGUMENT, PH_BAD_ARGUMENT, "nonsense", "variant's option");
}

/* ---- strides ---------------------------------------------------------------------- */

static void plan_strides(void)
{
    static const ph_strides overlap = {400, 3, 24}, flat = {0, 30, 6},
                            back = {-240, 30, 6};
    static const ph_strides far = {INT64_MAX, INT64_MAX, INT64_MAX};
    static const struct {
        size_t field;
        const ph_strides *value;
        const char *name;
        int backward;
    } bad[] = {
        {offsetof(ph_attn, out), &overlap, "out", 0},
        {offsetof(ph_attn, out), &flat, "out", 0},
        {offsetof(ph_attn, dq), &overlap, "dq", 1},
        {offsetof(ph_attn, dk), &overlap, "dk", 1},
        {offsetof(ph_attn, dv), &flat, "dv", 1},
        {offsetof(ph_attn, k), &overlap, "k", 1},
        {offsetof(ph_attn, v), &flat, "v", 1},
        {offsetof(ph_attn, q), &overlap, "q", 1},
        {offsetof(ph_attn, out), &back, "out", 0},
        {offsetof(ph_attn, q), &far, "q", 0},
        {offsetof(ph_attn, k), &far, "k", 0},
        {offsetof(ph_attn, v), &far, "v", 0},
        {offsetof(ph_attn, out), &far, "out", 0},
        {offsetof(ph_attn, dk), &far, "dk", 1},
    };
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        ph_attn attn = good;
        char what[60];
        memcpy((char *)&attn + bad[n].field, bad[n].value, sizeof(ph_strides));
        attn.backward = bad[n].backward;
        snprintf(what, sizeof what, "strides of %s (%zu)", bad[n].name, n);
        refuse_plan(&attn, PH_BAD_SHAPE, PH_BAD_ARGUMENT, bad[n].name, what);
    }
    /* Reading may overlap as long as nothing is written there. */
    ph_attn attn = good;
    attn.k = overlap;
    ph_plan *plan = NULL;
    ph_ctx *ctx = need_ctx(NULL);
    must(ctx, ph_plan_create(&plan, ctx, &attn));
    ph_plan_free(plan);
}

/* Sizes whose product leaves every integer: refused, whatever the code. */
static void huge_sizes(void)
{
    static const ph_attn huge[] = {
        {.batch = INT_MAX,
         .q_heads = INT_MAX,
         .q_len = INT_MAX,
         .kv_len = INT_MAX,
         .qk_dim = INT_MAX},
        {.batch = 1,
         .q_heads = INT_MAX,
         .q_len = INT_MAX,
         .kv_len = 1,
         .qk_dim = INT_MAX},
        {.batch = 65536,
         .q_heads = 65536,
         .q_len = 65536,
         .kv_len = 65536,
         .qk_dim = 65536},
    };
    for (int n = 0; n < 3; n++) {
        ph_plan *plan = NULL;
        ph_ctx *ctx = need_ctx(NULL);
        ph_status status = ph_plan_create(&plan, ctx, &huge[n]);
        CHECK(status != PH_OK && !plan, "sizes %d were accepted", n);
        CHECK(*ph_error(ctx), "sizes %d: no sentence", n);
    }
}

static void plan_pointers(void)
{
    ph_ctx *ctx = need_ctx(NULL);
    ph_plan *plan = (ph_plan *)&good;
    CHECK(ph_plan_create(NULL, ctx, &good) == PH_BAD_ARGUMENT, "no place for the plan");
    CHECK(ph_plan_create(&plan, ctx, NULL) == PH_BAD_ARGUMENT && !plan, "no description");
    plan = (ph_plan *)&good;
    CHECK(ph_plan_create(&plan, NULL, &good) == PH_BAD_ARGUMENT && !plan, "no ctx");
}

static void describe(void)
{
    ph_ctx *ctx = need_ctx(NULL);
    ph_plan *plan = NULL;
    char text[300], cut[8];
    must(ctx, ph_plan_create(&plan, ctx, &good));
    int length = ph_plan_describe(plan, text, sizeof text);
    CHECK(length > 0 && strlen(text) == (size_t)length, "length %d of \"%s\"", length,
          text);
    CHECK(!strchr(text, '\n'), "more than one line: %s", text);
    memset(cut, 'x', sizeof cut);
    CHECK(ph_plan_describe(plan, cut, 5) == length && strlen(cut) == 4 && cut[5] == 'x' &&
              !strncmp(cut, text, 4),
          "cut to \"%.7s\"", cut);
    CHECK(ph_plan_describe(plan, NULL, 0) == length, "only the length");
    ph_plan_free(plan);
}

static void variant_list(void)
{
    int found = 0, n = 0;
    for (const ph_variant_info *v; (v = ph_variant_list(n)) != NULL; n++) {
        CHECK(v->name && v->options && v->help && v->tensors, "variant %d has gaps", n);
        found |= !strcmp(v->name, "mha");
    }
    CHECK(found, "mha is not in the list of %d", n);
    CHECK(!ph_variant_list(-1) && !ph_variant_list(n + 1000),
          "something beyond the list");
}

/* Each name can be asked for; the environment lowers a choice and never raises it.
   What has bits of its own in f32 (amx-f32) nobody gets who did not ask. */
static void instruction_set(void)
{
    const char *const *list = ph_isa_list();
    int count = 0;
    while (list[count]) count++;
    int best = count - 1 - ph_isa_about(list[count - 1]).own_gradients;
    CHECK(count >= 1 && !strcmp(list[0], "ref"), "the weakest is %s", list[0]);
    for (int i = 0, known = 0; i < count; i++, known = 0) {
        const char *vectors = ph_isa_about(list[i]).vectors;
        for (int k = 0; k <= i; k++) known |= !strcmp(vectors, list[k]);
        CHECK(known, "%s has the vectors of %s, which is none before it", list[i],
              vectors);
    }
    CHECK(!ph_isa_about("none").vectors && !ph_isa_about(NULL).vectors, "what is that?");
    for (int asked = 0; asked <= count; asked++)
        for (int lowered = 0; lowered <= count; lowered++) {
            ph_ctx *ctx = NULL;
            ph_options o = {.isa = asked < count ? list[asked] : NULL};
            if (lowered < count)
                setenv("POLYHEAD_ISA", list[lowered], 1);
            else
                unsetenv("POLYHEAD_ISA");
            ph_status status = ph_open(&ctx, &o);
            unsetenv("POLYHEAD_ISA");
            int want = asked < lowered ? asked : lowered;
            if (want == count) want = best;
            CHECK(status == PH_OK, "refused: %s", ph_status_text(status));
            CHECK(!strcmp(ph_isa(ctx), list[want]), "got %s, expected %s", ph_isa(ctx),
                  list[want]);
            ph_close(ctx);
        }
}

static const check_case cases[] = {
    {"opening", opening},
    {"other_device", other_device},
    {"texts", texts},
    {"plan_integers", plan_integers},
    {"plan_numbers", plan_numbers},
    {"plan_masks", plan_masks},
    {"plan_strides", plan_strides},
    {"huge_sizes", huge_sizes},
    {"plan_pointers", plan_pointers},
    {"describe", describe},
    {"variant_list", variant_list},
    {"instruction_set", instruction_set},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
