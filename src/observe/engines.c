/* SPDX-License-Identifier: Apache-2.0 */

/* The observer of serving engines: what they say at /metrics. */

#include "observe/collect.h"
#include "observe/engine_fetch.h"

#include <stdlib.h>

static enum plim_status engines_open(const struct plim_collect_options *options, void **self,
                                     struct plim_err *err)
{
    struct plim_engine_fetch_options fetch = {.world = options->world,
                                              .servers = options->engines,
                                              .n_servers = options->n_engines,
                                              .discover = options->discover_engines};
    struct plim_engine_fetch *opened = NULL;
    if (options->n_engines > 0 || options->discover_engines) {
        PLIM_TRY(plim_engine_fetch_open(&fetch, &opened, err));
    }
    *self = opened;
    return PLIM_OK;
}

static enum plim_status engines_take(void *self, struct plim_observation *out, struct plim_err *err)
{
    return plim_engine_fetch_read(self, out, err);
}

static void engines_close(void *self)
{
    plim_engine_fetch_close(self);
}

const struct plim_observer plim__observer_engines = {"engines", engines_open, engines_take,
                                                     engines_close};
