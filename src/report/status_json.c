/* SPDX-License-Identifier: Apache-2.0 */

/* The state as "plimsoll.status/1". An absent key is an unknown value. See status.h. */

#include "report/status.h"

#include "base/jsonw.h"
#include "device/sample_json.h"

#include <plimsoll/shm.h>

static void text(struct plim_jsonw *w, const char *key, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        plim_jsonw_kv_text(w, key, value);
    }
}

static void flag(struct plim_jsonw *w, const char *key, bool value)
{
    if (value) {
        plim_jsonw_kv_bool(w, key, true);
    }
}

static void device_index(struct plim_jsonw *w, uint32_t device)
{
    if (device != PLIM_NO_DEVICE) {
        plim_jsonw_kv_u64(w, "device", device);
    }
}

void plim_estimate_json(struct plim_jsonw *w, const char *key, const struct plim_estimate *e)
{
    if (e->valid) {
        plim_jsonw_key(w, key);
        plim_jsonw_object(w);
        plim_jsonw_kv_real(w, "value", e->value);
        plim_jsonw_kv_real(w, "low", e->low);
        plim_jsonw_kv_real(w, "high", e->high);
        plim_jsonw_end(w);
    }
}

/* ---- devices and processes ---- */

static void device(struct plim_jsonw *w, const struct plim_state *s, uint32_t index)
{
    const struct plim_device_sample *d = &s->now->sample.devices.items[index];
    uint64_t unknown;
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "device", index);
    plim_device_members(w, d);
    if (plim_sample_unknown(&s->now->sample, index, &unknown)) {
        plim_jsonw_kv_u64(w, "unknown_bytes", unknown);
    }
    uint64_t parts[PLIM_LEDGER_PARTS];
    if (plim_observation_ledger(s->now, index, parts)) {
        plim_jsonw_key(w, "ledger");
        plim_jsonw_object(w);
        for (int i = 0; i < PLIM_LEDGER_PARTS; i++) {
            plim_jsonw_kv_u64(w, plim_ledger_part_key((enum plim_ledger_part)i), parts[i]);
        }
        plim_jsonw_end(w);
    }
    if (s->left != NULL) {
        plim_estimate_json(w, "seconds_left", &s->left[index]);
    }
    plim_jsonw_end(w);
}

static void use(struct plim_jsonw *w, const struct plim_state *s, const struct plim_process_use *u)
{
    const struct plim_process_facts *p = plim_sample_process(&s->now->sample, u->pid);
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "device", u->device);
    plim_jsonw_kv_u64(w, "pid", u->pid);
    if (u->bytes_valid) {
        plim_jsonw_kv_u64(w, "bytes", u->bytes);
        plim_jsonw_kv_u64(w, "counted_bytes", u->counted);
    }
    plim_use_kinds_member(w, u);
    if (p != NULL && p->start_ticks != 0) {
        plim_jsonw_kv_u64(w, "parent_pid", p->ppid);
        plim_jsonw_kv_u64(w, "start_ticks", p->start_ticks);
        plim_jsonw_kv_u64(w, "resident_bytes", p->rss);
#define PLIM__X(field, size, key) text(w, key, p->field);
        PLIM_PROCESS_TEXT_MAP(PLIM__X)
#undef PLIM__X
    }
    plim_jsonw_end(w);
}

/* ---- allocators, owners, engines ---- */

static void allocator(struct plim_jsonw *w, const struct plim_allocator_now *a)
{
    static const char *const keys[] = {
#define PLIM__X(name, key, kind) key,
        PLIM_ALLOCATOR_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    };
    plim_jsonw_object(w);
    device_index(w, a->device);
    plim_jsonw_kv_u64(w, "pid", a->pid);
    plim_jsonw_kv_u64(w, "start_ticks", a->start_ticks);
    plim_jsonw_kv_u64(w, "ordinal", a->ordinal);
    if (a->rank >= 0) {
        plim_jsonw_kv_i64(w, "rank", a->rank);
    }
    plim_jsonw_kv_u64(w, "told_ns", a->told_ns);
    flag(w, "stale", a->stale);
    for (unsigned i = 0; i < PLIM_ALLOCATOR_FIGURES; i++) {
        if ((a->valid >> i & 1) != 0) {
            plim_jsonw_kv_u64(w, keys[i], a->figure[i]);
        }
    }
    plim_jsonw_end(w);
}

static void owner(struct plim_jsonw *w, const struct plim_owner_now *o)
{
    plim_jsonw_object(w);
    device_index(w, o->device);
    plim_jsonw_kv_u64(w, "pid", o->pid);
    plim_jsonw_kv_u64(w, "start_ticks", o->start_ticks);
    plim_jsonw_kv_u64(w, "ordinal", o->ordinal);
    plim_jsonw_kv_text(w, "owner", plim_owner_text(o->owner));
    plim_jsonw_kv_bool(w, "outside", o->outside);
    plim_jsonw_kv_u64(w, "bytes", o->charged);
    plim_jsonw_kv_u64(w, "peak_bytes", o->peak);
    plim_jsonw_kv_u64(w, "failures", o->failures);
    plim_jsonw_end(w);
}

static void note(struct plim_jsonw *w, const struct plim_note_now *n)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "pid", n->pid);
    plim_jsonw_kv_u64(w, "start_ticks", n->start_ticks);
    plim_jsonw_kv_u64(w, "since_ns", n->since_ns);
    plim_jsonw_kv_text(w, "text", n->text);
    plim_jsonw_end(w);
}

static void engine(struct plim_jsonw *w, const struct plim_engine_now *e)
{
    static const char *const kinds[] = {
#define PLIM__X(name, text) text,
        PLIM_ENGINE_KIND_MAP(PLIM__X)
#undef PLIM__X
    };
    static const char *const figures[] = {
#define PLIM__X(name, key, kind) key,
        PLIM_ENGINE_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    };
    static const char *const components[] = {
#define PLIM__X(name, text) text,
        PLIM_COMPONENT_MAP(PLIM__X)
#undef PLIM__X
    };
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "name", e->name);
    plim_jsonw_kv_text(w, "kind",
                       (unsigned)e->kind < PLIM_ENGINE_KINDS ? kinds[e->kind] : "unknown");
    text(w, "model", e->model);
    text(w, "rank", e->rank);
    if (e->pid != 0) {
        plim_jsonw_kv_u64(w, "pid", e->pid);
    }
    if (e->workers > 0) {
        plim_jsonw_key(w, "workers");
        plim_jsonw_array(w);
        for (uint32_t i = 0; i < e->workers; i++) {
            plim_jsonw_u64(w, e->worker[i]);
        }
        plim_jsonw_end(w);
    }
    plim_jsonw_kv_bool(w, "up", e->up);
    if (e->restarts > 0) {
        plim_jsonw_kv_u64(w, "restarts", e->restarts);
    }
    plim_jsonw_kv_u64(w, "told_ns", e->told_ns);
    for (unsigned i = 0; i < PLIM_ENGINE_FIGURES; i++) {
        if ((e->valid >> i & 1) != 0) {
            plim_jsonw_kv_real(w, figures[i], e->figure[i]);
        }
    }
    plim_jsonw_key(w, "components");
    plim_jsonw_object(w);
    for (unsigned i = 0; i < PLIM_COMPONENTS; i++) {
        if ((e->component_valid >> i & 1) != 0) {
            plim_jsonw_kv_u64(w, components[i], e->component[i]);
        }
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

/* ---- findings and happenings ---- */

void plim_finding_json(struct plim_jsonw *w, const struct plim_finding *f)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "id", f->id);
    plim_jsonw_kv_text(w, "class", plim_finding_class_text(f->class));
    plim_jsonw_kv_text(w, "severity", plim_severity_text(f->severity));
    plim_jsonw_kv_bool(w, "active", f->active);
    device_index(w, f->subject.device);
    text(w, "uuid", f->subject.device_uuid);
    if (f->subject.pid != 0) {
        plim_jsonw_kv_u64(w, "pid", f->subject.pid);
        plim_jsonw_kv_u64(w, "start_ticks", f->subject.start_ticks);
        text(w, "process", f->subject.process);
    }
    plim_jsonw_kv_u64(w, "since_ns", f->since_ns);
    if (!f->active) {
        plim_jsonw_kv_u64(w, "ended_ns", f->ended_ns);
    }
    plim_jsonw_kv_real(w, "confidence", f->confidence);
    plim_jsonw_kv_u64(w, "bytes", f->bytes);
    plim_estimate_json(w, "bytes_per_second", &f->slope);
    plim_estimate_json(w, "seconds_left", &f->seconds_left);
    plim_jsonw_kv_text(w, "summary", f->summary);
    text(w, "evidence", f->evidence);
    text(w, "next_step", f->next_step);
    plim_jsonw_end(w);
}

const char *plim_happening_text(enum plim_happening_kind kind)
{
    static const char *const kinds[] = {
#define PLIM__X(name, text) text,
        PLIM_HAPPENING_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)kind < PLIM_HAPPENING_KINDS ? kinds[kind] : "unknown";
}

void plim_happening_json(struct plim_jsonw *w, const struct plim_happening *h)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "kind", plim_happening_text(h->kind));
    plim_jsonw_kv_u64(w, "time_ns", h->time_ns);
    device_index(w, h->device);
    if (h->pid != 0) {
        plim_jsonw_kv_u64(w, "pid", h->pid);
        plim_jsonw_kv_u64(w, "start_ticks", h->start_ticks);
    }
    if (h->value != 0) {
        plim_jsonw_kv_u64(w, "value", h->value);
    }
    text(w, "text", h->text);
    plim_jsonw_end(w);
}

/* ---- the monitor itself ---- */

static void sources(struct plim_jsonw *w, const struct plim_collect_stats *stats)
{
    plim_jsonw_kv_u64(w, "samples", stats->taken);
    plim_jsonw_kv_real(w, "sample_seconds", (double)stats->took_ns / 1e9);
    plim_jsonw_kv_u64(w, "devices_hung", stats->devices_hung);
    plim_jsonw_key(w, "sources");
    plim_jsonw_array(w);
    for (size_t i = 0; i < stats->n_observers; i++) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "name", stats->observers[i].name);
        plim_jsonw_kv_u64(w, "errors", stats->observers[i].errors);
        text(w, "last_error", stats->observers[i].last);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void monitor(struct plim_jsonw *w, const struct plim_state *s)
{
    static const char *const keys[] = {
#define PLIM__X(name, key, metric, kind, help) key,
        PLIM_HEALTH_MAP(PLIM__X)
#undef PLIM__X
    };
    plim_jsonw_key(w, "monitor");
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "version", s->version);
    plim_jsonw_kv_bool(w, "watched", s->watched);
    if (s->started_ns != 0) {
        plim_jsonw_kv_u64(w, "started_ns", s->started_ns);
    }
    if (s->stats != NULL) {
        sources(w, s->stats);
    }
    for (unsigned i = 0; s->health != NULL && i < PLIM_HEALTH_FIGURES; i++) {
        uint64_t value;
        if (plim_health_get(s->health, (enum plim_health_figure)i, &value)) {
            plim_jsonw_kv_u64(w, keys[i], value);
        }
    }
    plim_jsonw_end(w);
}

/* An array of everything in a vector. */
#define LIST(w, key, v, write)                                                                     \
    do {                                                                                           \
        plim_jsonw_key(w, key);                                                                    \
        plim_jsonw_array(w);                                                                       \
        plim_vec_foreach (item, v) {                                                               \
            write(w, item);                                                                        \
        }                                                                                          \
        plim_jsonw_end(w);                                                                         \
    } while (0)

static void findings(struct plim_jsonw *w, const struct plim_state *s)
{
    plim_jsonw_key(w, "findings");
    plim_jsonw_array(w);
    for (size_t i = 0; i < s->n_findings; i++) {
        plim_finding_json(w, &s->findings[i]);
    }
    plim_jsonw_end(w);
}

void plim_findings_json(struct plim_buf *out, const struct plim_state *s, bool compact)
{
    struct plim_jsonw w;
    plim_jsonw_init(&w, out, compact);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.findings/1");
    plim_jsonw_kv_u64(&w, "time_ns", s->now->sample.time_ns);
    text(&w, "host", s->host);
    findings(&w, s);
    plim_jsonw_end(&w);
}

void plim_status_json(struct plim_buf *out, const struct plim_state *s, bool compact)
{
    const struct plim_observation *now = s->now;
    struct plim_jsonw w;
    plim_jsonw_init(&w, out, compact);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.status/1");
    plim_jsonw_kv_u64(&w, "time_ns", now->sample.time_ns);
    text(&w, "host", s->host);
    if (now->sample.host_total != 0) {
        plim_jsonw_kv_u64(&w, "host_total_bytes", now->sample.host_total);
        plim_jsonw_kv_u64(&w, "host_available_bytes", now->sample.host_available);
    }
    plim_jsonw_key(&w, "devices");
    plim_jsonw_array(&w);
    for (uint32_t i = 0; i < now->sample.devices.n; i++) {
        device(&w, s, i);
    }
    plim_jsonw_end(&w);
    plim_jsonw_key(&w, "uses");
    plim_jsonw_array(&w);
    plim_vec_foreach (u, &now->sample.uses) {
        use(&w, s, u);
    }
    plim_jsonw_end(&w);
    LIST(&w, "allocators", &now->allocators, allocator);
    LIST(&w, "owners", &now->owners, owner);
    LIST(&w, "notes", &now->notes, note);
    LIST(&w, "engines", &now->engines, engine);
    LIST(&w, "happenings", &now->happenings, plim_happening_json);
    findings(&w, s);
    monitor(&w, s);
    plim_jsonw_end(&w);
}
