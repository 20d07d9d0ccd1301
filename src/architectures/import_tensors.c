/*
 * import_tensors.c - names of tensors: which is which parameter of ours, and which was
 * not read.
 */
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"

/* Whether the name is the pattern with a number for '#', which it stores; -1: no '#'.
   Behind a '*' may stand anything. */
static int matches(const char *pattern, const char *name, int *number)
{
    *number = -1;
    for (; *pattern; pattern++) {
        if (*pattern == '*') return 1;
        if (*pattern != '#') {
            if (*pattern != *name++) return 0;
            continue;
        }
        if (*name < '0' || *name > '9') return 0;
        for (*number = 0; *name >= '0' && *name <= '9' && *number < 100000; name++)
            *number = 10 * *number + (*name - '0');
    }
    return *name == 0;
}

/* The pattern with the number for '#'; "" where it does not fit. */
static void expand(const char *prefix, const char *pattern, int number, char *out)
{
    const char *hole = strchr(pattern, '#');
    int used = hole ? snprintf(out, PH_IMPORT_NAME, "%s%.*s%d%s", prefix,
                               (int)(hole - pattern), pattern, number, hole + 1)
                    : snprintf(out, PH_IMPORT_NAME, "%s%s", prefix, pattern);
    if (used < 0 || used >= PH_IMPORT_NAME) out[0] = 0;
}

/* The name that a line of the table gives to parameter number `number`. */
static void name_of(const ph_import *in, const ph_tensor_name *n, int number, char *out)
{
    int gguf = ph_import_is_gguf(in);
    const char *pattern = gguf ? n->gguf : n->folder;
    out[0] = 0;
    if (!pattern) return;
    int outside = pattern[0] == '/';
    expand(gguf || outside ? "" : in->prefix, pattern + outside, number, out);
}

const ph_tensor_name *ph_import_name(const ph_import *in, const char *ours)
{
    const ph_tensor_name *first = NULL, *found = NULL;
    char name[PH_IMPORT_NAME];
    int number;
    for (const ph_tensor_name *n = in->architecture->names; n->ours; n++) {
        if (!matches(n->ours, ours, &number)) continue;
        name_of(in, n, number, name);
        int exists = ph_checkpoint_find(in->checkpoint, name) != NULL;
        if (exists && (!found || n->second)) found = n;
        if (!first || (in->second && n->second)) first = n;
    }
    return found ? found : first;
}

void ph_import_tensor(const ph_import *in, const char *ours, char out[PH_IMPORT_NAME])
{
    const ph_tensor_name *n = ph_import_name(in, ours);
    int number = -1;
    out[0] = 0;
    if (!n) return;
    matches(n->ours, ours, &number);
    name_of(in, n, number, out);
}

ph_stored *ph_import_find(const ph_import *in, const char *ours)
{
    char name[PH_IMPORT_NAME];
    ph_import_tensor(in, ours, name);
    return ph_checkpoint_find(in->checkpoint, name);
}

/* Outputs of a parameter that is fused with one that has `outputs`, by the last part of
   its name. Heads with keys of their own have as many of q, k and v, also in a layer that
   lost some. */
static size_t outputs_of(const ph_config *c, const char *ours, size_t outputs)
{
    char kind = strrchr(ours, '.')[2];
    int heads = kind == 'q' ? c->heads : c->kv_heads;
    if (kind == '1' || kind == '3') return (size_t)c->ff_dim;
    return c->heads == c->kv_heads ? outputs : (size_t)heads * (size_t)c->head_dim;
}

ph_fused ph_import_fused(const ph_import *in, const ph_config *c,
                         const ph_tensor_name *line, size_t outputs)
{
    ph_fused f = {.total = outputs};
    if (!line->parts) return f;
    f.total = 0;
    for (const ph_tensor_name *n = in->architecture->names; n->ours; n++) {
        if (!n->parts || strcmp(n->folder, line->folder)) continue;
        f.total += outputs_of(c, n->ours, outputs);
        if (n->part < line->part) f.first += outputs_of(c, n->ours, outputs);
    }
    if (!line->by_head || ph_import_is_gguf(in)) return f;
    f.run = (size_t)c->head_dim;
    f.first = (size_t)line->part * f.run, f.step = (size_t)line->parts * f.run;
    return f;
}

static int ends_with(const char *text, const char *tail)
{
    size_t length = strlen(text), more = strlen(tail);
    return length >= more && !strcmp(text + length - more, tail);
}

/* Whether a pattern of the table is the name of a tensor of the folder. */
static int is_named(const ph_import *in, const char *pattern, const char *name,
                    int *number)
{
    size_t prefix = strlen(in->prefix);
    if (pattern[0] == '/') return matches(pattern + 1, name, number);
    return !strncmp(name, in->prefix, prefix) && matches(pattern, name + prefix, number);
}

/* Tables that can be computed, and what the architecture does without. */
static int is_ignored(const ph_import *in, const char *name)
{
    const char *const *list = in->architecture->ignored;
    int number;
    if (ph_import_is_gguf(in)) return 0;
    if (ends_with(name, "position_ids") || ends_with(name, "rotary_emb.inv_freq"))
        return 1;
    for (; list && *list; list++)
        if (is_named(in, *list, name, &number)) return 1;
    return 0;
}

/* The tensor that was read in place of this one, where both are names of the same
   table; else NULL. */
static const ph_stored *read_instead(const ph_import *in, const char *name)
{
    int number;
    for (const ph_tensor_name *n = in->architecture->names; n->ours; n++)
        if (n->table && n->folder && is_named(in, n->folder, name, &number) && number < 0)
            return ph_import_find(in, n->ours);
    return NULL;
}

/* Does a tensor hold what another one does? One that was trained apart differs all over,
   so some rows tell, without a read of the whole file. */
static int is_copy(const ph_tensor *a, const ph_tensor *b)
{
    enum { ROWS = 64 };
    if (a->type != b->type || a->rank != b->rank || a->bytes != b->bytes || !a->rank ||
        memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) || !a->shape[0])
        return 0;
    size_t rows = a->shape[0], step = rows / ROWS + 1, row = a->bytes / rows;
    for (size_t i = 0; i < rows; i += step)
        if (memcmp((const char *)a->data + i * row, (const char *)b->data + i * row, row))
            return 0;
    return 1;
}

/* A table that a folder holds under two names has one value here. */
static ph_status check_copy(const ph_import *in, const ph_tensor *tensor)
{
    const ph_stored *other = read_instead(in, tensor->name);
    if (!other || is_copy(tensor, &other->tensor)) return PH_OK;
    return ph_fail(in->ctx, PH_UNSUPPORTED,
                   "tensor %s differs from %s, expected the same table", tensor->name,
                   other->tensor.name);
}

ph_status ph_import_check_read(ph_import *in)
{
    const ph_checkpoint *c = in->checkpoint;
    for (size_t i = 0; i < c->count; i++) {
        const ph_tensor *t = &c->tensors[i].tensor;
        if (c->tensors[i].read || !t->bytes) continue; /* all heads were removed */
        if (!is_ignored(in, t->name))
            return ph_fail(in->ctx, PH_UNSUPPORTED,
                           "tensor %s is unknown in a model of type %s",
                           ph_io_quote(t->name, strlen(t->name)).text, in->type);
        PH_TRY(check_copy(in, t));
    }
    return PH_OK;
}
