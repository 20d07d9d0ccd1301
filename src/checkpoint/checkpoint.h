/*
 * checkpoint.h - a set of named tensors and what is said about them, mapped from disk.
 *
 *     folder.c   a Hugging Face folder: config.json, model.safetensors or its shards;
 *                folder_copy.c writes one as another
 *     gguf.c     a GGUF file
 *     llama2c.c  a llama2.c file, shown under the names GGUF has for it
 *
 * Recognised by content. Headers are read, data stays in the mapped files: opening costs
 * the same for a model of any size. Every size and offset is compared with the file
 * before it is used.
 */
#ifndef PH_CHECKPOINT_CHECKPOINT_H
#define PH_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/values.h"
#include "io/directory.h"
#include "io/map.h"

typedef enum ph_checkpoint_kind {
    PH_CHECKPOINT_FOLDER = 0, /* Hugging Face's names */
    PH_CHECKPOINT_GGUF,       /* GGUF's names and metadata */
    PH_CHECKPOINT_OWN         /* a file of ph_model_write, or the directory of a training
                                 that holds one; nothing of it is read here */
} ph_checkpoint_kind;

typedef struct ph_stored {
    ph_tensor tensor;         /* data NULL: in blocks, see ph_checkpoint_load */
    const unsigned char *raw; /* those blocks */
    int raw_type;             /* of GGUF */
    int read;                 /* 1: something was made of it */
} ph_stored;

enum { PH_MODULE_PATH = 64 };

typedef struct ph_checkpoint {
    ph_io io; /* hooks */
    ph_checkpoint_kind kind;
    const char *path;
    int llama2c;        /* 1: a llama2.c file, without a tokenizer */
    size_t metadata;    /* GGUF: bytes before the list of tensors */
    int directory;      /* PH_CHECKPOINT_OWN: 1: it is model.safetensors in the path */
    ph_values values;   /* config.json, or metadata; generation_config.json has the prefix
                         "generation.", that of a Pooling module "pooling." and so on */
    ph_stored *tensors; /* sorted by name */
    size_t count, capacity;
    ph_map map;
    ph_file **files;
    size_t file_count;
    size_t module_files; /* the last of them are those of modules */
    char pooling[PH_MODULE_PATH], dense[PH_MODULE_PATH]; /* folders of these modules of
                            sentence-transformers, whose tensors begin with "dense." */
    void **memory;                                       /* of ph_checkpoint_keep */
    size_t memory_count, memory_capacity;
} ph_checkpoint;

/* Sentences go to io->error, which must be there. */
ph_status ph_checkpoint_open(ph_checkpoint **out, const char *path, const ph_io *io);
void ph_checkpoint_free(ph_checkpoint *c); /* accepts NULL */

/* The tensor of that name, or NULL. */
ph_stored *ph_checkpoint_find(const ph_checkpoint *c, const char *name);

/* Makes sure that the tensor has data: one of a type that no product reads (the K
   types of GGUF and others) becomes F32 in memory. */
ph_status ph_checkpoint_load(ph_checkpoint *c, ph_stored *stored, const ph_io *io);

/* Writes a checkpoint of kind PH_CHECKPOINT_FOLDER that was opened from `path` as another
   folder: tensors in one file, under the names they have there, everything else byte by
   byte. type: what F32, F16 and BF16 become, or NULL: nothing changes. */
ph_status ph_folder_copy(const ph_checkpoint *c, const char *path, const ph_directory *to,
                         const ph_dtype *type, const ph_io *io);

/* PH_BAD_VALUE: the value, of that tensor, is finite and would become infinite as this
   type. */
ph_status ph_folder_holds(ph_dtype type, float value, const char *tensor,
                          const ph_io *io);

/* "float32", "float16" or "bfloat16", as config.json names a type. */
const char *ph_folder_dtype(ph_dtype type);

/* Names of the file that limits and lowercases the texts of a sentence encoder: the first
   that a folder has counts. Ends with NULL. */
extern const char *const ph_sentence_files[];

#define PH_PICKLE_SENTENCE                                                               \
    "%.200s is a Python pickle, which can run code when read: load it once with "        \
    "transformers (from_pretrained, then save_pretrained) and give the directory that "  \
    "writes"

/* ---- the readers ------------------------------------------------------------------- */

ph_status ph_folder_read(ph_checkpoint *c, const char *path, const ph_io *io);

/* Which file of a folder holds which tensor, sorted by file. */
typedef struct ph_shard {
    const char *tensor, *file;
} ph_shard;

typedef struct ph_index {
    ph_shard *list;
    size_t count, capacity, files;
    char *text; /* that the names point into */
} ph_index;

/* Reads model.safetensors.index.json; name stands in sentences. */
ph_status ph_index_read(ph_index *index, const char *name, const char *bytes, size_t size,
                        const ph_io *io);
void ph_index_free(ph_index *index, const ph_io *io);

ph_status ph_gguf_read(ph_checkpoint *c, const char *name, const unsigned char *bytes,
                       size_t size, const ph_io *io);

/* Whether the sizes in the header are those of the file. */
int ph_llama2c_fits(const unsigned char *bytes, size_t size);
ph_status ph_llama2c_read(ph_checkpoint *c, const unsigned char *bytes, const ph_io *io);

/* Memory that lives as long as the checkpoint. */
ph_status ph_checkpoint_keep(ph_checkpoint *c, size_t bytes, void **out, const ph_io *io);

ph_status ph_checkpoint_add(ph_checkpoint *c, const ph_stored *stored, const ph_io *io);

/* Makes tensors findable; a name that exists twice is refused. */
ph_status ph_checkpoint_sort(ph_checkpoint *c, const char *name, const ph_io *io);

#endif
