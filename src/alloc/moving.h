/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_MOVING_H
#define PLIM_ALLOC_MOVING_H

/*
 * Plimsoll's own allocator on the device model: the engine of libplimsoll_alloc.so itself
 * (include/plimsoll/engine.h), so that what a replay says is what the plug-in would do.
 *
 * Exact in placement, pages and driver calls, for the same requests and the same moments at which events
 * complete; in the device model they complete when asked. Threads: one at a time.
 * Cost: as the engine, about 50 ns a request; address space of some sizes of the device.
 */

#include "alloc/devmodel.h"

#include <plimsoll/engine.h>

/* What PLIMSOLL_ALLOC_* say to the plug-in. */
struct plim_moving_options {
    struct plim_engine_rounding rounding; /* the mode, and the sizes of POOL */
    const struct plim_seating *plan;      /* borrowed, of PLAN; NULL: none */
};

struct plim_moving {
    struct plim_engine *engine;
    struct plim_devmodel *device; /* borrowed */
    enum plim_status status;      /* first error of the device model; the model is then of no use */
    unsigned flags;               /* for the engine: PLIM_ENGINE_CAPTURING */
};

/** plim_moving_init() - nothing reserved. @options: copied; NULL: mode stitch.
 * Errors: PLIM_E_NOMEM. The model must not move in memory until fini. */
PLIM_MUST_USE enum plim_status plim_moving_init(struct plim_moving *m, struct plim_devmodel *device,
                                                const struct plim_moving_options *options,
                                                struct plim_err *err);
void plim_moving_fini(struct plim_moving *m);

/** plim_moving_alloc() - *addr = 0 when out of memory. @size: above 0. @pool: 0 or a private pool's
 * number. Errors: PLIM_E_NOMEM of the host. */
PLIM_MUST_USE enum plim_status plim_moving_alloc(struct plim_moving *m, uint64_t size,
                                                 uint64_t stream, uint64_t pool, uint64_t *addr,
                                                 struct plim_err *err);

/** plim_moving_free() - Errors: PLIM_E_NOTFOUND no live block starts there. */
PLIM_MUST_USE enum plim_status plim_moving_free(struct plim_moving *m, uint64_t addr,
                                                struct plim_err *err);

/** plim_moving_record_stream() - the block is used on that stream too. Errors: PLIM_E_NOTFOUND as
 * above; PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_moving_record_stream(struct plim_moving *m, uint64_t addr,
                                                         uint64_t stream, struct plim_err *err);

#endif
