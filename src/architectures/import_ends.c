/*
 * import_ends.c - what stacks of published models end in: classifiers of texts and of
 * tokens, and what a decoder has in place of an output head.
 */
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"

int ph_import_classes(ph_import *in, ph_config *c)
{
    const ph_stored *classifier = ph_import_find(in, "classifier.w");
    if (!classifier || classifier->tensor.rank != 2) return 0;
    if (classifier->tensor.shape[0] > 1 << 24)
        ph_import_fail(in, PH_BAD_FILE, "a classifier has %zu classes, too many",
                       classifier->tensor.shape[0]);
    else
        c->classes = (int)classifier->tensor.shape[0];
    return 1;
}

int ph_import_by_token(ph_import *in)
{
    const char *class = ph_import_text(in, "architectures.0", NULL, "");
    return strstr(class, "TokenClassification") || strstr(class, "QuestionAnswering");
}

/* Whether a decoder is one of a sentence encoder. */
static int is_sentence(ph_import *in)
{
    if (ph_import_is_gguf(in)) return ph_import_int(in, NULL, "pooling_type", 0) > 0;
    return ph_import_list(in, "modules.") != NULL;
}

/* The reference scores every token without a bias and takes the last one of the text; a
   classifier of tokens has a bias. */
void ph_import_decoder_end(ph_import *in, ph_config *c)
{
    int classes = ph_import_classes(in, c), sentence = !classes && is_sentence(in);
    if (!ph_import_flag(in, "is_causal", "attention.causal", 1))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "%s is false, expected a decoder whose tokens see none after "
                       "them",
                       ph_import_is_gguf(in) ? "attention.causal" : "is_causal");
    c->no_output = classes || sentence;
    if (sentence) ph_import_pooling(in, c);
    if (!classes || ph_import_by_token(in)) return;
    c->pooling = PH_POOL_LAST;
    c->no_head_bias = 1;
}

void ph_publish_decoder_class(const ph_config *c, const char *stem, const char *causal,
                              const char *bare, ph_json_writer *json)
{
    char name[64];
    const char *classes =
        c->pooling ? "ForSequenceClassification" : "ForTokenClassification";
    snprintf(name, sizeof name, "%s%s", stem,
             c->classes     ? classes
             : c->no_output ? bare
                            : causal);
    ph_json_begin_array(json, "architectures");
    ph_json_string(json, NULL, name);
    ph_json_end(json);
}

void ph_publish_encoder_class(const ph_config *c, const char *stem, ph_json_writer *json)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", stem,
             c->masked                  ? "ForMaskedLM"
             : c->classes && c->pooling ? "ForSequenceClassification"
             : c->classes               ? "ForTokenClassification"
                                        : "Model");
    ph_json_begin_array(json, "architectures");
    ph_json_string(json, NULL, name);
    ph_json_end(json);
}
