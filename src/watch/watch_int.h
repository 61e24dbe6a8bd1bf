/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WATCH_WATCH_INT_H
#define PLIM_WATCH_WATCH_INT_H

/*
 * The inside of the monitor: one loop, and parts that take turns in it.
 *
 *   step     one turn of the loop, once an interval: collect an observation, then every part's
 *            step() in the order of PLIM_WATCH_PART_MAP:
 *            detect -> keep in the store -> alerts -> serve (publish to those who follow)
 *   part     what takes part: opened before the first step, closed in reverse order
 *   text     the state in one of the forms that clients ask for, made when the first client asks
 *            for it in a step, and shared by all that ask in the same step
 *
 * To add a part: src/watch/NAME.c with `const struct plim_watch_part plim__watch_NAME`, a row in
 * PLIM_WATCH_PART_MAP at its place, the file in src/watch/meson.build. What other parts need of it
 * goes as a pointer into struct plim_watch, set by its open() and cleared by its close().
 * A part that fails in a step says so (plim__watch_tell) and goes on: the loop does not stop for it.
 *
 * Threads: the loop's thread owns everything here, except what plim__watch_text(), _wait() and
 * plim_health_*() reach, which any thread may call while the parts are open. `now`, the findings and
 * `left` change only under `lock`; the loop's own thread reads them without it.
 */

#include "detect/detect.h"
#include "observe/collect.h"
#include "report/status.h"
#include "watch/alert.h"
#include "watch/config.h"
#include "watch/watch.h"

#include <pthread.h>

/* X(name): parts in the order of their turns. */
#define PLIM_WATCH_PART_MAP(X) X(detect) X(keep) X(alerts) X(serve)

struct plim_watch;

struct plim_watch_part {
    const char *name; /* static */
    /* *self is owned; left NULL when the settings do not want it. Errors end the program. */
    enum plim_status (*open)(struct plim_watch *watch, void **self, struct plim_err *err);
    /* Under `lock`, before clients see the new `now`: set what is judged of it. NULL: nothing */
    void (*judge)(struct plim_watch *watch, void *self);
    void (*step)(struct plim_watch *watch, void *self); /* NULL: nothing */
    /* Whether settings make sense to this part (plim_settings_fail() says where they do not), before they are
     * used; without opening anything. NULL: whatever the table of settings lets pass. */
    enum plim_status (*check)(const struct plim_settings *settings, struct plim_err *err);
    /* watch->settings are new ones, which were checked: those before are freed when all parts have turned to
     * them. NULL: nothing */
    void (*reload)(struct plim_watch *watch, void *self);
    void (*close)(struct plim_watch *watch, void *self);
};

/* X(NAME): forms of the state. */
#define PLIM_WATCH_TEXT_MAP(X)                                                                     \
    X(STATUS)   /* "plimsoll.status/1", one line */                                                \
    X(VIEW)     /* report/status.h for a terminal, without colours */                              \
    X(FINDINGS) /* "plimsoll.findings/1", one line */                                              \
    X(METRICS)  /* report/metrics.h, the text form */                                              \
    X(OPENMETRICS)

enum plim_watch_text_kind {
#define PLIM__X(name) PLIM_WATCH_TEXT_##name,
    PLIM_WATCH_TEXT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_WATCH_TEXTS
};

/* A text that several threads read. It stays as it is until the last one drops it. */
struct plim_watch_text {
    struct plim_str bytes;
    uint64_t step; /* number of the step that it shows */
    int holders;   /* (atomic) */
};

struct plim_watch {
    struct plim_alerts *alerts;               /* of the part `alerts`, or NULL */
    const struct plim_watch_options *options; /* as the command line said */
    struct plim_settings
        *settings; /* owned, never NULL while parts are open; the options win over them */
    uint64_t interval_ns;
    struct plim_collector *collector;
    struct plim_observation now;  /* the newest observation */
    struct plim_observation next; /* being made */
    struct plim_health health;    /* any thread, by plim_health_*() */
    uint64_t started_ns;          /* since 1970 */
    char host[256];
    const char *history; /* of the part `keep`: path of the history, NULL: none is kept */

    pthread_mutex_t lock; /* guards what clients see: `now`, findings, `left`, texts, `steps` */
    pthread_cond_t stepped;
    uint64_t steps; /* done so far */
    /* Of the part `detect`, of `now`: */
    bool judged;
    const struct plim_finding *findings; /* [n_findings], the detector's */
    size_t n_findings;
    PLIM_VEC(struct plim_estimate) left; /* until each device of `now` is full; or empty */
    bool ending;
    struct plim_collect_stats stats;                 /* the collector's, after `now` */
    struct plim_watch_text *texts[PLIM_WATCH_TEXTS]; /* made in this step, or NULL */
};

/** plim__watch_text() - the newest state in a form; hold it as long as you write it, then drop it.
 * NULL: no memory, or nothing was observed yet. Any thread. Cost: made once a step. */
struct plim_watch_text *plim__watch_text(struct plim_watch *watch, enum plim_watch_text_kind kind);
void plim__watch_text_drop(struct plim_watch_text *text); /* NULL is allowed */

/** plim__watch_wait() - wait until more than `seen` steps are done, or the time is up, or the
 * monitor ends. Returns the steps done. Any thread. */
uint64_t plim__watch_wait(struct plim_watch *watch, uint64_t seen, uint64_t timeout_ns);

/** plim__watch_state() - what is known now; the loop's thread, or any under `lock`. */
struct plim_state plim__watch_state(const struct plim_watch *watch);

/** plim__watch_host() - name of this machine as options, settings or the machine itself say, into out[n]. */
void plim__watch_host(const struct plim_watch_options *options,
                      const struct plim_settings *settings, char *out, size_t n);

/** plim__watch_tell() - one line of log. Any thread. */
void plim__watch_tell(const struct plim_watch *watch, const char *fmt, ...) PLIM_PRINTF(2, 3);

/** plim__watch_sources() - what the collector shall look at; borrowed from settings and options.
 * Errors: PLIM_E_USAGE a section that says too little, or no address; PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__watch_sources(const struct plim_watch_options *options,
                                                   struct plim_settings *settings,
                                                   struct plim_collect_options *out,
                                                   struct plim_err *err);

/** plim__watch_texts_reset() - a step was done: let go of the texts that show the one before.
 * Under `lock`. */
void plim__watch_texts_reset(struct plim_watch *watch);

#endif
