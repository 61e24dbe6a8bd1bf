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

#define GRAPH_POOL 1 /* number of the private pool on Plimsoll's allocator */

static void note_failure(struct plim_feed *feed, const struct plim_torch_failure *failure)
{
    struct plim_torch_gauges g = plim_feed_gauges(feed);
    feed->failed = true;
    feed->failure = *failure;
    feed->stranded_at_failure = plim_sub_sat(g.reserved, plim_add_sat(g.active, g.releasable));
}

static plim_piece get_moving(struct plim_feed *feed, uint64_t bytes)
{
    uint64_t addr = 0;
    feed->status =
        plim_moving_alloc(feed->moving, bytes, feed->stream, feed->pool, &addr, &feed->err);
    if (addr == 0) {
        struct plim_torch_failure failure = {
            .requested = bytes,
            .device_free = plim_devmodel_free_bytes(feed->device),
            .reserved = plim_feed_gauges(feed).reserved,
        };
        note_failure(feed, &failure);
    }
    return addr;
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
            note_failure(feed, plim_torch_failure(feed->torch));
            return 0;
        }
        feed->state += mark_of(feed, piece);
    } else if (feed->moving) {
        piece = get_moving(feed, bytes);
        if (piece == 0) {
            return 0;
        }
    } else {
        piece = feed->gets + 1;
    }
    if (feed->log) {
        feed->log(feed->ctx, feed->torch || feed->moving ? piece : piece - 1, bytes);
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
    } else if (feed->moving) {
        did(feed, plim_moving_free(feed->moving, *piece, &feed->err));
    }
    if (feed->log) {
        feed->log(feed->ctx, feed->torch || feed->moving ? *piece : *piece - 1, 0);
    }
    *piece = 0;
}

void plim_feed_used_on(struct plim_feed *feed, plim_piece piece, uint16_t stream)
{
    if (feed->torch && piece && feed->status == PLIM_OK) {
        did(feed, plim_torch_record_stream(feed->torch, piece, stream, &feed->err));
    } else if (feed->moving && piece && feed->status == PLIM_OK) {
        did(feed, plim_moving_record_stream(feed->moving, piece, stream, &feed->err));
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
    } else if (feed->moving) {
        plim_engine_trim(feed->moving->engine);
    }
}

void plim_feed_settle(struct plim_feed *feed)
{
    if (feed->torch && feed->status == PLIM_OK) {
        did(feed, plim_torch_poll(feed->torch, &feed->err));
    }
}

enum plim_status plim_feed_stream(struct plim_feed *feed, uint16_t *stream, struct plim_err *err)
{
    if (feed->torch) {
        return plim_torch_stream(feed->torch, 1, plim_torch_stream_hash(0, 1), stream, err);
    }
    *stream = 1;
    return PLIM_OK;
}

enum plim_status plim_feed_capture(struct plim_feed *feed, bool begin, struct plim_err *err)
{
    if (feed->torch && begin) {
        PLIM_TRY(
            plim_torch_pool_retain(feed->torch, (struct plim_pool_id){0, 1}, 0, &feed->pool, err));
    } else {
        feed->pool = begin ? GRAPH_POOL : PLIM_TORCH_POOL_DEFAULT;
    }
    if (feed->torch) {
        plim_torch_capture(feed->torch, 0, begin);
    } else if (feed->moving) {
        feed->moving->flags = begin ? PLIM_ENGINE_CAPTURING : 0;
    }
    return PLIM_OK;
}

struct plim_torch_gauges plim_feed_gauges(const struct plim_feed *feed)
{
    if (feed->torch) {
        return plim_torch_gauges(feed->torch);
    }
    struct plim_engine_stats s = {0};
    if (feed->moving) {
        plim_engine_stats(feed->moving->engine, &s);
    }
    return (struct plim_torch_gauges){
        .allocated = s.live,
        .active = s.live,
        .requested = s.requested,
        .reserved = s.reserved,
        .releasable = s.releasable,
    };
}

struct plim_feed_books plim_feed_books(const struct plim_feed *feed)
{
    struct plim_torch_gauges g = plim_feed_gauges(feed);
    struct plim_feed_books b = {
        .active = g.active,
        .reserved = g.reserved,
        .releasable = g.releasable,
    };
    if (feed->torch) {
        struct plim_torch_stats s;
        plim_torch_stats(feed->torch, &s);
        b.peak_allocated = (uint64_t)s.stat[PLIM_TORCH_STAT_ALLOCATED_BYTES][PLIM_TORCH_ALL].peak;
        b.peak_active = (uint64_t)s.stat[PLIM_TORCH_STAT_ACTIVE_BYTES][PLIM_TORCH_ALL].peak;
        b.peak_reserved = (uint64_t)s.stat[PLIM_TORCH_STAT_RESERVED_BYTES][PLIM_TORCH_ALL].peak;
        b.retries = s.num_alloc_retries;
        b.ooms = s.num_ooms;
        b.device_allocs = s.num_device_alloc;
        b.device_frees = s.num_device_free;
    } else if (feed->moving) {
        struct plim_engine_stats s;
        plim_engine_stats(feed->moving->engine, &s);
        b.peak_allocated = s.peak_live;
        b.peak_active = s.peak_live;
        b.peak_reserved = s.peak_reserved;
        b.ooms = s.failures;
        b.device_allocs = s.created;
        b.device_frees = s.released;
    }
    return b;
}

void plim_feed_clear(struct plim_feed *feed)
{
    feed->failed = false;
}
