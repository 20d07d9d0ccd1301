/*
 * test_typed.c - the embedded model on sentences that nobody wrote the grammars for:
 * their writer had read neither grammar nor vocabulary. What a user who types his own
 * gets.
 *
 * tests/typed.tsv has one text per line, a TAB, and the links that a reader expects:
 *
 *     word>target    subject and object > verb, verb > subject, adjective > noun
 *     word=target    pronoun = what it stands for
 *
 * with target|other where both are right, word#2 for its second occurrence. Other words
 * (articles, auxiliaries, prepositions) are easier and left out. The figures stand in
 * docs/HEADS.md; they may rise, not fall. Errors of the odd lines have been read one by
 * one, those of the even lines not: nothing is to be added to the grammars for them.
 */
#include <ctype.h>

#include "check.h"
#include "polyhead_model.h"
#include "polyhead_train.h"

enum { LINE_BYTES = 1024, WORDS = 64 };

typedef struct tally {
    int words, known;
    int links, right, wrong, unsure, none; /* none: no answer */
} tally;

static tally of_language[2], of_half[2], of_pronouns, of_two_sentences;

typedef struct span {
    int start, end; /* bytes in the text */
} span;

static int letter(char c)
{
    return isalnum((unsigned char)c) && (unsigned char)c < 128;
}

/* "word" or "word#2" in a text. English words end where letters do. */
static span find(const char *text, const char *word)
{
    const char *number = strchr(word, '#');
    size_t bytes = number ? (size_t)(number - word) : strlen(word);
    int left = number ? atoi(number + 1) : 1;
    for (const char *at = text; *at; at++) {
        if (strncmp(at, word, bytes)) continue;
        int inside =
            letter(*word) && ((at > text && letter(at[-1])) || letter(at[bytes]));
        if (!inside && --left == 0) {
            int start = (int)(at - text);
            return (span){start, start + (int)bytes};
        }
    }
    CHECK(0, "'%s' does not occur in '%s'", word, text);
    return (span){0, 0};
}

/* The token at the beginning of a word: Chinese words may be cut into several. */
static int token_at(const ph_reading *r, span word)
{
    int i = 0;
    for (const ph_word *w; (w = ph_reading_word(r, 0, i)) != NULL; i++)
        if (word.start >= w->start && word.start < w->start + w->length) return i;
    CHECK(0, "no token at byte %d", word.start);
    return -1;
}

static int overlaps(const ph_word *token, span word)
{
    return token->start < word.end && token->start + token->length > word.start;
}

/* Whether a token is one of "target|other". */
static int expected(const char *text, const ph_word *token, char *targets)
{
    for (char *next; targets; targets = next) {
        next = strchr(targets, '|');
        if (next) *next++ = 0;
        if (overlaps(token, find(text, targets))) return 1;
    }
    return 0;
}

static void add(tally *t, const char *outcome)
{
    t->links++;
    t->right += *outcome == 'r';
    t->wrong += *outcome == 'w';
    t->unsure += *outcome == 'u';
    t->none += *outcome == 'n';
}

/* What the model answers about one text. */
typedef struct answers {
    const char *text;
    ph_reading *reading;
    int count;
    int word[WORDS], relation[WORDS]; /* which word each belongs to, and how */
    float p[WORDS];
} answers;

static void read_text(answers *a, const ph_model *m, const char *text)
{
    float p[WORDS * WORDS];
    const char *tokens[WORDS];
    a->text = text;
    CHECK(ph_reading_create(&a->reading, m, text, NULL) == PH_OK, "%s: refused", text);
    int count = a->count = ph_reading_length(a->reading, 0);
    CHECK(count <= WORDS, "%s: too long", text);
    CHECK(ph_reading_links(a->reading, p) == PH_OK, "%s: no links", text);
    for (int i = 0; i < count; i++) {
        const float *row = p + i * count;
        tokens[i] = ph_model_token(m, ph_reading_word(a->reading, 0, i)->token);
        for (int j = a->word[i] = 0; j < count; j++)
            if (row[j] > row[a->word[i]]) a->word[i] = j;
        a->p[i] = row[a->word[i]];
    }
    CHECK(ph_relations_of(tokens, a->word, count, a->relation) == PH_OK, "no memory");
}

/* One link, counted as the program shows it: no answer about or by an unknown word. */
static const char *outcome(const ph_model *m, const answers *a, const char *word,
                           char *targets)
{
    int i = token_at(a->reading, find(a->text, word));
    const ph_word *from = ph_reading_word(a->reading, 0, i);
    const ph_word *to = ph_reading_word(a->reading, 0, a->word[i]);
    const char *name = ph_link_name(a->relation[i], a->p[i]);
    int right = expected(a->text, to, targets);
    if (a->word[i] == i || !ph_model_knows(m, from->token) ||
        !ph_model_knows(m, to->token))
        return "none";
    if (name && !strcmp(name, "unsure")) return "unsure";
    return right ? "right" : "wrong";
}

static int two_sentences(const char *text)
{
    static const char *const ends[] = {". ", "? ", "! ", "。", "？", "！"};
    for (int i = 0; i < 6; i++) {
        const char *at = strstr(text, ends[i]);
        if (at && at[strlen(ends[i])]) return 1;
    }
    return 0;
}

static void count_words(const ph_model *m, const answers *a, tally *t)
{
    for (int i = 0; i < a->count; i++) {
        const ph_word *w = ph_reading_word(a->reading, 0, i);
        const char *at = a->text + w->start;
        int mark = ispunct((unsigned char)*at) || !strncmp(at, "，", 3) ||
                   !strncmp(at, "。", 3) || !strncmp(at, "？", 3);
        if (mark && *at != '\'') continue;
        t->words++;
        t->known += ph_model_knows(m, w->token);
    }
}

static void measure_line(const ph_model *m, const char *text, char *links, int half)
{
    answers a;
    int chinese = (unsigned char)*text > 127;
    read_text(&a, m, text);
    count_words(m, &a, &of_language[chinese]);
    for (char *link = strtok(links, " \n"); link; link = strtok(NULL, " \n")) {
        char *mark = link + strcspn(link, ">=");
        int pronoun = *mark == '=';
        CHECK(*mark, "'%s' is no link", link);
        *mark = 0;
        const char *found = outcome(m, &a, link, mark + 1);
        add(&of_language[chinese], found);
        add(&of_half[half], found);
        if (pronoun) add(&of_pronouns, found);
        if (two_sentences(text)) add(&of_two_sentences, found);
    }
    ph_reading_free(a.reading);
}

static void measure(void)
{
    char line[LINE_BYTES];
    ph_ctx *ctx;
    ph_model *m;
    FILE *in = fopen("tests/typed.tsv", "r");
    CHECK(in, "tests/typed.tsv is missing; start in the project's root");
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    CHECK(ph_model_embedded(&m, ctx) == PH_OK, "%s", ph_error(ctx));
    for (int n = 0; fgets(line, sizeof line, in); n++) {
        char *tab = strchr(line, '\t');
        CHECK(tab, "line %d has no TAB", n + 1);
        *tab = 0;
        measure_line(m, line, tab + 1, n % 2);
    }
    fclose(in);
    ph_model_free(m);
    ph_close(ctx);
}

static void print(const char *name, const tally *t)
{
    printf("    %s: %d links, %d right, %d wrong, %d unsure, %d without an answer", name,
           t->links, t->right, t->wrong, t->unsure, t->none);
    printf(t->words ? "; %d of %d words known\n" : "\n", t->known, t->words);
}

/* A model may know more, answer more and be wrong less often. */
static void reaches(const char *name, const tally *t, tally floor)
{
    print(name, t);
    CHECK(t->links == floor.links, "%s: %d links, expected %d", name, t->links,
          floor.links);
    CHECK(t->known >= floor.known && t->right >= floor.right && t->wrong <= floor.wrong,
          "%s: %d known, %d right, %d wrong; it was %d, %d, %d", name, t->known, t->right,
          t->wrong, floor.known, floor.right, floor.wrong);
}

/* The table of docs/HEADS.md. */
static void typed(void)
{
    measure();
    reaches("English", &of_language[0],
            (tally){.links = 515, .known = 879, .right = 381, .wrong = 8});
    reaches("Chinese", &of_language[1],
            (tally){.links = 266, .known = 570, .right = 193, .wrong = 9});
    reaches("pronouns", &of_pronouns, (tally){.links = 61, .right = 29, .wrong = 5});
    reaches("two sentences", &of_two_sentences,
            (tally){.links = 79, .right = 53, .wrong = 1});
    reaches("odd lines", &of_half[0], (tally){.links = 407, .right = 290, .wrong = 6});
    reaches("even lines", &of_half[1], (tally){.links = 374, .right = 284, .wrong = 11});
}

static const check_case cases[] = {{"typed", typed}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
