/*
 * test_spoken_fields.c - of two fields of config.json that say the same thing, the one
 * that transformers obeys counts: golden folders with a field changed.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"

static void begin_folder(ph_ctx **ctx)
{
    strcpy(folder, "/tmp/polyhead-fields-XXXXXX");
    CHECK(mkdtemp(folder) && ph_open(ctx, NULL) == PH_OK, "no folder or ctx");
}

static void end_folder(ph_ctx *ctx)
{
    char command[300];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0, "%s stays", folder);
    ph_close(ctx);
}

/* dense_act_fn and is_gated_act win over feed_forward_proj, as in transformers. */
static void dense_act(void)
{
    static const struct {
        const char *name, *from, *to;
        ph_activation activation;
    } all[] = {{"t5", "proj\": \"relu\"", "proj\": \"gated-gelu\"", PH_RELU},
               {"t5", "fn\": \"relu\"", "fn\": \"gelu_new\"", PH_GELU},
               {"t5", "fn\": \"relu\"", "fn\": \"gelu\"", PH_GELU_ERF},
               {"t5", "fn\": \"relu\"", "fn\": \"silu\"", PH_SILU},
               {"t5-gated", "fn\": \"gelu_new\"", "fn\": \"gelu\"", PH_GEGLU_ERF},
               {"t5-gated", "fn\": \"gelu_new\"", "fn\": null", PH_GEGLU},
               {"mt5", "proj\": \"gated-gelu\"", "proj\": \"relu\"", PH_GEGLU}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ph_ctx *ctx;
        ph_model *m, *again;
        char own[300], to[300];
        begin_folder(&ctx);
        make_folder(all[i].name, "config.json", all[i].from, all[i].to);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_config(m)->activation == all[i].activation, "%zu: %d", i,
              (int)ph_model_config(m)->activation);
        snprintf(own, sizeof own, "%s/own", folder);
        snprintf(to, sizeof to, "%s/to", folder);
        CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, own) == PH_OK &&
                  ph_model_export(ctx, own, to, NULL) == PH_OK &&
                  ph_model_read(&again, ctx, to) == PH_OK,
              "%zu: %s", i, ph_error(ctx));
        CHECK(ph_model_config(again)->activation == all[i].activation, "%zu: other", i);
        ph_model_free(m);
        ph_model_free(again);
        end_folder(ctx);
    }
}

/* GPT-NeoX has names of its own for base and share of its rotation: those of other types
   beside them count for nothing. */
static void rotary_names(void)
{
    static const struct {
        const char *from, *to;
        float base;
        int dims;
    } all[] = {
        {"\"rotary_emb_base\"", "\"rope_theta\": 7.0, \"rotary_emb_base\"", 300, 6},
        {"\"rotary_emb_base\": 300.0", "\"rope_theta\": 7.0", 10000, 6},
        {"\"rope_scaling\": null",
         "\"rope_theta\": 7.0, \"rope_scaling\": {\"rope_type\": \"default\", "
         "\"rope_theta\": 9}",
         9, 6},
        {"\"rotary_pct\"", "\"partial_rotary_factor\": 1.0, \"rotary_pct\"", 300, 6}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ph_ctx *ctx;
        ph_model *m;
        begin_folder(&ctx);
        make_folder("gpt_neox", "config.json", all[i].from, all[i].to);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        const ph_config *c = ph_model_config(m);
        CHECK(c->rope_base == all[i].base && c->rope_dims == all[i].dims,
              "%s: base %g, %d elements", all[i].to, (double)c->rope_base, c->rope_dims);
        ph_model_free(m);
        end_folder(ctx);
    }
}

/* A picture's size by both sides. */
static void square(void)
{
    ph_ctx *ctx;
    ph_model *m;
    begin_folder(&ctx);
    make_folder("vit", "config.json", "image_size\": 12", "image_size\": [12, 12]");
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_config(m)->image_size == 12, "%d", ph_model_config(m)->image_size);
    ph_model_free(m);
    end_folder(ctx);
}

static const check_case cases[] = {{"dense_act", dense_act},
                                   {"rotary_names", rotary_names},
                                   {"square", square},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
