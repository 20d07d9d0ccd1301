/*
 * shapes.c - the recipe "shapes": pictures of one shape, drawn here, in any place, size,
 * direction and colour, with noise; a small ViT learns which shape it is.
 *
 * Arithmetic is that of IEEE floats without functions of libm but sqrt, so a picture has
 * the same bytes on every machine.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/recipes.h"

enum { SIDE = PH_SHAPE_SIDE, PATCH = 8, LEAST = 12, MOST = 28, TEST_SHARE = 10 };
enum { KINDS = 6, CORNERS = 12, CONTRAST = 200, NOISE = 24 };

/* Corners within the unit circle, y down; none: a disc between two radii. */
static const struct {
    const char *name;
    int corners;
    float at[CORNERS][2];
    float inner, outer;
} kinds[KINDS] = {
    {.name = "circle", .outer = 0.85f},
    {.name = "cross",
     .corners = 12,
     .at = {{-0.2f, -0.97f},
            {0.2f, -0.97f},
            {0.2f, -0.2f},
            {0.97f, -0.2f},
            {0.97f, 0.2f},
            {0.2f, 0.2f},
            {0.2f, 0.97f},
            {-0.2f, 0.97f},
            {-0.2f, 0.2f},
            {-0.97f, 0.2f},
            {-0.97f, -0.2f},
            {-0.2f, -0.2f}}},
    {.name = "ring", .inner = 0.5f, .outer = 0.95f},
    {.name = "square",
     .corners = 4,
     .at = {{-0.7f, -0.7f}, {0.7f, -0.7f}, {0.7f, 0.7f}, {-0.7f, 0.7f}}},
    {.name = "star",
     .corners = 10,
     .at = {{0, -1},
            {0.247f, -0.34f},
            {0.951f, -0.309f},
            {0.399f, 0.13f},
            {0.588f, 0.809f},
            {0, 0.42f},
            {-0.588f, 0.809f},
            {-0.399f, 0.13f},
            {-0.951f, -0.309f},
            {-0.247f, -0.34f}}},
    {.name = "triangle", .corners = 3, .at = {{0, -1}, {0.866f, 0.5f}, {-0.866f, 0.5f}}}};

typedef struct shape {
    int kind, x, y, radius; /* centre and radius in pixels */
    int a, b;               /* a direction */
    int inside[3], outside[3], noise;
} shape;

const char *ph_shape_name(int i)
{
    return i >= 0 && i < KINDS ? kinds[i].name : NULL;
}

/* ---- what to draw ------------------------------------------------------------------ */

static uint64_t hash_shape(const shape *s)
{
    uint64_t place = (uint64_t)(s->x * SIDE + s->y) * SIDE + (uint64_t)s->radius;
    return ph_rng_key((uint64_t)s->kind, place, (uint64_t)(s->a + 1024),
                      (uint64_t)(s->b + 1024));
}

static void choose_colours(ph_draw *d, shape *s)
{
    int contrast;
    do {
        contrast = 0;
        for (int c = 0; c < 3; c++) {
            s->inside[c] = 64 + ph_draw_below(d, 192);
            s->outside[c] = ph_draw_below(d, 128);
            contrast += s->inside[c] - s->outside[c];
        }
    } while (contrast < CONTRAST);
}

/* A tenth of all places, sizes and directions is for tests. */
static shape choose(uint64_t key, int test, ph_draw *d)
{
    for (uint32_t attempt = 0;; attempt++) {
        shape s = {0};
        *d = (ph_draw){ph_rng_key(key, attempt, 0, 0), 0};
        s.kind = ph_draw_below(d, KINDS);
        s.radius = LEAST + ph_draw_below(d, MOST - LEAST + 1);
        s.x = s.radius + ph_draw_below(d, SIDE - 2 * s.radius + 1);
        s.y = s.radius + ph_draw_below(d, SIDE - 2 * s.radius + 1);
        s.a = ph_draw_below(d, 1023) - 511, s.b = ph_draw_below(d, 1023) - 511;
        if (s.a * s.a + s.b * s.b < 64 * 64) continue;
        if ((hash_shape(&s) % TEST_SHARE == 0) != (test != 0)) continue;
        choose_colours(d, &s);
        s.noise = ph_draw_below(d, NOISE + 1);
        return s;
    }
}

/* ---- drawing ----------------------------------------------------------------------- */

/* A point in the unit circle of the shape: the number of edges to its right is odd. */
static int is_inside(int kind, float x, float y)
{
    float square = x * x + y * y;
    int odd = 0, n = kinds[kind].corners;
    if (!n)
        return square >= kinds[kind].inner * kinds[kind].inner &&
               square <= kinds[kind].outer * kinds[kind].outer;
    for (int i = 0; i < n; i++) {
        const float *p = kinds[kind].at[i], *q = kinds[kind].at[(i + 1) % n];
        if ((p[1] > y) == (q[1] > y)) continue;
        odd ^= x < p[0] + (q[0] - p[0]) * (y - p[1]) / (q[1] - p[1]);
    }
    return odd;
}

/* How many of the four points of a pixel the shape covers. */
static int coverage(const shape *s, float u, float v, int x, int y)
{
    int covered = 0;
    for (int i = 0; i < 4; i++) {
        float dx = ((float)(x - s->x) + 0.25f + 0.5f * (float)(i % 2)) / (float)s->radius;
        float dy = ((float)(y - s->y) + 0.25f + 0.5f * (float)(i / 2)) / (float)s->radius;
        if (dx * dx + dy * dy <= 1)
            covered += is_inside(s->kind, dx * u + dy * v, dy * u - dx * v);
    }
    return covered;
}

static void draw(const shape *s, ph_draw *d, uint8_t *rgb)
{
    float length = sqrtf((float)(s->a * s->a + s->b * s->b));
    float u = (float)s->a / length, v = (float)s->b / length;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int covered = coverage(s, u, v, x, y);
            uint32_t random = ph_rng_at(d->key, d->next++);
            for (int c = 0; c < 3; c++) {
                int level = (s->inside[c] * covered + s->outside[c] * (4 - covered)) / 4;
                int part = (int)(random >> 10 * c & 1023);
                level += part * (2 * s->noise + 1) / 1024 - s->noise;
                *rgb++ = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
            }
        }
}

int ph_shape_draw(uint64_t number, uint8_t *rgb)
{
    ph_draw d;
    shape s = choose(ph_rng_key(PH_SHAPE_SIDE, number, 0, 0), 1, &d);
    if (rgb) draw(&s, &d, rgb);
    return s.kind;
}

/* ---- the recipe -------------------------------------------------------------------- */

static ph_status open(ph_data *data)
{
    size_t bytes = 1;
    data->pixels = 3 * SIDE * SIDE;
    data->source_len = SIDE / PATCH * (SIDE / PATCH) + 1;
    data->per_text = 1, data->classes = KINDS;
    for (int i = 0; i < KINDS; i++) bytes += strlen(kinds[i].name) + 1;
    char *to = data->labels = malloc(bytes);
    if (!to) return ph_fail(data->ctx, PH_OUT_OF_MEMORY, "no memory for names of shapes");
    for (int i = 0; i < KINDS; i++) {
        strcpy(to, kinds[i].name);
        to += strlen(to) + 1;
    }
    return PH_OK;
}

/* Planes of floats from -1 to 1, as a picture in a file becomes them. */
static void sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    uint8_t rgb[3 * SIDE * SIDE];
    ph_draw d;
    shape s = choose(key, test, &d);
    draw(&s, &d, rgb);
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < SIDE * SIDE; i++)
            out->pixels[c * SIDE * SIDE + i] =
                (rgb[3 * i + c] * (1.0f / 255) - 0.5f) / 0.5f;
    out->labels[0] = s.kind;
    out->length = data->source_len;
}

static void defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_ENCODER,
                            .layers = 4,
                            .model_dim = 64,
                            .heads = 4,
                            .ff_dim = 128,
                            .positions = PH_POS_LEARNED,
                            .activation = PH_GELU_ERF,
                            .embed_scale = 1,
                            .image_size = SIDE,
                            .patch_size = PATCH,
                            .class_tokens = 1,
                            .pooling = PH_POOL_FIRST};
    t->steps = 4000, t->batch = 32;
    t->lr = 2e-3f, t->warmup = 200;
}

const ph_recipe ph_recipe_shapes = {
    .name = "shapes",
    .help = "a ViT that tells shapes in pictures apart, which the program draws",
    .defaults = defaults,
    .open = open,
    .sample = sample};
