/* SPDX-License-Identifier: Apache-2.0 */
/* From survivors' birth dates to suspects. The thresholds are named and explained here, once. */

#include "diagnose/leak.h"

#include "base/bytes.h"
#include "base/num.h"
#include "heap/totals.h"

#include <stdlib.h>

/* A suspect has at least this many survivors: fewer cannot show a pace. */
#define MIN_GENERATIONS 12u
/* In a forward pass or KV cache, survivors up to this number may be the layers of one pass: the deepest
 * published models have about 130 layers, with a few tensors each from one line of code. */
#define ONE_PASS 400u
/* Frees of other blocks between two survivors' births: below this it is loading, not working. */
#define MIN_CHURN 2.0
/* Share of bins that must hold a birth, and of births that must fall in the second half. */
#define MIN_BIN_SHARE   0.75
#define MIN_SECOND_HALF 0.30

static enum plim_status zero_sites(struct plim_leaks *leaks, size_t n, struct plim_err *err)
{
    PLIM_TRY(plim_vec_reserve(&leaks->sites, n, err));
    if (n > 0) {
        memset(leaks->sites.items, 0, n * sizeof(leaks->sites.items[0]));
    }
    leaks->sites.n = n;
    return PLIM_OK;
}

static void add_histories(const struct plim_sites *sites, const struct plim_history *history,
                          struct plim_leaks *leaks)
{
    for (size_t i = 0; i < history->stacks.n; i++) {
        const struct plim_stack_history *h = &history->stacks.items[i];
        struct plim_site_live *live = &leaks->sites.items[plim_site_of(sites, (uint32_t)i)];
        live->allocs += h->allocs;
        live->frees += h->frees;
        live->alloc_bytes = plim_add_sat(live->alloc_bytes, h->alloc_bytes);
        live->max_lifetime =
            h->max_lifetime > live->max_lifetime ? h->max_lifetime : live->max_lifetime;
    }
}

static void add_block(struct plim_site_live *live, const struct plim_block *block, size_t position)
{
    live->bytes += block->size;
    live->blocks++;
    if (block->alloc_event == PLIM_NO_EVENT) {
        return;
    }
    uint32_t bin = plim_history_bin(block->alloc_event, position);
    bin = bin < PLIM_HISTORY_BINS ? bin : PLIM_HISTORY_BINS - 1;
    live->bins[bin]++;
    live->born++;
    live->bytes_born += block->size;
    live->bytes_recent += bin == PLIM_HISTORY_BINS - 1 ? block->size : 0;
    live->bytes_second_half += bin >= PLIM_HISTORY_BINS / 2 ? block->size : 0;
}

/* Median age from the bins: exact enough to compare with lifetimes. */
static uint32_t median_age(const struct plim_site_live *live, size_t position)
{
    uint32_t younger = 0;
    for (uint32_t bin = PLIM_HISTORY_BINS; bin-- > 0;) {
        younger += live->bins[bin];
        if (younger * 2 >= live->born) {
            return (uint32_t)(position - (size_t)bin * position / PLIM_HISTORY_BINS);
        }
    }
    return 0;
}

static uint32_t bins_with_births(const struct plim_site_live *live)
{
    uint32_t n = 0;
    for (uint32_t bin = 0; bin < PLIM_HISTORY_BINS; bin++) {
        n += live->bins[bin] > 0;
    }
    return n;
}

/* Births in the last eighth of the trace, against what a steady pace would give there. */
static bool still_growing(const struct plim_site_live *live)
{
    uint32_t recent = 0;
    for (uint32_t bin = PLIM_HISTORY_BINS * 7 / 8; bin < PLIM_HISTORY_BINS; bin++) {
        recent += live->bins[bin];
    }
    return recent * 16 >= live->born; /* at least half the pace */
}

static bool may_be_one_pass(const struct plim_site *site)
{
    return site->category == PLIM_CATEGORY_KV_CACHE ||
           site->category == PLIM_CATEGORY_ACTIVATIONS || site->category == PLIM_CATEGORY_GRADIENTS;
}

static bool is_state(const struct plim_site *site)
{
    return site->category == PLIM_CATEGORY_WEIGHTS || site->category == PLIM_CATEGORY_OPTIMIZER;
}

/* How sure we may be that this site leaks, from 0 to 1. */
static double suspicion(const struct plim_site *site, const struct plim_site_live *live,
                        const struct plim_history *history)
{
    uint32_t generations = live->blocks;
    uint32_t wanted_bins = (uint32_t)(MIN_BIN_SHARE * PLIM_HISTORY_BINS);
    if (live->born * 7 / 10 < wanted_bins) {
        wanted_bins = live->born * 7 / 10;
    }
    if (live->born < MIN_GENERATIONS || bins_with_births(live) < wanted_bins ||
        !still_growing(live) || is_state(site) ||
        (double)live->bytes_second_half < MIN_SECOND_HALF * (double)live->bytes_born) {
        return 0;
    }
    uint64_t others_freed = history->frees + history->unknown_frees;
    if ((double)others_freed < MIN_CHURN * live->born) {
        return 0;
    }
    bool outlives = live->frees > live->born && live->median_age / 4 > live->max_lifetime;
    if (may_be_one_pass(site) && generations < ONE_PASS && !outlives) {
        return 0;
    }
    double c = 0.5;
    c += generations >= 100 ? 0.2 : generations >= 40 ? 0.1 : 0;
    c += outlives || live->frees * 10 < live->allocs ? 0.15 : 0;
    c += (double)others_freed > 5.0 * live->born ? 0.1 : 0;
    return c;
}

static const char *reason(const struct plim_site_live *live, struct plim_arena *arena)
{
    char bytes[PLIM_BYTES_TEXT];
    return plim_arena_sayf(arena,
                           "%u live blocks (%s) from one place; %u of %u allocations in the trace "
                           "were never freed, born in "
                           "%u of %u equal parts of it",
                           live->blocks, plim_bytes_format(bytes, live->bytes),
                           live->allocs - live->frees, live->allocs, bins_with_births(live),
                           PLIM_HISTORY_BINS);
}

static int most_excess_first(const void *a, const void *b)
{
    const struct plim_leak_suspect *x = a, *y = b;
    return (x->excess < y->excess) - (x->excess > y->excess);
}

static enum plim_status judge_sites(const struct plim_sites *sites,
                                    const struct plim_history *history, struct plim_arena *arena,
                                    struct plim_leaks *leaks, struct plim_err *err)
{
    for (uint32_t i = 1; i < leaks->sites.n; i++) {
        const struct plim_site_live *live = &leaks->sites.items[i];
        double confidence = suspicion(&sites->sites.items[i], live, history);
        if (confidence <= 0) {
            continue;
        }
        struct plim_leak_suspect suspect = {
            .site = i,
            .confidence = confidence,
            .excess = plim_sub_sat(live->bytes, live->bytes_recent),
            .bytes_per_alloc =
                history->allocs ? (double)live->bytes_born / (double)history->allocs : 0,
            .why = reason(live, arena),
        };
        PLIM_TRY(plim_vec_push(&leaks->suspects, err, suspect));
        leaks->excess += suspect.excess;
    }
    if (leaks->suspects.n > 0) {
        qsort(leaks->suspects.items, leaks->suspects.n, sizeof(leaks->suspects.items[0]),
              most_excess_first);
        leaks->confidence = leaks->suspects.items[0].confidence;
    }
    return PLIM_OK;
}

enum plim_status plim_leaks_find(const struct plim_sites *sites, const struct plim_heap *heap,
                                 const struct plim_history *history, size_t position,
                                 struct plim_arena *arena, struct plim_leaks *out,
                                 struct plim_err *err)
{
    struct plim_leaks leaks = {0};
    enum plim_status st = zero_sites(&leaks, sites->sites.n, err);
    if (st == PLIM_OK) {
        add_histories(sites, history, &leaks);
        plim_vec_foreach (block, &heap->blocks) {
            if (plim_block_is_live(block)) {
                add_block(&leaks.sites.items[plim_site_of(sites, block->stack)], block, position);
            }
        }
        plim_vec_foreach (live, &leaks.sites) {
            live->median_age = median_age(live, position);
        }
        st = judge_sites(sites, history, arena, &leaks, err);
    }
    if (st != PLIM_OK) {
        plim_leaks_fini(&leaks);
        return st;
    }
    *out = leaks;
    return PLIM_OK;
}

void plim_leaks_fini(struct plim_leaks *leaks)
{
    plim_vec_fini(&leaks->sites);
    plim_vec_fini(&leaks->suspects);
}
