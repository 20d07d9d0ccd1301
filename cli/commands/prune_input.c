/*
 * prune_input.c - see prune_input.h.
 */
#include "commands/prune_input.h"

#include <stdlib.h>
#include <string.h>

enum { HELD_OUT = 5, TRAINING_TEXTS = 16 }; /* one of so many; times as many to learn */

int prune_texts(const ph_model *m, encoder_input *in, const char *file,
                const char ***pairs)
{
    const ph_config *c = ph_model_config(m);
    int rc = encoder_texts(in, 0, NULL, file, ENCODER_NO_BLANKS);
    if (!rc && c->arch == PH_ARCH_ENCODER_DECODER)
        rc = encoder_pairs(in, "source TAB target", pairs);
    if (!rc && c->classes) rc = encoder_labels(in, pairs);
    return rc;
}

static int open_texts(prune_input *p, encoder_input *in, const char *file,
                      const char ***pairs)
{
    int rc = prune_texts(p->in.m, in, file, pairs);
    if (in->count > p->data->texts) in->count = (int)p->data->texts;
    return rc;
}

int prune_open(prune_input *p, const char *model, const prune_data *data, int needed,
               const ph_machine *machine)
{
    p->data = data;
    if (data->data ? data->recipe != NULL : needed && !data->recipe)
        return cli_fail(EXIT_USAGE, "expected --data FILE or --recipe NAME");
    const cli_idle idle[] = {
        {data->test && !data->data, "--test needs --data FILE"},
        {data->has_max_tokens && !data->data, "--max-tokens needs --data FILE"},
        {0, NULL}};
    int rc = cli_refuse_idle(idle);
    if (!rc && data->recipe && ph_train_defaults(&p->train, data->recipe) != PH_OK)
        rc = cli_fail(EXIT_USAGE, "there is no recipe '%s': 'polyhead train --help'",
                      data->recipe);
    return rc ? rc : encoder_open(&p->in, model, machine);
}

int prune_read(prune_input *p)
{
    const prune_data *data = p->data;
    int rc = EXIT_OK;
    if (data->data) rc = open_texts(p, &p->in, data->data, &p->pairs);
    if (!rc && data->test) rc = open_texts(p, &p->held, data->test, &p->held_pairs);
    return rc;
}

void prune_close(prune_input *p)
{
    free((void *)p->pairs);
    free((void *)p->held_pairs);
    encoder_close(&p->held);
    encoder_close(&p->in);
}

/* The texts of a file that a part has. */
static ph_texts texts_of(const prune_input *p, prune_part part)
{
    const encoder_input *in = &p->in;
    int other = p->held.count > 0, held = other ? 0 : in->count / HELD_OUT;
    if (in->count < 2 * HELD_OUT) held = 0; /* few texts: all are for both */
    if (part == PRUNE_TEST && other)
        return (ph_texts){
            .texts = p->held.texts, .pairs = p->held_pairs, .count = p->held.count};
    int first = part == PRUNE_TEST && held ? in->count - held : 0;
    return (ph_texts){.texts = in->texts + first,
                      .pairs = p->pairs ? p->pairs + first : NULL,
                      .count = in->count - (part == PRUNE_TEST  ? first
                                            : part == PRUNE_ALL ? 0
                                                                : held)};
}

int prune_eval(prune_input *p, ph_model *m, prune_part part, ph_eval **out)
{
    int samples = (int)p->data->texts;
    ph_status status;
    if (part == PRUNE_LEARN) samples *= TRAINING_TEXTS;
    if (p->data->data) {
        ph_texts texts = texts_of(p, part);
        status = ph_eval_create(out, m, &texts, (int)p->data->max_tokens);
    } else {
        status = ph_eval_recipe(out, m, &p->train, samples,
                                part == PRUNE_SCORE || part == PRUNE_LEARN);
    }
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, p->in.ctx);
}

int prune_layer(const ph_head_place *place, const char **stack)
{
    int layer = 0;
    sscanf(place->site, "%*[^.].%d", &layer);
    *stack = strstr(place->site, ".cross")   ? "cross"
             : place->site[0] == 'd' ? "decoder"
                                             : "encoder";
    return layer + 1;
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
