/*
 * test_decoder_gradients.c - loss and gradients of every parameter of tiny published
 * decoders against what PyTorch makes of them (tests/golden/checkpoints, make.py), within
 * four times the error that it has itself in float32.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"

static void gradients(void)
{
    static const char *const names[] = {"llama", "llama-shards", "mistral", "qwen2",
                                        "qwen3", "gpt2",         "phi3",    "phi3-plain",
                                        "gpt_neox", "gpt_neox-serial", "opt", "opt-post",
                                        "smollm3", "olmo2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        checkpoint c;
        begin(&c, names[i], 1);
        float *grads = compare_loss(&c);
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
