/*
 * recipes.c - the list of recipes and what they share; the recipe "copy".
 */
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "recipes/recipes.h"

static const ph_recipe *const recipes[] = {
    &ph_recipe_copy,  &ph_recipe_dates,   &ph_recipe_pronouns, &ph_recipe_text,
    &ph_recipe_pairs, &ph_recipe_classes, &ph_recipe_shapes};

enum { RECIPES = sizeof recipes / sizeof recipes[0] };

const char *ph_recipe_name(int i)
{
    return i >= 0 && i < RECIPES ? recipes[i]->name : NULL;
}

const char *ph_recipe_help(int i)
{
    return i >= 0 && i < RECIPES ? recipes[i]->help : NULL;
}

const ph_recipe *ph_recipe_find(const char *name)
{
    for (int i = 0; i < RECIPES; i++)
        if (!strcmp(name, recipes[i]->name)) return recipes[i];
    return NULL;
}

ph_status ph_train_defaults(ph_train *train, const char *name)
{
    const ph_recipe *recipe = name ? ph_recipe_find(name) : NULL;
    if (!train || !name) return PH_BAD_ARGUMENT;
    if (!recipe) return PH_UNSUPPORTED;
    *train = (ph_train){
        .accumulate = 1,
        .weight_decay = 0.01f,
        .max_grad_norm = 1.0f,
        .balance = 0.01f,
        .seed = 1,
        .pace = {
            .checkpoint_every = 500, .keep = 3, .log_every = 10, .test_texts = 1000}};
    strcpy(train->recipe, recipe->name);
    recipe->defaults(train);
    return PH_OK;
}

/* ---- data -------------------------------------------------------------------------- */

ph_status ph_data_token(ph_data *data, const char *text)
{
    size_t count = (size_t)data->token_count, length = strlen(text) + 1;
    for (size_t i = 0; i < count; i++)
        if (data->tokens[i][0] == text[0] && !strcmp(data->tokens[i], text)) return PH_OK;
    if ((count & (count - 1)) == 0) { /* full at every power of two */
        void *more =
            realloc((void *)data->tokens, (count ? 2 * count : 1) * sizeof *data->tokens);
        if (!more) return ph_fail(data->ctx, PH_OUT_OF_MEMORY, "no memory for tokens");
        data->tokens = more;
    }
    char *copy = malloc(length);
    if (!copy) return ph_fail(data->ctx, PH_OUT_OF_MEMORY, "no memory for tokens");
    data->tokens[data->token_count++] = memcpy(copy, text, length);
    return PH_OK;
}

ph_status ph_data_open(ph_data *data, ph_ctx *ctx, const ph_recipe *recipe,
                       const ph_train *train, const ph_origin *origin)
{
    *data = (ph_data){.ctx = ctx, .train = train, .origin = origin};
    if (origin && !recipe->needs_file)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "recipe %s makes a model of its own, expected text, classes or "
                       "pairs to go on from one",
                       recipe->name);
    if (recipe->needs_file && !train->file[0])
        return ph_fail(ctx, PH_BAD_ARGUMENT, "recipe %s needs a file", recipe->name);
    if (!recipe->needs_file && train->file[0])
        return ph_fail(ctx, PH_BAD_ARGUMENT, "recipe %s takes no file, found '%s'",
                       recipe->name, train->file);
    ph_status status = recipe->open(data);
    if (status == PH_OK && !origin && !data->pixels)
        status = ph_vocab_create(&data->vocab, ctx, data->split, data->tokens,
                                 data->token_count);
    if (status == PH_OK && recipe->ready) status = recipe->ready(data);
    if (status != PH_OK) ph_data_close(data, recipe);
    return status;
}

int ph_data_length(const ph_data *data)
{
    return data->train->length ? data->train->length : data->train->config.max_len;
}

void ph_data_close(ph_data *data, const ph_recipe *recipe)
{
    if (!data->ctx) return;
    if (recipe->close) recipe->close(data);
    for (int i = 0; i < data->token_count; i++) free((void *)data->tokens[i]);
    free((void *)data->tokens);
    free(data->labels);
    ph_vocab_free(&data->vocab, data->ctx);
    *data = (ph_data){0};
}

void ph_sample_pair(const ph_data *data, const int32_t *from, int from_count,
                    const int32_t *to, int to_count, ph_sample *out)
{
    const ph_origin *origin = data->origin;
    int start = origin ? origin->start : PH_TOKEN_START,
        end = origin ? origin->end : PH_TOKEN_END;
    for (int i = 0; i < data->source_len; i++)
        out->source[i] = i < from_count ? from[i] : PH_TOKEN_PAD;
    for (int i = 0; i < data->target_len; i++) {
        out->target[i] = i == 0 ? start : i <= to_count ? to[i - 1] : PH_TOKEN_PAD;
        out->labels[i] = i < to_count ? to[i] : i == to_count ? end : -1;
    }
    out->length = from_count;
    out->target_length = to_count + 1;
}

/* ---- copy -------------------------------------------------------------------------- */

enum { COPY_LEAST = 4, COPY_MOST = 12, COPY_LETTERS = 26, COPY_SHARE = 10 };

static ph_status copy_open(ph_data *data)
{
    data->split = PH_SPLIT_CHARS;
    data->source_len = COPY_MOST;
    data->target_len = COPY_MOST + 1;
    for (char letter[2] = "a"; letter[0] <= 'z'; letter[0]++)
        PH_TRY(ph_data_token(data, letter));
    return PH_OK;
}

static void copy_sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    int32_t letters[COPY_MOST];
    int count;
    for (uint32_t attempt = 0;; attempt++) {
        ph_draw d = {ph_rng_key(key, attempt, 0, 0), 0};
        uint64_t mixed = 0;
        count = COPY_LEAST + ph_draw_below(&d, COPY_MOST - COPY_LEAST + 1);
        for (int i = 0; i < count; i++) {
            letters[i] = PH_TOKEN_FIRST + ph_draw_below(&d, COPY_LETTERS);
            mixed = ph_rng_mix(mixed + (uint64_t)letters[i]);
        }
        if ((mixed % COPY_SHARE == 0) == (test != 0)) break;
    }
    ph_sample_pair(data, letters, count, letters, count, out);
}

static void copy_defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_ENCODER_DECODER,
                            .layers = 2,
                            .model_dim = 64,
                            .heads = 4,
                            .max_len = 32,
                            .ff_dim = 128};
    t->steps = 1500, t->batch = 64;
    t->lr = 3e-3f, t->warmup = 100;
}

const ph_recipe ph_recipe_copy = {
    .name = "copy",
    .help = "an encoder-decoder that repeats letters, the classic first exercise",
    .defaults = copy_defaults,
    .open = copy_open,
    .sample = copy_sample};
