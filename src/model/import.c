/*
 * import.c - a model from a checkpoint of another program.
 *
 * The architecture's table says which tensor is which parameter; whether a bias or an
 * output matrix exists, the file decides. All shapes are checked before memory for the
 * parameters is taken.
 */
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"
#include "base/half.h"
#include "base/quant.h"
#include "model/model.h"
#include "model/model_text.h"
#include "model/store.h"

/* ---- the configuration ------------------------------------------------------------- */

static int has(const ph_import *in, const ph_config *c, const char *last)
{
    char name[48];
    const char *stack = c->arch == PH_ARCH_DECODER ? "decoder" : "encoder";
    snprintf(name, sizeof name, "%s.0.%s", stack, last);
    return ph_import_find(in, name) != NULL;
}

static void find_biases(const ph_import *in, ph_config *c)
{
    static const char *const names[] = {"self.bq", "self.bk", "self.bv",
                                        "self.bo", "ff.b1",   "norm2.bias"};
    for (int i = 0; i < 6; i++)
        if (!has(in, c, names[i])) c->no_bias |= 1 << i;
}

/* The matrix that scores tokens: its own, the embeddings, or none where these two are not
   tied and the file holds the embeddings alone (LlamaModel). */
static void find_output(ph_import *in, ph_config *c)
{
    int tied = ph_import_flag(in, "tie_word_embeddings", NULL,
                              ph_import_is_gguf(in) || !in->architecture->untied);
    int own = ph_import_find(in, "output") != NULL;
    if (c->arch != PH_ARCH_ENCODER && !own && !tied) c->no_output = 1;
    c->untied = own && !c->no_output;
    if (c->no_output) c->output_softcap = 0;
    if (!c->masked || own || tied) return;
    char name[PH_IMPORT_NAME];
    ph_import_tensor(in, "output", name);
    ph_import_fail(in, PH_BAD_FILE, "tie_word_embeddings is false and tensor %s missing",
                   name);
}

static ph_status read_config(ph_import *in, ph_config *c)
{
    memset(c, 0, sizeof *c);
    ph_import_config(in, c);
    PH_TRY(in->status);
    /* Layers with tensors of their own; no more layers than ph_config_check takes. */
    int own = c->layer_groups ? c->layer_groups : c->layers;
    if ((size_t)own > in->checkpoint->count || c->layers > 1000)
        return ph_fail(in->ctx, PH_BAD_FILE,
                       "the configuration has %d layers, the checkpoint %zu tensors",
                       c->layers, in->checkpoint->count);
    find_biases(in, c);
    find_output(in, c);
    if (c->image_size) return in->status; /* it reads no tokens */
    const ph_stored *embed = ph_import_find(in, "embed");
    if (!embed || embed->tensor.rank != 2 || embed->tensor.shape[0] > 1 << 24)
        return ph_fail(in->ctx, PH_BAD_FILE, "the checkpoint has no table of embeddings");
    c->vocab = (int)embed->tensor.shape[0];
    int said = ph_import_int(in, "vocab_size", "vocab_size", c->vocab);
    if (said != c->vocab && in->status == PH_OK)
        return ph_fail(in->ctx, PH_BAD_FILE,
                       "vocab_size is %d, but there are %d embeddings", said, c->vocab);
    return in->status;
}

/* ---- heads that were removed ------------------------------------------------------- */

#define PRUNED "pruned_heads"

/* {"0": [1, 3]}: the heads that layer 0 lost, by their indices before. */
static ph_status read_pruned_layer(ph_import *in, const ph_config *c,
                                   const ph_value *list, ph_kept *kept)
{
    char name[16] = "0", key[64];
    int layer = 0;
    while (layer < c->layers && strcmp(list->key + sizeof PRUNED, name))
        snprintf(name, sizeof name, "%d", ++layer);
    if (layer == c->layers || list->kind != PH_VALUE_LIST)
        return ph_fail(in->ctx, PH_BAD_FILE,
                       "%s is %s, expected lists of heads of layers 0 to %d", list->key,
                       ph_value_show(list).text, c->layers - 1);
    for (size_t i = 0; i < list->count; i++) {
        snprintf(key, sizeof key, "%s.%zu", list->key, i);
        int head = ph_import_int(in, key, NULL, PH_IMPORT_REQUIRED);
        PH_TRY(in->status);
        if (head < 0 || head >= c->heads)
            return ph_fail(in->ctx, PH_BAD_FILE, "%s is %d, expected a head, 0 to %d",
                           key, head, c->heads - 1);
        kept->removed[(size_t)layer * (size_t)c->heads + (size_t)head] = 1;
        kept->group[layer] = 1;
    }
    return PH_OK;
}

/* What transformers 4 wrote of a model with fewer heads in some layers, whose matrices
   are smaller there. */
static ph_status read_pruned(ph_import *in, const ph_config *config, ph_kept *kept)
{
    const ph_values *values = &in->checkpoint->values;
    const ph_value *v = ph_import_value(in, PRUNED, NULL);
    ph_config c = *config;
    if (!v || v->kind == PH_VALUE_NULL) return PH_OK;
    if (v->kind != PH_VALUE_OBJECT)
        return ph_fail(in->ctx, PH_BAD_FILE, PRUNED " is %s, expected an object",
                       ph_value_show(v).text);
    for (size_t i = 0; i < values->count; i++) {
        const ph_value *list = &values->list[i];
        if (strncmp(list->key, PRUNED ".", sizeof PRUNED) ||
            strchr(list->key + sizeof PRUNED, '.'))
            continue;
        if (!kept->removed) {
            PH_TRY(ph_config_check(in->ctx, &c, 0)); /* it may claim any number */
            PH_TRY(ph_kept_create(kept, in->ctx, &c));
        }
        PH_TRY(read_pruned_layer(in, &c, list, kept));
    }
    int plain = c.arch != PH_ARCH_ENCODER_DECODER && c.heads == c.kv_heads;
    if (!kept->removed || plain) return PH_OK;
    return ph_fail(in->ctx, PH_UNSUPPORTED,
                   PRUNED " is set, expected an encoder or a decoder whose heads have "
                          "keys of their own");
}

/* ---- tensors ----------------------------------------------------------------------- */

/* How a tensor lies in the file: the shape expected there, whether it is (out, in). */
typedef struct stored_form {
    size_t shape[2];
    int rank, linear;
    ph_fused fused; /* rows (linear, vectors) or columns of the parameter */
} stored_form;

static stored_form form_of(const ph_import *in, const ph_config *c, const ph_weight *w)
{
    const ph_tensor_name *n = ph_import_name(in, w->name);
    int linear =
        ph_import_is_gguf(in) ? !n->table : ph_import_is_linear(in->architecture, n);
    stored_form f = {.rank = w->rank, .linear = w->rank == 2 && linear};
    size_t rows = (size_t)w->dims[0], columns = w->rank == 2 ? (size_t)w->dims[1] : 1;
    f.fused = ph_import_fused(in, c, n, w->rank == 2 ? columns : rows);
    f.shape[0] = f.rank == 1 || f.linear ? f.fused.total : rows;
    f.shape[1] = f.linear ? rows : f.fused.total;
    return f;
}

/* A tensor of more dimensions than ours: leading ones are dropped, those of a convolution
   are one behind the first. */
static void flatten(ph_tensor *t, int rank)
{
    while (t->rank > rank && t->shape[0] == 1) {
        t->rank--;
        memmove(t->shape, t->shape + 1, (size_t)t->rank * sizeof *t->shape);
    }
    for (; t->rank > rank && rank == 2; t->rank--)
        t->shape[t->rank - 2] *= t->shape[t->rank - 1];
}

static ph_status check_tensor(ph_import *in, const ph_config *c, const ph_weight *w)
{
    char theirs[PH_IMPORT_NAME];
    ph_stored *s = ph_import_find(in, w->name);
    ph_import_tensor(in, w->name, theirs);
    if (!s)
        return ph_fail(in->ctx, PH_BAD_FILE, "tensor %s is missing (our %s)",
                       ph_io_quote(theirs, strlen(theirs)).text, w->name);
    flatten(&s->tensor, w->rank);
    stored_form f = form_of(in, c, w);
    ph_tensor wanted = {.type = s->tensor.type, .rank = f.rank};
    memcpy(wanted.shape, f.shape, sizeof f.shape);
    ph_dtype type = s->tensor.type;
    ph_io_quoted name = ph_io_quote(s->tensor.name, strlen(s->tensor.name));
    if (type != PH_F32 && type != PH_F16 && type != PH_BF16 && !ph_dtype_is_block(type))
        return ph_fail(in->ctx, PH_UNSUPPORTED,
                       "tensor %s is %s, expected F32, F16 or BF16", name.text,
                       ph_dtype_name(type));
    s->read = 1;
    int same = s->tensor.rank == f.rank && s->tensor.shape[0] == f.shape[0] &&
               (f.rank == 1 || s->tensor.shape[1] == f.shape[1]);
    if (same) return PH_OK;
    char found[96], expected[96];
    ph_tensor_describe(&s->tensor, found, sizeof found);
    ph_tensor_describe(&wanted, expected, sizeof expected);
    return ph_fail(in->ctx, PH_BAD_FILE, "tensor %s is %s, expected %s", name.text, found,
                   expected);
}

static float element(const ph_tensor *t, size_t row, size_t column)
{
    size_t columns = t->rank == 2 ? t->shape[1] : t->shape[0];
    return ph_element(t->data, t->type, (int64_t)(row * columns + column));
}

static ph_status read_tensor(ph_import *in, const ph_config *config, const ph_weight *w,
                             float *to, const ph_io *io)
{
    ph_stored *s = ph_import_find(in, w->name);
    stored_form f = form_of(in, config, w);
    int minus_one = !ph_import_is_gguf(in) && ph_import_name(in, w->name)->minus_one;
    ph_status status = ph_checkpoint_load(in->checkpoint, s, io);
    if (status != PH_OK) return ph_fail(in->ctx, status, "%s", io->error);
    size_t rows = w->rank == 2 ? (size_t)w->dims[0] : 1;
    size_t columns = w->count / rows;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            size_t at = ph_fused_at(&f.fused, c);
            to[r * columns + c] =
                f.linear ? element(&s->tensor, at, r) : element(&s->tensor, r, at);
        }
    for (size_t i = 0; minus_one && i < w->count; i++) to[i] += 1;
    return PH_OK;
}

/* Reads a matrix in place where passes can do that: a whole tensor, or some of its rows.
   Columns of a fused matrix are not contiguous. */
static ph_status map_tensor(ph_model *m, ph_import *in, int index, const ph_io *io)
{
    ph_stored *s = ph_import_find(in, m->params[index].name);
    stored_form f = form_of(in, &m->config, &m->params[index]);
    ph_status status = ph_checkpoint_load(in->checkpoint, s, io);
    if (status != PH_OK) return ph_fail(in->ctx, status, "%s", io->error);
    if (f.rank != 2 || f.fused.run) return PH_UNSUPPORTED;
    if (!f.linear && f.shape[1] != (size_t)m->params[index].dims[1])
        return PH_UNSUPPORTED;
    size_t skipped = ph_dtype_bytes(s->tensor.type, f.fused.first * f.shape[1]);
    ph_matrix stored = {.data = (const char *)s->tensor.data + skipped,
                        .type = s->tensor.type,
                        .form = f.linear ? PH_FORM_LINEAR : PH_FORM_WHOLE};
    return ph_model_store(m, index, stored);
}

/* ---- names of classes -------------------------------------------------------------- */

static const char *label_of(ph_import *in, int i)
{
    char key[32];
    snprintf(key, sizeof key, "id2label.%d", i);
    return ph_import_text(in, key, NULL, "");
}

static ph_status read_labels(ph_model *m, ph_import *in)
{
    size_t bytes = 1;
    for (int i = 0; i < m->config.classes; i++) bytes += strlen(label_of(in, i)) + 1;
    PH_TRY(in->status);
    char *to = m->labels = ph_ctx_alloc(m->ctx, bytes);
    if (!to) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for names of classes");
    for (int i = 0; i < m->config.classes; i++) {
        strcpy(to, label_of(in, i));
        to += strlen(to) + 1;
    }
    return PH_OK;
}

/* ---- the model --------------------------------------------------------------------- */

/* A model without values, of the heads that it has. */
static ph_status shape_model(ph_model **out, ph_import *in)
{
    ph_config c;
    ph_kept kept = {0};
    PH_TRY(read_config(in, &c));
    ph_status status = read_pruned(in, &c, &kept);
    if (status == PH_OK)
        status = ph_model_shape(out, in->ctx, &c, &kept, PH_SPLIT_WORDS, NULL, 0);
    ph_kept_free(&kept, in->ctx);
    return status;
}

static ph_status read_model(ph_model **out, ph_import *in, const ph_io *io)
{
    PH_TRY(shape_model(out, in));
    ph_model *m = *out;
    for (int i = 0; i < m->param_count; i++)
        PH_TRY(check_tensor(in, &m->config, &m->params[i]));
    PH_TRY(ph_import_check_read(in));
    for (int i = 0; i < m->param_count; i++) {
        ph_status status = map_tensor(m, in, i, io);
        if (status != PH_OK && status != PH_UNSUPPORTED) return status;
    }
    PH_TRY(ph_model_allocate(m));
    for (int i = 0; i < m->param_count; i++)
        if (!m->params[i].stored.data)
            PH_TRY(read_tensor(in, &m->config, &m->params[i],
                               m->block + m->params[i].at, io));
    if (m->config.image_size) PH_TRY(ph_preprocess_import(m, in));
    return m->config.classes ? read_labels(m, in) : PH_OK;
}

ph_status ph_model_import(ph_model **out, ph_ctx *ctx, ph_checkpoint *checkpoint,
                          const char *path)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_import in;
    *out = NULL;
    PH_TRY(ph_import_begin(&in, ctx, checkpoint));
    ph_status status = read_model(out, &in, &io);
    if (status == PH_OK) status = ph_tokens_import(*out, checkpoint, path);
    if (status == PH_OK) {
        (*out)->checkpoint = checkpoint; /* parameters lie in it */
        return PH_OK;
    }
    ph_model_free(*out);
    *out = NULL;
    return status;
}
