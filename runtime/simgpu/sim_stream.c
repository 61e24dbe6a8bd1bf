/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events: simulated completion in stream order.
 *
 * Each stream knows the tick at which all its work is complete. Recording an event puts it at
 * now + lag, never before what the stream already has; waiting for an event moves the stream at least
 * to that event. An event is complete when time has reached it. Synchronising moves time there, so
 * nothing sleeps. With a lag of 0 everything is complete at once.
 *
 * With a kernel time a stream is also busy in real time: each kernel begins when the one before it on its stream
 * has ended, and synchronising sleeps. Events and streams are then ready when both clocks say so.
 *
 * Small stream handles are the default streams: 0 and 1 legacy, 2 the thread's.
 */

#include "sim.h"
#include <string.h>

#define STREAM_MAGIC 0x53696d5374726561u
#define EVENT_MAGIC  0x53696d4576656e74u

static struct sim_pool streams = SIM_POOL(struct sim_stream);
static struct sim_pool events = SIM_POOL(struct sim_event);
static struct sim_stream defaults[SIM_MAX_DEVICES];
static uint64_t latest[SIM_MAX_DEVICES];      /* when all streams of a device are complete */
static uint64_t latest_busy[SIM_MAX_DEVICES]; /* the same in real time */

static void set_due(struct sim_stream *s, uint64_t due)
{
    s->due = due > s->due ? due : s->due;
    latest[s->device] = s->due > latest[s->device] ? s->due : latest[s->device];
}

static void set_busy(struct sim_stream *s, uint64_t until)
{
    uint64_t *all = &latest_busy[s->device];
    s->busy_ns = until > s->busy_ns ? until : s->busy_ns;
    *all = s->busy_ns > *all ? s->busy_ns : *all;
}

/* What of a real time is still to come, ns. Most streams and events never have one. */
static uint64_t rest_of(uint64_t busy_ns)
{
    uint64_t now = busy_ns > 0 ? sim_real_ns() : 0;
    return busy_ns > now ? busy_ns - now : 0;
}

void sim_stream_run(struct sim_stream *s, uint32_t kernels)
{
    uint64_t each = atomic_load_explicit(&sim_config.kernel_ns, memory_order_relaxed);
    if (each > 0 && kernels > 0) {
        uint64_t now = sim_real_ns();
        set_busy(s, (s->busy_ns > now ? s->busy_ns : now) + each * kernels);
    }
}

int sim_stream_new(int device, unsigned flags, int priority, struct sim_stream **out)
{
    static uint64_t id = SIM_MAX_DEVICES;
    uint32_t self;
    struct sim_stream *s = sim_pool_take(&streams, &self);
    if (s == NULL) {
        return SIM_E_NOMEM;
    }
    s->magic = STREAM_MAGIC;
    s->id = ++id;
    s->self = self;
    s->device = device;
    s->flags = flags;
    s->priority = priority;
    *out = s;
    return SIM_OK;
}

struct sim_stream *sim_stream(void *handle)
{
    if ((uintptr_t)handle < 16) {
        struct sim_stream *s = &defaults[sim_current()];
        s->magic = STREAM_MAGIC;
        s->device = sim_current();
        s->id = (uint64_t)s->device + 1;
        return s;
    }
    struct sim_stream *s = handle;
    uintptr_t off = (uintptr_t)handle - (uintptr_t)streams.base;
    bool ours = streams.base != NULL && off < (uintptr_t)streams.n * streams.item &&
                off % streams.item == 0;
    return ours && s->magic == STREAM_MAGIC ? s : NULL;
}

static struct sim_event *event_of(struct sim_event *e)
{
    uintptr_t off = (uintptr_t)e - (uintptr_t)events.base;
    bool ours =
        events.base != NULL && off < (uintptr_t)events.n * events.item && off % events.item == 0;
    return ours && e->magic == EVENT_MAGIC ? e : NULL;
}

int sim_stream_destroy(struct sim_stream *s)
{
    if (s == NULL || s->self == 0) {
        return SIM_E_HANDLE;
    }
    if (s->capture != NULL) {
        return SIM_E_CAPTURE_UNSUPPORTED;
    }
    (void)sim_nodes_set(&s->tail, NULL, 0, false);
    sim_pool_give(&streams, s->self);
    return SIM_OK;
}

int sim_stream_query(struct sim_stream *s)
{
    if (s == NULL) {
        return SIM_E_HANDLE;
    }
    if (s->capture != NULL) {
        return sim_capture_fault(s->capture);
    }
    int rc = sim_unsafe();
    if (rc != SIM_OK) {
        return rc;
    }
    return s->due <= sim_now() && rest_of(s->busy_ns) == 0 ? SIM_OK : SIM_E_NOT_READY;
}

int sim_stream_sync(struct sim_stream *s, uint64_t *until)
{
    if (s == NULL) {
        return SIM_E_HANDLE;
    }
    if (s->capture != NULL) {
        return sim_capture_fault(s->capture);
    }
    int rc = sim_unsafe();
    if (rc == SIM_OK) {
        sim_advance_to(s->due);
        sim_mempool_synced(s->device);
        *until = s->busy_ns;
    }
    return rc;
}

int sim_stream_wait(struct sim_stream *s, struct sim_event *e)
{
    e = event_of(e);
    if (s == NULL || e == NULL) {
        return SIM_E_HANDLE;
    }
    struct sim_capture *capture = sim_capture_by_id(e->capture);
    if (capture != NULL) {
        if (s->capture != NULL && s->capture != capture) {
            return SIM_E_CAPTURE_MERGE;
        }
        sim_capture_join(s, capture);
        return sim_nodes_set(&s->tail, e->tail.at, e->tail.n, true);
    }
    set_due(s, e->due);
    set_busy(s, e->busy_ns);
    return SIM_OK;
}

int sim_device_sync(int device, uint64_t *until)
{
    int rc = sim_unsafe();
    if (rc != SIM_OK) {
        return rc;
    }
    sim_advance_to(latest[device]);
    sim_mempool_synced(device);
    *until = latest_busy[device];
    return SIM_OK;
}

int sim_event_new(unsigned flags, struct sim_event **out)
{
    uint32_t self;
    struct sim_event *e = sim_pool_take(&events, &self);
    if (e == NULL) {
        return SIM_E_NOMEM;
    }
    e->magic = EVENT_MAGIC;
    e->self = self;
    e->flags = flags;
    *out = e;
    return SIM_OK;
}

int sim_event_destroy(struct sim_event *e)
{
    e = event_of(e);
    if (e == NULL) {
        return SIM_E_HANDLE;
    }
    (void)sim_nodes_set(&e->tail, NULL, 0, false);
    sim_pool_give(&events, e->self);
    return SIM_OK;
}

int sim_event_record(struct sim_event *e, struct sim_stream *s)
{
    e = event_of(e);
    if (e == NULL || s == NULL) {
        return SIM_E_HANDLE;
    }
    e->recorded = true;
    if (s->capture != NULL) {
        e->capture = sim_capture_id(s);
        return sim_nodes_set(&e->tail, s->tail.at, s->tail.n, false);
    }
    set_due(s, sim_now() + atomic_load_explicit(&sim_config.event_lag, memory_order_relaxed));
    e->due = s->due;
    e->busy_ns = s->busy_ns;
    e->capture = 0;
    if ((e->flags & 2) == 0) { /* not created with timing disabled */
        e->time_ns = sim_wall_ns() + rest_of(s->busy_ns);
    }
    return SIM_OK;
}

int sim_event_query(struct sim_event *e)
{
    e = event_of(e);
    if (e == NULL) {
        return SIM_E_HANDLE;
    }
    if (e->capture != 0 && sim_capture_by_id(e->capture) != NULL) {
        return SIM_E_CAPTURED_EVENT;
    }
    int rc = sim_unsafe();
    if (rc != SIM_OK) {
        return rc;
    }
    return e->due <= sim_now() && rest_of(e->busy_ns) == 0 ? SIM_OK : SIM_E_NOT_READY;
}

int sim_event_sync(struct sim_event *e, uint64_t *until)
{
    int rc = sim_event_query(e);
    if (rc == SIM_E_NOT_READY) {
        sim_advance_to(e->due);
        *until = e->busy_ns;
        rc = SIM_OK;
    }
    return rc;
}

int sim_event_elapsed(struct sim_event *from, struct sim_event *to, float *ms)
{
    from = event_of(from);
    to = event_of(to);
    if (from == NULL || to == NULL || !from->recorded || !to->recorded) {
        return SIM_E_HANDLE;
    }
    uint64_t now = sim_now();
    if (from->due > now || to->due > now || rest_of(from->busy_ns) + rest_of(to->busy_ns) > 0) {
        return SIM_E_NOT_READY;
    }
    /* More than 0: autotuners divide by it. */
    *ms = to->time_ns > from->time_ns ? (float)(to->time_ns - from->time_ns) / 1e6f : 1e-3f;
    return SIM_OK;
}
