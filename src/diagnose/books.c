/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of a snapshot at one moment. The allocator's side is measured from blocks and segments;
 * the device's side comes from the failure's own record of free bytes, from the message, or from the
 * user, in this order of trust: measured, message, given.
 */

#include "diagnose/diagnose.h"

#include "base/num.h"

/* A CUDA context with its kernels takes 0.2 to 0.7 GiB, with many libraries up to about 1.2 GiB. */
#define USUAL_CONTEXT (UINT64_C(500) * PLIM_MIB)
#define LARGE_CONTEXT (UINT64_C(1200) * PLIM_MIB)

static struct plim_amount measured(uint64_t bytes)
{
    return plim_amount(bytes, PLIM_HOW_MEASURED);
}

static void fill_allocator_side(struct plim_diagnosis *d)
{
    struct plim_ledger *l = &d->set.ledger;
    const struct plim_fragmentation *f = &d->fragmentation;
    uint64_t live = f->all.allocated + f->all.pending;
    uint64_t private_free = f->private_.stranded + f->private_.releasable;
    l->allocated = measured(live);
    l->reserved = measured(f->all.reserved);
    l->owner[PLIM_OWNER_LIVE] = measured(f->all.requested);
    l->owner[PLIM_OWNER_ROUNDING] = measured(plim_sub_sat(live, f->all.requested));
    l->owner[PLIM_OWNER_STRANDED] = measured(f->normal.stranded);
    l->owner[PLIM_OWNER_RELEASABLE] = measured(f->normal.releasable);
    if (f->private_.segments > 0) {
        l->owner[PLIM_OWNER_PRIVATE_FREE] = measured(private_free);
    }
}

/*
 * The message tells of a failure that the trace does not have, and of far other bytes handed out than the
 * heap has: the snapshot was taken after what failed had been freed. The message's figures are then the
 * ones of the failure. All slack was stranded: what was releasable had been given back before it failed.
 */
static void take_message_figures(struct plim_diagnosis *d)
{
    const struct plim_facts *facts = &d->facts;
    struct plim_ledger *l = &d->set.ledger;
    uint64_t reserved = plim_known(facts->reserved) ? facts->reserved.bytes : l->reserved.bytes;
    if (!d->failure.told || !plim_known(facts->allocated) ||
        plim_add_sat(l->allocated.bytes, facts->tolerance) >= facts->allocated.bytes) {
        return;
    }
    d->too_late = true;
    l->allocated = facts->allocated;
    l->reserved = plim_known(facts->reserved) ? facts->reserved : l->reserved;
    l->owner[PLIM_OWNER_LIVE] = facts->allocated;
    l->owner[PLIM_OWNER_ROUNDING] = plim_amount(0, PLIM_HOW_UNKNOWN);
    l->owner[PLIM_OWNER_STRANDED] =
        plim_amount(plim_sub_sat(reserved, facts->allocated.bytes), PLIM_HOW_COMPUTED);
    l->owner[PLIM_OWNER_RELEASABLE] = plim_amount(0, PLIM_HOW_COMPUTED);
    l->owner[PLIM_OWNER_PRIVATE_FREE] = plim_amount(0, PLIM_HOW_UNKNOWN);
}

/* Free bytes of the device: recorded with the failure, else from the facts, else what must be left. */
static struct plim_amount free_bytes(const struct plim_facts *facts, const struct plim_diagnosis *d)
{
    uint64_t reserved = d->set.ledger.reserved.bytes;
    if (d->failure.happened && d->failure.device_free != PLIM_FREE_NOT_RECORDED) {
        return measured(d->failure.device_free);
    }
    if (plim_known(facts->free) && d->failure.happened) {
        return facts->free;
    }
    if (plim_known(facts->total) && plim_known(facts->external)) {
        uint64_t used = plim_add_sat(reserved, facts->external.bytes);
        return plim_amount(plim_sub_sat(facts->total.bytes, used), PLIM_HOW_COMPUTED);
    }
    return plim_amount(0, PLIM_HOW_UNKNOWN);
}

/* Bytes used outside the allocator, by anybody. */
static struct plim_amount external_bytes(const struct plim_facts *facts, uint64_t reserved,
                                         struct plim_amount free)
{
    if (plim_known(facts->total) && plim_known(free)) {
        uint64_t ours = plim_add_sat(reserved, free.bytes);
        return plim_amount(plim_sub_sat(facts->total.bytes, ours), PLIM_HOW_COMPUTED);
    }
    return facts->external;
}

/* `part` of external bytes, never more than all of them: figures of messages are rounded. */
static struct plim_amount part_of(struct plim_amount external, struct plim_amount part)
{
    return plim_amount(plim_min_u64(part.bytes, external.bytes), part.how);
}

/* Split external bytes between this process and others, as far as the facts go. */
static void split_external(const struct plim_facts *facts, struct plim_amount external,
                           struct plim_ledger *l)
{
    struct plim_amount *mine = &l->owner[PLIM_OWNER_PROCESS_OTHER];
    struct plim_amount *others = &l->owner[PLIM_OWNER_OTHER_PROCESSES];
    uint64_t context = external.bytes <= LARGE_CONTEXT ? external.bytes : USUAL_CONTEXT;
    if (!plim_known(external)) {
        *mine = facts->process_other;
        *others = facts->others;
        return;
    }
    if (!plim_known(facts->process_other) && plim_known(facts->others)) {
        *others = part_of(external, facts->others);
        *mine = plim_amount(external.bytes - others->bytes, PLIM_HOW_COMPUTED);
        return;
    }
    *mine = plim_known(facts->process_other) ? part_of(external, facts->process_other)
                                             : plim_amount(context, PLIM_HOW_ESTIMATED);
    if (!plim_known(facts->others) && external.bytes - mine->bytes <= facts->tolerance) {
        mine->bytes = external.bytes; /* what is left is the rounding of the message's figures */
    }
    *others = plim_amount(external.bytes - mine->bytes,
                          mine->how == PLIM_HOW_ESTIMATED ? PLIM_HOW_ESTIMATED : PLIM_HOW_COMPUTED);
}

/* What the owners leave over of the total. Only when all of the device is known. */
static void fill_unaccounted(struct plim_ledger *l)
{
    uint64_t sum = 0;
    if (!plim_known(l->total) || !plim_known(l->owner[PLIM_OWNER_FREE])) {
        return;
    }
    for (int i = 0; i < PLIM_OWNER_UNACCOUNTED; i++) {
        sum = plim_add_sat(sum, plim_known(l->owner[i]) ? l->owner[i].bytes : 0);
    }
    l->owner[PLIM_OWNER_UNACCOUNTED] =
        plim_amount(plim_sub_sat(l->total.bytes, sum), PLIM_HOW_COMPUTED);
}

void plim__books_fill(enum plim_level level, struct plim_diagnosis *d)
{
    const struct plim_facts *facts = &d->facts;
    struct plim_ledger *l = &d->set.ledger;
    fill_allocator_side(d);
    take_message_figures(d);
    if (level == PLIM_LEVEL_ALLOCATOR) { /* its cache is in it */
        l->owner[PLIM_OWNER_LIVE].how = PLIM_HOW_ESTIMATED;
    }
    l->total = facts->total;
    l->owner[PLIM_OWNER_FREE] = free_bytes(facts, d);
    split_external(facts, external_bytes(facts, l->reserved.bytes, l->owner[PLIM_OWNER_FREE]), l);
    l->capacity = plim_known(facts->total) ? facts->total : facts->cap;
    if (plim_known(facts->cap) && facts->cap.bytes < l->capacity.bytes) {
        l->capacity = facts->cap;
    }
    if (d->failure.happened) {
        l->request = plim_amount(d->failure.driver_bytes, PLIM_HOW_COMPUTED);
        if (plim_known(facts->request)) {
            l->request = facts->request;
        }
    }
    fill_unaccounted(l);
}
