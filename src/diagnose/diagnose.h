/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_DIAGNOSE_H
#define PLIM_DIAGNOSE_DIAGNOSE_H

/*
 * From a snapshot to a verdict.
 *
 *   moment      the position of the trace that is judged: the last failure, or the end, or the peak
 *   facts       what is known besides the snapshot: device total, memory of others, a cap, taken from
 *               the command line or from the out-of-memory message
 *   diagnosis   the finding set of verdict.h, and the tables behind it
 *
 * The steps, each in a file of its own: heap at the moment (heap/moment), history of each stack
 * (heap/history), sites (site), leak evidence (leak), fragmentation (fragmentation), ledger (books),
 * counterfactuals and verdict (judge), advice (advice).
 * Threads: pure; everything is owned by the diagnosis.
 */

#include "alloc/recorded.h"
#include "diagnose/fragmentation.h"
#include "diagnose/held.h"
#include "diagnose/leak.h"
#include "diagnose/verdict.h"
#include "format/capture.h"
#include "heap/moment.h"

enum plim_moment_choice {
    PLIM_MOMENT_AUTO, /* the last failure, else the end */
    PLIM_MOMENT_PEAK, /* the peak of allocated bytes */
    PLIM_MOMENT_END,
};

/* What the snapshot itself does not hold. Unknown amounts are left unknown. */
struct plim_facts {
    struct plim_amount total;         /* bytes of the device */
    struct plim_amount free;          /* free bytes of the device at the failure */
    struct plim_amount cap;           /* most bytes the process may use */
    struct plim_amount external;      /* bytes used outside the allocator, by whomever */
    struct plim_amount process_other; /* of those, by this process */
    struct plim_amount others;        /* of those, by other processes */
    struct plim_amount request;       /* of the failing request, as the message gives it */
    struct plim_amount allocated;     /* the message's "allocated by PyTorch", to compare */
    struct plim_amount reserved;      /* the message's reserved bytes, to compare */
    uint64_t tolerance;               /* rounding of the message's figures, bytes */
};

struct plim_diagnose_options {
    struct plim_facts facts;
    uint32_t device; /* index; the one with most bytes or a failure when NO_ID */
    enum plim_moment_choice moment;
    uint32_t rows;                  /* rows of blame and of pinned segments; 0 = 20 */
    const char *const *set_already; /* settings known to be on (from the message), [n] */
    size_t n_set_already;
    bool no_replay; /* do not replay the trace for the advice */
};

/* The failing request. */
struct plim_failure {
    bool happened; /* the trace has a failure, and the moment is the last one */
    bool told;     /* only the message tells of it: it is not in the trace */
    uint32_t event;
    uint64_t size;         /* rounded bytes */
    uint64_t driver_bytes; /* what the allocator asks the driver for */
    uint16_t stream;
    uint16_t pool;
    uint64_t device_free; /* as the driver reported it then, or PLIM_FREE_NOT_RECORDED */
    uint32_t stack;
    uint32_t count;        /* failures in the trace */
    uint64_t events_after; /* the program went on for so many events */
    uint64_t uptime_us;    /* from the first event of the trace to the failure; 0 when unknown */
    struct plim_tags tags; /* what the program was at work on, as it said itself */
};

struct plim_blame_row {
    const char *site;            /* for people */
    const char *frame;           /* innermost user frame, "name file:line" */
    uint32_t stack;              /* one full stack of the site, for looking further */
    enum plim_category category; /* a guess */
    uint64_t bytes;              /* live at the moment */
    uint64_t bytes_born;         /* of those, allocated in the trace */
    uint32_t blocks;
    uint32_t allocs; /* in the trace */
    uint32_t frees;
    bool suspect; /* of a leak */
};

struct plim_pin_row {
    uint64_t segment_addr;
    uint64_t segment_size;
    uint64_t stranded;
    uint64_t live;
    uint32_t live_blocks;
    uint64_t block_addr; /* the oldest live block */
    uint64_t block_size;
    uint64_t age_events; /* 0 when it was there before the recording */
    uint64_t age_us;     /* 0 when unknown */
    bool before_trace;
    const char *site;
};

struct plim_diagnosis {
    struct plim_arena arena; /* all texts below */
    struct plim_finding_set set;
    uint32_t device;
    struct plim_conf conf;       /* the settings of the recording, as far as known */
    struct plim_facts facts;     /* given, and what the capture and the settings add */
    struct plim_capture capture; /* what the maker of the snapshot knew besides */
    size_t position;             /* the moment */
    bool complete;               /* the trace starts with an empty heap */
    struct plim_heap heap;       /* at the moment */
    struct plim_moment_gaps gaps;
    struct plim_peaks peaks;
    struct plim_failure failure;
    struct plim_fragmentation fragmentation;
    struct plim_history history;
    struct plim_sites sites;
    struct plim_leaks leaks;
    struct plim_held held;  /* what an earlier attempt that failed still holds */
    bool too_late;          /* the heap is from after the failure that the message tells of */
    uint64_t largest_fit;   /* largest request that could be served at the moment */
    bool largest_fit_known; /* needs the device's free bytes */
    uint64_t by_category[PLIM_CATEGORY_COUNT]; /* live bytes by guessed category */
    PLIM_VEC(struct plim_blame_row) blame;     /* most bytes first */
    PLIM_VEC(struct plim_pin_row) pins;        /* most stranded first */
};

/**
 * plim_diagnose() - judge a snapshot.
 * @out: owned by the caller (plim_diagnosis_fini); borrows nothing but the snapshot's strings.
 * Errors: PLIM_E_RANGE no such device; PLIM_E_DATA a snapshot without any device; PLIM_E_NOMEM.
 * Cost: O(events + blocks log blocks).
 */
PLIM_MUST_USE enum plim_status plim_diagnose(const struct plim_snapshot *snapshot,
                                             const struct plim_diagnose_options *options,
                                             struct plim_diagnosis *out, struct plim_err *err);
void plim_diagnosis_fini(struct plim_diagnosis *diagnosis);

/* ---- the steps, in the order in which plim_diagnose() calls them ---- */

/* books.c: the ledger at the moment from heap sums and d->facts. */
void plim__books_fill(enum plim_level level, struct plim_diagnosis *d);

/* outside.c: what a recorder knows of the device's side, into d->facts and the ledger's parts. */
void plim__outside_facts(const struct plim_device *device, enum plim_level level,
                         struct plim_diagnosis *d);

/* judge.c: counterfactuals, evidence, verdict, unknowns. */
PLIM_MUST_USE enum plim_status plim__judge(const struct plim_snapshot *snapshot,
                                           struct plim_diagnosis *d, struct plim_err *err);

/* evidence.c: the sentences with their numbers, and what cannot be known. */
PLIM_MUST_USE enum plim_status plim__gather_evidence(const struct plim_snapshot *snapshot,
                                                     struct plim_diagnosis *d,
                                                     struct plim_err *err);

/* advice.c: what to do, from one table of rules. */
PLIM_MUST_USE enum plim_status plim__advise(const struct plim_snapshot *snapshot,
                                            const struct plim_diagnose_options *options,
                                            struct plim_diagnosis *d, struct plim_err *err);

#endif
