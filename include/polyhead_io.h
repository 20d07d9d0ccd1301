/*
 * polyhead_io.h - tensors in files (safetensors)
 *
 *     ph_file_read    a whole file, every rule of the format checked       -> ph_file
 *     ph_file_map     the same, its tensors used in place
 *     ph_file_find    one tensor of it by name                             -> ph_tensor
 *     ph_file_write   tensors and metadata into a file, all of it or nothing
 *
 * The reader is strict. It accepts exactly: 8 bytes little-endian header length (at most
 * 100,000,000); a header that is valid UTF-8 and one JSON object, with white space around
 * it allowed; then data that the tensors cover without hole, overlap or trailing byte.
 * Refused at every level: duplicate keys, NUL bytes in names and metadata, nesting deeper
 * than 8, numbers with sign, fraction or exponent where a size is meant, sizes that
 * overflow or do not fit the type. At most 2^20 tensors, rank 8, names of 1,024 bytes.
 *
 * The rules of polyhead.h hold here too: zero is the usual value of every optional field,
 * a failed call leaves its outputs as they were (creators set *out to NULL), and nothing
 * depends on the locale.
 */
#ifndef POLYHEAD_IO_H
#define POLYHEAD_IO_H

#include "polyhead.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors and files ------------------------------------------------------------- */

enum { PH_MAX_RANK = 8 };

typedef struct ph_tensor {
    const char *name;          /* UTF-8 */
    ph_dtype type;             /* any but block types, which the format lacks */
    int rank;                  /* 0: a scalar */
    size_t shape[PH_MAX_RANK]; /* outermost first */
    const void *data; /* little-endian, C-contiguous; 64-byte aligned where read */
    size_t bytes;     /* at data; set by the reader, ignored by the writer */
    uint64_t reserved[2];
} ph_tensor;

typedef struct ph_pair {
    const char *key, *value; /* UTF-8 */
} ph_pair;

/* Memory hooks, error text and limits; every function takes NULL for the defaults. */
typedef struct ph_io {
    void *(*alloc)(void *user, size_t bytes); /* NULL: malloc and free */
    void (*release)(void *user, void *ptr);   /* accepts NULL */
    void *user;
    char *error;       /* one sentence is written here when a call fails */
    size_t error_size; /* bytes at error */
    size_t max_bytes;  /* refuse files larger than this (PH_OUT_OF_MEMORY); 0: any size */
    int (*stopped)(void *user); /* asked while a file is written: 1 gives it up */
    uint64_t reserved[3];
} ph_io;

typedef struct ph_file ph_file; /* a file that was read; immutable, may be shared */

/* Reads a regular file, or its bytes from memory (they are copied; `name` stands in error
   sentences). Hooks in io must live as long as the file. PH_BAD_FILE: malformed.
   PH_IO_ERROR: could not be opened or read. */
PH_API ph_status ph_file_read(ph_file **out, const char *path, const ph_io *io);
PH_API ph_status ph_file_parse(ph_file **out, const char *name, const void *bytes,
                               size_t size, const ph_io *io);

/* As ph_file_read, but the file is mapped read-only and its tensors are used in place,
   aligned to their elements: only the header is read now, the rest when it is touched,
   and processes share one copy. Such a file must not be made shorter while it is open:
   that would end the process. */
PH_API ph_status ph_file_map(ph_file **out, const char *path, const ph_io *io);
PH_API void ph_file_free(ph_file *file); /* accepts NULL */

/* The i-th tensor in the order of the data, or the i-th pair of __metadata__ in the order
   of the header; NULL after the last. They live as long as the file. */
PH_API const ph_tensor *ph_file_tensor(const ph_file *file, size_t i);
PH_API const ph_pair *ph_file_metadata(const ph_file *file, size_t i);

/* The tensor of that name, or NULL. */
PH_API const ph_tensor *ph_file_find(const ph_file *file, const char *name);

/* Writes `count` tensors and `pairs` metadata strings. The same call gives the same
   bytes: data is sorted by type, largest alignment first, then by name, and metadata by
   key; the header is padded with spaces to 8 bytes, so every tensor is aligned in the
   file.
   The file appears whole or not at all: it is written under another name beside `path`,
   synced, and renamed; on failure an older file stays as it was. A symbolic link is
   followed; a device or pipe is written straight through; a directory is refused. */
PH_API ph_status ph_file_write(const char *path, const ph_tensor *tensors, size_t count,
                               const ph_pair *metadata, size_t pairs, const ph_io *io);

/* The elements of a tensor as another type, rounded to nearest even: F32, F16 and BF16
   into each other; PH_UNSUPPORTED for the rest. `out` holds all elements and does not
   overlap data. */
PH_API ph_status ph_tensor_convert(const ph_tensor *tensor, ph_dtype type, void *out);

/* "F32 (2, 8, 20, 64)" for messages, like snprintf. */
PH_API int ph_tensor_describe(const ph_tensor *tensor, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
