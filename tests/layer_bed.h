/*
 * layer_bed.h - a layer of any variant with random numbers in all its parameters, found
 * by ph_layer_param alone, and memory for all its gradients. Every tensor ends at an
 * unmapped page (guard.h).
 *
 *     layer_bed b;
 *     layer_bed_make(&b, ctx, &desc, seed)   PH_OK, or what ph_layer_create said
 *     layer_bed_run(&b)                      forward, and backward where the layer can
 *     layer_bed_free(&b)
 */
#ifndef LAYER_BED_H
#define LAYER_BED_H

#include "polyhead_layer.h"

enum { BED_MOST = 32 };

typedef struct layer_bed {
    ph_ctx *ctx;
    ph_layer_desc desc;
    ph_layer *layer;
    int params;
    const ph_param *param[BED_MOST];
    size_t count[BED_MOST]; /* elements in each */
    float *w[BED_MOST], *dw[BED_MOST];
    size_t x_count, memory_count, out_count, gate_count;
    float *x, *memory, *dout, *out, *dx, *dmemory, *lse, *gate;
    float balance_loss;
    float *k_cache, *v_cache, *extra_cache;
    ph_layer_weights weights;
    ph_layer_args args;
    ph_layer_grads grads;
    void *saved;
} layer_bed;

ph_status layer_bed_make(layer_bed *b, ph_ctx *ctx, const ph_layer_desc *desc,
                         uint64_t seed);
ph_status layer_bed_run(layer_bed *b);
void layer_bed_free(layer_bed *b);

/* The loss whose gradients layer_bed_run computes: sum(out dout) + balance * its loss. */
double layer_bed_loss(const layer_bed *b);

/* Index of the parameter of that name; -1: there is none. */
int layer_bed_find(const layer_bed *b, const char *name);

/* Copies what a layer of another variant has under the same name and size. */
void layer_bed_copy(layer_bed *to, const layer_bed *from);

#endif
