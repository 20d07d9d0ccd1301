/*
 * grouping.c - which heads are merged: groups of equal size whose members are similar.
 *
 * Up to 16 heads all partitions are compared: the best partition of a set of heads is a
 * group that has the first of them, and the best partition of the rest. Beyond that,
 * simulated annealing exchanges heads of two groups.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "convert/convert.h"

enum { EXACT_HEADS = 16, STARTS = 20, STEPS = 20000 };

size_t ph_grouping_work(int heads)
{
    return heads <= EXACT_HEADS ? (size_t)3 << heads : (size_t)heads;
}

double ph_grouping_score(int heads, const double *similarity, const int *group_of)
{
    double sum = 0;
    for (int i = 0; i < heads; i++)
        for (int j = 0; j < i; j++)
            if (group_of[i] == group_of[j]) sum += similarity[i * heads + j];
    return sum;
}

/* ---- all partitions ---------------------------------------------------------------- */

typedef struct partitions {
    int heads, size; /* of a group */
    double *group;   /* (2^heads) score of a set as one group */
    double *best;    /* (2^heads) of its best partition */
    double *first;   /* (2^heads) the group of its first head there */
} partitions;

static int bits_of(unsigned set)
{
    int count = 0;
    for (; set; set &= set - 1) count++;
    return count;
}

static int lowest(unsigned set)
{
    int i = 0;
    while (!(set >> i & 1)) i++;
    return i;
}

static void score_sets(const partitions *p, const double *similarity)
{
    p->group[0] = 0;
    for (unsigned set = 1; set < 1u << p->heads; set++) {
        int i = lowest(set);
        unsigned rest = set & (set - 1);
        p->group[set] = p->group[rest];
        for (int j = i + 1; j < p->heads; j++)
            if (rest >> j & 1) p->group[set] += similarity[i * p->heads + j];
    }
}

/* Groups with the first head of the set: that head and a subset of the others. */
static void partition_set(const partitions *p, unsigned set)
{
    unsigned first = set & (~set + 1), others = set ^ first;
    p->best[set] = -INFINITY;
    for (unsigned some = others;; some = (some - 1) & others) {
        if (bits_of(some) == p->size - 1) {
            unsigned group = some | first;
            double score = p->group[group] + p->best[set ^ group];
            if (score > p->best[set]) p->best[set] = score, p->first[set] = (double)group;
        }
        if (!some) break;
    }
}

static void group_exactly(int heads, int size, const double *similarity, int *group_of,
                          double *work)
{
    size_t sets = (size_t)1 << heads;
    const partitions p = {heads, size, work, work + sets, work + 2 * sets};
    score_sets(&p, similarity);
    p.best[0] = 0;
    for (unsigned set = 1; set < sets; set++)
        if (bits_of(set) % size == 0) partition_set(&p, set);
    unsigned left = (unsigned)sets - 1;
    for (int number = 0; left; number++) {
        unsigned group = (unsigned)p.first[left];
        for (int i = 0; i < heads; i++)
            if (group >> i & 1) group_of[i] = number;
        left ^= group;
    }
}

/* ---- simulated annealing ----------------------------------------------------------- */

static double uniform(uint64_t key, uint32_t n)
{
    return (ph_rng_at(key, n) + 0.5) / 4294967296.0;
}

/* What exchanging the groups of heads a and b adds to the score. */
static double gain_of(int heads, const double *s, const int *group_of, int a, int b)
{
    double gain = 0;
    for (int i = 0; i < heads; i++) {
        double difference = s[b * heads + i] - s[a * heads + i];
        if (i == a || i == b) continue;
        if (group_of[i] == group_of[a]) gain += difference;
        if (group_of[i] == group_of[b]) gain -= difference;
    }
    return gain;
}

static void shuffle(int heads, int *list, uint64_t key)
{
    for (int i = heads - 1; i > 0; i--) {
        int j = (int)(uniform(key, (uint32_t)i) * (i + 1)), t = list[i];
        list[i] = list[j], list[j] = t;
    }
}

static void anneal(int heads, const double *s, double deviation, uint64_t key,
                   int *group_of)
{
    for (int step = 0; step < STEPS; step++) {
        uint32_t n = 3 * (uint32_t)step;
        int a = (int)(uniform(key, n) * heads), b = (int)(uniform(key, n + 1) * heads);
        if (group_of[a] == group_of[b]) continue;
        double temperature = deviation * pow(1e-4, (double)step / STEPS);
        double gain = gain_of(heads, s, group_of, a, b);
        if (gain <= 0 && !(uniform(key, n + 2) < exp(gain / temperature))) continue;
        int t = group_of[a];
        group_of[a] = group_of[b], group_of[b] = t;
    }
}

/* Standard deviation: the scale of a gain. */
static double deviation_of(int heads, const double *s)
{
    double sum = 0, squares = 0;
    int pairs = heads * (heads - 1) / 2;
    for (int i = 0; i < heads; i++)
        for (int j = 0; j < i; j++)
            sum += s[i * heads + j], squares += s[i * heads + j] * s[i * heads + j];
    double variance = squares / pairs - sum / pairs * (sum / pairs);
    return sqrt(variance > 0 ? variance : 0) + 1e-300;
}

static void group_annealed(int heads, int size, const double *similarity, uint64_t seed,
                           int *group_of, double *work)
{
    int *trial = (int *)work;
    double best = -INFINITY, deviation = deviation_of(heads, similarity);
    for (int start = 0; start < STARTS; start++) {
        uint64_t key = ph_rng_key(seed, (uint64_t)start, 0, 0);
        for (int i = 0; i < heads; i++) trial[i] = i / size;
        if (start) shuffle(heads, trial, ph_rng_key(seed, (uint64_t)start, 1, 0));
        anneal(heads, similarity, deviation, key, trial);
        double score = ph_grouping_score(heads, similarity, trial);
        if (score <= best) continue;
        best = score;
        memcpy(group_of, trial, (size_t)heads * sizeof *trial);
    }
}

/* ---- both -------------------------------------------------------------------------- */

/* Numbers groups by their first heads. */
static void renumber(int heads, int groups, int *group_of)
{
    for (int i = 0, next = 0; i < heads && next < groups; i++) {
        int old = group_of[i];
        if (old < next) continue;
        for (int j = i; j < heads; j++)
            if (group_of[j] == old || group_of[j] == next)
                group_of[j] = group_of[j] == old ? next : old;
        next++;
    }
}

void ph_group_heads(int heads, int groups, const double *similarity, uint64_t seed,
                    int *group_of, double *work)
{
    int size = heads / groups;
    for (int i = 0; i < heads; i++) group_of[i] = i / size;
    if (groups == 1 || groups == heads) return;
    if (heads <= EXACT_HEADS)
        group_exactly(heads, size, similarity, group_of, work);
    else
        group_annealed(heads, size, similarity, seed, group_of, work);
    renumber(heads, groups, group_of);
}
