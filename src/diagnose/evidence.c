/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences behind a verdict, strongest first, and what this input cannot tell. */

#include "diagnose/causes.h"

#include "base/bytes.h"
#include "base/num.h"

#define GROWING_SEGMENTS 6 /* so many record-size segments in a row of near sizes are a pattern */

struct gatherer {
    const struct plim_snapshot *snapshot;
    struct plim_diagnosis *d;
    struct plim_arena *arena;
    enum plim_status status;
    struct plim_err *err;
};

static const char *bytes_text(struct gatherer *g, uint64_t bytes)
{
    char buf[PLIM_BYTES_TEXT];
    return plim_arena_sayf(g->arena, "%s", plim_bytes_format(buf, bytes));
}

static void say(struct gatherer *g, enum plim_how how, uint64_t bytes, const char *text)
{
    if (g->status == PLIM_OK) {
        struct plim_evidence e = {text, how, plim_amount(bytes, bytes ? how : PLIM_HOW_UNKNOWN)};
        g->status = plim_vec_push(&g->d->set.evidence, g->err, e);
    }
}

static void cannot_know(struct gatherer *g, const char *text)
{
    if (g->status == PLIM_OK) {
        g->status = plim_vec_push(&g->d->set.unknowns, g->err, text);
    }
}

static const char *site_of_stack(struct gatherer *g, uint32_t stack)
{
    uint32_t site = plim_site_of(&g->d->sites, stack);
    return plim_site_text(g->snapshot, &g->d->sites.sites.items[site], g->arena);
}

static void say_request(struct gatherer *g)
{
    const struct plim_failure *f = &g->d->failure;
    struct plim_amount free = g->d->set.ledger.owner[PLIM_OWNER_FREE];
    if (!f->happened) {
        return;
    }
    const char *at = f->stack == PLIM_NO_STACK
                         ? ""
                         : plim_arena_sayf(g->arena, " at %s", site_of_stack(g, f->stack));
    const char *left = plim_known(free) ? plim_arena_sayf(g->arena, " with %s free on the device",
                                                          bytes_text(g, free.bytes))
                                        : "";
    say(g, PLIM_HOW_MEASURED, f->size,
        plim_arena_sayf(g->arena, "A request of %s failed%s%s.",
                        bytes_text(g, g->d->set.ledger.request.bytes), left, at));
}

static void say_pins(struct gatherer *g)
{
    uint64_t stranded = g->d->fragmentation.normal.stranded;
    if (stranded < PLIM_MIB || g->d->pins.n == 0) {
        return;
    }
    const struct plim_pin_row *top = &g->d->pins.items[0];
    const char *where = top->site ? plim_arena_sayf(g->arena, " from %s", top->site) : "";
    say(g, PLIM_HOW_MEASURED, stranded,
        plim_arena_sayf(
            g->arena,
            "%s are stranded in %zu segments. The worst: %s live keep %s free bytes of a %s "
            "segment from being released; oldest block %s%s, %s.",
            bytes_text(g, stranded), g->d->fragmentation.pinned.n, bytes_text(g, top->live),
            bytes_text(g, top->stranded), bytes_text(g, top->segment_size),
            bytes_text(g, top->block_size), where,
            top->before_trace ? "older than the recording"
                              : plim_arena_sayf(g->arena, "%llu events old",
                                                (unsigned long long)top->age_events)));
}

static void say_leaks(struct gatherer *g)
{
    for (size_t i = 0; i < g->d->leaks.suspects.n && i < 3; i++) {
        const struct plim_leak_suspect *s = &g->d->leaks.suspects.items[i];
        const struct plim_site *site = &g->d->sites.sites.items[s->site];
        say(g, PLIM_HOW_MEASURED, s->excess,
            plim_arena_sayf(g->arena, "%s: %s. The next 1,000 allocations would add %s.",
                            plim_site_text(g->snapshot, site, g->arena), s->why,
                            bytes_text(g, (uint64_t)(s->bytes_per_alloc * 1000))));
    }
}

static void say_held(struct gatherer *g)
{
    const struct plim_held *h = &g->d->held;
    if (h->bytes > 0) {
        say(g, PLIM_HOW_MEASURED, h->bytes,
            plim_arena_sayf(g->arena,
                            "Of the attempt that ended with the failure at event %u, %u blocks "
                            "(%s) were still live when the request failed, although the program "
                            "had come back to where it began, %s.",
                            h->failure, h->blocks, bytes_text(g, h->bytes),
                            site_of_stack(g, h->stack)));
    }
}

static void say_private_pools(struct gatherer *g)
{
    const struct plim_heap_totals *p = &g->d->fragmentation.private_;
    uint64_t unused = p->stranded + p->releasable;
    uint32_t pools = 0;
    plim_vec_foreach (row, &g->d->fragmentation.pools) {
        pools += row->pool != 0 && row->totals.reserved > 0;
    }
    if (pools > 0) {
        say(g, PLIM_HOW_MEASURED, unused,
            plim_arena_sayf(
                g->arena,
                "%u private pools (CUDA graphs or MemPool) reserve %s and use %s of it; the "
                "rest, %s, serves no other request.",
                pools, bytes_text(g, p->reserved), bytes_text(g, p->allocated + p->pending),
                bytes_text(g, unused)));
    }
}

static void say_external(struct gatherer *g)
{
    const struct plim_ledger *l = &g->d->set.ledger;
    if (!plim_known(l->total) || !plim_known(l->owner[PLIM_OWNER_FREE])) {
        return;
    }
    uint64_t free = l->owner[PLIM_OWNER_FREE].bytes;
    uint64_t outside = plim_sub_sat(l->total.bytes, plim_add_sat(l->reserved.bytes, free));
    say(g, PLIM_HOW_COMPUTED, outside,
        plim_arena_sayf(g->arena,
                        "Outside this allocator: total %s - reserved %s - free %s = %s (context, "
                        "libraries, other processes).",
                        bytes_text(g, l->total.bytes), bytes_text(g, l->reserved.bytes),
                        bytes_text(g, free), bytes_text(g, outside)));
}

/* What a recorder saw outside the allocator, the three largest by name. */
static void say_parts(struct gatherer *g)
{
    const struct plim_ledger *l = &g->d->set.ledger;
    struct plim_amount own = l->owner[PLIM_OWNER_PROCESS_OTHER];
    unsigned part = plim_ledger_part_after(l, UINT64_MAX, 0);
    const char *list = "";
    for (unsigned n = 0; n < 3 && part < PLIM_OWNERS; n++) {
        list = plim_arena_sayf(g->arena, "%s%s%s %s", list, n == 0 ? "" : ", ",
                               plim_ledger_part_label(part), bytes_text(g, l->part[part].bytes));
        part = plim_ledger_part_after(l, l->part[part].bytes, part);
    }
    if (plim_known(own) && list[0] != '\0') {
        say(g, own.how, own.bytes,
            plim_arena_sayf(g->arena, "Outside its allocator this process holds %s: %s%s.",
                            bytes_text(g, own.bytes), list, part < PLIM_OWNERS ? ", ..." : ""));
    }
}

static void say_slack(struct gatherer *g)
{
    const struct plim_heap_totals *n = &g->d->fragmentation.normal;
    if (n->releasable > 0) {
        say(g, PLIM_HOW_MEASURED, n->releasable,
            plim_arena_sayf(
                g->arena,
                "%s of the slack lies in wholly free segments: the allocator gives it back by "
                "itself before it reports a failure. It is not fragmentation.",
                bytes_text(g, n->releasable)));
    }
    uint64_t rounding = g->d->set.ledger.owner[PLIM_OWNER_ROUNDING].bytes;
    if (rounding * 20 > g->d->set.ledger.allocated.bytes) {
        say(g, PLIM_HOW_MEASURED, rounding,
            plim_arena_sayf(g->arena, "Rounding of sizes costs %s, %.1f %% of the live bytes.",
                            bytes_text(g, rounding),
                            100.0 * (double)rounding / (double)g->d->set.ledger.allocated.bytes));
    }
}

/* Freed by the program, but a stream that used them (record_stream) is not known to have come that far. */
static void say_pending(struct gatherer *g)
{
    const struct plim_heap_totals *all = &g->d->fragmentation.all;
    if (all->pending * 20 > all->allocated + all->pending) {
        say(g, PLIM_HOW_MEASURED, all->pending,
            plim_arena_sayf(g->arena,
                            "%s of the live bytes were freed by the program and wait for another "
                            "stream that used them (record_stream).",
                            bytes_text(g, all->pending)));
    }
}

static void say_retries(struct gatherer *g)
{
    const struct plim_history *h = &g->d->history;
    if (h->retries > 0) {
        say(g, PLIM_HOW_MEASURED, 0,
            plim_arena_sayf(
                g->arena,
                "%s in this trace the allocator had to release cached segments and ask the driver "
                "again.",
                h->retries == 1 ? "Once" : plim_arena_sayf(g->arena, "%u times", h->retries)));
    }
}

static void say_failures(struct gatherer *g)
{
    if (g->d->failure.count > 1) {
        say(g, PLIM_HOW_MEASURED, 0,
            plim_arena_sayf(g->arena, "%u requests failed in this trace; the last one is judged.",
                            g->d->failure.count));
    }
    if (g->d->failure.happened && g->d->failure.events_after > 100) {
        say(g, PLIM_HOW_MEASURED, 0,
            plim_arena_sayf(g->arena, "The program went on for %llu events after the failure.",
                            (unsigned long long)g->d->failure.events_after));
    }
}

/* Segments that are each a little larger than all before: freed ones never fit the next request. */
static void say_growing_segments(struct gatherer *g)
{
    const struct plim_history *h = &g->d->history;
    if (h->growing_segments >= GROWING_SEGMENTS) {
        say(g, PLIM_HOW_MEASURED, h->largest_segment,
            plim_arena_sayf(
                g->arena,
                "The largest segments grew in %u small steps from %s to %s: each freed one is "
                "just too small for the next request.",
                h->growing_segments, bytes_text(g, h->growing_from),
                bytes_text(g, h->largest_segment)));
    }
}

static void say_peaks(struct gatherer *g)
{
    const struct plim_peaks *p = &g->d->peaks;
    if (g->snapshot->devices.items[g->d->device].trace.events.n > 1) {
        say(g, PLIM_HOW_COMPUTED, p->allocated,
            plim_arena_sayf(g->arena,
                            "Peak in this trace: %s live (event %zu), %s reserved (event %zu).",
                            bytes_text(g, p->allocated), p->allocated_at,
                            bytes_text(g, p->reserved), p->reserved_at));
    }
}

/* The message and the snapshot should tell of the same moment. */
static void compare_with_message(struct gatherer *g)
{
    const struct plim_facts *f = &g->d->facts;
    uint64_t reserved = g->d->set.ledger.reserved.bytes;
    if (g->d->too_late) {
        say(g, PLIM_HOW_COMPUTED, f->allocated.bytes,
            plim_arena_sayf(g->arena,
                            "The snapshot is from after the failure, when %s were left live of the "
                            "%s that the message tells of: the message's figures are judged, and "
                            "who held the rest cannot be told.",
                            bytes_text(g, g->d->fragmentation.all.allocated),
                            bytes_text(g, f->allocated.bytes)));
        return;
    }
    if (!plim_known(f->reserved)) {
        return;
    }
    uint64_t apart =
        f->reserved.bytes > reserved ? f->reserved.bytes - reserved : reserved - f->reserved.bytes;
    if (apart > f->tolerance) {
        say(g, PLIM_HOW_COMPUTED, apart,
            plim_arena_sayf(g->arena,
                            "The message speaks of %s reserved, the snapshot of %s: they are from "
                            "different moments; the snapshot is judged.",
                            bytes_text(g, f->reserved.bytes), bytes_text(g, reserved)));
    }
}

static void say_host(struct gatherer *g)
{
    const struct plim_host *h = &g->snapshot->host;
    if (h->known && h->segments > 0) {
        say(g, PLIM_HOW_MEASURED, h->reserved,
            plim_arena_sayf(g->arena, "Pinned host memory: %s in %u segments, %s of it in use.",
                            bytes_text(g, h->reserved), h->segments, bytes_text(g, h->allocated)));
    }
}

static void list_device_unknowns(struct gatherer *g)
{
    const struct plim_ledger *l = &g->d->set.ledger;
    if (!plim_known(l->total)) {
        cannot_know(
            g, "The device's size: a snapshot does not record it. Give it with --device-memory "
               "24GiB, or the message with --oom-text FILE, to see memory outside the allocator.");
    } else if (l->owner[PLIM_OWNER_OTHER_PROCESSES].how == PLIM_HOW_ESTIMATED) {
        cannot_know(
            g, "Whose the memory outside the allocator is: the split between this process and "
               "others is an estimate. The message (--oom-text) or `nvidia-smi` at the time of the "
               "failure tells.");
    }
    if (plim_known(l->total) && plim_known(l->reserved) && l->reserved.bytes > l->total.bytes) {
        cannot_know(
            g, plim_arena_sayf(g->arena,
                               "How %s can be reserved on a device of %s: that size is wrong (it "
                               "is given with its unit, 24GiB), or a part lies in the host's "
                               "memory.",
                               bytes_text(g, l->reserved.bytes), bytes_text(g, l->total.bytes)));
    }
    if (g->d->set.verdict.subclass == PLIM_SUBCLASS_MEMORY_CAP && !plim_known(g->d->facts.cap)) {
        cannot_know(
            g, "The cap's value: the message names it as `allowed`; give it with --oom-text FILE.");
    }
}

static void list_history_unknowns(struct gatherer *g)
{
    const struct plim_trace *trace = &g->snapshot->devices.items[g->d->device].trace;
    if (g->snapshot->level == PLIM_LEVEL_ALLOCATOR) {
        cannot_know(
            g, plim_arena_sayf(g->arena,
                               "How much of the %s that the allocator holds is live: a trace has "
                               "what it asked of the driver. Its snapshot tells; give both: "
                               "plimsoll diagnose SNAPSHOT --trace FILE.",
                               bytes_text(g, g->d->set.ledger.reserved.bytes)));
    }
    if (trace->events.n <= 1) {
        cannot_know(g,
                    "How it came to this: no history was recorded, so growth cannot be told from a "
                    "large working set. Call torch.cuda.memory._record_memory_history(max_entries="
                    "200000) at the start and take the snapshot again.");
    } else if (!g->d->complete) {
        cannot_know(
            g, plim_arena_sayf(g->arena,
                               "What happened before the first of the %zu recorded events: %s were "
                               "reserved already then.",
                               trace->events.n, bytes_text(g, g->d->peaks.reserved_at_start)));
    }
    if (g->snapshot->stacks.stacks.n <= 1 && trace->events.n > 0) {
        cannot_know(g,
                    "Which code allocated: no stacks were recorded (context=None or stacks off).");
    }
    if (g->snapshot->findings.n > 0) {
        cannot_know(
            g, plim_arena_sayf(g->arena,
                               "Whether all figures are right: the snapshot contradicts itself in "
                               "%zu places; see findings.",
                               g->snapshot->findings.n + (size_t)g->snapshot->findings_dropped));
    }
}

/* Which sentence comes first depends on what the verdict rests on. */
static void say_for_verdict(struct gatherer *g)
{
    switch (g->d->set.verdict.cls) {
    case PLIM_CLASS_LEAK:
        say_held(g);
        say_leaks(g);
        say_request(g);
        break;
    case PLIM_CLASS_EXTERNAL:
        say_request(g);
        say_external(g);
        say_pins(g);
        break;
    case PLIM_CLASS_FRAGMENTATION:
        if (g->d->set.verdict.subclass == PLIM_SUBCLASS_PRIVATE_POOL) {
            say_private_pools(g);
        }
        say_pins(g);
        say_request(g);
        say_growing_segments(g);
        break;
    case PLIM_CLASS_HEALTHY:
        say_slack(g);
        break;
    case PLIM_CLASS_UNKNOWN:
    case PLIM_CLASS_CAPACITY:
    case PLIM_CLASS_CONFIGURATION:
    case PLIM_CLASS_HOST_MEMORY:
    case PLIM_CLASS_NOT_OOM:
    case PLIM_CLASS_COUNT:
        say_request(g);
        say_external(g);
        break;
    }
}

/* Leaks and pinned segments that are too small to matter come last. */
static bool is_much(const struct gatherer *g, uint64_t bytes)
{
    const struct plim_ledger *l = &g->d->set.ledger;
    uint64_t base = plim_known(l->capacity) ? l->capacity.bytes : l->reserved.bytes;
    return bytes >= plim__material_bytes(base);
}

static void say_small_or_large(struct gatherer *g, bool much)
{
    enum plim_class cls = g->d->set.verdict.cls;
    if (cls != PLIM_CLASS_LEAK && is_much(g, g->d->leaks.excess) == much) {
        say_leaks(g);
    }
    if (cls != PLIM_CLASS_FRAGMENTATION && cls != PLIM_CLASS_EXTERNAL &&
        is_much(g, g->d->fragmentation.normal.stranded) == much) {
        say_pins(g);
    }
}

static void say_the_rest(struct gatherer *g)
{
    enum plim_class cls = g->d->set.verdict.cls;
    say_small_or_large(g, true);
    if (cls != PLIM_CLASS_FRAGMENTATION) {
        say_private_pools(g);
        say_growing_segments(g);
    }
    if (cls == PLIM_CLASS_LEAK || cls == PLIM_CLASS_FRAGMENTATION) {
        say_external(g);
    }
    if (cls != PLIM_CLASS_HEALTHY) {
        say_slack(g);
    }
    say_parts(g);
    say_pending(g);
    say_retries(g);
    say_failures(g);
    say_small_or_large(g, false);
    say_peaks(g);
    say_host(g);
}

enum plim_status plim__gather_evidence(const struct plim_snapshot *snapshot,
                                       struct plim_diagnosis *d, struct plim_err *err)
{
    struct gatherer g = {snapshot, d, &d->arena, PLIM_OK, err};
    compare_with_message(&g);
    say_for_verdict(&g);
    say_the_rest(&g);
    list_device_unknowns(&g);
    list_history_unknowns(&g);
    return g.status;
}
