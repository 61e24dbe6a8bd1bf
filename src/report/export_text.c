/* SPDX-License-Identifier: Apache-2.0 */
/* Folded stacks, and Chrome trace events as Perfetto reads them. */

#include "report/export.h"

#include "base/jsonw.h"
#include "base/num.h"
#include "heap/moment.h"
#include "heap/totals.h"
#include "heap/walk.h"

/* ---- folded ---- */

/* A frame's name without what separates: semicolons, blanks at the end of a line, line breaks. */
static void put_frame(struct plim_buf *out, const struct plim_snapshot *s, uint32_t id)
{
    const struct plim_frame *f = &s->stacks.frames.items[id];
    struct plim_str parts[2] = {plim_intern_str(&s->strings, f->name),
                                plim_intern_str(&s->strings, f->file)};
    for (unsigned k = 0; k < 2; k++) {
        for (size_t i = 0; i < parts[k].n; i++) {
            unsigned char c = (unsigned char)parts[k].p[i];
            plim_buf_char(out, c == ';' ? ',' : c < 0x20 || c == 0x7f ? ' ' : (char)c);
        }
        if (k == 0) {
            plim_buf_char(out, '@');
        }
    }
    plim_buf_printf(out, ":%u", f->line);
}

static void put_folded(struct plim_buf *out, const struct plim_snapshot *s, uint32_t stack,
                       uint64_t bytes)
{
    size_t n;
    const uint32_t *frames = plim_stacks_frames(&s->stacks, stack, &n);
    if (n == 0) {
        plim_buf_text(out, "(no stack recorded)");
    }
    for (size_t i = n; i-- > 0;) {
        put_frame(out, s, frames[i]);
        if (i > 0) {
            plim_buf_char(out, ';');
        }
    }
    plim_buf_printf(out, " %llu\n", (unsigned long long)bytes);
}

enum plim_status plim_export_folded(struct plim_buf *out, const struct plim_snapshot *snapshot,
                                    const struct plim_export_window *window, struct plim_err *err)
{
    struct plim_export_window w;
    struct plim_heap heap;
    size_t n = snapshot->stacks.stacks.n;
    PLIM_TRY(plim_export_check(snapshot, window, &w, err));
    uint64_t *bytes = calloc(n + 1, sizeof(*bytes));
    if (!bytes) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu stacks", n);
    }
    enum plim_status st =
        plim_heap_at(&snapshot->devices.items[w.device], w.until, NULL, &heap, NULL, err);
    if (st == PLIM_OK) {
        plim_vec_foreach (b, &heap.blocks) {
            if (plim_block_is_live(b)) {
                bytes[b->stack < n ? b->stack : n] += b->size;
            }
        }
        plim_heap_fini(&heap);
        for (size_t i = 0; i <= n; i++) {
            if (bytes[i] > 0) {
                put_folded(out, snapshot, i < n ? (uint32_t)i : PLIM_NO_STACK, bytes[i]);
            }
        }
        st = plim_buf_status(out, err);
    }
    free(bytes);
    return st;
}

/* ---- Chrome trace events ---- */

struct tracer {
    struct plim_jsonw w;
    const struct plim_snapshot *s;
    const struct plim_trace *trace;
    uint32_t device;
};

static uint64_t time_of(const struct tracer *t, size_t event)
{
    const struct plim_event *e = &t->trace->events.items[event];
    return t->trace->has_times ? e->time_us : event;
}

static void open_event(struct tracer *t, const char *name, const char *phase, uint64_t time)
{
    plim_jsonw_object(&t->w);
    plim_jsonw_kv_text(&t->w, "name", name);
    plim_jsonw_kv_text(&t->w, "ph", phase);
    plim_jsonw_kv_u64(&t->w, "ts", time);
    plim_jsonw_kv_u64(&t->w, "pid", t->device);
    plim_jsonw_kv_u64(&t->w, "tid", 0);
}

static void put_counter(struct tracer *t, uint64_t time, const struct plim_walk_point *p)
{
    open_event(t, "ledger", "C", time);
    plim_jsonw_key(&t->w, "args");
    plim_jsonw_object(&t->w);
    plim_jsonw_kv_u64(&t->w, "live", p->live);
    plim_jsonw_kv_u64(&t->w, "rounding", p->rounding);
    plim_jsonw_kv_u64(&t->w, "private_pool_free", p->private_free);
    plim_jsonw_kv_u64(&t->w, "stranded", p->stranded);
    plim_jsonw_kv_u64(&t->w, "releasable", p->releasable);
    plim_jsonw_end(&t->w);
    plim_jsonw_end(&t->w);
}

static bool is_rare(uint8_t action)
{
    return action != PLIM_ACTION_ALLOC && action != PLIM_ACTION_FREE_REQUESTED &&
           action != PLIM_ACTION_FREE_COMPLETED;
}

static void put_instant(struct tracer *t, size_t event)
{
    const struct plim_event *e = &t->trace->events.items[event];
    open_event(t, plim_action_text((enum plim_action)e->action), "i", time_of(t, event));
    plim_jsonw_kv_text(&t->w, "s", "p");
    plim_jsonw_key(&t->w, "args");
    plim_jsonw_object(&t->w);
    plim_jsonw_kv_u64(&t->w, "event", event);
    plim_jsonw_kv_u64(&t->w, e->action == PLIM_ACTION_OOM ? "device_free" : "addr", e->addr);
    plim_jsonw_kv_u64(&t->w, "size", e->size);
    plim_jsonw_end(&t->w);
    plim_jsonw_end(&t->w);
}

static void put_spans(struct tracer *t)
{
    if (!t->trace->has_times) {
        return;
    }
    plim_vec_foreach (a, &t->s->annotations) {
        if (a->device == t->device) {
            struct plim_str name = plim_intern_str(&t->s->strings, a->name);
            plim_jsonw_object(&t->w);
            plim_jsonw_kv_str(&t->w, "name", name);
            plim_jsonw_kv_text(&t->w, "ph", a->end ? "E" : "B");
            plim_jsonw_kv_u64(&t->w, "ts", a->time_us);
            plim_jsonw_kv_u64(&t->w, "pid", t->device);
            plim_jsonw_kv_u64(&t->w, "tid", 1);
            plim_jsonw_end(&t->w);
        }
    }
}

/* Walk the window; of each `stride` events the state with most bytes allocated becomes a point. */
static enum plim_status put_window(struct tracer *t, struct plim_walk *walk,
                                   const struct plim_export_window *w, struct plim_err *err)
{
    size_t stride =
        plim_max_u64((w->until - w->from + PLIM_EXPORT_COUNTERS - 1) / PLIM_EXPORT_COUNTERS, 1);
    size_t instants = 0;
    while (walk->position < w->from) {
        PLIM_TRY(plim_walk_step(walk, err));
    }
    while (walk->position < w->until) {
        struct plim_walk_point top = {0};
        size_t at = walk->position;
        for (size_t k = 0; k < stride && walk->position < w->until; k++) {
            size_t event = walk->position;
            PLIM_TRY(plim_walk_step(walk, err));
            if (k == 0 || walk->now.live + walk->now.rounding > top.live + top.rounding) {
                top = walk->now;
                at = event;
            }
            if (is_rare(t->trace->events.items[event].action) && instants < PLIM_EXPORT_COUNTERS) {
                put_instant(t, event);
                instants++;
            }
        }
        put_counter(t, time_of(t, at), &top);
    }
    return PLIM_OK;
}

enum plim_status plim_export_perfetto(struct plim_buf *out, const struct plim_snapshot *snapshot,
                                      const struct plim_export_window *window, struct plim_err *err)
{
    struct plim_export_window w;
    struct plim_walk walk;
    PLIM_TRY(plim_export_check(snapshot, window, &w, err));
    struct tracer t = {.s = snapshot, .device = w.device};
    const struct plim_device *device = &snapshot->devices.items[w.device];
    t.trace = &device->trace;
    PLIM_TRY(plim_walk_init(&walk, device, err));
    plim_jsonw_init(&t.w, out, true);
    plim_jsonw_object(&t.w);
    plim_jsonw_kv_text(&t.w, "displayTimeUnit", "ms");
    plim_jsonw_key(&t.w, "otherData");
    plim_jsonw_object(&t.w);
    plim_jsonw_kv_text(&t.w, "source", "plimsoll export");
    plim_jsonw_kv_text(&t.w, "time",
                       t.trace->has_times ? "microseconds"
                                          : "event numbers: the trace has no times");
    plim_jsonw_end(&t.w);
    plim_jsonw_key(&t.w, "traceEvents");
    plim_jsonw_array(&t.w);
    enum plim_status st = put_window(&t, &walk, &w, err);
    put_spans(&t);
    plim_jsonw_end(&t.w);
    plim_jsonw_end(&t.w);
    plim_walk_fini(&walk);
    return st == PLIM_OK ? plim_buf_status(out, err) : st;
}
