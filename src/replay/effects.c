/* SPDX-License-Identifier: Apache-2.0 */
/* See effects.h. */

#include "replay/effects.h"

#include "alloc/round.h"

struct trial {
    const struct plim_requests *q;
    struct plim_replay_setup setup;
    struct plim_replay_result result;
    struct plim_effects *out;
    uint64_t failures; /* of the recorded settings, up to the request */
    enum {
        ANEW_UNKNOWN,
        ANEW_FAILS,
        ANEW_SERVES
    } anew; /* the recorded settings, started anew */
};

static enum plim_status try_conf(struct trial *t, const struct plim_conf *conf,
                                 enum plim_replay_start start, struct plim_err *err)
{
    t->setup.conf = conf;
    t->setup.start = start;
    t->out->replays++;
    return plim_replay(t->q, &t->setup, &t->result, err);
}

/* What new requests cannot use, the failing request itself not counted. */
static uint64_t unusable(const struct plim_replay_result *r, uint64_t request)
{
    uint64_t sum = plim_add_sat(r->last.active, r->last.stranded);
    return r->last.failed ? sum : plim_sub_sat(sum, request);
}

static bool serves(const struct plim_replay_result *r, uint64_t failures)
{
    return !r->last.failed && r->start_failed == 0 && r->num_ooms < failures;
}

/* Would the recorded settings serve the request from a fresh heap? Asked at most once. */
static enum plim_status ask_anew(struct trial *t, struct plim_err *err)
{
    if (t->anew == ANEW_UNKNOWN) {
        PLIM_TRY(try_conf(t, &t->q->conf, PLIM_START_ANEW, err));
        t->anew = serves(&t->result, t->failures) ? ANEW_SERVES : ANEW_FAILS;
    }
    return PLIM_OK;
}

/* One candidate. base: what the recorded settings left unusable. */
static enum plim_status one_effect(struct trial *t, struct plim_effect *e, uint64_t base,
                                   uint64_t request, struct plim_err *err)
{
    struct plim_conf conf;
    plim_conf_init(&conf, t->q->conf.version);
    if (plim_conf_parse(&conf, plim_str_from(e->conf), NULL) != PLIM_OK) {
        return PLIM_OK;
    }
    conf.memory_fraction = t->q->conf.memory_fraction;
    PLIM_TRY(try_conf(t, &conf, PLIM_START_AS_WAS, err));
    bool saved = serves(&t->result, t->failures);
    if (!saved && !t->q->complete) {
        PLIM_TRY(ask_anew(t, err));
        if (t->anew == ANEW_SERVES) {
            return PLIM_OK;
        }
        PLIM_TRY(try_conf(t, &conf, PLIM_START_ANEW, err));
        saved = serves(&t->result, t->failures);
        e->from_anew = saved;
    }
    e->known = true;
    e->serves = saved;
    if (saved) {
        uint64_t rounded = plim_round_request(request, conf.roundup);
        e->gain = plim_sub_sat(base, unusable(&t->result, rounded));
    } else {
        e->alloc_index = t->result.first_oom.alloc_index;
    }
    return PLIM_OK;
}

enum plim_status plim_replay_effects(const struct plim_requests *requests, uint32_t event,
                                     struct plim_effect *effects, size_t n,
                                     struct plim_effects *out, struct plim_err *err)
{
    struct plim_effects result = {0};
    uint64_t index = plim_requests_index(requests, event);
    uint64_t request = requests->device->trace.events.items[event].size;
    struct trial t = {
        .q = requests,
        .setup = {.capacity = plim_replay_capacity(requests), .go_on = true, .until = index + 1},
        .out = &result,
    };
    if (t.setup.capacity > 0) {
        PLIM_TRY(try_conf(&t, &requests->conf, PLIM_START_AS_WAS, err));
        result.reproduced = t.result.last.failed && t.result.allocs == index + 1;
    }
    uint64_t base = unusable(&t.result, 0);
    t.failures = t.result.num_ooms;
    for (size_t i = 0; i < n && result.reproduced; i++) {
        PLIM_TRY(one_effect(&t, &effects[i], base, request, err));
    }
    *out = result;
    return PLIM_OK;
}

uint64_t plim_requests_index(const struct plim_requests *requests, uint32_t event)
{
    const struct plim_trace *trace = &requests->device->trace;
    uint64_t n = 0;
    for (size_t i = 0; i < event && i < trace->events.n; i++) {
        const struct plim_event *e = &trace->events.items[i];
        n += (e->action == PLIM_ACTION_ALLOC || e->action == PLIM_ACTION_OOM) && e->size > 0 &&
             e->size < PLIM_TORCH_TOO_LARGE;
    }
    return n;
}
