/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of a message for a snapshot; see facts.h. */

#include "diagnose/facts.h"

#include "base/num.h"

static void fill(struct plim_amount *fact, struct plim_amount from)
{
    if (!plim_known(*fact) && plim_known(from)) {
        *fact = from;
    }
}

/* The largest rounding among the figures of a message. */
static uint64_t tolerance(const struct plim_oom_facts *facts)
{
    uint64_t slop = 0;
    for (int i = 0; i < PLIM_OOM_FIELD_COUNT; i++) {
        slop = facts->field[i].set ? plim_max_u64(slop, facts->field[i].slop) : slop;
    }
    return plim_add_sat(slop, slop); /* reserved is printed as a sum of two figures */
}

enum plim_status plim_facts_add_message(struct plim_facts *facts, const struct plim_oom_scan *scan,
                                        const struct plim_message *message, struct plim_err *err)
{
    if (message->primary >= message->sets.n) {
        plim__fail(err, PLIM_E_DATA, "the text tells of no failure to allocate");
        plim__err_hint(err, "give the lines with 'out of memory', or leave --oom-text out");
        return PLIM_E_DATA;
    }
    const struct plim_ledger *l = &message->sets.items[message->primary].ledger;
    bool capped =
        plim_known(l->capacity) && plim_known(l->total) && l->capacity.bytes < l->total.bytes;
    fill(&facts->total, l->total);
    fill(&facts->free, l->owner[PLIM_OWNER_FREE]);
    fill(&facts->process_other, l->owner[PLIM_OWNER_PROCESS_OTHER]);
    fill(&facts->others, l->owner[PLIM_OWNER_OTHER_PROCESSES]);
    fill(&facts->request, l->request);
    fill(&facts->allocated, l->allocated);
    fill(&facts->reserved, l->reserved);
    if (capped) {
        fill(&facts->cap, l->capacity);
    }
    facts->tolerance = tolerance(&scan->events.items[message->primary].facts);
    return PLIM_OK;
}
