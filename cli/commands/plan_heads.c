/*
 * plan_heads.c - heads that are taken out of a model: by a plan of the live page, or by
 * descriptors as published pruning code writes them.
 */
#include "commands/plan_heads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/prune_input.h"
#include "polyhead_scene.h"

/* The plan of a file, for the heads of a model. */
static int read_plan(const char *path, const ph_model *m, ph_ctx *ctx, ph_prune *plan)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    ph_reading *reading = NULL;
    const ph_config *c = ph_model_config(m);
    if (c->image_size || c->mels)
        return cli_fail(EXIT_UNSUPPORTED,
                        "'%s' is for a model that reads %s, expected text: 'prune "
                        "--remove LAYER:HEAD' takes its heads out, 'look --plan' shows "
                        "what the plan does",
                        path, c->mels ? "sound" : "pictures");
    ph_status status = ph_reading_create(&reading, m, "a", NULL);
    if (status != PH_OK) return cli_fail_status(status, ctx);
    status = ph_prune_read(plan, path, reading, &io);
    ph_reading_free(reading);
    return cli_result(status, error);
}

/* The mean of a head is over the words of one text: a model that reads others has none.
   The pointer of an encoder is its answer, not a head of a layer. */
static int check_heads(const char *path, const ph_prune *plan, int heads)
{
    for (int i = 0; i < plan->count; i++) {
        if (plan->ablation[i] == PH_HEAD_MEAN)
            return cli_fail(
                EXIT_BAD_INPUT,
                "'%s' replaces a head by its mean over the words of one text, "
                "expected heads that are off or gated",
                path);
        if (i >= heads && (plan->ablation[i] == PH_HEAD_ZERO || plan->gates[i] < 1))
            return cli_fail(EXIT_BAD_INPUT,
                            "'%s' changes the pointer that gives the answers, expected "
                            "heads of layers",
                            path);
    }
    return EXIT_OK;
}

static void take_removed(const ph_prune *plan, int heads, uint8_t *removed)
{
    for (int i = 0; i < heads; i++)
        if (plan->ablation[i] == PH_HEAD_ZERO) removed[i] = 1;
}

int plan_removed(const char *path, const ph_model *m, ph_ctx *ctx, uint8_t *removed)
{
    ph_prune plan = {0};
    int heads = ph_model_heads(m), rc = read_plan(path, m, ctx, &plan);
    if (rc) return rc;
    rc = check_heads(path, &plan, heads);
    for (int i = 0; i < heads && !rc; i++)
        if (plan.gates[i] < 1)
            rc =
                cli_fail(EXIT_BAD_INPUT,
                         "'%s' gates a head, expected heads that are off: a gate removes "
                         "nothing",
                         path);
    if (!rc) take_removed(&plan, heads, removed);
    ph_prune_free(&plan, NULL);
    return rc;
}

int plan_apply(const char *path, ph_model *m, ph_ctx *ctx)
{
    ph_prune plan = {0};
    uint8_t *removed = calloc((size_t)ph_model_heads(m) + 1, 1);
    if (!removed) return cli_fail(EXIT_MEMORY, "out of memory for a plan");
    int rc = read_plan(path, m, ctx, &plan), read = !rc;
    if (!rc) rc = check_heads(path, &plan, ph_model_heads(m));
    if (!rc) take_removed(&plan, ph_model_heads(m), removed);
    if (!rc) rc = cli_fail_status(ph_model_gate(m, plan.gates), ctx);
    if (!rc) rc = cli_fail_status(ph_model_remove(m, removed), ctx);
    if (read) ph_prune_free(&plan, NULL);
    free(removed);
    return rc;
}

/* ---- descriptors: "E:2:1,4" is heads 1 and 4 of encoder layer 2, counted from 1 ---- */

/* A number at *at, which moves behind it; 0: there is none in range. */
static int read_count(const char **at)
{
    int value = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if (value < 1 << 20) value = 10 * value + (**at - '0');
    return value;
}

/* The site that a letter and a layer mean. Models of one stack need no letter. */
static void name_site(char letter, int layer, const ph_model *m, char *site, size_t size)
{
    int decoder = letter ? letter != 'E' : ph_model_config(m)->arch == PH_ARCH_DECODER;
    snprintf(site, size, "%s.%d.%s", decoder ? "decoder" : "encoder", layer - 1,
             letter == 'A' ? "cross" : "self");
}

static int take_head(const ph_model *m, const ph_head_place *site, int head,
                     uint8_t *removed)
{
    const char *stack;
    ph_head_place place;
    for (int h = 0; h < ph_model_heads(m); h++)
        if (ph_model_head(m, h, &place) == PH_OK && !strcmp(place.site, site->site) &&
            place.head == head - 1) {
            removed[h] = 1;
            return EXIT_OK;
        }
    int layer = prune_layer(site, &stack);
    return cli_fail(EXIT_USAGE,
                    "--remove: there is no head %s %d-%d, expected layers and heads of "
                    "the model, counted from 1",
                    stack, layer, head);
}

/* One descriptor of `length` bytes. */
static int take_descriptor(const char *word, int length, const ph_model *m,
                           uint8_t *removed)
{
    const char *at = word;
    char letter = 0;
    ph_head_place site = {.head = 0};
    if (*at && strchr("EAD", *at) && at[1] == ':') letter = *at, at += 2;
    if (!letter && ph_model_config(m)->arch == PH_ARCH_ENCODER_DECODER)
        return cli_fail(EXIT_USAGE,
                        "--remove: '%.*s' does not say which attention, expected E:, A: "
                        "or D: before the layer of an encoder-decoder",
                        length, word);
    int layer = read_count(&at), rc = EXIT_OK, well = layer > 0 && *at == ':';
    name_site(letter, layer, m, site.site, sizeof site.site);
    while (well && !rc) {
        at++;
        int head = read_count(&at);
        well = head > 0;
        if (well) rc = take_head(m, &site, head, removed);
        if (*at != ',') break;
    }
    if (!rc && (!well || at != word + length))
        rc = cli_fail(EXIT_USAGE,
                      "--remove: '%.*s' is no list of heads, expected LAYER:HEAD,HEAD or "
                      "E|A|D:LAYER:HEAD",
                      length, word);
    return rc;
}

int listed_removed(const char *list, const ph_model *m, uint8_t *removed)
{
    int rc;
    const char *at = list + strspn(list, " ");
    do {
        size_t length = strcspn(at, " ");
        rc = take_descriptor(at, (int)length, m, removed);
        at += length;
        at += strspn(at, " ");
    } while (*at && !rc);
    return rc;
}
