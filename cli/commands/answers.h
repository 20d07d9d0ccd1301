/*
 * answers.h - what the files of `polyhead generate` share.
 */
#ifndef PH_COMMANDS_ANSWERS_H
#define PH_COMMANDS_ANSWERS_H

#include "polyhead_model.h"

/* How texts are answered. */
typedef struct answer_job {
    const ph_model *m;
    ph_ctx *ctx;
    ph_generation how;
    int json, time;
    int many; /* 1: texts are lines, so each JSON object is one */
} answer_job;

/* A text that grows. */
typedef struct answer_buffer {
    char *text; /* NULL: empty; freed by its owner */
    size_t length, capacity;
    int lost; /* 1: there was no memory for a piece */
} answer_buffer;

void answer_append(answer_buffer *to, const char *piece);

/* One text, whose answer is shown as it is generated. Returns the exit code. */
int answer_text(const answer_job *job, const char *text);

/* generate_lines.c: every line of a file, NULL: of stdin. One that is refused costs its
   own answer only. */
int answer_lines(const answer_job *job, const char *path);

/* The answer to a line, printed; generated NULL: there is none. */
void answer_print(const answer_job *job, const char *text, const char *generated);

/* Says on stderr how long it took, if that was asked for: all of it, at the end. */
void answer_time(const answer_job *job, double start);

/* generate_links.c: an encoder says what words belong to. */
ph_status answer_links(const answer_job *job, const char *text);
void answer_no_links(const answer_job *job);

/* Whether a text is printed before what continues it. */
static inline int answer_continues(const answer_job *job)
{
    return ph_model_config(job->m)->arch == PH_ARCH_DECODER && !job->how.chat;
}

static inline int answer_is_encoder(const answer_job *job)
{
    return ph_model_config(job->m)->arch == PH_ARCH_ENCODER;
}

#endif
