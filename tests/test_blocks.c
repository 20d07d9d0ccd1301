/*
 * test_blocks.c - products with matrices of Q8_0, Q4_0 and Q4_1 against the formats'
 * definitions in double, which are written here once more and on their own: a mistake in
 * base/quant.h would show nowhere else, as everything else is compared with it.
 */
#include <math.h>
#include <string.h>

#include "check.h"
#include "kernels/kernels.h"

enum { M = 4, N = 96, K = 160, BLOCK = 32 };

/* sign, 5 bits of exponent, 10 of mantissa */
static double f16(const unsigned char *p)
{
    const int bits = p[0] | p[1] << 8, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double size =
        exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits >> 15 ? -size : size;
}

static int block_bytes(ph_dtype type)
{
    return type == PH_Q8_0 ? 34 : type == PH_Q4_0 ? 18 : 20;
}

/* Element `at` of a matrix in blocks:
       Q8_0   f16 s, 32 int8 q                   s q
       Q4_0   f16 s, 16 bytes of two nibbles n   s (n - 8)
       Q4_1   f16 s, f16 m, 16 bytes of them     s n + m
   The low nibbles of the 16 bytes are elements 0 to 15, the high ones 16 to 31. */
static double value(const unsigned char *x, ph_dtype type, int at)
{
    const unsigned char *block = x + at / BLOCK * block_bytes(type);
    const int e = at % BLOCK;
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
    const int size = block_bytes(type);
    for (int i = 0; i < elements / BLOCK * size; i++)
        x[i] = (unsigned char)check_below(r, 256);
    for (int i = 0; i < elements / BLOCK; i++)
        for (int half = 0; half < (type == PH_Q4_1 ? 2 : 1); half++)
            x[i * size + 2 * half + 1] &= 0xbb; /* exponent below that of 1 */
}

/* c has one rounding per step of its chain and, in Q4_1, one per element: at most K + 1
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
        for (int type = PH_Q8_0; type <= PH_Q4_1; type++)
            for (int turn = 0; turn < 8; turn++)
                compare(isas[t], (ph_dtype)type, turn % 2, &r);
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
        isas[t]->load_row(x, q8, BLOCK, PH_Q8_0, 1.0f);
        CHECK(x[0] == 1 && x[1] == -1 && x[2] == 127 && x[3] == -128 && x[4] == 0,
              "%s: Q8_0 gives %g %g %g %g", isas[t]->name, (double)x[0], (double)x[1],
              (double)x[2], (double)x[3]);
        isas[t]->load_row(x, q4, BLOCK, PH_Q4_0, 1.0f);
        CHECK(x[0] == -14 && x[16] == 16 && x[1] == 16 && x[17] == -14 && x[2] == 16,
              "%s: Q4_0 gives %g %g %g %g", isas[t]->name, (double)x[0], (double)x[16],
              (double)x[1], (double)x[17]);
        isas[t]->load_row(x, q41, BLOCK, PH_Q4_1, 1.0f);
        CHECK(x[0] == 6 && x[16] == 3.5f && x[1] == 1, "%s: Q4_1 gives %g %g %g",
              isas[t]->name, (double)x[0], (double)x[16], (double)x[1]);
    }
}

static const check_case cases[] = {{"products", products},
                                   {"known_values", known_values},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
