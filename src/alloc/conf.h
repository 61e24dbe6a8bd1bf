/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_CONF_H
#define PLIM_ALLOC_CONF_H

/*
 * Allocator settings: what PYTORCH_ALLOC_CONF (PYTORCH_CUDA_ALLOC_CONF before 2.9) says, parsed as the
 * chosen PyTorch release parses it: same keys, same limits, same error texts, same side effects.
 *
 *   setting   "key:value,key:[a:b,>:c]"; tokens are cut at , : [ ] and all white space is dropped
 *
 * Parsing is applied on top of the present values, as at run time in PyTorch: max_split_size,
 * roundup_power2_divisions, garbage_collection_threshold and max_non_split_rounding go back to their
 * defaults first, every other key keeps its value. Keys before an error stay applied.
 * Booleans are exactly True and False. Integers are read as C++ std::stoull does ("64.7" is 64).
 * All sizes are bytes. Threads: pure data.
 * Source: torch 2.14.1 c10/core/AllocatorConfig.h, c10/cuda/CUDAAllocatorConfig.h and the messages in
 * libc10.so, libc10_cuda.so; compared with the library in tests/oracle.
 */

#include "alloc/round.h"
#include "alloc/version.h"

enum plim_conf_backend {
    PLIM_CONF_NATIVE,
    PLIM_CONF_MALLOC_ASYNC,
};

struct plim_conf {
    struct plim_torch_version version; /* whose parser and whose keys */

    uint64_t large_segment;                 /* large_segment_size_mb */
    uint64_t max_split;                     /* max_split_size_mb; UINT64_MAX = unlimited */
    uint64_t max_non_split_rounding;        /* max_non_split_rounding_mb */
    uint64_t roundup[PLIM_ROUND_INTERVALS]; /* divisions for 1 MiB, 2 MiB ... 32 GiB and above */
    double gc_threshold;                    /* garbage_collection_threshold; 0 = off */
    bool expandable;                        /* expandable_segments */

    enum plim_conf_backend backend;
    bool release_lock_on_malloc; /* no effect on a model */
    bool capture_reuse;          /* graph_capture_record_stream_reuse */
    bool reject_early;           /* throw_on_cudamalloc_oom */
    double memory_fraction;      /* per_process_memory_fraction; 1.0 = no cap */

    bool pinned_background; /* pinned_*: the host allocator, no effect on a model */
    bool pinned_host_register;
    bool pinned_catch_all;
    uint64_t pinned_max_round;       /* bytes; UINT64_MAX = unlimited */
    uint64_t pinned_max_cached;      /* bytes; UINT64_MAX = unlimited */
    uint64_t pinned_reserve_segment; /* MiB */
    uint64_t pinned_threads;
};

/** plim_conf_init() - the defaults of that release. */
void plim_conf_init(struct plim_conf *conf, struct plim_torch_version version);

/**
 * plim_conf_parse() - apply a settings string as PyTorch does when it is set.
 * @text: borrowed for the call; empty resets the four keys named above.
 * Errors: PLIM_E_USAGE with PyTorch's message; pos is the byte offset of the key in text; the hint
 * names the nearest key of that release, or the release that has the key. Keys before the error stay
 * applied, as in PyTorch. PLIM_E_BUDGET: more than PLIM_CONF_TOKENS tokens.
 * Cost: O(length).
 */
PLIM_MUST_USE enum plim_status plim_conf_parse(struct plim_conf *conf, struct plim_str text,
                                               struct plim_err *err);

#define PLIM_CONF_TOKENS 512 /* most tokens of one settings string */

/** plim_conf_key() - the i-th key known to `version`, or NULL behind the last. For help texts. */
const char *plim_conf_key(struct plim_torch_version version, size_t i);

#endif
