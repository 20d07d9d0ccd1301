/*
 * test_export_types.c - the type that config.json of an exported folder names: that of
 * the matrices of a GGUF file, whose gains are in F32 whatever the matrices are; and
 * values of such files that are read or refused.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"
#include "gguf_bytes.h"
#include "polyhead_model.h"

enum { U32 = 4, F32_VALUE = 6, BOOL = 7, TEXT = 8, DIM = 4, WORDS = 8 };

static char folder[64];

static void put_size(gguf_bytes *g, const char *key, uint32_t value)
{
    put_text(g, key);
    put_number(g, U32, 4);
    put_number(g, value, 4);
}

static void put_vector(gguf_bytes *g, const char *name, uint64_t offset)
{
    put_text(g, name);
    put_number(g, 1, 4);
    put_number(g, DIM, 8);
    put_number(g, 0, 4);
    put_number(g, offset, 8);
}

/* One more value: its name, type and bits. */
typedef struct further {
    const char *key;
    uint32_t type, bits;
} further;

/* A LLaMA of one layer, all zeros, with matrices of a type. */
static void write_llama(const char *path, int type, further more)
{
    static const struct {
        const char *name;
        uint64_t in, out;
    } matrices[] = {
        {"token_embd.weight", DIM, WORDS},      {"blk.0.attn_q.weight", DIM, DIM},
        {"blk.0.attn_k.weight", DIM, DIM},      {"blk.0.attn_v.weight", DIM, DIM},
        {"blk.0.attn_output.weight", DIM, DIM}, {"blk.0.ffn_gate.weight", DIM, DIM},
        {"blk.0.ffn_up.weight", DIM, DIM},      {"blk.0.ffn_down.weight", DIM, DIM}};
    static const char *const vectors[] = {"blk.0.attn_norm.weight",
                                          "blk.0.ffn_norm.weight", "output_norm.weight"};
    static gguf_bytes g;
    uint64_t offset = 0;
    memset(&g, 0, sizeof g);
    put_header(&g, 8 + 3, 9);
    put_text(&g, "general.architecture");
    put_number(&g, TEXT, 4);
    put_text(&g, "llama");
    put_size(&g, "llama.block_count", 1);
    put_size(&g, "llama.embedding_length", DIM);
    put_size(&g, "llama.feed_forward_length", DIM);
    put_size(&g, "llama.attention.head_count", 1);
    put_size(&g, "llama.context_length", 16);
    put_size(&g, "llama.vocab_size", WORDS);
    put_text(&g, "llama.attention.layer_norm_rms_epsilon");
    put_number(&g, F32_VALUE, 4);
    put_number(&g, 0x3727c5ac, 4); /* 1e-5 */
    put_text(&g, more.key);
    put_number(&g, more.type, 4);
    put_number(&g, more.bits, more.type == BOOL ? 1 : 4);
    for (int i = 0; i < 8; i++, offset += 128)
        put_tensor(&g, matrices[i].name, matrices[i].in, matrices[i].out, (uint64_t)type,
                   offset);
    for (int i = 0; i < 3; i++, offset += 32) put_vector(&g, vectors[i], offset);
    while (g.used % 32) g.used++;
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(g.bytes, 1, g.used + offset, file) == g.used + offset &&
              fclose(file) == 0,
          "cannot write %s", path);
}

static void stored_types(void)
{
    static const struct {
        int type;
        const char *name;
    } types[] = {{0, "\"float32\""}, {1, "\"float16\""}, {30, "\"bfloat16\""}};
    ph_ctx *ctx;
    snprintf(folder, sizeof folder, "/tmp/test_export_types_XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    for (int i = 0; i < 3; i++) {
        char from[128], to[128], path[160], text[4096] = "", command[300];
        snprintf(from, sizeof from, "%s/model.gguf", folder);
        snprintf(to, sizeof to, "%s/exported", folder);
        snprintf(path, sizeof path, "%s/config.json", to);
        write_llama(from, types[i].type, (further){"general.version", U32, 1});
        CHECK(ph_model_export(ctx, from, to, NULL) == PH_OK, "%s", ph_error(ctx));
        FILE *file = fopen(path, "rb");
        CHECK(file && fread(text, 1, sizeof text - 1, file) > 0, "no %s", path);
        fclose(file);
        const char *found = strstr(text, "\"torch_dtype\": ");
        CHECK(found && !strncmp(found + 15, types[i].name, strlen(types[i].name)),
              "expected %s in %s", types[i].name, text);
        snprintf(command, sizeof command, "rm -r %s", to);
        CHECK(system(command) == 0, "%s stays", to);
        unlink(from);
    }
    ph_close(ctx);
    rmdir(folder);
}

/* What llama.cpp obeys in any file of the type, and what is no model by itself. */
static void further_values(void)
{
    static const struct {
        further more;
        const char *sentence; /* NULL: positions are divided by 4 */
    } list[] = {{{"llama.rope.scale_linear", F32_VALUE, 0x40800000}, NULL},
                {{"llama.rope.scaling.factor", F32_VALUE, 0x40800000}, NULL},
                {{"llama.attention.causal", BOOL, 0}, "attention.causal is false"},
                {{"split.count", U32, 2}, "split.count is 2, expected one whole"}};
    char path[128];
    ph_ctx *ctx;
    snprintf(folder, sizeof folder, "/tmp/test_export_types_XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    for (int i = 0; i < 4; i++) {
        ph_model *m;
        write_llama(path, 0, list[i].more);
        ph_status status = ph_model_read(&m, ctx, path);
        CHECK((status == PH_OK) == !list[i].sentence, "%s: %s", list[i].more.key,
              ph_error(ctx));
        if (list[i].sentence)
            CHECK(strstr(ph_error(ctx), list[i].sentence), "%s", ph_error(ctx));
        else
            CHECK(ph_model_config(m)->rope_scaling == PH_ROPE_LINEAR &&
                      ph_model_config(m)->rope_factor == 4,
                  "%s is not obeyed", list[i].more.key);
        ph_model_free(m);
    }
    ph_close(ctx);
    unlink(path);
    rmdir(folder);
}

static const check_case cases[] = {{"stored_types", stored_types},
                                   {"further_values", further_values},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
