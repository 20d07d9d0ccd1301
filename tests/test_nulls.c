/*
 * test_nulls.c - what a creator that failed leaves behind, NULL, goes into the next call:
 * that is refused with PH_BAD_ARGUMENT, creators set *out to NULL, and where there is a
 * ph_io its sentence says what is NULL.
 */
#include "check.h"
#include "polyhead_circuits.h"
#include "polyhead_clusters.h"
#include "polyhead_heads.h"
#include "polyhead_maps.h"
#include "polyhead_model.h"
#include "polyhead_scene.h"
#include "polyhead_text.h"
#include "polyhead_treebank.h"

static char said[200];
static const ph_io io = {.error = said, .error_size = sizeof said};

#define REFUSED(call)                                                                    \
    CHECK((call) == PH_BAD_ARGUMENT, "%s is not refused as a bad argument", #call)

#define SAID(call)                                                                       \
    do {                                                                                 \
        said[0] = 0;                                                                     \
        REFUSED(call);                                                                   \
        CHECK(strstr(said, "is NULL"), "%s says \"%s\"", #call, said);                   \
    } while (0)

/* A creator, which leaves NULL in its handle. */
#define CREATES(type, call)                                                              \
    do {                                                                                 \
        type *made = (type *)said, **out = &made;                                        \
        SAID(call);                                                                      \
        CHECK(!made, "%s left its handle as it was", #call);                             \
    } while (0)

static void creators(void)
{
    CREATES(ph_encoder, ph_encoder_create(out, NULL, &io));
    CREATES(ph_detokenizer, ph_detokenizer_create(out, NULL, 0, &io));
    CREATES(ph_tokenizer, ph_tokenizer_of_gguf(out, NULL, &io));
    CREATES(ph_tokenizer, ph_tokenizer_of_words(out, NULL, 3, NULL, &io));
    CREATES(ph_circuit, ph_circuit_create(out, NULL, NULL, 0, 0, &io));
    CREATES(ph_survey, ph_survey_create(out, NULL, &io));
    CREATES(ph_maps, ph_maps_read(out, NULL, &io));
    CREATES(ph_scene, ph_scene_create(out, NULL, NULL, "", "", NULL, &io));
    CREATES(ph_syntax, ph_syntax_create(out, NULL, 1, &io));
    SAID(ph_encoder_create(NULL, NULL, &io));
    SAID(ph_clusters_create(NULL, 1, &io));
    SAID(ph_heads_create(NULL, 1, 1, &io));
}

static void handles(void)
{
    const float weight = 1;
    const int word = 0;
    float number;
    double share;
    SAID(ph_clusters_add(NULL, &weight, 1, 1, NULL, &io));
    SAID(ph_clusters_end(NULL, &io));
    SAID(ph_heads_begin(NULL, NULL, &io));
    SAID(ph_syntax_begin(NULL, 0, &word, 1, &io));
    SAID(ph_survey_text(NULL, NULL, NULL, &io));
    SAID(ph_survey_end(NULL, NULL, NULL, &io));
    SAID(ph_head_contribution(NULL, NULL, 0, 0, &number, &io));
    SAID(ph_head_shares(NULL, NULL, 0, &share, &io));
    SAID(ph_qk_ranks(NULL, NULL, 0, &share, &share, &share, &io));
    REFUSED(ph_heads_add(NULL, 0, 0, 0, 1, &weight));
    REFUSED(ph_heads_read(NULL, 0, 0, NULL));
    REFUSED(ph_syntax_add(NULL, 0, 0, &weight));
    REFUSED(ph_encode(NULL, NULL, NULL, NULL));
    REFUSED(ph_detokenize(NULL, 0, NULL, NULL));
    REFUSED(ph_detokenize_end(NULL, NULL, NULL));
    REFUSED(ph_trainer_step(NULL, NULL));
    REFUSED(ph_trainer_test(NULL, 1, NULL));
    REFUSED(ph_model_split(NULL, "", NULL, 0, NULL));
    REFUSED(ph_reading_look(NULL, 0, NULL));
    REFUSED(ph_reading_next(NULL, NULL));
}

static const check_case cases[] = {{"creators", creators}, {"handles", handles}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
