/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that are found by name: dlsym, cuGetProcAddress, cudaGetDriverEntryPoint. Whoever asks for
 * a hooked function gets the hook, and we remember the real one that they would have got.
 *
 * dlsym is entered in assembly, because what it answers to RTLD_NEXT and RTLD_DEFAULT depends on who
 * calls it, which it takes from its return address: unless the answer is a hook, we jump to the real
 * dlsym with the stack as we found it.
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

static void *function(unsigned call)
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
    return call == 0 ? real : function(call);
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

/* ---- dlsym */

typedef void *dlsym_function(void *handle, const char *name);

dlsym_function *plim__next_dlsym __attribute__((visibility("hidden")));

static dlsym_function *find_dlsym(void)
{
    dlsym_function *real = __atomic_load_n(&plim__next_dlsym, __ATOMIC_ACQUIRE);
    if (real == NULL) {
        static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
        void *p = NULL;
        for (size_t i = 0; p == NULL && i < sizeof versions / sizeof *versions; i++) {
            p = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        }
        memcpy(&real, &p, sizeof real);
        __atomic_store_n(&plim__next_dlsym, real, __ATOMIC_RELEASE);
    }
    return real;
}

void *plim__real_dlsym(void *handle, const char *name)
{
    dlsym_function *real = find_dlsym();
    return real == NULL ? NULL : real(handle, name);
}

/* What our dlsym answers; NULL: what the real one does. */
void *plim__dlsym_answer(void *handle, const char *name) __attribute__((visibility("hidden")));
void *plim__dlsym_answer(void *handle, const char *name)
{
    (void)find_dlsym();
    if (handle == RTLD_NEXT || name == NULL || name[0] != 'c' || name[1] != 'u') {
        return NULL;
    }
    unsigned call = plim__hook_named(name);
    if (call == 0) {
        return NULL;
    }
    void *p = handle == RTLD_DEFAULT ? NULL : plim__real_dlsym(handle, name);
    if (handle == RTLD_DEFAULT || plim__own(p)) {
        /* A search that finds us first: there is such a function only if there is a real one. */
        return plim__real(call) != NULL ? function(call) : (void *)-1;
    }
    if (p == NULL) {
        return NULL;
    }
    if (!plim__bind(call, p) && plim__hooks[call].level == PLIM__RUNTIME) {
        if (plim__on()) {
            PLIM__COUNT(unhooked); /* a second runtime in one process: its functions stay its own */
        }
        return NULL;
    }
    return function(call);
}

/* dlsym: ask plim__dlsym_answer; NULL: jump to the real one; -1: answer NULL. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        ".p2align 4\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call plim__dlsym_answer\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rax, %rax\n"
        "    jnz 1f\n"
        "    jmp *plim__next_dlsym(%rip)\n"
        "1:  cmpq $-1, %rax\n"
        "    jne 2f\n"
        "    xorl %eax, %eax\n"
        "2:  ret\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        ".p2align 4\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    stp x29, x30, [sp, #-32]!\n"
        "    .cfi_def_cfa_offset 32\n"
        "    .cfi_offset 29, -32\n"
        "    .cfi_offset 30, -24\n"
        "    stp x0, x1, [sp, #16]\n"
        "    bl plim__dlsym_answer\n"
        "    mov x9, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    .cfi_restore 29\n"
        "    .cfi_restore 30\n"
        "    .cfi_def_cfa_offset 0\n"
        "    cbnz x9, 1f\n"
        "    adrp x9, plim__next_dlsym\n"
        "    ldr x9, [x9, :lo12:plim__next_dlsym]\n"
        "    br x9\n"
        "1:  cmn x9, #1\n"
        "    csel x0, xzr, x9, eq\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#else
#    error "dlsym is written for x86-64 and aarch64"
#endif
