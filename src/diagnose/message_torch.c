/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The judge of PyTorch's own out-of-memory messages. The tests run in a fixed order; the first one
 * that can decide gives the verdict. Thresholds:
 *   IMPOSSIBLE    a request of a hundred devices is a wrong number, not demand
 *   CLEARLY       free memory exceeds the request by so much that the device was not full
 *   share 10/15 % slack or memory of others below this share of the device did not decide
 * Reasons for each are in docs/design/explain.md.
 */

#include "diagnose/message_internal.h"

#define IMPOSSIBLE_DEVICES 100
#define IMPOSSIBLE_ALONE   (UINT64_C(1) << 50) /* 1 PiB, when the device's size is not known */
#define CLEARLY_BYTES      (256 * PLIM_MIB)
#define CLEARLY_SHARE      10             /* per cent of the request */
#define GAP_SHARE          10             /* per cent of the device */
#define OTHERS_SHARE       15             /* per cent of the device */
#define MOST_SHARE         50             /* per cent: more than an engine leaves to others */
#define XPU_BLOCK          (4 * PLIM_GIB) /* Level Zero: largest single allocation without a special flag */

static uint64_t percent(uint64_t of, unsigned share)
{
    return of / 100 * share;
}

/* a + b > limit, for amounts that are all known. */
static bool exceeds(struct plim_amount a, struct plim_amount b, struct plim_amount limit)
{
    return plim_known(a) && plim_known(b) && plim_known(limit) &&
           plim_add_sat(a.bytes, b.bytes) > limit.bytes;
}

static bool free_clearly_enough(const struct plim__books *b)
{
    uint64_t margin = plim_max_u64(percent(b->request.bytes, CLEARLY_SHARE), CLEARLY_BYTES);
    return plim_known(b->free) && plim_known(b->request) &&
           b->free.bytes >= plim_add_sat(b->request.bytes, margin);
}

/* How much was missing: 0 when that cannot be said. */
static uint64_t shortage(const struct plim__books *b)
{
    return plim_known(b->request) && plim_known(b->free)
               ? plim_sub_sat(b->request.bytes, b->free.bytes)
               : 0;
}

static bool test_impossible(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    const struct plim_oom_value *request = &c->facts->field[PLIM_OOM_REQUEST];
    bool impossible = c->event->meaning == PLIM_OOM_MEANS_TORCH_IMPOSSIBLE ||
                      (request->set && request->n >= IMPOSSIBLE_ALONE) ||
                      (plim_known(b->request) && plim_known(b->total) &&
                       b->request.bytes / IMPOSSIBLE_DEVICES > b->total.bytes);
    if (!impossible) {
        return false;
    }
    plim__verdict(c, PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_CORRUPT_SIZE, 0.9,
                  plim__say(c,
                            "The size asked for%s%s is not real: a wrong number reached the "
                            "allocator. No device could serve it, and memory is not what is "
                            "missing.",
                            plim_known(b->request) ? ", " : "",
                            plim_known(b->request) ? plim__size(c, b->request.bytes) : ""));
    if (plim_known(b->request) && plim_known(b->total)) {
        plim__evidence_amount(c, b->request,
                              plim__say(c, "The request is %.0f times the device.",
                                        (double)b->request.bytes / (double)b->total.bytes));
    } else {
        plim__evidence(c, PLIM_HOW_MEASURED, "The size is beyond 2^50 bytes.");
    }
    plim__advice(c, "Look at the sizes at the failing line of the stack trace",
                 "A negative or overflowed shape, an uninitialized length, or unscaled input.");
    plim__advice(c, "With several ranks, find the first other error in the log",
                 "Object collectives (all_gather_object, broadcast_object_list) read a length; out "
                 "of step after another failure, they read garbage.");
    return true;
}

/* A broken allocator turns every later request into an out-of-memory error. */
static bool test_broken_allocator(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (!plim__saw(c, PLIM_OOM_MEANS_CUMEM_INVALID) || !free_clearly_enough(b)) {
        return false;
    }
    plim__verdict(c, PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_OTHER_ERROR, 0.85,
                  "An error inside the pluggable allocator came first; the out-of-memory text is "
                  "its echo, with plenty of memory free.");
    plim__evidence(c, PLIM_HOW_MEASURED,
                   "\"CUDA Error: invalid argument\" in cumem_allocator precedes the message.");
    plim__evidence_amount(c, b->free,
                          plim__say(c, "%s are free, %s were asked for.",
                                    plim__size(c, b->free.bytes), plim__size(c, b->request.bytes)));
    plim__advice(c, "Report or update the engine; until then run without sleep mode",
                 "The failing call is in its allocator over the virtual memory API, not in your "
                 "model.");
    return true;
}

static bool test_cap(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    struct plim_amount held = plim_known(b->reserved) ? b->reserved : b->live;
    bool rejected = c->event->meaning == PLIM_OOM_MEANS_TORCH_PREEMPTIVE;
    /* The cap is printed with two decimals: take it at the low end of what it can be. */
    struct plim_amount least = b->cap;
    least.bytes = plim_sub_sat(b->cap.bytes, plim__slop(c, PLIM_OOM_ALLOWED));
    bool bound = plim_known(b->cap) && (!plim_known(b->total) || b->cap.bytes < b->total.bytes) &&
                 (rejected || !plim_known(held) || !plim_known(b->request) ||
                  exceeds(held, b->request, least));
    if (!bound && !rejected) {
        return false;
    }
    if (exceeds(b->live, b->request, b->total)) {
        return false; /* would not fit without the cap either */
    }
    const char *cap = plim_known(b->cap) ? plim__size(c, b->cap.bytes) : "the set share";
    plim__verdict(c, PLIM_CLASS_CONFIGURATION, PLIM_SUBCLASS_ALLOCATOR_LIMIT, 0.9,
                  plim__say(c,
                            "A limit set for this process (%s) was reached; the device itself "
                            "is not the limit.",
                            cap));
    if (plim_known(b->cap) && plim_known(held) && plim_known(b->request)) {
        plim__evidence_amount(c, b->cap,
                              plim__say(c, "%s held + %s asked for = %s, against %s allowed.",
                                        plim__size(c, held.bytes), plim__size(c, b->request.bytes),
                                        plim__size(c, plim_add_sat(held.bytes, b->request.bytes)),
                                        cap));
    }
    if (plim_known(b->free)) {
        plim__evidence_amount(
            c, b->free, plim__say(c, "%s of the device are free.", plim__size(c, b->free.bytes)));
        if (plim_known(b->request)) {
            plim__counterfactual(c, "no_cap", plim_sub_sat(b->total.bytes, b->cap.bytes),
                                 b->free.bytes >= b->request.bytes,
                                 plim__say(c, "without the limit: %s free for %s",
                                           plim__size(c, b->free.bytes),
                                           plim__size(c, b->request.bytes)));
        }
    }
    plim__advice(
        c, "Raise or remove the fraction: torch.cuda.set_per_process_memory_fraction(...)",
        "Look also for per_process_memory_fraction in the allocator settings, and for test "
        "harnesses that set it.");
    return true;
}

static bool test_void_figures(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (!plim_known(b->free) || !plim_known(b->total) || b->free.bytes <= b->total.bytes) {
        return false;
    }
    plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.4,
                  "More is free than the device has: the figures come from different pools of an "
                  "integrated GPU, so arithmetic on them means nothing.");
    plim__evidence_amount(c, b->free,
                          plim__say(c, "free %s > total %s.", plim__size(c, b->free.bytes),
                                    plim__size(c, b->total.bytes)));
    if (exceeds(b->request, plim_amount(0, PLIM_HOW_GIVEN), b->total)) {
        plim__evidence_amount(c, b->request,
                              "The request exceeds what PyTorch takes for the whole "
                              "device.");
    }
    plim__unknown(
        c, "how the memory is split between VRAM and GTT: `rocm-smi --showmeminfo vram gtt`, "
           "and the VRAM size set in the firmware");
    plim__advice(c,
                 "Set the GPU's share of memory in the firmware (UMA frame buffer) or the GTT "
                 "limit, then compare again",
                 "PyTorch plans with the `total` figure, whatever is free elsewhere.");
    return true;
}

static bool test_spill(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (!plim_known(b->live) || !plim_known(b->total) || b->live.bytes <= b->total.bytes) {
        return false;
    }
    plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.92,
                  plim__say(c,
                            "The program holds %s on a device of %s: the driver was already "
                            "moving memory to the host. It does not fit.",
                            plim__size(c, b->live.bytes), plim__size(c, b->total.bytes)));
    plim__evidence_amount(c, b->live,
                          "More is allocated than the device has, which only the Windows and WSL2 "
                          "driver's system memory fallback allows.");
    return true;
}

static bool test_capacity(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    struct plim_amount fixed = plim__books_context(b);
    if (!plim_known(b->request) || !plim_known(b->total)) {
        return false;
    }
    uint64_t usable = plim_sub_sat(b->total.bytes, fixed.bytes);
    uint64_t need = plim_add_sat(plim_known(b->live) ? b->live.bytes : 0, b->request.bytes);
    if (need <= usable) {
        return false;
    }
    const char *request = plim__size(c, b->request.bytes), *total = plim__size(c, b->total.bytes);
    bool alone = b->request.bytes > usable;
    const char *summary =
        alone
            ? plim__say(c,
                        "One request of %s is more than this device of %s can give to anybody. No "
                        "allocator setting can help.",
                        request, total)
            : plim__say(c,
                        "What is live (%s) and the request (%s)%s exceed the device (%s), however "
                        "well memory is packed.",
                        plim__size(c, b->live.bytes), request,
                        need > b->total.bytes ? " together" : ", with a context beside them,",
                        total);
    plim__verdict(c, PLIM_CLASS_CAPACITY,
                  alone ? PLIM_SUBCLASS_SINGLE_REQUEST : PLIM_SUBCLASS_WORKING_SET,
                  need > b->total.bytes ? 0.93 : 0.85, summary);
    plim__evidence_amount(
        c, plim_amount(need, PLIM_HOW_COMPUTED),
        plim__say(c,
                  "%s live + %s asked for = %s, against %s minus about %s for the "
                  "context.",
                  plim__size(c, need - b->request.bytes), request, plim__size(c, need), total,
                  plim__size(c, fixed.bytes)));
    return true;
}

static bool test_block_limit(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    bool xpu = strcmp(c->event->format, "torch-xpu") == 0;
    bool limit =
        c->event->meaning == PLIM_OOM_MEANS_XPU_BLOCK_LIMIT ||
        (xpu && plim_known(b->request) &&
         b->request.bytes + plim__slop(c, PLIM_OOM_REQUEST) >= XPU_BLOCK && plim_known(b->live) &&
         plim_known(b->total) && b->live.bytes + b->request.bytes < percent(b->total.bytes, 90));
    if (!limit) {
        return false;
    }
    plim__verdict(
        c, PLIM_CLASS_CONFIGURATION, PLIM_SUBCLASS_ALLOCATOR_LIMIT, 0.87,
        "The driver's limit on a single allocation (4 GiB) was met; the device has room.");
    if (plim_known(b->request) && plim_known(b->live)) {
        plim__evidence_amount(c, b->request,
                              plim__say(c, "%s in one piece, with %s allocated of %s.",
                                        plim__size(c, b->request.bytes),
                                        plim__size(c, b->live.bytes),
                                        plim__size(c, b->total.bytes)));
    }
    plim__advice(
        c, "Keep single tensors under 4 GiB (smaller batch, tiled or sliced attention and VAE)",
        "Level Zero refuses larger single allocations by default.");
    plim__advice(c, "Or allow large allocations: UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1",
                 "Where driver and kernels support it; slower address arithmetic.");
    return true;
}

/* Memory was free, but the driver refused: nothing in the figures can be the cause. */
static bool test_free(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (!free_clearly_enough(b)) {
        return false;
    }
    plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.5,
                  plim__say(c,
                            "%s were free and %s were refused: neither capacity nor "
                            "fragmentation explains it. The refusal came from elsewhere: the "
                            "host's commit limit, a mapping limit, a limit of the driver, or "
                            "memory that was given back before the message was written.",
                            plim__size(c, b->free.bytes), plim__size(c, b->request.bytes)));
    plim__evidence_amount(c, b->free,
                          plim__say(c, "free %s is %.1f times the request.",
                                    plim__size(c, b->free.bytes),
                                    (double)b->free.bytes / (double)b->request.bytes));
    if (plim_known(b->others)) {
        plim__evidence_amount(c, b->others,
                              plim__say(c, "Others hold about %s; freeing it was not needed.",
                                        plim__size(c, b->others.bytes)));
    }
    plim__advise_unknown(c);
    return true;
}

static bool test_engine(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    bool pool = plim__saw(c, PLIM_OOM_MEANS_ENGINE_KV);
    bool engine =
        plim__saw(c, PLIM_OOM_MEANS_ENGINE_VLLM) || plim__saw(c, PLIM_OOM_MEANS_ENGINE_SGLANG);
    bool early = plim__saw(c, PLIM_OOM_MEANS_AT_LOAD) || plim__saw(c, PLIM_OOM_MEANS_AT_BUILD) ||
                 plim__saw(c, PLIM_OOM_MEANS_AT_PROFILE) || plim__saw(c, PLIM_OOM_MEANS_VLLM_LOAD);
    bool neighbours =
        plim_known(b->total) &&
        ((plim_known(b->listed) && b->listed.bytes > percent(b->total.bytes, OTHERS_SHARE)) ||
         (plim_known(b->others) && b->others.bytes > percent(b->total.bytes, MOST_SHARE)));
    bool too_large = plim_known(b->request) && plim_known(b->total) &&
                     b->request.bytes >= percent(b->total.bytes, 75);
    pool = pool || (engine && plim__saw(c, PLIM_OOM_MEANS_AT_CAPTURE));
    if ((!pool && (!engine || early)) || neighbours || too_large || free_clearly_enough(b)) {
        return false;
    }
    uint64_t missing = shortage(b);
    struct plim_amount kv = plim__field(c, PLIM_OOM_KV_AVAILABLE);
    plim__verdict(c, PLIM_CLASS_CONFIGURATION, PLIM_SUBCLASS_ENGINE_BUDGET, pool ? 0.85 : 0.65,
                  "The engine filled the device up to its budget with KV cache and left too little "
                  "for what it allocates outside that budget. The budget is too large.");
    if (missing > 0) {
        plim__evidence_amount(c, plim_amount(missing, PLIM_HOW_COMPUTED),
                              plim__say(c, "Only %s were missing (%s asked for, %s free).",
                                        plim__size(c, missing), plim__size(c, b->request.bytes),
                                        plim__size(c, b->free.bytes)));
    }
    if (plim_known(kv)) {
        plim__evidence_amount(c, kv,
                              plim__say(c,
                                        "The KV cache took %s; it is the part that can "
                                        "give.",
                                        plim__size(c, kv.bytes)));
        if (missing > 0) {
            plim__counterfactual(c, "smaller_kv_cache", missing, kv.bytes > missing,
                                 plim__say(c, "with a KV cache smaller by %s of %s",
                                           plim__size(c, missing), plim__size(c, kv.bytes)));
        }
    }
    plim__advise_engine(c);
    return true;
}

static bool test_fragmentation(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (!plim_known(b->gap) || !plim_known(b->request)) {
        return false;
    }
    uint64_t private_free = plim_known(b->private_free) ? b->private_free.bytes : 0;
    uint64_t slack = plim_add_sat(b->gap.bytes, private_free);
    uint64_t least = plim_known(b->total) ? percent(b->total.bytes, GAP_SHARE) : PLIM_GIB;
    bool private_pool = private_free > b->gap.bytes && slack >= b->request.bytes;
    bool holes = b->gap.bytes >= b->request.bytes;
    if ((!holes && !private_pool) || (slack <= least && slack <= PLIM_GIB)) {
        return false;
    }
    double margin = (double)slack / (double)plim_max_u64(b->request.bytes, 1);
    plim__verdict(c, PLIM_CLASS_FRAGMENTATION,
                  private_pool ? PLIM_SUBCLASS_PRIVATE_POOL : PLIM_SUBCLASS_STRANDED,
                  margin >= 1.5 ? 0.85 : 0.72,
                  plim__say(c,
                            "PyTorch holds %s that nobody uses, %s for a request of %s, but in "
                            "pieces it can neither use for it nor give back.",
                            plim__size(c, slack),
                            private_pool ? "most of it in private pools," : "enough",
                            plim__size(c, b->request.bytes)));
    plim__evidence_amount(c, plim_amount(slack, PLIM_HOW_COMPUTED),
                          plim__say(c,
                                    "%s reserved but unused >= %s asked for. The allocator had "
                                    "already given back every segment that was wholly free.",
                                    plim__size(c, slack), plim__size(c, b->request.bytes)));
    if (plim_known(b->total)) {
        plim__evidence_amount(
            c, b->live,
            plim__say(c, "Only %s of %s are live (%.0f %%).", plim__size(c, b->live.bytes),
                      plim__size(c, b->total.bytes),
                      100.0 * (double)b->live.bytes / (double)plim_max_u64(b->total.bytes, 1)));
    }
    plim__advise_fragmentation(c);
    return true;
}

/* Memory of other processes, or of this one outside the allocator, decides. */
static bool test_external(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (!plim_known(b->total) || !plim_known(b->free) || !plim_known(b->request)) {
        return false;
    }
    bool estimated = plim_known(b->others) && b->others.how == PLIM_HOW_ESTIMATED;
    uint64_t allowance = estimated ? PLIM__CONTEXT_MOST - PLIM__CONTEXT_TYPICAL : 0;
    allowance += plim__saw(c, PLIM_OOM_MEANS_ON_WINDOWS) ? PLIM_GIB : 0;
    uint64_t others = plim_known(b->others) ? plim_sub_sat(b->others.bytes, allowance) : 0;
    uint64_t excess = plim_known(b->own_other) && !estimated
                          ? plim_sub_sat(b->own_other.bytes, PLIM__CONTEXT_LOADED)
                          : 0;
    uint64_t least = percent(b->total.bytes, OTHERS_SHARE);
    bool by_others = others > least && b->free.bytes + others >= b->request.bytes;
    bool by_self = excess > percent(b->total.bytes, GAP_SHARE) && excess > others &&
                   b->free.bytes + excess >= b->request.bytes;
    if (!by_others && !by_self) {
        return false;
    }
    uint64_t bytes = by_self ? b->own_other.bytes : b->others.bytes;
    plim__verdict(c, PLIM_CLASS_EXTERNAL,
                  by_self ? PLIM_SUBCLASS_SAME_PROCESS : PLIM_SUBCLASS_OTHER_PROCESS,
                  estimated ? 0.78 : 0.85,
                  by_self ? plim__say(c,
                                      "%s of this process's memory is not PyTorch's: another "
                                      "library, CUDA graphs or communication buffers. Without "
                                      "it the request would have fitted.",
                                      plim__size(c, bytes))
                          : plim__say(c,
                                      "%s%s of the device (%.0f %%) belongs to somebody else. "
                                      "Without that the request would have fitted.",
                                      estimated ? "About " : "", plim__size(c, bytes),
                                      100.0 * (double)bytes / (double)b->total.bytes));
    plim__evidence_amount(
        c, by_self ? b->own_other : b->others,
        plim__say(
            c, "%s total - %s free - %s %s = %s.", plim__size(c, b->total.bytes),
            plim__size(c, b->free.bytes),
            plim__size(c, plim_known(b->own) ? b->own.bytes : b->reserved.bytes),
            plim_known(b->own) ? "of this process" : "held by PyTorch",
            plim__size(c, b->total.bytes - b->free.bytes -
                              plim_min_u64(plim_known(b->own) ? b->own.bytes : b->reserved.bytes,
                                           b->total.bytes - b->free.bytes))));
    plim__advise_external(c);
    return true;
}

static bool test_no_figures(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (plim_known(b->live) && plim_known(b->total) && plim_known(b->request)) {
        return false;
    }
    if (plim__saw(c, PLIM_OOM_MEANS_GROWTH_STATED)) {
        plim__judge_growth(c);
        return true;
    }
    if (!plim_known(b->total) && plim_known(b->request) && b->request.bytes >= PLIM__HUGE_REQUEST) {
        plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_SINGLE_REQUEST, 0.65,
                      plim__say(c,
                                "One request of %s is more than what nearly all devices have in "
                                "all: one tensor grew with the square of a length, or a batch.",
                                plim__size(c, b->request.bytes)));
        plim__advise_unknown(c);
        return true;
    }
    plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.3,
                  plim_known(b->request)
                      ? plim__say(c,
                                  "%s were refused, but the text does not say who holds the "
                                  "memory.",
                                  plim__size(c, b->request.bytes))
                      : "The text says that memory ran out, and nothing about who holds it.");
    plim__advise_unknown(c);
    return true;
}

static bool test_rest(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    uint64_t room = plim_known(b->free) ? b->free.bytes : 0;
    bool close = plim_known(b->gap) && room + b->gap.bytes >= b->request.bytes;
    bool mostly_live = b->live.bytes >= b->total.bytes / 2;
    plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, close ? 0.65 : 0.8,
                  plim__say(c,
                            mostly_live
                                ? "The device is full with what the program itself keeps alive (%s "
                                  "of %s); the request of %s came on top."
                                : "What is live (%s of %s) and the request (%s) leave too little "
                                  "for contexts, libraries and the desktop that are on the device, "
                                  "too.",
                            plim__size(c, b->live.bytes), plim__size(c, b->total.bytes),
                            plim__size(c, b->request.bytes)));
    plim__evidence_amount(
        c, b->live,
        plim__say(c, "live %s of %s (%.0f %%).", plim__size(c, b->live.bytes),
                  plim__size(c, b->total.bytes),
                  100.0 * (double)b->live.bytes / (double)plim_max_u64(b->total.bytes, 1)));
    if (plim_known(b->gap)) {
        plim__evidence_amount(c, b->gap,
                              b->gap.bytes < b->request.bytes
                                  ? plim__say(c,
                                              "Unused slack is %s, less than the request: "
                                              "fragmentation did not decide.",
                                              plim__size(c, b->gap.bytes))
                                  : plim__say(c,
                                              "Unused slack is only %s; the next requests would "
                                              "have failed anyway.",
                                              plim__size(c, b->gap.bytes)));
    }
    return true;
}

/* Ranks that touch the wrong device first leave a context there. */
static void note_contexts(struct plim__case *c)
{
    unsigned n = 0;
    for (size_t i = 0; i < c->facts->processes; i++) {
        n += !c->facts->process[i].listed && c->facts->process[i].bytes <= PLIM__CONTEXT_MOST;
    }
    if (n >= 2) {
        plim__evidence(
            c, PLIM_HOW_MEASURED,
            plim__say(c,
                      "%u other processes hold no more than a context each on this device, as "
                      "ranks do that touch it before they choose their own.",
                      n));
        plim__advice(
            c, "Choose the device first thing in each rank: torch.cuda.set_device(local_rank)",
            "Each stray context takes 0.2 to 0.7 GiB here.");
    }
}

/* Pasted statistics say what the allocator held. */
static void note_statistics(struct plim__case *c)
{
    struct plim_amount allocated = plim__field(c, PLIM_OOM_STAT_ALLOCATED);
    struct plim_amount peak = plim__field(c, PLIM_OOM_STAT_PEAK);
    struct plim_amount reserved = plim__field(c, PLIM_OOM_STAT_RESERVED);
    if (plim_known(allocated) && plim_known(reserved)) {
        plim__evidence_amount(c, reserved,
                              plim__say(c, "The statistics: %s allocated%s%s, %s reserved.",
                                        plim__size(c, allocated.bytes),
                                        plim_known(peak) ? ", at its peak " : "",
                                        plim_known(peak) ? plim__size(c, peak.bytes) : "",
                                        plim__size(c, reserved.bytes)));
    }
}

/* What holds for every verdict: circumstances that the reader should know. */
static void add_circumstances(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (b->own_by_arithmetic) {
        plim__evidence_amount(c, b->own,
                              "One of the listed processes is this one (its size fits; in a "
                              "container it does not know its own number).");
    }
    if (b->own_hidden) {
        plim__evidence(c, PLIM_HOW_MEASURED,
                       "The driver does not say how much this process uses "
                       "(usual in containers and on Windows).");
    }
    note_contexts(c);
    note_statistics(c);
    struct plim_amount retries = plim__field(c, PLIM_OOM_STAT_RETRIES);
    if (plim_known(retries) && retries.bytes > 0) {
        plim__evidence_amount(c, retries,
                              plim__say(c,
                                        "%llu allocation retries before: the cache was "
                                        "flushed under pressure.",
                                        (unsigned long long)retries.bytes));
    }
    if (c->event->versions) {
        plim__evidence(c, PLIM_HOW_MEASURED,
                       plim__say(c, "The wording is that of PyTorch %s.", c->event->versions));
    }
}

void plim__judge_torch(struct plim__case *c)
{
    static bool (*const tests[])(struct plim__case *) = {
        test_impossible, test_broken_allocator, test_block_limit, test_cap,  test_void_figures,
        test_spill,      test_engine,           test_capacity,    test_free, test_fragmentation,
        test_external,   test_no_figures,       test_rest,
    };
    plim__books_read(c);
    for (size_t i = 0; i < PLIM_COUNT_OF(tests) && !tests[i](c); i++) {
    }
    plim__books_counterfactuals(c);
    if (c->set->verdict.cls == PLIM_CLASS_CAPACITY) {
        plim__advise_capacity(c);
    }
    add_circumstances(c);
}
