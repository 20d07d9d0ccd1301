/*
 * heads_dense.c - the numbers of one head, dense; see heads_dense.h.
 *
 * Selectors are matrices S; every share is the sum of A * S over the counted rows,
 * divided by how many they are.
 */
#include "heads_dense.h"

#include <math.h>

static int counted(const dense *d, int i)
{
    double sum = 0;
    for (int j = 0; j < d->n; j++) sum += d->a[i][j];
    return sum > 0 && !(d->causal && i == 0);
}

/* Mean over rows that `eligible` names of the weight that `target` selects. */
typedef int selector(const dense *d, int i, int j);

static double mean_mass(const dense *d, selector *eligible, selector *target, int entries)
{
    double sum = 0;
    int count = 0;
    for (int i = 0; i < d->n; i++) {
        int targets = 0;
        if (!counted(d, i) || !eligible(d, i, 0)) continue;
        for (int j = 0; j < d->n; j++) {
            if (!target(d, i, j)) continue;
            sum += d->a[i][j];
            targets++;
        }
        count += entries ? targets : 1;
    }
    return count ? sum / count : (double)NAN;
}

static int every(const dense *d, int i, int j)
{
    return (void)d, (void)i, (void)j, 1;
}
static int at_prev(const dense *d, int i, int j)
{
    return (void)d, j == i - 1;
}
static int at_next(const dense *d, int i, int j)
{
    return (void)d, j == i + 1;
}
static int at_self(const dense *d, int i, int j)
{
    return (void)d, j == i;
}
static int at_first(const dense *d, int i, int j)
{
    return (void)d, (void)i, j == 0;
}
static int at_sep(const dense *d, int i, int j)
{
    return (void)i, d->kind[j] & 1;
}
static int at_punct(const dense *d, int i, int j)
{
    return (void)i, d->kind[j] & 2;
}
static int row_sep(const dense *d, int i, int j)
{
    return (void)j, d->kind[i] & 1;
}
static int row_rest(const dense *d, int i, int j)
{
    return !row_sep(d, i, j);
}

static int at_duplicate(const dense *d, int i, int j)
{
    return j < i && d->id[j] == d->id[i];
}

static int at_induction(const dense *d, int i, int j)
{
    return j >= 1 && j - 1 < i && d->id[j - 1] == d->id[i];
}

static int has_duplicate(const dense *d, int i, int unused)
{
    int any = 0;
    (void)unused;
    for (int j = 0; j < i; j++) any |= d->id[j] == d->id[i];
    return any;
}

/* The map without column 0, rows scaled back to 1; rows that had nothing else are zero.
   */
static dense without_first(const dense *d)
{
    dense bare = *d;
    for (int i = 0; i < d->n; i++) {
        double rest = 0;
        bare.a[i][0] = 0;
        for (int j = 1; j < d->n; j++) rest += d->a[i][j];
        for (int j = 1; j < d->n; j++) bare.a[i][j] = rest > 1e-6 ? d->a[i][j] / rest : 0;
    }
    return bare;
}

static double row_entropy(const dense *d, int i)
{
    double h = 0;
    for (int j = 0; j < d->n; j++)
        if (d->a[i][j] > 0) h -= d->a[i][j] * log(d->a[i][j]);
    return h;
}

static int row_best(const dense *d, int i, int no_sep, int no_self)
{
    int best = -1;
    for (int j = 0; j < (d->causal ? i + 1 : d->n); j++) {
        if ((no_sep && d->kind[j] & 1) || (no_self && j == i)) continue;
        if (best < 0 || d->a[i][j] > d->a[i][best]) best = j;
    }
    return best;
}

static void dense_spread(const dense *d, double *value)
{
    double entropy = 0, breadth = 0, confidence = 0, distance = 0;
    int rows = 0, wide = 0, sure = 0;
    for (int i = 0; i < d->n; i++) {
        int seen = d->causal ? i + 1 : d->n;
        if (!counted(d, i)) continue;
        rows++;
        entropy += row_entropy(d, i);
        if (seen >= 2) breadth += row_entropy(d, i) / log(seen), wide++;
        for (int j = 0; j < d->n; j++) distance += d->a[i][j] * fabs((double)(j - i));
        if (d->kind[i] & 1) continue;
        confidence += row_best(d, i, 1, 0) >= 0 ? d->a[i][row_best(d, i, 1, 0)] : 0;
        sure++;
    }
    value[PH_ENTROPY] = rows ? entropy / rows : (double)NAN;
    value[PH_DISTANCE] = rows ? distance / rows : (double)NAN;
    value[PH_BREADTH] = wide ? breadth / wide : (double)NAN;
    value[PH_CONFIDENCE] = sure ? confidence / sure : (double)NAN;
}

/* Between centres of patches, which the class tokens before them do not have. */
static double patch_distance(const dense *d)
{
    double sum = 0;
    int rows = 0, side = d->patch_size, columns = d->patch_columns;
    for (int i = d->patch_first; columns && i < d->n; i++) {
        double weight = 0, distance = 0;
        int a = i - d->patch_first;
        if (!counted(d, i)) continue;
        for (int j = d->patch_first; j < d->n; j++) {
            int b = j - d->patch_first;
            weight += d->a[i][j];
            distance += d->a[i][j] *
                        hypot((a % columns + 0.5) * side - (b % columns + 0.5) * side,
                              (a / columns + 0.5) * side - (b / columns + 0.5) * side);
        }
        if (weight <= 1e-6) continue;
        sum += distance / weight;
        rows++;
    }
    return rows ? sum / rows : (double)NAN;
}

static void dense_positional(const dense *d, double *value, int *offset)
{
    int most = 0;
    value[PH_POSITIONAL] = (double)NAN;
    for (int step = 0; step <= PH_REACH; step++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int o = sign * step, hits = 0, possible = 0;
            for (int i = 0; i < d->n; i++) {
                int inside = i + o >= 0 && i + o < (d->causal ? i + 1 : d->n);
                if (!counted(d, i) || !inside) continue;
                possible++;
                hits += row_best(d, i, 0, 0) == i + o;
            }
            if (hits <= most) continue;
            most = hits;
            *offset = o;
            value[PH_POSITIONAL] = (double)hits / possible;
        }
}

static void dense_rare(const dense *d, double *value)
{
    int one = 0, two = -1, rows = 0;
    double first = 0, either = 0, chance = 0;
    value[PH_RAREST] = value[PH_RARE] = value[PH_RARE_CHANCE] = (double)NAN;
    for (int j = 1; j < d->n; j++)
        if (d->rank[j] > d->rank[one]) one = j;
    for (int j = 0; j < d->n; j++)
        if (j != one && (two < 0 || d->rank[j] > d->rank[two])) two = j;
    if (d->rank[one] < 500) return;
    for (int i = 0; i < d->n; i++) {
        int best = row_best(d, i, 0, 0), seen = d->causal ? i + 1 : d->n;
        if (!counted(d, i)) continue;
        rows++;
        first += best == one;
        either += best == one || best == two;
        chance += (double)((one < seen) + (two >= 0 && two < seen)) / seen;
    }
    if (rows == 0) return;
    value[PH_RAREST] = first / rows;
    value[PH_RARE] = either / rows;
    value[PH_RARE_CHANCE] = chance / rows;
}

static double dense_chance(const dense *d)
{
    double sum = 0;
    int rows = 0;
    for (int i = 0; i < d->n; i++) {
        int targets = 0;
        if (!counted(d, i) || !has_duplicate(d, i, 0)) continue;
        for (int j = 0; j < i; j++) targets += at_duplicate(d, i, j);
        sum += (double)targets / (d->causal ? i + 1 : d->n);
        rows++;
    }
    return rows ? sum / rows : (double)NAN;
}

void dense_all(const dense *d, double value[PH_MEASURES], int *offset)
{
    static dense bare;
    bare = without_first(d);
    value[PH_PATCH_DISTANCE] = patch_distance(d);
    value[PH_PREV] = mean_mass(d, every, at_prev, 0);
    value[PH_NEXT] = mean_mass(d, every, at_next, 0);
    value[PH_SELF] = mean_mass(d, every, at_self, 0);
    value[PH_FIRST] = mean_mass(d, every, at_first, 0);
    value[PH_SEP] = mean_mass(d, every, at_sep, 0);
    value[PH_PUNCT] = mean_mass(d, every, at_punct, 0);
    value[PH_BARE_PREV] = mean_mass(&bare, every, at_prev, 0);
    value[PH_BARE_NEXT] = mean_mass(&bare, every, at_next, 0);
    value[PH_BARE_SELF] = mean_mass(&bare, every, at_self, 0);
    value[PH_BARE_SEP] = mean_mass(&bare, every, at_sep, 0);
    value[PH_BARE_PUNCT] = mean_mass(&bare, every, at_punct, 0);
    value[PH_BARE_DUPLICATE] = mean_mass(&bare, has_duplicate, at_duplicate, 0);
    value[PH_BARE_INDUCTION] = mean_mass(&bare, has_duplicate, at_induction, 0);
    value[PH_SEP_SEP] = mean_mass(d, row_sep, at_sep, 0);
    value[PH_REST_SEP] = mean_mass(d, row_rest, at_sep, 0);
    value[PH_DUPLICATE] = mean_mass(d, has_duplicate, at_duplicate, 0);
    value[PH_INDUCTION] = mean_mass(d, has_duplicate, at_induction, 0);
    value[PH_PREFIX_ENTRY] = mean_mass(d, has_duplicate, at_induction, 1);
    value[PH_DUPLICATE_CHANCE] = value[PH_INDUCTION_CHANCE] = dense_chance(d);
    value[PH_LINK] = (double)NAN;
    dense_spread(d, value);
    dense_positional(d, value, offset);
    dense_rare(d, value);
}
