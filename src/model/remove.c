/*
 * remove.c - heads are taken out of a model: its matrices shrink.
 *
 *     wq, bq   columns of the heads that stay        wo   their rows; bo stays whole
 *     wk, wv   columns of the keys and values they share, once for each group
 *
 * A second model is made for the heads that stay, filled from the first, and exchanges
 * everything with it but what belongs to text. The other way round, heads that are
 * missing come back as zeros, for programs that want as many in every layer.
 */
#include <string.h>

#include "model/model.h"
#include "polyhead_prune.h"

/* ---- which heads stay -------------------------------------------------------------- */

static int divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Heads of a site that share keys and values. */
static int shared_heads(const ph_model *m, const ph_model_stack *s,
                        const ph_sublayer *def)
{
    const ph_attn a = ph_model_layer(m, s, def, 1, 1, 1).attn;
    return a.k_heads ? a.q_heads / a.k_heads : 1;
}

/* The size that groups can all have: a divisor of what is left of each. */
static int common_group(const ph_sublayer *def, int shared, const uint8_t *removed)
{
    int group = 0;
    for (int first = 0; first < def->heads; first += shared) {
        int left = 0;
        for (int h = first; h < first + shared; h++) left += !removed[h];
        group = divisor(left, group);
    }
    return group ? group : 1;
}

static void keep_sublayer(const ph_model *m, const ph_model_stack *s,
                          const ph_sublayer *def, const uint8_t *removed, ph_kept *kept)
{
    int cross = def->kind == PH_SUBLAYER_CROSS, gone = 0;
    int place = ph_kept_place(&m->config, s->decoder, def->layer, cross);
    size_t at = (size_t)place * (size_t)kept->heads;
    for (int h = 0; h < def->heads; h++) {
        if (!removed[h]) continue;
        kept->removed[at + (size_t)ph_sublayer_original(def, h)] = 1;
        gone++;
    }
    if (gone) kept->group[place] = common_group(def, shared_heads(m, s, def), removed);
}

static ph_status choose(const ph_model *m, const uint8_t *removed, ph_kept *kept)
{
    PH_TRY(m->kept.removed ? ph_kept_copy(kept, m->ctx, &m->config, &m->kept)
                           : ph_kept_create(kept, m->ctx, &m->config));
    for (int i = 0; i < m->stack_count; i++)
        for (int n = 0; n < m->stacks[i].count; n++) {
            const ph_sublayer *def = &m->stacks[i].sublayers[n];
            if (def->site >= 0)
                keep_sublayer(m, &m->stacks[i], def, removed + def->first_head, kept);
        }
    return PH_OK;
}

/* ---- parameters -------------------------------------------------------------------- */

/* Blocks of a parameter, one for each head along one axis. */
typedef struct slices {
    size_t outer, inner; /* rows before, floats of a block */
    int from, to;        /* blocks of the larger one and of the smaller one */
} slices;

/* Block b of the smaller parameter is block `index[b]` of the larger one. */
static void copy_slices(const slices *s, const int *index, int back, float *larger,
                        float *smaller)
{
    size_t bytes = s->inner * sizeof *larger;
    for (size_t o = 0; o < s->outer; o++)
        for (int b = 0; b < s->to; b++, smaller += s->inner) {
            float *at = larger + (o * (size_t)s->from + (size_t)index[b]) * s->inner;
            memcpy(back ? at : smaller, back ? smaller : at, bytes);
        }
}

/* The heads of the new sublayer among those of the old one: of queries, of keys. */
typedef struct moved_heads {
    int *q, *k;
    int q_from, k_from, q_to, k_to;
} moved_heads;

static void find_heads(const ph_sublayer *old, const ph_sublayer *def, int shared,
                       moved_heads *out)
{
    int next = 0;
    out->q_from = old->heads, out->k_from = old->heads / shared;
    out->q_to = def->heads, out->k_to = def->heads / def->group;
    for (int h = 0; h < old->heads && next < def->heads; h++)
        if (ph_sublayer_original(old, h) == def->original[next]) out->q[next++] = h;
    for (int j = 0; j < out->k_to; j++) out->k[j] = out->q[j * def->group] / shared;
}

/* Whether a parameter has a block for each head: wq wk wv wo bq bk bv. */
static int has_heads(const char *name)
{
    return strlen(name) == 2 && strcmp(name, "bo");
}

static void copy_heads(const ph_model *m, const ph_weight *p, const moved_heads *heads,
                       int back, float *larger, float *smaller)
{
    const char *name = strrchr(p->name, '.') + 1;
    size_t dim = (size_t)m->config.head_dim;
    int keys = name[1] == 'k' || name[1] == 'v';
    slices s = {1, dim, keys ? heads->k_from : heads->q_from,
                keys ? heads->k_to : heads->q_to};
    if (!has_heads(name)) return;
    if (name[1] == 'o')
        s.inner = dim * (size_t)p->dims[1];
    else if (p->rank == 2)
        s.outer = (size_t)p->dims[0];
    copy_slices(&s, keys ? heads->k : heads->q, back, larger, smaller);
}

static int find_param(const ph_model *m, const char *name)
{
    for (int i = 0; i < m->param_count; i++)
        if (!strcmp(m->params[i].name, name)) return i;
    return -1;
}

/* The heads of one sublayer, from the larger model into the smaller one or back. */
static void move_sublayer(const ph_model *larger, int stack, int number,
                          const ph_model *smaller, int back, int *scratch)
{
    const ph_sublayer *def = &smaller->stacks[stack].sublayers[number];
    const ph_sublayer *whole = &larger->stacks[stack].sublayers[number];
    moved_heads heads = {.q = scratch, .k = scratch + larger->config.heads};
    if (def->site < 0 || !def->original) return;
    find_heads(whole, def, shared_heads(larger, &larger->stacks[stack], whole), &heads);
    for (int i = def->first; i < def->first + def->count; i++) {
        const ph_weight *p = &smaller->params[i];
        const ph_weight *q = &larger->params[find_param(larger, p->name)];
        copy_heads(larger, p, &heads, back, larger->block + q->at,
                   smaller->block + p->at);
    }
}

void ph_model_copy_same(const ph_model *from, ph_model *to)
{
    for (int i = 0; i < to->param_count; i++) {
        const ph_weight *p = &to->params[i];
        int k = find_param(from, p->name);
        float *data = to->block + p->at;
        if (k < 0 || p->count != from->params[k].count) continue;
        if (p->rank == 2)
            ph_model_rows(from, k, 0, p->dims[0], data);
        else
            memcpy(data, from->block + from->params[k].at, p->count * sizeof *data);
    }
}

static ph_status move_all(ph_model *larger, ph_model *smaller, int back)
{
    size_t heads = (size_t)larger->config.heads;
    int *scratch = ph_ctx_alloc(larger->ctx, 2 * heads * sizeof *scratch);
    if (!scratch) return ph_fail(larger->ctx, PH_OUT_OF_MEMORY, "no memory for heads");
    ph_model_copy_same(back ? smaller : larger, back ? larger : smaller);
    for (int i = 0; i < smaller->stack_count; i++)
        for (int n = 0; n < smaller->stacks[i].count; n++)
            move_sublayer(larger, i, n, smaller, back, scratch);
    ph_ctx_release(larger->ctx, scratch);
    return PH_OK;
}

/* ---- changing places --------------------------------------------------------------- */

#define SWAP(type, member)                                                               \
    do {                                                                                 \
        type swapped_ = m->member;                                                       \
        m->member = other->member, other->member = swapped_;                             \
    } while (0)

void ph_model_exchange(ph_model *m, ph_model *other)
{
    ph_model old = *m;
    *m = *other, *other = old;
    SWAP(ph_vocab, vocab);
    SWAP(ph_tokenizer *, tokenizer);
    SWAP(char *, tokenizer_file);
    SWAP(size_t, tokenizer_size);
    SWAP(ph_tokenizer *, target_tokenizer);
    SWAP(char *, target_file);
    SWAP(size_t, target_size);
    SWAP(ph_marks, marks);
    SWAP(uint8_t *, suppressed);
    SWAP(int32_t *, banned);
    SWAP(int, banned_count);
    SWAP(char *, ignored);
    SWAP(char *, chat_template);
    for (int i = 0; i < PH_CHAT_TOKENS; i++) SWAP(char *, chat_tokens[i]);
    SWAP(char *, prompt);
    SWAP(int, truncate_left);
    SWAP(char *, labels);
    SWAP(ph_preprocess, preprocess);
}

static ph_status remove_heads(ph_model *m, const uint8_t *removed)
{
    ph_kept kept = {0};
    ph_model *fresh = NULL;
    int any = 0;
    if (!removed) return ph_fail(m->ctx, PH_BAD_ARGUMENT, "removed is NULL");
    for (int i = 0; i < m->head_count; i++) {
        any |= removed[i];
        if (removed[i] > 1)
            return ph_fail(m->ctx, PH_BAD_ARGUMENT, "removed[%d] is %d, expected 0 or 1",
                           i, removed[i]);
    }
    PH_TRY(ph_model_own(m));
    PH_TRY(ph_model_check_finite(m));
    if (!any) return PH_OK;
    ph_status status = choose(m, removed, &kept);
    if (status == PH_OK)
        status =
            ph_model_shape(&fresh, m->ctx, &m->config, &kept, PH_SPLIT_WORDS, NULL, 0);
    if (status == PH_OK) status = ph_model_allocate(fresh);
    if (status == PH_OK) status = move_all(m, fresh, 0);
    if (status == PH_OK) ph_model_exchange(m, fresh);
    ph_kept_free(&kept, m->ctx);
    ph_model_free(fresh);
    return status;
}

ph_status ph_model_remove(ph_model *model, const uint8_t *removed)
{
    if (!model) return PH_BAD_ARGUMENT;
    return PH_WITHIN(model->ctx, remove_heads(model, removed));
}

/* Whether a sublayer loses heads; removed NULL: each does. */
static int is_touched(const ph_sublayer *def, const uint8_t *removed)
{
    for (int h = 0; removed && h < def->heads; h++)
        if (removed[def->first_head + h]) return 1;
    return !removed;
}

static ph_status check_removable(const ph_model *m, const uint8_t *removed)
{
    for (int i = 0; i < m->stack_count; i++)
        for (int n = 0; n < m->stacks[i].count; n++) {
            const ph_sublayer *def = &m->stacks[i].sublayers[n];
            if (def->site < 0 || !is_touched(def, removed)) continue;
            PH_TRY(ph_model_check_unshared(m));
            PH_TRY(ph_sublayer_removable(m, &m->stacks[i], def));
        }
    return PH_OK;
}

ph_status ph_model_removable(const ph_model *model, const uint8_t *removed)
{
    if (!model) return PH_BAD_ARGUMENT;
    return PH_WITHIN(model->ctx, check_removable(model, removed));
}

/* ---- gates ------------------------------------------------------------------------- */

/* A head writes its output times its rows of wo. */
static void gate_sublayer(const ph_model *m, const ph_sublayer *def, const float *gates)
{
    for (int i = def->first; i < def->first + def->count; i++) {
        const ph_weight *p = &m->params[i];
        const char *dot = strrchr(p->name, '.');
        if (!dot || strcmp(dot + 1, "wo")) continue;
        size_t rows = (size_t)p->dims[0] / (size_t)def->heads;
        size_t count = rows * (size_t)p->dims[1];
        for (int h = 0; h < def->heads; h++)
            for (size_t k = 0; k < count; k++)
                m->block[p->at + (size_t)h * count + k] *= gates[h];
    }
}

static ph_status gate_heads(ph_model *m, const float *gates)
{
    if (!gates) return ph_fail(m->ctx, PH_BAD_ARGUMENT, "gates is NULL");
    for (int i = 0; i < m->head_count; i++)
        if (!(gates[i] >= 0 && gates[i] <= 1))
            return ph_fail(m->ctx, PH_BAD_ARGUMENT, "gates[%d] is %g, expected 0 to 1", i,
                           (double)gates[i]);
    PH_TRY(ph_model_own(m));
    for (int i = 0; i < m->stack_count; i++)
        for (int n = 0; n < m->stacks[i].count; n++) {
            const ph_sublayer *def = &m->stacks[i].sublayers[n];
            if (def->site >= 0 && def->heads > 0)
                gate_sublayer(m, def, gates + def->first_head);
        }
    return PH_OK;
}

ph_status ph_model_gate(ph_model *model, const float *gates)
{
    if (!model) return PH_BAD_ARGUMENT;
    return PH_WITHIN(model->ctx, gate_heads(model, gates));
}

/* ---- and back ---------------------------------------------------------------------- */

/* Whether blocks j - 1 and j of `count`, each of a head's size, are the same. */
static int is_copy(const ph_model *m, const ph_weight *p, int count, int j)
{
    size_t dim = (size_t)m->config.head_dim, step = (size_t)count * dim;
    const float *at = m->block + p->at + (size_t)j * dim;
    for (int row = 0; row < (p->rank == 2 ? p->dims[0] : 1); row++, at += step)
        if (memcmp(at, at - dim, dim * sizeof *at)) return 0;
    return 1;
}

/* Groups of one size have no place for copies of keys and values that training has made
   different. */
static ph_status check_copies(const ph_model *whole, const ph_model *m, int stack, int n)
{
    const ph_sublayer *def = &m->stacks[stack].sublayers[n];
    const ph_sublayer *full = &whole->stacks[stack].sublayers[n];
    if (def->site < 0 || !def->original) return PH_OK;
    int shared = shared_heads(whole, &whole->stacks[stack], full);
    for (int j = 1; j < def->heads / def->group; j++) {
        const int *first = def->original + j * def->group;
        if (first[0] / shared != first[-1] / shared) continue;
        for (int i = def->first; i < def->first + def->count; i++) {
            const ph_weight *p = &m->params[i];
            const char *name = strrchr(p->name, '.') + 1;
            int keys = has_heads(name) && (name[1] == 'k' || name[1] == 'v');
            if (keys && !is_copy(m, p, def->heads / def->group, j))
                return ph_fail(m->ctx, PH_UNSUPPORTED,
                               "%s has copies that were trained apart, expected groups "
                               "that all lost as many heads, or no training after it",
                               p->name);
        }
    }
    return PH_OK;
}

static ph_status restore(ph_model *m, ph_model *whole)
{
    for (int i = 0; i < m->stack_count; i++)
        for (int n = 0; n < m->stacks[i].count; n++) PH_TRY(check_copies(whole, m, i, n));
    PH_TRY(ph_model_allocate(whole));
    PH_TRY(move_all(whole, m, 1));
    ph_model_exchange(m, whole);
    return PH_OK;
}

ph_status ph_model_restore(ph_model *m)
{
    ph_model *fresh = NULL;
    if (!m->kept.removed) return PH_OK;
    PH_TRY(ph_model_shape(&fresh, m->ctx, &m->config, NULL, PH_SPLIT_WORDS, NULL, 0));
    ph_status status = restore(m, fresh);
    ph_model_free(fresh);
    return status;
}
