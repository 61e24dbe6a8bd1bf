/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_MOVING_INPUT_H
#define PLIM_CLI_MOVING_INPUT_H

/* What `replay`, `tune` and `soak` share: from --allocator and --sizes to the options of Plimsoll's allocator. */

#include "alloc/moving.h"
#include "cli/verbs.h"
#include "replay/seating.h"

/**
 * plim_moving_input() - *out: arena-owned, or NULL when the words name PyTorch's allocator alone.
 * @allocator: a word, behind a colon the mode. @sizes: NULL, numbers of bytes, or "@FILE" with them in it.
 * Mode pool without sizes has an empty list: the caller finds one.
 * Errors: PLIM_E_USAGE sizes that are none, or with another mode than pool; those of files.
 */
PLIM_MUST_USE enum plim_status plim_moving_input(struct plim_cli *cli, const char *allocator,
                                                 const char *sizes,
                                                 const struct plim_moving_options **out,
                                                 struct plim_err *err);

/** plim_moving_needs_sizes() - whether it is mode pool with an empty list. */
static inline bool plim_moving_needs_sizes(const struct plim_moving_options *moving)
{
    return moving && moving->rounding.mode == PLIM_ENGINE_POOL && moving->rounding.n_sizes == 0;
}

/* Mode plan: what the options point to. */
struct plim_seating_input {
    struct plim_moving_options options;
    struct plim_seating seating;
    struct plim_seating_facts facts; /* of one that was made */
    bool made;                       /* from the requests, not read */
};

/**
 * plim_seating_input() - in mode plan, read the seating or make it from the requests; in others nothing.
 * @moving: of plim_moving_input(); becomes &out->options. @plan: path, or NULL. @write: path, or NULL: where
 * it is written to. @out: undo with plim_seating_input_fini(), also in other modes.
 * Errors: PLIM_E_USAGE a path with another mode, or mode pool with an empty list; those of
 * plim_seating_read() and plim_seating_make().
 */
PLIM_MUST_USE enum plim_status plim_seating_input(const struct plim_requests *requests,
                                                  const char *plan, const char *write,
                                                  const struct plim_moving_options **moving,
                                                  struct plim_seating_input *out,
                                                  struct plim_err *err);
void plim_seating_input_fini(struct plim_seating_input *input);

#endif
