/*
 * classes.c - the recipe "classes": lines "label TAB text"; an encoder, or a decoder with
 * a classifier, learns to give a text its label. One text in ten is held out, at least
 * one.
 *
 * A model that training goes on from keeps its classifier where it knows every label of
 * the file, by name or by number; otherwise it gets a new one. Where a model is
 * multi_label, a text has any number of labels, with commas between.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/corpus.h"

enum { TEXTS_LEAST = 20, CLASSES_MOST = 4096 };

#define EXPECTED "label TAB text"

/* An encoder gets a classifier where it has none; a decoder has one in place of its
   output head. */
static int reads_texts(const ph_config *c)
{
    int decoder = c->arch == PH_ARCH_DECODER && c->classes && c->pooling;
    return !c->image_size && (c->arch == PH_ARCH_ENCODER || decoder);
}

static ph_status open(ph_data *data)
{
    if (data->origin && !reads_texts(&data->origin->config))
        return ph_fail(data->ctx, PH_UNSUPPORTED,
                       "recipe classes needs an encoder of texts, or a decoder with a "
                       "classifier of texts, and this model is another");
    const ph_config *config = data->origin ? &data->origin->config : &data->train->config;
    data->multi_label = config->problem_type == PH_MULTI_LABEL;
    data->source_len = ph_data_length(data);
    data->per_text = 1;
    PH_TRY(ph_corpus_open(data));
    const ph_corpus *c = data->own;
    if (memchr(c->bytes, 0, c->size))
        return ph_fail(data->ctx, PH_BAD_FILE, "%s has a NUL byte, expected text",
                       data->train->file);
    ph_corpus_strip_cr(data->own);
    return data->origin ? PH_OK : ph_corpus_find_chars(data, "\t\n");
}

/* ---- labels ------------------------------------------------------------------------ */

typedef struct label {
    const char *text;
    size_t length;
} label;

typedef struct label_list {
    label names[CLASSES_MOST];
    int count;
} label_list;

static int find_label(const label_list *list, label name)
{
    for (int i = 0; i < list->count; i++)
        if (list->names[i].length == name.length &&
            !memcmp(list->names[i].text, name.text, name.length))
            return i;
    return -1;
}

static int compare_names(const void *a, const void *b)
{
    const label *x = a, *y = b;
    size_t least = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->text, y->text, least);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* The next label of a field: all of it, or what stands between two commas, without blanks
   around it, where a text may have several. 0: there is none. */
static int next_label(const ph_data *data, label *rest, label *out)
{
    while (rest->length) {
        const char *comma =
            data->multi_label ? memchr(rest->text, ',', rest->length) : NULL;
        *out = (label){rest->text, comma ? (size_t)(comma - rest->text) : rest->length};
        size_t taken = out->length + (comma != NULL);
        rest->text += taken, rest->length -= taken;
        if (!data->multi_label) return 1;
        while (out->length && *out->text == ' ') out->text++, out->length--;
        while (out->length && out->text[out->length - 1] == ' ') out->length--;
        if (out->length) return 1;
    }
    return 0;
}

static ph_status add_label(const ph_data *data, label name, label_list *list)
{
    if (find_label(list, name) >= 0) return PH_OK;
    if (list->count == CLASSES_MOST)
        return ph_fail(data->ctx, PH_BAD_FILE, "%s has more than %d different labels",
                       data->train->file, CLASSES_MOST);
    list->names[list->count++] = name;
    return PH_OK;
}

/* Different labels of all lines, sorted, and how many there are of all texts together.
   Each TAB becomes the NUL behind a field of labels. */
static ph_status list_labels(const ph_data *data, label_list *list, size_t *all)
{
    ph_corpus *c = data->own;
    for (ph_line line = {0}; ph_corpus_line(c, &line);) {
        size_t tab = 0;
        PH_TRY(ph_corpus_tab(data, &line, EXPECTED, &tab));
        if (tab == line.at && !data->multi_label)
            return ph_corpus_bad_line(data, line.number,
                                      "the label is empty, expected " EXPECTED);
        c->bytes[tab] = 0;
        label rest = {c->bytes + line.at, tab - line.at}, name;
        for (; next_label(data, &rest, &name); ++*all)
            PH_TRY(add_label(data, name, list));
    }
    qsort(list->names, (size_t)list->count, sizeof list->names[0], compare_names);
    return PH_OK;
}

/* The model's own labels, with numbers for those without a name. */
static void list_origin(const ph_data *data, label_list *list, char *numbers)
{
    const char *name = data->origin->labels;
    for (int i = 0; i < data->origin->config.classes; i++) {
        char *number = numbers + (size_t)i * 16;
        snprintf(number, 16, "%d", i);
        const char *text = name && *name ? name : number;
        list->names[list->count++] = (label){text, strlen(text)};
        if (name) name += strlen(name) + 1;
    }
}

static ph_status keep_labels(ph_data *data, const label_list *list)
{
    size_t bytes = 1;
    for (int i = 0; i < list->count; i++) bytes += list->names[i].length + 1;
    char *to = data->labels = malloc(bytes);
    if (!to) return ph_corpus_no_memory(data);
    for (int i = 0; i < list->count; i++) {
        memcpy(to, list->names[i].text, list->names[i].length);
        to += list->names[i].length;
        *to++ = 0;
    }
    data->classes = list->count;
    return PH_OK;
}

/* Those of the model if the file has no other; labels of the texts are indices of it. */
static ph_status choose_labels(ph_data *data, label_list *file, label_list *origin,
                               char *numbers, size_t *all)
{
    PH_TRY(list_labels(data, file, all));
    if (file->count < (data->multi_label ? 1 : 2))
        return ph_fail(data->ctx, PH_BAD_FILE, "%s has %d label%s, expected at least %s",
                       data->train->file, file->count, file->count == 1 ? "" : "s",
                       data->multi_label ? "one" : "two different ones");
    if (data->origin && data->origin->config.classes <= CLASSES_MOST)
        list_origin(data, origin, numbers);
    int known = 1;
    for (int i = 0; i < file->count; i++)
        known &= find_label(origin, file->names[i]) >= 0;
    if (known) *file = *origin;
    return keep_labels(data, file);
}

/* ---- texts ------------------------------------------------------------------------- */

static ph_status add_texts(ph_data *data, const label_list *list, ph_origin_encoder *e)
{
    ph_corpus *c = data->own;
    for (ph_line line = {0}; ph_corpus_line(c, &line);) {
        label rest = {c->bytes + line.at, strlen(c->bytes + line.at)}, name;
        size_t at = line.at + rest.length + 1, first = c->count;
        size_t labels = c->label_start[c->texts];
        if (e)
            PH_TRY(ph_origin_tokenize(e, at, line.end, 1, (size_t)data->source_len));
        else
            ph_corpus_tokenize(data, at, line.end);
        if (c->count - first > (size_t)data->source_len)
            c->count = first + (size_t)data->source_len;
        if (at == line.end || c->count == first)
            return ph_corpus_bad_line(data, line.number,
                                      "the text is empty, expected " EXPECTED);
        while (next_label(data, &rest, &name))
            c->labels[labels++] = find_label(list, name);
        c->start[++c->texts] = c->count;
        c->label_start[c->texts] = labels;
    }
    return PH_OK;
}

static ph_status hold_out(ph_data *data)
{
    ph_corpus *c = data->own;
    uint64_t *keys = malloc((c->texts + 1) * sizeof *keys);
    if (!keys) return ph_corpus_no_memory(data);
    for (size_t i = 0; i < c->texts; i++) keys[i] = ph_corpus_key(c, i);
    ph_status status = ph_corpus_hold_out(c, c->texts, keys);
    free(keys);
    if (c->texts >= TEXTS_LEAST && status == PH_OK) return PH_OK;
    return ph_fail(data->ctx, PH_BAD_FILE,
                   "%s has %zu text%s%s, expected at least %d different ones",
                   data->train->file, c->texts, c->texts == 1 ? "" : "s",
                   status == PH_OK ? "" : ", all the same", TEXTS_LEAST);
}

static ph_status read_texts(ph_data *data, const label_list *labels, size_t all)
{
    ph_origin_encoder e = {0};
    ph_corpus *c = data->own;
    size_t lines = ph_corpus_lines(c);
    PH_TRY(ph_corpus_reserve(data, lines));
    c->labels = malloc((all + 1) * sizeof *c->labels);
    c->label_start = calloc(lines + 1, sizeof *c->label_start);
    if (!c->labels || !c->label_start) return ph_corpus_no_memory(data);
    ph_status status = data->origin ? ph_origin_begin(&e, data) : PH_OK;
    if (status == PH_OK) status = add_texts(data, labels, data->origin ? &e : NULL);
    ph_origin_end(&e);
    return status == PH_OK ? hold_out(data) : status;
}

static ph_status ready(ph_data *data)
{
    label_list *lists = calloc(2, sizeof *lists);
    char *numbers = malloc(CLASSES_MOST * 16);
    size_t all = 0;
    ph_status status = lists && numbers
                           ? choose_labels(data, &lists[0], &lists[1], numbers, &all)
                           : ph_corpus_no_memory(data);
    if (status == PH_OK) status = read_texts(data, &lists[0], all);
    free(lists);
    free(numbers);
    return status;
}

static void sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    const ph_corpus *c = data->own;
    size_t first = test ? c->held : 0, end = test ? c->texts : c->held;
    size_t text = c->order[first + ph_rng_key(key, 0, 0, 0) % (end - first)];
    out->length = (int32_t)(c->start[text + 1] - c->start[text]);
    memcpy(out->source, c->tokens + c->start[text],
           (size_t)out->length * sizeof(int32_t));
    const int32_t *labels = c->labels + c->label_start[text];
    out->labels[0] = data->multi_label ? 0 : labels[0];
    for (int i = 0; data->multi_label && i < data->classes; i++) out->wanted[i] = 0;
    for (size_t i = c->label_start[text];
         data->multi_label && i < c->label_start[text + 1]; i++)
        out->wanted[c->labels[i]] = 1;
}

static void defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_ENCODER,
                            .layers = 2,
                            .model_dim = 128,
                            .heads = 4,
                            .max_len = 256,
                            .pooling = PH_POOL_MEAN,
                            .dropout = 0.1f};
    t->steps = 1000, t->batch = 32;
    t->lr = 1e-3f, t->warmup = 100;
}

const ph_recipe ph_recipe_classes = {.name = "classes",
                                     .help = "an encoder that learns the labels of your "
                                             "own lines: label TAB text",
                                     .needs_file = 1,
                                     .defaults = defaults,
                                     .open = open,
                                     .ready = ready,
                                     .close = ph_corpus_close,
                                     .sample = sample};
