/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_STACKS_H
#define PLIM_HEAP_STACKS_H

/*
 * Frames and stacks, each stored once.
 *
 * frame: function name, file name, line. stack: a run of frames, innermost first, as PyTorch writes
 * them. Equal frames have equal ids, equal stacks have equal ids, so that "same stack" is an integer
 * comparison; real captures repeat a stack over a hundred times. The empty stack has id 0.
 * Strings belong to the snapshot's interner. Threads: one writer or many readers.
 */

#include "base/intern.h"

struct plim_frame {
    uint32_t name; /* interned, or PLIM_NO_ID */
    uint32_t file; /* interned, or PLIM_NO_ID */
    uint32_t line; /* 0 when unknown */
};

struct plim_stack {
    uint32_t first; /* index of its innermost frame in frame_ids */
    uint32_t n;     /* number of frames */
};

struct plim_stacks {
    PLIM_VEC(struct plim_frame) frames; /* frame id -> frame */
    PLIM_VEC(uint32_t) frame_ids;       /* the runs of all stacks, one behind the other */
    PLIM_VEC(struct plim_stack) stacks; /* stack id -> run */
    struct plim_map frame_index;        /* hash -> frame id, chained by rehashing */
    struct plim_map stack_index;        /* hash -> stack id, chained by rehashing */
};

#define PLIM_NO_STACK    UINT32_MAX /* no stack was recorded (differs from a recorded empty one) */
#define PLIM_STACK_EMPTY 0u

/** plim_stacks_init() - holds the empty stack. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_stacks_init(struct plim_stacks *stacks, struct plim_err *err);
void plim_stacks_fini(struct plim_stacks *stacks);

/** plim_stacks_frame() - id of a frame, added when new. */
PLIM_MUST_USE enum plim_status plim_stacks_frame(struct plim_stacks *stacks,
                                                 struct plim_frame frame, uint32_t *id,
                                                 struct plim_err *err);

/** plim_stacks_stack() - id of the run [n] of frame ids, innermost first, added when new. */
PLIM_MUST_USE enum plim_status plim_stacks_stack(struct plim_stacks *stacks,
                                                 const uint32_t *frame_ids, size_t n, uint32_t *id,
                                                 struct plim_err *err);

/** plim_stacks_frames() - the frames ids of a stack; *n = 0 for PLIM_NO_STACK or an unknown id. */
const uint32_t *plim_stacks_frames(const struct plim_stacks *stacks, uint32_t stack, size_t *n);

#endif
