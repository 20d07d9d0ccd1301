/*
 * test_page.c - the page as a file: what it holds, how large it is, what it refuses.
 *
 *     test_page --pages FOLDER    writes the pages that the browser tests open, and the
 *                                 true weights of some heads beside them
 */
#define _POSIX_C_SOURCE 200809L /* unlink, getpid */
#include <math.h>
#include <unistd.h>

#include "check.h"
#include "inflate.h"
#include "io/utf8.h"
#include "report_case.h"
#include "view/page.h"

/* ---- pages for the browser ---- */

static const char *const page_names[] = {
    "demo",     "patterns", "cross", "causal",  "grouped", "chinese", "negative",
    "answers",  "single",   "empty", "hostile", "large",   "long",    "many",
    "longest"};

static ph_status write_page(const char *folder, const char *name, const char *second,
                            const ph_io *io)
{
    report_case a, b = {0};
    char path[4096];
    report_case_make(&a, name);
    if (second) report_case_make(&b, second);
    snprintf(path, sizeof path, "%s/%s.html", folder, second ? "compare" : name);
    ph_status status =
        ph_page_write(path, &a.report, second ? &b.report : NULL, NULL, io);
    report_case_free(&a);
    report_case_free(&b);
    return status;
}

/* The words of "demo" as patches in rows of 4, over a picture of 8 x 8 pixels. */
static ph_status write_picture(const char *folder, const ph_io *io)
{
    static uint8_t rgb[8 * 8 * 3] = {200, 100, 50};
    report_case c;
    char path[4096];
    report_case_make(&c, "demo");
    c.report.patch_first = c.axes[0].count % 4 ? c.axes[0].count % 4 : 4;
    c.report.patch_columns = 4;
    c.report.picture = rgb;
    c.report.picture_side = 8;
    snprintf(path, sizeof path, "%s/picture.html", folder);
    ph_status status = ph_page_write(path, &c.report, NULL, NULL, io);
    report_case_free(&c);
    return status;
}

/* NAME.csv: row,key,weight of one head, printed so that floats come back as they were. */
static void write_truth(const char *folder, const char *name, int layer, int head)
{
    report_case c;
    char path[4096];
    report_case_make(&c, name);
    int rows = c.axes[0].count;
    float *w = malloc(sizeof *w * (size_t)rows);
    snprintf(path, sizeof path, "%s/%s.csv", folder, name);
    FILE *out = fopen(path, "w");
    for (int i = 0; i < rows; i++) {
        c.report.weights(c.report.user, 0, layer, head, i, 1, w);
        for (int j = 0; j < rows; j++)
            if (!isnan(w[j])) fprintf(out, "%d,%d,%.9g\n", i, j, (double)w[j]);
    }
    fclose(out);
    free(w);
    report_case_free(&c);
}

static int write_pages(const char *folder)
{
    char error[256] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_status status = write_page(folder, "demo", "other", &io);
    for (size_t n = 0; n < sizeof page_names / sizeof *page_names && !status; n++)
        status = write_page(folder, page_names[n], NULL, &io);
    if (!status) status = write_picture(folder, &io);
    if (status) fprintf(stderr, "%s\n", error);
    write_truth(folder, "demo", 2, 1);
    write_truth(folder, "large", 3, 2);
    write_truth(folder, "long", 1, 4);
    write_truth(folder, "causal", 1, 5);
    write_truth(folder, "negative", 1, 5);
    return status != PH_OK;
}

/* ---- codes ---- */

static void digests(void)
{
    static const struct {
        const char *text, *digest;
    } known[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
    for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
        unsigned char digest[32];
        char text[65];
        ph_sha256(known[n].text, strlen(known[n].text), digest);
        for (int i = 0; i < 32; i++) sprintf(text + 2 * i, "%02x", digest[i]);
        CHECK(!strcmp(text, known[n].digest), "'%s': %s", known[n].text, text);
    }
}

static void base64(void)
{
    static const char *const known[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
        ph_bytes out = {0};
        ph_bytes_base64(&out, known[n][0], strlen(known[n][0]));
        int same = out.count == strlen(known[n][1]) &&
                   (out.count == 0 || !memcmp(out.data, known[n][1], out.count));
        ph_bytes_free(&out);
        CHECK(same, "base64 of '%s'", known[n][0]);
    }
}

/* Runs, noise, and frequencies like Fibonacci numbers, whose tree is deepest. */
static size_t fill(unsigned char *to, size_t count, int kind, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t r = check_random(state), ones = 0;
        while (ones < 40 && (r >> ones & 1)) ones++;
        const uint64_t kinds[] = {0, r >> 32, ones, i % 7,
                                  i / 1000 % 2 ? r >> 40 : i / 300};
        to[i] = (unsigned char)kinds[kind];
    }
    return count;
}

static void deflate_comes_back(void)
{
    static const size_t sizes[] = {0,   1,   2,   5,    6,     7,     257,
                                   258, 259, 300, 4096, 32768, 32769, 200000};
    unsigned char *in = malloc(200000), *back = malloc(200000);
    uint64_t state = check_seed;
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int kind = 0; kind < 5; kind++) {
            size_t count = fill(in, sizes[n], kind, &state);
            ph_bytes out = {0};
            ph_bytes_deflate(&out, in, count);
            long got = inflate_raw(out.data, out.count, back, 200000);
            int same = got == (long)count && !memcmp(in, back, count);
            int small = out.count < count + count / 50 + 300;
            ph_bytes_free(&out);
            CHECK(same, "%zu bytes of kind %d came back as %ld", count, kind, got);
            CHECK(small, "%zu bytes of kind %d grew", count, kind);
        }
    free(in);
    free(back);
}

/* ---- what is packed ---- */

typedef struct packed {
    report_case c;
    ph_page_source source;
    ph_page_plan plan;
    ph_bytes json, blob;
} packed;

static void pack(packed *p, const char *name, size_t budget, int tight)
{
    memset(p, 0, sizeof *p);
    CHECK(report_case_make(&p->c, name) == 0, "no case %s", name);
    p->source = (ph_page_source){.reports = {&p->c.report},
                                 .count = 1,
                                 .page = {.budget = budget},
                                 .tight = tight};
    p->plan = ph_page_make_plan(&p->source);
    CHECK(ph_page_pack(&p->source, &p->json, &p->blob) == PH_OK, "%s: not packed", name);
    ph_bytes_add(&p->json, "", 1);
}

static void unpack(packed *p)
{
    ph_bytes_free(&p->json);
    ph_bytes_free(&p->blob);
    report_case_free(&p->c);
}

/* The n-th number of the first list under a key of the description. */
static long listed(const packed *p, const char *key, int n)
{
    char wanted[40];
    snprintf(wanted, sizeof wanted, "\"%s\":[", key);
    const char *at = strstr((const char *)p->json.data, wanted);
    CHECK(at, "no %s in the description", key);
    at += strlen(wanted);
    while (n-- > 0) at = strchr(at, ',') + 1;
    return strtol(at, NULL, 10);
}

static float float_at(const packed *p, size_t at)
{
    float value;
    CHECK(at + 4 <= p->blob.count, "place %zu is outside", at);
    memcpy(&value, p->blob.data + at, 4);
    return value;
}

static size_t pad4(size_t n)
{
    return (n + 3) / 4 * 4;
}

/* A weight in mode "dec": rounded to the nearest of its digits. */
static double read_decimal(const packed *p, size_t at, size_t row, size_t col,
                           double *bound)
{
    size_t rows = (size_t)p->c.axes[0].count, keys = rows;
    size_t base = at + 4 * rows, digits = base + 4 * rows, low = digits + pad4(rows);
    size_t high = low + pad4(rows * keys), cell = row * keys + col;
    int32_t n;
    CHECK(high + cell < p->blob.count, "place %zu is outside", high + cell);
    memcpy(&n, p->blob.data + base + 4 * row, 4);
    double unit = pow(10, (signed char)p->blob.data[digits + row]);
    *bound = 0.5 / unit * (1 + 1e-12);
    return (n + p->blob.data[low + cell] + 256 * p->blob.data[high + cell]) / unit;
}

/* The weight that a reader of the page finds, and its error bound. */
static double read_weight(const packed *p, int head, int i, int j, double *bound)
{
    size_t rows = (size_t)p->c.axes[0].count, keys = rows, top = (size_t)p->plan.top;
    size_t at = (size_t)listed(p, "maps", head), row = (size_t)i, col = (size_t)j;
    *bound = 0;
    if (p->plan.mode == PH_PAGE_F32) return float_at(p, at + 4 * (row * keys + col));
    if (p->plan.mode == PH_PAGE_DECIMAL) return read_decimal(p, at, row, col, bound);
    size_t exact = at + 4 * rows, cols = exact + 4 * rows * top;
    for (size_t n = row * top; n < (row + 1) * top; n++) {
        const unsigned char *key = p->blob.data + cols + n * (size_t)p->plan.col_bytes;
        if ((size_t)(key[0] | key[1] << 8) == col) return float_at(p, exact + 4 * n);
    }
    *bound = float_at(p, exact + 4 * ((row + 1) * top - 1));
    return 0;
}

static void compare_head(const packed *p, int layer, int head)
{
    int rows = p->c.axes[0].count, n = layer * p->c.stacks[0].heads + head;
    float *w = malloc(sizeof *w * (size_t)rows);
    for (int i = 0; i<rows; i += rows> 100 ? 17 : 1) {
        p->c.report.weights(p->c.report.user, 0, layer, head, i, 1, w);
        for (int j = 0; j < rows && !isnan(w[j]); j++) {
            double bound, got = read_weight(p, n, i, j, &bound);
            CHECK(fabs(got - w[j]) <= bound,
                  "head %d row %d key %d: %g for %g (bound %g)", n, i, j, got,
                  (double)w[j], bound);
        }
    }
    free(w);
}

static void weights_come_back(void)
{
    static const struct {
        const char *name;
        size_t budget;
        int tight;
        ph_page_mode mode;
    } known[] = {{"demo", 0, 0, PH_PAGE_F32},        {"causal", 0, 0, PH_PAGE_F32},
                 {"large", 0, 0, PH_PAGE_DECIMAL},   {"large", 0, 1, PH_PAGE_DECIMAL},
                 {"noisy", 0, 1, PH_PAGE_DECIMAL},   {"large", 0, 2, PH_PAGE_TOP},
                 {"large", 1 << 20, 0, PH_PAGE_TOP}, {"demo", 560 << 10, 0, PH_PAGE_F32},
                 {"long", 0, 0, PH_PAGE_TOP}};
    for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
        packed p;
        pack(&p, known[n].name, known[n].budget, known[n].tight);
        CHECK(p.plan.mode == known[n].mode, "%s: mode %d, expected %d", known[n].name,
              p.plan.mode, known[n].mode);
        compare_head(&p, 0, 0);
        compare_head(&p, 1, 2);
        unpack(&p);
    }
}

/* Digests of what is packed; a change here means that old pages and new ones differ. */
static void same_bytes(void)
{
    static const char *const golden[][3] = {
#include "golden/pages.inc"
    };
    for (size_t n = 0; n < sizeof golden / sizeof *golden; n++) {
        packed p;
        pack(&p, golden[n][0], 0, 0);
        ph_bytes *parts[] = {&p.json, &p.blob};
        p.json.count--; /* the end mark */
        for (int k = 0; k < 2; k++) {
            unsigned char digest[32];
            char text[65];
            ph_sha256(parts[k]->data, parts[k]->count, digest);
            for (int i = 0; i < 32; i++) sprintf(text + 2 * i, "%02x", digest[i]);
            CHECK(!strcmp(text, golden[n][k + 1]), "%s: part %d is now %s", golden[n][0],
                  k, text);
        }
        unpack(&p);
    }
}

/* ---- files ---- */

static char path[64];

static char *slurp(size_t *size)
{
    FILE *in = fopen(path, "rb");
    CHECK(in, "%s cannot be read", path);
    fseek(in, 0, SEEK_END);
    *size = (size_t)ftell(in);
    rewind(in);
    char *text = malloc(*size + 1);
    CHECK(fread(text, 1, *size, in) == *size, "%s ends early", path);
    text[*size] = 0;
    fclose(in);
    return text;
}

static char *page_text(const char *name, const ph_page *page, size_t *size)
{
    report_case c;
    char error[200] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    CHECK(report_case_make(&c, name) == 0, "no case %s", name);
    snprintf(path, sizeof path, "build/page-%ld.html", (long)getpid());
    ph_status status = ph_page_write(path, &c.report, NULL, page, &io);
    report_case_free(&c);
    CHECK(status == PH_OK, "%s: %s", name, error);
    char *text = slurp(size);
    unlink(path);
    return text;
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

static void sizes(void)
{
    static const struct {
        const char *name;
        size_t most;
    } known[] = {{"demo", 500 << 10}, {"large", 3000000},   {"noisy", 3000000},
                 {"long", 8 << 20},   {"longest", 8 << 20}, {"wide", 8 << 20},
                 {"many", 400 << 10}};
    for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
        size_t size;
        free(page_text(known[n].name, NULL, &size));
        CHECK(size <= known[n].most, "%s has %zu bytes", known[n].name, size);
    }
}

/* A megabyte of text: as one word, and as many. */
static void much_text(void)
{
    enum { MEGABYTE = 1 << 20 };
    report_case c;
    char *word = malloc(MEGABYTE + 1), error[200] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    size_t size;
    memset(word, 'a', MEGABYTE);
    word[MEGABYTE] = 0;
    report_case_make(&c, "demo");
    char *first = c.words[0][0];
    c.words[0][0] = word;
    c.report.text = word;
    snprintf(path, sizeof path, "build/page-%ld.html", (long)getpid());
    ph_status status = ph_page_write(path, &c.report, NULL, NULL, &io);
    c.words[0][0] = first;
    report_case_free(&c);
    free(word);
    CHECK(status == PH_OK, "%s", error);
    free(slurp(&size));
    unlink(path);
    CHECK(size > 2 * MEGABYTE && size < 3 * MEGABYTE, "%zu bytes", size);
    free(page_text("wide", NULL, &size)); /* 70,000 words */
    CHECK(size < PH_PAGE_BUDGET, "%zu bytes", size);
}

static void budgets_hold(void)
{
    for (size_t budget = 600 << 10; budget <= 12 << 20; budget *= 2) {
        ph_page page = {.budget = budget};
        size_t size;
        free(page_text("large", &page, &size));
        CHECK(size <= budget, "budget %zu, file %zu", budget, size);
    }
}

static void twice_the_same(void)
{
    size_t one, two;
    char *a = page_text("demo", NULL, &one), *b = page_text("demo", NULL, &two);
    int same = one == two && !memcmp(a, b, one);
    free(a);
    free(b);
    CHECK(same, "the same report gave other bytes");
}

/* Nothing in a page may load anything outside of it. */
static void no_network(void)
{
    static const char *const forbidden[] = {"http:",   "https:",  "//www", "ws:/",
                                            "src=",    "@import", "url(",  "<link",
                                            "<iframe", "<object"};
    size_t size;
    char *text = page_text("demo", NULL, &size);
    for (size_t n = 0; n < sizeof forbidden / sizeof *forbidden; n++) {
        int count = count_of(text, forbidden[n]);
        if (!strcmp(forbidden[n], "url("))
            count -= count_of(text, "url(#"); /* inside SVG */
        CHECK(count == 0, "'%s' occurs %d times", forbidden[n], count);
    }
    CHECK(strstr(text, "default-src 'none'; script-src 'sha256-"), "no policy");
    free(text);
}

/* Whatever words a report holds, the frame stays what it is. */
static void hostile_words(void)
{
    size_t size, plain_size;
    char *text = page_text("hostile", NULL, &size),
         *plain = page_text("demo", NULL, &plain_size);
    const char *marks[] = {"<script", "</script", "<!--", "<img", "]]>"};
    CHECK(strlen(text) == size, "a NUL byte");
    CHECK(ph_utf8_valid(text, size) == size, "no valid UTF-8");
    for (size_t n = 0; n < sizeof marks / sizeof *marks; n++)
        CHECK(count_of(text, marks[n]) == count_of(plain, marks[n]), "'%s' got through",
              marks[n]);
    for (size_t i = 0; i < size; i++)
        CHECK(text[i] == '\n' || (unsigned char)text[i] >= 32, "control character %d",
              text[i]);
    CHECK(!strstr(text, "\xe2\x80\xae") && !strstr(text, "\xe2\x80\xa8"),
          "bidi or U+2028");
    CHECK(strstr(text, "\\u003c/script\\u003e"), "the word itself is gone");
    free(text);
    free(plain);
}

/* ---- refusals ---- */

static ph_status spoilt_weights(void *user, int s, int layer, int head, int row0,
                                int rows, float *out)
{
    (void)s, (void)user;
    for (int i = 0; i < rows * 13; i++) out[i] = 1.0f / 13;
    if (layer == 2 && head == 3 && row0 + rows > 4) out[(4 - row0) * 13 + 5] = NAN;
    return PH_OK;
}

static ph_status no_weights(void *user, int s, int layer, int head, int row0, int rows,
                            float *out)
{
    (void)user, (void)s, (void)layer, (void)head, (void)row0, (void)rows, (void)out;
    return PH_IO_ERROR;
}

static report_case refused;

static void expect(ph_status wanted, const char *words)
{
    char error[200] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_status status =
        ph_page_write("build/never.html", &refused.report, NULL, NULL, &io);
    CHECK(status == wanted, "status %d, expected %d: %s", status, wanted, error);
    CHECK(strstr(error, words), "'%s' does not say '%s'", error, words);
    CHECK(access("build/never.html", F_OK) != 0, "a refused page was written");
    refused.axes[0].count = 13; /* whatever was wrong: all words are released */
    report_case_free(&refused);
    report_case_make(&refused, "demo");
}

static void refusals(void)
{
    ph_role bad_role[] = {{'.', "none", "", ""}, {'\n', "x", "", ""}};
    ph_metric bad_metric[] = {{.key = "two words", .name = "", .help = ""}};
    report_case_make(&refused, "demo");
    refused.report.weights = spoilt_weights;
    expect(PH_BAD_VALUE, "layer 2 head 3: the weight of row 4 and key 5 is NaN");
    refused.report.weights = no_weights;
    expect(PH_IO_ERROR, "the weights of layer 0 head 0 could not be had");
    refused.report.weights = NULL;
    expect(PH_BAD_ARGUMENT, "weights is NULL");
    refused.report.vectors = NULL;
    expect(PH_BAD_ARGUMENT, "vectors is NULL");
    refused.stacks[0].q_axis = 1;
    expect(PH_BAD_ARGUMENT, "names axes 1 and 0, there are 1");
    refused.stacks[0].layers = 0;
    expect(PH_BAD_ARGUMENT, "0 layers x 8 heads");
    refused.stacks[0].kv_heads = 3;
    expect(PH_BAD_ARGUMENT, "kv_heads is 3");
    refused.roles[0][7] = 200;
    expect(PH_BAD_ARGUMENT, "role[7] is 200");
    refused.report.roles = bad_role;
    refused.report.role_count = 2;
    refused.stacks[0].role = NULL;
    expect(PH_BAD_ARGUMENT, "roles[1].glyph");
    refused.report.metrics = bad_metric;
    refused.report.metric_count = 1;
    expect(PH_BAD_ARGUMENT, "metrics[0].key");
    refused.axes[0].count = -1;
    expect(PH_BAD_ARGUMENT, "count -1");
    report_case_free(&refused);
}

/* ---- memory that runs out ---- */

static int left, held;

static void *scarce(void *user, size_t bytes)
{
    (void)user;
    if (left-- <= 0) return NULL;
    held++;
    return malloc(bytes);
}

static void give(void *user, void *ptr)
{
    (void)user;
    if (ptr) held--;
    free(ptr);
}

static void memory_runs_out(void)
{
    report_case c;
    char error[200];
    ph_io io = {
        .alloc = scarce, .release = give, .error = error, .error_size = sizeof error};
    ph_status status = PH_OUT_OF_MEMORY;
    report_case_make(&c, "cross");
    snprintf(path, sizeof path, "build/page-%ld.html", (long)getpid());
    for (int most = 0; status; most++) {
        CHECK(most < 2000, "it never ends well: %s", error);
        left = most;
        status = ph_page_write(path, &c.report, NULL, NULL, &io);
        CHECK(status == PH_OK || status == PH_OUT_OF_MEMORY, "status %d", status);
        CHECK(held == 0, "%d blocks are lost when %d are given", held, most);
        CHECK((access(path, F_OK) == 0) == (status == PH_OK), "half a page");
    }
    unlink(path);
    report_case_free(&c);
}

static const check_case cases[] = {{"digests", digests},
                                   {"base64", base64},
                                   {"deflate_comes_back", deflate_comes_back},
                                   {"weights_come_back", weights_come_back},
                                   {"same_bytes", same_bytes},
                                   {"sizes", sizes},
                                   {"much_text", much_text},
                                   {"budgets_hold", budgets_hold},
                                   {"twice_the_same", twice_the_same},
                                   {"no_network", no_network},
                                   {"hostile_words", hostile_words},
                                   {"refusals", refusals},
                                   {"memory_runs_out", memory_runs_out},
                                   {0, 0}};

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--pages")) return write_pages(argv[2]);
    return check_main(argc, argv, cases);
}
