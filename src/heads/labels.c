/*
 * labels.c - the names of measures, and the rules that label heads by them.
 *
 * Thresholds. Previous, next, separator, first token, punctuation: 0.5 and 0.6 as Clark
 * et al. used them. Broad: they used 3.8 nats for texts of about 128 tokens, which is 78
 * % of ln 128; relative to ln n it holds for any length. Positional (0.90) and links (10
 * points over the best offset): Voita et al. Rare, duplicate, induction: half of the rows
 * or of the weight, and three times chance; the literature has no threshold.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "heads/heads.h"

static const ph_measure_info measures[PH_MEASURES] = {
    [PH_PREV] = {"prev", "previous token", "share of the weight on the token before"},
    [PH_NEXT] = {"next", "next token", "share of the weight on the token after"},
    [PH_SELF] = {"self", "itself", "share of the weight on the token itself"},
    [PH_FIRST] = {"first", "first token", "share of the weight on the first token"},
    [PH_SEP] = {"sep", "separators", "share of the weight on separators"},
    [PH_PUNCT] = {"punct", "punctuation", "share of the weight on full stops and commas"},
    [PH_BARE_PREV] = {"bare_prev", "previous, without the first token",
                      "prev with the first token taken out and rows scaled back to 1"},
    [PH_BARE_NEXT] = {"bare_next", "next, without the first token",
                      "next with the first token taken out and rows scaled back to 1"},
    [PH_BARE_SELF] = {"bare_self", "itself, without the first token",
                      "self with the first token taken out and rows scaled back to 1"},
    [PH_BARE_SEP] = {"bare_sep", "separators, without the first token",
                     "sep with the first token taken out and rows scaled back to 1"},
    [PH_BARE_PUNCT] = {"bare_punct", "punctuation, without the first token",
                       "punct with the first token taken out and rows scaled back to 1"},
    [PH_BARE_DUPLICATE] = {"bare_duplicate", "duplicates, without the first token",
                           "duplicate with the first token taken out and rows scaled "
                           "back to 1"},
    [PH_BARE_INDUCTION] = {"bare_induction", "induction, without the first token",
                           "induction with the first token taken out and rows scaled "
                           "back to 1"},
    [PH_SEP_SEP] = {"sep_sep", "separators to separators",
                    "share of the weight on separators, rows of separators only"},
    [PH_REST_SEP] = {"rest_sep", "others to separators",
                     "share of the weight on separators, all other rows"},
    [PH_ENTROPY] = {"entropy", "entropy in nats", "mean over rows of -sum A ln A"},
    [PH_BREADTH] =
        {"breadth", "breadth",
         "entropy of a row divided by the largest it could have; 1 is uniform"},
    [PH_CONFIDENCE] = {"confidence", "confidence",
                       "mean over rows of the largest weight, separators left out"},
    [PH_DISTANCE] = {"distance", "mean distance",
                     "mean distance in tokens between a row and what it looks at"},
    [PH_POSITIONAL] = {"positional", "one fixed offset",
                       "share of rows whose largest weight is at the commonest offset"},
    [PH_DUPLICATE] = {"duplicate", "duplicate token",
                      "weight on earlier copies of the same token, rows that have one"},
    [PH_DUPLICATE_CHANCE] = {"duplicate_chance", "duplicate token by chance",
                             "what equal weights would put on earlier copies"},
    [PH_INDUCTION] = {"induction", "induction",
                      "weight just after earlier copies of the same token, such rows"},
    [PH_INDUCTION_CHANCE] = {"induction_chance", "induction by chance",
                             "what equal weights would put just after earlier copies"},
    [PH_PREFIX_ENTRY] = {"prefix_entry", "induction per entry",
                         "the weights of induction averaged over entries, not rows"},
    [PH_RAREST] = {"rarest", "rarest token",
                   "share of rows whose largest weight is on the rarest token"},
    [PH_RARE] = {"rare", "rare tokens",
                 "share of rows whose largest weight is on one of the two rarest tokens"},
    [PH_RARE_CHANCE] = {"rare_chance", "rare tokens by chance",
                        "what rows that pick at random would reach"},
    [PH_PATCH_DISTANCE] = {"patch_distance", "attended distance in pixels",
                           "mean distance in pixels between a patch and the patches it "
                           "attends to, by weight"},
    [PH_LINK] = {"link", "links",
                 "largest margin of a relation's accuracy over its best fixed offset"},
};

static const ph_label_rule rules[PH_LABELS] = {
    {'X', "link", "word links",
     "finds the partners of one relation at least 10 points better than the best fixed "
     "offset does (link >= 0.10)",
     PH_LINK, 1, 0.10, -1, -1, 10},
    {'I', "induction", "induction",
     "at least half of the weight just after earlier copies of the token, and 3 times "
     "chance (induction or bare_induction >= 0.50)",
     PH_INDUCTION, 1, 0.50, PH_INDUCTION_CHANCE, PH_BARE_INDUCTION, 4},
    {'D', "duplicate", "duplicate token",
     "at least half of the weight on earlier copies of the token, and 3 times chance "
     "(duplicate or bare_duplicate >= 0.50)",
     PH_DUPLICATE, 1, 0.50, PH_DUPLICATE_CHANCE, PH_BARE_DUPLICATE, 4},
    {'R', "rare", "rare tokens",
     "at least half of the rows look most at one of the two rarest tokens, and 3 times "
     "chance (rare >= 0.50)",
     PH_RARE, 1, 0.50, PH_RARE_CHANCE, -1, 4},
    {'P', "prev", "previous token",
     "more than half of the weight on the token before (prev or bare_prev > 0.50)",
     PH_PREV, 0, 0.50, -1, PH_BARE_PREV, 4},
    {'N', "next", "next token",
     "more than half of the weight on the token after (next or bare_next > 0.50)",
     PH_NEXT, 0, 0.50, -1, PH_BARE_NEXT, 4},
    {'T', "self", "itself",
     "more than half of the weight on the token itself (self or bare_self > 0.50)",
     PH_SELF, 0, 0.50, -1, PH_BARE_SELF, 4},
    {'O', "positional", "one fixed offset",
     "at least 90 of 100 rows look most at the same distance (positional >= 0.90)",
     PH_POSITIONAL, 1, 0.90, -1, -1, 4},
    {'E', "sep", "separators",
     "more than 0.6 of the weight on separators (sep or bare_sep > 0.60)",
     PH_SEP, 0, 0.60, -1, PH_BARE_SEP, 4},
    {'C', "punct", "punctuation",
     "more than 0.6 of the weight on full stops and commas (punct or bare_punct > 0.60)",
     PH_PUNCT, 0, 0.60, -1, PH_BARE_PUNCT, 4},
    {'S', "first", "sink (first token)",
     "more than 0.6 of the weight on the first token (first > 0.60)", PH_FIRST, 0, 0.60,
     -1, -1, 4},
    {'B', "broad", "broad",
     "spread over most of what it sees (breadth > 0.78 of a uniform row)", PH_BREADTH, 0,
     0.78, -1, -1, 4},
};

const ph_measure_info *ph_measure_about(ph_measure measure)
{
    return (unsigned)measure < PH_MEASURES ? &measures[measure] : NULL;
}

const ph_label_rule *ph_label_rules(int i)
{
    return i >= 0 && i < PH_LABELS ? &rules[i] : NULL;
}

/* Of the weight, what must not be on the first token for the rest to say something. */
static const double LEAST_REST = 0.10;

static int fires(const ph_label_rule *rule, const ph_head_stats *head, int measure)
{
    double value = head->value[measure];
    if (isnan(value) || head->count[measure] < rule->min_count) return 0;
    if (rule->at ? value < rule->threshold : value <= rule->threshold) return 0;
    return rule->chance < 0 || value >= PH_TIMES_CHANCE * head->value[rule->chance];
}

static int fires_bare(const ph_label_rule *rule, const ph_head_stats *head)
{
    double rest = 1 - head->value[PH_FIRST];
    return rule->bare >= 0 && rest >= LEAST_REST && fires(rule, head, rule->bare);
}

/* A head that looks at itself is at one fixed offset, and where tokens repeat it fires
   the rules about repeats too: it is called by what it does. */
static void put_self_first(ph_label *labels, int count)
{
    for (int i = 1; i < count; i++) {
        if (labels[i].rule->measure != PH_SELF) continue;
        ph_label self = labels[i];
        memmove(labels + 1, labels, (size_t)i * sizeof *labels);
        labels[0] = self;
    }
}

int ph_head_labels(const ph_head_stats *head, ph_label labels[PH_MAX_LABELS])
{
    if (!head || !labels) return 0;
    int count = 0;
    for (int i = 0; i < PH_LABELS; i++) {
        const ph_label_rule *rule = &rules[i];
        if (fires(rule, head, (int)rule->measure))
            labels[count++] = (ph_label){rule, head->value[rule->measure], 0};
        else if (fires_bare(rule, head))
            labels[count++] = (ph_label){rule, head->value[rule->bare], 1};
    }
    put_self_first(labels, count);
    return count;
}

int ph_label_why(const ph_label *label, const ph_head_stats *head,
                 const char *const *relations, char *text, size_t size)
{
    if (!text) size = 0;
    if (!label || !head) return ph_format(text, size, "%s", "");
    const ph_label_rule *rule = label->rule;
    char detail[96] = "";
    if (rule->measure == PH_POSITIONAL)
        snprintf(detail, sizeof detail, head->top_offset ? " %+d in" : " %d in",
                 head->top_offset);
    if (rule->measure == PH_LINK && relations)
        snprintf(detail, sizeof detail, " %s", relations[head->relation]);
    return ph_format(text, size, "%s%s %.2f %s %.2f",
                     measures[label->bare ? rule->bare : (int)rule->measure].key, detail,
                     label->value, rule->at ? ">=" : ">", rule->threshold);
}
