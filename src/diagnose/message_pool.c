/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges of other allocators that print figures: cudaMallocAsync through PyTorch, MPS, XLA,
 * TensorFlow's BFC, CuPy, Paddle, a vGPU's quota, and lone requests.
 */

#include "diagnose/message_internal.h"

#define LARGE_REQUEST (8 * PLIM_GIB) /* one request that only the largest devices could serve */
#define SMALL_DEVICE  (4 * PLIM_GIB) /* nearly all devices in use have more */
#define MISSING_SHARE 50             /* per cent: more cannot be the async pool's own cache */
#define METAL_SHARE   33 /* per cent of the watermark; graphs and caches take up to 20 */
#define IMPOSSIBLE    (UINT64_C(1) << 50) /* 1 PiB */

static bool impossible_request(struct plim__case *c)
{
    const struct plim_oom_value *request = &c->facts->field[PLIM_OOM_REQUEST];
    if (!request->set || request->n < IMPOSSIBLE) {
        return false;
    }
    plim__verdict(c, PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_CORRUPT_SIZE, 0.9,
                  plim__say(c,
                            "A size of %llu bytes is not real: a wrong number reached the "
                            "allocator, which only passes it on.",
                            (unsigned long long)request->n));
    plim__evidence(c, PLIM_HOW_MEASURED, "The size is beyond 2^50 bytes.");
    plim__advice(c, "Report it to the library that computed the size; try another version of it",
                 "Typical of an overflowed or uninitialized workspace size.");
    return true;
}

static void pool_ledger(struct plim__case *c, struct plim_amount total, struct plim_amount live,
                        struct plim_amount free, struct plim_amount request)
{
    struct plim_ledger *ledger = &c->set->ledger;
    ledger->moment = "at the failure";
    ledger->total = total;
    ledger->capacity = total;
    ledger->allocated = live;
    ledger->request = request;
    ledger->owner[PLIM_OWNER_LIVE] = live;
    ledger->owner[PLIM_OWNER_FREE] = free;
}

/* live + request against a limit: the sentence and the counterfactual that every pool shares. */
static bool sum_exceeds(struct plim__case *c, struct plim_amount live, struct plim_amount request,
                        struct plim_amount limit, const char *limit_name)
{
    uint64_t need = plim_add_sat(plim_known(live) ? live.bytes : 0, request.bytes);
    bool exceeds = need > limit.bytes;
    const char *text = plim__say(c, "%s in use + %s asked for = %s, against %s of %s",
                                 plim__size(c, need - request.bytes), plim__size(c, request.bytes),
                                 plim__size(c, need), limit_name, plim__size(c, limit.bytes));
    plim__evidence_amount(c, plim_amount(need, PLIM_HOW_COMPUTED), plim__say(c, "%s.", text));
    plim__counterfactual(c, "alone_and_compact", plim_sub_sat(limit.bytes, need - request.bytes),
                         !exceeds, text);
    return exceeds;
}

static void async_cap(struct plim__case *c, struct plim_amount cap)
{
    plim__verdict(c, PLIM_CLASS_CONFIGURATION, PLIM_SUBCLASS_ALLOCATOR_LIMIT, 0.88,
                  plim__say(c,
                            "A limit of %s set for this process was reached; the device has room.",
                            plim__size(c, cap.bytes)));
    plim__advice(c, "Raise or remove torch.cuda.set_per_process_memory_fraction(...)",
                 "The limit, not the device, refused.");
}

void plim__judge_async(struct plim__case *c)
{
    struct plim_amount live = plim__field(c, PLIM_OOM_ALLOCATED);
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST);
    struct plim_amount total = plim__field(c, PLIM_OOM_TOTAL), free = plim__field(c, PLIM_OOM_FREE);
    struct plim_amount cap = plim__field(c, PLIM_OOM_ALLOWED);
    c->books.live = live;
    c->books.request = request;
    c->books.total = total;
    c->books.free = free;
    pool_ledger(c, total, live, free, request);
    if (impossible_request(c)) {
        return;
    }
    if (!plim_known(live) || !plim_known(request) || !plim_known(total)) {
        plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.3,
                      "The device refused an allocation, and the figures that would explain it are "
                      "missing from the text.");
        plim__advise_unknown(c);
        return;
    }
    uint64_t known = plim_add_sat(live.bytes, plim_known(free) ? free.bytes : 0);
    struct plim_amount missing = plim_amount(plim_sub_sat(total.bytes, known), PLIM_HOW_COMPUTED);
    if (plim_known(free)) {
        c->set->ledger.owner[PLIM_OWNER_UNACCOUNTED] = missing;
    }
    bool capped = plim_known(cap) && cap.bytes < total.bytes &&
                  plim_add_sat(live.bytes, request.bytes) > cap.bytes;
    if (sum_exceeds(c, live, request, total, "the device's size")) {
        plim__verdict(c, PLIM_CLASS_CAPACITY,
                      request.bytes > total.bytes ? PLIM_SUBCLASS_SINGLE_REQUEST
                                                  : PLIM_SUBCLASS_WORKING_SET,
                      0.9, "What is live and the request together exceed the device.");
        plim__advise_capacity(c);
    } else if (capped) {
        async_cap(c, cap);
    } else if (plim_known(free) &&
               free.bytes >= request.bytes + plim_max_u64(request.bytes / 10, 256 * PLIM_MIB)) {
        plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.5,
                      plim__say(c,
                                "%s are free and %s were refused: not a shortage of device memory. "
                                "On Windows device memory has to be backed by the page file.",
                                plim__size(c, free.bytes), plim__size(c, request.bytes)));
        plim__advise_unknown(c);
    } else if (missing.bytes > total.bytes / 100 * MISSING_SHARE) {
        plim__verdict(c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_OTHER_PROCESS, 0.55,
                      plim__say(c,
                                "%s of the device are neither live here nor free, more than this "
                                "process's pool would keep: another process holds them.",
                                plim__size(c, missing.bytes)));
        plim__advise_external(c);
    } else {
        plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.65,
                      "The device is full with what this program keeps; the part that is neither "
                      "live nor free is mostly the driver pool's own cache.");
        plim__advise_capacity(c);
    }
}

void plim__judge_mps(struct plim__case *c)
{
    struct plim_amount live = plim__field(c, PLIM_OOM_IN_USE),
                       other = plim__field(c, PLIM_OOM_OTHER);
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST),
                       limit = plim__field(c, PLIM_OOM_LIMIT);
    pool_ledger(c, (struct plim_amount){0}, live, (struct plim_amount){0}, request);
    c->set->ledger.capacity = limit;
    c->set->ledger.owner[PLIM_OWNER_PROCESS_OTHER] = other;
    if (impossible_request(c)) {
        return;
    }
    if (!plim_known(live) || !plim_known(limit) || !plim_known(request)) {
        plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_MEMORY_CAP, 0.6,
                      "PyTorch's watermark for Apple's unified memory was reached.");
        plim__advise_capacity(c);
        return;
    }
    bool alone = sum_exceeds(c, live, request, limit, "an allowed maximum");
    uint64_t outside = plim_known(other) ? other.bytes : 0;
    if (!alone && outside > limit.bytes / 100 * METAL_SHARE &&
        live.bytes + outside + request.bytes > limit.bytes) {
        plim__verdict(c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_SAME_PROCESS, 0.7,
                      plim__say(c,
                                "%s of this process's Metal memory are not PyTorch's; without them "
                                "the request would fit.",
                                plim__size(c, outside)));
        plim__advice(c, "Find the other Metal user in this process (Core ML, another framework)",
                     "The watermark counts all of the process's Metal allocations.");
        return;
    }
    if (request.bytes > limit.bytes) {
        plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_SINGLE_REQUEST, 0.92,
                      "One request exceeds all that the process may use.");
    } else {
        plim__verdict(
            c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_MEMORY_CAP, 0.88,
            "What is live and the request together exceed the share of unified memory that "
            "PyTorch allows itself.");
    }
    plim__advise_capacity(c);
    plim__advice_full(c, &(struct plim_advice){
                             .action = "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 only as an experiment",
                             .why = "The limit is already most of the machine's memory.",
                             .risk = "the system swaps and may hang."});
}

void plim__judge_xla(struct plim__case *c)
{
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST),
                       plan = plim__field(c, PLIM_OOM_PLAN);
    struct plim_amount limit = plim__field(c, PLIM_OOM_LIMIT);
    pool_ledger(c, limit, (struct plim_amount){0}, (struct plim_amount){0}, request);
    if (impossible_request(c)) {
        return;
    }
    if (plim_known(plan) && plan.bytes >= PLIM_GIB) {
        plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.85,
                      plim__say(c,
                                "The compiled program needs %s at its peak, by the compiler's own "
                                "plan; the device has less.",
                                plim__size(c, plan.bytes)));
        plim__evidence_amount(
            c, plan,
            plim__say(c, "total allocation of the buffer plan: %s.", plim__size(c, plan.bytes)));
        plim__evidence(c, PLIM_HOW_COMPUTED,
                       "\"total fragmentation\" in that plan is packing loss "
                       "inside it, not fragmentation of the allocator.");
    } else if (plim_known(plan)) {
        plim__verdict(
            c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.4,
            plim__say(c,
                      "The program that failed needs only %s in all: the device was full with "
                      "something else, other arrays of this process or another process.",
                      plim__size(c, plan.bytes)));
        plim__evidence_amount(
            c, plan,
            plim__say(c, "total allocation of the buffer plan: %s.", plim__size(c, plan.bytes)));
    } else if (plim_known(request) && request.bytes >= PLIM_GIB) {
        plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.5,
                      plim__say(c,
                                "XLA could not place one buffer of %s. Most often the program's "
                                "arrays do not fit; the text does not show the device's books.",
                                plim__size(c, request.bytes)));
    } else {
        plim__verdict(
            c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.35,
            "XLA's allocator refused a buffer; the text does not show who holds the memory.");
    }
    plim__unknown(c, "the device's books: jax.local_devices()[0].memory_stats(), or "
                     "jax.profiler.save_device_memory_profile(), and `nvidia-smi`");
    plim__advice(
        c, "Use less at once: smaller batch, jax.checkpoint (remat), donate_argnums, bfloat16",
        "Arguments, results and temporaries all count towards the plan.");
    plim__advice(c, "Leave XLA_PYTHON_CLIENT_PREALLOCATE at its default (on) for large buffers",
                 "Memory taken piece by piece cannot serve one buffer larger than a piece.");
}

/* A TPU's runtime says what is free and how much of it lies in one piece ("reservable"). */
void plim__judge_xla_runtime(struct plim__case *c)
{
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST),
                       free = plim__field(c, PLIM_OOM_FREE);
    struct plim_amount piece = plim__field(c, PLIM_OOM_LARGEST_FREE);
    pool_ledger(c, (struct plim_amount){0}, (struct plim_amount){0}, free, request);
    if (impossible_request(c)) {
        return;
    }
    bool fits = plim_known(request) && plim_known(free) && request.bytes <= free.bytes;
    if (plim_known(request) && plim_known(free)) {
        plim__evidence_amount(c, free,
                              plim__say(c, "%s asked for, %s free%s%s.",
                                        plim__size(c, request.bytes), plim__size(c, free.bytes),
                                        plim_known(piece) ? ", in one piece " : "",
                                        plim_known(piece) ? plim__size(c, piece.bytes) : ""));
    }
    if (fits) {
        plim__verdict(c, PLIM_CLASS_FRAGMENTATION, PLIM_SUBCLASS_STRANDED,
                      plim_known(piece) ? 0.75 : 0.55,
                      "Enough device memory (HBM) is free for the request, but not in one piece.");
        plim__advice(c, "Allocate the large, lasting arrays first, and donate arguments",
                     "Small arrays that live on between large ones split what is free.");
    } else {
        plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.75,
                      "The arrays that are alive leave less device memory (HBM) than was asked "
                      "for.");
        plim__advice(c, "Shard or remat more, use a smaller batch, donate arguments",
                     "Arguments, results and temporaries are alive together.");
    }
    plim__advice(c, "Delete what an earlier run of the same program left: del, x.delete(), restart",
                 "In a notebook the arrays of the last run are still alive.");
    plim__unknown(c, "which arrays are alive: jax.live_arrays(), jax.profiler."
                     "save_device_memory_profile()");
}

/* A pool of the program's own: what is free in it, and the largest piece of that. */
void plim__judge_own_pool(struct plim__case *c)
{
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST),
                       free = plim__field(c, PLIM_OOM_FREE),
                       piece = plim__field(c, PLIM_OOM_LARGEST_FREE);
    pool_ledger(c, (struct plim_amount){0}, (struct plim_amount){0}, free, request);
    if (impossible_request(c)) {
        return;
    }
    if (!plim_known(request) || !plim_known(free)) {
        plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.35,
                      "The program's own pool is used up; its figures are missing.");
        plim__unknown(c, "the lines after the message, which say what was asked for and what was "
                         "free; `nvidia-smi`, whether other processes are on the device");
    } else if (request.bytes <= free.bytes) {
        plim__verdict(c, PLIM_CLASS_FRAGMENTATION, PLIM_SUBCLASS_STRANDED, 0.75,
                      "The program's own pool has enough free for the request, but not in one "
                      "piece.");
    } else {
        plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.75,
                      "The program's own pool, which it took at its start, has less free than was "
                      "asked for.");
    }
    if (plim_known(request) && plim_known(free) && plim_known(piece)) {
        plim__evidence_amount(c, free,
                              plim__say(c, "%s asked for, %s free, in one piece %s.",
                                        plim__size(c, request.bytes), plim__size(c, free.bytes),
                                        plim__size(c, piece.bytes)));
    }
    plim__advice(c, "Run fewer processes on a device, or smaller boxes, images or batches",
                 "Each process takes a pool of its own, so that two on a device halve it.");
}

void plim__judge_tf(struct plim__case *c)
{
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST),
                       live = plim__field(c, PLIM_OOM_IN_USE);
    struct plim_amount limit = plim__field(c, PLIM_OOM_LIMIT);
    struct plim_amount largest = plim__field(c, PLIM_OOM_LARGEST_FREE);
    struct plim_amount total = plim__field(c, PLIM_OOM_TOTAL);
    pool_ledger(c, plim_known(total) ? total : limit, live, (struct plim_amount){0}, request);
    if (impossible_request(c)) {
        return;
    }
    bool sums = plim_known(request) && plim_known(live) && plim_known(limit);
    bool exceeds = sums && sum_exceeds(c, live, request, limit, "the arena's limit");
    if (sums && !exceeds && plim_known(total) && limit.bytes < total.bytes / 2) {
        plim__verdict(
            c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_OTHER_PROCESS, 0.7,
            "TensorFlow could get only a small part of the device when it started: somebody "
            "else held the rest.");
        plim__advise_external(c);
    } else if (sums && !exceeds) {
        plim__verdict(
            c, PLIM_CLASS_FRAGMENTATION, PLIM_SUBCLASS_STRANDED, 0.75,
            plim__say(c, "The arena has %s left, enough for %s, but not in one piece%s%s.",
                      plim__size(c, limit.bytes - live.bytes), plim__size(c, request.bytes),
                      plim_known(largest) ? "; the largest is " : "",
                      plim_known(largest) ? plim__size(c, largest.bytes) : ""));
        plim__advice(c, "TF_GPU_ALLOCATOR=cuda_malloc_async",
                     "The driver's allocator maps scattered pages into one range.");
    } else {
        bool single = plim_known(request) && plim_known(limit) && request.bytes > limit.bytes;
        plim__verdict(
            c, PLIM_CLASS_CAPACITY,
            single ? PLIM_SUBCLASS_SINGLE_REQUEST : PLIM_SUBCLASS_WORKING_SET, exceeds ? 0.88 : 0.6,
            exceeds ? "What is in use and the request together exceed what the arena (BFC "
                      "allocator) can have."
                    : "The arena (BFC allocator) refused a tensor. Most often what one step needs "
                      "does not fit; the arena's books are not in the text.");
        if (exceeds && !plim_known(total)) {
            plim__unknown(c,
                          plim__say(c,
                                    "whether the device is much larger than the arena's limit of "
                                    "%s (`nvidia-smi`): then somebody else was on it when the "
                                    "program started, or a fraction was set",
                                    plim__size(c, limit.bytes)));
        }
        if (!sums && plim_known(live) && plim_known(request)) {
            plim__evidence_amount(c, live,
                                  plim__say(c, "%s in use + %s asked for = %s.",
                                            plim__size(c, live.bytes), plim__size(c, request.bytes),
                                            plim__size(c, live.bytes + request.bytes)));
        }
        plim__advise_capacity(c);
    }
    if (!sums) {
        plim__unknown(
            c, "the arena's limit and largest free chunk: the `Stats:` block at the end of the "
               "allocator's dump, a few hundred lines below");
    }
}

void plim__judge_cupy(struct plim__case *c)
{
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST),
                       held = plim__field(c, PLIM_OOM_IN_USE);
    struct plim_amount limit = plim__field(c, PLIM_OOM_LIMIT);
    if (c->event->meaning == PLIM_OOM_MEANS_CUPY_OOM_TOTAL && plim_known(held) &&
        plim_known(request)) {
        held.bytes =
            plim_sub_sat(held.bytes, request.bytes); /* this wording counts the request in */
    }
    pool_ledger(c, (struct plim_amount){0}, held, (struct plim_amount){0}, request);
    c->set->ledger.capacity = limit;
    if (impossible_request(c)) {
        return;
    }
    if (plim_known(limit) && plim_known(request)) {
        bool alone = request.bytes > limit.bytes;
        (void)sum_exceeds(c, held, request, limit, "a limit");
        plim__verdict(c, PLIM_CLASS_CONFIGURATION, PLIM_SUBCLASS_ALLOCATOR_LIMIT,
                      alone ? 0.9 : 0.75,
                      "The memory pool's own limit was reached, not the device.");
        plim__advice(c,
                     "Raise it: cupy.get_default_memory_pool().set_limit(size=...) or "
                     "CUPY_GPU_MEMORY_LIMIT",
                     "The pool counts its free blocks against the limit, too.");
        if (!alone) {
            plim__advice(
                c,
                "Or give the pool's free blocks back first: "
                "cupy.get_default_memory_pool().free_all_blocks()",
                "The request alone is below the limit; the pool does not release cached blocks "
                "of the wrong size by itself.");
        }
        return;
    }
    if (plim_known(held) && held.bytes < SMALL_DEVICE) {
        plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.4,
                      plim__say(c,
                                "The pool was refused with only %s in it, less than nearly all "
                                "devices have: others may hold the rest. The text does not tell "
                                "the device's size.",
                                plim__size(c, held.bytes)));
    } else {
        plim__verdict(
            c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.65,
            "Most likely the device is full with the arrays of the pool; the request came "
            "on top.");
    }
    if (plim_known(held) && plim_known(request)) {
        plim__evidence_amount(c, held,
                              plim__say(c, "the pool holds %s, %s were asked for.",
                                        plim__size(c, held.bytes), plim__size(c, request.bytes)));
    }
    plim__unknown(
        c, "the device's size and who else uses it: `nvidia-smi`; how much of the pool is free: "
           "cupy.get_default_memory_pool().free_bytes()");
    plim__advice(c, "Use float32, compute in place (out=), or in chunks",
                 "Temporaries of an expression live at the same time.");
}

void plim__judge_paddle(struct plim__case *c)
{
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST),
                       free = plim__field(c, PLIM_OOM_FREE);
    struct plim_amount live = plim__field(c, PLIM_OOM_ALLOCATED),
                       total = plim__field(c, PLIM_OOM_TOTAL);
    pool_ledger(c, total, live, free, request);
    if (impossible_request(c)) {
        return;
    }
    if (plim_known(free) && plim_known(request) &&
        free.bytes > request.bytes + request.bytes / 10 &&
        free.bytes - request.bytes > 256 * PLIM_MIB) {
        plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.4,
                      "More is available than was asked for, and it was refused all the same.");
        plim__advise_unknown(c);
        return;
    }
    if (!plim_known(live) || !plim_known(request) || !plim_known(free)) {
        plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.35,
                      "The device is full, but the text does not say with whose memory.");
        plim__unknown(
            c, "who holds the device's memory: `nvidia-smi` while the job runs; several workers "
               "on one device each see only their own share");
        plim__advice(c,
                     "Check that each worker uses its own device: CUDA_VISIBLE_DEVICES, "
                     "FLAGS_selected_gpus",
                     "Sibling workers on one device look like nobody else.");
        return;
    }
    plim__evidence_amount(c, live,
                          plim__say(c,
                                    "%s allocated + %s available = %s: that is the device, so "
                                    "nobody else has much of it.",
                                    plim__size(c, live.bytes), plim__size(c, free.bytes),
                                    plim__size(c, live.bytes + free.bytes)));
    if (live.bytes < free.bytes + request.bytes && live.bytes + free.bytes < 2 * PLIM_GIB) {
        plim__verdict(c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_OTHER_PROCESS, 0.6,
                      "This process holds little and little is available: others hold the device.");
        plim__advise_external(c);
        return;
    }
    plim__counterfactual(c, "alone_and_compact", free.bytes, false,
                         plim__say(c, "%s + %s asked for exceed the %s that were there",
                                   plim__size(c, live.bytes), plim__size(c, request.bytes),
                                   plim__size(c, live.bytes + free.bytes)));
    plim__verdict(
        c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.85,
        "This process holds nearly all of the device, and the request does not fit beside it.");
    plim__advise_capacity(c);
}

/* TensorRT's builder tries tactics that need more than there is, reports each, and goes on. */
void plim__judge_tensorrt(struct plim__case *c)
{
    if (plim__saw(c, PLIM_OOM_MEANS_TRT_TACTIC)) {
        plim__verdict(
            c, PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_WARNING_ONLY, 0.75,
            "The builder tried tactics that need more memory, skipped them and went on: warnings, "
            "as long as an engine is built in the end.");
        plim__evidence(c, PLIM_HOW_MEASURED, "\"Skipping tactic\" follows the refused request.");
        plim__advice(
            c, "Limit the workspace (memory pool limit) to what is free, to be rid of the attempts",
            "The tactics that fit are then tried first.");
        return;
    }
    plim__judge_request(c);
}

/* A lone request that was refused: only its size says something. */
void plim__judge_request(struct plim__case *c)
{
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST),
                       total = plim__field(c, PLIM_OOM_TOTAL);
    pool_ledger(c, total, (struct plim_amount){0}, (struct plim_amount){0}, request);
    if (impossible_request(c)) {
        return;
    }
    if (!plim_known(total)) {
        total = plim__field(c, PLIM_OOM_SMI_TOTAL);
    }
    bool larger = plim_known(request) && plim_known(total) && request.bytes > total.bytes;
    if (larger || (plim_known(request) && request.bytes >= LARGE_REQUEST)) {
        plim__verdict(
            c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_SINGLE_REQUEST, larger ? 0.92 : 0.65,
            plim__say(c,
                      "One request of %s: that does not fit a device, or a slice of one, of "
                      "usual size, even when it is empty.",
                      plim__size(c, request.bytes)));
        plim__evidence_amount(c, request,
                              plim__say(c, "%s in one piece.", plim__size(c, request.bytes)));
        plim__advice(
            c,
            "Lower the largest shapes (maximum batch, sequence or image of the profile), or "
            "use a larger device or slice",
            "The request is sized by the largest shape that is allowed, not by the data.");
        return;
    }
    plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.35,
                  plim_known(request)
                      ? plim__say(c, "%s were refused; the text does not say who holds the memory.",
                                  plim__size(c, request.bytes))
                      : "An allocation was refused; the text does not say who holds the memory.");
    plim__advise_unknown(c);
}

/* CUDA.jl prints the use of the whole device and of its pool. */
void plim__judge_julia(struct plim__case *c)
{
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST),
                       total = plim__field(c, PLIM_OOM_TOTAL);
    struct plim_amount used = plim__field(c, PLIM_OOM_IN_USE),
                       live = plim__field(c, PLIM_OOM_ALLOCATED);
    struct plim_amount held = plim__field(c, PLIM_OOM_RESERVED);
    struct plim_amount free = {0};
    if (plim_known(total) && plim_known(used)) {
        free = plim_amount(plim_sub_sat(total.bytes, used.bytes), PLIM_HOW_COMPUTED);
    }
    pool_ledger(c, total, live, free, request);
    c->set->ledger.reserved = held;
    if (impossible_request(c)) {
        return;
    }
    if (!plim_known(request) || !plim_known(total) || !plim_known(live)) {
        plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.35,
                      "The device is full; the lines that say with what are missing.");
        plim__unknown(c, "the rest of the message, or CUDA.memory_status() and `nvidia-smi`");
        return;
    }
    uint64_t own = plim_add_sat(plim_known(held) ? held.bytes : live.bytes, PLIM__CONTEXT_TYPICAL);
    uint64_t others = plim_known(used) ? plim_sub_sat(used.bytes, own) : 0;
    bool exceeds = sum_exceeds(c, live, request, total, "the device's size");
    if (!exceeds && others > total.bytes / 100 * 15 && free.bytes + others >= request.bytes) {
        c->set->ledger.owner[PLIM_OWNER_OTHER_PROCESSES] = plim_amount(others, PLIM_HOW_ESTIMATED);
        plim__verdict(c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_OTHER_PROCESS, 0.75,
                      plim__say(c,
                                "About %s of the device belong neither to the pool nor to a usual "
                                "context.",
                                plim__size(c, others)));
        plim__advise_external(c);
        return;
    }
    plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, exceeds ? 0.9 : 0.7,
                  "Live arrays and the request together fill the device.");
    plim__advice(c,
                 "Drop references and collect before large steps: x = nothing; GC.gc(true); "
                 "CUDA.reclaim()",
                 "Arrays live until the collector runs; the pool then gives its blocks back.");
    plim__advice(c, "Work in place (mul!, .=) and in smaller batches", "Temporaries count, too.");
}

void plim__judge_vgpu(struct plim__case *c)
{
    const struct plim_oom_value *used = &c->facts->field[PLIM_OOM_IN_USE];
    struct plim_amount limit = plim__field(c, PLIM_OOM_LIMIT);
    if (used->set && used->n >= PLIM__NO_SIZE) {
        plim__verdict(
            c, PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_OTHER_ERROR, 0.92,
            "The quota layer's counter fell below zero and wrapped around; real use is far "
            "below the quota.");
        plim__evidence(c, PLIM_HOW_COMPUTED,
                       plim__say(c, "use %llu = 2^64 - %llu.", (unsigned long long)used->n,
                                 (unsigned long long)(UINT64_MAX - used->n + 1)));
        plim__advice(c, "Update the vGPU layer, and restart the container to reset its counters",
                     "The shared counters are wrong, not the memory.");
        return;
    }
    pool_ledger(c, (struct plim_amount){0}, plim__field(c, PLIM_OOM_IN_USE),
                (struct plim_amount){0}, (struct plim_amount){0});
    c->set->ledger.capacity = limit;
    plim__verdict(
        c, PLIM_CLASS_CONFIGURATION, PLIM_SUBCLASS_ALLOCATOR_LIMIT, 0.9,
        "The quota of this container's share of the device was reached; the device itself is "
        "not the limit.");
    if (used->set && plim_known(limit)) {
        plim__evidence_amount(c, limit,
                              plim__say(c, "%s would be in use, %s are allowed.",
                                        plim__size(c, used->n), plim__size(c, limit.bytes)));
    }
    plim__advice(c, "Raise the pod's device memory quota (nvidia.com/gpumem), or need less",
                 "The quota layer refuses before the driver is asked.");
}
