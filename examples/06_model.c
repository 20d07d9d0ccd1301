/*
 * 06_model.c - a trained Transformer on one sentence: what every word belongs to, and
 * what becomes of "it" when the head that finds it is switched off.
 */
#include <polyhead_model.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 64, PRONOUN_HEAD = 4 };

static const char text[] = "The animal didn't cross the street because it was too tired.";

static void print_links(const ph_reading *r)
{
    float p[MOST * MOST];
    int n = ph_reading_length(r, 0);
    ph_reading_links(r, p, NULL);
    for (int i = 0; i < n; i++) {
        int best = 0;
        for (int j = 1; j < n; j++)
            if (p[i * n + j] > p[i * n + best]) best = j;
        const ph_word *from = ph_reading_word(r, 0, i), *to = ph_reading_word(r, 0, best);
        printf("%.*s -> %.*s   ", from->length, text + from->start, to->length,
               text + to->start);
    }
    puts("");
}

int main(void)
{
    ph_ctx *ctx;
    ph_model *model;
    ph_reading *reading;
    uint8_t off[MOST * MOST] = {0};
    int heads = 0;
    if (ph_open(&ctx, NULL) || ph_model_embedded(&model, ctx) ||
        ph_reading_create(&reading, model, text, NULL))
        return 1;
    print_links(reading);
    for (int s = 0; ph_reading_site(reading, s);
         s++) { /* the last place holds the links */
        if (ph_reading_site(reading, s)->kind == PH_SITE_LINK)
            off[heads + PRONOUN_HEAD] = 1;
        heads += ph_reading_site(reading, s)->heads;
    }
    if (ph_reading_run(reading, off, 0)) return 1;
    puts("\nwithout the head for pronouns:");
    print_links(reading);
    ph_reading_free(reading);
    ph_model_free(model);
    ph_close(ctx);
    return 0;
}
