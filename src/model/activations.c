/*
 * activations.c - memory for the activations of passes, kept by the model between calls.
 *
 * A pass comes and goes with every call, and the kernel clears each page that a process
 * gets: 7 % of the time of a batch. So the last block stays with the model, one at most.
 * Passes may end in another thread than one that begins, hence the exchange.
 */
#include "model/model.h"

#define KEPT_ALWAYS ((size_t)64 << 20) /* bytes that stay however few are needed */
enum { FAR_TOO_LARGE = 4 };            /* beyond that, so many times what is needed */

struct ph_activations {
    _Alignas(PH_ALIGN) size_t size; /* bytes behind this struct */
};

static int fits(const ph_activations *a, size_t bytes)
{
    return a->size >= bytes &&
           (a->size <= KEPT_ALWAYS || a->size / FAR_TOO_LARGE <= bytes);
}

void *ph_model_take_activations(ph_model *m, size_t bytes, size_t *size)
{
    ph_activations *a = atomic_exchange(&m->activations, NULL);
    *size = 0;
    if (a && !fits(a, bytes)) {
        ph_ctx_release(m->ctx, a);
        a = NULL;
    }
    if (!a && bytes <= SIZE_MAX - sizeof *a) {
        a = ph_ctx_alloc(m->ctx, sizeof *a + bytes);
        if (a) a->size = bytes;
    }
    if (!a) return NULL;
    *size = a->size;
    return a + 1;
}

void ph_model_give_activations(ph_model *m, void *memory, int keep)
{
    if (!memory) return;
    ph_activations *mine = (ph_activations *)memory - 1, *other = mine;
    if (keep) other = atomic_exchange(&m->activations, mine);
    if (keep && other && other->size > mine->size)
        other = atomic_exchange(&m->activations, other);
    ph_ctx_release(m->ctx, other);
}
