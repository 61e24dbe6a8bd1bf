/* SPDX-License-Identifier: Apache-2.0 */
/* Events and facts as bytes; see trace_parts.h and docs/format/trace.md. */

#include "format/trace_parts.h"

#include "base/num.h"

#include <stddef.h>
#include <stdlib.h>

#define RESULT 11 /* the column of results, which have a sign */

/* -- events -------------------------------------------------------------------------------------- */

/* The columns: where in an event their values are. One list for both ways. */
static const struct column {
    uint8_t id;
    uint8_t coding; /* enum plim_column_coding */
    uint8_t width;  /* bytes of the field */
    uint8_t offset; /* in struct plim_trace_event */
} columns[] = {
#define COLUMN(id, coding, field)                                                                  \
    {                                                                                              \
        id, PLIM_COLUMN_##coding, sizeof(((struct plim_trace_event *)0)->field),                   \
            offsetof(struct plim_trace_event, field)                                               \
    }
    COLUMN(1, PLAIN, process),   COLUMN(2, DELTA, e.time_ns),     COLUMN(3, PLAIN, e.kind),
    COLUMN(4, PLAIN, e.device),  COLUMN(5, PLAIN, e.owner),       COLUMN(6, PLAIN, e.flags),
    COLUMN(7, PLAIN, e.call),    COLUMN(8, PLAIN, e.library),     COLUMN(9, PLAIN, e.stack),
    COLUMN(10, DELTA, e.thread), COLUMN(RESULT, DELTA, e.result), COLUMN(12, DELTA, e.addr),
    COLUMN(13, PLAIN, e.size),   COLUMN(14, PLAIN, e.aux),        COLUMN(15, PLAIN, e.duration_ns),
#undef COLUMN
};

/* A field as a number of 64 bits; traces and the machines that write them are little-endian. */
static uint64_t load(const struct plim_trace_event *t, const struct column *c)
{
    uint64_t v = 0;
    memcpy(&v, (const char *)t + c->offset, c->width);
    return c->id == RESULT ? (uint64_t)(int64_t)(int32_t)v : v;
}

static void store(struct plim_trace_event *t, const struct column *c, uint64_t v)
{
    memcpy((char *)t + c->offset, &v, c->width);
}

static bool all_zero(const uint64_t *values, size_t n)
{
    uint64_t any = 0;
    for (size_t i = 0; i < n; i++) {
        any |= values[i];
    }
    return any == 0;
}

void plim__events_put(struct plim_buf *out, const struct plim_trace_event *events, size_t n)
{
    uint64_t *values = calloc(n + 1, sizeof(*values));
    if (values == NULL) {
        out->failed = true;
        return;
    }
    for (size_t k = 0; k < PLIM_COUNT_OF(columns); k++) {
        const struct column *c = &columns[k];
        for (size_t i = 0; i < n; i++) {
            values[i] = load(&events[i], c);
        }
        if (!all_zero(values, n)) {
            plim__column_put(out, c->id, (enum plim_column_coding)c->coding, values, n,
                             sizeof(*values));
        }
    }
    free(values);
}

/* One column's values into their field; a column of a newer version is left alone. */
static bool take_column(uint8_t id, struct plim_str bytes, uint64_t *values,
                        struct plim_trace_event *events, size_t n)
{
    for (size_t k = 0; k < PLIM_COUNT_OF(columns); k++) {
        const struct column *c = &columns[k];
        if (c->id != id) {
            continue;
        }
        if (!plim__column_get(bytes, (enum plim_column_coding)c->coding, values, n,
                              sizeof(*values))) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            store(&events[i], c, values[i]);
        }
    }
    return true;
}

bool plim__events_get(struct plim_str payload, struct plim_trace_event *events, size_t n,
                      struct plim_err *err)
{
    struct plim_cursor c = plim__cursor(payload);
    uint64_t *values = calloc(n + 1, sizeof(*values));
    if (values == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the events of a frame") == PLIM_OK;
    }
    bool good = true;
    memset(events, 0, n * sizeof(*events));
    while (good && c.p < c.end) {
        uint8_t id = *c.p++;
        struct plim_str column = plim__text_get(&c);
        good = !c.bad && take_column(id, column, values, events, n);
    }
    free(values);
    return good;
}

/* -- facts --------------------------------------------------------------------------------------- */

/* The numbers of each struct, in the order in which they are written: X(struct, field). A newer version may
 * append; what an older one did not write reads as 0. */
#define PROCESS_FIELDS(X) X(pid) X(parent_pid) X(program) X(start_ns)
#define LIBRARY_FIELDS(X) X(base) X(end) X(owner)
#define TOTAL_FIELDS(X)                                                                            \
    X(device)                                                                                      \
    X(owner)                                                                                       \
    X(sums.live)                                                                                   \
    X(sums.charged)                                                                                \
    X(sums.peak)                                                                                   \
    X(sums.count)                                                                                  \
    X(sums.allocs)                                                                                 \
    X(sums.frees)                                                                                  \
    X(sums.failures)                                                                               \
    X(sums.foreign)
#define END_FIELDS(X) X(how) X(time_ns) X(lost) X(unknown_frees) X(unhooked)
#define STATS_FIELDS(X)                                                                            \
    X(device)                                                                                      \
    X(time_ns)                                                                                     \
    X(allocated)                                                                                   \
    X(active)                                                                                      \
    X(requested)                                                                                   \
    X(reserved)                                                                                    \
    X(inactive_split)                                                                              \
    X(peak_allocated)                                                                              \
    X(peak_reserved)                                                                               \
    X(retries)                                                                                     \
    X(ooms)                                                                                        \
    X(device_total)                                                                                \
    X(device_free)
#define RUN_FIELDS(X) X(time_ns) X(exit_status) X(signal) X(unwritten) X(over_limit)

/* kind, process, body with its length. */
static void put_fact(struct plim_buf *out, enum plim_fact_kind kind, uint32_t process,
                     struct plim_buf *body)
{
    plim__varint_put(out, (uint64_t)kind);
    plim__varint_put(out, process);
    plim__text_put(out, plim_buf_str(body));
    out->failed = out->failed || body->failed;
    plim_buf_fini(body);
}

#define PUT(field) plim__varint_put(&body, from->field);

void plim__fact_process(struct plim_buf *out, uint32_t process, const struct plim_trace_process *p)
{
    const struct plim_trace_process *from = p;
    struct plim_buf body = {0};
    plim__text_put(&body, (struct plim_str){p->name, strnlen(p->name, sizeof(p->name))});
    PROCESS_FIELDS(PUT)
    put_fact(out, PLIM_FACT_PROCESS, process, &body);
}

void plim__fact_call(struct plim_buf *out, uint32_t process, uint64_t call, struct plim_str name)
{
    struct plim_buf body = {0};
    plim__varint_put(&body, call);
    plim__text_put(&body, name);
    put_fact(out, PLIM_FACT_CALL, process, &body);
}

void plim__fact_library(struct plim_buf *out, uint32_t process, uint64_t number,
                        const struct plim_trace_library *library)
{
    const struct plim_trace_library *from = library;
    struct plim_buf body = {0};
    plim__varint_put(&body, number);
    plim__text_put(&body, library->path);
    LIBRARY_FIELDS(PUT)
    put_fact(out, PLIM_FACT_LIBRARY, process, &body);
}

void plim__fact_stack(struct plim_buf *out, uint32_t process, uint64_t number,
                      const uint64_t *frames, size_t n)
{
    struct plim_buf body = {0};
    uint64_t last = 0;
    plim__varint_put(&body, number);
    n = n > PLIM_TRACE_FRAMES_MAX ? PLIM_TRACE_FRAMES_MAX : n;
    for (size_t i = 0; i < n; i++) {
        plim__varint_put(&body, plim__zigzag((int64_t)(frames[i] - last)));
        last = frames[i];
    }
    put_fact(out, PLIM_FACT_STACK, process, &body);
}

void plim__fact_total(struct plim_buf *out, uint32_t process, const struct plim_trace_total *total)
{
    const struct plim_trace_total *from = total;
    struct plim_buf body = {0};
    TOTAL_FIELDS(PUT)
    put_fact(out, PLIM_FACT_TOTAL, process, &body);
}

void plim__fact_end(struct plim_buf *out, uint32_t process, const struct plim_trace_ended *end)
{
    const struct plim_trace_ended *from = end;
    struct plim_buf body = {0};
    END_FIELDS(PUT)
    put_fact(out, PLIM_FACT_END, process, &body);
}

void plim__fact_stats(struct plim_buf *out, uint32_t process, const struct plim_trace_stats *stats)
{
    const struct plim_trace_stats *from = stats;
    struct plim_buf body = {0};
    STATS_FIELDS(PUT)
    put_fact(out, PLIM_FACT_STATS, process, &body);
}

void plim__fact_run(struct plim_buf *out, const struct plim_trace_run *run)
{
    const struct plim_trace_run *from = run;
    struct plim_buf body = {0};
    RUN_FIELDS(PUT)
    put_fact(out, PLIM_FACT_RUN, 0, &body);
}

/* The next number, or 0 behind the end of what an older version wrote. */
static uint64_t next(struct plim_cursor *c)
{
    return c->p < c->end ? plim__varint_get(c) : 0;
}

static void take_stack(struct plim_cursor *c, struct plim_fact *out)
{
    uint64_t last = 0;
    out->stack.n = 0;
    while (c->p < c->end && out->stack.n < PLIM_TRACE_FRAMES_MAX) {
        last += (uint64_t)plim__unzigzag(plim__varint_get(c));
        out->stack.frames[out->stack.n++] = last;
    }
}

static void take_process(struct plim_cursor *c, struct plim_trace_process *to)
{
    struct plim_str name = plim__text_get(c);
    *to = (struct plim_trace_process){0};
    size_t n = name.n < sizeof(to->name) - 1 ? name.n : sizeof(to->name) - 1;
    memcpy(to->name, name.p, n);
#define GET(field) to->field = next(c);
    PROCESS_FIELDS(GET)
}

static void take_library(struct plim_cursor *c, struct plim_trace_library *to)
{
    to->path = plim__text_get(c);
    LIBRARY_FIELDS(GET)
}

#define TAKER(name, type, FIELDS)                                                                  \
    static void take_##name(struct plim_cursor *c, type *to)                                       \
    {                                                                                              \
        FIELDS(GET)                                                                                \
    }
TAKER(total, struct plim_trace_total, TOTAL_FIELDS)
TAKER(end, struct plim_trace_ended, END_FIELDS)
TAKER(stats, struct plim_trace_stats, STATS_FIELDS)
TAKER(run, struct plim_trace_run, RUN_FIELDS)

bool plim__fact_get(struct plim_cursor *c, struct plim_fact *out)
{
    if (c->p == c->end) {
        return false;
    }
    out->kind = plim__varint_get(c);
    out->process = plim__varint_get(c);
    struct plim_cursor body = plim__cursor(plim__text_get(c));
    bool numbered = out->kind == PLIM_FACT_CALL || out->kind == PLIM_FACT_LIBRARY ||
                    out->kind == PLIM_FACT_STACK;
    out->number = numbered ? plim__varint_get(&body) : 0;
    switch (out->kind) {
    case PLIM_FACT_PROCESS:
        take_process(&body, &out->as_process);
        break;
    case PLIM_FACT_CALL:
        out->name = plim__text_get(&body);
        break;
    case PLIM_FACT_LIBRARY:
        take_library(&body, &out->library);
        break;
    case PLIM_FACT_STACK:
        take_stack(&body, out);
        break;
    case PLIM_FACT_TOTAL:
        take_total(&body, &out->total);
        break;
    case PLIM_FACT_END:
        take_end(&body, &out->end);
        break;
    case PLIM_FACT_STATS:
        take_stats(&body, &out->stats);
        break;
    case PLIM_FACT_RUN:
        take_run(&body, &out->run);
        break;
    default:
        break;
    }
    c->bad = c->bad || body.bad;
    return !c->bad;
}
