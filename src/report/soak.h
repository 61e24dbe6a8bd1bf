/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_SOAK_H
#define PLIM_REPORT_SOAK_H

/*
 * A soak as text, JSON ("plimsoll.soak/1", described by docs/schema/soak.json) and as a page.
 * Figures of a setting are medians over the seeds, with the least and the most in JSON; a count of failed
 * seeds stands beside them. Threads: pure but for the buffer.
 */

#include "base/jsonw.h"
#include "format/traffic.h"
#include "report/text.h"
#include "serving/blocks.h"
#include "serving/buckets.h"
#include "serving/doors.h"

/* What was read or made, for one --traffic. */
struct plim_soak_traffic {
    const char *name;
    enum plim_traffic_layout layout; /* of a file */
    bool file;
    struct plim_traffic_repairs repairs; /* of a file */
};

struct plim_soak_view {
    const char *model; /* as given, or NULL */
    const struct plim_soak_plan *plan;
    const struct plim_soak_result *results;  /* [n_confs * n_seeds] */
    const char *const *conf_texts;           /* [n_confs] */
    const struct plim_flow_facts *facts;     /* of the first seed's flow */
    const struct plim_soak_traffic *traffic; /* [n_traffic] */
    size_t n_traffic;
    const struct plim_bucket_choice *buckets; /* NULL: not asked */
    const struct plim_route_choice *routes;   /* NULL: not asked */
    const struct plim_door_row *doors;        /* [PLIM_DOOR_ROWS]; NULL: not asked */
    const struct plim_blocks_choice *blocks;  /* NULL: not asked */
    const char *sizes_file;                   /* where their sizes are; NULL: nowhere */
};

void plim_text_soak(struct plim_buf *out, const struct plim_soak_view *view,
                    const struct plim_text_style *style);
void plim_json_soak(struct plim_jsonw *w, const struct plim_soak_view *view);
void plim__text_buckets(struct plim_buf *out, const struct plim_soak_view *view,
                        const struct plim_text_style *style);
void plim__json_buckets(struct plim_jsonw *w, const struct plim_soak_view *view);
void plim__text_doors(struct plim_buf *out, const struct plim_soak_view *view,
                      const struct plim_text_style *style);
void plim__json_doors(struct plim_jsonw *w, const struct plim_soak_view *view);
void plim__text_blocks(struct plim_buf *out, const struct plim_soak_view *view,
                       const struct plim_text_style *style);
void plim__json_blocks(struct plim_jsonw *w, const struct plim_soak_view *view);
/** plim_blocks_file() - the sizes as PLIMSOLL_ALLOC_SIZES=@FILE and --sizes @FILE read them, one a line. */
void plim_blocks_file(struct plim_buf *out, const struct plim_blocks_choice *blocks);
void plim_html_soak(struct plim_buf *out, const void *view); /* a plim_html_part */

/* ---- shared by the three ---- */

/* X(field, how to get it from a result, JSON key, meaning): figures with a spread over the seeds. */
#define PLIM_SOAK_FIGURE_MAP(X)                                                                    \
    X(peak_reserved, r->peak.reserved, "peak_reserved_bytes")                                      \
    X(peak_active, r->peak.active, "peak_active_bytes")                                            \
    X(peak_stranded, r->peak.stranded, "peak_stranded_bytes")                                      \
    X(mean_active, r->mean_active, "mean_active_bytes")                                            \
    X(mean_reserved, r->mean_reserved, "mean_reserved_bytes")                                      \
    X(mean_stranded, r->mean_stranded, "mean_stranded_bytes")                                      \
    X(peak_fragmentation, r->peak.fragmentation, "peak_fragmentation")                             \
    X(mean_fragmentation, r->mean_fragmentation, "mean_fragmentation")                             \
    X(least_headroom, r->least_headroom, "least_headroom_bytes")                                   \
    X(retries, r->num_alloc_retries, "num_alloc_retries")                                          \
    X(ooms, r->num_ooms, "num_ooms")                                                               \
    X(device_allocs, r->num_device_alloc, "num_device_alloc")                                      \
    X(device_frees, r->num_device_free, "num_device_free")                                         \
    X(stall, r->stall_ns, "stall_ns")                                                              \
    X(worst_stall, r->worst_stall_ns, "worst_step_stall_ns")                                       \
    X(served, r->served, "served")                                                                 \
    X(lost, r->lost, "lost")                                                                       \
    X(refused, r->refused, "refused")                                                              \
    X(unfinished, r->unfinished, "unfinished")                                                     \
    X(preemptions, r->preemptions, "preemptions")                                                  \
    X(padding, r->padding_tokens, "padding_tokens")                                                \
    X(kv_mean, r->kv_mean, "kv_mean_share")                                                        \
    X(kv_peak, r->kv_peak, "kv_peak_share")                                                        \
    X(first_p50, r->latency.first_p50, "first_token_p50_ns")                                       \
    X(first_p99, r->latency.first_p99, "first_token_p99_ns")                                       \
    X(total_p50, r->latency.total_p50, "total_p50_ns")                                             \
    X(total_p99, r->latency.total_p99, "total_p99_ns")

enum plim__soak_figure {
#define PLIM__X(field, get, key) PLIM__SOAK_##field,
    PLIM_SOAK_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    PLIM__SOAK_FIGURES
};

struct plim__soak_figures {
    union {
        struct {
#define PLIM__X(field, get, key) struct plim_spread field; /* see PLIM_SOAK_FIGURE_MAP */
            PLIM_SOAK_FIGURE_MAP(PLIM__X)
#undef PLIM__X
        };
        struct plim_spread all[PLIM__SOAK_FIGURES];
    };
    size_t failed;  /* seeds */
    size_t started; /* seeds */
    const struct plim_soak_result
        *worst; /* the seed that failed first, else the one with the most stranded */
    uint64_t worst_seed;
};

/** plim__soak_figures() - of the i-th setting. Errors: none; without memory all is 0. */
void plim__soak_figures(const struct plim_soak_view *view, size_t i,
                        struct plim__soak_figures *out);

/** plim__soak_summary() - one sentence, into buf. */
void plim__soak_summary(const struct plim_soak_view *view, char *buf, size_t n);

/** plim__soak_name() - what the i-th setting is called in text. */
const char *plim__soak_name(const struct plim_soak_view *view, size_t i);

/** plim__span_text() - "34 s", "1.5 h", "80 ms". */
#define PLIM__SPAN_TEXT 24
char *plim__span_text(char buf[PLIM__SPAN_TEXT], double ns);

#endif
