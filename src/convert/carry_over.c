/*
 * carry_over.c - plain heads become heads of a variant that has their weights; see
 * convert.h.
 *
 * q, k, v and everything else of the same name and size was copied with the model. What
 * the variant adds begins so that as little as possible changes:
 *
 *     talking   identities                             nothing changes
 *     dcmha     w2 and g are 0; w1 is random           nothing changes, and w2 learns
 *     gated     w_gate 0: gates of 1/2; wo is doubled  nothing changes
 *     moh       routers 0: gates of 1                  heads that are not used are lost
 *     mohsa     rows of wo for elements of other       scores see the other heads,
 *               heads are 0                            values do not
 *     entmax    alpha_logit 0: alpha is 1.5            weights
 */
#include <stdio.h>
#include <string.h>

#include "convert/convert.h"

static const char *const names[] = {"mha",   "entmax", "sparsemax", "talking", "dcmha",
                                    "gated", "moh",    "moh-norm",  "mohsa"};

enum { NAMES = sizeof names / sizeof names[0] };

static int is_known(const char *name, size_t length)
{
    for (int i = 0; i < NAMES; i++)
        if (strlen(names[i]) == length && !memcmp(names[i], name, length)) return 1;
    return 0;
}

ph_status ph_carry_check(ph_ctx *ctx, const char *variants)
{
    char known[160] = "";
    for (const char *part = variants;; part += 1) {
        if (!is_known(part, strcspn(part, ":+;"))) break;
        part += strcspn(part, "+;");
        if (!*part) return PH_OK;
    }
    for (int i = 1, n = 0; i < NAMES; i++)
        n += snprintf(known + n, sizeof known - (size_t)n, ", %s", names[i]);
    return ph_fail(ctx, PH_UNSUPPORTED,
                   "weights cannot be converted to '%.40s', expected gqa:G, mqa, mha, "
                   "collab:R%s",
                   variants, known);
}

/* Rows of wo go to those of a head's own elements, in the middle of its window. */
static void carry_output(const ph_convert_site *site, float size)
{
    int old = ph_sublayer_param(site->from, site->old, "wo");
    int new = ph_sublayer_param(site->to, site->new, "wo");
    const ph_weight *p = &site->to->params[new];
    int heads = site->from->config.heads, dim = site->from->params[old].dims[0] / heads;
    int window = p->dims[0] / heads, overlap = (window - dim) / 2;
    float *wo = site->to->block + p->at;
    for (int h = 0; h < heads; h++)
        ph_model_rows(site->from, old, h * dim, dim,
                      wo + (size_t)(h * window + overlap) * (size_t)p->dims[1]);
    for (size_t i = 0; i < p->count; i++) wo[i] *= size;
}

/* y = gelu(x dc_w1) dc_w2 is w1, then w2 of a token. Of their product one factor may be
   0, not both: neither would have a gradient. */
static void clear_second_half(const ph_weight *dc_w2, float *x)
{
    size_t row = (size_t)dc_w2->dims[2] * (size_t)dc_w2->dims[3];
    for (size_t at = row / 2; at < dc_w2->count; at += row)
        memset(x + at, 0, row / 2 * sizeof *x);
}

void ph_carry_over(const ph_convert_site *site, uint64_t seed)
{
    ph_model *m = site->to;
    float size = 1;
    for (int i = site->new->first; i < site->new->first + site->new->count; i++) {
        const ph_weight *p = &m->params[i];
        const char *name = strrchr(p->name, '.') + 1;
        int second = !strcmp(name, "dc_w2"), gate = !strcmp(name, "w_gate");
        if (p->start == PH_START_EYE || second || !strcmp(name, "dc_w1"))
            ph_model_start(m, i, seed);
        if (second) clear_second_half(p, m->block + p->at);
        if (gate) size = 2; /* times a gate of 1/2 */
    }
    carry_output(site, size);
}
