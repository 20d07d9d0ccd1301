/*
 * test_model_golden.c - logits, loss, gradients and twenty steps of training against
 * PyTorch (tests/golden_model, written by make.py there).
 */
#include <math.h>

#include "check.h"
#include "model/train.h"

enum { BATCH = 3, STEPS = 20, TENSORS = 256 };

typedef struct tensor {
    char name[64];
    int count;
    float *data;
} tensor;

typedef struct golden {
    char config[1024];
    tensor list[TENSORS];
    int count;
} golden;

static void read_golden(golden *g, const char *path)
{
    char line[1200];
    FILE *f = fopen(path, "rb");
    CHECK(f, "cannot read %s", path);
    memset(g, 0, sizeof *g);
    CHECK(fgets(line, sizeof line, f) && !strncmp(line, "config ", 7), "no config");
    snprintf(g->config, sizeof g->config, "%.*s", (int)strcspn(line + 7, "\n"), line + 7);
    while (fgets(line, sizeof line, f) && strcmp(line, "end\n")) {
        tensor *t = &g->list[g->count++];
        CHECK(g->count <= TENSORS, "too many tensors");
        CHECK(sscanf(line, "tensor %63s %d", t->name, &t->count) == 2, "bad line %s",
              line);
        t->data = malloc((size_t)t->count * sizeof(float));
        CHECK(fread(t->data, sizeof(float), (size_t)t->count, f) == (size_t)t->count,
              "%s is cut off", t->name);
        fgetc(f);
    }
    fclose(f);
}

static void free_golden(golden *g)
{
    for (int i = 0; i < g->count; i++) free(g->list[i].data);
}

static const tensor *find(const golden *g, const char *first, const char *name)
{
    char whole[96];
    snprintf(whole, sizeof whole, "%s%s", first, name);
    for (int i = 0; i < g->count; i++)
        if (!strcmp(g->list[i].name, whole)) return &g->list[i];
    return NULL;
}

static int32_t *whole_numbers(const golden *g, const char *name)
{
    const tensor *t = find(g, "", name);
    if (!t) return NULL;
    int32_t *out = malloc((size_t)t->count * sizeof *out);
    for (int i = 0; i < t->count; i++) out[i] = (int32_t)t->data[i];
    return out;
}

/* Largest difference relative to the largest element. */
static double distance(const float *found, const float *truth, size_t count)
{
    double worst = 0, largest = 1e-3;
    for (size_t i = 0; i < count; i++) {
        worst = fmax(worst, fabs((double)found[i] - (double)truth[i]));
        largest = fmax(largest, fabs((double)truth[i]));
    }
    return worst / largest;
}

static ph_model *make_model(ph_ctx *ctx, golden *g)
{
    ph_config c;
    ph_model *m;
    CHECK(ph_config_read(ctx, &c, g->config, strlen(g->config)) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 1) == PH_OK, "%s",
          ph_error(ctx));
    for (int i = 0; i < m->param_count; i++) {
        const tensor *t = find(g, "w.", m->params[i].name);
        CHECK(t && (size_t)t->count == m->params[i].count, "no weights %s",
              m->params[i].name);
        memcpy(m->block + m->params[i].at, t->data, (size_t)t->count * sizeof(float));
    }
    return m;
}

/* Enough of a trainer for the optimiser. */
static void begin_training(ph_trainer *t, ph_ctx *ctx, ph_model *m)
{
    memset(t, 0, sizeof *t);
    t->ctx = ctx, t->model = m;
    t->train = (ph_train){.lr = 0.01f,
                          .warmup = 5,
                          .weight_decay = 0.05f,
                          .max_grad_norm = 0.5f,
                          .schedule = PH_SCHEDULE_CLASSIC};
    t->grads = calloc(m->floats, sizeof(float));
    t->first_moment = calloc(m->floats, sizeof(float));
    t->second_moment = calloc(m->floats, sizeof(float));
    t->partial_sums = calloc(m->floats / 1024 + 1, sizeof(double));
}

static void end_training(ph_trainer *t)
{
    free(t->grads);
    free(t->first_moment);
    free(t->second_moment);
    free(t->partial_sums);
}

static void check_first(const golden *g, const ph_trainer *t)
{
    const ph_model *m = t->model;
    for (int i = 0; i < m->param_count; i++) {
        const ph_weight *w = &m->params[i];
        double off = distance(t->grads + w->at, find(g, "g.", w->name)->data, w->count);
        CHECK(off < 2e-5, "gradient of %s is off by %.2e", w->name, off);
    }
}

static void check_logits(const golden *g, ph_pass *p)
{
    const tensor *truth = find(g, "", "logits");
    CHECK(ph_pass_logits(p) == PH_OK, "no logits");
    double off = distance(p->logits, truth->data, (size_t)truth->count);
    CHECK(off < 2e-6, "logits are off by %.2e", off);
}

static void run_golden(const char *path)
{
    static golden g;
    ph_ctx *ctx;
    ph_pass *p;
    ph_trainer t;
    read_golden(&g, path);
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    ph_model *m = make_model(ctx, &g);
    int32_t *source = whole_numbers(&g, "source"), *lens = whole_numbers(&g, "lens");
    int32_t *target = whole_numbers(&g, "target"), *labels = whole_numbers(&g, "labels");
    int32_t offsets[BATCH + 1] = {0};
    ph_batch batch = {.source = source, .target = target, .labels = labels};
    ph_pass_shape shape = {.batch = BATCH, .backward = 1};
    shape.source_len = find(&g, "", "source")->count / BATCH;
    for (int b = 0; target && b < BATCH; b++) { /* sources side by side */
        offsets[b + 1] = offsets[b] + lens[b];
        memmove(source + offsets[b], source + b * shape.source_len,
                (size_t)lens[b] * sizeof *source);
        batch.source_offsets = offsets;
    }
    if (target) shape.target_len = find(&g, "", "target")->count / BATCH;
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(ctx));
    begin_training(&t, ctx, m);
    int counted = 0;
    for (int i = 0; i < find(&g, "", "labels")->count; i++) counted += labels[i] >= 0;
    for (int step = 0; step < STEPS; step++) {
        double loss, truth = (double)find(&g, "", "losses")->data[step];
        CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(ctx));
        if (!step) check_logits(&g, p);
        CHECK(ph_pass_loss(p, 0.1f, 1.0f / (float)counted, &loss) == PH_OK, "no loss");
        loss /= counted;
        CHECK(fabs(loss - truth) < (step ? 2e-5 : 1e-6) * truth,
              "loss of step %d is %.9g, expected %.9g", step + 1, loss, truth);
        CHECK(ph_pass_backward(p, t.grads) == PH_OK, "%s", ph_error(ctx));
        if (!step) check_first(&g, &t);
        t.step++;
        ph_optimise_step(&t, ph_optimise_grad_norm(&t));
    }
    end_training(&t);
    free(source), free(lens), free(target), free(labels);
    ph_pass_free(p);
    ph_model_free(m);
    ph_close(ctx);
    free_golden(&g);
}

static void both(void)
{
    run_golden("tests/golden_model/both.bin");
}

static void decoder(void)
{
    run_golden("tests/golden_model/decoder.bin");
}

static const check_case cases[] = {{"both", both}, {"decoder", decoder}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
