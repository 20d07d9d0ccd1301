/*
 * test_convert.c - conversions of whole models: what must change nothing, what must, what
 * is refused.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <unistd.h>

#include "convert_bed.h"
#include "polyhead_prune.h"

/* ---- merging ----------------------------------------------------------------------- */

/* Key head 2i + 1 becomes head 2i, rotated within the freedom of its positions; values
   likewise, freely, with queries and rows of wo that fit the first head. */
static void plant_twins(ph_model *m, int rotated)
{
    uint64_t state = check_seed + 11;
    const ph_config *c = &m->config;
    ph_freedom freedom = c->positions != PH_POS_ROPE ? PH_FREEDOM_ALL
                         : c->rope_interleaved       ? PH_FREEDOM_INTERLEAVED
                                                     : PH_FREEDOM_HALF;
    for (int s = 0; s < m->stacks[0].count; s++) {
        const ph_sublayer *sublayer = &m->stacks[0].sublayers[s];
        ph_chain chain = {.ctx = m->ctx};
        ph_head_weights w;
        if (sublayer->kind == PH_SUBLAYER_FEED) continue;
        ph_convert_site site = {.from = m, .to = m, .old = sublayer, .new = sublayer};
        CHECK(ph_head_weights_load(&w, &site, &chain) == PH_OK, "no weights");
        for (int h = 1; h < w.kv; h += 2) {
            double r[64];
            size_t bytes = (DIM + 1) * 8 * sizeof(double);
            memcpy(ph_head_k(&w, h), ph_head_k(&w, h - 1), bytes);
            memcpy(ph_head_v(&w, h), ph_head_v(&w, h - 1), bytes);
            random_rotation(freedom, &state, r);
            if (rotated) multiply(DIM + 1, ph_head_k(&w, h), r);
            random_rotation(PH_FREEDOM_ALL, &state, r);
            if (rotated) multiply(DIM + 1, ph_head_v(&w, h), r);
        }
        ph_head_weights_store(&w, &site);
        ph_chain_free(&chain);
    }
}

/* Twins merge without any loss if, and only if, they are aligned. */
static void twins_merge(void)
{
    static const struct {
        ph_positions positions;
        int interleaved, kv;
    } all[] = {{PH_POS_ROPE, 0, 4},  {PH_POS_ROPE, 1, 4}, {PH_POS_LEARNED, 0, 4},
               {PH_POS_ALIBI, 0, 4}, {PH_POS_T5, 0, 4},   {PH_POS_ROPE, 0, 2}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        float before[TOKENS * DIM];
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(PH_ARCH_DECODER, all[i].positions, 4, all[i].kv);
        c.rope_interleaved = all[i].interleaved;
        const char *to = all[i].kv == 4 ? "gqa:2" : "mqa";
        for (int way = 0; way < 4; way++) {
            int aligned = way % 2;
            ph_conversion how = {.align = aligned ? PH_ALIGN_FULL : PH_ALIGN_NONE,
                                 .merge = way < 2 ? PH_MERGE_FIT : PH_MERGE_MEAN};
            ph_conversion_report *r;
            ph_model *m = make(ctx, &c);
            plant_twins(m, 1);
            outputs_of(m, before);
            convert(m, to, how, &r);
            double found = distance(m, before);
            CHECK(aligned ? found <= EXACT : found > BROKEN,
                  "case %zu, way %d: outputs change by %g", i, way, found);
            CHECK(m->config.kv_heads == all[i].kv / 2, "kv_heads is %d",
                  m->config.kv_heads);
            CHECK((r->sites[1].key_error < 1e-5) == aligned, "key error %g",
                  r->sites[1].key_error); /* of weights rounded to 2^-24 */
            CHECK(r->kv_bytes == 2 * r->converted_kv_bytes, "bytes %lld and %lld",
                  (long long)r->kv_bytes, (long long)r->converted_kv_bytes);
            ph_conversion_report_free(r);
            ph_model_free(m);
        }
        ph_close(ctx);
    }
}

/* Equal heads are their own mean, and need no alignment. */
static void equal_heads_merge(void)
{
    static const ph_merging ways[] = {PH_MERGE_FIT, PH_MERGE_MEAN, PH_MERGE_FIRST};
    for (int i = 0; i < 3; i++) {
        float before[TOKENS * DIM];
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(PH_ARCH_ENCODER, PH_POS_ROPE, 4, 2);
        ph_model *m = make(ctx, &c);
        plant_twins(m, 0);
        outputs_of(m, before);
        convert(m, "mqa",
                (ph_conversion){.align = PH_ALIGN_NONE, .merge = ways[i], .renorm = 1},
                NULL);
        CHECK(distance(m, before) <= EXACT, "outputs change by %g", distance(m, before));
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* A change of basis before the conversion changes nothing after it: alignment sees what
   heads do, not in which basis. */
static void basis_does_not_count(void)
{
    static const ph_positions positions[] = {PH_POS_ROPE, PH_POS_LEARNED};
    for (int n = 0; n < 4; n++) {
        int i = n % 2;
        ph_conversion how = {.merge = n < 2 ? PH_MERGE_FIT : PH_MERGE_MEAN};
        transform t;
        float plain[TOKENS * DIM];
        uint64_t state = check_seed + 4;
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(PH_ARCH_DECODER, positions[i], 4, 4);
        rotation_of_keys(i ? PH_FREEDOM_ALL : PH_FREEDOM_HALF, &t);
        random_rotation(PH_FREEDOM_ALL, &state, t.value);
        transpose(t.value, t.inverse);
        ph_model *m = make(ctx, &c);
        convert(m, "gqa:2", how, NULL);
        outputs_of(m, plain);
        ph_model_free(m);
        m = make(ctx, &c);
        apply(m, &t);
        convert(m, "gqa:2", how, NULL);
        CHECK(distance(m, plain) <= 2 * EXACT, /* two conversions */
              "case %d: another basis gives outputs that differ by %g", n,
              distance(m, plain));
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* Gains of a norm of queries and keys belong to elements, so these are not rotated. */
static void qk_norm_keeps_keys(void)
{
    transform t;
    ph_config c = config_of(PH_ARCH_DECODER, PH_POS_NONE, 4, 2);
    c.qk_norm = 1;
    rotation_of_keys(PH_FREEDOM_ALL, &t);
    CHECK(change_of(&c, &t) > BROKEN, "gains do not matter");
    ph_ctx *ctx = open_ctx();
    float before[TOKENS * DIM];
    ph_model *m = make(ctx, &c);
    outputs_of(m, before);
    convert(m, "mqa", (ph_conversion){0}, NULL);
    convert(m, "mha", (ph_conversion){0}, NULL);
    CHECK(distance(m, before) > BROKEN, "merging random heads changes nothing");
    ph_model_free(m);
    ph_close(ctx);
}

/* ---- exact conversions ------------------------------------------------------------- */

/* As many groups as heads is the model itself; copies of shared heads are too. */
static void copies_are_exact(void)
{
    static const ph_arch archs[] = {PH_ARCH_ENCODER, PH_ARCH_DECODER,
                                    PH_ARCH_ENCODER_DECODER};
    for (int i = 0; i < 3; i++) {
        float before[TOKENS * DIM];
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(archs[i], PH_POS_ROPE, 4, 0);
        strcpy(c.variant, i == 1 ? "gqa:2" : "");
        c.kv_heads = i == 1 ? 0 : 2;
        ph_model *m = make(ctx, &c);
        outputs_of(m, before);
        convert(m, "gqa:2", (ph_conversion){0}, NULL);
        CHECK(distance(m, before) == 0, "2 of 2 groups change %g", distance(m, before));
        convert(m, "mha", (ph_conversion){0}, NULL);
        CHECK(m->config.kv_heads == 4 && distance(m, before) == 0, "copies change %g",
              distance(m, before));
        convert(m, "gqa:2", (ph_conversion){0}, NULL);
        CHECK(distance(m, before) <= EXACT, "merged copies change %g",
              distance(m, before));
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* What belongs to text is the model's, whatever becomes of its heads. */
static void tokens_stay_suppressed(void)
{
    ph_ctx *ctx = open_ctx();
    ph_config c = config_of(PH_ARCH_DECODER, PH_POS_ROPE, 4, 4);
    ph_model *m = make(ctx, &c);
    uint8_t *never = ph_ctx_alloc(ctx, (size_t)m->config.vocab), removed[64] = {1};
    memset(never, PH_NEVER, (size_t)m->config.vocab);
    m->suppressed = never, m->marks.start = 7;
    convert(m, "mqa", (ph_conversion){0}, NULL);
    CHECK(m->suppressed == never && m->marks.start == 7, "lost by a conversion");
    CHECK(ph_model_remove(m, removed) == PH_OK, "%s", ph_error(ctx));
    CHECK(m->suppressed == never && m->marks.start == 7, "lost with a head");
    ph_model_free(m);
    ph_close(ctx);
}

/* Three tokens after a text, or fewer if the model ends it. */
static int generate(ph_model *m, char *text, size_t size)
{
    ph_generation how = {.max_tokens = 3};
    ph_prompt prompt = {.text = "a b c", .out = text, .size = size};
    CHECK(ph_generate_batch(m, &prompt, 1, &how) == PH_OK, "%s", ph_error(m->ctx));
    return prompt.tokens;
}

/* Written and read again, with the vocabulary; both generate the same. */
static void written_and_read(void)
{
    float before[TOKENS * DIM];
    char folder[] = "/tmp/test_convert.XXXXXX", path[64], out[64];
    CHECK(mkdtemp(folder), "no folder");
    ph_ctx *ctx = open_ctx();
    ph_config c = config_of(PH_ARCH_DECODER, PH_POS_LEARNED, 4, 4);
    static const char *const to[] = {"mqa", "collab:9", "mohsa:overlap=2+talking"};
    for (int i = 0; i < 3; i++) {
        ph_model *m = make(ctx, &c), *again;
        ph_word word[8];
        int count;
        convert(m, to[i], (ph_conversion){0}, NULL);
        outputs_of(m, before);
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        CHECK(ph_model_write(m, path) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_read(&again, ctx, path) == PH_OK, "%s", ph_error(ctx));
        CHECK(distance(again, before) == 0, "a file changes outputs");
        CHECK(ph_model_split(again, "b c", word, 8, &count) == PH_OK && count == 2 &&
                  word[1].token == 6,
              "the vocabulary is lost");
        char text[64] = "", other[64] = "";
        int tokens = generate(m, text, sizeof text);
        CHECK(generate(again, other, sizeof other) == tokens && !strcmp(text, other),
              "'%s' becomes '%s'", text, other);
        snprintf(out, sizeof out, "%s/out", folder);
        if (i > 0)
            CHECK(ph_model_export(ctx, path, out, NULL) == PH_UNSUPPORTED &&
                      strstr(ph_error(ctx), i == 1 ? "collab:dim=9" : to[i]) &&
                      access(out, F_OK),
                  "%s", ph_error(ctx));
        remove(path);
        ph_model_free(again);
        ph_model_free(m);
    }
    rmdir(folder);
    ph_close(ctx);
}

/* ---- refusals ---------------------------------------------------------------------- */

static void refusals(void)
{
    static const struct {
        const char *to, *variant, *sentence;
        ph_positions positions;
        int qk_norm;
    } all[] = {
        {"gqa:3", "", "cannot be merged to 3", PH_POS_ROPE, 0},
        {"gqa:8", "", "cannot be merged to 8", PH_POS_ROPE, 0},
        {"gqa", "", "has no number", PH_POS_ROPE, 0},
        {"gqa:0", "", "has no number", PH_POS_ROPE, 0},
        {"gqa:2x", "", "has no number", PH_POS_ROPE, 0},
        {"collab", "", "has no number", PH_POS_NONE, 0},
        {"collab:33", "", "expected 1 to 32", PH_POS_NONE, 0},
        {"collab:4", "", "rotary positions", PH_POS_ROPE, 0},
        {"collab:4", "", "normalises queries", PH_POS_NONE, 1},
        {"diff", "", "weights cannot be converted to", PH_POS_NONE, 0},
        {"talking+diff", "", "expected gqa:G, mqa, mha, collab:R, ent", PH_POS_NONE, 0},
        {"talking+", "", "weights cannot be converted to", PH_POS_NONE, 0},
        {"talking;", "", "weights cannot be converted to", PH_POS_NONE, 0},
        {"gqa:2+talking", "", "has no number", PH_POS_NONE, 0},
        {"mohsa:2", "", "mohsa has no option \"2\"", PH_POS_NONE, 0},
        {"mohsa:overlap=-1", "", "expected a whole number from 0", PH_POS_NONE, 0},
        {"mohsa:overlap=1", "gqa:2", "has 4, 2 and 2 heads of q, k and v", PH_POS_NONE,
         0},
        {"moh:shared=2,top=3", "", "heads", PH_POS_NONE, 0},
        {"moh+mohsa", "", "both change the layer", PH_POS_NONE, 0},
        {"mha+talking", "", "mha combines with no other", PH_POS_NONE, 0},
        {"talking;mha;talking", "", "has 3 entries", PH_POS_NONE, 0},
        {"talking", "gqa:2;mha", "layers have 2 and 4 key and value heads", PH_POS_NONE,
         0},
        {"talking", "mohsa:overlap=1", "is mohsa:overlap=1, expected mha", PH_POS_NONE,
         0},
        {"", "", "weights cannot be converted to", PH_POS_NONE, 0},
        {"mqa", "talking", "is talking, expected mha", PH_POS_NONE, 0},
        {"mqa", "gqa:2+talking", "expected mha, gqa or mqa", PH_POS_NONE, 0}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        float before[TOKENS * DIM];
        ph_conversion how = {0};
        ph_conversion_report *r = (ph_conversion_report *)&how;
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(PH_ARCH_DECODER, all[i].positions, 4, 0);
        c.qk_norm = all[i].qk_norm;
        strcpy(c.variant, all[i].variant);
        strcpy(how.to, all[i].to);
        ph_model *m = make(ctx, &c);
        outputs_of(m, before);
        CHECK(ph_convert(m, &how, NULL, &r) != PH_OK, "case %zu is not refused", i);
        CHECK(strstr(ph_error(ctx), all[i].sentence), "case %zu: %s", i, ph_error(ctx));
        CHECK(!r && distance(m, before) == 0, "case %zu: the model changed", i);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* What one layer needs is not what another one does. */
static void shared_layers(void)
{
    ph_conversion how = {.to = "mqa"};
    ph_ctx *ctx = open_ctx();
    ph_config c = config_of(PH_ARCH_ENCODER, PH_POS_LEARNED, 4, 0);
    c.layers = 2, c.layer_groups = 1, c.norm_place = PH_POST_NORM;
    ph_model *m = make(ctx, &c);
    CHECK(ph_convert(m, &how, NULL, NULL) == PH_UNSUPPORTED &&
              strstr(ph_error(ctx), "layers of the model share parameters"),
          "%s", ph_error(ctx));
    ph_model_free(m);
    ph_close(ctx);
}

static void bad_texts(void)
{
    static const char *const empty[] = {"a b", ""};
    ph_conversion how = {.to = "mqa"};
    ph_ctx *ctx = open_ctx();
    ph_config c = config_of(PH_ARCH_ENCODER_DECODER, PH_POS_ROPE, 4, 0);
    ph_model *m = make(ctx, &c);
    CHECK(ph_convert(m, &how, &(ph_texts){.texts = texts, .count = 2}, NULL) ==
                  PH_BAD_ARGUMENT &&
              strstr(ph_error(ctx), "pairs"),
          "%s", ph_error(ctx));
    ph_texts later = {.texts = texts, .pairs = pairs, .count = 2, .reserved = {1}};
    CHECK(ph_convert(m, &how, &later, NULL) == PH_BAD_ARGUMENT &&
              strstr(ph_error(ctx), "ph_texts.reserved"),
          "%s", ph_error(ctx));
    const char *const none[] = {"a b", NULL};
    ph_texts nulls = {.texts = none, .pairs = pairs, .count = 2};
    CHECK(ph_convert(m, &how, &nulls, NULL) == PH_BAD_ARGUMENT &&
              strstr(ph_error(ctx), "text 2 is NULL"),
          "%s", ph_error(ctx));
    ph_texts holes = {.texts = empty, .pairs = pairs, .count = 2};
    CHECK(ph_convert(m, &how, &holes, NULL) == PH_BAD_SHAPE &&
              strstr(ph_error(ctx), "empty"),
          "%s", ph_error(ctx));
    how.merge = (ph_merging)9;
    CHECK(ph_convert(m, &how, NULL, NULL) == PH_BAD_ARGUMENT, "merge 9 is taken");
    CHECK(m->config.kv_heads == 4, "the model changed");
    CHECK(ph_convert(NULL, &how, NULL, NULL) == PH_BAD_ARGUMENT, "no model is taken");
    ph_model_free(m);
    ph_close(ctx);
}

/* ---- memory that runs out ---------------------------------------------------------- */

typedef struct heap {
    long asked, live, fail_at; /* 0: never */
} heap;

static void *heap_alloc(void *user, size_t bytes)
{
    heap *h = user;
    if (++h->asked == h->fail_at) return NULL;
    char *block = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!block) return NULL;
    h->live++;
    memset(block, 0xcd, bytes); /* fresh memory is never zero */
    return block;
}

static void heap_release(void *user, void *block)
{
    heap *h = user;
    h->live -= block != NULL;
    free(block);
}

/* At every place where memory is taken: the model stays as it was, nothing is lost. The
   ctx may keep one piece, its scratch. */
static void memory_runs_out(void)
{
    static const char *const to[] = {"mqa", "mha", "collab:5", "dcmha:rank=1"};
    for (int i = 0; i < 4; i++) {
        heap h = {0};
        ph_ctx *ctx;
        ph_options options = {
            .threads = 1, .alloc = heap_alloc, .release = heap_release, .user = &h};
        CHECK(ph_open(&ctx, &options) == PH_OK, "ph_open failed");
        ph_config c = config_of(PH_ARCH_DECODER, PH_POS_LEARNED, 4, 2);
        c.layers = 1;
        ph_model *m = make(ctx, &c);
        ph_conversion how = {0};
        const ph_texts data = {.texts = texts, .count = 2};
        ph_conversion_report *report;
        ph_status status = PH_OUT_OF_MEMORY;
        strcpy(how.to, to[i]);
        for (long n = 1; status == PH_OUT_OF_MEMORY; n++) {
            long before = h.live;
            h.asked = 0, h.fail_at = n;
            status = ph_convert(m, &how, &data, &report);
            h.fail_at = 0;
            CHECK(status == PH_OK || !report, "request %ld: a report is left", n);
            CHECK(status == PH_OK || (m->config.kv_heads == 2 && h.live <= before + 1),
                  "%s, request %ld: %ld pieces, %ld before", to[i], n, h.live, before);
        }
        CHECK(status == PH_OK, "%s: %s", to[i], ph_error(ctx));
        ph_conversion_report_free(report);
        ph_model_free(m);
        ph_close(ctx);
        CHECK(h.live == 0, "%s: %ld pieces are lost", to[i], h.live);
    }
}

/* NaN, Inf, and finite weights whose products are not: refused, nothing is changed. */
static void not_finite(void)
{
    static const char *const to[] = {"mqa", "mha", "collab:5", "talking"};
    const float bad[] = {NAN, INFINITY, 1};
    for (int i = 0; i < 12; i++) {
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(PH_ARCH_DECODER, PH_POS_LEARNED, 4, 2);
        ph_model *m = make(ctx, &c);
        ph_conversion how = {0};
        const ph_texts data = {.texts = texts, .count = 2};
        ph_conversion_report *report;
        int wk = 0;
        while (strcmp(m->params[wk].name, "decoder.1.self.wk")) wk++;
        m->block[m->params[wk].at + 5] = bad[i % 3];
        for (size_t f = 0; i % 3 == 2 && f < m->floats; f++) m->block[f] *= 1e30f;
        strcpy(how.to, to[i / 3]);
        CHECK(ph_convert(m, &how, &data, &report) == PH_BAD_VALUE && !report &&
                  m->config.kv_heads == 2 &&
                  strstr(ph_error(ctx), i % 3 == 2
                                            ? "became NaN or Inf"
                                            : "decoder.1.self.wk has a NaN or Inf"),
              "%s, case %d: %s", how.to, i % 3, ph_error(ctx));
        ph_model_free(m);
        ph_close(ctx);
    }
}

static const check_case cases[] = {{"not_finite", not_finite},
                                   {"tokens_stay_suppressed", tokens_stay_suppressed},
                                   {"qk_norm_keeps_keys", qk_norm_keeps_keys},
                                   {"twins_merge", twins_merge},
                                   {"equal_heads_merge", equal_heads_merge},
                                   {"basis_does_not_count", basis_does_not_count},
                                   {"copies_are_exact", copies_are_exact},
                                   {"written_and_read", written_and_read},
                                   {"refusals", refusals},
                                   {"shared_layers", shared_layers},
                                   {"bad_texts", bad_texts},
                                   {"memory_runs_out", memory_runs_out},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
