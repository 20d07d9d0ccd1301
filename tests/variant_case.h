/*
 * variant_case.h - random problems for every variant: the tensors of one IN file in a bag
 * (tests/oracle/variant_oracle.h), and the options that go with them.
 *
 *     variant_case c;
 *     variant_core_case(&c, "talking", &shape, seed);    q, k, v, dout and the extras
 *     variant_layer_case(&c, "moh:shared=1,top=2", &shape, seed);
 *     variant_put(&c, "sink", 1, heads, -1, -1, -1);      and more of them
 *     variant_case_free(&c);
 */
#ifndef VARIANT_CASE_H
#define VARIANT_CASE_H

#include "oracle/variant_oracle.h"
#include "polyhead_io.h"

typedef struct variant_shape {
    int batch, heads, k_heads, v_heads; /* k_heads, v_heads 0: like heads */
    int q_len, kv_len;                  /* kv_len 0: like q_len, -1: none */
    int qk_dim, v_dim;                  /* v_dim 0: like qk_dim           */
    int model, out_dim;                 /* layer; out_dim 0: no wo        */
    int source;                         /* layer: columns of memory, 0: none */
    ph_dtype type;                      /* of q, k, v, or x, memory; and of dout */
} variant_shape;

typedef struct variant_case {
    variant_shape s; /* zeros filled in */
    variant_options o;
    bag in;
    char spec[96]; /* of the variant */
    uint64_t random;
} variant_case;

void variant_core_case(variant_case *c, const char *spec, const variant_shape *shape,
                       uint64_t seed);
void variant_layer_case(variant_case *c, const char *spec, const variant_shape *shape,
                        uint64_t seed);
void variant_case_free(variant_case *c);

/* Random numbers of this deviation, rounded to the type the file will have. */
double *variant_put(variant_case *c, const char *name, double size, int n0, int n1,
                    int n2, int n3);

/* The number after key= in a variant string. */
int variant_number(const char *spec, const char *key, int otherwise);

/* Is it the variant of that name, or a part of it? */
int variant_is(const char *spec, const char *name);

/* The type of a tensor of that name in IN (and of its gradient in OUT). */
ph_dtype variant_type(const variant_case *c, const char *name);

/* The bytes of a tensor as a file of that type has them; release them with free. */
void *variant_encode(const bag_tensor *t, ph_dtype type);

/* The command line's words for the options. */
void variant_words(const variant_case *c, char *words, size_t size);

#endif
