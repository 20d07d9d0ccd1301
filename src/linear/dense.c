/*
 * dense.c - products of small matrices.
 */
#include <string.h>

#include "linear/linear.h"

static void clear(int m, int n, double *c)
{
    memset(c, 0, (size_t)m * (size_t)n * sizeof *c);
}

void ph_multiply(int m, int k, int n, const double *a, const double *b, double *c)
{
    clear(m, n, c);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < k; j++)
            ph_axpy(n, a[(size_t)i * (size_t)k + (size_t)j], b + (size_t)j * (size_t)n,
                    c + (size_t)i * (size_t)n);
}

void ph_multiply_add_left(int m, int k, int n, const double *a, const double *b,
                          double *c)
{
    for (int j = 0; j < k; j++)
        for (int i = 0; i < m; i++)
            ph_axpy(n, a[(size_t)j * (size_t)m + (size_t)i], b + (size_t)j * (size_t)n,
                    c + (size_t)i * (size_t)n);
}

void ph_multiply_left(int m, int k, int n, const double *a, const double *b, double *c)
{
    clear(m, n, c);
    ph_multiply_add_left(m, k, n, a, b, c);
}
