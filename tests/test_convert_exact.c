/*
 * test_convert_exact.c - changes of heads that leave the function of a model as it is,
 * which alignment may use, and their neighbours, which it must not.
 */
#include "convert_bed.h"

static void values_may_rotate(void)
{
    transform t;
    uint64_t state = check_seed + 3;
    ph_config c = config_of(PH_ARCH_DECODER, PH_POS_ROPE, 4, 2);
    set_identity(t.key);
    set_identity(t.query);
    random_rotation(PH_FREEDOM_ALL, &state, t.value);
    transpose(t.value, t.inverse);
    double found = change_of(&c, &t);
    CHECK(found <= EXACT, "a rotation of values changes outputs by %g", found);
    for (int i = 0; i < 8; i++) t.value[i] *= 2, t.inverse[i * 8] /= 2; /* invertible */
    found = change_of(&c, &t);
    CHECK(found <= EXACT, "an invertible matrix of values changes outputs by %g", found);
    set_identity(t.inverse);
    found = change_of(&c, &t);
    CHECK(found > BROKEN, "values without their inverse change outputs by %g", found);
}

/* Which rotations of keys and queries are exact, positions decide. */
static void keys_may_rotate(void)
{
    static const struct {
        ph_positions positions;
        int interleaved;
        ph_freedom freedom;
        int exact;
    } all[] = {{PH_POS_ROPE, 0, PH_FREEDOM_HALF, 1},
               {PH_POS_ROPE, 1, PH_FREEDOM_INTERLEAVED, 1},
               {PH_POS_ROPE, 0, PH_FREEDOM_INTERLEAVED, 0}, /* the wrong pairs */
               {PH_POS_ROPE, 1, PH_FREEDOM_HALF, 0},
               {PH_POS_ROPE, 0, PH_FREEDOM_ALL, 0},
               {PH_POS_LEARNED, 0, PH_FREEDOM_ALL, 1},
               {PH_POS_SINUSOIDAL, 0, PH_FREEDOM_ALL, 1},
               {PH_POS_ALIBI, 0, PH_FREEDOM_ALL, 1},
               {PH_POS_T5, 0, PH_FREEDOM_ALL, 1},
               {PH_POS_NONE, 0, PH_FREEDOM_ALL, 1},
               {PH_POS_NONE, 0, PH_FREEDOM_HALF, 1}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        transform t;
        ph_config c = config_of(PH_ARCH_DECODER, all[i].positions, 4, 2);
        c.rope_interleaved = all[i].interleaved, c.attn_softcap = 5;
        rotation_of_keys(all[i].freedom, &t);
        double found = change_of(&c, &t);
        CHECK(all[i].exact ? found <= EXACT : found > BROKEN,
              "case %zu: outputs change by %g", i, found);
    }
}

/* ---- other matrices ---------------------------------------------------------------- */

/* Keys by m, queries by its inverse transpose. */
static void keys_by_any_matrix(void)
{
    static const ph_positions positions[] = {PH_POS_LEARNED, PH_POS_ROPE};
    for (int i = 0; i < 2; i++) {
        transform t;
        ph_config c = config_of(PH_ARCH_DECODER, positions[i], 4, 2);
        rotation_of_keys(PH_FREEDOM_ALL, &t);
        for (int k = 0; k < 8; k++) t.key[k * 8] *= 2, t.query[k * 8] /= 2;
        double found = change_of(&c, &t);
        CHECK(i ? found > BROKEN : found <= EXACT, "positions %d: outputs change by %g",
              i, found);
    }
}

/* A pair may also be scaled, its queries by the inverse; a reflection of it, or two pairs
   that change places, are something else. */
static void pairs_may_be_scaled(void)
{
    static const int exact[] = {1, 0, 0};
    for (int i = 0; i < 3; i++) {
        transform t;
        ph_config c = config_of(PH_ARCH_DECODER, PH_POS_ROPE, 4, 2);
        rotation_of_keys(PH_FREEDOM_HALF, &t);
        for (int r = 0; r < 8; r++) {
            double *key = t.key + r * 8, *query = t.query + r * 8, swap;
            if (i == 0) key[1] *= 3, key[5] *= 3, query[1] /= 3, query[5] /= 3;
            if (i == 1) key[1] = -key[1], query[1] = -query[1];
            for (int k = 0; i == 2 && k < 8; k += 4) {
                swap = key[k], key[k] = key[k + 1], key[k + 1] = swap;
                swap = query[k], query[k] = query[k + 1], query[k + 1] = swap;
            }
        }
        double found = change_of(&c, &t);
        CHECK(exact[i] ? found <= EXACT : found > BROKEN, "case %d: outputs change by %g",
              i, found);
    }
}

/* ---- constants --------------------------------------------------------------------- */

static void add_to_bias(ph_model *m, const char *name, float amount)
{
    for (int s = 0; s < m->stacks[0].count; s++) {
        const ph_sublayer *sublayer = &m->stacks[0].sublayers[s];
        int index = ph_sublayer_param(m, sublayer, name);
        if (sublayer->kind == PH_SUBLAYER_FEED) continue;
        float *bias = m->block + m->params[index].at;
        for (size_t i = 0; i < m->params[index].count; i++) bias[i] += amount;
    }
}

/* A constant in all keys is one in all scores of a query, which a softmax ignores; with
   rotary positions it is not. (Collaborative heads drop biases of keys by that.) */
static void constants_of_keys(void)
{
    static const ph_positions positions[] = {PH_POS_LEARNED, PH_POS_ROPE};
    for (int i = 0; i < 2; i++) {
        float before[TOKENS * DIM];
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(PH_ARCH_DECODER, positions[i], 4, 2);
        ph_model *m = make(ctx, &c);
        outputs_of(m, before);
        add_to_bias(m, "bk", 0.5f);
        double found = distance(m, before);
        CHECK(i ? found > BROKEN : found <= EXACT, "positions %d: outputs change by %g",
              i, found);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* ---- order ------------------------------------------------------------------------- */

/* Queries and rows of wo of head h move to place[h], key and value heads to kv_place. */
static void reorder(ph_model *m, const int *place, const int *kv_place)
{
    for (int s = 0; s < m->stacks[0].count; s++) {
        const ph_sublayer *sublayer = &m->stacks[0].sublayers[s];
        ph_chain chain = {.ctx = m->ctx};
        ph_head_weights w, to;
        size_t rows = (DIM + 1) * 8 * sizeof(double), out = 8 * DIM * sizeof(double);
        if (sublayer->kind == PH_SUBLAYER_FEED) continue;
        ph_convert_site site = {.from = m, .to = m, .old = sublayer, .new = sublayer};
        CHECK(ph_head_weights_load(&w, &site, &chain) == PH_OK, "no weights");
        to = w;
        CHECK(ph_head_weights_take(&to, &chain) == PH_OK, "no memory");
        for (int h = 0; h < 4; h++) {
            memcpy(ph_head_q(&to, place[h]), ph_head_q(&w, h), rows);
            memcpy(ph_head_o(&to, place[h]), ph_head_o(&w, h), out);
        }
        for (int h = 0; h < 2; h++) {
            memcpy(ph_head_k(&to, kv_place[h]), ph_head_k(&w, h), rows);
            memcpy(ph_head_v(&to, kv_place[h]), ph_head_v(&w, h), rows);
        }
        ph_head_weights_store(&to, &site);
        ph_chain_free(&chain);
    }
}

/* Whole groups may change places, and heads within them; a head that leaves its keys may
   not; nor may any where slopes belong to head numbers. */
static void groups_may_move(void)
{
    static const struct {
        int place[4], kv_place[2];
        ph_positions positions;
        int exact;
    } all[] = {{{2, 3, 0, 1}, {1, 0}, PH_POS_ROPE, 1},
               {{3, 2, 0, 1}, {1, 0}, PH_POS_ROPE, 1},
               {{0, 2, 1, 3}, {0, 1}, PH_POS_ROPE, 0},
               {{2, 3, 0, 1}, {1, 0}, PH_POS_ALIBI, 0},
               {{2, 3, 0, 1}, {1, 0}, PH_POS_T5, 0}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        float before[TOKENS * DIM];
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(PH_ARCH_DECODER, all[i].positions, 4, 2);
        ph_model *m = make(ctx, &c);
        outputs_of(m, before);
        reorder(m, all[i].place, all[i].kv_place);
        double found = distance(m, before);
        CHECK(all[i].exact ? found <= EXACT : found > BROKEN,
              "case %zu: outputs change by %g", i, found);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* Similar heads that are no neighbours are merged where heads may move, and stay where
   they are where they may not. */
static void alike_heads_meet(void)
{
    static const ph_positions positions[] = {PH_POS_ROPE, PH_POS_ALIBI};
    for (int i = 0; i < 2; i++) {
        ph_conversion_report *report;
        float before[TOKENS * DIM];
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(PH_ARCH_DECODER, positions[i], 4, 4);
        ph_model *m = make(ctx, &c);
        for (int s = 0; s < 4; s += 2) { /* key and value heads 2 and 3 are 0 and 1 */
            const ph_sublayer *sublayer = &m->stacks[0].sublayers[s];
            static const char *const names[] = {"wk", "wv", "bk", "bv"};
            for (int n = 0; n < 4; n++) {
                const ph_weight *p = &m->params[ph_sublayer_param(m, sublayer, names[n])];
                for (size_t r = 0; r < p->count / 32; r++)
                    memcpy(m->block + p->at + r * 32 + 16, m->block + p->at + r * 32,
                           16 * sizeof(float));
            }
        }
        outputs_of(m, before);
        convert(m, "gqa:2", (ph_conversion){0}, &report);
        for (int h = 0; h < 4; h++) {
            int expected = i ? h / 2 : h % 2;
            CHECK(report->sites[0].group_of[h] == expected,
                  "head %d is in group %d, expected %d", h, report->sites[0].group_of[h],
                  expected);
        }
        double found = distance(m, before);
        CHECK(i ? found > BROKEN : found <= EXACT, "outputs change by %g", found);
        ph_conversion_report_free(report);
        ph_model_free(m);
        ph_close(ctx);
    }
}

static const check_case cases[] = {{"values_may_rotate", values_may_rotate},
                                   {"keys_may_rotate", keys_may_rotate},
                                   {"keys_by_any_matrix", keys_by_any_matrix},
                                   {"pairs_may_be_scaled", pairs_may_be_scaled},
                                   {"constants_of_keys", constants_of_keys},
                                   {"groups_may_move", groups_may_move},
                                   {"alike_heads_meet", alike_heads_meet},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
