/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the simulated device is, which cards it knows, and the environment that puts a program on it.
 */

#include "dryrun/dryrun.h"

#include "base/bytes.h"
#include "base/env.h"
#include "base/num.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

/* ---- cards */

struct card {
    const char *key, *name;
    uint64_t total; /* bytes */
};

/* The same table as the simulated device's, by size. */
static const struct card cards[] = {
#define SIM_CARD(key, name, total_mib, nvml_mib, ...) {key, name, (uint64_t)(total_mib) << 20},
#include "simgpu/cards.def"
#undef SIM_CARD
};

const char *plim_dryrun_card_key(uint32_t i, const char **name, uint64_t *total)
{
    /* The i-th smallest: few cards, so no sorted copy. */
    for (size_t a = 0; a < PLIM_COUNT_OF(cards); a++) {
        uint32_t before = 0;
        for (size_t b = 0; b < PLIM_COUNT_OF(cards); b++) {
            before +=
                cards[b].total < cards[a].total || (cards[b].total == cards[a].total && b < a);
        }
        if (before == i) {
            *name = cards[a].name;
            *total = cards[a].total;
            return cards[a].key;
        }
    }
    return NULL;
}

static bool is_size(const char *text)
{
    uint64_t bytes;
    return plim_bytes_parse(plim_str_from(text), &bytes, NULL, NULL) == PLIM_OK &&
           bytes >= (UINT64_C(64) << 20) && bytes <= (UINT64_C(8) << 40);
}

bool plim_dryrun_is_card(const char *key, size_t n)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(cards); i++) {
        if (strlen(cards[i].key) == n && strncasecmp(key, cards[i].key, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_card(const char *key)
{
    return plim_dryrun_is_card(key, strlen(key));
}

/* The key that shares most letters at its beginning. */
static const char *nearest(const char *key)
{
    size_t most = 1;
    const char *best = NULL;
    for (size_t i = 0; i < PLIM_COUNT_OF(cards); i++) {
        size_t n = 0;
        while (key[n] != '\0' && tolower((unsigned char)key[n]) == cards[i].key[n]) {
            n++;
        }
        if (n > most) {
            most = n;
            best = cards[i].key;
        }
    }
    return best;
}

static enum plim_status check_one(char *item, struct plim_err *err)
{
    char *star = strchr(item, '*'), *at = strchr(item, '@');
    if (star != NULL) {
        *star = '\0';
    }
    if (at != NULL) {
        *at = '\0';
    }
    if (at != NULL ? is_card(item) && is_size(at + 1) : is_card(item) || is_size(item)) {
        return PLIM_OK;
    }
    enum plim_status st = plim__fail(err, PLIM_E_USAGE, "no card is called '%.60s'", item);
    const char *near = nearest(item);
    if (near != NULL) {
        plim__err_hint(
            err, "did you mean '%s'? A size works too: --gpu 24GiB. --list-gpus lists all", near);
    } else {
        plim__err_hint(err, "a size works too: --gpu 24GiB. --list-gpus lists all cards");
    }
    return st;
}

enum plim_status plim_dryrun_check_gpu(const char *gpu, struct plim_err *err)
{
    const char *p = gpu;
    do {
        char item[64];
        size_t n = strcspn(p, ",");
        if (n == 0 || n >= sizeof(item)) {
            return plim__fail(err, PLIM_E_USAGE, "'%.60s' is no list of cards", gpu);
        }
        memcpy(item, p, n);
        item[n] = '\0';
        p += n + (p[n] == ',');
        PLIM_TRY(check_one(item, err));
    } while (*p != '\0');
    return PLIM_OK;
}

/* ---- folders */

#define LIBRARY "libplimsoll-simgpu.so"

enum plim_status plim_dryrun_find(struct plim_arena *arena, struct plim_dryrun_place *out,
                                  struct plim_err *err)
{
    const char *folder = plim_own_folder(arena, "PLIMSOLL_SIMGPU_DIR", "runtime/simgpu",
                                         "../" PLIM_DRYRUN_LIBDIR "/plimsoll/simgpu", LIBRARY);
    if (folder != NULL) {
        *out = (struct plim_dryrun_place){
            .core = plim_arena_sayf(arena, "%s/" LIBRARY, folder),
            .shells = plim_arena_sayf(arena, "%s/shells", folder),
            .start = plim_arena_sayf(arena, "%s/start", folder),
        };
        return plim_arena_status(arena, err);
    }
    enum plim_status st = plim__fail(err, PLIM_E_NOINPUT, "the simulated GPU is not installed");
    plim__err_hint(err, "build the whole project, or name its folder in PLIMSOLL_SIMGPU_DIR");
    return st;
}

/* ---- environment */

/* readdir() on a stream of our own. */
static const struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe)
}

/* The core and every shell, for LD_PRELOAD: names are matched by SONAME, so they must all be there. */
static const char *preload(const struct plim_dryrun_place *place, struct plim_arena *arena)
{
    const char *list = place->core;
    DIR *dir = opendir(place->shells);
    const struct dirent *entry;
    while (dir != NULL && (entry = next_entry(dir)) != NULL) {
        const char *so = strstr(entry->d_name, ".so.");
        if (so != NULL && strchr(so + 4, '.') == NULL) {
            list = plim_arena_sayf(arena, "%s:%s/%s", list, place->shells, entry->d_name);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return list;
}

static enum plim_status put_settings(struct plim_env *env, const struct plim_dryrun_setup *setup,
                                     const char *folder, struct plim_err *err)
{
    PLIM_TRY(plim_env_put(env, "PLIMSOLL_SIM_GPU", setup->gpu, err));
    PLIM_TRY(plim_env_put(env, "PLIMSOLL_SIM_STATE",
                          plim_arena_sayf(env->arena, "%s/books", folder), err));
    PLIM_TRY(plim_env_put(env, "PLIMSOLL_DRYRUN_DIR", folder, err));
    PLIM_TRY(plim_env_put(env, "PLIMSOLL_SIM_EXTERNAL",
                          plim_arena_sayf(env->arena, "%" PRIu64, setup->external), err));
    if (setup->has_context) {
        PLIM_TRY(plim_env_put(env, "PLIMSOLL_SIM_CONTEXT",
                              plim_arena_sayf(env->arena, "%" PRIu64, setup->context), err));
    }
    if (setup->kernel_ns != 0) {
        PLIM_TRY(plim_env_put(env, "PLIMSOLL_SIM_KERNEL_TIME",
                              plim_arena_sayf(env->arena, "%" PRIu64, setup->kernel_ns), err));
    }
    if (setup->history != 0) {
        PLIM_TRY(plim_env_put(env, "PLIMSOLL_DRYRUN_HISTORY",
                              plim_arena_sayf(env->arena, "%" PRIu64, setup->history), err));
    }
    if (setup->conf != NULL) { /* the old name for old releases */
        PLIM_TRY(plim_env_put(env, "PYTORCH_ALLOC_CONF", setup->conf, err));
        PLIM_TRY(plim_env_put(env, "PYTORCH_CUDA_ALLOC_CONF", setup->conf, err));
    }
    return PLIM_OK;
}

enum plim_status plim_dryrun_environment(const struct plim_dryrun_setup *setup,
                                         const struct plim_dryrun_place *place, const char *folder,
                                         struct plim_arena *arena, char ***out,
                                         struct plim_err *err)
{
    struct plim_env env;
    enum plim_status st = plim_env_copy(&env, arena, err);
    if (st != PLIM_OK) {
        goto done;
    }
    /* Behind what is preloaded already: a recorder sees the calls before the device does. */
    PLIM_TRY_GOTO(st, plim_env_put_last(&env, "LD_PRELOAD", preload(place, arena), err), done);
    PLIM_TRY_GOTO(st, plim_env_put_first(&env, "LD_LIBRARY_PATH", place->shells, err), done);
    PLIM_TRY_GOTO(st, plim_env_put_first(&env, "PYTHONPATH", place->start, err), done);
    PLIM_TRY_GOTO(st, put_settings(&env, setup, folder, err), done);
    /* Triton looks for the driver in this folder; vLLM has code that needs values from the device. */
    PLIM_TRY_GOTO(st, plim_env_put_default(&env, "TRITON_LIBCUDA_PATH", place->shells, err), done);
    PLIM_TRY_GOTO(st, plim_env_put_default(&env, "VLLM_USE_V2_MODEL_RUNNER", "0", err), done);
    PLIM_TRY_GOTO(st, plim_env_put_default(&env, "VLLM_USE_FLASHINFER_SAMPLER", "0", err), done);
    st = plim_env_done(&env, out, err);
done:
    plim_env_fini(&env);
    return st;
}
