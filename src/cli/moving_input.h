/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_MOVING_INPUT_H
#define PLIM_CLI_MOVING_INPUT_H

/* What `replay`, `tune` and `soak` share: from --allocator and --sizes to the options of Plimsoll's allocator. */

#include "alloc/moving.h"
#include "cli/verbs.h"

/**
 * plim_moving_input() - *out: arena-owned, or NULL when the words name PyTorch's allocator alone.
 * @allocator: a word, behind a colon the mode. @sizes: NULL, numbers of bytes, or "@FILE" with them in it.
 * Errors: PLIM_E_USAGE sizes that are none, or with another mode than pool, or pool without; those of files.
 */
PLIM_MUST_USE enum plim_status plim_moving_input(struct plim_cli *cli, const char *allocator,
                                                 const char *sizes,
                                                 const struct plim_moving_options **out,
                                                 struct plim_err *err);

#endif
