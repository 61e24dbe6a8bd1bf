/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_RUN_TURN_H
#define PLIM_RUN_TURN_H

/* The supervisor's state, and what its files do with it. */

#include "observe/room.h"
#include "run/run_int.h"

#include <plimsoll/gate.h>

/* X(NAME, word for STATUS=) */
#define PLIM__PHASE_MAP(X)                                                                         \
    X(WAITING, "waiting for another engine that starts on the device")                             \
    X(STARTING, "starting")                                                                        \
    X(SERVING, "serving")                                                                          \
    X(DRAINING, "draining")                                                                        \
    X(STOPPING, "stopping")                                                                        \
    X(KILLING, "killing")                                                                          \
    X(CLEARING, "waiting for the card to be free")                                                 \
    X(PAUSE, "waiting before the next start")                                                      \
    X(ENDED, "ended")

enum plim__phase {
#define PLIM__X(name, word) PLIM__PHASE_##name,
    PLIM__PHASE_MAP(PLIM__X)
#undef PLIM__X
};

#define PLIM__MEMBERS 256
#define PLIM__STARTS  64

struct plim__run {
    const struct plim_run_options *options;
    struct plim_arena arena; /* of the command that runs now */
    struct plim__notify notify;
    struct plim__health health;
    struct plim__words words;
    char health_address[256], health_path[512];
    struct plim_notches notches;
    struct plim__window window;
    struct plim__start_lock lock;
    struct plim_collector *collector;
    struct plim_observation seen;
    struct plim_room room; /* of what was seen, for the processes of this turn */
    struct plimsoll_gate ledger;
    bool ledger_open;
    enum plim__phase phase;
    uint64_t since_ns, now_ns; /* of the phase; CLOCK_MONOTONIC */
    uint64_t looked_ns, extended_ns, tended_ns, good_since_ns, stranded_since_ns, pause_ns;
    pid_t pid;      /* 0: none runs */
    int status;     /* as waitpid gave it, once it ended */
    bool ended;     /* the command itself did */
    bool told_lock; /* that it waits */
    bool stop;      /* end after this turn */
    int exit_code;
    unsigned ooms;                  /* seen in this turn */
    uint64_t silent_ns;             /* since the quietest member with a heartbeat told something */
    uint32_t silent_pid;            /* that member */
    uint32_t member[PLIM__MEMBERS]; /* processes of this turn that used a device */
    size_t n_members;
    uint64_t started[PLIM__STARTS]; /* times of restarts, a ring */
    uint64_t n_started;
};

void plim__run_tell(const struct plim__run *r, const char *fmt, ...) PLIM_PRINTF(2, 3);
void plim__run_enter(struct plim__run *r, enum plim__phase phase);

/** plim__run_look() - take an observation: members, their room, failures for want of memory. */
void plim__run_look(struct plim__run *r);
/** plim__run_cleared() - no member is listed on a device any more. */
bool plim__run_cleared(const struct plim__run *r);
/** plim__run_drain() - nothing new, or again, by the gate's ledger. */
void plim__run_drain(struct plim__run *r, bool on);
/** plim__run_in_flight() - requests in the ledger; 0 when there is none. @breaker: it tripped. */
uint32_t plim__run_in_flight(struct plim__run *r, bool *breaker);
/** plim__run_tend() - end leases in the ledger and return what dead processes held: when all of the server's are
 * dead nobody else does. */
void plim__run_tend(struct plim__run *r);

/** plim__run_step() - what is due in this phase. Errors end the supervisor. */
PLIM_MUST_USE enum plim_status plim__run_step(struct plim__run *r, struct plim_err *err);
/** plim__run_finish() - leave the turn: drain, stop, and end or start anew. */
void plim__run_finish(struct plim__run *r, bool stop);

#endif
