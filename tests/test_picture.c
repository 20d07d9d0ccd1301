/*
 * test_picture.c - reports on the terminal and as figures: stored pictures, widths,
 * hostile words, SVG that is well formed, PNG inside it decoded and compared with
 * the weights.
 *
 * The stored pictures are tests/golden/terminal/NAME.txt; WRITE_GOLDEN=1 in the
 * environment writes them anew, to be looked at before they are committed.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "inflate.h"
#include "io/utf8.h"
#include "polyhead_heads.h"
#include "polyhead_picture.h"
#include "report_case.h"
#include "view/palette.h"
#include "view/figure.h"

/* ---- a report, measured and drawn into memory ---- */

/* Heads measured by several threads: the numbers are the same bits. */
static void surveys_by_threads(void)
{
    static const char *const names[] = {"demo", "causal", "grouped", "cross", "large"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        ph_survey *alone = NULL;
        report_case c;
        report_case_make(&c, names[n]);
        CHECK(ph_survey_create(&alone, &c.report, NULL) == PH_OK &&
                  ph_survey_text(alone, &c.report, NULL, NULL) == PH_OK,
              "no survey");
        const ph_report before = c.report;
        ph_survey_end(alone, &c.report, NULL, NULL);
        for (int threads = 1; threads <= 5; threads += 2) {
            ph_ctx *ctx = NULL;
            ph_survey *many = NULL;
            ph_report report = before;
            CHECK(ph_open(&ctx, &(ph_options){.threads = threads}) == PH_OK, "no ctx");
            const ph_survey_facts facts = {.ctx = ctx};
            CHECK(ph_survey_create(&many, &report, NULL) == PH_OK &&
                      ph_survey_text(many, &report, &facts, NULL) == PH_OK &&
                      ph_survey_end(many, &report, NULL, NULL) == PH_OK,
                  "no survey by %d threads", threads);
            const ph_stack *stack = &report.stacks[0];
            for (int h = 0; h < stack->layers * stack->heads; h++)
                CHECK(
                    !memcmp(ph_survey_head(alone, 0, h / stack->heads, h % stack->heads),
                            ph_survey_head(many, 0, h / stack->heads, h % stack->heads),
                            sizeof(ph_head_stats)),
                    "%s: head %d differs with %d threads", names[n], h, threads);
            ph_survey_free(many);
            ph_close(ctx);
        }
        ph_survey_free(alone);
        report_case_free(&c);
    }
}

static ph_status survey_one(ph_survey **out, ph_report *report)
{
    ph_status status = ph_survey_create(out, report, NULL);
    if (status == PH_OK) status = ph_survey_text(*out, report, NULL, NULL);
    if (status == PH_OK) status = ph_survey_end(*out, report, NULL, NULL);
    return status;
}

/* Heads that find a relation have a role named after it, with a letter of its own. */
static void relations_are_roles(void)
{
    static const char *const names[] = {"subject", "state", "unused"};
    report_case c;
    ph_survey *survey = NULL;
    ph_link links[24];
    report_case_make(&c, "large");
    for (int n = 0; n < 24; n++) /* "after" but for one in five, "before" likewise */
        links[n] = (ph_link){n + 3, n + 3 + (n % 2 ? -1 : 1) * (n % 5 ? 1 : 2), n % 2};
    const ph_survey_facts facts = {.links = links, .link_count = 24};
    CHECK(ph_survey_create(&survey, &c.report, NULL) == PH_OK &&
              ph_survey_text(survey, &c.report, &facts, NULL) == PH_OK &&
              ph_survey_end(survey, &c.report, names, NULL) == PH_OK,
          "no survey");
    const ph_role *roles = c.report.roles;
    CHECK(c.report.role_count == PH_LABELS + 2, "%d roles", c.report.role_count);
    CHECK(!strcmp(roles[1].key, "subject") && !strcmp(roles[1].name, "subject links") &&
              roles[1].glyph == 's' && !strcmp(roles[2].key, "state") &&
              roles[2].glyph == 't' && roles[3].glyph == 'I',
          "%s %c, %s %c", roles[1].key, roles[1].glyph, roles[2].key, roles[2].glyph);
    ph_survey_free(survey);
    report_case_free(&c);
}

typedef struct text {
    char *bytes;
    size_t count, capacity;
} text;

static void append(void *user, const char *bytes, size_t count)
{
    text *t = user;
    if (t->count + count + 1 > t->capacity) {
        t->capacity = 2 * (t->count + count + 1);
        t->bytes = realloc(t->bytes, t->capacity);
    }
    memcpy(t->bytes + t->count, bytes, count);
    t->count += count;
    t->bytes[t->count] = 0;
}

static text draw(const char *name, int width, int ascii, int colors, const ph_pick *pick)
{
    report_case c;
    ph_survey *survey = NULL;
    text t = {calloc(1, 1), 0, 1};
    CHECK(report_case_make(&c, name) == 0, "no case %s", name);
    CHECK(survey_one(&survey, &c.report) == PH_OK, "survey of %s", name);
    ph_terminal terminal = {.width = width,
                            .ascii = ascii,
                            .colors = colors,
                            .picks = pick,
                            .pick_count = pick != NULL,
                            .write = append,
                            .user = &t};
    CHECK(ph_terminal_write(&c.report, &terminal, NULL) == PH_OK, "picture of %s", name);
    ph_survey_free(survey);
    report_case_free(&c);
    return t;
}

static text read_file(const char *path)
{
    text t = {calloc(1, 1), 0, 1};
    FILE *f = fopen(path, "rb");
    char part[4096];
    for (size_t n; f && (n = fread(part, 1, sizeof part, f)) > 0;) append(&t, part, n);
    if (f) fclose(f);
    return t;
}

/* ---- stored pictures ---- */

static const struct {
    const char *file, *report;
    int width, ascii, colors, one;
} pictures[] = {{"patterns", "patterns", 80, 0, 0, 0},
                {"patterns-ascii", "patterns", 80, 1, 0, 0},
                {"patterns-color", "patterns", 80, 0, 256, 0},
                {"patterns-one", "patterns", 80, 0, 0, 1},
                {"patterns-narrow", "patterns", 40, 1, 0, 0},
                {"chinese", "chinese", 80, 0, 0, 0},
                {"chinese-one", "chinese", 100, 0, 0, 1},
                {"causal", "causal", 80, 1, 0, 0},
                {"cross", "cross", 80, 0, 0, 0},
                {"grouped", "grouped", 80, 0, 0, 0},
                {"hostile", "hostile", 80, 0, 0, 0},
                {"hostile-ascii", "hostile", 80, 1, 0, 0},
                {"single", "single", 80, 0, 0, 0},
                {"empty", "empty", 80, 0, 0, 0},
                {"many", "many", 80, 0, 0, 0},
                {"long", "long", 80, 1, 0, 1}};
enum { PICTURES = sizeof pictures / sizeof pictures[0] };

static text draw_picture(int n)
{
    const ph_pick pick = {0, 0, 2};
    return draw(pictures[n].report, pictures[n].width, pictures[n].ascii,
                pictures[n].colors, pictures[n].one ? &pick : NULL);
}

static void stored_pictures(void)
{
    for (int n = 0; n < PICTURES; n++) {
        char path[200];
        text now = draw_picture(n);
        snprintf(path, sizeof path, "tests/golden/terminal/%s.txt", pictures[n].file);
        if (getenv("WRITE_GOLDEN")) {
            FILE *f = fopen(path, "wb");
            CHECK(f && fwrite(now.bytes, 1, now.count, f) == now.count, "%s", path);
            fclose(f);
        }
        text stored = read_file(path);
        CHECK(now.count == stored.count && !memcmp(now.bytes, stored.bytes, now.count),
              "%s is drawn differently now:\n%s", path, now.bytes);
        free(now.bytes), free(stored.bytes);
    }
}

/* ---- what holds for every picture ---- */

/* No line too wide or ending in a blank, no control character but those of colours. */
static void check_lines(const char *at, int width, int ascii, const char *name)
{
    for (int line = 1; *at; line++) {
        size_t length = strcspn(at, "\n");
        char row[4096];
        CHECK(length < sizeof row, "%s: line %d has %zu bytes", name, line, length);
        memcpy(row, at, length);
        row[length] = 0;
        CHECK(ph_utf8_valid(row, length) == length, "%s: line %d is no UTF-8", name,
              line);
        CHECK(length == 0 || row[length - 1] != ' ', "%s: line %d ends in a blank", name,
              line);
        CHECK(ph_text_columns(row) <= width, "%s: line %d takes %d columns: %s", name,
              line, ph_text_columns(row), row);
        for (size_t n = 0; n < length; n++) {
            CHECK((unsigned char)row[n] >= 32 && row[n] != 127, "%s: line %d: control",
                  name, line);
            CHECK(!ascii || (row[n] & 0x80) == 0, "%s: line %d is not ASCII", name, line);
        }
        at += length + (at[length] == '\n');
    }
}

static void widths(void)
{
    static const char *const reports[] = {"patterns", "chinese", "causal",  "cross",
                                          "grouped",  "hostile", "single",  "empty",
                                          "many",     "demo",    "longest", "wide"};
    static const int columns[] = {20, 40, 63, 80, 200};
    for (size_t r = 0; r < sizeof reports / sizeof reports[0]; r++)
        for (int w = 0; w < 5; w++) {
            int ascii = w & 1, width = columns[w] < 40 ? 40 : columns[w];
            if (r >= 10 && w > 1) break; /* thousands of words: two widths are enough */
            text t = draw(reports[r], columns[w], ascii, 0, NULL);
            check_lines(t.bytes, width, ascii, reports[r]);
            free(t.bytes);
        }
}

/* Without its colour codes a coloured picture has the same lines. */
static void colors_add_codes_only(void)
{
    text t = draw("patterns", 80, 0, 256, NULL), plain = draw("patterns", 80, 0, 0, NULL);
    text bare = {calloc(1, 1), 0, 1};
    for (const char *at = t.bytes; *at;) {
        if (*at == '\033') {
            CHECK(at[1] == '[', "an escape that is no colour");
            size_t end = strspn(at + 2, "0123456789;");
            CHECK(at[2 + end] == 'm', "an escape that is no colour");
            at += end + 3;
        } else {
            append(&bare, at++, 1);
        }
    }
    char *grid = strstr(plain.bytes, "layer   1"), *end = strstr(grid, "\n");
    *end = 0;
    CHECK(strstr(bare.bytes, "layer   1   P"), "no grid in\n%s", bare.bytes);
    CHECK(strstr(plain.bytes, "layer   1   P"), "no grid in\n%s", plain.bytes);
    free(t.bytes), free(plain.bytes), free(bare.bytes);
}

/* ---- picks ---- */

static void picks(void)
{
    report_case c;
    ph_survey *survey = NULL;
    ph_pick list[100];
    report_case_make(&c, "patterns");
    survey_one(&survey, &c.report);
    int heads = c.report.stacks[0].layers * c.report.stacks[0].heads;
    CHECK(ph_report_picks(&c.report, list, 100) == heads, "all heads are listed once");
    for (int n = 0; n < heads; n++)
        for (int k = 0; k < n; k++)
            CHECK(list[n].head != list[k].head || list[n].layer != list[k].layer,
                  "head %d twice", list[n].head);
    int role =
        c.report.stacks[0].role[list[0].layer * c.report.stacks[0].heads + list[0].head];
    CHECK(role == 5, "the first pick is role %d, expected the previous token", role);
    ph_survey_free(survey);
    report_case_free(&c);
}

/* ---- figures ---- */

static const char *temporary(const char *ending)
{
    static char path[200];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/polyhead-picture-%ld.%s", folder ? folder : "/tmp",
             (long)getpid(), ending);
    return path;
}

static text figure(const char *name, const ph_pick *pick)
{
    report_case c;
    ph_survey *survey = NULL;
    char error[200] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    const char *path = temporary("svg");
    CHECK(report_case_make(&c, name) == 0, "no case %s", name);
    CHECK(survey_one(&survey, &c.report) == PH_OK, "%s", error);
    ph_figure how = {.picks = pick, .pick_count = pick != NULL};
    ph_status status = ph_figure_write(path, &c.report, &how, &io);
    ph_survey_free(survey);
    report_case_free(&c);
    CHECK(status == PH_OK, "%s: %s", name, error);
    text t = read_file(path);
    remove(path);
    return t;
}

/* A small XML reader: elements nest and close, attributes are quoted, text holds no bare
   '<' or '&'. Returns how many elements there are, or -1. */
static int count_elements(const char *at)
{
    char open[64][32];
    int depth = 0, count = 0;
    while (*at) {
        if (*at == '&') {
            size_t n = strcspn(at, ";");
            if (n < 2 || n > 6 || !at[n]) return -1;
        }
        if (*at++ != '<') continue;
        int closing = *at == '/';
        size_t name = strcspn(at + closing, " />\n");
        if (name == 0 || name > 31) return -1;
        if (closing) {
            if (depth == 0 || strncmp(open[depth - 1], at + 1, name)) return -1;
            depth--;
        }
        const char *end = at + name + closing;
        while (*end && *end != '>' && strncmp(end, "/>", 2)) {
            if (*end == '<') return -1;
            if (*end == '"') end += 1 + strcspn(end + 1, "\"<");
            if (!*end) return -1;
            end++;
        }
        if (!closing && *end == '>') {
            if (depth == 64) return -1;
            snprintf(open[depth++], 32, "%.*s", (int)name, at);
        }
        count += !closing;
        at = end;
    }
    return depth == 0 ? count : -1;
}

static void svg_is_well_formed(void)
{
    static const char *const reports[] = {"patterns", "chinese", "causal", "cross",
                                          "hostile",  "single",  "empty",  "longest",
                                          "noisy"};
    const ph_pick pick = {0, 0, 0};
    for (size_t r = 0; r < sizeof reports / sizeof reports[0]; r++)
        for (int one = 0; one < 2; one++) {
            text t = figure(reports[r], one ? &pick : NULL);
            CHECK(count_elements(t.bytes) > 3, "%s is no XML", reports[r]);
            CHECK(ph_utf8_valid(t.bytes, t.count) == t.count, "no UTF-8");
            CHECK(!strstr(t.bytes, "<script") && !strstr(t.bytes, "href=\"http"),
                  "%s holds something alive", reports[r]);
            CHECK(t.count < 1u << 20, "%s: %zu bytes", reports[r], t.count);
            free(t.bytes);
        }
}

/* Two colours of a map in SVG: the cells on the diagonal of a head that looks back. */
static void svg_shows_the_weights(void)
{
    const ph_pick previous = {0, 0, 0};
    text t = figure("patterns", &previous);
    CHECK(strstr(t.bytes, ">1-1 previous token<") || strstr(t.bytes, ">1-1  previous"),
          "no title");
    CHECK(strstr(t.bytes, ">animal<"), "no words");
    CHECK(strstr(t.bytes, "M0 1h1v1h-1z"), "row 1 has no cell of its own at key 0");
    free(t.bytes);
}

/* ---- PNG, decoded ---- */

typedef struct image {
    uint32_t width, height;
    unsigned char palette[256][3], *lines; /* each line after its filter byte */
} image;

static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* CRC-32 by its definition as a remainder, one bit after the other. */
static uint32_t remainder_of(const unsigned char *data, size_t count)
{
    uint32_t r = 0xffffffff;
    for (size_t n = 0; n < count * 8; n++) {
        uint32_t bit = data[n / 8] >> n % 8 & 1;
        r = (r >> 1) ^ (((r ^ bit) & 1) ? 0xedb88320 : 0);
    }
    return r ^ 0xffffffff;
}

static uint32_t adler(const unsigned char *data, size_t count)
{
    uint64_t a = 1, b = 0;
    for (size_t n = 0; n < count; n++) a += data[n], b = (b + a) % 65521;
    return (uint32_t)(b << 16 | a % 65521);
}

static image decode(const text *t)
{
    const unsigned char *at = (const unsigned char *)t->bytes + 8;
    const unsigned char *end = (const unsigned char *)t->bytes + t->count;
    image png = {0};
    int over = 0;
    CHECK(t->count > 8 && !memcmp(t->bytes, "\x89PNG\r\n\x1a\n", 8), "no PNG");
    while (!over) {
        uint32_t count = big_endian(at);
        CHECK((size_t)(end - at) >= 12 + (size_t)count, "a chunk is cut short");
        const unsigned char *data = at + 8;
        CHECK(remainder_of(at + 4, count + 4) == big_endian(data + count), "check sum");
        if (!memcmp(at + 4, "IHDR", 4)) {
            CHECK(count == 13 && !memcmp(data + 8, "\x08\x03\x00\x00\x00", 5), "header");
            png.width = big_endian(data);
            png.height = big_endian(data + 4);
        } else if (!memcmp(at + 4, "PLTE", 4)) {
            memcpy(png.palette, data, count);
        } else if (!memcmp(at + 4, "IDAT", 4)) {
            size_t capacity = (size_t)(png.width + 1) * png.height;
            png.lines = malloc(capacity);
            CHECK(((data[0] << 8) + data[1]) % 31 == 0 && (data[0] & 15) == 8, "zlib");
            CHECK(inflate_raw(data + 2, count - 6, png.lines, capacity) == (long)capacity,
                  "size");
            CHECK(adler(png.lines, capacity) == big_endian(data + count - 4), "adler");
        }
        over = !memcmp(at + 4, "IEND", 4);
        at = data + count + 4;
    }
    CHECK(at == end, "something follows the end");
    return png;
}

static const unsigned char *pixel(const image *png, uint32_t x, uint32_t y)
{
    return png->palette[png->lines[(size_t)y * (png->width + 1) + 1 + x]];
}

static text from_base64(const char *at)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    text t = {malloc(strlen(at)), 0, strlen(at)};
    uint32_t bits = 0;
    for (int n = 0; *at != '=' && *at != '"'; at++, n++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, *at) - digits);
        if (n % 4) t.bytes[t.count++] = (char)(bits >> (6 - 2 * (n % 4)));
    }
    return t;
}

/* Among all heads each map is a PNG inside the file: pixels that are darker the larger
   the weight. */
static void images_show_the_weights(void)
{
    report_case c;
    report_case_make(&c, "patterns");
    text t = figure("patterns", NULL);
    const char *at = t.bytes;
    for (int h = 0; h < c.stacks[0].heads; h++) {
        at = strstr(at, "base64,") + 7;
        text packed = from_base64(at);
        image png = decode(&packed);
        CHECK(png.width == 9 && png.height == 9, "%u x %u", png.width, png.height);
        for (int n = 0; n < 81; n++) {
            double weight = report_case_weight(&c, 0, 0, h, n / 9, n % 9);
            const unsigned char *rgb = pixel(&png, (uint32_t)(n % 9), (uint32_t)(n / 9));
            int level = (int)(sqrtf((float)weight) * 63 + 0.5f);
            CHECK(!memcmp(rgb, png.palette[PH_HEAT + level], 3), "head %d, cell %d", h,
                  n);
        }
        for (int n = PH_HEAT + 1; n < PH_PALETTE; n++) {
            const unsigned char *a = png.palette[n - 1], *b = png.palette[n];
            CHECK(2 * b[0] + 5 * b[1] + b[2] < 2 * a[0] + 5 * a[1] + a[2],
                  "colour %d is not darker than the one before", n);
        }
        free(png.lines), free(packed.bytes);
    }
    free(t.bytes);
    report_case_free(&c);
}

/* Words of every language are words; those that the model does not know have a mark. */
static void words_of_figures(void)
{
    const ph_pick pick = {0, 0, 0};
    text t = figure("chinese", &pick);
    CHECK(strstr(t.bytes, ">\xe5\x8a\xa8\xe7\x89\xa9<"), "no Chinese");
    free(t.bytes);
    t = figure("answers", &pick);
    CHECK(strstr(t.bytes, ">street?<") && !strstr(t.bytes, ">animal?<"), "no mark");
    free(t.bytes);
}

/* ---- wild numbers and names ---- */

static ph_status wild_weights(void *user, int stack, int layer, int head, int row0,
                              int rows, float *out)
{
    static const float wild[] = {1, 0.5f, -3, 1e30f, INFINITY, -INFINITY, NAN, 1e-30f, 7};
    (void)user, (void)stack, (void)layer, (void)head;
    for (int n = 0; n < rows * 9; n++) out[n] = wild[(n + row0) % 9];
    return PH_OK;
}

/* Nothing but a picture comes of weights that are none and names that are codes. */
static void wild_reports(void)
{
    report_case c;
    ph_survey *survey = NULL;
    report_case_make(&c, "patterns");
    ph_stack stacks[2] = {c.report.stacks[0], c.report.stacks[0]};
    stacks[0].name = stacks[1].name = "\033[2J\xff\xe2\x80\xae";
    c.report.stacks = stacks;
    c.report.stack_count = 2;
    c.report.title = c.report.text = "\033]0;title\007";
    CHECK(survey_one(&survey, &c.report) == PH_OK, "survey");
    for (int wild = 0; wild < 2; wild++) {
        const ph_pick pick = {1, 0, 0};
        text t = {calloc(1, 1), 0, 1};
        if (wild) c.report.weights = wild_weights;
        ph_terminal terminal = {.picks = &pick, .pick_count = wild, .write = append};
        terminal.user = &t;
        CHECK(ph_terminal_write(&c.report, &terminal, NULL) == PH_OK, "picture");
        check_lines(t.bytes, 80, 0, "wild");
        free(t.bytes);
        const char *path = temporary("svg");
        const ph_figure how = {.picks = &pick, .pick_count = wild};
        CHECK(ph_figure_write(path, &c.report, &how, NULL) == PH_OK, "figure");
        t = read_file(path);
        CHECK(count_elements(t.bytes) > 3, "no XML");
        free(t.bytes);
        remove(path);
    }
    ph_survey_free(survey);
    report_case_free(&c);
}

/* A figure that cannot be written leaves what was there before. */
static void refused_files(void)
{
    report_case c;
    char error[200] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    const ph_figure how = {0};
    struct stat info;
    report_case_make(&c, "patterns");
    const char *folder = temporary("d");
    mkdir(folder, 0700);
    CHECK(ph_figure_write(folder, &c.report, &how, &io) == PH_IO_ERROR, "%s", error);
    CHECK(stat(folder, &info) == 0 && S_ISDIR(info.st_mode), "the folder is gone");
    rmdir(folder);
    CHECK(ph_figure_write("/no/such/place.svg", &c.report, &how, &io) == PH_IO_ERROR,
          "%s", error);
    report_case_free(&c);
}

/* More roles than colours: no two look the same. */
static void role_marks(void)
{
    enum { ROLES = 4 * PH_ROLE_COLORS };
    for (int a = 1; a <= ROLES; a++)
        for (int b = 1; b < a; b++)
            CHECK(ph_role_color(a) != ph_role_color(b) ||
                      ph_role_bars(a) != ph_role_bars(b),
                  "roles %d and %d look the same", a, b);
    CHECK(ph_role_bars(PH_ROLE_COLORS) == 0 && ph_role_bars(PH_ROLE_COLORS + 1) == 1,
          "the first roles need no bar");
}

static const check_case cases[] = {{"role_marks", role_marks},
                                   {"stored_pictures", stored_pictures},
                                   {"relations_are_roles", relations_are_roles},
                                   {"surveys_by_threads", surveys_by_threads},
                                   {"widths", widths},
                                   {"colors_add_codes_only", colors_add_codes_only},
                                   {"wild_reports", wild_reports},
                                   {"picks", picks},
                                   {"svg_is_well_formed", svg_is_well_formed},
                                   {"svg_shows_the_weights", svg_shows_the_weights},
                                   {"images_show_the_weights", images_show_the_weights},
                                   {"words_of_figures", words_of_figures},
                                   {"refused_files", refused_files},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
