/*
 * test_scene.c - a model that has read a text, as a report: words, stacks, weights that
 * are those of the reading, answers, lengths of values; and the sentences heads are
 * judged by.
 */
#define _POSIX_C_SOURCE 200809L /* unlink, getpid */
#include <math.h>
#include <unistd.h>

#include "check.h"
#include "polyhead_heads.h"
#include "polyhead_scene.h"

static ph_ctx *ctx;

static void need_ctx(void)
{
    if (!ctx) CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
}

/* ---- small models of every kind ---- */

typedef struct bed {
    ph_model *model;
    ph_reading *reading;
    ph_scene *scene;
    ph_report report;
} bed;

static void open_variant(bed *b, ph_arch arch, const char *variant, const char *text,
                         const char *target)
{
    static const char *const words[] = {"the", "dog", "saw", "a", "cat", "."};
    ph_config config = {.arch = arch,
                        .layers = 2,
                        .model_dim = 16,
                        .heads = 4,
                        .kv_heads = arch == PH_ARCH_DECODER ? 2 : 0,
                        .max_len = 16,
                        .positions =
                            arch == PH_ARCH_DECODER ? PH_POS_ROPE : PH_POS_SINUSOIDAL};
    snprintf(config.variant, sizeof config.variant, "%s", variant);
    need_ctx();
    CHECK(ph_model_create(&b->model, ctx, &config, PH_SPLIT_WORDS, words, 6, 7) == PH_OK,
          "%s", ph_error(ctx));
    CHECK(ph_reading_create(&b->reading, b->model, text, target) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_scene_create(&b->scene, b->model, b->reading, "a title", text, target,
                          NULL) == PH_OK,
          "no scene");
    b->report = ph_scene_report(b->scene);
}

static void open_bed(bed *b, ph_arch arch, const char *text, const char *target)
{
    open_variant(b, arch, "", text, target);
}

static void close_bed(bed *b)
{
    ph_scene_free(b->scene);
    ph_reading_free(b->reading);
    ph_model_free(b->model);
}

/* Rows of the report are rows of all weights of the place, and each sums to one. */
static void check_rows(const bed *b, int stack, int shares)
{
    const ph_stack *s = &b->report.stacks[stack];
    int rows = b->report.axes[s->q_axis].count, keys = b->report.axes[s->k_axis].count;
    float *all = malloc((size_t)(s->heads * rows * keys) * sizeof *all);
    float *some = malloc((size_t)(rows * keys) * sizeof *some);
    for (int l = 0; l < s->layers; l++) {
        int site = ph_scene_site(b->scene, stack, l);
        CHECK(ph_reading_look(b->reading, site, &(ph_look_at){.weights = all}) == PH_OK,
              "%s", ph_error(ctx));
        for (int h = 0; h < s->heads; h++) {
            CHECK(b->report.weights(b->report.user, stack, l, h, 1, rows - 1, some) ==
                      PH_OK,
                  "no rows");
            const float *expected = all + ((size_t)h * (size_t)rows + 1) * (size_t)keys;
            CHECK(!memcmp(some, expected, (size_t)((rows - 1) * keys) * sizeof *some),
                  "stack %d layer %d head %d differs", stack, l, h);
            double sum = 0;
            for (int j = 0; j < keys; j++) sum += (double)some[j];
            CHECK(!shares || fabs(sum - 1) < 1e-5, "row 1 sums to %g", sum);
        }
    }
    free(all), free(some);
}

static void check_weights(const bed *b, int stack)
{
    check_rows(b, stack, 1);
}

/* The answer of q and k, recomputed from the vectors of the report. */
static void check_vectors(const bed *b, int stack)
{
    const ph_stack *s = &b->report.stacks[stack];
    int rows = b->report.axes[s->q_axis].count, keys = b->report.axes[s->k_axis].count;
    float q[256], k[256], weights[64];
    CHECK(b->report.vectors(b->report.user, stack, 1, 2, q, k) == PH_OK, "no vectors");
    for (int i = 0; i < rows; i++) {
        double e[16], sum = 0;
        int seen = s->causal ? i + 1 : keys;
        b->report.weights(b->report.user, stack, 1, 2, i, 1, weights);
        for (int j = 0; j < seen; j++) {
            double dot = 0;
            for (int d = 0; d < s->qk_dim; d++)
                dot += (double)q[i * s->qk_dim + d] * (double)k[j * s->qk_dim + d];
            e[j] = exp(dot * (double)s->scale);
            sum += e[j];
        }
        for (int j = 0; j < seen; j++)
            CHECK(fabs(e[j] / sum - (double)weights[j]) < 1e-5, "row %d, key %d", i, j);
    }
}

static void encoder(void)
{
    bed b;
    open_bed(&b, PH_ARCH_ENCODER, "The dog  saw a zebra.", NULL);
    static const char *const words[] = {"The", "dog", "saw", "a", "zebra", "."};
    CHECK(b.report.axis_count == 1 && b.report.axes[0].count == 6, "%d words",
          b.report.axes[0].count);
    for (int i = 0; i < 6; i++)
        CHECK(!strcmp(b.report.axes[0].tokens[i], words[i]), "word %d is '%s'", i,
              b.report.axes[0].tokens[i]);
    CHECK(b.report.stack_count == 2 && !strcmp(b.report.stacks[0].name, "encoder") &&
              !strcmp(b.report.stacks[1].name, "links"),
          "stacks");
    CHECK(b.report.stacks[0].layers == 2 && b.report.stacks[1].layers == 1 &&
              !b.report.stacks[0].causal,
          "layers");
    CHECK(ph_scene_ids(b.scene, 0)[4] == PH_TOKEN_UNKNOWN, "a zebra is not known");
    for (int i = 0; i < 6; i++)
        CHECK(b.report.axes[0].unknown[i] == (i == 4), "word %d is marked wrongly", i);
    for (int n = 0; n < b.report.outcome_count; n++)
        CHECK(!strstr(b.report.outcomes[n].text, "zebra"), "'%s' about an unknown word",
              b.report.outcomes[n].text);
    check_weights(&b, 0);
    check_weights(&b, 1);
    check_vectors(&b, 0);
    float p[36];
    ph_reading_links(b.reading, p);
    CHECK(b.report.outcome_count <= 6, "%d answers", b.report.outcome_count);
    for (int n = 0, i = 0; i < 6; i++) {
        int best = 0;
        char text[80];
        for (int j = 1; j < 6; j++)
            if (p[i * 6 + j] > p[i * 6 + best]) best = j;
        if (best == i || i == 4 || best == 4) continue; /* no answer about a zebra */
        snprintf(text, sizeof text, "%s -> %s", words[i], words[best]);
        CHECK(!strcmp(b.report.outcomes[n].text, text) &&
                  b.report.outcomes[n].value == p[i * 6 + best],
              "'%s', expected '%s'", b.report.outcomes[n].text, text);
        n++;
    }
    /* what heads count for a word, and their weights, make the answer */
    const ph_stack *links = &b.report.stacks[1];
    CHECK(!b.report.stacks[0].share && links->share, "shares are those of the links");
    for (int i = 0; i < 6; i++) {
        float row[6];
        double sum[6] = {0};
        for (int h = 0; h < links->heads; h++) {
            b.report.weights(b.report.user, 1, 0, h, i, 1, row);
            for (int j = 0; j < 6; j++)
                sum[j] += (double)links->share[h * 6 + i] * (double)row[j];
        }
        /* one head, so a share of 1: the answer is its weights, in both rounded by 2 */
        for (int j = 0; j < 6; j++)
            CHECK(fabs(sum[j] - (double)p[i * 6 + j]) <= 4 * 0x1p-24, "word %d, %d: %g",
                  i, j, sum[j]);
    }
    close_bed(&b);
}

static void decoder(void)
{
    bed b;
    open_bed(&b, PH_ARCH_DECODER, "the dog saw a cat", NULL);
    const ph_stack *s = &b.report.stacks[0];
    CHECK(b.report.stack_count == 1 && s->causal && s->kv_heads == 2, "a causal stack");
    CHECK(s->pair_step == s->qk_dim / 2, "rotary pairs");
    check_weights(&b, 0);
    check_vectors(&b, 0);
    CHECK(b.report.outcome_count == 10 && !strcmp(b.report.outcome_title, "next token"),
          "%d answers", b.report.outcome_count);
    for (int n = 1; n < 5; n++)
        CHECK(b.report.outcomes[n].value <= b.report.outcomes[n - 1].value, "in order");
    close_bed(&b);
}

static void both(void)
{
    bed b;
    open_bed(&b, PH_ARCH_ENCODER_DECODER, "the dog saw a cat", "a cat saw");
    CHECK(b.report.stack_count == 3 && b.report.axis_count == 2, "three stacks");
    for (int s = 0; s < 3; s++) check_weights(&b, s);
    const ph_stack *cross = &b.report.stacks[2];
    CHECK(!strcmp(cross->name, "cross") && cross->q_axis == 1 && cross->k_axis == 0,
          "cross-attention");
    CHECK(!strcmp(b.report.axes[1].tokens[0], "<s>") &&
              !strcmp(b.report.axes[1].tokens[2], "cat"),
          "the decoder's words: %s %s", b.report.axes[1].tokens[0],
          b.report.axes[1].tokens[2]);
    close_bed(&b);
    open_bed(&b, PH_ARCH_ENCODER_DECODER, "the dog saw a cat", NULL);
    CHECK(b.report.axes[1].count >= 1, "what the model says itself");
    close_bed(&b);
}

/* Every way of arranging heads can be looked at. Mixed heads and differences of heads
   need not sum to one; what has no single query and key per head shows no vectors. */
static void every_variant(void)
{
    static const struct {
        const char *variant;
        int shares;
    } cases[] = {{"mha", 1},
                 {"entmax", 1},
                 {"sparsemax", 1},
                 {"talking", 0},
                 {"dcmha:rank=2", 0},
                 {"gated", 1},
                 {"moh:shared=1,top=2", 0},
                 {"mohsa", 1},
                 {"diff", 0},
                 {"diff2", 0},
                 {"collab", 1},
                 {"mla:latent=8", 1}};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        bed b;
        int plain = !strcmp(cases[n].variant, "mha");
        open_variant(&b, PH_ARCH_ENCODER, cases[n].variant, "the dog saw a cat .", NULL);
        check_rows(&b, 0, cases[n].shares);
        CHECK((b.report.stacks[0].qk_dim > 0) == plain, "%s: vectors", cases[n].variant);
        if (plain) check_vectors(&b, 0);
        close_bed(&b);
    }
}

/* |v W| of one key by hand. */
static void value_norms(void)
{
    bed b;
    float v[64];
    const ph_tensor *wo = NULL;
    open_bed(&b, PH_ARCH_ENCODER, "the dog saw a cat .", NULL);
    for (int i = 0; (wo = ph_model_tensor(b.model, i)) != NULL; i++)
        if (!strcmp(wo->name, "encoder.1.self.wo")) break;
    CHECK(wo && b.report.stacks[0].value_norm, "no output matrix");
    ph_reading_vectors(b.reading, ph_scene_site(b.scene, 0, 1), 3, NULL, NULL, v, NULL);
    double sum = 0;
    for (int c = 0; c < 16; c++) {
        double x = 0;
        for (int d = 0; d < 4; d++)
            x += (double)v[2 * 4 + d] *
                 (double)((const float *)wo->data)[(12 + d) * 16 + c];
        sum += x * x;
    }
    float found = b.report.stacks[0].value_norm[(1 * 4 + 3) * 6 + 2];
    CHECK(fabs(sqrt(sum) - (double)found) < 1e-5, "%g, expected %g", (double)found,
          sqrt(sum));
    CHECK(b.report.stacks[1].value_norm == NULL, "links have no values");
    CHECK(!b.report.stacks[1].contribution && !b.report.stacks[1].circuit,
          "links write nothing");
    const ph_stack *s = &b.report.stacks[0];
    for (int l = 0; l < s->layers; l++) {
        double shares = 0, rounded = 0x1p-40; /* each share to a float, sums in double */
        for (int h = 0; h < s->heads; h++) {
            const char *circuit = s->circuit[l * s->heads + h];
            shares += (double)s->contribution[l * s->heads + h];
            rounded += 0x1p-24 * fabs((double)s->contribution[l * s->heads + h]);
            CHECK(strstr(circuit, " > ") && strchr(circuit, '\n') &&
                      strstr(strchr(circuit, '\n'), ": "),
                  "head %d: '%s'", h, circuit);
        }
        CHECK(fabs(shares - 1) <= rounded, "layer %d: shares sum to %g", l, shares);
    }
    close_bed(&b);
}

/* A head switched off: the report sees the new weights, and new answers when asked. */
static void changed_heads(void)
{
    bed b;
    uint8_t off[12] = {PH_HEAD_ZERO, PH_HEAD_ZERO, PH_HEAD_ZERO, PH_HEAD_ZERO};
    float before[36], after[36];
    open_bed(&b, PH_ARCH_ENCODER, "the dog saw a cat .", NULL);
    b.report.weights(b.report.user, 0, 1, 0, 0, 6, before);
    CHECK(ph_reading_run(b.reading, off, 0) == PH_OK, "%s", ph_error(ctx));
    b.report.weights(b.report.user, 0, 1, 0, 0, 6, after);
    CHECK(memcmp(before, after, sizeof before),
          "layer 2 does not see that layer 1 is off");
    CHECK(ph_scene_refresh(b.scene, NULL) == PH_OK, "no answers");
    ph_reading_run(b.reading, NULL, 0);
    b.report.weights(b.report.user, 0, 1, 0, 0, 6, after);
    CHECK(!memcmp(before, after, sizeof before), "on again is not as before");
    close_bed(&b);
}

/* A gate of 0 is a head that is off, 1 is a head that is on, and between is neither. */
static void gates(void)
{
    bed b;
    uint8_t off[9] = {[2] = PH_HEAD_ZERO, [8] = PH_HEAD_ZERO}; /* 8: the pointer */
    float gate[9], on[36], zero[36], shut[36], half[36], p_zero[36], p_shut[36];
    open_bed(&b, PH_ARCH_ENCODER, "the dog saw a cat .", NULL);
    b.report.weights(b.report.user, 0, 1, 1, 0, 6, on);
    ph_reading_run(b.reading, off, 0);
    b.report.weights(b.report.user, 0, 1, 1, 0, 6, zero);
    ph_reading_links(b.reading, p_zero);
    for (int i = 0; i < 9; i++) gate[i] = i == 2 || i == 8 ? 0 : 1;
    CHECK(ph_reading_gates(b.reading, gate) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_reading_run(b.reading, NULL, 0) == PH_OK, "%s", ph_error(ctx));
    b.report.weights(b.report.user, 0, 1, 1, 0, 6, shut);
    ph_reading_links(b.reading, p_shut);
    gate[2] = 0.5f;
    ph_reading_gates(b.reading, gate);
    ph_reading_run(b.reading, NULL, 0);
    b.report.weights(b.report.user, 0, 1, 1, 0, 6, half);
    int moved = 0;
    for (int n = 0; n < 36; n++) {
        CHECK(zero[n] == shut[n] && p_zero[n] == p_shut[n], "gate 0 is not off at %d", n);
        moved += half[n] != on[n] && half[n] != zero[n];
    }
    CHECK(moved > 18, "half a head moves %d of 36 weights", moved);
    gate[0] = 1.5f;
    CHECK(ph_reading_gates(b.reading, gate) == PH_BAD_ARGUMENT, "a gate above 1");
    ph_reading_gates(b.reading, NULL);
    ph_reading_run(b.reading, NULL, 0);
    b.report.weights(b.report.user, 0, 1, 1, 0, 6, half);
    CHECK(!memcmp(half, on, sizeof on), "all gates open is not as before");
    gate[0] = 1;
    ph_reading_gates(b.reading, gate);
    CHECK(ph_reading_run(b.reading, NULL, 1) == PH_OK, "%s", ph_error(ctx));
    close_bed(&b);
}

/* ---- plans ---- */

static char plan_path[64];

/* What is written comes back, and is never written over another file. */
static void plans_come_back(void)
{
    bed b;
    ph_prune plan, again;
    open_bed(&b, PH_ARCH_ENCODER, "the dog saw a cat .", NULL);
    snprintf(plan_path, sizeof plan_path, "build/plan-%ld.json", (long)getpid());
    CHECK(ph_prune_create(&plan, b.reading, NULL) == PH_OK && plan.count == 9,
          "%d heads", plan.count);
    plan.ablation[ph_prune_entry(b.reading, 0, 3)] = PH_HEAD_ZERO;
    plan.ablation[ph_prune_entry(b.reading, 1, 0)] = PH_HEAD_MEAN;
    plan.gates[ph_prune_entry(b.reading, 2, 0)] = 0.1f;
    CHECK(ph_prune_entry(b.reading, 3, 0) == -1 && ph_prune_entry(b.reading, 0, 4) == -1,
          "a head that is not there");
    CHECK(ph_prune_write(&plan, plan_path, b.reading, NULL) == PH_OK, "not written");
    CHECK(ph_prune_write(&plan, plan_path, b.reading, NULL) == PH_IO_ERROR, "replaced");
    CHECK(ph_prune_read(&again, plan_path, b.reading, NULL) == PH_OK, "not read");
    CHECK(again.count == 9 && !memcmp(again.ablation, plan.ablation, 9) &&
              !memcmp(again.gates, plan.gates, 9 * sizeof *plan.gates),
          "another plan came back");
    unlink(plan_path);
    ph_prune_free(&again, NULL);
    ph_prune_free(&plan, NULL);
    close_bed(&b);
}

static void plans_refused(void)
{
#define PLAN "{\"schema\":\"polyhead.plan/1\",\"heads\":["
    static const struct {
        const char *text, *sentence;
    } known[] = {
        {"", "a value is expected"},
        {"[]", "no JSON object"},
        {"{\"heads\":[]}", "needs \"schema\""},
        {"{\"schema\":\"polyhead.plan/1\"}", "needs \"schema\" and \"heads\""},
        {"{\"schema\":\"polyhead.plan/2\",\"heads\":[]}", "no plan of heads"},
        {PLAN "]} x", "follows"},
        {PLAN "],\"more\":1}", "nothing else"},
        {PLAN "7]}", "must be an object"},
        {PLAN "{}]}", "a \"head\" from 0"},
        {PLAN "{\"site\":\"links\",\"head\":0}]}", "a \"head\" from 0"},
        {PLAN "{\"site\":\"links\",\"head\":1,\"edit\":\"zero\"}]}",
         "no head 1 in 'links'"},
        {PLAN "{\"site\":\"\\u001b[2J\",\"head\":0,\"edit\":\"zero\"}]}",
         "no head 0 in '\\u001b[2J'"},
        {PLAN "{\"site\":\"links\",\"head\":18446744073709551615,\"edit\":\"zero\"}]}",
         "no head"},
        {PLAN "{\"site\":\"links\",\"head\":-1,\"edit\":\"zero\"}]}",
         "a \"head\" from 0"},
        {PLAN "{\"site\":\"links\",\"head\":0,\"edit\":\"gate\"}]}", "0 to 1"},
        {PLAN "{\"site\":\"links\",\"head\":0,\"edit\":\"gate\",\"gate\":1.5}]}",
         "0 to 1"},
        {PLAN "{\"site\":\"links\",\"head\":0,\"edit\":\"off\"}]}", "must be \"zero\""},
        {PLAN "{\"site\":\"links\",\"head\":0,\"edit\":\"zero\"},"
              "{\"site\":\"links\",\"head\":0,\"edit\":\"mean\"}]}",
         "twice"},
        {PLAN "{\"site\":1,\"head\":0,\"edit\":\"zero\"}]}", "and nothing else"}};
#undef PLAN
    bed b;
    open_bed(&b, PH_ARCH_ENCODER, "the dog saw a cat .", NULL);
    snprintf(plan_path, sizeof plan_path, "build/plan-%ld.json", (long)getpid());
    for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
        char error[300] = "";
        ph_io io = {.error = error, .error_size = sizeof error};
        ph_prune plan;
        FILE *file = fopen(plan_path, "w");
        fputs(known[n].text, file);
        fclose(file);
        ph_status status = ph_prune_read(&plan, plan_path, b.reading, &io);
        CHECK(status == PH_BAD_FILE || status == PH_BAD_VALUE, "'%s': status %d",
              known[n].text, status);
        CHECK(strstr(error, known[n].sentence), "'%s' does not say '%s'", error,
              known[n].sentence);
        CHECK(!plan.ablation && !plan.gates, "a refused plan holds memory");
    }
    unlink(plan_path);
    close_bed(&b);
}

/* The divergence of the answers, against the sum written out; 0 where nothing changes. */
static void answers_that_move(void)
{
    bed a, b;
    ph_prune plan;
    float before[36], after[36];
    double sum = 0;
    open_bed(&a, PH_ARCH_ENCODER, "the dog saw a cat .", NULL);
    open_bed(&b, PH_ARCH_ENCODER, "the dog saw a cat .", NULL);
    CHECK(!a.report.divergence && !a.report.loss, "a number that nobody measured");
    ph_prune_create(&plan, b.reading, NULL);
    CHECK(ph_prune_run(&plan, b.reading, 0) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_scene_compare(a.scene, b.scene, NULL) == PH_OK, "no comparison");
    CHECK(*ph_scene_report(b.scene).divergence == 0, "nothing changed, but it moved");
    for (int i = 0; i < 4; i++) plan.ablation[i] = PH_HEAD_ZERO;
    CHECK(ph_prune_run(&plan, b.reading, 0) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_scene_compare(a.scene, b.scene, NULL) == PH_OK, "no comparison");
    ph_reading_links(a.reading, before);
    ph_reading_links(b.reading, after);
    for (int n = 0; n < 36; n++)
        sum += (double)before[n] * log((double)before[n] / (double)after[n]) / 6;
    double got = (double)*ph_scene_report(b.scene).divergence;
    CHECK(sum > 1e-6 && fabs(got - sum) < 1e-5 * sum + 1e-7, "%g, expected %g", got, sum);
    ph_prune_free(&plan, NULL);
    close_bed(&a), close_bed(&b);
}

/* The loss of a decoder is the mean of -ln p of its own tokens. */
static void losses(void)
{
    bed b;
    open_bed(&b, PH_ARCH_DECODER, "the dog saw a cat .", NULL);
    int words = b.report.axes[0].count, vocab = ph_model_config(b.model)->vocab;
    float *log_p = malloc((size_t)(words * vocab) * sizeof *log_p);
    double sum = 0;
    ph_reading_next(b.reading, log_p);
    for (int i = 1; i < words; i++)
        sum -= (double)log_p[(i - 1) * vocab + ph_scene_ids(b.scene, 0)[i]];
    CHECK(b.report.loss && fabs((double)*b.report.loss - sum / (words - 1)) < 1e-5,
          "loss");
    free(log_p);
    close_bed(&b);
}

/* ---- sentences ---- */

static void sentences(void)
{
    ph_sentences *list = NULL;
    ph_sentence a, b;
    ph_model *model = NULL;
    ph_word words[PH_SENTENCE_WORDS];
    int roles = 0, count = 0, differ = 0;
    need_ctx();
    CHECK(ph_sentences_create(&list, ctx) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_embedded(&model, ctx) == PH_OK, "%s", ph_error(ctx));
    while (ph_relation_name(roles)) roles++;
    for (uint64_t n = 0; n < 300; n++) {
        ph_sentences_get(list, n, &a);
        ph_sentences_get(list, n, &b);
        CHECK(!memcmp(&a, &b, sizeof a), "sentence %d is another one now", (int)n);
        ph_sentences_get(list, n + 1, &b);
        differ += strcmp(a.text, b.text) != 0;
        CHECK(ph_model_split(model, a.text, words, PH_SENTENCE_WORDS, &count) == PH_OK &&
                  count == a.words,
              "'%s' has %d words, the model sees %d", a.text, a.words, count);
        for (int i = 0; i < a.words; i++) {
            CHECK(a.link[i] >= 0 && a.link[i] < a.words, "link %d of '%s'", i, a.text);
            CHECK(a.role[i] >= 0 && a.role[i] < roles, "role %d of '%s'", i, a.text);
            CHECK(words[i].token != PH_TOKEN_UNKNOWN, "an unknown word in '%s'", a.text);
        }
    }
    CHECK(differ > 290, "only %d differ from the next", differ);
    ph_model_free(model);
    ph_sentences_free(list);
}

/* A picture: patches by name, classes as the answers, weights that sum to 1. */
static void picture(void)
{
    static const char path[] = "tests/golden/pictures/rgb8.png";
    static float pixels[3 * 12 * 12];
    static uint8_t rgb[3 * 12 * 12];
    float scores[3], p[3], row[10];
    double sum = 0;
    bed b = {0};
    need_ctx();
    CHECK(ph_model_read(&b.model, ctx, "tests/golden/checkpoints/vit") == PH_OK &&
              ph_reading_create(&b.reading, b.model, path, NULL) == PH_OK,
          "%s", ph_error(ctx));
    CHECK(ph_scene_create(&b.scene, b.model, b.reading, "vit", path, NULL, NULL) == PH_OK,
          "no scene");
    b.report = ph_scene_report(b.scene);
    CHECK(b.report.axes[0].count == 10 && b.report.patch_first == 1 &&
              b.report.patch_columns == 3,
          "%d tokens", b.report.axes[0].count);
    CHECK(!strcmp(b.report.axes[0].tokens[0], "[CLS]") &&
              !strcmp(b.report.axes[0].tokens[6], "r2c3"),
          "%s", b.report.axes[0].tokens[6]);
    CHECK(b.report.weights(b.report.user, 0, 1, 2, 0, 1, row) == PH_OK, "no weights");
    for (int i = 0; i < 10; i++) sum += (double)row[i];
    /* ten weights, each off as its score and the logarithm of the sum are: 4 units */
    CHECK(fabs(sum - 1) < 40 * 0x1p-24, "weights sum to %g", sum);
    CHECK(ph_model_open_picture(b.model, path, pixels) == PH_OK &&
              ph_model_pictures(b.model, pixels, 1, NULL, scores) == PH_OK &&
              ph_reading_classes(b.reading, p) == PH_OK,
          "%s", ph_error(ctx));
    /* Scores are the same bits; two p, each rounded by at most 2^-24 of itself. */
    for (int i = 1; i < 3; i++)
        CHECK(fabs(log((double)p[i] / (double)p[0]) - (double)scores[i] +
                   (double)scores[0]) < 0x1p-22,
              "class %d: %g", i, (double)p[i]);
    CHECK(ph_reading_picture(b.reading, rgb) == PH_OK, "%s", ph_error(ctx));
    CHECK(b.report.picture_side == 12 && !memcmp(b.report.picture, rgb, sizeof rgb),
          "another picture");
    for (int i = 0; i < 12 * 12; i++) /* levels come back as they were: x / 127.5 - 1 */
        CHECK(fabs((double)rgb[3 * i + 2] / 127.5 - 1 - (double)pixels[288 + i]) < 1e-6,
              "pixel %d", i);
    CHECK(b.report.outcome_count == 3 && b.report.outcomes[0].value == p[1] &&
              !strcmp(b.report.outcomes[0].text, "LABEL_1"),
          "%s", b.report.outcomes[0].text);
    b.report.patch_columns = 4;
    CHECK(ph_page_write("/dev/null", &b.report, NULL, NULL, NULL) == PH_BAD_ARGUMENT,
          "9 patches are no whole rows of 4");
    close_bed(&b);
}

static const check_case cases[] = {{"encoder", encoder},
                                   {"picture", picture},
                                   {"decoder", decoder},
                                   {"both", both},
                                   {"every_variant", every_variant},
                                   {"value_norms", value_norms},
                                   {"changed_heads", changed_heads},
                                   {"gates", gates},
                                   {"plans_come_back", plans_come_back},
                                   {"plans_refused", plans_refused},
                                   {"answers_that_move", answers_that_move},
                                   {"losses", losses},
                                   {"sentences", sentences},
                                   {0, 0}};

int main(int argc, char **argv)
{
    int failed = check_main(argc, argv, cases);
    ph_close(ctx);
    return failed;
}
