/*
 * test_decoders.c - tiny checkpoints of Gemma against what transformers makes of them
 * (tests/golden/checkpoints, written by gemma.py there): hidden states, weights of every
 * head, logits, gradients of every parameter, greedy tokens; and what is refused.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"
#include "model/generate.h"

static const char *const names[] = {"gemma3", "gemma3-pictures", "gemma3-gguf",
                                    "gemma2", "gemma2-gguf",     "gemma",
                                    "gemma-gguf"};

enum { COUNT = sizeof names / sizeof names[0] };

/* The residual stream before a layer; after the last one its norm. */
static const float *hidden_state(const ph_pass *p, int layer)
{
    const ph_pass_stack *s = &p->stacks[0];
    if (layer == p->model->config.layers) return ph_pass_output(p);
    return layer ? s->acts[2 * layer - 1].residual.s : s->entry.s;
}

static void parity(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 0);
        for (int l = 0; l <= c.m->config.layers; l++)
            compare(&c, "hidden", l, hidden_state(c.p, l));
        for (int l = 0; l < c.m->config.layers; l++)
            compare_maps(&c, "attention", l, 0, 2 * l);
        CHECK(ph_pass_logits(c.p) == PH_OK, "%s", ph_error(c.ctx));
        compare(&c, "logits", -1, c.p->logits);
        end(&c);
    }
}

static void gradients(void)
{
    static const char *const with[] = {"gemma3", "gemma2", "gemma"};
    for (int i = 0; i < 3; i++) {
        checkpoint c;
        begin(&c, with[i], 1);
        float *grads = compare_loss(&c);
        compare_gradients(&c, grads);
        free(grads);
        end(&c);
    }
}

/* Token by token against caches, beyond the window. */
static void greedy(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        int32_t found[20];
        int count = 0;
        begin(&c, names[i], 0);
        const ph_tensor *ids = find(&c, "", "ids", -1);
        const int32_t *expected = find(&c, "", "greedy", -1)->data;
        c.m->marks.end_count = 0;
        CHECK(ph_generate_tokens(c.m, &(ph_generation){0}, ids->data, (int)ids->shape[1],
                                 found, 20, &count) == PH_OK,
              "%s", ph_error(c.ctx));
        for (int t = 0; t < 20; t++)
            CHECK(found[t] == expected[t], "%s: token %d is %d, expected %d", names[i], t,
                  found[t], expected[t]);
        end(&c);
    }
}

/* sqrt(32) is 5.65685 in f32 and in GGUF, 5.65625 in bf16. */
static void embedding_scale(void)
{
    static const float exact = 5.656854249f, rounded = 5.65625f;
    const float scales[COUNT] = {exact, rounded, exact, exact, exact, rounded, exact};
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 0);
        CHECK(c.m->config.embed_scale == scales[i], "%s: %.9g", names[i],
              (double)c.m->config.embed_scale);
        end(&c);
    }
}

/* As a file of ours, and from there as a folder: the same configuration. */
static void own_file(void)
{
    static const char *const from[] = {"gemma3", "gemma2", "gemma"};
    for (int i = 0; i < 3; i++) {
        char place[] = "/tmp/test_decoders.XXXXXX", own[64], to[64], command[64];
        checkpoint c;
        ph_model *again;
        const ph_dtype type = i == 2 ? PH_BF16 : PH_F32;
        begin(&c, from[i], 1);
        ph_model_free(write_and_read(&c));
        CHECK(mkdtemp(place), "no folder");
        snprintf(own, sizeof own, "%s/own", place);
        snprintf(to, sizeof to, "%s/folder", place);
        CHECK(ph_model_write(c.m, own) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(ph_model_export(c.ctx, own, to, &type) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(ph_model_read(&again, c.ctx, to) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(!ph_config_differs(&c.m->config, &again->config), "%s: other %s", from[i],
              ph_config_differs(&c.m->config, &again->config));
        ph_model_free(again);
        snprintf(command, sizeof command, "rm -r %s", place);
        CHECK(system(command) == 0, "%s stays", place);
        end(&c);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

#define LIE(from, to, sentence)                                                          \
    {                                                                                    \
        "gemma3", "config.json", from, to, sentence                                      \
    }
#define OLD(from, to, sentence)                                                          \
    {                                                                                    \
        "gemma3-pictures", "config.json", from, to, sentence                             \
    }

static void config_lies(void)
{
    static const lie lies[] = {
        LIE("hidden_size\": 32", "hidden_size\": 36", "expected F32 (97, 36)"),
        LIE("layers\": 4", "layers\": 3", "tensor 'model.layers.3."),
        LIE("layers\": 4", "layers\": 5", "layer_types.4 is neither"),
        LIE("layers\": 4", "layers\": 0", "layers is 0"),
        LIE("heads\": 4", "heads\": 3", "kv_heads 2 does not divide heads 3"),
        LIE("head_dim\": 12", "head_dim\": 13", "expected even for rope"),
        LIE("\"sliding_attention\",", "\"chunked_attention\",",
            "layer_types.0 is neither"),
        LIE("\"full_attention\",", "7,", "layer_types.2 is neither"),
        LIE("sliding_window\": 5", "sliding_window\": 0", "sliding_window is 0"),
        LIE("sliding_window\": 5", "sliding_window\": null", "sliding_window is 0 or"),
        LIE("sliding_window\": 5", "sliding_window\": -5", "expected a whole number"),
        LIE("scalar\": 7", "scalar\": 0", "query_pre_attn_scalar is 0"),
        LIE("scalar\": 7", "scalar\": \"7\"", "expected a number"),
        LIE("\"gelu_pytorch_tanh\"", "\"relu\"", "'relu' is unknown with a gate"),
        LIE("final_logit_softcapping\": null", "final_logit_softcapping\": -30.0",
            "final_logit_softcapping is -30, expected a number above 0"),
        LIE("bidirectional_attention\": false", "bidirectional_attention\": true",
            "use_bidirectional_attention is true, expected none"),
        LIE("\"linear\"", "\"longrope\"", "rope_type is 'longrope'"),
        LIE("\"factor\": 3.0,", "", "factor is missing"),
        LIE("\"factor\": 3.0", "\"factor\": 0.5", "rope_factor is 0.5"),
        LIE("rope_theta\": 600.0", "rope_theta\": -1", "expected a number above 0"),
        LIE("\"default\"", "\"linear\"", "sliding_attention.rope_type is 'linear'"),
        LIE("rope_theta\": 50.0", "rope_theta\": -1", "expected a number above 0"),
        OLD("rope_local_base_freq\": 50.0", "rope_local_base_freq\": \"x\"",
            "expected a number"),
        OLD("\"sliding_window_pattern\": 3", "\"sliding_window_pattern\": 1e9",
            "sliding_window_pattern is 1000000000"),
        OLD("\"gemma3\"", "\"gemma9\"", "model_type is 'gemma9'")};
    refuse_all(lies, sizeof lies / sizeof lies[0]);
}

static const check_case cases[] = {{"parity", parity},
                                   {"gradients", gradients},
                                   {"greedy", greedy},
                                   {"embedding_scale", embedding_scale},
                                   {"own_file", own_file},
                                   {"config_lies", config_lies},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
