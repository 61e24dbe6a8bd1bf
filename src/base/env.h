/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_ENV_H
#define PLIM_BASE_ENV_H

/*
 * The environment of a program that is about to be started, and the folders in which this program finds its
 * own shared objects. Threads: one, before any other is started (getenv).
 */

#include "base/arena.h"
#include "base/vec.h"

/** plim_env_get() - a variable of our own environment, or NULL when it is not set or empty. */
const char *plim_env_get(const char *name);

/** plim_command_missing() - why a command cannot be run, as execvp(3) looks for it: an errno, or 0 when it can. */
int plim_command_missing(const char *name);

/* A changed copy of our environment. All strings are the arena's or the environment's. */
struct plim_env {
    PLIM_VEC(char *) vars; /* "NAME=value", in use until plim_env_done() */
    struct plim_arena *arena;
};

/** plim_env_copy() - what we have ourselves. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_env_copy(struct plim_env *env, struct plim_arena *arena,
                                             struct plim_err *err);

/** plim_env_put() - NAME=value, whatever was there. */
PLIM_MUST_USE enum plim_status plim_env_put(struct plim_env *env, const char *name,
                                            const char *value, struct plim_err *err);

/** plim_env_put_first()/put_last() - value:what was there, and the other way round. */
PLIM_MUST_USE enum plim_status plim_env_put_first(struct plim_env *env, const char *name,
                                                  const char *value, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim_env_put_last(struct plim_env *env, const char *name,
                                                 const char *value, struct plim_err *err);

/** plim_env_put_default() - NAME=value unless the user has set it. */
PLIM_MUST_USE enum plim_status plim_env_put_default(struct plim_env *env, const char *name,
                                                    const char *value, struct plim_err *err);

/** plim_env_done() - *out is NULL-terminated, arena-owned. */
PLIM_MUST_USE enum plim_status plim_env_done(struct plim_env *env, char ***out,
                                             struct plim_err *err);
void plim_env_fini(struct plim_env *env);

/**
 * plim_own_folder() - the folder (arena) that holds `file`, or NULL: the one that the environment variable
 * `variable` names, else `built` beside the running program (a build folder), else `installed` from its
 * folder. @built, @installed: relative paths.
 */
const char *plim_own_folder(struct plim_arena *arena, const char *variable, const char *built,
                            const char *installed, const char *file);

#endif
