/*
 * decoder_bed.h - a decoder whose texts all get as many tokens in every call.
 */
#ifndef DECODER_BED_H
#define DECODER_BED_H

#include "check.h"
#include "model/generate.h"

enum { DECODER_TEXTS = 16 };

/* For `texts` texts; those of an encoder-decoder have one source. */
static inline ph_decoder *make_decoder(const ph_model *m, int texts,
                                       const int32_t *source, int source_len)
{
    const int32_t offsets[] = {0, source_len};
    int both = m->config.arch == PH_ARCH_ENCODER_DECODER;
    ph_decoder *d;
    ph_decoder_shape shape = {.texts = texts};
    if (both) shape.source_len = source_len, shape.one_source = 1;
    CHECK(ph_decoder_create(&d, m, &shape) == PH_OK, "%s", ph_error(m->ctx));
    if (both)
        CHECK(ph_decoder_read(
                  d, &(ph_batch){.source = source, .source_offsets = offsets}) == PH_OK,
              "%s", ph_error(m->ctx));
    return d;
}

/* tokens (texts, count); the logits of each text, (texts, vocab). */
static inline const float *feed_decoder(const ph_model *m, ph_decoder *d, int texts,
                                        const int32_t *tokens, int count)
{
    int32_t offsets[DECODER_TEXTS + 1];
    int all[DECODER_TEXTS];
    float *logits;
    for (int i = 0; i <= texts; i++) offsets[i] = i * count;
    for (int i = 0; i < texts; i++) all[i] = i;
    CHECK(ph_decoder_feed(d, tokens, offsets) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_decoder_logits(d, all, texts, &logits) == PH_OK, "%s", ph_error(m->ctx));
    return logits;
}

#endif
