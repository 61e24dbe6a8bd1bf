/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's side as a recorder saw it: what this process holds outside its allocator, by owner, and
 * from the driver's last word about the device what others hold.
 *
 * That word is older than the moment that is judged: what the recorded processes took and gave back since
 * then is added to it. What somebody said on the command line or in a message counts more.
 */

#include "diagnose/diagnose.h"

#include "base/num.h"

static uint64_t held(const struct plim_outside_sums *s)
{
    return plim_add_sat(plim_add_sat(s->allocator, s->outside), s->others);
}

/* Bytes of the device in use at the moment, from the last sample. */
static uint64_t used_now(const struct plim_outside_sums *now, const struct plim_outside_sums *then)
{
    uint64_t used = plim_add_sat(now->sample.used, held(now));
    return plim_min_u64(plim_sub_sat(used, held(then)), now->sample.total);
}

static void set(struct plim_amount *fact, uint64_t bytes, enum plim_how how)
{
    if (!plim_known(*fact)) {
        *fact = plim_amount(bytes, how);
    }
}

/* What the driver counts for this process and no call accounts for: contexts of before, lazy loading. */
static uint64_t not_attributed(const struct plim_outside_sums *then)
{
    uint64_t known = plim_add_sat(then->allocator, then->outside);
    return then->sample.mine == UINT64_MAX ? 0 : plim_sub_sat(then->sample.mine, known);
}

void plim__outside_facts(const struct plim_device *device, enum plim_level level,
                         struct plim_diagnosis *d)
{
    const struct plim_outside *o = &device->outside;
    struct plim_facts *f = &d->facts;
    if (!o->known) {
        return;
    }
    struct plim_outside_sums now = plim_outside_at(o, d->position), then = now;
    enum plim_how how = o->lost > 0 ? PLIM_HOW_ESTIMATED : PLIM_HOW_MEASURED;
    uint64_t rest = 0;
    for (unsigned owner = 0; owner < PLIM_OWNERS; owner++) {
        if ((o->allocator >> owner & 1u) == 0) {
            d->set.ledger.part[owner] = plim_amount(now.bytes[owner], how);
        }
    }
    if (now.has_sample) {
        set(&f->total, now.sample.total, PLIM_HOW_MEASURED);
    }
    if (now.has_sample && now.sample.used != UINT64_MAX) {
        then = plim_outside_at(o, now.sample.position);
        rest = not_attributed(&then);
        uint64_t reserved =
            level == PLIM_LEVEL_BLOCKS ? d->fragmentation.all.reserved : now.allocator;
        set(&f->external, plim_sub_sat(used_now(&now, &then), reserved), PLIM_HOW_COMPUTED);
    } else if (now.others > 0) {
        set(&f->others, now.others, how);
    }
    struct plim_amount *unknown = &d->set.ledger.part[PLIM_OWNER_UNKNOWN];
    unknown->bytes += rest;
    unknown->how = rest > 0 ? PLIM_HOW_COMPUTED : unknown->how;
    set(&f->process_other, plim_add_sat(now.outside, rest), how);
}
