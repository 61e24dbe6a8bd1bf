/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_LEAK_H
#define PLIM_DIAGNOSE_LEAK_H

/*
 * Leak evidence, site by site.
 *
 * generation: one surviving allocation of a site whose birth is separated from the next by other work
 * (allocations that were freed again). A site is suspect when its live blocks were born all along the
 * trace up to its end, at a steady pace, while the rest of the program kept freeing. Growth that
 * stopped is a cache, not a leak; survivors that are all recent are a working set; survivors that are
 * all old are state that was loaded. What looks like one pass over the layers of a model (few
 * generations, in a forward pass or a KV cache) is not called a leak.
 */

#include "diagnose/site.h"
#include "heap/history.h"

/* A site's live blocks at the moment. */
struct plim_site_live {
    uint64_t bytes;
    uint64_t bytes_born;        /* of blocks born in the trace */
    uint64_t bytes_recent;      /* of blocks born in the last bin */
    uint64_t bytes_second_half; /* of blocks born in the second half of the trace */
    uint64_t alloc_bytes;       /* everything this site allocated in the trace */
    uint32_t blocks;
    uint32_t born;                    /* blocks born in the trace */
    uint32_t allocs;                  /* allocations in the trace */
    uint32_t frees;                   /* of those, freed again */
    uint32_t max_lifetime;            /* longest life of a freed one, in events */
    uint32_t median_age;              /* of the live ones born in the trace, in events */
    uint32_t bins[PLIM_HISTORY_BINS]; /* survivors born in each bin */
};

struct plim_leak_suspect {
    uint32_t site;
    double confidence;      /* 0 to 1 */
    uint64_t excess;        /* bytes beyond its steady state */
    double bytes_per_alloc; /* growth for each allocation of the whole program */
    const char *why;        /* arena-owned */
};

struct plim_leaks {
    PLIM_VEC(struct plim_site_live) sites;       /* site -> its live blocks */
    PLIM_VEC(struct plim_leak_suspect) suspects; /* most bytes first */
    uint64_t excess;                             /* of all suspects */
    double confidence;                           /* of the strongest suspect, by bytes */
};

/**
 * plim_leaks_find() - live bytes by site, and the suspects among the sites.
 * @heap: at `position` of the trace; @history: up to the same position.
 * Errors: PLIM_E_NOMEM. Cost: O(blocks + stacks + sites).
 */
PLIM_MUST_USE enum plim_status plim_leaks_find(const struct plim_sites *sites,
                                               const struct plim_heap *heap,
                                               const struct plim_history *history, size_t position,
                                               struct plim_arena *arena, struct plim_leaks *out,
                                               struct plim_err *err);
void plim_leaks_fini(struct plim_leaks *leaks);

#endif
