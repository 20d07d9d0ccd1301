/*
 * tune.c - training that goes on from a model: how its data sees it, and the classifier
 * it gets for labels it does not know.
 */
#include <stdio.h>
#include <string.h>

#include "model/model_text.h"
#include "model/train.h"

enum { LENGTH = 128 }; /* tokens of a text, where nothing else is said */

ph_status ph_train_from(ph_train *train, const char *path)
{
    if (!train || (path && strlen(path) >= sizeof train->from)) return PH_BAD_ARGUMENT;
    snprintf(train->from, sizeof train->from, "%s", path ? path : "");
    train->tuned = 1;
    train->config.dropout = 0, train->smoothing = 0;
    train->length = 0; /* LENGTH, or what the model takes if that is less */
    train->steps = 200, train->batch = 8;
    train->lr = 5e-5f, train->warmup = 20;
    train->pace.checkpoint_every = 100, train->pace.keep = 1;
    train->pace.test_texts = 100;
    return PH_OK;
}

static ph_status check_problem(const ph_trainer *t)
{
    if (t->model->config.problem_type != PH_REGRESSION) return PH_OK;
    return ph_fail(t->ctx, PH_UNSUPPORTED,
                   "the model is a regression (problem_type), which has no loss here");
}

ph_status ph_tune_open(ph_trainer *t)
{
    if (!t->model) PH_TRY(ph_model_read(&t->model, t->ctx, t->train.from));
    PH_TRY(check_problem(t));
    PH_TRY(ph_model_own(t->model));
    ph_model *m = t->model;
    if (!m->config.problem_type) m->config.problem_type = t->train.config.problem_type;
    t->origin = (ph_origin){.config = m->config,
                            .tokenizer = m->tokenizer,
                            .target_tokenizer = m->target_tokenizer,
                            .truncate_left = m->truncate_left,
                            .vocab = &m->vocab,
                            .mask = m->marks.mask,
                            .start = m->marks.start,
                            .first = ph_is_forced(m, 0) ? m->marks.forced[0] : -1,
                            .end = m->marks.end_count ? m->marks.ends[0] : -1,
                            .labels = m->labels};
    if (!t->train.length) t->train.length = ph_min(LENGTH, m->config.max_len);
    if (t->train.length <= m->config.max_len) return PH_OK;
    return ph_fail(t->ctx, PH_BAD_ARGUMENT,
                   "length is %d tokens, the model takes at most %d", t->train.length,
                   m->config.max_len);
}

/* ---- a new classifier -------------------------------------------------------------- */

/* As published encoders have it: the first token, a pooler, the classifier. That of a
   decoder is replaced by one of the same kind. */
static ph_config with_classes(const ph_config *old, int classes)
{
    ph_config c = *old;
    c.classes = classes;
    if (c.arch == PH_ARCH_DECODER) return c;
    c.masked = c.untied = c.unit_norm = c.pool_len = 0;
    c.pooling = PH_POOL_FIRST, c.no_head_bias = 0;
    int tanh_too = c.types || c.positions == PH_POS_LEARNED_T5;
    int electra = c.embed_dim && !c.layer_groups; /* ALBERT has it as BERT does */
    int modern = c.embed_norm && c.norm_place == PH_PRE_NORM; /* ModernBERT */
    c.no_dense_bias = modern && (c.no_dense_bias || !(c.pooler || old->masked));
    if (c.pooler) return c;
    c.pooler_norm = modern;
    c.pooler = electra || modern ? PH_POOLER_GELU
               : tanh_too            ? PH_POOLER_TANH
                                     : PH_POOLER_RELU;
    return c;
}

/* The same name; with a norm, a pooler goes on from the layer of masked tokens, which has
   the same place in that type. */
static int goes_on(const ph_model *to, const char *old, const char *name)
{
    if (to->config.pooler_norm && !strncmp(old, "masked.", 7) &&
        !strncmp(name, "pooler.", 7))
        return !strcmp(old + 7, name + 7);
    return !strcmp(old, name);
}

/* Parameters of the same name and size. */
static void copy_parameters(const ph_model *from, ph_model *to)
{
    for (int i = 0; i < to->param_count; i++)
        for (int k = 0; k < from->param_count; k++) {
            const ph_weight *a = &from->params[k], *b = &to->params[i];
            if (!goes_on(to, a->name, b->name) || a->count != b->count) continue;
            memcpy(to->block + b->at, from->block + a->at, a->count * sizeof(float));
        }
}

/* What is said of classes, and before texts that become vectors, goes with them. */
static void forget(const ph_trainer *t, char **text)
{
    ph_ctx_release(t->ctx, *text);
    *text = NULL;
}

static ph_status replace_classifier(ph_trainer *t)
{
    ph_model *m = t->model, *fresh;
    ph_config c = with_classes(&m->config, t->data.classes);
    if (m->kept.removed)
        return ph_fail(t->ctx, PH_UNSUPPORTED,
                       "the model has lost heads, expected one with these classes "
                       "before any was removed");
    PH_TRY(
        ph_model_create(&fresh, t->ctx, &c, PH_SPLIT_WORDS, NULL, 0, t->train.seed));
    copy_parameters(m, fresh);
    ph_model_exchange(m, fresh);
    ph_model_free(fresh);
    forget(t, &m->labels);
    forget(t, &m->prompt);
    t->origin.labels = NULL, t->origin.config = m->config;
    return PH_OK;
}

/* ---- names of classes -------------------------------------------------------------- */

static size_t labels_size(const char *labels, int count)
{
    const char *at = labels;
    for (int i = 0; i < count; i++) at += strlen(at) + 1;
    return (size_t)(at - labels);
}

static ph_status name_classes(ph_trainer *t)
{
    ph_model *m = t->model;
    size_t bytes = labels_size(t->data.labels, t->data.classes);
    char *copy = ph_ctx_alloc(t->ctx, bytes + 1);
    if (!copy) return ph_fail(t->ctx, PH_OUT_OF_MEMORY, "no memory for names of classes");
    ph_ctx_release(t->ctx, m->labels);
    m->labels = memcpy(copy, t->data.labels, bytes);
    t->origin.labels = m->labels;
    return PH_OK;
}

/* Names count where the model has them, else the number of classes alone. */
static int knows_classes(const ph_trainer *t)
{
    const ph_model *m = t->model;
    const char *name = t->data.labels;
    if (m->config.classes != t->data.classes || !m->config.pooling) return 0;
    for (int i = 0; m->labels && i < t->data.classes; i++, name += strlen(name) + 1)
        if (*ph_model_class(m, i) && strcmp(ph_model_class(m, i), name)) return 0;
    return 1;
}

ph_status ph_tune_classes(ph_trainer *t)
{
    ph_problem problem = t->model->config.problem_type;
    PH_TRY(check_problem(t));
    if (problem == PH_MULTI_LABEL && !t->data.multi_label)
        return ph_fail(t->ctx, PH_BAD_ARGUMENT,
                       "recipe %s has one label of a text at most, expected classes for "
                       "a model with several (multi_label)",
                       t->recipe->name);
    if (!t->data.classes) return PH_OK;
    t->model->config.problem_type =
        t->data.multi_label ? PH_MULTI_LABEL : PH_SINGLE_LABEL;
    if (t->train.tuned && !knows_classes(t)) PH_TRY(replace_classifier(t));
    return name_classes(t);
}
