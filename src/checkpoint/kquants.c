/*
 * kquants.c - GGUF's blocks of 256 elements as floats: two levels of scales, the inner
 * ones small integers.
 */
#include "base/half.h"
#include "checkpoint/gguf.h"

enum { BLOCK = 256 };

static uint16_t word_at(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static float half_at(const unsigned char *at)
{
    return ph_from_f16(word_at(at));
}

/* Inner scale a and minimum b number j of eight, 6 bits each in 12 bytes. */
static void scale_and_minimum(const unsigned char *y, int j, int *a, int *b)
{
    if (j < 4) {
        *a = y[j] & 63, *b = y[j + 4] & 63;
        return;
    }
    *a = (y[j + 4] & 15) + (y[j - 4] >> 6 << 4);
    *b = (y[j + 4] >> 4) + (y[j] >> 6 << 4);
}

/* f16 s, f16 m, scales, 128 bytes of nibbles; `high` adds a fifth bit from 32 bytes. */
static void q4_or_q5(const unsigned char *from, const unsigned char *high,
                     const unsigned char *nibbles, float *to)
{
    float s = half_at(from), m = half_at(from + 2);
    for (int j = 0; j < 8; j++) {
        int a, b;
        scale_and_minimum(from + 4, j, &a, &b);
        float scale = s * (float)a, minimum = m * (float)b;
        for (int l = 0; l < 32; l++) {
            int byte = nibbles[j / 2 * 32 + l], n = j % 2 ? byte >> 4 : byte & 15;
            if (high) n += (high[l] >> j & 1) * 16;
            to[j * 32 + l] = scale * (float)n - minimum;
        }
    }
}

static void q4_k(const unsigned char *from, float *to)
{
    q4_or_q5(from, NULL, from + 16, to);
}

static void q5_k(const unsigned char *from, float *to)
{
    q4_or_q5(from, from + 16, from + 48, to);
}

/* 128 low nibbles, 64 pairs of high bits, 16 int8 scales, f16 s */
static void q6_k(const unsigned char *from, float *to)
{
    const unsigned char *scales = from + 192;
    float s = half_at(from + 208);
    for (int i = 0; i < BLOCK; i++) {
        int half = i / 128, group = i % 128 / 32, l = i % 32;
        int low = from[half * 64 + (group & 1) * 32 + l] >> (group >> 1) * 4 & 15;
        int high = from[128 + half * 32 + l] >> 2 * group & 3;
        int a = (signed char)scales[half * 8 + 2 * group + l / 16];
        to[i] = s * (float)a * (float)(low + 16 * high - 32);
    }
}

/* 16 bytes of scale and minimum nibbles, 64 bytes of pairs of bits, f16 s, f16 m */
static void q2_k(const unsigned char *from, float *to)
{
    float s = half_at(from + 80), m = half_at(from + 82);
    for (int i = 0; i < BLOCK; i++) {
        int half = i / 128, shift = i % 128 / 32 * 2, l = i % 32, j = i / 16;
        int n = from[16 + half * 32 + l] >> shift & 3;
        to[i] = s * (float)(from[j] & 15) * (float)n - m * (float)(from[j] >> 4);
    }
}

/* 32 bytes of third bits, 64 of pairs of bits, 16 scales of 6 bits in 12 bytes, f16 s */
static void q3_k(const unsigned char *from, float *to)
{
    const unsigned char *scales = from + 96;
    float s = half_at(from + 108);
    for (int i = 0; i < BLOCK; i++) {
        int half = i / 128, shift = i % 128 / 32 * 2, l = i % 32, j = i / 16;
        int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
        int a = low + (scales[8 + j % 4] >> j / 4 * 2 & 3) * 16 - 32;
        int n = from[32 + half * 32 + l] >> shift & 3;
        if (!(from[l] >> (half * 4 + shift / 2) & 1)) n -= 4;
        to[i] = s * (float)a * (float)n;
    }
}

static const struct {
    int type, bytes;
    const char *name;
    void (*floats)(const unsigned char *from, float *to);
} kinds[] = {{10, 84, "Q2_K", q2_k},
             {11, 110, "Q3_K", q3_k},
             {12, 144, "Q4_K", q4_k},
             {13, 176, "Q5_K", q5_k},
             {14, 210, "Q6_K", q6_k}};

static int find(int type)
{
    for (int i = 0; i < (int)(sizeof kinds / sizeof kinds[0]); i++)
        if (kinds[i].type == type) return i;
    return -1;
}

size_t ph_kquant_bytes(int type)
{
    int i = find(type);
    return i < 0 ? 0 : (size_t)kinds[i].bytes;
}

const char *ph_kquant_name(int type)
{
    int i = find(type);
    return i < 0 ? NULL : kinds[i].name;
}

void ph_kquant_floats(int type, const unsigned char *from, size_t blocks, float *to)
{
    int i = find(type);
    for (size_t b = 0; b < blocks; b++)
        kinds[i].floats(from + b * (size_t)kinds[i].bytes, to + b * BLOCK);
}
