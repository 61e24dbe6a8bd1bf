/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DEVICE_PROCESS_CACHE_H
#define PLIM_DEVICE_PROCESS_CACHE_H

/*
 * Facts of processes that are asked for again and again.
 *
 * Reading all of them costs 50 µs a process. What does not change is kept; an open /proc/PID/statm
 * tells with one pread what the process has resident, and that it is still the same one: when it has
 * ended, reading fails, whoever has its number by then. Names change by exec: all facts are read anew
 * every PLIM_PROCESS_FRESH times.
 * Threads: one.
 */

#include "base/map.h"
#include "device/sampler.h"

#define PLIM_PROCESS_FRESH 60u
#define PLIM_PROCESS_FILES 400u /* statm files that are kept open; beyond it they are opened anew */

struct plim_process_entry {
    struct plim_process_facts facts;
    int fd; /* of its statm, or -1 */
    unsigned age;
    bool seen;
};

struct plim_process_cache {
    const struct plim_world *world; /* borrowed */
    PLIM_VEC(struct plim_process_entry) entries;
    struct plim_map index; /* pid -> place in `entries` */
    size_t files;
};

/** plim_process_cache_begin()/end() - around a round of questions: who is not asked for in it is
 * forgotten. */
void plim_process_cache_begin(struct plim_process_cache *cache);
void plim_process_cache_end(struct plim_process_cache *cache);

/** plim_process_cache_get() - the facts of a process; without a start when it is gone. *first: it was
 * not asked for before in this round. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_process_cache_get(struct plim_process_cache *cache,
                                                      uint32_t pid, struct plim_process_facts *out,
                                                      bool *first, struct plim_err *err);
void plim_process_cache_fini(struct plim_process_cache *cache);

#endif
