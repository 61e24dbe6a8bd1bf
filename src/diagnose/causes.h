/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_CAUSES_H
#define PLIM_DIAGNOSE_CAUSES_H

/*
 * Possible causes of a failure: what taking each away would give, and whether it counts.
 *
 * sufficient: the request would have fitted without it. material: large enough to be why the device is
 * full: a request of 20 MiB fits into any hole of 70 MiB, which says nothing. outpaced: live bytes grew
 * so fast that it would only have put the failure off.
 * Internal to src/diagnose. Threads: plain data.
 */

#include "diagnose/diagnose.h"

/* Free bytes inside the allocator are a cause from this share of the capacity on: below it they are the
 * usual cost of caching. When the request itself is large (its share), fewer are enough. */
#define FREE_SHARE          0.10
#define LARGE_REQUEST_SHARE 0.01
#define FREE_SHARE_FOR_IT   0.04
/* One possible cause, with what taking it away gives. */
struct plim__cause {
    const char *name;
    const char *what; /* "stranded bytes", for the sentence */
    enum plim_class cls;
    enum plim_subclass subclass;
    struct plim_amount gain;
    double weight; /* how far to prefer it among others: 1 when measured */
    bool in_place; /* the gain must be one hole, not a sum */
};

struct plim__bench {
    const struct plim_snapshot *snapshot;
    struct plim_diagnosis *d;
    struct plim_arena *arena;
    uint64_t need;           /* driver bytes of the request */
    struct plim_amount free; /* usable without doing anything: free and releasable */
    uint64_t base;           /* bytes that shares are taken of: capacity, or what is reserved */
    uint64_t material;       /* a leak or outside memory below this many bytes is not a cause */
    const struct plim__cause *best;
};

#define PLIM__MAX_CAUSES 9

/** plim__say_bytes() - "1.50 GiB", arena-owned. */
const char *plim__say_bytes(struct plim__bench *j, uint64_t bytes);

/** plim__owner() - bytes of an owner of the ledger; 0 when unknown. */
uint64_t plim__owner(const struct plim__bench *j, enum plim_owner owner);

/** plim__list_causes() - the causes that this input can speak of; their number. */
size_t plim__list_causes(const struct plim__bench *j, struct plim__cause causes[PLIM__MAX_CAUSES]);

bool plim__sufficient(const struct plim__bench *j, const struct plim__cause *c);
bool plim__material(const struct plim__bench *j, const struct plim__cause *c);

/**
 * plim__material_bytes() - from how many bytes on a leak or outside memory may be why a device is full.
 * @base: the capacity, or what is reserved.
 */
uint64_t plim__material_bytes(uint64_t base);

/** plim__counts() - sufficient, material and not outpaced. */
bool plim__counts(const struct plim__bench *j, const struct plim__cause *c);

/** plim__strongest() - of the causes that count, the one with most bytes; or NULL. */
const struct plim__cause *plim__strongest(const struct plim__bench *j,
                                          const struct plim__cause *causes, size_t n);

/** plim__push_counterfactual() - the cause as a row for people. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status
plim__push_counterfactual(struct plim__bench *j, const struct plim__cause *c, struct plim_err *err);

#endif
