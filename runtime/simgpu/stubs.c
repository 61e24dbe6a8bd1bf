/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points made from hooks.def, and the table of driver functions by name.
 *
 * A stub that writes an output takes more arguments than its callers pass: only integers and pointers
 * count, in order, and reading one that was not passed is harmless because it is not used.
 */

#include "sim.h"
#include <string.h>

#define N_ARGS 20
#define ARGS                                                                                       \
    void *a0, void *a1, void *a2, void *a3, void *a4, void *a5, void *a6, void *a7, void *a8,      \
        void *a9, void *a10, void *a11, void *a12, void *a13, void *a14, void *a15, void *a16,     \
        void *a17, void *a18, void *a19
#define LIST                                                                                       \
    {                                                                                              \
        a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19   \
    }

/* Any number of different values that are not NULL and never dereferenced. */
static void *next_handle(void)
{
    static _Atomic uintptr_t n = 0x51000000;
    return (void *)(atomic_fetch_add(&n, 64) + 64);
}

static long put_zeros(void *out, size_t bytes)
{
    if (out != NULL) {
        memset(out, 0, bytes);
    }
    return 0;
}

static long put_handle(void **out)
{
    if (out != NULL) {
        *out = next_handle();
    }
    return 0;
}

static long put_one(size_t *out)
{
    if (out != NULL) {
        *out = 1;
    }
    return 0;
}

static long missing(const char *name, long code)
{
    sim_missing(name);
    return strncmp(name, "cuda", 4) == 0 ? sim_ret((int)code) : code;
}

#define STUB_REAL(symbol, number)
#define STUB_OK(symbol, number)                                                                    \
    SIM_API long symbol(void)                                                                      \
    {                                                                                              \
        return 0;                                                                                  \
    }
#define STUB_FAIL(symbol, number)                                                                  \
    SIM_API long symbol(void)                                                                      \
    {                                                                                              \
        return missing(#symbol, number);                                                           \
    }
#define STUB_REFUSE(symbol, number)                                                                \
    SIM_API long symbol(void)                                                                      \
    {                                                                                              \
        return number;                                                                             \
    }
#define STUB_WRITE(symbol, action)                                                                 \
    SIM_API long symbol(ARGS)                                                                      \
    {                                                                                              \
        void *a[N_ARGS] = LIST;                                                                    \
        return action;                                                                             \
    }
#define STUB_HANDLE(symbol, number) STUB_WRITE(symbol, put_handle(a[number]))
#define STUB_SIZE(symbol, number)   STUB_WRITE(symbol, put_zeros(a[number], 8))
#define STUB_SIZE2(symbol, number)                                                                 \
    STUB_WRITE(symbol, put_zeros(a[number], 8) + put_zeros(a[(number) + 1], 8))
#define STUB_SIZE3(symbol, number)                                                                 \
    STUB_WRITE(symbol, put_zeros(a[number], 8) + put_zeros(a[(number) + 1], 8) +                   \
                           put_zeros(a[(number) + 2], 8))
#define STUB_INT(symbol, number) STUB_WRITE(symbol, put_zeros(a[number], 4))
#define STUB_ONE(symbol, number) STUB_WRITE(symbol, put_one(a[number]))

#define SIM_HOOK(library, symbol, kind, number) STUB_##kind(symbol, number)
#include "hooks.def"
#undef SIM_HOOK
