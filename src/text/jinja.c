/*
 * jinja.c - runs the tree of a template; see jinja.h.
 *
 * Scopes are Jinja's: a loop has one for each round, a macro one inside that of its
 * definition, a captured block its own; if has none.
 */
#include "text/jinja.h"

#include <math.h>

typedef ph_jinja_value value;
typedef ph_jinja_node node;

typedef struct ph_jinja_macro {
    const node *node;
    ph_jinja_scope *scope; /* where it was defined */
} ph_jinja_macro;

static const value nothing = {.kind = PH_JINJA_UNDEFINED, .text = "", .length = 0};

static value evaluate(ph_jinja *j, const node *n);
static void run_block(ph_jinja *j, const node *n);

static value name_of(const node *n)
{
    return ph_jinja_text(n->text, n->length);
}

/* ---- operators --------------------------------------------------------------------- */

static value too_large(ph_jinja *j)
{
    return ph_jinja_fail(j, "a number is too large"), nothing;
}

static value compute_whole(ph_jinja *j, ph_jinja_op op, int64_t a, int64_t b)
{
    int64_t made = 0;
    int over = 0;
    if (op > PH_OP_MULTIPLY && b == 0)
        return ph_jinja_fail(j, "a division by 0"), nothing;
    if (op > PH_OP_MULTIPLY && b == -1) over = a == INT64_MIN;
    if (over) return too_large(j);
    switch (op) {
    case PH_OP_ADD: over = __builtin_add_overflow(a, b, &made); break;
    case PH_OP_SUBTRACT: over = __builtin_sub_overflow(a, b, &made); break;
    case PH_OP_MULTIPLY: over = __builtin_mul_overflow(a, b, &made); break;
    case PH_OP_FLOOR: made = a / b - (a % b != 0 && (a < 0) != (b < 0)); break;
    case PH_OP_MODULO: made = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); break;
    default:
        if (a > 1ll << 53 || a < -(1ll << 53) || b > 1ll << 53 || b < -(1ll << 53))
            return too_large(j);
        return (value){.kind = PH_JINJA_FLOAT, .real = (double)a / (double)b};
    }
    return over ? too_large(j) : ph_jinja_int(made);
}

static value compute_real(ph_jinja *j, ph_jinja_op op, double a, double b)
{
    value v = {.kind = PH_JINJA_FLOAT};
    if (op == PH_OP_DIVIDE && b == 0) return ph_jinja_fail(j, "a division by 0"), v;
    if (op > PH_OP_DIVIDE)
        return ph_jinja_fail(j, "// and %% of floats are not known"), v;
    v.real = op == PH_OP_ADD        ? a + b
             : op == PH_OP_SUBTRACT ? a - b
             : op == PH_OP_MULTIPLY ? a * b
                                    : a / b;
    return isfinite(v.real) ? v : too_large(j);
}

/* Texts, lists, tuples one behind the other. */
static value concat(ph_jinja *j, value a, value b)
{
    ph_jinja_buffer to = {0};
    if (a.kind == PH_JINJA_TEXT) {
        ph_jinja_add(j, &to, a.text, a.length);
        ph_jinja_add(j, &to, b.text, b.length);
        return ph_jinja_taken(&to);
    }
    value v = ph_jinja_items(j, a.kind, a.length + b.length);
    if (j->status) return nothing;
    memcpy(v.items, a.items, a.length * sizeof(value));
    memcpy(v.items + a.length, b.items, b.length * sizeof(value));
    return v;
}

static value repeat(ph_jinja *j, value a, int64_t times)
{
    ph_jinja_buffer to = {0};
    size_t count = times < 0 ? 0 : (size_t)times, total;
    if (a.kind == PH_JINJA_TEXT) {
        for (size_t i = 0; i < count && a.length && !j->status; i++)
            ph_jinja_add(j, &to, a.text, a.length);
        return ph_jinja_taken(&to);
    }
    if (__builtin_mul_overflow(a.length, count, &total)) return too_large(j);
    value v = ph_jinja_items(j, a.kind, total);
    for (size_t i = 0; i < total && !j->status; i++) v.items[i] = a.items[i % a.length];
    return v;
}

static double real_of(value v)
{
    return v.kind == PH_JINJA_FLOAT ? v.real : (double)v.integer;
}

static value compute_sum(ph_jinja *j, ph_jinja_op op, value a, value b)
{
    static const char *const signs[] = {"+", "-", "~", "*", "/", "//", "%"};
    unsigned joined = PH_JINJA_ARRAYS | 1u << PH_JINJA_TEXT;
    if (ph_jinja_is(a, PH_JINJA_WHOLE) && ph_jinja_is(b, PH_JINJA_WHOLE))
        return compute_whole(j, op, a.integer, b.integer);
    if (ph_jinja_is(a, PH_JINJA_NUMBERS) && ph_jinja_is(b, PH_JINJA_NUMBERS))
        return compute_real(j, op, real_of(a), real_of(b));
    if (op == PH_OP_ADD && a.kind == b.kind && ph_jinja_is(a, joined))
        return concat(j, a, b);
    if (op == PH_OP_MULTIPLY && ph_jinja_is(a, joined) && ph_jinja_is(b, PH_JINJA_WHOLE))
        return repeat(j, a, b.integer);
    if (op == PH_OP_MULTIPLY && ph_jinja_is(b, joined) && ph_jinja_is(a, PH_JINJA_WHOLE))
        return repeat(j, b, a.integer);
    value lost = a.kind == PH_JINJA_UNDEFINED ? a : b;
    if (lost.kind == PH_JINJA_UNDEFINED)
        ph_jinja_fail(j, "%s is undefined, in a %s",
                      ph_io_quote(lost.text, lost.length).text, signs[op - PH_OP_ADD]);
    ph_jinja_fail(j, "%s %s %s is not known", ph_jinja_name(a), signs[op - PH_OP_ADD],
                  ph_jinja_name(b));
    return nothing;
}

value ph_jinja_compute(ph_jinja *j, ph_jinja_op op, value a, value b)
{
    switch (op) {
    case PH_OP_EQUAL: return ph_jinja_bool(ph_jinja_equal(j, a, b));
    case PH_OP_UNEQUAL: return ph_jinja_bool(!ph_jinja_equal(j, a, b));
    case PH_OP_LESS: return ph_jinja_bool(ph_jinja_order(j, a, b) < 0);
    case PH_OP_AT_MOST: return ph_jinja_bool(ph_jinja_order(j, a, b) <= 0);
    case PH_OP_GREATER: return ph_jinja_bool(ph_jinja_order(j, a, b) > 0);
    case PH_OP_AT_LEAST: return ph_jinja_bool(ph_jinja_order(j, a, b) >= 0);
    case PH_OP_IN: return ph_jinja_bool(ph_jinja_contains(j, b, a));
    case PH_OP_NOT_IN: return ph_jinja_bool(!ph_jinja_contains(j, b, a));
    case PH_OP_CONCAT: return concat(j, ph_jinja_str(j, a), ph_jinja_str(j, b));
    default: return compute_sum(j, op, a, b);
    }
}

static value binary(ph_jinja *j, const node *n)
{
    value a = evaluate(j, n->a);
    if (n->op == PH_OP_OR || n->op == PH_OP_AND)
        return ph_jinja_truth(a) == (n->op == PH_OP_OR) ? a : evaluate(j, n->b);
    value b = evaluate(j, n->b);
    j->at = n->at;
    return j->status ? nothing : ph_jinja_compute(j, n->op, a, b);
}

/* ---- names and calls --------------------------------------------------------------- */

static value look_up(ph_jinja *j, const node *n)
{
    static const char *const unknown[] = {
        "varargs", "kwargs", "self",      "lipsum",    "cycler",
        "joiner",  "sep_token", "cls_token", "mask_token"};
    for (ph_jinja_scope *s = j->scope; s && !j->status; s = s->outer) {
        const ph_jinja_variable *v = ph_jinja_find(j, s, n->text, n->length);
        if (v) return v->value;
        if (!ph_jinja_charge(j, 1)) break;
    }
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        if (ph_jinja_says(name_of(n), unknown[i]))
            ph_jinja_fail(j, "%s is not known", unknown[i]);
    return ph_jinja_function(n->text, n->length);
}

static ph_jinja_scope *open_scope(ph_jinja *j, ph_jinja_scope *outer)
{
    ph_jinja_scope *scope = ph_jinja_take(j, sizeof *scope);
    if (scope) scope->outer = outer;
    return scope;
}

/* What statements write in a scope of their own. */
static value capture(ph_jinja *j, const node *body, ph_jinja_scope *scope)
{
    ph_jinja_buffer to = {0}, *out = j->out;
    ph_jinja_scope *outer = j->scope;
    if (!scope) return nothing;
    j->out = &to, j->scope = scope;
    run_block(j, body);
    j->out = out, j->scope = outer;
    return ph_jinja_taken(&to);
}

static size_t count_of(const node *n)
{
    size_t count = 0;
    for (; n; n = n->next) count++;
    return count;
}

static ph_jinja_arguments evaluate_arguments(ph_jinja *j, const node *n)
{
    ph_jinja_arguments a = {0};
    a.all = ph_jinja_take(j, (count_of(n) + 1) * sizeof *a.all);
    for (; n && !j->status; n = n->next) {
        if (!n->text && a.count && a.all[a.count - 1].name)
            ph_jinja_fail(j, "an argument without a name is behind one with a name");
        a.all[a.count++] = (ph_jinja_argument){n->text, n->length, evaluate(j, n->a)};
    }
    return a;
}

static value make_macro(ph_jinja *j, const node *n)
{
    ph_jinja_macro *macro = ph_jinja_take(j, sizeof *macro);
    if (macro) *macro = (ph_jinja_macro){n, j->scope};
    return macro ? (value){.kind = PH_JINJA_MACRO, .macro = macro} : nothing;
}

/* Arguments become variables of a new scope; defaults are evaluated in it. */
static void bind_parameters(ph_jinja *j, const node *parameter, ph_jinja_arguments *a,
                            ph_jinja_scope *scope)
{
    size_t at = 0, used = 0;
    for (; parameter && !j->status; parameter = parameter->next, at++) {
        value v = ph_jinja_undefined(parameter->text, parameter->length);
        int found = 0;
        for (size_t i = 0; i < a->count && ph_jinja_charge(j, 1); i++)
            if (a->all[i].name
                    ? a->all[i].length == parameter->length &&
                          !memcmp(a->all[i].name, parameter->text, parameter->length)
                    : i == at)
                v = a->all[i].value, found++;
        if (!found && parameter->a) v = evaluate(j, parameter->a);
        used += (size_t)found;
        ph_jinja_bind(j, scope, parameter->text, parameter->length, v);
    }
    if (used != a->count)
        ph_jinja_fail(j, "a macro gets arguments that it does not take");
}

static value call_macro(ph_jinja *j, const ph_jinja_macro *macro, ph_jinja_arguments *a,
                        value caller)
{
    ph_jinja_scope *scope = open_scope(j, macro->scope), *outer = j->scope;
    if (!scope) return nothing;
    if (caller.kind) ph_jinja_bind(j, scope, "caller", 6, caller);
    j->scope = scope;
    bind_parameters(j, macro->node->b, a, scope);
    j->scope = outer;
    return capture(j, macro->node->body, scope);
}

static value call(ph_jinja *j, const node *n)
{
    const node *f = n->a;
    value of = nothing, v = nothing, caller = n->c ? make_macro(j, n->c) : nothing;
    int method = 0;
    if (f->kind == PH_NODE_ATTRIBUTE) {
        of = evaluate(j, f->a);
        method = of.kind == PH_JINJA_TEXT || of.kind == PH_JINJA_DICT;
        if (!method) v = ph_jinja_member(j, of, name_of(f), 1);
    } else {
        v = evaluate(j, f);
    }
    ph_jinja_arguments a = evaluate_arguments(j, n->b);
    j->at = n->at;
    if (j->status) return nothing;
    if (method) return ph_jinja_method(j, name_of(f), of, &a);
    if (v.kind == PH_JINJA_MACRO) return call_macro(j, v.macro, &a, caller);
    if (v.kind == PH_JINJA_FUNCTION) return ph_jinja_call(j, v.function, &a);
    ph_jinja_fail(j, "%s is called and not known",
                  f->text ? ph_io_quote(f->text, f->length).text : ph_jinja_name(v));
    return nothing;
}

/* ---- expressions ------------------------------------------------------------------- */

static value evaluate_items(ph_jinja *j, const node *n)
{
    int dict = n->kind == PH_NODE_DICT;
    value v = ph_jinja_items(j,
                             dict                      ? PH_JINJA_DICT
                             : n->kind == PH_NODE_LIST ? PH_JINJA_LIST
                                                       : PH_JINJA_TUPLE,
                             count_of(n->b));
    size_t count = 0;
    for (const node *i = n->b; i && !j->status; i = i->next) {
        value key = evaluate(j, i->a), item = dict ? evaluate(j, i->b) : key;
        value so_far = {.kind = PH_JINJA_DICT, .items = v.items, .length = count};
        const value *old = dict && !j->status ? ph_jinja_get(j, so_far, key) : NULL;
        if (j->status) break;
        if (old)
            v.items[old - v.items] = item;
        else if (dict)
            v.items[2 * count] = key, v.items[2 * count + 1] = item, count++;
        else
            v.items[count++] = item;
    }
    v.length = j->status ? 0 : count;
    return v;
}

static value slice(ph_jinja *j, const node *n)
{
    const node *parts[3] = {n->b, n->c, n->d};
    value of = evaluate(j, n->a), at[3];
    for (int i = 0; i < 3; i++)
        at[i] = parts[i] ? evaluate(j, parts[i]) : (value){.kind = PH_JINJA_NONE};
    j->at = n->at;
    return j->status ? nothing : ph_jinja_slice(j, of, at);
}

static value minus(ph_jinja *j, value v)
{
    return ph_jinja_is(v, PH_JINJA_WHOLE)
               ? compute_whole(j, PH_OP_SUBTRACT, 0, v.integer)
               : ph_jinja_compute(j, PH_OP_MULTIPLY, v,
                                  (value){.kind = PH_JINJA_FLOAT, .real = -1});
}

/* A filter or a test, whose argument is evaluated first. */
static value apply(ph_jinja *j, const node *n)
{
    value v = evaluate(j, n->a);
    ph_jinja_arguments a = evaluate_arguments(j, n->b);
    j->at = n->at;
    if (j->status) return nothing;
    return n->kind == PH_NODE_FILTER ? ph_jinja_filter(j, name_of(n), v, &a)
                                     : ph_jinja_bool(ph_jinja_test(j, name_of(n), v, &a));
}

static value member(ph_jinja *j, const node *n)
{
    int attribute = n->kind == PH_NODE_ATTRIBUTE;
    value of = evaluate(j, n->a), key = attribute ? name_of(n) : evaluate(j, n->b);
    j->at = n->at;
    return j->status ? nothing : ph_jinja_member(j, of, key, attribute);
}

static value evaluate_kind(ph_jinja *j, const node *n)
{
    switch (n->kind) {
    case PH_NODE_CONSTANT: return n->value;
    case PH_NODE_NAME: return look_up(j, n);
    case PH_NODE_LIST:
    case PH_NODE_TUPLE:
    case PH_NODE_DICT: return evaluate_items(j, n);
    case PH_NODE_ATTRIBUTE:
    case PH_NODE_INDEX: return member(j, n);
    case PH_NODE_SLICE: return slice(j, n);
    case PH_NODE_CALL: return call(j, n);
    case PH_NODE_FILTER:
    case PH_NODE_TEST: return apply(j, n);
    case PH_NODE_NOT: return ph_jinja_bool(!ph_jinja_truth(evaluate(j, n->a)));
    case PH_NODE_MINUS: return minus(j, evaluate(j, n->a));
    case PH_NODE_BINARY: return binary(j, n);
    case PH_NODE_CHOICE:
        if (ph_jinja_truth(evaluate(j, n->a))) return evaluate(j, n->b);
        return n->c ? evaluate(j, n->c) : nothing;
    case PH_NODE_CAPTURE: return capture(j, n->body, open_scope(j, j->scope));
    default: return nothing;
    }
}

static value evaluate(ph_jinja *j, const node *n)
{
    j->at = n->at;
    if (!ph_jinja_enter(j)) return nothing;
    value v = evaluate_kind(j, n);
    j->depth--;
    return j->status ? nothing : v;
}

/* ---- statements -------------------------------------------------------------------- */

static void assign(ph_jinja *j, const node *target, value v)
{
    if (target->kind == PH_NODE_NAME) {
        ph_jinja_bind(j, j->scope, target->text, target->length, v);
    } else if (target->kind == PH_NODE_ATTRIBUTE) {
        value of = look_up(j, target->a);
        if (of.kind != PH_JINJA_NAMESPACE || target->text[0] == '_')
            return ph_jinja_fail(j, "an attribute of %s is set, expected a namespace",
                                 ph_jinja_name(of));
        ph_jinja_bind(j, of.scope, target->text, target->length, v);
    } else {
        value list = ph_jinja_list(j, v);
        if (!j->status && list.length != count_of(target->b))
            ph_jinja_fail(j, "%zu values for %zu names", list.length,
                          count_of(target->b));
        size_t i = 0;
        for (const node *t = target->b; t && !j->status; t = t->next)
            assign(j, t->a, list.items[i++]);
    }
}

/* The items for which the condition of the loop holds. */
static value chosen(ph_jinja *j, const node *n, value list)
{
    ph_jinja_scope *outer = j->scope;
    if (!n->c || j->status) return list;
    value made = ph_jinja_items(j, PH_JINJA_LIST, list.length);
    made.length = 0;
    for (size_t i = 0; i < list.length && !j->status; i++) {
        j->scope = open_scope(j, outer);
        if (!j->scope) break;
        assign(j, n->a, list.items[i]);
        if (ph_jinja_truth(evaluate(j, n->c)) && !j->status)
            made.items[made.length++] = list.items[i];
    }
    j->scope = outer;
    return made;
}

static void run_for(ph_jinja *j, const node *n)
{
    ph_jinja_scope *outer = j->scope;
    value over = evaluate(j, n->b);
    j->at = n->at;
    value list = chosen(j, n, ph_jinja_list(j, over));
    ph_jinja_loop *loop = ph_jinja_take(j, sizeof *loop);
    if (j->status) return;
    *loop = (ph_jinja_loop){.items = list.items, .count = list.length};
    for (; loop->at < loop->count && !j->status && j->jump != PH_NODE_BREAK; loop->at++) {
        j->jump = 0;
        j->scope = open_scope(j, outer);
        if (!j->scope || !ph_jinja_charge(j, 16)) break;
        ph_jinja_bind(j, j->scope, "loop", 4,
                      (value){.kind = PH_JINJA_LOOP, .loop = loop});
        assign(j, n->a, list.items[loop->at]);
        run_block(j, n->body);
    }
    j->jump = 0, j->scope = loop->count ? outer : open_scope(j, outer);
    if (!loop->count) run_block(j, n->other);
    j->scope = outer;
}

static void run_statement(ph_jinja *j, const node *n)
{
    j->at = n->at;
    switch (n->kind) {
    case PH_NODE_DATA: ph_jinja_add(j, j->out, n->text, n->length); break;
    case PH_NODE_PRINT: ph_jinja_print(j, j->out, evaluate(j, n->a), 0); break;
    case PH_NODE_IF:
        run_block(j, ph_jinja_truth(evaluate(j, n->a)) ? n->body : n->other);
        break;
    case PH_NODE_FOR: run_for(j, n); break;
    case PH_NODE_SET: assign(j, n->a, evaluate(j, n->b)); break;
    case PH_NODE_MACRO:
        ph_jinja_bind(j, j->scope, n->text, n->length, make_macro(j, n));
        break;
    default: j->jump = (int)n->kind; break;
    }
}

static void run_block(ph_jinja *j, const node *n)
{
    if (!n || !ph_jinja_enter(j)) return;
    for (; n && !j->status && !j->jump; n = n->next)
        if (ph_jinja_charge(j, 16)) run_statement(j, n);
    j->depth--;
}

/* Newlines become \n, and the last one is dropped, as Jinja does. */
ph_status ph_jinja_render(ph_jinja *j, const char *template_text, const char **text,
                          size_t *length)
{
    size_t size = strlen(template_text), used = 0;
    char *source = ph_jinja_take(j, size + 1);
    ph_jinja_buffer out = {0};
    for (size_t i = 0; i < size && source; i++) {
        int two = template_text[i] == '\r' && template_text[i + 1] == '\n';
        source[used++] = template_text[i] == '\r' ? '\n' : template_text[i];
        i += (size_t)two;
    }
    if (used && source[used - 1] == '\n') source[--used] = 0;
    j->source = j->at = source, j->out = &out;
    node *tree = source ? ph_jinja_parse(j, source, used) : NULL;
    if (!j->status) run_block(j, tree);
    value made = ph_jinja_taken(&out);
    *text = made.text, *length = made.length;
    return j->status;
}
