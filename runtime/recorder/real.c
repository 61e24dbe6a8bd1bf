/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the real functions are.
 *
 * Whoever looked a function up told us (plim__bind). For the others: the next object behind us that
 * has the name, as the loader would have bound it without us; else the vendor's library, if it is
 * loaded already where the caller can see it and we cannot (an extension module's own dependency).
 */

#include "record.h"

#include <dlfcn.h>
#include <string.h>

void *plim__reals[PLIM__CALLS]; /* (atomic) */

static void *helpers[PLIM__HELPER_COUNT]; /* (atomic) */

extern const char plim__image_start[] __asm__("__ehdr_start") __attribute__((visibility("hidden")));
extern const char plim__image_end[] __asm__("_end") __attribute__((visibility("hidden")));

bool plim__own(const void *p)
{
    return (const char *)p >= plim__image_start && (const char *)p < plim__image_end;
}

static bool of_driver(const char *symbol)
{
    return symbol[0] == 'c' && symbol[1] == 'u' && symbol[2] >= 'A' && symbol[2] <= 'Z';
}

static void *find(const char *symbol)
{
    static const char *const drivers[] = {"libcuda.so.1", NULL};
    static const char *const runtimes[] = {"libcudart.so.13", "libcudart.so.12",
                                           "libcudart.so.11.0", NULL};
    void *p = plim__real_dlsym(RTLD_NEXT, symbol);
    for (const char *const *name = of_driver(symbol) ? drivers : runtimes;
         p == NULL && *name != NULL; name++) {
        void *library = dlopen(*name, RTLD_LAZY | RTLD_NOLOAD);
        p = library == NULL ? NULL : plim__real_dlsym(library, symbol);
        /* The handle is kept: what p points into must stay. */
        p = plim__own(p) ? NULL : p;
    }
    return p;
}

void *plim__real_slow(unsigned call)
{
    void *none = NULL, *p = find(plim__hooks[call].symbol);
    if (p != NULL) {
        (void)__atomic_compare_exchange_n(&plim__reals[call], &none, p, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE);
    }
    return __atomic_load_n(&plim__reals[call], __ATOMIC_ACQUIRE);
}

bool plim__bind(unsigned call, void *real)
{
    void *none = NULL;
    return __atomic_compare_exchange_n(&plim__reals[call], &none, real, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE) ||
           none == real;
}

void *plim__helper(enum plim__helper helper)
{
    static const char *const names[] = {
#define PLIM__X(symbol) #symbol,
        PLIM__HELPERS(PLIM__X)
#undef PLIM__X
    };
    void *p = __atomic_load_n(&helpers[helper], __ATOMIC_ACQUIRE);
    if (p == NULL) {
        p = find(names[helper]);
        __atomic_store_n(&helpers[helper], p, __ATOMIC_RELEASE);
    }
    return p;
}
