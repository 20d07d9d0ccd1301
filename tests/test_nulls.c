/*
 * test_nulls.c - NULL in place of a handle (what a creator that failed leaves behind) or
 * of a pointer that is needed, for every public function, in the order of the headers: a
 * status is PH_BAD_ARGUMENT, creators set *out to NULL, and where there is a ctx or a
 * ph_io its sentence says what is NULL; other functions answer that there is nothing.
 * Those that need a model are in test_nulls_model.c. tools/style checks that every public
 * function with a pointer is called in one of the two.
 */
#include "nulls.h"
#include "polyhead_clusters.h"
#include "polyhead_heads.h"
#include "polyhead_layer.h"
#include "polyhead_maps.h"
#include "polyhead_picture.h"
#include "polyhead_text.h"
#include "polyhead_treebank.h"

static float number = 1;
static ph_plan *plan;
static ph_layer *layer;

static void contexts(void)
{
    void *memory = said;
    REFUSED(ph_open_version(NULL, NULL, PH_VERSION));
    ph_close(NULL);
    ANSWERS(!*ph_error(NULL));
    ANSWERS(ph_threads(NULL) == 0);
    ANSWERS(!*ph_isa(NULL));
    ANSWERS(!ph_isa_about(NULL).vectors);
    CREATES(void, REFUSED, ph_device_alloc(NULL, 8, out));
    TOLD(ph_device_alloc(ctx, 8, NULL));
    ph_device_free(NULL, NULL);
    ph_device_free(ctx, NULL);
    REFUSED(ph_device_copy(NULL, memory, memory, 8, NULL));
    TOLD(ph_device_copy(ctx, NULL, memory, 8, NULL));
    TOLD(ph_device_copy(ctx, memory, NULL, 8, NULL));
    REFUSED(ph_sync(NULL, NULL));
}

static void plans(void)
{
    const ph_args none = {0};
    ph_attn attn = {0};
    CREATES(ph_plan, REFUSED, ph_plan_create(out, NULL, &attn));
    CREATES(ph_plan, TOLD, ph_plan_create(out, ctx, NULL));
    TOLD(ph_plan_create(NULL, ctx, &attn));
    ph_plan_free(NULL);
    ANSWERS(ph_plan_workspace(NULL) == 0);
    PRINTS(ph_plan_describe(NULL, text, sizeof text), ph_plan_describe(plan, NULL, 8));
    ANSWERS(ph_param_size(NULL) == 0);
    ANSWERS(!ph_plan_extra(NULL, 0));
    REFUSED(ph_forward(NULL, &none));
    TOLD(ph_forward(plan, NULL));
    TOLD(ph_forward(plan, &none));
    REFUSED(ph_backward(NULL, &none, &(ph_grads){0}));
    TOLD(ph_backward(plan, NULL, &(ph_grads){0}));
    TOLD(ph_backward(plan, &none, NULL));
    REFUSED(ph_look(NULL, &none));
    TOLD(ph_look(plan, NULL));
    TOLD(ph_look(plan, &none));
    REFUSED(ph_variant_heads(NULL, &attn));
    TOLD(ph_variant_heads(ctx, NULL));
}

static void clusters(void)
{
    const char *const names[] = {"one", "two"};
    double point[2] = {3, 4};
    ph_clusters *c = NULL;
    SAID(ph_clusters_create(NULL, 1, &io));
    ph_clusters_free(NULL);
    CHECK(ph_clusters_create(&c, 2, &io) == PH_OK, "%s", said);
    SAID(ph_clusters_add(NULL, numbers, 1, 1, NULL, &io));
    SAID(ph_clusters_add(c, NULL, 1, 1, NULL, &io));
    SAID(ph_clusters_end(NULL, &io));
    ANSWERS(ph_clusters_distance(NULL, 0, 0) == 0);
    ph_clusters_point(NULL, 0, point);
    ANSWERS(point[0] == 3 && point[1] == 4);
    ANSWERS(ph_clusters_of(NULL, 0) == 0);
    ANSWERS(ph_clusters_count(NULL) == 0);
    ANSWERS(ph_clusters_heads(NULL) == 0);
    ANSWERS(ph_clusters_stress(NULL) == 0);
    SAID(ph_clusters_write(NULL, "nowhere", "title", names, &io));
    SAID(ph_clusters_write(c, NULL, "title", names, &io));
    SAID(ph_clusters_write(c, "nowhere", NULL, names, &io));
    SAID(ph_clusters_write(c, "nowhere", "title", NULL, &io));
    CHECK(ph_clusters_add(c, numbers, 1, 1, NULL, &io) == PH_OK, "%s", said);
    CHECK(ph_clusters_end(c, &io) == PH_OK, "%s", said);
    ph_clusters_point(c, 0, NULL);
    ph_clusters_free(c);
}

static void measures(void)
{
    ph_heads *heads = NULL;
    ph_head_stats stats = {0};
    ph_label labels[PH_MAX_LABELS], label = {.rule = ph_label_rules(0)};
    ANSWERS(ph_token_classes(NULL) == 0);
    SAID(ph_heads_create(NULL, 1, 1, &io));
    ph_heads_free(NULL);
    CHECK(ph_heads_create(&heads, 1, 1, &io) == PH_OK, "%s", said);
    SAID(ph_heads_begin(NULL, &(ph_heads_text){.rows = 1, .keys = 1}, &io));
    SAID(ph_heads_begin(heads, NULL, &io));
    CHECK(!ph_heads_begin(heads, &(ph_heads_text){.rows = 1, .keys = 1}, &io), "%s",
          said);
    REFUSED(ph_heads_add(NULL, 0, 0, 0, 1, &number));
    REFUSED(ph_heads_add(heads, 0, 0, 0, 1, NULL));
    ph_heads_end(NULL);
    REFUSED(ph_heads_read(NULL, 0, 0, &stats));
    REFUSED(ph_heads_read(heads, 0, 0, NULL));
    ph_heads_free(heads);
    ANSWERS(ph_head_labels(NULL, labels) == 0);
    ANSWERS(ph_head_labels(&stats, NULL) == 0);
    PRINTS(ph_label_why(NULL, &stats, NULL, text, sizeof text),
           ph_label_why(&label, &stats, NULL, NULL, 8));
    PRINTS(ph_label_why(&label, NULL, NULL, text, sizeof text), 1);
}

static ph_status give_weights(void *user, int stack, int at, int head, int row0, int rows,
                              float *out)
{
    (void)user, (void)stack, (void)at, (void)head, (void)row0;
    for (int i = 0; i < rows; i++) out[i] = 1;
    return PH_OK;
}

static const char *const words[] = {"word"};
static const ph_axis axis = {.name = "text", .tokens = words, .count = 1};
static const ph_stack stack = {.name = "encoder", .layers = 1, .heads = 1};
static const ph_report good = {.title = "one",
                               .text = "word",
                               .axes = &axis,
                               .axis_count = 1,
                               .stacks = &stack,
                               .stack_count = 1,
                               .weights = give_weights};

static void surveys(void)
{
    ph_survey *survey = NULL;
    ph_report report = good;
    CREATES(ph_survey, SAID, ph_survey_create(out, NULL, &io));
    SAID(ph_survey_create(NULL, &report, &io));
    ph_survey_free(NULL);
    CHECK(ph_survey_create(&survey, &report, &io) == PH_OK, "%s", said);
    SAID(ph_survey_text(NULL, &report, NULL, &io));
    SAID(ph_survey_text(survey, NULL, NULL, &io));
    SAID(ph_survey_end(NULL, &report, NULL, &io));
    SAID(ph_survey_end(survey, NULL, NULL, &io));
    ph_survey_free(survey);
    SAID(ph_rollout(NULL, 0, 0, &number, &io));
    SAID(ph_rollout(&report, 0, 0, NULL, &io));
    ANSWERS(!ph_survey_head(NULL, 0, 0, 0));
}

static void files(void)
{
    const ph_tensor tensor = {.name = "one", .rank = 1, .shape = {1}, .data = &number};
    const ph_tensor empty = {.name = "one", .rank = 1, .shape = {1}};
    CREATES(ph_file, SAID, ph_file_read(out, NULL, &io));
    SAID(ph_file_read(NULL, "nowhere", &io));
    CREATES(ph_file, SAID, ph_file_parse(out, NULL, said, 1, &io));
    CREATES(ph_file, SAID, ph_file_parse(out, "name", NULL, 1, &io));
    SAID(ph_file_parse(NULL, "name", said, 1, &io));
    CREATES(ph_file, SAID, ph_file_map(out, NULL, &io));
    SAID(ph_file_map(NULL, "nowhere", &io));
    ph_file_free(NULL);
    ANSWERS(!ph_file_tensor(NULL, 0));
    ANSWERS(!ph_file_metadata(NULL, 0));
    ANSWERS(!ph_file_find(NULL, "one"));
    SAID(ph_file_write(NULL, &tensor, 1, NULL, 0, &io));
    SAID(ph_file_write("nowhere", NULL, 1, NULL, 0, &io));
    SAID(ph_file_write("nowhere", &tensor, 1, NULL, 1, &io));
    SAID(ph_file_write("nowhere", &empty, 1, NULL, 0, &io));
    REFUSED(ph_tensor_convert(NULL, PH_F32, numbers));
    REFUSED(ph_tensor_convert(&tensor, PH_F32, NULL));
    REFUSED(ph_tensor_convert(&empty, PH_F16, numbers));
    PRINTS(ph_tensor_describe(NULL, text, sizeof text),
           ph_tensor_describe(&tensor, NULL, 8));
}

static void layers(void)
{
    const ph_layer_weights weights = {.wq = numbers};
    const ph_layer_args args = {.x = numbers, .out = numbers + 8};
    CREATES(ph_layer, REFUSED, ph_layer_create(out, NULL, &(ph_layer_desc){0}));
    CREATES(ph_layer, TOLD, ph_layer_create(out, ctx, NULL));
    TOLD(ph_layer_create(NULL, ctx, &(ph_layer_desc){0}));
    ph_layer_free(NULL);
    ANSWERS(ph_layer_saved(NULL) == 0);
    ANSWERS(!ph_layer_param(NULL, 0));
    ANSWERS(ph_layer_named(NULL) == 0);
    ANSWERS(!ph_layer_about(NULL).attn);
    ANSWERS(ph_layer_cache(NULL).k == 0);
    REFUSED(ph_layer_forward(NULL, &weights, &args));
    TOLD(ph_layer_forward(layer, NULL, &args));
    TOLD(ph_layer_forward(layer, &weights, NULL));
    TOLD(ph_layer_forward(layer, &weights, &args));
    REFUSED(ph_layer_reorder(NULL, &args, &whole, 0));
    TOLD(ph_layer_reorder(layer, NULL, &whole, 0));
    TOLD(ph_layer_reorder(layer, &args, NULL, 0));
    REFUSED(ph_layer_backward(NULL, &weights, &args, &(ph_layer_grads){0}));
    TOLD(ph_layer_backward(layer, NULL, &args, &(ph_layer_grads){0}));
    TOLD(ph_layer_backward(layer, &weights, NULL, &(ph_layer_grads){0}));
    TOLD(ph_layer_backward(layer, &weights, &args, NULL));
}

static void positions(void)
{
    const ph_t5 t5 = {0};
    ph_alibi_slopes(1, NULL);
    ANSWERS(ph_t5_bucket(NULL, 7) == 0);
    ph_t5_expand(NULL, 1, numbers, numbers);
    ph_t5_expand(&t5, 1, NULL, numbers);
    ph_t5_expand(&t5, 1, numbers, NULL);
    ph_t5_reduce(NULL, 1, numbers, numbers);
    ph_t5_reduce(&t5, 1, NULL, numbers);
    ph_t5_reduce(&t5, 1, numbers, NULL);
}

static void maps(void)
{
    CREATES(ph_maps, SAID, ph_maps_read(out, NULL, &io));
    CREATES(ph_maps, SAID, ph_maps_read(out, &(ph_maps_files){0}, &io));
    SAID(ph_maps_read(NULL, &(ph_maps_files){.weights = "nowhere"}, &io));
    ph_maps_free(NULL);
    ANSWERS(!ph_maps_report(NULL).weights);
}

static void pictures(void)
{
    const ph_terminal silent = {0};
    const ph_figure figure = {0};
    ph_pick pick;
    char text[8] = "left";
    ANSWERS(ph_report_picks(NULL, &pick, 1) == 0);
    ANSWERS(ph_report_picks(&good, NULL, 1) == 0);
    ANSWERS(ph_text_clean("word", 0, NULL, 8) == 0);
    ANSWERS(ph_text_clean(NULL, 0, text, sizeof text) == 0 && !text[0]);
    ANSWERS(ph_text_columns(NULL) == 0);
    SAID(ph_terminal_write(NULL, &silent, &io));
    SAID(ph_terminal_write(&good, NULL, &io));
    SAID(ph_terminal_write(&good, &silent, &io));
    SAID(ph_figure_write(NULL, &good, &figure, &io));
    SAID(ph_figure_write("nowhere", NULL, &figure, &io));
    SAID(ph_figure_write("nowhere", &good, NULL, &io));
    SAID(ph_picture_write(NULL, (uint8_t *)numbers, 1, 1, &io));
    SAID(ph_picture_write("nowhere", NULL, 1, 1, &io));
}

static int stop_at_once(void *user)
{
    (void)user;
    return 1;
}

static void pages(void)
{
    const ph_serve serve = {.stopped = stop_at_once};
    const ph_live live = {.text = "word"};
    SAID(ph_page_write(NULL, &good, NULL, NULL, &io));
    SAID(ph_page_write("nowhere", NULL, NULL, NULL, &io));
    SAID(ph_serve_report(NULL, &serve, &io));
    SAID(ph_serve_report(&good, NULL, &io));
    SAID(ph_serve_report(&good, &(ph_serve){0}, &io));
    SAID(ph_serve_run(NULL, &serve, &io));
    SAID(ph_serve_run(&live, NULL, &io));
    SAID(ph_serve_run(&live, &serve, &io));
}

static const ph_chars vocabulary[] = {{"[UNK]", 5}, {"[CLS]", 5}, {"[SEP]", 5}};

static void tokenizers(void)
{
    size_t length = 0;
    CREATES(ph_tokenizer, SAID, ph_tokenizer_read(out, NULL, &io));
    SAID(ph_tokenizer_read(NULL, "nowhere", &io));
    CREATES(ph_tokenizer, SAID, ph_tokenizer_parse(out, NULL, "{}", 2, &io));
    CREATES(ph_tokenizer, SAID, ph_tokenizer_parse(out, "name", NULL, 2, &io));
    SAID(ph_tokenizer_parse(NULL, "name", "{}", 2, &io));
    ph_tokenizer_free(NULL);
    CREATES(ph_tokenizer, SAID, ph_tokenizer_open(out, NULL, &io));
    SAID(ph_tokenizer_open(NULL, "nowhere", &io));
    CREATES(ph_tokenizer, SAID, ph_tokenizer_of_words(out, NULL, 3, NULL, &io));
    SAID(ph_tokenizer_of_words(NULL, vocabulary, 3, NULL, &io));
    CREATES(ph_tokenizer, SAID, ph_tokenizer_of_gguf(out, NULL, &io));
    SAID(ph_tokenizer_of_gguf(NULL, &(ph_gguf_tokens){0}, &io));
    ANSWERS(!ph_tokenizer_about(NULL).model && ph_tokenizer_about(NULL).unknown == -1);
    ANSWERS(ph_tokenizer_id(NULL, "word", 4) == -1);
    ANSWERS(!ph_tokenizer_token(NULL, 0, &length));
    ANSWERS(ph_tokenizer_is_special(NULL, 0) == 0);
}

static void encoding(void)
{
    const ph_encode_args args = {.text = "word", .length = 4}, hole = {.length = 4};
    const ph_text_token *tokens;
    const char *text;
    size_t length;
    ph_tokenizer *t = NULL;
    ph_encoder *encoder = NULL;
    ph_detokenizer *d = NULL;
    CHECK(!ph_tokenizer_of_words(&t, vocabulary, 3, NULL, &io), "%s", said);
    ANSWERS(ph_tokenizer_id(t, NULL, 4) == -1);
    CREATES(ph_encoder, SAID, ph_encoder_create(out, NULL, &io));
    SAID(ph_encoder_create(NULL, t, &io));
    ph_encoder_free(NULL);
    CHECK(ph_encoder_create(&encoder, t, &io) == PH_OK, "%s", said);
    REFUSED(ph_encode(NULL, &args, &tokens, &length));
    SAID(ph_encode(encoder, NULL, &tokens, &length));
    SAID(ph_encode(encoder, &hole, &tokens, &length));
    SAID(ph_encode(encoder, &args, NULL, &length));
    SAID(ph_encode(encoder, &args, &tokens, NULL));
    CREATES(ph_detokenizer, SAID, ph_detokenizer_create(out, NULL, 0, &io));
    SAID(ph_detokenizer_create(NULL, t, 0, &io));
    ph_detokenizer_free(NULL);
    CHECK(ph_detokenizer_create(&d, t, 0, &io) == PH_OK, "%s", said);
    REFUSED(ph_detokenize(NULL, 0, &text, &length));
    SAID(ph_detokenize(d, 0, NULL, &length));
    SAID(ph_detokenize(d, 0, &text, NULL));
    REFUSED(ph_detokenize_end(NULL, &text, &length));
    SAID(ph_detokenize_end(d, NULL, &length));
    SAID(ph_detokenize_end(d, &text, NULL));
    ph_detokenizer_free(d);
    ph_encoder_free(encoder);
    ph_tokenizer_free(t);
}

static void treebanks(void)
{
    const char line[] = "1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n";
    ph_treebank *treebank = NULL;
    ph_syntax *syntax = NULL;
    ph_syntax_score score;
    CREATES(ph_treebank, SAID, ph_treebank_read(out, NULL, &io));
    SAID(ph_treebank_read(NULL, "nowhere", &io));
    CREATES(ph_treebank, SAID, ph_treebank_parse(out, NULL, line, 1, &io));
    CREATES(ph_treebank, SAID, ph_treebank_parse(out, "name", NULL, 1, &io));
    SAID(ph_treebank_parse(NULL, "name", line, 1, &io));
    ph_treebank_free(NULL);
    ANSWERS(!ph_treebank_sentence(NULL, 0));
    ANSWERS(!ph_treebank_relation(NULL, 0));
    CHECK(!ph_treebank_parse(&treebank, "name", line, strlen(line), &io), "%s", said);
    CREATES(ph_syntax, SAID, ph_syntax_create(out, NULL, 1, &io));
    SAID(ph_syntax_create(NULL, treebank, 1, &io));
    ph_syntax_free(NULL);
    CHECK(ph_syntax_create(&syntax, treebank, 1, &io) == PH_OK, "%s", said);
    SAID(ph_syntax_begin(NULL, 0, &whole, 1, &io));
    SAID(ph_syntax_begin(syntax, 0, NULL, 1, &io));
    CHECK(ph_syntax_begin(syntax, 0, &whole, 1, &io) == PH_OK, "%s", said);
    REFUSED(ph_syntax_add(NULL, 0, 0, &number));
    REFUSED(ph_syntax_add(syntax, 0, 0, NULL));
    REFUSED(ph_syntax_read(NULL, 0, &score));
    REFUSED(ph_syntax_read(syntax, 0, NULL));
    ANSWERS(ph_syntax_right(NULL, 0, 0, PH_TO_HEAD) == -1);
    ph_syntax_free(syntax);
    ph_treebank_free(treebank);
}

static const check_case cases[] = {{"contexts", contexts},
                                   {"plans", plans},
                                   {"clusters", clusters},
                                   {"measures", measures},
                                   {"surveys", surveys},
                                   {"files", files},
                                   {"layers", layers},
                                   {"positions", positions},
                                   {"maps", maps},
                                   {"pictures", pictures},
                                   {"pages", pages},
                                   {"tokenizers", tokenizers},
                                   {"encoding", encoding},
                                   {"treebanks", treebanks},
                                   {0, 0}};

static int open_all(void)
{
    const ph_attn attn = {
        .batch = 1, .q_heads = 1, .q_len = 1, .kv_len = 1, .qk_dim = 1, .backward = 1};
    const ph_layer_desc desc = {.model_dim = 1, .attn = attn};
    return ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK &&
           ph_plan_create(&plan, ctx, &attn) == PH_OK &&
           ph_layer_create(&layer, ctx, &desc) == PH_OK;
}

int main(int argc, char **argv)
{
    int failed = 1;
    if (open_all())
        failed = check_main(argc, argv, cases);
    else
        fprintf(stderr, "%s\n", ph_error(ctx));
    ph_layer_free(layer);
    ph_plan_free(plan);
    ph_close(ctx);
    return failed;
}
