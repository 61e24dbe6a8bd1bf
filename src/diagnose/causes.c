/* SPDX-License-Identifier: Apache-2.0 */
/* What each cause gives, and which of them count; see causes.h. */

#include "diagnose/causes.h"

#include "base/bytes.h"
#include "base/num.h"

/* Bytes of others that count as a cause from this share of the device on. */
#define OTHERS_SHARE 0.15
/* A context beyond this many bytes is worth a word (see books.c). */
#define LARGE_CONTEXT (UINT64_C(1200) * PLIM_MIB)
/* Rounding of this share of the capacity is a cause however fast live bytes grow: it grows with them. */
#define ROUNDING_SHARE 0.20
/* A suspicion from which a leak counts double, when what it holds is more than what it only pins. */
#define SURE_LEAK 0.7

const char *plim__say_bytes(struct plim__bench *j, uint64_t bytes)
{
    char buf[PLIM_BYTES_TEXT];
    return plim_arena_sayf(j->arena, "%s", plim_bytes_format(buf, bytes));
}

uint64_t plim__owner(const struct plim__bench *j, enum plim_owner owner)
{
    struct plim_amount a = j->d->set.ledger.owner[owner];
    return plim_known(a) ? a.bytes : 0;
}

bool plim__sufficient(const struct plim__bench *j, const struct plim__cause *c)
{
    if (!plim_known(c->gain)) {
        return false;
    }
    if (c->in_place) {
        return c->gain.bytes >= j->d->failure.size;
    }
    return plim_known(j->free) && plim_add_sat(j->free.bytes, c->gain.bytes) >= j->need;
}

uint64_t plim__material_bytes(uint64_t base)
{
    return plim_min_u64(base / 10, PLIM_GIB);
}

bool plim__material(const struct plim__bench *j, const struct plim__cause *c)
{
    double base = (double)j->base, gain = (double)c->gain.bytes;
    if (c->cls != PLIM_CLASS_FRAGMENTATION) {
        return c->gain.bytes >= j->material;
    }
    return gain >= FREE_SHARE * base ||
           (gain >= FREE_SHARE_FOR_IT * base && (double)j->need >= LARGE_REQUEST_SHARE * base);
}

/* Bytes by which the live level at the end is above that at the start of a bin. */
static int64_t grown_since(const struct plim__bench *j, uint32_t bin)
{
    const int64_t *floor = j->d->history.bin_floor;
    int64_t last = floor[PLIM_HISTORY_BINS - 1], before = floor[PLIM_HISTORY_BINS - 2];
    return (last > before ? last : before) - floor[bin];
}

/* Bytes by which more is live at the end than ever before the last eighth of the trace. */
static int64_t above_all_before(const struct plim__bench *j)
{
    const struct plim_history *h = &j->d->history;
    int64_t before = 0;
    for (uint32_t bin = 0; bin < PLIM_HISTORY_BINS * 7 / 8; bin++) {
        before = h->bin_peak[bin] > before ? h->bin_peak[bin] : before;
    }
    return h->live_end - before;
}

/* Live bytes grew by more than compaction would give: in the last quarter of the trace or, steadily, in
 * its second half, or by one pass that is larger than all before. Compaction would only have put the
 * failure off. */
static bool outpaced(const struct plim__bench *j, const struct plim__cause *c)
{
    int64_t quarter = grown_since(j, PLIM_HISTORY_BINS * 3 / 4);
    int64_t half = grown_since(j, PLIM_HISTORY_BINS / 2);
    int64_t gain = (int64_t)plim_min_u64(c->gain.bytes, INT64_MAX);
    if (c->subclass == PLIM_SUBCLASS_ROUNDING &&
        (double)c->gain.bytes >= ROUNDING_SHARE * (double)j->base) {
        return false;
    }
    return c->cls == PLIM_CLASS_FRAGMENTATION &&
           (quarter > gain || (half > gain && quarter >= half / 3) || above_all_before(j) > gain);
}

enum plim_status plim__push_counterfactual(struct plim__bench *j, const struct plim__cause *c,
                                           struct plim_err *err)
{
    struct plim_counterfactual row = {.name = c->name, .gains = c->gain};
    bool fits = plim__sufficient(j, c);
    row.fits = !plim_known(c->gain) || (!plim_known(j->free) && !c->in_place) ? PLIM_FITS_UNKNOWN
               : fits                                                         ? PLIM_FITS_YES
                                                                              : PLIM_FITS_NO;
    if (c->in_place) {
        row.text = plim_arena_sayf(j->arena, "%s: largest hole %s %s request %s", c->what,
                                   plim__say_bytes(j, c->gain.bytes), fits ? ">=" : "<",
                                   plim__say_bytes(j, j->d->failure.size));
    } else if (row.fits == PLIM_FITS_UNKNOWN) {
        row.text =
            plim_arena_sayf(j->arena, "%s: %s more", c->what, plim__say_bytes(j, c->gain.bytes));
    } else {
        row.text =
            plim_arena_sayf(j->arena, "%s: free %s + %s = %s %s request %s", c->what,
                            plim__say_bytes(j, j->free.bytes), plim__say_bytes(j, c->gain.bytes),
                            plim__say_bytes(j, plim_add_sat(j->free.bytes, c->gain.bytes)),
                            fits ? ">=" : "<", plim__say_bytes(j, j->need));
    }
    return plim_vec_push(&j->d->set.counterfactuals, err, row);
}

static struct plim__cause hole_cause(const char *name, const char *what,
                                     enum plim_subclass subclass, struct plim_amount gain)
{
    return (struct plim__cause){.name = name,
                                .what = what,
                                .cls = PLIM_CLASS_FRAGMENTATION,
                                .subclass = subclass,
                                .gain = gain,
                                .weight = 1};
}

/* Free bytes inside the allocator that the request could not use. */
static size_t list_holes(const struct plim__bench *j, struct plim__cause *causes)
{
    const struct plim_amount *owner = j->d->set.ledger.owner;
    const struct plim_failure *f = &j->d->failure;
    uint64_t any_hole = plim_largest_free(&j->d->heap, f->size, f->stream, true);
    uint64_t own_hole = plim_largest_free(&j->d->heap, f->size, f->stream, false);
    size_t n = 0;
    causes[n++] = hole_cause("no_stranded", "without stranded bytes (perfect compaction)",
                             PLIM_SUBCLASS_STRANDED, owner[PLIM_OWNER_STRANDED]);
    causes[n++] = hole_cause("no_private_pools", "if private pools gave back what they do not use",
                             PLIM_SUBCLASS_PRIVATE_POOL, owner[PLIM_OWNER_PRIVATE_FREE]);
    if (any_hole > own_hole && !j->d->too_late) {
        causes[n] =
            hole_cause("any_stream", "if a hole of another stream could be used",
                       PLIM_SUBCLASS_STREAM_BOUND, plim_amount(any_hole, PLIM_HOW_MEASURED));
        causes[n++].in_place = true;
    }
    causes[n] = hole_cause("no_rounding", "without rounding of sizes", PLIM_SUBCLASS_ROUNDING,
                           owner[PLIM_OWNER_ROUNDING]);
    causes[n++].weight = 0.5; /* sizes would still have to be rounded to something */
    return n;
}

static struct plim__cause leak_cause(const struct plim_leaks *leaks)
{
    bool sure = leaks->confidence >= SURE_LEAK && leaks->excess >= leaks->unpinned;
    uint64_t gain = plim_add_sat(leaks->excess, leaks->unpinned);
    return (struct plim__cause){.name = "no_leak",
                                .what = "without what the leak suspects hold and pin",
                                .cls = PLIM_CLASS_LEAK,
                                .subclass = PLIM_SUBCLASS_GROWING_STACK,
                                .gain = plim_amount(gain, PLIM_HOW_ESTIMATED),
                                .weight = sure ? 2 : 0.5};
}

static struct plim__cause held_cause(const struct plim_held *held)
{
    return (struct plim__cause){.name = "no_held_attempt",
                                .what = "without what an earlier attempt still holds",
                                .cls = PLIM_CLASS_LEAK,
                                .subclass = PLIM_SUBCLASS_HELD_EXCEPTION,
                                .gain = plim_amount(held->bytes, PLIM_HOW_MEASURED),
                                .weight = 2}; /* it is held for nothing, whatever else is full */
}

/* Memory of the device outside the allocator. */
static size_t list_outside(const struct plim__bench *j, struct plim__cause *causes)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    struct plim_amount others = l->owner[PLIM_OWNER_OTHER_PROCESSES];
    struct plim_amount own = l->owner[PLIM_OWNER_PROCESS_OTHER];
    uint64_t threshold =
        plim_known(l->total) ? (uint64_t)(OTHERS_SHARE * (double)l->total.bytes) : 0;
    size_t n = 0;
    if (plim_known(others)) {
        causes[n++] = (struct plim__cause){.name = "no_other_processes",
                                           .what = "without other processes",
                                           .cls = PLIM_CLASS_EXTERNAL,
                                           .subclass = PLIM_SUBCLASS_OTHER_PROCESS,
                                           .gain = others,
                                           .weight = others.bytes >= threshold ? 1 : 0};
    }
    struct plim_amount context = j->d->set.ledger.part[PLIM_OWNER_CONTEXT];
    uint64_t usual = plim_known(context) ? context.bytes : LARGE_CONTEXT;
    if (plim_known(own) && own.bytes > usual && own.bytes > LARGE_CONTEXT) {
        causes[n++] = (struct plim__cause){
            .name = "no_process_other",
            .what = "if this process held only a usual context outside the allocator",
            .cls = PLIM_CLASS_EXTERNAL,
            .subclass = PLIM_SUBCLASS_SAME_PROCESS,
            .gain = plim_amount(own.bytes - usual, own.how),
            .weight = 1};
    }
    return n;
}

size_t plim__list_causes(const struct plim__bench *j, struct plim__cause causes[PLIM__MAX_CAUSES])
{
    size_t n = list_holes(j, causes);
    if (j->d->leaks.suspects.n > 0) {
        causes[n++] = leak_cause(&j->d->leaks);
    }
    if (j->d->held.bytes > 0) {
        causes[n++] = held_cause(&j->d->held);
    }
    return n + list_outside(j, causes + n);
}

/* Stranded bytes of which one hole would have served the request as it is, but for its stream. */
static const struct plim__cause *more_exact(const struct plim__bench *j,
                                            const struct plim__cause *best,
                                            const struct plim__cause *causes, size_t n)
{
    for (size_t i = 0; best && best->subclass == PLIM_SUBCLASS_STRANDED && i < n; i++) {
        if (causes[i].in_place && plim__sufficient(j, &causes[i])) {
            return &causes[i];
        }
    }
    return best;
}

/* A cause that would do alone and is large enough to be one. */
bool plim__counts(const struct plim__bench *j, const struct plim__cause *c)
{
    return c->weight > 0 && plim__sufficient(j, c) && plim__material(j, c) && !outpaced(j, c);
}

/* The strongest of the causes that count: most bytes. */
const struct plim__cause *plim__strongest(const struct plim__bench *j,
                                          const struct plim__cause *causes, size_t n)
{
    const struct plim__cause *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct plim__cause *c = &causes[i];
        if (!plim__counts(j, c)) {
            continue;
        }
        if (!best || c->weight * (double)c->gain.bytes > best->weight * (double)best->gain.bytes) {
            best = c;
        }
    }
    return more_exact(j, best, causes, n);
}
