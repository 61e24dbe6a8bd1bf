/* SPDX-License-Identifier: Apache-2.0 */
/* Environments for other programs, and where our own files are. */

#include "base/env.h"

#include "base/num.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

extern char **environ;

const char *plim_env_get(const char *name)
{
    const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe): before any thread starts
    return value != NULL && value[0] != '\0' ? value : NULL;
}

int plim_command_missing(const char *name)
{
    const char *rest = plim_env_get("PATH");
    int why = ENOENT;
    if (strchr(name, '/') != NULL) {
        return access(name, X_OK) == 0 ? 0 : errno;
    }
    for (rest = rest != NULL ? rest : "/bin:/usr/bin"; rest != NULL && name[0] != '\0';) {
        char path[PATH_MAX];
        int n = (int)strcspn(rest, ":");
        (void)snprintf(path, sizeof(path), "%.*s/%s", n > 0 ? n : 1, n > 0 ? rest : ".", name);
        if (access(path, X_OK) == 0) {
            return 0;
        }
        why = errno == EACCES ? EACCES : why;
        rest = rest[n] == ':' ? rest + n + 1 : NULL;
    }
    return why;
}

enum plim_status plim_env_copy(struct plim_env *env, struct plim_arena *arena, struct plim_err *err)
{
    *env = (struct plim_env){.arena = arena};
    for (char **p = environ; *p != NULL; p++) {
        PLIM_TRY(plim_vec_push(&env->vars, err, *p));
    }
    return PLIM_OK;
}

void plim_env_fini(struct plim_env *env)
{
    plim_vec_fini(&env->vars);
}

/* The value of a name in the copy, or NULL when it is not there or empty. */
static const char *value_of(const struct plim_env *env, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < env->vars.n; i++) {
        const char *have = env->vars.items[i];
        if (strncmp(have, name, n) == 0 && have[n] == '=') {
            return have[n + 1] != '\0' ? have + n + 1 : NULL;
        }
    }
    return NULL;
}

enum plim_status plim_env_put(struct plim_env *env, const char *name, const char *value,
                              struct plim_err *err)
{
    size_t n = strlen(name), keep = 0;
    for (size_t i = 0; i < env->vars.n; i++) {
        char *have = env->vars.items[i];
        if (strncmp(have, name, n) != 0 || have[n] != '=') {
            env->vars.items[keep++] = have;
        }
    }
    env->vars.n = keep;
    struct plim_str text;
    PLIM_TRY(plim_arena_str(
        env->arena, plim_str_from(plim_arena_sayf(env->arena, "%s=%s", name, value)), &text, err));
    return plim_vec_push(&env->vars, err, (char *)text.p);
}

enum plim_status plim_env_put_first(struct plim_env *env, const char *name, const char *value,
                                    struct plim_err *err)
{
    const char *before = value_of(env, name);
    return plim_env_put(
        env, name, before == NULL ? value : plim_arena_sayf(env->arena, "%s:%s", value, before),
        err);
}

enum plim_status plim_env_put_last(struct plim_env *env, const char *name, const char *value,
                                   struct plim_err *err)
{
    const char *before = value_of(env, name);
    return plim_env_put(
        env, name, before == NULL ? value : plim_arena_sayf(env->arena, "%s:%s", before, value),
        err);
}

enum plim_status plim_env_put_default(struct plim_env *env, const char *name, const char *value,
                                      struct plim_err *err)
{
    return value_of(env, name) != NULL ? PLIM_OK : plim_env_put(env, name, value, err);
}

enum plim_status plim_env_done(struct plim_env *env, char ***out, struct plim_err *err)
{
    void *array;
    PLIM_TRY(plim_arena_array(env->arena, env->vars.n + 1, sizeof(char *), &array, err));
    if (env->vars.n > 0) {
        memcpy(array, env->vars.items, env->vars.n * sizeof(char *));
    }
    *out = array;
    return plim_arena_status(env->arena, err);
}

const char *plim_own_folder(struct plim_arena *arena, const char *variable, const char *built,
                            const char *installed, const char *file)
{
    char self[400];
    const char *folders[3] = {plim_env_get(variable), NULL, NULL};
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n > 0) {
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
        folders[1] = plim_arena_sayf(arena, "%s/%s", self, built);
        folders[2] = plim_arena_sayf(arena, "%s/%s", self, installed);
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(folders); i++) {
        if (folders[i] != NULL &&
            access(plim_arena_sayf(arena, "%s/%s", folders[i], file), R_OK) == 0) {
            return folders[i];
        }
    }
    return NULL;
}
