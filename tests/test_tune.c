/*
 * test_tune.c - training that goes on from a model: tiny published checkpoints learn a
 * text, pairs or labels, keep their tokenizer, and resume with the same bits; and what is
 * refused.
 */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "model/store.h"
#include "model/train.h"

#define FOLDER "tests/golden/checkpoints/"

static char folder[64];

static ph_ctx *open_ctx(void)
{
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    strcpy(folder, "/tmp/test_tune.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    return ctx;
}

static const char *path_of(const char *name)
{
    static char path[2][128];
    static int next;
    next = !next;
    snprintf(path[next], sizeof path[0], "%s/%s", folder, name);
    return path[next];
}

static void close_ctx(ph_ctx *ctx)
{
    static const char *const names[] = {"text", "model.safetensors",
                                        "step-00000003.safetensors"};
    for (int i = 0; i < 3; i++) unlink(path_of(names[i]));
    CHECK(rmdir(folder) == 0, "%s is not empty", folder);
    ph_close(ctx);
}

/* Letters that every one of the tokenizers knows, in an order that can be learned. */
static void write_text(void)
{
    FILE *file = fopen(path_of("text"), "w");
    CHECK(file, "no file");
    for (int i = 0; i < 400; i++) fprintf(file, "a b c d e f %s", i % 7 ? "" : "g ");
    fclose(file);
}

static void write_lines(const char *const *labels)
{
    static const char *const texts[2] = {"a b a %c b", "e d %c e d"};
    FILE *file = fopen(path_of("text"), "w");
    CHECK(file, "no file");
    for (int i = 0; i < 60; i++) {
        fprintf(file, "%s\t", labels[i % 2]);
        fprintf(file, texts[i % 2], 'a' + i / 2 % 7);
        for (int k = 0; k < i / 14; k++) fprintf(file, " %c", 'a' + k);
        fprintf(file, "\n");
    }
    fclose(file);
}

static ph_train options(const char *recipe, const char *from)
{
    ph_train train;
    CHECK(ph_train_defaults(&train, recipe) == PH_OK, "no recipe %s", recipe);
    CHECK(ph_train_from(&train, from) == PH_OK, "no path");
    strcpy(train.file, path_of("text"));
    train.length = 16, train.batch = 4, train.lr = 3e-3f, train.warmup = 2;
    return train;
}

static ph_trainer *begin(ph_ctx *ctx, const ph_train *train)
{
    ph_trainer *t;
    CHECK(ph_trainer_create(&t, ctx, train) == PH_OK, "%s", ph_error(ctx));
    return t;
}

static double steps(ph_trainer *t, int count)
{
    ph_progress p = {0};
    for (int i = 0; i < count; i++)
        CHECK(ph_trainer_step(t, &p) == PH_OK, "%s", ph_error(t->ctx));
    return p.loss;
}

/* ---- the tokenizer ----------------------------------------------------------------- */

static void check_same_text(const ph_model *a, const ph_model *b)
{
    ph_word one[16], two[16];
    int n = 0, m = 0;
    CHECK(ph_model_split(a, "a b c", one, 16, &n) == PH_OK && n > 2, "split");
    CHECK(ph_model_split(b, "a b c", two, 16, &m) == PH_OK && n == m, "%d tokens", m);
    for (int i = 0; i < n; i++) CHECK(one[i].token == two[i].token, "token %d", i);
    CHECK(!memcmp(&a->marks, &b->marks, sizeof a->marks), "other marks");
}

static long file_size(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (long)info.st_size : -1;
}

/* A file of ours holds the tokenizer, of a folder or of a GGUF file, and what is read
   from it is written the same. */
static void tokenizer_kept(void)
{
    static const char *const paths[] = {FOLDER "bert", FOLDER "bert-classes",
                                        FOLDER "llama-gguf/model.gguf"};
    for (int i = 0; i < 3; i++) {
        ph_ctx *ctx = open_ctx();
        ph_model *m, *again;
        CHECK(ph_model_read(&m, ctx, paths[i]) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_own(m) == PH_OK, "%s", ph_error(ctx));
        const char *path = path_of("model.safetensors");
        CHECK(ph_model_write(m, path) == PH_OK, "%s", ph_error(ctx));
        long size = file_size(path);
        CHECK(ph_model_read(&again, ctx, path) == PH_OK, "%s", ph_error(ctx));
        check_same_text(m, again);
        for (int k = 0; k < m->config.classes; k++)
            CHECK(!strcmp(ph_model_class(m, k), ph_model_class(again, k)), "class %d", k);
        CHECK(m->tokenizer_size == again->tokenizer_size &&
                  !memcmp(m->tokenizer_file, again->tokenizer_file, m->tokenizer_size),
              "another tokenizer");
        CHECK(ph_model_write(again, path) == PH_OK && file_size(path) == size,
              "another file");
        ph_model_free(m);
        ph_model_free(again);
        close_ctx(ctx);
    }
}

/* A file of ours with one text of its header replaced by another as long. */
static ph_status read_changed(ph_ctx *ctx, const char *path, const char *from,
                              const char *to)
{
    long size = file_size(path);
    char *bytes = malloc((size_t)size), *at = NULL;
    FILE *file = fopen(path, "rb");
    CHECK(file && fread(bytes, 1, (size_t)size, file) == (size_t)size, "no file");
    fclose(file);
    for (long i = 0; !at && i + (long)strlen(from) <= size; i++)
        if (!memcmp(bytes + i, from, strlen(from))) at = bytes + i;
    CHECK(at && strlen(from) == strlen(to), "no %s", from);
    memcpy(at, to, strlen(to));
    ph_file *parsed;
    ph_model *m;
    CHECK(ph_file_parse(&parsed, "changed", bytes, (size_t)size, NULL) == PH_OK, "%s",
          to);
    ph_status status = ph_store_model(&m, ctx, parsed, "changed");
    ph_model_free(m);
    ph_file_free(parsed);
    free(bytes);
    return status;
}

static void companions_lie(void)
{
    static const struct {
        const char *from, *to, *sentence;
    } lies[] = {
        {"\\\"start\\\":-1", "\\\"start\\\":97", "start is missing or no whole number"},
        {"\\\"padding\\\"", "\\\"paddinf\\\"", "padding is missing or no whole number"},
        {"\\\"fair\\\"", "12345678", "has no name for class 1 of 3"},
        {"\"U8\"", "\"I8\"", "tensor tokenizer is I8, expected U8"},
        {"[SEP]\n", "\n\n\n\n\n\n", "tokenizer"},
        {"\\\"ends\\\":[", "\\\"ends\\\"=[", "polyhead.about"}};
    ph_ctx *ctx = open_ctx();
    ph_model *m;
    const char *path = path_of("model.safetensors");
    CHECK(ph_model_read(&m, ctx, FOLDER "bert-classes") == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, path) == PH_OK, "%s",
          ph_error(ctx));
    ph_model_free(m);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        ph_status status = read_changed(ctx, path, lies[i].from, lies[i].to);
        CHECK(status != PH_OK, "%s is accepted", lies[i].to);
        CHECK(strstr(ph_error(ctx), lies[i].sentence), "%s: \"%s\" lacks \"%s\"",
              lies[i].to, ph_error(ctx), lies[i].sentence);
    }
    close_ctx(ctx);
}

/* ---- learning ---------------------------------------------------------------------- */

/* The loss falls, and a training that is resumed ends with the same bits. Returns the
   last loss. */
static double learns(ph_trainer *t, const char *from)
{
    char note[256];
    ph_trainer *again;
    double first = steps(t, 3);
    CHECK(ph_trainer_save(t, folder) == PH_OK, "%s", ph_error(t->ctx));
    double last = steps(t, 60);
    CHECK(last < 0.7 * first, "%s: loss %g, then %g", from, first, last);
    CHECK(ph_trainer_resume(&again, t->ctx, folder, note, sizeof note) == PH_OK, "%s",
          ph_error(t->ctx));
    check_same_text(t->model, again->model);
    steps(again, 60);
    CHECK(!memcmp(t->model->block, again->model->block, t->model->floats * sizeof(float)),
          "%s: other bits after resuming", from);
    ph_trainer_free(again);
    return last;
}

static void learns_text(void)
{
    static const char *const paths[] = {FOLDER "llama-gguf/model.gguf", FOLDER "bert"};
    for (int i = 0; i < 2; i++) {
        ph_ctx *ctx = open_ctx();
        ph_score score;
        write_text();
        ph_train train = options("text", paths[i]);
        ph_trainer *t = begin(ctx, &train);
        double last = learns(t, paths[i]);
        CHECK(ph_trainer_test(t, 8, &score) == PH_OK, "%s", ph_error(ctx));
        CHECK(score.loss < 1.5 * last + 0.5, "test loss %g, of training %g", score.loss,
              last);
        ph_trainer_free(t);
        close_ctx(ctx);
    }
}

/* One of this program's own, by its characters. */
static void own_vocabulary(void)
{
    ph_ctx *ctx = open_ctx();
    write_text();
    ph_train train;
    CHECK(ph_train_defaults(&train, "text") == PH_OK, "no recipe");
    strcpy(train.file, path_of("text"));
    train.config.layers = 1, train.config.model_dim = 16, train.config.max_len = 24;
    train.batch = 4;
    ph_trainer *t = begin(ctx, &train);
    steps(t, 3);
    CHECK(ph_model_write(t->model, path_of("model.safetensors")) == PH_OK, "%s",
          ph_error(ctx));
    ph_train tuned = options("text", path_of("model.safetensors"));
    ph_trainer *more = begin(ctx, &tuned);
    CHECK(more->data.source_len == 16 &&
              more->model->vocab.count == t->model->vocab.count,
          "another model");
    for (size_t k = 0; k < t->model->floats; k++)
        CHECK(more->model->block[k] == t->model->block[k], "parameter %zu", k);
    steps(more, 2);
    ph_trainer_free(more);
    ph_trainer_free(t);
    close_ctx(ctx);
}

/* A model in memory: the same steps as the one at the path. */
static void in_memory(void)
{
    ph_ctx *ctx = open_ctx();
    ph_model *m;
    ph_trainer *t;
    write_text();
    ph_train by_path = options("text", FOLDER "bert"), train = options("text", NULL);
    ph_trainer *expected = begin(ctx, &by_path);
    CHECK(ph_model_read(&m, ctx, FOLDER "bert") == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_trainer_tune(&t, ctx, &train, m) == PH_OK, "%s", ph_error(ctx));
    steps(t, 2);
    steps(expected, 2);
    CHECK(!memcmp(t->model->block, expected->model->block,
                  t->model->floats * sizeof(float)),
          "other bits");
    ph_trainer_free(t);
    ph_trainer_free(expected);
    close_ctx(ctx);
}

/* ---- pairs ------------------------------------------------------------------------- */

static void write_pairs(void)
{
    FILE *file = fopen(path_of("text"), "w");
    CHECK(file, "no file");
    for (int i = 0; i < 60; i++)
        fprintf(file, "%c %c b\tc %c\n", 'a' + i % 7, 'a' + i / 7 % 7, 'a' + i % 7);
    fclose(file);
}

/* The decoder begins with the model's start token, its labels end with the model's end
   token and are the text it reads, one further on. Marian's target.spm has no piece for
   a word "a", which is token 7 of source.spm. */
static void check_targets(ph_trainer *t)
{
    ph_trainer_fill(t, 0, t->train.batch, 0, 0);
    ph_batch b = ph_trainer_batch(t, 0);
    for (int text = 0; text < t->train.batch; text++) {
        int first = b.target_offsets[text], last = b.target_offsets[text + 1] - 1;
        CHECK(last > first && b.target[first] == t->model->marks.start, "no start token");
        const ph_marks *marks = &t->model->marks;
        CHECK(!marks->forced_count || b.labels[first] == marks->forced[0], "not forced");
        CHECK(b.labels[last] == t->model->marks.ends[0], "no end token");
        for (int i = first; i < last; i++)
            CHECK(b.labels[i] == b.target[i + 1] &&
                      (!t->model->target_tokenizer || b.labels[i] != 7),
                  "label %d", i);
    }
}

static void tune_pairs(ph_ctx *ctx, const char *from)
{
    ph_train train = options("pairs", from);
    ph_trainer *t = begin(ctx, &train);
    check_targets(t);
    learns(t, from);
    ph_trainer_free(t);
}

/* Published encoder-decoders, then one of this program's own. */
static void learns_pairs(void)
{
    ph_ctx *ctx = open_ctx();
    ph_train train;
    write_pairs();
    tune_pairs(ctx, FOLDER "t5");
    tune_pairs(ctx, FOLDER "marian");
    tune_pairs(ctx, FOLDER "bart-forced");
    CHECK(ph_train_defaults(&train, "pairs") == PH_OK, "no recipe");
    strcpy(train.file, path_of("text"));
    train.config.layers = 1, train.config.model_dim = 16, train.batch = 4;
    ph_trainer *t = begin(ctx, &train);
    check_targets(t);
    CHECK(ph_model_write(t->model, path_of("model.safetensors")) == PH_OK, "%s",
          ph_error(ctx));
    ph_trainer_free(t);
    tune_pairs(ctx, path_of("model.safetensors"));
    close_ctx(ctx);
}

/* ---- masked tokens ----------------------------------------------------------------- */

/* 15 % are chosen: 80 % hidden, 10 % another token, 10 % as they were; marks never. */
static void masking(void)
{
    ph_ctx *ctx = open_ctx();
    write_text();
    ph_train train = options("text", FOLDER "bert");
    ph_trainer *t = begin(ctx, &train);
    int tokens = 0, chosen = 0, hidden = 0, same = 0;
    for (int step = 0; step < 500; step++) {
        ph_trainer_fill(t, (uint64_t)step, 4, 0, 0);
        ph_batch b = ph_trainer_batch(t, 0);
        for (int text = 0; text < 4; text++) {
            const int32_t *source = b.source + 16 * text, *labels = b.labels + 16 * text;
            int count = 0;
            CHECK(source[0] == 2 && source[15] == 3, "no [CLS] or [SEP]");
            CHECK(labels[0] == -1 && labels[15] == -1, "a mark is predicted");
            for (int i = 1; i < 15; i++) {
                tokens++;
                if (labels[i] < 0) continue;
                count++, chosen++, hidden += source[i] == 4,
                    same += source[i] == labels[i];
            }
            CHECK(count > 0, "nothing to predict");
        }
    }
    /* 28,000 tokens, 4,200 chosen: five standard deviations are 1.1 % of the tokens,
       3.1 % and 2.4 % of those chosen; windows that would have none (1 in 10) add 0.7 %,
       another token is the same once in 97 */
    double share = (double)chosen / tokens;
    CHECK(share > 0.139 && share < 0.168, "%g chosen", share);
    CHECK(hidden > 0.769 * chosen && hidden < 0.831 * chosen, "%d hidden", hidden);
    CHECK(same > 0.076 * chosen && same < 0.126 * chosen, "%d the same", same);
    ph_trainer_free(t);
    close_ctx(ctx);
}

/* ---- classes ----------------------------------------------------------------------- */

static void learns_classes(void)
{
    static const char *const known[] = {"bad", "good"}, *const unknown[] = {"yes", "no"};
    static const struct {
        const char *from;
        const char *const *labels;
        int classes;
    } all[] = {{FOLDER "bert-classes", known, 3}, /* keeps "fair" */
               {FOLDER "bert-classes", unknown, 2},
               {FOLDER "bert", known, 2},
               {FOLDER "distilbert", unknown, 2},
               {FOLDER "modernbert", unknown, 2},
               {FOLDER "albert", unknown, 2}};
    for (int i = 0; i < 6; i++) {
        ph_ctx *ctx = open_ctx();
        ph_score score;
        write_lines(all[i].labels);
        ph_train train = options("classes", all[i].from);
        ph_trainer *t = begin(ctx, &train);
        CHECK(t->model->config.classes == all[i].classes, "%d classes",
              t->model->config.classes);
        CHECK(!strcmp(ph_model_class(t->model, all[i].labels == known ? 0 : 1),
                      all[i].labels[0]),
              "class 0 is %s", ph_model_class(t->model, 0));
        CHECK(i < 5 || t->model->config.pooler == PH_POOLER_TANH, "another pooler");
        learns(t, all[i].from);
        CHECK(ph_trainer_test(t, 10, &score) == PH_OK && score.texts == 10, "%s",
              ph_error(ctx));
        CHECK(score.exact_match == 1, "%s: %g right, loss %g", all[i].from,
              score.exact_match, score.loss);
        ph_trainer_free(t);
        close_ctx(ctx);
    }
}

/* Without a model to go on from: a small encoder, by characters. */
static void classes_from_scratch(void)
{
    static const char *const labels[] = {"yes", "no"};
    ph_ctx *ctx = open_ctx();
    ph_train train;
    ph_score score;
    write_lines(labels);
    CHECK(ph_train_defaults(&train, "classes") == PH_OK, "no recipe");
    strcpy(train.file, path_of("text"));
    train.config.layers = 1, train.config.model_dim = 16, train.config.max_len = 8;
    train.config.dropout = 0, train.batch = 8, train.lr = 1e-2f, train.warmup = 5;
    ph_trainer *t = begin(ctx, &train);
    CHECK(t->data.source_len == 8 && t->model->config.classes == 2, "another model");
    double loss = steps(t, 40);
    CHECK(loss < 0.05, "loss %g", loss);
    CHECK(ph_trainer_test(t, 10, &score) == PH_OK && score.texts == 10, "%s",
          ph_error(ctx));
    CHECK(!strcmp(ph_model_class(t->model, 0), "no"), "labels are not sorted");
    ph_trainer_free(t);
    close_ctx(ctx);
}

/* It leaves the encoder as it was, and ModernBERT's head that of masked tokens. */
static void new_classifier(void)
{
    for (int modern = 0; modern < 2; modern++) {
        const char *from = modern ? FOLDER "modernbert" : FOLDER "bert";
        ph_ctx *ctx = open_ctx();
        ph_model *m;
        write_lines((const char *const[]){"yes", "no"});
        ph_train train = options("classes", from);
        ph_trainer *t = begin(ctx, &train);
        CHECK(ph_model_read(&m, ctx, from) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_own(m) == PH_OK, "%s", ph_error(ctx));
        int same = 0, kept = modern ? 2 + 8 + 2 * 9 + 1 + 2 : 3 + 2 + 2 * 16;
        for (int i = 0; i < t->model->param_count; i++) {
            const ph_tensor *a = ph_model_tensor(t->model, i), *b = NULL, *p;
            char old[64];
            int head = !strncmp(a->name, "pooler.", 7), other = head && modern;
            sprintf(old, "%s%s", other ? "masked." : "", a->name + 7 * other);
            for (int k = 0; (p = ph_model_tensor(m, k)); k++)
                if (!strcmp(p->name, old)) b = p;
            CHECK(b || head || strstr(a->name, "classifier"), "%s is new", a->name);
            CHECK(!b || !memcmp(a->data, b->data, a->bytes), "%s differs", a->name);
            same += b != NULL;
        }
        CHECK(same == kept, "%d parameters are kept", same);
        ph_model_free(m);
        ph_trainer_free(t);
        close_ctx(ctx);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

static void refused(void)
{
    static const struct {
        const char *recipe, *from, *text, *sentence;
        int length;
    } all[] = {
        {"text", FOLDER "vit", NULL, "needs a decoder with an output head", 8},
        {"text", FOLDER "bert-sentence", NULL, "needs a decoder with an output head", 16},
        {"text", FOLDER "llama", NULL, "the model has no tokenizer", 16},
        {"text", FOLDER "bert", NULL, "at most 40", 41},
        {"text", FOLDER "bert", NULL, "no room beside 2 marks", 2},
        {"text", FOLDER "bert", "a b c", "has 3 tokens, expected at least 300", 16},
        {"text", FOLDER "bert", "a \xff b", "not valid UTF-8", 16},
        {"text", FOLDER "nowhere", NULL, "nowhere", 16},
        {"copy", FOLDER "bert", NULL, "makes a model of its own", 16},
        {"pairs", FOLDER "bert", NULL, "needs an encoder-decoder of texts", 16},
        {"pairs", FOLDER "whisper", NULL, "needs an encoder-decoder of texts", 8},
        {"pairs", FOLDER "t5", "a b c d\ta\n", "tokens, expected at most 3 (--length)",
         3},
        {"pairs", FOLDER "t5", "a\t\n", "line 1: one side is empty", 8},
        {"classes", FOLDER "llama-gguf/model.gguf", NULL, "needs an encoder of texts",
         16},
        {"classes", FOLDER "vit", NULL, "needs an encoder of texts", 8},
        {"classes", FOLDER "bert", "yes a b\n", "line 1: no TAB, expected label TAB text",
         16},
        {"classes", FOLDER "bert", "yes\ta\tb\n", "line 1: more than one TAB", 16},
        {"classes", FOLDER "bert", "\ta b\n", "line 1: the label is empty", 16},
        {"classes", FOLDER "bert", "yes\t\nno\ta\n", "line 1: the text is empty", 16},
        {"classes", FOLDER "bert", "yes\ta\n", "has 1 label, expected at least two", 16},
        {"classes", FOLDER "bert", "yes\ta\nno\tb\n", "has 2 texts, expected at least 20",
         16}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ph_ctx *ctx = open_ctx();
        ph_trainer *t;
        write_text();
        FILE *file = all[i].text ? fopen(path_of("text"), "w") : NULL;
        if (file) fputs(all[i].text, file), fclose(file);
        ph_train train = options(all[i].recipe, all[i].from);
        train.length = all[i].length;
        ph_status status = ph_trainer_create(&t, ctx, &train);
        CHECK(status != PH_OK && !t, "%zu: accepted", i);
        CHECK(strstr(ph_error(ctx), all[i].sentence), "%zu: \"%s\" lacks \"%s\"", i,
              ph_error(ctx), all[i].sentence);
        close_ctx(ctx);
    }
}

/* A model that is given is freed wherever it cannot be used. */
static void bad_arguments(void)
{
    ph_ctx *ctx = open_ctx();
    ph_trainer *t;
    ph_model *m;
    write_text();
    ph_train train = options("text", NULL), plain = train;
    plain.tuned = 0;
    CHECK(ph_trainer_create(&t, ctx, &train) == PH_BAD_ARGUMENT, "no model is accepted");
    CHECK(ph_model_embedded(&m, ctx) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_trainer_tune(&t, ctx, &plain, m) == PH_BAD_ARGUMENT, "not tuned");
    CHECK(ph_model_embedded(&m, ctx) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_trainer_tune(NULL, ctx, &train, m) == PH_BAD_ARGUMENT, "no place");
    CHECK(ph_trainer_tune(&t, ctx, &train, NULL) == PH_BAD_ARGUMENT, "no model");
    CHECK(ph_train_from(NULL, "x") == PH_BAD_ARGUMENT, "no options");
    static char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    CHECK(ph_train_from(&train, longer) == PH_BAD_ARGUMENT, "a long path");
    close_ctx(ctx);
}

/* ---- memory ------------------------------------------------------------------------ */

static int allocations, fail_at, blocks;

static void *count_alloc(void *user, size_t bytes)
{
    (void)user;
    if (++allocations == fail_at) return NULL;
    blocks++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void count_release(void *user, void *ptr)
{
    (void)user;
    blocks -= ptr != NULL;
    free(ptr);
}

/* Whichever allocation fails, it is said, and nothing stays behind. */
static void memory_runs_out(void)
{
    static const char *const labels[] = {"yes", "no"};
    ph_ctx *plain = open_ctx(), *ctx;
    ph_options hooks = {.threads = 1, .alloc = count_alloc, .release = count_release};
    write_lines(labels);
    ph_train train = options("classes", FOLDER "bert");
    CHECK(ph_open(&ctx, &hooks) == PH_OK, "ph_open failed");
    ph_trainer *t = begin(ctx, &train); /* scratch stays with the ctx */
    ph_trainer_free(t);
    int before = blocks, failures = 0;
    for (int at = 1;; at++) {
        allocations = 0, fail_at = at;
        ph_status status = ph_trainer_create(&t, ctx, &train);
        fail_at = 0;
        ph_trainer_free(t);
        CHECK(blocks == before, "%d blocks are left after failure %d", blocks - before,
              at);
        if (status == PH_OK) break;
        CHECK(status == PH_OUT_OF_MEMORY && *ph_error(ctx), "%d: status %d", at, status);
        failures++;
    }
    CHECK(failures > 30, "%d allocations", failures);
    ph_close(ctx);
    close_ctx(plain);
}

static const check_case cases[] = {
    {"tokenizer_kept", tokenizer_kept}, {"companions_lie", companions_lie},
    {"learns_text", learns_text}, {"own_vocabulary", own_vocabulary},
    {"in_memory", in_memory}, {"masking", masking},
    {"learns_classes", learns_classes}, {"classes_from_scratch", classes_from_scratch},
    {"new_classifier", new_classifier}, {"learns_pairs", learns_pairs},
    {"refused", refused}, {"bad_arguments", bad_arguments},
    {"memory_runs_out", memory_runs_out},
    {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
