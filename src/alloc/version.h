/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_VERSION_H
#define PLIM_ALLOC_VERSION_H

/*
 * Which PyTorch the model imitates, and what differs between releases.
 *
 * A version is major.minor; patch releases did not change the allocator. The rules are derived once
 * from the version and then only read. Where a change is known by pull request and date but not by
 * release, the release named here is the first whose branch was cut after the date; such lines say
 * "by date" (pytorch/pytorch pull request numbers are given).
 * Threads: pure data.
 */

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

struct plim_torch_version {
    uint16_t major;
    uint16_t minor;
};

#define PLIM_TORCH_OLDEST ((struct plim_torch_version){2, 1})
#define PLIM_TORCH_LATEST ((struct plim_torch_version){2, 14})

/* Text of the out-of-memory error, by release. */
enum plim_torch_oom_text {
    PLIM_TORCH_OOM_2_1,  /* "capacty", advice names max_split_size_mb */
    PLIM_TORCH_OOM_2_2,  /* "capacity", advice names expandable_segments */
    PLIM_TORCH_OOM_2_6,  /* and "... allowed; " when a cap is set */
    PLIM_TORCH_OOM_2_10, /* and the new address of the documentation */
};

struct plim_torch_rules {
    bool order_by_counter; /* equal sizes: oldest segment first, else lowest address (183591) */
    bool cap_nearest;      /* cap = fraction * total to nearest, else truncated (179444, by date) */
    bool full_fraction_no_cap; /* fraction 1.0 means no cap, else a cap equal to the total (2.10) */
    bool overflow_pools;       /* MemPool(use_on_oom=True) exists (2.8) */
    bool no_split_pools;       /* MemPool(no_split=True) exists (2.11) */
    bool
        expandable_by_request; /* split rule looks at the request's pool, else the option only (2.8) */
    bool reject_option;        /* throw_on_cudamalloc_oom exists (2.12) */
    bool capture_is_real;   /* events wait only for real captures, else for any routing (181830) */
    bool failure_asks_free; /* a failed cudaMalloc is followed by cudaMemGetInfo (2.14) */
    bool
        advice_needs_plain; /* no advice in the error text when expandable segments are on (2.14) */
    bool common_config;     /* settings parser of 2.9 and later, else the older one's texts */
    bool fill_behind_last;  /* ">:" in the rounding list starts behind the last interval (2.8) */
    bool own_rounding_slack; /* max_non_split_rounding_mb exists (2.6) */
    enum plim_torch_oom_text oom_text;
};

/** plim_torch_at_least() - true when v is major.minor or newer. */
static inline bool plim_torch_at_least(struct plim_torch_version v, unsigned major, unsigned minor)
{
    return v.major > major || (v.major == major && v.minor >= minor);
}

/**
 * plim_torch_version_parse() - "2.14", "2.14.1", "2.14.1+cu130", "v2.6.0a0".
 * Versions beyond the newest known are taken as the newest known by plim_torch_rules_of().
 * Errors: PLIM_E_USAGE not a version; PLIM_E_UNSUPPORTED older than PLIM_TORCH_OLDEST.
 */
PLIM_MUST_USE enum plim_status plim_torch_version_parse(struct plim_str text,
                                                        struct plim_torch_version *out,
                                                        struct plim_err *err);

/** plim_torch_rules_of() - what that release does. Pure. */
struct plim_torch_rules plim_torch_rules_of(struct plim_torch_version version);

#endif
