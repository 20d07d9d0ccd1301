/*
 * treebank.c - CoNLL-U files.
 *
 *     # comment
 *     1   The   the   DET    _   _   2   det     _   _
 *     2   cat   cat   NOUN   _   _   3   nsubj   _   SpaceAfter=No
 *
 * Ten columns with tabs between: number, form, ..., head, relation, ..., remarks. A range
 * "1-2" before words 1 and 2 says how both stand in the text, as one; "2.1" is an empty
 * node and is left out. An empty line ends a sentence.
 */
#include <limits.h>
#include <string.h>

#include "base/base.h"
#include "io/io.h"
#include "io/map.h"
#include "io/utf8.h"
#include "polyhead_treebank.h"

enum { COLUMNS = 10, ID = 0, FORM = 1, HEAD = 6, RELATION = 7, MISC = 9 };
enum { MAX_RELATIONS = 4096, MAX_FILE = 1 << 30 };

typedef struct list {
    void *items;
    size_t count, capacity;
} list;

/* Pointers into lists that may move while they grow are kept as indices until the end. */
struct ph_treebank {
    ph_io hooks;
    list text;         /* of all sentences, each closed by NUL */
    list words;        /* ph_tree_word */
    list dependencies; /* ph_dependency */
    list trees;        /* ph_tree */
    list relations;    /* const char *, each allocated */
};

/* A word of the dependency graph, before its head is known to exist. */
typedef struct node {
    int word, head, relation, line;
} node;

typedef struct parser {
    ph_treebank *t;
    const char *name;
    const ph_io *io;
    int line;
    list nodes;                /* of this sentence */
    size_t text, words, first; /* where it begins in the lists, and its first line */
    int range_end;             /* last number that the range covers; 0: none */
    const char *column[COLUMNS];
    size_t length[COLUMNS];
} parser;

static ph_status grow(parser *p, list *l, size_t more, size_t item)
{
    ph_status status =
        ph_io_grow(&p->t->hooks, &l->items, &l->capacity, l->count + more, item);
    return status == PH_OK ? PH_OK
                           : ph_io_no_memory(p->io, l->count * item, "a treebank");
}

static ph_status wrong(const parser *p, int line, const char *what, const char *text,
                       size_t length, const char *expected)
{
    return ph_io_fail(p->io, PH_BAD_FILE, "%.200s, line %d: %s is %s, expected %s",
                      p->name, line, what, ph_io_quote(text, length).text, expected);
}

/* ---- columns ----------------------------------------------------------------------- */

static ph_status split_columns(parser *p, const char *at, const char *end)
{
    int count = 0;
    for (;; at++) {
        const char *tab = memchr(at, '\t', (size_t)(end - at));
        const char *stop = tab ? tab : end;
        if (count < COLUMNS)
            p->column[count] = at, p->length[count] = (size_t)(stop - at);
        count++;
        at = stop;
        if (!tab) break;
    }
    if (count == COLUMNS) return PH_OK;
    return ph_io_fail(p->io, PH_BAD_FILE,
                      "%.200s, line %d: %d columns with tabs between, expected %d",
                      p->name, p->line, count, COLUMNS);
}

/* Digits from *at on as a number; -1: there are none, or too many. */
static int number_at(const char **at, const char *end)
{
    int value = 0, digits = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++, digits++) {
        if (value > (INT_MAX - 9) / 10) return -1;
        value = 10 * value + (**at - '0');
    }
    return digits ? value : -1;
}

static int whole_number(const parser *p, int column)
{
    const char *at = p->column[column], *end = at + p->length[column];
    int value = number_at(&at, end);
    return at == end ? value : -1;
}

static int has_remark(const parser *p, const char *remark)
{
    const char *at = p->column[MISC], *end = at + p->length[MISC];
    size_t length = strlen(remark);
    while (at < end) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        const char *stop = bar ? bar : end;
        if ((size_t)(stop - at) == length && !memcmp(at, remark, length)) return 1;
        at = bar ? bar + 1 : end;
    }
    return 0;
}

/* ---- words ------------------------------------------------------------------------- */

static size_t words_here(const parser *p)
{
    return p->t->words.count - p->words;
}

/* Adds the form to the text. */
static ph_status add_word(parser *p)
{
    list *text = &p->t->text, *words = &p->t->words;
    size_t length = p->length[FORM];
    if (!length) return wrong(p, p->line, "the form", "", 0, "a word");
    PH_TRY(grow(p, text, length + 2, 1));
    PH_TRY(grow(p, words, 1, sizeof(ph_tree_word)));
    size_t start = text->count - p->text;
    if (start + length > INT_MAX / 2)
        return ph_io_fail(p->io, PH_BAD_FILE, "%.200s, line %d: the sentence is too long",
                          p->name, p->line);
    ((ph_tree_word *)words->items)[words->count++] =
        (ph_tree_word){(int)start, (int)length};
    memcpy((char *)text->items + text->count, p->column[FORM], length);
    text->count += length;
    if (!has_remark(p, "SpaceAfter=No")) ((char *)text->items)[text->count++] = ' ';
    return PH_OK;
}

static ph_status find_relation(parser *p, const char *name, size_t length, int *out)
{
    list *all = &p->t->relations;
    for (size_t i = 0; i < all->count; i++) {
        const char *known = ((char **)all->items)[i];
        if (strlen(known) == length && !memcmp(known, name, length)) {
            *out = (int)i;
            return PH_OK;
        }
    }
    if (all->count == MAX_RELATIONS)
        return ph_io_fail(p->io, PH_BAD_FILE,
                          "%.200s, line %d: more than %d different relations", p->name,
                          p->line, (int)MAX_RELATIONS);
    PH_TRY(grow(p, all, 1, sizeof(char *)));
    char *copy = ph_io_alloc(&p->t->hooks, length + 1);
    if (!copy) return ph_io_no_memory(p->io, length + 1, "a relation");
    memcpy(copy, name, length);
    copy[length] = 0;
    *out = (int)all->count;
    ((char **)all->items)[all->count++] = copy;
    return PH_OK;
}

static ph_status read_range(parser *p, const char *dash)
{
    const char *at = dash + 1, *end = p->column[ID] + p->length[ID];
    int last = number_at(&at, end);
    if (at != end || last <= (int)p->nodes.count + 1)
        return wrong(p, p->line, "the number", p->column[ID], p->length[ID],
                     "a range that begins with the next word");
    p->range_end = last;
    return add_word(p);
}

static ph_status read_node(parser *p)
{
    node n = {.line = p->line, .head = whole_number(p, HEAD)};
    int number = (int)p->nodes.count + 1;
    if (n.head < 0)
        return wrong(p, p->line, "the head", p->column[HEAD], p->length[HEAD],
                     "the number of a word, or 0");
    if (n.head == number)
        return wrong(p, p->line, "the head", p->column[HEAD], p->length[HEAD],
                     "another word");
    if (p->length[RELATION] == 0 ||
        (p->length[RELATION] == 1 && *p->column[RELATION] == '_'))
        return wrong(p, p->line, "the relation", p->column[RELATION], p->length[RELATION],
                     "a name");
    PH_TRY(find_relation(p, p->column[RELATION], p->length[RELATION], &n.relation));
    if (number > p->range_end) PH_TRY(add_word(p));
    n.word = (int)words_here(p) - 1;
    PH_TRY(grow(p, &p->nodes, 1, sizeof n));
    ((node *)p->nodes.items)[p->nodes.count++] = n;
    return PH_OK;
}

static ph_status read_line(parser *p, const char *at, const char *end)
{
    PH_TRY(split_columns(p, at, end));
    const char *id = p->column[ID], *stop = id + p->length[ID];
    int number = number_at(&id, stop), next = (int)p->nodes.count + 1;
    if (!p->nodes.count && !words_here(p)) p->first = (size_t)p->line;
    if (id < stop && *id == '.' && number >= 0 && number < next) return PH_OK;
    if (number != next)
        return ph_io_fail(p->io, PH_BAD_FILE,
                          "%.200s, line %d: the number is %s, expected %d", p->name,
                          p->line, ph_io_quote(p->column[ID], p->length[ID]).text, next);
    if (id < stop && *id == '-' && number > p->range_end) return read_range(p, id);
    if (id == stop) return read_node(p);
    return wrong(p, p->line, "the number", p->column[ID], p->length[ID], "digits");
}

/* ---- sentences --------------------------------------------------------------------- */

static ph_status add_dependencies(parser *p)
{
    list *all = &p->t->dependencies;
    const node *nodes = p->nodes.items;
    PH_TRY(grow(p, all, p->nodes.count, sizeof(ph_dependency)));
    for (size_t i = 0; i < p->nodes.count; i++) {
        const node *n = &nodes[i];
        if ((size_t)n->head > p->nodes.count)
            return ph_io_fail(p->io, PH_BAD_FILE,
                              "%.200s, line %d: the head is %d, but the sentence has %zu "
                              "words",
                              p->name, n->line, n->head, p->nodes.count);
        int head = n->head ? nodes[n->head - 1].word : -1;
        if (head == n->word) continue;
        ((ph_dependency *)all->items)[all->count++] =
            (ph_dependency){n->word, head, n->relation};
    }
    return PH_OK;
}

static ph_status end_sentence(parser *p)
{
    ph_treebank *t = p->t;
    size_t before = t->dependencies.count;
    if (p->nodes.count == 0 && words_here(p) == 0) return PH_OK;
    if ((size_t)p->range_end > p->nodes.count)
        return ph_io_fail(p->io, PH_BAD_FILE,
                          "%.200s, line %d: the sentence ends with word %zu, but a range "
                          "goes to %d",
                          p->name, p->line, p->nodes.count, p->range_end);
    PH_TRY(add_dependencies(p));
    PH_TRY(grow(p, &t->text, 1, 1));
    PH_TRY(grow(p, &t->trees, 1, sizeof(ph_tree)));
    char *text = t->text.items;
    if (text[t->text.count - 1] == ' ') t->text.count--;
    text[t->text.count++] = 0;
    ((ph_tree *)t->trees.items)[t->trees.count++] =
        (ph_tree){.word_count = (int)words_here(p),
                  .dependency_count = (int)(t->dependencies.count - before),
                  .line = (int)p->first};
    p->nodes.count = 0, p->range_end = 0;
    p->text = t->text.count, p->words = t->words.count;
    return PH_OK;
}

/* Lists do not move any more: sentences get their pointers. */
static void link_sentences(ph_treebank *t)
{
    const char *text = t->text.items;
    const ph_tree_word *words = t->words.items;
    const ph_dependency *dependencies = t->dependencies.items;
    for (size_t i = 0; i < t->trees.count; i++) {
        ph_tree *tree = &((ph_tree *)t->trees.items)[i];
        tree->text = text, tree->words = words, tree->dependencies = dependencies;
        text += strlen(text) + 1;
        words += tree->word_count;
        dependencies += tree->dependency_count;
    }
}

static ph_status read_all(parser *p, const char *bytes, size_t size)
{
    const char *end = bytes + size;
    int relation;
    if (size > MAX_FILE)
        return ph_io_fail(p->io, PH_UNSUPPORTED, "%.200s has more than %d bytes", p->name,
                          (int)MAX_FILE);
    PH_TRY(find_relation(p, "all", 3, &relation));
    for (const char *at = bytes + ph_utf8_mark(bytes, size); at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end, *next = newline ? newline + 1 : end;
        p->line++;
        if (stop > at && stop[-1] == '\r') stop--;
        size_t length = (size_t)(stop - at);
        if (memchr(at, 0, length) || ph_utf8_valid(at, length) < length)
            return ph_io_fail(p->io, PH_BAD_FILE, "%.200s, line %d is not valid UTF-8",
                              p->name, p->line);
        if (length == 0)
            PH_TRY(end_sentence(p));
        else if (*at != '#')
            PH_TRY(read_line(p, at, stop));
        at = next;
    }
    PH_TRY(end_sentence(p));
    if (p->t->trees.count) return PH_OK;
    return ph_io_fail(p->io, PH_BAD_FILE, "%.200s holds no sentence", p->name);
}

/* ---- the public -------------------------------------------------------------------- */

ph_status ph_treebank_parse(ph_treebank **out, const char *name, const char *bytes,
                            size_t size, const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !name || (size && !bytes)) return ph_io_null(io, "out, name or bytes");
    ph_treebank *t = ph_io_alloc(io, sizeof *t);
    if (!t) return ph_io_no_memory(io, sizeof *t, "a treebank");
    *t = (ph_treebank){.hooks = ph_io_hooks(io)};
    parser p = {.t = t, .name = name, .io = io};
    ph_status status = read_all(&p, bytes, size);
    ph_io_release(&t->hooks, p.nodes.items);
    if (status == PH_OK) {
        link_sentences(t);
        *out = t;
    } else {
        ph_treebank_free(t);
    }
    return status;
}

ph_status ph_treebank_read(ph_treebank **out, const char *path, const ph_io *io)
{
    ph_map map;
    if (out) *out = NULL;
    if (!out || !path) return ph_io_null(io, "out or path");
    PH_TRY(ph_map_open(&map, path, io));
    ph_status status = ph_treebank_parse(
        out, path, map.size ? (const char *)map.bytes : "", map.size, io);
    ph_map_close(&map);
    return status;
}

void ph_treebank_free(ph_treebank *t)
{
    if (!t) return;
    ph_io hooks = t->hooks;
    for (size_t i = 0; i < t->relations.count; i++)
        ph_io_release(&hooks, ((char **)t->relations.items)[i]);
    void *const lists[] = {t->text.items, t->words.items, t->dependencies.items,
                           t->trees.items, t->relations.items};
    for (int i = 0; i < 5; i++) ph_io_release(&hooks, lists[i]);
    ph_io_release(&hooks, t);
}

const ph_tree *ph_treebank_sentence(const ph_treebank *t, int i)
{
    return t && i >= 0 && (size_t)i < t->trees.count ? &((ph_tree *)t->trees.items)[i]
                                                     : NULL;
}

const char *ph_treebank_relation(const ph_treebank *t, int i)
{
    return t && i >= 0 && (size_t)i < t->relations.count
               ? ((char **)t->relations.items)[i]
               : NULL;
}
