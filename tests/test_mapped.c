/*
 * test_mapped.c - model files stay where they are: opening one of 8 billion parameters
 * touches a few pages, and two processes that run the same file share one copy of it.
 * GGUF's K types are no exception, and give the bits of the same values as f32.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "checkpoint/checkpoint.h"
#include "gguf_bytes.h"
#include "model/pass.h"
#include "sanitized.h"
#include "stored_copy.h"

typedef struct sizes {
    int dim, ff, layers, heads, kv_heads, vocab;
} sizes;

static char folder[64], file[96];

/* ---- a folder of the LLaMA type in bf16, with a hole for its tensors ---- */

static size_t add_tensor(FILE *out, size_t at, int first, const char *name, int rows,
                         int columns)
{
    size_t end = at + (size_t)rows * (size_t)(columns ? columns : 1) * 2;
    fprintf(out, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d", first ? '{' : ',', name,
            rows);
    if (columns) fprintf(out, ",%d", columns);
    fprintf(out, "],\"data_offsets\":[%zu,%zu]}", at, end);
    return end;
}

static size_t list_layer(FILE *out, size_t at, const sizes *s, int layer)
{
    int kv = s->dim / s->heads * s->kv_heads;
    const struct {
        const char *name;
        int rows, columns;
    } tensors[] = {
        {"input_layernorm", s->dim, 0},       {"post_attention_layernorm", s->dim, 0},
        {"self_attn.q_proj", s->dim, s->dim}, {"self_attn.k_proj", kv, s->dim},
        {"self_attn.v_proj", kv, s->dim},     {"self_attn.o_proj", s->dim, s->dim},
        {"mlp.gate_proj", s->ff, s->dim},     {"mlp.up_proj", s->ff, s->dim},
        {"mlp.down_proj", s->dim, s->ff}};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[80];
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, tensors[i].name);
        at = add_tensor(out, at, 0, name, tensors[i].rows, tensors[i].columns);
    }
    return at;
}

static void write_config(const sizes *s)
{
    char path[96];
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *out = fopen(path, "w");
    CHECK(out, "%s: %s", path, strerror(errno));
    fprintf(out,
            "{\"model_type\":\"llama\",\"hidden_size\":%d,\"intermediate_size\":%d,"
            "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
            "\"num_key_value_heads\":%d,\"vocab_size\":%d,"
            "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,\"rope_theta\":5e5,"
            "\"hidden_act\":\"silu\",\"tie_word_embeddings\":false}",
            s->dim, s->ff, s->layers, s->heads, s->kv_heads, s->vocab);
    fclose(out);
}

static FILE *make_file(const char *name)
{
    char command[160];
    snprintf(folder, sizeof folder, "build/mapped-%d", (int)getpid());
    snprintf(file, sizeof file, "%s/%s", folder, name);
    snprintf(command, sizeof command, "mkdir -p %s", folder);
    CHECK(system(command) == 0, "no folder %s", folder);
    FILE *out = fopen(file, "w+");
    CHECK(out, "%s: %s", file, strerror(errno));
    return out;
}

/* Ends a file that is `bytes` long, with a hole at its end. */
static void close_file(FILE *out, size_t bytes)
{
    CHECK(fflush(out) == 0, "%s: %s", file, strerror(errno));
    int whole = ftruncate(fileno(out), (off_t)bytes);
    fclose(out);
    if (whole) SKIP("no sparse file of %zu bytes: %s", bytes, strerror(errno));
}

/* Bytes of the file. */
static size_t write_model(const sizes *s)
{
    FILE *out = make_file("model.safetensors");
    write_config(s);
    uint64_t length = 0;
    fwrite(&length, sizeof length, 1, out);
    size_t at = add_tensor(out, 0, 1, "model.embed_tokens.weight", s->vocab, s->dim);
    for (int l = 0; l < s->layers; l++) at = list_layer(out, at, s, l);
    at = add_tensor(out, at, 0, "model.norm.weight", s->dim, 0);
    at = add_tensor(out, at, 0, "lm_head.weight", s->vocab, s->dim);
    fputc('}', out);
    while (ftell(out) % 8) fputc(' ', out);
    length = (uint64_t)ftell(out) - sizeof length;
    at += (size_t)ftell(out);
    rewind(out);
    fwrite(&length, sizeof length, 1, out);
    close_file(out, at);
    return at;
}

/* ---- a GGUF file of the LLaMA type, in the types of Q4_K_M and one more ---- */

enum { GGUF_F32 = 0, GGUF_Q4_K = 12, GGUF_Q5_K, GGUF_Q6_K, TENSORS = 9 };

typedef struct gguf_tensor {
    const char *name;
    int type, inner, outer; /* outer 0: a vector */
} gguf_tensor;

typedef struct gguf_file {
    gguf_bytes head;
    FILE *out; /* where random blocks go; NULL: nowhere yet */
    size_t at; /* behind the last tensor, from the first one on */
} gguf_file;

static gguf_file gguf;

static void put_pair(const char *key, int type, uint64_t bits)
{
    put_text(&gguf.head, key), put_number(&gguf.head, (uint64_t)type, 4);
    put_number(&gguf.head, bits, 4);
}

/* Random blocks with scales around 2^-12, and vectors of ones. */
static void write_data(const gguf_tensor *t, ph_dtype type, size_t bytes, uint64_t *r)
{
    const float one = 1;
    for (size_t i = 0; i < bytes; i += sizeof one)
        if (type == PH_F32) fwrite(&one, sizeof one, 1, gguf.out);
    for (size_t i = 0, size = ph_dtype_bytes(type, 256); type != PH_F32 && i < bytes;
         i += size) {
        uint8_t block[210];
        for (size_t e = 0; e < size; e++) block[e] = (uint8_t)check_below(r, 256);
        stored_halves(block, type, (uint16_t)(0x0400 + check_below(r, 0x400)), 0x1000);
        fwrite(block, 1, size, gguf.out);
    }
    CHECK(!ferror(gguf.out), "%s is not written", t->name);
}

/* Its entry in the header or, once that is complete, its data. */
static void put_gguf_tensor(const gguf_tensor *t, const char *prefix, uint64_t *r)
{
    static const ph_dtype types[] = {PH_Q4_K, PH_Q5_K, PH_Q6_K};
    ph_dtype type = t->type ? types[t->type - GGUF_Q4_K] : PH_F32;
    size_t bytes =
        ph_dtype_bytes(type, (size_t)t->inner * (size_t)(t->outer ? t->outer : 1));
    char name[80];
    snprintf(name, sizeof name, "%s%s.weight", prefix, t->name);
    if (gguf.out) {
        write_data(t, type, bytes, r);
        while (ftell(gguf.out) % 32) fputc(0, gguf.out);
        return;
    }
    put_text(&gguf.head, name), put_number(&gguf.head, t->outer ? 2 : 1, 4);
    put_number(&gguf.head, (uint64_t)t->inner, 8);
    if (t->outer) put_number(&gguf.head, (uint64_t)t->outer, 8);
    put_number(&gguf.head, (uint64_t)t->type, 4), put_number(&gguf.head, gguf.at, 8);
    gguf.at += (bytes + 31) / 32 * 32;
}

static void put_all_tensors(const sizes *s, uint64_t *r)
{
    int kv = s->dim / s->heads * s->kv_heads;
    const gguf_tensor layer[TENSORS] = {{"attn_norm", GGUF_F32, s->dim, 0},
                                        {"ffn_norm", GGUF_F32, s->dim, 0},
                                        {"attn_q", GGUF_Q4_K, s->dim, s->dim},
                                        {"attn_k", GGUF_Q4_K, s->dim, kv},
                                        {"attn_v", GGUF_Q6_K, s->dim, kv},
                                        {"attn_output", GGUF_Q5_K, s->dim, s->dim},
                                        {"ffn_gate", GGUF_Q4_K, s->dim, s->ff},
                                        {"ffn_up", GGUF_Q4_K, s->dim, s->ff},
                                        {"ffn_down", GGUF_Q6_K, s->ff, s->dim}};
    const gguf_tensor others[] = {{"token_embd", GGUF_Q4_K, s->dim, s->vocab},
                                  {"output_norm", GGUF_F32, s->dim, 0},
                                  {"output", GGUF_Q6_K, s->dim, s->vocab}};
    for (int i = 0; i < 3; i++) put_gguf_tensor(&others[i], "", r);
    for (int l = 0; l < s->layers; l++)
        for (int i = 0; i < TENSORS; i++) {
            char prefix[24];
            snprintf(prefix, sizeof prefix, "blk.%d.", l);
            put_gguf_tensor(&layer[i], prefix, r);
        }
}

static void put_gguf_header(const sizes *s)
{
    const struct {
        const char *key;
        int value;
    } pairs[] = {{"llama.block_count", s->layers},
                 {"llama.embedding_length", s->dim},
                 {"llama.feed_forward_length", s->ff},
                 {"llama.attention.head_count", s->heads},
                 {"llama.attention.head_count_kv", s->kv_heads},
                 {"llama.context_length", 8192},
                 {"llama.vocab_size", s->vocab}};
    gguf = (gguf_file){0};
    put_header(&gguf.head, 3 + TENSORS * (uint64_t)s->layers, 9);
    put_text(&gguf.head, "general.architecture");
    put_number(&gguf.head, 8, 4), put_text(&gguf.head, "llama");
    for (int i = 0; i < 7; i++) put_pair(pairs[i].key, 4, (uint64_t)pairs[i].value);
    put_pair("llama.attention.layer_norm_rms_epsilon", 6, 0x3727c5ac); /* 1e-5 */
    put_all_tensors(s, NULL);
    put_data(&gguf.head, 32, 0);
}

/* Tensors of random blocks, or a hole. Bytes of the file. */
static size_t write_gguf(const sizes *s, int filled)
{
    uint64_t r = check_seed;
    put_gguf_header(s);
    FILE *out = make_file("model.gguf");
    size_t bytes = gguf.head.used + gguf.at;
    fwrite(gguf.head.bytes, 1, gguf.head.used, out);
    gguf.out = out;
    if (filled) put_all_tensors(s, &r);
    close_file(out, bytes);
    return bytes;
}

static void remove_model(void)
{
    char path[96];
    unlink(file);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    rmdir(folder);
}

/* ---- pages ---- */

/* Bytes of a field of /proc/self/smaps, over the mappings of the file. */
static size_t pages_of(const char *field)
{
    FILE *in = fopen("/proc/self/smaps", "r");
    char line[512], key[32];
    size_t sum = 0, kilobytes;
    int ours = 0;
    if (!in) SKIP("no /proc/self/smaps");
    snprintf(key, sizeof key, "%s:", field);
    while (fgets(line, sizeof line, in)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            ours = strstr(line, strrchr(folder, '/')) != NULL;
        else if (ours && !strncmp(line, key, strlen(key)) &&
                 sscanf(line + strlen(key), "%zu", &kilobytes) == 1)
            sum += kilobytes << 10;
    }
    fclose(in);
    return sum;
}

/* All pages of this process. */
static size_t resident(void)
{
    FILE *in = fopen("/proc/self/statm", "r");
    size_t all = 0, pages = 0;
    if (!in || fscanf(in, "%zu %zu", &all, &pages) != 2) pages = 0;
    if (in) fclose(in);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The shapes of LLaMA 3.1 8B. */
static void eight_billion(void)
{
    const sizes s = {4096, 14336, 32, 32, 8, 128256};
    ph_ctx *ctx = NULL;
    ph_model *m = NULL;
    size_t bytes = write_model(&s), before = resident();
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    ph_status status = ph_model_read(&m, ctx, folder);
    size_t touched = pages_of("Rss"), grown = resident() - before;
    remove_model();
    CHECK(status == PH_OK, "%s", ph_error(ctx));
    CHECK(bytes > (size_t)16 << 30 >> 1, "a file of %zu bytes", bytes);
    CHECK(ph_model_parameters(m) == 8030261248u, "%zu parameters",
          (size_t)ph_model_parameters(m));
    CHECK(touched < (size_t)8 << 20, "%zu bytes of the file are resident", touched);
    CHECK(SANITIZED || grown < (size_t)32 << 20, "%zu bytes more are resident", grown);
    ph_model_free(m);
    ph_close(ctx);
}

/* Every matrix is read where the file has it. */
static void expect_in_place(const ph_model *m)
{
    const unsigned char *from = m->checkpoint->map.bytes,
                        *to = from + m->checkpoint->map.size;
    for (int i = 0; i < m->param_count; i++) {
        const ph_weight *p = &m->params[i];
        const unsigned char *at = p->stored.data;
        if (p->rank != 2) continue;
        CHECK(at > from && at < to && ph_dtype_is_k(p->stored.type),
              "%s is not read in place", p->name);
    }
}

/* The same in K types: 4.9 GB, where f32 would be 32. */
static void eight_billion_k(void)
{
    const sizes s = {4096, 14336, 32, 32, 8, 128256};
    ph_ctx *ctx = NULL;
    ph_model *m = NULL;
    size_t bytes = write_gguf(&s, 0), before = resident();
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    ph_status status = ph_model_read(&m, ctx, file);
    size_t touched = pages_of("Rss"), grown = resident() - before;
    remove_model();
    CHECK(status == PH_OK, "%s", ph_error(ctx));
    CHECK(bytes > (size_t)9 << 29 && bytes < (size_t)10 << 29, "a file of %zu bytes",
          bytes);
    CHECK(ph_model_parameters(m) == 8030261248u, "%zu parameters",
          (size_t)ph_model_parameters(m));
    expect_in_place(m);
    CHECK(touched < (size_t)8 << 20, "%zu bytes of the file are resident", touched);
    CHECK(SANITIZED || grown < (size_t)32 << 20, "%zu bytes more are resident", grown);
    ph_model_free(m);
    ph_close(ctx);
}

/* ---- sharing ---- */

enum { LEN = 8 };

/* Opens the model and runs it, so that all of its matrices are read. */
static ph_model *run_model(ph_ctx **ctx, const sizes *s)
{
    ph_model *m = NULL;
    ph_pass *p = NULL;
    int32_t tokens[LEN];
    const ph_pass_shape shape = {.batch = 1, .source_len = LEN};
    const ph_options options = {.threads = 1};
    for (int i = 0; i < LEN; i++) tokens[i] = i * s->vocab / LEN;
    int good = ph_open(ctx, &options) == PH_OK &&
               ph_model_read(&m, *ctx, folder) == PH_OK &&
               ph_pass_create(&p, m, &shape) == PH_OK &&
               ph_pass_forward(p, &(ph_batch){.source = tokens}, 0) == PH_OK &&
               ph_pass_logits(p) == PH_OK;
    ph_pass_free(p);
    return good ? m : NULL;
}

/* The other process: says when it has run, and holds the model until told. */
static void other_process(const sizes *s, int to, int from)
{
    ph_ctx *ctx = NULL;
    char word = run_model(&ctx, s) != NULL;
    if (write(to, &word, 1) != 1 || read(from, &word, 1) < 0) _exit(1);
    _exit(0);
}

static void two_processes(void)
{
    const sizes s = {512, 2048, 4, 8, 2, 4096};
    int there[2], back[2], ended = 0;
    char word = 0;
    ph_ctx *ctx = NULL;
    size_t bytes = write_model(&s);
    CHECK(pipe(there) == 0 && pipe(back) == 0, "no pipes");
    fflush(stdout);
    pid_t other = fork();
    if (other == 0) {
        close(back[1]); /* so that it ends with the other end */
        other_process(&s, there[1], back[0]);
    }
    CHECK(other > 0, "no process");
    ph_model *m = run_model(&ctx, &s);
    close(there[1]);
    ssize_t got = read(there[0], &word, 1);
    size_t rss = pages_of("Rss"), pss = pages_of("Pss");
    size_t dirty = pages_of("Private_Dirty");
    close(back[1]);
    waitpid(other, &ended, 0);
    remove_model();
    CHECK(m && got == 1 && word == 1 && ended == 0, "one of them did not run");
    CHECK(rss > bytes / 2 && rss <= bytes + 65536, "%zu of %zu bytes resident", rss,
          bytes);
    CHECK(dirty == 0, "%zu bytes were written", dirty);
    CHECK(pss <= rss / 2 + rss / 20, "%zu bytes resident, a share of %zu", rss, pss);
    ph_model_free(m);
    ph_close(ctx);
}

/* ---- bits ---- */

static void logits_of(ph_model *m, int vocab, float *to)
{
    int32_t tokens[LEN];
    ph_pass *p = NULL;
    const ph_pass_shape shape = {.batch = 1, .source_len = LEN};
    for (int i = 0; i < LEN; i++) tokens[i] = i * 7 % vocab;
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK &&
              ph_pass_forward(p, &(ph_batch){.source = tokens}, 0) == PH_OK &&
              ph_pass_logits(p) == PH_OK,
          "%s", ph_error(m->ctx));
    memcpy(to, p->logits, sizeof(float) * LEN * (size_t)vocab);
    ph_pass_free(p);
}

/* A file of K types read in place, and the same model with parameters of its own. */
static void k_types(void)
{
    enum { VOCAB = 96 };
    const sizes s = {256, 512, 2, 4, 2, VOCAB};
    static float stored[LEN * VOCAB], own[LEN * VOCAB];
    ph_ctx *ctx = NULL;
    ph_model *m = NULL;
    write_gguf(&s, 1);
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    ph_status status = ph_model_read(&m, ctx, file);
    remove_model();
    CHECK(status == PH_OK, "%s", ph_error(ctx));
    expect_in_place(m);
    logits_of(m, VOCAB, stored);
    CHECK(ph_model_own(m) == PH_OK, "%s", ph_error(ctx));
    logits_of(m, VOCAB, own);
    CHECK(stored[0] - stored[0] == 0 && stored[0] != stored[1], "logits %g, %g",
          (double)stored[0], (double)stored[1]);
    CHECK(!memcmp(stored, own, sizeof own), "logits differ");
    ph_model_free(m);
    ph_close(ctx);
}

static const check_case cases[] = {{"eight_billion", eight_billion},
                                   {"eight_billion_k", eight_billion_k},
                                   {"two_processes", two_processes},
                                   {"k_types", k_types},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
