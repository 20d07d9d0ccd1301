/*
 * route.h - what the routers of a mixture of heads share: top-k routing and the
 * load-balance loss.
 *
 * H heads: the first `shared` are always on; of the `routed` others each token uses the
 * `top` with the largest scores, equal ones by their index.
 *
 *     balance_loss = E sum_e P_e f_e      E routed heads, P_e mean probability of head e,
 *                                         f_e fraction of the tokens that use it
 *     d/dz_e = E/N p_e (f_e - sum f p)    for the logits z of a token, f as a constant
 */
#ifndef PH_VARIANTS_ROUTE_H
#define PH_VARIANTS_ROUTE_H

#include "variants/kind.h"

enum { PH_ROUTE_MAX = 1024 }; /* heads */

typedef struct ph_route {
    int shared, routed, top;
    int paper; /* 1: scores and loss as the paper prints them, see moh.c */
} ph_route;

/* Buffers of a router, the same in all of them. */
enum {
    PH_ROUTE_P =
        PH_BUFFERS - 3, /* scratch: (rows, routed) softmax over all routed heads */
    PH_ROUTE_ON,        /* scratch: (rows, routed) 1: the token uses the head */
    PH_ROUTE_SHARE      /* scratch: (routed) f, and the number of tokens */
};

/* Reads "shared=S,top=K" and, where `scores`, ",score=code|paper"; reserves its
   buffers. */
ph_status ph_route_shape(ph_shape *shape, const char *name, const char *options,
                         int scores, ph_route *route);

/* Routes one token by its scores z: fills its rows of the buffers. */
void ph_route_token(ph_kind_call *call, const ph_route *route, int row, const float *z);

/* After all tokens: f, and the loss where it is wanted. */
void ph_route_count(ph_kind_call *call, const ph_route *route);

/* dz of one token += balance * gradient of the loss. */
void ph_route_balance(const ph_kind_call *call, const ph_route *route, int row,
                      float *dz);

/* Backward of y = factor * softmax(z): dz[i] = y[i] (dy[i] - sum(dy y) / sum(y)). The sum
   of the rounded y differs from the factor, and where one of them is nearly 1 that would
   be all of dz. */
void ph_softmax_backward(int n, const float *y, const float *dy, float *dz);

#endif
