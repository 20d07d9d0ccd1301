/*
 * 12_generate.c - many prompts at once: texts of different lengths are decoded side by
 * side, without padding, and each gets the text it gets alone. The model here has trained
 * for a second only, so its texts say little.
 */
#include <polyhead_model.h>
#include <stdio.h>
#include <string.h>

enum { PROMPTS = 3, STEPS = 60 };

static ph_trainer *train(ph_ctx *ctx)
{
    ph_train how;
    ph_trainer *trainer;
    ph_progress progress;
    if (ph_train_defaults(&how, "copy")) return NULL;
    how.steps = STEPS;
    if (ph_trainer_create(&trainer, ctx, &how)) return NULL;
    for (int i = 0; i < STEPS; i++)
        if (ph_trainer_step(trainer, &progress)) return NULL;
    return trainer;
}

int main(void)
{
    static const char *const texts[PROMPTS] = {"abc", "hello", "polyhead"};
    ph_ctx *ctx;
    ph_prompt prompts[PROMPTS] = {0};
    char out[PROMPTS][64], alone[64];
    if (ph_open(&ctx, NULL)) return 1;
    ph_trainer *trainer = train(ctx);
    if (!trainer) return 1;
    ph_model *model = ph_trainer_model(trainer);
    for (int i = 0; i < PROMPTS; i++) {
        prompts[i].text = texts[i];
        prompts[i].out = out[i], prompts[i].size = sizeof out[i];
    }
    const ph_generation how = {.max_tokens = 12, .kv_dtype = PH_BF16};
    if (ph_generate_batch(model, prompts, PROMPTS, &how)) {
        fprintf(stderr, "%s\n", ph_error(ctx));
        return 1;
    }
    for (int i = 0; i < PROMPTS; i++) {
        if (ph_generate(model, texts[i], &how, alone, sizeof alone, NULL)) return 1;
        printf("%s -> %s (%d tokens)%s\n", texts[i], out[i], prompts[i].tokens,
               strcmp(out[i], alone) ? ", alone another text" : "");
        if (strcmp(out[i], alone)) return 1;
    }
    ph_trainer_free(trainer);
    ph_close(ctx);
    return 0;
}
