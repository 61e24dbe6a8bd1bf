/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_LEAK_H
#define PLIM_DIAGNOSE_LEAK_H

/*
 * Leak evidence, site by site.
 *
 * generation: one surviving allocation of a site whose birth is separated from the next by other work
 * (allocations that were freed again). A site is suspect when its live blocks were born all along the
 * trace up to its end, at a steady pace, while the rest of the program kept freeing, and the whole
 * heap grew with them. Growth that stopped is a cache, not a leak; survivors that take the places of
 * older ones are a bounded cache; survivors that are all recent are a working set; survivors that are
 * all old are state that was loaded. One pass over the layers of a model (passes.h) is not called a
 * leak, nor is the loading of weights and the making of optimizer state.
 * Without any stacks the whole program counts as one site, and more is asked of it.
 * The thresholds and their reasons: docs/design/diagnosis.md.
 */

#include "diagnose/passes.h"
#include "diagnose/site.h"
#include "heap/history.h"

/* A site's live blocks at the moment. */
struct plim_site_live {
    uint64_t bytes;
    uint64_t bytes_born;        /* of blocks born in the trace */
    uint64_t bytes_recent;      /* of blocks born in the last bin */
    uint64_t bytes_second_half; /* of blocks born in the second half of the trace */
    uint64_t bytes_first_bin;   /* of blocks born in the first bin */
    uint64_t alloc_bytes;       /* everything this site allocated in the trace */
    uint32_t blocks;
    uint32_t born;         /* blocks born in the trace */
    uint32_t replaced;     /* of those, with an older one of equal size freed meanwhile */
    uint32_t first_birth;  /* event of the oldest block born in the trace */
    uint32_t allocs;       /* allocations in the trace */
    uint32_t frees;        /* of those, freed again */
    uint32_t max_lifetime; /* longest life of a freed one, in events */
    uint32_t median_age;   /* of the live ones born in the trace, in events */
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
    uint64_t unpinned;                           /* stranded bytes that only suspects pin */
    double confidence;                           /* of the strongest suspect, by bytes */
};

/* What the search looks at. */
struct plim_leak_input {
    const struct plim_snapshot *snapshot;
    const struct plim_trace *trace;
    const struct plim_sites *sites;
    const struct plim_heap *heap;       /* at the judged moment */
    const struct plim_history *history; /* up to `position` */
    size_t position; /* where growth is looked for: the judged moment, or an earlier one */
};

/**
 * plim_leaks_find() - live bytes by site, and the suspects among the sites.
 * Errors: PLIM_E_NOMEM. Cost: O(blocks + stacks + sites), and O(events) for each of the few sites that
 * need a look at their passes.
 */
PLIM_MUST_USE enum plim_status plim_leaks_find(const struct plim_leak_input *input,
                                               struct plim_arena *arena, struct plim_leaks *out,
                                               struct plim_err *err);
void plim_leaks_fini(struct plim_leaks *leaks);

#endif
