/* SPDX-License-Identifier: Apache-2.0 */
/* allocator_settings and host_segments: small dicts that are read from their boxes. */

#include "format/build_internal.h"

#include "base/num.h"

#include <stdlib.h>

/* "1", "2", ... "32768" (MiB) is the place 0 ... 15 in the table of roundup divisions. */
static void set_roundup(struct plim_build *b, struct plim_value dict)
{
    struct plim_settings *s = &b->snap.settings;
    if (dict.kind != PLIM_V_CELL || plim__cell_kind(plim__cell_of(b, dict)) != PLIM_CELL_BOX_DICT) {
        return;
    }
    const struct plim_box *box = plim__box_of(b, plim__cell_of(b, dict));
    s->has_roundup = true;
    for (uint32_t i = 0; i + 1 < box->n; i += 2) {
        uint64_t divisions;
        if (box->items[i].kind != PLIM_V_STR || !plim__value_u64(box->items[i + 1], &divisions)) {
            continue;
        }
        struct plim_str key = plim_intern_str(&b->snap.strings, (uint32_t)box->items[i].u);
        for (unsigned place = 0; place < PLIM_COUNT_OF(s->roundup); place++) {
            if (key.n > 0 && key.n < 8 && strtoull(key.p, NULL, 10) == 1ULL << place) {
                s->roundup[place] = divisions;
            }
        }
    }
}

static enum plim_status set_setting(struct plim_build *b, struct plim_value key,
                                    struct plim_value v, struct plim_err *err)
{
    struct plim_settings *s = &b->snap.settings;
    uint64_t number;
    switch (key.kind == PLIM_V_STR ? key.u : PLIM_KEY_COUNT) {
    case PLIM_K_CONF:
    case PLIM_K_ALLOC_CONF:
        s->conf = v.kind == PLIM_V_STR && v.u != PLIM_W_EMPTY ? (uint32_t)v.u : s->conf;
        break;
    case PLIM_K_EXPANDABLE_SEGMENTS:
        s->expandable_segments = v.kind == PLIM_V_BOOL && v.u != 0;
        break;
    case PLIM_K_MAX_SPLIT_SIZE: /* -1 is unlimited */
        s->max_split_size = plim__value_u64(v, &number) ? number : UINT64_MAX;
        break;
    case PLIM_K_GC_THRESHOLD:
        s->gc_threshold = v.kind == PLIM_V_REAL         ? plim__value_as_real(v)
                          : plim__value_u64(v, &number) ? (double)number
                                                        : 0;
        break;
    case PLIM_K_ROUNDUP:
        set_roundup(b, v);
        break;
    case PLIM_K_PINNED_THREADS:
    case PLIM_K_RELEASE_LOCK:
    case PLIM_K_PINNED_REGISTER:
    case PLIM_K_STREAM_REUSE:
    case PLIM_K_MAX_ROUND_THRESHOLD:
    case PLIM_K_MAX_CACHED_SIZE:
        break; /* known, and without effect on device bytes */
    default:
        return plim__build_unknown(b, key, err);
    }
    return PLIM_OK;
}

enum plim_status plim__build_settings(struct plim_build *b, struct plim_value v,
                                      struct plim_err *err)
{
    struct plim_settings *s = &b->snap.settings;
    s->max_split_size = UINT64_MAX;
    if (v.kind != PLIM_V_CELL || plim__cell_kind(plim__cell_of(b, v)) != PLIM_CELL_BOX_DICT) {
        if (v.kind != PLIM_V_NONE) {
            plim_snapshot_finding(&b->snap, 0, "allocator_settings",
                                  "is %s, not a dict of settings", plim__build_describe(b, v));
        }
        return PLIM_OK;
    }
    s->known = true;
    uint32_t cell = plim__cell_of(b, v);
    for (uint32_t i = 0; i + 1 < plim__box_of(b, cell)->n; i += 2) {
        const struct plim_value *pair = &plim__box_of(b, cell)->items[i];
        PLIM_TRY(set_setting(b, pair[0], pair[1], err));
    }
    return PLIM_OK;
}

/* A segment of pinned host memory, in whichever shape it came. */
static void add_host_segment(struct plim_build *b, struct plim_value v, uint32_t cell)
{
    struct plim_host *host = &b->snap.host;
    uint64_t size = 0, allocated = 0;
    size_t index = plim__cell_index(cell);
    switch (plim__cell_kind(cell)) {
    case PLIM_CELL_SEGMENT:
        size = b->segments.items[index].s.size;
        allocated = b->segments.items[index].allocated;
        break;
    case PLIM_CELL_BLOCK:
        size = b->blocks.items[index].b.size;
        allocated = b->blocks.items[index].b.state != PLIM_BLOCK_INACTIVE ? size : 0;
        break;
    case PLIM_CELL_BOX_DICT: {
        struct plim_value held = plim__build_get(b, v, PLIM_K_ALLOCATED);
        held = held.kind == PLIM_V_NONE ? plim__build_get(b, v, PLIM_K_ALLOCATED_SIZE) : held;
        (void)plim__value_u64(plim__build_get(b, v, PLIM_K_SIZE), &size);
        (void)plim__value_u64(held, &allocated);
        allocated = held.kind == PLIM_V_BOOL && held.u ? size : allocated; /* a flag, not bytes */
        break;
    }
    default:
        return;
    }
    host->segments++;
    host->reserved = plim_add_sat(host->reserved, size);
    host->allocated = plim_add_sat(host->allocated, allocated);
}

enum plim_status plim__build_host(struct plim_build *b, struct plim_value v, struct plim_err *err)
{
    (void)err;
    size_t n;
    if (!plim__build_is_list(b, v, &n)) {
        return PLIM_OK;
    }
    b->snap.host.known = true;
    for (size_t i = 0; i < n; i++) {
        uint32_t cell;
        struct plim_value item = plim__build_item(b, v, i, &cell);
        if (item.kind == PLIM_V_CELL) {
            add_host_segment(b, item, cell);
        }
    }
    return PLIM_OK;
}
