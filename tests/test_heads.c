/*
 * test_heads.c - numbers and labels of heads: hand-computed maps, and random ones against
 * the dense version of heads_dense.c.
 */
#include <math.h>

#include "check.h"
#include "heads_dense.h"
#include "polyhead_heads.h"

enum { MOST = DENSE_MOST };

/* ---- both sides of a comparison ---- */

/* Feeds maps to the library, `step` rows at a time, and reads head (0, 0). */
typedef struct feed {
    int32_t ids[MOST], ranks[MOST];
    uint8_t classes[MOST];
    float rows[MOST * MOST];
} feed;

static void add_text(ph_heads *heads, const dense *d, const ph_link *links, int count,
                     int step)
{
    static feed f;
    for (int j = 0; j < d->n; j++) {
        f.ids[j] = d->id[j];
        f.classes[j] = (uint8_t)d->kind[j];
        f.ranks[j] = d->rank[j];
    }
    for (int i = 0; i < d->n; i++)
        for (int j = 0; j < d->n; j++) f.rows[i * d->n + j] = (float)d->a[i][j];
    ph_heads_text text = {.rows = d->n,
                          .keys = d->n,
                          .causal = d->causal,
                          .ids = f.ids,
                          .classes = f.classes,
                          .ranks = f.ranks,
                          .links = links,
                          .link_count = count,
                          .patch_first = d->patch_first,
                          .patch_columns = d->patch_columns,
                          .patch_size = d->patch_size};
    CHECK(ph_heads_begin(heads, &text, NULL) == PH_OK, "a text of %d was refused", d->n);
    for (int i = 0; i < d->n; i += step) {
        int rows = d->n - i < step ? d->n - i : step;
        CHECK(ph_heads_add(heads, 0, 0, i, rows, f.rows + i * d->n) == PH_OK, "row %d",
              i);
    }
    ph_heads_end(heads);
}

static ph_head_stats measure(const dense *d, int step)
{
    ph_heads *heads = NULL;
    ph_head_stats out;
    CHECK(ph_heads_create(&heads, 1, 1, NULL) == PH_OK, "no heads");
    add_text(heads, d, NULL, 0, step);
    ph_heads_read(heads, 0, 0, &out);
    ph_heads_free(heads);
    return out;
}

/* Random weights rounded to float first, so that both sides see the same numbers. */
static void random_map(dense *d, int n, int causal, double sharp, uint64_t *state)
{
    *d = (dense){.n = n, .causal = causal};
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j <= (causal ? i : n - 1); j++) {
            d->a[i][j] = exp(sharp * (double)check_normal(state));
            sum += d->a[i][j];
        }
        for (int j = 0; j < n; j++) d->a[i][j] = (double)(float)(d->a[i][j] / sum);
        d->id[i] = check_below(state, n / 2 + 1);
        d->kind[i] = check_below(state, 6) == 0 ? 1 + check_below(state, 2) : 0;
        d->rank[i] = check_below(state, 2000);
    }
}

/* Sums in double; the logs of weights are floats, off by 7 * 2^-24 of themselves
   (row_sums_loops.h), and all terms of an entropy have the same sign. */
static double bound_of(const dense *d, ph_measure m, double expected)
{
    double logs = m == PH_ENTROPY || m == PH_BREADTH ? 7 * 0x1p-24 * expected : 0;
    return 1e-12 * d->n + logs;
}

static void same_as_dense(const dense *d, int step)
{
    double expected[PH_MEASURES];
    int offset = 0;
    ph_head_stats found = measure(d, step);
    dense_all(d, expected, &offset);
    for (int m = 0; m < PH_MEASURES; m++) {
        int both_unknown = isnan(expected[m]) && isnan(found.value[m]);
        CHECK(both_unknown || fabs(expected[m] - found.value[m]) <=
                                  bound_of(d, (ph_measure)m, expected[m]),
              "%s of %d tokens%s: found %.15g, expected %.15g",
              ph_measure_about((ph_measure)m)->key, d->n, d->causal ? ", causal" : "",
              found.value[m], expected[m]);
    }
    CHECK(isnan(expected[PH_POSITIONAL]) || found.top_offset == offset,
          "offset %d, expected %d", found.top_offset, offset);
}

static void random_maps(void)
{
    static dense d;
    uint64_t state = check_seed;
    for (int round = 0; round < 300; round++) {
        random_map(&d, 1 + check_below(&state, 40), round & 1, round % 3 * 1.5, &state);
        if (round % 5 == 0 && d.n > 2) memset(d.a[d.n / 2], 0, sizeof d.a[0]);
        same_as_dense(&d, 1 + check_below(&state, 7));
    }
    random_map(&d, MOST, 0, 2, &state);
    same_as_dense(&d, MOST);
}

/* Patches of pictures behind one or two class tokens; a class token that takes all of a
   row leaves no distance. */
static void pictures(void)
{
    static dense d;
    uint64_t state = check_seed;
    for (int round = 0; round < 60; round++) {
        int first = check_below(&state, 3), columns = 1 + check_below(&state, 9);
        random_map(&d, first + columns * (1 + check_below(&state, 9)), 0, 1.5, &state);
        d.patch_first = first, d.patch_columns = columns;
        d.patch_size = 1 + check_below(&state, 3);
        if (first) {
            memset(d.a[first], 0, sizeof d.a[0]);
            d.a[first][0] = 1;
        }
        same_as_dense(&d, 1 + check_below(&state, 7));
    }
}

/* ---- maps with known answers ---- */

static void shifted(dense *d, int n, int shift)
{
    *d = (dense){.n = n};
    for (int i = 0; i < n; i++) {
        if (i + shift >= 0 && i + shift < n) d->a[i][i + shift] = 1;
        d->id[i] = i;
    }
}

static void near(const ph_head_stats *head, ph_measure m, double expected)
{
    CHECK(fabs(head->value[m] - expected) < 1e-6, "%s is %.9g, expected %.9g",
          ph_measure_about(m)->key, head->value[m], expected);
}

static void known_maps(void)
{
    static dense d;
    ph_head_stats head;
    shifted(&d, 8, -1);
    d.a[0][5] = 1; /* the first row has no token before it */
    head = measure(&d, 3);
    near(&head, PH_PREV, 7.0 / 8);
    near(&head, PH_POSITIONAL, 1);
    near(&head, PH_ENTROPY, 0);
    near(&head, PH_CONFIDENCE, 1);
    CHECK(head.top_offset == -1 && head.rows == 8, "offset %d", head.top_offset);
    shifted(&d, 8, 0);
    head = measure(&d, 8);
    near(&head, PH_SELF, 1);
    near(&head, PH_DISTANCE, 0);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) d.a[i][j] = 0.125;
    head = measure(&d, 8);
    near(&head, PH_BREADTH, 1);
    near(&head, PH_ENTROPY, log(8));
    near(&head, PH_NEXT, 7.0 / 64);
    near(&head, PH_FIRST, 0.125);
}

/* a * shift + (1 - a) * uniform: next = a (n-1)/n + (1-a) (n-1)/n^2 */
static void mixtures(void)
{
    static dense d;
    double entropy = 100;
    for (int step = 1; step <= 4; step++) {
        double a = step / 4.0;
        d = (dense){.n = 16};
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                int hit = i < 15 ? j == i + 1 : 0;
                d.a[i][j] = (i < 15 ? a * hit : a / 16) + (1 - a) / 16;
            }
        ph_head_stats head = measure(&d, 5);
        near(&head, PH_NEXT, a * 15 / 16 + (1 - a) * 15 / 256);
        CHECK(head.value[PH_ENTROPY] < entropy, "entropy does not fall at a = %g", a);
        entropy = head.value[PH_ENTROPY];
    }
}

/* One, two and three separators: their rows and the others are averaged apart. */
static void separators(void)
{
    static dense d;
    for (int count = 1; count <= 3; count++) {
        shifted(&d, 9, 0);
        for (int n = 0; n < count; n++) d.kind[2 * n + 2] = PH_CLASS_SEPARATOR;
        for (int i = 0; i < 9; i++) {
            memset(d.a[i], 0, sizeof d.a[i]);
            d.a[i][2] = d.kind[i] ? 1 : 0.25;
            d.a[i][0] = d.kind[i] ? 0 : 0.75;
        }
        ph_head_stats head = measure(&d, 9);
        near(&head, PH_SEP_SEP, 1);
        near(&head, PH_REST_SEP, 0.25);
        near(&head, PH_SEP, (count + 0.25 * (9 - count)) / 9);
        CHECK(head.count[PH_SEP_SEP] == count, "%d rows", (int)head.count[PH_SEP_SEP]);
        near(&head, PH_CONFIDENCE, 0.75); /* separators are neither row nor key */
        near(&head, PH_FIRST, 0.75 * (9 - count) / 9);
    }
}

/* 25 tokens four times after a start token; published chance levels. */
static void induction_anchors(void)
{
    static dense d;
    d = (dense){.n = 101, .causal = 1};
    for (int i = 0; i < 101; i++) {
        d.id[i] = i == 0 ? 99 : (i - 1) % 25;
        for (int j = 0; j <= i; j++) d.a[i][j] = (double)(float)(1.0 / (i + 1));
    }
    ph_head_stats head = measure(&d, 10);
    CHECK(fabs(head.value[PH_INDUCTION] - 0.03072) < 5e-6 &&
              fabs(head.value[PH_PREFIX_ENTRY] - 0.01536) < 5e-6,
          "chance %.6f and %.6f", head.value[PH_INDUCTION], head.value[PH_PREFIX_ENTRY]);
    for (int i = 1; i < 101; i++) {
        memset(d.a[i], 0, sizeof d.a[i]);
        d.a[i][i > 25 ? i - 24 : 0] = 1; /* right after the last time */
    }
    head = measure(&d, 10);
    near(&head, PH_INDUCTION, 1);
    near(&head, PH_PREFIX_ENTRY, 0.5);
    near(&head, PH_DUPLICATE, 0);
    CHECK(head.count[PH_PREFIX_ENTRY] == 150 && head.count[PH_INDUCTION] == 75,
          "%d entries, %d rows", (int)head.count[PH_PREFIX_ENTRY],
          (int)head.count[PH_INDUCTION]);
    for (int i = 1; i < 101; i++) {
        memset(d.a[i], 0, sizeof d.a[i]);
        d.a[i][i > 25 ? i - 25 : 0] = 1; /* the last time itself */
    }
    head = measure(&d, 10);
    near(&head, PH_DUPLICATE, 1);
    near(&head, PH_INDUCTION, 0);
}

static void rare_words(void)
{
    static dense d;
    shifted(&d, 8, 0);
    for (int j = 0; j < 8; j++) d.rank[j] = 10 * j;
    for (int i = 0; i < 8; i++) {
        memset(d.a[i], 0, sizeof d.a[i]);
        d.a[i][i < 5 ? 3 : 6] = 1;
    }
    ph_head_stats head = measure(&d, 8);
    CHECK(isnan(head.value[PH_RARE]), "all words are common, yet rare is measured");
    d.rank[3] = 900;
    head = measure(&d, 8);
    near(&head, PH_RAREST, 5.0 / 8);
    near(&head, PH_RARE, 5.0 / 8); /* the second rarest is key 7 */
    d.rank[6] = 800;
    head = measure(&d, 8);
    near(&head, PH_RARE, 1);
    near(&head, PH_RARE_CHANCE, 0.25);
}

/* Each text counts the same, however long. */
static void texts_count_the_same(void)
{
    static dense d;
    ph_heads *heads = NULL;
    ph_head_stats head;
    ph_heads_create(&heads, 1, 1, NULL);
    shifted(&d, 4, 0);
    add_text(heads, &d, NULL, 0, 4);
    shifted(&d, 40, 0);
    for (int i = 0; i < 40; i++) d.a[i][i] = 0.5, d.a[i][(i + 1) % 40] = 0.5;
    add_text(heads, &d, NULL, 0, 7);
    ph_heads_read(heads, 0, 0, &head);
    ph_heads_free(heads);
    near(&head, PH_SELF, 0.75);
    CHECK(head.rows == 44 && head.texts == 2, "%d rows", (int)head.rows);
}

/* ---- links ---- */

static void links(void)
{
    static dense d;
    /* the head knows relation 0; relation 1 is always the word before */
    const ph_link list[] = {{5, 1, 0}, {3, 6, 0}, {7, 2, 0},
                            {7, 6, 1}, {2, 1, 1}, {4, 4, 2}};
    shifted(&d, 8, 0); /* looks at itself most, which no word can belong to */
    for (int i = 0; i < 8; i++) d.a[i][i] = 0.6;
    d.a[5][1] = d.a[3][6] = d.a[7][2] = d.a[2][0] = d.a[4][0] = 0.4;
    ph_heads *heads = NULL;
    ph_head_stats head;
    ph_heads_create(&heads, 1, 1, NULL);
    add_text(heads, &d, list, 6, 3);
    ph_heads_read(heads, 0, 0, &head);
    ph_heads_free(heads);
    CHECK(head.link[0].links == 3 && head.link[0].right == 3, "%d of %d",
          (int)head.link[0].right, (int)head.link[0].links);
    CHECK(head.link[0].baseline == 1 && head.link[0].best_offset == 3,
          "baseline %d at %d: offsets -4, 3, -5 are equally common, the shortest wins",
          (int)head.link[0].baseline, head.link[0].best_offset);
    CHECK(head.link[1].right == 0 && head.link[1].baseline == 2 &&
              head.link[1].best_offset == -1,
          "relation 1: %d right, baseline %d at %d", (int)head.link[1].right,
          (int)head.link[1].baseline, head.link[1].best_offset);
    CHECK(head.relation == 0 && fabs(head.value[PH_LINK] - 2.0 / 3) < 1e-12,
          "margin %.6f of relation %d", head.value[PH_LINK], head.relation);
}

/* A head that always looks at one distance is as good as the baseline, never better. */
static void fixed_offset_is_baseline(void)
{
    static dense d;
    ph_link list[12];
    shifted(&d, 14, 2);
    for (int i = 0; i < 12; i++) list[i] = (ph_link){i, i + 2 - (i % 4 == 0), 0};
    ph_heads *heads = NULL;
    ph_head_stats head;
    ph_heads_create(&heads, 1, 1, NULL);
    add_text(heads, &d, list, 12, 14);
    ph_heads_read(heads, 0, 0, &head);
    ph_heads_free(heads);
    CHECK(head.link[0].right == 9 && head.link[0].baseline == 9, "%d right, baseline %d",
          (int)head.link[0].right, (int)head.link[0].baseline);
}

/* ---- labels ---- */

static int has_label(const ph_head_stats *head, char glyph)
{
    ph_label labels[PH_MAX_LABELS];
    int count = ph_head_labels(head, labels);
    for (int n = 0; n < count; n++)
        if (labels[n].rule->glyph == glyph) return 1;
    return 0;
}

/* Sets a number and says whether the label is there. */
static int labelled(ph_measure measure_of, char glyph, double value, int64_t count)
{
    ph_head_stats head;
    memset(&head, 0, sizeof head);
    for (int m = 0; m < PH_MEASURES; m++) head.value[m] = (double)NAN;
    head.value[measure_of] = value;
    head.count[measure_of] = count;
    head.value[PH_INDUCTION_CHANCE] = head.value[PH_RARE_CHANCE] = 0.1875;
    head.value[PH_DUPLICATE_CHANCE] = 0.01;
    return has_label(&head, glyph);
}

static void thresholds(void)
{
    CHECK(labelled(PH_POSITIONAL, 'O', 0.90, 10), "positional at 0.90");
    CHECK(!labelled(PH_POSITIONAL, 'O', 0.8999, 10), "not positional at 0.8999");
    CHECK(!labelled(PH_PREV, 'P', 0.5, 10) && labelled(PH_PREV, 'P', 0.5001, 10), "prev");
    CHECK(!labelled(PH_NEXT, 'N', 0.5, 10) && labelled(PH_NEXT, 'N', 0.6, 10), "next");
    CHECK(!labelled(PH_PREV, 'P', 0.9, 3), "three rows are too few for a label");
    CHECK(!labelled(PH_LINK, 'X', 0.2, 9) && labelled(PH_LINK, 'X', 0.2, 10), "links");
    CHECK(labelled(PH_LINK, 'X', 0.10, 20) && !labelled(PH_LINK, 'X', 0.0999, 20),
          "link");
    CHECK(labelled(PH_DUPLICATE, 'D', 0.5, 10), "half of the weight on duplicates");
    CHECK(!labelled(PH_INDUCTION, 'I', 0.55, 10), "less than three times chance");
    CHECK(labelled(PH_INDUCTION, 'I', 0.5625, 10), "three times chance");
    CHECK(!labelled(PH_RARE, 'R', 0.56, 10) && labelled(PH_RARE, 'R', 0.57, 10), "rare");
    CHECK(!labelled(PH_BREADTH, 'B', 0.78, 10) && labelled(PH_BREADTH, 'B', 0.79, 9),
          "B");
    CHECK(!labelled(PH_SEP, 'E', 0.6, 10) && labelled(PH_SEP, 'E', 0.7, 10), "E");
    CHECK(!labelled(PH_FIRST, 'S', 0.6, 10) && labelled(PH_FIRST, 'S', 0.7, 10), "S");
    CHECK(!labelled(PH_PUNCT, 'C', 0.6, 10) && labelled(PH_PUNCT, 'C', 0.7, 10), "C");
}

/* A sink that takes most of the weight hides no label, unless it takes nearly all: a
   head that attends to the token before with what the first token leaves. */
static void behind_a_sink(void)
{
    static const struct {
        float sink;
        int labelled;
    } heads[] = {{0.3f, 1}, {0.7f, 1}, {0.88f, 1}, {0.97f, 0}};
    for (int n = 0; n < 4; n++) {
        enum { N = 64 };
        static float map[N * N];
        const ph_heads_text text = {.rows = N, .keys = N, .causal = 1};
        ph_heads *sums;
        ph_head_stats head;
        ph_label labels[PH_MAX_LABELS];
        char why[160] = "";
        memset(map, 0, sizeof map);
        for (int i = 0; i < N; i++) map[i * N] = heads[n].sink;
        for (int i = 0; i < N; i++) map[i * N + (i ? i - 1 : 0)] += 1 - heads[n].sink;
        CHECK(ph_heads_create(&sums, 1, 1, NULL) == PH_OK, "create");
        CHECK(ph_heads_begin(sums, &text, NULL) == PH_OK, "begin");
        CHECK(ph_heads_add(sums, 0, 0, 0, N, map) == PH_OK, "add");
        ph_heads_end(sums);
        CHECK(ph_heads_read(sums, 0, 0, &head) == PH_OK, "read");
        CHECK(has_label(&head, 'P') == heads[n].labelled, "sink %g: prev %g, bare %g",
              (double)heads[n].sink, head.value[PH_PREV], head.value[PH_BARE_PREV]);
        if (n == 1 && ph_head_labels(&head, labels))
            ph_label_why(&labels[0], &head, NULL, why, sizeof why);
        CHECK(n != 1 || !strncmp(why, "bare_prev 1.00 > 0.50", 21), "why: %s", why);
        ph_heads_free(sums);
    }
}

/* Random weights must not look like anything but broad. */
static void no_false_labels(void)
{
    static dense d;
    uint64_t state = check_seed;
    for (int round = 0; round < 200; round++) {
        random_map(&d, 20 + check_below(&state, 60), round & 1, 0.8, &state);
        ph_head_stats head = measure(&d, 16);
        ph_label labels[PH_MAX_LABELS];
        int count = ph_head_labels(&head, labels);
        for (int n = 0; n < count; n++)
            CHECK(labels[n].rule->glyph == 'B', "random weights got label %s, %g",
                  labels[n].rule->key, labels[n].value);
    }
}

/* A head that copies is called "itself", whatever else is true of it. */
static void self_comes_first(void)
{
    ph_head_stats head;
    ph_label labels[PH_MAX_LABELS];
    memset(&head, 0, sizeof head);
    for (int m = 0; m < PH_MEASURES; m++) head.value[m] = (double)NAN, head.count[m] = 50;
    head.value[PH_SELF] = 0.98;
    head.value[PH_POSITIONAL] = head.value[PH_INDUCTION] = 1;
    head.value[PH_INDUCTION_CHANCE] = 0.1;
    head.value[PH_LINK] = 0.2;
    int count = ph_head_labels(&head, labels);
    CHECK(count == 4 && labels[0].rule->glyph == 'T', "%d labels, the first is %s", count,
          labels[0].rule->key);
    CHECK(labels[1].rule->glyph == 'X' && labels[3].rule->glyph == 'O', "then the rest");
    head.value[PH_SELF] = 0.5;
    CHECK(ph_head_labels(&head, labels) == 3 && labels[0].rule->glyph == 'X', "at 0.5");
}

static void reasons(void)
{
    ph_head_stats head = {.top_offset = -1, .relation = 1};
    static const char *const relations[] = {"subject", "coref"};
    char text[100];
    const struct {
        int rule;
        double value;
        const char *expected;
    } cases[] = {{4, 0.834, "prev 0.83 > 0.50"},
                 {7, 0.97, "positional -1 in 0.97 >= 0.90"},
                 {0, 0.42, "link coref 0.42 >= 0.10"}};
    for (int n = 0; n < 3; n++) {
        ph_label label = {ph_label_rules(cases[n].rule), cases[n].value, 0};
        ph_label_why(&label, &head, relations, text, sizeof text);
        CHECK(!strcmp(text, cases[n].expected), "'%s', expected '%s'", text,
              cases[n].expected);
    }
}

/* ---- tokens, rectangles, refusals ---- */

static void classes(void)
{
    const struct {
        const char *token;
        int kind;
    } cases[] = {{".", 2},         {",", 2},   {"\xe3\x80\x82", 2},
                 {" .", 2},        {"!", 0},   {"\xe2\x96\x81,", 2},
                 {"\xc4\xa0.", 2}, {"..", 0},  {"[SEP]", 1},
                 {"</s>", 1},      {"<s>", 0}, {"<|endoftext|>", 1},
                 {"<||>", 0},      {"", 0},    {"\xe2\x96\x81", 0},
                 {"[sep", 0}};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        CHECK(ph_token_classes(cases[n].token) == cases[n].kind, "'%s' is kind %d",
              cases[n].token, ph_token_classes(cases[n].token));
}

/* Fewer rows than keys: the end of a text, and another text altogether. */
static void rectangles(void)
{
    static const float tail[] = {0, 0, 1, 0, 0, /* row at place 3 */
                                 0, 0, 0, 1, 0};
    static const float cross[] = {0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1,
                                  0, 0, 1, 0, 0, 1, 0, 1, 0, 0};
    const int32_t ids[] = {1, 2, 3, 4, 5};
    ph_heads *heads = NULL;
    ph_head_stats head;
    ph_heads_create(&heads, 1, 1, NULL);
    ph_heads_text text = {.rows = 2, .keys = 5, .q_offset = 3, .causal = 1, .ids = ids};
    CHECK(ph_heads_begin(heads, &text, NULL) == PH_OK, "the end of a text");
    ph_heads_add(heads, 0, 0, 0, 2, tail);
    ph_heads_end(heads);
    ph_heads_read(heads, 0, 0, &head);
    near(&head, PH_PREV, 1);
    CHECK(head.rows == 2, "%d rows", (int)head.rows);
    ph_heads_free(heads);
    ph_heads_create(&heads, 1, 1, NULL);
    text = (ph_heads_text){.rows = 7, .keys = 3, .cross = 1, .ids = ids};
    CHECK(ph_heads_begin(heads, &text, NULL) == PH_OK, "more rows than keys");
    ph_heads_add(heads, 0, 0, 0, 7, cross);
    ph_heads_end(heads);
    ph_heads_read(heads, 0, 0, &head);
    near(&head, PH_FIRST, 2.0 / 7);
    CHECK(isnan(head.value[PH_DUPLICATE]), "another text has no duplicates");
    ph_heads_free(heads);
}

static void invalid_rows(void)
{
    const float bad[] = {0.5f, 0.5f, -0.1f, 1.1f, NAN, 1, 0.2f, 0.2f, 0, 0};
    ph_heads *heads = NULL;
    ph_head_stats head;
    ph_heads_create(&heads, 1, 1, NULL);
    ph_heads_text text = {.rows = 5, .keys = 2, .cross = 1};
    ph_heads_begin(heads, &text, NULL);
    ph_heads_add(heads, 0, 0, 0, 5, bad);
    ph_heads_end(heads);
    ph_heads_read(heads, 0, 0, &head);
    ph_heads_free(heads);
    CHECK(head.invalid == 3 && head.skipped == 3 && head.rows == 2,
          "%d invalid, %d left out, %d counted", (int)head.invalid, (int)head.skipped,
          (int)head.rows);
}

static void refusals(void)
{
    char error[200];
    const ph_io io = {.error = error, .error_size = sizeof error};
    const ph_link far_link = {0, 9, 0};
    ph_heads *heads = NULL;
    float row[4] = {1, 0, 0, 0};
    CHECK(ph_heads_create(&heads, 0, 4, &io) == PH_BAD_SHAPE && !heads, "no layers");
    CHECK(ph_heads_create(&heads, 1, 1, &io) == PH_OK, "one head");
    ph_heads_text text = {.rows = 4, .keys = 3};
    CHECK(ph_heads_begin(heads, &text, &io) == PH_BAD_SHAPE, "more rows than the text");
    CHECK(ph_heads_add(heads, 0, 0, 0, 1, row) == PH_BAD_ARGUMENT, "no text is open");
    text = (ph_heads_text){.rows = 4, .keys = 4, .links = &far_link, .link_count = 1};
    CHECK(ph_heads_begin(heads, &text, &io) == PH_BAD_ARGUMENT, "a link beyond the text");
    CHECK(strstr(error, "link 0 goes from 0 to 9"), "%s", error);
    text.link_count = 0;
    CHECK(ph_heads_begin(heads, &text, &io) == PH_OK, "%s", error);
    CHECK(ph_heads_begin(heads, &text, &io) == PH_BAD_ARGUMENT, "a second text");
    CHECK(ph_heads_add(heads, 0, 1, 0, 1, row) == PH_BAD_ARGUMENT, "no such head");
    CHECK(ph_heads_add(heads, 0, 0, 3, 2, row) == PH_BAD_ARGUMENT, "no such row");
    ph_heads_free(heads); /* with a text still open */
}

static const check_case cases[] = {{"random_maps", random_maps},
                                   {"pictures", pictures},
                                   {"known_maps", known_maps},
                                   {"mixtures", mixtures},
                                   {"separators", separators},
                                   {"induction_anchors", induction_anchors},
                                   {"rare_words", rare_words},
                                   {"texts_count_the_same", texts_count_the_same},
                                   {"links", links},
                                   {"fixed_offset_is_baseline", fixed_offset_is_baseline},
                                   {"thresholds", thresholds},
                                   {"behind_a_sink", behind_a_sink},
                                   {"no_false_labels", no_false_labels},
                                   {"self_comes_first", self_comes_first},
                                   {"reasons", reasons},
                                   {"classes", classes},
                                   {"rectangles", rectangles},
                                   {"invalid_rows", invalid_rows},
                                   {"refusals", refusals},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
