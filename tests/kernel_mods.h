/*
 * kernel_mods.h - what the checks of head_forward and head_backward do to scores.
 */
#ifndef KERNEL_MODS_H
#define KERNEL_MODS_H

#include "kernels/kernels.h"

/* Any choice of bias, bias by distance, ALiBi, soft-cap and visible keys; most often
   none. Arrays of rows and keys end at guard pages, in slots 10 to 12. */
ph_score_mods bed_mods(int rows, int keys);

/* Whether such mods hide keys. */
int bed_mods_hide(const ph_score_mods *mods);

/* Dropout of a quarter, or none. */
ph_drop bed_drop(int rows);

#endif
