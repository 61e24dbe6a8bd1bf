/* SPDX-License-Identifier: Apache-2.0 */

/* The panels above the list of processes, and the lines around them. */

#include "top/layout.h"

#include "base/bytes.h"
#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#define LIST_LEAST 3 /* rows that panels leave for the list of processes, its head included */

static const struct {
    const char *text;
    enum plim_top_style style;
    uint32_t block;
    char plain;
} parts[] = {
#define PLIM__X(name, text, style, block, plain) {text, PLIM_TOP_##style, block, plain},
    PLIM_TOP_PART_MAP(PLIM__X)
#undef PLIM__X
};

/* ---- small things ---- */

char *plim__top_time(char text[32], double seconds)
{
    double s = fmin(fmax(seconds, 0), 1e9);
    if (s < 100) {
        (void)snprintf(text, 32, "%.0f s", s);
    } else if (s < 6000) {
        (void)snprintf(text, 32, "%.0f min", s / 60);
    } else if (s < 172800) {
        double minutes = floor(s / 60);
        (void)snprintf(text, 32, "%.0f h %02.0f min", floor(minutes / 60), fmod(minutes, 60));
    } else {
        (void)snprintf(text, 32, "%.0f days", s / 86400);
    }
    return text;
}

void plim__top_trend(struct plim_top_canvas *c, unsigned x, unsigned y, unsigned width,
                     const struct plim_top_model *m, size_t trend, uint64_t most)
{
    static const char plain[] = "_.,-~=+*";
    const struct plim_top_trend *t = trend < m->trends.n ? &m->trends.items[trend] : NULL;
    size_t n = t != NULL ? plim_min_u64(t->n, width) : 0;
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < n; i++) {
        low = plim_min_u64(low, t->value[t->n - n + i]);
        high = plim_max_u64(high, t->value[t->n - n + i]);
    }
    /* On the trend's own scale a change of a hundredth is a flat line, so that noise is none. */
    uint64_t from = most > 0 ? 0 : low, span = most > 0 ? most : high - (n > 0 ? low : 0);
    if (most == 0 && span < high / 100) {
        span = high / 100;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t above = t->value[t->n - n + i] - from;
        unsigned level = span > 0 ? (unsigned)fmin((double)above / (double)span * 7.99, 7) : 0;
        plim_top_cell(c, x + width - (unsigned)n + (unsigned)i, y, PLIM_TOP_TREND, 0x2581 + level,
                      plain[level]);
    }
}

/* ---- title ---- */

static void draw_title(const struct plim_top_model *m, const struct plim_top_view *v,
                       struct plim_top_canvas *c)
{
    const struct plim_state *s = m->state;
    char now[16] = "", used[PLIM_BYTES_TEXT], total[PLIM_BYTES_TEXT];
    time_t seconds = (time_t)(s->now->sample.time_ns / UINT64_C(1000000000));
    struct tm local;
    uint64_t sum_used = 0, sum_total = 0;
    plim_vec_foreach (d, &m->devices) {
        bool whole = d->known && d->sample->parent == PLIM_NO_PARENT;
        sum_used += whole ? d->used : 0;
        sum_total += whole ? d->total : 0;
    }
    if (localtime_r(&seconds, &local) != NULL) {
        (void)strftime(now, sizeof(now), "%H:%M:%S", &local);
    }
    unsigned x = plim_top_putf(c, 0, 0, PLIM_TOP_TITLE, " plimsoll top  %s  %s", s->host, now);
    x = plim_top_putf(c, x + 2, 0, PLIM_TOP_TITLE, "%zu device%s  %zu process%s", m->devices.n,
                      m->devices.n == 1 ? "" : "s", m->processes.n,
                      m->processes.n == 1 ? "" : "es");
    if (sum_total > 0) {
        x = plim_top_putf(c, x + 2, 0, PLIM_TOP_TITLE, "%s of %s used",
                          plim_bytes_format(used, sum_used), plim_bytes_format(total, sum_total));
    }
    if (v->paused) {
        plim_top_put(c, x + 2, 0, c->width, PLIM_TOP_TITLE, "PAUSED");
    } else if (!v->batch) {
        plim_top_putf(c, x + 2, 0, PLIM_TOP_TITLE, "every %.3g s", (double)v->interval_ns / 1e9);
    }
    plim_top_style_row(c, 0, PLIM_TOP_TITLE);
}

/* ---- devices ---- */

static enum plim_top_style fullness(const struct plim_top_device *d)
{
    double share = d->total > 0 ? (double)d->used / (double)d->total : 0;
    return share >= 0.95 ? PLIM_TOP_BAD : share >= 0.85 ? PLIM_TOP_WARN : PLIM_TOP_GOOD;
}

static unsigned put_figure(const struct plim_top_device *d, enum plim_figure figure, double scale,
                           const char *unit, struct plim_top_canvas *c, unsigned x, unsigned y)
{
    if (!plim_has_figure(d->sample, figure)) {
        return x;
    }
    return plim_top_putf(c, x + 2, y, PLIM_TOP_DIM, "%.0f%s",
                         (double)d->sample->figure[figure] * scale, unit);
}

static void draw_device_line(const struct plim_top_device *d, uint32_t index,
                             struct plim_top_canvas *c, unsigned y)
{
    char used[PLIM_BYTES_TEXT], total[PLIM_BYTES_TEXT], time[32], low[32], high[32];
    const char *name = d->sample->name[0] ? d->sample->name : plim_vendor_text(d->sample->vendor);
    unsigned x = plim_top_putf(c, d->sample->parent != PLIM_NO_PARENT ? 2 : 0, y, PLIM_TOP_BOLD,
                               "%u %s", index, name);
    if (d->sample->state != PLIM_DEVICE_OK) {
        x = plim_top_putf(c, x + 2, y, PLIM_TOP_BAD, "%s",
                          plim_device_state_text(d->sample->state));
    }
    if (d->known) {
        x = plim_top_putf(c, x + 2, y, fullness(d), "%s of %s  %.0f%%",
                          plim_bytes_format(used, d->used), plim_bytes_format(total, d->total),
                          d->total > 0 ? 100 * (double)d->used / (double)d->total : 0);
    }
    if (d->left != NULL) {
        x = plim_top_putf(c, x + 2, y, d->left->value < 3600 ? PLIM_TOP_BAD : PLIM_TOP_WARN,
                          "full in %s (%s to %s)", plim__top_time(time, d->left->value),
                          plim__top_time(low, d->left->low), plim__top_time(high, d->left->high));
    }
    x = put_figure(d, PLIM_FIGURE_BUSY, 1, "% busy", c, x, y);
    x = put_figure(d, PLIM_FIGURE_TEMPERATURE, 1, c->ascii ? " C" : " °C", c, x, y);
    x = put_figure(d, PLIM_FIGURE_POWER, 1e-3, " W", c, x, y);
    if (plim_has_figure(d->sample, PLIM_FIGURE_XIDS) && d->sample->figure[PLIM_FIGURE_XIDS] > 0) {
        plim_top_putf(c, x + 2, y, PLIM_TOP_BAD, "XID %llu",
                      (unsigned long long)d->sample->figure[PLIM_FIGURE_LAST_XID]);
    }
}

/* Cells for each part, the sum being `width`: what is there at all has a cell, as long as there are some. */
static void share_cells(const struct plim_top_device *d, unsigned width,
                        unsigned cells[PLIM_TOP_PARTS])
{
    uint64_t total = 0, before = 0;
    unsigned at = 0;
    for (unsigned i = 0; i < PLIM_TOP_PARTS; i++) {
        total = plim_add_sat(total, d->part[i]);
    }
    for (unsigned i = 0; i < PLIM_TOP_PARTS; i++) {
        before += d->part[i];
        unsigned end = total > 0 ? (unsigned)lround((double)before / (double)total * width) : 0;
        end += end == at && d->part[i] > total / 500 && at < width;
        cells[i] = end > at ? end - at : 0;
        at += cells[i];
    }
}

static void draw_bar(const struct plim_top_model *m, const struct plim_top_device *d,
                     struct plim_top_canvas *c, unsigned y)
{
    unsigned cells[PLIM_TOP_PARTS], trend = c->width >= 140 ? 20 : 0;
    unsigned width = (unsigned)plim_min_u64(plim_sub_sat(c->width, trend + 6) * 2 / 5, 60);
    unsigned x = plim_top_put(c, 2, y, 1, PLIM_TOP_DIM, "[");
    share_cells(d, width, cells);
    for (unsigned i = 0; i < PLIM_TOP_PARTS; i++) {
        for (unsigned k = 0; k < cells[i]; k++) {
            plim_top_cell(c, x++, y, parts[i].style, parts[i].block, parts[i].plain);
        }
    }
    x = plim_top_put(c, x, y, 1, PLIM_TOP_DIM, "]");
    if (trend > 0) {
        plim__top_trend(c, x + 1, y, trend, m, d->trend, d->total);
        x += trend + 1;
    }
    for (unsigned i = 0; i < PLIM_TOP_PARTS; i++) {
        char size[PLIM_BYTES_TEXT];
        if (d->part[i] > 0) {
            x = plim_top_putf(c, x + 1, y, parts[i].style, "%c", parts[i].plain);
            plim_top_cell(c, x - 1, y, parts[i].style, parts[i].block, parts[i].plain);
            x = plim_top_putf(c, x, y, PLIM_TOP_PLAIN, "%s%s %s", c->ascii ? " " : "",
                              parts[i].text, plim_bytes_format(size, d->part[i]));
        }
    }
}

/* As many devices as there is room for; the rest is said. */
static unsigned draw_devices(const struct plim_top_model *m, struct plim_top_canvas *c, unsigned y,
                             unsigned room)
{
    unsigned lines = m->devices.n * 2 <= room ? 2 : 1;
    size_t n = plim_min_u64(m->devices.n, room / lines);
    if (m->devices.n == 0 && room > 0) {
        plim_top_put(c, 0, y, c->width, PLIM_TOP_WARN,
                     "no device was found (plimsoll doctor says what is missing)");
        return 1;
    }
    if (n < m->devices.n && n > 0) {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        draw_device_line(&m->devices.items[i], (uint32_t)i, c, y++);
        if (lines == 2) {
            if (m->devices.items[i].known) {
                draw_bar(m, &m->devices.items[i], c, y);
            }
            y++;
        }
    }
    if (n < m->devices.n && room > 0) {
        plim_top_putf(c, 0, y, PLIM_TOP_DIM, "and %zu more", m->devices.n - n);
        return (unsigned)n * lines + 1;
    }
    return (unsigned)n * lines;
}

/* ---- findings ---- */

static unsigned draw_findings(const struct plim_top_model *m, struct plim_top_canvas *c, unsigned y,
                              unsigned room)
{
    static const enum plim_top_style styles[] = {PLIM_TOP_PLAIN, PLIM_TOP_WARN, PLIM_TOP_BAD};
    unsigned n = 0;
    for (size_t i = 0; i < m->state->n_findings && n < room; i++) {
        const struct plim_finding *f = &m->state->findings[i];
        if (!f->active) {
            continue;
        }
        unsigned x = plim_top_putf(c, 0, y + n, styles[f->severity], "! %s",
                                   plim_severity_text(f->severity));
        plim_top_putf(c, x + 1, y + n, PLIM_TOP_PLAIN, "%s", f->summary);
        n++;
    }
    return n;
}

/* ---- engines ---- */

static unsigned put_count(const struct plim_engine_now *e, enum plim_engine_figure figure,
                          const char *word, struct plim_top_canvas *c, unsigned x, unsigned y)
{
    if ((e->valid >> figure & 1) == 0) {
        return x;
    }
    return plim_top_putf(c, x + 2, y, PLIM_TOP_PLAIN, "%.0f %s", e->figure[figure], word);
}

static unsigned put_rate(const struct plim_top_model *m, const struct plim_engine_now *e,
                         enum plim_engine_figure figure, const char *word,
                         struct plim_top_canvas *c, unsigned x, unsigned y)
{
    double rate;
    if (!plim_top_rate(m, e, figure, &rate)) {
        return x;
    }
    return plim_top_putf(c, x + 2, y, PLIM_TOP_PLAIN, "%.0f %s/s", rate, word);
}

static void draw_engine(const struct plim_top_model *m, const struct plim_engine_now *e,
                        struct plim_top_canvas *c, unsigned y)
{
    static const char *const components[] = {
#define PLIM__X(name, text) text,
        PLIM_COMPONENT_MAP(PLIM__X)
#undef PLIM__X
    };
    static const char *const kinds[] = {
#define PLIM__X(name, text) text,
        PLIM_ENGINE_KIND_MAP(PLIM__X)
#undef PLIM__X
    };
    unsigned x = plim_top_putf(c, 0, y, PLIM_TOP_BOLD, "%s", e->name);
    x = plim_top_putf(c, x + 1, y, PLIM_TOP_DIM, "%s%s%s%s%s", kinds[e->kind],
                      e->rank[0] && strcmp(e->rank, "0") != 0 ? " rank " : "",
                      e->rank[0] && strcmp(e->rank, "0") != 0 ? e->rank : "",
                      e->model[0] ? " " : "", e->model);
    if (!e->up) {
        plim_top_put(c, x + 2, y, c->width, PLIM_TOP_BAD, "down");
        return;
    }
    if ((e->valid >> PLIM_ENGINE_FIGURE_ASLEEP & 1) != 0 &&
        e->figure[PLIM_ENGINE_FIGURE_ASLEEP] > 0) {
        x = plim_top_put(c, x + 2, y, c->width, PLIM_TOP_WARN, "asleep");
    }
    if ((e->valid >> PLIM_ENGINE_FIGURE_KV_USAGE & 1) != 0) {
        double usage = e->figure[PLIM_ENGINE_FIGURE_KV_USAGE];
        x = plim_top_putf(c, x + 2, y, usage >= 0.95 ? PLIM_TOP_WARN : PLIM_TOP_PLAIN, "KV %.0f%%",
                          usage * 100);
    }
    x = put_count(e, PLIM_ENGINE_FIGURE_RUNNING, "running", c, x, y);
    x = put_count(e, PLIM_ENGINE_FIGURE_WAITING, "waiting", c, x, y);
    x = put_rate(m, e, PLIM_ENGINE_FIGURE_PROMPT_TOKENS, "in", c, x, y);
    x = put_rate(m, e, PLIM_ENGINE_FIGURE_GENERATION_TOKENS, "out", c, x, y);
    x = put_count(e, PLIM_ENGINE_FIGURE_PREEMPTIONS, "preempted", c, x, y);
    for (unsigned i = 0; i < PLIM_COMPONENTS; i++) {
        char size[PLIM_BYTES_TEXT];
        if ((e->component_valid >> i & 1) != 0) {
            x = plim_top_putf(c, x + 2, y, PLIM_TOP_DIM, "%s %s", components[i],
                              plim_bytes_format(size, e->component[i]));
        }
    }
}

static unsigned draw_engines(const struct plim_top_model *m, struct plim_top_canvas *c, unsigned y,
                             unsigned room)
{
    unsigned n = 0;
    plim_vec_foreach (e, &m->state->now->engines) {
        if (n < room) {
            draw_engine(m, e, c, y + n);
            n++;
        }
    }
    return n;
}

/* ---- the last line ---- */

static void draw_last(const struct plim_top_view *v, struct plim_top_canvas *c)
{
    static const struct {
        const char *key, *text;
    } keys[] = {{"F1", "Help"},   {"/", "Filter"},      {"F5", "Tree"},     {"<>", "Sort"},
                {"r", "Reverse"}, {"Enter", "Details"}, {"+-", "Interval"}, {"q", "Quit"}};
    unsigned y = c->height - 1, x = 0;
    if (v->typing) {
        x = plim_top_putf(c, 0, y, PLIM_TOP_BOLD, "Filter: %s", v->filter);
        plim_top_put(c, x, y, 1, PLIM_TOP_SELECTED, " ");
    } else if (v->note != NULL) {
        plim_top_put(c, 0, y, c->width, PLIM_TOP_WARN, v->note);
    } else {
        for (size_t i = 0; i < PLIM_COUNT_OF(keys); i++) {
            x = plim_top_put(c, x, y, c->width, PLIM_TOP_KEY, keys[i].key);
            x = plim_top_put(c, x + 1, y, c->width, PLIM_TOP_PLAIN, keys[i].text) + 2;
        }
        if (v->filter[0] != '\0') {
            plim_top_putf(c, x, y, PLIM_TOP_WARN, "only \"%s\"", v->filter);
        }
    }
}

void plim_top_layout(const struct plim_top_model *m, struct plim_top_view *v,
                     struct plim_top_list *list, struct plim_top_canvas *c)
{
    bool keys = c->height > 1 && !v->batch; /* in the last line */
    unsigned y = 1, end = keys ? c->height - 1 : c->height;
    if (c->height == 0 || c->width == 0) {
        return;
    }
    draw_title(m, v, c);
    for (int panel = 0; panel < 3; panel++) {
        unsigned room = end > y + LIST_LEAST ? end - y - LIST_LEAST : 0;
        unsigned most = panel == 0 ? room : (unsigned)plim_min_u64(room, 8);
        if (panel == 0 && !v->hide_devices) {
            y += draw_devices(m, c, y, most);
        } else if (panel == 1 && !v->hide_findings) {
            y += draw_findings(m, c, y, most);
        } else if (panel == 2 && !v->hide_engines) {
            y += draw_engines(m, c, y, most);
        }
    }
    plim__top_list(m, v, list, c, y, end > y ? end - y : 0);
    if (keys) {
        draw_last(v, c);
    }
    if (v->details) {
        plim__top_details(m, list, c);
    }
    if (v->help) {
        plim__top_help(c);
    }
}
