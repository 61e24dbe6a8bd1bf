/* SPDX-License-Identifier: Apache-2.0 */
/* A soak as JSON ("plimsoll.soak/1"), and as the part of a page. */

#include "report/soak.h"

#include "base/num.h"
#include "report/html_parts.h"
#include "report/replay.h"

#include <stdio.h>

/* ---- JSON ------------------------------------------------------------------------------------------- */

static void json_edges(struct plim_jsonw *w, const char *key, const struct plim_edges *e)
{
    plim_jsonw_key(w, key);
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < e->n; i++) {
        plim_jsonw_u64(w, e->edge[i]);
    }
    plim_jsonw_end(w);
}

static void json_server(struct plim_jsonw *w, const struct plim_server *s)
{
    plim_jsonw_key(w, "server");
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "workload", plim_workload_text(s->workload));
    plim_jsonw_kv_u64(w, "max_seqs", s->max_seqs);
    plim_jsonw_kv_u64(w, "max_length", s->max_length);
    if (s->workload == PLIM_WORKLOAD_PAGED) {
        plim_jsonw_kv_u64(w, "step_tokens", s->step_tokens);
        plim_jsonw_kv_u64(w, "block_tokens", s->block_tokens);
        plim_jsonw_kv_real(w, "utilization", s->utilization);
        plim_jsonw_kv_bool(w, "prefix_cache", !s->no_prefix_cache);
        plim_jsonw_kv_bool(w, "eager", s->eager);
        json_edges(w, "captures", &s->captures);
    } else if (s->workload == PLIM_WORKLOAD_DYNAMIC) {
        plim_jsonw_kv_u64(w, "batch_wait_ns", s->batch_wait_ns);
        json_edges(w, "prompt_edges", &s->prompts);
        json_edges(w, "batch_edges", &s->batches);
    } else {
        plim_jsonw_kv_u64(w, "denoising_steps", s->steps);
        json_edges(w, "side_edges", &s->sides);
    }
    if (s->adapters > 0) {
        plim_jsonw_kv_u64(w, "adapters", s->adapters);
        plim_jsonw_kv_u64(w, "adapters_held", s->adapters_held);
        plim_jsonw_kv_u64(w, "adapter_rank", s->adapter_rank);
    }
    plim_jsonw_kv_bool(w, "empty_cache", s->empty_cache);
    plim_jsonw_end(w);
}

static void json_repairs(struct plim_jsonw *w, const struct plim_traffic_repairs *r)
{
    plim_jsonw_key(w, "repairs");
    plim_jsonw_object(w);
#define PLIM__X(field, text)                                                                       \
    if (r->field.n > 0) {                                                                          \
        plim_jsonw_key(w, #field);                                                                 \
        plim_jsonw_object(w);                                                                      \
        plim_jsonw_kv_u64(w, "rows", r->field.n);                                                  \
        plim_jsonw_kv_u64(w, "first_line", r->field.first_line);                                   \
        plim_jsonw_end(w);                                                                         \
    }
    PLIM_TRAFFIC_REPAIR_MAP(PLIM__X)
#undef PLIM__X
    plim_jsonw_end(w);
}

static void json_traffic(struct plim_jsonw *w, const struct plim_soak_view *v)
{
    const struct plim_flow_facts *f = v->facts;
    plim_jsonw_key(w, "traffic");
    plim_jsonw_object(w);
    plim_jsonw_key(w, "sources");
    plim_jsonw_array(w);
    for (size_t i = 0; i < v->n_traffic; i++) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "name", v->traffic[i].name);
        if (v->traffic[i].file) {
            plim_jsonw_kv_text(w, "layout", plim_traffic_layout_text(v->traffic[i].layout));
            json_repairs(w, &v->traffic[i].repairs);
        }
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
    plim_jsonw_kv_u64(w, "requests", f->arrivals);
    plim_jsonw_kv_real(w, "rate_per_s", f->rate);
    plim_jsonw_kv_real(w, "gap_cv", f->cv);
    plim_jsonw_kv_real(w, "busiest_10s_over_mean", f->busiest_10s);
    plim_jsonw_kv_real(w, "prompt_mean", f->prompt_mean);
    plim_jsonw_kv_u64(w, "prompt_p50", f->prompt_p50);
    plim_jsonw_kv_u64(w, "prompt_p99", f->prompt_p99);
    plim_jsonw_kv_u64(w, "prompt_max", f->prompt_max);
    plim_jsonw_kv_real(w, "output_mean", f->output_mean);
    plim_jsonw_kv_u64(w, "output_p50", f->output_p50);
    plim_jsonw_kv_u64(w, "output_p99", f->output_p99);
    plim_jsonw_kv_u64(w, "output_max", f->output_max);
    plim_jsonw_end(w);
}

static void json_spread(struct plim_jsonw *w, const char *key, const struct plim_spread *s)
{
    plim_jsonw_key(w, key);
    plim_jsonw_object(w);
    plim_jsonw_kv_real(w, "least", s->least);
    plim_jsonw_kv_real(w, "median", s->median);
    plim_jsonw_kv_real(w, "most", s->most);
    plim_jsonw_end(w);
}

static void json_oom(struct plim_jsonw *w, const struct plim_soak_result *r)
{
    plim_jsonw_key(w, "first_oom");
    if (!r->failed) {
        plim_jsonw_null(w);
        return;
    }
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "at_ns", r->first_oom.at_ns);
    plim_jsonw_kv_text(w, "during", r->first_oom.during);
    plim_jsonw_kv_u64(w, "request_bytes", r->first_oom.request_bytes);
    plim_jsonw_kv_u64(w, "device_free_bytes", r->first_oom.device_free);
    plim_jsonw_kv_u64(w, "reserved_bytes", r->first_oom.reserved);
    plim_jsonw_kv_u64(w, "stranded_bytes", r->first_oom.stranded);
    plim_jsonw_end(w);
}

static void json_samples(struct plim_jsonw *w, const struct plim_soak_result *r)
{
    plim_jsonw_key(w, "samples");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < r->n_samples; i++) {
        const struct plim_soak_sample *s = &r->samples[i];
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "at_ns", s->at_ns);
        plim_jsonw_kv_u64(w, "active_bytes", s->active);
        plim_jsonw_kv_u64(w, "reserved_bytes", s->reserved);
        plim_jsonw_kv_u64(w, "stranded_bytes", s->stranded);
        plim_jsonw_kv_u64(w, "headroom_bytes", s->headroom);
        plim_jsonw_kv_u64(w, "waiting", s->waiting);
        plim_jsonw_kv_u64(w, "running", s->running);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

/* One seed. */
static void json_run(struct plim_jsonw *w, uint64_t seed, const struct plim_soak_result *r)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "seed", seed);
    plim_jsonw_kv_bool(w, "started", r->started);
    json_oom(w, r);
    plim_jsonw_kv_u64(w, "simulated_ns", r->simulated_ns);
    plim_jsonw_kv_u64(w, "requests", r->arrivals);
    plim_jsonw_kv_u64(w, "steps", r->steps);
    plim_jsonw_kv_u64(w, "allocations", r->allocations);
    plim_jsonw_kv_u64(w, "repeated_allocations", r->repeated);
    plim_jsonw_kv_u64(w, "driver_calls", r->driver_calls);
    plim_jsonw_kv_u64(w, "prompt_tokens", r->prompt_tokens);
    plim_jsonw_kv_u64(w, "output_tokens", r->output_tokens);
    plim_jsonw_kv_u64(w, "adapter_loads", r->adapter_loads);
    plim_jsonw_kv_u64(w, "late_allocations", r->late_allocations);
    plim_jsonw_kv_u64(w, "late_driver_calls", r->late_driver_calls);
    plim_jsonw_kv_u64(w, "most_active_bytes", r->most_active);
    plim_jsonw_kv_u64(w, "most_reserved_bytes", r->most_reserved);
    plim_jsonw_kv_u64(w, "cached_prompt_tokens", r->cached_tokens);
    plim_jsonw_kv_u64(w, "kv_tokens", r->kv_tokens);
#define PLIM__X(field, get, key) plim_jsonw_kv_real(w, key, (double)(get));
    PLIM_SOAK_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    json_samples(w, r);
    plim_jsonw_end(w);
}

static void json_setting(struct plim_jsonw *w, const struct plim_soak_view *v, size_t i)
{
    struct plim__soak_figures f;
    plim__soak_figures(v, i, &f);
    plim_jsonw_object(w);
    plim_json_allocator(w, i + 1 == v->plan->n_confs ? v->plan->moving : NULL);
    plim_jsonw_kv_text(w, "conf", v->conf_texts[i]);
    plim_jsonw_kv_u64(w, "seeds", v->plan->n_seeds);
    plim_jsonw_kv_u64(w, "seeds_failed", f.failed);
    plim_jsonw_kv_u64(w, "seeds_started", f.started);
    json_oom(w, f.worst);
    plim_jsonw_key(w, "over_seeds");
    plim_jsonw_object(w);
#define PLIM__X(field, get, key) json_spread(w, key, &f.field);
    PLIM_SOAK_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    plim_jsonw_end(w);
    plim_jsonw_key(w, "runs");
    plim_jsonw_array(w);
    for (size_t s = 0; s < v->plan->n_seeds; s++) {
        json_run(w, v->plan->first_seed + s, &v->results[i * v->plan->n_seeds + s]);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

void plim_json_soak(struct plim_jsonw *w, const struct plim_soak_view *v)
{
    const struct plim_soak_setup *s = &v->plan->setup;
    char version[16], summary[400];
    snprintf(version, sizeof version, "%u.%u", v->plan->confs[0].version.major,
             v->plan->confs[0].version.minor);
    plim__soak_summary(v, summary, sizeof summary);
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.soak/1");
    plim_jsonw_kv_text(w, "summary", summary);
    plim_jsonw_kv_text(w, "model", v->model);
    plim_jsonw_kv_text(w, "torch_version", version);
    plim_jsonw_kv_u64(w, "capacity_bytes", s->capacity);
    plim_jsonw_kv_u64(w, "external_bytes", s->external);
    plim_jsonw_kv_u64(w, "span_ns", s->flow->span_ns);
    plim_jsonw_kv_text(w, "how", "replayed");
    plim_jsonw_kv_text(w, "stall_how", "estimated");
    json_server(w, s->server);
    json_traffic(w, v);
    plim_jsonw_key(w, "settings");
    plim_jsonw_array(w);
    for (size_t i = 0; i < v->plan->n_confs; i++) {
        json_setting(w, v, i);
    }
    plim_jsonw_end(w);
    plim__json_buckets(w, v);
    plim__json_blocks(w, v);
    plim__json_doors(w, v);
    plim_jsonw_end(w);
}

/* ---- page ------------------------------------------------------------------------------------------- */

static void html_rows(struct plim_buf *out, const struct plim_soak_view *v)
{
    for (size_t i = 0; i < v->plan->n_confs * v->plan->n_seeds; i++) {
        const struct plim_soak_result *r = &v->results[i];
        plim_html_row_open(out, NULL);
        plim_html_cell_text(out, plim__soak_name(v, i / v->plan->n_seeds));
        plim_html_cell_count(out, v->plan->first_seed + i % v->plan->n_seeds);
        plim_html_cell_text(out, !r->started ? "no start" : r->failed ? "fails" : "holds");
        plim_html_cell_bytes(out, r->peak.reserved);
        plim_html_cell_bytes(out, r->peak.active);
        plim_html_cell_bytes(out, r->peak.stranded);
        plim_html_cell_bytes(out, r->mean_stranded);
        plim_html_cell_bytes(out, r->least_headroom);
        plim_html_cell_count(out, r->num_alloc_retries);
        plim_html_cell_count(out, r->lost);
        plim_html_cell_count(out, r->preemptions);
        plim_html_cell_count(out, r->stall_ns / 1000000);
        plim_html_cell_count(out, r->latency.first_p99 / 1000000);
        plim_html_row_close(out);
    }
}

#define CHART_LINES 2u /* as many as the page has colours for */

static void html_chart(struct plim_buf *out, const struct plim_soak_view *v)
{
    static const char *const kinds[CHART_LINES] = {"now", "best"};
    uint64_t x[CHART_LINES][PLIM_SOAK_SAMPLES], y[CHART_LINES][PLIM_SOAK_SAMPLES];
    struct plim_html_line lines[CHART_LINES];
    size_t n = v->plan->n_confs < CHART_LINES ? v->plan->n_confs : CHART_LINES;
    for (size_t i = 0; i < n; i++) {
        struct plim__soak_figures f;
        plim__soak_figures(v, i, &f);
        for (uint32_t k = 0; k < f.worst->n_samples; k++) {
            x[i][k] = f.worst->samples[k].at_ns / 1000000000;
            y[i][k] = f.worst->samples[k].stranded;
        }
        lines[i] = (struct plim_html_line){plim__soak_name(v, i), kinds[i], x[i], y[i],
                                           f.worst->n_samples};
    }
    plim_html_chart(out, "Stranded bytes over time, worst seed", "seconds", lines, n);
}

void plim_html_soak(struct plim_buf *out, const void *view)
{
    static const char *const heads[] = {
        "settings", "seed",    "outcome", "reserved",  "active",   "stranded",   "stranded (mean)",
        "headroom", "retries", "lost",    "preempted", "stall ms", "wait p99 ms"};
    const struct plim_soak_view *v = view;
    char summary[400];
    plim__soak_summary(v, summary, sizeof summary);
    plim_html_section_open(out, "soak", "Traffic, soaked");
    plim_html_element(out, "p", summary);
    html_chart(out, v);
    plim_html_table_open(out, "Runs", heads, PLIM_COUNT_OF(heads));
    html_rows(out, v);
    plim_html_table_close(out);
    plim_html_note(out, "Replayed on the exact allocator; durations are estimates for comparing "
                        "settings with each other.");
    plim_html_section_close(out);
}
