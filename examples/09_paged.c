/*
 * 09_paged.c - a cache of keys and values in pages: texts take pages from a pool as they
 * grow, and share those of a common beginning.
 *
 * Two things are new here: page_len and page_table. Two texts begin with the same prompt,
 * whose full pages both of them list; then each goes on by itself in pages of its own.
 * Nothing is copied or moved. The rows have the very bits of a cache in one piece; the
 * program checks that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polyhead.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 32, PAGE = 128, PAGES = 8, SLOTS = 4 };
enum { PROMPT = 2 * PAGE, TIME = 300, CAPACITY = SLOTS * PAGE };

typedef float keys[KV_HEADS][PAGE][DIM];

static keys k_pages[PAGES], v_pages[PAGES];
static float k_whole[KV_HEADS][CAPACITY][DIM], v_whole[KV_HEADS][CAPACITY][DIM];
static float q[2][HEADS][DIM], paged[2][HEADS][DIM], whole[HEADS][DIM];

static void must(ph_status status, const ph_ctx *ctx)
{
    if (status == PH_OK) return;
    fprintf(stderr, "%s: %s\n", ph_status_text(status), ph_error(ctx));
    exit(1);
}

static void fill(float *x, int count)
{
    for (int i = 0; i < count; i++) x[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
}

/* The page of a token; a text that has none yet takes the next of the pool. */
static int page_of(int32_t *row, int token, int *used)
{
    if (token % PAGE == 0) row[token / PAGE] = (*used)++;
    return row[token / PAGE];
}

static void append(int32_t *row, int token, int *used)
{
    int page = page_of(row, token, used);
    for (int h = 0; h < KV_HEADS; h++)
        fill(k_pages[page][h][token % PAGE], DIM),
            fill(v_pages[page][h][token % PAGE], DIM);
}

/* The keys of a text in one piece, to compare with. */
static void gather(const int32_t *row)
{
    for (int t = 0; t < TIME; t++)
        for (int h = 0; h < KV_HEADS; h++) {
            memcpy(k_whole[h][t], k_pages[row[t / PAGE]][h][t % PAGE],
                   sizeof k_whole[h][t]);
            memcpy(v_whole[h][t], v_pages[row[t / PAGE]][h][t % PAGE],
                   sizeof v_whole[h][t]);
        }
}

int main(void)
{
    ph_ctx *ctx = NULL;
    ph_plan *plan = NULL, *one = NULL;
    int32_t table[2][SLOTS] = {{0}}, filled[2] = {TIME, TIME};
    int used = 0, same = 1;
    srand(1);
    fill(&q[0][0][0], 2 * HEADS * DIM);
    must(ph_open(&ctx, NULL), ctx);

    for (int t = 0; t < PROMPT; t++) append(table[0], t, &used);
    memcpy(table[1], table[0], sizeof table[1]); /* the prompt is shared */
    for (int t = PROMPT; t < TIME; t++)
        append(table[0], t, &used), append(table[1], t, &used);

    ph_attn attn = {.batch = 2,
                    .q_heads = HEADS,
                    .k_heads = KV_HEADS,
                    .v_heads = KV_HEADS,
                    .q_len = 1,
                    .kv_len = CAPACITY,
                    .qk_dim = DIM,
                    .page_len = PAGE,
                    .pages = PAGES};
    const ph_args args = {.q = q,
                          .k = k_pages,
                          .v = v_pages,
                          .out = paged,
                          .kv_lens = filled,
                          .page_table = &table[0][0]};
    must(ph_plan_create(&plan, ctx, &attn), ctx);
    must(ph_forward(plan, &args), ctx);

    attn.batch = 1, attn.page_len = attn.pages = 0;
    must(ph_plan_create(&one, ctx, &attn), ctx);
    for (int b = 0; b < 2; b++) {
        gather(table[b]);
        const ph_args alone = {
            .q = q[b], .k = k_whole, .v = v_whole, .out = whole, .kv_lens = filled};
        must(ph_forward(one, &alone), ctx);
        same &= !memcmp(whole, paged[b], sizeof whole);
    }
    printf("2 texts of %d tokens in %d pages, and in one piece: %s\n", TIME, used,
           same ? "same bits" : "DIFFERENT bits");
    ph_plan_free(one);
    ph_plan_free(plan);
    ph_close(ctx);
    return !same;
}
