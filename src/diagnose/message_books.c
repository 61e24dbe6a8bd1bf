/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The books of a PyTorch message: which printed figure is what, and what follows from them.
 *
 *   reserved  = allocated + cached (1.0 to 1.3), or as printed (1.4 to 2.0), or allocated +
 *               "reserved but unallocated" (2.1 and later)
 *   live      = allocated - free blocks of private pools (2.1 and later print them inside allocated)
 *   gap       = reserved - live - private. The message is composed after the allocator has already
 *               given every wholly free segment back, so all of it is stranded.
 *   own other = this process by the driver's account - reserved: context, libraries, graphs
 *   others    = total - free - this process
 *
 * Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 1.4 to 2.14.
 */

#include "diagnose/message_internal.h"

static struct plim_amount minus(struct plim_amount a, struct plim_amount b, enum plim_how how)
{
    if (!plim_known(a) || !plim_known(b)) {
        return (struct plim_amount){0};
    }
    return plim_amount(plim_sub_sat(a.bytes, b.bytes), how);
}

static struct plim_amount plus(struct plim_amount a, struct plim_amount b)
{
    if (!plim_known(a) || !plim_known(b)) {
        return (struct plim_amount){0};
    }
    return plim_amount(plim_add_sat(a.bytes, b.bytes), PLIM_HOW_COMPUTED);
}

/* What the allocator holds, from whichever pair of figures this version prints. */
static void read_allocator(struct plim__case *c)
{
    struct plim__books *b = &c->books;
    struct plim_amount allocated = plim__field(c, PLIM_OOM_ALLOCATED);
    struct plim_amount unallocated = plim__field(c, PLIM_OOM_UNALLOCATED);
    if (!plim_known(allocated)) {
        allocated = plim__field(c, PLIM_OOM_STAT_ALLOCATED);
    }
    b->private_free = plim__field(c, PLIM_OOM_PRIVATE_FREE);
    b->live = allocated;
    if (plim_known(b->private_free)) {
        b->live = minus(allocated, b->private_free, PLIM_HOW_COMPUTED);
    }
    b->reserved = plim__field(c, PLIM_OOM_RESERVED);
    if (!plim_known(b->reserved)) {
        struct plim_amount cached = plim__field(c, PLIM_OOM_CACHED);
        b->reserved = plus(allocated, plim_known(unallocated) ? unallocated : cached);
    }
    if (!plim_known(b->reserved)) {
        b->reserved = plim__field(c, PLIM_OOM_STAT_RESERVED);
    }
    b->gap =
        plim_known(unallocated) ? unallocated : minus(b->reserved, allocated, PLIM_HOW_COMPUTED);
    if (plim_known(plim__field(c, PLIM_OOM_CACHED))) {
        b->gap = plim__field(c, PLIM_OOM_CACHED);
    }
}

/*
 * Inside a container the process does not recognize itself by its pid and is listed as a stranger:
 * the stranger whose size is reserved plus a context is oneself, and so is one that would not fit on
 * the device beside what we reserved.
 */
static size_t find_own(const struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    size_t best = SIZE_MAX;
    for (size_t i = 0; plim_known(b->reserved) && i < c->facts->processes; i++) {
        uint64_t bytes = c->facts->process[i].bytes;
        uint64_t least = plim_sub_sat(b->reserved.bytes, PLIM_GIB / 100);
        bool near = bytes <= plim_add_sat(b->reserved.bytes, PLIM__CONTEXT_LOADED);
        bool no_room = plim_known(b->total) && bytes < PLIM__NO_SIZE &&
                       plim_add_sat(bytes, b->reserved.bytes) > b->total.bytes;
        if (bytes >= least && (near || no_room) &&
            (best == SIZE_MAX || bytes < c->facts->process[best].bytes)) {
            best = i;
        }
    }
    return best;
}

static void read_processes(struct plim__case *c)
{
    struct plim__books *b = &c->books;
    const struct plim_oom_value *own = &c->facts->field[PLIM_OOM_OWN_PROCESS];
    size_t self = SIZE_MAX;
    b->own_hidden = own->set && (own->n == 0 || own->n >= PLIM__NO_SIZE);
    b->own = b->own_hidden ? (struct plim_amount){0} : plim__field(c, PLIM_OOM_OWN_PROCESS);
    if (!plim_known(b->own)) {
        self = find_own(c);
        if (self != SIZE_MAX) {
            b->own = plim_amount(c->facts->process[self].bytes, PLIM_HOW_MEASURED);
            b->own_by_arithmetic = true;
        }
    }
    uint64_t listed = 0;
    for (size_t i = 0; i < c->facts->processes; i++) {
        bool counts = i != self && c->facts->process[i].bytes < PLIM__NO_SIZE;
        bool table_self = c->facts->process[i].listed && plim_known(b->own) &&
                          c->facts->process[i].bytes / PLIM_MIB == b->own.bytes / PLIM_MIB;
        listed = counts && !table_self ? plim_add_sat(listed, c->facts->process[i].bytes) : listed;
    }
    if (listed > 0) {
        b->listed = plim_amount(listed, PLIM_HOW_MEASURED);
    }
    b->own_other = minus(b->own, b->reserved, PLIM_HOW_COMPUTED);
}

static void read_outside(struct plim__case *c)
{
    struct plim__books *b = &c->books;
    struct plim_amount used = minus(b->total, b->free, PLIM_HOW_COMPUTED);
    bool sane = plim_known(b->total) && plim_known(b->free) && b->free.bytes <= b->total.bytes;
    if (!sane || (plim_known(b->reserved) && b->reserved.bytes > b->total.bytes)) {
        return;
    }
    if (plim_known(b->own)) {
        b->others = minus(used, b->own, PLIM_HOW_COMPUTED);
    } else if (plim_known(b->reserved)) {
        /* Nobody says how large our own context is. */
        struct plim_amount outside = minus(used, b->reserved, PLIM_HOW_COMPUTED);
        uint64_t context = plim_min_u64(outside.bytes, PLIM__CONTEXT_TYPICAL);
        b->own_other = plim_amount(context, PLIM_HOW_ESTIMATED);
        b->others = plim_amount(outside.bytes - context, PLIM_HOW_ESTIMATED);
    }
}

struct plim_amount plim__books_context(const struct plim__books *books)
{
    if (plim_known(books->own_other) && books->own_other.how == PLIM_HOW_COMPUTED) {
        return plim_amount(plim_min_u64(books->own_other.bytes, PLIM__CONTEXT_MOST),
                           PLIM_HOW_COMPUTED);
    }
    return plim_amount(PLIM__CONTEXT_LEAST, PLIM_HOW_ESTIMATED);
}

static void fill_ledger(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    struct plim_ledger *ledger = &c->set->ledger;
    struct plim_amount allocated = plim__field(c, PLIM_OOM_ALLOCATED);
    ledger->moment = "at the failure";
    ledger->total = b->total;
    ledger->capacity = plim_known(b->cap) ? b->cap : b->total;
    ledger->allocated = plim_known(b->private_free) ? b->live : allocated;
    ledger->reserved = b->reserved;
    ledger->request = b->request;
    ledger->owner[PLIM_OWNER_LIVE] = b->live;
    ledger->owner[PLIM_OWNER_STRANDED] = b->gap;
    ledger->owner[PLIM_OWNER_PRIVATE_FREE] = b->private_free;
    ledger->owner[PLIM_OWNER_PROCESS_OTHER] = b->own_other;
    ledger->owner[PLIM_OWNER_FREE] = b->free;
    ledger->owner[PLIM_OWNER_OTHER_PROCESSES] = b->others;
    if (plim_known(b->listed) && plim_known(b->others) && b->listed.bytes < b->others.bytes) {
        ledger->owner[PLIM_OWNER_OTHER_PROCESSES] = b->listed;
        ledger->owner[PLIM_OWNER_UNACCOUNTED] =
            plim_amount(b->others.bytes - b->listed.bytes, PLIM_HOW_COMPUTED);
    }
}

void plim__books_read(struct plim__case *c)
{
    struct plim__books *b = &c->books;
    *b = (struct plim__books){0};
    b->total = plim__field(c, PLIM_OOM_TOTAL);
    b->free = plim__field(c, PLIM_OOM_FREE);
    b->request = plim__field(c, PLIM_OOM_REQUEST);
    b->cap = plim__field(c, PLIM_OOM_ALLOWED);
    if (!plim_known(b->cap)) {
        b->cap = plim__field(c, PLIM_OOM_LIMIT);
    }
    if (!plim_known(b->total)) {
        b->total = plim__field(c, PLIM_OOM_SMI_TOTAL);
    }
    read_allocator(c);
    read_processes(c);
    read_outside(c);
    fill_ledger(c);
}

static void without(struct plim__case *c, const char *name, const char *what, uint64_t gains)
{
    const struct plim__books *b = &c->books;
    uint64_t room = plim_add_sat(b->free.bytes, gains);
    bool fits = room >= b->request.bytes;
    plim__counterfactual(c, name, gains, fits,
                         plim__say(c, "%s: %s free + %s = %s, %s %s", what,
                                   plim__size(c, b->free.bytes), plim__size(c, gains),
                                   plim__size(c, room), fits ? "enough for" : "less than",
                                   plim__size(c, b->request.bytes)));
}

void plim__books_counterfactuals(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (!plim_known(b->request)) {
        return;
    }
    if (plim_known(b->total) && plim_known(b->live)) {
        uint64_t context = plim__books_context(b).bytes;
        uint64_t need = plim_add_sat(plim_add_sat(b->live.bytes, b->request.bytes), context);
        plim__counterfactual(
            c, "alone_and_compact", plim_sub_sat(b->total.bytes, b->live.bytes),
            need <= b->total.bytes,
            plim__say(
                c, "with the device to itself and no slack: %s live + %s + context %s = %s of %s",
                plim__size(c, b->live.bytes), plim__size(c, b->request.bytes),
                plim__size(c, context), plim__size(c, need), plim__size(c, b->total.bytes)));
    }
    bool sane = plim_known(b->free) && !(plim_known(b->total) &&
                                         (b->free.bytes > b->total.bytes ||
                                          (plim_known(b->live) && b->live.bytes > b->total.bytes)));
    if (!sane) {
        return;
    }
    if (b->free.bytes >= b->request.bytes) {
        /* Taking something away proves nothing when there was room already. */
        bool capped = c->set->verdict.subclass == PLIM_SUBCLASS_ALLOCATOR_LIMIT;
        if (!capped) {
            plim__counterfactual(c, "as_it_was", 0, true,
                                 plim__say(c,
                                           "with nothing taken away: %s free for %s, and it was "
                                           "refused all the same",
                                           plim__size(c, b->free.bytes),
                                           plim__size(c, b->request.bytes)));
        }
        return;
    }
    if (plim_known(b->gap) && b->gap.bytes > 0) {
        without(c, "no_stranded", "without stranded bytes", b->gap.bytes);
    }
    if (plim_known(b->private_free) && b->private_free.bytes > 0) {
        without(c, "no_private_pools", "without free blocks of private pools",
                b->private_free.bytes);
    }
    if (plim_known(b->others) && b->others.bytes > PLIM_GIB / 10) {
        without(c, "no_other_processes", "without other processes", b->others.bytes);
    }
    if (plim_known(b->own_other) && b->own_other.bytes > PLIM__CONTEXT_LOADED) {
        without(c, "no_process_other", "with a usual context of this process",
                b->own_other.bytes - PLIM__CONTEXT_MOST);
    }
}
