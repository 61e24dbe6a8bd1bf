/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_FAIL_ALLOC_H
#define PLIM_TESTS_FAIL_ALLOC_H

/*
 * Allocation-failure sweep: run a piece of code again and again, with its first allocation failing, then
 * its second, and so on until a run gets through. Each failed run must say PLIM_E_NOMEM and give back all
 * that it took.
 *
 * Works by the linker (--wrap=malloc and so on), so it sees the allocations of our own objects only, not
 * those inside other libraries. Link the test with `fail_alloc_dep` (tests/unit/meson.build).
 * Memory that another library hands over for free() must not be counted as ours: bodies avoid that.
 * Global state: counters of this harness, atomic; a sweep belongs to one thread.
 */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Code under test: does its work with `arg`, frees it, returns its status. */
typedef enum plim_status (*fail_alloc_body)(void *arg);

/**
 * fail_alloc_sweep() - the sweep; returns the number of allocations of an undisturbed run.
 * Fails the cmocka test when a run with a failed allocation returns neither PLIM_E_NOMEM nor PLIM_OK
 * with the same meaning (set `may_survive` for code that does without, such as a cache), leaks, or when
 * there are more than `limit` allocations.
 */
uint64_t fail_alloc_sweep(fail_alloc_body body, void *arg, uint64_t limit, bool may_survive);

/** fail_alloc_at() - let the n-th allocation from now fail (1 = the next one); 0 = none. */
void fail_alloc_at(uint64_t n);

/** fail_alloc_happened() - whether the failure asked for has taken place. */
bool fail_alloc_happened(void);

/** fail_alloc_live() - allocations not yet freed since the program began. */
int64_t fail_alloc_live(void);

#endif
