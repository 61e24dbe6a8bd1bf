/* SPDX-License-Identifier: Apache-2.0 */
/* See replayed.h. */

#include "diagnose/replayed.h"

#include "replay/repair.h"

#define REPAIR_BUDGET 1u /* times the trace: a diagnosis is quick */

/* Is it about free bytes that could not be used? Then settings may matter. */
static bool settings_may_matter(const struct plim_diagnosis *d)
{
    if (d->set.verdict.cls == PLIM_CLASS_FRAGMENTATION) {
        return true;
    }
    plim_vec_foreach (row, &d->set.counterfactuals) {
        if (row->fits == PLIM_FITS_YES && strcmp(row->name, "no_stranded") == 0) {
            return true;
        }
    }
    return false;
}

static enum plim_status ask(struct plim_requests *requests, const struct plim_diagnosis *d,
                            struct plim_trials *out, struct plim_err *err)
{
    struct plim_effects effects = {0};
    bool fragmented = d->set.verdict.cls == PLIM_CLASS_FRAGMENTATION;
    size_t n = fragmented ? PLIM_TRIAL_COUNT : 1;
    enum plim_status st =
        plim_replay_effects(requests, d->failure.event, out->effects, n, &effects, err);
    if (st == PLIM_OK && !effects.reproduced && !requests->complete) {
        uint64_t budget = REPAIR_BUDGET * (uint64_t)requests->device->trace.events.n;
        st = plim_requests_repair(requests, 0, budget, NULL, err);
        if (st == PLIM_OK && requests->start_verified) {
            st = plim_replay_effects(requests, d->failure.event, out->effects, n, &effects, err);
        }
    }
    if (st == PLIM_E_NOMEM) {
        return st;
    }
    /* Another error: this trace cannot be replayed (its backend, a heap that contradicts itself). */
    out->asked = st == PLIM_OK;
    out->reproduced = st == PLIM_OK && effects.reproduced;
    out->complete = requests->complete;
    return PLIM_OK;
}

enum plim_status plim__replay_trials(const struct plim_snapshot *snapshot,
                                     const struct plim_diagnose_options *options,
                                     const struct plim_diagnosis *d, struct plim_trials *out,
                                     struct plim_err *err)
{
    static const char *const confs[] = {
#define PLIM__X(name, conf) conf,
        PLIM_TRIAL_MAP(PLIM__X)
#undef PLIM__X
    };
    struct plim_requests requests;
    struct plim_requests_options about = {{0, 0}, 0, 0};
    *out = (struct plim_trials){0};
    for (int i = 0; i < PLIM_TRIAL_COUNT; i++) {
        out->effects[i].conf = confs[i];
    }
    if (options->no_replay || snapshot->level != PLIM_LEVEL_BLOCKS || !d->failure.happened ||
        !settings_may_matter(d)) {
        return PLIM_OK;
    }
    if (plim_known(d->facts.total) && plim_known(d->facts.external)) {
        about.device_total = d->facts.total.bytes;
        about.external = d->facts.external.bytes;
    }
    PLIM_TRY(plim_requests_build(snapshot, d->device, &about, &requests, err));
    enum plim_status st = ask(&requests, d, out, err);
    plim_requests_fini(&requests);
    return st;
}
