/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that are found by name: cuGetProcAddress and cudaGetDriverEntryPoint; dlsym.c has dlsym.
 * Whoever asks for a hooked function gets the hook, and we remember the real one that they would have
 * got.
 *
 * cuGetProcAddress is asked for a base name, a CUDA version and a kind of default stream, and picks one
 * of several functions with different parameters. Which one it picked we learn by comparing its answer
 * with the exported functions; where the driver hands out other addresses than it exports, by the
 * versions in hooks.def. A version newer than those is asked again as the newest one we know: only when
 * that gives the same function is its shape known. Everything else is handed out unhooked, and counted.
 *
 * Source: cuGetProcAddress in the CUDA driver API reference 13.0; dlsym(3).
 */

#include "record.h"

#include <dlfcn.h>
#include <string.h>

#define API          __attribute__((visibility("default")))
#define NEWEST_KNOWN 13000 /* CUDA version whose headers hooks.def was checked against */
#define PER_THREAD   2u    /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
#define NOT_THERE    3     /* CUDA_ERROR_NOT_INITIALIZED */

/* ---- the table, by name */

#define LOOKUP(level, symbol, since) extern int symbol();
#define ALIAS(base, symbol, since)
#define HOOK(level, symbol, since, kind, params, args, before, after) extern int symbol();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include "hooks.def"
#pragma GCC diagnostic pop
#undef HOOK
#undef LOOKUP

const struct plim__hook plim__hooks[PLIM__CALLS] = {
    [PLIM__CALL_NONE] = {.symbol = ""},
#define LOOKUP(level, symbol, since)                                                               \
    [PLIM__CALL_##symbol] = {#symbol, (void (*)(void))symbol, since, PLIM__##level, 0},
#define HOOK(level, symbol, since, kind, params, args, before, after)                              \
    [PLIM__CALL_##                                                                                 \
        symbol] = {#symbol, (void (*)(void))symbol, since, PLIM__##level, PLIM_EVENT_##kind},
#include "hooks.def"
#undef HOOK
#undef LOOKUP
};
#undef ALIAS

static const struct {
    const char *base;
    uint16_t call, since;
} aliases[] = {
#define LOOKUP(level, symbol, since)
#define ALIAS(base, symbol, since) {#base, PLIM__CALL_##symbol, since},
#define HOOK(level, symbol, since, kind, params, args, before, after)
#include "hooks.def"
#undef HOOK
#undef ALIAS
#undef LOOKUP
};

void *plim__function(unsigned call)
{
    void *p;
    memcpy(&p, &plim__hooks[call].function, sizeof p); /* a function pointer to a data pointer */
    return p;
}

unsigned plim__hook_named(const char *symbol)
{
    for (unsigned i = 1; i < PLIM__CALLS; i++) {
        if (strcmp(plim__hooks[i].symbol, symbol) == 0) {
            return i;
        }
    }
    return 0;
}

static bool per_thread(const char *symbol)
{
    size_t n = strlen(symbol);
    return n > 5 && strcmp(symbol + n - 5, "_ptsz") == 0;
}

/* Whether `base` is the symbol's name without _v2, _v3, ... and _ptsz. */
static bool has_base(const char *symbol, const char *base)
{
    size_t n = strlen(base);
    if (strncmp(symbol, base, n) != 0) {
        return false;
    }
    const char *rest = symbol + n;
    if (rest[0] == '_' && rest[1] == 'v' && rest[2] >= '2' && rest[2] <= '9') {
        rest += 3;
    }
    return rest[0] == '\0' || strcmp(rest, "_ptsz") == 0;
}

/* ---- cuGetProcAddress */

static unsigned by_address(const char *base, const void *real)
{
    for (unsigned i = 1; i < PLIM__CALLS; i++) {
        if (plim__hooks[i].level == PLIM__DRIVER && has_base(plim__hooks[i].symbol, base) &&
            plim__real(i) == real) {
            return i;
        }
    }
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (strcmp(aliases[i].base, base) == 0 && plim__real(aliases[i].call) == real) {
            return aliases[i].call;
        }
    }
    return 0;
}

static unsigned by_version(const char *base, int version, bool thread)
{
    unsigned best = 0, since = 0;
    for (unsigned i = 1; i < PLIM__CALLS; i++) {
        const struct plim__hook *hook = &plim__hooks[i];
        bool fits = hook->level == PLIM__DRIVER && has_base(hook->symbol, base) &&
                    hook->since <= version && hook->since >= since;
        /* Without a variant for per-thread streams the plain one is given for both. */
        if (fits && (hook->since > since || best == 0 || per_thread(hook->symbol) == thread)) {
            best = i;
            since = hook->since;
        }
    }
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (strcmp(aliases[i].base, base) == 0 && aliases[i].since <= version) {
            best = aliases[i].call;
        }
    }
    return best != 0 && per_thread(plim__hooks[best].symbol) && !thread ? 0 : best;
}

static bool is_hooked(const char *base)
{
    return by_version(base, INT32_MAX, true) != 0 || by_version(base, INT32_MAX, false) != 0;
}

/* What to hand out instead of `real`: a hook, or itself. */
static void *instead(const char *base, void *real, int version, bool thread)
{
    unsigned call = plim__own(real) ? 0 : by_address(base, real);
    if (call == 0 && !plim__own(real)) {
        call = version > 0 && version <= NEWEST_KNOWN ? by_version(base, version, thread) : 0;
        if (call != 0) {
            (void)plim__bind(call, real); /* or the exported one, which is the same function */
        } else if (plim__on() && is_hooked(base)) {
            PLIM__COUNT(unhooked);
        }
    }
    return call == 0 ? real : plim__function(call);
}

API int cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
                            int *status);
API int cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
                            int *status)
{
    int (*real)(const char *, void **, int, uint64_t, int *) =
        plim__real(PLIM__CALL_cuGetProcAddress_v2);
    int rc = real == NULL ? NOT_THERE : real(symbol, out, version, flags, status);
    if (rc == 0 && symbol != NULL && out != NULL && *out != NULL) {
        void *known = NULL;
        int shape = version;
        if (version > NEWEST_KNOWN && real(symbol, &known, NEWEST_KNOWN, flags, NULL) == 0 &&
            known == *out) {
            shape = NEWEST_KNOWN;
        }
        *out = instead(symbol, *out, shape, (flags & PER_THREAD) != 0);
    }
    return rc;
}

API int cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags);
API int cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags)
{
    int (*real)(const char *, void **, int, uint64_t) = plim__real(PLIM__CALL_cuGetProcAddress);
    int rc = real == NULL ? NOT_THERE : real(symbol, out, version, flags);
    if (rc == 0 && symbol != NULL && out != NULL && *out != NULL) {
        *out = instead(symbol, *out, version, (flags & PER_THREAD) != 0);
    }
    return rc;
}

/* ---- cudaGetDriverEntryPoint. A real runtime asks our cuGetProcAddress and has the hook already. */

#define ENTRY_POINT(name)                                                                          \
    API int name(const char *symbol, void **out, uint64_t flags, int *status);                     \
    API int name(const char *symbol, void **out, uint64_t flags, int *status)                      \
    {                                                                                              \
        int (*real)(const char *, void **, uint64_t, int *) = plim__real(PLIM__CALL_##name);       \
        int rc = real == NULL ? NOT_THERE : real(symbol, out, flags, status);                      \
        if (rc == 0 && symbol != NULL && out != NULL && *out != NULL) {                            \
            *out = instead(symbol, *out, 0, (flags & PER_THREAD) != 0);                            \
        }                                                                                          \
        return rc;                                                                                 \
    }
#define ENTRY_POINT_BY_VERSION(name)                                                               \
    API int name(const char *symbol, void **out, unsigned version, uint64_t flags, int *status);   \
    API int name(const char *symbol, void **out, unsigned version, uint64_t flags, int *status)    \
    {                                                                                              \
        int (*real)(const char *, void **, unsigned, uint64_t, int *) =                            \
            plim__real(PLIM__CALL_##name);                                                         \
        int rc = real == NULL ? NOT_THERE : real(symbol, out, version, flags, status);             \
        if (rc == 0 && symbol != NULL && out != NULL && *out != NULL) {                            \
            *out = instead(symbol, *out, (int)version, (flags & PER_THREAD) != 0);                 \
        }                                                                                          \
        return rc;                                                                                 \
    }
ENTRY_POINT(cudaGetDriverEntryPoint)
ENTRY_POINT(cudaGetDriverEntryPoint_ptsz)
ENTRY_POINT_BY_VERSION(cudaGetDriverEntryPointByVersion)
ENTRY_POINT_BY_VERSION(cudaGetDriverEntryPointByVersion_ptsz)

/* ---- dlsym of the C library */

typedef void *dlsym_function(void *handle, const char *name);

dlsym_function *plim__next_dlsym __attribute__((visibility("hidden"))); /* (atomic) */

void plim__find_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *p = NULL;
    dlsym_function *real;
    if (__atomic_load_n(&plim__next_dlsym, __ATOMIC_ACQUIRE) != NULL) {
        return;
    }
    for (size_t i = 0; p == NULL && i < sizeof versions / sizeof *versions; i++) {
        p = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    memcpy(&real, &p, sizeof real); /* a data pointer to a function pointer */
    __atomic_store_n(&plim__next_dlsym, real, __ATOMIC_RELEASE);
}

void *plim__real_dlsym(void *handle, const char *name)
{
    plim__find_dlsym();
    dlsym_function *real = __atomic_load_n(&plim__next_dlsym, __ATOMIC_ACQUIRE);
    return real == NULL ? NULL : real(handle, name);
}
