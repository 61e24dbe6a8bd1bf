/* SPDX-License-Identifier: Apache-2.0 */
/* See soak.h. Here: figures over the seeds, and the text. */

#include "report/soak.h"

#include "base/bytes.h"
#include "base/num.h"
#include "report/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- figures ---------------------------------------------------------------------------------------- */

static bool worse(const struct plim_soak_result *a, const struct plim_soak_result *b)
{
    if (a->started != b->started) {
        return !a->started;
    }
    if (a->failed != b->failed) {
        return a->failed;
    }
    return a->failed ? a->first_oom.at_ns < b->first_oom.at_ns
                     : a->peak.stranded > b->peak.stranded;
}

static double figure(const struct plim_soak_result *r, size_t i)
{
    const double all[] = {
#define PLIM__X(field, get, key) (double)(get),
        PLIM_SOAK_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    };
    return all[i];
}

void plim__soak_figures(const struct plim_soak_view *v, size_t i, struct plim__soak_figures *out)
{
    size_t n = v->plan->n_seeds;
    const struct plim_soak_result *all = v->results + i * n;
    double *values = calloc(n + 1, sizeof *values);
    *out = (struct plim__soak_figures){.worst = all};
    for (size_t s = 0; s < n; s++) {
        out->failed += all[s].failed;
        out->started += all[s].started;
        out->worst = worse(&all[s], out->worst) ? &all[s] : out->worst;
    }
    out->worst_seed = v->plan->first_seed + (uint64_t)(out->worst - all);
    for (size_t f = 0; values && f < PLIM__SOAK_FIGURES; f++) {
        for (size_t s = 0; s < n; s++) {
            values[s] = figure(&all[s], f);
        }
        out->all[f] = plim_spread_of(values, n);
    }
    free(values);
}

char *plim__span_text(char buf[PLIM__SPAN_TEXT], double ns)
{
    static const struct {
        double ns;
        const char *unit;
    } units[] = {{86400e9, "d"}, {3600e9, "h"}, {60e9, "min"},
                 {1e9, "s"},     {1e6, "ms"},   {1e3, "us"}};
    for (size_t i = 0; i < PLIM_COUNT_OF(units); i++) {
        if (ns >= units[i].ns) {
            snprintf(buf, PLIM__SPAN_TEXT, "%.3g %s", ns / units[i].ns, units[i].unit);
            return buf;
        }
    }
    snprintf(buf, PLIM__SPAN_TEXT, "%.0f ns", ns);
    return buf;
}

static bool moving(const struct plim_soak_view *v, size_t i)
{
    return v->plan->moving && i + 1 == v->plan->n_confs;
}

const char *plim__soak_name(const struct plim_soak_view *v, size_t i)
{
    return moving(v, i)          ? plim_moving_name(v->plan->moving)
           : v->conf_texts[i][0] ? v->conf_texts[i]
                                 : "(default)";
}

/* The setting that loses least, then stalls least; and whether they differ at all. */
static size_t best_of(const struct plim_soak_view *v, struct plim__soak_figures *best)
{
    size_t at = 0;
    plim__soak_figures(v, 0, best);
    for (size_t i = 1; i < v->plan->n_confs; i++) {
        struct plim__soak_figures f;
        plim__soak_figures(v, i, &f);
        bool better = f.started != best->started           ? f.started > best->started
                      : f.failed != best->failed           ? f.failed < best->failed
                      : f.lost.median != best->lost.median ? f.lost.median < best->lost.median
                      : f.peak_reserved.median != best->peak_reserved.median
                          ? f.peak_reserved.median < best->peak_reserved.median
                          : f.stall.median < best->stall.median;
        if (better) {
            *best = f;
            at = i;
        }
    }
    return at;
}

void plim__soak_summary(const struct plim_soak_view *v, char *buf, size_t n)
{
    struct plim__soak_figures best;
    size_t at = best_of(v, &best), seeds = v->plan->n_seeds;
    bool plain = v->conf_texts[at][0] == '\0' && !moving(v, at);
    const char *conf = plain ? "the default settings" : plim__soak_name(v, at);
    const char *among = v->plan->n_confs > 1 ? ", the best of these" : "";
    if (best.started == 0) {
        snprintf(buf, n, "the server does not start on this device: %s",
                 "weights, activations or pool do not fit");
    } else if (best.failed > 0) {
        char when[PLIM__SPAN_TEXT];
        snprintf(buf, n, "memory runs out in %zu of %zu seeds under %s%s, first after %s",
                 best.failed, seeds, conf, among,
                 plim__span_text(when, (double)best.worst->first_oom.at_ns));
    } else {
        char bytes[PLIM_BYTES_TEXT];
        snprintf(buf, n,
                 "no request runs out of memory under %s%s; %s of headroom is left at the least",
                 conf, among, plim_bytes_format(bytes, (uint64_t)best.least_headroom.least));
    }
}

/* ---- text ------------------------------------------------------------------------------------------- */

static void head(struct plim_buf *out, const struct plim_soak_view *v,
                 const struct plim_text_style *style, struct plim_arena *arena)
{
    const struct plim_soak_setup *s = &v->plan->setup;
    char capacity[PLIM_BYTES_TEXT], external[PLIM_BYTES_TEXT], span[PLIM__SPAN_TEXT];
    const char *title = plim_arena_sayf(
        arena, "%s, %s, on %s (%s of it used by others): %s of traffic, %zu seed%s",
        v->model ? v->model : "image generation", plim_workload_text(s->server->workload),
        plim_bytes_format(capacity, s->capacity), plim_bytes_format(external, s->external),
        plim__span_text(span, (double)s->flow->span_ns), v->plan->n_seeds,
        v->plan->n_seeds > 1 ? "s" : "");
    plim_text_wrap(out, "", title, style);
    plim_buf_char(out, '\n');
}

static void traffic(struct plim_buf *out, const struct plim_soak_view *v,
                    const struct plim_text_style *style)
{
    const struct plim_flow_facts *f = v->facts;
    char line[400];
    plim_text_heading(out, "Traffic", style);
    for (size_t i = 0; i < v->n_traffic; i++) {
        plim_buf_printf(out, "  %s\n", v->traffic[i].name);
    }
    snprintf(line, sizeof line,
             "%" PRIu64
             " requests, %.3g a second; gaps vary by %.3g of their mean (Poisson: 1), the "
             "busiest 10 s bring %.3g times the mean",
             f->arrivals, f->rate, f->cv, f->busiest_10s);
    plim_text_wrap(out, "  - ", line, style);
    if (v->plan->setup.server->workload != PLIM_WORKLOAD_PICTURES) {
        snprintf(
            line, sizeof line,
            "prompts %.0f tokens on average, %u at the 99th percentile, %u at most; answers %.0f, "
            "%u, %u",
            f->prompt_mean, f->prompt_p99, f->prompt_max, f->output_mean, f->output_p99,
            f->output_max);
        plim_text_wrap(out, "  - ", line, style);
    }
    for (size_t i = 0; i < v->n_traffic; i++) {
        const struct plim_traffic_repairs *r = &v->traffic[i].repairs;
#define PLIM__X(field, text)                                                                       \
    if (r->field.n > 0) {                                                                          \
        snprintf(line, sizeof line, "%s: %" PRIu64 " " text " (first in line %" PRIu64 ")",        \
                 v->traffic[i].name, r->field.n, r->field.first_line);                             \
        plim_text_wrap(out, "  - ", line, style);                                                  \
    }
        PLIM_TRAFFIC_REPAIR_MAP(PLIM__X)
#undef PLIM__X
    }
}

static void row(struct plim_buf *out, const struct plim_soak_view *v, size_t i)
{
    struct plim__soak_figures f;
    char outcome[48], reserved[PLIM_BYTES_TEXT], stranded[PLIM_BYTES_TEXT],
        headroom[PLIM_BYTES_TEXT], stall[PLIM__SPAN_TEXT], wait[PLIM__SPAN_TEXT];
    plim__soak_figures(v, i, &f);
    if (f.started < v->plan->n_seeds) {
        snprintf(outcome, sizeof outcome, "no start");
    } else if (f.failed > 0) {
        snprintf(outcome, sizeof outcome, "fails %zu/%zu", f.failed, v->plan->n_seeds);
    } else {
        snprintf(outcome, sizeof outcome, "holds");
    }
    plim_buf_printf(out, "  %-10s %10s %10s %5.1f%% %10s %7.0f %8s %7.0f %8s  %s\n", outcome,
                    plim_bytes_format(reserved, (uint64_t)f.peak_reserved.median),
                    plim_bytes_format(stranded, (uint64_t)f.peak_stranded.median),
                    100 * f.peak_fragmentation.median,
                    plim_bytes_format(headroom, (uint64_t)f.least_headroom.median),
                    f.retries.median, plim__span_text(stall, f.stall.median), f.lost.median,
                    plim__span_text(wait, f.first_p99.median), plim__soak_name(v, i));
}

/* Stranded bytes over time of the worst seed, all settings on one scale. */
static void over_time(struct plim_buf *out, const struct plim_soak_view *v,
                      const struct plim_text_style *style)
{
    static const char *const levels[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const ascii[] = {" ", ".", ".", ":", ":", "=", "=", "#", "#"};
    uint64_t most = 0;
    char bytes[PLIM_BYTES_TEXT];
    for (size_t i = 0; i < v->plan->n_confs; i++) {
        struct plim__soak_figures f;
        plim__soak_figures(v, i, &f);
        for (uint32_t k = 0; k < f.worst->n_samples; k++) {
            most = plim_max_u64(most, f.worst->samples[k].stranded);
        }
    }
    if (most == 0) {
        return;
    }
    plim_buf_printf(out, "\n  stranded over time, worst seed, up to %s\n",
                    plim_bytes_format(bytes, most));
    for (size_t i = 0; i < v->plan->n_confs; i++) {
        struct plim__soak_figures f;
        plim__soak_figures(v, i, &f);
        plim_buf_text(out, "  |");
        for (uint32_t k = 0; k + 1 < f.worst->n_samples; k += 2) {
            uint64_t here =
                plim_max_u64(f.worst->samples[k].stranded, f.worst->samples[k + 1].stranded);
            unsigned level = (unsigned)((double)here * 8 / (double)most + 0.5);
            level = level == 0 && here > 0 ? 1 : level;
            plim_buf_text(out, style->unicode ? levels[level] : ascii[level]);
        }
        plim_buf_printf(out, "|  %s\n", plim__soak_name(v, i));
    }
}

static void server_lines(struct plim_buf *out, const struct plim_soak_view *v,
                         const struct plim_text_style *style)
{
    struct plim__soak_figures f;
    const struct plim_server *s = v->plan->setup.server;
    char line[300];
    plim__soak_figures(v, 0, &f);
    plim_text_heading(out, "Server", style);
    if (s->workload == PLIM_WORKLOAD_PAGED) {
        snprintf(line, sizeof line,
                 "pool of %" PRIu64 " tokens, %.0f %% in use on average and %.0f %% at most; %.0f "
                 "preemptions",
                 f.worst->kv_tokens, 100 * f.kv_mean.median, 100 * f.kv_peak.median,
                 f.preemptions.median);
        plim_text_wrap(out, "  - ", line, style);
    } else if (f.worst->prompt_tokens + f.worst->output_tokens > 0) {
        double real = (double)(f.worst->prompt_tokens + f.worst->output_tokens);
        snprintf(line, sizeof line, "%.0f %% of the computed tokens are padding",
                 100 * f.padding.median / (real + f.padding.median));
        plim_text_wrap(out, "  - ", line, style);
    }
    if (f.worst->cached_tokens > 0) {
        double all = (double)(f.worst->prompt_tokens + f.worst->cached_tokens);
        snprintf(line, sizeof line, "%.0f %% of the prompt tokens were in the prefix cache",
                 100 * (double)f.worst->cached_tokens / all);
        plim_text_wrap(out, "  - ", line, style);
    }
    snprintf(line, sizeof line,
             "%.0f served, %.0f refused as too long, %.0f lost to memory, %.0f not finished",
             f.served.median, f.refused.median, f.lost.median, f.unfinished.median);
    plim_text_wrap(out, "  - ", line, style);
    if (f.worst->adapter_loads > 0) {
        snprintf(line, sizeof line, "%" PRIu64 " adapter loads", f.worst->adapter_loads);
        plim_text_wrap(out, "  - ", line, style);
    }
}

static void failure_line(struct plim_buf *out, const struct plim_soak_view *v, size_t i,
                         const struct plim_text_style *style)
{
    struct plim__soak_figures f;
    char line[500], when[PLIM__SPAN_TEXT], want[PLIM_BYTES_TEXT], device[PLIM_BYTES_TEXT],
        stranded[PLIM_BYTES_TEXT];
    plim__soak_figures(v, i, &f);
    if (!f.worst->failed) {
        return;
    }
    snprintf(line, sizeof line,
             "%s: after %s (seed %" PRIu64
             "), during %s, a request for %s found %s free on the device and "
             "%s stranded",
             plim__soak_name(v, i), plim__span_text(when, (double)f.worst->first_oom.at_ns),
             f.worst_seed, f.worst->first_oom.during,
             plim_bytes_format(want, f.worst->first_oom.request_bytes),
             plim_bytes_format(device, f.worst->first_oom.device_free),
             plim_bytes_format(stranded, f.worst->first_oom.stranded));
    plim_text_wrap(out, "  - ", line, style);
}

void plim_text_soak(struct plim_buf *out, const struct plim_soak_view *v,
                    const struct plim_text_style *style)
{
    char summary[400];
    bool failed = false;
    struct plim_arena arena;
    plim_arena_init(&arena, 0);
    head(out, v, style, &arena);
    plim_arena_fini(&arena);
    plim__soak_summary(v, summary, sizeof summary);
    plim_text_wrap(out, "  ", summary, style);
    traffic(out, v, style);
    server_lines(out, v, style);
    plim_text_heading(out, "Memory", style);
    plim_buf_printf(out, "  %-10s %10s %10s %6s %10s %7s %8s %7s %8s  %s\n", "outcome", "reserved",
                    "stranded", "frag", "headroom", "retries", "stall", "lost", "wait p99",
                    "settings");
    for (size_t i = 0; i < v->plan->n_confs; i++) {
        row(out, v, i);
    }
    plim_buf_printf(out, "  peaks; medians of %zu seeds; wait: to the first token or picture\n",
                    v->plan->n_seeds);
    over_time(out, v, style);
    for (size_t i = 0; i < v->plan->n_confs * v->plan->n_seeds; i++) {
        failed = failed || v->results[i].failed;
    }
    plim__text_buckets(out, v, style);
    plim__text_blocks(out, v, style);
    plim__text_doors(out, v, style);
    if (failed) {
        plim_text_heading(out, "First failures", style);
        for (size_t i = 0; i < v->plan->n_confs; i++) {
            failure_line(out, v, i, style);
        }
    }
}
