/* SPDX-License-Identifier: Apache-2.0 */

/* The sampler and the observers in their order. See collect.h. */

#include "observe/collect.h"

#include "base/clock.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLIM__X(NAME, name) extern const struct plim_observer plim__observer_##name;
PLIM_OBSERVER_MAP(PLIM__X)
#undef PLIM__X

static const struct plim_observer *const table[] = {
#define PLIM__X(NAME, name) &plim__observer_##name,
    PLIM_OBSERVER_MAP(PLIM__X)
#undef PLIM__X
        NULL};
_Static_assert(PLIM_COUNT_OF(table) <= PLIM_OBSERVERS_MAX, "the sampler and all observers");

struct plim_collector {
    bool scripted; /* samples come from a file */
    struct plim_sampler *sampler;
    void *self[PLIM_OBSERVERS_MAX]; /* of each observer of the table; NULL: nothing to do */
    uint64_t script_ns;             /* of a file of samples: the latest time in it so far */
    struct plim_collect_stats stats;
};

enum plim_status plim_collector_open(const struct plim_collect_options *options,
                                     struct plim_collector **out, struct plim_err *err)
{
    struct plim_collector *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a collector");
    }
    struct plim_sampler_options sampler = {
        .world = options->world, .script = options->script, .timeout_ns = options->timeout_ns};
    c->scripted = options->script != NULL;
    c->stats.observers[0].name = "driver";
    c->stats.n_observers = 1;
    enum plim_status st = plim_sampler_open(&sampler, &c->sampler, err);
    for (size_t i = 0; st == PLIM_OK && table[i] != NULL; i++) {
        c->stats.observers[c->stats.n_observers++].name = table[i]->name;
        st = table[i]->open(options, &c->self[i], err);
    }
    if (st != PLIM_OK) {
        plim_collector_close(c);
        return st;
    }
    *out = c;
    return PLIM_OK;
}

void plim_collector_close(struct plim_collector *c)
{
    for (size_t i = 0; c != NULL && table[i] != NULL; i++) {
        if (c->self[i] != NULL) {
            table[i]->close(c->self[i]);
        }
    }
    if (c != NULL) {
        plim_sampler_close(c->sampler);
    }
    free(c);
}

enum plim_status plim_collector_reload(struct plim_collector *c,
                                       const struct plim_collect_options *options,
                                       struct plim_err *err)
{
    for (size_t i = 0; table[i] != NULL; i++) {
        if (table[i]->reload != NULL) {
            PLIM_TRY(table[i]->reload(options, &c->self[i], err));
        }
    }
    return PLIM_OK;
}

static void count_error(struct plim_collector *c, size_t observer, const struct plim_err *err)
{
    c->stats.observers[observer].errors++;
    (void)snprintf(c->stats.observers[observer].last, sizeof(c->stats.observers[observer].last),
                   "%.150s", err->message);
}

/* Ask the observers. Only a lack of memory ends the observation. */
static enum plim_status observe(struct plim_collector *c, struct plim_observation *out,
                                struct plim_err *err)
{
    for (size_t i = 0; table[i] != NULL; i++) {
        struct plim_err why = {0};
        uint64_t before = plim_mono_ns();
        enum plim_status st = c->self[i] != NULL ? table[i]->take(c->self[i], out, &why) : PLIM_OK;
        c->stats.observers[i + 1].took_ns = plim_mono_ns() - before;
        if (st == PLIM_E_NOMEM) {
            return plim__fail(err, st, "no memory for an observation");
        }
        if (st != PLIM_OK) {
            count_error(c, i + 1, &why);
        }
    }
    return PLIM_OK;
}

enum plim_status plim_collector_take(struct plim_collector *c, struct plim_observation *out,
                                     struct plim_err *err)
{
    uint64_t before = plim_mono_ns();
    plim_observation_reset(out);
    PLIM_TRY(plim_sampler_take(c->sampler, &out->sample, err));
    out->mono_ns = plim_boot_ns();
    if (c->scripted && out->sample.time_ns != 0) {
        /* Time is as the file says, and never goes back. */
        c->script_ns = plim_max_u64(c->script_ns, out->sample.time_ns);
        out->mono_ns = c->script_ns;
    }
    c->stats.observers[0].took_ns = plim_mono_ns() - before;
    c->stats.devices_hung = 0;
    plim_vec_foreach (d, &out->sample.devices) {
        c->stats.devices_hung += d->state == PLIM_DEVICE_HUNG;
    }
    PLIM_TRY(observe(c, out, err));
    plim_vec_foreach (h, &out->happenings) {
        c->stats.happened[h->kind]++;
    }
    c->stats.taken++;
    c->stats.took_ns = plim_mono_ns() - before;
    return PLIM_OK;
}

const struct plim_collect_stats *plim_collector_stats(const struct plim_collector *c)
{
    return &c->stats;
}
