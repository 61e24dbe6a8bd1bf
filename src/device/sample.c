/* SPDX-License-Identifier: Apache-2.0 */

/* The books of a sample. See sample.h. */

#include "device/sample.h"

#include "base/num.h"

#include <string.h>

const char *plim_figure_key(enum plim_figure figure)
{
    static const char *const keys[] = {
#define PLIM__X(name, key) key,
        PLIM_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)figure < PLIM_FIGURE_COUNT ? keys[figure] : "unknown";
}

const char *plim_device_state_text(enum plim_device_state state)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_DEVICE_STATE_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)state < PLIM_DEVICE_STATES ? texts[state] : "unknown";
}

const char *plim_vendor_text(enum plim_vendor_kind vendor)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_VENDOR_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)vendor < PLIM_VENDORS ? texts[vendor] : "unknown";
}

void plim_sample_fini(struct plim_sample *sample)
{
    plim_vec_fini(&sample->devices);
    plim_vec_fini(&sample->uses);
    plim_vec_fini(&sample->processes);
}

void plim_sample_reset(struct plim_sample *sample)
{
    sample->devices.n = sample->uses.n = sample->processes.n = 0;
    sample->time_ns = sample->host_total = sample->host_available = 0;
}

enum plim_status plim_sample_add_use(struct plim_sample *sample, const struct plim_process_use *use,
                                     struct plim_err *err)
{
    plim_vec_foreach (old, &sample->uses) {
        if (old->device == use->device && old->pid == use->pid &&
            old->gpu_instance == use->gpu_instance &&
            old->compute_instance == use->compute_instance) {
            old->kinds |= use->kinds;
            if (use->bytes_valid && (!old->bytes_valid || use->bytes > old->bytes)) {
                old->bytes = use->bytes;
                old->bytes_valid = true;
            }
            return PLIM_OK;
        }
    }
    return plim_vec_push(&sample->uses, err, *use);
}

/*
 * Which of total, free, used and reserved are believed: total first, then free, because drivers
 * agree on what these mean. `used` has been printed with and without `reserved` in it (NVML changed
 * its mind), so it is computed wherever free is known.
 */
static void balance_device(struct plim_device_sample *d)
{
    uint64_t total = d->figure[PLIM_FIGURE_TOTAL], free = d->figure[PLIM_FIGURE_FREE];
    uint64_t used = d->figure[PLIM_FIGURE_USED];
    bool has_free = plim_has_figure(d, PLIM_FIGURE_FREE);
    bool has_used = plim_has_figure(d, PLIM_FIGURE_USED);
    bool has_reserved = plim_has_figure(d, PLIM_FIGURE_RESERVED);
    uint64_t reserved = has_reserved ? d->figure[PLIM_FIGURE_RESERVED] : 0;
    if (!plim_has_figure(d, PLIM_FIGURE_TOTAL) || (!has_free && !has_used)) {
        return;
    }
    if (has_free && free > total) {
        d->odd = true;
        has_free = has_used;
        free = plim_sub_sat(total, used);
    }
    if (!has_free) {
        d->odd = d->odd || used > total;
        free = plim_sub_sat(plim_sub_sat(total, used), reserved);
    }
    if (reserved > total - free) {
        d->odd = true;
        reserved = total - free;
    }
    uint64_t held = total - free - reserved;
    /* Both readings of the driver's own figure are fine; anything else is odd. */
    d->odd = d->odd || (has_used && used != held && used != held + reserved);
    plim_set_figure(d, PLIM_FIGURE_FREE, free);
    plim_set_figure(d, PLIM_FIGURE_USED, held);
    if (has_reserved) {
        plim_set_figure(d, PLIM_FIGURE_RESERVED, reserved);
    }
}

void plim_sample_balance(struct plim_sample *sample)
{
    plim_vec_foreach (d, &sample->devices) {
        balance_device(d);
    }
    /* Lists and totals are read one after the other: a process may have grown in between, or share
     * memory that is listed twice. What does not fit into `used` is not counted. */
    for (uint32_t i = 0; i < sample->devices.n; i++) {
        struct plim_device_sample *d = &sample->devices.items[i];
        uint64_t left = plim_has_figure(d, PLIM_FIGURE_USED) ? d->figure[PLIM_FIGURE_USED] : 0;
        bool known = plim_has_figure(d, PLIM_FIGURE_USED);
        plim_vec_foreach (use, &sample->uses) {
            if (use->device == i) {
                uint64_t bytes = use->bytes_valid ? use->bytes : 0;
                use->counted = known ? plim_min_u64(bytes, left) : bytes;
                d->odd = d->odd || use->counted != bytes;
                left -= known ? use->counted : 0;
            }
        }
    }
}

bool plim_sample_unknown(const struct plim_sample *sample, uint32_t device, uint64_t *bytes)
{
    if (device >= sample->devices.n ||
        !plim_has_figure(&sample->devices.items[device], PLIM_FIGURE_USED)) {
        return false;
    }
    uint64_t left = sample->devices.items[device].figure[PLIM_FIGURE_USED];
    plim_vec_foreach (use, &sample->uses) {
        left -= use->device == device ? plim_min_u64(use->counted, left) : 0;
    }
    *bytes = left;
    return true;
}

static bool check_device(const struct plim_sample *sample, uint32_t index)
{
    const struct plim_device_sample *d = &sample->devices.items[index];
    uint64_t sum = 0, counted = 0;
    if (!plim_has_figure(d, PLIM_FIGURE_USED)) {
        return true;
    }
    plim_vec_foreach (use, &sample->uses) {
        if (use->device == index && plim_add_overflows(counted, use->counted, &counted)) {
            return false;
        }
    }
    uint64_t reserved =
        plim_has_figure(d, PLIM_FIGURE_RESERVED) ? d->figure[PLIM_FIGURE_RESERVED] : 0;
    if (counted > d->figure[PLIM_FIGURE_USED]) {
        return false;
    }
    if (!plim_has_figure(d, PLIM_FIGURE_TOTAL) || !plim_has_figure(d, PLIM_FIGURE_FREE)) {
        return true;
    }
    return !plim_add_overflows(d->figure[PLIM_FIGURE_USED], d->figure[PLIM_FIGURE_FREE], &sum) &&
           !plim_add_overflows(sum, reserved, &sum) && sum == d->figure[PLIM_FIGURE_TOTAL];
}

bool plim_sample_check(const struct plim_sample *sample)
{
    for (uint32_t i = 0; i < sample->devices.n; i++) {
        const struct plim_device_sample *d = &sample->devices.items[i];
        if (!check_device(sample, i) || (d->parent != PLIM_NO_PARENT && d->parent >= i)) {
            return false;
        }
    }
    plim_vec_foreach (use, &sample->uses) {
        if (use->device >= sample->devices.n) {
            return false;
        }
    }
    return true;
}

const struct plim_process_facts *plim_sample_process(const struct plim_sample *sample, uint32_t pid)
{
    plim_vec_foreach (p, &sample->processes) {
        if (p->pid == pid) {
            return p;
        }
    }
    return NULL;
}
