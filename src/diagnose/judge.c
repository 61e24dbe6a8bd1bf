/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counterfactuals and verdict. For each possible cause: how many bytes would be usable without it, and
 * would the request then fit? Among the causes that are sufficient alone and large enough to matter,
 * the one with most bytes gives the class; the others stay in the table. "Large enough": a request of
 * 20 MiB fits into any hole of 70 MiB, which says nothing about why the device is full. A leak counts
 * double, because it is the one cause that grows until it is the only one.
 * Thresholds and their reasons: docs/design/diagnosis.md.
 */

#include "diagnose/causes.h"

#include "base/bytes.h"
#include "base/num.h"

/* No context is smaller: with more reserved than leaves room for it, the device is a larger one. */
#define SMALL_CONTEXT (UINT64_C(256) * PLIM_MIB)
/* No device of today has more: a larger request is too large whoever else is there. */
#define LARGEST_DEVICE (UINT64_C(300) * PLIM_GIB)
/* Stranded share of the reserved bytes that is reported when nothing failed. */
#define IDLE_STRANDED_SHARE 0.25
/* Releasable share of the reserved bytes from which a healthy heap is called "cached". */
#define CACHED_SHARE 0.10
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

/* The request does not fit the device even when nothing but what cannot be moved is on it. */
static bool exceeds_everything(const struct plim__bench *j, uint64_t *reachable)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    if (plim_known(l->capacity)) {
        uint64_t fixed = plim_known(j->d->facts.cap) ? 0 : plim__owner(j, PLIM_OWNER_PROCESS_OTHER);
        *reachable = plim_sub_sat(l->capacity.bytes, fixed);
    } else if (plim_known(l->owner[PLIM_OWNER_FREE])) {
        *reachable = plim_add_sat(l->reserved.bytes, plim__owner(j, PLIM_OWNER_FREE));
    } else {
        return false;
    }
    return j->need > *reachable;
}

/* The driver had room, and still the allocator failed: something else than the device was the limit. */
static bool refused_although_free(const struct plim__bench *j)
{
    return plim_known(j->d->set.ledger.owner[PLIM_OWNER_FREE]) &&
           plim__owner(j, PLIM_OWNER_FREE) >= j->need;
}

static enum plim_status push_cap_counterfactual(struct plim__bench *j, struct plim_err *err)
{
    uint64_t free = plim__owner(j, PLIM_OWNER_FREE);
    bool fits = free >= j->need;
    struct plim_counterfactual row = {
        .name = "no_cap",
        .text = plim_arena_sayf(j->arena,
                                "without the memory cap: %s free on the device %s "
                                "request %s",
                                plim__say_bytes(j, free), fits ? ">=" : "<",
                                plim__say_bytes(j, j->need)),
        .gains = plim_amount(free, PLIM_HOW_COMPUTED),
        .fits = fits ? PLIM_FITS_YES : PLIM_FITS_NO,
    };
    return plim_vec_push(&j->d->set.counterfactuals, err, row);
}

static void set_verdict(struct plim__bench *j, enum plim_class cls, enum plim_subclass subclass,
                        double confidence, const char *summary)
{
    j->d->set.verdict = (struct plim_verdict){cls, subclass, confidence, summary};
}

static const char *request_text(struct plim__bench *j)
{
    return plim__say_bytes(j, j->need);
}

static void verdict_single_request(struct plim__bench *j, uint64_t reachable)
{
    bool sure = plim_known(j->d->set.ledger.total) || j->need > LARGEST_DEVICE;
    set_verdict(
        j, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_SINGLE_REQUEST, sure ? 0.97 : 0.6,
        plim_arena_sayf(j->arena,
                        "One request of %s can never fit: at most %s could be had even with "
                        "everything else freed%s. No allocator setting helps.",
                        request_text(j), plim__say_bytes(j, reachable),
                        sure ? "" : ", unless others hold a part of the device"));
}

/*
 * Live bytes that rise from the first part of the record to its last, as those of a queue do whose reader is
 * too slow: its entries come and go, so that no place keeps what it makes.
 */
static bool rises_all_along(const struct plim__bench *j)
{
    const int64_t *floor = j->d->history.bin_floor;
    uint32_t rises = 0;
    for (uint32_t bin = 1; bin < PLIM_HISTORY_BINS; bin++) {
        rises += floor[bin] > floor[bin - 1];
    }
    int64_t all = floor[PLIM_HISTORY_BINS - 1] - floor[0];
    int64_t half = floor[PLIM_HISTORY_BINS - 1] - floor[PLIM_HISTORY_BINS / 2];
    return rises * 5 >= (PLIM_HISTORY_BINS - 1) * 4 && all >= (int64_t)j->material &&
           (double)half >= 0.35 * (double)all;
}

/* The place with most live bytes of those that free most of what they make, or NULL. */
static const struct plim_blame_row *busiest(const struct plim__bench *j)
{
    plim_vec_foreach (row, &j->d->blame) {
        if (row->allocs >= 100 && row->frees * 2 >= row->allocs && row->bytes_born >= j->material &&
            row->stack != PLIM_NO_STACK) {
            return row;
        }
    }
    return NULL;
}

/* Without stacks growth has no place: then all that can be said is that live bytes rose all along. */
static bool may_be_growth(const struct plim__bench *j)
{
    return j->d->sites.sites.n <= 1 && rises_all_along(j) &&
           j->d->history.frees * 2 > j->d->history.allocs;
}

static const struct plim_blame_row *backlog(const struct plim__bench *j)
{
    return rises_all_along(j) ? busiest(j) : NULL;
}

/* How sure a working set can be told from a leak and from memory of others with this input. */
static double working_set_confidence(const struct plim__bench *j)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    const struct plim_trace *trace = &j->snapshot->devices.items[j->d->device].trace;
    double c = plim_known(l->total) && plim_known(l->owner[PLIM_OWNER_FREE]) ? 0.9 : 0.6;
    if (trace->events.n <= 1) {
        return 0.6; /* growth cannot be seen */
    }
    c -= backlog(j) || may_be_growth(j) ? 0.25 : 0;
    c -= j->d->complete ? 0 : 0.05;
    return j->d->sites.sites.n <= 1 ? c - 0.15 : c; /* and not told by its places */
}

/* Why it is a working set although compaction would have served this one request. */
static const char *about_compaction(struct plim__bench *j, const struct plim__cause *causes,
                                    size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (causes[i].subclass != PLIM_SUBCLASS_STRANDED || !plim__sufficient(j, &causes[i])) {
            continue;
        }
        return plim_arena_sayf(
            j->arena, "The %s stranded would have served this one request, but %s.",
            plim__say_bytes(j, causes[i].gain.bytes),
            plim__material(j, &causes[i])
                ? "live bytes grew faster than that: it would only have put the failure off"
                : plim_arena_sayf(j->arena,
                                  "at %.0f %% of the capacity they are the usual cost of "
                                  "caching",
                                  100.0 * (double)causes[i].gain.bytes / (double)j->base));
    }
    return "Compaction would not have made room.";
}

static void verdict_working_set(struct plim__bench *j, const struct plim__cause *causes, size_t n)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    const struct plim_blame_row *b = backlog(j);
    const char *rising =
        b == NULL
            ? (may_be_growth(j) ? " Live bytes rose all along the record while much was freed: it "
                                  "may as well be a leak, which only stacks would show."
                                : "")
            : plim_arena_sayf(j->arena,
                              " Live bytes rose all along the record: at %s more is made than "
                              "is freed (%u of %u), as with a queue whose reader is too slow.",
                              b->site, b->allocs - b->frees, b->allocs);
    const char *others = plim_known(l->total)
                             ? ""
                             : " Whether others hold the rest of the device cannot be told without "
                               "its size.";
    set_verdict(j, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, working_set_confidence(j),
                plim_arena_sayf(j->arena,
                                "What must live at the same time does not fit: %s are live and %s "
                                "more were asked for. %s%s%s",
                                plim__say_bytes(j, l->allocated.bytes), request_text(j),
                                about_compaction(j, causes, n), rising, others));
}

/* Driver calls alone: the allocator was full, but of what? */
static void verdict_inside_unknown(struct plim__bench *j)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    set_verdict(
        j, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.6,
        plim_arena_sayf(
            j->arena,
            "The allocator held %s and asked the driver for %s more, which it had not. Whether "
            "what "
            "it held was live or free in pieces, a trace of driver calls cannot tell: a snapshot "
            "can (plimsoll record leaves one when PyTorch runs out of memory).",
            plim__say_bytes(j, l->reserved.bytes), request_text(j)));
}

/* Blocks that nobody freed, and no segment that could hold them: the file has only the history. */
static bool heap_is_missing(const struct plim__bench *j)
{
    const struct plim_device *device = &j->snapshot->devices.items[j->d->device];
    return device->heap.segments.n == 0 && j->d->heap.segments.n == 0 &&
           j->d->history.allocs > j->d->history.frees;
}

static void verdict_heap_missing(struct plim__bench *j)
{
    set_verdict(j, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.6,
                plim_arena_sayf(j->arena,
                                "The file has the history but no segments: what was live when the "
                                "request of %s failed is not in it. Dump the whole snapshot "
                                "(torch.cuda.memory._dump_snapshot).",
                                request_text(j)));
}

/* ", the largest part NCCL (3.00 GiB)", when a recorder saw whose it is. */
static const char *largest_part(struct plim__bench *j)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    unsigned part = plim_ledger_part_after(l, UINT64_MAX, 0);
    if (part == PLIM_OWNER_CONTEXT) {
        part = plim_ledger_part_after(l, l->part[part].bytes, part);
    }
    return part == PLIM_OWNERS ? ""
                               : plim_arena_sayf(j->arena, ", the largest part %s (%s)",
                                                 plim_ledger_part_label(part),
                                                 plim__say_bytes(j, l->part[part].bytes));
}

static const char *cause_sentence(struct plim__bench *j, const struct plim__cause *c)
{
    const char *gain = plim__say_bytes(j, c->gain.bytes), *need = request_text(j);
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
            "Fragmentation: private pools (CUDA graphs, MemPool) keep %s that they do not use; "
            "the request of %s cannot use them.",
            gain, need);
    case PLIM_SUBCLASS_STREAM_BOUND:
        return plim_arena_sayf(
            j->arena,
            "Fragmentation: a free block of %s exists, but on another stream; the "
            "request of %s may not use it.",
            gain, need);
    case PLIM_SUBCLASS_ROUNDING:
        return plim_arena_sayf(j->arena,
                               "Fragmentation: %s are lost because blocks are larger than what was "
                               "asked for; without that the request of %s would fit.",
                               gain, need);
    case PLIM_SUBCLASS_OTHER_PROCESS:
        if (c->gain.how == PLIM_HOW_ESTIMATED) {
            return plim_arena_sayf(
                j->arena,
                "%s of the device are used outside this allocator, beyond a usual context: by "
                "other processes, or by other libraries in this one; without that the request "
                "of %s would fit.",
                gain, need);
        }
        return plim_arena_sayf(
            j->arena,
            "Other processes hold %s of the device; without them the request of %s "
            "would fit.",
            gain, need);
    case PLIM_SUBCLASS_SAME_PROCESS:
        return plim_arena_sayf(
            j->arena,
            "This process holds %s more outside the allocator than a usual context "
            "takes%s; without that the request of %s would fit.",
            gain, largest_part(j), need);
    default:
        return plim_arena_sayf(j->arena, "%s would be usable otherwise.", gain);
    }
}

/* How sure: a measured cause that gives far more than is needed, and no rival of the same size. */
static double cause_confidence(const struct plim__bench *j, const struct plim__cause *causes,
                               size_t n)
{
    double c = j->best->gain.how == PLIM_HOW_ESTIMATED ? 0.8 : SURE;
    double share = (double)j->best->gain.bytes / (double)plim_max_u64(j->base, 1);
    if (j->best->cls == PLIM_CLASS_FRAGMENTATION && share < SURE_SHARE) {
        c -= LESS_SURE * (SURE_SHARE - share) / (SURE_SHARE - FREE_SHARE_FOR_IT);
    }
    c -= plim_known(j->d->set.ledger.total) ? 0 : SIZE_UNKNOWN;
    for (size_t i = 0; i < n; i++) {
        if (plim__counts(j, &causes[i]) && causes[i].cls != j->best->cls &&
            causes[i].gain.bytes * 2 > j->best->gain.bytes) {
            return c - 0.2;
        }
    }
    return c;
}

static enum plim_subclass leak_subclass(const struct plim__bench *j)
{
    uint32_t site = j->d->leaks.suspects.items[0].site;
    return j->d->sites.sites.items[site].category == PLIM_CATEGORY_KV_CACHE
               ? PLIM_SUBCLASS_NEVER_FREED_CACHE
               : PLIM_SUBCLASS_GROWING_STACK;
}

/* " (20.63 GiB with 1 more place)", when others leak as well and not just crumbs. */
static const char *with_others(struct plim__bench *j)
{
    const struct plim_leaks *leaks = &j->d->leaks;
    uint64_t all = 0, first = leaks->sites.items[leaks->suspects.items[0].site].bytes;
    plim_vec_foreach (suspect, &leaks->suspects) {
        all = plim_add_sat(all, leaks->sites.items[suspect->site].bytes);
    }
    size_t more = leaks->suspects.n - 1;
    return more == 0 || all - first < first / 10
               ? ""
               : plim_arena_sayf(j->arena, " (%s with %zu more place%s)", plim__say_bytes(j, all),
                                 more, more == 1 ? "" : "s");
}

static void verdict_leak(struct plim__bench *j, const char *tail)
{
    const struct plim_leak_suspect *s = &j->d->leaks.suspects.items[0];
    const struct plim_site *site = &j->d->sites.sites.items[s->site];
    const struct plim_site_live *live = &j->d->leaks.sites.items[s->site];
    set_verdict(j, PLIM_CLASS_LEAK, leak_subclass(j), s->confidence,
                plim_arena_sayf(
                    j->arena, "Memory leaks at %s: %u blocks, %s%s, still growing at the end%s.",
                    s->site > 0 ? plim_site_text(j->snapshot, site, j->arena)
                                : "a place that no stack names",
                    live->blocks, plim__say_bytes(j, live->bytes), with_others(j), tail));
}

static void verdict_held(struct plim__bench *j)
{
    const struct plim_held *h = &j->d->held;
    uint32_t site = plim_site_of(&j->d->sites, h->stack);
    set_verdict(
        j, PLIM_CLASS_LEAK, PLIM_SUBCLASS_HELD_EXCEPTION, 0.85,
        plim_arena_sayf(
            j->arena,
            "An attempt that had failed before still holds %s in %u blocks: it began at %s, "
            "and the program came back there without anything having been freed.",
            plim__say_bytes(j, h->bytes), h->blocks,
            plim_site_text(j->snapshot, &j->d->sites.sites.items[site], j->arena)));
}

static void verdict_cap(struct plim__bench *j)
{
    struct plim_amount cap = j->d->facts.cap;
    const char *limit =
        plim_known(cap) ? plim_arena_sayf(j->arena, "a cap of %s", plim__say_bytes(j, cap.bytes))
                        : "a cap (per-process fraction, quota or rejection policy)";
    set_verdict(j, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_MEMORY_CAP, plim_known(cap) ? 0.97 : 0.85,
                plim_arena_sayf(
                    j->arena,
                    "The device had %s free, more than the request of %s: %s was the limit, "
                    "not the device.",
                    plim__say_bytes(j, plim__owner(j, PLIM_OWNER_FREE)), request_text(j), limit));
}

/* Under a cap: do holes below it, rather than the cap, explain the failure? */
static bool holes_beat_cap(const struct plim__bench *j)
{
    struct plim_amount cap = j->d->facts.cap;
    uint64_t limit = plim_known(cap) ? cap.bytes : j->d->set.ledger.reserved.bytes;
    return j->best && j->best->cls == PLIM_CLASS_FRAGMENTATION &&
           (double)j->best->gain.bytes >= CAP_STRANDED_SHARE * (double)limit;
}

static void choose_verdict(struct plim__bench *j, const struct plim__cause *causes, size_t n)
{
    uint64_t reachable = 0;
    bool capped = refused_although_free(j);
    if (heap_is_missing(j)) {
        verdict_heap_missing(j);
        return;
    }
    if (exceeds_everything(j, &reachable) && !capped) {
        verdict_single_request(j, reachable);
    } else if (j->best && j->best->subclass == PLIM_SUBCLASS_HELD_EXCEPTION) {
        verdict_held(j);
    } else if (j->best && j->best->cls == PLIM_CLASS_LEAK) {
        verdict_leak(j, capped ? ", until a cap stopped it" : "");
    } else if (capped && !holes_beat_cap(j)) {
        verdict_cap(j);
    } else if (j->best) {
        double confidence = cause_confidence(j, causes, n) - (capped ? 0.2 : 0);
        set_verdict(j, j->best->cls, j->best->subclass, confidence, cause_sentence(j, j->best));
    } else if (j->snapshot->level == PLIM_LEVEL_ALLOCATOR) {
        verdict_inside_unknown(j);
    } else {
        verdict_working_set(j, causes, n);
    }
}

static enum plim_status judge_failure(struct plim__bench *j, struct plim_err *err)
{
    struct plim__cause causes[PLIM__MAX_CAUSES];
    size_t n = plim__list_causes(j, causes);
    if (plim_known(j->d->facts.cap) || refused_although_free(j)) {
        PLIM_TRY(push_cap_counterfactual(j, err));
    }
    for (size_t i = 0; i < n; i++) {
        if (causes[i].gain.bytes > 0) {
            PLIM_TRY(plim__push_counterfactual(j, &causes[i], err));
        }
    }
    j->best = plim__strongest(j, causes, n);
    choose_verdict(j, causes, n);
    return PLIM_OK;
}

/* The device's size, or the common size that this heap would nearly fill; 0 when it fills none. */
static uint64_t size_nearly_filled(const struct plim__bench *j)
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
static void judge_without_history(struct plim__bench *j)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    uint64_t size = size_nearly_filled(j);
    if (size == 0) {
        set_verdict(j, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_OK, 0.5,
                    plim_arena_sayf(j->arena,
                                    "Nothing wrong is seen: %s reserved, %s of it live. But no "
                                    "history was recorded, so a failure or growth would not show.",
                                    plim__say_bytes(j, l->reserved.bytes),
                                    plim__say_bytes(j, l->allocated.bytes)));
        return;
    }
    set_verdict(
        j, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.5,
        plim_arena_sayf(j->arena,
                        "%s of %s are reserved, %s of it live: %s. Whether a request failed "
                        "cannot be told, because no history was recorded; the message "
                        "(--oom-text) would tell.",
                        plim__say_bytes(j, l->reserved.bytes), plim__say_bytes(j, size),
                        plim__say_bytes(j, l->allocated.bytes),
                        plim_known(l->total) ? "the device is nearly full"
                                             : "nearly full, if the device has that size"));
}

/* Nothing failed: say so, unless a leak or stranded bytes will make it fail. */
static void judge_calm(struct plim__bench *j)
{
    const struct plim_ledger *l = &j->d->set.ledger;
    double reserved = (double)plim_max_u64(l->reserved.bytes, 1);
    double stranded = (double)plim__owner(j, PLIM_OWNER_STRANDED);
    double releasable = (double)plim__owner(j, PLIM_OWNER_RELEASABLE);
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
                            plim__say_bytes(j, plim__owner(j, PLIM_OWNER_STRANDED)),
                            plim__say_bytes(j, l->reserved.bytes)));
    } else if (j->snapshot->devices.items[j->d->device].trace.events.n <= 1) {
        judge_without_history(j);
    } else if (releasable >= CACHED_SHARE * reserved) {
        set_verdict(
            j, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_CACHED, 0.9,
            plim_arena_sayf(j->arena,
                            "Nothing failed. %s of %s reserved are free, but in wholly free "
                            "segments that the allocator releases by itself before it fails.",
                            plim__say_bytes(j, plim__owner(j, PLIM_OWNER_RELEASABLE)),
                            plim__say_bytes(j, l->reserved.bytes)));
    } else if (j->snapshot->level == PLIM_LEVEL_ALLOCATOR) {
        set_verdict(j, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_OK, 0.7,
                    plim_arena_sayf(j->arena,
                                    "No request to the driver failed: the allocator holds %s, its "
                                    "cache included.",
                                    plim__say_bytes(j, l->reserved.bytes)));
    } else {
        set_verdict(j, PLIM_CLASS_HEALTHY, PLIM_SUBCLASS_OK, 0.9,
                    plim_arena_sayf(j->arena, "Nothing failed: %s reserved, %s of it live.",
                                    plim__say_bytes(j, l->reserved.bytes),
                                    plim__say_bytes(j, l->allocated.bytes)));
    }
}

static void measure_fit(struct plim__bench *j)
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
    struct plim__bench j = {
        .snapshot = snapshot,
        .d = d,
        .arena = &d->arena,
        .need = plim_known(l->request) ? l->request.bytes : 0,
        .free = l->owner[PLIM_OWNER_FREE],
    };
    uint64_t releasable = plim__owner(&j, PLIM_OWNER_RELEASABLE);
    j.base = plim_known(l->capacity) ? l->capacity.bytes : l->reserved.bytes;
    j.material = plim__material_bytes(j.base);
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
