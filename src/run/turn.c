/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One life of the command, phase by phase:
 *
 *   WAITING -> STARTING -> SERVING -> DRAINING -> STOPPING -> (KILLING) -> CLEARING -> PAUSE -> WAITING ...
 *
 * A command that ends by itself goes to STOPPING, for what it left. CLEARING leads to ENDED when no
 * further turn is wanted.
 */

#include "run/turn.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/num.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_NS (2 * PLIM_SECOND_NS)
#define SETTLED_NS                                                                                 \
    (5 * PLIM_SECOND_NS) /* without a health address: it lives so long, so it works */
#define EXTEND_NS      (10 * PLIM_SECOND_NS)
#define STRANDED_NS    (600 * PLIM_SECOND_NS) /* above the share for so long, a restart is planned */
#define KILL_NS        (5 * PLIM_SECOND_NS) /* the kernel needs that to end a process, at the least */
#define BACKOFF_DOUBLE 5u                   /* times */

static uint64_t in_phase(const struct plim__run *r)
{
    return r->now_ns - r->since_ns;
}

static bool due(struct plim__run *r, uint64_t *last, uint64_t every)
{
    bool is = r->now_ns - *last >= every;
    *last = is ? r->now_ns : *last;
    return is;
}

/* systemd waits no longer than it is asked to. */
static void ask_for_time(struct plim__run *r)
{
    if (due(r, &r->extended_ns, EXTEND_NS)) {
        plim__notify_send(&r->notify, "EXTEND_TIMEOUT_USEC=30000000");
    }
}

/* ---- start ---- */

static enum plim_status make_command(struct plim__run *r, const char ***out, struct plim_err *err)
{
    const struct plim_run_options *o = r->options;
    const char **inner;
    void *room;
    size_t n = 0;
    plim_arena_fini(&r->arena);
    plim_arena_init(&r->arena, 0);
    PLIM_TRY(plim_notch_apply(&r->notches, o->command, o->n_command, &r->arena, &inner, err));
    if (o->record == NULL) {
        *out = inner;
        return PLIM_OK;
    }
    PLIM_TRY(plim_arena_array(&r->arena, o->n_command + 12, sizeof(char *), &room, err));
    const char **argv = room;
    argv[n++] = o->record;
    argv[n++] = "record";
    argv[n++] = "--quiet";
    argv[n++] = "--trace-file";
    argv[n++] = o->trace ? o->trace : "/dev/null";
    if (o->incidents != NULL) {
        argv[n++] = "--incidents";
        argv[n++] = o->incidents;
    }
    argv[n++] = "--";
    memcpy(argv + n, inner, o->n_command * sizeof(*argv));
    *out = argv;
    return PLIM_OK;
}

static enum plim_status start(struct plim__run *r, struct plim_err *err)
{
    const char **argv;
    int out[2];
    PLIM_TRY(make_command(r, &argv, err));
    PLIM_TRY(plim__words_start(&r->words, out, err));
    enum plim_status st = plim__group_start(argv, out, &r->pid, err);
    (void)close(out[0]);
    (void)close(out[1]);
    PLIM_TRY(st);
    r->ended = false;
    r->ooms = 0;
    r->n_members = 0;
    r->stranded_since_ns = 0;
    if (r->health.address != NULL) {
        PLIM_TRY(plim__health_start(&r->health, err));
    }
    plim__run_tell(r, "started %s as process %d", r->options->command[0], (int)r->pid);
    plim__run_enter(r, PLIM__PHASE_STARTING);
    return PLIM_OK;
}

static enum plim_status wait_for_lock(struct plim__run *r, struct plim_err *err)
{
    ask_for_time(r);
    if (r->options->no_lock) {
        return start(r, err);
    }
    if (r->looked_ns == 0 || due(r, &r->looked_ns, LOOK_NS)) {
        plim__run_look(r);
        if (plim__start_lock_try(&r->lock, &r->seen.sample)) {
            r->told_lock = false;
            return start(r, err);
        }
        if (!r->told_lock) {
            r->told_lock = true;
            plim__run_tell(r, "another engine starts on the device: waiting until it serves");
        }
    }
    return PLIM_OK;
}

/* ---- end ---- */

/* Whether it may start again, by how often it did lately. */
static bool may_restart(struct plim__run *r)
{
    uint64_t most = r->options->restarts;
    uint64_t window = r->options->window_ns;
    uint64_t lately = 0;
    for (uint64_t i = 0; i < plim_min_u64(r->n_started, PLIM__STARTS); i++) {
        lately += r->now_ns - r->started[i] < window;
    }
    if (lately >= plim_min_u64(most, PLIM__STARTS)) {
        return false;
    }
    r->started[r->n_started++ % PLIM__STARTS] = r->now_ns;
    uint64_t doubled = plim_min_u64(lately, BACKOFF_DOUBLE);
    r->pause_ns = r->options->backoff_ns << doubled;
    return true;
}

static void say_notch(struct plim__run *r)
{
    char what[160];
    if (r->ooms == 0 || r->notches.n == 0) {
        return;
    }
    if (plim_notch_down(&r->notches, r->options->command, r->options->n_command, what,
                        sizeof(what))) {
        plim__run_tell(r, "ONE NOTCH LOWER because memory ran out: %s", what);
    } else {
        plim__run_tell(r, "memory ran out, and there is no lower notch");
    }
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The command ended by itself, or did not work and is being ended: another turn, or none. */
static void failed(struct plim__run *r, const char *why)
{
    plim__run_tell(r, "%s", why);
    plim__run_look(r); /* the incident that the recording has just finished */
    char words[320];
    if (r->ooms == 0 && plim__words_of_memory(&r->words, words, sizeof(words))) {
        r->ooms = 1;
        plim__run_tell(r, "memory ran out, by its own words: %s", words);
    }
    say_notch(r);
    r->exit_code = r->ended ? code_of(r->status) : 1;
    if (!may_restart(r)) {
        plim__run_tell(r, "it failed too often in a short time: giving up");
        r->stop = true;
    }
    plim__run_enter(r, PLIM__PHASE_STOPPING);
}

static void ended_itself(struct plim__run *r)
{
    char why[96];
    if (code_of(r->status) == 0) {
        plim__run_tell(r,
                       plim__group_lives(r->pid)
                           ? "the command ended well and left processes behind, which are ended: a "
                             "server must stay in the foreground"
                           : "the command ended well");
        r->exit_code = 0;
        r->stop = true;
        plim__run_enter(r, PLIM__PHASE_STOPPING);
        return;
    }
    (void)snprintf(why, sizeof(why),
                   WIFSIGNALED(r->status) ? "signal %d ended the command"
                                          : "the command ended with status %d",
                   WIFSIGNALED(r->status) ? WTERMSIG(r->status) : WEXITSTATUS(r->status));
    failed(r, why);
}

void plim__run_finish(struct plim__run *r, bool stop)
{
    r->stop |= stop;
    if (stop) {
        r->exit_code = 0;
        plim__notify_send(&r->notify, "STOPPING=1");
    }
    if (r->phase <= PLIM__PHASE_WAITING || r->phase == PLIM__PHASE_PAUSE) {
        plim__run_enter(r, stop ? PLIM__PHASE_ENDED : PLIM__PHASE_WAITING);
    } else if (r->phase == PLIM__PHASE_STARTING) {
        plim__run_enter(r, PLIM__PHASE_STOPPING);
    } else if (r->phase == PLIM__PHASE_SERVING) {
        plim__run_enter(r, PLIM__PHASE_DRAINING);
    } else if (r->phase == PLIM__PHASE_DRAINING && stop) {
        plim__run_enter(r, PLIM__PHASE_STOPPING);
    }
}

/* ---- while it runs ---- */

static void starting(struct plim__run *r)
{
    ask_for_time(r);
    bool works =
        r->health.address != NULL ? atomic_load(&r->health.good) > 0 : in_phase(r) >= SETTLED_NS;
    if (works) {
        plim__start_lock_free(&r->lock);
        plim__run_drain(r, false);
        plim__run_tell(r, "serving after %.1f s", (double)in_phase(r) / 1e9);
        plim__notify_send(&r->notify, "READY=1");
        r->good_since_ns = r->now_ns;
        plim__run_enter(r, PLIM__PHASE_SERVING);
    } else if (r->options->start_ns > 0 && in_phase(r) > r->options->start_ns) {
        failed(r, "it was not healthy in time: no 200 from its --health address");
    }
}

/* Stranded above the share for ten minutes, at a time when restarts are welcome. */
static bool wants_restart(struct plim__run *r)
{
    if (!(r->options->stranded > 0) || r->room.stranded < r->options->stranded) {
        r->stranded_since_ns = 0;
        return false;
    }
    r->stranded_since_ns = r->stranded_since_ns ? r->stranded_since_ns : r->now_ns;
    return r->now_ns - r->stranded_since_ns >= STRANDED_NS &&
           plim__window_open(&r->window, plim_wall_ns() / PLIM_SECOND_NS);
}

/* Whether it is alive and does not work: no answer, or no sign of life from a process of it. */
static bool hangs(struct plim__run *r)
{
    unsigned misses = atomic_load(&r->health.misses);
    if (r->health.address != NULL && misses >= r->options->health_misses) {
        failed(r, r->ooms ? "it hangs since memory ran out" : "it is alive and does not answer");
        return true;
    }
    if (r->options->heartbeat_ns > 0 && r->silent_ns >= r->options->heartbeat_ns) {
        char why[128];
        (void)snprintf(why, sizeof(why), "process %u of it has given no sign of life for %.0f s",
                       (unsigned)r->silent_pid, (double)r->silent_ns / 1e9);
        failed(r, why);
        return true;
    }
    return false;
}

static void serving(struct plim__run *r)
{
    bool breaker;
    (void)plim__run_in_flight(r, &breaker);
    if (hangs(r)) {
        return;
    }
    if (breaker) {
        plim__run_tell(r, "the gate's breaker tripped: draining, then a restart");
        r->ooms += r->ooms == 0;
        say_notch(r);
        plim__run_enter(r, PLIM__PHASE_DRAINING);
    } else if (wants_restart(r)) {
        plim__run_tell(r, "%.0f %% of reserved memory is stranded: a planned restart",
                       r->room.stranded * 100);
        plim__run_enter(r, PLIM__PHASE_DRAINING);
    } else if (r->ooms > 0) {
        r->good_since_ns = r->now_ns;
    } else if (r->options->notch_reset_ns > 0 &&
               r->now_ns - r->good_since_ns >= r->options->notch_reset_ns &&
               plim_notch_up(&r->notches)) {
        r->good_since_ns = r->now_ns;
        plim__run_tell(r,
                       "one notch higher from the next start on: memory has not run out for long");
    }
}

static void draining(struct plim__run *r)
{
    bool breaker;
    ask_for_time(r);
    uint32_t left = plim__run_in_flight(r, &breaker);
    if (left == 0) {
        plim__run_enter(r, PLIM__PHASE_STOPPING);
    } else if (in_phase(r) >= r->options->drain_ns) {
        plim__run_tell(r, "%u requests are not over: stopping all the same", left);
        plim__run_enter(r, PLIM__PHASE_STOPPING);
    }
}

/* ---- until nothing is left of it ---- */

static void stopping(struct plim__run *r)
{
    ask_for_time(r);
    if (!plim__group_lives(r->pid)) {
        plim__run_enter(r, PLIM__PHASE_CLEARING);
    } else if (in_phase(r) >= r->options->grace_ns) {
        plim__run_tell(r, "it did not end when asked: killing it");
        plim__run_enter(r, PLIM__PHASE_KILLING);
    }
}

static void killing(struct plim__run *r)
{
    ask_for_time(r);
    plim__group_signal(r->pid, SIGKILL); /* those that were made meanwhile, too */
    if (!plim__group_lives(r->pid)) {
        plim__run_enter(r, PLIM__PHASE_CLEARING);
    } else if (in_phase(r) >= plim_max_u64(r->options->clear_ns, KILL_NS)) {
        plim__run_tell(r, "a process of it cannot be killed (it hangs in the kernel)");
        plim__run_enter(r, PLIM__PHASE_CLEARING);
    }
}

static void clearing(struct plim__run *r)
{
    ask_for_time(r);
    plim__run_look(r);
    bool late = in_phase(r) >= r->options->clear_ns;
    bool cleared = plim__run_cleared(r);
    if (!cleared && !late) {
        return;
    }
    if (!cleared) {
        plim__run_tell(r, "the driver still lists memory of processes that are gone");
    }
    r->pid = 0;
    plim__words_stop(&r->words);
    plim__run_enter(r, r->stop ? PLIM__PHASE_ENDED : PLIM__PHASE_PAUSE);
}

enum plim_status plim__run_step(struct plim__run *r, struct plim_err *err)
{
    bool runs = r->phase == PLIM__PHASE_STARTING || r->phase == PLIM__PHASE_SERVING;
    if (r->pid != 0 && plim__group_reap(r->pid, &r->status)) {
        r->ended = true;
        if (r->phase == PLIM__PHASE_STOPPING) {
            plim__group_signal(r->pid, SIGTERM); /* what it left behind */
        }
    }
    if (r->ended && (runs || r->phase == PLIM__PHASE_DRAINING) && r->pid != 0) {
        if (runs) {
            ended_itself(r);
        } else {
            plim__run_enter(r, PLIM__PHASE_STOPPING);
        }
        return PLIM_OK;
    }
    if (due(r, &r->tended_ns, PLIM_SECOND_NS)) {
        plim__run_tend(r);
    }
    if (runs && due(r, &r->looked_ns, LOOK_NS)) {
        plim__run_look(r);
    }
    switch (r->phase) {
    case PLIM__PHASE_WAITING:
        return wait_for_lock(r, err);
    case PLIM__PHASE_STARTING:
        starting(r);
        break;
    case PLIM__PHASE_SERVING:
        serving(r);
        break;
    case PLIM__PHASE_DRAINING:
        draining(r);
        break;
    case PLIM__PHASE_STOPPING:
        stopping(r);
        break;
    case PLIM__PHASE_KILLING:
        killing(r);
        break;
    case PLIM__PHASE_CLEARING:
        clearing(r);
        break;
    case PLIM__PHASE_PAUSE:
        ask_for_time(r);
        if (in_phase(r) >= r->pause_ns) {
            plim__run_enter(r, PLIM__PHASE_WAITING);
        }
        break;
    case PLIM__PHASE_ENDED:
        break;
    }
    return PLIM_OK;
}
