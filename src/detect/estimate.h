/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DETECT_ESTIMATE_H
#define PLIM_DETECT_ESTIMATE_H

/* An estimate in a saved state: [value, low, high]; not there: not known. Of the detector, and of alerts. */

#include "base/jsonw.h"
#include "detect/detect.h"

#include <jansson.h>

void plim_estimate_save(struct plim_jsonw *w, const char *key, const struct plim_estimate *e);

/** plim_estimate_load() - what is missing or of another form is not known; what is no finite number is 0. */
struct plim_estimate plim_estimate_load(const json_t *o, const char *key);

#endif
