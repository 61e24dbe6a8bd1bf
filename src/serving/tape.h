/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_TAPE_H
#define PLIM_SERVING_TAPE_H

/*
 * A tape plays the tensors of an engine's start on the exact allocator model: what a load or a forward pass
 * leaves, and its peak, are then those of the real allocator, rounding, tails and released segments
 * included.
 *
 *   tensor     one storage on the device, named by a small number; 0 is no tensor
 *   holder     whoever keeps a tensor alive: a variable, an attribute. The last one to let go frees it
 *
 * Engines are Python programs, so what is alive at a peak depends on which variables still hold a tensor.
 * plim_tape_hold() and plim_tape_drop() count holders as Python counts references; a function that mirrors
 * one of the engine's takes its arguments without holding them (the caller does) and gives back a tensor that
 * it holds once.
 *
 * The first request that does not fit is remembered and ends the tape: everything after it does nothing.
 * The same holds for errors of this host (plim_tape_status).
 * Cost: O(log blocks) a request. Threads: one at a time.
 */

#include "alloc/conf.h"
#include "alloc/devmodel.h"
#include "alloc/torch.h"
#include "base/vec.h"

typedef uint32_t plim_tensor; /* 0: none */

struct plim_tape_tensor {
    uint64_t block; /* handle of the allocator model */
    uint32_t holders;
};

struct plim_tape {
    struct plim_devmodel device;
    struct plim_torch *torch;
    struct plim_conf conf;  /* as the environment has it */
    struct plim_conf split; /* the same with max_split_size_mb:20 */
    PLIM_VEC(struct plim_tape_tensor) tensors;
    PLIM_VEC(plim_tensor) unused; /* numbers to give out again */
    const char *step;             /* static: what the engine does now, for messages */
    bool failed;                  /* the device was out of memory */
    const char *failed_step;
    struct plim_torch_failure failure;
    enum plim_status status; /* of the host; PLIM_OK */
};

struct plim_tape_config {
    uint64_t total; /* bytes of the device */
    uint64_t used;  /* by others and by this process outside the allocator */
    struct plim_torch_version version;
    const char *settings; /* of the allocator, as in PYTORCH_ALLOC_CONF; "" for none */
};

/**
 * plim_tape_init() - nothing allocated. Errors: PLIM_E_RANGE used exceeds total; PLIM_E_NOMEM; those of
 * plim_torch_new(). plim_tape_fini() also after an error.
 */
PLIM_MUST_USE enum plim_status
plim_tape_init(struct plim_tape *tape, const struct plim_tape_config *config, struct plim_err *err);
void plim_tape_fini(struct plim_tape *tape);

/** plim_tape_status() - PLIM_OK, or what this host ran into. A failed request is not an error. */
PLIM_MUST_USE enum plim_status plim_tape_status(const struct plim_tape *tape, struct plim_err *err);

/** plim_tape_take() - a new tensor of that many bytes, held once. 0 bytes: none. */
plim_tensor plim_tape_take(struct plim_tape *tape, uint64_t bytes);

/** plim_tape_hold() - one more holder; gives the tensor back for chaining. */
plim_tensor plim_tape_hold(struct plim_tape *tape, plim_tensor tensor);

/** plim_tape_drop() - one holder less; the last one frees. 0 is allowed. */
void plim_tape_drop(struct plim_tape *tape, plim_tensor tensor);

/** plim_tape_touch() - take and drop at once: a temporary that nothing else overlaps. */
void plim_tape_touch(struct plim_tape *tape, uint64_t bytes);

/** plim_tape_limit_split() - blocks of 20 MiB and more are kept whole from here on, or no longer. */
void plim_tape_limit_split(struct plim_tape *tape, bool limit);

/** plim_tape_empty_cache() - torch.cuda.empty_cache(). */
void plim_tape_empty_cache(struct plim_tape *tape);

/** plim_tape_reset_peak() - the peak is what is allocated now. */
void plim_tape_reset_peak(struct plim_tape *tape);

uint64_t plim_tape_allocated(const struct plim_tape *tape); /* bytes of blocks handed out */
uint64_t plim_tape_peak(const struct plim_tape *tape);      /* most of these since the reset */
uint64_t plim_tape_reserved(const struct plim_tape *tape);  /* in segments */
uint64_t plim_tape_free(const struct plim_tape *tape);      /* of the device */

#endif
