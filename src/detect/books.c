/* SPDX-License-Identifier: Apache-2.0 */

/* Who is observed, and what each holds: subjects of the newest observation. */

#include "detect/detect_int.h"

#include <stdio.h>

#define NOBODY     UINT32_MAX /* a device that is not followed */
#define PROCESS_NS (5 * PLIM_SECOND)
#define DEVICE_NS  (10 * PLIM_MINUTE)

/* FNV-1a, 64 bits. */
static uint64_t hash_text(const char *z)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *z != '\0'; z++) {
        h = (h ^ (unsigned char)*z) * UINT64_C(0x100000001b3);
    }
    return h;
}

static void device_name(const struct plim_device_sample *device, uint32_t index, char out[96])
{
    if (device->uuid[0] != '\0') {
        (void)snprintf(out, 96, "%s", device->uuid);
    } else if (device->pci[0] != '\0') {
        (void)snprintf(out, 96, "%s", device->pci);
    } else {
        (void)snprintf(out, 96, "#%u", index);
    }
}

static bool same(const struct plim_subject *a, const struct plim_subject *b)
{
    return a->pid == b->pid && a->start_ticks == b->start_ticks &&
           strcmp(a->device_uuid, b->device_uuid) == 0;
}

static uint64_t key_of(uint64_t device_key, uint32_t pid, uint64_t ticks)
{
    uint64_t key = plim_hash_u64(device_key ^ plim_hash_u64((uint64_t)pid << 32 ^ ticks));
    return key == PLIM_MAP_NO_KEY ? 0 : key;
}

uint64_t plim__subject_key(const struct plim_subject *subject)
{
    uint64_t device = key_of(hash_text(subject->device_uuid), 0, 0);
    return subject->pid == 0 ? device : key_of(device, subject->pid, subject->start_ticks);
}

enum plim_status plim__subject_add(struct plim_detector *d, const struct plim_subject *subject,
                                   uint64_t key, struct plim_err *err)
{
    struct plim_tracked fresh = {.subject = *subject,
                                 .key = key,
                                 .first_ns = d->now_ns,
                                 .first_step = d->step,
                                 .seen_ns = d->now_ns};
    PLIM_TRY(plim_map_put(&d->index, key, d->subjects.n, err));
    enum plim_status st = plim_vec_push(&d->subjects, err, fresh);
    if (st != PLIM_OK) {
        (void)plim_map_take(&d->index, key, NULL);
    }
    return st;
}

/* The subject, made when it is new; NULL when there are too many, or two with one key (never, in
 * practice). */
static enum plim_status track(struct plim_detector *d, const struct plim_subject *subject,
                              uint64_t key, struct plim_tracked **out, struct plim_err *err)
{
    const uint64_t *at = plim_map_get(&d->index, key);
    *out = NULL;
    if (at != NULL) {
        struct plim_tracked *t = &d->subjects.items[*at];
        *out = same(&t->subject, subject) ? t : NULL;
        return PLIM_OK;
    }
    if (d->subjects.n >= PLIM_SUBJECTS_MAX) {
        d->untracked++;
        return PLIM_OK;
    }
    PLIM_TRY(plim__subject_add(d, subject, key, err));
    *out = &d->subjects.items[d->subjects.n - 1];
    return PLIM_OK;
}

static void take_device(struct plim_tracked *t, const struct plim_device_sample *s)
{
    t->books_valid = s->state == PLIM_DEVICE_OK && plim_has_figure(s, PLIM_FIGURE_TOTAL) &&
                     plim_has_figure(s, PLIM_FIGURE_USED) && s->figure[PLIM_FIGURE_TOTAL] > 0;
    if (t->books_valid) {
        t->total = s->figure[PLIM_FIGURE_TOTAL];
        t->used = s->figure[PLIM_FIGURE_USED];
        t->reserved =
            plim_has_figure(s, PLIM_FIGURE_RESERVED) ? s->figure[PLIM_FIGURE_RESERVED] : 0;
        t->free = plim_has_figure(s, PLIM_FIGURE_FREE)
                      ? s->figure[PLIM_FIGURE_FREE]
                      : plim_sub_sat(t->total, plim_add_sat(t->used, t->reserved));
    }
}

static void drop(struct plim_tracked *t)
{
    for (int i = 0; i < PLIM_FOLLOWED; i++) {
        free(t->growing[i]);
    }
}

/* How long a subject may be out of sight: a process that a working device no longer lists is gone; a
 * device that is not listed may come back with its driver, and its processes with it. */
static bool gone(const struct plim_detector *d, const struct plim_tracked *t)
{
    const struct plim_tracked *on = plim__device_of(d, t->subject.device);
    bool told = t->subject.pid != 0 && on != NULL && on->books_valid &&
                strcmp(on->subject.device_uuid, t->subject.device_uuid) == 0;
    return d->now_ns - t->seen_ns > (told ? PROCESS_NS : DEVICE_NS);
}

/* Forget subjects that have been out of sight for too long. */
static void forget(struct plim_detector *d)
{
    for (size_t i = d->subjects.n; i-- > 0;) {
        struct plim_tracked *t = &d->subjects.items[i];
        if (plim__seen(d, t)) {
            t->seen_ns = d->now_ns;
            continue;
        }
        if (!gone(d, t)) {
            continue;
        }
        plim__level_note(d, t);
        plim__findings_end(d, t,
                           t->subject.pid != 0 ? "The process no longer uses the device."
                                               : "The device is no longer listed.");
        (void)plim_map_take(&d->index, t->key, NULL);
        drop(t);
        struct plim_tracked *last = &d->subjects.items[d->subjects.n - 1];
        if (t != last) {
            *t = *last;
            *plim_map_get(&d->index, t->key) = i;
            if (t->subject.pid == 0 && plim__seen(d, t)) {
                d->devices.items[t->subject.device] = (uint32_t)i;
            }
        }
        d->subjects.n--;
    }
}

void plim__books_free(struct plim_detector *d)
{
    plim_vec_foreach (t, &d->subjects) {
        drop(t);
    }
    plim_vec_fini(&d->subjects);
    plim_vec_fini(&d->devices);
    plim_map_fini(&d->index);
}

static enum plim_status take_devices(struct plim_detector *d, const struct plim_observation *o,
                                     struct plim_err *err)
{
    d->devices.n = 0;
    for (uint32_t i = 0; i < o->sample.devices.n; i++) {
        struct plim_tracked *t;
        struct plim_subject subject = {.device = i};
        device_name(&o->sample.devices.items[i], i, subject.device_uuid);
        PLIM_TRY(track(d, &subject, key_of(hash_text(subject.device_uuid), 0, 0), &t, err));
        if (t != NULL && t->seen_step != d->step) {
            t->seen_step = d->step;
            t->subject.device = i;
            t->now = (struct plim_holding){.load = -1};
            t->largest = (struct plim_largest){0};
            take_device(t, &o->sample.devices.items[i]);
        }
        PLIM_TRY(plim_vec_push(&d->devices, err,
                               t != NULL ? (uint32_t)(t - d->subjects.items) : NOBODY));
    }
    return PLIM_OK;
}

/* The process on the device, made when it is new; its holding is emptied once in a step. */
static enum plim_status track_process(struct plim_detector *d, uint32_t device, uint32_t pid,
                                      uint64_t ticks, struct plim_tracked **out,
                                      struct plim_err *err)
{
    const struct plim_tracked *on = plim__device_of(d, device);
    *out = NULL;
    if (on == NULL || pid == 0) {
        return PLIM_OK;
    }
    struct plim_subject subject = {.device = device, .pid = pid, .start_ticks = ticks};
    memcpy(subject.device_uuid, on->subject.device_uuid, sizeof(subject.device_uuid));
    PLIM_TRY(track(d, &subject, key_of(on->key, pid, ticks), out, err));
    if (*out != NULL && (*out)->seen_step != d->step) {
        (*out)->seen_step = d->step;
        (*out)->subject.device = device;
        (*out)->now = (struct plim_holding){.load = -1};
    }
    return PLIM_OK;
}

/* Facts are in the order of the uses, so the next one is usually the one wanted. */
static const struct plim_process_facts *facts_of(const struct plim_sample *sample, uint32_t pid,
                                                 size_t *cursor)
{
    for (size_t i = 0; i < sample->processes.n; i++) {
        size_t at = (*cursor + i) % sample->processes.n;
        if (sample->processes.items[at].pid == pid) {
            *cursor = at + 1;
            return &sample->processes.items[at];
        }
    }
    return NULL;
}

static enum plim_status take_uses(struct plim_detector *d, const struct plim_observation *o,
                                  struct plim_err *err)
{
    size_t cursor = 0;
    plim_vec_foreach (use, &o->sample.uses) {
        struct plim_tracked *t;
        const struct plim_process_facts *facts = facts_of(&o->sample, use->pid, &cursor);
        uint64_t ticks = facts != NULL ? facts->start_ticks : 0;
        PLIM_TRY(track_process(d, use->device, use->pid, ticks, &t, err));
        if (t != NULL) {
            if (facts != NULL) {
                memcpy(t->subject.process, facts->name, sizeof(t->subject.process));
                t->now.ppid = facts->ppid;
            }
            t->now.held_valid |= use->bytes_valid;
            t->now.counted_valid = t->now.held_valid;
            t->now.held = plim_add_sat(t->now.held, use->bytes_valid ? use->bytes : 0);
        }
    }
    return PLIM_OK;
}

static bool tells(const struct plim_allocator_now *a, enum plim_allocator_figure figure)
{
    return (a->valid >> figure & 1) != 0;
}

/* The only device of this observation on which the process is, when its allocator does not say. */
static uint32_t only_device(const struct plim_observation *o, uint32_t pid)
{
    uint32_t device = PLIM_NO_DEVICE;
    plim_vec_foreach (use, &o->sample.uses) {
        if (use->pid == pid) {
            if (device != PLIM_NO_DEVICE && device != use->device) {
                return PLIM_NO_DEVICE;
            }
            device = use->device;
        }
    }
    return device;
}

static void take_allocator(struct plim_holding *h, const struct plim_allocator_now *a)
{
    h->live_valid = true;
    h->live = plim_add_sat(h->live, a->figure[PLIM_ALLOCATOR_ALLOCATED]);
    h->reserved = plim_add_sat(h->reserved, a->figure[PLIM_ALLOCATOR_RESERVED]);
    if (tells(a, PLIM_ALLOCATOR_INACTIVE_SPLIT)) {
        h->stranded_valid = true;
        h->stranded = plim_add_sat(h->stranded, a->figure[PLIM_ALLOCATOR_INACTIVE_SPLIT]);
    }
    if (tells(a, PLIM_ALLOCATOR_RETRIES)) {
        h->retries_valid = true;
        h->retries = plim_add_sat(h->retries, a->figure[PLIM_ALLOCATOR_RETRIES]);
    }
    if (tells(a, PLIM_ALLOCATOR_OOMS)) {
        h->ooms_valid = true;
        h->ooms = plim_add_sat(h->ooms, a->figure[PLIM_ALLOCATOR_OOMS]);
    }
}

static enum plim_status take_allocators(struct plim_detector *d, const struct plim_observation *o,
                                        struct plim_err *err)
{
    plim_vec_foreach (a, &o->allocators) {
        struct plim_tracked *t;
        uint32_t device = a->device != PLIM_NO_DEVICE ? a->device : only_device(o, a->pid);
        if (a->stale || !tells(a, PLIM_ALLOCATOR_ALLOCATED) || !tells(a, PLIM_ALLOCATOR_RESERVED)) {
            continue;
        }
        PLIM_TRY(track_process(d, device, a->pid, a->start_ticks, &t, err));
        if (t != NULL) {
            take_allocator(&t->now, a);
        }
    }
    return PLIM_OK;
}

/* Requests of the engine that runs in this process or started it, or else how busy the device is; and
 * whether that engine sleeps. */
static void take_load(struct plim_tracked *t, const struct plim_observation *o)
{
    const struct plim_device_sample *s = &o->sample.devices.items[t->subject.device];
    const uint64_t running = UINT64_C(1) << PLIM_ENGINE_FIGURE_RUNNING;
    if (plim_has_figure(s, PLIM_FIGURE_BUSY)) {
        t->now.load = (double)s->figure[PLIM_FIGURE_BUSY];
    }
    plim_vec_foreach (e, &o->engines) {
        bool mine = e->pid != 0 && (e->pid == t->subject.pid || e->pid == t->now.ppid);
        if (mine && e->up && (e->valid & running) != 0) {
            t->now.load = t->now.served ? t->now.load : 0;
            t->now.load += e->figure[PLIM_ENGINE_FIGURE_RUNNING];
            t->now.served = true;
        }
        t->now.asleep |= mine && (e->valid >> PLIM_ENGINE_FIGURE_ASLEEP & 1) != 0 &&
                         e->figure[PLIM_ENGINE_FIGURE_ASLEEP] > 0;
    }
}

/* What follows from the figures of a process, and its part in its device's books. */
static void finish_process(struct plim_detector *d, struct plim_tracked *t)
{
    struct plim_holding *h = &t->now;
    struct plim_tracked *on = plim__device_of(d, t->subject.device);
    h->outside_valid = h->held_valid && h->live_valid && h->held >= h->reserved;
    h->outside = h->outside_valid ? h->held - h->reserved : 0;
    if (!h->held_valid && h->live_valid) {
        h->held = h->reserved;
        h->held_valid = true;
    }
    if (h->held_valid) {
        on->largest.users++;
        if (h->held > on->largest.bytes) {
            on->largest.bytes = h->held;
            on->largest.pid = t->subject.pid;
        }
    }
}

static void take_happenings(struct plim_detector *d, const struct plim_observation *o)
{
    plim_vec_foreach (h, &o->happenings) {
        if (h->kind == PLIM_HAPPENED_DEPLOYED) {
            d->deployed_ns = d->now_ns;
            (void)snprintf(d->deployed, sizeof(d->deployed), "%.63s", h->text);
        }
    }
}

enum plim_status plim__books(struct plim_detector *d, const struct plim_observation *o,
                             struct plim_err *err)
{
    PLIM_TRY(take_devices(d, o, err));
    PLIM_TRY(take_uses(d, o, err));
    PLIM_TRY(take_allocators(d, o, err));
    forget(d);
    plim_vec_foreach (t, &d->subjects) {
        if (plim__seen(d, t)) {
            take_load(t, o);
        }
        if (plim__seen(d, t) && t->subject.pid != 0) {
            finish_process(d, t);
        }
    }
    take_happenings(d, o);
    return PLIM_OK;
}

struct plim_tracked *plim__device_of(const struct plim_detector *d, uint32_t device)
{
    bool known = device < d->devices.n && d->devices.items[device] != NOBODY;
    return known ? &d->subjects.items[d->devices.items[device]] : NULL;
}
