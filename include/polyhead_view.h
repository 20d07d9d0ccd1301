/*
 * polyhead_view.h - showing what heads attend to
 *
 *     ph_report       what is shown: words, weights, measures and roles of every head
 *     ph_page_write   one report, or two to compare, as one self-contained HTML file
 *     ph_serve_report the same page over HTTP, on this machine's loopback only; with a
 *                     model behind it: ph_serve_model (polyhead_scene.h)
 *
 * A report is data and two callbacks. Small things (words, measures per head) are
 * pointers; weights are read head by head through a callback, a few rows at a time, so
 * that nothing of size rows x keys x heads is ever in memory. Whoever makes a report
 * decides where they come from: a model that runs again, a file, an array.
 *
 * Words are untrusted: any bytes but NUL. Whatever draws them shows control and direction
 * characters as escapes and bytes that are no UTF-8 as U+FFFD.
 *
 * The rules of polyhead.h hold here too: zero is the usual value of every optional field,
 * and the library keeps no pointer it was given.
 */
#ifndef POLYHEAD_VIEW_H
#define POLYHEAD_VIEW_H

#include "polyhead.h"
#include "polyhead_io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a report contains -------------------------------------------------------- */

/* A text that attends or is attended to. */
typedef struct ph_axis {
    const char *name;          /* "text", "source", "target" */
    const char *const *tokens; /* (count) as a reader should see them */
    int count;
    const uint8_t *unknown; /* (count) 1: not in the model's vocabulary, so that nothing
                               is said about it; NULL: all are known */
} ph_axis;

/* A measure of heads, and its name in the filter line. */
typedef struct ph_metric {
    const char *key;  /* letters, digits, underscore: "prev" */
    const char *name; /* "previous token" */
    const char *help; /* its definition in one sentence */
    float threshold;  /* a head has the role when its value is above; 0: none */
    int at;           /* 1: a value equal to the threshold is enough */
} ph_metric;

/* A label a head can have. Role 0 of a report is "no label". */
typedef struct ph_role {
    char glyph;       /* one ASCII character: 'P'; '.' for role 0 */
    const char *key;  /* "prev", for the filter line */
    const char *name; /* "previous token" */
    const char *help; /* the rule with its threshold, one sentence */
} ph_role;

/* Layers x heads that share their two texts: an encoder, a decoder, its cross-attention.
   Arrays are indexed (layer, head, ...); each may be NULL: not known. */
typedef struct ph_stack {
    const char *name;   /* "encoder", "decoder", "cross"; shown when there are several */
    int layers, heads;  /* heads of the widest layer */
    int kv_heads;       /* that share keys in groups; 0: equal to heads */
    int q_axis, k_axis; /* rows and keys: index into ph_report.axes */
    int causal;         /* 1: row i sees keys j <= i + q_offset only; the other cells are
                           drawn as masked and never read */
    int q_offset;

    const uint8_t *absent;  /* (layers, heads) 1: there is no such head (pruned) */
    const float *scores;    /* (layers, heads, metrics of the report); NaN: not known */
    const uint8_t *role;    /* (layers, heads) index into ph_report.roles */
    const char *const *why; /* (layers, heads) "prev 0.83 > 0.50"; entries may be NULL */
    const float *offsets; /* (layers, heads, 2 * reach + 1) mean weight at key minus row =
                             -reach .. reach */
    int reach;
    const float *share;  /* (layers, heads, rows) how much the head counts for the answer
                            about a row, where its weights are the answer */
    const float *effect; /* (layers, heads) how far the answers of this text move when the
                            head is off: mean Kullback-Leibler divergence in nats */
    const float *contribution;  /* (layers, heads) share of what the attention of a layer
                                  writes, as of ph_head_shares; sums to 1 */
    const char *const *circuit; /* (layers, heads) "it > cross; ...\nit: animal, ..." of
                                   ph_circuit: pairs it prefers, what it writes; entries
                                   may be NULL */
    const float *value_norm; /* (layers, heads, keys) norm of v[j] times the head's rows
                                of the output matrix */

    int qk_dim;    /* of the vectors below; 0: there are none */
    float scale;   /* score = scale * q.k (plus what a mask or bias adds) */
    int pair_step; /* rotary pairs: d and d + pair_step are one pair; 0: no rotation */
    uint64_t reserved[4];
} ph_stack;

/* One prediction of the model: a next word or a label, and its probability. */
typedef struct ph_outcome {
    const char *text;
    float value; /* 0 to 1 */
    int about;   /* index of a word or token: outcomes of two reports with the same index
                    are compared */
    const char *relation; /* "object": how the word belongs to the other, the key of a
                             role where heads have such; NULL: not known */
} ph_outcome;

typedef struct ph_report {
    const char *title; /* name of the model or file */
    const char *text;  /* what was read, for the headline; may be "" */
    const char *found; /* one sentence of findings, or NULL */

    const ph_axis *axes;
    int axis_count;
    const ph_stack *stacks;
    int stack_count;
    const ph_metric *metrics;
    int metric_count;
    const ph_role *roles; /* roles[0] is "no label" */
    int role_count;

    int patch_first;   /* a picture: its first patch on axis 0, row by row from there */
    int patch_columns; /* patches of a row; 0: there is no picture */
    const uint8_t *picture; /* (picture_side, picture_side, 3) RGB, or NULL */
    int picture_side;

    const char *outcome_title; /* "next word" */
    const ph_outcome *outcomes;
    int outcome_count;
    const float *loss;       /* mean of -ln p over the text's own tokens, or NULL */
    const float *divergence; /* of the predictions from those before an edit: mean
                                Kullback-Leibler divergence in nats, or NULL */
    const float *cosine;     /* of the text's vector to that before an edit: encoders that
                                give a vector and nothing else; or NULL */

    /* Writes rows row0 .. row0 + rows - 1 of one head's weights to out (rows, keys).
       Cells that causality hides are unspecified. */
    ph_status (*weights)(void *user, int stack, int layer, int head, int row0, int rows,
                         float *out);
    /* Writes what was multiplied, after rotation: q (rows, qk_dim) and k (keys, qk_dim).
       NULL where every qk_dim is 0. */
    ph_status (*vectors)(void *user, int stack, int layer, int head, float *q, float *k);
    /* As weights, from several threads at once; NULL: weights takes one at a time. */
    ph_status (*rows)(void *user, int stack, int layer, int head, int row0, int rows,
                      float *out);
    /* Calls `see` for every layer of every stack, whose weights are available from then
       until it returns; NULL: those of all layers are at any time. */
    ph_status (*layers)(void *user, ph_status (*see)(void *to, int stack, int layer),
                        void *to);
    void *user;
    uint64_t reserved[2];
} ph_report;

/* ---- the page ---------------------------------------------------------------------- */

typedef struct ph_page {
    size_t budget; /* bytes the file may have; 0: 8 MiB. What does not fit is left out,
                        weakest heads first, and the page says so */
    int stack, layer, head; /* shown first */
    uint64_t reserved[4];
} ph_page;

/* Writes the file: whole or not at all. It holds everything it needs and refers to
   nothing outside. Weights are exact (float) where they fit in a fraction of the budget;
   otherwise rounded to the 4 decimals that the page prints; otherwise exact, but only the
   largest of each row. The same reports give the same bytes. second: to compare with
   first, or NULL. page and io may be NULL. */
PH_API ph_status ph_page_write(const char *path, const ph_report *first,
                               const ph_report *second, const ph_page *page,
                               const ph_io *io);

/* ---- live -------------------------------------------------------------------------- */

/* A change of the model that the user of the live page requests. */
typedef enum ph_edit_kind {
    PH_EDIT_ZERO = 0, /* the head's output becomes 0 */
    PH_EDIT_MEAN,     /* ... its mean over the words */
    PH_EDIT_GATE,     /* ... is multiplied by gate */
    PH_EDIT_MASK      /* the word is replaced by the unknown token */
} ph_edit_kind;

typedef struct ph_edit {
    ph_edit_kind kind;
    int stack, layer, head; /* of the report without changes */
    float gate;             /* 0 to 1 */
    int axis, word;         /* PH_EDIT_MASK */
} ph_edit;

/* What a page requests: a text to run, and edits. */
typedef struct ph_live_request {
    const char *text; /* valid UTF-8 */
    const ph_edit *edits;
    int count;
    int frozen;         /* 1: all weights stay those of the run without changes */
    const char *method; /* ph_live_measuring.begin: how heads are measured, or NULL */
    int data;           /* 1: on the data, not on the text */
    char *error;        /* one sentence where the request is refused */
    size_t error_size;  /* bytes at error */
    const char *target; /* decoder's text; NULL: what the model generates */
    int words;          /* 1: tokens are joined to words */
    const char *file;   /* another picture, or features of sound, that the page has sent:
                           hexadecimal digits that no other file has. text is its name.
                           NULL: none */
    const void *bytes;  /* (size) of the file */
    size_t size;
} ph_live_request;

/* Bits of ph_live.can: 1 << ph_edit_kind, and these. */
enum {
    PH_LIVE_FROZEN = 1 << 8,
    PH_LIVE_SAVE = 1 << 9,
    PH_LIVE_TEXT = 1 << 10,    /* another text */
    PH_LIVE_TARGET = 1 << 11,  /* another text of the decoder */
    PH_LIVE_WORDS = 1 << 12,   /* words in place of tokens */
    PH_LIVE_PICTURE = 1 << 13, /* another file: of a picture, */
    PH_LIVE_SOUND = 1 << 14    /* of features of sound */
};

/* What heads are worth, or what a plan does to texts. NaN: not known. */
typedef struct ph_live_measured {
    int done, of; /* passes; the rest holds when all are done */
    const char *method;
    int texts, data;            /* texts measured; 1: of the data */
    int heads;                  /* of all stacks */
    const float *worth, *error; /* (heads) and standard errors over texts; NULL: the plan
                                   was compared */
    float loss[2], accuracy[2]; /* without and with the edits, means over texts */
    float divergence;           /* of the answers, mean over texts, in nats */
} ph_live_measured;

/* Measuring heads, in steps: the server answers requests between them. One at a time. */
typedef struct ph_live_measuring {
    /* Methods for a text and for the data, NULL after the last, the usual one first. */
    const char *const *methods, *const *data_methods;
    int data_texts; /* 0: there is no data */
    /* A command line that takes the heads of a plan out of the model, to be followed by
       the name of the plan; NULL: there is none. */
    const char *command;
    /* Begins to measure what the heads that are on are worth, with those of the edits
       switched off; or, PH_LIVE_COMPARE, what all edits do. Ends what was begun. */
    ph_status (*begin)(void *user, const ph_live_request *request);
    /* One step; *out is valid until the next call. Not called again once all are done. */
    ph_status (*step)(void *user, ph_live_measured *out, char *error, size_t error_size);
    void (*end)(void *user); /* gives its memory back */
} ph_live_measuring;

#define PH_LIVE_COMPARE "compare"

/* The model behind a live page. Its callbacks are called one at a time. */
typedef struct ph_live {
    unsigned can;         /* what may be requested */
    const char *text;     /* initial text */
    const ph_edit *edits; /* (edit_count) initial edits, of heads only */
    int edit_count;
    /* Runs the text: *before without edits, *after with them, or NULL if there are none.
       Both live until the next call, and their callbacks may be called until then. */
    ph_status (*run)(void *user, const ph_live_request *request, const ph_report **before,
                     const ph_report **after);
    /* Saves the edits as a pruning plan and writes its name, or NULL. */
    ph_status (*save)(void *user, const ph_live_request *request, char *name,
                      size_t size);
    void *user;
    const ph_live_measuring *measuring; /* with the same user; or NULL */
    const char *target;                 /* initial text of the decoder, or NULL */
    int words;                          /* 1: words are shown first, not tokens */
    uint64_t reserved[1];
} ph_live;

typedef struct ph_serve {
    int port; /* 0: any that is free */
    /* Asked several times a second: 1 ends the server. What a signal handler or another
       thread sets for it must be atomic. */
    int (*stopped)(void *user);
    /* Called once: the address to open, with the token that every request must carry. */
    void (*ready)(void *user, const char *address);
    void *user;
    uint64_t reserved[4];
} ph_serve;

/* Serves one report until stopped(). */
PH_API ph_status ph_serve_report(const ph_report *report, const ph_serve *serve,
                                 const ph_io *io);

/* Serves what the callbacks of live run, until stopped(). Listens on 127.0.0.1 and, where
   there is one, ::1 only. Signals are left to the caller; a write to a closed connection
   raises none. */
PH_API ph_status ph_serve_run(const ph_live *live, const ph_serve *serve,
                              const ph_io *io);

#ifdef __cplusplus
}
#endif
#endif
