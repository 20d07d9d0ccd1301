/*
 * plane.h - distances as points in the plane, and as clusters.
 */
#ifndef PH_HEADS_PLANE_H
#define PH_HEADS_PLANE_H

#include "polyhead_io.h"

/* Eigenvalues of a symmetric matrix (n, n), the largest first, and its eigenvectors as
   columns, by Jacobi's rotations. `a` is destroyed. n is at most PH_JACOBI_MOST. */
enum { PH_JACOBI_MOST = 16 };
void ph_jacobi(int n, double *a, double *values, double *vectors);

/* n points (n, 2) whose distances are close to the given ones (n, n), centred, the
   largest coordinate of each axis positive. Gives the stress. */
ph_status ph_plane_points(int n, const double *distances, double *points, double *stress,
                          const ph_io *io);

/* Clusters by average linkage, as many as the silhouette prefers, up to `most`; the
   largest first. */
ph_status ph_plane_clusters(int n, const double *distances, int most, int *cluster,
                            int *count, const ph_io *io);

#endif
