/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the part that keeps writes of each observation: points of series, and happenings and findings as events.
 *
 * Subjects and their keys:
 *
 *   host      ""
 *   device    UUID, else PCI address, else "device N"
 *   process   device's key / pid / start ticks: one process on one device. Its figures are what the driver counts, what
 *             its allocator tells, and what its owners outside the allocator hold
 *   engine    name, and /rank where there are several
 *
 * Figures are the tables of device/sample.h and observe/observation.h, expanded here into one list of names; a point is
 * there only when its figure is valid. Labels are what people may look for; they are written when they change.
 */

#include "watch/keep_int.h"

#include "base/intern.h"
#include "base/num.h"

#include <plimsoll/event.h>
#include <stdio.h>

/* X(NAME, name): figures that are not in a table of their own. */
#define KEEP_FIGURE_MAP(X)                                                                         \
    X(UNKNOWN, "unknown_bytes") /* these of a device: plim_observation_ledger() */                 \
    X(LIVE, "live_bytes")                                                                          \
    X(STRANDED, "stranded_bytes")                                                                  \
    X(RELEASABLE, "releasable_bytes")                                                              \
    X(OUTSIDE, "outside_bytes")                                                                    \
    X(OTHERS, "others_bytes")                                                                      \
    X(LEFT, "seconds_left")     /* of a device: until it is full, by its trend */                  \
    X(PROCESS, "process_bytes") /* of a process on a device, as the driver counts */               \
    X(RSS, "resident_bytes")    /* of a process: host memory */                                    \
    X(HOST_TOTAL, "host_memory_total_bytes")                                                       \
    X(HOST_AVAILABLE, "host_memory_available_bytes")                                               \
    X(UP, "up") /* of an engine: 1 it answered */

#define LABEL_EVERY  360u  /* steps */
#define LABELLED_MAX 4096u /* processes remembered */

enum keep_figure {
    KEEP_DEVICE = 0,
    KEEP_ALLOCATOR = KEEP_DEVICE + PLIM_FIGURE_COUNT,
    KEEP_OWNER = KEEP_ALLOCATOR + PLIM_ALLOCATOR_FIGURES,
    KEEP_ENGINE = KEEP_OWNER + PLIM_OWNERS,
    KEEP_COMPONENT = KEEP_ENGINE + PLIM_ENGINE_FIGURES,
    KEEP__OTHERS = KEEP_COMPONENT + PLIM_COMPONENTS - 1,
#define PLIM__X(name, text) KEEP_##name,
    KEEP_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    KEEP_FIGURES
};

static const char *const figure_names[] = {
#define PLIM__X(name, key) key,
    PLIM_FIGURE_MAP(PLIM__X)
#undef PLIM__X
#define PLIM__X(name, key, kind) key,
        PLIM_ALLOCATOR_FIGURE_MAP(PLIM__X)
#undef PLIM__X
#define PLIM__X(name, text, library) "outside_" #name "_bytes",
            PLIM_OWNER_MAP(PLIM__X)
#undef PLIM__X
#define PLIM__X(name, key, kind) key,
                PLIM_ENGINE_FIGURE_MAP(PLIM__X)
#undef PLIM__X
#define PLIM__X(name, text) text "_bytes",
                    PLIM_COMPONENT_MAP(PLIM__X)
#undef PLIM__X
#define PLIM__X(name, text) text,
                        KEEP_FIGURE_MAP(PLIM__X)
#undef PLIM__X
};

_Static_assert(sizeof(figure_names) / sizeof(*figure_names) == KEEP_FIGURES, "one name for each");

const char *const *plim__keep_figures(size_t *n)
{
    *n = KEEP_FIGURES;
    return figure_names;
}

/* ---- subjects ---- */

static void device_key(const struct plim_observation *o, uint32_t device, char out[128])
{
    const struct plim_device_sample *d =
        device < o->sample.devices.n ? &o->sample.devices.items[device] : NULL;
    if (d == NULL) {
        (void)snprintf(out, 128, "-");
    } else if (d->uuid[0] != '\0' || d->pci[0] != '\0') {
        (void)snprintf(out, 128, "%s", d->uuid[0] != '\0' ? d->uuid : d->pci);
    } else {
        (void)snprintf(out, 128, "device %u", device);
    }
}

static void label(struct plim_jsonw *w, const char *key, const char *value)
{
    if (value[0] != '\0') {
        plim_jsonw_kv_text(w, key, value);
    }
}

/* The text of a finished document, without its newline. */
static enum plim_status line_of(struct plim_buf *json, struct plim_err *err)
{
    PLIM_TRY(plim_buf_status(json, err));
    json->p[json->n - 1] = '\0';
    return PLIM_OK;
}

static enum plim_status begin_subject(struct plim__kept *k, const char *kind, const char *key,
                                      struct plim_jsonw *w, struct plim_err *err)
{
    plim_jsonw_end(w);
    PLIM_TRY(line_of(&k->labels, err));
    return plim_batch_subject(k->batch, kind, key, k->labels.p, err);
}

static void begin_labels(struct plim__kept *k, struct plim_jsonw *w)
{
    plim_buf_reset(&k->labels);
    plim_jsonw_init(w, &k->labels, true);
    plim_jsonw_object(w);
}

static enum plim_status device_subject(struct plim__kept *k, const struct plim_observation *o,
                                       uint32_t device, struct plim_err *err)
{
    const struct plim_device_sample *d = &o->sample.devices.items[device];
    struct plim_jsonw w;
    char key[128];
    device_key(o, device, key);
    begin_labels(k, &w);
    plim_jsonw_kv_u64(&w, "device", device);
    label(&w, "name", d->name);
    label(&w, "uuid", d->uuid);
    label(&w, "pci", d->pci);
    return begin_subject(k, "device", key, &w, err);
}

/* Labels are costly to make for hundreds of processes each second. They are sent when the texts that they are made of
 * change, and now and then, since a history may be begun anew. */
static bool label_now(struct plim__kept *k, const char *key, const struct plim_process_facts *p)
{
    uint64_t id = plim_hash_bytes(key, strlen(key));
    size_t texts = offsetof(struct plim_process_facts, name);
    uint64_t now = plim_hash_bytes((const char *)p + texts, sizeof(*p) - texts);
    const uint64_t *sent = plim_map_get(&k->labelled, id);
    if (sent != NULL && *sent == now && (id + k->steps) % LABEL_EVERY != 0) {
        return false;
    }
    if (k->labelled.n > LABELLED_MAX) {
        plim_map_fini(&k->labelled);
    }
    (void)!plim_map_put(&k->labelled, id, now, NULL); /* without it they are sent again */
    return true;
}

static enum plim_status process_subject(struct plim__kept *k, const struct plim_observation *o,
                                        uint32_t device, uint32_t pid, uint64_t start_ticks,
                                        struct plim_err *err)
{
    const struct plim_process_facts *p = plim_sample_process(&o->sample, pid);
    struct plim_jsonw w;
    char on[128], key[192];
    device_key(o, device, on);
    (void)snprintf(key, sizeof(key), "%s/%u/%llu", on, pid, (unsigned long long)start_ticks);
    /* of one that has ended, what is known stays */
    if (p == NULL || p->start_ticks != start_ticks || !label_now(k, key, p)) {
        return plim_batch_subject(k->batch, "process", key, "", err);
    }
    begin_labels(k, &w);
    if (device != PLIM_NO_DEVICE) {
        plim_jsonw_kv_u64(&w, "device", device);
    }
    plim_jsonw_kv_text(&w, "on", on);
    plim_jsonw_kv_u64(&w, "pid", pid);
#define PLIM__X(field, size, key) label(&w, key, p->field);
    PLIM_PROCESS_TEXT_MAP(PLIM__X)
#undef PLIM__X
    return begin_subject(k, "process", key, &w, err);
}

static enum plim_status engine_subject(struct plim__kept *k, const struct plim_engine_now *e,
                                       struct plim_err *err)
{
    static const char *const kinds[] = {
#define PLIM__X(name, text) text,
        PLIM_ENGINE_KIND_MAP(PLIM__X)
#undef PLIM__X
    };
    struct plim_jsonw w;
    char key[96];
    (void)snprintf(key, sizeof(key), "%s%s%s", e->name, e->rank[0] != '\0' ? "/" : "", e->rank);
    begin_labels(k, &w);
    label(&w, "engine", (unsigned)e->kind < PLIM_ENGINE_KINDS ? kinds[e->kind] : "");
    label(&w, "model", e->model);
    if (e->pid != 0) {
        plim_jsonw_kv_u64(&w, "pid", e->pid);
    }
    return begin_subject(k, "engine", key, &w, err);
}

/* ---- points ---- */

static enum plim_status point(struct plim__kept *k, unsigned figure, double value,
                              struct plim_err *err)
{
    return plim_batch_point(k->batch, (uint16_t)figure, value, err);
}

static enum plim_status keep_host(struct plim__kept *k, const struct plim_observation *o,
                                  struct plim_err *err)
{
    struct plim_jsonw w;
    begin_labels(k, &w);
    PLIM_TRY(begin_subject(k, "host", "", &w, err));
    if (o->sample.host_total != 0) {
        PLIM_TRY(point(k, KEEP_HOST_TOTAL, (double)o->sample.host_total, err));
        PLIM_TRY(point(k, KEEP_HOST_AVAILABLE, (double)o->sample.host_available, err));
    }
    return PLIM_OK;
}

static enum plim_status keep_device(struct plim__kept *k, const struct plim_watch *w,
                                    uint32_t device, struct plim_err *err)
{
    const struct plim_device_sample *d = &w->now.sample.devices.items[device];
    static const uint8_t parts[][2] = {
        {KEEP_UNKNOWN, PLIM_LEDGER_UNKNOWN},   {KEEP_LIVE, PLIM_LEDGER_LIVE},
        {KEEP_STRANDED, PLIM_LEDGER_STRANDED}, {KEEP_RELEASABLE, PLIM_LEDGER_RELEASABLE},
        {KEEP_OUTSIDE, PLIM_LEDGER_OUTSIDE},   {KEEP_OTHERS, PLIM_LEDGER_OTHERS},
    };
    uint64_t ledger[PLIM_LEDGER_PARTS];
    PLIM_TRY(device_subject(k, &w->now, device, err));
    for (unsigned f = 0; f < PLIM_FIGURE_COUNT; f++) {
        if (plim_has_figure(d, (enum plim_figure)f)) {
            PLIM_TRY(point(k, KEEP_DEVICE + f, (double)d->figure[f], err));
        }
    }
    bool known = plim_observation_ledger(&w->now, device, ledger);
    for (unsigned i = 0; known && i < PLIM_COUNT_OF(parts); i++) {
        PLIM_TRY(point(k, parts[i][0], (double)ledger[parts[i][1]], err));
    }
    if (w->judged && device < w->left.n && w->left.items[device].valid) {
        PLIM_TRY(point(k, KEEP_LEFT, w->left.items[device].value, err));
    }
    return PLIM_OK;
}

static enum plim_status keep_allocator(struct plim__kept *k, const struct plim_allocator_now *a,
                                       struct plim_err *err)
{
    for (unsigned f = 0; f < PLIM_ALLOCATOR_FIGURES && !a->stale; f++) {
        if ((a->valid >> f & 1) != 0) {
            PLIM_TRY(point(k, KEEP_ALLOCATOR + f, (double)a->figure[f], err));
        }
    }
    return PLIM_OK;
}

/* What tells more of a process on a device than the driver does. */
static enum plim_status keep_told(struct plim__kept *k, const struct plim_observation *o,
                                  uint32_t device, uint32_t pid, struct plim_err *err)
{
    plim_vec_foreach (a, &o->allocators) {
        if (a->pid == pid && a->device == device) {
            PLIM_TRY(keep_allocator(k, a, err));
        }
    }
    plim_vec_foreach (owner, &o->owners) {
        if (owner->pid == pid && owner->device == device && owner->outside &&
            owner->owner < PLIM_OWNERS) {
            PLIM_TRY(point(k, KEEP_OWNER + owner->owner, (double)owner->charged, err));
        }
    }
    return PLIM_OK;
}

static enum plim_status keep_use(struct plim__kept *k, const struct plim_observation *o,
                                 const struct plim_process_use *use, struct plim_err *err)
{
    const struct plim_process_facts *p = plim_sample_process(&o->sample, use->pid);
    PLIM_TRY(process_subject(k, o, use->device, use->pid, p != NULL ? p->start_ticks : 0, err));
    if (use->bytes_valid) {
        PLIM_TRY(point(k, KEEP_PROCESS, (double)use->bytes, err));
    }
    if (p != NULL && p->rss != 0) {
        PLIM_TRY(point(k, KEEP_RSS, (double)p->rss, err));
    }
    return keep_told(k, o, use->device, use->pid, err);
}

static bool driver_lists(const struct plim_observation *o, uint32_t device, uint32_t pid)
{
    plim_vec_foreach (use, &o->sample.uses) {
        if (use->pid == pid && use->device == device) {
            return true;
        }
    }
    return false;
}

/* Allocators of processes that no driver lists: no driver here, or it may not tell. */
static enum plim_status keep_unlisted(struct plim__kept *k, const struct plim_observation *o,
                                      struct plim_err *err)
{
    plim_vec_foreach (a, &o->allocators) {
        if (!driver_lists(o, a->device, a->pid)) {
            PLIM_TRY(process_subject(k, o, a->device, a->pid, a->start_ticks, err));
            PLIM_TRY(keep_told(k, o, a->device, a->pid, err));
        }
    }
    return PLIM_OK;
}

static enum plim_status keep_engine(struct plim__kept *k, const struct plim_engine_now *e,
                                    struct plim_err *err)
{
    PLIM_TRY(engine_subject(k, e, err));
    PLIM_TRY(point(k, KEEP_UP, e->up, err));
    for (unsigned f = 0; f < PLIM_ENGINE_FIGURES; f++) {
        if ((e->valid >> f & 1) != 0) {
            PLIM_TRY(point(k, KEEP_ENGINE + f, e->figure[f], err));
        }
    }
    for (unsigned c = 0; c < PLIM_COMPONENTS; c++) {
        if ((e->component_valid >> c & 1) != 0) {
            PLIM_TRY(point(k, KEEP_COMPONENT + c, (double)e->component[c], err));
        }
    }
    return PLIM_OK;
}

/* ---- events ---- */

/* When something happened, and to whom. */
struct occasion {
    uint64_t time_ns;
    uint32_t device, pid;
    uint64_t start_ticks;
};

static enum plim_status event(struct plim__kept *k, const struct plim_observation *o,
                              const struct occasion *when, const char *kind, const char *json,
                              struct plim_err *err)
{
    bool about = when->device < o->sample.devices.n || when->pid != 0;
    if (when->pid != 0) {
        PLIM_TRY(process_subject(k, o, when->device, when->pid, when->start_ticks, err));
    } else if (about) {
        PLIM_TRY(device_subject(k, o, when->device, err));
    }
    return plim_batch_event(k->batch, when->time_ns, kind, about, json, err);
}

static enum plim_status keep_happening(struct plim__kept *k, const struct plim_observation *o,
                                       const struct plim_happening *h, struct plim_err *err)
{
    struct plim_buf json = {0};
    struct plim_jsonw w;
    plim_jsonw_init(&w, &json, true);
    plim_happening_json(&w, h);
    enum plim_status st = line_of(&json, err);
    if (st == PLIM_OK) {
        struct occasion when = {h->time_ns, h->device, h->pid, h->start_ticks};
        st = event(k, o, &when, plim_happening_text(h->kind), json.p, err);
    }
    plim_buf_fini(&json);
    return st;
}

/* A finding makes an event when it begins, when it becomes graver or milder, and when it ends. */
static enum plim_status keep_finding(struct plim__kept *k, const struct plim_observation *o,
                                     const struct plim_finding *f, struct plim_err *err)
{
    uint64_t now = f->active ? (uint64_t)f->severity + 1 : 0;
    const uint64_t *before = plim_map_get(&k->findings, f->id);
    if (before != NULL ? *before == now : now == 0) {
        return PLIM_OK;
    }
    struct plim_buf json = {0};
    struct plim_jsonw w;
    plim_jsonw_init(&w, &json, true);
    plim_finding_json(&w, f);
    enum plim_status st = line_of(&json, err);
    if (st == PLIM_OK) {
        struct occasion when = {f->active ? o->sample.time_ns : f->ended_ns, f->subject.device,
                                f->subject.pid, f->subject.start_ticks};
        st = event(k, o, &when, f->active ? "finding" : "finding_ended", json.p, err);
    }
    plim_buf_fini(&json);
    PLIM_TRY(st);
    return plim_map_put(&k->findings, f->id, now, err);
}

/* ---- the whole ---- */

enum plim_status plim__keep_fill(struct plim__kept *k, struct plim_batch *batch,
                                 const struct plim_watch *w, struct plim_err *err)
{
    const struct plim_observation *o = &w->now;
    k->batch = batch;
    k->steps++;
    plim_batch_reset(batch, o->sample.time_ns, o->mono_ns);
    PLIM_TRY(keep_host(k, o, err));
    for (uint32_t i = 0; i < o->sample.devices.n; i++) {
        PLIM_TRY(keep_device(k, w, i, err));
    }
    plim_vec_foreach (use, &o->sample.uses) {
        PLIM_TRY(keep_use(k, o, use, err));
    }
    PLIM_TRY(keep_unlisted(k, o, err));
    plim_vec_foreach (engine, &o->engines) {
        PLIM_TRY(keep_engine(k, engine, err));
    }
    plim_vec_foreach (happening, &o->happenings) {
        PLIM_TRY(keep_happening(k, o, happening, err));
    }
    for (size_t i = 0; i < w->n_findings; i++) {
        PLIM_TRY(keep_finding(k, o, &w->findings[i], err));
    }
    return PLIM_OK;
}

void plim__kept_fini(struct plim__kept *k)
{
    plim_map_fini(&k->labelled);
    plim_map_fini(&k->findings);
    plim_buf_fini(&k->labels);
}
