/* SPDX-License-Identifier: Apache-2.0 */
/* See feed.h. */

#include "serving/feed.h"

#include "base/num.h"

void plim_feed_fini(struct plim_feed *feed)
{
    plim_map_fini(&feed->seen);
}

static uint64_t mark_of(const struct plim_feed *feed, plim_piece piece)
{
    return plim_hash_u64(plim_torch_addr(feed->torch, piece) ^ plim_torch_size(feed->torch, piece)
                                                                   << 13);
}

plim_piece plim_feed_get(struct plim_feed *feed, uint64_t bytes)
{
    plim_piece piece = 0;
    if (feed->failed || feed->status != PLIM_OK || bytes == 0) {
        return 0;
    }
    if (feed->torch) {
        feed->status =
            plim_torch_alloc(feed->torch, bytes, feed->stream, feed->pool, &piece, &feed->err);
        if (feed->status != PLIM_OK || piece == PLIM_TORCH_NONE) {
            feed->failed = true;
            feed->failure = *plim_torch_failure(feed->torch);
            struct plim_torch_gauges g = plim_torch_gauges(feed->torch);
            feed->stranded_at_failure =
                plim_sub_sat(g.reserved, plim_add_sat(g.active, g.releasable));
            return 0;
        }
        feed->state += mark_of(feed, piece);
    } else {
        piece = feed->gets + 1;
    }
    if (feed->log) {
        feed->log(feed->ctx, feed->torch ? piece : piece - 1, bytes);
    }
    feed->gets++;
    return piece;
}

/* The first failure of a call that gives no piece sticks. */
static void did(struct plim_feed *feed, enum plim_status st)
{
    feed->status = feed->status != PLIM_OK ? feed->status : st;
}

void plim_feed_put(struct plim_feed *feed, plim_piece *piece)
{
    if (*piece == 0 || feed->status != PLIM_OK) { /* without host memory the model is beyond use */
        *piece = 0;
        return;
    }
    if (feed->torch) {
        feed->state -= mark_of(feed, *piece);
        did(feed, plim_torch_free(feed->torch, *piece, &feed->err));
    }
    if (feed->log) {
        feed->log(feed->ctx, feed->torch ? *piece : *piece - 1, 0);
    }
    *piece = 0;
}

void plim_feed_used_on(struct plim_feed *feed, plim_piece piece, uint16_t stream)
{
    if (feed->torch && piece && feed->status == PLIM_OK) {
        did(feed, plim_torch_record_stream(feed->torch, piece, stream, &feed->err));
    }
}

/* Driver calls that change what the allocator holds. */
static uint64_t changes(const struct plim_feed *feed)
{
    const uint64_t *calls = feed->device->calls;
    return calls[PLIM_DRIVER_MALLOC] + calls[PLIM_DRIVER_FREE] + calls[PLIM_DRIVER_CREATE] +
           calls[PLIM_DRIVER_UNMAP] + calls[PLIM_DRIVER_ADDRESS_RESERVE];
}

static uint64_t key_of(const struct plim_feed *feed, uint64_t step)
{
    return plim_hash_u64(feed->state ^ plim_hash_u64(step)) >> 1; /* never PLIM_MAP_NO_KEY */
}

static bool may_repeat(const struct plim_feed *feed)
{
    return feed->torch && !feed->log && !feed->no_repeat && !feed->failed &&
           feed->status == PLIM_OK && plim_torch_conf(feed->torch)->gc_threshold == 0;
}

bool plim_feed_repeats(struct plim_feed *feed, uint64_t step)
{
    if (!may_repeat(feed)) {
        return false;
    }
    if (changes(feed) != feed->seen_calls) {
        plim_map_fini(&feed->seen);
        feed->seen_calls = changes(feed);
    }
    const uint64_t *gets = plim_map_get(&feed->seen, key_of(feed, step));
    if (gets) {
        feed->gets += *gets;
        feed->skipped += *gets;
    }
    return gets != NULL;
}

#define SEEN_MAX 1000000u /* states remembered at once: 32 MiB */

void plim_feed_ran(struct plim_feed *feed, uint64_t step, uint64_t state_before,
                   uint64_t gets_before)
{
    bool same = may_repeat(feed) && feed->state == state_before &&
                changes(feed) == feed->seen_calls && feed->seen.n < SEEN_MAX;
    if (same) {
        enum plim_status st =
            plim_map_put(&feed->seen, key_of(feed, step), feed->gets - gets_before, &feed->err);
        feed->status = st;
    }
}

void plim_feed_flush(struct plim_feed *feed)
{
    if (feed->torch && feed->status == PLIM_OK) {
        did(feed, plim_torch_empty_cache(feed->torch, PLIM_TORCH_POOL_DEFAULT, &feed->err));
    }
}

void plim_feed_settle(struct plim_feed *feed)
{
    if (feed->torch && feed->status == PLIM_OK) {
        did(feed, plim_torch_poll(feed->torch, &feed->err));
    }
}

void plim_feed_clear(struct plim_feed *feed)
{
    feed->failed = false;
}
