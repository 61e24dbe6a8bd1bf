/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The state as text for a terminal. See status.h.
 *
 * The bar of a device is its ledger (observe/observation.h), in the order of its parts. Every part
 * that is not empty gets a column at least.
 */

#include "report/status.h"

#include "base/bytes.h"
#include "base/num.h"

#include <stdio.h>
#include <time.h>

#define BAR_LEAST 20u
#define BAR_MOST  100u
#define ROWS_MOST 30u /* processes of a device; the rest is one line */

/* How a part of the ledger looks; FREE is what is left of the bar. */
static const struct {
    const char *sign, *color, *meaning;
} parts[PLIM_LEDGER_PARTS] = {
    [PLIM_LEDGER_LIVE] = {"#", "\033[32m", "allocated"},
    [PLIM_LEDGER_STRANDED] = {"!", "\033[31m", "stranded"},
    [PLIM_LEDGER_RELEASABLE] = {"=", "\033[33m", "other slack"},
    [PLIM_LEDGER_OUTSIDE] = {"+", "\033[35m", "outside the allocator"},
    [PLIM_LEDGER_OTHERS] = {"%", "\033[36m", "of processes that tell nothing more"},
    [PLIM_LEDGER_UNKNOWN] = {"?", "\033[31m", "of nobody listed"},
    [PLIM_LEDGER_RESERVED] = {"x", "\033[90m", "reserved by the driver"},
    [PLIM_LEDGER_FREE] = {".", "", "free"},
};

/* Text of others, without control characters. */
static void clean(struct plim_buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        plim_buf_char(out, (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
    }
}

static void span(struct plim_buf *out, double seconds)
{
    if (seconds < 90) {
        plim_buf_printf(out, "%.0f s", seconds);
    } else if (seconds < 90 * 60.0) {
        plim_buf_printf(out, "%.0f min", seconds / 60);
    } else if (seconds < 36 * 3600.0) {
        plim_buf_printf(out, "%.1f h", seconds / 3600);
    } else {
        plim_buf_printf(out, "%.0f days", seconds / 86400);
    }
}

static void left(struct plim_buf *out, const char *what, const struct plim_estimate *e)
{
    if (e->valid) {
        plim_buf_printf(out, "   %s in ", what);
        span(out, e->value);
        plim_buf_text(out, " (");
        span(out, e->low);
        plim_buf_text(out, " to ");
        span(out, e->high);
        plim_buf_text(out, ")\n");
    }
}

/* ---- devices ---- */

static void bar(struct plim_buf *out, const uint64_t bytes[PLIM_LEDGER_PARTS], uint64_t total,
                const struct plim_status_style *style)
{
    size_t columns = style->width > 8 + BAR_LEAST ? style->width - 8 : BAR_LEAST, used = 0;
    columns = columns > BAR_MOST ? BAR_MOST : columns;
    plim_buf_text(out, "   [");
    for (unsigned i = 0; i < PLIM_LEDGER_PARTS; i++) {
        bool free = i == PLIM_LEDGER_FREE;
        size_t n = total > 0 ? (size_t)((double)bytes[i] / (double)total * (double)columns) : 0;
        n = bytes[i] > 0 && n == 0 ? 1 : n;
        n = free ? columns - used : n;
        n = n > columns - used ? columns - used : n;
        used += n;
        if (n > 0) {
            plim_buf_text(out, style->color ? parts[i].color : "");
            plim_buf_repeat(out, parts[i].sign, n);
            plim_buf_text(out, style->color ? "\033[0m" : "");
        }
    }
    plim_buf_text(out, "]\n");
}

static void sensors(struct plim_buf *out, const struct plim_device_sample *d)
{
    if (plim_has_figure(d, PLIM_FIGURE_BUSY)) {
        plim_buf_printf(out, "  busy %u %%", (unsigned)d->figure[PLIM_FIGURE_BUSY]);
    }
    if (plim_has_figure(d, PLIM_FIGURE_TEMPERATURE)) {
        plim_buf_printf(out, "  %u \xc2\xb0\x43", (unsigned)d->figure[PLIM_FIGURE_TEMPERATURE]);
    }
    if (plim_has_figure(d, PLIM_FIGURE_POWER)) {
        plim_buf_printf(out, "  %u W", (unsigned)(d->figure[PLIM_FIGURE_POWER] / 1000));
    }
    if (d->state != PLIM_DEVICE_OK) {
        plim_buf_printf(out, "  %s", plim_device_state_text(d->state));
    }
    plim_buf_text(out, d->odd ? "  (its driver's figures contradict each other)\n" : "\n");
}

static void memory(struct plim_buf *out, const struct plim_device_sample *d)
{
    char text[PLIM_BYTES_TEXT];
    if (!plim_has_figure(d, PLIM_FIGURE_USED)) {
        plim_buf_text(out, "   its memory is not known\n");
        return;
    }
    plim_buf_printf(out, "   %s used", plim_bytes_format(text, d->figure[PLIM_FIGURE_USED]));
    if (plim_has_figure(d, PLIM_FIGURE_FREE)) {
        plim_buf_printf(out, ", %s free", plim_bytes_format(text, d->figure[PLIM_FIGURE_FREE]));
    }
    if (plim_has_figure(d, PLIM_FIGURE_RESERVED)) {
        plim_buf_printf(out, ", %s reserved",
                        plim_bytes_format(text, d->figure[PLIM_FIGURE_RESERVED]));
    }
    if (plim_has_figure(d, PLIM_FIGURE_TOTAL)) {
        plim_buf_printf(out, " of %s", plim_bytes_format(text, d->figure[PLIM_FIGURE_TOTAL]));
    }
    plim_buf_text(out, d->unified ? ", shared with the host\n" : "\n");
}

static void one_part(struct plim_buf *out, const char *name, uint64_t bytes, bool *any)
{
    char text[PLIM_BYTES_TEXT];
    if (bytes > 0) {
        plim_buf_printf(out, "%s%s %s", *any ? ", " : "  ", name, plim_bytes_format(text, bytes));
        *any = true;
    }
}

static void process(struct plim_buf *out, const struct plim_state *s,
                    const struct plim_process_use *use)
{
    char text[PLIM_BYTES_TEXT];
    const struct plim_process_facts *p = plim_sample_process(&s->now->sample, use->pid);
    struct plim_use_books b = plim_observation_books(s->now, use);
    bool any = false;
    plim_buf_printf(out, "   %8u ", use->pid);
    struct plim_buf name = {0};
    clean(&name, p != NULL && p->name[0] != '\0' ? p->name : "-");
    plim_buf_printf(out, "%-15s %10s", name.p != NULL ? name.p : "",
                    use->bytes_valid ? plim_bytes_format(text, use->bytes) : "?");
    plim_buf_fini(&name);
    if (b.told) {
        one_part(out, "allocated", b.allocated, &any);
        one_part(out, "slack", b.slack, &any);
        one_part(out, "outside", b.outside, &any);
        one_part(out, "unknown", b.unknown, &any);
    }
    if (p != NULL && p->unit[0] != '\0') {
        plim_buf_text(out, "  ");
        clean(out, p->unit);
    }
    plim_buf_char(out, '\n');
}

static void device(struct plim_buf *out, const struct plim_state *s, uint32_t index,
                   const struct plim_status_style *style)
{
    const struct plim_device_sample *d = &s->now->sample.devices.items[index];
    uint64_t bytes[PLIM_LEDGER_PARTS];
    size_t shown = 0, more = 0;
    plim_buf_printf(out, "\n%u  ", index);
    clean(out, d->name[0] != '\0' ? d->name : plim_vendor_text(d->vendor));
    sensors(out, d);
    memory(out, d);
    if (plim_has_figure(d, PLIM_FIGURE_TOTAL) && plim_observation_ledger(s->now, index, bytes)) {
        bar(out, bytes, d->figure[PLIM_FIGURE_TOTAL], style);
    }
    if (s->left != NULL) {
        left(out, "full", &s->left[index]);
    }
    plim_vec_foreach (use, &s->now->sample.uses) {
        if (use->device == index && shown++ < ROWS_MOST) {
            process(out, s, use);
        } else {
            more += use->device == index;
        }
    }
    if (more > 0) {
        plim_buf_printf(out, "   and %zu more\n", more);
    }
}

static void legend(struct plim_buf *out)
{
    plim_buf_text(out, "\n");
    for (unsigned i = 0; i < PLIM_LEDGER_PARTS; i++) {
        plim_buf_printf(out, "%s%s %s", i % 4 == 0 ? "   " : "  ", parts[i].sign, parts[i].meaning);
        plim_buf_text(out, i % 4 == 3 ? "\n" : "");
    }
}

/* ---- engines and findings ---- */

static void engines(struct plim_buf *out, const struct plim_state *s)
{
    static const char *const kinds[] = {
#define PLIM__X(name, text) text,
        PLIM_ENGINE_KIND_MAP(PLIM__X)
#undef PLIM__X
    };
    plim_buf_text(out, s->now->engines.n > 0 ? "\nengines\n" : "");
    plim_vec_foreach (e, &s->now->engines) {
        plim_buf_text(out, "   ");
        clean(out, e->name);
        plim_buf_printf(out, "  %s%s", kinds[e->kind], e->up ? "" : "  does not answer");
        if ((e->valid >> PLIM_ENGINE_FIGURE_RUNNING & 1) != 0) {
            plim_buf_printf(out, "  running %.0f", e->figure[PLIM_ENGINE_FIGURE_RUNNING]);
        }
        if ((e->valid >> PLIM_ENGINE_FIGURE_WAITING & 1) != 0) {
            plim_buf_printf(out, "  waiting %.0f", e->figure[PLIM_ENGINE_FIGURE_WAITING]);
        }
        if ((e->valid >> PLIM_ENGINE_FIGURE_KV_USAGE & 1) != 0) {
            plim_buf_printf(out, "  KV %.0f %%", e->figure[PLIM_ENGINE_FIGURE_KV_USAGE] * 100);
        }
        plim_buf_char(out, '\n');
    }
}

static void findings(struct plim_buf *out, const struct plim_state *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n_findings; i++) {
        const struct plim_finding *f = &s->findings[i];
        if (!f->active) {
            continue;
        }
        plim_buf_text(out, any ? "" : "\nfindings\n");
        any = true;
        plim_buf_printf(out, "   %s, %s: ", plim_severity_text(f->severity),
                        plim_finding_class_text(f->class));
        clean(out, f->summary);
        plim_buf_char(out, '\n');
        left(out, "   a request fails", &f->seconds_left);
        if (f->next_step[0] != '\0') {
            plim_buf_text(out, "      ");
            clean(out, f->next_step);
            plim_buf_char(out, '\n');
        }
    }
    if (!any && s->watched) {
        plim_buf_text(out, "\nno findings\n");
    }
}

void plim_status_view(struct plim_buf *out, const struct plim_state *s,
                      const struct plim_status_style *style)
{
    char text[PLIM_BYTES_TEXT];
    const struct plim_sample *sample = &s->now->sample;
    time_t at = (time_t)(sample->time_ns / UINT64_C(1000000000));
    struct tm utc;
    char when[32] = "";
    (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&at, &utc));
    clean(out, s->host != NULL ? s->host : "");
    plim_buf_printf(out, "  %s", when);
    if (sample->host_total != 0) {
        plim_buf_printf(out, "  host memory %s free",
                        plim_bytes_format(text, sample->host_available));
        plim_buf_printf(out, " of %s", plim_bytes_format(text, sample->host_total));
    }
    plim_buf_text(out, sample->devices.n > 0 ? "\n" : "\n\nno devices\n");
    for (uint32_t i = 0; i < sample->devices.n; i++) {
        device(out, s, i, style);
    }
    if (sample->devices.n > 0) {
        legend(out);
    }
    engines(out, s);
    findings(out, s);
}
