/*
 * app_model.c - a program of somebody who has installed Polyhead and uses its models, in
 * the part of C that is C++ too: the built-in model says which word "it" belongs to.
 * Exit status 0 and the version on stdout if all is well; else a sentence on stderr.
 */
#include <stdio.h>

#include <polyhead_model.h>

int main(void)
{
    ph_ctx *ctx = NULL;
    ph_model *model = NULL;
    ph_reading *reading = NULL;
    ph_status status = ph_open(&ctx, NULL);
    if (!status) status = ph_model_embedded(&model, ctx);
    if (!status)
        status =
            ph_reading_create(&reading, model, "the cat ate because it was hungry", NULL);
    if (status) fprintf(stderr, "%s\n", ctx ? ph_error(ctx) : ph_status_text(status));
    int words = status ? 0 : ph_reading_length(reading, 0);
    ph_reading_free(reading);
    ph_model_free(model);
    ph_close(ctx);
    if (words != 7) {
        fprintf(stderr, "%d words, expected 7\n", words);
        return 1;
    }
    printf("%s\n", ph_version());
    return 0;
}
