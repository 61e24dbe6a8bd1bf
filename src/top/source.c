/* SPDX-License-Identifier: Apache-2.0 */

/* Looking for oneself: a collector and a detector, as the monitor has them; or asking the monitor. */

#include "top/top.h"

#include <stdlib.h>
#include <unistd.h>

struct plim_top_source {
    struct plim_top_remote *remote; /* NULL: looks for itself */
    struct plim_collector *collector;
    struct plim_detector *detector;
    struct plim_observation now;
    PLIM_VEC(struct plim_estimate) left;
    struct plim_state state;
    char host[256];
};

static enum plim_status open_own(const struct plim_top_options *o, struct plim_top_source *s,
                                 struct plim_err *err)
{
    struct plim_collect_options collect = {.script = o->samples,
                                           .engines = o->engines,
                                           .n_engines = o->n_engines,
                                           .logs = o->logs,
                                           .n_logs = o->n_logs,
                                           .discover_engines = o->discover};
    struct plim_detect_options detect = {0};
    (void)gethostname(s->host, sizeof(s->host) - 1);
    s->state = (struct plim_state){.now = &s->now, .version = o->version, .host = s->host};
    PLIM_TRY(plim_collector_open(&collect, &s->collector, err));
    return plim_detector_new(&detect, &s->detector, err);
}

enum plim_status plim__top_source_open(const struct plim_top_options *o,
                                       struct plim_top_source **out, struct plim_err *err)
{
    struct plim_top_source *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to look at devices");
    }
    enum plim_status st =
        o->from != NULL ? plim__top_remote_open(o->from, &s->remote, err) : open_own(o, s, err);
    if (st != PLIM_OK) {
        plim__top_source_close(s);
        return st;
    }
    *out = s;
    return PLIM_OK;
}

enum plim_status plim__top_source_take(struct plim_top_source *s, const struct plim_state **out,
                                       struct plim_err *err)
{
    if (s->remote != NULL) {
        return plim__top_remote_take(s->remote, out, err);
    }
    PLIM_TRY(plim_collector_take(s->collector, &s->now, err));
    PLIM_TRY(plim_detector_step(s->detector, &s->now, err));
    s->left.n = 0;
    for (uint32_t i = 0; i < s->now.sample.devices.n; i++) {
        PLIM_TRY(plim_vec_push(&s->left, err, plim_detector_left(s->detector, i)));
    }
    s->state.stats = plim_collector_stats(s->collector);
    s->state.findings = plim_detector_findings(s->detector, &s->state.n_findings);
    s->state.left = s->left.n > 0 ? s->left.items : NULL;
    *out = &s->state;
    return PLIM_OK;
}

void plim__top_source_close(struct plim_top_source *s)
{
    if (s != NULL) {
        plim__top_remote_close(s->remote);
        plim_collector_close(s->collector);
        plim_detector_free(s->detector);
        plim_observation_fini(&s->now);
        plim_vec_fini(&s->left);
        free(s);
    }
}
