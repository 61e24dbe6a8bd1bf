/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_ADVICE_INTERNAL_H
#define PLIM_DIAGNOSE_ADVICE_INTERNAL_H

/*
 * What the rules of the advice share: advice.c has the table and the rules about the allocator, leaks and
 * others on the device; advice_less.c those about a working set that is too large.
 * Texts are arena-owned. Threads: one diagnosis belongs to one thread.
 */

#include "diagnose/causes.h"
#include "diagnose/replayed.h"

struct plim__adviser {
    const struct plim_snapshot *snapshot;
    const struct plim_diagnose_options *options;
    struct plim_diagnosis *d;
    struct plim_arena *arena;
    struct plim_trials trials;
};

/** plim__advice_bytes() - "1.50 GiB", arena-owned. */
const char *plim__advice_bytes(struct plim__adviser *a, uint64_t bytes);

/** plim__advice_owner() - bytes of an owner of the ledger. */
struct plim_amount plim__advice_owner(const struct plim__adviser *a, enum plim_owner which);

/** plim__advice_shortfall() - bytes that the request lacked. */
uint64_t plim__advice_shortfall(const struct plim__adviser *a);

/* Rules about a working set: whether they apply, and what they say. */
bool plim__request_is_large(const struct plim__adviser *a);
bool plim__is_unbalanced(const struct plim__adviser *a);
bool plim__evaluates_with_gradients(const struct plim__adviser *a);
struct plim_advice plim__advise_balance(struct plim__adviser *a);
struct plim_advice plim__advise_no_grad(struct plim__adviser *a);
struct plim_advice plim__advise_by_category(struct plim__adviser *a);

#endif
