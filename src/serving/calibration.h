/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_CALIBRATION_H
#define PLIM_SERVING_CALIBRATION_H

/*
 * What an engine said at its start, and what that teaches about a host. The engine measures memory that no plan
 * can know (kernels loaded by the driver, library handles): the difference between the cache that was planned
 * and the one that came out, by card and engine release.
 *
 * Source of the sentences: vllm 0.33.0 v1/worker/gpu_worker.py, v1/worker/gpu/model_runner.py,
 * v1/core/kv_cache_utils.py; of the metrics: v1/metrics/loggers.py (vllm:cache_config_info).
 * Threads: pure.
 */

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define PLIM_ENGINE_UNKNOWN (-1.0)

/* X(field, text for people, whether bytes): numbers that the log states; else tokens, blocks or requests. */
#define PLIM_ENGINE_LOG_MAP(X)                                                                     \
    X(free_bytes, "free at the start", true)                                                       \
    X(weights_bytes, "weights", true)                                                              \
    X(consumed_bytes, "consumed", true)                                                            \
    X(peak_bytes, "peak of the profile run", true)                                                 \
    X(graph_estimate_bytes, "set aside for graphs", true)                                          \
    X(graph_bytes, "CUDA graphs", true)                                                            \
    X(available_kv_bytes, "KV cache", true)                                                        \
    X(kv_tokens, "KV tokens", false)                                                               \
    X(num_blocks, "blocks", false)                                                                 \
    X(concurrency, "concurrency", false)

struct plim_engine_log {
#define PLIM__X(field, text, bytes)                                                                \
    double field; /* PLIM_ENGINE_UNKNOWN when the log does not say */
    PLIM_ENGINE_LOG_MAP(PLIM__X)
#undef PLIM__X
    double rounding_bytes; /* half the last digit of the sizes */
};

/**
 * plim_engine_log_read() - find the numbers in a log or in the text of /metrics.
 * Later lines win. Never fails: what is not there stays unknown. Cost: linear.
 */
void plim_engine_log_read(struct plim_str text, struct plim_engine_log *out);

/* One thing learned about a host. */
struct plim_calibration {
    const char *card;      /* the driver's name */
    const char *engine;    /* "vllm 0.33" */
    int64_t outside_bytes; /* more (less) consumed than planned, mean of the samples */
    uint64_t spread_bytes; /* largest distance of a sample from the mean */
    uint32_t samples;
};

struct plim_calibrations {
    struct plim_calibration *items; /* arena, [n] */
    size_t n;
};

/** plim_calibrations_read() - what plim_calibrations_write() wrote. Errors: PLIM_E_DATA, PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_calibrations_read(struct plim_arena *arena,
                                                      struct plim_str text,
                                                      struct plim_calibrations *out,
                                                      struct plim_err *err);
void plim_calibrations_write(const struct plim_calibrations *all, struct plim_buf *out);

/** plim_calibrations_find() - NULL when nothing was learned. */
const struct plim_calibration *plim_calibrations_find(const struct plim_calibrations *all,
                                                      const char *card, const char *engine);

/** plim_calibrations_learn() - take one more sample in. Errors: PLIM_E_DATA more than PLIM_AMOUNT_MAX either way;
 * PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_calibrations_learn(struct plim_arena *arena,
                                                       struct plim_calibrations *all,
                                                       const char *card, const char *engine,
                                                       int64_t outside_bytes, struct plim_err *err);

#endif
