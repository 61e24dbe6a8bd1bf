/* SPDX-License-Identifier: Apache-2.0 */
/* From survivors' birth dates to suspects. The thresholds are named and explained here, once. */

#include "diagnose/leak.h"

#include "base/bytes.h"
#include "base/num.h"
#include "heap/totals.h"

#include <stdlib.h>

/* A suspect has at least this many survivors: fewer cannot show a pace. In a short record most of them
 * may be older, when some were born in it and what the site's other blocks lived is far shorter. */
#define MIN_GENERATIONS 12u
#define MIN_BORN        4u
/* In a forward pass or KV cache of which passes.h cannot tell more, survivors up to this number may be
 * the layers of one pass: the deepest published models have about 130 layers, with a few tensors each
 * from one line of code. The same number is asked of a program without stacks. */
#define ONE_PASS 400u
/* Layers that plain code calls in a loop look like passes: so much less sure below ONE_PASS. */
#define LAYERS_DOUBT 0.1
/* Frees of other blocks for each survivor: below this it is loading, not working. Without stacks a
 * conversion with two temporaries must not look like work either. */
#define MIN_CHURN           2.0
#define MIN_CHURN_NO_STACKS 4.0
/* One free for each survivor is work too when there are many and the freed blocks are far larger: a
 * conversion of weights frees at most a few times the bytes that it keeps. */
#define MIN_CHURN_BYTES 32.0
#define MANY_SURVIVORS  100u
/* Where a pass leaves far more blocks than it frees, its own share of a pace cannot be told from
 * loading; but another place in the same loop may leak at the same pace. So far apart may the shares of
 * births be, at any time. */
#define SAME_PACE 0.15
#define SAME_LOOP 0.75 /* confidence in such a site, at most */
/* State that grows beside a working program: so many frees for each survivor, and so much of the live
 * bytes older than it. Loading and the first optimizer step have neither. */
#define STATE_CHURN  10.0
#define STATE_BEFORE 0.2
/* The state of one optimizer is at most six times the weights (fp32 copies and two moments of 16-bit
 * weights): more than this, against all else that lives, and several are kept. */
#define MOST_OPTIMIZER 8.0
/* Bursts of births that show a pace when no pause between them is longer than a quarter of the trace and
 * most of the site's blocks are older; else as many as MIN_GENERATIONS. */
#define MIN_BURSTS 6u
/* Share of bins that must hold a birth, and of births that must fall in the second half. */
#define MIN_BIN_SHARE   0.75
#define MIN_SECOND_HALF 0.30
/* Share of a site's growth that the whole heap must have grown by: else others shrank as much. And of
 * its growth in the second half: a pool at its limit that replaces entries at random has had its growth. */
#define MIN_NET_GROWTH  0.5
#define MIN_LATE_GROWTH 0.25

/* Sites whose passes are looked at, each with a walk over the trace: a bound on time, not on meaning. */
#define MAX_WALKS 64u

struct finder {
    const struct plim_leak_input *in;
    struct plim_leaks *leaks;
    struct plim_map freed_sizes; /* owned: requested size -> older blocks of it not yet matched */
    uint64_t born_by_bin[PLIM_HISTORY_BINS]; /* live bytes born in each bin, all sites */
    uint64_t older;                          /* live bytes from before the trace */
    uint64_t freed_bytes;                    /* in the trace, of blocks born in it */
    uint32_t walks;                          /* sites whose passes were looked at */
};

static enum plim_status zero_sites(struct plim_leaks *leaks, size_t n, struct plim_err *err)
{
    PLIM_TRY(plim_vec_reserve(&leaks->sites, n, err));
    if (n > 0) {
        memset(leaks->sites.items, 0, n * sizeof(leaks->sites.items[0]));
    }
    leaks->sites.n = n;
    return PLIM_OK;
}

static void add_histories(struct finder *f)
{
    const struct plim_history *history = f->in->history;
    for (size_t i = 0; i < history->stacks.n; i++) {
        const struct plim_stack_history *h = &history->stacks.items[i];
        uint32_t site = plim_site_of(f->in->sites, (uint32_t)i);
        struct plim_site_live *live = &f->leaks->sites.items[site];
        f->freed_bytes = plim_add_sat(f->freed_bytes, h->freed_bytes);
        live->allocs += h->allocs;
        live->frees += h->frees;
        live->alloc_bytes = plim_add_sat(live->alloc_bytes, h->alloc_bytes);
        live->max_lifetime =
            h->max_lifetime > live->max_lifetime ? h->max_lifetime : live->max_lifetime;
    }
}

/* A block that takes the place of an older one of the same size, which was freed in the trace. */
static bool replaces(struct finder *f, uint64_t requested)
{
    uint64_t *left = requested == PLIM_MAP_NO_KEY ? NULL : plim_map_get(&f->freed_sizes, requested);
    if (!left || *left == 0) {
        return false;
    }
    --*left;
    return true;
}

static void add_block(struct finder *f, struct plim_site_live *live, const struct plim_block *block)
{
    live->bytes += block->size;
    live->blocks++;
    if (block->alloc_event == PLIM_NO_EVENT) {
        f->older += block->size;
        return;
    }
    if (block->alloc_event >= f->in->position) {
        return;
    }
    uint32_t bin = plim_history_bin(block->alloc_event, f->in->position);
    f->born_by_bin[bin] += block->size;
    live->first_birth = live->born == 0 || block->alloc_event < live->first_birth
                            ? block->alloc_event
                            : live->first_birth;
    live->bins[bin]++;
    live->born++;
    live->replaced += replaces(f, block->requested);
    live->bytes_born += block->size;
    live->bytes_first_bin += bin == 0 ? block->size : 0;
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

/* Longest run of bins without a birth, the end of the trace included, and its beginning when `whole`. */
static uint32_t longest_pause(const struct plim_site_live *live, bool whole)
{
    uint32_t longest = 0, run = 0;
    bool counts = whole;
    for (uint32_t bin = 0; bin < PLIM_HISTORY_BINS; bin++) {
        counts |= live->bins[bin] > 0;
        run = live->bins[bin] > 0 || !counts ? 0 : run + 1;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Born all along: in most bins, or in bursts (a request leaves several blocks) without a long pause. */
static bool spread_out(const struct plim_site_live *live, bool whole)
{
    uint32_t hit = bins_with_births(live);
    uint32_t wanted = (uint32_t)(MIN_BIN_SHARE * PLIM_HISTORY_BINS);
    wanted = live->born * 7 / 10 < wanted ? live->born * 7 / 10 : wanted;
    uint32_t bursts = live->blocks >= 2 * live->born ? MIN_BURSTS : MIN_GENERATIONS;
    return hit >= wanted || (hit >= bursts && longest_pause(live, whole) <= PLIM_HISTORY_BINS / 4);
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

/* Did the whole heap grow, over the trace or its second half, by much of what this site grew by? */
static bool heap_grew(const struct plim_site_live *live, const struct plim_history *history)
{
    const int64_t *floor = history->bin_floor;
    int64_t end = floor[PLIM_HISTORY_BINS - 1] > floor[PLIM_HISTORY_BINS - 2]
                      ? floor[PLIM_HISTORY_BINS - 1]
                      : floor[PLIM_HISTORY_BINS - 2];
    double all = (double)(end - floor[0]), half = (double)(end - floor[PLIM_HISTORY_BINS / 2]);
    return (all >= MIN_NET_GROWTH * (double)live->bytes_born &&
            half >= MIN_LATE_GROWTH * (double)live->bytes_second_half) ||
           half >= MIN_NET_GROWTH * (double)live->bytes_second_half;
}

/* The births alone: enough of them, all along the trace, or from some time on unless `whole`, to its end. */
static bool grows_all_along(const struct plim_site_live *live, uint64_t bytes_born, size_t position,
                            bool whole)
{
    bool older_stay = live->blocks >= 2 * MIN_GENERATIONS && live->max_lifetime < position / 4;
    uint32_t wanted = older_stay ? MIN_BORN : MIN_GENERATIONS;
    return live->born >= wanted && spread_out(live, whole) && still_growing(live) &&
           live->replaced * 2 <= live->born &&
           (double)live->bytes_second_half >= MIN_SECOND_HALF * (double)bytes_born;
}

/* Bytes that were live before this site's first block, as far as they still are. */
static uint64_t bytes_before(const struct finder *f, const struct plim_site_live *live)
{
    uint32_t first = plim_history_bin(live->first_birth, f->in->position);
    uint64_t sum = f->older;
    for (uint32_t bin = 0; bin < first && bin < PLIM_HISTORY_BINS; bin++) {
        sum = plim_add_sat(sum, f->born_by_bin[bin]);
    }
    return sum;
}

static uint64_t frees_of(const struct plim_history *history)
{
    return history->frees + history->unknown_frees;
}

/* Does the program free enough besides to be at work, rather than loading? */
static bool works(const struct finder *f, const struct plim_site_live *live)
{
    double frees = (double)frees_of(f->in->history);
    return frees >= MIN_CHURN * live->born ||
           (live->born >= MANY_SURVIVORS && frees >= 0.9 * live->born &&
            (double)f->freed_bytes >= MIN_CHURN_BYTES * (double)live->bytes_born);
}

/* Weights and optimizer states are kept on purpose, unless they come again and again amid work. */
static bool grows_beside_work(const struct finder *f, const struct plim_site_live *live,
                              enum plim_category category)
{
    uint64_t all = f->older;
    for (uint32_t bin = 0; bin < PLIM_HISTORY_BINS; bin++) {
        all = plim_add_sat(all, f->born_by_bin[bin]);
    }
    bool amid_work = (double)frees_of(f->in->history) >= STATE_CHURN * live->born &&
                     (double)bytes_before(f, live) >= STATE_BEFORE * (double)all;
    uint64_t others = plim_sub_sat(all, live->bytes);
    return amid_work || (category == PLIM_CATEGORY_OPTIMIZER &&
                         (double)live->bytes >= MOST_OPTIMIZER * (double)others);
}

/* How many separate births the live blocks stand for: blocks that come in bursts count as one. */
static uint32_t generations_of(const struct plim_site_live *live)
{
    uint32_t hit = bins_with_births(live);
    bool bursts = (double)hit < MIN_BIN_SHARE * PLIM_HISTORY_BINS && live->born > 2 * hit;
    return bursts ? (uint32_t)((uint64_t)hit * live->blocks / live->born) : live->blocks;
}

static double confidence_of(const struct plim_site_live *live, uint64_t frees, bool outlives)
{
    uint32_t generations = generations_of(live);
    double c = live->born >= MIN_GENERATIONS ? 0.5 : 0.4;
    c += generations >= 100 ? 0.2 : generations >= 40 ? 0.1 : 0;
    c += outlives || live->frees * 10 < live->allocs ? 0.15 : 0;
    c += (double)frees > 5.0 * live->born ? 0.1 : 0;
    return c;
}

/* How sure we may be that the program leaks when nothing tells its places apart. */
static double suspicion_no_stacks(const struct finder *f, const struct plim_site_live *live)
{
    uint64_t grown = live->bytes_born - live->bytes_first_bin;
    bool works = (double)frees_of(f->in->history) >= MIN_CHURN_NO_STACKS * live->born;
    return live->born >= ONE_PASS && works && grows_all_along(live, grown, f->in->position, true) &&
                   heap_grew(live, f->in->history)
               ? 0.65
               : 0;
}

static enum plim_status passes_of(struct finder *f, uint32_t index, enum plim_passes *out,
                                  struct plim_err *err)
{
    *out = PLIM_PASSES_UNCLEAR;
    if (f->walks >= MAX_WALKS) {
        return PLIM_OK;
    }
    f->walks++;
    return plim_passes_of(f->in->snapshot, f->in->trace, f->in->sites->sites.items[index].stack,
                          f->leaks->sites.items[index].first_birth, f->in->position, out, err);
}

/* How sure we may be that this site leaks, from 0 to 1. */
static enum plim_status suspicion(struct finder *f, uint32_t index, double *out,
                                  struct plim_err *err)
{
    const struct plim_leak_input *in = f->in;
    const struct plim_site *site = &in->sites->sites.items[index];
    const struct plim_site_live *live = &f->leaks->sites.items[index];
    bool whole = grows_all_along(live, live->bytes_born, in->position, true);
    *out = 0;
    if (!(whole || (may_be_one_pass(site) &&
                    grows_all_along(live, live->bytes_born, in->position, false))) ||
        !works(f, live) || !heap_grew(live, in->history) ||
        (is_state(site) && !grows_beside_work(f, live, site->category))) {
        return PLIM_OK;
    }
    bool outlives = live->frees > live->born && live->median_age / 4 > live->max_lifetime;
    bool few = false;
    if (may_be_one_pass(site)) {
        enum plim_passes passes;
        PLIM_TRY(passes_of(f, index, &passes, err));
        few = live->blocks < ONE_PASS;
        if (passes == PLIM_PASSES_ONE || (passes != PLIM_PASSES_MANY && !whole) ||
            (passes == PLIM_PASSES_UNCLEAR && few && !outlives)) {
            return PLIM_OK;
        }
    }
    *out = confidence_of(live, frees_of(in->history), outlives) -
           (few && !outlives ? LAYERS_DOUBT : 0);
    return PLIM_OK;
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

static enum plim_status add_suspect(struct finder *f, uint32_t index, double confidence,
                                    struct plim_arena *arena, struct plim_err *err)
{
    const struct plim_site_live *live = &f->leaks->sites.items[index];
    uint64_t allocs = f->in->history->allocs;
    uint64_t kept = index == 0 ? plim_sub_sat(live->bytes, live->bytes_first_bin) : live->bytes;
    struct plim_leak_suspect suspect = {
        .site = index,
        .confidence = confidence,
        .excess = plim_sub_sat(kept, live->bytes_recent),
        .bytes_per_alloc = allocs ? (double)live->bytes_born / (double)allocs : 0,
        .why = reason(live, arena),
    };
    f->leaks->excess += suspect.excess;
    return plim_vec_push(&f->leaks->suspects, err, suspect);
}

static bool is_suspect(const struct plim_leaks *leaks, uint32_t site)
{
    plim_vec_foreach (suspect, &leaks->suspects) {
        if (suspect->site == site) {
            return true;
        }
    }
    return false;
}

/* Whether births of both sites are spread over the trace in the same way. */
static bool same_pace(const struct plim_site_live *a, const struct plim_site_live *b)
{
    double of_a = 0, of_b = 0, most = 0;
    for (uint32_t bin = 0; bin < PLIM_HISTORY_BINS; bin++) {
        of_a += (double)a->bins[bin] / a->born;
        of_b += (double)b->bins[bin] / b->born;
        double apart = of_a > of_b ? of_a - of_b : of_b - of_a;
        most = apart > most ? apart : most;
    }
    return most <= SAME_PACE;
}

/* The most confidence of a suspect that leaks at the pace of this site; 0 when there is none. */
static double beside_a_leak(const struct plim_leaks *leaks, size_t suspects,
                            const struct plim_site_live *live)
{
    double best = 0;
    for (size_t i = 0; i < suspects; i++) {
        const struct plim_leak_suspect *s = &leaks->suspects.items[i];
        if (s->confidence > best && same_pace(&leaks->sites.items[s->site], live)) {
            best = s->confidence;
        }
    }
    return best < SAME_LOOP ? best : SAME_LOOP;
}

/* Activations of passes that free little: suspects when the loop around them leaks elsewhere as well. */
static enum plim_status judge_passes(struct finder *f, struct plim_arena *arena,
                                     struct plim_err *err)
{
    struct plim_leaks *leaks = f->leaks;
    size_t suspects = leaks->suspects.n;
    for (uint32_t i = 1; suspects > 0 && i < leaks->sites.n; i++) {
        const struct plim_site_live *live = &leaks->sites.items[i];
        if (!may_be_one_pass(&f->in->sites->sites.items[i]) || is_suspect(leaks, i) ||
            !grows_all_along(live, live->bytes_born, f->in->position, false) ||
            !heap_grew(live, f->in->history)) {
            continue;
        }
        double confidence = beside_a_leak(leaks, suspects, live);
        enum plim_passes passes = PLIM_PASSES_UNCLEAR;
        if (confidence > 0) {
            PLIM_TRY(passes_of(f, i, &passes, err));
        }
        if (passes == PLIM_PASSES_MANY) {
            PLIM_TRY(add_suspect(f, i, confidence, arena, err));
        }
    }
    return PLIM_OK;
}

static enum plim_status judge_sites(struct finder *f, struct plim_arena *arena,
                                    struct plim_err *err)
{
    struct plim_leaks *leaks = f->leaks;
    for (uint32_t i = 0; i < leaks->sites.n; i++) {
        double confidence = 0;
        if (i > 0) {
            PLIM_TRY(suspicion(f, i, &confidence, err));
        } else if (leaks->sites.n == 1) {
            confidence = suspicion_no_stacks(f, &leaks->sites.items[0]);
        }
        if (confidence > 0) {
            PLIM_TRY(add_suspect(f, i, confidence, arena, err));
        }
    }
    PLIM_TRY(judge_passes(f, arena, err));
    if (leaks->suspects.n > 0) {
        qsort(leaks->suspects.items, leaks->suspects.n, sizeof(leaks->suspects.items[0]),
              most_excess_first);
        leaks->confidence = leaks->suspects.items[0].confidence;
    }
    return PLIM_OK;
}

/* Free bytes of segments in which every live block belongs to a suspect: the leak strands them. */
static uint64_t find_unpinned(const struct finder *f)
{
    const struct plim_heap *heap = f->in->heap;
    uint64_t sum = 0;
    plim_vec_foreach (segment, &heap->segments) {
        struct plim_heap_totals totals = {0};
        bool only = true;
        plim_totals_add_segment(&totals, heap, segment);
        for (uint32_t i = 0; totals.stranded > 0 && only && i < segment->n_blocks; i++) {
            const struct plim_block *block = &heap->blocks.items[segment->first_block + i];
            only = !plim_block_is_live(block) ||
                   is_suspect(f->leaks, plim_site_of(f->in->sites, block->stack));
        }
        sum += only && segment->pool == 0 ? totals.stranded : 0;
    }
    return sum;
}

static enum plim_status copy_sizes(const struct plim_map *from, struct plim_map *to,
                                   struct plim_err *err)
{
    size_t cursor = 0;
    const struct plim_map_slot *slot;
    while ((slot = plim_map_next(from, &cursor))) {
        PLIM_TRY(plim_map_put(to, slot->key, slot->value, err));
    }
    return PLIM_OK;
}

static enum plim_status find(struct finder *f, struct plim_arena *arena, struct plim_err *err)
{
    const struct plim_leak_input *in = f->in;
    PLIM_TRY(zero_sites(f->leaks, in->sites->sites.n, err));
    PLIM_TRY(copy_sizes(&in->history->unknown_sizes, &f->freed_sizes, err));
    add_histories(f);
    plim_vec_foreach (block, &in->heap->blocks) {
        if (plim_block_is_live(block)) {
            add_block(f, &f->leaks->sites.items[plim_site_of(in->sites, block->stack)], block);
        }
    }
    plim_vec_foreach (live, &f->leaks->sites) {
        live->median_age = median_age(live, in->position);
    }
    PLIM_TRY(judge_sites(f, arena, err));
    f->leaks->unpinned = f->leaks->suspects.n > 0 ? find_unpinned(f) : 0;
    return PLIM_OK;
}

enum plim_status plim_leaks_find(const struct plim_leak_input *input, struct plim_arena *arena,
                                 struct plim_leaks *out, struct plim_err *err)
{
    struct plim_leaks leaks = {0};
    struct finder f = {.in = input, .leaks = &leaks};
    enum plim_status st = find(&f, arena, err);
    plim_map_fini(&f.freed_sizes);
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
