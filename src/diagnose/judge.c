/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counterfactuals and verdict. For each possible cause: how many bytes would be usable without it, and
 * would the request then fit? Among the causes that are sufficient alone and large enough to matter,
 * the one with most bytes gives the class; the others stay in the table. "Large enough": a request of
 * 20 MiB fits into any hole of 70 MiB, which says nothing about why the device is full. A leak counts
 * double, because it is the one cause that grows until it is the only one.
 * Thresholds and their reasons: docs/design/diagnosis.md.
 */

#include "diagnose/diagnose.h"

#include "base/bytes.h"
#include "base/num.h"

/* No context is smaller: with more reserved than leaves room for it, the device is a larger one. */
#define SMALL_CONTEXT (UINT64_C(256) * PLIM_MIB)
/* Bytes of others that count as a cause from this share of the device on. */
#define OTHERS_SHARE 0.15
/* Stranded share of the reserved bytes that is reported when nothing failed. */
#define IDLE_STRANDED_SHARE 0.25
/* Releasable share of the reserved bytes from which a healthy heap is called "cached". */
#define CACHED_SHARE 0.10
/* Free bytes inside the allocator are a cause from this share of the capacity on: below it they are the
 * usual cost of caching. When the request itself is large (its share), fewer are enough. */
#define FREE_SHARE          0.10
#define LARGE_REQUEST_SHARE 0.01
#define FREE_SHARE_FOR_IT   0.04
/* From this share on, and no rival, a fragmentation verdict is as sure as it gets; the confidence falls
 * from SURE by LESS_SURE at FREE_SHARE_FOR_IT. */
#define SURE_SHARE 0.20
#define SURE       0.92
#define LESS_SURE  0.30
/* Under a cap, so much of it stranded makes the holes the cause and not the cap. */
#define CAP_STRANDED_SHARE 0.25
/* Reserved share of the device from which a snapshot without a history may be one of a failure. */
#define FULL_SHARE 0.90
/* The same against the common sizes of cards, when the device's own is not known. */
#define FULL_COMMON_SHARE 0.95
/* A fragmentation verdict without the device's size may overlook that others hold it. */
#define SIZE_UNKNOWN 0.15
/* A context beyond this many bytes is worth a word (see books.c). */
#define LARGE_CONTEXT (UINT64_C(1200) * PLIM_MIB)

/* One possible cause, with what taking it away gives. */
struct cause {
    const char *name;
    const char *what; /* "stranded bytes", for the sentence */
    enum plim_class cls;
    enum plim_subclass subclass;
    struct plim_amount gain;
    double weight; /* how far to prefer it among others: 1 when measured */
    bool in_place; /* the gain must be one hole, not a sum */
};

/* A suspicion from which a leak counts double, when what it holds is more than what it only pins. */
#define SURE_LEAK 0.7

struct judge {
    const struct plim_snapshot *snapshot;
    struct plim_diagnosis *d;
    struct plim_arena *arena;
    uint64_t need;           /* driver bytes of the request */
    struct plim_amount free; /* usable without doing anything: free and releasable */
    uint64_t base;           /* bytes that shares are taken of: capacity, or what is reserved */
    uint64_t material;       /* a leak or outside memory below this many bytes is not a cause */
    const struct cause *best;
};

static const char *bytes_text(struct judge *j, uint64_t bytes)
{
    char buf[PLIM_BYTES_TEXT];
    return plim_arena_sayf(j->arena, "%s", plim_bytes_format(buf, bytes));
}

static uint64_t owner(const struct judge *j, enum plim_owner owner)
{
    struct plim_amount a = j->d->set.ledger.owner[owner];
    return plim_known(a) ? a.bytes : 0;
}

static bool sufficient(const struct judge *j, const struct cause *c)
{
    if (!plim_known(c->gain)) {
        return false;
    }
    if (c->in_place) {
        return c->gain.bytes >= j->d->failure.size;
    }
    return plim_known(j->free) && plim_add_sat(j->free.bytes, c->gain.bytes) >= j->need;
}

static bool material(const struct judge *j, const struct cause *c)
{
    double base = (double)j->base, gain = (double)c->gain.bytes;
    if (c->cls != PLIM_CLASS_FRAGMENTATION) {
        return c->gain.bytes >= j->material;
    }
    return gain >= FREE_SHARE * base ||
           (gain >= FREE_SHARE_FOR_IT * base && (double)j->need >= LARGE_REQUEST_SHARE * base);
}

/* In the last quarter of the trace the live bytes grew by more than compaction would give: it would only
 * have put the failure off. */
static bool outpaced(const struct judge *j, const struct cause *c)
{
    const int64_t *floor = j->d->history.bin_floor;
    int64_t last = floor[PLIM_HISTORY_BINS - 1], before = floor[PLIM_HISTORY_BINS - 2];
    int64_t grown = (last > before ? last : before) - floor[PLIM_HISTORY_BINS * 3 / 4];
    return c->cls == PLIM_CLASS_FRAGMENTATION && grown > 0 && (uint64_t)grown > c->gain.bytes;
}

static enum plim_status push_counterfactual(struct judge *j, const struct cause *c,
                                            struct plim_err *err)
{
    struct plim_counterfactual row = {.name = c->name, .gains = c->gain};
    bool fits = sufficient(j, c);
    row.fits = !plim_known(c->gain) || (!plim_known(j->free) && !c->in_place) ? PLIM_FITS_UNKNOWN
               : fits                                                         ? PLIM_FITS_YES
                                                                              : PLIM_FITS_NO;
    if (c->in_place) {
        row.text = plim_arena_sayf(j->arena, "%s: largest hole %s %s request %s", c->what,
                                   bytes_text(j, c->gain.bytes), fits ? ">=" : "<",
                                   bytes_text(j, j->d->failure.size));
    } else if (row.fits == PLIM_FITS_UNKNOWN) {
        row.text = plim_arena_sayf(j->arena, "%s: %s more", c->what, bytes_text(j, c->gain.bytes));
    } else {
        row.text = plim_arena_sayf(j->arena, "%s: free %s + %s = %s %s request %s", c->what,
                                   bytes_text(j, j->free.bytes), bytes_text(j, c->gain.bytes),
                                   bytes_text(j, plim_add_sat(j->free.bytes, c->gain.bytes)),
                                   fits ? ">=" : "<", bytes_text(j, j->need));
    }
    return plim_vec_push(&j->d->set.counterfactuals, err, row);
}

/* The request does not fit the device even when nothing but what cannot be moved is on it. */
static bool exceeds_everything(const struct judge *j, uint64_t *reachable)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    if (plim_known(l->capacity)) {
        uint64_t fixed = plim_known(j->d->facts.cap) ? 0 : owner(j, PLIM_OWNER_PROCESS_OTHER);
        *reachable = plim_sub_sat(l->capacity.bytes, fixed);
    } else if (plim_known(l->owner[PLIM_OWNER_FREE])) {
        *reachable = plim_add_sat(l->reserved.bytes, owner(j, PLIM_OWNER_FREE));
    } else {
        return false;
    }
    return j->need > *reachable;
}

/* The driver had room, and still the allocator failed: something else than the device was the limit. */
static bool refused_although_free(const struct judge *j)
{
    return plim_known(j->d->set.ledger.owner[PLIM_OWNER_FREE]) &&
           owner(j, PLIM_OWNER_FREE) >= j->need;
}

static enum plim_status push_cap_counterfactual(struct judge *j, struct plim_err *err)
{
    uint64_t free = owner(j, PLIM_OWNER_FREE);
    bool fits = free >= j->need;
    struct plim_counterfactual row = {
        .name = "no_cap",
        .text = plim_arena_sayf(j->arena,
                                "without the memory cap: %s free on the device %s "
                                "request %s",
                                bytes_text(j, free), fits ? ">=" : "<", bytes_text(j, j->need)),
        .gains = plim_amount(free, PLIM_HOW_COMPUTED),
        .fits = fits ? PLIM_FITS_YES : PLIM_FITS_NO,
    };
    return plim_vec_push(&j->d->set.counterfactuals, err, row);
}

#define MAX_CAUSES 8

static size_t list_causes(const struct judge *j, struct cause causes[MAX_CAUSES])
{
    const struct plim_ledger *l = &j->d->set.ledger;
    const struct plim_failure *f = &j->d->failure;
    struct plim_amount others = l->owner[PLIM_OWNER_OTHER_PROCESSES];
    struct plim_amount own = l->owner[PLIM_OWNER_PROCESS_OTHER];
    uint64_t threshold =
        plim_known(l->total) ? (uint64_t)(OTHERS_SHARE * (double)l->total.bytes) : 0;
    uint64_t any_hole = plim_largest_free(&j->d->heap, f->size, f->stream, true);
    uint64_t own_hole = plim_largest_free(&j->d->heap, f->size, f->stream, false);
    const struct plim_leaks *leaks = &j->d->leaks;
    size_t n = 0;
    causes[n++] = (struct cause){"no_stranded",
                                 "without stranded bytes (perfect compaction)",
                                 PLIM_CLASS_FRAGMENTATION,
                                 PLIM_SUBCLASS_STRANDED,
                                 l->owner[PLIM_OWNER_STRANDED],
                                 1,
                                 false};
    causes[n++] = (struct cause){"no_private_pools",
                                 "if private pools gave back what they do not use",
                                 PLIM_CLASS_FRAGMENTATION,
                                 PLIM_SUBCLASS_PRIVATE_POOL,
                                 l->owner[PLIM_OWNER_PRIVATE_FREE],
                                 1,
                                 false};
    if (any_hole > own_hole) {
        causes[n++] = (struct cause){"any_stream",
                                     "if a hole of another stream could be used",
                                     PLIM_CLASS_FRAGMENTATION,
                                     PLIM_SUBCLASS_STREAM_BOUND,
                                     {any_hole, PLIM_HOW_MEASURED},
                                     1,
                                     true};
    }
    causes[n++] = (struct cause){"no_rounding",
                                 "without rounding of sizes",
                                 PLIM_CLASS_FRAGMENTATION,
                                 PLIM_SUBCLASS_ROUNDING,
                                 l->owner[PLIM_OWNER_ROUNDING],
                                 0.5,
                                 false};
    if (leaks->suspects.n > 0) {
        bool sure = leaks->confidence >= SURE_LEAK && leaks->excess >= leaks->unpinned;
        uint64_t gain = plim_add_sat(leaks->excess, leaks->unpinned);
        causes[n++] = (struct cause){"no_leak",
                                     "without what the leak suspects hold and pin",
                                     PLIM_CLASS_LEAK,
                                     PLIM_SUBCLASS_GROWING_STACK,
                                     {gain, PLIM_HOW_ESTIMATED},
                                     sure ? 2 : 0.5,
                                     false};
    }
    if (plim_known(others)) {
        bool counts = others.bytes >= threshold;
        causes[n++] = (struct cause){"no_other_processes",
                                     "without other processes",
                                     PLIM_CLASS_EXTERNAL,
                                     PLIM_SUBCLASS_OTHER_PROCESS,
                                     others,
                                     counts ? 1 : 0,
                                     false};
    }
    if (plim_known(own) && own.bytes > LARGE_CONTEXT) {
        causes[n++] =
            (struct cause){"no_process_other",
                           "if this process held only a usual context outside the allocator",
                           PLIM_CLASS_EXTERNAL,
                           PLIM_SUBCLASS_SAME_PROCESS,
                           {own.bytes - LARGE_CONTEXT, own.how},
                           1,
                           false};
    }
    return n;
}

/* Stranded bytes of which one hole would have served the request as it is, but for its stream. */
static const struct cause *more_exact(const struct judge *j, const struct cause *best,
                                      const struct cause *causes, size_t n)
{
    for (size_t i = 0; best && best->subclass == PLIM_SUBCLASS_STRANDED && i < n; i++) {
        if (causes[i].in_place && sufficient(j, &causes[i])) {
            return &causes[i];
        }
    }
    return best;
}

/* A cause that would do alone and is large enough to be one. */
static bool counts(const struct judge *j, const struct cause *c)
{
    return c->weight > 0 && sufficient(j, c) && material(j, c) && !outpaced(j, c);
}

/* The strongest of the causes that count: most bytes. */
static const struct cause *strongest(const struct judge *j, const struct cause *causes, size_t n)
{
    const struct cause *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct cause *c = &causes[i];
        if (!counts(j, c)) {
            continue;
        }
        if (!best || c->weight * (double)c->gain.bytes > best->weight * (double)best->gain.bytes) {
            best = c;
        }
    }
    return more_exact(j, best, causes, n);
}

static void set_verdict(struct judge *j, enum plim_class cls, enum plim_subclass subclass,
                        double confidence, const char *summary)
{
    j->d->set.verdict = (struct plim_verdict){cls, subclass, confidence, summary};
}

static const char *request_text(struct judge *j)
{
    return bytes_text(j, j->need);
}

static void verdict_single_request(struct judge *j, uint64_t reachable)
{
    set_verdict(
        j, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_SINGLE_REQUEST, 0.97,
        plim_arena_sayf(j->arena,
                        "One request of %s can never fit: at most %s could be had even with "
                        "everything else freed. No allocator setting helps.",
                        request_text(j), bytes_text(j, reachable)));
}

/* How sure a working set can be told from a leak and from memory of others with this input. */
static double working_set_confidence(const struct judge *j)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    const struct plim_trace *trace = &j->snapshot->devices.items[j->d->device].trace;
    double c = plim_known(l->total) && plim_known(l->owner[PLIM_OWNER_FREE]) ? 0.9 : 0.6;
    if (trace->events.n <= 1) {
        return 0.6; /* growth cannot be seen */
    }
    c -= j->d->complete ? 0 : 0.05;
    return j->d->sites.sites.n <= 1 ? c - 0.15 : c; /* and not told by its places */
}

/* Why it is a working set although compaction would have served this one request. */
static const char *about_compaction(struct judge *j, const struct cause *causes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (causes[i].subclass != PLIM_SUBCLASS_STRANDED || !sufficient(j, &causes[i])) {
            continue;
        }
        return plim_arena_sayf(
            j->arena, "The %s stranded would have served this one request, but %s.",
            bytes_text(j, causes[i].gain.bytes),
            material(j, &causes[i])
                ? "live bytes grew faster than that: it would only have put the failure off"
                : plim_arena_sayf(j->arena,
                                  "at %.0f %% of the capacity they are the usual cost of "
                                  "caching",
                                  100.0 * (double)causes[i].gain.bytes / (double)j->base));
    }
    return "Compaction would not have made room.";
}

static void verdict_working_set(struct judge *j, const struct cause *causes, size_t n)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    const char *others = plim_known(l->total)
                             ? ""
                             : " Whether others hold the rest of the device cannot be told without "
                               "its size.";
    set_verdict(j, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, working_set_confidence(j),
                plim_arena_sayf(j->arena,
                                "What must live at the same time does not fit: %s are live and %s "
                                "more were asked for. %s%s",
                                bytes_text(j, l->allocated.bytes), request_text(j),
                                about_compaction(j, causes, n), others));
}

static const char *cause_sentence(struct judge *j, const struct cause *c)
{
    const char *gain = bytes_text(j, c->gain.bytes), *need = request_text(j);
    switch (c->subclass) {
    case PLIM_SUBCLASS_STRANDED:
        return plim_arena_sayf(
            j->arena,
            "Fragmentation: %s are free inside the allocator but stranded in segments "
            "that live blocks pin; the request of %s would fit if they could be moved "
            "together.",
            gain, need);
    case PLIM_SUBCLASS_PRIVATE_POOL:
        return plim_arena_sayf(
            j->arena,
            "Fragmentation: private pools (CUDA graphs) keep %s that they do not use; "
            "the request of %s cannot use them.",
            gain, need);
    case PLIM_SUBCLASS_STREAM_BOUND:
        return plim_arena_sayf(
            j->arena,
            "Fragmentation: a free block of %s exists, but on another stream; the "
            "request of %s may not use it.",
            gain, need);
    case PLIM_SUBCLASS_ROUNDING:
        return plim_arena_sayf(j->arena, "Fragmentation: %s are lost to rounding of sizes.", gain);
    case PLIM_SUBCLASS_OTHER_PROCESS:
        return plim_arena_sayf(
            j->arena,
            "Other processes hold %s of the device; without them the request of %s "
            "would fit.",
            gain, need);
    case PLIM_SUBCLASS_SAME_PROCESS:
        return plim_arena_sayf(
            j->arena,
            "This process holds %s more outside the allocator than a usual context "
            "takes; without that the request of %s would fit.",
            gain, need);
    default:
        return plim_arena_sayf(j->arena, "%s would be usable otherwise.", gain);
    }
}

/* How sure: a measured cause that gives far more than is needed, and no rival of the same size. */
static double cause_confidence(const struct judge *j, const struct cause *causes, size_t n)
{
    double c = j->best->gain.how == PLIM_HOW_ESTIMATED ? 0.8 : SURE;
    double share = (double)j->best->gain.bytes / (double)plim_max_u64(j->base, 1);
    if (j->best->cls == PLIM_CLASS_FRAGMENTATION && share < SURE_SHARE) {
        c -= LESS_SURE * (SURE_SHARE - share) / (SURE_SHARE - FREE_SHARE_FOR_IT);
    }
    c -= plim_known(j->d->set.ledger.total) ? 0 : SIZE_UNKNOWN;
    for (size_t i = 0; i < n; i++) {
        if (counts(j, &causes[i]) && causes[i].cls != j->best->cls &&
            causes[i].gain.bytes * 2 > j->best->gain.bytes) {
            return c - 0.2;
        }
    }
    return c;
}

static enum plim_subclass leak_subclass(const struct judge *j)
{
    uint32_t site = j->d->leaks.suspects.items[0].site;
    return j->d->sites.sites.items[site].category == PLIM_CATEGORY_KV_CACHE
               ? PLIM_SUBCLASS_NEVER_FREED_CACHE
               : PLIM_SUBCLASS_GROWING_STACK;
}

static void verdict_leak(struct judge *j, const char *tail)
{
    const struct plim_leak_suspect *s = &j->d->leaks.suspects.items[0];
    const struct plim_site *site = &j->d->sites.sites.items[s->site];
    const struct plim_site_live *live = &j->d->leaks.sites.items[s->site];
    set_verdict(j, PLIM_CLASS_LEAK, leak_subclass(j), s->confidence,
                plim_arena_sayf(j->arena,
                                "Memory leaks at %s: %u blocks, %s, still growing at the end%s.",
                                plim_site_text(j->snapshot, site, j->arena), live->blocks,
                                bytes_text(j, live->bytes), tail));
}

static void verdict_cap(struct judge *j)
{
    struct plim_amount cap = j->d->facts.cap;
    const char *limit = plim_known(cap)
                            ? plim_arena_sayf(j->arena, "a cap of %s", bytes_text(j, cap.bytes))
                            : "a cap (per-process fraction, quota or rejection policy)";
    set_verdict(
        j, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_MEMORY_CAP, plim_known(cap) ? 0.97 : 0.85,
        plim_arena_sayf(j->arena,
                        "The device had %s free, more than the request of %s: %s was the limit, "
                        "not the device.",
                        bytes_text(j, owner(j, PLIM_OWNER_FREE)), request_text(j), limit));
}

/* Under a cap: do holes below it, rather than the cap, explain the failure? */
static bool holes_beat_cap(const struct judge *j)
{
    struct plim_amount cap = j->d->facts.cap;
    uint64_t limit = plim_known(cap) ? cap.bytes : j->d->set.ledger.reserved.bytes;
    return j->best && j->best->cls == PLIM_CLASS_FRAGMENTATION &&
           (double)j->best->gain.bytes >= CAP_STRANDED_SHARE * (double)limit;
}

static void choose_verdict(struct judge *j, const struct cause *causes, size_t n)
{
    uint64_t reachable = 0;
    bool capped = refused_although_free(j);
    if (exceeds_everything(j, &reachable) && !capped) {
        verdict_single_request(j, reachable);
    } else if (j->best && j->best->cls == PLIM_CLASS_LEAK) {
        verdict_leak(j, capped ? ", until a cap stopped it" : "");
    } else if (capped && !holes_beat_cap(j)) {
        verdict_cap(j);
    } else if (j->best) {
        double confidence = cause_confidence(j, causes, n) - (capped ? 0.2 : 0);
        set_verdict(j, j->best->cls, j->best->subclass, confidence, cause_sentence(j, j->best));
    } else {
        verdict_working_set(j, causes, n);
    }
}

static enum plim_status judge_failure(struct judge *j, struct plim_err *err)
{
    struct cause causes[MAX_CAUSES];
    size_t n = list_causes(j, causes);
    if (plim_known(j->d->facts.cap) || refused_although_free(j)) {
        PLIM_TRY(push_cap_counterfactual(j, err));
    }
    for (size_t i = 0; i < n; i++) {
        if (causes[i].gain.bytes > 0) {
            PLIM_TRY(push_counterfactual(j, &causes[i], err));
        }
    }
    j->best = strongest(j, causes, n);
    choose_verdict(j, causes, n);
    return PLIM_OK;
}

/* The device's size, or the common size that this heap would nearly fill; 0 when it fills none. */
static uint64_t size_nearly_filled(const struct judge *j)
{
    static const uint16_t common_gib[] = {8,  10, 11, 12, 16,  20,  24,  32, 40,
                                          48, 64, 80, 96, 141, 180, 192, 288};
    const struct plim_ledger *l = &j->d->set.ledger;
    double reserved = (double)l->reserved.bytes;
    if (plim_known(l->total)) {
        return reserved >= FULL_SHARE * (double)l->total.bytes ? l->total.bytes : 0;
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(common_gib); i++) {
        uint64_t size = common_gib[i] * PLIM_GIB;
        if (l->reserved.bytes + SMALL_CONTEXT <= size &&
            reserved >= FULL_COMMON_SHARE * (double)size) {
            return size;
        }
    }
    return 0;
}

/* Without a history nobody knows whether a request failed before the snapshot was taken. */
static void judge_without_history(struct judge *j)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    uint64_t size = size_nearly_filled(j);
    if (size == 0) {
        set_verdict(j, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_OK, 0.5,
                    plim_arena_sayf(j->arena,
                                    "Nothing wrong is seen: %s reserved, %s of it live. But no "
                                    "history was recorded, so a failure or growth would not show.",
                                    bytes_text(j, l->reserved.bytes),
                                    bytes_text(j, l->allocated.bytes)));
        return;
    }
    set_verdict(
        j, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.5,
        plim_arena_sayf(j->arena,
                        "%s of %s are reserved, %s of it live: %s. Whether a request failed "
                        "cannot be told, because no history was recorded; the message "
                        "(--oom-text) would tell.",
                        bytes_text(j, l->reserved.bytes), bytes_text(j, size),
                        bytes_text(j, l->allocated.bytes),
                        plim_known(l->total) ? "the device is nearly full"
                                             : "nearly full, if the device has that size"));
}

/* Nothing failed: say so, unless a leak or stranded bytes will make it fail. */
static void judge_calm(struct judge *j)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    double reserved = (double)plim_max_u64(l->reserved.bytes, 1);
    double stranded = (double)owner(j, PLIM_OWNER_STRANDED);
    double releasable = (double)owner(j, PLIM_OWNER_RELEASABLE);
    if (l->reserved.bytes == 0) {
        set_verdict(j, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.9,
                    "The snapshot holds no memory: nothing was allocated when it was taken.");
    } else if (j->d->leaks.suspects.n > 0 && j->d->leaks.excess >= j->material) {
        verdict_leak(j, "; nothing has failed yet");
    } else if (stranded >= IDLE_STRANDED_SHARE * reserved && stranded >= (double)j->material) {
        set_verdict(
            j, PLIM_CLASS_FRAGMENTATION, PLIM_SUBCLASS_STRANDED, 0.7,
            plim_arena_sayf(j->arena,
                            "Nothing failed, but %s of %s reserved are stranded: free, and pinned "
                            "by live blocks.",
                            bytes_text(j, owner(j, PLIM_OWNER_STRANDED)),
                            bytes_text(j, l->reserved.bytes)));
    } else if (j->snapshot->devices.items[j->d->device].trace.events.n <= 1) {
        judge_without_history(j);
    } else if (releasable >= CACHED_SHARE * reserved) {
        set_verdict(
            j, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_CACHED, 0.9,
            plim_arena_sayf(j->arena,
                            "Nothing failed. %s of %s reserved are free, but in wholly free "
                            "segments that the allocator releases by itself before it fails.",
                            bytes_text(j, owner(j, PLIM_OWNER_RELEASABLE)),
                            bytes_text(j, l->reserved.bytes)));
    } else {
        set_verdict(j, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_OK, 0.9,
                    plim_arena_sayf(j->arena, "Nothing failed: %s reserved, %s of it live.",
                                    bytes_text(j, l->reserved.bytes),
                                    bytes_text(j, l->allocated.bytes)));
    }
}

static void measure_fit(struct judge *j)
{
    uint64_t hole = plim_largest_free(&j->d->heap, UINT64_MAX, j->d->failure.stream, false);
    j->d->largest_fit_known = plim_known(j->free);
    uint64_t fresh = plim_known(j->free) ? j->free.bytes / (2 * PLIM_MIB) * (2 * PLIM_MIB) : 0;
    j->d->largest_fit = plim_max_u64(hole, fresh);
}

enum plim_status plim__judge(const struct plim_snapshot *snapshot, struct plim_diagnosis *d,
                             struct plim_err *err)
{
    struct plim_ledger *l = &d->set.ledger;
    struct judge j = {
        .snapshot = snapshot,
        .d = d,
        .arena = &d->arena,
        .need = plim_known(l->request) ? l->request.bytes : 0,
        .free = l->owner[PLIM_OWNER_FREE],
    };
    uint64_t releasable = owner(&j, PLIM_OWNER_RELEASABLE);
    j.base = plim_known(l->capacity) ? l->capacity.bytes : l->reserved.bytes;
    j.material = plim_min_u64(j.base / 10, PLIM_GIB);
    if (plim_known(d->facts.cap) && plim_known(j.free)) {
        uint64_t below = plim_sub_sat(d->facts.cap.bytes, l->reserved.bytes);
        j.free.bytes = plim_min_u64(j.free.bytes, below);
    } else if (d->failure.happened && refused_although_free(&j)) {
        j.free.bytes = 0; /* what an unknown cap leaves is unknown, but was too little */
    }
    j.free.bytes = plim_add_sat(j.free.bytes, releasable);
    measure_fit(&j);
    if (d->failure.happened) {
        return judge_failure(&j, err);
    }
    judge_calm(&j);
    return PLIM_OK;
}
