/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WATCH_ALERT_H
#define PLIM_WATCH_ALERT_H

/*
 * Alerts: rules over findings and figures, and what of them somebody has to be told.
 *
 *   rule       [alert NAME] of the settings, or a built-in one: what is wrong, and for how long
 *   alert      one rule that holds for one subject. It is pending until it held for the rule's `for`, then
 *              firing; when it has not held for `clear-for` it is resolved
 *   episode    from firing to resolved. An alert that comes back is the same alert in its next episode
 *   flapping   an alert that came back within an hour of its last end: each time it must be right for twice
 *              as long before its end is told
 *   receiver   [notify NAME]: who is told
 *   told       what a receiver was last told of an alert. What it is owed follows from that and from the
 *              alert's state now: there is no queue of messages, so none grows, and a message that was not
 *              delivered carries the newest state when it is
 *   silence    alerts that nobody is told of until a time
 *
 * Delivery: each receiver has a thread of its own; a receiver that hangs holds up nobody else. What was told
 * is written to the state file after each change, by another thread. So after a crash a receiver is told again
 * rather than never ("at least once"); `fingerprint` and `episode` tell it what it knows already.
 * Sizes in bytes, times in nanoseconds since 1970 unless they are called mono.
 * Threads: struct plim_alerts is locked inside; step() and reload() belong to one thread and never wait for a
 * file or a network.
 */

#include "base/jsonw.h"
#include "detect/detect.h"
#include "watch/config.h"

#define PLIM_ALERT_NAME    49  /* of rules and receivers, NUL included */
#define PLIM_ALERTS_MAX    512 /* at one time; more are counted as lost */
#define PLIM_RECEIVERS_MAX 16
#define PLIM_SILENCES_MAX  64
#define PLIM_ALERT_BATCH   50 /* most alerts in a message */

/* X(NAME, text) */
#define PLIM_ALERT_STATE_MAP(X)                                                                    \
    X(PENDING, "pending")                                                                          \
    X(FIRING, "firing")                                                                            \
    X(RESOLVED, "resolved")

enum plim_alert_state {
#define PLIM__X(name, text) PLIM_ALERT_##name,
    PLIM_ALERT_STATE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_ALERT_STATES
};

/* What a receiver was last told of an alert. */
struct plim_told {
    uint64_t receiver;           /* hash of its name; 0: free */
    uint32_t episode;            /* 0: nothing yet */
    enum plim_alert_state state; /* FIRING or RESOLVED */
    enum plim_severity severity;
    uint64_t time_ns;
};

struct plim_alert {
    uint64_t fingerprint; /* of rule, class and subject: the same for ever */
    char rule[PLIM_ALERT_NAME];
    char class[32];  /* of the finding, or "figure" */
    char figure[48]; /* "device.used_ratio", "" of a finding */
    char engine[64]; /* "" none */
    struct plim_subject subject;
    char device_name[96];
    char pci[20];
    enum plim_alert_state state;
    enum plim_severity severity;
    uint32_t episode;  /* counted from 1 */
    bool acknowledged; /* somebody knows: no repeats in this episode */
    bool flapping;
    bool test;         /* a sample */
    uint64_t began_ns; /* when it first held in this episode */
    uint64_t fired_ns, resolved_ns;
    double value, threshold; /* of a figure */
    double confidence;       /* of a finding, 0 to 1 */
    uint64_t bytes;          /* that a finding concerns */
    struct plim_estimate slope, seconds_left;
    char summary[200];
    char evidence[600]; /* lines */
    char next_step[300];
    char runbook[160];
    struct plim_told told[PLIM_RECEIVERS_MAX];

    /* How it moves on; mono times are CLOCK_BOOTTIME and do not survive a restart. */
    uint64_t held_mono;  /* since when it holds, while pending; 0: not known */
    uint64_t right_mono; /* since when it does not hold, while firing; 0: it holds */
    uint64_t clear_ns;   /* how long it must be right, flapping included */
    uint64_t age_mono;   /* when it was made or loaded */
    bool seen;           /* it held in this step */
};

struct plim_silence {
    uint64_t id;
    uint64_t until_ns;
    char rule[PLIM_ALERT_NAME]; /* patterns with * and ?; "" all */
    char device[96];            /* UUID or PCI address */
    char process[16];
    char author[64];
    char comment[120];
};

struct plim_alerts;

struct plim_alerts_options {
    const struct plim_settings *settings;      /* borrowed for the call */
    const char *host;                          /* name of this machine */
    const char *state_path;                    /* of the state file; NULL: nothing survives */
    const char *version;                       /* of the program */
    void (*tell)(void *arg, const char *text); /* a line of log; not NULL. Any thread */
    void *tell_arg;
    void (*sent)(void *arg,
                 bool delivered); /* a message was delivered, or not; nullable. Any thread */
    void *sent_arg;
};

/** plim_alerts_check() - whether rules and receivers make sense. Errors: PLIM_E_USAGE with the line. */
PLIM_MUST_USE enum plim_status plim_alerts_check(const struct plim_settings *settings,
                                                 struct plim_err *err);

/** plim_alerts_open() - read the state file and start the threads. A state file that cannot be read is set
 * aside with the suffix ".bad" and told. Errors: PLIM_E_USAGE, PLIM_E_NOMEM, PLIM_E_OS. */
PLIM_MUST_USE enum plim_status plim_alerts_open(const struct plim_alerts_options *options,
                                                struct plim_alerts **out, struct plim_err *err);

/** plim_alerts_reload() - rules and receivers anew; alerts of rules that are gone are dropped without a word.
 * Errors: as of open; nothing has then changed. */
PLIM_MUST_USE enum plim_status plim_alerts_reload(struct plim_alerts *alerts,
                                                  const struct plim_settings *settings,
                                                  struct plim_err *err);

/** plim_alerts_step() - look at one observation. Cost: O(rules x subjects); no system calls but a wake-up. */
void plim_alerts_step(struct plim_alerts *alerts, const struct plim_observation *now,
                      const struct plim_finding *findings, size_t n);

/** plim_alerts_close() - end the threads: what is being sent gets two seconds; the rest is in the state file. */
void plim_alerts_close(struct plim_alerts *alerts); /* NULL is allowed */

/** plim_alerts_json() - {"schema": "plimsoll.alerts/1"}: alerts, silences and receivers. Any thread. */
void plim_alerts_json(struct plim_alerts *alerts, struct plim_jsonw *w);

/** plim_alerts_firing() - how many fire now. Any thread. */
size_t plim_alerts_firing(struct plim_alerts *alerts);

/** plim_alerts_silence() - `silence->id` is given by us. Errors: PLIM_E_BUDGET too many. Any thread. */
PLIM_MUST_USE enum plim_status plim_alerts_silence(struct plim_alerts *alerts,
                                                   const struct plim_silence *silence, uint64_t *id,
                                                   struct plim_err *err);

/** plim_alerts_unsilence(), plim_alerts_acknowledge() - Errors: PLIM_E_NOTFOUND. Any thread. */
PLIM_MUST_USE enum plim_status plim_alerts_unsilence(struct plim_alerts *alerts, uint64_t id,
                                                     struct plim_err *err);
PLIM_MUST_USE enum plim_status plim_alerts_acknowledge(struct plim_alerts *alerts,
                                                       uint64_t fingerprint, struct plim_err *err);

/** plim_alerts_test() - send a sample alert to the receiver `name` and say what came of it.
 * Errors: PLIM_E_NOTFOUND no such receiver; PLIM_E_IO it was not delivered; as of open. */
PLIM_MUST_USE enum plim_status plim_alerts_test(const struct plim_alerts_options *options,
                                                const char *name, struct plim_err *err);

const char *plim_alert_state_text(enum plim_alert_state state);

#endif
