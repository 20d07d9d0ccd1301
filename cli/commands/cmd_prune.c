/*
 * cmd_prune.c - `polyhead prune MODEL`: a model without some of its heads.
 *
 * Heads go by what they are worth, by a plan of the viewer or a list, or by
 * gates that are trained.
 * Losses are measured on texts that nothing was learned from.
 */
#include "commands/cmd_prune.h"
#include "commands/plan_heads.h"

#include <stdlib.h>
#include <string.h>

#include "framework/json.h"
#include "framework/term.h"
#include "polyhead_scene.h"

static const char *const structure_names[] = {"head", "group", "even", NULL};

#define AT(field) offsetof(prune_options, field)
/* clang-format off */
static const ph_option table[] = {
    {.name = "heads", .kind = PH_OPT_INT, .metavar = "N", .low = 0, .high = 1 << 20,
     .at = AT(heads), .given = AT(has_heads), .group = "How many",
     .help = "remove so many heads, those that are worth least"},
    {.name = "share", .kind = PH_OPT_REAL, .metavar = "X", .least = 0, .most = 1,
     .at = AT(share), .given = AT(has_share), .help = "remove this share of them"},
    {.name = "plan", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(plan),
     .help = "remove those that a plan of polyhead look switches off"},
    {.name = "remove", .kind = PH_OPT_TEXT, .metavar = "LIST", .at = AT(remove),
     .help = "remove these: \"2:1,4\" for heads 1 and 4 of layer 2, \"E:2:1 A:1:3\" for "
             "encoder and cross-attention (D: decoder), counted from 1"},
    {.name = "gates", .kind = PH_OPT_FLAG, .at = AT(gates),
     .help = "train a gate for every head, and remove those whose gate closes"},
    PRUNE_DATA_OPTIONS(prune_options, data),
    {.name = "test", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(data.test),
     .help = "measure on these texts, not on a held-out fifth of --data"},
    {.name = "method", .kind = PH_OPT_TEXT, .metavar = "NAME", .at = AT(method),
     .given = AT(has_method), .fallback = "path", .group = "Which",
     .help = "what heads are worth, as polyhead importance names it"},
    {.name = "raw", .kind = PH_OPT_FLAG, .at = AT(raw),
     .help = "token and sample are not divided by their norm in each layer"},
    {.name = "rescore", .kind = PH_OPT_INT, .metavar = "K", .low = 0, .high = 1 << 20,
     .at = AT(rescore), .given = AT(has_rescore),
     .help = "measure again after every K heads; 0: only once"},
    {.name = "structure", .kind = PH_OPT_CHOICE, .choices = structure_names,
     .at = AT(structure), .given = AT(has_structure),
     .help = "head by head; group: all heads that share keys and values together; even: "
             "one head of each such group of a layer; both leave groups of one size"},
    {.name = "keep", .kind = PH_OPT_INT, .metavar = "N", .low = 0, .high = 1 << 12,
     .at = AT(keep), .given = AT(has_keep),
     .help = "the last N heads of every layer stay longest"},
    {.name = "l0", .kind = PH_OPT_REAL, .metavar = "X", .least = 0, .most = 1e6,
     .at = AT(l0), .given = AT(has_l0),
     .fallback = "0.01", .group = "Training",
     .help = "--gates: what an open gate adds to the loss"},
    {.name = "gate-steps", .kind = PH_OPT_INT, .metavar = "N", .low = 1,
     .high = 10000000, .at = AT(gate_steps), .given = AT(has_gate_steps),
     .fallback = "500",
     .help = "--gates: steps of training with gates"},
    {.name = "only-gates", .kind = PH_OPT_FLAG, .at = AT(only_gates),
     .help = "--gates: parameters stay what they are"},
    {.name = "tune", .kind = PH_OPT_INT, .metavar = "STEPS", .low = 0, .high = 10000000,
     .at = AT(tune), .help = "then train so many steps"},
    {.name = "distil", .kind = PH_OPT_FLAG, .at = AT(distil),
     .help = "learn the outputs of the whole model, not labels; sentence encoders do"},
    {.name = "lr", .kind = PH_OPT_REAL, .metavar = "X", .least = 0, .most = 1,
     .at = AT(lr), .given = AT(has_lr),
     .fallback = "1e-4", .help = "peak learning rate"},
    {.name = "seed", .kind = PH_OPT_INT, .metavar = "N", .low = 0, .high = INT64_MAX,
     .at = AT(seed), .given = AT(has_seed),
     .help = "of the order of texts, of gates, of random orders"},
    {.name = "out", .letter = 'o', .kind = PH_OPT_TEXT, .metavar = "DIR", .at = AT(out),
     .group = "Output", .help = "write DIR/model.safetensors; without it nothing is"},
    {.name = "curve", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(curve),
     .help = "loss and accuracy against heads that are left, in this order and in random "
             "ones: FILE.html or FILE.csv"},
    {.name = "json", .kind = PH_OPT_FLAG, .at = AT(json), .help = "one JSON object"},
    PH_MACHINE_OPTIONS(prune_options, machine),
    {.name = NULL}};
/* clang-format on */

static int fail(const pruning *x, ph_status status)
{
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, x->p.in.ctx);
}

/* ---- which heads ---- */

/* Whether the groups of a site that are left have the same number of heads. */
static int is_even(const pruning *x, const char *site)
{
    int left = 0, size = 0;
    for (int h = 0; h < x->heads; h++) {
        if (strcmp(x->place[h].site, site)) continue;
        left += !x->removed[h];
        if (h + 1 < x->heads && x->place[h + 1].group == x->place[h].group &&
            !strcmp(x->place[h + 1].site, site))
            continue;
        if (left && size && left != size) return 0;
        if (left) size = left;
        left = 0;
    }
    return 1;
}

/* The first so many heads of the order; fewer where these leave groups of two sizes. */
static void remove_first(pruning *x, int count)
{
    for (int i = 0; i < count; i++) x->removed[x->order[i]] = 1;
    while (x->o->structure && count && !is_even(x, x->place[x->order[count - 1]].site))
        x->removed[x->order[--count]] = 0;
}

static int how_many(const pruning *x)
{
    const prune_options *o = x->o;
    return o->has_share ? (int)(o->share * x->heads + 0.5) : (int)o->heads;
}

static int by_worth(pruning *x)
{
    const prune_options *o = x->o;
    const ph_order how = {.method = x->method,
                          .layered = !o->raw && prune_layered(x->method),
                          .rescore = (int)o->rescore,
                          .groups = (ph_order_unit)o->structure,
                          .keep = (int)o->keep};
    int rc = prune_eval(&x->p, x->p.in.m, PRUNE_SCORE, &x->score);
    if (!rc) rc = fail(x, ph_importance_order(x->score, &how, x->order));
    if (!rc) remove_first(x, how_many(x));
    return rc;
}

static void show_step(void *user, const ph_tuned *at)
{
    const pruning *x = user;
    char line[96];
    if (at->step % 10) return;
    snprintf(line, sizeof line, "step %d, loss %.4f%s", at->step, at->loss,
             x->training_gates ? ", with gates" : "");
    term_progress((double)at->step / x->steps, line);
}

static int by_gates(pruning *x)
{
    const prune_options *o = x->o;
    ph_tuning how = {.steps = (int)o->gate_steps,
                     .lr = (float)o->lr,
                     .max_grad_norm = 1,
                     .gated = 1,
                     .l0 = (float)o->l0,
                     .only_gates = o->only_gates,
                     .teacher = o->distil ? x->whole : NULL,
                     .seed = (uint64_t)o->seed,
                     .each = show_step,
                     .user = x};
    float *logits = calloc((size_t)x->heads + 1, sizeof *logits);
    if (!logits) return cli_fail(EXIT_MEMORY, "out of memory");
    int rc = prune_eval(&x->p, x->p.in.m, PRUNE_LEARN, &x->learn);
    for (int h = 0; h < x->heads; h++) logits[h] = PH_GATE_START;
    x->training_gates = 1, x->steps = how.steps;
    if (!rc) rc = fail(x, ph_eval_tune(x->learn, &how, logits));
    term_progress_end();
    x->training_gates = 0;
    for (int h = 0; h < x->heads; h++) {
        x->removed[h] = logits[h] <= 0;
        x->undecided += logits[h] > -2.398f && logits[h] < 2.398f;
    }
    free(logits);
    return rc;
}

/* ---- before, removed, tuned ---- */

static int measure(pruning *x, ph_eval *eval, ph_result *to)
{
    return eval ? fail(x, ph_eval_loss(eval, NULL, to)) : EXIT_OK;
}

static int make_test(pruning *x)
{
    if (!prune_has_texts(x)) return EXIT_OK;
    int rc = prune_eval(&x->p, x->p.in.m, PRUNE_TEST, &x->test);
    if (!rc && x->whole_test) rc = fail(x, ph_eval_compare(x->test, x->whole_test));
    return rc;
}

static void free_evals(pruning *x)
{
    ph_eval_free(x->score);
    ph_eval_free(x->learn);
    ph_eval_free(x->test);
    x->score = x->learn = x->test = NULL;
}

/* The model once more, as it is before anything is done to it. */
static int open_whole(pruning *x, const char *path)
{
    int rc = fail(x, encoder_read(&x->whole, x->p.in.ctx, path));
    return rc ? rc : prune_eval(&x->p, x->whole, PRUNE_TEST, &x->whole_test);
}

static int tune(pruning *x)
{
    const prune_options *o = x->o;
    ph_tuning how = {.steps = (int)o->tune,
                     .lr = (float)o->lr,
                     .max_grad_norm = 1,
                     .teacher = o->distil ? x->whole : NULL,
                     .seed = (uint64_t)o->seed,
                     .each = show_step,
                     .user = x};
    x->steps = how.steps;
    int rc = prune_eval(&x->p, x->p.in.m, PRUNE_LEARN, &x->learn);
    if (!rc) rc = fail(x, ph_eval_tune(x->learn, &how, NULL));
    term_progress_end();
    return rc ? rc : measure(x, x->test, &x->result[PRUNE_TUNED]);
}

/* Heads that no measuring chooses are known by now. */
static int choose_heads(pruning *x)
{
    const prune_options *o = x->o;
    if (o->remove || o->plan) return EXIT_OK;
    return o->gates ? by_gates(x) : by_worth(x);
}

static int prune(pruning *x)
{
    x->parameters[0] = ph_model_parameters(x->p.in.m);
    int rc = measure(x, x->test, &x->result[PRUNE_WHOLE]);
    if (!rc) rc = choose_heads(x);
    if (!rc && x->o->curve) rc = prune_curve(x);
    if (rc) return rc;
    free_evals(x);
    rc = fail(x, ph_model_remove(x->p.in.m, x->removed));
    if (!rc) rc = make_test(x);
    if (!rc) rc = measure(x, x->test, &x->result[PRUNE_REMOVED]);
    if (!rc && x->o->tune) rc = tune(x);
    x->parameters[1] = ph_model_parameters(x->p.in.m);
    return rc;
}

/* ---- the command ---- */

static int check(const prune_options *o)
{
    int ways = o->has_heads + o->has_share + !!o->plan + !!o->remove + o->gates;
    if (ways != 1)
        return cli_fail(EXIT_USAGE, "expected one of --heads N, --share X, --plan FILE, "
                                    "--remove LIST and --gates");
    int by_worth = o->has_heads || o->has_share, trains = o->gates || o->tune;
    const cli_idle idle[] = {
        {o->only_gates && !o->gates, "--only-gates needs --gates"},
        {o->has_l0 && !o->gates, "--l0 needs --gates"},
        {o->has_gate_steps && !o->gates, "--gate-steps needs --gates"},
        {o->distil && !trains, "--distil needs --tune STEPS or --gates"},
        {o->has_lr && !trains, "--lr needs --tune STEPS or --gates"},
        {o->has_seed && !trains && !o->curve, "--seed needs --tune, --gates or --curve"},
        {o->has_method && !by_worth, "--method goes with --heads and --share only"},
        {o->has_rescore && !by_worth, "--rescore goes with --heads and --share only"},
        {o->has_structure && !by_worth, "--structure goes with --heads and --share only"},
        {o->has_keep && !by_worth, "--keep goes with --heads and --share only"},
        {o->raw && !by_worth, "--raw goes with --heads and --share only"},
        {o->curve && !by_worth, "--curve goes with --heads and --share only"},
        {0, NULL}};
    int rc = cli_refuse_idle(idle);
    return rc ? rc : encoder_check_out(o->out);
}

static int check_worth(pruning *x)
{
    const prune_options *o = x->o;
    int rc = prune_method(o->method, strlen(o->method), &x->method);
    if (rc) return rc;
    if (o->raw && !prune_layered(x->method))
        return cli_fail(EXIT_USAGE, "--raw needs --method token or sample");
    if (how_many(x) > x->heads)
        return cli_fail(EXIT_USAGE, "--heads is %d, the model has %d", how_many(x),
                        x->heads);
    return fail(x, ph_worth_check(x->p.in.m, x->method));
}

/* What can be refused before texts are read and anything is measured or trained. */
static int check_model(pruning *x, int vectors)
{
    const prune_options *o = x->o;
    const ph_model *m = x->p.in.m;
    int known = o->remove || o->plan, rc = EXIT_OK;
    if (vectors && (o->tune || o->gates) && !o->distil)
        return cli_fail(EXIT_USAGE,
                        "the model gives vectors, which have no labels: %s needs "
                        "--distil",
                        o->gates ? "--gates" : "--tune");
    if (o->remove) rc = listed_removed(o->remove, m, x->removed);
    if (o->plan) rc = plan_removed(o->plan, m, x->p.in.ctx, x->removed);
    if (!rc) rc = fail(x, ph_model_removable(m, known ? x->removed : NULL));
    return rc || known || o->gates ? rc : check_worth(x);
}

static int open_all(pruning *x, const char *path)
{
    const prune_options *o = x->o;
    int needed = !(o->plan || o->remove) || o->tune;
    int rc = prune_open(&x->p, path, &o->data, needed, &o->machine);
    if (rc) return rc;
    const ph_config *c = ph_model_config(x->p.in.m);
    int vectors = c->pooling && !c->classes && !c->masked;
    x->heads = ph_model_heads(x->p.in.m);
    x->order = calloc((size_t)x->heads + 1, sizeof *x->order);
    x->removed = calloc((size_t)x->heads + 1, 1);
    x->place = calloc((size_t)x->heads + 1, sizeof *x->place);
    if (!x->order || !x->removed || !x->place)
        return cli_fail(EXIT_MEMORY, "out of memory");
    for (int h = 0; h < x->heads; h++) ph_model_head(x->p.in.m, h, &x->place[h]);
    rc = check_model(x, vectors);
    if (!rc) rc = prune_read(&x->p);
    if (rc) return rc;
    if ((vectors && prune_has_texts(x)) || o->distil) rc = open_whole(x, path);
    return rc ? rc : make_test(x);
}

static int run(const void *chosen, int count, const char *const *words)
{
    const prune_options *o = chosen;
    pruning x = {.o = o};
    (void)count;
    int rc = check(o);
    if (!rc) rc = open_all(&x, words[0]);
    if (!rc) rc = prune(&x);
    if (!rc && o->out) rc = encoder_write(&x.p.in, o->out);
    if (!rc) (o->json ? prune_print_json : prune_print)(&x);
    free_evals(&x);
    ph_eval_free(x.whole_test);
    ph_model_free(x.whole);
    free(x.order);
    free(x.removed);
    free(x.place);
    prune_close(&x.p);
    return rc;
}

static const char *const examples[] = {
    "polyhead prune runs/dates --recipe dates --share 0.5 --out small",
    "half of the heads, those that are worth least",
    "polyhead prune all-MiniLM-L6-v2 --data sentences.txt --share 0.3 --tune 500 "
    "--distil --out minilm-small",
    "a sentence encoder that learns its own vectors again with fewer heads",
    "polyhead prune runs/dates --recipe dates --gates --l0 0.02 --tune 500",
    "heads that training itself can do without",
    "polyhead prune model --data texts.txt --share 0.9 --curve curve.html",
    "loss against heads that are left, and with random orders", NULL};

const ph_command command_prune = {
    .name = "prune",
    .summary = "a model without some of its heads",
    .usage = "MODEL --heads N | --share X | --plan FILE | --remove LIST | --gates "
             "[options]",
    .about =
        "Heads are removed for good: matrices shrink, attention and its projections cost "
        "less, and results are those of the model in which these heads give 0. A layer "
        "without heads gives its output bias. Heads keep their names: the indices before "
        "any was removed (docs/SURGERY.md). Losses are measured on --test or the last "
        "fifth of --data, and on samples of a recipe that training never sees; a plan or "
        "a list needs no texts, and without any nothing is measured.",
    .examples = examples,
    .options = table,
    .size = sizeof(prune_options),
    .word = "MODEL",
    .fewest_words = 1,
    .most_words = 1,
    .run = run};
