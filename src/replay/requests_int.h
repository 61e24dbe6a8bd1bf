/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_REQUESTS_INT_H
#define PLIM_REPLAY_REQUESTS_INT_H

/* Inside the builder of requests: what requests.c and requests_burst.c share. */

#include "base/map.h"
#include "base/num.h"
#include "replay/requests.h"

struct plim__builder {
    struct plim_requests *q;        /* being built */
    const struct plim_trace *trace; /* borrowed */
    struct plim_map live;           /* block address -> slot, and PLIM__PENDING_BIT */
    struct plim_map lanes;          /* stream and pool -> lane */
    PLIM_VEC(uint32_t) free_slots;
    PLIM_VEC(uint32_t) born;   /* slot -> its ALLOC in q->items, PLIM_NO_ID before recording */
    uint64_t reserved;         /* by the recording's allocator at this point, bytes */
    uint64_t limit;            /* bytes that the allocator could have for certain */
    uint64_t cap;              /* memory cap in bytes; UINT64_MAX: none known */
    uint64_t gc_limit;         /* garbage collection begins above it; 0: may begin at once */
    bool completions_recorded; /* the trace has free_completed entries */
    bool rounds_up;            /* roundup_power2_divisions was set */
    size_t last_alloc;         /* index of the last allocation in the trace */
};

#define PLIM__PENDING_BIT (UINT64_C(1) << 32)

/* Append a request of that kind; size and slot as in struct plim_request. */
PLIM_MUST_USE enum plim_status plim__request_push(struct plim__builder *b,
                                                  enum plim_request_kind kind, uint64_t size,
                                                  uint32_t slot, uint32_t lane,
                                                  struct plim_err *err);

/* The lane of a stream and a pool (PLIM_NO_POOL counts as the default pool). */
PLIM_MUST_USE enum plim_status plim__request_lane(struct plim__builder *b, uint16_t stream,
                                                  uint16_t pool, uint32_t *lane,
                                                  struct plim_err *err);

/*
 * A run of releases starts at events[at]: decide whose they were, add the requests they stand for, and
 * say where the run ends.
 */
PLIM_MUST_USE enum plim_status plim__request_burst(struct plim__builder *b, size_t at, size_t *end,
                                                   struct plim_err *err);

#endif
