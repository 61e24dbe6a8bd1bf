/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_COLLECT_H
#define PLIM_OBSERVE_COLLECT_H

/*
 * Taking observations: the sampler's devices and processes first, then every observer adds what it
 * knows.
 *
 *   collector   a sampler and the observers, kept open between observations
 *   observer    one optional source besides the drivers: recorded sessions, engines, what changed
 *
 * To add an observer: write src/observe/NAME.c with `const struct plim_observer plim__observer_NAME`,
 * a row in PLIM_OBSERVER_MAP, the file in src/observe/meson.build, and what it must be told in
 * struct plim_collect_options. Observers run in the order of the rows and see what those before
 * them have added. One that fails is counted and leaves its part out; the others go on.
 *
 * Cost: everything is kept open and read again; an observation allocates nothing once the vectors
 * have their size.
 * Threads: a collector belongs to one thread. Not usable in a forked child.
 */

#include "device/sampler.h"
#include "observe/observation.h"
#include "observe/place.h"

struct plim_collect_options {
    const struct plim_world *world; /* NULL: the real one */
    const char *script;  /* a file of samples instead of drivers (sampler.h), or NULL; borrowed */
    uint64_t timeout_ns; /* that a driver may think; 0: two seconds */
    const struct plim_place *engines; /* [n_engines] addresses (engine_fetch.h); borrowed */
    size_t n_engines;
    const struct plim_place *logs; /* [n_logs] files, pipes, "-" (engine_log.h); borrowed */
    size_t n_logs;
    const char *incidents; /* folder whose new incidents are told of, or NULL; borrowed */
    bool discover_engines; /* ask known engines that are found on this machine's loopback */
};

/* X(NAME, function's name): observers in their order. */
#define PLIM_OBSERVER_MAP(X)                                                                       \
    X(SESSIONS, sessions) /* what recorded processes show */                                       \
    X(ENGINES, engines)                                                                            \
    X(INCIDENTS, incidents) /* finished incidents */                                               \
    X(HAPPENED, happened)   /* the last one: what differs from the observation before */

struct plim_observer {
    const char *name; /* static; the label of its errors in metrics */
    /* *self is owned; NULL when there is nothing to do. What options point to may go afterwards. */
    enum plim_status (*open)(const struct plim_collect_options *options, void **self,
                             struct plim_err *err);
    /* Append to *out, whose sample and times are set. @err: why its part is missing or short. */
    enum plim_status (*take)(void *self, struct plim_observation *out, struct plim_err *err);
    /* Options are other ones: turn to them, and keep what is known of whatever stays the same. *self as of open().
     * An error: nothing has changed. NULL: what it is told does not change. */
    enum plim_status (*reload)(const struct plim_collect_options *options, void **self,
                               struct plim_err *err);
    void (*close)(void *self);
};

/* What a collector says of itself. */
#define PLIM_OBSERVERS_MAX 8
struct plim_collect_stats {
    uint64_t taken;                          /* observations */
    uint64_t took_ns;                        /* the last one */
    uint32_t devices_hung;                   /* in the last one */
    uint64_t happened[PLIM_HAPPENING_KINDS]; /* so far */
    size_t n_observers;                      /* the sampler is the first */
    struct {
        const char *name; /* static */
        uint64_t errors;  /* so far */
        uint64_t took_ns; /* the last time */
        char last[160];   /* the last error; "" none */
    } observers[PLIM_OBSERVERS_MAX];
};

struct plim_collector;

/** plim_collector_open() - drivers are opened by the first observation. Engines, logs and incidents are copied. Errors: those of
 * plim_sampler_open(), and of an observer's open: what the user asked for is not there. */
PLIM_MUST_USE enum plim_status plim_collector_open(const struct plim_collect_options *options,
                                                   struct plim_collector **out,
                                                   struct plim_err *err);

/**
 * plim_collector_take() - look at everything.
 * @out: reset first; plim_observation_check() holds of it.
 * Errors: PLIM_E_NOMEM. Everything else is in the stats.
 * Cost: that of plim_sampler_take(), some preads for each recorded process.
 */
PLIM_MUST_USE enum plim_status plim_collector_take(struct plim_collector *collector,
                                                   struct plim_observation *out,
                                                   struct plim_err *err);

/** plim_collector_reload() - look at these engines and logs from now on, and not at those named before; the other
 * options stay as they were. Errors: those of the observers' open; what could not be turned to stays as it was. */
PLIM_MUST_USE enum plim_status plim_collector_reload(struct plim_collector *collector,
                                                     const struct plim_collect_options *options,
                                                     struct plim_err *err);

/** plim_collector_stats() - borrowed until the next take. */
const struct plim_collect_stats *plim_collector_stats(const struct plim_collector *collector);

void plim_collector_close(struct plim_collector *collector); /* NULL is allowed */

#endif
