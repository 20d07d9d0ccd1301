/*
 * test_mapped.c - model files stay where they are: opening one of 8 billion parameters
 * touches a few pages, and two processes that run the same file share one copy of it.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "model/pass.h"
#include "sanitized.h"

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

/* Bytes of the file. */
static size_t write_model(const sizes *s)
{
    snprintf(folder, sizeof folder, "build/mapped-%d", (int)getpid());
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    char command[160];
    snprintf(command, sizeof command, "mkdir -p %s", folder);
    CHECK(system(command) == 0, "no folder %s", folder);
    write_config(s);
    FILE *out = fopen(file, "w+");
    CHECK(out, "%s: %s", file, strerror(errno));
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
    CHECK(fflush(out) == 0, "%s: %s", file, strerror(errno));
    int whole = ftruncate(fileno(out), (off_t)at);
    fclose(out);
    if (whole) SKIP("no sparse file of %zu bytes: %s", at, strerror(errno));
    return at;
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

static const check_case cases[] = {
    {"eight_billion", eight_billion}, {"two_processes", two_processes}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
