/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_LIVES_H
#define PLIM_HEAP_LIVES_H

/*
 * Lives: from which position to which a block or a segment existed, over a whole trace.
 *
 * position: a number of events, as in moment.h. A life is [start, end): it exists at position p when
 * start <= p < end. What was there before the trace has start 0; what is there at its end has end
 * PLIM_LIFE_OPEN. freed: from this position on the block waits for another stream.
 * Lives that begin with an event are kept as one link for each event, because a trace has millions.
 * Threads: pure; many readers afterwards.
 */

#include "heap/snapshot.h"

#define PLIM_LIFE_OPEN UINT32_MAX

struct plim_life {
    uint64_t addr;
    uint64_t size; /* bytes: of the block as the heap at the end knows it, else rounded to 512 */
    uint64_t requested; /* bytes asked for; of a segment: its size */
    uint32_t start;
    uint32_t freed; /* PLIM_LIFE_OPEN when never */
    uint32_t end;
    uint32_t stack;
    uint16_t stream;
    uint16_t pool;
    bool small;      /* of a segment */
    bool expandable; /* of a segment */
};

struct plim_lives {
    const struct plim_trace *trace; /* borrowed */
    /* [events]: for an allocation the position at which its block is gone; for the event that ended
     * a block the position of its request to be freed; 0 when there is none. */
    uint32_t *link;
    uint64_t allocations;  /* in the trace */
    struct plim_map sizes; /* event of an allocation that is never freed -> block size */
    PLIM_VEC(struct plim_life) before; /* blocks from before the trace */
    PLIM_VEC(struct plim_life) segments;
};

/** plim_lives_read() - Errors: PLIM_E_NOMEM; PLIM_E_RANGE for 2^32 - 1 events and more.
 * Cost: O(events) with one hash operation each; 4 bytes an event. */
PLIM_MUST_USE enum plim_status plim_lives_read(const struct plim_device *device,
                                               struct plim_lives *out, struct plim_err *err);
void plim_lives_fini(struct plim_lives *lives);

/** plim_lives_span() - start, end and requested bytes of that life, the rest 0: only reads the event. */
static inline struct plim_life plim_lives_span(const struct plim_lives *lives, uint32_t event)
{
    return (struct plim_life){.start = event + 1,
                              .end = lives->link[event] ? lives->link[event] : PLIM_LIFE_OPEN,
                              .requested = lives->trace->events.items[event].size};
}

/** plim_lives_of_event() - the life that allocation event `event` began. */
struct plim_life plim_lives_of_event(const struct plim_lives *lives, uint32_t event);

static inline bool plim_life_at(const struct plim_life *life, size_t position)
{
    return life->start <= position && position < life->end;
}

#endif
