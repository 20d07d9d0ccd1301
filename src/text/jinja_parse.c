/* jinja_parse.c - a template becomes a tree; see jinja.h. */
#include "text/jinja_tokens.h"

typedef ph_jinja_node node;
typedef ph_jinja_parser parser;

/* ---- expressions ------------------------------------------------------------------- */

static node *parse(parser *p);

static node *new_node(parser *p, ph_jinja_node_kind kind, node *a)
{
    node *n = ph_jinja_take(p->j, sizeof *n);
    if (!n) n = &p->none;
    n->kind = kind, n->a = a, n->at = p->text;
    return n;
}

/* A node with the name at hand, which is taken. */
static node *new_named(parser *p, ph_jinja_node_kind kind, node *a)
{
    node *n = new_node(p, kind, a);
    if (p->kind != PH_TOKEN_NAME) ph_token_refuse(p, "a name");
    n->text = p->text, n->length = p->length;
    ph_token_next(p);
    return n;
}

/* Items with commas between them up to a bracket; of a dict with a colon, arguments
   perhaps by name. */
static node *parse_items(parser *p, ph_jinja_node_kind of, const char *close)
{
    node *first = NULL, **link = &first;
    while (!p->j->status && !ph_token_take(p, close)) {
        node *n = new_node(p, PH_NODE_ITEM, NULL);
        if (ph_token_is(p, "*") || ph_token_is(p, "**"))
            ph_token_refuse(p, "an expression");
        n->a = parse(p);
        if (of == PH_NODE_DICT) ph_token_expect(p, ":"), n->b = parse(p);
        if (of == PH_NODE_CALL && n->a->kind == PH_NODE_NAME && ph_token_take(p, "=")) {
            n->text = n->a->text, n->length = n->a->length;
            n->a = parse(p);
        }
        if (!ph_token_is(p, close)) ph_token_expect(p, ",");
        *link = n, link = &n->next;
    }
    return first;
}

/* An expression, or several with commas between them: a tuple. */
static node *parse_tuple(parser *p, const char *close)
{
    node *first = parse(p);
    if (!ph_token_is(p, ",") || p->j->status) return first;
    node *n = new_node(p, PH_NODE_TUPLE, NULL), **link = &n->b;
    while (!p->j->status) {
        *link = new_node(p, PH_NODE_ITEM, first);
        if (!ph_token_take(p, ",") || p->kind == PH_TOKEN_END || ph_token_is(p, close))
            break;
        link = &(*link)->next;
        first = parse(p);
    }
    return n;
}

static node *parse_word(parser *p)
{
    static const struct {
        const char *text;
        ph_jinja_kind kind;
        int truth;
    } words[] = {{"true", PH_JINJA_BOOL, 1},  {"True", PH_JINJA_BOOL, 1},
                 {"false", PH_JINJA_BOOL, 0}, {"False", PH_JINJA_BOOL, 0},
                 {"none", PH_JINJA_NONE, 0},  {"None", PH_JINJA_NONE, 0}};
    node *n = new_named(p, PH_NODE_NAME, NULL);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (n->length == strlen(words[i].text) &&
            !memcmp(n->text, words[i].text, n->length)) {
            n->kind = PH_NODE_CONSTANT;
            n->value.kind = words[i].kind, n->value.integer = words[i].truth;
        }
    return n;
}

static node *parse_constant(parser *p)
{
    node *n = new_node(p, PH_NODE_CONSTANT, NULL);
    ph_jinja_value v = p->value;
    ph_jinja_buffer to = {0};
    ph_token_next(p);
    if (v.kind == PH_JINJA_TEXT && p->kind == PH_TOKEN_CONSTANT &&
        p->value.kind == PH_JINJA_TEXT) {
        ph_jinja_add(p->j, &to, v.text, v.length);
        for (; p->kind == PH_TOKEN_CONSTANT && p->value.kind == PH_JINJA_TEXT;
             ph_token_next(p))
            ph_jinja_add(p->j, &to, p->value.text, p->value.length);
        v = ph_jinja_taken(&to);
    }
    n->value = v;
    return n;
}

static node *parse_primary(parser *p)
{
    node *n;
    if (p->kind == PH_TOKEN_CONSTANT) return parse_constant(p);
    if (p->kind == PH_TOKEN_NAME) return parse_word(p);
    if (ph_token_take(p, "(")) {
        if (ph_token_take(p, ")")) return new_node(p, PH_NODE_TUPLE, NULL);
        n = parse_tuple(p, ")");
        ph_token_expect(p, ")");
        return n;
    }
    int list = ph_token_is(p, "[");
    n = new_node(p, list ? PH_NODE_LIST : PH_NODE_DICT, NULL);
    if (!list && !ph_token_is(p, "{")) return ph_token_refuse(p, "an expression"), n;
    ph_token_next(p);
    n->b = parse_items(p, n->kind, list ? "]" : "}");
    return n;
}

static node *parse_index(parser *p, node *of)
{
    node *n = new_node(p, PH_NODE_INDEX, of), *part[3] = {0};
    int count = 0;
    for (; count < 3 && !p->j->status; count++) {
        if (!ph_token_is(p, ":") && !ph_token_is(p, "]")) part[count] = parse(p);
        if (!ph_token_take(p, ":")) break;
    }
    ph_token_expect(p, "]");
    n->kind = count ? PH_NODE_SLICE : PH_NODE_INDEX;
    n->b = part[0], n->c = part[1], n->d = part[2];
    if (!count && !n->b) ph_jinja_fail(p->j, "[] has nothing in it");
    return n;
}

static node *parse_postfix(parser *p, node *n)
{
    while (!p->j->status) {
        if (ph_token_take(p, "[")) {
            n = parse_index(p, n);
        } else if (ph_token_is(p, "(")) {
            n = new_node(p, PH_NODE_CALL, n);
            ph_token_next(p);
            n->b = parse_items(p, PH_NODE_CALL, ")");
        } else if (ph_token_take(p, ".")) {
            int number = p->kind == PH_TOKEN_CONSTANT;
            n = number ? new_node(p, PH_NODE_INDEX, n)
                       : new_named(p, PH_NODE_ATTRIBUTE, n);
            if (number) n->b = parse_constant(p);
        } else {
            break;
        }
    }
    return n;
}

/* The name and the arguments of a filter or a test. */
static node *parse_named(parser *p, ph_jinja_node_kind kind, node *of)
{
    node *n = new_named(p, kind, of);
    if (ph_token_take(p, "("))
        n->b = parse_items(p, PH_NODE_CALL, ")");
    else if (kind == PH_NODE_TEST && p->kind != PH_TOKEN_END && !ph_token_is(p, "else") &&
             !ph_token_is(p, "or") && !ph_token_is(p, "and") &&
             (p->kind != PH_TOKEN_MARK || ph_token_is(p, "[") || ph_token_is(p, "{")))
        n->b = new_node(p, PH_NODE_ITEM, parse_postfix(p, parse_primary(p)));
    return n;
}

static node *parse_filters(parser *p, node *n)
{
    while (!p->j->status) {
        if (ph_token_take(p, "|")) {
            n = parse_named(p, PH_NODE_FILTER, n);
        } else if (ph_token_take(p, "is")) {
            int negated = ph_token_take(p, "not");
            n = parse_named(p, PH_NODE_TEST, n);
            if (negated) n = new_node(p, PH_NODE_NOT, n);
        } else {
            break;
        }
    }
    return n;
}

static node *parse_unary(parser *p, int with_filter)
{
    node *n;
    if (!ph_jinja_enter(p->j)) return new_node(p, PH_NODE_CONSTANT, NULL);
    if (ph_token_take(p, "-"))
        n = new_node(p, PH_NODE_MINUS, parse_unary(p, 0));
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filter) n = parse_filters(p, n);
    p->j->depth--;
    return n;
}

enum { LEVEL_NOT = 2, LEVEL_COMPARE, LEVEL_UNARY = 7 };

/* The operator at hand, taken, if it binds as this level does. */
static int take_operator(parser *p, int level, ph_jinja_op *op)
{
    static const struct {
        const char *text;
        int level;
    } operators[] = {{"or", 0}, {"and", 1}, {"==", 3}, {"!=", 3},  {"<", 3}, {"<=", 3},
                     {">", 3},  {">=", 3},  {"in", 3}, {"not", 3}, {"+", 4}, {"-", 4},
                     {"~", 5},  {"*", 6},   {"/", 6},  {"//", 6},  {"%", 6}};
    for (int i = 0; i <= PH_OP_MODULO; i++)
        if (operators[i].level == level && ph_token_take(p, operators[i].text)) {
            *op = (ph_jinja_op)i;
            if (i == PH_OP_NOT_IN) ph_token_expect(p, "in");
            return 1;
        }
    return 0;
}

/* a < b < c: a < b and b < c. */
static node *parse_binary(parser *p, int level)
{
    ph_jinja_op op;
    if (level == LEVEL_UNARY) return parse_unary(p, 1);
    if (level == LEVEL_NOT && ph_token_is(p, "not")) {
        if (!ph_jinja_enter(p->j)) return new_node(p, PH_NODE_CONSTANT, NULL);
        ph_token_next(p);
        node *n = new_node(p, PH_NODE_NOT, parse_binary(p, level));
        p->j->depth--;
        return n;
    }
    node *left = parse_binary(p, level + 1), *whole = NULL;
    while (!p->j->status && take_operator(p, level, &op)) {
        node *n = new_node(p, PH_NODE_BINARY, left);
        n->op = op, n->b = parse_binary(p, level + 1);
        left = level == LEVEL_COMPARE ? n->b : n;
        if (level == LEVEL_COMPARE && whole) {
            node *both = new_node(p, PH_NODE_BINARY, whole);
            both->op = PH_OP_AND, both->b = n, n = both;
        }
        whole = n;
    }
    return whole ? whole : left;
}

static node *parse(parser *p)
{
    node *n = parse_binary(p, 0);
    while (!p->j->status && ph_token_take(p, "if")) {
        node *choice = new_node(p, PH_NODE_CHOICE, parse_binary(p, 0));
        choice->b = n, n = choice;
        if (ph_token_take(p, "else") && ph_jinja_enter(p->j)) {
            n->c = parse(p);
            p->j->depth--;
        }
    }
    return n;
}

/* ---- statements -------------------------------------------------------------------- */

static node *parse_block(parser *p, const char *enders);

/* One of the names in a list with blanks between them? */
static int is_one_of(const parser *p, const char *names)
{
    for (const char *s = names; p->kind == PH_TOKEN_NAME && *s; s += strspn(s, " ")) {
        size_t length = strcspn(s, " ");
        if (length == p->length && !memcmp(s, p->text, length)) return 1;
        s += length;
    }
    return 0;
}

/* The statements up to the only statement that ends them. */
static node *parse_body(parser *p, const char *ender)
{
    node *body = parse_block(p, ender);
    ph_token_next(p);
    ph_token_expect_end(p);
    return body;
}

/* The statements behind else, if it is at hand and not what ends all. */
static node *parse_rest(parser *p, const char *ender)
{
    int other = ph_token_take(p, "else");
    if (!other) ph_token_next(p);
    ph_token_expect_end(p);
    return other ? parse_body(p, ender) : NULL;
}

static node *parse_if(parser *p)
{
    node *n = new_node(p, PH_NODE_IF, parse_tuple(p, ""));
    ph_token_expect_end(p);
    n->body = parse_block(p, "elif else endif");
    if (ph_token_take(p, "elif") && ph_jinja_enter(p->j)) {
        n->other = parse_if(p);
        p->j->depth--;
    } else {
        n->other = parse_rest(p, "endif");
    }
    return n;
}

/* a, (a, b), a.b: what for and set give values to. */
static node *parse_target(parser *p, const char *close)
{
    int brackets = ph_token_take(p, "(");
    node *n = new_named(p, PH_NODE_NAME, NULL);
    if (ph_token_take(p, ".")) n = new_named(p, PH_NODE_ATTRIBUTE, n);
    if (ph_token_is(p, ",") && !p->j->status) {
        node *tuple = new_node(p, PH_NODE_TUPLE, NULL), **link = &tuple->b;
        while (!p->j->status) {
            *link = new_node(p, PH_NODE_ITEM, n);
            if (!ph_token_take(p, ",") || ph_token_is(p, close)) break;
            link = &(*link)->next;
            n = new_named(p, PH_NODE_NAME, NULL);
        }
        n = tuple;
    }
    if (brackets) ph_token_expect(p, ")");
    return n;
}

static node *parse_for(parser *p)
{
    node *target = parse_target(p, "in"), *n = new_node(p, PH_NODE_FOR, target);
    ph_token_expect(p, "in");
    n->b = parse_binary(p, 0);
    if (ph_token_take(p, "if")) n->c = parse(p);
    ph_token_expect_end(p);
    p->loops++;
    n->body = parse_block(p, "else endfor");
    p->loops--;
    n->other = parse_rest(p, "endfor");
    return n;
}

/* What a block writes, through filters; a loop around it cannot be left from inside. */
static node *parse_capture(parser *p, int filter, const char *ender)
{
    int loops = p->loops;
    node *capture = new_node(p, PH_NODE_CAPTURE, NULL), *n = capture;
    if (filter) n = parse_named(p, PH_NODE_FILTER, n);
    n = parse_filters(p, n);
    ph_token_expect_end(p);
    p->loops = 0;
    capture->body = parse_body(p, ender);
    p->loops = loops;
    return n;
}

static node *parse_set(parser *p)
{
    node *n = new_node(p, PH_NODE_SET, parse_target(p, "="));
    if (ph_token_take(p, "=")) {
        n->b = parse_tuple(p, "");
        ph_token_expect_end(p);
    } else {
        n->b = parse_capture(p, 0, "endset");
    }
    return n;
}

/* (items): body; a parameter is a name, perhaps with a default. */
static void parse_macro(parser *p, node *n)
{
    n->b = ph_token_take(p, "(") ? parse_items(p, PH_NODE_CALL, ")") : NULL;
    for (node *i = n->b; i && !p->j->status; i = i->next) {
        if (!i->text && i->a->kind == PH_NODE_NAME)
            i->text = i->a->text, i->length = i->a->length, i->a = NULL;
        if (!i->text) ph_jinja_fail(p->j, "a parameter of a macro has no name");
    }
}

static void parse_macro_body(parser *p, node *n, const char *ender)
{
    int loops = p->loops;
    ph_token_expect_end(p);
    p->loops = 0;
    n->body = parse_body(p, ender);
    p->loops = loops;
}

/* {% call f(...) %}: a call of f, with a macro named caller. */
static node *parse_call(parser *p)
{
    node *macro = new_node(p, PH_NODE_MACRO, NULL);
    macro->text = "caller", macro->length = 6;
    parse_macro(p, macro);
    node *call = parse(p);
    if (call->kind != PH_NODE_CALL) ph_jinja_fail(p->j, "call has no call in it");
    call->c = macro;
    parse_macro_body(p, macro, "endcall");
    return new_node(p, PH_NODE_PRINT, call);
}

static node *parse_statement(parser *p)
{
    if (ph_token_take(p, "if")) return parse_if(p);
    if (ph_token_take(p, "for")) return parse_for(p);
    if (ph_token_take(p, "set")) return parse_set(p);
    if (ph_token_take(p, "call")) return parse_call(p);
    if (ph_token_take(p, "filter"))
        return new_node(p, PH_NODE_PRINT, parse_capture(p, 1, "endfilter"));
    if (ph_token_take(p, "generation"))
        return new_node(p, PH_NODE_PRINT, parse_capture(p, 0, "endgeneration"));
    if (ph_token_take(p, "macro")) {
        node *n = new_named(p, PH_NODE_MACRO, NULL);
        parse_macro(p, n);
        parse_macro_body(p, n, "endmacro");
        return n;
    }
    int leaves = ph_token_is(p, "break");
    node *n = new_node(p, leaves ? PH_NODE_BREAK : PH_NODE_CONTINUE, NULL);
    if ((!leaves && !ph_token_is(p, "continue")) || !p->loops)
        return ph_token_refuse(p, "a statement that is known here"), n;
    ph_token_next(p);
    ph_token_expect_end(p);
    return n;
}

/* Text up to the next tag, without the blanks that this tag takes: all where it has a -,
   else those before a statement on a line of its own. */
static node *parse_text(parser *p)
{
    const char *begin = p->at, *tag = begin, *stop;
    while (tag < p->end && !(*tag == '{' && tag + 1 < p->end && strchr("{%#", tag[1])))
        tag++;
    p->text = begin, p->at = stop = tag;
    char sign = tag + 2 < p->end ? tag[2] : 0;
    if (tag < p->end && sign == '-') {
        for (size_t step; (step = ph_jinja_space_before(begin, stop));) stop -= step;
    } else if (tag < p->end && tag[1] != '{' && sign != '+') {
        const char *line = stop;
        for (size_t step;
             (step = ph_jinja_space_before(begin, line)) && line[-1] != '\n';)
            line -= step;
        int starts = begin == p->j->source || begin[-1] == '\n';
        if (line > begin ? line[-1] == '\n' : starts) stop = line;
    }
    p->tag = tag < p->end ? tag[1] : 0;
    if (p->tag) p->at += sign == '-' || sign == '+' ? 3 : 2;
    if (stop == begin) return NULL;
    node *n = new_node(p, PH_NODE_DATA, NULL);
    n->text = begin, n->length = (size_t)(stop - begin);
    return n;
}

static void skip_comment(parser *p)
{
    p->close = "#}";
    for (const char *after; p->at < p->end; p->at++)
        if ((after = ph_token_tag_end(p))) {
            p->at = after;
            return;
        }
    ph_jinja_fail(p->j, "a comment has no end");
}

/* Up to a statement that is among the enders, which is left at hand, or to the end of
   the template where there are none. */
static node *parse_block(parser *p, const char *enders)
{
    node *first = NULL, **link = &first;
    if (!ph_jinja_enter(p->j)) return NULL;
    while (!p->j->status) {
        node *n = parse_text(p);
        if (n) *link = n, link = &n->next;
        if (!p->tag && *enders)
            ph_jinja_fail(p->j, "the template ends, expected %s", enders);
        if (!p->tag) break;
        if (p->tag == '#') {
            skip_comment(p);
            continue;
        }
        p->close = p->tag == '{' ? "}}" : "%}", p->brackets = 0;
        ph_token_next(p);
        if (p->tag == '%' && is_one_of(p, enders)) break;
        if (p->tag == '{') {
            n = new_node(p, PH_NODE_PRINT, parse_tuple(p, ""));
            ph_token_expect_end(p);
        } else {
            n = parse_statement(p);
        }
        *link = n, link = &n->next;
    }
    p->j->depth--;
    return first;
}

ph_jinja_node *ph_jinja_parse(ph_jinja *j, const char *text, size_t length)
{
    parser p = {.j = j, .at = text, .end = text + length};
    return parse_block(&p, "");
}
