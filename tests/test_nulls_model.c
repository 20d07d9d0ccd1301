/*
 * test_nulls_model.c - NULL in place of a handle or of a pointer that is needed, as in
 * test_nulls.c: the functions around a model, in the order of their headers.
 */
#include "nulls.h"
#include "polyhead_circuits.h"
#include "polyhead_convert.h"
#include "polyhead_prune.h"
#include "polyhead_scene.h"

static ph_model *model;
static ph_reading *reading;
static double share;
static int count;
static const char *const words[] = {"word"};

static void circuits(void)
{
    const int32_t token = 0;
    ph_circuit *circuit = NULL;
    SAID(ph_head_contribution(NULL, reading, 0, 0, numbers, &io));
    SAID(ph_head_contribution(model, NULL, 0, 0, numbers, &io));
    SAID(ph_head_contribution(model, reading, 0, 0, NULL, &io));
    SAID(ph_head_shares(NULL, reading, 0, &share, &io));
    SAID(ph_head_shares(model, NULL, 0, &share, &io));
    SAID(ph_head_shares(model, reading, 0, NULL, &io));
    CREATES(ph_circuit, SAID, ph_circuit_create(out, NULL, reading, 0, 0, &io));
    CREATES(ph_circuit, SAID, ph_circuit_create(out, model, NULL, 0, 0, &io));
    SAID(ph_circuit_create(NULL, model, reading, 0, 0, &io));
    ph_circuit_free(NULL);
    CHECK(ph_circuit_create(&circuit, model, reading, 0, 0, &io) == PH_OK, "%s", said);
    REFUSED(ph_circuit_scores(NULL, &token, 1, &share));
    REFUSED(ph_circuit_scores(circuit, NULL, 1, &share));
    REFUSED(ph_circuit_scores(circuit, &token, 1, NULL));
    REFUSED(ph_circuit_writes(NULL, 0, &share));
    REFUSED(ph_circuit_writes(circuit, 0, NULL));
    ph_circuit_free(circuit);
    SAID(ph_qk_ranks(NULL, reading, 0, &share, &share, NULL, &io));
    SAID(ph_qk_ranks(model, NULL, 0, &share, &share, NULL, &io));
    SAID(ph_qk_ranks(model, reading, 0, NULL, &share, NULL, &io));
    SAID(ph_qk_ranks(model, reading, 0, &share, NULL, NULL, &io));
}

static void conversions(void)
{
    const ph_conversion how = {0};
    CREATES(ph_conversion_report, REFUSED, ph_convert(NULL, &how, NULL, out));
    CREATES(ph_conversion_report, TOLD, ph_convert(model, NULL, NULL, out));
    ph_conversion_report_free(NULL);
}

static void models(void)
{
    const ph_config config = {.vocab = 8, .layers = 1, .model_dim = 8, .heads = 1};
    char spelt[8] = "left";
    size_t floats = 1;
    PRINTS(ph_config_print(NULL, text, sizeof text), ph_config_print(&config, NULL, 8));
    CREATES(ph_model, REFUSED, ph_model_create(out, NULL, &config, 0, NULL, 0, 1));
    CREATES(ph_model, TOLD, ph_model_create(out, ctx, NULL, 0, NULL, 0, 1));
    TOLD(ph_model_create(NULL, ctx, &config, 0, NULL, 0, 1));
    CREATES(ph_model, REFUSED, ph_model_read(out, NULL, "nowhere"));
    CREATES(ph_model, TOLD, ph_model_read(out, ctx, NULL));
    TOLD(ph_model_read(NULL, ctx, "nowhere"));
    REFUSED(ph_model_own(NULL));
    CREATES(ph_model, REFUSED, ph_model_embedded(out, NULL));
    TOLD(ph_model_embedded(NULL, ctx));
    REFUSED(ph_model_write(NULL, "nowhere"));
    TOLD(ph_model_write(model, NULL));
    REFUSED(ph_model_export(NULL, "nowhere", "nowhere", NULL));
    TOLD(ph_model_export(ctx, NULL, "nowhere", NULL));
    TOLD(ph_model_export(ctx, "nowhere", NULL, NULL));
    ph_model_free(NULL);
    ANSWERS(!ph_model_config(NULL));
    ANSWERS(!ph_model_tensor(NULL, 0));
    ANSWERS(!ph_model_block(NULL, &floats) && floats == 0);
    ANSWERS(ph_model_parameters(NULL) == 0);
    REFUSED(ph_model_flops(NULL, 1, &share));
    TOLD(ph_model_flops(model, 1, NULL));
    REFUSED(ph_model_split(NULL, "word", NULL, 0, &count));
    TOLD(ph_model_split(model, NULL, NULL, 0, &count));
    TOLD(ph_model_split(model, "word", NULL, 1, &count));
    TOLD(ph_model_split(model, "word", NULL, 0, NULL));
    ANSWERS(!ph_model_chat(NULL));
    ANSWERS(!ph_model_ignored(NULL));
    ANSWERS(!*ph_model_token(NULL, 0));
    ANSWERS(ph_model_spell(NULL, 0, spelt, sizeof spelt) == spelt && !spelt[0]);
    ANSWERS(!ph_model_spell(model, 0, NULL, 8));
    ANSWERS(ph_model_splits(NULL) == PH_SPLIT_WORDS);
    ANSWERS(ph_model_knows(NULL, 0) == 0);
}

static ph_status see_nothing(void *user, int site)
{
    (void)user, (void)site;
    return PH_OK;
}

static void readings(void)
{
    CREATES(ph_reading, REFUSED, ph_reading_create(out, NULL, "word", NULL));
    CREATES(ph_reading, TOLD, ph_reading_create(out, model, NULL, NULL));
    TOLD(ph_reading_create(NULL, model, "word", NULL));
    ph_reading_free(NULL);
    ANSWERS(!ph_reading_word(NULL, 0, 0));
    ANSWERS(ph_reading_length(NULL, 0) == 0);
    ANSWERS(!ph_reading_site(NULL, 0));
    REFUSED(ph_reading_look(NULL, 0, &(ph_look_at){0}));
    TOLD(ph_reading_look(reading, 0, NULL));
    REFUSED(ph_reading_vectors(NULL, 0, 0, NULL, NULL, NULL, NULL));
    REFUSED(ph_reading_run(NULL, NULL, 0));
    CREATES(ph_reading, REFUSED, ph_reading_prepare(out, NULL, "word", NULL));
    CREATES(ph_reading, TOLD, ph_reading_prepare(out, model, NULL, NULL));
    TOLD(ph_reading_prepare(NULL, model, "word", NULL));
    REFUSED(ph_reading_pass(NULL, see_nothing, NULL));
    TOLD(ph_reading_pass(reading, NULL, NULL));
    REFUSED(ph_reading_gates(NULL, NULL));
    REFUSED(ph_reading_links(NULL, numbers));
    TOLD(ph_reading_links(reading, NULL));
    REFUSED(ph_reading_next(NULL, numbers));
    TOLD(ph_reading_next(reading, NULL));
    REFUSED(ph_reading_classes(NULL, numbers));
    TOLD(ph_reading_classes(reading, NULL));
    REFUSED(ph_reading_token_classes(NULL, numbers));
    TOLD(ph_reading_token_classes(reading, NULL));
    REFUSED(ph_reading_embedding(NULL, numbers));
    TOLD(ph_reading_embedding(reading, NULL));
    REFUSED(ph_reading_picture(NULL, (uint8_t *)numbers));
    TOLD(ph_reading_picture(reading, NULL));
}

static void encoders(void)
{
    const char *const none[] = {NULL};
    const ph_texts texts = {.texts = words, .count = 1};
    const ph_texts hole = {.texts = none, .count = 1};
    ph_prompt prompt = {.text = "word"};
    REFUSED(ph_model_embed(NULL, &texts, numbers));
    TOLD(ph_model_embed(model, NULL, numbers));
    TOLD(ph_model_embed(model, &(ph_texts){.count = 1}, numbers));
    TOLD(ph_model_embed(model, &hole, numbers));
    TOLD(ph_model_embed(model, &texts, NULL));
    REFUSED(ph_model_classify(NULL, &texts, numbers));
    TOLD(ph_model_classify(model, NULL, numbers));
    TOLD(ph_model_classify(model, &texts, NULL));
    ph_class_probabilities(NULL, numbers);
    ph_class_probabilities(model, NULL);
    CHECK(!ph_model_has_probabilities(NULL), "a model that is NULL has probabilities");
    REFUSED(ph_model_pictures(NULL, numbers, 1, NULL, NULL));
    TOLD(ph_model_pictures(model, NULL, 1, NULL, NULL));
    REFUSED(ph_model_open_picture(NULL, "nowhere", numbers));
    TOLD(ph_model_open_picture(model, NULL, numbers));
    TOLD(ph_model_open_picture(model, "nowhere", NULL));
    ANSWERS(!*ph_model_class(NULL, 0));
    ANSWERS(ph_model_mask(NULL) == -1);
    ANSWERS(ph_model_vector_dim(NULL) == 0);
    REFUSED(ph_generate(NULL, "word", NULL, said, sizeof said, NULL));
    REFUSED(ph_generate_batch(NULL, &prompt, 1, NULL));
    TOLD(ph_generate_batch(model, NULL, 1, NULL));
    REFUSED(ph_generate_stream(NULL, NULL, NULL));
    TOLD(ph_generate_stream(model, NULL, NULL));
}

static void evals(void)
{
    const ph_train train = {.recipe = "pronouns"};
    ph_eval *eval = NULL;
    ph_result result;
    ph_estimate *estimates = (ph_estimate *)numbers;
    CREATES(ph_eval, REFUSED, ph_eval_create(out, NULL, &(ph_texts){0}, 0));
    CREATES(ph_eval, TOLD, ph_eval_create(out, model, NULL, 0));
    TOLD(ph_eval_create(NULL, model, &(ph_texts){.texts = words, .count = 1}, 0));
    CREATES(ph_eval, REFUSED, ph_eval_recipe(out, NULL, &train, 1, 0));
    CREATES(ph_eval, TOLD, ph_eval_recipe(out, model, NULL, 1, 0));
    TOLD(ph_eval_recipe(NULL, model, &train, 1, 0));
    ph_eval_free(NULL);
    ANSWERS(ph_eval_texts(NULL) == 0);
    CHECK(ph_eval_recipe(&eval, model, &train, 1, 0) == PH_OK, "%s", ph_error(ctx));
    REFUSED(ph_eval_compare(NULL, eval));
    TOLD(ph_eval_compare(eval, NULL));
    REFUSED(ph_eval_loss(NULL, NULL, &result));
    TOLD(ph_eval_loss(eval, NULL, NULL));
    REFUSED(ph_importance(NULL, PH_WORTH_TOKEN, NULL, estimates));
    TOLD(ph_importance(eval, PH_WORTH_TOKEN, NULL, NULL));
    REFUSED(ph_importance_order(NULL, &(ph_order){0}, (int *)numbers));
    TOLD(ph_importance_order(eval, NULL, (int *)numbers));
    TOLD(ph_importance_order(eval, &(ph_order){0}, NULL));
    REFUSED(ph_eval_tune(NULL, &(ph_tuning){.steps = 1}, NULL));
    TOLD(ph_eval_tune(eval, NULL, NULL));
    TOLD(ph_eval_tune(eval, &(ph_tuning){.steps = 1, .gated = 1}, NULL));
    ph_eval_free(eval);
}

static void heads_of_models(void)
{
    ph_head_place place;
    ANSWERS(ph_model_heads(NULL) == 0);
    REFUSED(ph_model_head(NULL, 0, &place));
    TOLD(ph_model_head(model, 0, NULL));
    ph_importance_normalise(NULL, (ph_estimate *)numbers);
    ph_importance_normalise(model, NULL);
    REFUSED(ph_model_remove(NULL, (uint8_t *)numbers));
    TOLD(ph_model_remove(model, NULL));
    ANSWERS(!ph_model_tokenizer(NULL));
    REFUSED(ph_model_removable(NULL, NULL));
    REFUSED(ph_worth_check(NULL, PH_WORTH_TOKEN));
    REFUSED(ph_model_gate(NULL, numbers));
    TOLD(ph_model_gate(model, NULL));
}

static void scenes(void)
{
    ph_scene *scene = NULL;
    CREATES(ph_scene, SAID, ph_scene_create(out, NULL, reading, "", "", NULL, &io));
    CREATES(ph_scene, SAID, ph_scene_create(out, model, NULL, "", "", NULL, &io));
    CREATES(ph_scene, SAID, ph_scene_create(out, model, reading, "", NULL, NULL, &io));
    SAID(ph_scene_create(NULL, model, reading, "", "", NULL, &io));
    ph_scene_free(NULL);
    CHECK(ph_scene_create(&scene, model, reading, NULL, "the cat", NULL, &io) ==
                  PH_BAD_ARGUMENT &&
              strstr(said, "is not what the reading has read"),
          "%s", said);
    CHECK(!ph_scene_create(&scene, model, reading, NULL, "the cat sleeps", NULL, &io),
          "%s", said);
    ANSWERS(!ph_scene_report(NULL).weights);
    SAID(ph_scene_refresh(NULL, &io));
    ANSWERS(ph_scene_site(NULL, 0, 0) == -1);
    ANSWERS(!ph_scene_ids(NULL, 0));
    SAID(ph_joined_create(NULL, scene, &io));
    CREATES(ph_joined, SAID, ph_joined_create(out, NULL, &io));
    ANSWERS(!ph_joined_report(NULL).weights);
    ph_joined_free(NULL);
    SAID(ph_scene_compare(NULL, scene, &io));
    SAID(ph_scene_compare(scene, NULL, &io));
    ph_scene_free(scene);
}

static void prune_plans(void)
{
    ph_prune prune = {.count = 1};
    SAID(ph_prune_create(NULL, reading, &io));
    SAID(ph_prune_create(&prune, NULL, &io));
    ANSWERS(prune.count == 0);
    ph_prune_free(NULL, &io);
    ANSWERS(ph_prune_entry(NULL, 0, 0) == -1);
    SAID(ph_prune_read(NULL, "nowhere", reading, &io));
    SAID(ph_prune_read(&prune, NULL, reading, &io));
    SAID(ph_prune_read(&prune, "nowhere", NULL, &io));
    CHECK(ph_prune_create(&prune, reading, &io) == PH_OK, "%s", said);
    SAID(ph_prune_write(NULL, "nowhere", reading, &io));
    SAID(ph_prune_write(&prune, NULL, reading, &io));
    SAID(ph_prune_write(&prune, "nowhere", NULL, &io));
    REFUSED(ph_prune_run(NULL, reading, 0));
    REFUSED(ph_prune_run(&prune, NULL, 0));
    ph_prune_free(&prune, &io);
}

static void live(void)
{
    const ph_live_model bare = {.model = model};
    SAID(ph_serve_model(NULL, &(ph_serve){0}, &io));
    SAID(ph_serve_model(&bare, &(ph_serve){0}, &io));
    SAID(ph_serve_model(&bare, NULL, &io));
}

static void training(void)
{
    ph_train train;
    ph_trainer *trainer = NULL;
    REFUSED(ph_train_defaults(NULL, "copy"));
    REFUSED(ph_train_defaults(&train, NULL));
    CHECK(ph_train_defaults(&train, "copy") == PH_OK, "no recipe");
    REFUSED(ph_train_from(NULL, NULL));
    PRINTS(ph_train_print(NULL, text, sizeof text), ph_train_print(&train, NULL, 8));
    CREATES(ph_trainer, REFUSED, ph_trainer_create(out, NULL, &train));
    CREATES(ph_trainer, TOLD, ph_trainer_create(out, ctx, NULL));
    TOLD(ph_trainer_create(NULL, ctx, &train));
    CREATES(ph_trainer, REFUSED, ph_trainer_tune(out, NULL, &train, NULL));
    CREATES(ph_trainer, TOLD, ph_trainer_tune(out, ctx, &train, NULL));
    TOLD(ph_trainer_tune(NULL, ctx, &train, NULL));
    ph_trainer_free(NULL);
    ANSWERS(!ph_trainer_model(NULL));
    ANSWERS(!ph_trainer_options(NULL));
    ANSWERS(!ph_trainer_pace(NULL));
    ANSWERS(ph_trainer_steps(NULL) == 0);
    CHECK(ph_trainer_create(&trainer, ctx, &train) == PH_OK, "%s", ph_error(ctx));
    REFUSED(ph_trainer_step(NULL, &(ph_progress){0}));
    TOLD(ph_trainer_step(trainer, NULL));
    REFUSED(ph_trainer_test(NULL, 1, &(ph_score){0}));
    TOLD(ph_trainer_test(trainer, 1, NULL));
    REFUSED(ph_trainer_save(NULL, "nowhere"));
    TOLD(ph_trainer_save(trainer, NULL));
    ph_trainer_free(trainer);
    CREATES(ph_trainer, REFUSED, ph_trainer_resume(out, NULL, "nowhere", NULL, 0));
    CREATES(ph_trainer, TOLD, ph_trainer_resume(out, ctx, NULL, NULL, 0));
    TOLD(ph_trainer_resume(NULL, ctx, "nowhere", NULL, 0));
}

static void samples(void)
{
    ph_sentence sentence = {.words = 7};
    ph_sentences *sentences = NULL;
    REFUSED(ph_relations_of(NULL, &whole, 1, &count));
    REFUSED(ph_relations_of(words, NULL, 1, &count));
    REFUSED(ph_relations_of(words, &whole, 1, NULL));
    CREATES(ph_sentences, REFUSED, ph_sentences_create(out, NULL));
    TOLD(ph_sentences_create(NULL, ctx));
    ph_sentences_free(NULL);
    CHECK(ph_sentences_create(&sentences, ctx) == PH_OK, "%s", ph_error(ctx));
    ph_sentences_get(NULL, 1, &sentence);
    ANSWERS(sentence.words == 7);
    ph_sentences_get(sentences, 1, NULL);
    ph_sentences_free(sentences);
    ANSWERS(ph_shape_draw(1, NULL) >= 0);
}

static const check_case cases[] = {{"circuits", circuits},
                                   {"conversions", conversions},
                                   {"models", models},
                                   {"readings", readings},
                                   {"encoders", encoders},
                                   {"evals", evals},
                                   {"heads-of-models", heads_of_models},
                                   {"scenes", scenes},
                                   {"prune-plans", prune_plans},
                                   {"live", live},
                                   {"training", training},
                                   {"samples", samples},
                                   {0, 0}};

static int open_all(void)
{
    return ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK &&
           ph_model_embedded(&model, ctx) == PH_OK &&
           ph_reading_create(&reading, model, "the cat sleeps", NULL) == PH_OK;
}

int main(int argc, char **argv)
{
    int failed = 1;
    if (open_all())
        failed = check_main(argc, argv, cases);
    else
        fprintf(stderr, "%s\n", ph_error(ctx));
    ph_reading_free(reading);
    ph_model_free(model);
    ph_close(ctx);
    return failed;
}
