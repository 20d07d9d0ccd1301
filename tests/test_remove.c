/*
 * test_remove.c - heads taken out of models: same results as heads that give 0, in
 * passes, gradients, files, generated texts and views.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "polyhead_scene.h"
#include "prune_bed.h"

/* Heads of four per site, from the first site on; sites beyond these keep all. */
static const uint8_t patterns[][12] = {
    {1, 0, 0, 0, 0, 0, 0, 1},             /* one of each of two */
    {0, 0, 1, 1, 1, 1, 0, 0},             /* half */
    {0, 1, 1, 1, 0, 0, 0, 1},             /* groups that are left with 1 and 0, 2 and 1 */
    {1, 1, 1, 1, 0, 1, 0, 1},             /* a site without heads */
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, /* several of them */
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0}}; /* of the third site alone */

enum { PATTERNS = sizeof patterns / sizeof patterns[0] };

static void pattern_of(const ph_model *m, int number, uint8_t removed[64])
{
    int heads = ph_model_heads(m);
    memset(removed, 0, 64);
    memcpy(removed, patterns[number], (size_t)(heads < 12 ? heads : 12));
}

static void take_out(bed *b, const uint8_t *removed)
{
    ph_eval_free(b->e);
    b->e = NULL;
    CHECK(ph_model_remove(b->m, removed) == PH_OK, "%s", ph_error(b->ctx));
    make_eval(b);
}

static ph_result loss_of(bed *b, const uint8_t *ablation)
{
    ph_result result = {0};
    CHECK(ph_eval_loss(b->e, ablation, &result) == PH_OK, "%s", ph_error(b->ctx));
    return result;
}

static int count(const uint8_t *removed, int heads)
{
    int sum = 0;
    for (int i = 0; i < heads; i++) sum += removed[i];
    return sum;
}

/* A head that gives 0 adds 0 to sums of the output projection, which run over heads in
   order: the same bits. */
static void equals_gated(void)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < PATTERNS; n++) {
            bed b;
            uint8_t removed[64];
            make_bed(&b, kinds[k], 2);
            pattern_of(b.m, n, removed);
            int heads = ph_model_heads(b.m), gone = count(removed, heads);
            int64_t parameters = ph_model_parameters(b.m);
            ph_result gated = loss_of(&b, removed), whole = loss_of(&b, NULL);
            take_out(&b, removed);
            ph_result found = loss_of(&b, NULL);
            CHECK(ph_model_heads(b.m) == heads - gone, "%d heads of %d",
                  ph_model_heads(b.m), heads);
            CHECK(!memcmp(&gated, &found, sizeof found),
                  "kind %d pattern %d: loss %.9g, expected %.9g", k, n, found.loss.value,
                  gated.loss.value);
            CHECK(!gone || gated.loss.value != whole.loss.value, "nothing was removed");
            CHECK(!gone || b.m->config.kv_heads == 2 ||
                      ph_model_parameters(b.m) < parameters,
                  "kind %d pattern %d: %lld parameters, had %lld", k, n,
                  (long long)ph_model_parameters(b.m), (long long)parameters);
            free_bed(&b);
        }
}

static void set_gates(bed *b, const float *gates)
{
    ph_eval_free(b->e);
    b->e = NULL;
    CHECK(ph_model_gate(b->m, gates) == PH_OK, "%s", ph_error(b->ctx));
    make_eval(b);
}

/* A gate of 0 is a head that gives 0, a gate of 1 changes nothing, halves multiply: all
   exact, as products with powers of two are. */
static void gated(void)
{
    for (int k = 0; k < KINDS; k++) {
        bed b, twin;
        uint8_t off[64];
        float gates[64], halves[64];
        make_bed(&b, kinds[k], 2);
        make_bed(&twin, kinds[k], 2);
        pattern_of(b.m, 2, off);
        ph_result zero = loss_of(&b, off), whole = loss_of(&b, NULL);
        for (int i = 0; i < 64; i++) gates[i] = 1, halves[i] = i % 3 ? 1 : 0.5f;
        set_gates(&b, gates);
        ph_result found = loss_of(&b, NULL);
        CHECK(!memcmp(&found, &whole, sizeof found), "kind %d: gates of 1", k);
        set_gates(&b, halves);
        set_gates(&b, halves);
        for (int i = 0; i < 64; i++) gates[i] = halves[i] * halves[i];
        set_gates(&twin, gates);
        ph_result once = loss_of(&twin, NULL), twice = loss_of(&b, NULL);
        CHECK(!memcmp(&once, &twice, sizeof once), "kind %d: halves", k);
        CHECK(once.loss.value != whole.loss.value, "kind %d: nothing was gated", k);
        for (int i = 0; i < 64; i++) gates[i] = off[i] ? 0.0f : 1.0f;
        free_bed(&b);
        make_bed(&b, kinds[k], 2);
        set_gates(&b, gates);
        found = loss_of(&b, NULL);
        CHECK(!memcmp(&found, &zero, sizeof found), "kind %d: gates of 0", k);
        gates[1] = 1.5f;
        CHECK(ph_model_gate(b.m, gates) == PH_BAD_ARGUMENT &&
                  ph_model_gate(b.m, NULL) == PH_BAD_ARGUMENT,
              "kind %d: a gate of 1.5, or none, was accepted", k);
        free_bed(&b);
        free_bed(&twin);
    }
}

/* In two steps, by the indices of what is left, as in one. */
static void step_by_step(void)
{
    for (int k = 0; k < KINDS; k++) {
        bed once, twice;
        uint8_t removed[64] = {0}, first[64] = {0}, then[64] = {0};
        make_bed(&once, kinds[k], 1);
        make_bed(&twice, kinds[k], 1);
        removed[1] = removed[2] = removed[6] = 1;
        first[2] = first[6] = 1, then[1] = 1;
        take_out(&once, removed);
        take_out(&twice, first);
        take_out(&twice, then);
        for (int i = 0; i < ph_model_heads(once.m); i++) {
            ph_head_place a, b;
            CHECK(ph_model_head(once.m, i, &a) == PH_OK &&
                      ph_model_head(twice.m, i, &b) == PH_OK,
                  "no head %d", i);
            CHECK(!strcmp(a.site, b.site) && a.head == b.head,
                  "head %d is %s %d, expected %s %d", i, b.site, b.head, a.site, a.head);
        }
        ph_result a = loss_of(&once, NULL), b = loss_of(&twice, NULL);
        CHECK(!memcmp(&a, &b, sizeof a), "kind %d: %.9g, expected %.9g", k, b.loss.value,
              a.loss.value);
        free_bed(&once);
        free_bed(&twice);
    }
}

/* ---- gradients --------------------------------------------------------------------- */

static float *gradients(bed *b)
{
    ph_pass *p;
    double loss;
    float *grads = calloc(b->m->floats, sizeof *grads);
    ph_pass_shape shape = {.batch = b->e->batch,
                           .source_len = b->e->source_len,
                           .target_len = b->e->target_len,
                           .backward = 1,
                           .no_dropout = 1};
    ph_batch batch = ph_eval_fill(b->e, 0);
    CHECK(ph_pass_create(&p, b->m, &shape) == PH_OK &&
              ph_pass_forward(p, &batch, 0) == PH_OK &&
              ph_pass_loss(p, 0, 1, &loss) == PH_OK &&
              ph_pass_backward(p, grads) == PH_OK,
          "%s", ph_error(b->ctx));
    ph_pass_free(p);
    return grads;
}

/* Parameters that have no heads: their gradients are those of a model whose removed heads
   have rows of 0 in W_O, and so are sums of those that have: a column of W_Q that is
   left is the one it was. */
static void same_gradients(void)
{
    for (int k = 0; k < KINDS; k++) {
        bed zero, gone;
        uint8_t removed[64];
        double worst = 0, largest = 0;
        int compared = 0;
        make_bed(&zero, kinds[k], 1);
        make_bed(&gone, kinds[k], 1);
        pattern_of(gone.m, 3, removed);
        for (int h = 0; h < ph_model_heads(zero.m); h++) {
            size_t floats;
            int param;
            float *rows = output_rows(zero.m, h, &param, &floats);
            if (removed[h]) memset(rows, 0, floats * sizeof *rows);
        }
        take_out(&gone, removed);
        float *expected = gradients(&zero), *found = gradients(&gone);
        for (int i = 0; i < gone.m->param_count; i++)
            for (int o = 0; o < zero.m->param_count; o++) {
                const ph_weight *p = &gone.m->params[i], *q = &zero.m->params[o];
                if (strcmp(p->name, q->name) || p->count != q->count) continue;
                compared++;
                for (size_t x = 0; x < p->count; x++) {
                    double truth = (double)expected[q->at + x];
                    largest = fmax(largest, fabs(truth));
                    worst = fmax(worst, fabs(truth - (double)found[p->at + x]));
                }
            }
        CHECK(compared > 10 && largest > 0, "%d parameters were compared", compared);
        CHECK(worst <= GRADIENT_ERROR * (1 + largest), "kind %d: off by %.2g of %.2g", k,
              worst, largest);
        free(expected);
        free(found);
        free_bed(&zero);
        free_bed(&gone);
    }
}

/* ---- files, generation, views ------------------------------------------------------ */

static void stored(void)
{
    char path[] = "/tmp/polyhead_remove_XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0, "no temporary file");
    close(file);
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < PATTERNS; n++) {
            bed b;
            ph_model *again;
            uint8_t removed[64];
            make_bed(&b, kinds[k], 1);
            pattern_of(b.m, n, removed);
            take_out(&b, removed);
            ph_result before = loss_of(&b, NULL);
            CHECK(ph_model_write(b.m, path) == PH_OK &&
                      ph_model_read(&again, b.ctx, path) == PH_OK,
                  "%s", ph_error(b.ctx));
            int mask = b.m->marks.mask;
            ph_eval_free(b.e);
            ph_model_free(b.m);
            b.m = again, b.m->marks.mask = mask, b.e = NULL;
            make_eval(&b);
            ph_result after = loss_of(&b, NULL);
            CHECK(!memcmp(&before, &after, sizeof after), "kind %d pattern %d", k, n);
            free_bed(&b);
        }
    unlink(path);
}

/* Zeros in place of heads that are gone: what other programs read. */
static void restored(void)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < PATTERNS; n++) {
            bed b;
            uint8_t removed[64];
            make_bed(&b, kinds[k], 1);
            pattern_of(b.m, n, removed);
            int64_t parameters = ph_model_parameters(b.m);
            ph_result gated = loss_of(&b, removed);
            take_out(&b, removed);
            ph_eval_free(b.e);
            b.e = NULL;
            CHECK(ph_model_restore(b.m) == PH_OK &&
                      ph_model_parameters(b.m) == parameters,
                  "%s", ph_error(b.ctx));
            make_eval(&b);
            ph_result found = loss_of(&b, NULL);
            CHECK(!memcmp(&gated, &found, sizeof found), "kind %d pattern %d", k, n);
            free_bed(&b);
        }
}

/* Groups of two heads and one have copies, of which only one can go back. */
static void copies_trained_apart(void)
{
    bed b;
    uint8_t removed[64];
    make_model(&b, kinds[0], 1);
    pattern_of(b.m, 0, removed);
    CHECK(ph_model_remove(b.m, removed) == PH_OK, "%s", ph_error(b.ctx));
    int wk = 0;
    while (strcmp(b.m->params[wk].name, "decoder.0.self.wk")) wk++;
    b.m->block[b.m->params[wk].at + (size_t)b.m->config.head_dim] += 1;
    CHECK(ph_model_restore(b.m) == PH_UNSUPPORTED &&
              strstr(ph_error(b.ctx), "decoder.0.self.wk has copies that were trained"),
          "%s", ph_error(b.ctx));
    free_bed(&b);
}

/* A text of a model without heads, and of one whose heads have rows of 0 in W_O. */
static void generated(void)
{
    for (int k = 0; k < 4; k++)
        for (int n = 0; n < PATTERNS; n++) {
            bed zero, gone;
            uint8_t removed[64];
            char expected[256] = "", found[256] = "";
            make_bed(&zero, kinds[k], 1);
            make_bed(&gone, kinds[k], 1);
            pattern_of(gone.m, n, removed);
            for (int h = 0; h < ph_model_heads(zero.m); h++) {
                size_t floats;
                int param;
                float *rows = output_rows(zero.m, h, &param, &floats);
                if (removed[h]) memset(rows, 0, floats * sizeof *rows);
            }
            take_out(&gone, removed);
            const ph_generation how = {.max_tokens = 5};
            CHECK(ph_generate(zero.m, "a b c", &how, expected, sizeof expected, NULL) ==
                          PH_OK &&
                      ph_generate(gone.m, "a b c", &how, found, sizeof found, NULL) ==
                          PH_OK,
                  "%s%s", ph_error(zero.ctx), ph_error(gone.ctx));
            CHECK(!strcmp(expected, found), "kind %d pattern %d: \"%s\", expected \"%s\"",
                  k, n, found, expected);
            free_bed(&zero);
            free_bed(&gone);
        }
}

static void viewed(void)
{
    bed b;
    uint8_t removed[64];
    ph_reading *reading;
    ph_scene *scene;
    ph_prune plan;
    make_bed(&b, kinds[1], 1);
    pattern_of(b.m, 3, removed);
    take_out(&b, removed);
    CHECK(ph_reading_create(&reading, b.m, "a b c", NULL) == PH_OK, "%s",
          ph_error(b.ctx));
    const ph_site *site = ph_reading_site(reading, 0);
    CHECK(site && site->layer == 1 && site->heads == 2 && site->original[1] == 2 &&
              !ph_reading_site(reading, 1),
          "sites are not those that have heads");
    CHECK(ph_scene_create(&scene, b.m, reading, "m", "a b c", NULL, NULL) == PH_OK,
          "no scene");
    ph_report report = ph_scene_report(scene);
    const ph_stack *stack = &report.stacks[0];
    CHECK(stack->layers == 2 && stack->heads == 4 && stack->absent, "no grid");
    for (int i = 0; i < 8; i++)
        CHECK(stack->absent[i] == removed[i], "head %d is %d", i, stack->absent[i]);
    float weights[9], sum = 0;
    CHECK(report.weights(report.user, 0, 1, 2, 0, 3, weights) == PH_OK, "%s",
          ph_error(b.ctx));
    for (int i = 0; i < 9; i++) sum += weights[i];
    CHECK(fabsf(sum - 3) < 9 * 0x1p-23f, "weights sum to %g", (double)sum);
    CHECK(ph_prune_create(&plan, reading, NULL) == PH_OK &&
              ph_prune_entry(reading, 0, 2) == 1 && ph_prune_entry(reading, 0, 1) == -1,
          "entries of a plan are not by original index");
    ph_prune_free(&plan, NULL);
    ph_scene_free(scene);
    ph_reading_free(reading);
    free_bed(&b);
}

/* ---- refusals ---------------------------------------------------------------------- */

static void refused(void)
{
    static const char *const wrong[] = {
        "[]", "{\"encoder.0.self\":{\"heads\":[0],\"group\":1}}",
        "{\"decoder.0.self\":{\"heads\":[1,0],\"group\":1}}",
        "{\"decoder.0.self\":{\"heads\":[0,4],\"group\":1}}",
        "{\"decoder.0.self\":{\"heads\":[0,1,2],\"group\":2}}",
        "{\"decoder.0.self\":{\"heads\":[0,1]}}", "{\"decoder.0.self\":{\"group\":1}}",
        "{\"decoder.0.self\":{\"heads\":[0],\"group\":1}} 1"};
    bed b;
    uint8_t removed[64] = {1};
    ph_config c = {.arch = PH_ARCH_DECODER, .variant = "mha;talking"};
    make_model(&b, c, 1);
    size_t floats = b.m->floats;
    CHECK(ph_model_remove(b.m, removed) == PH_OK, "%s", ph_error(b.ctx));
    CHECK(b.m->floats < floats && ph_model_heads(b.m) == 7, "nothing was removed");
    removed[0] = 0, removed[4] = 1;
    CHECK(ph_model_remove(b.m, removed) == PH_UNSUPPORTED && ph_model_heads(b.m) == 7 &&
              strstr(ph_error(b.ctx), "talking"),
          "%s", ph_error(b.ctx));
    bed whole;
    make_model(&whole, (ph_config){.arch = PH_ARCH_DECODER}, 1);
    CHECK(ph_model_removable(whole.m, NULL) == PH_OK, "%s", ph_error(whole.ctx));
    free_bed(&whole);
    c = (ph_config){.arch = PH_ARCH_DECODER, .qk_norm = 1, .qk_norm_whole = 1};
    make_model(&whole, c, 1);
    CHECK(ph_model_remove(whole.m, removed) == PH_UNSUPPORTED &&
              strstr(ph_error(whole.ctx), "normalised together"),
          "%s", ph_error(whole.ctx));
    free_bed(&whole);
    c = (ph_config){.layers = 2, .layer_groups = 1, .norm_place = PH_POST_NORM};
    make_model(&whole, c, 1);
    CHECK(ph_model_remove(whole.m, removed) == PH_UNSUPPORTED &&
              strstr(ph_error(whole.ctx), "layers share parameters"),
          "%s", ph_error(whole.ctx));
    const uint8_t none[64] = {0};
    CHECK(ph_model_removable(whole.m, none) == PH_OK, "%s", ph_error(whole.ctx));
    for (int i = 0; i < 2; i++)
        CHECK(ph_model_removable(whole.m, i ? removed : NULL) == PH_UNSUPPORTED &&
                  strstr(ph_error(whole.ctx), "layers share parameters"),
              "%s", ph_error(whole.ctx));
    free_bed(&whole);
    CHECK(ph_model_removable(b.m, removed) == PH_UNSUPPORTED &&
              strstr(ph_error(b.ctx), "heads of talking"),
          "%s", ph_error(b.ctx));
    CHECK(ph_model_removable(b.m, NULL) == PH_UNSUPPORTED, "took heads of talking");
    removed[0] = 1, removed[4] = 0;
    CHECK(ph_model_removable(b.m, removed) == PH_OK, "%s", ph_error(b.ctx));
    removed[0] = 0, removed[4] = 2;
    CHECK(ph_model_remove(b.m, removed) == PH_BAD_ARGUMENT, "accepted 2");
    CHECK(ph_model_remove(b.m, NULL) == PH_BAD_ARGUMENT, "accepted NULL");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ph_kept kept;
        char text[128];
        snprintf(text, sizeof text, "%s", wrong[i]);
        CHECK(ph_kept_read(&kept, b.ctx, &b.m->config, text) == PH_BAD_FILE,
              "accepted %s", wrong[i]);
        ph_kept_free(&kept, b.ctx);
    }
    free_bed(&b);
}

static const check_case cases[] = {{"equals_gated", equals_gated},
                                   {"gated", gated},
                                   {"step_by_step", step_by_step},
                                   {"same_gradients", same_gradients},
                                   {"stored", stored},
                                   {"restored", restored},
                                   {"copies_trained_apart", copies_trained_apart},
                                   {"generated", generated},
                                   {"viewed", viewed},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
