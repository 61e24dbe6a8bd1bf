/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What happened since the observation before: an observer that remembers who used which device, and
 * in what state the devices were.
 *
 *   process   begins when a device lists it, ends when a device that answers lists it no longer. Those
 *             of the first observation were there before: they begin unsaid
 *   device    is lost when it hangs, fails or is no longer there, and back when it answers again.
 *             When all devices of a vendor were gone together, its driver was restarted
 *   clock     steps when the time since 1970 moves against the time since boot by more than STEP_NS
 *
 * Cost: O(n log n) of the uses, some bytes for each.
 */

#include "observe/collect.h"

#include "base/clock.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STEP_NS (PLIM_SECOND_NS / 2)

/* A process on a device. */
struct user {
    uint32_t device; /* index in `devices` below */
    uint32_t pid;
    uint64_t start_ticks; /* 0: /proc does not tell, or no longer */
    uint64_t since_ns;    /* boot time at which it began */
    char name[16];
};

struct known_device {
    char key[96]; /* its uuid, PCI address, or place */
    char name[96];
    enum plim_vendor_kind vendor;
    uint32_t index; /* in the newest sample, or NO_DEVICE: it is not there */
    bool lost;
    bool answers; /* its list of processes can be believed */
    uint64_t xids;
    bool xids_known;
};

struct users {
    struct user *items; /* as of a PLIM_VEC */
    size_t n, cap;
};

struct happened {
    PLIM_VEC(struct known_device) devices;
    struct users before, now; /* sorted: device, pid, start */
    int64_t offset_ns;        /* time since 1970 less time since boot */
    bool first;
};

static enum plim_status happened_open(const struct plim_collect_options *options, void **self,
                                      struct plim_err *err)
{
    (void)options;
    struct happened *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for happenings");
    }
    h->first = true;
    *self = h;
    return PLIM_OK;
}

static void happened_close(void *self)
{
    struct happened *h = self;
    plim_vec_fini(&h->devices);
    plim_vec_fini(&h->before);
    plim_vec_fini(&h->now);
    free(h);
}

static enum plim_status say(struct plim_observation *out, struct plim_happening what,
                            const char *text, struct plim_err *err)
{
    what.time_ns = what.time_ns != 0 ? what.time_ns : out->sample.time_ns;
    (void)snprintf(what.text, sizeof(what.text), "%s", text);
    return plim_vec_push(&out->happenings, err, what);
}

/* ---- devices ---- */

static void key_of(const struct plim_device_sample *d, uint32_t index, char key[96])
{
    if (d->uuid[0] != '\0' || d->pci[0] != '\0') {
        (void)snprintf(key, 96, "%s", d->uuid[0] != '\0' ? d->uuid : d->pci);
    } else {
        (void)snprintf(key, 96, "device-%u", index);
    }
}

static enum plim_status find_device(struct happened *h, const struct plim_device_sample *d,
                                    uint32_t index, struct known_device **out, struct plim_err *err)
{
    struct known_device fresh = {.vendor = d->vendor, .index = index};
    key_of(d, index, fresh.key);
    (void)snprintf(fresh.name, sizeof(fresh.name), "%s", d->name);
    plim_vec_foreach (k, &h->devices) {
        if (strcmp(k->key, fresh.key) == 0) {
            *out = k;
            return PLIM_OK;
        }
    }
    PLIM_TRY(plim_vec_push(&h->devices, err, fresh));
    *out = &h->devices.items[h->devices.n - 1];
    return PLIM_OK;
}

static bool is_lost(enum plim_device_state state)
{
    return state == PLIM_DEVICE_LOST || state == PLIM_DEVICE_HUNG || state == PLIM_DEVICE_ERROR;
}

static enum plim_status take_xids(struct known_device *k, const struct plim_device_sample *d,
                                  struct plim_observation *out, struct plim_err *err)
{
    uint64_t xids = d->figure[PLIM_FIGURE_XIDS], before = k->xids;
    bool known = k->xids_known;
    char text[64];
    if (!plim_has_figure(d, PLIM_FIGURE_XIDS)) {
        return PLIM_OK;
    }
    k->xids = xids;
    k->xids_known = true;
    if (xids <= before || (!known && xids == 0)) {
        return PLIM_OK;
    }
    struct plim_happening what = {
        .kind = PLIM_HAPPENED_XID, .device = k->index, .value = d->figure[PLIM_FIGURE_LAST_XID]};
    (void)snprintf(text, sizeof(text), "the last of %llu", (unsigned long long)(xids - before));
    return say(out, what, xids - before > 1 ? text : "", err);
}

/* The state of one device that the sample has. */
static enum plim_status take_device(struct happened *h, uint32_t index,
                                    struct plim_observation *out, struct plim_err *err)
{
    const struct plim_device_sample *d = &out->sample.devices.items[index];
    struct known_device *k;
    PLIM_TRY(find_device(h, d, index, &k, err));
    k->index = index;
    k->answers = d->state == PLIM_DEVICE_OK;
    return take_xids(k, d, out, err);
}

/* Say which devices were lost and which came back. */
static enum plim_status compare_devices(struct happened *h, struct plim_observation *out,
                                        struct plim_err *err)
{
    unsigned had[PLIM_VENDORS] = {0}, back[PLIM_VENDORS] = {0};
    plim_vec_foreach (k, &h->devices) {
        bool lost =
            k->index == PLIM_NO_DEVICE || is_lost(out->sample.devices.items[k->index].state);
        had[k->vendor]++;
        back[k->vendor] += k->lost && !lost;
        if (lost != k->lost) {
            struct plim_happening what = {.kind = lost ? PLIM_HAPPENED_DEVICE_LOST
                                                       : PLIM_HAPPENED_DEVICE_BACK,
                                          .device = k->index};
            PLIM_TRY(say(out, what, k->name[0] != '\0' ? k->name : k->key, err));
        }
        k->lost = lost;
    }
    for (unsigned v = 0; v < PLIM_VENDORS; v++) {
        if (had[v] > 1 && back[v] == had[v]) {
            struct plim_happening what = {.kind = PLIM_HAPPENED_DRIVER, .device = PLIM_NO_DEVICE};
            PLIM_TRY(say(out, what, plim_vendor_text((enum plim_vendor_kind)v), err));
        }
    }
    return PLIM_OK;
}

/* ---- processes ---- */

static int by_user(const void *one, const void *other)
{
    const struct user *a = one, *b = other;
    return a->device != b->device ? (a->device < b->device ? -1 : 1)
           : a->pid != b->pid     ? (a->pid < b->pid ? -1 : 1)
                                  : 0;
}

/* Boot time at which a process was started; now when it is not known. */
static uint64_t born(const struct plim_process_facts *p, uint64_t now)
{
    uint64_t tick = PLIM_SECOND_NS / (uint64_t)sysconf(_SC_CLK_TCK);
    return p != NULL && p->start_ticks != 0 ? plim_min_u64(p->start_ticks * tick, now) : now;
}

static enum plim_status list_users(struct happened *h, const struct plim_observation *out,
                                   struct plim_err *err)
{
    h->now.n = 0;
    plim_vec_foreach (use, &out->sample.uses) {
        const struct plim_process_facts *p = plim_sample_process(&out->sample, use->pid);
        struct user u = {.pid = use->pid, .since_ns = out->mono_ns};
        while (u.device < h->devices.n && h->devices.items[u.device].index != use->device) {
            u.device++;
        }
        u.start_ticks = p != NULL ? p->start_ticks : 0;
        u.since_ns = h->first ? born(p, out->mono_ns) : u.since_ns;
        (void)snprintf(u.name, sizeof(u.name), "%s", p != NULL ? p->name : "");
        PLIM_TRY(plim_vec_push(&h->now, err, u));
    }
    if (h->now.n > 1) {
        qsort(h->now.items, h->now.n, sizeof(struct user), by_user);
    }
    size_t kept = h->now.n > 0;
    for (size_t i = 1; i < h->now.n; i++) { /* several instances of one device are one use here */
        if (by_user(&h->now.items[i], &h->now.items[kept - 1]) != 0) {
            h->now.items[kept++] = h->now.items[i];
        }
    }
    h->now.n = kept;
    return PLIM_OK;
}

static enum plim_status say_user(const struct happened *h, const struct user *u, bool started,
                                 struct plim_observation *out, struct plim_err *err)
{
    struct plim_happening what = {
        .kind = started ? PLIM_HAPPENED_STARTED : PLIM_HAPPENED_ENDED,
        .device = u->device < h->devices.n ? h->devices.items[u->device].index : PLIM_NO_DEVICE,
        .pid = u->pid,
        .start_ticks = u->start_ticks,
        .value = started ? 0 : plim_sub_sat(out->mono_ns, u->since_ns)};
    return say(out, what, u->name, err);
}

/* The same process in both lists. One that ends loses its facts before the driver lets go of it. */
static void carry(const struct user *old, struct user *u)
{
    u->since_ns = old->since_ns;
    if (u->start_ticks == 0) {
        u->start_ticks = old->start_ticks;
        memcpy(u->name, old->name, sizeof(u->name));
    }
}

/* One that is listed no longer: it ended, unless its device does not answer. */
static enum plim_status missed(struct happened *h, const struct user *old,
                               struct plim_observation *out, struct plim_err *err)
{
    if (old->device < h->devices.n && !h->devices.items[old->device].answers) {
        return plim_vec_push(&h->now, err, *old); /* behind the others; sorted in the end */
    }
    return say_user(h, old, false, out, err);
}

static enum plim_status compare_users(struct happened *h, struct plim_observation *out,
                                      struct plim_err *err)
{
    size_t i = 0, k = 0, n = h->now.n;
    while (i < h->before.n || k < n) {
        const struct user *old = i < h->before.n ? &h->before.items[i] : NULL;
        struct user *u = k < n ? &h->now.items[k] : NULL;
        int order = old == NULL ? 1 : u == NULL ? -1 : by_user(old, u);
        bool other = order == 0 && old->start_ticks != 0 && u->start_ticks != 0 &&
                     old->start_ticks != u->start_ticks;
        if (order == 0 && !other) {
            carry(old, u);
        } else if (order >= 0 && !h->first) {
            PLIM_TRY(say_user(h, u, true, out, err));
        }
        if (order < 0 || other) {
            PLIM_TRY(missed(h, old, out, err));
        }
        i += order <= 0;
        k += order >= 0;
    }
    if (h->now.n > n) {
        qsort(h->now.items, h->now.n, sizeof(struct user), by_user);
    }
    struct users swap = h->before;
    h->before = h->now;
    h->now = swap;
    return PLIM_OK;
}

/* ---- the clock ---- */

static enum plim_status compare_clocks(struct happened *h, struct plim_observation *out,
                                       struct plim_err *err)
{
    int64_t offset = (int64_t)(out->sample.time_ns - out->mono_ns);
    int64_t step = offset - h->offset_ns;
    char text[64];
    h->offset_ns = offset;
    if (h->first || (step < (int64_t)STEP_NS && step > -(int64_t)STEP_NS)) {
        return PLIM_OK;
    }
    struct plim_happening what = {.kind = PLIM_HAPPENED_CLOCK, .device = PLIM_NO_DEVICE};
    (void)snprintf(text, sizeof(text), "set %s by %.1f s", step > 0 ? "forward" : "back",
                   (double)(step > 0 ? step : -step) / 1e9);
    return say(out, what, text, err);
}

static int by_time(const void *one, const void *other)
{
    const struct plim_happening *a = one, *b = other;
    return a->time_ns != b->time_ns ? (a->time_ns < b->time_ns ? -1 : 1)
           : a->kind != b->kind     ? (a->kind < b->kind ? -1 : 1)
           : a->device != b->device ? (a->device < b->device ? -1 : 1)
           : a->pid != b->pid       ? (a->pid < b->pid ? -1 : 1)
                                    : 0;
}

static enum plim_status happened_take(void *self, struct plim_observation *out,
                                      struct plim_err *err)
{
    struct happened *h = self;
    plim_vec_foreach (k, &h->devices) {
        k->index = PLIM_NO_DEVICE;
        k->answers = false;
    }
    for (uint32_t i = 0; i < out->sample.devices.n; i++) {
        PLIM_TRY(take_device(h, i, out, err));
    }
    PLIM_TRY(compare_devices(h, out, err));
    PLIM_TRY(list_users(h, out, err));
    PLIM_TRY(compare_users(h, out, err));
    PLIM_TRY(compare_clocks(h, out, err));
    if (out->happenings.n > 1) {
        qsort(out->happenings.items, out->happenings.n, sizeof(struct plim_happening), by_time);
    }
    h->first = false;
    return PLIM_OK;
}

const struct plim_observer plim__observer_happened = {
    .name = "happenings", .open = happened_open, .take = happened_take, .close = happened_close};
