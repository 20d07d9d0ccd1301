/*
 * kquants.c - GGUF's types that become F32 on reading: the K types of two and three bits,
 * blocks of 256 elements with two levels of scales, the inner ones small integers; the
 * types of blocks of 32 that a file of K types has for rows that are no multiple of 256;
 * values from a codebook. The other K types are used as stored (base/quant.h).
 */
#include "base/half.h"
#include "checkpoint/gguf.h"

enum { BLOCK = 256, SHORT = 32 };

static uint16_t word_at(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static float half_at(const unsigned char *at)
{
    return ph_from_f16(word_at(at));
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

/* Five bits of element l of a block of 32: nibbles as in Q4_0, fifth bits apart. */
static int five_bits(const unsigned char *high, const unsigned char *nibbles, int l)
{
    int low = l < 16 ? nibbles[l] & 15 : nibbles[l - 16] >> 4;
    return low + (high[l / 8] >> l % 8 & 1) * 16;
}

/* f16 s, 32 fifth bits, 16 bytes of nibbles */
static void q5_0(const unsigned char *from, float *to)
{
    float s = half_at(from);
    for (int l = 0; l < SHORT; l++)
        to[l] = s * (float)(five_bits(from + 2, from + 6, l) - 16);
}

/* f16 s, f16 m, 32 fifth bits, 16 bytes of nibbles */
static void q5_1(const unsigned char *from, float *to)
{
    float s = half_at(from), m = half_at(from + 2);
    for (int l = 0; l < SHORT; l++)
        to[l] = s * (float)five_bits(from + 4, from + 8, l) + m;
}

/* 32 nibbles are numbers of these levels, closer to each other around zero. */
static void levels(float s, const unsigned char *nibbles, float *to)
{
    static const signed char values[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
    for (int l = 0; l < SHORT / 2; l++) {
        to[l] = s * (float)values[nibbles[l] & 15];
        to[l + SHORT / 2] = s * (float)values[nibbles[l] >> 4];
    }
}

/* f16 s, 16 bytes of nibbles */
static void iq4_nl(const unsigned char *from, float *to)
{
    levels(half_at(from), from + 2, to);
}

/* f16 s, 8 pairs of high bits and 8 nibbles of scales, 128 bytes of nibbles */
static void iq4_xs(const unsigned char *from, float *to)
{
    float s = half_at(from);
    for (int j = 0; j < 8; j++) {
        int low = from[4 + j / 2] >> j % 2 * 4 & 15;
        int a = low + (word_at(from + 2) >> 2 * j & 3) * 16 - 32;
        levels(s * (float)a, from + 8 + 16 * j, to + SHORT * j);
    }
}

/* f16 s; for every 32 elements four numbers of words in the codebook, then 32 bits: seven
   signs of each word (the eighth makes their count even) and a scale. */
static void iq2_xxs(const unsigned char *from, float *to)
{
    static const float sizes[] = {8, 25, 43, 0};
    float s = half_at(from);
    for (int i = 0; i < BLOCK / 8; i++) {
        const unsigned char *group = from + 2 + i / 4 * 8;
        uint32_t bits = word_at(group + 4) | (uint32_t)word_at(group + 6) << 16;
        float scale = s * (0.5f + (float)(bits >> 28)) * 0.25f;
        unsigned signs = bits >> i % 4 * 7 & 127, parity = signs ^ signs >> 4;
        unsigned word = ph_iq2_xxs_words[group[i % 4]];
        parity ^= parity >> 2, parity ^= parity >> 1;
        signs |= (parity & 1) << 7;
        for (int l = 0; l < 8; l++) {
            float size = scale * sizes[word >> 2 * l & 3];
            to[8 * i + l] = signs >> l & 1 ? -size : size;
        }
    }
}

static const struct {
    int type, block, bytes;
    const char *name;
    void (*floats)(const unsigned char *from, float *to);
} kinds[] = {{6, SHORT, 22, "Q5_0", q5_0},        {7, SHORT, 24, "Q5_1", q5_1},
             {10, BLOCK, 84, "Q2_K", q2_k},       {11, BLOCK, 110, "Q3_K", q3_k},
             {16, BLOCK, 66, "IQ2_XXS", iq2_xxs}, {20, SHORT, 18, "IQ4_NL", iq4_nl},
             {23, BLOCK, 136, "IQ4_XS", iq4_xs}};

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

size_t ph_kquant_block(int type)
{
    int i = find(type);
    return i < 0 ? 0 : (size_t)kinds[i].block;
}

void ph_kquant_floats(int type, const unsigned char *from, size_t elements, float *to)
{
    int i = find(type);
    size_t block = (size_t)kinds[i].block;
    for (size_t b = 0; b < elements / block; b++)
        kinds[i].floats(from + b * (size_t)kinds[i].bytes, to + b * block);
}
