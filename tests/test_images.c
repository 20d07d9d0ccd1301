/*
 * test_images.c - pictures from files, their resizing, and what a model is given of them.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "images/image.h"
#include "polyhead_model.h"

#define FOLDER "tests/golden/pictures/"

static char error[512];
static const ph_io io = {.error = error, .error_size = sizeof error};

static ph_image open_picture(const char *name, const char *suffix)
{
    char path[128];
    ph_image image;
    snprintf(path, sizeof path, FOLDER "%s.%s", name, suffix);
    CHECK(ph_image_open(&image, path, &io) == PH_OK, "%s", error);
    return image;
}

/* Every kind of PNG holds what the PPM beside it holds. */
static void kinds(void)
{
    static const char *const names[] = {
        "rgb8",  "rgb16",  "rgba8",       "rgba16",   "grey1",    "grey2",   "grey4",
        "grey8", "grey16", "grey_alpha8", "palette1", "palette4", "palette8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ph_image a = open_picture(names[i], "png"), b = open_picture(names[i], "ppm");
        CHECK(a.width == b.width && a.height == b.height, "%s: %d x %d", names[i],
              a.width, a.height);
        CHECK(!memcmp(a.rgb, b.rgb, 3 * (size_t)a.width * (size_t)a.height), "%s",
              names[i]);
        ph_image_free(&a, &io);
        ph_image_free(&b, &io);
    }
}

/* Every kind of JPEG against what libjpeg makes of it. Both round a sample of brightness
   and of each colour once, after transforms in another arithmetic, so each is off by 1 at
   most, and a pixel by 1 + 1.402, 1 + 0.344 + 0.714 or 1 + 1.772, rounded once more; few
   are: a sum must lie at an edge. */
static void jpegs(void)
{
    static const char *const names[] = {"jpeg444",
                                        "jpeg422",
                                        "jpeg420",
                                        "jpeg_progressive",
                                        "jpeg_progressive444",
                                        "jpeg_restart",
                                        "jpeg_low",
                                        "jpeg_rgb",
                                        "jpeg_optimised",
                                        "jpeg_grey",
                                        "jpeg_grey_progressive",
                                        "jpeg_pixel",
                                        "jpeg_turned1",
                                        "jpeg_turned2",
                                        "jpeg_turned3",
                                        "jpeg_turned4",
                                        "jpeg_turned5",
                                        "jpeg_turned6",
                                        "jpeg_turned7",
                                        "jpeg_turned8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ph_image a = open_picture(names[i], "jpg"), b = open_picture(names[i], "ppm");
        CHECK(a.width == b.width && a.height == b.height, "%s: %d x %d", names[i],
              a.width, a.height);
        int count = 3 * a.width * a.height, differ = 0;
        for (int k = 0; k < count; k++) {
            int off = abs(a.rgb[k] - b.rgb[k]);
            CHECK(off <= 3, "%s: byte %d is %d, expected %d", names[i], k, a.rgb[k],
                  b.rgb[k]);
            differ += off > 0;
        }
        CHECK(10 * differ <= count, "%s: %d of %d bytes differ", names[i], differ, count);
        ph_image_free(&a, &io);
        ph_image_free(&b, &io);
    }
}

/* Any beginning of a file, and any file with a byte changed, is read or refused with a
   sentence. */
static void jpegs_damaged(void)
{
    static const char *const names[] = {"jpeg420", "jpeg_progressive", "jpeg_restart"};
    static uint8_t bytes[1 << 14], copy[1 << 14];
    uint64_t state = check_seed;
    for (int i = 0; i < 3; i++) {
        char path[128];
        ph_image image;
        snprintf(path, sizeof path, FOLDER "%s.jpg", names[i]);
        FILE *file = fopen(path, "rb");
        CHECK(file, "no %s", path);
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        for (int round = 0; round < 600; round++) {
            size_t length = round % 2 ? size : (size_t)check_below(&state, (int)size);
            memcpy(copy, bytes, size);
            for (int k = 0; round % 2 && k < 1 + round % 3; k++)
                copy[check_below(&state, (int)size)] = (uint8_t)check_random(&state);
            error[0] = 0;
            ph_status status = ph_image_read(&image, "photo", copy, length, &io);
            CHECK(status == PH_OK || (error[0] && !image.rgb), "no sentence");
            if (length < size - 2 && !(round % 2))
                CHECK(status != PH_OK || i == 1, "%zu of %zu bytes are enough", length,
                      size);
            ph_image_free(&image, &io);
        }
    }
}

/* A segment of EXIF in memory of its length: cut anywhere it says nothing or the same,
   and whatever a byte of it becomes, nothing behind it is read. */
static void orientations(void)
{
    static const struct {
        const char *bytes;
        int size, orientation;
    } all[] = {
        {"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 28, 6},
        {"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0", 28, 8},
        {"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x04\0\0\0\x01\0\0\0\x05", 28, 5},
        {"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x09\0\0", 28, 1},
        {"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x02\0\x08\0\0", 28, 0},
        {"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12\0\x03\0\0\0\x01\0\x08\0\0", 28, 8},
        {"Exif\0\0MM\0*\xff\xff\xff\xff\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0", 28,
         0}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int size = 0; size <= all[i].size; size++) {
            uint8_t *copy = malloc((size_t)size + !size);
            memcpy(copy, all[i].bytes, (size_t)size);
            int found = ph_exif_orientation(copy, (size_t)size);
            CHECK(found == (size == all[i].size ? all[i].orientation : 0),
                  "%zu, %d bytes: %d", i, size, found);
            for (int k = 0; k < size * 256; k++) {
                uint8_t old = copy[k / 256];
                copy[k / 256] = (uint8_t)k;
                found = ph_exif_orientation(copy, (size_t)size);
                CHECK(found >= 0 && found <= 8, "%d", found);
                copy[k / 256] = old;
            }
            free(copy);
        }
}

static void ppm_numbers(void)
{
    static const char text[] = "P3 # two pixels\n2 1\n15 0 15 7  1 2#none\n3 ";
    static const char wide[] = "P6 1 1 65535\n\0\0\x80\0\xff\xff";
    ph_image a;
    CHECK(ph_image_read(&a, "text", (const uint8_t *)text, sizeof text - 1, &io) == PH_OK,
          "%s", error);
    CHECK(a.width == 2 && a.height == 1 && !memcmp(a.rgb, "\x00\xff\x77\x11\x22\x33", 6),
          "%d %d %d", a.rgb[0], a.rgb[1], a.rgb[2]);
    ph_image_free(&a, &io);
    CHECK(ph_image_read(&a, "wide", (const uint8_t *)wide, sizeof wide - 1, &io) == PH_OK,
          "%s", error);
    CHECK(!memcmp(a.rgb, "\x00\x80\xff", 3), "%d %d", a.rgb[1], a.rgb[2]);
    ph_image_free(&a, &io);
}

static void refuse(const char *bytes, size_t size, ph_status status, const char *words)
{
    ph_image image;
    error[0] = 0;
    ph_status found = ph_image_read(&image, "photo", (const uint8_t *)bytes, size, &io);
    CHECK(found == status && strstr(error, words) && !image.rgb, "%d: %s (%s)", found,
          error, words);
}

static void refused(void)
{
    ph_image image;
#define TEXT(text) text, sizeof text - 1
    refuse(TEXT("\xff\xd8\xff\xe0"), PH_BAD_FILE, "a segment is longer than the file");
    refuse(TEXT("\xff\xd8\xff\xd9"), PH_BAD_FILE, "there is no scan");
    refuse(TEXT("\xff\xd8\xff\xc0\0\x0b\x08\x7f\xff\x7f\xff\1\1\x11\0"), PH_BAD_FILE,
           "expected 1 to");
    refuse(TEXT("\xff\xd8\xff\xc0\0\x0b\x08\x20\0\x20\0\1\1\x11\0"), PH_BAD_FILE,
           "the data end too early");
    refuse(TEXT("\xff\xd8\xff\xc0\0\x0b\x0c\0\1\0\1\1\1\x11\0"), PH_UNSUPPORTED,
           "1 components of 12 bits");
    refuse(TEXT("\xff\xd8\xff\xc9\0\x0b\x08\0\1\0\1\1\1\x11\0"), PH_UNSUPPORTED,
           "kind 9, expected baseline or progressive");
    refuse(TEXT("\xff\xd8\xff\xda\0\x08\1\1\0\0\x3f\0"), PH_BAD_FILE,
           "a scan stands before the frame");
    refuse(TEXT("\xff\xd8\xff\xdb\0\3\x24"), PH_BAD_FILE, "a quantisation table");
    refuse(TEXT("\xff\xd8\xff\xc4\0\3\0"), PH_BAD_FILE, "a table of codes");
    refuse(TEXT("GIF89a"), PH_BAD_FILE, "is no picture");
    refuse(NULL, 0, PH_BAD_FILE, "is no picture");
    refuse(TEXT("P6 2 2 255\n123456789"), PH_BAD_FILE,
           "9 bytes of pixels, expected at least 12");
    refuse(TEXT("P6 99999999999999999999 1 255\n"), PH_BAD_FILE, "is malformed");
    refuse(TEXT("P6 0 1 255\n"), PH_BAD_FILE, "is malformed");
    refuse(TEXT("P6 1 1 0\n123"), PH_BAD_FILE, "is malformed");
    refuse(TEXT("P6 1 1 255"), PH_BAD_FILE, "is malformed");
    refuse(TEXT("P6 1 1 9\n\1\2\12"), PH_BAD_FILE, "no number from 0 to 9");
    refuse(TEXT("P3 1 1 9 1 2 10"), PH_BAD_FILE, "no number from 0 to 9");
#define PALETTE_OF_1X1                                                                   \
    "\x89PNG\r\n\x1a\n\0\0\0\15IHDR\0\0\0\1\0\0\0\1\10\3\0\0\0....\0\0\0"
    refuse(TEXT(PALETTE_OF_1X1 "\4PLTE1234....\0\0\0\1IDAT.....\0\0\0"), PH_BAD_FILE,
           "a palette that is not 3 bytes for each of 1 to 256 colours");
    refuse(TEXT(PALETTE_OF_1X1 "\1IDAT.....\0\0\0\3PLTE123....\0\0\0"), PH_BAD_FILE,
           "has no palette (PLTE) before its data");
    CHECK(ph_image_open(&image, FOLDER "interlaced.png", &io) == PH_UNSUPPORTED &&
              strstr(error, "is interlaced"),
          "%s", error);
    CHECK(ph_image_open(&image, FOLDER "none.png", &io) == PH_IO_ERROR, "%s", error);
}

/* Each byte of a PNG changed, and each of its beginnings: refused or a picture. */
static void damaged(void)
{
    unsigned char bytes[2048], copy[2048];
    ph_image image;
    FILE *file = fopen(FOLDER "rgb8.png", "rb");
    CHECK(file, "no file");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    CHECK(size > 100 && size < sizeof bytes, "%zu bytes", size);
    for (size_t i = 0; i < size - 12; i++) { /* IEND says nothing */
        memcpy(copy, bytes, size);
        copy[i] ^= 0x41;
        CHECK(ph_image_read(&image, "changed", copy, size, &io) != PH_OK, "byte %zu", i);
        unsigned char *exact = malloc(i + 1); /* a sanitizer sees reads behind it */
        memcpy(exact, bytes, i);
        CHECK(ph_image_read(&image, "short", exact, i, &io) != PH_OK || i > size - 20,
              "%zu bytes", i);
        ph_image_free(&image, &io);
        free(exact);
    }
}

/* A header alone must not make us allocate what it claims. */
static void large_claims(void)
{
    static unsigned char header[] = "\x89PNG\r\n\x1a\n\0\0\0\15IHDR\0\0\x20\0\0\0\x20\0"
                                    "\x08\x06\0\0\0____\0\0\0\1IDATx____";
    refuse((const char *)header, sizeof header - 1, PH_BAD_FILE, "too little data");
    header[18] = 0x80, header[19] = 1;
    refuse((const char *)header, sizeof header - 1, PH_BAD_FILE, "32769 x 8192 pixels");
    header[16] = 0xff;
    refuse((const char *)header, sizeof header - 1, PH_BAD_FILE, "pixels, expected");
}

/* ---- resizing ---------------------------------------------------------------------- */

static double filter_at(double x, int cubic)
{
    x = fabs(x);
    if (!cubic) return x < 1 ? 1 - x : 0;
    if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
    return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

/* Weight w of input u for output x; their sum, and that of their magnitudes. */
typedef struct window {
    double scale, sum, magnitude;
    int x, cubic;
} window;

static double weight_at(const window *w, int u)
{
    double wide = fmax(w->scale, 1);
    return filter_at((u + 0.5 - (w->x + 0.5) * w->scale) / wide, w->cubic);
}

static window make_window(int in, int out, int x, int cubic)
{
    window w = {.scale = (double)in / out, .x = x, .cubic = cubic};
    for (int u = 0; u < in; u++) {
        w.sum += weight_at(&w, u);
        w.magnitude += fabs(weight_at(&w, u));
    }
    w.magnitude /= w.sum;
    return w;
}

/* In double, limited to 0..255 after rows as after columns, never rounded. */
static double exact(const ph_image *in, const window *across, const window *down)
{
    double all = 0;
    for (int v = 0; v < in->height; v++) {
        double row = 0;
        for (int u = 0; u < in->width; u++)
            row += weight_at(across, u) * in->rgb[3 * (v * in->width + u) + 1];
        all += weight_at(down, v) * fmin(fmax(row / across->sum, 0), 255);
    }
    return fmin(fmax(all / down->sum, 0), 255);
}

static void resized(void)
{
    static const int sizes[][2] = {{40, 30}, {12, 12}, {5, 29}, {97, 64}, {1, 1}};
    ph_image in = open_picture("grey8", "ppm"), out;
    for (int cubic = 0; cubic < 2; cubic++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            int w = sizes[s][0], h = sizes[s][1];
            CHECK(ph_image_resize(&out, &in, w, h,
                                  cubic ? PH_RESAMPLE_BICUBIC : PH_RESAMPLE_BILINEAR,
                                  &io) == PH_OK,
                  "%s", error);
            for (int i = 0; i < w * h; i++) {
                window across = make_window(40, w, i % w, cubic);
                window down = make_window(30, h, i / w, cubic);
                double want = exact(&in, &across, &down);
                /* Half a level for either pass, the first times the weights of the
                   second; 22-bit weights: 255 * taps * 2^-23 a pass, below 0.01. */
                double limit = 0.5 + 0.5 * down.magnitude + 0.01;
                CHECK(fabs(out.rgb[3 * i + 1] - want) <= limit,
                      "%d x %d, pixel %d: %d, expected %g", w, h, i, out.rgb[3 * i + 1],
                      want);
            }
            if (w == in.width)
                CHECK(!memcmp(in.rgb, out.rgb, 3 * 40 * 30), "the same size changes it");
            ph_image_free(&out, &io);
        }
    ph_image_free(&in, &io);
}

/* ---- what a model is given --------------------------------------------------------- */

enum { SIDE = 12 };
static char folder[80];

static void make_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    CHECK(file && fputs(text, file) >= 0 && !fclose(file), "cannot write %s", path);
}

/* The tiny ViT with another preprocessor_config.json. */
static void make_model(const char *config)
{
    char target[512], link[128], here[256];
    strcpy(folder, "/tmp/test_images.XXXXXX");
    CHECK(mkdtemp(folder) && getcwd(here, sizeof here), "no folder");
    static const char *const files[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(target, sizeof target, "%s/tests/golden/checkpoints/vit/%s", here,
                 files[i]);
        snprintf(link, sizeof link, "%s/%s", folder, files[i]);
        CHECK(!symlink(target, link), "cannot link %s", link);
    }
    make_file("preprocessor_config.json", config);
}

static void remove_model(void)
{
    static const char *const files[] = {"config.json", "model.safetensors",
                                        "preprocessor_config.json"};
    char path[128];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

static ph_status read_pixels(ph_ctx *ctx, const char *config, float *pixels)
{
    ph_model *m;
    make_model(config);
    ph_status status = ph_model_read(&m, ctx, folder);
    if (status == PH_OK) {
        status = ph_model_open_picture(m, FOLDER "grey8.png", pixels);
        ph_model_free(m);
    }
    remove_model();
    return status;
}

static void preprocessed(void)
{
    static const struct {
        const char *config;
        int width, height, left, top, cubic;
        float mean, std;
    } list[] = {{"{}", SIDE, SIDE, 0, 0, 0, 0.5f, 0.5f},
                {"{\"size\": 12, \"resample\": 3, \"do_normalize\": false}", SIDE, SIDE,
                 0, 0, 1, 0, 1},
                {"{\"size\": {\"height\": 15, \"width\": 20}, \"do_center_crop\": true, "
                 "\"image_mean\": [0.1, 0.25, 0.2], \"image_std\": [0.3, 0.75, 0.4]}",
                 20, 15, 4, 1, 0, 0.25f, 0.75f},
                {"{\"size\": {\"shortest_edge\": 14}, \"do_center_crop\": true}", 18, 14,
                 3, 1, 0, 0.5f, 0.5f}};
    static float pixels[3 * SIDE * SIDE];
    ph_image in = open_picture("grey8", "ppm"), out;
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        CHECK(read_pixels(ctx, list[i].config, pixels) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_image_resize(&out, &in, list[i].width, list[i].height,
                              list[i].cubic ? PH_RESAMPLE_BICUBIC : PH_RESAMPLE_BILINEAR,
                              &io) == PH_OK,
              "%s", error);
        for (int p = 0; p < SIDE * SIDE; p++) {
            int x = p % SIDE + list[i].left, y = p / SIDE + list[i].top;
            double level = out.rgb[3 * (y * list[i].width + x) + 1];
            double want = (level / 255 - (double)list[i].mean) / (double)list[i].std;
            /* Values up to 2, four roundings of half a unit, 2^-24. */
            CHECK(fabs((double)pixels[SIDE * SIDE + p] - want) < 4 * 4 * 0x1p-24,
                  "config %zu, pixel %d: %g, expected %g", i, p,
                  (double)pixels[SIDE * SIDE + p], want);
        }
        ph_image_free(&out, &io);
    }
    ph_close(ctx);
    ph_image_free(&in, &io);
}

/* A model of grey pictures, which has one mean and one standard deviation. */
static void one_channel(void)
{
    char file[128], grey[sizeof folder];
    ph_ctx *ctx;
    ph_model *m;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    make_model("{}");
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    ph_config config = *ph_model_config(m);
    ph_model_free(m);
    remove_model();
    config.channels = 1;
    snprintf(file, sizeof file, "%s.safetensors", folder);
    snprintf(grey, sizeof grey, "%.32s.grey", folder);
    CHECK(ph_model_create(&m, ctx, &config, PH_SPLIT_WORDS, NULL, 0, 1) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_model_write(m, file) == PH_OK, "%s", ph_error(ctx));
    ph_model_free(m);
    CHECK(ph_model_export(ctx, file, grey, NULL) == PH_OK, "%s", ph_error(ctx));
    unlink(file);
    strcpy(folder, grey);
    make_file("preprocessor_config.json", "{\"image_mean\": [0.5], \"image_std\": [1]}");
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_config(m)->channels == 1, "channels");
    ph_model_free(m);
    remove_model();
    ph_close(ctx);
}

static void config_lies(void)
{
    static const char *const list[][2] = {
        {"{\"resample\": 1}", "preprocessor_config.json: resample is 1, expected 2"},
        {"{\"size\": 1000000}", "preprocessor_config.json: size is 1000000 x 1000000"},
        {"{\"size\": {\"height\": 0}}", "preprocessor_config.json: size.height is 0"},
        {"{\"size\": {\"shortest_edge\": 32768}, \"do_center_crop\": true}",
         "the resized picture has 32769 x 32768 pixels"},
        {"{\"size\": 16}", "of 16 x 16 pixels, the model expects 12 x 12"},
        {"{\"size\": 8, \"do_center_crop\": true}", "makes a picture of 8 x 8 pixels"},
        {"{\"do_resize\": false}", "makes a picture of 40 x 30 pixels"},
        {"{\"image_mean\": [0, 1]}", "preprocessor_config.json: image_mean.2 is missing"},
        {"{\"image_std\": [0, 1, 1]}", "image_std.0 is 0, expected a number above 0"},
        {"{\"rescale_factor\": 0}", "rescale_factor is 0, expected a number above 0"},
        {"{\"do_resize\": 3}", "preprocessor_config.json: do_resize is 3"}};
    float pixels[3 * SIDE * SIDE];
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        CHECK(read_pixels(ctx, list[i][0], pixels) != PH_OK &&
                  strstr(ph_error(ctx), list[i][1]),
              "%s: %s", list[i][0], ph_error(ctx));
    ph_close(ctx);
}

static const check_case cases[] = {{"kinds", kinds},
                                   {"jpegs", jpegs},
                                   {"jpegs_damaged", jpegs_damaged},
                                   {"orientations", orientations},
                                   {"ppm_numbers", ppm_numbers},
                                   {"refused", refused},
                                   {"damaged", damaged},
                                   {"large_claims", large_claims},
                                   {"resized", resized},
                                   {"preprocessed", preprocessed},
                                   {"one_channel", one_channel},
                                   {"config_lies", config_lies},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
