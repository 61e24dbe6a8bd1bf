/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of tune as a part of a page: the recommendation, every run in one sortable table,
 * the bound, and stranded bytes over time under the present settings and the recommended ones.
 */

#include "report/html_parts.h"
#include "report/tune.h"

#include "base/bytes.h"

#include <stdio.h>

static void paragraph(struct plim_buf *out, const char *kind, const char *label, const char *text)
{
    if (text) {
        plim_buf_printf(out, "<p class=\"%s\">%s", kind, label);
        plim_html_say(out, text);
        plim_buf_text(out, "</p>\n");
    }
}

static void advice(struct plim_buf *out, const struct plim_tune *t)
{
    paragraph(out, "summary", "", t->summary);
    if (t->recommended != PLIM_NO_ID) {
        plim_buf_text(out, "<p>Recommended: <code id=\"recommended\">");
        plim_html_say(out, plim_tune_conf(&t->runs.items[t->recommended]));
        plim_buf_text(out, "</code></p>\n");
    }
    paragraph(out, "why", "", t->reason);
    paragraph(out, "risk", "Risk: ", t->risk);
    paragraph(out, "note", "For: ", t->applies_to);
}

static void outcome_cells(struct plim_buf *out, const struct plim_replay_result *r)
{
    if (r->start_failed > 0) {
        plim_html_cell_text(out, "the start does not fit");
    } else {
        plim_buf_printf(out, "<td class=\"fits-%s\">%s</td>", r->failed ? "no" : "yes",
                        r->failed ? "fails" : "fits");
    }
    if (r->failed) {
        plim_html_cell_count(out, r->first_oom.alloc_index + 1);
        plim_html_cell_bytes(out, r->first_oom.request_bytes);
    } else {
        plim_html_cell_none(out);
        plim_html_cell_none(out);
    }
}

/* Bytes, or an empty cell where `unknown` stands for not known. */
static void known_bytes(struct plim_buf *out, uint64_t bytes, uint64_t unknown)
{
    if (bytes == unknown) {
        plim_html_cell_none(out);
    } else {
        plim_html_cell_bytes(out, bytes);
    }
}

/* Settings, which may be broken into lines behind their commas. */
static void conf_cell(struct plim_buf *out, const char *conf)
{
    plim_buf_text(out, "<td class=\"conf\"><code>");
    for (const char *comma; (comma = strchr(conf, ',')) != NULL; conf = comma + 1) {
        plim_html_text(out, (struct plim_str){conf, (size_t)(comma + 1 - conf)});
        plim_buf_text(out, "<wbr>");
    }
    plim_html_say(out, conf);
    plim_buf_text(out, "</code></td>");
}

static void run_row(struct plim_buf *out, const struct plim_tune *t, uint32_t i)
{
    const struct plim_tune_run *run = &t->runs.items[i];
    const struct plim_replay_result *r = &run->result;
    bool best = i == t->recommended, now = i == t->recorded;
    plim_html_row_open(out, best ? "best" : now ? "now" : NULL);
    plim_html_cell_count(out, i + 1);
    plim_buf_printf(out, "<td class=\"mark\">%s</td>",
                    best  ? "recommended"
                    : now ? "as recorded"
                          : "");
    conf_cell(out, plim_tune_conf(run));
    outcome_cells(out, r);
    known_bytes(out, run->setup.capacity, 0);
    known_bytes(out, run->need, 0);
    plim_html_cell_bytes(out, r->peak.reserved);
    plim_html_cell_bytes(out, r->peak.allocated);
    plim_html_cell_bytes(out, r->peak.active);
    plim_html_cell_bytes(out, r->peak.requested);
    plim_html_cell_bytes(out, r->mean_stranded);
    plim_html_cell_bytes(out, r->peak.stranded);
    known_bytes(out, r->least_headroom, UINT64_MAX);
    plim_html_cell_count(out, r->num_alloc_retries);
    plim_html_cell_count(out, r->num_ooms);
    plim_html_cell_count(out, r->num_device_alloc);
    plim_html_cell_count(out, r->num_device_free);
    plim_html_cell_count(out, r->driver_calls);
    plim_buf_printf(out, "<td class=\"n\" data-v=\"%.3f\">%.1f ms</td>", (double)r->stall_ns / 1e6,
                    (double)r->stall_ns / 1e6);
    plim_html_row_close(out);
}

static void runs(struct plim_buf *out, const struct plim_tune_view *v)
{
    static const char *const heads[] = {"rank",          "mark",          "settings",
                                        "outcome",       "first failing", "it asks for",
                                        "device",        "needs",         "peak reserved",
                                        "allocated",     "active",        "requested",
                                        "mean stranded", "peak stranded", "least headroom",
                                        "retries",       "failures",      "device allocs",
                                        "device frees",  "driver calls",  "stall (estimated)"};
    plim_html_note(out,
                   v->options->vary
                       ? "Every value that was tried, in order. Peaks and counters are those of "
                         "torch.cuda.memory_stats at the end of the run, or at its first failure."
                       : "Every setting that was tried, best first. Peaks and counters are those "
                         "of torch.cuda.memory_stats at the end of the run, or at its first "
                         "failure; needs is the smallest device that would do, found for the "
                         "best few.");
    plim_html_table_open(out, "Settings", heads, PLIM_COUNT_OF(heads));
    for (uint32_t i = 0; i < v->tune->runs.n; i++) {
        run_row(out, v->tune, i);
    }
    plim_html_table_close(out);
}

static void bound(struct plim_buf *out, const struct plim_bound *b)
{
    static const char *const heads[] = {"peak", "of whom"};
    plim_buf_text(out, "<h3>How far could any allocator go?</h3>\n");
    plim_html_table_open(out, "Bounds", heads, PLIM_COUNT_OF(heads));
    plim_html_row_open(out, NULL);
    plim_html_cell_bytes(out, b->live);
    plim_html_cell_text(out, "wanted at the same time: no allocator can do with less");
    plim_html_row_close(out);
    plim_html_row_open(out, NULL);
    plim_html_cell_bytes(out, b->packed_all);
    plim_html_cell_text(out, "one that knew all lifetimes in advance");
    plim_html_row_close(out);
    if (b->lanes > 1) {
        plim_html_row_open(out, NULL);
        plim_html_cell_bytes(out, b->packed);
        plim_html_cell_text(out, "the same, with memory bound to its stream and pool");
        plim_html_row_close(out);
    }
    plim_html_table_close(out);
}

static void over_time(struct plim_buf *out, const struct plim_tune *t)
{
    const uint32_t rows[2] = {t->recorded, t->recommended};
    static const char *const labels[2] = {"stranded as recorded", "stranded as recommended"};
    static const char *const kinds[2] = {"line-now", "line-best"};
    uint64_t x[2][PLIM_REPLAY_SAMPLES], y[2][PLIM_REPLAY_SAMPLES];
    struct plim_html_line lines[2];
    size_t n = 0;
    for (size_t i = 0; i < 2; i++) {
        if (rows[i] == PLIM_NO_ID || (i == 1 && rows[1] == rows[0])) {
            continue;
        }
        const struct plim_replay_result *r = &t->runs.items[rows[i]].result;
        for (uint32_t k = 0; k < r->n_samples; k++) {
            x[n][k] = r->samples[k].alloc_index;
            y[n][k] = r->samples[k].stranded;
        }
        lines[n] = (struct plim_html_line){labels[i], kinds[i], x[n], y[n], r->n_samples};
        n++;
    }
    plim_html_chart(out, "Stranded bytes over time, as recorded and as recommended", "allocation",
                    lines, n);
}

static void excluded(struct plim_buf *out, const struct plim_tune *t)
{
    if (t->excluded.n == 0) {
        return;
    }
    plim_buf_text(out, "<details><summary>What was not tried, and why</summary><ul>");
    plim_vec_foreach (x, &t->excluded) {
        plim_buf_text(out, "<li>");
        plim_html_element(out, "code", x->what);
        plim_buf_text(out, ": ");
        plim_html_say(out, x->why);
        plim_buf_text(out, "</li>");
    }
    plim_buf_text(out, "</ul></details>\n");
}

static void doubts(struct plim_buf *out, const struct plim_requests *requests)
{
    struct plim_arena arena;
    size_t n;
    plim_arena_init(&arena, 0);
    const char *const *list = plim_doubt_list(requests, &arena, &n);
    if (n > 0) {
        plim_buf_text(out, "<h3>What is uncertain in the replay</h3><ul>");
        for (size_t i = 0; i < n; i++) {
            plim_html_element(out, "li", list[i]);
        }
        plim_buf_text(out, "</ul>\n");
    }
    plim_arena_fini(&arena);
}

void plim_html_tune(struct plim_buf *out, const void *view)
{
    const struct plim_tune_view *v = view;
    plim_html_section_open(out, "tune", "Allocator settings, replayed");
    advice(out, v->tune);
    runs(out, v);
    over_time(out, v->tune);
    bound(out, &v->tune->bound);
    excluded(out, v->tune);
    doubts(out, v->requests);
    plim_html_section_close(out);
}
