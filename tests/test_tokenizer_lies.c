/*
 * test_tokenizer_lies.c - every field of a tokenizer.json lies: each value of the golden
 * files (tests/golden_tokens) becomes something of another kind in turn.
 *
 * A field has one kind: any other is refused with a sentence that names it, or the part
 * of the file it stands in. What is taken must encode a text. Of vocabularies and merges
 * the first entries lie, for the others.
 */
#include "check.h"
#include "polyhead_text.h"

static char sentence[500];
static const ph_io io = {.error = sentence, .error_size = sizeof sentence};

/* ---- values of a document ---- */

enum { VALUES = 4000, NAME = 64, FIRST = 3 };

typedef struct value {
    size_t start, end;
    char key[NAME];     /* of an entry of a list: that of the list */
    char section[NAME]; /* the part of the file: "normalizer", "model", ... */
} value;

static value values[VALUES];
static int count;

typedef struct scan {
    const char *text;
    size_t at;
} scan;

static size_t skip_string(const char *text, size_t at)
{
    for (at++; text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at + 1;
}

static void walk(scan *s, const char *key, const char *section, int keep);

/* Members of an object or a list; of long ones only the first are kept. */
static void walk_members(scan *s, const char *key, const char *section, int keep)
{
    int object = s->text[s->at] == '{', root = s->at == 0;
    int large = !strcmp(key, "vocab") || !strcmp(key, "merges");
    s->at++;
    for (int n = 0; !strchr("]}", s->text[s->at]); n++) {
        char own[NAME];
        snprintf(own, sizeof own, "%s", key);
        if (object) {
            size_t end = skip_string(s->text, s->at);
            snprintf(own, sizeof own, "%.*s", (int)(end - s->at - 2),
                     s->text + s->at + 1);
            s->at = end + 1; /* the colon */
        }
        walk(s, large ? key : own, root ? own : section, keep && !(large && n >= FIRST));
        if (s->text[s->at] == ',') s->at++;
    }
    s->at++;
}

static void walk(scan *s, const char *key, const char *section, int keep)
{
    value v = {.start = s->at};
    int index = count;
    snprintf(v.key, sizeof v.key, "%s", key);
    snprintf(v.section, sizeof v.section, "%s", section);
    if (keep) {
        CHECK(count < VALUES, "more than %d values", VALUES);
        count++;
    }
    if (strchr("{[", s->text[s->at]))
        walk_members(s, key, section, keep);
    else if (s->text[s->at] == '"')
        s->at = skip_string(s->text, s->at);
    else
        s->at += strcspn(s->text + s->at, ",]}");
    v.end = s->at;
    if (keep) values[index] = v;
}

/* ---- lies ---- */

static const char *const lies[] = {"true", "\"lie\"", "[]", "{}", "-1", "0.5", "1e300"};
static const int kind_of[] = {0, 1, 2, 3, 4, 4, 4};
enum { LIES = sizeof lies / sizeof lies[0] };

static void use(const ph_tokenizer *t, const char *what)
{
    const char text[] = " Hello  w\xc3\xb6rld <mask>2024\n";
    const ph_text_token *tokens;
    size_t found = 0;
    ph_encoder *e;
    CHECK(ph_encoder_create(&e, t, &io) == PH_OK, "%s: %s", what, sentence);
    ph_status status = ph_encode(
        e, &(ph_encode_args){.text = text, .length = strlen(text)}, &tokens, &found);
    CHECK(status == PH_OK, "%s: %s", what, sentence);
    for (size_t i = 0; i < found; i++)
        CHECK(tokens[i].end <= strlen(text), "%s: token %zu", what, i);
    ph_encoder_free(e);
}

/* Fields that say nothing here: the reference does not look at them either, or says the
   same elsewhere. */
static int is_ignored(const value *v)
{
    static const char *const fields[][2] = {{"version", "version"},
                                            {"tokens", "post_processor"},
                                            {"id", "post_processor"},
                                            {"use_regex", "post_processor"},
                                            {"trim_offsets", "pre_tokenizer"},
                                            {"use_regex", "decoder"},
                                            {"trim_offsets", "decoder"},
                                            {"add_prefix_space", "decoder"},
                                            {"split", "decoder"}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!strcmp(v->key, fields[i][0]) && !strcmp(v->section, fields[i][1])) return 1;
    return 0;
}

static int own_kind(char first)
{
    if (first == 't' || first == 'f') return 0;
    return first == '"' ? 1 : first == '[' ? 2 : first == '{' ? 3 : first == 'n' ? -1 : 4;
}

static void lie_about(const char *name, const char *text, const value *v)
{
    char *file = malloc(strlen(text) + 16);
    int kinds = 0; /* bits of those that were taken */
    int own = own_kind(text[v->start]);
    for (int l = 0; l < LIES; l++) {
        ph_tokenizer *t;
        sentence[0] = 0;
        size_t size = (size_t)sprintf(file, "%.*s%s%s", (int)v->start, text, lies[l],
                                      text + v->end);
        if (ph_tokenizer_parse(&t, "file", file, size, &io) == PH_OK) {
            use(t, v->key);
            ph_tokenizer_free(t);
            kinds |= 1 << kind_of[l];
        } else {
            CHECK(sentence[0], "%s: %s is refused without a sentence", name, v->key);
            CHECK(kind_of[l] == own || strstr(sentence, v->key) ||
                      strstr(sentence, v->section),
                  "%s: %s of %s is %s: %s", name, v->key, v->section, lies[l], sentence);
        }
    }
    CHECK(is_ignored(v) || (kinds & (kinds - 1)) == 0,
          "%s: %s of %s is of several kinds (%#x)", name, v->key, v->section,
          (unsigned)kinds);
    free(file);
}

static void every_field(void)
{
    static const char *const names[] = {"bert_cased", "mixed",  "roberta",
                                        "llama3",     "llama2", "gemma",
                                        "t5_new",     "albert", "words"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[100];
        static char text[1 << 18];
        snprintf(path, sizeof path, "tests/golden_tokens/%s.json", names[i]);
        FILE *file = fopen(path, "rb");
        CHECK(file, "cannot read %s", path);
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        CHECK(strlen(text) < sizeof text - 1, "%s does not fit", path);
        fclose(file);
        count = 0;
        walk(&(scan){.text = text}, "tokenizer", "tokenizer", 1);
        CHECK(count > 30, "%s: %d values", path, count);
        for (int k = 1; k < count; k++) lie_about(names[i], text, &values[k]);
    }
}

static const check_case cases[] = {{"every_field", every_field}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
