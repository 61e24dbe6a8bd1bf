/* SPDX-License-Identifier: Apache-2.0 */

/* The wrapped allocation functions and the sweep over them. See fail_alloc.h. */

#include "fail_alloc.h"

#include "unit.h"

#include <stdlib.h>

/* Atomic, because tests with threads allocate from several; a sweep itself has one thread. */
static _Atomic uint64_t countdown; /* allocations until the failing one; 0 = none fails */
static _Atomic uint64_t allocations;
static _Atomic int64_t live;
static _Atomic bool happened;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static bool fails_now(void)
{
    allocations++;
    if (countdown > 0 && --countdown == 0) {
        happened = true;
        return true;
    }
    return false;
}

void *__wrap_malloc(size_t n)
{
    void *p = fails_now() ? NULL : __real_malloc(n);
    live += p != NULL;
    return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *p = fails_now() ? NULL : __real_calloc(n, size);
    live += p != NULL;
    return p;
}

void *__wrap_realloc(void *p, size_t n)
{
    void *moved = fails_now() ? NULL : __real_realloc(p, n);
    live += p == NULL && moved != NULL;
    return moved;
}

void __wrap_free(void *p)
{
    live -= p != NULL;
    __real_free(p);
}

void fail_alloc_at(uint64_t n)
{
    countdown = n;
    happened = false;
    allocations = 0;
}

bool fail_alloc_happened(void)
{
    return happened;
}

int64_t fail_alloc_live(void)
{
    return live;
}

uint64_t fail_alloc_sweep(fail_alloc_body body, void *arg, uint64_t limit, bool may_survive)
{
    for (uint64_t n = 1; n <= limit; n++) {
        int64_t before = live;
        fail_alloc_at(n);
        enum plim_status st = body(arg);
        bool failed = happened;
        uint64_t seen = allocations;
        fail_alloc_at(0);
        if (live != before) {
            fail_msg("allocation %llu failed: %lld allocations leaked", (unsigned long long)n,
                     (long long)(live - before));
        }
        if (!failed) {
            assert_int_equal(st, PLIM_OK);
            return seen;
        }
        if (st != PLIM_E_NOMEM && !(may_survive && st == PLIM_OK)) {
            fail_msg("allocation %llu failed: the status is %s, not E_NOMEM", (unsigned long long)n,
                     plim_status_name(st));
        }
    }
    fail_msg("more than %llu allocations", (unsigned long long)limit);
    return 0;
}
