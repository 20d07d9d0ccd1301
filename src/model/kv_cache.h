/*
 * kv_cache.h - what attention caches of texts that are decoded.
 *
 * Keys and values of self-attention lie in pages of PH_PAGE_TOKENS tokens. All sites have
 * the same pages, so that one table says where the tokens of a text are. Pages are taken
 * when tokens come and given back when a text ends; beams share the pages of what they
 * have in common. Variants that cache other tensors than k and v, and keys and values of
 * an encoder's output, have memory for every text at its full length.
 */
#ifndef PH_MODEL_KV_CACHE_H
#define PH_MODEL_KV_CACHE_H

#include "model/model.h"

enum { PH_PAGE_TOKENS = 128 };

typedef struct ph_decoder_shape {
    int texts;         /* that are decoded side by side */
    int capacity;      /* tokens of each, at most; 0: max_len */
    int source_len;    /* encoder-decoder: tokens of a source, at most */
    int one_source;    /* 1: of all texts: they are beams */
    ph_dtype kv_dtype; /* of cached keys and values of self-attention */
} ph_decoder_shape;

/* The cache of one attention site. */
typedef struct ph_cache {
    void *k, *v;
    float *extra;
    ph_layer_caches bytes; /* of each */
    int paged;             /* 1: k and v lie in pages ... */
    size_t k_page, v_page; /* ... of so many bytes */
    int reads_memory;      /* 1: its layer computes keys from the encoder's output */
} ph_cache;

typedef struct ph_kv_cache {
    ph_model *model;
    ph_decoder_shape shape;
    int32_t *past;        /* (texts) tokens so far */
    int32_t *source_lens; /* (texts) encoder-decoder: tokens of the source */
    ph_cache *sites;      /* (site_count) */
    int page_len, pages;  /* tokens of a page, pages of every site */
    int table_len;        /* pages of a text, at most */
    int32_t *table;       /* (texts, table_len) pages of each text ... */
    int32_t *held;        /* ... (texts) how many it has */
    int32_t *holders;     /* (texts * table_len) texts that have each page */
    int32_t *old_table, *old_held, *old_past; /* scratch of ph_kv_reorder */
    void *memory;
} ph_kv_cache;

ph_status ph_kv_create(ph_kv_cache **out, ph_model *model, const ph_decoder_shape *shape);
void ph_kv_free(ph_kv_cache *kv); /* accepts NULL */

/* Memory for tokens [offsets[b], offsets[b + 1]) more of each text. */
ph_status ph_kv_reserve(ph_kv_cache *kv, const int32_t *offsets);

/* The text ends: its pages are free, and another may begin in its place. */
void ph_kv_end(ph_kv_cache *kv, int text);

/* Text b goes on with the pages of text from[b]. */
void ph_kv_reorder(ph_kv_cache *kv, const int *from);

size_t ph_kv_bytes(const ph_kv_cache *kv); /* of all caches */

/* The layer of a site with its cache, for calls of `rows` tokens, at most `longest` of a
   text. */
ph_layer_desc ph_kv_layer(const ph_kv_cache *kv, const ph_sublayer *sublayer, int rows,
                          int longest);

/* Whether keys and values of the encoder's output are projected once, by the decoder. */
int ph_kv_is_plain_cross(const ph_sublayer *sublayer, const ph_layer_desc *desc);

/* Whether a site reads the encoder's output itself. Then texts are beams of one source,
   and all get as many tokens in a call. */
int ph_kv_reads_memory(const ph_model *model);

static inline void ph_cache_give(const ph_cache *cache, ph_layer_args *args)
{
    args->k_cache = cache->k, args->k_cache_size = cache->bytes.k;
    args->v_cache = cache->v, args->v_cache_size = cache->bytes.v;
    args->extra_cache = cache->extra, args->extra_cache_size = cache->bytes.extra;
}

#endif
