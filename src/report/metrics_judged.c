/* SPDX-License-Identifier: Apache-2.0 */

/* Rows of metrics: what is judged, and what the monitor says of itself. See metrics.h. */

#include "report/metrics.h"

#include "base/num.h"

/* ---- findings ---- */

/* The rows of an estimate and its bounds. @begin: begins a row. */
static void bounds(struct plim__scrape *x, const struct plim_estimate *e,
                   bool (*begin)(struct plim__scrape *x, const void *about), const void *about)
{
    static const char *const names[] = {"estimate", "low", "high"};
    const double values[] = {e->value, e->low, e->high};
    for (unsigned i = 0; e->valid && i < PLIM_COUNT_OF(names); i++) {
        if (begin(x, about)) {
            plim__label(x, "bound", names[i]);
            plim__value_real(x, values[i]);
        }
    }
}

static bool device_row(struct plim__scrape *x, const void *about)
{
    if (!plim__row(x)) {
        return false;
    }
    plim__device_label(x, *(const uint32_t *)about);
    return true;
}

void plim__rows_device_left(struct plim__scrape *x)
{
    for (uint32_t i = 0; x->state->left != NULL && i < x->state->now->sample.devices.n; i++) {
        bounds(x, &x->state->left[i], device_row, &i);
    }
}

static bool same_row(const struct plim_finding *a, const struct plim_finding *b)
{
    return a->active && a->class == b->class && a->severity == b->severity &&
           a->subject.pid == b->subject.pid &&
           strcmp(a->subject.device_uuid, b->subject.device_uuid) == 0;
}

/* Active, and not said already: two findings of one class, process and device are one row. */
static bool has_row(const struct plim_state *s, size_t i)
{
    bool said = !s->findings[i].active;
    for (size_t k = 0; !said && k < i; k++) {
        said = same_row(&s->findings[k], &s->findings[i]);
    }
    return !said;
}

static bool finding_row(struct plim__scrape *x, const void *about)
{
    const struct plim_finding *f = about;
    if (!plim__row(x)) {
        return false;
    }
    plim__label(x, "class", plim_finding_class_text(f->class));
    plim__label(x, "severity", plim_severity_text(f->severity));
    plim__label(x, "uuid", f->subject.device_uuid);
    if (f->subject.pid != 0) {
        plim__label_u64(x, "pid", f->subject.pid);
        plim__label(x, "process", f->subject.process);
    }
    return true;
}

void plim__rows_finding_active(struct plim__scrape *x)
{
    for (size_t i = 0; i < x->state->n_findings; i++) {
        if (has_row(x->state, i) && finding_row(x, &x->state->findings[i])) {
            plim__value(x, 1);
        }
    }
}

void plim__rows_finding_figure(struct plim__scrape *x)
{
    for (size_t i = 0; i < x->state->n_findings; i++) {
        const struct plim_finding *f = &x->state->findings[i];
        if (!has_row(x->state, i)) {
            continue;
        }
        if (x->metric->arg >= 2) {
            bounds(x, x->metric->arg == 2 ? &f->slope : &f->seconds_left, finding_row, f);
        } else if (finding_row(x, f)) {
            if (x->metric->arg == 0) {
                plim__value_real(x, f->confidence);
            } else {
                plim__value(x, f->bytes);
            }
        }
    }
}

void plim__rows_happened(struct plim__scrape *x)
{
    static const char *const kinds[] = {
#define PLIM__X(name, text) text,
        PLIM_HAPPENING_MAP(PLIM__X)
#undef PLIM__X
    };
    for (unsigned i = 0; x->state->stats != NULL && i < PLIM_HAPPENING_KINDS; i++) {
        if (plim__row(x)) {
            plim__label(x, "kind", kinds[i]);
            plim__value(x, x->state->stats->happened[i]);
        }
    }
}

/* ---- the monitor ---- */

/* Nanoseconds as seconds, exact to the microsecond: a double has 53 bits. */
static double seconds(uint64_t ns)
{
    return (double)(ns / 1000) / 1e6;
}

void plim__rows_monitor(struct plim__scrape *x)
{
    const struct plim_collect_stats *stats = x->state->stats;
    unsigned which = x->metric->arg;
    if ((which == 4 ? x->state->started_ns == 0 : stats == NULL) || !plim__row(x)) {
        return;
    }
    switch (which) {
    case 0:
        plim__value(x, stats->taken);
        break;
    case 1:
        plim__value_real(x, seconds(x->state->now->sample.time_ns));
        break;
    case 2:
        plim__value_real(x, seconds(stats->took_ns));
        break;
    case 3:
        plim__value(x, stats->devices_hung);
        break;
    default:
        plim__value_real(x, seconds(x->state->started_ns));
        break;
    }
}

void plim__rows_source(struct plim__scrape *x)
{
    const struct plim_collect_stats *stats = x->state->stats;
    for (size_t i = 0; stats != NULL && i < stats->n_observers; i++) {
        if (plim__row(x)) {
            plim__label(x, "source", stats->observers[i].name);
            plim__value(x, x->metric->arg == 0 ? stats->observers[i].errors
                                               : stats->observers[i].took_ns);
        }
    }
}

void plim__rows_health(struct plim__scrape *x)
{
    uint64_t value;
    if (x->state->health != NULL &&
        plim_health_get(x->state->health, (enum plim_health_figure)x->metric->arg, &value) &&
        plim__row(x)) {
        plim__value(x, value);
    }
}

/* The last metric: all others are counted by now. */
void plim__rows_dropped(struct plim__scrape *x)
{
    if (plim__row(x)) {
        plim__value(x, x->dropped);
    }
}
