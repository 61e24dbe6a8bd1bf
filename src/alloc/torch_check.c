/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structure checker: recomputes from the blocks alone everything that the model keeps in sums, sets
 * and links, and compares. Property tests call it after every step.
 */

#include "alloc/torch_int.h"

#include <inttypes.h>

struct sums { /* recomputed from the blocks: [large, small] */
    int64_t stat[PLIM_TORCH_STAT_COUNT][2];
    uint64_t releasable;
    uint64_t reserved;
    uint32_t cached;
    uint32_t unmapped;
    uint32_t used_slots;
};

#define WRONG(err, ...) plim__fail(err, PLIM_E_INTERNAL, __VA_ARGS__)

static enum plim_status links_check(const struct plim_torch *t, uint32_t i, struct plim_err *err)
{
    const struct plim__block *b = &t->blocks[i];
    const struct plim__block *n = &t->blocks[b->next];
    if (b->size == 0 || b->addr % 512 || b->size % 512) {
        return WRONG(err, "block %u has size %" PRIu64 " at %" PRIx64, i, b->size, b->addr);
    }
    if (b->prev && (b->prev >= t->blocks_n || t->blocks[b->prev].next != i)) {
        return WRONG(err, "block %u is not the next of its previous block", i);
    }
    if (!b->next) {
        return PLIM_OK;
    }
    if (b->next >= t->blocks_n || n->prev != i || n->addr != b->addr + b->size) {
        return WRONG(err, "block %u and its next block do not adjoin", i);
    }
    if (n->half != b->half || n->stream != b->stream || n->es != b->es ||
        n->counter != b->counter) {
        return WRONG(err, "block %u and its next block are of different segments", i);
    }
    if (n->state == b->state && (b->state == PLIM__CACHED || b->state == PLIM__UNMAPPED)) {
        return WRONG(err, "idle blocks %u and %u were not merged", i, b->next);
    }
    return PLIM_OK;
}

static enum plim_status expandable_check(const struct plim_torch *t, uint32_t i,
                                         struct plim_err *err)
{
    const struct plim__block *b = &t->blocks[i];
    if (b->es >= t->es.n || t->es.items[b->es].page == 0) {
        return WRONG(err, "block %u belongs to no reservation", i);
    }
    const struct plim__es *es = &t->es.items[b->es];
    if (b->addr < es->addr || b->addr + b->size > es->addr + es->size || es->half != b->half ||
        es->stream != b->stream) {
        return WRONG(err, "block %u is outside its reservation", i);
    }
    if (b->state == PLIM__UNMAPPED && ((b->addr - es->addr) % es->page || b->size % es->page)) {
        return WRONG(err, "unmapped block %u does not lie on pages", i);
    }
    if (b->state == PLIM__UNMAPPED && b->size == es->size) {
        return PLIM_OK; /* a reservation whose first mapping failed */
    }
    return PLIM_OK;
}

static enum plim_status set_check(const struct plim_torch *t, uint32_t i, struct plim_err *err)
{
    const struct plim__block *b = &t->blocks[i];
    const struct plim__half *h = &t->pools[b->half >> 1].half[b->half & 1];
    bool cached = b->state == PLIM__CACHED;
    plim__key key = cached ? plim__free_key(t, b) : b->addr;
    if (b->stream >= h->n) {
        return WRONG(err, "block %u has no set", i);
    }
    const struct plim__freeset *set = cached ? &h->free[b->stream] : &h->unmapped[b->stream];
    if (!plim__freeset_has(set, &t->chunks, key, i)) {
        return WRONG(err, "block %u is not in its %s set", i, cached ? "free" : "unmapped");
    }
    if (b->uses || b->events) {
        return WRONG(err, "idle block %u waits for something", i);
    }
    return PLIM_OK;
}

static enum plim_status block_check(const struct plim_torch *t, uint32_t i, struct sums *sums,
                                    struct plim_err *err)
{
    const struct plim__block *b = &t->blocks[i];
    unsigned small = b->half & 1;
    int64_t(*stat)[2] = sums->stat;
    sums->used_slots++;
    PLIM_TRY(links_check(t, i, err));
    if (b->es) {
        PLIM_TRY(expandable_check(t, i, err));
    } else if (b->state == PLIM__UNMAPPED) {
        return WRONG(err, "block %u of an ordinary segment is unmapped", i);
    }
    if (b->state == PLIM__HELD) {
        return WRONG(err, "block %u is in no state", i);
    }
    if (b->state == PLIM__CACHED || b->state == PLIM__UNMAPPED) {
        PLIM_TRY(set_check(t, i, err));
    }
    sums->unmapped += b->state == PLIM__UNMAPPED ? 1 : 0;
    if (b->state == PLIM__UNMAPPED) {
        return PLIM_OK;
    }
    stat[PLIM_TORCH_STAT_RESERVED_BYTES][small] += (int64_t)b->size;
    stat[PLIM_TORCH_STAT_SEGMENT][small] += !b->es && !b->prev ? 1 : 0;
    if (b->state == PLIM__CACHED) {
        sums->cached++;
        sums->releasable += plim__releasable(t, b);
        bool piece = !b->es && (b->prev || b->next);
        stat[PLIM_TORCH_STAT_INACTIVE_SPLIT][small] += piece ? 1 : 0;
        stat[PLIM_TORCH_STAT_INACTIVE_SPLIT_BYTES][small] += piece ? (int64_t)b->size : 0;
        return PLIM_OK;
    }
    stat[PLIM_TORCH_STAT_ACTIVE][small] += 1;
    stat[PLIM_TORCH_STAT_ACTIVE_BYTES][small] += (int64_t)b->size;
    stat[PLIM_TORCH_STAT_REQUESTED_BYTES][small] += (int64_t)b->requested;
    if (b->state == PLIM__ALLOCATED) {
        stat[PLIM_TORCH_STAT_ALLOCATION][small] += 1;
        stat[PLIM_TORCH_STAT_ALLOCATED_BYTES][small] += (int64_t)b->size;
    } else if (!b->deferred && b->events == 0 && t->captured.n == 0) {
        return WRONG(err, "block %u is pending but waits for nothing", i);
    }
    return PLIM_OK;
}

static enum plim_status sets_check(const struct plim_torch *t, const struct sums *sums,
                                   struct plim_err *err)
{
    uint32_t cached = 0;
    uint32_t unmapped = 0;
    uint64_t releasable = 0;
    for (uint32_t p = 0; p < t->pools_n; p++) {
        for (unsigned s = 0; s < 2; s++) {
            const struct plim__half *h = &t->pools[p].half[s];
            releasable += h->releasable;
            for (uint32_t i = 0; i < h->n; i++) {
                if (!plim__freeset_valid(&h->free[i], &t->chunks) ||
                    !plim__freeset_valid(&h->unmapped[i], &t->chunks)) {
                    return WRONG(err, "a set of pool %u, stream %u is out of order", p, i);
                }
                cached += plim__freeset_count(&h->free[i]);
                unmapped += plim__freeset_count(&h->unmapped[i]);
            }
        }
    }
    if (cached != sums->cached || unmapped != sums->unmapped) {
        return WRONG(err, "the sets hold %u cached and %u unmapped blocks, there are %u and %u",
                     cached, unmapped, sums->cached, sums->unmapped);
    }
    if (releasable != sums->releasable) {
        return WRONG(err, "releasable is %" PRIu64 ", the blocks say %" PRIu64, releasable,
                     sums->releasable);
    }
    return PLIM_OK;
}

static enum plim_status stats_check(const struct plim_torch *t, const struct sums *sums,
                                    struct plim_err *err)
{
    for (unsigned s = 0; s < PLIM_TORCH_STAT_COUNT; s++) {
        int64_t all = 0;
        for (unsigned half = 0; half < 2; half++) {
            const struct plim__cell *c = &t->stat[s][half];
            all += c->current;
            if (c->current != sums->stat[s][half] || c->peak < c->current) {
                return WRONG(err,
                             "%s of half %u is %" PRId64 " (peak %" PRId64 "), blocks say %" PRId64,
                             plim_torch_stat_text((enum plim_torch_stat)s), half, c->current,
                             c->peak, sums->stat[s][half]);
            }
        }
        if (t->stat_peak[s] < all) {
            return WRONG(err, "the peak of %s is below its value",
                         plim_torch_stat_text((enum plim_torch_stat)s));
        }
    }
    int64_t reserved = t->stat[PLIM_TORCH_STAT_RESERVED_BYTES][0].current +
                       t->stat[PLIM_TORCH_STAT_RESERVED_BYTES][1].current;
    if ((uint64_t)reserved != t->held_bytes) {
        return WRONG(err, "reserved %" PRId64 " but %" PRIu64 " held", reserved, t->held_bytes);
    }
    if (t->device->used < t->held_bytes + t->device->config.external) {
        return WRONG(err, "the device has %" PRIu64 " in use, less than held", t->device->used);
    }
    return PLIM_OK;
}

enum plim_status plim_torch_check(const struct plim_torch *t, struct plim_err *err)
{
    struct sums sums = {0};
    uint32_t unused = 0;
    PLIM_TRY(plim__torch_status(t, err));
    for (uint32_t i = 1; i < t->blocks_n; i++) {
        if (t->blocks[i].state != PLIM__UNUSED) {
            PLIM_TRY(block_check(t, i, &sums, err));
        }
    }
    for (uint32_t i = t->blocks_free; i && unused < t->blocks_n; i = t->blocks[i].next) {
        if (t->blocks[i].state != PLIM__UNUSED) {
            return WRONG(err, "block %u is used and on the list of unused slots", i);
        }
        unused++;
    }
    if (unused + sums.used_slots + 1 != t->blocks_n) {
        return WRONG(err, "%u of %u block slots are lost",
                     t->blocks_n - 1 - unused - sums.used_slots, t->blocks_n - 1);
    }
    PLIM_TRY(sets_check(t, &sums, err));
    return stats_check(t, &sums, err);
}
