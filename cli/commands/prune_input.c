/*
 * prune_input.c - see prune_input.h.
 */
#include "commands/prune_input.h"

#include <stdlib.h>
#include <string.h>

enum { HELD_OUT = 5, TRAINING_TEXTS = 16 }; /* one of so many; times as many to learn */

/* label TAB text: the other way round. */
static void swap_pairs(prune_input *p)
{
    for (int i = 0; i < p->in.count; i++) {
        const char *label = p->in.texts[i];
        p->in.texts[i] = p->pairs[i], p->pairs[i] = label;
    }
}

static int open_texts(prune_input *p)
{
    const ph_config *c = ph_model_config(p->in.m);
    int rc = encoder_texts(&p->in, 0, NULL, p->data->data);
    int both = c->arch == PH_ARCH_ENCODER_DECODER;
    if (!rc && (both || c->classes))
        rc = encoder_pairs(&p->in, both ? "source TAB target" : "label TAB text",
                           &p->pairs);
    if (!rc && c->classes) swap_pairs(p);
    if (p->in.count > p->data->texts) p->in.count = (int)p->data->texts;
    return rc;
}

int prune_open(prune_input *p, const char *model, const prune_data *data,
               const ph_machine *machine)
{
    p->data = data;
    if (!data->data == !data->recipe)
        return cli_fail(EXIT_USAGE, "expected --data FILE or --recipe NAME");
    int rc = encoder_open(&p->in, model, machine);
    if (rc || data->data) return rc ? rc : open_texts(p);
    if (ph_train_defaults(&p->train, data->recipe) == PH_OK) return EXIT_OK;
    return cli_fail(EXIT_USAGE, "there is no recipe '%s': 'polyhead train --help'",
                    data->recipe);
}

void prune_close(prune_input *p)
{
    free((void *)p->pairs);
    encoder_close(&p->in);
}

int prune_eval(prune_input *p, ph_model *m, prune_part part, ph_eval **out)
{
    int count = p->in.count, held = count >= 2 * HELD_OUT ? count / HELD_OUT : 0;
    int first = part == PRUNE_TEST && held ? count - held : 0;
    ph_texts texts = {.texts = p->in.texts ? p->in.texts + first : NULL,
                      .pairs = p->pairs ? p->pairs + first : NULL,
                      .count = part == PRUNE_LEARN ? count - held : count - first};
    int samples = (int)p->data->texts;
    if (part == PRUNE_LEARN) samples *= TRAINING_TEXTS;
    ph_status status =
        p->data->data
            ? ph_eval_create(out, m, &texts, (int)p->data->max_tokens)
            : ph_eval_recipe(out, m, &p->train, samples, part == PRUNE_LEARN);
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, p->in.ctx);
}

int prune_method(const char *name, size_t length, ph_worth *method)
{
    char known[256] = "";
    for (int i = 0; i < PH_WORTHS; i++) {
        const char *other = ph_worth_name((ph_worth)i);
        if (strlen(other) == length && !strncmp(other, name, length)) {
            *method = (ph_worth)i;
            return EXIT_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                 i ? ", " : "", other);
    }
    return cli_fail(EXIT_USAGE, "there is no method '%.*s', expected %s",
                    length > 40 ? 40 : (int)length, name, known);
}
