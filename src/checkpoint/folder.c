/*
 * folder.c - a Hugging Face folder.
 *
 *     config.json                        what the model is
 *     model.safetensors                  its tensors, or
 *     model.safetensors.index.json       {"weight_map": {tensor: file}} for several files
 *     generation_config.json, tokenizer_config.json, chat_template.jinja,
 *     modules.json, sentence_bert_config.json, config_sentence_transformers.json,
 *     preprocessor_config.json           optional
 *     1_Pooling/config.json, 2_Dense/config.json, 2_Dense/model.safetensors
 *                                        or as modules.json names these folders
 *
 * Pickles are refused: reading one can run code.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "io/file.h"

enum { PATH = 4096 };

typedef struct folder {
    ph_checkpoint *c;
    const char *path;
    const ph_io *io;
} folder;

static ph_status path_of(const folder *f, const char *name, char *out)
{
    size_t used = strlen(f->path);
    const char *slash = used && f->path[used - 1] == '/' ? "" : "/";
    int count = snprintf(out, PATH, "%s%s%s", f->path, slash, name);
    if (count > 0 && count < PATH) return PH_OK;
    return ph_io_fail(f->io, PH_IO_ERROR, "the path %.200s... is too long", f->path);
}

static int exists(const folder *f, const char *name)
{
    char path[PATH];
    ph_io silent = {0};
    folder quiet = {f->c, f->path, &silent};
    return path_of(&quiet, name, path) == PH_OK && ph_source_exists(path);
}

/* As sentence-transformers looks for them: one for each model that it began with. */
const char *const ph_sentence_files[] = {
    "sentence_bert_config.json",       "sentence_roberta_config.json",
    "sentence_distilbert_config.json", "sentence_camembert_config.json",
    "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",      NULL};

/* ---- configuration ----------------------------------------------------------------- */

/* Every document is an object, and modules.json a list. */
static ph_status read_values(const folder *f, const char *name, const char *prefix)
{
    char path[PATH];
    ph_map map;
    size_t first = f->c->values.count;
    ph_value_kind kind = strcmp(prefix, "modules.") ? PH_VALUE_OBJECT : PH_VALUE_LIST;
    PH_TRY(path_of(f, name, path));
    PH_TRY(ph_map_open(&map, path, f->io));
    ph_status status = ph_values_read(&f->c->values, path, prefix,
                                      (const char *)map.bytes, map.size, f->io);
    ph_map_close(&map);
    if (status != PH_OK) return status;
    return ph_values_check_root(&f->c->values, first, kind, path, f->io);
}

/* A whole file as one text, under its own name. */
static ph_status read_text(const folder *f, const char *name)
{
    char path[PATH];
    ph_map map;
    PH_TRY(path_of(f, name, path));
    PH_TRY(ph_map_open(&map, path, f->io));
    ph_value text = {.key = name, .kind = PH_VALUE_TEXT};
    text.text = (const char *)map.bytes, text.length = map.size;
    ph_status status =
        map.size > PH_VALUES_JSON
            ? ph_io_fail(f->io, PH_BAD_FILE, "%.200s has %zu bytes, expected at most %d",
                         path, map.size, PH_VALUES_JSON)
            : ph_values_add(&f->c->values, &text, f->io);
    ph_map_close(&map);
    return status;
}

/* ---- modules of sentence-transformers ---------------------------------------------- */

/* The name of a folder beside modules.json, and of no other one. */
static ph_status take_path(const folder *f, const char *key, char path[PH_MODULE_PATH])
{
    const ph_value *v = ph_values_find(&f->c->values, key);
    int text = v && v->kind == PH_VALUE_TEXT;
    if (!text || !v->length || v->length >= PH_MODULE_PATH || strchr(v->text, '/') ||
        v->text[0] == '.')
        return ph_io_fail(f->io, PH_BAD_FILE,
                          "%s is %s, expected the name of a folder beside modules.json",
                          key, v ? ph_value_show(v).text : "missing");
    strcpy(path, v->text);
    return PH_OK;
}

/* The folder of the first module of a class; "": there is none. */
static ph_status find_module(const folder *f, const char *class,
                             char path[PH_MODULE_PATH])
{
    const ph_value *list = ph_values_find(&f->c->values, "modules.");
    path[0] = 0;
    for (size_t i = 0; list && i < list->count; i++) {
        char key[48];
        snprintf(key, sizeof key, "modules.%zu.type", i);
        const ph_value *type = ph_values_find(&f->c->values, key);
        if (!type || type->kind != PH_VALUE_TEXT) continue;
        const char *dot = strrchr(type->text, '.');
        if (strcmp(dot ? dot + 1 : type->text, class)) continue;
        snprintf(key, sizeof key, "modules.%zu.path", i);
        return take_path(f, key, path);
    }
    return PH_OK;
}

static ph_status read_module(const folder *f, const char *class, const char *prefix,
                             char path[PH_MODULE_PATH])
{
    char name[PH_MODULE_PATH + 16];
    PH_TRY(find_module(f, class, path));
    snprintf(name, sizeof name, "%s/config.json", path);
    return path[0] && exists(f, name) ? read_values(f, name, prefix) : PH_OK;
}

static ph_status read_config(const folder *f)
{
    static const struct {
        const char *name, *prefix;
    } optional[] = {{"generation_config.json", "generation."},
                    {"modules.json", "modules."},
                    {"config_sentence_transformers.json", "sentence_transformers."},
                    {"preprocessor_config.json", "preprocessor."},
                    {"tokenizer_config.json", "tokenizer_config."}};
    PH_TRY(read_values(f, "config.json", ""));
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        if (exists(f, optional[i].name))
            PH_TRY(read_values(f, optional[i].name, optional[i].prefix));
    for (int i = 0; ph_sentence_files[i]; i++) {
        if (!exists(f, ph_sentence_files[i])) continue;
        PH_TRY(read_values(f, ph_sentence_files[i], "sentence."));
        break;
    }
    if (exists(f, "chat_template.jinja")) PH_TRY(read_text(f, "chat_template.jinja"));
    PH_TRY(ph_values_sort(&f->c->values, f->path, f->io));
    PH_TRY(read_module(f, "Pooling", "pooling.", f->c->pooling));
    PH_TRY(read_module(f, "Dense", "dense.", f->c->dense));
    PH_TRY(ph_values_sort(&f->c->values, f->path, f->io));
    const ph_value *q = ph_values_find(&f->c->values, "quantization_config");
    if (!q || q->kind == PH_VALUE_NULL) return PH_OK;
    q = ph_values_find(&f->c->values, "quantization_config.quant_method");
    return ph_io_fail(f->io, PH_UNSUPPORTED,
                      "%.200s: quantization_config %s, expected weights in F32, F16 or "
                      "BF16",
                      f->path,
                      q && q->kind == PH_VALUE_TEXT ? ph_io_quote(q->text, q->length).text
                                                    : "is set");
}

/* ---- tensors ----------------------------------------------------------------------- */

/* Older files call gain and shift of a norm LayerNorm.gamma and LayerNorm.beta. */
static ph_status rename_old(ph_checkpoint *c, ph_tensor *t, const ph_io *io)
{
    static const char *const old[] = {"LayerNorm.gamma", "LayerNorm.beta"};
    static const char *const now[] = {"LayerNorm.weight", "LayerNorm.bias"};
    size_t length = strlen(t->name);
    for (int i = 0; i < 2; i++) {
        size_t tail = strlen(old[i]);
        if (length < tail || strcmp(t->name + length - tail, old[i])) continue;
        char *name;
        PH_TRY(ph_checkpoint_keep(c, length + 8, (void **)&name, io));
        memcpy(name, t->name, length - tail);
        strcpy(name + length - tail, now[i]);
        t->name = name;
        break;
    }
    return PH_OK;
}

/* Tensors of a module have its name before theirs. */
static ph_status add_prefix(ph_checkpoint *c, ph_tensor *t, const char *prefix,
                            const ph_io *io)
{
    char *name;
    if (!prefix[0]) return rename_old(c, t, io);
    size_t length = strlen(prefix) + strlen(t->name) + 1;
    PH_TRY(ph_checkpoint_keep(c, length, (void **)&name, io));
    snprintf(name, length, "%s%s", prefix, t->name);
    t->name = name;
    return PH_OK;
}

static ph_status open_file(const folder *f, const char *name, const char *prefix)
{
    ph_checkpoint *c = f->c;
    char path[PATH];
    const ph_tensor *t;
    PH_TRY(path_of(f, name, path));
    PH_TRY(ph_file_map(&c->files[c->file_count], path, f->io));
    ph_file *file = c->files[c->file_count++];
    for (size_t i = 0; (t = ph_file_tensor(file, i)); i++) {
        ph_stored s = {.tensor = *t};
        PH_TRY(add_prefix(c, &s.tensor, prefix, f->io));
        PH_TRY(ph_checkpoint_add(c, &s, f->io));
    }
    return PH_OK;
}

/* So many of the model, and one of a module. */
static ph_status make_files(const folder *f, size_t count)
{
    size_t bytes = (count + 1) * sizeof *f->c->files;
    f->c->files = ph_io_alloc(&f->c->io, bytes);
    if (!f->c->files) return ph_io_no_memory(f->io, bytes, "the list of files");
    memset(f->c->files, 0, bytes);
    return PH_OK;
}

static ph_status read_one_file(const folder *f)
{
    PH_TRY(make_files(f, 1));
    return open_file(f, "model.safetensors", "");
}

/* ---- shards ------------------------------------------------------------------------ */

/* Every tensor lies where the index says, and there is no other. */
static ph_status check_shard(const folder *f, const ph_file *file, const ph_shard *list,
                             size_t count)
{
    ph_io_quoted name = ph_io_quote(list[0].file, strlen(list[0].file));
    size_t tensors = 0;
    for (size_t i = 0; i < count; i++)
        if (!ph_file_find(file, list[i].tensor))
            return ph_io_fail(f->io, PH_BAD_FILE,
                              "the index says that tensor %s lies in %s, but it does not",
                              ph_io_quote(list[i].tensor, strlen(list[i].tensor)).text,
                              name.text);
    while (ph_file_tensor(file, tensors)) tensors++;
    if (tensors == count) return PH_OK;
    return ph_io_fail(f->io, PH_BAD_FILE, "%s holds %zu tensors, the index names %zu",
                      name.text, tensors, count);
}

static ph_status open_shards(const folder *f, const ph_index *x)
{
    ph_checkpoint *c = f->c;
    PH_TRY(make_files(f, x->files));
    for (size_t first = 0, end; first < x->count; first = end) {
        for (end = first; end < x->count; end++)
            if (strcmp(x->list[first].file, x->list[end].file)) break;
        PH_TRY(open_file(f, x->list[first].file, ""));
        PH_TRY(check_shard(f, c->files[c->file_count - 1], x->list + first, end - first));
    }
    return PH_OK;
}

static ph_status read_shards(const folder *f)
{
    char path[PATH];
    ph_map map;
    ph_index index = {0};
    PH_TRY(path_of(f, "model.safetensors.index.json", path));
    PH_TRY(ph_map_open(&map, path, f->io));
    ph_status status =
        ph_index_read(&index, path, (const char *)map.bytes, map.size, f->io);
    ph_map_close(&map);
    if (status == PH_OK) status = open_shards(f, &index);
    ph_index_free(&index, f->io);
    return status;
}

static ph_status read_dense(const folder *f)
{
    char name[PH_MODULE_PATH + 24];
    if (!f->c->dense[0]) return PH_OK;
    snprintf(name, sizeof name, "%s/model.safetensors", f->c->dense);
    if (exists(f, name)) {
        f->c->module_files = 1;
        return open_file(f, name, "dense.");
    }
    snprintf(name, sizeof name, "%s/pytorch_model.bin", f->c->dense);
    if (exists(f, name))
        return ph_io_fail(f->io, PH_UNSUPPORTED,
                          "%s is a Python pickle, which can run code when read: load the "
                          "model once with sentence-transformers and give the directory "
                          "that save_pretrained writes",
                          name);
    return ph_io_fail(f->io, PH_IO_ERROR, "%.200s/%s holds no model.safetensors", f->path,
                      f->c->dense);
}

/* ---- all of it --------------------------------------------------------------------- */

static ph_status no_tensors(const folder *f)
{
    static const char *const pickles[] = {"pytorch_model.bin",
                                          "pytorch_model.bin.index.json", "model.pt",
                                          "model.pth", "model.ckpt"};
    static const char *const others[] = {"tf_model.h5", "flax_model.msgpack"};
    for (size_t i = 0; i < sizeof pickles / sizeof pickles[0]; i++)
        if (exists(f, pickles[i]))
            return ph_io_fail(f->io, PH_UNSUPPORTED, PH_PICKLE_SENTENCE, pickles[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (exists(f, others[i]))
            return ph_io_fail(f->io, PH_UNSUPPORTED,
                              "%s is not read: load it once with transformers "
                              "(from_pretrained, then save_pretrained) and give the "
                              "directory that writes",
                              others[i]);
    return ph_io_fail(f->io, PH_IO_ERROR,
                      "%.200s holds neither model.safetensors nor "
                      "model.safetensors.index.json",
                      f->path);
}

ph_status ph_folder_read(ph_checkpoint *c, const char *path, const ph_io *io)
{
    folder f = {c, path, io};
    c->kind = PH_CHECKPOINT_FOLDER;
    if (!exists(&f, "config.json") && exists(&f, "model.safetensors")) {
        c->kind = PH_CHECKPOINT_OWN, c->directory = 1;
        return PH_OK;
    }
    if (!exists(&f, "config.json"))
        return ph_io_fail(io, PH_IO_ERROR,
                          "%.200s is a directory without config.json, expected a Hugging "
                          "Face folder or that of a training",
                          path);
    PH_TRY(read_config(&f));
    if (exists(&f, "model.safetensors"))
        PH_TRY(read_one_file(&f));
    else if (exists(&f, "model.safetensors.index.json"))
        PH_TRY(read_shards(&f));
    else
        return no_tensors(&f);
    PH_TRY(read_dense(&f));
    return ph_checkpoint_sort(c, path, io);
}
