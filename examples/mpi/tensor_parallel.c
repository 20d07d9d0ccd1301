/*
 * tensor_parallel.c - one layer, its heads shared out over the processes of an MPI job.
 *
 *     mpicc -Iinclude examples/mpi/tensor_parallel.c build/libpolyhead.a -lm -lpthread
 *     mpirun -n 2 ./a.out
 *
 * Heads meet nowhere but in the output projection, out = sum over heads of head wo[head],
 * so wq, wk, wv are split by columns and wo by rows: a process has the matrices of its
 * heads, computes its part of that sum, and one all-reduce adds the parts. Backward
 * likewise: gradients of matrices stay where the matrices are, dx is summed. One process
 * adds bo. Variants that mix heads (talking, dcmha) do not split in this way.
 *
 * Stored one matrix per head (or as nn.Linear stores them) the columns of a head lie
 * together, and so do its rows of wo: a process's share begins at a pointer into the
 * whole, or is all that it ever reads. Query heads that share keys stay together.
 *
 * Every process also computes the whole layer here, to compare.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polyhead_layer.h>

enum {
    BATCH = 2,
    TIME = 50,
    WIDTH = 256,
    HEADS = 8,
    KV_HEADS = 4,
    DIM = 32,
    COUNT = BATCH * TIME * WIDTH
};

typedef struct share {
    int first, heads; /* key heads; each has HEADS / KV_HEADS query heads */
    int with_bias;    /* this process adds bo */
} share;

static float x[COUNT], dout[COUNT], bo[WIDTH];
static float wq[HEADS * WIDTH * DIM], wk[KV_HEADS * WIDTH * DIM];
static float wv[KV_HEADS * WIDTH * DIM], wo[HEADS * DIM * WIDTH];

/* What a share computes. */
typedef struct result {
    float out[COUNT], dx[COUNT];
    float dwq[HEADS * WIDTH * DIM], dwo[HEADS * DIM * WIDTH];
} result;

static void must(ph_status status, const ph_ctx *ctx)
{
    if (status == PH_OK) return;
    fprintf(stderr, "%s: %s\n", ph_status_text(status), ph_error(ctx));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(float *to, int count, float bound)
{
    for (int i = 0; i < count; i++)
        to[i] = ((float)rand() / (float)RAND_MAX * 2 - 1) * bound;
}

static void fill_all(void)
{
    const float bound = sqrtf(3.0f / WIDTH);
    srand(1); /* the same numbers in every process */
    fill(x, COUNT, 1), fill(dout, COUNT, 1), fill(bo, WIDTH, 1);
    fill(wq, HEADS * WIDTH * DIM, bound), fill(wk, KV_HEADS * WIDTH * DIM, bound);
    fill(wv, KV_HEADS * WIDTH * DIM, bound), fill(wo, HEADS * DIM * WIDTH, bound);
}

static void run(ph_ctx *ctx, share s, result *to)
{
    const int group = HEADS / KV_HEADS;
    ph_layer *layer = NULL;
    const ph_layer_desc desc = {.model_dim = WIDTH,
                                .attn = {.batch = BATCH,
                                         .q_heads = s.heads * group,
                                         .k_heads = s.heads,
                                         .v_heads = s.heads,
                                         .q_len = TIME,
                                         .kv_len = TIME,
                                         .qk_dim = DIM,
                                         .mask = PH_MASK_CAUSAL,
                                         .backward = 1},
                                .q_form = PH_FORM_HEADS,
                                .k_form = PH_FORM_HEADS,
                                .v_form = PH_FORM_HEADS,
                                .rope = PH_ROPE_HALF};
    const ph_layer_weights weights = {.wq = wq + s.first * group * WIDTH * DIM,
                                      .wk = wk + s.first * WIDTH * DIM,
                                      .wv = wv + s.first * WIDTH * DIM,
                                      .wo = wo + s.first * group * DIM * WIDTH,
                                      .bo = s.with_bias ? bo : NULL};
    must(ph_layer_create(&layer, ctx, &desc), ctx);
    const size_t size = ph_layer_saved(layer);
    void *saved = aligned_alloc(64, size);
    const ph_layer_args args = {
        .x = x, .out = to->out, .saved = saved, .saved_size = size};
    const ph_layer_grads grads = {
        .dout = dout, .dx = to->dx, .dwq = to->dwq, .dwo = to->dwo};
    must(ph_layer_forward(layer, &weights, &args), ctx);
    must(ph_layer_backward(layer, &weights, &args, &grads), ctx);
    free(saved);
    ph_layer_free(layer);
}

/* The largest difference in units of the largest element. */
static double apart(const float *a, const float *b, int count)
{
    double difference = 0, largest = 0;
    for (int i = 0; i < count; i++) {
        difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)b[i]));
    }
    return difference / largest;
}

static void sum_over_processes(float *values)
{
    MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static result part, whole;
    int rank, ranks;
    ph_ctx *ctx = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (KV_HEADS % ranks) {
        if (rank == 0)
            fprintf(stderr, "%d processes cannot share %d key heads evenly\n", ranks,
                    KV_HEADS);
        MPI_Finalize();
        return 2;
    }
    const int heads = KV_HEADS / ranks, group = HEADS / KV_HEADS;
    const share own = {rank * heads, heads, rank == 0}, all = {0, KV_HEADS, 1};
    const ph_options options = {.threads = 1};
    must(ph_open(&ctx, &options), ctx);
    fill_all();
    run(ctx, own, &part);
    sum_over_processes(part.out);
    sum_over_processes(part.dx);
    run(ctx, all, &whole);

    /* Gradients of a share's matrices are those of the whole, to the bit: a head's sums
       are over tokens. out and dx are sums over heads, here in parts. */
    const int q = heads * group * WIDTH * DIM, from = own.first * group * WIDTH * DIM;
    const int same = !memcmp(part.dwq, whole.dwq + from, (size_t)q * sizeof(float)) &&
                     !memcmp(part.dwo, whole.dwo + from, (size_t)q * sizeof(float));
    const double out = apart(part.out, whole.out, COUNT);
    const double dx = apart(part.dx, whole.dx, COUNT);
    printf(
        "process %d: query heads %d to %d; out %.1e, dx %.1e from the whole layer; dwq "
        "and dwo %s\n",
        rank, own.first * group, (own.first + heads) * group - 1, out, dx,
        same ? "the same bits" : "DIFFERENT");
    ph_close(ctx);
    MPI_Finalize();

    /* A sum of n terms in another order differs by at most n roundings of the sum of
       their sizes, which for these numbers is below 16 times the largest element; out has
       HEADS * DIM terms, dx twice as many: those of q, and those of k and v. */
    const double bound = 2 * HEADS * DIM * 0x1p-24 * 16;
    return same && out <= bound && dx <= bound ? 0 : 1;
}
