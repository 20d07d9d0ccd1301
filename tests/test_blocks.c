/*
 * test_blocks.c - elements of block types and products with them against the formats'
 * definitions in double, which are written here once more and on their own: a mistake in
 * base/quant.h would show nowhere else, as everything else is compared with it.
 */
#include <math.h>
#include <string.h>

#include "check.h"
#include "kernels/kernels.h"

enum { M = 4, N = 256, K = 256, BLOCK = 32, LARGE = 256 };

/* sign, 5 bits of exponent, 10 of mantissa */
static double f16(const unsigned char *p)
{
    const int bits = p[0] | p[1] << 8, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                        : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                       : ldexp(mantissa, -24);
    return bits >> 15 ? -size : size;
}

static int block_bytes(ph_dtype type)
{
    static const int bytes[] = {34, 18, 20, 144, 176, 210};
    return bytes[type - PH_Q8_0];
}

static int block_elements(ph_dtype type)
{
    return type < PH_Q4_K ? BLOCK : LARGE;
}

/* Q4_K   f16 s, f16 m, 12 bytes y of eight (a, b) of six bits, 128 bytes of nibbles: for
          every 64 elements 32 bytes, low nibbles first        s a n - m b
   Q5_K   the same, between y and the nibbles 32 bytes whose bits j are the fifth bits of
          elements 32 j to 32 j + 31 */
static double q4_or_q5(const unsigned char *block, int fifth, int e)
{
    const unsigned char *y = block + 4, *nibbles = block + (fifth ? 48 : 16);
    const int j = e / 32, byte = nibbles[e / 64 * 32 + e % 32];
    int n = j % 2 ? byte / 16 : byte % 16, a, b;
    if (fifth && block[16 + e % 32] & 1 << j) n += 16;
    if (j < 4)
        a = y[j] % 64, b = y[j + 4] % 64;
    else
        a = y[j + 4] % 16 + y[j - 4] / 64 * 16, b = y[j + 4] / 16 + y[j] / 64 * 16;
    return f16(block) * a * n - f16(block + 2) * b;
}

/* Q6_K   128 bytes of nibbles, 64 of two bits above them, 16 int8 a, f16 s; of every 128
          elements the first 64 have low nibbles, the others high ones: s a (n - 32) */
static double q6(const unsigned char *block, int e)
{
    const int half = e / 128, in_half = e % 128, a = block[192 + e / 16];
    const int byte = block[64 * half + in_half % 64];
    const int low = in_half < 64 ? byte % 16 : byte / 16;
    const int high = block[128 + 32 * half + e % 32] >> in_half / 32 * 2 & 3;
    return f16(block + 208) * (a < 128 ? a : a - 256) * (low + 16 * high - 32);
}

/* Element `at` of a matrix in blocks:
       Q8_0   f16 s, 32 int8 q                   s q
       Q4_0   f16 s, 16 bytes of two nibbles n   s (n - 8)
       Q4_1   f16 s, f16 m, 16 bytes of them     s n + m
   The low nibbles of the 16 bytes are elements 0 to 15, the high ones 16 to 31. */
static double value(const unsigned char *x, ph_dtype type, int at)
{
    const unsigned char *block = x + at / block_elements(type) * block_bytes(type);
    const int e = at % block_elements(type);
    if (type == PH_Q6_K) return q6(block, e);
    if (type >= PH_Q4_K) return q4_or_q5(block, type == PH_Q5_K, e);
    if (type == PH_Q8_0) {
        const int q = block[2 + e];
        return f16(block) * (q < 128 ? q : q - 256);
    }
    const int byte = block[(type == PH_Q4_0 ? 2 : 4) + (e < 16 ? e : e - 16)];
    const int n = e < 16 ? byte % 16 : byte / 16;
    return type == PH_Q4_0 ? f16(block) * (n - 8) : f16(block) * n + f16(block + 2);
}

/* Random bytes; scales and minima below 1, of both signs. */
static void fill(unsigned char *x, ph_dtype type, int elements, uint64_t *r)
{
    const int size = block_bytes(type), blocks = elements / block_elements(type);
    const int with_minimum = type == PH_Q4_1 || type == PH_Q4_K || type == PH_Q5_K;
    for (int i = 0; i < blocks * size; i++) x[i] = (unsigned char)check_below(r, 256);
    for (int i = 0; i < blocks; i++) { /* exponents below that of 1 */
        unsigned char *scale = x + i * size + (type == PH_Q6_K ? 208 : 0);
        scale[1] &= 0xbb;
        if (with_minimum) scale[3] &= 0xbb;
    }
}

/* c has one rounding per step of its chain and perhaps one per element: at most K + 1
   times the unit of the sum of sizes. */
static void compare(const ph_kernels *t, ph_dtype type, int transposed, uint64_t *r)
{
    static unsigned char b[N * K / BLOCK * 34];
    static float a[M * K], c[M * N];
    fill(b, type, N * K, r);
    memset(c, 0, sizeof c);
    for (int i = 0; i < M * K; i++) a[i] = (float)(check_below(r, 2001) - 1000) / 1000;
    const int m = 1 + check_below(r, M);
    (transposed ? t->product_few_rows_t : t->product_few_rows)(
        m, N, K, a, K, b, transposed ? K : N, type, c, N);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                double x =
                    a[i * K + k] * value(b, type, transposed ? j * K + k : k * N + j);
                sum += x, size += fabs(x);
            }
            CHECK(fabs(c[i * N + j] - sum) <= (K + 1) * 0x1p-24 * size,
                  "%s %s %s: c(%d,%d) is %g, not %g", t->name, ph_dtype_name(type),
                  transposed ? "(out, in)" : "(in, out)", i, j, (double)c[i * N + j],
                  sum);
        }
}

static void products(void)
{
    const ph_kernels *const *isas = ph_kernels_list();
    uint64_t r = check_seed;
    for (int t = 0; isas[t]; t++)
        for (int type = PH_Q8_0; type <= PH_Q6_K; type++)
            for (int turn = 0; turn < 8; turn++)
                compare(isas[t], (ph_dtype)type, turn % 2, &r);
}

/* Each element is the exact value, rounded once: what double holds exactly, for any bits
   of scales and minima, subnormal, infinite and NaN. */
static void elements(void)
{
    const ph_kernels *const *isas = ph_kernels_list();
    uint64_t r = check_seed + 1;
    for (int turn = 0; turn < 600; turn++) {
        const ph_dtype type = (ph_dtype)(PH_Q8_0 + turn % 6);
        unsigned char block[210];
        for (int i = 0; i < block_bytes(type); i++)
            block[i] = (unsigned char)check_below(&r, 256);
        if (turn % 4 == 1) /* every bit of n, a and b */
            memset(block + 4, 255,
                   (size_t)(type == PH_Q6_K ? 204 : block_bytes(type) - 4));
        for (int t = 0; isas[t]; t++) {
            float x[LARGE];
            isas[t]->load_row(x, block, 0, block_elements(type), type, 1.0f);
            for (int e = 0; e < block_elements(type); e++) {
                const float want = (float)value(block, type, e);
                CHECK(isnan(want) ? isnan(x[e]) : !memcmp(&x[e], &want, sizeof want),
                      "%s: element %d of %s is %a, not %a", isas[t]->name, e,
                      ph_dtype_name(type), (double)x[e], (double)want);
            }
        }
    }
}

/* Values that are known without any formula in code. */
static void known_values(void)
{
    static const unsigned char q8[34] = {0x00, 0x3c, 1, 255, 127, 128}; /* s = 1 */
    static const unsigned char q4[18] = {0x00, 0xc0, 0x0f, 0xf0};       /* s = -2 */
    static const unsigned char q41[20] = {0x00, 0x38, 0x00, 0x3c, 0x5a}; /* 0.5, 1 */
    const ph_kernels *const *isas = ph_kernels_list();
    for (int t = 0; isas[t]; t++) {
        float x[BLOCK];
        isas[t]->load_row(x, q8, 0, BLOCK, PH_Q8_0, 1.0f);
        CHECK(x[0] == 1 && x[1] == -1 && x[2] == 127 && x[3] == -128 && x[4] == 0,
              "%s: Q8_0 gives %g %g %g %g", isas[t]->name, (double)x[0], (double)x[1],
              (double)x[2], (double)x[3]);
        isas[t]->load_row(x, q4, 0, BLOCK, PH_Q4_0, 1.0f);
        CHECK(x[0] == -14 && x[16] == 16 && x[1] == 16 && x[17] == -14 && x[2] == 16,
              "%s: Q4_0 gives %g %g %g %g", isas[t]->name, (double)x[0], (double)x[16],
              (double)x[1], (double)x[17]);
        isas[t]->load_row(x, q41, 0, BLOCK, PH_Q4_1, 1.0f);
        CHECK(x[0] == 6 && x[16] == 3.5f && x[1] == 1, "%s: Q4_1 gives %g %g %g",
              isas[t]->name, (double)x[0], (double)x[16], (double)x[1]);
    }
}

/* The same of K types: s is 1 or 2, m is 1. Sub-block 0 has a = 2, b = 1; 1 has a = 3,
   b = 0; 4 has a = 16 + 1, b = 2. */
static void known_k_values(void)
{
    static const unsigned char head[] = {0, 0x3c, 0, 0x3c, 0x42, 3,   0,
                                         0, 1,    0, 0,    0,    0x21};
    unsigned char q4[144] = {0}, q5[176] = {0}, q6_k[210] = {0};
    const ph_kernels *const *isas = ph_kernels_list();
    memcpy(q4, head, sizeof head), memcpy(q5, head, sizeof head);
    q4[16] = q5[48] = 0x53, q4[16 + 64] = q5[48 + 64] = 4, q5[16] = 0x11;
    q6_k[0] = 0x21, q6_k[128] = 0xe4, q6_k[192] = 1, q6_k[194] = 255, q6_k[196] = 3;
    q6_k[209] = 0x40;
    for (int t = 0; isas[t]; t++) {
        float x[LARGE];
        isas[t]->load_row(x, q4, 0, LARGE, PH_Q4_K, 1.0f);
        CHECK(x[0] == 5 && x[1] == -1 && x[32] == 15 && x[128] == 66,
              "%s: Q4_K gives %g %g %g %g", isas[t]->name, (double)x[0], (double)x[1],
              (double)x[32], (double)x[128]);
        isas[t]->load_row(x, q5, 0, LARGE, PH_Q5_K, 1.0f);
        CHECK(x[0] == 37 && x[1] == -1 && x[32] == 15 && x[128] == 17 * 20 - 2,
              "%s: Q5_K gives %g %g %g %g", isas[t]->name, (double)x[0], (double)x[1],
              (double)x[32], (double)x[128]);
        isas[t]->load_row(x, q6_k, 0, LARGE, PH_Q6_K, 1.0f);
        CHECK(x[0] == -62 && x[32] == 32 && x[64] == 12 && x[1] == -64,
              "%s: Q6_K gives %g %g %g %g", isas[t]->name, (double)x[0], (double)x[32],
              (double)x[64], (double)x[1]);
    }
}

static const check_case cases[] = {{"products", products},
                                   {"elements", elements},
                                   {"known_values", known_values},
                                   {"known_k_values", known_k_values},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
