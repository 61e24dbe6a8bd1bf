/* SPDX-License-Identifier: Apache-2.0 */
/* From frames to a recording in memory; see trace_read.h. */

#include "format/trace_read.h"

#include "base/num.h"
#include "format/trace_scan.h"

#include <stdlib.h>

struct reading {
    struct plim_recording r;
    struct plim_read_limits limits;
    struct plim_err *err;
    uint64_t unpacked; /* bytes of payloads so far */
};

static uint64_t key_of(uint64_t process, uint64_t number)
{
    return process << 32 | (number & UINT32_MAX);
}

/* Bytes held, against what the input may ask for. */
static enum plim_status check_budget(const struct reading *in, size_t extra_events)
{
    const struct plim_recording *r = &in->r;
    uint64_t held = (r->events.n + extra_events) * sizeof(r->events.items[0]) +
                    r->processes.n * sizeof(r->processes.items[0]) +
                    r->libraries.n * sizeof(r->libraries.items[0]) + r->frames.n * 8 +
                    r->totals.n * sizeof(r->totals.items[0]) +
                    r->stats.n * sizeof(r->stats.items[0]) + r->strings.arena.used +
                    (r->call_names.n + r->library_index.n + r->stack_index.n) * 48;
    uint64_t most = plim_add_sat(64 * PLIM_MIB, in->unpacked * 8);
    if (in->limits.memory) {
        most = plim_min_u64(most, in->limits.memory);
    }
    return held <= most
               ? PLIM_OK
               : plim__fail(in->err, PLIM_E_BUDGET,
                            "the trace needs more memory than a file of its size may take");
}

/* The process of that number, made when it is new; NULL in *out beyond the limit. */
static enum plim_status process_of(struct reading *in, uint64_t number,
                                   struct plim_recorded_process **out)
{
    *out = NULL;
    if (number >= PLIM_TRACE_PROCESSES_MAX) {
        return PLIM_OK;
    }
    while (in->r.processes.n <= number) {
        PLIM_TRY(plim_vec_push(&in->r.processes, in->err, (struct plim_recorded_process){0}));
    }
    *out = &in->r.processes.items[number];
    return PLIM_OK;
}

static enum plim_status add_events(struct reading *in, struct plim_str payload, size_t n)
{
    struct plim_recording *r = &in->r;
    if (n == 0) {
        return PLIM_OK;
    }
    if (n > PLIM_TRACE_EVENTS_MAX) {
        r->nonsense++;
        return PLIM_OK;
    }
    PLIM_TRY(check_budget(in, n));
    PLIM_TRY(plim_vec_reserve(&r->events, n, in->err));
    struct plim_trace_event *events = r->events.items + r->events.n;
    if (!plim__events_get(payload, events, n, in->err)) {
        r->nonsense++;
        return PLIM_OK;
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct plim_recorded_process *p;
        PLIM_TRY(process_of(in, events[i].process, &p));
        if (p == NULL) {
            continue;
        }
        p->lost += events[i].e.kind == PLIM_EVENT_LOST ? events[i].e.size : 0;
        events[i].e.seq = ++p->events + p->lost;
        events[kept++] = events[i];
    }
    r->nonsense += kept < n;
    r->events.n += kept;
    return PLIM_OK;
}

static enum plim_status add_library(struct reading *in, const struct plim_fact *f)
{
    struct plim_recording *r = &in->r;
    struct plim_recorded_library library = {
        .owner = (uint32_t)f->library.owner, .base = f->library.base, .end = f->library.end};
    PLIM_TRY(plim_intern_put(&r->strings, f->library.path, &library.path, in->err));
    PLIM_TRY(plim_vec_push(&r->libraries, in->err, library));
    return plim_map_put(&r->library_index, key_of(f->process, f->number), r->libraries.n - 1,
                        in->err);
}

static enum plim_status add_stack(struct reading *in, const struct plim_fact *f)
{
    struct plim_recording *r = &in->r;
    size_t at = r->frames.n;
    PLIM_TRY(plim_vec_reserve(&r->frames, f->stack.n + 1, in->err));
    r->frames.items[r->frames.n++] = f->stack.n;
    for (size_t i = 0; i < f->stack.n; i++) {
        r->frames.items[r->frames.n++] = f->stack.frames[i];
    }
    return plim_map_put(&r->stack_index, key_of(f->process, f->number), at, in->err);
}

static enum plim_status add_fact(struct reading *in, const struct plim_fact *f)
{
    struct plim_recording *r = &in->r;
    struct plim_recorded_process *p;
    uint32_t name;
    PLIM_TRY(process_of(in, f->process, &p));
    if (p == NULL) {
        r->nonsense++;
        return PLIM_OK;
    }
    switch (f->kind) {
    case PLIM_FACT_PROCESS:
        p->about = f->as_process;
        p->known = true;
        return PLIM_OK;
    case PLIM_FACT_CALL:
        PLIM_TRY(plim_intern_put(&r->strings, f->name, &name, in->err));
        return plim_map_put(&r->call_names, key_of(f->process, f->number), name, in->err);
    case PLIM_FACT_LIBRARY:
        return add_library(in, f);
    case PLIM_FACT_STACK:
        return add_stack(in, f);
    case PLIM_FACT_TOTAL:
        return plim_vec_push(&r->totals, in->err,
                             (struct plim_recorded_total){(uint32_t)f->process, f->total});
    case PLIM_FACT_END:
        p->end = f->end;
        return PLIM_OK;
    case PLIM_FACT_STATS:
        return plim_vec_push(&r->stats, in->err,
                             (struct plim_recorded_stats){(uint32_t)f->process, f->stats});
    case PLIM_FACT_RUN:
        r->run = f->run;
        r->has_run = true;
        return PLIM_OK;
    default:
        return PLIM_OK; /* of a newer version */
    }
}

static enum plim_status add_facts(struct reading *in, struct plim_str payload)
{
    struct plim_cursor c = plim__cursor(payload);
    struct plim_fact fact;
    while (plim__fact_get(&c, &fact)) {
        PLIM_TRY(add_fact(in, &fact));
    }
    in->r.nonsense += c.bad;
    return check_budget(in, 0);
}

static enum plim_status read_frames(struct reading *in, struct plim_trace_scan *scan)
{
    for (;;) {
        struct plim_trace_frame frame;
        struct plim_str payload;
        bool more;
        PLIM_TRY(plim_trace_scan_next(scan, &more, &frame, &payload, in->err));
        if (!more) {
            break;
        }
        in->unpacked += payload.n;
        PLIM_TRY(frame.kind == PLIM_FRAME_EVENTS ? add_events(in, payload, frame.items)
                                                 : add_facts(in, payload));
    }
    in->r.head = scan->head;
    in->r.sealed = scan->sealed;
    in->r.damaged = scan->damaged;
    in->r.torn = scan->torn;
    in->r.source_bytes = scan->pos + scan->torn;
    return PLIM_OK;
}

/* -- one order for all processes ----------------------------------------------------------------- */

struct place {
    uint64_t time_ns; /* never less than that of the event before in its process */
    uint64_t index;
};

static int by_time(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->time_ns != y->time_ns ? (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns)
                                    : (x->index > y->index) - (x->index < y->index);
}

static enum plim_status order(struct reading *in)
{
    struct plim_recording *r = &in->r;
    size_t n = r->events.n;
    struct place *places = calloc(n + 1, sizeof(*places));
    uint64_t *latest = calloc(r->processes.n + 1, sizeof(*latest));
    struct plim_trace_event *sorted = calloc(n + 1, sizeof(*sorted));
    enum plim_status st = PLIM_OK;
    if (places == NULL || latest == NULL || sorted == NULL) {
        st = plim__fail(in->err, PLIM_E_NOMEM, "no memory to put the events in order");
    }
    for (size_t i = 0; st == PLIM_OK && i < n; i++) {
        uint64_t *last = &latest[r->events.items[i].process];
        *last = plim_max_u64(*last, r->events.items[i].e.time_ns);
        places[i] = (struct place){*last, i};
    }
    if (st == PLIM_OK && n > 0) {
        qsort(places, n, sizeof(*places), by_time);
        for (size_t i = 0; i < n; i++) {
            sorted[i] = r->events.items[places[i].index];
        }
        memcpy(r->events.items, sorted, n * sizeof(*sorted));
    }
    free(places);
    free(latest);
    free(sorted);
    return st;
}

enum plim_status plim_recording_read(struct plim_source *source,
                                     const struct plim_read_limits *limits,
                                     struct plim_recording *out, struct plim_err *err)
{
    struct reading in = {.limits = limits ? *limits : (struct plim_read_limits){0}, .err = err};
    struct plim_trace_scan scan;
    PLIM_TRY(plim_trace_scan_open(&scan, source, err));
    plim_intern_init(&in.r.strings, 0);
    enum plim_status st = read_frames(&in, &scan);
    plim_trace_scan_close(&scan);
    st = st == PLIM_OK && in.r.processes.n > 1 ? order(&in) : st;
    if (st != PLIM_OK) {
        plim_recording_fini(&in.r);
        return st;
    }
    *out = in.r;
    return PLIM_OK;
}

void plim_recording_fini(struct plim_recording *r)
{
    plim_vec_fini(&r->events);
    plim_vec_fini(&r->processes);
    plim_vec_fini(&r->libraries);
    plim_vec_fini(&r->totals);
    plim_vec_fini(&r->stats);
    plim_vec_fini(&r->frames);
    plim_map_fini(&r->call_names);
    plim_map_fini(&r->library_index);
    plim_map_fini(&r->stack_index);
    plim_intern_fini(&r->strings);
}

/* -- tables -------------------------------------------------------------------------------------- */

struct plim_str plim_recorded_call(const struct plim_recording *r, const struct plim_trace_event *e)
{
    const uint64_t *name = plim_map_get(&r->call_names, key_of(e->process, e->e.call));
    return plim_intern_str(&r->strings, name ? (uint32_t)*name : PLIM_NO_ID);
}

const struct plim_recorded_library *plim_recorded_library(const struct plim_recording *r,
                                                          const struct plim_trace_event *e)
{
    const uint64_t *at = plim_map_get(&r->library_index, key_of(e->process, e->e.library));
    return at ? &r->libraries.items[*at] : NULL;
}

const uint64_t *plim_recorded_stack(const struct plim_recording *r,
                                    const struct plim_trace_event *e, size_t *n)
{
    const uint64_t *at =
        e->e.stack ? plim_map_get(&r->stack_index, key_of(e->process, e->e.stack)) : NULL;
    *n = at ? r->frames.items[*at] : 0;
    return at ? &r->frames.items[*at + 1] : NULL;
}

const struct plim_recorded_library *plim_recorded_library_at(const struct plim_recording *r,
                                                             uint32_t process, uint64_t addr)
{
    const struct plim_recorded_library *best = NULL;
    size_t cursor = 0;
    const struct plim_map_slot *slot;
    while ((slot = plim_map_next(&r->library_index, &cursor)) != NULL) {
        const struct plim_recorded_library *library = &r->libraries.items[slot->value];
        if (slot->key >> 32 == process && addr >= library->base && addr < library->end &&
            (best == NULL || library > best)) { /* a later row is newer */
            best = library;
        }
    }
    return best;
}
