/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_SELFCHECK_H
#define PLIM_REPLAY_SELFCHECK_H

/*
 * Does the model do what the recorded allocator did? The trace is replayed under its own settings, with
 * the driver giving the recorded addresses and failing where it failed, and every entry that the model
 * would have written into the trace is compared with the recorded one: kind, address, size. At the end
 * the blocks and segments are compared with those of the snapshot.
 *
 * The comparison stops at the first difference: what comes after it says nothing any more. With a
 * complete history there should be none. When the history begins in the middle, the starting heap is
 * reconstructed, and a difference may come from there: sizes of blocks that were freed before the
 * end are known only up to 1 MiB.
 *
 * Settings may have been changed while the program ran; the snapshot only knows the last ones. When a complete
 * history differs, the changes that programs make are tried at that place, and kept when with them all
 * of the recording is reproduced.
 *
 * Entries that the model does not write are not counted: snapshot, annotate, unknown kinds.
 * Threads: pure. Cost: as a replay, plus the comparison.
 */

#include "replay/replay.h"

/* Settings changed at run time, ahead of an allocation request. */
struct plim_settings_change {
    uint64_t alloc_index;
    const char *conf; /* static */
};

#define PLIM_SETTINGS_CHANGES 8

struct plim_selfcheck {
    uint64_t compared;    /* trace entries that are equal */
    uint64_t total;       /* trace entries that could be compared */
    uint64_t segments;    /* of those, segment_alloc, segment_free, segment_map, segment_unmap */
    uint64_t differences; /* 0 or 1: the first one ends the comparison */
    bool complete;        /* the history begins with an empty heap */
    bool heap_compared;   /* the final heap was reached and compared */
    bool heap_equal;
    uint32_t event; /* of the difference: index in the trace, PLIM_NO_EVENT behind its end */
    uint64_t
        model_addr; /* of the difference: what the model handed out or gave back instead; 0: nothing */
    size_t request; /* of the difference: index into the requests */
    struct plim_settings_change changes[PLIM_SETTINGS_CHANGES]; /* that explain the recording */
    uint32_t n_changes;
    char difference[256]; /* for people: what was recorded and what the model did */
    char heap_difference[256];
};

/**
 * plim_selfcheck() - run it.
 * @capacity: bytes of the device, which size the address reservations of expandable segments; 0: guessed.
 * Errors: PLIM_E_UNSUPPORTED backend:cudaMallocAsync; PLIM_E_NOMEM. A trace that contradicts itself is a
 * difference, not an error.
 */
PLIM_MUST_USE enum plim_status plim_selfcheck(const struct plim_requests *requests,
                                              uint64_t capacity, struct plim_selfcheck *out,
                                              struct plim_err *err);

#endif
