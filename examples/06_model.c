/*
 * 06_model.c - a trained Transformer on one sentence: what every word belongs to, and
 * which answers change when single heads of its encoder are switched off, or all.
 */
#include <polyhead_model.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

static const char text[] = "The robot picked up the block because it was light.";

static void find_links(const ph_reading *r, int links[MOST])
{
    float p[MOST * MOST];
    int n = ph_reading_length(r, 0);
    ph_reading_links(r, p);
    for (int i = 0; i < n; i++) {
        links[i] = 0;
        for (int j = 1; j < n; j++)
            if (p[i * n + j] > p[i * n + links[i]]) links[i] = j;
    }
}

/* The links that are not as before; before NULL: all. */
static void print_links(const ph_reading *r, const int *links, const int *before)
{
    for (int i = 0; i < ph_reading_length(r, 0); i++) {
        const ph_word *from = ph_reading_word(r, 0, i);
        const ph_word *to = ph_reading_word(r, 0, links[i]);
        if (before && links[i] == before[i]) continue;
        printf("  %.*s -> %.*s", from->length, text + from->start, to->length,
               text + to->start);
    }
    puts("");
}

int main(void)
{
    ph_ctx *ctx;
    ph_model *model;
    ph_reading *reading;
    const ph_site *site;
    uint8_t off[MOST] = {0};
    int before[MOST], after[MOST], heads = 0;
    if (ph_open(&ctx, NULL) || ph_model_embedded(&model, ctx) ||
        ph_reading_create(&reading, model, text, NULL))
        return 1;
    find_links(reading, before);
    print_links(reading, before, NULL);
    for (int s = 0; (site = ph_reading_site(reading, s)) != NULL; s++)
        for (int h = 0; site->kind == PH_SITE_SELF && h < site->heads; h++, heads++) {
            off[heads] = PH_HEAD_ZERO;
            if (ph_reading_run(reading, off, 0)) return 1;
            off[heads] = PH_HEAD_ON;
            find_links(reading, after);
            if (!memcmp(before, after,
                        sizeof(int) * (size_t)ph_reading_length(reading, 0)))
                continue;
            printf("without head %d of %s:", h, site->name);
            print_links(reading, after, before);
        }
    memset(off, PH_HEAD_ZERO, (size_t)heads);
    if (ph_reading_run(reading, off, 0)) return 1;
    find_links(reading, after);
    printf("without all %d heads of the encoder:", heads);
    print_links(reading, after, before);
    ph_reading_free(reading);
    ph_model_free(model);
    ph_close(ctx);
    return 0;
}
