/* SPDX-License-Identifier: Apache-2.0 */

/* Who is observed, and what each holds: subjects of the newest observation. */

#include "detect/detect_int.h"

#include <stdio.h>

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

/* The subject, made when it is new; NULL when there are too many, or two with one key (never, in
 * practice). */
static enum plim_status track(struct plim_detector *d, const struct plim_subject *subject,
                              struct plim_tracked **out, struct plim_err *err)
{
    uint64_t key =
        plim_hash_u64(hash_text(subject->device_uuid) ^
                      plim_hash_u64((uint64_t)subject->pid << 32 ^ subject->start_ticks));
    key = key == PLIM_MAP_NO_KEY ? 0 : key;
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
    struct plim_tracked fresh = {
        .subject = *subject, .key = key, .first_ns = d->now_ns, .first_time_ns = d->time_ns};
    PLIM_TRY(plim_map_put(&d->index, key, d->subjects.n, err));
    enum plim_status st = plim_vec_push(&d->subjects, err, fresh);
    if (st != PLIM_OK) {
        (void)plim_map_take(&d->index, key, NULL);
        return st;
    }
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

/* Forget subjects that were not seen in this step; a device stays for as long as it has findings, so that
 * its return can end them. */
static void forget(struct plim_detector *d)
{
    for (size_t i = d->subjects.n; i-- > 0;) {
        struct plim_tracked *t = &d->subjects.items[i];
        if (t->seen_step == d->step) {
            continue;
        }
        plim__findings_end(d, t,
                           t->subject.pid != 0 ? "The process no longer uses the device."
                                               : "The device is no longer listed.");
        (void)plim_map_take(&d->index, t->key, NULL);
        struct plim_tracked *last = &d->subjects.items[d->subjects.n - 1];
        if (t != last) {
            *t = *last;
            *plim_map_get(&d->index, t->key) = i;
        }
        d->subjects.n--;
    }
}

enum plim_status plim__books(struct plim_detector *d, const struct plim_observation *o,
                             struct plim_err *err)
{
    for (uint32_t i = 0; i < o->sample.devices.n; i++) {
        struct plim_tracked *t;
        struct plim_subject subject = {.device = i};
        device_name(&o->sample.devices.items[i], i, subject.device_uuid);
        PLIM_TRY(track(d, &subject, &t, err));
        if (t != NULL) {
            t->seen_step = d->step;
            t->subject.device = i;
            take_device(t, &o->sample.devices.items[i]);
        }
    }
    forget(d);
    return PLIM_OK;
}

struct plim_tracked *plim__device_of(const struct plim_detector *d, uint32_t device)
{
    plim_vec_foreach (t, &d->subjects) {
        if (t->subject.pid == 0 && t->subject.device == device && t->seen_step == d->step) {
            return t;
        }
    }
    return NULL;
}
