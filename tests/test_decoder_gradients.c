/*
 * test_decoder_gradients.c - loss and gradients of every parameter of tiny published
 * decoders against what PyTorch makes of them (tests/golden/checkpoints, make.py), within
 * four times the error that it has itself in float32.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"

static void gradients(void)
{
    static const char *const names[] = {"llama", "llama-shards", "mistral",
                                        "qwen2", "qwen3",        "gpt2"};
    for (int i = 0; i < 6; i++) {
        checkpoint c;
        double loss;
        begin(&c, names[i], 1);
        float *grads = calloc(c.m->floats, sizeof *grads);
        CHECK(ph_pass_loss(c.p, 0, 1, &loss) == PH_OK, "%s", ph_error(c.ctx));
        float as_float = (float)loss;
        compare(&c, "loss", -1, &as_float);
        CHECK(ph_pass_backward(c.p, grads) == PH_OK, "%s", ph_error(c.ctx));
        compare_gradients(&c, grads);
        free(grads);
        end(&c);
    }
}

static const check_case cases[] = {{"gradients", gradients}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
