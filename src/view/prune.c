/*
 * prune.c - pruning plans: heads that are ablated or gated, and the file of a plan; see
 * polyhead_scene.h.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "io/io.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "polyhead_scene.h"
#include "view/word_list.h"

#define SCHEMA "polyhead.plan/1"

/* ---- plans ---- */

/* Heads are named by the index they had before any was removed. */
static int head_name(const ph_site *site, int head)
{
    return site->original ? site->original[head] : head;
}

int ph_prune_entry(const ph_reading *reading, int site, int head)
{
    const ph_site *place = site >= 0 ? ph_reading_site(reading, site) : NULL;
    int entry = 0;
    if (!place) return -1;
    while (entry < place->heads && head_name(place, entry) != head) entry++;
    if (entry == place->heads) return -1;
    for (int i = 0; i < site; i++) entry += ph_reading_site(reading, i)->heads;
    return entry;
}

ph_status ph_prune_create(ph_prune *plan, const ph_reading *reading, const ph_io *io)
{
    if (plan) memset(plan, 0, sizeof *plan);
    if (!plan || !reading) return ph_io_null(io, "plan or reading");
    const ph_site *site;
    for (int i = 0; (site = ph_reading_site(reading, i)) != NULL; i++)
        plan->count += site->heads;
    size_t count = (size_t)plan->count;
    plan->ablation = ph_io_alloc(io, count);
    plan->gates = ph_io_alloc(io, count * sizeof *plan->gates);
    if (!plan->ablation || !plan->gates) {
        ph_prune_free(plan, io);
        return ph_io_no_memory(io, count * sizeof *plan->gates, "a plan");
    }
    memset(plan->ablation, PH_HEAD_ON, count);
    for (size_t i = 0; i < count; i++) plan->gates[i] = 1;
    return PH_OK;
}

void ph_prune_free(ph_prune *plan, const ph_io *io)
{
    if (!plan) return;
    ph_io_release(io, plan->ablation);
    ph_io_release(io, plan->gates);
    memset(plan, 0, sizeof *plan);
}

ph_status ph_prune_run(const ph_prune *plan, ph_reading *reading, int frozen)
{
    if (!plan || !reading) return PH_BAD_ARGUMENT;
    PH_TRY(ph_reading_gates(reading, plan->gates));
    return ph_reading_run(reading, plan->ablation, frozen);
}

/* ---- reading ---- */

typedef struct plan_reader {
    ph_json_reader json;
    const char *path;
    const ph_reading *reading;
    const ph_io *io;
    ph_prune *plan;
} plan_reader;

/* The entry of one head in a file. */
typedef struct plan_entry {
    const char *site, *edit; /* NULL: missing */
    size_t head;
    double gate;
    int has_head, has_gate;
} plan_entry;

static ph_status wrong(const plan_reader *r, const char *words)
{
    char detail[160];
    if (r->json.token != PH_JSON_ERROR)
        return ph_io_fail(r->io, PH_BAD_FILE, "%s: %s", r->path, words);
    ph_json_explain(&r->json, detail, sizeof detail);
    return ph_io_fail(r->io, r->json.status, "%s: %s", r->path, detail);
}

static ph_status read_field(plan_reader *r, plan_entry *entry)
{
    char key[8];
    snprintf(key, sizeof key, "%s", r->json.text);
    ph_json_token token = ph_json_next(&r->json);
    if (token == PH_JSON_STRING && !strcmp(key, "site"))
        entry->site = r->json.text;
    else if (token == PH_JSON_STRING && !strcmp(key, "edit"))
        entry->edit = r->json.text;
    else if (token == PH_JSON_NUMBER && !strcmp(key, "head"))
        entry->has_head = ph_json_as_size(&r->json, &entry->head) == 0;
    else if (token == PH_JSON_NUMBER && !strcmp(key, "gate"))
        entry->has_gate = ph_json_as_double(&r->json, &entry->gate) == 0;
    else
        return wrong(r, "a head has \"site\" and \"edit\" (text), \"head\" and perhaps "
                        "\"gate\" (numbers), and nothing else");
    return PH_OK;
}

static int find_site(const ph_reading *reading, const char *name)
{
    const ph_site *site;
    for (int i = 0; (site = ph_reading_site(reading, i)) != NULL; i++)
        if (!strcmp(site->name, name)) return i;
    return -1;
}

static ph_status take_entry(plan_reader *r, const plan_entry *entry)
{
    if (!entry->site || !entry->edit || !entry->has_head)
        return wrong(r,
                     "a head of a plan needs \"site\", \"edit\" and a \"head\" from 0");
    int site = find_site(r->reading, entry->site);
    int at = entry->head < INT_MAX
                 ? ph_prune_entry(r->reading, site, (int)entry->head)
                 : -1;
    if (at < 0)
        return ph_io_fail(r->io, PH_BAD_VALUE, "%s: the model has no head %zu in %s",
                          r->path, entry->head,
                          ph_io_quote(entry->site, strlen(entry->site)).text);
    if (r->plan->ablation[at] != PH_HEAD_ON || r->plan->gates[at] < 1)
        return wrong(r, "a head stands twice");
    if (!strcmp(entry->edit, "gate") && entry->has_gate && entry->gate >= 0 &&
        entry->gate <= 1)
        r->plan->gates[at] = (float)entry->gate;
    else if (!strcmp(entry->edit, "zero"))
        r->plan->ablation[at] = PH_HEAD_ZERO;
    else if (!strcmp(entry->edit, "mean"))
        r->plan->ablation[at] = PH_HEAD_MEAN;
    else
        return wrong(r, "\"edit\" must be \"zero\", \"mean\", or \"gate\" with a "
                        "\"gate\" from 0 to 1");
    return PH_OK;
}

static ph_status read_heads(plan_reader *r)
{
    if (ph_json_next(&r->json) != PH_JSON_ARRAY)
        return wrong(r, "\"heads\" must be a list");
    while (ph_json_next(&r->json) == PH_JSON_OBJECT) {
        plan_entry entry = {0};
        while (ph_json_next(&r->json) == PH_JSON_KEY) PH_TRY(read_field(r, &entry));
        if (r->json.token == PH_JSON_ERROR) return wrong(r, "");
        PH_TRY(take_entry(r, &entry));
    }
    return r->json.token == PH_JSON_ARRAY_END ? PH_OK
                                              : wrong(r, "a head must be an object");
}

static ph_status read_schema(plan_reader *r)
{
    if (ph_json_next(&r->json) == PH_JSON_STRING && !strcmp(r->json.text, SCHEMA))
        return PH_OK;
    return wrong(r, "\"schema\" is not \"" SCHEMA "\": no plan of heads");
}

static ph_status read_plan(plan_reader *r)
{
    int schema = 0, heads = 0;
    if (ph_json_next(&r->json) != PH_JSON_OBJECT)
        return wrong(r, "no JSON object: no plan of heads");
    while (ph_json_next(&r->json) == PH_JSON_KEY) {
        if (!strcmp(r->json.text, "schema") && ++schema)
            PH_TRY(read_schema(r));
        else if (!strcmp(r->json.text, "heads") && ++heads)
            PH_TRY(read_heads(r));
        else
            return wrong(r, "a plan has \"schema\" and \"heads\", and nothing else");
    }
    if (r->json.token == PH_JSON_OBJECT_END) ph_json_next(&r->json);
    if (r->json.token != PH_JSON_END) return wrong(r, "something follows the plan");
    return schema && heads ? PH_OK : wrong(r, "a plan needs \"schema\" and \"heads\"");
}

ph_status ph_prune_read(ph_prune *plan, const char *path, const ph_reading *reading,
                        const ph_io *io)
{
    const ph_json_limits limits = {.depth = 3, .string = 4096};
    plan_reader r = {.path = path, .reading = reading, .io = io, .plan = plan};
    char *bytes = NULL;
    size_t size = 0;
    PH_TRY(ph_prune_create(plan, reading, io));
    ph_status status = ph_words_file(path, &bytes, &size, io);
    if (status == PH_OK) {
        ph_json_open(&r.json, bytes, size, limits, io);
        status = read_plan(&r);
        ph_json_close(&r.json);
    }
    ph_io_release(io, bytes);
    if (status != PH_OK) ph_prune_free(plan, io);
    return status;
}

/* ---- writing ---- */

static void write_entry(ph_json_writer *json, const ph_site *site, int head, int ablation,
                        float gate)
{
    static const char *const edits[] = {"gate", "zero", "mean"};
    ph_json_begin_object(json, NULL);
    ph_json_string(json, "site", site->name);
    ph_json_integer(json, "head", head_name(site, head));
    ph_json_string(json, "edit", edits[ablation]);
    if (ablation == PH_HEAD_ON) ph_json_float(json, "gate", gate);
    ph_json_end(json);
}

static void write_plan(FILE *file, const ph_prune *plan, const ph_reading *reading)
{
    ph_json_writer json = {.write = ph_json_write_file, .user = file, .indent = 2};
    const ph_site *site;
    int at = 0;
    ph_json_begin_object(&json, NULL);
    ph_json_string(&json, "schema", SCHEMA);
    ph_json_begin_array(&json, "heads");
    for (int i = 0; (site = ph_reading_site(reading, i)) != NULL; i++)
        for (int head = 0; head < site->heads; head++, at++) {
            if (plan->ablation[at] == PH_HEAD_ON && !(plan->gates[at] < 1)) continue;
            write_entry(&json, site, head, plan->ablation[at], plan->gates[at]);
        }
    ph_json_end(&json);
    ph_json_end(&json);
    fputc('\n', file);
}

ph_status ph_prune_write(const ph_prune *plan, const char *path,
                         const ph_reading *reading, const ph_io *io)
{
    if (!plan || !path || !reading) return ph_io_null(io, "plan, path or reading");
    FILE *file = fopen(path, "wx");
    if (!file)
        return ph_io_fail(io, PH_IO_ERROR, "%s: cannot be made, or is there already",
                          path);
    write_plan(file, plan, reading);
    int failed = ferror(file);
    if (fclose(file) == 0 && !failed) return PH_OK;
    remove(path);
    return ph_io_fail(io, PH_IO_ERROR, "%s: cannot be written", path);
}
