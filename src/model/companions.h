/*
 * companions.h - tokenizer, marks, names of classes and preprocessing of a model in its
 * own files; see companions.c.
 */
#ifndef PH_MODEL_COMPANIONS_H
#define PH_MODEL_COMPANIONS_H

#include "io/json_write.h"
#include "model/model.h"

struct ph_checkpoint;

/* Keeps the bytes of the tokenizer before the checkpoint goes. */
ph_status ph_companions_keep(ph_model *m, const struct ph_checkpoint *c);

/* Whether there is anything to write; polyhead.about as JSON. */
int ph_companions_exist(const ph_model *m);
void ph_companions_print(const ph_model *m, ph_json_writer *json);

ph_status ph_companions_read(ph_model *m, const ph_file *file);

#endif
