/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the steps, the moment that is judged, and the tables of blame and pins. */

#include "diagnose/diagnose.h"

#include "base/bytes.h"
#include "base/num.h"
#include "diagnose/captured.h"

#include <stdlib.h>

#define DEFAULT_ROWS 20u

static void choose_device(const struct plim_snapshot *snapshot,
                          const struct plim_diagnose_options *options, struct plim_diagnosis *d)
{
    uint64_t best = 0;
    if (options->device != PLIM_NO_ID) {
        d->device = options->device;
        return;
    }
    for (uint32_t i = 0; i < snapshot->devices.n; i++) {
        const struct plim_device *device = &snapshot->devices.items[i];
        uint64_t weight = plim_totals_of_heap(&device->heap).reserved / 2 + device->trace.events.n;
        weight += device->trace.by_action[PLIM_ACTION_OOM] ? UINT64_MAX / 2 : 0;
        if (weight > best) {
            best = weight;
            d->device = i;
        }
    }
}

static uint64_t time_between(const struct plim_trace *trace, size_t from, size_t to)
{
    if (!trace->has_times || from >= trace->events.n || to >= trace->events.n) {
        return 0;
    }
    return plim_sub_sat(trace->events.items[to].time_us, trace->events.items[from].time_us);
}

static void read_failure(const struct plim_conf *conf, const struct plim_trace *trace,
                         struct plim_failure *f)
{
    size_t at = trace->events.n;
    while (at > 0 && trace->events.items[at - 1].action != PLIM_ACTION_OOM) {
        at--;
    }
    if (at == 0) {
        return;
    }
    const struct plim_event *e = &trace->events.items[at - 1];
    *f = (struct plim_failure){
        .happened = true,
        .event = (uint32_t)(at - 1),
        .size = e->size,
        .driver_bytes = plim_round_segment(e->size, conf->large_segment),
        .stream = e->stream,
        .pool = e->pool,
        .device_free = e->addr,
        .stack = e->stack,
        .count = (uint32_t)trace->by_action[PLIM_ACTION_OOM],
        .events_after = trace->events.n - at,
        .uptime_us = time_between(trace, 0, at - 1),
    };
}

/* A message without a recorded failure: the end of the trace stands for the moment of failure. */
static void take_failure_from_message(const struct plim_facts *facts,
                                      const struct plim_trace *trace, struct plim_diagnosis *d)
{
    d->failure = (struct plim_failure){
        .happened = true,
        .told = true,
        .event = (uint32_t)trace->events.n,
        .size = facts->request.bytes,
        .driver_bytes = facts->request.bytes,
        .device_free = PLIM_FREE_NOT_RECORDED,
        .stack = PLIM_NO_STACK,
        .count = 1,
    };
}

/* Which position is judged, and what to call it. */
static void choose_moment(const struct plim_diagnose_options *options,
                          const struct plim_trace *trace, struct plim_diagnosis *d)
{
    d->position = trace->events.n;
    d->set.ledger.moment = "at the end";
    if (!d->failure.happened && plim_known(options->facts.request)) {
        take_failure_from_message(&options->facts, trace, d);
    }
    if (options->moment == PLIM_MOMENT_PEAK) {
        d->position = d->peaks.allocated_at;
        d->set.ledger.moment = "at the peak";
    } else if (options->moment == PLIM_MOMENT_AUTO && d->failure.happened) {
        d->position = d->failure.event;
        d->set.ledger.moment = "at the failure";
    }
    if (options->moment != PLIM_MOMENT_AUTO) {
        uint32_t count = d->failure.count;
        d->failure = (struct plim_failure){.count = count, .stack = PLIM_NO_STACK};
    }
}

static int most_bytes_first(const void *a, const void *b)
{
    const struct plim_blame_row *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : (x->stack > y->stack) - (x->stack < y->stack);
}

/* Python's own stacks, and no others: "/a/model.py", "<string>". Native stacks are never empty. */
static bool only_python_frames(const struct plim_snapshot *snapshot)
{
    plim_vec_foreach (frame, &snapshot->stacks.frames) {
        struct plim_str file = plim_intern_str(&snapshot->strings, frame->file);
        if (!plim_str_ends(file, PLIM_STR(".py")) && !plim_str_starts(file, PLIM_STR("<"))) {
            return false;
        }
    }
    return snapshot->stacks.frames.n > 0;
}

/* Why blocks have no stack, as far as the recording tells. PyTorch's autograd allocates on threads of its own,
 * which run no Python, so what it records of them is an empty stack. */
static const char *without_stack(const struct plim_snapshot *snapshot, struct plim_diagnosis *d)
{
    const struct plim_site_live *live = &d->leaks.sites.items[0];
    size_t events = snapshot->devices.items[d->device].trace.events.n;
    static const char native[] = "no Python frame recorded, as on the threads of a backward pass";
    char text[PLIM_BYTES_TEXT], rest[PLIM_BYTES_TEXT];
    if (live->bytes_born == 0 && events > 0 && snapshot->stacks.frames.n > 0) {
        return "(no stack; older than the recorded events)";
    }
    if (!only_python_frames(snapshot)) {
        return "(no stack recorded)";
    }
    if (live->bytes_born == live->bytes) {
        return plim_arena_sayf(&d->arena, "(%s)", native);
    }
    return plim_arena_sayf(&d->arena, "(%s older than the recorded events; %s: %s)",
                           plim_bytes_format(text, live->bytes - live->bytes_born),
                           plim_bytes_format(rest, live->bytes_born), native);
}

static enum plim_status fill_blame(const struct plim_snapshot *snapshot, uint32_t rows,
                                   struct plim_diagnosis *d, struct plim_err *err)
{
    for (uint32_t i = 0; i < d->leaks.sites.n; i++) {
        const struct plim_site_live *live = &d->leaks.sites.items[i];
        const struct plim_site *site = &d->sites.sites.items[i];
        d->by_category[site->category] += live->bytes;
        if (live->blocks > 0) {
            struct plim_blame_row row = {NULL,           NULL,         i,
                                         site->category, live->bytes,  live->bytes_born,
                                         live->blocks,   live->allocs, live->frees,
                                         false};
            PLIM_TRY(plim_vec_push(&d->blame, err, row));
        }
    }
    if (d->blame.n > 0) {
        qsort(d->blame.items, d->blame.n, sizeof(d->blame.items[0]), most_bytes_first);
    }
    d->blame.n = d->blame.n > rows ? rows : d->blame.n;
    plim_vec_foreach (row, &d->blame) {
        uint32_t index = row->stack; /* the site's index stood here for the sort */
        const struct plim_site *site = &d->sites.sites.items[index];
        row->site =
            index == 0 ? without_stack(snapshot, d) : plim_site_text(snapshot, site, &d->arena);
        row->frame = site->n_frames ? plim_frame_text(snapshot, site->frames[0], &d->arena) : "";
        row->stack = site->stack;
        plim_vec_foreach (suspect, &d->leaks.suspects) {
            row->suspect |= suspect->site == index;
        }
    }
    return PLIM_OK;
}

static enum plim_status fill_pins(const struct plim_snapshot *snapshot, uint32_t rows,
                                  struct plim_diagnosis *d, struct plim_err *err)
{
    const struct plim_trace *trace = &snapshot->devices.items[d->device].trace;
    for (size_t i = 0; i < d->fragmentation.pinned.n && i < rows; i++) {
        const struct plim_pinned_segment *pinned = &d->fragmentation.pinned.items[i];
        const struct plim_segment *segment = &d->heap.segments.items[pinned->segment];
        const struct plim_block *block = &d->heap.blocks.items[pinned->oldest];
        uint32_t site = plim_site_of(&d->sites, block->stack);
        bool before = block->alloc_event == PLIM_NO_EVENT;
        struct plim_pin_row row = {
            .segment_addr = segment->addr,
            .segment_size = segment->size,
            .stranded = pinned->stranded,
            .live = pinned->live,
            .live_blocks = pinned->live_blocks,
            .block_addr = block->addr,
            .block_size = block->size,
            .before_trace = before,
            .age_events = before ? 0 : d->position - block->alloc_event,
            .age_us = before || d->position == 0
                          ? 0
                          : time_between(trace, block->alloc_event, d->position - 1),
            .site =
                site == 0 ? NULL : plim_site_text(snapshot, &d->sites.sites.items[site], &d->arena),
        };
        PLIM_TRY(plim_vec_push(&d->pins, err, row));
    }
    return PLIM_OK;
}

/* A cap that the settings name, when nobody said another. */
static void add_configured_cap(const struct plim_conf *conf, struct plim_facts *facts)
{
    if (!plim_known(facts->cap) && plim_known(facts->total) && conf->memory_fraction < 1.0) {
        double cap = conf->memory_fraction * (double)facts->total.bytes;
        facts->cap = plim_amount((uint64_t)(cap + 0.5), PLIM_HOW_COMPUTED);
    }
}

/* Where the first failure was: behind it a program that lives on cannot grow any more. */
static size_t first_failure(const struct plim_trace *trace, size_t position)
{
    size_t at = 0;
    while (at < position && trace->events.items[at].action != PLIM_ACTION_OOM) {
        at++;
    }
    return at;
}

/* Leaks up to the moment; when nothing grew up to it and requests failed before, up to the first. */
static enum plim_status find_leaks(const struct plim_snapshot *snapshot, struct plim_diagnosis *d,
                                   struct plim_err *err)
{
    struct plim_leak_input in = {.snapshot = snapshot,
                                 .trace = &snapshot->devices.items[d->device].trace,
                                 .sites = &d->sites,
                                 .heap = &d->heap,
                                 .history = &d->history,
                                 .position = d->position};
    PLIM_TRY(plim_leaks_find(&in, &d->arena, &d->leaks, err));
    if (snapshot->level == PLIM_LEVEL_ALLOCATOR) {
        d->leaks.suspects.n = 0; /* an allocator that asks for more may only be filling its cache */
        return PLIM_OK;
    }
    size_t first = first_failure(in.trace, d->position);
    if (d->leaks.suspects.n > 0 || first == d->position || first == 0) {
        return PLIM_OK;
    }
    struct plim_history earlier;
    PLIM_TRY(plim_history_read(snapshot, in.trace, first, &earlier, err));
    struct plim_leaks leaks;
    in.history = &earlier;
    in.position = first;
    enum plim_status st = plim_leaks_find(&in, &d->arena, &leaks, err);
    plim_history_fini(&earlier);
    if (st == PLIM_OK && leaks.suspects.n > 0) {
        plim_leaks_fini(&d->leaks);
        d->leaks = leaks;
    } else if (st == PLIM_OK) {
        plim_leaks_fini(&leaks);
    }
    return st;
}

/* What is known of the moment: facts, failure, heap, sites, leaks, books. */
static enum plim_status measure(const struct plim_snapshot *snapshot,
                                const struct plim_diagnose_options *options,
                                struct plim_diagnosis *d, struct plim_err *err)
{
    const struct plim_device *device = &snapshot->devices.items[d->device];
    d->peaks = plim_trace_peaks(device);
    d->complete = d->peaks.reserved_at_start == 0 && device->trace.events.n > 0;
    d->facts = options->facts;
    PLIM_TRY(plim__captured_facts(snapshot, d, err));
    plim_recorded_conf(snapshot, PLIM_TORCH_LATEST, &d->conf);
    add_configured_cap(&d->conf, &d->facts);
    read_failure(&d->conf, &device->trace, &d->failure);
    choose_moment(options, &device->trace, d);
    PLIM_TRY(plim__captured_work(snapshot, d, err));
    PLIM_TRY(plim_history_read(snapshot, &device->trace, d->position, &d->history, err));
    PLIM_TRY(plim_heap_at(device, d->position, &d->history.births, &d->heap, &d->gaps, err));
    PLIM_TRY(plim_sites_build(snapshot, &d->sites, err));
    PLIM_TRY(find_leaks(snapshot, d, err));
    if (d->failure.happened) {
        PLIM_TRY(plim_held_find(snapshot, &device->trace, &d->sites, d->position, &d->held, err));
    }
    PLIM_TRY(plim_fragmentation_read(snapshot, &d->heap, &d->fragmentation, err));
    plim__outside_facts(device, snapshot->level, d);
    plim__books_fill(snapshot->level, d);
    return PLIM_OK;
}

static enum plim_status run(const struct plim_snapshot *snapshot,
                            const struct plim_diagnose_options *options, struct plim_diagnosis *d,
                            struct plim_err *err)
{
    uint32_t rows = options->rows ? options->rows : DEFAULT_ROWS;
    PLIM_TRY(measure(snapshot, options, d, err));
    PLIM_TRY(fill_blame(snapshot, rows, d, err));
    PLIM_TRY(fill_pins(snapshot, rows, d, err));
    PLIM_TRY(plim__judge(snapshot, d, err));
    plim__name_work(d);
    PLIM_TRY(plim__gather_evidence(snapshot, d, err));
    PLIM_TRY(plim__advise(snapshot, options, d, err));
    return plim_arena_status(&d->arena, err);
}

enum plim_status plim_diagnose(const struct plim_snapshot *snapshot,
                               const struct plim_diagnose_options *options,
                               struct plim_diagnosis *out, struct plim_err *err)
{
    struct plim_diagnosis d = {.failure.stack = PLIM_NO_STACK};
    plim_arena_init(&d.arena, 0);
    if (snapshot->devices.n == 0) {
        plim__fail(err, PLIM_E_DATA, "the snapshot holds no device");
        plim__err_hint(err, "it was taken before any memory of a GPU was used");
        return PLIM_E_DATA;
    }
    choose_device(snapshot, options, &d);
    if (d.device >= snapshot->devices.n) {
        return plim__fail(err, PLIM_E_RANGE, "device %u is not in the snapshot, which has %zu",
                          d.device, snapshot->devices.n);
    }
    enum plim_status st = run(snapshot, options, &d, err);
    if (st != PLIM_OK) {
        plim_diagnosis_fini(&d);
        return st;
    }
    *out = d;
    return PLIM_OK;
}

void plim_diagnosis_fini(struct plim_diagnosis *d)
{
    plim_finding_set_fini(&d->set);
    plim_heap_fini(&d->heap);
    plim_fragmentation_fini(&d->fragmentation);
    plim_history_fini(&d->history);
    plim_sites_fini(&d->sites);
    plim_leaks_fini(&d->leaks);
    plim_vec_fini(&d->blame);
    plim_vec_fini(&d->pins);
    plim_arena_fini(&d->arena);
}
