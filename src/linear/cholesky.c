/*
 * cholesky.c - Cholesky factors of small matrices, and what is solved by them.
 */
#include <math.h>
#include <stddef.h>

#include "linear/linear.h"

int ph_cholesky(int n, double *a, double ridge)
{
    for (int i = 0; i < n; i++) {
        double *row = a + (size_t)i * (size_t)n;
        for (int j = 0; j < i; j++) {
            const double *other = a + (size_t)j * (size_t)n;
            row[j] = (row[j] - ph_dot(j, row, other)) / other[j];
        }
        double rest = row[i] + ridge - ph_dot(i, row, row);
        if (!(rest > 0)) return 1;
        row[i] = sqrt(rest);
    }
    return 0;
}

void ph_solve_lower(int n, const double *l, double *x)
{
    for (int i = 0; i < n; i++) {
        const double *row = l + (size_t)i * (size_t)n;
        x[i] = (x[i] - ph_dot(i, row, x)) / row[i];
    }
}

/* Columns of l^T are rows of l. */
void ph_solve_upper(int n, const double *l, double *x)
{
    for (int i = n - 1; i >= 0; i--) {
        const double *row = l + (size_t)i * (size_t)n;
        x[i] /= row[i];
        ph_axpy(i, -x[i], row, x);
    }
}

void ph_cholesky_solve(int n, const double *l, double *x)
{
    ph_solve_lower(n, l, x);
    ph_solve_upper(n, l, x);
}
