/*
 * test_generated_text.c - the text of generated tokens where tokens are bytes: behind a
 * prompt that ends in some, with a NUL among them; and tokens without an embedding.
 */
#define _GNU_SOURCE
#include "llama_folder.h"
#include "model/generate.h"
#include "model/model_text.h"

enum { VOCAB = 97, A = 3, B, NEWLINE, HIGH, LOW, WORDS, NEW = 6 };

static ph_ctx *ctx;

/* Tokens a and b, three bytes, and words. `nul`: the word that is a NUL instead; `last`:
   the id of [PAD], which is the last, and has no embedding if it is VOCAB. */
static void begin_folder(int nul, int last)
{
    static char text[8192];
    size_t used = (size_t)snprintf(
        text, sizeof text,
        "{\"added_tokens\":[{\"id\":%d,\"content\":\"[PAD]\",\"special\":true,"
        "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}],"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
        "\"unk_token\":\"<unk>\",\"merges\":[],\"vocab\":{\"<unk>\":0,\"<s>\":1,"
        "\"</s>\":2,\"a\":%d,\"b\":%d,\"<0x0A>\":%d,\"<0xC3>\":%d,\"<0xA9>\":%d",
        last, A, B, NEWLINE, HIGH, LOW);
    for (int i = WORDS; i < last; i++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 i == nul ? ",\"<0x00>\":%d" : ",\" w%d\":%d", i, i);
    snprintf(text + used, sizeof text - used, "}}}");
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    begin_llama_folder(text);
}

static void end_folder(void)
{
    end_llama_folder();
    ph_close(ctx);
}

static void tokens_of(const ph_model *m, const char *text, int32_t *tokens, int *count)
{
    ph_word words[8];
    CHECK(ph_model_split(m, text, words, 8, count) == PH_OK && *count <= 8, "%s",
          ph_error(ctx));
    for (int i = 0; i < *count; i++) tokens[i] = words[i].token;
}

/* ---- prompts that end in bytes ----------------------------------------------------- */

static void expect_behind(const ph_model *m, ph_token_list before, ph_token_list new_ones,
                          const char *wanted)
{
    ph_text text;
    CHECK(ph_text_begin(&text, m, before) == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < new_ones.count; i++)
        CHECK(ph_text_add(&text, new_ones.tokens[i]) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_text_end(&text) == PH_OK, "%s", ph_error(ctx));
    CHECK(!strcmp(text.data, wanted), "'%s', expected '%s'", text.data, wanted);
    ph_text_free(&text);
}

/* What transformers streams, which decodes new tokens alone. */
static void bytes_of_a_prompt(void)
{
    static const int32_t newline[] = {A, NEWLINE}, accent[] = {A, HIGH, LOW, B};
    static const int32_t half[] = {A, HIGH};
    begin_folder(0, VOCAB - 1);
    ph_model *m = open_model(ctx);
    expect_behind(m, (ph_token_list){newline, 2}, (ph_token_list){&accent[3], 1}, "b");
    expect_behind(m, (ph_token_list){newline, 2}, (ph_token_list){&newline[1], 1}, "\n");
    expect_behind(m, (ph_token_list){newline, 2}, (ph_token_list){&accent[1], 3},
                  "\xc3\xa9" "b");
    expect_behind(m, (ph_token_list){accent, 3}, (ph_token_list){newline, 2}, "a\n");
    expect_behind(m, (ph_token_list){half, 2}, (ph_token_list){&accent[2], 2},
                  "\xef\xbf\xbd" "b");
    expect_behind(m, (ph_token_list){newline, 2}, (ph_token_list){newline, 0}, "");
    ph_model_free(m);
    end_folder();
}

static void newline_prompt(void)
{
    int32_t prompt[8], tokens[NEW];
    int count, made;
    char out[256], stopped[256];
    const char *stop = "\n";
    ph_generation how = {.max_tokens = NEW};
    begin_folder(0, VOCAB - 1);
    ph_model *m = open_model(ctx);
    tokens_of(m, "ab\n", prompt, &count);
    CHECK(prompt[count - 1] == NEWLINE, "token %d", (int)prompt[count - 1]);
    CHECK(ph_generate_tokens(m, &how, prompt, count, tokens, NEW, &made) == PH_OK && made,
          "%s", ph_error(ctx));
    for (int i = 0; i < made; i++)
        CHECK(tokens[i] != NEWLINE, "a newline is generated");
    CHECK(ph_generate(m, "ab\n", &how, out, sizeof out, NULL) == PH_OK, "%s",
          ph_error(ctx));
    expect_behind(m, (ph_token_list){0}, (ph_token_list){tokens, made}, out);
    how.stop = &stop, how.stop_count = 1;
    CHECK(ph_generate(m, "ab\n", &how, stopped, sizeof stopped, NULL) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(out[0] && !strcmp(out, stopped), "'%s', '%s'", out, stopped);
    ph_model_free(m);
    end_folder();
}

/* ---- NUL --------------------------------------------------------------------------- */

static char pieces[256];

static void add_piece(void *user, int text, const char *piece)
{
    (void)user, (void)text;
    strcat(pieces, piece);
}

/* The number of the first new token that is a word and comes once; its id. */
static int find_word(int32_t *id)
{
    int32_t prompt[8], tokens[NEW];
    int count, made, at, twice;
    begin_folder(0, VOCAB - 1);
    ph_model *m = open_model(ctx);
    tokens_of(m, "ab", prompt, &count);
    CHECK(ph_generate_tokens(m, &(ph_generation){.max_tokens = NEW}, prompt, count,
                             tokens, NEW, &made) == PH_OK,
          "%s", ph_error(ctx));
    for (at = 0; at + 1 < made; at++) {
        twice = 0;
        for (int i = 0; i < made; i++) twice += tokens[i] == tokens[at];
        if (tokens[at] >= WORDS && tokens[at + 1] >= WORDS && twice == 1) break;
    }
    CHECK(at + 1 < made, "no two words are generated");
    *id = tokens[at];
    ph_model_free(m);
    end_folder();
    return at;
}

static void nul_in_a_text(void)
{
    static const char replaced[] = "\xef\xbf\xbd";
    int32_t id = 0;
    char out[256], stop[64];
    const char *stops = stop;
    int length;
    find_word(&id);
    begin_folder(id, VOCAB - 1);
    ph_model *m = open_model(ctx);
    ph_generation how = {.max_tokens = NEW, .each = add_piece};
    pieces[0] = 0;
    CHECK(ph_generate(m, "ab", &how, out, sizeof out, &length) == PH_OK, "%s",
          ph_error(ctx));
    const char *at = strstr(out, replaced);
    CHECK(at && strlen(out) == (size_t)length, "'%s' of %d bytes", out, length);
    CHECK(!strcmp(pieces, out), "pieces '%s' of '%s'", pieces, out);
    snprintf(stop, sizeof stop, "%.3s", at + 3);
    CHECK(strlen(stop) == 3, "nothing behind the NUL");
    how.stop = &stops, how.stop_count = 1;
    pieces[0] = 0;
    size_t before = (size_t)(strstr(out, stop) - out);
    CHECK(ph_generate(m, "ab", &how, out, sizeof out, NULL) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(strlen(out) == before && !strcmp(pieces, out), "'%s', pieces '%s'", out,
          pieces);
    ph_model_free(m);
    end_folder();
}

/* ---- more tokens than embeddings --------------------------------------------------- */

static void no_embedding(void)
{
    static const char wanted[] = "token 97, '[PAD]', has no embedding: the tokenizer has "
                                 "98 tokens, the model 97";
    char out[256];
    ph_reading *r;
    ph_generation how = {.max_tokens = NEW};
    begin_folder(0, VOCAB);
    write_file("generation_config.json",
               "{\"repetition_penalty\": 1.5, \"no_repeat_ngram_size\": 2, "
               "\"suppress_tokens\": [4], \"eos_token_id\": [2, 97]}");
    ph_model *m = open_model(ctx);
    CHECK(ph_generate(m, "ab", &how, out, sizeof out, NULL) == PH_OK && out[0], "%s",
          ph_error(ctx));
    CHECK(!ph_is_end(m, VOCAB), "a token that cannot come ends a text");
    CHECK(ph_generate(m, "ab[PAD]", &how, out, sizeof out, NULL) == PH_BAD_VALUE &&
              !strcmp(ph_error(ctx), wanted),
          "%s", ph_error(ctx));
    CHECK(ph_reading_create(&r, m, "[PAD]a", NULL) == PH_BAD_VALUE &&
              !strcmp(ph_error(ctx), wanted),
          "%s", ph_error(ctx));
    CHECK(ph_model_own(m) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_write(m, path_of("own.safetensors")) == PH_OK, "%s", ph_error(ctx));
    ph_model_free(m);
    CHECK(ph_model_read(&m, ctx, path_of("own.safetensors")) == PH_OK, "%s",
          ph_error(ctx));
    ph_model_free(m);
    unlink(path_of("own.safetensors"));
    unlink(path_of("generation_config.json"));
    end_folder();
}

static const check_case cases[] = {{"bytes_of_a_prompt", bytes_of_a_prompt},
                                   {"newline_prompt", newline_prompt},
                                   {"nul_in_a_text", nul_in_a_text},
                                   {"no_embedding", no_embedding},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
