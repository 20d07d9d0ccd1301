/*
 * polyhead_clusters.h - which heads attend alike: distances, a map of heads, clusters
 *
 *     ph_clusters_create   for so many heads
 *     ph_clusters_add      one row of the weights of every head, over the same keys
 *     ph_clusters_end      points in the plane, and clusters
 *     ph_clusters_write    the map as an SVG figure
 *
 * The distance of two heads is the Jensen-Shannon divergence of their rows in nats, 0 to
 * ln 2, averaged over rows; rows are smoothed first, 0.999 p + 0.001 / keys. Points come
 * from multidimensional scaling: the classical solution, then steps of SMACOF that lower
 * the stress. Clusters come from average linkage; of 2 to 12 clusters the number with the
 * largest silhouette is taken, and one cluster where that is at most 0.25. After Clark et
 * al. 2019, section 6. The same rows give the same bits for any number of threads.
 *
 * The rules of polyhead.h hold here too.
 */
#ifndef POLYHEAD_CLUSTERS_H
#define POLYHEAD_CLUSTERS_H

#include "polyhead_io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ph_clusters ph_clusters;

PH_API ph_status ph_clusters_create(ph_clusters **out, int heads, const ph_io *io);
PH_API void ph_clusters_free(ph_clusters *clusters); /* accepts NULL */

/* One row of every head: head h has weights[h * stride] and the keys - 1 after it. Its
   threads share the work if there is a ctx. */
PH_API ph_status ph_clusters_add(ph_clusters *clusters, const float *weights,
                                 size_t stride, int keys, ph_ctx *ctx, const ph_io *io);

/* After the last row; may be called once. */
PH_API ph_status ph_clusters_end(ph_clusters *clusters, const ph_io *io);

enum { PH_CLUSTERS_MOST = 12 };

/* After ph_clusters_end. Clusters are counted from 0, the largest first. */
PH_API double ph_clusters_distance(const ph_clusters *clusters, int a, int b);
PH_API void ph_clusters_point(const ph_clusters *clusters, int head, double point[2]);
PH_API int ph_clusters_of(const ph_clusters *clusters, int head);
PH_API int ph_clusters_count(const ph_clusters *clusters);
PH_API int ph_clusters_heads(const ph_clusters *clusters); /* as they were created for */

/* sqrt(sum (distance - distance of the points)^2 / sum distance^2): 0 is a map without
   distortion. */
PH_API double ph_clusters_stress(const ph_clusters *clusters);

/* The map as SVG, whole or not at all. names (heads): what each point is called. */
PH_API ph_status ph_clusters_write(const ph_clusters *clusters, const char *path,
                                   const char *title, const char *const *names,
                                   const ph_io *io);

#ifdef __cplusplus
}
#endif
#endif
