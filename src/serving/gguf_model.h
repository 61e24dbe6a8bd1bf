/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_GGUF_MODEL_H
#define PLIM_SERVING_GGUF_MODEL_H

#include "format/gguf.h"
#include "serving/geometry.h"

/**
 * plim_geometry_from_gguf() - what the metadata of a GGUF file says about the model.
 * Weights are in the file's own table; the geometry says what a sequence keeps. Names of fields in
 * origins are those of serving/geometry.h, keys those of the file.
 * Errors: PLIM_E_DATA a required key is missing or of the wrong type; PLIM_E_RANGE; PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_geometry_from_gguf(struct plim_arena *arena,
                                                       const struct plim_gguf *file,
                                                       struct plim_geometry *out,
                                                       struct plim_err *err);

#endif
