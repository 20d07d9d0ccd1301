/*
 * sinusoids.c - fixed positions: sin and cos of position / 10000^(2i/dim), next to each
 * other as first published, or all sines before all cosines.
 *
 * Decoders come and go, so tables stay with the model: a table never changes and stays as
 * long as the model. A text longer than all tables gets a new one, at least twice as long
 * as the last.
 */
#include <math.h>

#include "model/model.h"

struct ph_sinusoids {
    struct ph_sinusoids *shorter; /* the table made before it, or NULL */
    int rows;
    float values[]; /* (rows, model_dim) */
};

static void fill(float *values, int rows, int dim, int halves)
{
    int sines = (dim + 1) / 2;
    for (int d = 0; d < dim; d++) {
        int cosine = halves ? d >= sines : d % 2, i = halves ? d - cosine * sines : d / 2;
        double rate = pow(10000.0, -(double)(2 * i) / (double)dim);
        for (int t = 0; t < rows; t++)
            values[(size_t)t * (size_t)dim + (size_t)d] =
                (float)(cosine ? cos(t * rate) : sin(t * rate));
    }
}

/* Puts a table of at least so many rows before the others; 0: no memory. */
static int add_table(ph_model *m, int rows)
{
    ph_sinusoids *last = m->sinusoids;
    int dim = m->config.model_dim;
    int most = ph_max(m->config.max_len, m->config.encoder_len);
    if (last) rows = ph_max(rows, ph_min(2 * last->rows, most));
    size_t bytes = (size_t)rows * (size_t)dim * sizeof(float);
    ph_sinusoids *longer = ph_ctx_alloc(m->ctx, sizeof *longer + bytes);
    if (!longer) return 0;
    longer->shorter = last, longer->rows = rows;
    fill(longer->values, rows, dim, m->config.positions == PH_POS_SINUSOIDAL_HALVES);
    m->sinusoids = longer;
    return 1;
}

ph_status ph_model_sinusoids(ph_model *m, int rows, const float **values)
{
    *values = NULL;
    if (m->config.positions != PH_POS_SINUSOIDAL &&
        m->config.positions != PH_POS_SINUSOIDAL_HALVES)
        return PH_OK;
    int enough = m->sinusoids && m->sinusoids->rows >= rows;
    if (enough || add_table(m, rows)) *values = m->sinusoids->values;
    if (!*values) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for positions");
    return PH_OK;
}

void ph_model_free_sinusoids(ph_model *m)
{
    while (m->sinusoids) {
        ph_sinusoids *shorter = m->sinusoids->shorter;
        ph_ctx_release(m->ctx, m->sinusoids);
        m->sinusoids = shorter;
    }
}
