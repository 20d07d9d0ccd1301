/*
 * test_treebank.c - CoNLL-U files, and heads against their dependencies: weights whose
 * predictions can be read off, joined tokens, baselines, every line that is refused.
 */
#include "check.h"
#include "polyhead_treebank.h"

static char error[512];
static const ph_io io = {.error = error, .error_size = sizeof error};

#define WORD(number, form, head, relation, misc)                                         \
    number "\t" form "\t_\t_\t_\t_\t" head "\t" relation "\t_\t" misc "\n"

static ph_treebank *parse(const char *text)
{
    ph_treebank *t;
    error[0] = 0;
    CHECK(ph_treebank_parse(&t, "bank", text, strlen(text), &io) == PH_OK, "%s", error);
    return t;
}

static int relation_of(const ph_treebank *t, const char *name)
{
    int i = 0;
    while (ph_treebank_relation(t, i) && strcmp(ph_treebank_relation(t, i), name)) i++;
    CHECK(ph_treebank_relation(t, i) != NULL, "no relation %s", name);
    return i;
}

/* ---- reading ----------------------------------------------------------------------- */

static void check_word(const ph_tree *t, int i, const char *form)
{
    CHECK(i < t->word_count && (int)strlen(form) == t->words[i].length &&
              !memcmp(t->text + t->words[i].start, form, strlen(form)),
          "word %d is not %s", i, form);
}

static void sentences(void)
{
    ph_treebank *t = parse(
        "\xef\xbb\xbf# sent_id = 1\r\n" WORD("1", "Dogs", "2", "nsubj", "_")
            WORD("2", "bark", "0", "root", "X=1|SpaceAfter=No")
                WORD("3", ".", "2", "punct",
                     "_") "\n\n\n"
                          "# Chinese\n" WORD("1", "它", "2", "nsubj", "SpaceAfter=No")
                              WORD("2", "累", "0", "root", "SpaceAfter=No"));
    const ph_tree *a = ph_treebank_sentence(t, 0), *b = ph_treebank_sentence(t, 1);
    CHECK(a && b && !ph_treebank_sentence(t, 2), "not two sentences");
    CHECK(!strcmp(a->text, "Dogs bark.") && !strcmp(b->text, "它累"), "'%s' '%s'",
          a->text, b->text);
    CHECK(a->line == 2 && b->line == 9, "lines %d and %d", a->line, b->line);
    check_word(a, 0, "Dogs");
    check_word(a, 2, ".");
    check_word(b, 1, "累");
    CHECK(a->dependency_count == 3 && a->dependencies[1].head == -1 &&
              a->dependencies[2].dependent == 2 && a->dependencies[2].head == 1 &&
              a->dependencies[0].relation == relation_of(t, "nsubj") &&
              b->dependencies[0].relation == relation_of(t, "nsubj"),
          "other dependencies");
    CHECK(!strcmp(ph_treebank_relation(t, 0), "all"), "relation 0 is another one");
    ph_treebank_free(t);
}

/* "du" is two words of the graph and one of the text; an empty node is none. */
static void ranges(void)
{
    ph_treebank *t =
        parse(WORD("1", "vient", "0", "root", "_") WORD("2-3", "du", "_", "_", "_")
                  WORD("2", "de", "4", "case", "_") WORD("3", "le", "2", "det", "_")
                      WORD("3.1", "rien", "_", "_", "_")
                          WORD("4", "bois", "1", "obl", "SpaceAfter=No"));
    const ph_tree *a = ph_treebank_sentence(t, 0);
    CHECK(!strcmp(a->text, "vient du bois") && a->word_count == 3, "'%s'", a->text);
    check_word(a, 1, "du");
    CHECK(a->dependency_count == 3, "%d dependencies: that within du counts",
          a->dependency_count);
    CHECK(a->dependencies[1].dependent == 1 && a->dependencies[1].head == 2,
          "de does not depend on bois");
    ph_treebank_free(t);
}

static void refused(void)
{
#define GOOD WORD("1", "a", "0", "root", "_")
    static const struct {
        const char *text, *sentence;
    } files[] = {
        {"", "holds no sentence"},
        {"# nothing\n\n", "holds no sentence"},
        {GOOD "2\tb\t_\n", "line 2: 3 columns with tabs between, expected 10"},
        {GOOD "2 b _ _ _ _ 1 det _ _\n", "line 2: 1 columns"},
        {"#\n" WORD("2", "b", "0", "root", "_"), "line 2: the number is '2', expected 1"},
        {WORD("x", "b", "0", "root", "_"), "line 1: the number is 'x', expected 1"},
        {WORD("1x", "b", "0", "root", "_"),
         "line 1: the number is '1x', expected digits"},
        {WORD("99999999999", "b", "0", "root", "_"), "line 1: the number is"},
        {GOOD WORD("2", "", "1", "det", "_"), "line 2: the form is '', expected a word"},
        {GOOD WORD("2", "b", "_", "det", "_"), "line 2: the head is '_', expected"},
        {GOOD WORD("2", "b", "-1", "det", "_"), "line 2: the head is '-1', expected"},
        {GOOD WORD("2", "b", "2", "det", "_"),
         "line 2: the head is '2', expected another"},
        {GOOD "\n" WORD("1", "b", "2", "det", "_"),
         "line 3: the head is 2, but the sentence has 1 words"},
        {GOOD WORD("2", "b", "1", "_", "_"), "line 2: the relation is '_', expected"},
        {GOOD WORD("2", "b", "1", "", "_"), "line 2: the relation is '', expected"},
        {GOOD WORD("2-2", "b", "_", "_", "_"),
         "line 2: the number is '2-2', expected a range"},
        {GOOD WORD("3-4", "b", "_", "_", "_"), "line 2: the number is '3-4', expected 2"},
        {WORD("1-3", "b", "_", "_", "_") GOOD, "ends with word 1, but a range goes to 3"},
        {GOOD WORD("2", "\xff", "1", "det", "_"), "line 2 is not valid UTF-8"},
        {GOOD "2.1\tb\n", "line 2: 2 columns"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ph_treebank *t;
        error[0] = 0;
        ph_status status =
            ph_treebank_parse(&t, "bank", files[i].text, strlen(files[i].text), &io);
        CHECK(status == PH_BAD_FILE && !t && strstr(error, files[i].sentence),
              "file %zu: expected '%s', found '%s'", i, files[i].sentence, error);
    }
    ph_treebank *t;
    CHECK(ph_treebank_parse(&t, "bank", GOOD "2\tb\0", 3 + sizeof GOOD, &io) ==
                  PH_BAD_FILE &&
              strstr(error, "line 2 is not valid UTF-8"),
          "NUL: %s", error);
    CHECK(ph_treebank_read(&t, "tests/nothing.conllu", &io) == PH_IO_ERROR && !t, "%s",
          error);
}

/* ---- scores ------------------------------------------------------------------------ */

/* the(det cat) cat(nsubj saw) saw(root) a(det dog) dog(obj saw) */
#define CAT                                                                              \
    WORD("1", "the", "2", "det", "_")                                                    \
    WORD("2", "cat", "3", "nsubj", "_")                                                  \
    WORD("3", "saw", "0", "root", "_")                                                   \
    WORD("4", "a", "5", "det", "_") WORD("5", "dog", "3", "obj", "_")

static void check_score(const ph_syntax *s, int relation, ph_syntax_score expected)
{
    ph_syntax_score found;
    CHECK(ph_syntax_read(s, relation, &found) == PH_OK, "no relation %d", relation);
    CHECK(found.words == expected.words && found.head == expected.head &&
              found.direction == expected.direction && found.right == expected.right &&
              found.offset == expected.offset && found.baseline == expected.baseline,
          "relation %d: words %d head %d direction %d right %d offset %d baseline %d",
          relation, (int)found.words, found.head, (int)found.direction, (int)found.right,
          found.offset, (int)found.baseline);
}

/* Head 0 attends to the next word, head 1 from saw to its object only, head 2 nowhere but
   to itself; between marks, as a BERT sees a sentence. */
static void by_hand(void)
{
    enum { N = 7 };
    static const int word_of[N] = {-1, 0, 1, 2, 3, 4, -1};
    float next[N * N] = {0}, verb[N * N] = {0}, self[N * N] = {0};
    ph_treebank *t = parse(CAT);
    ph_syntax *s;
    for (int i = 0; i < N; i++) {
        next[i * N + (i + 1) % N] = 1;
        verb[i * N + (i == 3 ? 5 : 0)] = 1; /* all others on the first mark */
        self[i * N + i] = 1;
    }
    CHECK(ph_syntax_create(&s, t, 3, &io) == PH_OK, "%s", error);
    CHECK(ph_syntax_begin(s, 0, word_of, N, &io) == PH_OK, "%s", error);
    CHECK(ph_syntax_add(s, 0, 0, next) == PH_OK &&
              ph_syntax_add(s, 1, 0, verb) == PH_OK &&
              ph_syntax_add(s, 2, 0, self) == PH_OK,
          "not added");
    /* to the head: the, cat and a; offset +1 finds the same, and +2 nothing */
    check_score(s, 0, (ph_syntax_score){5, 0, PH_TO_HEAD, 3, 1, 3});
    check_score(s, relation_of(t, "det"), (ph_syntax_score){2, 0, PH_TO_HEAD, 2, 1, 2});
    check_score(s, relation_of(t, "nsubj"), (ph_syntax_score){1, 0, PH_TO_HEAD, 1, 1, 1});
    /* dog is found from saw; its head is two words before it */
    check_score(s, relation_of(t, "obj"),
                (ph_syntax_score){1, 1, PH_FROM_HEAD, 1, -2, 1});
    /* saw is the third word: three words before it stands the root */
    check_score(s, relation_of(t, "root"), (ph_syntax_score){1, 0, PH_TO_HEAD, 0, -3, 1});
    for (int r = 0; ph_treebank_relation(t, r); r++)
        for (int way = 0; way < 2; way++)
            CHECK(ph_syntax_right(s, r, 2, (ph_direction)way) == 0,
                  "a head without weight on another word predicts relation %d", r);
    CHECK(ph_syntax_right(s, 99, 0, PH_TO_HEAD) == -1 &&
              ph_syntax_right(s, 0, 3, PH_TO_HEAD) == -1,
          "counts of nothing");
    ph_syntax_free(s);
    ph_treebank_free(t);
}

/* Clark et al.: columns of a word's tokens are added, rows averaged. Token by token a
   attends most to itself and c; as a word, b outweighs c. The rows of b alone: the first
   prefers c, the second a, their mean a (0.45 against 0.3). */
static void joined(void)
{
    enum { N = 6 };
    static const int word_of[N] = {-1, 0, 1, 1, 2, -1};
    static const float map[N * N] = {.2f, .2f, .2f, .2f, .1f, .1f, /* mark */
                                     .0f, .3f, .2f, .2f, .3f, .0f, /* a */
                                     .1f, .2f, .1f, .1f, .5f, .0f, /* b1 */
                                     .0f, .7f, .1f, .1f, .1f, .0f, /* b2 */
                                     .5f, .1f, .1f, .1f, .1f, .1f, /* c */
                                     .9f, .1f, .0f, .0f, .0f, .0f};
    ph_treebank *t = parse(WORD("1", "a", "2", "x", "_") WORD("2", "bb", "1", "y", "_")
                               WORD("3", "c", "2", "z", "_"));
    ph_syntax *s;
    CHECK(ph_syntax_create(&s, t, 1, &io) == PH_OK, "%s", error);
    CHECK(ph_syntax_begin(s, 0, word_of, N, &io) == PH_OK, "%s", error);
    CHECK(ph_syntax_add(s, 0, 0, map) == PH_OK, "not added");
    static const char *const names[] = {"x", "y", "z"};
    static const int to[] = {1, 1, 1};
    /* columns: a from b (0.45), b from a (0.4), c from a and b alike, 0.3 each: the
       first */
    static const int from[] = {1, 1, 0};
    for (int i = 0; i < 3; i++) {
        int r = relation_of(t, names[i]);
        CHECK(ph_syntax_right(s, r, 0, PH_TO_HEAD) == to[i] &&
                  ph_syntax_right(s, r, 0, PH_FROM_HEAD) == from[i],
              "%s: %d and %d", names[i], (int)ph_syntax_right(s, r, 0, PH_TO_HEAD),
              (int)ph_syntax_right(s, r, 0, PH_FROM_HEAD));
    }
    ph_syntax_free(s);
    ph_treebank_free(t);
}

/* Keys after a row are not read in a causal map; a word without a token is not counted;
   a possessive is looked for from its 's. */
static void special_cases(void)
{
    static const float causal[9] = {1, 9, 9, .6f, .4f, 9, .1f, .6f, .3f};
    static const int all[3] = {0, 1, 2}, some[3] = {0, 2, 2}, wrong[3] = {1, 0, 2};
    ph_treebank *t = parse(WORD("1", "Ann", "3", "poss", "SpaceAfter=No") WORD(
        "2", "'s", "1", "case", "_") WORD("3", "hat", "0", "root", "_"));
    int poss = relation_of(t, "poss"), of_case = relation_of(t, "case");
    ph_syntax *s;
    CHECK(ph_syntax_create(&s, t, 1, &io) == PH_OK, "%s", error);
    CHECK(ph_syntax_begin(s, 0, all, 3, &io) == PH_OK, "%s", error);
    CHECK(ph_syntax_add(s, 0, 1, causal) == PH_OK, "not added");
    CHECK(ph_syntax_right(s, of_case, 0, PH_TO_HEAD) == 1, "'s does not find Ann");
    CHECK(ph_syntax_right(s, poss, 0, PH_FROM_HEAD) == 1, "hat does not find 's");
    CHECK(ph_syntax_right(s, poss, 0, PH_TO_HEAD) == 0, "a key after the row was read");
    CHECK(ph_syntax_begin(s, 0, some, 3, &io) == PH_OK, "%s", error);
    ph_syntax_score score;
    CHECK(ph_syntax_read(s, of_case, &score) == PH_OK && score.words == 1,
          "a word without a token was counted");
    CHECK(ph_syntax_read(s, poss, &score) == PH_OK && score.words == 2, "Ann is missing");
    CHECK(ph_syntax_begin(s, 0, wrong, 3, &io) == PH_BAD_ARGUMENT, "words in disorder");
    CHECK(ph_syntax_add(s, 0, 1, causal) == PH_BAD_ARGUMENT, "no sentence was begun");
    CHECK(ph_syntax_begin(s, 1, all, 3, &io) == PH_BAD_ARGUMENT, "no such sentence");
    ph_syntax_free(s);
    CHECK(ph_syntax_create(&s, t, 0, &io) == PH_BAD_SHAPE && !s, "no heads");
    ph_treebank_free(t);
}

static const check_case cases[] = {{"sentences", sentences},
                                   {"ranges", ranges},
                                   {"refused", refused},
                                   {"by_hand", by_hand},
                                   {"joined", joined},
                                   {"special_cases", special_cases},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
