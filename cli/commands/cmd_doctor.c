/*
 * cmd_doctor.c - `polyhead doctor`: what this machine has, what was chosen and why,
 * whether every instruction set gives the same bits here.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/work.h"
#include "framework/cli.h"
#include "framework/json.h"
#include "framework/term.h"

typedef struct doctor_options {
    ph_machine machine;
    int has_threads, has_isa; /* given on the command line */
    int json;
} doctor_options;

/* clang-format off */
#define AT(field) offsetof(doctor_options, field)
static const ph_option table[] = {
    {.name = "json", .kind = PH_OPT_FLAG, .at = AT(json),
     .help = "one JSON object instead of text"},
    {.name = "threads", .letter = 't', .kind = PH_OPT_INT, .metavar = "N", .high = 1024,
     .at = AT(machine.threads), .given = AT(has_threads), .env = "POLYHEAD_THREADS",
     .help = "as a command would get it: number of threads"},
    {.name = "isa", .kind = PH_OPT_CHOICE, .metavar = "NAME", .choices = cli_isa_names,
     .at = AT(machine.isa), .given = AT(has_isa), .fallback = "best",
     .help = "as a command would get it: highest instruction set"},
    {.name = NULL}};
/* clang-format on */

/* ---- why ---- */

static const char *set_in(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

/* A level whose f32 gradients differ in bits is chosen only by name. */
static int is_asked_only(const char *isa)
{
    return ph_isa_about(isa).own_gradients;
}

static const char *isa_reason(const doctor_options *o, const char *isa)
{
    const char *const *best = ph_isa_list();
    while (best[0] && best[1] && !is_asked_only(best[1])) best++;
    int asked = o->has_isa && !strcmp(isa, cli_isa_names[o->machine.isa]);
    if (asked) return "as --isa asks";
    if (!strcmp(isa, *best)) return "the best this CPU runs";
    if (is_asked_only(isa)) return "as POLYHEAD_ISA asks";
    if (set_in("POLYHEAD_ISA")) return "lowered by POLYHEAD_ISA";
    return "the best at or below --isa that this CPU runs";
}

static const char *threads_reason(const doctor_options *o)
{
    if (o->has_threads && o->machine.threads) return "as --threads asks";
    if (!o->has_threads && set_in("POLYHEAD_THREADS") && o->machine.threads)
        return "from POLYHEAD_THREADS";
    return "one per core this process may use";
}

/* ---- self-check ---- */

/* Small problems that reach different parts: edges of blocks, decoding, half types. */
static const ph_attn problems[] = {
    {.batch = 2,
     .q_heads = 4,
     .k_heads = 2,
     .v_heads = 2,
     .q_len = 67,
     .kv_len = 67,
     .qk_dim = 40,
     .mask = PH_MASK_CAUSAL,
     .backward = 1},
    {.batch = 1,
     .q_heads = 8,
     .k_heads = 2,
     .v_heads = 2,
     .q_len = 1,
     .kv_len = 700,
     .qk_dim = 64},
    {.batch = 1,
     .q_heads = 2,
     .q_len = 50,
     .kv_len = 90,
     .qk_dim = 59,
     .dtype = PH_BF16,
     .backward = 1},
    {.batch = 1, .q_heads = 2, .q_len = 50, .kv_len = 90, .qk_dim = 59, .dtype = PH_F16},
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

typedef enum verdict { SAME, DIFFERENT, FAILED, NOT_RUN } verdict;
static const char *const verdicts[] = {"same bits", "DIFFERENT BITS", "FAILED",
                                       "not run"};

typedef struct finding {
    char name[32]; /* "avx2", "7 threads" */
    verdict verdict;
} finding;

enum { FINDINGS = 16 };

typedef struct checkup {
    work truth[PROBLEMS]; /* by ref, one thread */
    work best[PROBLEMS];  /* by the best table, one thread */
    ph_ctx *ref, *alone;  /* who made them */
    finding finding[FINDINGS];
    int count, bad;
} checkup;

static ph_status solve(work *w, ph_ctx *ctx, const ph_attn *attn)
{
    ph_status status = work_open(w, ctx, attn, NULL);
    if (status == PH_OK && attn->backward) status = work_backward(w);
    return status;
}

/* Where a table has bits of its own only the same table on one thread has them too. */
static const work *truth_for(const checkup *c, const ph_ctx *ctx, int i)
{
    int own = problems[i].dtype == PH_BF16 && ph_isa_about(ph_isa(ctx)).own_bf16;
    return own ? &c->best[i] : &c->truth[i];
}

static verdict compare(const checkup *c, ph_ctx *ctx)
{
    verdict result = SAME;
    for (int i = 0; i < PROBLEMS && result == SAME; i++) {
        work w;
        if (solve(&w, ctx, &problems[i]) != PH_OK)
            result = FAILED;
        else if (!work_same(&w, truth_for(c, ctx, i)))
            result = DIFFERENT;
        work_close(&w);
    }
    return result;
}

/* Opens what the name says and compares it with ref. */
static void check_one(checkup *c, const char *name, const char *isa, int threads)
{
    if (c->count == FINDINGS) return;
    finding *f = &c->finding[c->count++];
    ph_ctx *ctx = NULL;
    snprintf(f->name, sizeof f->name, "%s", name);
    if (ph_open(&ctx, &(ph_options){.isa = isa, .threads = threads}) != PH_OK)
        f->verdict = FAILED;
    else if (isa && strcmp(ph_isa(ctx), isa))
        f->verdict = NOT_RUN; /* POLYHEAD_ISA is in the way */
    else
        f->verdict = compare(c, ctx);
    ph_close(ctx);
    c->bad += f->verdict == DIFFERENT || f->verdict == FAILED;
}

static int check_all(checkup *c)
{
    memset(c, 0, sizeof *c);
    ph_status status = ph_open(&c->ref, &(ph_options){.isa = "ref", .threads = 1});
    if (status == PH_OK) status = ph_open(&c->alone, &(ph_options){.threads = 1});
    for (int i = 0; i < PROBLEMS && status == PH_OK; i++) {
        status = solve(&c->truth[i], c->ref, &problems[i]);
        if (status == PH_OK) status = solve(&c->best[i], c->alone, &problems[i]);
    }
    if (status != PH_OK) return cli_fail_status(status, c->ref);
    for (const char *const *isa = ph_isa_list(); *isa; isa++)
        if (strcmp(*isa, "ref")) check_one(c, *isa, *isa, 1);
    check_one(c, "2 threads", NULL, 2);
    check_one(c, "7 threads", NULL, 7);
    return EXIT_OK;
}

static void check_end(checkup *c)
{
    for (int i = 0; i < PROBLEMS; i++) work_close(&c->truth[i]), work_close(&c->best[i]);
    ph_close(c->alone);
    ph_close(c->ref);
}

/* ---- text ---- */

static void heading(const char *text)
{
    printf("\n%s%s%s\n", term_on(stdout, TERM_BOLD), text, term_on(stdout, TERM_PLAIN));
}

static void line(const char *name, const char *text)
{
    printf("  %-18s", name);
    term_wrap(stdout, text, 20, 20, term_width(stdout, 90));
}

/* Sizes of caches and memories come in powers of two. */
static const char *binary(int64_t bytes, char *buffer, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++) value /= 1024;
    if (bytes <= 0) return "unknown";
    snprintf(buffer, size, value == (double)(int64_t)value ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
    return buffer;
}

/* Whether `run --device cuda` would work, or the sentence that says why not. */
static const char *cuda_verdict(char *text, size_t size)
{
    ph_ctx *ctx = NULL;
    ph_options options = {.device = PH_CUDA, .error = text, .error_size = size};
    if (ph_open(&ctx, &options) != PH_OK) return text;
    snprintf(text, size, "ready (%s)", ph_isa(ctx));
    ph_close(ctx);
    return text;
}

static void print_machine(const machine_facts *m)
{
    char text[512], a[32], b[32], c[32];
    heading("This machine");
    line("CPU", m->cpu);
    size_t used = 0;
    for (const char *const *isa = ph_isa_list(); *isa && used < sizeof text; isa++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%s%s", used ? ", " : "",
                             *isa, is_asked_only(*isa) ? " (if asked for)" : "");
    line("instruction sets", text);
    used =
        (size_t)snprintf(text, sizeof text, "%d online, %d allowed by the affinity mask",
                         m->cores_online, m->cores_allowed);
    if (m->cores_quota > 0)
        snprintf(text + used, sizeof text - used, ", %.1f by the control group",
                 m->cores_quota);
    line("cores", text);
    snprintf(text, sizeof text, "%s L1 data, %s L2, %s last level",
             binary(m->cache[0], a, sizeof a), binary(m->cache[1], b, sizeof b),
             binary(m->cache[2], c, sizeof c));
    line("caches", text);
    used = (size_t)snprintf(text, sizeof text, "%s, %s of it free",
                            binary(m->memory_total, a, sizeof a),
                            binary(m->memory_free, b, sizeof b));
    if (m->memory_limit > 0)
        snprintf(text + used, sizeof text - used, ", %s allowed by the control group",
                 binary(m->memory_limit, c, sizeof c));
    line("memory", text);
    line("GPU", m->gpu[0] ? m->gpu : "none found");
    line("--device cuda", cuda_verdict(text, sizeof text));
}

static void print_chosen(const doctor_options *o, const ph_ctx *ctx)
{
    char text[256];
    heading("Chosen");
    snprintf(text, sizeof text, "%s: %s", ph_isa(ctx), isa_reason(o, ph_isa(ctx)));
    line("instruction set", text);
    snprintf(text, sizeof text, "%d: %s", ph_threads(ctx), threads_reason(o));
    line("threads", text);
    line("device", "cpu");
}

static void print_checks(const checkup *c)
{
    heading("Self-check: attention forward and backward, against the plain C of ref");
    for (int i = 0; i < c->count; i++) {
        const finding *f = &c->finding[i];
        term_style style = f->verdict == SAME      ? TERM_GOOD
                           : f->verdict == NOT_RUN ? TERM_DIM
                                                   : TERM_BAD;
        printf("  %-18s%s%s%s\n", f->name, term_on(stdout, style), verdicts[f->verdict],
               term_on(stdout, TERM_PLAIN));
    }
}

/* ---- JSON ---- */

static void json_machine(ph_json_writer *j, const machine_facts *m)
{
    ph_json_begin_object(j, "machine");
    ph_json_string(j, "cpu", m->cpu);
    ph_json_begin_array(j, "isas");
    for (const char *const *isa = ph_isa_list(); *isa; isa++)
        ph_json_string(j, NULL, *isa);
    ph_json_end(j);
    ph_json_integer(j, "cores_online", m->cores_online);
    ph_json_integer(j, "cores_allowed", m->cores_allowed);
    if (m->cores_quota > 0) ph_json_double(j, "cores_quota", m->cores_quota);
    ph_json_integer(j, "l1d_bytes", m->cache[0]);
    ph_json_integer(j, "l2_bytes", m->cache[1]);
    ph_json_integer(j, "last_level_bytes", m->cache[2]);
    ph_json_integer(j, "memory_bytes", m->memory_total);
    ph_json_integer(j, "memory_free_bytes", m->memory_free);
    if (m->memory_limit > 0) ph_json_integer(j, "memory_limit_bytes", m->memory_limit);
    char text[512];
    ph_json_string(j, "gpu", m->gpu[0] ? m->gpu : NULL);
    ph_json_string(j, "cuda", cuda_verdict(text, sizeof text));
    ph_json_end(j);
}

static void print_json(const doctor_options *o, const ph_ctx *ctx, const machine_facts *m,
                       const checkup *c)
{
    ph_json_writer j = json_begin("polyhead.doctor/1");
    ph_json_string(&j, "version", ph_version());
    json_machine(&j, m);
    ph_json_begin_object(&j, "chosen");
    ph_json_string(&j, "isa", ph_isa(ctx));
    ph_json_string(&j, "isa_reason", isa_reason(o, ph_isa(ctx)));
    ph_json_integer(&j, "threads", ph_threads(ctx));
    ph_json_string(&j, "threads_reason", threads_reason(o));
    ph_json_string(&j, "device", "cpu");
    ph_json_end(&j);
    ph_json_begin_array(&j, "checks");
    for (int i = 0; i < c->count; i++) {
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, "name", c->finding[i].name);
        ph_json_string(&j, "result", verdicts[c->finding[i].verdict]);
        ph_json_end(&j);
    }
    ph_json_end(&j);
    ph_json_bool(&j, "healthy", !c->bad);
    json_end(&j);
}

/* ---- the command ---- */

static int doctor(const void *chosen, int count, const char *const *words)
{
    const doctor_options *o = chosen;
    machine_facts facts;
    checkup c;
    ph_ctx *ctx = NULL;
    (void)count, (void)words;
    int rc = cli_open(&ctx, &o->machine, 0);
    if (rc) return rc;
    machine_look(&facts);
    rc = check_all(&c);
    if (rc == EXIT_OK && o->json)
        print_json(o, ctx, &facts, &c);
    else if (rc == EXIT_OK) {
        printf("polyhead %s\n", ph_version());
        print_machine(&facts);
        print_chosen(o, ctx);
        print_checks(&c);
    }
    check_end(&c);
    ph_close(ctx);
    if (rc == EXIT_OK && c.bad) rc = cli_fail(EXIT_DIFFERS, "%d checks failed", c.bad);
    return rc;
}

static const char *const examples[] = {
    "polyhead doctor", "what a command would use here, and whether all is well",
    "POLYHEAD_ISA=avx2 polyhead doctor --json", "the same for a program, one level lower",
    NULL};

const ph_command command_doctor = {
    .name = "doctor",
    .summary = "what this machine has, what was chosen, a quick self-check",
    .usage = "[options]",
    .about =
        "The self-check computes small problems with every instruction set and several "
        "numbers of threads, and compares the results bit by bit. Exit status 6 if any "
        "differs.",
    .examples = examples,
    .options = table,
    .size = sizeof(doctor_options),
    .run = doctor};
