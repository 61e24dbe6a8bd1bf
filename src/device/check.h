/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DEVICE_CHECK_H
#define PLIM_DEVICE_CHECK_H

/*
 * What `plimsoll doctor` finds: a list of checks, each with a status, what was found, and what to do.
 *
 *   ok       as it should be, or a plain fact
 *   warn     something that makes programs fail or figures mislead; counts for `doctor --check`
 *   missing  not here, and something needs it; the advice says what works without
 *
 * The world is seen through struct plim_world, so that tests use a made-up one.
 * Linux only: /proc, /sys, cgroups. Threads: one at a time.
 */

#include "base/arena.h"
#include "base/vec.h"

/* X(name, JSON text) */
#define PLIM_CHECK_MAP(X)                                                                          \
    X(OK, "ok")                                                                                    \
    X(WARN, "warn")                                                                                \
    X(MISSING, "missing")

enum plim_check_status {
#define PLIM__X(name, text) PLIM_CHECK_##name,
    PLIM_CHECK_MAP(PLIM__X)
#undef PLIM__X
    PLIM_CHECK_COUNT
};

struct plim_check {
    const char *id;    /* static: "gpu.driver", "host.shm": stable, for programs */
    const char *title; /* static: a few words */
    enum plim_check_status status;
    const char *detail; /* arena: what was found */
    const char *advice; /* static or arena: what to do, or NULL */
};

/* Where facts come from. */
struct plim_world {
    const char *root; /* put before every absolute path: "" or a test's folder */
    const char *(*getenv)(const char *name);
};

struct plim_checks {
    struct plim_arena *arena; /* borrowed: owns the texts */
    PLIM_VEC(struct plim_check) list;
};

const char *plim_check_status_text(enum plim_check_status status);

/** plim_checks_fini() - free the list; the texts go with the arena. */
void plim_checks_fini(struct plim_checks *checks);

/** plim_check_text() - a printf text in the arena of `checks`. Errors: PLIM_E_NOMEM, PLIM_E_BUDGET. */
PLIM_MUST_USE enum plim_status plim_check_text(struct plim_checks *checks, const char **out,
                                               struct plim_err *err, const char *fmt, ...)
    PLIM_PRINTF(4, 5);

/** plim_check_add() - append one. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_check_add(struct plim_checks *checks, struct plim_check check,
                                              struct plim_err *err);

#define PLIM_WORLD_TEXT 4096 /* room for the files read by plim_world_read() */

/**
 * plim_world_read() - the first PLIM_WORLD_TEXT-1 bytes of a small file such as /proc/meminfo, with a NUL.
 * Returns false when it cannot be read.
 */
bool plim_world_read(const struct plim_world *world, const char *path, char text[PLIM_WORLD_TEXT]);

#endif
