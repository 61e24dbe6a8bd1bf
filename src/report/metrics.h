/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_METRICS_H
#define PLIM_REPORT_METRICS_H

/*
 * The state as metrics for Prometheus and what reads its forms.
 *
 * One table (metrics_table.c) names every metric with its type, unit, labels and help; docs/metrics.md
 * is made from it. Conventions: prefix plimsoll_; base units (bytes, seconds, ratios of 1, watts,
 * hertz); counters end in _total; a fact is a metric that ends in _info and is 1; what is not known
 * is absent. Devices are told apart by `uuid`, and plimsoll_device_info has the rest of what is known
 * of them: join on uuid. Command lines are in none.
 * Bounds: a label's value is cut at PLIM_METRICS_LABEL bytes, a metric at PLIM_METRICS_ROWS series;
 * what was left out is counted in plimsoll_series_dropped.
 * Threads: pure.
 */

#include "report/status.h"

#define PLIM_METRICS_LABEL 128u
#define PLIM_METRICS_ROWS  4096u

/* X(NAME, content type) */
#define PLIM_METRICS_FORM_MAP(X)                                                                   \
    X(TEXT, "text/plain; version=0.0.4; charset=utf-8")                                            \
    X(OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8")

enum plim_metrics_form {
#define PLIM__X(name, type) PLIM_METRICS_##name,
    PLIM_METRICS_FORM_MAP(PLIM__X)
#undef PLIM__X
    PLIM_METRICS_FORMS
};

const char *plim_metrics_content_type(enum plim_metrics_form form);

/** plim_metrics_choose() - the form that a client wants, by its Accept header (RFC 9110, 12.5.1). The text
 * form where it does not care. @accept: empty when there is no such header. */
enum plim_metrics_form plim_metrics_choose(struct plim_str accept);

/** plim_metrics_write() - all of it. Failure is sticky in `out`. Cost: below a microsecond a series. */
void plim_metrics_write(struct plim_buf *out, const struct plim_state *state,
                        enum plim_metrics_form form);

/** plim_metrics_document() - the table of all metrics as docs/metrics.md has it. */
void plim_metrics_document(struct plim_buf *out);

/* ---- the table (metrics_table.c) and the writers of rows (metrics_rows.c, metrics_judged.c) ---- */

enum plim_metric_type {
    PLIM_METRIC_GAUGE,
    PLIM_METRIC_COUNTER,
    PLIM_METRIC_INFO
};

struct plim__scrape;

struct plim_metric {
    const char *name; /* without prefix, _total and _info; ends in its unit if it has one */
    enum plim_metric_type type;
    const char *labels; /* "uuid, pid" for people */
    const char *help;
    void (*rows)(struct plim__scrape *scrape);
    unsigned arg; /* of `rows`: which figure */
    double scale; /* 0: whole numbers as they are; else the figure is multiplied by it */
};

/** plim__metrics() - the table; static. */
const struct plim_metric *plim__metrics(size_t *n);

/* One scrape while it is written. */
struct plim__scrape {
    struct plim_buf *out;
    const struct plim_state *state;
    enum plim_metrics_form form;
    const struct plim_metric *metric; /* whose rows are being written */
    uint64_t rows;                    /* of it */
    uint64_t dropped;                 /* of all so far */
    bool labelled;                    /* the row has a label already */
};

/** plim__row() - begin a row; false when the metric has too many: leave it out. */
bool plim__row(struct plim__scrape *scrape);

/** plim__label() - add a label; an empty value leaves it out. */
void plim__label(struct plim__scrape *scrape, const char *name, const char *value);
void plim__label_u64(struct plim__scrape *scrape, const char *name, uint64_t value);

/** plim__value() - end the row: a figure, scaled as the metric says. */
void plim__value(struct plim__scrape *scrape, uint64_t value);
void plim__value_real(struct plim__scrape *scrape, double value);

/** plim__device_label()/process_labels() - uuid of a device, pid and name of a process. */
void plim__device_label(struct plim__scrape *scrape, uint32_t device);
void plim__process_labels(struct plim__scrape *scrape, uint32_t pid);

#define PLIM_METRIC_ROWS(X)                                                                        \
    X(build)                                                                                       \
    X(host)                                                                                        \
    X(device_info)                                                                                 \
    X(device_state)                                                                                \
    X(device_up)                                                                                   \
    X(device_odd)                                                                                  \
    X(device_figure)                                                                               \
    X(device_ecc)                                                                                  \
    X(device_unknown)                                                                              \
    X(device_ledger)                                                                               \
    X(device_left)                                                                                 \
    X(process_info)                                                                                \
    X(process_resident)                                                                            \
    X(process_memory)                                                                              \
    X(process_ledger)                                                                              \
    X(allocator_figure)                                                                            \
    X(allocator_stale)                                                                             \
    X(owner_figure)                                                                                \
    X(engine_info)                                                                                 \
    X(engine_up)                                                                                   \
    X(engine_figure)                                                                               \
    X(engine_component)                                                                            \
    X(finding_active)                                                                              \
    X(finding_figure)                                                                              \
    X(happened)                                                                                    \
    X(monitor)                                                                                     \
    X(source)                                                                                      \
    X(health)                                                                                      \
    X(dropped)
#define PLIM__X(name) void plim__rows_##name(struct plim__scrape *scrape);
PLIM_METRIC_ROWS(PLIM__X)
#undef PLIM__X

#endif
