/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native stacks of callers.
 *
 * Frames are found by the unwinder of the compiler's support library, which works without frame
 * pointers and costs microseconds. A table knows stacks that were met, by the hash of their frames; and,
 * when stacks are cached, by site and stack depth too: calls from one place at one depth then share the
 * frames of the first of them, which is right unless two different callers reach it at the same depth.
 */

#include "record.h"

#include <sched.h>
#include <string.h>
#include <unwind.h>

#define ENTRIES    8192u /* a power of two */
#define PROBES     8u
#define MAX_FRAMES 48u
#define ID_BITS    20 /* low bits of an entry; the rest are those of the hash */
#define ID_MASK    (((uint64_t)1 << ID_BITS) - 1)

static uint64_t
    entries[ENTRIES]; /* hash with its low bits replaced by the stack's number; (atomic) */
static uint32_t lock; /* for adding to the file */

static uint64_t mix(uint64_t h, uint64_t value)
{
    h = (h ^ value) * 0xd6e8feb86659fd93u;
    return h ^ (h >> 29);
}

static uint32_t look_up(uint64_t h)
{
    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t seen =
            __atomic_load_n(&entries[((h >> ID_BITS) + i) & (ENTRIES - 1)], __ATOMIC_RELAXED);
        if (seen >> ID_BITS == h >> ID_BITS && seen != 0) {
            return (uint32_t)(seen & ID_MASK);
        }
    }
    return 0;
}

static void enter(uint64_t h, uint32_t id)
{
    uint64_t entry = (h & ~ID_MASK) | id;
    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t *slot = &entries[((h >> ID_BITS) + i) & (ENTRIES - 1)], none = 0;
        if (__atomic_compare_exchange_n(slot, &none, entry, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            return;
        }
    }
    __atomic_store_n(&entries[(h >> ID_BITS) & (ENTRIES - 1)], entry, __ATOMIC_RELAXED);
}

struct walk {
    uint64_t frames[MAX_FRAMES];
    uint32_t n;
    uintptr_t site;
    bool found; /* the site: what is above it is ours */
};

static _Unwind_Reason_Code each_frame(struct _Unwind_Context *context, void *arg)
{
    struct walk *walk = arg;
    uintptr_t ip = (uintptr_t)_Unwind_GetIP(context);
    walk->found = walk->found || ip == walk->site;
    if (walk->found) {
        walk->frames[walk->n++] = ip;
    }
    return walk->n == MAX_FRAMES || ip == 0 ? _URC_END_OF_STACK : _URC_NO_REASON;
}

static uint32_t walk_stack(uintptr_t site)
{
    struct walk walk = {.site = site};
    (void)_Unwind_Backtrace(each_frame, &walk);
    if (walk.n == 0) {
        walk.frames[walk.n++] = site; /* no unwind tables on the way: the site alone */
    }
    uint64_t h = mix(1, walk.n);
    for (uint32_t i = 0; i < walk.n; i++) {
        h = mix(h, walk.frames[i]);
    }
    uint32_t id = look_up(h);
    if (id != 0) {
        return id;
    }
    while (__atomic_exchange_n(&lock, 1u, __ATOMIC_ACQUIRE) != 0) {
        (void)sched_yield();
    }
    id = plim__shm_add_stack(&plim__rec.shm, walk.frames, walk.n);
    __atomic_store_n(&lock, 0u, __ATOMIC_RELEASE);
    if (id == 0 || id > ID_MASK) {
        PLIM__COUNT(stacks_lost);
        return 0;
    }
    enter(h, id);
    return id;
}

uint32_t plim__stack(const struct plim__call *call)
{
    if (plim__rec.stacks == PLIM__STACKS_FULL) {
        return walk_stack(call->site);
    }
    uint64_t h = mix(mix(2, call->site), call->frame);
    uint32_t id = look_up(h);
    if (id == 0) {
        id = walk_stack(call->site);
        if (id != 0) {
            enter(h, id);
        }
    }
    return id;
}

void plim__stacks_reset(void)
{
    memset(entries, 0, sizeof entries);
    lock = 0;
}
