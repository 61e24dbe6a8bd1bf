/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_STATUS_H
#define PLIM_REPORT_STATUS_H

/*
 * The state of this machine's device memory for readers: what `plimsoll status`, a scrape, the
 * dashboard and its events show is made of one struct plim_state, so that they say the same.
 *
 *   state    an observation, the findings made of it, and what the monitor says of itself
 *   health   figures of the monitor itself; only those count whose bit in `valid` is set
 *
 * Threads: writers are pure. Health may be changed from any thread, by plim_health_set() and add().
 */

#include "base/jsonw.h"
#include "detect/detect.h"
#include "observe/collect.h"

/* X(NAME, JSON key, metric, kind, help): what the monitor says of itself. Metrics get the prefix
 * plimsoll_ and the suffixes of their kind (GAUGE now, TOTAL since it was started). */
#define PLIM_HEALTH_MAP(X)                                                                         \
    X(MISSED, "samples_missed", "samples_missed", TOTAL,                                           \
      "Samples that were due while an earlier one was still being taken.")                         \
    X(RESIDENT, "resident_bytes", "monitor_resident_bytes", GAUGE, "Host memory of the monitor.")  \
    X(STORE_BYTES, "store_bytes", "store_bytes", GAUGE, "Size of the history on disk.")            \
    X(STORE_LIMIT, "store_limit_bytes", "store_limit_bytes", GAUGE, "Most that it may have.")      \
    X(STORE_DEGRADED, "store_degraded", "store_degraded", GAUGE,                                   \
      "1 while the history cannot be written to disk and is kept in memory.")                      \
    X(STORE_SERIES, "store_series", "store_series", GAUGE, "Series in the history.")               \
    X(STORE_WRITTEN, "store_points", "store_points", TOTAL, "Points that went into the history.")  \
    X(STORE_LOST, "store_points_lost", "store_points_lost", TOTAL,                                 \
      "Points that neither disk nor memory had room for.")                                         \
    X(ALERTS_FIRING, "alerts_firing", "alerts_firing", GAUGE, "Alerts that hold.")                 \
    X(ALERTS_SENT, "alerts_sent", "alerts_sent", TOTAL, "Notifications that were delivered.")      \
    X(ALERTS_FAILED, "alerts_failed", "alerts_failed", TOTAL,                                      \
      "Notifications that could not be delivered.")                                                \
    X(HTTP_REQUESTS, "http_requests", "http_requests", TOTAL, "Requests that were answered.")      \
    X(HTTP_REFUSED, "http_refused", "http_refused", TOTAL,                                         \
      "Requests and connections that were refused.")                                               \
    X(HTTP_CLIENTS, "http_connections", "http_connections", GAUGE, "Open connections.")            \
    X(HTTP_STREAMS, "http_streams", "http_streams", GAUGE, "Clients that follow the events.")

enum plim_health_figure {
#define PLIM__X(name, key, metric, kind, help) PLIM_HEALTH_##name,
    PLIM_HEALTH_MAP(PLIM__X)
#undef PLIM__X
    PLIM_HEALTH_FIGURES
};

struct plim_health {
    uint64_t valid;                       /* bit for each figure (atomic) */
    uint64_t figure[PLIM_HEALTH_FIGURES]; /* (atomic) */
};

static inline void plim_health_set(struct plim_health *h, enum plim_health_figure figure,
                                   uint64_t value)
{
    __atomic_store_n(&h->figure[figure], value, __ATOMIC_RELAXED);
    (void)__atomic_fetch_or(&h->valid, UINT64_C(1) << figure, __ATOMIC_RELEASE);
}

static inline void plim_health_add(struct plim_health *h, enum plim_health_figure figure,
                                   uint64_t by)
{
    (void)__atomic_fetch_add(&h->figure[figure], by, __ATOMIC_RELAXED);
    (void)__atomic_fetch_or(&h->valid, UINT64_C(1) << figure, __ATOMIC_RELEASE);
}

/** plim_health_get() - false: not known. */
static inline bool plim_health_get(const struct plim_health *h, enum plim_health_figure figure,
                                   uint64_t *out)
{
    bool known = (__atomic_load_n(&h->valid, __ATOMIC_ACQUIRE) >> figure & 1) != 0;
    *out = known ? __atomic_load_n(&h->figure[figure], __ATOMIC_RELAXED) : 0;
    return known;
}

struct plim_state {
    const struct plim_observation *now;
    const struct plim_collect_stats *stats; /* of the collector, or NULL */
    bool watched;                           /* a monitor runs: findings and `left` are known */
    const struct plim_finding *findings;    /* [n_findings] */
    size_t n_findings;
    const struct plim_estimate *left; /* [devices] time until it is full, or NULL */
    const struct plim_health *health; /* of the monitor, or NULL */
    uint64_t started_ns;              /* of the monitor, since 1970 */
    const char *version;              /* of the program */
    const char *host;                 /* name of the machine */
};

/** plim_status_json() - {"schema": "plimsoll.status/1"}, docs/schema/status.json: the document of
 * `plimsoll status --format json`, of the dashboard and of its events. One line when `compact`.
 * Failure is sticky in `out`. */
void plim_status_json(struct plim_buf *out, const struct plim_state *state, bool compact);

/** plim_estimate_json() - {"value", "low", "high"}; not known: nothing. */
void plim_estimate_json(struct plim_jsonw *w, const char *key, const struct plim_estimate *e);

/** plim_finding_json()/plim_happening_json() - one of either as the status document has them. */
void plim_finding_json(struct plim_jsonw *w, const struct plim_finding *finding);
void plim_happening_json(struct plim_jsonw *w, const struct plim_happening *happening);
const char *plim_happening_text(enum plim_happening_kind kind);
struct plim_status_style {
    bool color;     /* ANSI colours */
    unsigned width; /* columns */
};

/** plim_status_view() - the same for a terminal: devices with a ledger bar each, their processes,
 * engines, findings. Text of others is shown without control characters. */
void plim_status_view(struct plim_buf *out, const struct plim_state *state,
                      const struct plim_status_style *style);

/** plim_findings_json() - {"schema": "plimsoll.findings/1"}: time, host and findings of it alone. */
void plim_findings_json(struct plim_buf *out, const struct plim_state *state, bool compact);

#endif
