/*
 * test_rollout.c - attention rollout against products of whole matrices in double.
 */
#include <math.h>

#include "check.h"
#include "polyhead_heads.h"

enum { LAYERS = 3, HEADS = 2, SIZE = 9 };

typedef struct stack_maps {
    double maps[LAYERS][HEADS][SIZE][SIZE];
    int causal;
} stack_maps;

/* Weights that are floats, so that both sides see the same numbers. */
static void draw_maps(stack_maps *s, int causal, uint64_t *state)
{
    s->causal = causal;
    for (int n = 0; n < LAYERS * HEADS * SIZE; n++) {
        int row = n % SIZE;
        double *w = s->maps[n / SIZE / HEADS][n / SIZE % HEADS][row], sum = 0;
        for (int j = 0; j < SIZE; j++) {
            int hidden = causal && j > row;
            w[j] = hidden ? 0 : exp(1.5 * (double)check_normal(state));
            sum += w[j];
        }
        for (int j = 0; j < SIZE; j++) w[j] = (double)(float)(w[j] / sum);
    }
    memset(s->maps[1][1][SIZE / 2], 0, sizeof s->maps[1][1][0]);
}

static ph_status give_weights(void *user, int stack, int layer, int head, int row0,
                              int rows, float *out)
{
    const stack_maps *s = user;
    if (stack) return PH_BAD_ARGUMENT;
    for (int i = row0; i < row0 + rows; i++)
        for (int j = 0; j < SIZE; j++) {
            int hidden = s->causal && j > i; /* unspecified there */
            *out++ = hidden ? (float)NAN : (float)s->maps[layer][head][i][j];
        }
    return PH_OK;
}

/* One matrix after the other, in double: R = A_L ... A_1 with A half identity. */
static void dense_rollout(const stack_maps *s, const uint8_t *absent, int row,
                          double *out)
{
    double r[SIZE] = {0};
    r[row] = 1;
    for (int l = LAYERS - 1; l >= 0; l--) {
        double a[SIZE][SIZE] = {{0}}, next[SIZE] = {0};
        int heads = 0;
        for (int h = 0; h < HEADS; h++) heads += !absent[l * HEADS + h];
        for (int i = 0; i < SIZE; i++) {
            a[i][i] = heads ? 0.5 : 1;
            for (int h = 0; h < HEADS; h++)
                for (int j = 0; !absent[l * HEADS + h] && j < SIZE; j++) {
                    double sum = 0;
                    for (int k = 0; k < SIZE; k++) sum += s->maps[l][h][i][k];
                    if (sum > 0)
                        a[i][j] += 0.5 / heads * s->maps[l][h][i][j] / sum;
                    else
                        a[i][j] += i == j ? 0.5 / heads : 0;
                }
        }
        for (int i = 0; i < SIZE; i++)
            for (int j = 0; j < SIZE; j++) next[j] += r[i] * a[i][j];
        memcpy(r, next, sizeof r);
    }
    memcpy(out, r, sizeof r);
}

static void rollouts(void)
{
    static stack_maps s;
    uint64_t state = check_seed;
    const char *words[SIZE] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    ph_axis axis = {.name = "text", .tokens = words, .count = SIZE};
    for (int round = 0; round < 20; round++) {
        uint8_t absent[LAYERS * HEADS] = {0};
        draw_maps(&s, round & 1, &state);
        if (round % 4 == 2) absent[2] = 1;
        if (round % 4 == 3) absent[4] = absent[5] = 1;
        ph_stack stack = {.name = "encoder",
                          .layers = LAYERS,
                          .heads = HEADS,
                          .causal = round & 1,
                          .absent = absent};
        ph_report report = {.axes = &axis,
                            .axis_count = 1,
                            .stacks = &stack,
                            .stack_count = 1,
                            .weights = give_weights,
                            .user = &s};
        for (int row = 0; row < SIZE; row++) {
            float found[SIZE];
            double expected[SIZE], sum = 0;
            CHECK(ph_rollout(&report, 0, row, found, NULL) == PH_OK, "refused");
            dense_rollout(&s, absent, row, expected);
            for (int j = 0; j < SIZE; j++) {
                sum += (double)found[j];
                /* one rounding to float; sums in double have a unit of 2^-53 */
                CHECK(fabs((double)found[j] - expected[j]) <=
                          0x1p-24 * expected[j] + 1e-14,
                      "row %d draws %.9g from %d, expected %.9g", row, (double)found[j],
                      j, expected[j]);
            }
            CHECK(fabs(sum - 1) < SIZE * 0x1p-24, "row %d sums to %.9g", row, sum);
        }
        CHECK(ph_rollout(&report, 1, 0, NULL, NULL) == PH_BAD_ARGUMENT, "no stack");
        float none[SIZE];
        CHECK(ph_rollout(&report, 0, SIZE, none, NULL) == PH_BAD_ARGUMENT, "no row");
        stack.k_axis = 1;
        CHECK(ph_rollout(&report, 0, 0, none, NULL) == PH_UNSUPPORTED, "cross");
    }
}

static const check_case cases[] = {{"rollouts", rollouts}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
