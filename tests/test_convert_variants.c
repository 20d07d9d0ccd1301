/*
 * test_convert_variants.c - plain heads that become heads of a variant: which of them
 * change nothing, and what the others change.
 */
#include "convert_bed.h"

/* ---- variants that begin as plain heads -------------------------------------------- */

/* Mixing by an identity adds products with 0, gates of 1 and of 1/2 with twice the
   weights round nothing: the bound is that of the same function. */
static void nothing_changes(void)
{
    static const struct {
        const char *to;
        int kv;
    } all[] = {{"talking", 2},
               {"dcmha:rank=2", 4},
               {"gated:head", 2},
               {"gated:element", 4},
               {"moh:shared=1,top=3", 2},
               {"moh:shared=4,top=0", 4},
               {"moh-norm:shared=2,top=2", 2},
               {"entmax:alpha=1", 2},
               {"mohsa", 4},
               {"talking+gated:head", 2},
               {"gated:element+moh:shared=2,top=2+talking", 4},
               {"mha;talking", 2}};
    for (size_t i = 0; i < 3 * sizeof all / sizeof all[0]; i++) {
        float before[TOKENS * DIM];
        ph_conversion_report *r;
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of((ph_arch)(i % 3), PH_POS_ROPE, 4, all[i / 3].kv);
        ph_model *m = make(ctx, &c);
        outputs_of(m, before);
        convert(m, all[i / 3].to, (ph_conversion){0}, &r);
        double found = distance(m, before);
        CHECK(found <= EXACT, "%s: outputs change by %g", all[i / 3].to, found);
        CHECK(r->distance <= EXACT && isnan(r->sites[0].key_error), "%s: distance %g",
              all[i / 3].to, r->distance);
        CHECK(m->config.kv_heads == all[i / 3].kv &&
                  !strcmp(m->config.variant, all[i / 3].to),
              "%d heads of %s", m->config.kv_heads, m->config.variant);
        ph_conversion_report_free(r);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* Only one factor of what dcmha adds is 0, so the other has a gradient. */
static void dcmha_can_learn(void)
{
    ph_ctx *ctx = open_ctx();
    ph_config c = config_of(PH_ARCH_DECODER, PH_POS_NONE, 4, 4);
    ph_model *m = make(ctx, &c);
    convert(m, "dcmha:rank=2", (ph_conversion){.seed = 3}, NULL);
    int index = ph_sublayer_param(m, &m->stacks[0].sublayers[0], "dc_w2");
    const ph_weight *p = &m->params[index];
    CHECK(p->dims[2] == 4 && p->dims[3] == 4, "dc_w2 (.., %d, %d)", p->dims[2],
          p->dims[3]);
    for (size_t i = 0; i < p->count; i++) {
        int second = i % 16 >= 8; /* w1 (rank, heads), then w2 */
        CHECK((m->block[p->at + i] == 0) == second, "element %zu is %g", i,
              (double)m->block[p->at + i]);
    }
    ph_model_free(m);
    ph_close(ctx);
}

/* ---- variants that change something ------------------------------------------------ */

/* Fewer heads, or other weights: the outputs are others, and the report says so. */
static void something_changes(void)
{
    static const char *const to[] = {"moh:shared=1,top=1", "moh-norm:shared=1,top=1",
                                     "entmax", "sparsemax", "mohsa:overlap=3"};
    for (size_t i = 0; i < sizeof to / sizeof to[0]; i++) {
        float before[TOKENS * DIM];
        ph_conversion_report *r;
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of(PH_ARCH_DECODER, PH_POS_LEARNED, 4, 4);
        ph_model *m = make(ctx, &c);
        outputs_of(m, before);
        convert(m, to[i], (ph_conversion){0}, &r);
        CHECK(distance(m, before) > BROKEN && r->distance > BROKEN, "%s changes %g",
              to[i], distance(m, before));
        CHECK(r->converted_loss != r->loss, "%s: the same loss", to[i]);
        ph_conversion_report_free(r);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* ---- overlapping heads ------------------------------------------------------------- */

enum { HEADS = 4, HEAD = 8, OVERLAP = 3, WINDOW = HEAD + 2 * OVERLAP };

/* Two computations of the same function, each of the roundings of convert_bed.h with
   WINDOW = 14 terms in the scores and 4 * 14 in wo: 2 * (3 * 24 + 56 + 14 + 12 + 72)
   = 452, doubled four times: 2 * 16 * 452 * 2^-24. */
#define WINDOWS 8.7e-4

/* Heads of size WINDOW from rows of all heads side by side, (rows, HEADS * HEAD): own and
   neighbours' elements, or 0 beyond the ends. */
static void widen(const double *heads, int rows, double *windows)
{
    for (int h = 0; h < HEADS; h++)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < WINDOW; i++) {
                int at = h * HEAD + i - OVERLAP;
                int inside = at >= 0 && at < HEADS * HEAD;
                int from = (at / HEAD * rows + r) * HEAD + at % HEAD;
                *windows++ = inside ? heads[from] : 0;
            }
}

/* Plain heads as large as the windows, with copies of the neighbours' weights; rows of wo
   beyond a head's own elements stay 0. */
static void widen_site(const ph_convert_site *site)
{
    ph_chain chain = {.ctx = site->from->ctx};
    ph_head_weights old, new;
    CHECK(ph_head_weights_load(&old, site, &chain) == PH_OK, "no weights");
    new = old, new.dim = WINDOW;
    CHECK(ph_head_weights_take(&new, &chain) == PH_OK, "no memory");
    widen(old.q, DIM + 1, new.q);
    widen(old.k, DIM + 1, new.k);
    widen(old.v, DIM + 1, new.v);
    for (int h = 0; h < HEADS; h++)
        memcpy(ph_head_o(&new, h) + OVERLAP * DIM, ph_head_o(&old, h),
               HEAD * DIM * sizeof *old.o);
    ph_head_weights_store(&new, site);
    ph_chain_free(&chain);
}

static ph_model *make_wide(ph_ctx *ctx, const ph_config *c, const ph_model *from)
{
    ph_config wide = *c;
    wide.head_dim = WINDOW;
    wide.attn_scale = (float)(1 / sqrt(HEAD));
    ph_model *m = make(ctx, &wide);
    ph_model_copy_same(from, m);
    for (int i = 0; i < m->stack_count; i++)
        for (int s = 0; s < m->stacks[i].count; s++) {
            ph_convert_site site = {.from = from,
                                    .to = m,
                                    .old = &from->stacks[i].sublayers[s],
                                    .new = &m->stacks[i].sublayers[s]};
            if (site.old->kind != PH_SUBLAYER_FEED) widen_site(&site);
        }
    return m;
}

static void windows_are_wide_heads(void)
{
    for (int arch = 0; arch < 3; arch++) {
        float plain[TOKENS * DIM], wide[TOKENS * DIM];
        ph_ctx *ctx = open_ctx();
        ph_config c = config_of((ph_arch)arch, PH_POS_LEARNED, HEADS, HEADS);
        ph_model *m = make(ctx, &c), *reference = make_wide(ctx, &c, m);
        outputs_of(m, plain);
        outputs_of(reference, wide);
        convert(m, "mohsa:overlap=3", (ph_conversion){0}, NULL);
        CHECK(distance(m, wide) <= WINDOWS, "off by %g", distance(m, wide));
        CHECK(distance(m, plain) > BROKEN, "nothing changes: %g", distance(m, plain));
        ph_model_free(reference);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* Where queries are 0 in the elements that neighbours share, scores are those of plain
   heads, and so is all else. */
static void borders_of_zero(void)
{
    float before[TOKENS * DIM];
    ph_ctx *ctx = open_ctx();
    ph_config c = config_of(PH_ARCH_DECODER, PH_POS_NONE, HEADS, HEADS);
    ph_model *m = make(ctx, &c);
    for (int s = 0; s < m->stacks[0].count; s++) {
        const ph_sublayer *sublayer = &m->stacks[0].sublayers[s];
        if (sublayer->kind == PH_SUBLAYER_FEED) continue;
        float *w = m->block + m->params[ph_sublayer_param(m, sublayer, "wq")].at;
        float *b = m->block + m->params[ph_sublayer_param(m, sublayer, "bq")].at;
        for (int i = 0; i < HEADS * HEAD; i++) {
            int edge = i % HEAD < OVERLAP || i % HEAD >= HEAD - OVERLAP;
            for (int r = 0; edge && r < DIM; r++) w[r * HEADS * HEAD + i] = 0;
            if (edge) b[i] = 0;
        }
    }
    outputs_of(m, before);
    convert(m, "mohsa:overlap=3", (ph_conversion){0}, NULL);
    CHECK(distance(m, before) <= WINDOWS, "outputs change by %g", distance(m, before));
    ph_model_free(m);
    ph_close(ctx);
}

static const check_case cases[] = {{"nothing_changes", nothing_changes},
                                   {"dcmha_can_learn", dcmha_can_learn},
                                   {"something_changes", something_changes},
                                   {"windows_are_wide_heads", windows_are_wide_heads},
                                   {"borders_of_zero", borders_of_zero},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
