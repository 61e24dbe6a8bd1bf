/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_VLLM_SETTINGS_H
#define PLIM_SERVING_VLLM_SETTINGS_H

/* Internal: flags to settings. See vllm.h. */

#include "serving/vllm_run.h"

/**
 * plim__vllm_settings() - fill in every default.
 * Errors: PLIM_E_USAGE a value out of its range (where = the flag); PLIM_E_RANGE; PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status
plim__vllm_settings(struct plim_arena *arena, const struct plim_geometry *g,
                    const struct plim_card *card, const struct plim_vllm_flags *flags,
                    struct plim_vllm_settings *set, struct plim_err *err);

#endif
