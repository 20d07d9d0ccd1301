/*
 * nulls.h - checks of calls with NULL, for test_nulls.c and test_nulls_model.c
 */
#ifndef NULLS_H
#define NULLS_H

#include "check.h"
#include "polyhead_io.h"

static char said[200];
static const ph_io io = {.error = said, .error_size = sizeof said};
static ph_ctx *ctx;
static float numbers[4096];
static int whole;

#define REFUSED(call)                                                                    \
    CHECK((call) == PH_BAD_ARGUMENT, "%s is not refused as a bad argument", #call)

/* A function with a ph_io. */
#define SAID(call)                                                                       \
    do {                                                                                 \
        said[0] = 0;                                                                     \
        REFUSED(call);                                                                   \
        CHECK(strstr(said, "NULL"), "%s says \"%s\"", #call, said);                      \
    } while (0)

/* A function with a ctx, or a handle that has one; its last sentence is another one. */
#define TOLD(call)                                                                       \
    do {                                                                                 \
        ph_variant_heads(ctx, &(ph_attn){.variant = "gqa:0"});                           \
        REFUSED(call);                                                                   \
        CHECK(strstr(ph_error(ctx), "NULL"), "%s says \"%s\"", #call, ph_error(ctx));    \
    } while (0)

/* A creator, which leaves NULL in its handle: SAID, TOLD or REFUSED. */
#define CREATES(type, HOW, call)                                                         \
    do {                                                                                 \
        type *made = (type *)said, **out = &made;                                        \
        HOW(call);                                                                       \
        CHECK(!made, "%s left its handle as it was", #call);                             \
    } while (0)

/* A function without a status. */
#define ANSWERS(condition) CHECK(condition, "not so: %s", #condition)

/* A function that prints, without what it prints or where to. */
#define PRINTS(call_of_nothing, call_to_nowhere)                                         \
    do {                                                                                 \
        char text[8] = "left";                                                           \
        ANSWERS((call_of_nothing) == 0 && !text[0]);                                     \
        ANSWERS((call_to_nowhere) > 0);                                                  \
    } while (0)

#endif
