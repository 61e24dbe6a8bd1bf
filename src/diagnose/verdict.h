/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_VERDICT_H
#define PLIM_DIAGNOSE_VERDICT_H

/*
 * The words in which every answer is given, whatever the input was: ledger, counterfactuals, evidence,
 * advice, verdict. `explain` fills them from a message, `diagnose` from a snapshot, `watch` from
 * samples; src/report turns them into text, Markdown and JSON in one place.
 *
 * All strings are arena-owned or static, NUL-terminated. Amounts are bytes. Unknown is
 * `how == PLIM_HOW_UNKNOWN`, never 0. Threads: plain data.
 */

#include "base/arena.h"
#include "base/vec.h"

#include <plimsoll/event.h>

/* X(name, JSON text, meaning) */
#define PLIM_CLASS_MAP(X)                                                                          \
    X(UNKNOWN, "unknown", "the input cannot decide")                                               \
    X(CAPACITY, "capacity", "what has to live at the same time does not fit")                      \
    X(LEAK, "leak", "memory that grows without being used any more")                               \
    X(FRAGMENTATION, "fragmentation", "enough bytes are free, but not where they can be used")     \
    X(EXTERNAL, "external", "memory outside the framework's allocator")                            \
    X(CONFIGURATION, "configuration", "an engine's own budget or flag said no")                    \
    X(HOST_MEMORY, "host_memory", "the host's memory ran out, not the device's")                   \
    X(NOT_OOM, "not_oom", "no memory shortage")                                                    \
    X(HEALTHY, "healthy", "nothing failed and nothing is wrong")

enum plim_class {
#define PLIM__X(name, text, meaning) PLIM_CLASS_##name,
    PLIM_CLASS_MAP(PLIM__X)
#undef PLIM__X
    PLIM_CLASS_COUNT
};

/* X(name, class, JSON text, meaning) */
#define PLIM_SUBCLASS_MAP(X)                                                                       \
    X(NONE, UNKNOWN, "", "")                                                                       \
    X(SINGLE_REQUEST, CAPACITY, "single_request",                                                  \
      "one request is larger than what the process may use")                                       \
    X(WORKING_SET, CAPACITY, "working_set", "live bytes plus the request exceed the capacity")     \
    X(MEMORY_CAP, CAPACITY, "memory_cap", "a configured cap, not the device, was the limit")       \
    X(GROWING_STACK, LEAK, "growing_stack", "one allocation site grows without bound")             \
    X(NEVER_FREED_CACHE, LEAK, "never_freed_cache", "entries of a cache are never dropped")        \
    X(HELD_EXCEPTION, LEAK, "held_exception",                                                      \
      "a failure that was caught still keeps the memory of its attempt")                           \
    X(STRANDED, FRAGMENTATION, "stranded", "free bytes are pinned in segments by live blocks")     \
    X(PRIVATE_POOL, FRAGMENTATION, "private_pool",                                                 \
      "free bytes are reserved for private pools (CUDA graphs)")                                   \
    X(STREAM_BOUND, FRAGMENTATION, "stream_bound",                                                 \
      "free bytes can only be reused on another stream")                                           \
    X(ROUNDING, FRAGMENTATION, "rounding", "bytes are lost to rounding of sizes")                  \
    X(OTHER_PROCESS, EXTERNAL, "other_process", "other processes hold the device's memory")        \
    X(SAME_PROCESS, EXTERNAL, "same_process", "this process, but not through the allocator")       \
    X(DRIVER_RESERVED, EXTERNAL, "driver_reserved", "held by the driver")                          \
    X(SYSTEM_MEMORY_SPILL, EXTERNAL, "system_memory_spill", "the driver moved memory to the host") \
    X(ENGINE_BUDGET, CONFIGURATION, "engine_budget",                                               \
      "the engine's memory budget is too small or too large")                                      \
    X(ALLOCATOR_LIMIT, CONFIGURATION, "allocator_limit",                                           \
      "a pool's or arena's own limit was reached")                                                 \
    X(SETTINGS_CONFLICT, CONFIGURATION, "settings_conflict", "settings that do not work together") \
    X(PINNED_HOST, HOST_MEMORY, "pinned_host", "page-locked host memory could not be had")         \
    X(PROCESS_KILLED, HOST_MEMORY, "process_killed", "the kernel or a manager killed the process") \
    X(HOST_ALLOCATION, HOST_MEMORY, "host_allocation", "an allocation in host memory failed")      \
    X(SHARED_MEMORY, HOST_MEMORY, "shared_memory", "/dev/shm or the page file is too small")       \
    X(KERNEL_RESOURCE, NOT_OOM, "kernel_resource",                                                 \
      "a kernel's on-chip resources, not device memory")                                           \
    X(DISK, NOT_OOM, "disk", "a disk or file error")                                               \
    X(CORRUPT_SIZE, NOT_OOM, "corrupt_size", "an impossible size: a defect, not a shortage")       \
    X(WARNING_ONLY, NOT_OOM, "warning_only", "the program said itself that it goes on")            \
    X(OTHER_ERROR, NOT_OOM, "other_error", "another error")                                        \
    X(OK, HEALTHY, "ok", "steady, little slack")                                                   \
    X(CACHED, HEALTHY, "cached", "slack, but the allocator can release it by itself")

enum plim_subclass {
#define PLIM__X(name, cls, text, meaning) PLIM_SUBCLASS_##name,
    PLIM_SUBCLASS_MAP(PLIM__X)
#undef PLIM__X
    PLIM_SUBCLASS_COUNT
};

/* How a number was obtained. X(name, JSON text) */
#define PLIM_HOW_MAP(X)                                                                            \
    X(UNKNOWN, "unknown")                                                                          \
    X(MEASURED, "measured")                                                                        \
    X(REPLAYED, "replayed")                                                                        \
    X(COMPUTED, "computed")                                                                        \
    X(ESTIMATED, "estimated")                                                                      \
    X(GIVEN, "given") /* by the user, on the command line */

enum plim_how {
#define PLIM__X(name, text) PLIM_HOW_##name,
    PLIM_HOW_MAP(PLIM__X)
#undef PLIM__X
    PLIM_HOW_COUNT
};

struct plim_amount {
    uint64_t bytes; /* meaningful only when how != UNKNOWN */
    enum plim_how how;
};

/*
 * The ledger: where every byte of the device was at one moment.
 * total = live + rounding + stranded + releasable + private_pool_free + process_other
 *         + other_processes + driver_reserved + free + unaccounted, over the known ones.
 * live is what callers asked for and still hold (requested bytes). When only the allocator's own figure
 * is known, live is that figure and rounding is unknown. X(name, JSON key, label for people), in the
 * order of the waterfall.
 */
#define PLIM_LEDGER_MAP(X)                                                                         \
    X(LIVE, "live", "live")                                                                        \
    X(ROUNDING, "rounding", "rounding")                                                            \
    X(STRANDED, "stranded", "stranded")                                                            \
    X(RELEASABLE, "releasable", "releasable")                                                      \
    X(PRIVATE_FREE, "private_pool_free", "private pools, free")                                    \
    X(PROCESS_OTHER, "process_other", "this process, outside the allocator")                       \
    X(OTHER_PROCESSES, "other_processes", "other processes")                                       \
    X(DRIVER_RESERVED, "driver_reserved", "driver")                                                \
    X(FREE, "free", "free")                                                                        \
    X(UNACCOUNTED, "unaccounted", "unaccounted")

enum plim_owner {
#define PLIM__X(name, key, label) PLIM_OWNER_##name,
    PLIM_LEDGER_MAP(PLIM__X)
#undef PLIM__X
    PLIM_OWNER_COUNT
};

struct plim_ledger {
    struct plim_amount total;                   /* of the device */
    struct plim_amount capacity;                /* what the process may use: total, or a cap */
    struct plim_amount allocated;               /* blocks handed out, rounding included */
    struct plim_amount reserved;                /* all segments */
    struct plim_amount request;                 /* of the failing request, as given to the driver */
    struct plim_amount owner[PLIM_OWNER_COUNT]; /* the waterfall */
    /* What PROCESS_OTHER is made of, by enum plim_gpu_owner, when a recorder saw it. UNKNOWN: what the
     * driver counts for this process and no recorded call accounts for. */
    struct plim_amount part[PLIM_OWNERS];
    const char *moment; /* "at the failure", "at the peak", "at the end" */
};

/* "If we take away X, does the request fit?" */
struct plim_counterfactual {
    const char *name; /* JSON id: "no_stranded", "no_leak", "no_other_processes", "no_cap" ... */
    const char *text; /* one line for people, with the arithmetic shown */
    struct plim_amount gains; /* bytes that become usable */
    enum {
        PLIM_FITS_UNKNOWN,
        PLIM_FITS_NO,
        PLIM_FITS_YES
    } fits;
};

struct plim_evidence {
    const char *text; /* one sentence with its numbers */
    enum plim_how how;
    struct plim_amount amount; /* the number it rests on, when there is one */
};

struct plim_advice {
    const char *action; /* what to do, with the exact setting or flag where there is one */
    const char *why;
    struct plim_amount effect; /* bytes gained */
    const char *risk;          /* or NULL */
    const char *applies_to;    /* versions, or NULL */
};

struct plim_verdict {
    enum plim_class cls;
    enum plim_subclass subclass;
    double confidence;   /* 0 to 1 */
    const char *summary; /* one or two sentences for people */
};

/* One judged failure (or moment): what the renderers of src/report take. */
struct plim_finding_set {
    struct plim_ledger ledger;
    struct plim_verdict verdict;
    PLIM_VEC(struct plim_counterfactual) counterfactuals; /* best first */
    PLIM_VEC(struct plim_evidence) evidence;              /* strongest first */
    PLIM_VEC(struct plim_advice) advice;                  /* most useful first */
    PLIM_VEC(const char *) unknowns; /* what cannot be known from this input, and how to get it */
};

void plim_finding_set_fini(struct plim_finding_set *set);

/** plim_ledger_part_after() - the part with most bytes among those behind (bytes, owner) in falling
 * order; start with (UINT64_MAX, 0). PLIM_OWNERS: no more. Parts of nothing are left out. */
unsigned plim_ledger_part_after(const struct plim_ledger *ledger, uint64_t bytes, unsigned owner);

/** plim_ledger_part_label() - the owner's name for people; "not attributed" for UNKNOWN. */
const char *plim_ledger_part_label(unsigned owner);

const char *plim_class_text(enum plim_class cls);
const char *plim_subclass_text(enum plim_subclass subclass);
const char *plim_how_text(enum plim_how how);

static inline struct plim_amount plim_amount(uint64_t bytes, enum plim_how how)
{
    return (struct plim_amount){bytes, how};
}

static inline bool plim_known(struct plim_amount amount)
{
    return amount.how != PLIM_HOW_UNKNOWN;
}

#endif
