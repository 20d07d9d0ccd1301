/*
 * clusters.c - distances between heads; see polyhead_clusters.h. plane.c makes points and
 * clusters of them.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/ctx.h"
#include "base/size.h"
#include "heads/plane.h"
#include "io/io.h"
#include "polyhead_clusters.h"

struct ph_clusters {
    ph_io hooks;
    int heads;
    int64_t rows;
    double *distances; /* (heads, heads); sums until the end, above the diagonal */
    double *smooth;    /* (heads, capacity) one row of each head */
    double *entropy;   /* (heads) of it */
    int capacity, keys;
    double *points; /* (heads, 2) */
    int *cluster;   /* (heads) */
    int count;
    double stress;
};

/* ---- distances --------------------------------------------------------------------- */

static double entropy_of(const double *p, int keys)
{
    double sum = 0;
    for (int j = 0; j < keys; j++) sum -= p[j] * log(p[j]);
    return sum;
}

static ph_status grow(ph_clusters *c, int keys, const ph_io *io)
{
    size_t bytes = 0;
    if (keys <= c->capacity) return PH_OK;
    if (ph_size_mul((size_t)c->heads * sizeof(double), (size_t)keys, &bytes)) bytes = 0;
    double *more = bytes ? ph_io_alloc(&c->hooks, bytes) : NULL;
    if (!more) return ph_io_no_memory(io, bytes, "a row of every head");
    ph_io_release(&c->hooks, c->smooth);
    c->smooth = more, c->capacity = keys;
    return PH_OK;
}

/* JS(P, Q) = H((P + Q) / 2) - (H(P) + H(Q)) / 2, so a pair costs one logarithm per key.
   An item owns the pairs of its head with those after it. */
static void add_pairs(void *user, int lane, int a)
{
    ph_clusters *c = user;
    const double *p = c->smooth + (size_t)a * (size_t)c->capacity;
    (void)lane;
    for (int b = a + 1; b < c->heads; b++) {
        const double *q = c->smooth + (size_t)b * (size_t)c->capacity;
        double mixed = 0;
        for (int j = 0; j < c->keys; j++) {
            double m = 0.5 * (p[j] + q[j]);
            mixed -= m * log(m);
        }
        double js = mixed - 0.5 * (c->entropy[a] + c->entropy[b]);
        c->distances[(size_t)a * (size_t)c->heads + (size_t)b] += fmax(js, 0);
    }
}

ph_status ph_clusters_add(ph_clusters *c, const float *weights, size_t stride, int keys,
                          ph_ctx *ctx, const ph_io *io)
{
    if (!c || !weights) return ph_io_null(io, "clusters or weights");
    if (keys < 1 || c->points)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "a row of %d keys%s", keys,
                          c->points ? " after the end" : ", expected at least one");
    PH_TRY(grow(c, keys, io));
    c->keys = keys;
    for (int h = 0; h < c->heads; h++) {
        double *p = c->smooth + (size_t)h * (size_t)c->capacity;
        for (int j = 0; j < keys; j++) {
            double w = (double)weights[(size_t)h * stride + (size_t)j];
            p[j] = 0.999 * (w > 0 && w <= 1 ? w : w > 1) + 0.001 / keys;
        }
        c->entropy[h] = entropy_of(p, keys);
    }
    if (ctx)
        ph_ctx_run(ctx, c->heads, add_pairs, c);
    else
        for (int a = 0; a < c->heads; a++) add_pairs(c, 0, a);
    c->rows++;
    return PH_OK;
}

/* ---- the end ----------------------------------------------------------------------- */

static void finish_distances(ph_clusters *c)
{
    size_t n = (size_t)c->heads;
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n; b++) {
            double mean = c->rows ? c->distances[a * n + b] / (double)c->rows : 0;
            c->distances[a * n + b] = c->distances[b * n + a] = mean;
        }
}

ph_status ph_clusters_end(ph_clusters *c, const ph_io *io)
{
    if (!c) return ph_io_null(io, "clusters");
    size_t n = (size_t)c->heads;
    if (c->points) return ph_io_fail(io, PH_BAD_ARGUMENT, "clusters were ended before");
    c->points = ph_io_alloc(&c->hooks, 2 * n * sizeof *c->points);
    c->cluster = ph_io_alloc(&c->hooks, n * sizeof *c->cluster);
    if (!c->points || !c->cluster)
        return ph_io_no_memory(io, 2 * n * sizeof *c->points, "a map of heads");
    finish_distances(c);
    PH_TRY(ph_plane_points(c->heads, c->distances, c->points, &c->stress, io));
    return ph_plane_clusters(c->heads, c->distances, PH_CLUSTERS_MOST, c->cluster,
                             &c->count, io);
}

double ph_clusters_distance(const ph_clusters *c, int a, int b)
{
    if (!c) return 0;
    return c->distances[(size_t)a * (size_t)c->heads + (size_t)b];
}

void ph_clusters_point(const ph_clusters *c, int head, double point[2])
{
    if (!c || !point) return;
    memcpy(point, c->points + 2 * (size_t)head, 2 * sizeof *point);
}

int ph_clusters_of(const ph_clusters *c, int head)
{
    return c ? c->cluster[head] : 0;
}

int ph_clusters_count(const ph_clusters *c)
{
    return c ? c->count : 0;
}

int ph_clusters_heads(const ph_clusters *c)
{
    return c ? c->heads : 0;
}

double ph_clusters_stress(const ph_clusters *c)
{
    return c ? c->stress : 0;
}

/* ---- making and freeing ------------------------------------------------------------ */

ph_status ph_clusters_create(ph_clusters **out, int heads, const ph_io *io)
{
    if (!out) return ph_io_null(io, "out");
    enum { MOST = 1 << 14 };
    *out = NULL;
    if (heads < 1 || heads > MOST)
        return ph_io_fail(io, PH_BAD_SHAPE, "%d heads, expected 1 to %d", heads,
                          (int)MOST);
    size_t n = (size_t)heads, bytes = n * n * sizeof(double);
    ph_clusters *c = ph_io_alloc(io, sizeof *c);
    if (!c) return ph_io_no_memory(io, sizeof *c, "clusters");
    *c = (ph_clusters){.hooks = ph_io_hooks(io), .heads = heads};
    c->distances = ph_io_alloc(&c->hooks, bytes);
    c->entropy = ph_io_alloc(&c->hooks, n * sizeof *c->entropy);
    if (c->distances && c->entropy) {
        memset(c->distances, 0, bytes);
        *out = c;
        return PH_OK;
    }
    ph_clusters_free(c);
    return ph_io_no_memory(io, bytes, "distances between heads");
}

void ph_clusters_free(ph_clusters *c)
{
    if (!c) return;
    ph_io hooks = c->hooks;
    void *const parts[] = {c->distances, c->smooth, c->entropy, c->points, c->cluster};
    for (int i = 0; i < 5; i++) ph_io_release(&hooks, parts[i]);
    ph_io_release(&hooks, c);
}
