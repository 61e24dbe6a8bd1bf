/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_STORE_MODEL_H
#define PLIM_TESTS_STORE_MODEL_H

/*
 * A world of series that can be computed at any time, and its history in a store: what a query must answer is then
 * known without keeping anything. Also folders for tests.
 */

#include "store/store.h"

#define MODEL_FIGURES 4u
#define NS            UINT64_C(1000000000)
#define MODEL_START   (UINT64_C(1700000000) * NS)

extern const char *const model_figures[MODEL_FIGURES];

/* Value of a figure of subject s at second t since MODEL_START; NaN: it has none then. */
double model_value(unsigned s, unsigned figure, uint64_t t);

/* The batch of second t: subjects "thing"/"s0" .. */
void model_batch(struct plim_batch *batch, unsigned subjects, uint64_t t);

/* A new empty folder under TMPDIR; static storage. model_folder_remove() removes the newest with its files. */
const char *model_folder(void);
void model_folder_remove(void);
const char *model_path(const char *name);

#endif
