/*
 * export.c - models that are no Hugging Face folder, written as one.
 *
 * A model is written in a published type: its architecture
 * says config.json (publish), which is read back and compared with the model, so what a
 * type cannot express is refused by name; then the table of names says which of our
 * parameters make up which tensor. Elements are moved row by row from where they lie.
 */
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"
#include "base/half.h"
#include "base/quant.h"
#include "io/safetensors.h"
#include "model/export.h"
#include "model/model.h"
#include "model/store.h"

enum { CONFIG_TEXT = 1 << 18, PARTS = 3, COPIES = 3 }; /* a thousand classes fit */

/* A tensor to write, and the parameters of ours that lie side by side in it. */
typedef struct published {
    char name[PH_IMPORT_NAME];
    int params[PARTS], parts;
    size_t rows, columns; /* as a matrix */
    int linear;           /* 1: (out, in) */
    int by_head;          /* 1: parts alternate head by head */
    int half;             /* 1: pairs of a head that lie interleaved here move apart */
    float scale;          /* 1: none */
    float minus;          /* from every element, 0 or 1 */
} published;

typedef struct export_job {
    const ph_model *m;
    const ph_architecture *architecture;
    ph_config config; /* as it is written: see normalise */
    char text[CONFIG_TEXT];
    size_t length; /* of the text */
    ph_export_files files;
    const ph_dtype *type;
    const ph_io *io;
    published *tensors;
    size_t count;
    float *row;
} export_job;

/* ---- config.json ------------------------------------------------------------------- */

static void append(void *user, const char *bytes, size_t count)
{
    export_job *job = user;
    if (job->length + count < sizeof job->text)
        memcpy(job->text + job->length, bytes, count);
    job->length += count;
}

/* What the folder will hold: pairs of rotary positions apart, embeddings multiplied by
   their scale where the type does not do it (the output keeps a matrix of its own then),
   nothing of training. */
static ph_config normalise(const ph_config *given, int scaled)
{
    ph_config c = *given;
    c.dropout = 0, c.depth_scaled = 0, c.rope_interleaved = 0;
    if (c.encoder_len == c.max_len) c.encoder_len = 0; /* which means the same */
    if (c.embed_scale != 1 && !scaled) c.embed_scale = 1, c.untied = !c.no_output;
    if (c.norm == PH_NORM_RMS) c.no_bias |= PH_NO_BIAS_NORM;
    if (c.positions == PH_POS_ROPE && c.rope_base == 0) c.rope_base = 10000;
    if (c.rope_scaling == PH_ROPE_UNSCALED) c.rope_factor = 0, c.rope_length = 0;
    int yarn = c.rope_scaling == PH_ROPE_YARN;
    if (c.rope_scaling != PH_ROPE_LLAMA3 && !yarn) c.rope_low = c.rope_high = 0;
    if (yarn && c.rope_low == 1) c.rope_low = 0;
    if (yarn && c.rope_high == 32) c.rope_high = 0;
    if (!yarn) c.yarn_untruncated = 0;
    if (!yarn && c.rope_scaling != PH_ROPE_LONGROPE) c.rope_scale = 0;
    if (c.rope_dims == c.head_dim) c.rope_dims = 0;
    return c;
}

/* The type of all matrices, or F32 where they differ: a reader may convert to it. GGUF
   has gains of norms and biases in F32, whatever its matrices are. */
static ph_dtype common_type(const export_job *job)
{
    const ph_model *m = job->m;
    ph_dtype type = PH_F32;
    if (job->type) return *job->type;
    for (int i = 0, found = 0; i < m->param_count; i++) {
        if (m->params[i].rank < 2) continue;
        ph_dtype its = ph_model_matrix(m, m->block, i).type;
        if (found++ && its != type) return PH_F32;
        type = its;
    }
    return type;
}

static void print_labels(const ph_model *m, ph_json_writer *json)
{
    char number[16], name[32];
    if (m->config.problem_type)
        ph_json_string(json, "problem_type", ph_publish_problem(&m->config));
    for (int inverse = 0; m->config.classes && inverse < 2; inverse++) {
        ph_json_begin_object(json, inverse ? "label2id" : "id2label");
        for (int i = 0; i < m->config.classes; i++) {
            const char *label = ph_model_class(m, i);
            snprintf(number, sizeof number, "%d", i);
            snprintf(name, sizeof name, "LABEL_%d", i);
            if (!*label) label = name;
            if (inverse)
                ph_json_integer(json, label, i);
            else
                ph_json_string(json, number, label);
        }
        ph_json_end(json);
    }
}

static int print_config(export_job *job)
{
    ph_json_writer json = {.write = append, .user = job, .indent = 2};
    job->length = 0;
    ph_json_begin_object(&json, NULL);
    int no_bias = job->architecture->publish(&job->config, &json);
    if (job->config.vocab) {
        ph_json_integer(&json, "vocab_size", job->config.vocab);
        ph_json_bool(&json, "tie_word_embeddings",
                     !job->config.untied && !job->config.no_output);
    }
    ph_json_string(&json, "torch_dtype", ph_folder_dtype(common_type(job)));
    if (job->config.vocab) ph_export_marks(job->m, &json);
    print_labels(job->m, &json);
    ph_json_end(&json);
    append(job, "\n", 1);
    return no_bias;
}

/* A stack that ends in nothing has tensors without a prefix. */
static const char *prefix_of(const export_job *job)
{
    const ph_config *c = &job->config;
    int bare = (c->arch == PH_ARCH_ENCODER || c->no_output) && !c->masked && !c->classes;
    return bare ? "" : job->architecture->prefix;
}

/* Whether a parameter has the name that counts where both exist. */
static int has_second_name(const ph_config *c, const char *ours)
{
    if (strstr(ours, ".ff.")) return ph_config_gated(c);
    if (!strncmp(ours, "pooler.", 7)) return ph_export_is_sentence(c);
    return c->distilled || (c->masked && c->untied) || (c->classes && !c->pooling);
}

/* The name that a parameter has in a folder of this architecture, and its line in the
   table; NULL: there is none. */
static const ph_tensor_name *name_tensor(const export_job *job, const char *ours,
                                         char name[PH_IMPORT_NAME])
{
    ph_checkpoint empty = {.kind = PH_CHECKPOINT_FOLDER};
    ph_import names = {.checkpoint = &empty, .architecture = job->architecture};
    names.second = has_second_name(&job->config, ours);
    snprintf(names.prefix, sizeof names.prefix, "%s", prefix_of(job));
    ph_import_tensor(&names, ours, name);
    return name[0] ? ph_import_name(&names, ours) : NULL;
}

/* The tensors that a reader will find: what a model ends in shows by them alone. */
static ph_status list_written(const export_job *job, ph_checkpoint *written,
                              const ph_io *io)
{
    for (int i = 0; i < job->m->param_count; i++) {
        const ph_weight *w = &job->m->params[i];
        char name[PH_IMPORT_NAME];
        void *copy;
        const ph_tensor_name *line = name_tensor(job, w->name, name);
        if (!line || line->part) continue;
        int linear = w->rank == 2 && ph_import_is_linear(job->architecture, line);
        PH_TRY(ph_checkpoint_keep(written, strlen(name) + 1, &copy, io));
        ph_stored s = {.tensor = {.name = strcpy(copy, name), .rank = w->rank}};
        s.tensor.type =
            job->type ? *job->type : ph_model_matrix(job->m, job->m->block, i).type;
        s.tensor.shape[0] = (size_t)w->dims[linear];
        s.tensor.shape[1] = (size_t)w->dims[!linear];
        PH_TRY(ph_checkpoint_add(written, &s, io));
    }
    return ph_checkpoint_sort(written, "model.safetensors", io);
}

/* The configuration that a reader of this text gets. */
static ph_status read_back(export_job *job, ph_checkpoint *written, ph_config *c)
{
    char error[512] = "";
    ph_ctx *ctx = job->m->ctx;
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_import in = {.ctx = ctx, .checkpoint = written, .section = "", .trial = 1};
    snprintf(in.prefix, sizeof in.prefix, "%s", prefix_of(job));
    ph_status status = list_written(job, written, &io);
    if (status == PH_OK)
        status = ph_values_read(&written->values, "config.json", "", job->text,
                                job->length, &io);
    for (int i = 0; i < job->files.count && status == PH_OK; i++) {
        const ph_export_file *f = &job->files.file[i];
        status =
            ph_values_read(&written->values, f->name, f->prefix, f->text, f->length, &io);
    }
    if (status == PH_OK) status = ph_values_sort(&written->values, "config.json", &io);
    if (status != PH_OK) return ph_fail(ctx, status, "%s", error);
    const ph_value *type = ph_values_find(&written->values, "model_type");
    in.architecture = job->architecture, in.type = type->text;
    ph_import_config(&in, c);
    return in.status;
}

/* The first field that the architecture cannot express, or NULL. */
static ph_status try_architecture(export_job *job, const char **field)
{
    ph_config c = {0};
    int no_bias = print_config(job);
    if (job->length >= sizeof job->text)
        return ph_fail(job->m->ctx, PH_UNSUPPORTED, "config.json would be too long");
    ph_checkpoint *written = ph_io_alloc(NULL, sizeof *written);
    if (!written) return ph_fail(job->m->ctx, PH_OUT_OF_MEMORY, "no memory for tensors");
    *written = (ph_checkpoint){.kind = PH_CHECKPOINT_FOLDER};
    ph_status status = read_back(job, written, &c);
    ph_checkpoint_free(written);
    PH_TRY(status);
    const ph_config *own = &job->config;
    *field = "arch";
    if (c.arch != own->arch) return PH_OK;
    c.vocab = own->vocab, c.untied = own->untied, c.no_output = own->no_output;
    c.no_bias = no_bias;
    if (c.positions == PH_POS_T5) /* whose lengths bound nothing */
        c.max_len = own->max_len, c.encoder_len = own->encoder_len;
    *field = ph_config_differs(own, &c); /* if the type cannot be so at all */
    if (ph_config_check(job->m->ctx, &c, 0) != PH_OK && *field) return PH_OK;
    c = normalise(&c, job->architecture->scaled);
    *field = ph_config_differs(own, &c);
    return PH_OK;
}

static ph_status choose_architecture(export_job *job)
{
    char tried[512] = "";
    const char *field = "";
    const ph_config *given = &job->m->config;
    PH_TRY(ph_export_list(job->m, &job->files));
    if (strcmp(given->variant, "mha"))
        return ph_fail(job->m->ctx, PH_UNSUPPORTED,
                       "attention is %s, which no published type has", given->variant);
    for (int i = 0; (job->architecture = ph_architecture_at(i)); i++) {
        size_t used = strlen(tried);
        int pictures = given->image_size > 0;
        if (!job->architecture->publish || job->architecture->pictures != pictures)
            continue;
        job->config = normalise(given, job->architecture->scaled);
        PH_TRY(try_architecture(job, &field));
        if (!field) return PH_OK;
        if (!strcmp(field, "arch")) continue;
        snprintf(tried + used, sizeof tried - used, "%s%s differs in %s",
                 used ? ", " : "", job->architecture->types[0], field);
    }
    return ph_fail(job->m->ctx, PH_UNSUPPORTED,
                   "no published type has all that this model has: %s",
                   *tried ? tried : "none that is written has its stacks");
}

/* ---- tensors ----------------------------------------------------------------------- */

static published *find_tensor(export_job *job, const char *name)
{
    for (size_t i = 0; i < job->count; i++)
        if (!strcmp(job->tensors[i].name, name)) return &job->tensors[i];
    return NULL;
}

static int ends_with(const char *text, const char *tail)
{
    size_t length = strlen(text), more = strlen(tail);
    return length >= more && !strcmp(text + length - more, tail);
}

/* Whether elements of a parameter are rotated in pairs, and lie interleaved. */
static int is_interleaved(const ph_model *m, const char *name)
{
    static const char *const tails[] = {".wq", ".wk", ".bq", ".bk", ".q_norm", ".k_norm"};
    for (int i = 0; m->config.rope_interleaved && i < 6; i++)
        if (ends_with(name, tails[i])) return 1;
    return 0;
}

static ph_status add_tensor(export_job *job, const char *ours, int index, float scale)
{
    char name[PH_IMPORT_NAME];
    const ph_tensor_name *line = name_tensor(job, ours, name);
    if (!line)
        return ph_fail(job->m->ctx, PH_UNSUPPORTED, "a folder of type %s has no %s",
                       job->architecture->types[0], ours);
    published *t = find_tensor(job, name);
    if (!t) {
        t = &job->tensors[job->count++];
        *t = (published){.scale = scale, .minus = line->minus_one ? 1 : 0};
        strcpy(t->name, name);
    }
    t->params[line->part] = index;
    t->parts = line->parts ? line->parts : 1;
    t->by_head = line->by_head;
    t->linear =
        job->m->params[index].rank == 2 && ph_import_is_linear(job->architecture, line);
    t->half = is_interleaved(job->m, ours);
    return PH_OK;
}

/* A table that transformers reads under several names where it ties none of them. */
static void add_copies(export_job *job)
{
    char name[PH_IMPORT_NAME];
    name_tensor(job, "embed", name);
    const published first = *find_tensor(job, name);
    for (const ph_tensor_name *n = job->architecture->names; n->ours; n++) {
        if (strcmp(n->ours, "embed")) continue;
        snprintf(name, sizeof name, "%s%s", prefix_of(job), n->folder);
        if (find_tensor(job, name)) continue;
        published *copy = &job->tensors[job->count++];
        *copy = first;
        strcpy(copy->name, name);
    }
}

static ph_status list_tensors(export_job *job)
{
    const ph_model *m = job->m;
    float scale = job->architecture->scaled ? 1 : m->config.embed_scale;
    for (int i = 0; i < m->param_count; i++)
        PH_TRY(add_tensor(job, m->params[i].name, i, i == m->embed ? scale : 1));
    if (job->config.untied && !m->config.untied)
        PH_TRY(add_tensor(job, "output", m->embed, 1));
    if (job->config.untied && job->architecture->copies) add_copies(job);
    return PH_OK;
}

/* ---- elements ---------------------------------------------------------------------- */

/* Where output `o` of a head lies here whose pairs are interleaved. */
static int interleaved(const ph_model *m, int o)
{
    int at = o % m->config.head_dim;
    int d = m->config.rope_dims ? m->config.rope_dims : m->config.head_dim;
    if (at >= d) return o;
    return o - at + (at < d / 2 ? 2 * at : 2 * (at - d / 2) + 1);
}

/* Element (in, out) of a parameter, as bits of its type or, where that changes, as a
   value of the new one. */
static ph_status copy_element(const export_job *job, const published *t, int param,
                              int in, int out, ph_dtype type, void *to)
{
    const ph_weight *p = &job->m->params[param];
    const ph_matrix w = ph_model_matrix(job->m, job->m->block, param);
    int64_t rows = p->rank == 2 ? p->dims[0] : 1, columns = (int64_t)p->count / rows;
    if (t->half) out = interleaved(job->m, out);
    int64_t at = w.form == PH_FORM_LINEAR ? out * rows + in : in * columns + out;
    if (w.type == type && t->scale == 1 && t->minus == 0) {
        size_t unit = ph_dtype_bytes(type, 1);
        memcpy(to, (const char *)w.data + (size_t)at * unit, unit);
        return PH_OK;
    }
    float value = ph_element(w.data, w.type, at) * t->scale - t->minus;
    uint16_t half = type == PH_F16 ? ph_to_f16(value) : ph_to_bf16(value);
    if (type == PH_F32)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &half, sizeof half);
    return ph_folder_holds(type, value, t->name, job->io);
}

static size_t outputs_of(const export_job *job, const published *t, int part)
{
    const ph_weight *p = &job->m->params[t->params[part]];
    return p->rank == 2 ? (size_t)p->dims[1] : p->count;
}

/* The part that an output of a tensor belongs to; *out becomes its index there. */
static int find_part(const export_job *job, const published *t, size_t *out)
{
    size_t run = (size_t)job->config.head_dim, parts = (size_t)t->parts;
    int part = 0;
    if (t->by_head) {
        part = (int)(*out / run % parts);
        *out = *out / (run * parts) * run + *out % run;
        return part;
    }
    for (; *out >= outputs_of(job, t, part); part++) *out -= outputs_of(job, t, part);
    return part;
}

/* data of the tensor is the entry of its list. */
static ph_status write_tensor(void *user, const ph_tensor *tensor, ph_output *output)
{
    const export_job *job = user;
    const published *t = tensor->data;
    size_t rows = t->rows, columns = t->columns, unit = ph_dtype_bytes(tensor->type, 1);
    char *row = (char *)job->row;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            size_t in = t->linear ? c : r, out = t->linear ? r : c;
            int part = find_part(job, t, &out);
            PH_TRY(copy_element(job, t, t->params[part], (int)in, (int)out,
                                tensor->type, row + c * unit));
        }
        PH_TRY(ph_output_write(output, row, columns * unit));
    }
    return PH_OK;
}

/* Of a picture the patches are a convolution, tables have a batch dimension. */
static void reshape_picture(const ph_model *m, const published *t, ph_tensor *out)
{
    const ph_config *c = &m->config;
    const ph_weight *p = &m->params[t->params[0]];
    size_t side = (size_t)c->patch_size;
    if (t->params[0] == m->patches) {
        out->rank = 4, out->shape[1] = (size_t)c->channels;
        out->shape[2] = out->shape[3] = side;
    } else if (!strcmp(p->name, "encoder.positions") ||
               !strncmp(p->name, "class_tokens.", strlen("class_tokens."))) {
        out->rank = 3, out->shape[0] = 1;
        out->shape[1] = t->rows, out->shape[2] = t->columns;
    }
}

/* Sound is read through convolutions of three frames, and Marian's bias of the scores has
   a batch dimension. */
static void reshape_pair(const ph_model *m, const published *t, ph_tensor *out)
{
    const char *name = m->params[t->params[0]].name;
    if (!strcmp(name, "conv1.w") || !strcmp(name, "conv2.w"))
        out->rank = 3, out->shape[1] /= 3, out->shape[2] = 3;
    else if (t->params[0] == m->output_bias)
        out->rank = 2, out->shape[0] = 1, out->shape[1] = t->columns;
}

static ph_tensor describe(const export_job *job, published *t)
{
    const ph_weight *p = &job->m->params[t->params[0]];
    size_t rows = (size_t)p->dims[0], outputs = 0;
    for (int i = 0; i < t->parts; i++) outputs += outputs_of(job, t, i);
    ph_tensor out = {.name = t->name, .rank = p->rank, .data = t};
    out.type = job->type ? *job->type
                         : ph_model_matrix(job->m, job->m->block, t->params[0]).type;
    out.shape[0] = p->rank == 1 || t->linear ? outputs : rows;
    out.shape[1] = t->linear ? rows : outputs;
    t->rows = p->rank == 2 ? out.shape[0] : 1;
    t->columns = out.shape[p->rank - 1];
    if (job->config.image_size) reshape_picture(job->m, t, &out);
    if (job->config.arch == PH_ARCH_ENCODER_DECODER) reshape_pair(job->m, t, &out);
    return out;
}

/* Tensors of a module begin with its name, which they have not in its own file. */
static size_t module_prefix(const published *t)
{
    static const char name[] = "dense.";
    size_t length = sizeof name - 1;
    return strncmp(t->name, name, length) ? 0 : length;
}

/* Those of the model, or of the module behind it. */
static ph_status write_file(export_job *job, const char *path, int module,
                            const ph_io *io)
{
    size_t widest = 1, count = 0;
    ph_tensor *list = ph_io_alloc(io, job->count * sizeof *list);
    if (!list) return ph_io_no_memory(io, job->count * sizeof *list, "tensors");
    for (size_t i = 0; i < job->count; i++) {
        published *t = &job->tensors[i];
        if (!module_prefix(t) != !module) continue;
        list[count] = describe(job, t);
        list[count++].name += module_prefix(t);
        widest = t->columns > widest ? t->columns : widest;
    }
    job->row = ph_io_alloc(io, widest * sizeof *job->row);
    ph_status status =
        job->row ? PH_OK : ph_io_no_memory(io, widest * sizeof *job->row, "a row");
    if (status == PH_OK && count)
        status = ph_safetensors_write(path, list, count, write_tensor, job, io);
    ph_io_release(io, job->row);
    ph_io_release(io, list);
    return status;
}

static ph_status write_tensors(export_job *job, const ph_directory *to, const ph_io *io)
{
    char path[PH_DIRECTORY_PATH];
    PH_TRY(ph_directory_file(to, "model.safetensors", path));
    PH_TRY(write_file(job, path, 0, io));
    if (!ph_export_is_sentence(&job->config) || !job->config.pooler) return PH_OK;
    PH_TRY(ph_directory_file(to, PH_EXPORT_DENSE "/model.safetensors", path));
    return write_file(job, path, 1, io);
}

/* ---- all of it --------------------------------------------------------------------- */

/* Block types have no place in a folder, and what was made of one is not what was
   stored. */
static ph_status check_types(const ph_model *m, const ph_dtype *type)
{
    const ph_checkpoint *c = m->checkpoint;
    for (size_t i = 0; !type && c && i < c->count; i++) {
        const ph_stored *s = &c->tensors[i];
        if (!s->raw && !ph_dtype_is_block(s->tensor.type)) continue;
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "tensor %s is quantised, which a folder cannot hold: give a dtype "
                       "to convert to, such as --dtype f16",
                       ph_io_quote(s->tensor.name, strlen(s->tensor.name)).text);
    }
    return PH_OK;
}

/* A tokenizer that transformers can read; the metadata of GGUF and tokenizer.bin it
   cannot. Marian's two are for us alone: transformers wants the files they come from. */
static ph_status write_text(const ph_model *m, const ph_directory *to)
{
    const char *bytes = m->tokenizer_file;
    size_t size = m->tokenizer_size;
    if (m->chat_template)
        PH_TRY(ph_directory_write(to, "chat_template.jinja", m->chat_template,
                                  strlen(m->chat_template)));
    if (m->target_file)
        PH_TRY(ph_directory_write(to, "target_tokenizer.json", m->target_file,
                                  m->target_size));
    if (!bytes || !size || memchr(bytes, 0, size)) return PH_OK;
    return ph_directory_write(to, bytes[0] == '{' ? "tokenizer.json" : "vocab.txt", bytes,
                              size);
}

static ph_status write_model(export_job *job, const ph_directory *to, const ph_io *io)
{
    ph_ctx *ctx = job->m->ctx;
    size_t bytes = ((size_t)job->m->param_count + COPIES) * sizeof *job->tensors;
    PH_TRY(check_types(job->m, job->type));
    PH_TRY(choose_architecture(job));
    job->tensors = ph_ctx_alloc(ctx, bytes);
    if (!job->tensors) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for tensors");
    ph_status status = list_tensors(job);
    if (status == PH_OK) {
        status = ph_directory_write(to, "config.json", job->text, job->length);
        for (int i = 0; i < job->files.count && status == PH_OK; i++) {
            const ph_export_file *f = &job->files.file[i];
            status = ph_directory_write(to, f->name, f->text, f->length);
        }
        if (status == PH_OK) status = write_text(job->m, to);
        if (status == PH_OK) status = write_tensors(job, to, io);
        if (status != PH_OK) ph_fail(ctx, status, "%s", io->error);
    }
    ph_ctx_release(ctx, job->tensors);
    return status;
}

ph_status ph_export_model(ph_ctx *ctx, const char *from, const ph_directory *to,
                          const ph_dtype *type, const ph_io *io)
{
    ph_model *m = NULL;
    export_job *job = ph_ctx_alloc(ctx, sizeof *job);
    if (!job) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory to export a model");
    memset(job, 0, sizeof *job);
    ph_status status = ph_model_read(&m, ctx, from);
    if (status == PH_OK) status = ph_model_restore(m);
    job->m = m, job->type = type, job->io = io;
    if (status == PH_OK) status = write_model(job, to, io);
    ph_model_free(m);
    ph_ctx_release(ctx, job);
    return status;
}
