/*
 * kept.c - see kept.h.
 */
#include "model/kept.h"

#include <stdio.h>
#include <string.h>

#include "io/json_read.h"
#include "io/json_write.h"

int ph_kept_place(const ph_config *c, int stack, int layer, int cross)
{
    return stack ? c->layers + 2 * layer + cross : layer;
}

static int count_places(const ph_config *c)
{
    int both = c->arch == PH_ARCH_ENCODER_DECODER;
    return c->layers + (both ? 2 * c->decoder_layers : 0);
}

/* The name of the attention site at a place. */
static void name_place(const ph_config *c, int place, char name[32])
{
    int inside = place - c->layers, decoder = c->arch == PH_ARCH_DECODER;
    if (inside < 0)
        snprintf(name, 32, "%s.%d.self", decoder ? "decoder" : "encoder", place);
    else
        snprintf(name, 32, "decoder.%d.%s", inside / 2, inside % 2 ? "cross" : "self");
}

ph_status ph_kept_create(ph_kept *k, ph_ctx *ctx, const ph_config *c)
{
    *k = (ph_kept){.places = count_places(c), .heads = c->heads};
    size_t places = (size_t)k->places, all = places * (size_t)k->heads;
    k->removed = ph_ctx_alloc(ctx, all);
    k->group = ph_ctx_alloc(ctx, places * sizeof *k->group);
    if (!k->removed || !k->group)
        return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for a list of heads");
    memset(k->removed, 0, all);
    memset(k->group, 0, places * sizeof *k->group);
    return PH_OK;
}

ph_status ph_kept_copy(ph_kept *to, ph_ctx *ctx, const ph_config *c, const ph_kept *from)
{
    *to = (ph_kept){0};
    if (!from || !from->removed) return PH_OK;
    PH_TRY(ph_kept_create(to, ctx, c));
    size_t places = (size_t)to->places;
    memcpy(to->removed, from->removed, places * (size_t)to->heads);
    memcpy(to->group, from->group, places * sizeof *to->group);
    return PH_OK;
}

void ph_kept_free(ph_kept *k, ph_ctx *ctx)
{
    ph_ctx_release(ctx, k->removed);
    ph_ctx_release(ctx, k->group);
    *k = (ph_kept){0};
}

int ph_kept_count(const ph_kept *k, int place)
{
    int count = 0;
    for (int h = 0; h < k->heads; h++)
        count += !k->removed[(size_t)place * (size_t)k->heads + (size_t)h];
    return count;
}

/* ---- JSON -------------------------------------------------------------------------- */

void ph_kept_print(const ph_kept *k, const ph_config *c, ph_json_writer *out)
{
    char name[32];
    ph_json_begin_object(out, NULL);
    for (int p = 0; p < k->places; p++) {
        if (!k->group[p]) continue;
        name_place(c, p, name);
        ph_json_begin_object(out, name);
        ph_json_begin_array(out, "heads");
        for (int h = 0; h < k->heads; h++)
            if (!k->removed[(size_t)p * (size_t)k->heads + (size_t)h])
                ph_json_integer(out, NULL, h);
        ph_json_end(out);
        ph_json_integer(out, "group", k->group[p]);
        ph_json_end(out);
    }
    ph_json_end(out);
}

static int find_place(const ph_kept *k, const ph_config *c, const char *text)
{
    char name[32];
    for (int p = 0; p < k->places; p++) {
        name_place(c, p, name);
        if (!strcmp(name, text)) return p;
    }
    return -1;
}

/* Indices that rise, each of a head. */
static int read_heads(ph_json_reader *r, const ph_kept *k, int place)
{
    uint8_t *removed = k->removed + (size_t)place * (size_t)k->heads;
    size_t head, next = 0;
    memset(removed, 1, (size_t)k->heads);
    if (ph_json_next(r) != PH_JSON_ARRAY) return 0;
    while (ph_json_next(r) == PH_JSON_NUMBER) {
        if (ph_json_as_size(r, &head) || head < next || head >= (size_t)k->heads)
            return 0;
        removed[head] = 0, next = head + 1;
    }
    return r->token == PH_JSON_ARRAY_END;
}

static int read_entry(ph_json_reader *r, const ph_kept *k, int place)
{
    size_t group = 0;
    int valid = ph_json_next(r) == PH_JSON_OBJECT, heads = 0;
    while (valid && ph_json_next(r) == PH_JSON_KEY) {
        if (!strcmp(r->text, "heads"))
            valid = heads = read_heads(r, k, place);
        else
            valid = !strcmp(r->text, "group") && ph_json_next(r) == PH_JSON_NUMBER &&
                    !ph_json_as_size(r, &group);
    }
    int count = ph_kept_count(k, place);
    if (!valid || !heads || group < 1 || group > (size_t)k->heads || count % (int)group)
        return 0;
    k->group[place] = (int)group;
    return r->token == PH_JSON_OBJECT_END;
}

ph_status ph_kept_read(ph_kept *k, ph_ctx *ctx, const ph_config *c, char *text)
{
    ph_json_reader r;
    PH_TRY(ph_kept_create(k, ctx, c));
    ph_json_open(&r, text, strlen(text), (ph_json_limits){3, 64}, NULL);
    int valid = ph_json_next(&r) == PH_JSON_OBJECT;
    while (valid && ph_json_next(&r) == PH_JSON_KEY) {
        int place = find_place(k, c, r.text);
        valid = place >= 0 && read_entry(&r, k, place);
    }
    valid = valid && r.token == PH_JSON_OBJECT_END && ph_json_next(&r) == PH_JSON_END;
    ph_json_close(&r);
    if (valid) return PH_OK;
    return ph_fail(ctx, PH_BAD_FILE,
                   "polyhead.heads is no list of the heads that each site has");
}
