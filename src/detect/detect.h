/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DETECT_DETECT_H
#define PLIM_DETECT_DETECT_H

/*
 * What is going wrong with device memory, told while there is still time: one observation a second
 * in, findings out.
 *
 *   subject   what a finding is about: a device, or a process on a device
 *   finding   one thing that is wrong with one subject: class, since when, how sure, how many bytes,
 *             how fast, how long until memory is out, and the evidence in words
 *   quiet     a finding that ended: kept for a while, so that users see it end
 *
 * Classes use the verdict's words (diagnose/verdict.h) where they mean the same.
 * Memory: bounded for each subject whatever the length of history (sketches, not samples).
 * Clocks: only mono_ns, so a stepped wall clock moves nothing. A gap in time (suspend) is not a slope.
 * Threads: a detector belongs to one thread. Nothing here reads the world.
 */

#include "base/buf.h"
#include "observe/observation.h"

/* X(NAME, text, default severity) */
#define PLIM_FINDING_MAP(X)                                                                        \
    X(LEAK, "leak", WARNING)                   /* live bytes grow, against traffic and plateau */  \
    X(FRAGMENTATION, "fragmentation", WARNING) /* stranded share and its trend, retries */         \
    X(CACHE_GROWTH, "cache_growth", NOTICE)    /* reserved grows, live does not */                 \
    X(EXTERNAL, "external_growth", WARNING)    /* somebody else's, or outside the allocator */     \
    X(SLEEP_RESIDUE, "sleep_residue", NOTICE)  /* asleep, and holds more than it should */         \
    X(SPILL, "system_memory_spill", CRITICAL)  /* device memory continued in host memory */        \
    X(CAPACITY, "capacity_approached", WARNING)                                                    \
    X(OOM_CLUSTER, "oom_uptime_cluster", WARNING) /* failures come at a like age of the process */ \
    X(OUTLIER, "replica_outlier", NOTICE)         /* one replica differs from its fleet */         \
    X(DEVICE, "device_trouble", CRITICAL)         /* lost, hung, XIDs, ECC */                      \
    X(OOM, "oom", CRITICAL)

enum plim_finding_class {
#define PLIM__X(name, text, severity) PLIM_FINDING_##name,
    PLIM_FINDING_MAP(PLIM__X)
#undef PLIM__X
    PLIM_FINDING_CLASSES
};

/* X(NAME, text) */
#define PLIM_SEVERITY_MAP(X)                                                                       \
    X(NOTICE, "notice")                                                                            \
    X(WARNING, "warning")                                                                          \
    X(CRITICAL, "critical")

enum plim_severity {
#define PLIM__X(name, text) PLIM_SEVERITY_##name,
    PLIM_SEVERITY_MAP(PLIM__X)
#undef PLIM__X
    PLIM_SEVERITIES
};

struct plim_subject {
    char device_uuid[96]; /* "" : the whole machine */
    uint32_t device;      /* index in the newest observation, or NO_DEVICE */
    uint32_t pid;         /* 0: the device as a whole */
    uint64_t start_ticks;
    char process[16]; /* name of it */
};

/* An estimate with its interval; not valid: not known. */
struct plim_estimate {
    bool valid;
    double value, low, high; /* 80 % interval */
};

struct plim_finding {
    uint64_t id; /* the same as long as it lasts; never used again by this detector */
    enum plim_finding_class class;
    enum plim_severity severity;
    struct plim_subject subject;
    bool active;                       /* false: it ended at `ended_ns` */
    uint64_t since_ns;                 /* since 1970: when it began to show */
    uint64_t ended_ns;                 /* 0 while active */
    double confidence;                 /* 0 to 1 */
    uint64_t bytes;                    /* that it concerns now: leaked, stranded, of others ... */
    struct plim_estimate slope;        /* bytes a second */
    struct plim_estimate seconds_left; /* until a request fails */
    char summary[200];                 /* one sentence, with figures */
    char evidence[600];                /* lines, '\n' between: what was measured over which time */
    char next_step[300];               /* what to do, one or two sentences */
};

struct plim_detect_options {
    uint64_t warmup_ns;    /* of a process, in which growth is loading; 0: 10 minutes */
    double capacity_ratio; /* of total that counts as approached; 0: 0.95 */
};

struct plim_detector;

PLIM_MUST_USE enum plim_status plim_detector_new(const struct plim_detect_options *options,
                                                 struct plim_detector **out, struct plim_err *err);
void plim_detector_free(struct plim_detector *detector);

/** plim_detector_step() - take one observation; any period between 0.1 s and minutes will do.
 * Errors: PLIM_E_NOMEM. Cost: O(subjects), well under a microsecond each. */
PLIM_MUST_USE enum plim_status plim_detector_step(struct plim_detector *detector,
                                                  const struct plim_observation *observation,
                                                  struct plim_err *err);

/** plim_detector_findings() - active ones first, the gravest first; borrowed until the next step. */
const struct plim_finding *plim_detector_findings(const struct plim_detector *detector, size_t *n);

/** plim_detector_left() - time until the device is full by the present trend of its use, whatever the
 * cause; not valid: it does not grow. @device: index in the newest observation. */
struct plim_estimate plim_detector_left(const struct plim_detector *detector, uint32_t device);

/** plim_detector_save()/load() - what it learned, so that a restart of the monitor forgets nothing.
 * Errors of load: PLIM_E_DATA; the detector is then as new. */
void plim_detector_save(const struct plim_detector *detector, struct plim_buf *out);
PLIM_MUST_USE enum plim_status plim_detector_load(struct plim_detector *detector,
                                                  struct plim_str text, struct plim_err *err);

const char *plim_finding_class_text(enum plim_finding_class class);
const char *plim_severity_text(enum plim_severity severity);

#endif
