/*
 * reading.c - a model run on one text or picture, with everything open to view.
 *
 * An open pass shows the heads of every attention site before their output projection:
 * there heads are ablated, averaged, or recomputed from frozen weights. Weights are not
 * stored but recomputed on demand from q, k and lse by ph_look; only a frozen run stores
 * them. A reading that passes holds q, k and lse of one site at a time.
 */
#include <stdio.h>
#include <string.h>

#include "attn/look.h"
#include "model/reading.h"

/* ---- attention sites -------------------------------------------------------------- */

static void name_site(reading_site *p, const ph_model_stack *s,
                      const ph_sublayer *sublayer)
{
    snprintf(p->name, sizeof p->name, "%s.%d.%s", s->causal ? "decoder" : "encoder",
             sublayer->layer, sublayer->kind == PH_SUBLAYER_CROSS ? "cross" : "self");
}

static void add_site(ph_reading *r, int stack, int sublayer)
{
    const ph_config *c = &r->model->config;
    const ph_pass_stack *s = &r->pass->stacks[stack];
    const ph_sublayer *def = &s->def->sublayers[sublayer];
    reading_site *p = &r->sites[r->site_count++];
    int cross = def->kind == PH_SUBLAYER_CROSS;
    ph_layer_info info = ph_layer_about(s->acts[sublayer].layer);
    p->act = &s->acts[sublayer], p->stack = stack, p->sublayer = sublayer;
    p->first_head = r->head_count;
    p->plain = !strcmp(def->variant, "mha");
    r->head_count += info.attn->q_heads;
    name_site(p, s->def, def);
    p->info = (ph_site){.name = p->name,
                        .kind = cross ? PH_SITE_CROSS : PH_SITE_SELF,
                        .decoder = s->def->decoder,
                        .layer = def->layer,
                        .heads = info.attn->q_heads,
                        .original = def->original,
                        .kv_heads = p->plain ? info.attn->k_heads : info.attn->q_heads,
                        .q_len = s->len,
                        .kv_len = cross ? r->pass->stacks[0].len : s->len,
                        .qk_dim = c->head_dim,
                        .v_dim = info.dim,
                        .variant = def->variant};
}

static void add_sites(ph_reading *r)
{
    const ph_config *c = &r->model->config;
    for (int i = 0; i < r->pass->stack_count; i++)
        for (int s = 0; s < r->pass->stacks[i].def->count; s++)
            if (r->pass->stacks[i].def->sublayers[s].site >= 0) add_site(r, i, s);
    if (r->model->links < 0) return;
    reading_site *p = &r->sites[r->site_count++];
    int len = r->pass->stacks[0].len;
    p->first_head = r->head_count;
    p->plain = 1;
    r->head_count++;
    p->info = (ph_site){.name = "links",
                        .kind = PH_SITE_LINK,
                        .layer = c->layers,
                        .heads = 1,
                        .kv_heads = 1,
                        .q_len = len,
                        .kv_len = len,
                        .qk_dim = c->model_dim,
                        .variant = "mha"};
}

const ph_site *ph_reading_site(const ph_reading *r, int i)
{
    return r && i >= 0 && i < r->site_count ? &r->sites[i].info : NULL;
}

/* ---- inputs of attention ----------------------------------------------------------- */

/* Plan and pointers of a site after the forward pass, ready for ph_look. */
static const ph_plan *recall(const ph_reading *r, int index, ph_args *args)
{
    const reading_site *p = &r->sites[index];
    const ph_links *links = r->pass->links;
    *args = (ph_args){0};
    if (!p->act) {
        args->q = links->q, args->k = links->k, args->lse = links->lse;
        args->gate = NULL;
        args->q_offsets = r->pass->stacks[0].offsets;
        return links->plan;
    }
    ph_arena saved = ph_arena_of(p->act->saved, ph_layer_saved(p->act->layer));
    ph_layer_activations acts = ph_layer_take_activations(p->act->layer, &saved, 1);
    args->q = acts.q, args->k = acts.k, args->v = acts.v, args->lse = acts.lse;
    args->q_offsets = r->pass->stacks[p->stack].offsets;
    if (p->info.kind == PH_SITE_CROSS) args->kv_offsets = r->pass->stacks[0].offsets;
    if (p->info.kind == PH_SITE_SELF)
        ph_attend_positions(r->pass, p->stack, p->sublayer, args);
    return p->act->layer->plan;
}

static ph_status check_site(const ph_reading *r, int site)
{
    if (site >= 0 && site < r->site_count) return PH_OK;
    return ph_fail(r->model->ctx, PH_BAD_ARGUMENT, "site is %d, expected 0 to %d", site,
                   r->site_count - 1);
}

static ph_status check_held(const ph_reading *r, int site)
{
    PH_TRY(check_site(r, site));
    if (!r->passes || site == r->at) return PH_OK;
    return ph_fail(r->model->ctx, PH_UNSUPPORTED,
                   "site %d is looked at outside its turn in ph_reading_pass", site);
}

static ph_status look(const ph_reading *r, int site, const ph_look_at *at)
{
    ph_args args;
    PH_TRY(check_held(r, site));
    const reading_site *p = &r->sites[site];
    if (!p->plain) return ph_attend_look(r->pass, p->stack, p->sublayer, at, r->scratch);
    const ph_plan *plan = recall(r, site, &args);
    args.look = at;
    return ph_look(plan, &args);
}

ph_status ph_reading_look(const ph_reading *r, int site, const ph_look_at *at)
{
    if (!r) return PH_BAD_ARGUMENT;
    if (!at) return ph_ctx_null(r->model->ctx, "at");
    return PH_WITHIN(r->model->ctx, look(r, site, at));
}

/* Heads of variants run as a whole, and a bias of heads that are left is copied for each
   look. */
int ph_reading_parallel(const ph_reading *r)
{
    const ph_ctx *ctx = r->model->ctx;
    int parallel = ctx->default_memory && !ctx->device;
    for (int i = 0; i < r->site_count; i++)
        parallel &= r->sites[i].plain && !(r->sites[i].act && r->sites[i].act->relative);
    return parallel;
}

ph_status ph_reading_rect(const ph_reading *r, int site, const ph_look_at *at)
{
    ph_args args;
    if (r->passes && site != r->at) return PH_UNSUPPORTED;
    const ph_plan *plan = recall(r, site, &args);
    void *memory = ph_ctx_alloc(r->model->ctx, plan->lane_bytes[PH_DO_LOOK]);
    if (!memory) return PH_OUT_OF_MEMORY;
    args.look = at;
    ph_look_rect(plan, &args, memory);
    ph_ctx_release(r->model->ctx, memory);
    return PH_OK;
}

/* One head's rows out of a (len, heads, dim) tensor. */
static void copy_head(float *to, const float *from, int len, int heads, int head, int dim)
{
    for (int t = 0; to && from && t < len; t++)
        memcpy(to + (size_t)t * dim, from + ((size_t)t * heads + head) * dim,
               (size_t)dim * sizeof *to);
}

static ph_status vectors(const ph_reading *r, int site, int head, float *q, float *k,
                         float *v, float *out)
{
    ph_args args;
    PH_TRY(q || k || v || out ? check_held(r, site) : check_site(r, site));
    const reading_site *p = &r->sites[site];
    const ph_site *s = &p->info;
    if (head < 0 || head >= s->heads)
        return ph_fail(r->model->ctx, PH_BAD_ARGUMENT, "head is %d, expected 0 to %d",
                       head, s->heads - 1);
    if (!p->plain)
        return ph_fail(r->model->ctx, PH_UNSUPPORTED,
                       "heads of %s have no vectors of their own to show", s->variant);
    if (!p->act && (v || out))
        return ph_fail(r->model->ctx, PH_UNSUPPORTED, "the links have no values");
    recall(r, site, &args);
    int shared = head / (s->heads / s->kv_heads);
    copy_head(q, args.q, s->q_len, s->heads, head, s->qk_dim);
    copy_head(k, args.k, s->kv_len, s->kv_heads, shared, s->qk_dim);
    copy_head(v, args.v, s->kv_len, s->kv_heads, shared, s->v_dim);
    if (out) copy_head(out, p->act->heads, s->q_len, s->heads, head, s->v_dim);
    return PH_OK;
}

ph_status ph_reading_vectors(const ph_reading *r, int site, int head, float *q, float *k,
                             float *v, float *out)
{
    if (!r) return PH_BAD_ARGUMENT;
    return PH_WITHIN(r->model->ctx, vectors(r, site, head, q, k, v, out));
}

/* ---- changing heads ---------------------------------------------------------------- */

/* heads = frozen weights times the values of this run */
static void refreeze(const ph_reading *r, int index, float *heads)
{
    ph_args args;
    const reading_site *p = &r->sites[index];
    const ph_site *s = &p->info;
    int dim = s->v_dim, group = s->heads / s->kv_heads;
    recall(r, index, &args);
    for (int h = 0; h < s->heads; h++)
        for (int i = 0; i < s->q_len; i++) {
            const float *w = p->frozen + ((size_t)h * s->q_len + i) * s->kv_len;
            float *out = heads + ((size_t)i * s->heads + h) * dim;
            memset(out, 0, (size_t)dim * sizeof *out);
            for (int j = 0; j < s->kv_len; j++) {
                const float *v =
                    (const float *)args.v + ((size_t)j * s->kv_heads + h / group) * dim;
                r->model->spans->add_scaled(dim, w[j], v, out);
            }
        }
}

static void change_head(const ph_site *s, int head, ph_ablation how, float *heads)
{
    for (int d = 0; d < s->v_dim; d++) {
        double sum = 0;
        for (int i = 0; i < s->q_len; i++)
            sum += heads[((size_t)i * s->heads + head) * s->v_dim + d];
        float to = how == PH_HEAD_ZERO ? 0 : (float)(sum / s->q_len);
        for (int i = 0; i < s->q_len; i++)
            heads[((size_t)i * s->heads + head) * s->v_dim + d] = to;
    }
}

static float gate_of(const ph_reading *r, int head)
{
    return r->ungated ? 1 : r->gate[head];
}

static void weaken_head(const ph_site *s, int head, float gate, float *heads)
{
    for (int i = 0; i < s->q_len && gate != 1; i++)
        for (int d = 0; d < s->v_dim; d++)
            heads[((size_t)i * s->heads + head) * s->v_dim + d] *= gate;
}

/* A site is looked at while the pass holds it. */
static ph_status visit(ph_reading *r, int site)
{
    if (!r->visit) return PH_OK;
    r->at = site;
    ph_status status = r->visit(r->visitor, site);
    r->at = -1;
    return status;
}

static ph_status see(void *user, int site, float *heads)
{
    ph_reading *r = user;
    const reading_site *p = &r->sites[site];
    if (r->frozen && p->frozen) refreeze(r, site, heads);
    for (int h = 0; h < p->info.heads; h++) {
        ph_ablation how = (ph_ablation)r->ablation[p->first_head + h];
        if (how != PH_HEAD_ON) change_head(&p->info, h, how, heads);
        weaken_head(&p->info, h, gate_of(r, p->first_head + h), heads);
    }
    return visit(r, site);
}

/* The pointer has no output to change: what its gate takes away from its answer goes to
   all words alike, and switched off it says nothing. */
static void gate_links(ph_reading *r)
{
    const reading_site *p = &r->sites[r->site_count - 1];
    size_t len = (size_t)p->info.q_len;
    float gate = gate_of(r, p->first_head), *answer = r->pass->links->p;
    if (r->ablation[p->first_head] != PH_HEAD_ON) gate = 0;
    for (size_t i = 0; gate != 1 && i < len * len; i++)
        answer[i] = gate * answer[i] + (1 - gate) / (float)len;
}

static ph_status forward(ph_reading *r)
{
    ph_batch batch = {
        .source = r->tokens[0], .target = r->tokens[1], .pixels = r->pixels};
    batch.features = r->features;
    if (r->model->config.types) batch.types = r->types;
    PH_TRY(ph_pass_forward(r->pass, &batch, 0));
    if (r->passes) return r->model->links >= 0 ? visit(r, r->site_count - 1) : PH_OK;
    if (r->model->output >= 0) return ph_pass_logits(r->pass);
    if (r->model->links >= 0) gate_links(r);
    return PH_OK;
}

/* Stores the weights of the first run. */
static ph_status freeze(ph_reading *r)
{
    for (int i = 0; i < r->site_count; i++) {
        reading_site *p = &r->sites[i];
        size_t count =
            (size_t)p->info.heads * (size_t)p->info.q_len * (size_t)p->info.kv_len;
        if (!p->act || p->frozen) continue;
        p->frozen = ph_ctx_alloc(r->model->ctx, count * sizeof(float));
        if (!p->frozen)
            return ph_fail(r->model->ctx, PH_OUT_OF_MEMORY, "no memory for weights");
        PH_TRY(ph_reading_look(r, i, &(ph_look_at){.weights = p->frozen}));
    }
    return PH_OK;
}

/* Heads that are mixed or overlap cannot be told apart behind attention. */
static ph_status check_change(const ph_reading *r, const uint8_t *ablation, int frozen)
{
    for (int i = 0; i < r->site_count; i++) {
        const reading_site *p = &r->sites[i];
        int apart = !p->act || ph_layer_about(p->act->layer).heads == p->info.heads;
        for (int h = 0; h < p->info.heads; h++) {
            int change = frozen || (ablation && ablation[p->first_head + h]) ||
                         r->gate[p->first_head + h] != 1;
            if (change && (!apart || (frozen && !p->plain)))
                return ph_fail(r->model->ctx, PH_UNSUPPORTED,
                               "heads of %s cannot be changed one by one",
                               p->info.variant);
        }
    }
    return PH_OK;
}

static ph_status set_gates(ph_reading *r, const float *gates)
{
    for (int i = 0; gates && i < r->head_count; i++)
        if (!(gates[i] >= 0 && gates[i] <= 1))
            return ph_fail(r->model->ctx, PH_BAD_ARGUMENT,
                           "gates[%d] is %g, expected 0 to 1", i, (double)gates[i]);
    for (int i = 0; i < r->head_count; i++) r->gate[i] = gates ? gates[i] : 1;
    return PH_OK;
}

ph_status ph_reading_gates(ph_reading *r, const float *gates)
{
    if (!r) return PH_BAD_ARGUMENT;
    return PH_WITHIN(r->model->ctx, set_gates(r, gates));
}

static ph_status run(ph_reading *r, const uint8_t *ablation, int frozen)
{
    PH_TRY(ph_reading_whole(r));
    PH_TRY(check_change(r, ablation, frozen));
    for (int i = 0; ablation && i < r->head_count; i++)
        if (ablation[i] > PH_HEAD_MEAN)
            return ph_fail(r->model->ctx, PH_BAD_ARGUMENT,
                           "ablation[%d] is %d, expected 0 to %d", i, ablation[i],
                           PH_HEAD_MEAN);
    if (frozen && !r->frozen) { /* what is frozen is the run without any change */
        memset(r->ablation, 0, (size_t)r->head_count);
        r->ungated = 1;
        ph_status status = forward(r);
        if (status == PH_OK) status = freeze(r);
        r->ungated = 0;
        PH_TRY(status);
    }
    r->frozen = frozen;
    memset(r->ablation, 0, (size_t)r->head_count);
    if (ablation) memcpy(r->ablation, ablation, (size_t)r->head_count);
    return forward(r);
}

ph_status ph_reading_run(ph_reading *r, const uint8_t *ablation, int frozen)
{
    if (!r) return PH_BAD_ARGUMENT;
    return PH_WITHIN(r->model->ctx, run(r, ablation, frozen));
}

static ph_status pass(ph_reading *r, ph_status (*visitor)(void *user, int site),
                      void *user)
{
    if (!r->passes)
        return ph_fail(r->model->ctx, PH_BAD_ARGUMENT,
                       "the reading was not made by ph_reading_prepare");
    r->visit = visitor, r->visitor = user;
    ph_status status = forward(r);
    r->visit = NULL;
    return status;
}

ph_status ph_reading_pass(ph_reading *r, ph_status (*visitor)(void *user, int site),
                          void *user)
{
    if (!visitor) return ph_ctx_null(r ? r->model->ctx : NULL, "visitor");
    if (!r) return PH_BAD_ARGUMENT;
    return PH_WITHIN(r->model->ctx, pass(r, visitor, user));
}

/* ---- making one -------------------------------------------------------------------- */

/* Buffers for the heads of any site, which may be more than the configuration's. */
static ph_status make_buffers(ph_reading *r)
{
    size_t most = 1;
    for (int i = 0; i < r->site_count; i++) {
        const reading_site *p = &r->sites[i];
        size_t floats = p->act ? (size_t)p->info.q_len * (size_t)ph_act_width(p->act) : 0;
        if (floats > most) most = floats;
    }
    r->scratch = ph_ctx_alloc(r->model->ctx, most * sizeof *r->scratch);
    r->ablation = ph_ctx_alloc(r->model->ctx, (size_t)r->head_count);
    r->gate = ph_ctx_alloc(r->model->ctx, (size_t)r->head_count * sizeof *r->gate);
    if (!r->scratch || !r->ablation || !r->gate)
        return ph_fail(r->model->ctx, PH_OUT_OF_MEMORY, "no memory for a reading");
    memset(r->ablation, 0, (size_t)r->head_count);
    return ph_reading_gates(r, NULL);
}

/* Looks at a variant run its layer again, from the residual stream. */
static int what_to_hold(const ph_reading *r)
{
    const ph_model *m = r->model;
    if (r->passes) return PH_OPEN_SITE;
    for (int i = 0; i < m->stack_count; i++)
        for (int s = 0; s < m->stacks[i].count; s++) {
            const ph_sublayer *def = &m->stacks[i].sublayers[s];
            if (def->site >= 0 && strcmp(def->variant, "mha")) return PH_OPEN_ALL;
        }
    return PH_OPEN_SITES;
}

static ph_status begin(ph_reading *r, const reading_source *source)
{
    ph_model *m = (ph_model *)r->model;
    size_t len = (size_t)ph_max(m->config.max_len, m->config.encoder_len),
           sites = (size_t)m->site_count + 1;
    size_t bytes = 0;
    for (int measure = 1; measure >= 0; measure--) {
        ph_arena arena = ph_arena_of(r->memory, bytes);
        for (int i = 0; i < 2; i++) {
            r->word[i] = ph_arena_take(&arena, len * sizeof(ph_word));
            r->tokens[i] = ph_arena_take(&arena, len * sizeof(int32_t));
        }
        r->types = ph_arena_take(&arena, len * sizeof *r->types);
        r->sites = ph_arena_take(&arena, sites * sizeof(reading_site));
        if (!measure) break;
        bytes = arena.used;
        r->memory = ph_ctx_alloc(m->ctx, bytes);
        if (!r->memory)
            return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a reading");
        memset(r->memory, 0, bytes);
    }
    PH_TRY(ph_reading_rows(r, source));
    ph_pass_shape shape = {.batch = 1,
                           .source_len = r->words[0],
                           .target_len = r->words[1],
                           .open = what_to_hold(r)};
    PH_TRY(ph_pass_create(&r->pass, m, &shape));
    r->pass->see = see, r->pass->user = r;
    add_sites(r);
    return make_buffers(r);
}

static ph_status create(ph_reading **out, const ph_model *model,
                        const reading_source *source, int passes)
{
    if (!source->text && !source->same)
        return ph_fail(model->ctx, PH_BAD_ARGUMENT, "text is NULL");
    ph_reading *r = ph_ctx_alloc(model->ctx, sizeof *r);
    if (!r) return ph_fail(model->ctx, PH_OUT_OF_MEMORY, "no memory for a reading");
    *r = (ph_reading){.model = model, .passes = passes, .at = -1};
    ph_status status = begin(r, source);
    if (status == PH_OK)
        *out = r;
    else
        ph_reading_free(r);
    return status;
}

ph_status ph_reading_open(ph_reading **out, const ph_model *model,
                          const reading_source *source)
{
    return PH_WITHIN(model->ctx, create(out, model, source, 0));
}

static ph_status open_and_run(ph_reading **out, const ph_model *model,
                              const reading_source *source)
{
    PH_TRY(ph_reading_open(out, model, source));
    ph_status status = PH_WITHIN(model->ctx, forward(*out));
    if (status != PH_OK) {
        ph_reading_free(*out);
        *out = NULL;
    }
    return status;
}

ph_status ph_reading_again(ph_reading **out, const ph_reading *reading)
{
    return open_and_run(out, reading->model, &(reading_source){.same = reading});
}

ph_status ph_reading_create(ph_reading **out, const ph_model *model, const char *text,
                            const char *target)
{
    if (out) *out = NULL;
    if (!out) return ph_ctx_null(model ? model->ctx : NULL, "out");
    if (!model) return PH_BAD_ARGUMENT;
    return open_and_run(out, model, &(reading_source){.text = text, .target = target});
}

ph_status ph_reading_prepare(ph_reading **out, const ph_model *model, const char *text,
                             const char *target)
{
    if (out) *out = NULL;
    if (!out) return ph_ctx_null(model ? model->ctx : NULL, "out");
    if (!model) return PH_BAD_ARGUMENT;
    const reading_source source = {.text = text, .target = target};
    return PH_WITHIN(model->ctx, create(out, model, &source, 1));
}

void ph_reading_free(ph_reading *r)
{
    if (!r) return;
    ph_ctx *ctx = r->model->ctx;
    for (int i = 0; i < r->site_count; i++) ph_ctx_release(ctx, r->sites[i].frozen);
    ph_pass_free(r->pass);
    ph_ctx_release(ctx, r->scratch);
    ph_ctx_release(ctx, r->ablation);
    ph_ctx_release(ctx, r->gate);
    ph_ctx_release(ctx, r->pixels);
    ph_ctx_release(ctx, r->features);
    ph_ctx_release(ctx, r->memory);
    ph_ctx_release(ctx, r);
}
