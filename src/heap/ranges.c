/* SPDX-License-Identifier: Apache-2.0 */
/* Sorted chunks of ranges; see ranges.h. */

#include "heap/ranges.h"

#include <string.h>

void plim_ranges_fini(struct plim_ranges *ranges)
{
    plim_vec_foreach (chunk, &ranges->chunks) {
        free(*chunk);
    }
    plim_vec_fini(&ranges->chunks);
    ranges->n = 0;
}

/* Index of the last chunk that starts at or before addr; 0 when none does. There is at least one. */
static size_t chunk_of(const struct plim_ranges *ranges, uint64_t addr)
{
    size_t low = 0, high = ranges->chunks.n;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (ranges->chunks.items[mid]->items[0].addr <= addr) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

/* Number of ranges of the chunk that start at or before addr. */
static uint32_t rank_in(const struct plim_ranges_chunk *chunk, uint64_t addr)
{
    uint32_t low = 0, high = chunk->n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (chunk->items[mid].addr <= addr) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static enum plim_status insert_chunk(struct plim_ranges *ranges, size_t at,
                                     struct plim_ranges_chunk **out, struct plim_err *err)
{
    // NOLINTNEXTLINE(bugprone-sizeof-expression): pointers are what is kept
    PLIM_TRY(plim_vec_reserve(&ranges->chunks, 1, err));
    struct plim_ranges_chunk *chunk = malloc(sizeof(*chunk));
    if (!chunk) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu ranges", ranges->n);
    }
    chunk->n = 0;
    struct plim_ranges_chunk **items = ranges->chunks.items;
    memmove(&items[at + 1], &items[at], (ranges->chunks.n - at) * sizeof(void *));
    items[at] = chunk;
    ranges->chunks.n++;
    *out = chunk;
    return PLIM_OK;
}

static enum plim_status split_chunk(struct plim_ranges *ranges, size_t at, struct plim_err *err)
{
    struct plim_ranges_chunk *upper;
    PLIM_TRY(insert_chunk(ranges, at + 1, &upper, err));
    struct plim_ranges_chunk *lower = ranges->chunks.items[at];
    uint32_t half = lower->n / 2;
    upper->n = lower->n - half;
    memcpy(upper->items, &lower->items[half], upper->n * sizeof(upper->items[0]));
    lower->n = half;
    return PLIM_OK;
}

enum plim_status plim_ranges_put(struct plim_ranges *ranges, struct plim_addr_range range,
                                 struct plim_err *err)
{
    struct plim_ranges_chunk *chunk;
    if (ranges->chunks.n == 0) {
        PLIM_TRY(insert_chunk(ranges, 0, &chunk, err));
        chunk->items[0] = range;
        chunk->n = 1;
        ranges->n = 1;
        return PLIM_OK;
    }
    size_t at = chunk_of(ranges, range.addr);
    if (ranges->chunks.items[at]->n == PLIM_RANGES_CHUNK) {
        PLIM_TRY(split_chunk(ranges, at, err));
        at = chunk_of(ranges, range.addr);
    }
    chunk = ranges->chunks.items[at];
    uint32_t rank = rank_in(chunk, range.addr);
    if (rank > 0 && chunk->items[rank - 1].addr == range.addr) {
        chunk->items[rank - 1] = range;
        return PLIM_OK;
    }
    memmove(&chunk->items[rank + 1], &chunk->items[rank],
            (chunk->n - rank) * sizeof(chunk->items[0]));
    chunk->items[rank] = range;
    chunk->n++;
    ranges->n++;
    return PLIM_OK;
}

/* The last range that starts at or before addr, with where it is; NULL when there is none. */
static struct plim_addr_range *last_before(const struct plim_ranges *ranges, uint64_t addr,
                                           size_t *at, uint32_t *rank)
{
    if (ranges->chunks.n == 0) {
        return NULL;
    }
    *at = chunk_of(ranges, addr);
    *rank = rank_in(ranges->chunks.items[*at], addr);
    return *rank > 0 ? &ranges->chunks.items[*at]->items[*rank - 1] : NULL;
}

struct plim_addr_range *plim_ranges_find(const struct plim_ranges *ranges, uint64_t addr)
{
    size_t at;
    uint32_t rank;
    struct plim_addr_range *range = last_before(ranges, addr, &at, &rank);
    return range && addr - range->addr < range->size ? range : NULL;
}

bool plim_ranges_take(struct plim_ranges *ranges, uint64_t addr, struct plim_addr_range *out)
{
    size_t at;
    uint32_t rank;
    struct plim_addr_range *range = last_before(ranges, addr, &at, &rank);
    if (!range || range->addr != addr) {
        return false;
    }
    if (out) {
        *out = *range;
    }
    struct plim_ranges_chunk *chunk = ranges->chunks.items[at];
    memmove(range, range + 1, (chunk->n - rank) * sizeof(*range));
    chunk->n--;
    ranges->n--;
    if (chunk->n == 0) {
        free(chunk);
        ranges->chunks.n--;
        memmove(&ranges->chunks.items[at], &ranges->chunks.items[at + 1],
                (ranges->chunks.n - at) * sizeof(void *));
    }
    return true;
}
