/*
 * test_export_gguf.c - GGUF files written as Hugging Face folders.
 *
 * Pairs that a GGUF file has interleaved move apart, gains lose the 1 that a folder does
 * not hold: the same values, sums in another order or one rounding more. Either run is
 * as deep in roundings as a loss (model_errors.h), so logits are at most twice that
 * apart.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"
#include "model_errors.h"

/* Runs another model on the tokens of the checkpoint. */
static void compare_logits(const checkpoint *c, const char *folder_path)
{
    ph_model *m;
    ph_pass *p;
    double square = 0, wrong = 0;
    CHECK(ph_model_read(&m, c->ctx, folder_path) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(!m->config.rope_interleaved, "%s: pairs are still interleaved", c->name);
    CHECK(ph_pass_create(&p, m, &c->p->shape) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(ph_pass_forward(p, &c->batch, 0) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(ph_pass_logits(p) == PH_OK, "%s", ph_error(c->ctx));
    for (int i = 0; i < p->stacks[0].rows * m->config.vocab; i++) {
        double before = c->p->logits[i], off = (double)p->logits[i] - before;
        square += before * before, wrong += off * off;
    }
    CHECK(sqrt(wrong / square) <= 2 * LOSS_ERROR, "%s: logits are off by %.2e", c->name,
          sqrt(wrong / square));
    ph_pass_free(p);
    ph_model_free(m);
}

static void from_gguf(void)
{
    static const char *const names[] = {"llama-gguf", "gemma3-gguf", "gemma2-gguf",
                                        "gemma-gguf", "phi3-gguf",   "gpt_neox-gguf",
                                        "smollm3-gguf", "olmo2-gguf"};
    const ph_dtype type = PH_F32;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char place[] = "/tmp/test_export_gguf.XXXXXX", to[64], command[64];
        checkpoint c;
        begin(&c, names[i], 0);
        CHECK(mkdtemp(place), "no folder");
        snprintf(to, sizeof to, "%s/folder", place);
        CHECK(ph_model_export(c.ctx, c.path, to, NULL) == PH_UNSUPPORTED &&
                  strstr(ph_error(c.ctx), "quantised"),
              "%s: %s", names[i], ph_error(c.ctx));
        CHECK(access(to, F_OK) != 0, "something was left behind");
        CHECK(ph_model_export(c.ctx, c.path, to, &type) == PH_OK, "%s: %s", names[i],
              ph_error(c.ctx));
        CHECK(ph_pass_logits(c.p) == PH_OK, "%s", ph_error(c.ctx));
        compare_logits(&c, to);
        snprintf(command, sizeof command, "rm -r %s", place);
        CHECK(system(command) == 0, "%s stays", place);
        end(&c);
    }
}

static const check_case cases[] = {{"from_gguf", from_gguf}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
