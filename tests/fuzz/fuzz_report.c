/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: report and exports of a snapshot whose events make no sense together. The bytes are events, 8 bytes
 * each, and some of the segments and blocks at the end. Whatever they are, the page keeps its limit, every window
 * and moment has an answer, and the exported pickle is read back with the same events.
 */

#include "format/snapshot_read.h"
#include "report/export.h"
#include "report/html.h"

#include "walk_snapshot.h"

#define EVENT_BYTES 8u
#define MOST_EVENTS 400u
#define LIMIT       400000u /* bytes of the page; the assets alone take a quarter */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Addresses close to each other, at the top, or zero, so that they collide. */
static uint64_t address(uint8_t place, uint8_t fine)
{
    uint64_t base = place & 1 ? UINT64_MAX - (UINT64_C(64) << 20) : UINT64_C(0x7f0000000000);
    return place == 0 ? fine
                      : base + (uint64_t)(place >> 1) * (UINT64_C(2) << 20) + (uint64_t)fine * 512;
}

static uint64_t length(uint8_t power, uint8_t fine)
{
    return (UINT64_C(1) << (power & 63u)) + fine;
}

static struct plim_event event(const uint8_t *p, uint64_t time)
{
    return (struct plim_event){
        .action = p[0] % PLIM_ACTION_COUNT,
        .addr = address(p[1], p[2]),
        .size = length(p[3], p[4]),
        .time_us = p[5] & 1 ? time : time - p[5],
        .stack = p[6] & 1 ? PLIM_STACK_EMPTY : PLIM_NO_STACK,
        .note = PLIM_NO_ID,
        .pool = p[6] & 2 ? PLIM_NO_POOL : 0,
    };
}

static void add_end(struct plim_heap *heap, const uint8_t *p)
{
    struct plim_segment segment = {.addr = address(p[1], 0),
                                   .size = length(p[3] % 30, 0),
                                   .stack = PLIM_NO_STACK,
                                   .first_block = (uint32_t)heap->blocks.n,
                                   .n_blocks = 1,
                                   .small = p[6] & 4,
                                   .expandable = p[6] & 8};
    struct plim_block block = {.addr = segment.addr,
                               .size = segment.size,
                               .requested = length(p[4], p[5]),
                               .stack = PLIM_NO_STACK,
                               .segment = (uint32_t)heap->segments.n,
                               .alloc_event = PLIM_NO_EVENT,
                               .state = (enum plim_block_state)(p[2] % 3)};
    DEMAND(plim_vec_push(&heap->segments, NULL, segment) == PLIM_OK);
    DEMAND(plim_vec_push(&heap->blocks, NULL, block) == PLIM_OK);
}

static void build(struct plim_snapshot *s, const uint8_t *data, size_t size)
{
    struct plim_device *device;
    uint16_t stream;
    DEMAND(plim_snapshot_init(s, NULL) == PLIM_OK);
    DEMAND(plim_snapshot_device(s, 0, &device, NULL) == PLIM_OK);
    DEMAND(plim_snapshot_stream(s, 0, &stream, NULL) == PLIM_OK);
    s->has_traces = true;
    device->trace.has_times = size % 2;
    for (size_t i = 0; i < size / EVENT_BYTES && i < MOST_EVENTS; i++) {
        const uint8_t *p = data + i * EVENT_BYTES;
        if (p[7] > 250) {
            add_end(&device->heap, p);
            continue;
        }
        struct plim_event e = event(p, 1000000 + i);
        DEMAND(plim_vec_push(&device->trace.events, NULL, e) == PLIM_OK);
        device->trace.by_action[e.action]++;
    }
}

static void ask_detail(const struct plim_snapshot *s, const struct plim_diagnosis *d)
{
    struct plim_detail detail;
    size_t n = s->devices.items[0].trace.events.n;
    DEMAND(plim_detail_init(&detail, s, d, 7, NULL) == PLIM_OK);
    for (uint32_t at = 0; at <= n; at += 1 + (uint32_t)n / 9) {
        struct plim_columns columns;
        struct plim_detail_series series;
        plim_columns_init(&columns);
        DEMAND(plim_detail_put_moment(&detail, at, &columns, NULL) == PLIM_OK);
        if (at < n) {
            DEMAND(plim_detail_series_of(&detail, at, (uint32_t)n, 3, &series, NULL) == PLIM_OK);
            DEMAND(series.bins.n >= 1 && series.bins.n <= 8);
            plim_vec_fini(&series.bins);
        }
        plim_columns_fini(&columns);
    }
    plim_detail_fini(&detail);
}

static void write_page(const struct plim_snapshot *s, bool whole)
{
    struct plim_diagnose_options options = {.device = 0, .no_replay = true};
    struct plim_html_options html = {.source = "fuzz", .limit = LIMIT};
    struct plim_diagnosis diagnosis;
    struct plim_buf page = {0};
    if (plim_diagnose(s, &options, &diagnosis, NULL) != PLIM_OK) {
        return;
    }
    if (whole) {
        DEMAND(plim_html_report(&page, s, &diagnosis, &html, NULL) == PLIM_OK);
        DEMAND(page.n <= LIMIT);
    }
    ask_detail(s, &diagnosis);
    plim_buf_fini(&page);
    plim_diagnosis_fini(&diagnosis);
}

static void read_back(const struct plim_snapshot *s)
{
    struct plim_export_window all = {.device = PLIM_NO_ID, .until = SIZE_MAX},
                              one = {.until = SIZE_MAX};
    struct plim_buf pickle = {0}, text = {0};
    struct plim_source_bytes state;
    struct plim_read_limits limits = {0};
    struct plim_snapshot back;
    DEMAND(plim_export_pickle(&pickle, s, &all, NULL) == PLIM_OK);
    struct plim_source source = plim_source_bytes(&state, plim_buf_str(&pickle));
    DEMAND(plim_snapshot_read(&source, &limits, &back, NULL) == PLIM_OK);
    DEMAND(back.devices.n == 0 ||
           back.devices.items[0].trace.events.n == s->devices.items[0].trace.events.n);
    plim_source_close(&source);
    plim_snapshot_fini(&back);
    DEMAND(plim_export_perfetto(&text, s, &one, NULL) == PLIM_OK);
    DEMAND(plim_export_folded(&text, s, &one, NULL) == PLIM_OK);
    plim_buf_fini(&pickle);
    plim_buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_snapshot snapshot;
    build(&snapshot, data, size);
    write_page(&snapshot, plim_hash_bytes(data, size) % 8 == 0); /* the slow part, for some */
    read_back(&snapshot);
    plim_snapshot_fini(&snapshot);
    return 0;
}
