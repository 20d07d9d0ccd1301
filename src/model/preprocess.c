/*
 * preprocess.c - a picture in a file as pixels of an encoder, as preprocessor_config.json
 * says: resized, cropped, scaled.
 */
#include <stdio.h>

#include "architectures/architecture.h"
#include "images/image.h"
#include "model/features.h"
#include "model/store.h"

/* ---- what preprocessor_config.json says -------------------------------------------- */

/* A size: one number for both sides, or height and width, or shortest_edge. */
static void import_size(ph_model *m, ph_import *in)
{
    ph_preprocess *p = &m->preprocess;
    const ph_value *size = ph_import_value(in, "preprocessor.size", NULL);
    int side = m->config.image_size;
    if (size && size->kind != PH_VALUE_OBJECT) {
        p->width = p->height = ph_import_size(in, "preprocessor.size", NULL, side);
    } else {
        p->shortest = ph_import_size(in, "preprocessor.size.shortest_edge", NULL, 0);
        p->width = ph_import_size(in, "preprocessor.size.width", NULL, side);
        p->height = ph_import_size(in, "preprocessor.size.height", NULL, side);
    }
    if (!ph_import_flag(in, "preprocessor.do_resize", NULL, 1))
        p->shortest = p->width = p->height = 0;
    if (p->width > PH_IMAGE_SIDE || p->height > PH_IMAGE_SIDE ||
        p->shortest > PH_IMAGE_SIDE || !p->width != !p->height)
        ph_import_fail(in, PH_BAD_FILE,
                       "preprocessor_config.json: size is %d x %d, expected 1 to %d "
                       "pixels a side",
                       p->width, p->height, PH_IMAGE_SIDE);
}

static void import_filter(ph_model *m, ph_import *in)
{
    int fallback = ph_import_is(in, "deit") ? 3 : 2;
    int resample = ph_import_int(in, "preprocessor.resample", NULL, fallback);
    if (resample != 2 && resample != 3)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "preprocessor_config.json: resample is %d, expected 2 (bilinear) "
                       "or 3 (bicubic)",
                       resample);
    m->preprocess.bicubic = resample == 3;
}

/* Mean and standard deviation of a channel. */
static void import_channel(ph_model *m, ph_import *in, int i)
{
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    ph_preprocess *p = &m->preprocess;
    char key[2][40];
    int deit = ph_import_is(in, "deit");
    snprintf(key[0], sizeof key[0], "preprocessor.image_mean.%d", i);
    snprintf(key[1], sizeof key[1], "preprocessor.image_std.%d", i);
    int has_mean = ph_import_list(in, "preprocessor.image_mean") != NULL;
    int has_std = ph_import_list(in, "preprocessor.image_std") != NULL;
    p->mean[i] = (float)ph_import_real(in, key[0], NULL,
                                       has_mean ? PH_IMPORT_REQUIRED
                                       : deit   ? mean[i]
                                                : 0.5);
    p->std[i] = (float)ph_import_positive(in, key[1], NULL,
                                          has_std ? PH_IMPORT_REQUIRED
                                          : deit  ? std[i]
                                                  : 0.5);
    if (!ph_import_flag(in, "preprocessor.do_normalize", NULL, 1))
        p->mean[i] = 0, p->std[i] = 1;
}

ph_status ph_preprocess_import(ph_model *m, ph_import *in)
{
    ph_preprocess *p = &m->preprocess;
    import_size(m, in);
    import_filter(m, in);
    for (int i = 0; i < ph_min(m->config.channels, 3); i++) import_channel(m, in, i);
    p->crop = ph_import_flag(in, "preprocessor.do_center_crop", NULL, 0);
    p->scale =
        (float)ph_import_positive(in, "preprocessor.rescale_factor", NULL, 1.0 / 255);
    if (!ph_import_flag(in, "preprocessor.do_rescale", NULL, 1)) p->scale = 1;
    return in->status;
}

void ph_preprocess_default(ph_model *m)
{
    m->preprocess = (ph_preprocess){.width = m->config.image_size,
                                    .height = m->config.image_size,
                                    .scale = 1.0f / 255,
                                    .mean = {0.5f, 0.5f, 0.5f},
                                    .std = {0.5f, 0.5f, 0.5f}};
}

/* ---- a picture --------------------------------------------------------------------- */

static ph_status resize(const ph_preprocess *p, ph_image *image, const ph_io *io)
{
    int width = p->width, height = p->height;
    ph_image in = *image;
    if (!width && !p->shortest) return PH_OK;
    if (p->shortest) {
        int64_t least = in.width < in.height ? in.width : in.height;
        int64_t limit = PH_IMAGE_SIDE + 1;
        int64_t w = p->shortest * (int64_t)in.width / least;
        int64_t h = p->shortest * (int64_t)in.height / least;
        width = (int)(w < limit ? w : limit), height = (int)(h < limit ? h : limit);
    }
    PH_TRY(ph_image_check("the resized picture", (size_t)width, (size_t)height, io));
    ph_status status =
        ph_image_resize(image, &in, width, height,
                        p->bicubic ? PH_RESAMPLE_BICUBIC : PH_RESAMPLE_BILINEAR, io);
    ph_image_free(&in, io);
    return status;
}

static ph_status check_size(const ph_model *m, const ph_image *image, const ph_io *io)
{
    int side = m->config.image_size;
    int fits = m->preprocess.crop ? image->width >= side && image->height >= side
                                  : image->width == side && image->height == side;
    if (fits) return PH_OK;
    return ph_io_fail(io, PH_UNSUPPORTED,
                      "preprocessor_config.json makes a picture of %d x %d pixels, "
                      "the model expects %d x %d",
                      image->width, image->height, side, side);
}

/* The centre of the picture as planes of floats. */
static void scale_pixels(const ph_model *m, const ph_image *image, float *to)
{
    const ph_preprocess *p = &m->preprocess;
    int side = m->config.image_size;
    size_t left = (size_t)(image->width - side) / 2;
    size_t top = (size_t)(image->height - side) / 2;
    for (int c = 0; c < 3; c++)
        for (size_t y = 0; y < (size_t)side; y++)
            for (size_t x = 0; x < (size_t)side; x++) {
                size_t at = (top + y) * (size_t)image->width + left + x;
                *to++ =
                    (image->rgb[3 * at + (size_t)c] * p->scale - p->mean[c]) / p->std[c];
            }
}

/* Planes of floats as they were before scale_pixels. */
void ph_preprocess_invert(const ph_model *m, const float *pixels, uint8_t *rgb)
{
    const ph_preprocess *p = &m->preprocess;
    size_t plane = (size_t)m->config.image_size * (size_t)m->config.image_size;
    for (size_t i = 0; i < 3 * plane; i++) {
        size_t c = i / plane;
        float level = (pixels[i] * p->std[c] + p->mean[c]) / p->scale + 0.5f;
        rgb[3 * (i % plane) + c] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
    }
}

static ph_status open_picture(const ph_model *m, const char *path, const ph_map *file,
                              float *pixels)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_image image = {0};
    if (!path || !pixels)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "path or pixels is NULL");
    if (!m->config.image_size)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model reads text, not pictures");
    if (m->config.channels != 3)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "the model reads %d channels, expected 3: red, green, blue",
                       m->config.channels);
    ph_status status = file ? ph_image_read(&image, path, file->bytes, file->size, &io)
                            : ph_image_open(&image, path, &io);
    if (status == PH_OK) status = resize(&m->preprocess, &image, &io);
    if (status == PH_OK) status = check_size(m, &image, &io);
    if (status == PH_OK) scale_pixels(m, &image, pixels);
    ph_image_free(&image, &io);
    return status == PH_OK ? PH_OK : ph_fail(m->ctx, status, "%s", error);
}

ph_status ph_model_open_picture(const ph_model *m, const char *path, float *pixels)
{
    if (!m) return PH_BAD_ARGUMENT;
    return ph_picture_open(m, path, NULL, pixels);
}

ph_status ph_picture_open(const ph_model *m, const char *path, const ph_map *file,
                          float *pixels)
{
    return PH_WITHIN(m->ctx, open_picture(m, path, file, pixels));
}
