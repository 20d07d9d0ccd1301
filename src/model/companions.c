/*
 * companions.c - what a model has beside configuration and parameters, in its own files:
 *
 *     tensor tokenizer   the bytes of the file that its tokenizer was read from:
 *                        tokenizer.json, vocab.txt, tokenizer.bin, or the metadata of a
 *                        GGUF file without its tensors; of several files the
 *                        tokenizer.json that they are joined to
 *     tensor target_tokenizer   the same of what a decoder reads, where it has its own
 *     polyhead.about     marks, names of classes, chat template, prompt of a sentence
 *                        encoder, preprocessing of pictures, options of the tokenizer
 *                        beside its file, as JSON
 *
 * A file of a model that has none of them has neither.
 */
#include "model/companions.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "images/image.h"
#include "io/file.h"
#include "model/model_text.h"
#include "model/store.h"
#include "text/tokenizer.h"

/* ---- keeping the tokenizer --------------------------------------------------------- */

static ph_status keep(ph_ctx *ctx, const void *bytes, size_t size, char **file,
                      size_t *file_size)
{
    *file = ph_ctx_alloc(ctx, size ? size : 1);
    if (!*file)
        return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for a tokenizer of %zu bytes",
                       size);
    if (size) memcpy(*file, bytes, size);
    *file_size = size;
    return PH_OK;
}

/* The file of that name in the folder of the checkpoint; nothing is kept where there is
   none. */
static ph_status keep_file(const ph_model *m, const char *folder, int length,
                           const char *name, char **file, size_t *file_size)
{
    char path[4096], error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_map map;
    int count = snprintf(path, sizeof path, "%.*s%s%s", length, folder,
                         length && folder[length - 1] != '/' ? "/" : "", name);
    if (*file || count < 0 || (size_t)count >= sizeof path || !ph_source_exists(path))
        return PH_OK;
    ph_status status = ph_map_open(&map, path, &io);
    if (status != PH_OK) return ph_fail(m->ctx, status, "%s", error);
    status = keep(m->ctx, map.bytes, map.size, file, file_size);
    ph_map_close(&map);
    return status;
}

static ph_status keep_joined(const ph_model *m, const char *folder, const char *name,
                             char **file, size_t *file_size)
{
    char error[512] = "", *json;
    ph_io io = {.error = error, .error_size = sizeof error};
    size_t length;
    ph_status status = ph_tokens_joined(folder, name, &json, &length, &io);
    if (status != PH_OK) return ph_fail(m->ctx, status, "%s", error);
    if (json) status = keep(m->ctx, json, length, file, file_size);
    ph_io_release(&io, json);
    return status;
}

ph_status ph_companions_keep(ph_model *m, const ph_checkpoint *c)
{
    const char *slash = c->path ? strrchr(c->path, '/') : NULL;
    char **file = &m->tokenizer_file;
    size_t *size = &m->tokenizer_size;
    if (!m->tokenizer || !c->path) return PH_OK;
    if (c->llama2c)
        return keep_file(m, c->path, slash ? (int)(slash - c->path) + 1 : 0,
                         "tokenizer.bin", file, size);
    if (c->kind == PH_CHECKPOINT_GGUF) {
        PH_TRY(keep(m->ctx, c->map.bytes, c->metadata, file, size));
        memset(m->tokenizer_file + 8, 0, 8); /* the number of tensors */
        return PH_OK;
    }
    int length = (int)strlen(c->path);
    PH_TRY(keep_file(m, c->path, length, "tokenizer.json", file, size));
    PH_TRY(keep_file(m, c->path, length, "vocab.txt", file, size));
    if (!*file) PH_TRY(keep_joined(m, c->path, "merges.txt", file, size));
    if (!*file) PH_TRY(keep_joined(m, c->path, "source.spm", file, size));
    if (!m->target_tokenizer) return PH_OK;
    file = &m->target_file, size = &m->target_size;
    PH_TRY(keep_file(m, c->path, length, "target_tokenizer.json", file, size));
    return *file ? PH_OK : keep_joined(m, c->path, "target.spm", file, size);
}

/* ---- writing ----------------------------------------------------------------------- */

/* Whether the marks are those of every vocabulary of ours. */
static int has_our_marks(const ph_marks *marks)
{
    return marks->start == PH_TOKEN_START && marks->padding == PH_TOKEN_PAD &&
           marks->mask < 0 && marks->end_count == 1 && marks->ends[0] == PH_TOKEN_END;
}

int ph_companions_exist(const ph_model *m)
{
    return !has_our_marks(&m->marks) || m->tokenizer_file || m->labels ||
           m->chat_template || m->config.image_size;
}

static void print_suppressed(const ph_model *m, const char *name, int how,
                             ph_json_writer *json)
{
    ph_json_begin_array(json, name);
    for (int v = 0; v < m->config.vocab; v++)
        if (m->suppressed[v] & how) ph_json_integer(json, NULL, v);
    ph_json_end(json);
}

/* What is not there is 0. */
static void print_rules(const ph_model *m, ph_json_writer *json)
{
    const ph_marks *marks = &m->marks;
    if (marks->min_tokens) ph_json_integer(json, "min_tokens", marks->min_tokens);
    if (marks->min_length) ph_json_integer(json, "min_length", marks->min_length);
    if (marks->max_tokens) ph_json_integer(json, "max_tokens", marks->max_tokens);
    if (marks->max_length) ph_json_integer(json, "max_length", marks->max_length);
    if (marks->no_repeat) ph_json_integer(json, "no_repeat", marks->no_repeat);
    if (marks->penalty > 0) ph_json_float(json, "penalty", marks->penalty);
    if (m->ignored) ph_json_string(json, "ignored", m->ignored);
    if (!m->banned_count) return;
    ph_json_begin_array(json, "banned");
    for (int i = 0; i < m->banned_count; i++) ph_json_integer(json, NULL, m->banned[i]);
    ph_json_end(json);
}

static void print_pixels(const ph_preprocess *p, ph_json_writer *json)
{
    ph_json_begin_object(json, "preprocess");
    ph_json_integer(json, "width", p->width);
    ph_json_integer(json, "height", p->height);
    ph_json_integer(json, "shortest", p->shortest);
    ph_json_bool(json, "bicubic", p->bicubic);
    ph_json_bool(json, "crop", p->crop);
    ph_json_float(json, "scale", p->scale);
    ph_json_begin_array(json, "mean");
    for (int i = 0; i < 3; i++) ph_json_float(json, NULL, p->mean[i]);
    ph_json_end(json);
    ph_json_begin_array(json, "std");
    for (int i = 0; i < 3; i++) ph_json_float(json, NULL, p->std[i]);
    ph_json_end(json);
    ph_json_end(json);
}

/* Options of the tokenizer, by their names in polyhead.about. */
static const struct {
    const char *name;
    size_t at;
} token_options[] = {{"lowercase", offsetof(ph_token_options, lowercase)},
                     {"strip_accents", offsetof(ph_token_options, accents)},
                     {"chinese_alone", offsetof(ph_token_options, chinese)},
                     {"prefix_space", offsetof(ph_token_options, prefix_space)},
                     {"trim_offsets", offsetof(ph_token_options, trim_offsets)},
                     {"trim_keeps_one", offsetof(ph_token_options, trim_keeps_one)},
                     {"lowercase_first", offsetof(ph_token_options, lowercase_first)}};

enum { TOKEN_OPTIONS = sizeof token_options / sizeof token_options[0] };

static ph_token_option *option_at(ph_token_options *options, int i)
{
    return (ph_token_option *)((char *)options + token_options[i].at);
}

static void print_options(const ph_tokenizer *t, ph_json_writer *json)
{
    ph_token_options o = ph_tokenizer_options(t);
    ph_json_begin_object(json, "tokenizer");
    for (int i = 0; i < TOKEN_OPTIONS; i++)
        if (*option_at(&o, i))
            ph_json_bool(json, token_options[i].name, *option_at(&o, i) == PH_OPTION_YES);
    ph_json_end(json);
}

static const char *const chat_keys[PH_CHAT_TOKENS] = {"chat_bos", "chat_eos", "chat_pad",
                                                      "chat_unk"};

void ph_companions_print(const ph_model *m, ph_json_writer *json)
{
    const ph_marks *marks = &m->marks;
    ph_json_begin_object(json, NULL);
    ph_json_integer(json, "start", marks->start);
    ph_json_integer(json, "padding", marks->padding);
    ph_json_integer(json, "mask", marks->mask);
    ph_json_begin_array(json, "ends");
    for (int i = 0; i < marks->end_count; i++)
        ph_json_integer(json, NULL, marks->ends[i]);
    ph_json_end(json);
    ph_json_begin_array(json, "forced");
    for (int i = 0; i < marks->forced_count; i++)
        ph_json_integer(json, NULL, marks->forced[i]);
    ph_json_end(json);
    print_rules(m, json);
    if (m->suppressed) {
        print_suppressed(m, "never", PH_NEVER, json);
        print_suppressed(m, "not_first", PH_NOT_FIRST, json);
        if (marks->languages) print_suppressed(m, "languages", PH_LANGUAGE, json);
    }
    if (m->labels) {
        ph_json_begin_array(json, "labels");
        for (int i = 0; i < m->config.classes; i++)
            ph_json_string(json, NULL, ph_model_class(m, i));
        ph_json_end(json);
    }
    if (m->chat_template) ph_json_string(json, "chat_template", m->chat_template);
    for (int i = 0; i < PH_CHAT_TOKENS; i++)
        if (m->chat_tokens[i]) ph_json_string(json, chat_keys[i], m->chat_tokens[i]);
    if (m->prompt) ph_json_string(json, "prompt", m->prompt);
    if (m->truncate_left) ph_json_bool(json, "truncate_left", 1);
    if (m->config.image_size) print_pixels(&m->preprocess, json);
    if (m->tokenizer_file) print_options(m->tokenizer, json);
    ph_json_end(json);
}

/* ---- reading ----------------------------------------------------------------------- */

typedef struct about {
    ph_model *m;
    const ph_values *values;
    ph_token_options *options;
    ph_status status; /* the first error stays */
} about;

/* A whole number from `least` to `most`, which must be there. */
static int whole(about *a, const char *key, int least, int most)
{
    const ph_value *v = ph_values_find(a->values, key);
    int number = v && (v->kind == PH_VALUE_NUMBER || v->kind == PH_VALUE_BOOL);
    if (a->status != PH_OK) return 0;
    if (number && v->number >= least && v->number <= most &&
        v->number == (double)(int)v->number)
        return (int)v->number;
    a->status = ph_fail(a->m->ctx, PH_BAD_FILE,
                        "polyhead.about: %s is missing or no whole number from %d to %d",
                        key, least, most);
    return 0;
}

static float real(about *a, const char *key, int positive)
{
    const ph_value *v = ph_values_find(a->values, key);
    if (a->status != PH_OK) return 0;
    if (v && v->kind == PH_VALUE_NUMBER && (!positive || (float)v->number > 0))
        return (float)v->number;
    a->status =
        ph_fail(a->m->ctx, PH_BAD_FILE, "polyhead.about: %s is missing or no %snumber",
                key, positive ? "positive " : "");
    return 0;
}

static void read_marks(about *a)
{
    ph_marks *marks = &a->m->marks;
    const ph_value *ends = ph_values_find(a->values, "ends");
    int most = ph_max(a->m->config.vocab, PH_TOKEN_FIRST) - 1;
    *marks = (ph_marks){.start = whole(a, "start", -1, most)};
    marks->padding = whole(a, "padding", -1, most);
    marks->mask = whole(a, "mask", -1, most);
    for (size_t i = 0; ends && i < ends->count && i < PH_MARKS_ENDS; i++) {
        char key[16];
        snprintf(key, sizeof key, "ends.%zu", i);
        marks->ends[marks->end_count++] = whole(a, key, 0, most);
    }
}

/* Tokens that every new text begins with; files without the list force none. */
static void read_forced(about *a)
{
    ph_marks *marks = &a->m->marks;
    const ph_value *list = ph_values_find(a->values, "forced");
    for (size_t i = 0; list && i < list->count && i < PH_MARKS_FORCED; i++) {
        char key[16];
        snprintf(key, sizeof key, "forced.%zu", i);
        marks->forced[marks->forced_count++] = whole(a, key, -1, a->m->config.vocab - 1);
    }
}

/* What was left out is 0. */
static void read_limits(about *a)
{
    ph_marks *marks = &a->m->marks;
    const struct {
        const char *key;
        int *value, most;
    } all[] = {{"min_tokens", &marks->min_tokens, 1 << 24},
               {"min_length", &marks->min_length, 1 << 24},
               {"max_tokens", &marks->max_tokens, INT32_MAX},
               {"max_length", &marks->max_length, INT32_MAX},
               {"no_repeat", &marks->no_repeat, 1 << 24}};
    for (int i = 0; i < 5; i++)
        if (ph_values_find(a->values, all[i].key))
            *all[i].value = whole(a, all[i].key, 0, all[i].most);
    if (ph_values_find(a->values, "penalty")) marks->penalty = real(a, "penalty", 1);
}

/* Sequences of tokens, each behind its length. */
static void read_banned(about *a)
{
    const ph_value *list = ph_values_find(a->values, "banned");
    ph_model *m = a->m;
    int left = 0;
    if (a->status != PH_OK || !list || !list->count) return;
    m->banned = ph_ctx_alloc(m->ctx, list->count * sizeof *m->banned);
    if (!m->banned)
        a->status = ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for banned tokens");
    for (size_t i = 0; i < list->count && a->status == PH_OK; i++) {
        char key[32];
        snprintf(key, sizeof key, "banned.%zu", i);
        int rest = (int)(list->count - i) - 1;
        int token = m->config.vocab - 1;
        int number = left ? whole(a, key, 0, token) : whole(a, key, 1, rest);
        left = left ? left - 1 : number;
        m->banned[i] = number;
    }
    if (a->status == PH_OK) m->banned_count = (int)list->count;
}

static void suppress(about *a, const char *name, int how)
{
    const ph_value *list = ph_values_find(a->values, name);
    for (size_t i = 0; list && i < list->count && a->status == PH_OK; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s.%zu", name, i);
        int token = whole(a, key, 0, a->m->config.vocab - 1);
        if (a->status == PH_OK) a->m->suppressed[token] |= (uint8_t)how;
    }
}

static void read_suppressed(about *a)
{
    if (a->status != PH_OK) return;
    if (ph_values_find(a->values, "never")) {
        a->status = ph_marks_suppress(a->m);
        suppress(a, "never", PH_NEVER);
        suppress(a, "not_first", PH_NOT_FIRST);
        suppress(a, "languages", PH_LANGUAGE);
        a->m->marks.languages = ph_values_find(a->values, "languages.0") != NULL;
    }
    if (a->status == PH_OK) a->status = ph_marks_check(a->m);
}

static const ph_value *label(const about *a, int i)
{
    char key[32];
    snprintf(key, sizeof key, "labels.%d", i);
    const ph_value *v = ph_values_find(a->values, key);
    return v && v->kind == PH_VALUE_TEXT ? v : NULL;
}

static void read_labels(about *a)
{
    size_t bytes = 1;
    if (a->status != PH_OK || !ph_values_find(a->values, "labels")) return;
    for (int i = 0; i < a->m->config.classes; i++) {
        if (!label(a, i)) {
            a->status = ph_fail(a->m->ctx, PH_BAD_FILE,
                                "polyhead.about has no name for class %d of %d", i,
                                a->m->config.classes);
            return;
        }
        bytes += strlen(label(a, i)->text) + 1;
    }
    char *to = a->m->labels = ph_ctx_alloc(a->m->ctx, bytes);
    if (!to) {
        a->status =
            ph_fail(a->m->ctx, PH_OUT_OF_MEMORY, "no memory for names of classes");
        return;
    }
    for (int i = 0; i < a->m->config.classes; i++) {
        strcpy(to, label(a, i)->text);
        to += strlen(to) + 1;
    }
}

/* A text that need not be there. */
static void read_text(about *a, const char *key, char **out)
{
    const ph_value *v = ph_values_find(a->values, key);
    if (a->status != PH_OK || !v || v->kind != PH_VALUE_TEXT) return;
    *out = ph_ctx_alloc(a->m->ctx, v->length + 1);
    if (!*out)
        a->status = ph_fail(a->m->ctx, PH_OUT_OF_MEMORY, "no memory for the %s", key);
    else
        memcpy(*out, v->text, v->length + 1);
}

static void read_pixels(about *a)
{
    ph_preprocess *p = &a->m->preprocess;
    if (!a->m->config.image_size) return;
    p->width = whole(a, "preprocess.width", 0, PH_IMAGE_SIDE);
    p->height = whole(a, "preprocess.height", p->width > 0, p->width ? PH_IMAGE_SIDE : 0);
    p->shortest = whole(a, "preprocess.shortest", 0, PH_IMAGE_SIDE);
    p->bicubic = whole(a, "preprocess.bicubic", 0, 1);
    p->crop = whole(a, "preprocess.crop", 0, 1);
    p->scale = real(a, "preprocess.scale", 1);
    for (int i = 0; i < 3; i++) {
        char key[32];
        snprintf(key, sizeof key, "preprocess.mean.%d", i);
        p->mean[i] = real(a, key, 0);
        snprintf(key, sizeof key, "preprocess.std.%d", i);
        p->std[i] = real(a, key, 1);
    }
}

/* Files without them were written before there were any. */
static void read_options(about *a)
{
    for (int i = 0; i < TOKEN_OPTIONS; i++) {
        char key[48];
        snprintf(key, sizeof key, "tokenizer.%s", token_options[i].name);
        if (ph_values_find(a->values, key))
            *option_at(a->options, i) =
                whole(a, key, 0, 1) ? PH_OPTION_YES : PH_OPTION_NO;
    }
}

static ph_status read_about(ph_model *m, const char *text, ph_token_options *options)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_values values = {0};
    about a = {m, &values, options, PH_OK};
    ph_status status =
        ph_values_read(&values, "polyhead.about", "", text, strlen(text), &io);
    if (status == PH_OK) status = ph_values_sort(&values, "polyhead.about", &io);
    if (status != PH_OK) {
        ph_values_free(&values);
        return ph_fail(m->ctx, status, "%s", error);
    }
    read_marks(&a);
    read_forced(&a);
    read_limits(&a);
    read_banned(&a);
    read_text(&a, "ignored", &m->ignored);
    read_suppressed(&a);
    read_labels(&a);
    read_text(&a, "chat_template", &m->chat_template);
    for (int i = 0; i < PH_CHAT_TOKENS; i++)
        read_text(&a, chat_keys[i], &m->chat_tokens[i]);
    read_text(&a, "prompt", &m->prompt);
    if (ph_values_find(&values, "truncate_left"))
        m->truncate_left = whole(&a, "truncate_left", 0, 1);
    read_pixels(&a);
    read_options(&a);
    ph_values_free(&values);
    return a.status;
}

static ph_status read_tokenizer(const ph_model *m, const ph_tensor *t,
                                const ph_token_options *options, ph_tokenizer **tokenizer,
                                char **file, size_t *size)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    if (t->type != PH_U8)
        return ph_fail(m->ctx, PH_BAD_FILE, "tensor %s is %s, expected U8", t->name,
                       ph_dtype_name(t->type));
    PH_TRY(keep(m->ctx, t->data, t->bytes, file, size));
    ph_status status = ph_tokens_parse(tokenizer, t->name, *file, t->bytes, options, &io);
    return status == PH_OK ? PH_OK : ph_fail(m->ctx, status, "%s", error);
}

ph_status ph_companions_read(ph_model *m, const ph_file *file)
{
    const char *text = ph_store_pair(file, "polyhead.about");
    const ph_tensor *tokenizer = ph_file_find(file, "tokenizer");
    const ph_tensor *target = ph_file_find(file, "target_tokenizer");
    ph_token_options options = {0};
    if (text) PH_TRY(read_about(m, text, &options));
    if (target)
        PH_TRY(read_tokenizer(m, target, NULL, &m->target_tokenizer, &m->target_file,
                              &m->target_size));
    return tokenizer ? read_tokenizer(m, tokenizer, &options, &m->tokenizer,
                                      &m->tokenizer_file, &m->tokenizer_size)
                     : PH_OK;
}
