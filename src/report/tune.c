/* SPDX-License-Identifier: Apache-2.0 */
/* See tune.h. */

#include "report/tune.h"

#include "base/bytes.h"
#include "report/markdown.h"

#include <inttypes.h>
#include <stdio.h>

#define ROWS_DEFAULT 20u

const char *plim_tune_conf(const struct plim_tune_run *run)
{
    return run->conf[0] ? run->conf : "(default)";
}

/* ---- cells ---------------------------------------------------------------------------------------- */

struct cells {
    char outcome[32];
    char need[PLIM_BYTES_TEXT];
    char peak[PLIM_BYTES_TEXT];
    char stranded[PLIM_BYTES_TEXT];
    char headroom[PLIM_BYTES_TEXT];
    char retries[24];
    char calls[24];
    char stall[24];
    const char *conf;
};

static void cells_of(const struct plim_tune_run *run, struct cells *c)
{
    const struct plim_replay_result *r = &run->result;
    if (r->start_failed > 0) {
        snprintf(c->outcome, sizeof c->outcome, "no start");
    } else if (r->failed) {
        snprintf(c->outcome, sizeof c->outcome, "fails %" PRIu64, r->first_oom.alloc_index + 1);
    } else {
        snprintf(c->outcome, sizeof c->outcome, "fits");
    }
    snprintf(c->need, sizeof c->need, "-");
    if (run->need > 0) {
        plim_bytes_format(c->need, run->need);
    }
    plim_bytes_format(c->peak, r->peak.reserved);
    plim_bytes_format(c->stranded, r->mean_stranded);
    snprintf(c->headroom, sizeof c->headroom, "-");
    if (r->least_headroom != UINT64_MAX) {
        plim_bytes_format(c->headroom, r->least_headroom);
    }
    snprintf(c->retries, sizeof c->retries, "%" PRIu64, r->num_alloc_retries);
    snprintf(c->calls, sizeof c->calls, "%" PRIu64, r->driver_calls);
    snprintf(c->stall, sizeof c->stall, "%.0f ms", (double)r->stall_ns / 1e6);
    c->conf = plim_tune_conf(run);
}

static bool varies_device(const struct plim_tune_view *v)
{
    return v->options->vary && strcmp(v->options->vary, "device-memory") == 0;
}

/* Is run i in the table of `rows` rows? The recorded settings always are. */
static bool shown(const struct plim_tune_view *v, uint32_t i)
{
    uint32_t rows = v->rows ? v->rows : ROWS_DEFAULT;
    return v->options->vary || i < rows || i == v->tune->recorded;
}

static const char *mark_of(const struct plim_tune_view *v, uint32_t i)
{
    return i == v->tune->recommended ? "*" : i == v->tune->recorded ? "=" : " ";
}

/* ---- text ----------------------------------------------------------------------------------------- */

static void text_table(struct plim_buf *out, const struct plim_tune_view *v)
{
    bool device = varies_device(v);
    uint32_t left_out = 0;
    plim_buf_printf(out, "\n  %-11s %10s %10s %9s %7s %7s %8s  %s\n", "outcome",
                    device ? "device" : "needs", "reserved", "stranded", "retries", "calls",
                    "stall", "settings");
    for (uint32_t i = 0; i < v->tune->runs.n; i++) {
        const struct plim_tune_run *run = &v->tune->runs.items[i];
        struct cells c;
        char size[PLIM_BYTES_TEXT];
        if (!shown(v, i)) {
            left_out++;
            continue;
        }
        cells_of(run, &c);
        plim_buf_printf(out, "%s %-11s %10s %10s %9s %7s %7s %8s  %s\n", mark_of(v, i), c.outcome,
                        device ? plim_bytes_format(size, run->setup.capacity) : c.need, c.peak,
                        c.stranded, c.retries, c.calls, c.stall, c.conf);
    }
    plim_buf_text(out, "  * recommended, = as recorded");
    if (left_out > 0) {
        plim_buf_printf(out, "; %u more were tried (--rows, --format json)", left_out);
    }
    plim_buf_char(out, '\n');
}

/* Stranded bytes over time under the present and the recommended settings, on one scale. */
static void text_over_time(struct plim_buf *out, const struct plim_tune_view *v,
                           const struct plim_text_style *style)
{
    const struct plim_tune *t = v->tune;
    uint32_t rows[2] = {t->recorded, t->recommended};
    uint64_t most = 0;
    char bytes[PLIM_BYTES_TEXT];
    for (size_t i = 0; i < 2; i++) {
        most = rows[i] == PLIM_NO_ID
                   ? most
                   : plim_max_u64(most, t->runs.items[rows[i]].result.peak.stranded);
    }
    if (most == 0 || t->recorded == PLIM_NO_ID) {
        return;
    }
    plim_buf_printf(out, "\n  stranded over time, up to %s\n", plim_bytes_format(bytes, most));
    for (size_t i = 0; i < 2; i++) {
        if (rows[i] != PLIM_NO_ID) {
            plim_buf_text(out, i == 0 ? "= |" : "* |");
            plim_text_stranded_line(out, &t->runs.items[rows[i]].result, most, 64, style->unicode);
            plim_buf_text(out, "|\n");
        }
    }
}

static void moving_line(struct plim_buf *out, const struct plim_tune *t, const char *bullet,
                        const struct plim_text_style *style)
{
    char reserved[PLIM_BYTES_TEXT], line[256];
    if (!t->has_moving) {
        return;
    }
    const struct plim_replay_result *r = &t->moving.result;
    const char *name = plim_moving_name(t->moving.setup.moving);
    plim_bytes_format(reserved, r->peak.reserved);
    if (plim_tune_run_fits(&t->moving)) {
        snprintf(line, sizeof line,
                 "%s, which moves pages, serves all of it with %s (python -m plimsoll.alloc)", name,
                 reserved);
    } else {
        snprintf(line, sizeof line, "%s, which moves pages, fails at allocation %llu", name,
                 (unsigned long long)r->first_oom.alloc_index + 1);
    }
    plim_text_wrap(out, bullet, line, style);
}

static void bound_lines(struct plim_buf *out, const struct plim_tune_view *v, const char *bullet,
                        const struct plim_text_style *style)
{
    const struct plim_bound *b = &v->tune->bound;
    char live[PLIM_BYTES_TEXT], packed[PLIM_BYTES_TEXT], all[PLIM_BYTES_TEXT], line[256];
    plim_bytes_format(live, b->live);
    plim_bytes_format(packed, b->packed);
    plim_bytes_format(all, b->packed_all);
    snprintf(line, sizeof line,
             "no allocator can do with less than %s (the most that is wanted at once)", live);
    plim_text_wrap(out, bullet, line, style);
    snprintf(line, sizeof line, "one that knew all lifetimes would take %s%s%s%s", all,
             b->lanes > 1 ? ", or " : "", b->lanes > 1 ? packed : "",
             b->lanes > 1 ? " with memory bound to its stream and pool" : "");
    plim_text_wrap(out, bullet, line, style);
    moving_line(out, v->tune, bullet, style);
}

void plim_text_tune(struct plim_buf *out, const struct plim_tune_view *v,
                    const struct plim_text_style *style)
{
    const struct plim_tune *t = v->tune;
    char capacity[PLIM_BYTES_TEXT], external[PLIM_BYTES_TEXT];
    if (v->options->capacity > 0 && !varies_device(v)) {
        plim_buf_printf(out, "%zu settings on %s, %s of it used by others%s\n\n", t->runs.n,
                        plim_bytes_format(capacity, v->options->capacity),
                        plim_bytes_format(external, v->options->external),
                        strcmp(v->capacity_by, "given") != 0 ? " (worked out from the recording)"
                                                             : "");
    } else {
        plim_buf_printf(out, "%zu %s\n\n", t->runs.n,
                        varies_device(v) ? "devices"
                                         : "settings on a device without limit (--device-memory)");
    }
    plim_text_wrap(out, "  ", t->summary, style);
    if (t->reason) {
        plim_text_wrap(out, "  ", t->reason, style);
    }
    if (t->risk) {
        plim_text_wrap(out, "  Risk: ", t->risk, style);
    }
    if (t->applies_to) {
        plim_text_wrap(out, "  For: ", t->applies_to, style);
    }
    text_table(out, v);
    text_over_time(out, v, style);
    plim_text_heading(out, "How far could any allocator go?", style);
    bound_lines(out, v, "  - ", style);
    if (t->excluded.n > 0) {
        plim_text_heading(out, "Not tried", style);
    }
    plim_vec_foreach (x, &t->excluded) {
        char line[512];
        snprintf(line, sizeof line, "%s: %s", x->what, x->why);
        plim_text_wrap(out, "  - ", line, style);
    }
    plim_text_doubts(out, v->requests, style);
}

/* ---- Markdown ------------------------------------------------------------------------------------- */

void plim_markdown_tune(struct plim_buf *out, const struct plim_tune_view *v)
{
    const struct plim_tune *t = v->tune;
    const struct plim_text_style plain = {.width = 400};
    bool device = varies_device(v);
    plim_buf_text(out, "## Allocator settings, replayed\n\n");
    plim_markdown_escape(out, t->summary);
    plim_buf_char(out, '\n');
    if (t->reason) {
        plim_buf_char(out, '\n');
        plim_markdown_escape(out, t->reason);
        plim_buf_char(out, '\n');
    }
    if (t->risk) {
        plim_buf_text(out, "\n**Risk:** ");
        plim_markdown_escape(out, t->risk);
        plim_buf_char(out, '\n');
    }
    plim_buf_printf(
        out,
        "\n| | outcome | %s | peak reserved | stranded | headroom | retries | driver calls "
        "| stall | settings |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | "
        "---: | --- |\n",
        device ? "device" : "needs");
    for (uint32_t i = 0; i < t->runs.n; i++) {
        struct cells c;
        char size[PLIM_BYTES_TEXT];
        if (!shown(v, i)) {
            continue;
        }
        cells_of(&t->runs.items[i], &c);
        plim_buf_printf(out, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | ",
                        i == t->recommended ? "**best**"
                        : i == t->recorded  ? "now"
                                            : "",
                        c.outcome,
                        device ? plim_bytes_format(size, t->runs.items[i].setup.capacity) : c.need,
                        c.peak, c.stranded, c.headroom, c.retries, c.calls, c.stall);
        plim_markdown_escape(out, c.conf);
        plim_buf_text(out, " |\n");
    }
    plim_buf_char(out, '\n');
    bound_lines(out, v, "- ", &plain);
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static void json_run(struct plim_jsonw *w, const struct plim_tune_view *v,
                     const struct plim_tune_run *run)
{
    plim_jsonw_object(w);
    plim_json_replay_run(w, v->requests, &run->setup, &run->result, run->conf);
    plim_jsonw_kv_bool(w, "fits", plim_tune_run_fits(run));
    if (run->need > 0) {
        plim_jsonw_kv_u64(w, "needs_bytes", run->need);
    }
    plim_jsonw_end(w);
}

static void json_bound(struct plim_jsonw *w, const struct plim_bound *b)
{
    plim_jsonw_key(w, "bound");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "live_bytes", b->live);
    plim_jsonw_kv_u64(w, "packed_bytes", b->packed_all);
    plim_jsonw_kv_u64(w, "packed_by_stream_bytes", b->packed);
    plim_jsonw_kv_u64(w, "lanes", b->lanes);
    plim_jsonw_end(w);
}

static void json_recommended(struct plim_jsonw *w, const struct plim_tune *t)
{
    plim_jsonw_key(w, "recommended");
    if (t->recommended == PLIM_NO_ID) {
        plim_jsonw_null(w);
        return;
    }
    const struct plim_tune_run *run = &t->runs.items[t->recommended];
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "conf", run->conf);
    plim_jsonw_kv_u64(w, "run", t->recommended);
    if (run->setup.capacity > 0) {
        plim_jsonw_kv_u64(w, "capacity_bytes", run->setup.capacity);
    }
    if (t->reason) {
        plim_jsonw_kv_text(w, "reason", t->reason);
    }
    if (t->risk) {
        plim_jsonw_kv_text(w, "risk", t->risk);
    }
    if (t->applies_to) {
        plim_jsonw_kv_text(w, "applies_to", t->applies_to);
    }
    plim_jsonw_end(w);
}

static void json_excluded(struct plim_jsonw *w, const struct plim_tune *t)
{
    plim_jsonw_key(w, "excluded");
    plim_jsonw_array(w);
    plim_vec_foreach (x, &t->excluded) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "what", x->what);
        plim_jsonw_kv_text(w, "why", x->why);
        plim_jsonw_kv_text(w, "versions", x->versions);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

void plim_json_tune(struct plim_jsonw *w, const struct plim_tune_view *v)
{
    const struct plim_tune *t = v->tune;
    char version[16];
    snprintf(version, sizeof version, "%u.%u", v->options->version.major,
             v->options->version.minor);
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.tune/1");
    plim_jsonw_kv_text(w, "torch_version", version);
    plim_jsonw_kv_text(w, "capacity_how", v->capacity_by);
    plim_jsonw_kv_text(w, "vary", v->options->vary);
    plim_jsonw_kv_text(w, "summary", t->summary);
    json_recommended(w, t);
    json_bound(w, &t->bound);
    if (t->has_moving) {
        plim_jsonw_kv_text(w, "plimsoll_mode",
                           plim_engine_mode_text(t->moving.setup.moving->rounding.mode));
        plim_jsonw_key(w, "plimsoll_allocator");
        json_run(w, v, &t->moving);
    }
    if (t->recorded != PLIM_NO_ID) {
        plim_jsonw_kv_u64(w, "recorded_run", t->recorded);
    }
    plim_jsonw_key(w, "runs");
    plim_jsonw_array(w);
    plim_vec_foreach (run, &t->runs) {
        json_run(w, v, run);
    }
    plim_jsonw_end(w);
    json_excluded(w, t);
    plim_json_doubts(w, v->requests);
    plim_jsonw_end(w);
}
