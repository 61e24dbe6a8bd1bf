/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How well the detector does on made-up histories: the tables of docs/design/detection.md.
 *
 *   trial [--seeds N] [--days D] [--period S] [--kind K] [--verbose]
 *
 * Leaks run until a request fails or the days are over; healthy histories run for the days. Beside the
 * detector two rules that people use run on the same samples:
 *   threshold    more than 90 % of the device is used, for ten minutes
 *   predict      predict_linear(used[1h], 4 h) > total, for ten minutes, on samples of 15 s (a Prometheus
 *                alert on a gauge)
 */

#include "detect/detect.h"
#include "detect/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0

/* ---- the peers ---- */

#define RING 240u /* an hour of 15 s */

struct peer {
    double used[RING];
    unsigned n, next;
    double next_s;
    double since[2]; /* seconds since when the rule holds; < 0: it does not */
    double first[2]; /* seconds of the first alert; 0: none */
    unsigned alerts[2];
    bool alerting[2];
};

static double predicted(const struct peer *p, double ahead)
{
    double st = 0, sy = 0, stt = 0, sty = 0, n = p->n;
    for (unsigned i = 0; i < p->n; i++) {
        double t = 15.0 * i - 15.0 * (n - 1), y = p->used[(p->next + RING - p->n + i) % RING];
        st += t;
        sy += y;
        stt += t * t;
        sty += t * y;
    }
    double slope = (n * sty - st * sy) / (n * stt - st * st);
    return (sy - slope * st) / n + slope * ahead;
}

static void peer_step(struct peer *p, double now, double used, double total)
{
    bool holds[2];
    if (now < p->next_s) {
        return;
    }
    p->next_s = now + 15;
    p->used[p->next] = used;
    p->next = (p->next + 1) % RING;
    p->n += p->n < RING;
    holds[0] = used > 0.9 * total;
    holds[1] = p->n > 20 && predicted(p, 4 * 3600) > total;
    for (int r = 0; r < 2; r++) {
        p->since[r] = !holds[r] ? -1 : p->since[r] < 0 ? now : p->since[r];
        bool alert = holds[r] && now - p->since[r] >= 600;
        if (alert && !p->alerting[r]) {
            p->alerts[r]++;
            p->first[r] = p->first[r] > 0 ? p->first[r] : now;
        }
        p->alerting[r] = alert;
    }
}

/* ---- one history ---- */

#define HOURLY 800u

struct outcome {
    struct gen_truth truth;
    double hours;
    double found_s; /* of the first finding of the true class; 0: none */
    unsigned wrong; /* findings of classes that are not true */
    unsigned by_class[PLIM_FINDING_CLASSES];
    struct plim_estimate left[HOURLY]; /* of the true finding, at every ten minutes */
    struct peer peer;
};

static bool is_true(const struct gen_truth *truth, enum gen_view view, const struct plim_finding *f,
                    double now, double used_ratio)
{
    if (f->class == PLIM_FINDING_CAPACITY) {
        return used_ratio > 0.9;
    }
    if (f->class == PLIM_FINDING_CACHE_GROWTH || f->class == PLIM_FINDING_OOM) {
        return true; /* it is told as what it is, and as a notice */
    }
    bool right = (int)f->class == truth->class ||
                 (truth->class == PLIM_FINDING_FRAGMENTATION && f->class == PLIM_FINDING_LEAK &&
                  view >= GEN_VIEW_PROCESS) ||
                 (truth->class == PLIM_FINDING_EXTERNAL && f->class == PLIM_FINDING_LEAK &&
                  f->subject.pid != 1000);
    return right && now >= truth->onset_s;
}

static void look(struct outcome *out, const struct gen_options *o, struct plim_detector *d,
                 double now, double used_ratio, uint64_t *seen, bool verbose)
{
    size_t n;
    const struct plim_finding *f = plim_detector_findings(d, &n);
    for (size_t i = 0; i < n; i++) {
        bool right = is_true(&out->truth, o->view, &f[i], now, used_ratio);
        if (f[i].id > *seen) {
            *seen = f[i].id;
            out->by_class[f[i].class]++;
            out->wrong += !right;
            bool found = right && (int)f[i].class != PLIM_FINDING_CAPACITY &&
                         f[i].class != PLIM_FINDING_CACHE_GROWTH;
            if (found && out->found_s == 0) { /* NOLINT */
                out->found_s = now;
            }
            if (verbose) {
                printf("    %7.2f h %s %s: %s\n%s\n", now / 3600, right ? "right" : "WRONG",
                       plim_finding_class_text(f[i].class), f[i].summary, f[i].evidence);
            }
        }
        unsigned slot = (unsigned)(now / 600);
        if (f[i].active && right && f[i].class != PLIM_FINDING_CAPACITY && slot < HOURLY) {
            out->left[slot] = f[i].seconds_left;
        }
    }
}

static void run(const struct gen_options *o, double days, struct outcome *out, bool verbose)
{
    struct gen *g = gen_new(o);
    struct plim_observation ob = {0};
    struct plim_detector *d;
    uint64_t seen = 0;
    bool going = true;
    if (plim_detector_new(NULL, &d, NULL) != PLIM_OK) {
        abort();
    }
    *out = (struct outcome){.truth = gen_truth(g), .peer = {.since = {-1, -1}}};
    while (going && gen_now(g) < days * 86400) {
        going = gen_next(g, &ob);
        if (plim_detector_step(d, &ob, NULL) != PLIM_OK) {
            abort();
        }
        const struct plim_device_sample *s = ob.sample.devices.items;
        double total = (double)s->figure[PLIM_FIGURE_TOTAL];
        double used = total - (double)s->figure[PLIM_FIGURE_FREE];
        look(out, o, d, gen_now(g), used / total, &seen, verbose);
        peer_step(&out->peer, gen_now(g), used, total);
    }
    out->truth = gen_truth(g);
    out->hours = gen_now(g) / 3600;
    plim_detector_free(d);
    gen_free(g);
    plim_vec_fini(&ob.sample.devices);
    plim_vec_fini(&ob.sample.uses);
    plim_vec_fini(&ob.sample.processes);
    plim_vec_fini(&ob.allocators);
    plim_vec_fini(&ob.engines);
}

/* ---- tables ---- */

struct tally {
    unsigned histories, found, within, wrong, alerts[2], caught[2];
    double weeks;
    double delays[4096];
    double errors[4096]; /* relative error of the time left at half of it */
    unsigned n_delays, n_errors, covered, intervals;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *v, unsigned n, double q)
{
    if (n == 0) {
        return NAN;
    }
    qsort(v, n, sizeof(*v), by_value);
    return v[(unsigned)(q * (n - 1) + 0.5)];
}

static void add(struct tally *t, const struct outcome *o)
{
    double warm = fmax(o->truth.onset_s, 600), oom = o->truth.oom_s;
    t->histories++;
    t->weeks += o->hours / 168;
    t->wrong += o->wrong;
    for (int r = 0; r < 2; r++) {
        t->alerts[r] += o->peer.alerts[r];
        t->caught[r] += o->peer.first[r] > 0;
    }
    if (o->found_s > 0 && t->n_delays < 4096) {
        t->found++;
        t->within += o->found_s - warm <= 3600;
        t->delays[t->n_delays++] = o->found_s - warm;
    }
    if (oom > 0) {
        unsigned half = (unsigned)((o->truth.onset_s + (oom - o->truth.onset_s) / 2) / 600);
        for (unsigned i = 1; i < oom / 600 && i < HOURLY; i++) {
            const struct plim_estimate *e = &o->left[i];
            double left = oom - i * 600.0;
            if (e->valid && i % 6 == 0) {
                t->intervals++;
                t->covered += left >= e->low && left <= e->high;
            }
            if (e->valid && i == half && t->n_errors < 4096) {
                t->errors[t->n_errors++] = fabs(e->value - left) / left;
            }
        }
    }
}

static void print(const char *name, struct tally *t)
{
    double n = t->wrong;
    /* 95 % of a Poisson rate: Wilson and Hilferty's approximation of the chi-squared quantiles. */
    double low = n > 0 ? n * pow(1 - 1 / (9 * n) - 1.96 / (3 * sqrt(n)), 3) : 0;
    double high = (n + 1) * pow(1 - 1 / (9 * (n + 1)) + 1.96 / (3 * sqrt(n + 1)), 3);
    printf("| %-38s | %4u | %4u | %4u | %7.0f | %4u | %5.2f (%.2f-%.2f) | %5.0f | %u/%u | %u/%u | "
           "%u/%u |\n",
           name, t->histories, t->found, t->within, quantile(t->delays, t->n_delays, 0.5) / 60,
           t->wrong, n / t->weeks, low / t->weeks, high / t->weeks,
           100 * quantile(t->errors, t->n_errors, 0.5), t->covered, t->intervals, t->caught[0],
           t->alerts[0], t->caught[1], t->alerts[1]);
}

static double option(int argc, char **argv, const char *name, double otherwise)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return strtod(argv[i + 1], NULL);
        }
    }
    return otherwise;
}

static bool shown_in(enum gen_kind kind, enum gen_view view)
{
    switch (kind) {
    case GEN_FRAGMENTATION:
    case GEN_OUTSIDE:
    case GEN_SPILL:
        return view <= GEN_VIEW_ALLOCATOR;
    case GEN_RESIDUE:
        return view == GEN_VIEW_ENGINE;
    case GEN_CROWD:
        return view <= GEN_VIEW_PROCESS;
    default:
        return true;
    }
}

int main(int argc, char **argv)
{
    static const double rates[] = {10, 30, 100, 300, 1000};
    unsigned seeds = (unsigned)option(argc, argv, "--seeds", 2);
    unsigned first = (unsigned)option(argc, argv, "--first", 1);
    double days = option(argc, argv, "--days", 7), period = option(argc, argv, "--period", 10);
    int only = (int)option(argc, argv, "--kind", -1);
    int only_view = (int)option(argc, argv, "--view", -1);
    double only_rate = option(argc, argv, "--rate", 0);
    bool verbose = option(argc, argv, "--verbose", 0) > 0;
    struct outcome *o = malloc(sizeof(*o));
    struct tally *t = malloc(sizeof(*t));
    printf("| history | n | found | within 1 h | median min | wrong | a week | left %% | covered | "
           "threshold | predict |\n");
    for (int kind = 0; kind < GEN_KINDS; kind++) {
        for (int view = 0; view < GEN_VIEWS; view++) {
            if ((only >= 0 && only != kind) || (only_view >= 0 && only_view != view) ||
                !shown_in((enum gen_kind)kind, (enum gen_view)view)) {
                continue;
            }
            bool grows = kind <= GEN_CROWD;
            for (unsigned r = 0; r < (grows ? 5 : 1); r++) {
                char name[96];
                if (grows && only_rate > 0 && only_rate != rates[r]) { /* NOLINT */
                    continue;
                }
                memset(t, 0, sizeof(*t));
                for (unsigned s = first; s < first + seeds; s++) {
                    struct gen_options options = {(enum gen_kind)kind, (enum gen_view)view,
                                                  rates[r] * 1e6, s, period};
                    if (verbose) {
                        printf("  %s, %s, seed %u, %.0f MB/h\n", gen_kind_text(options.kind),
                               gen_view_text(options.view), s, rates[r]);
                    }
                    run(&options, grows ? fmax(days, 2) : days, o, verbose);
                    if (verbose) {
                        printf("    onset %.2f h, end %.2f h, oom %.2f h\n",
                               o->truth.onset_s / 3600, o->hours, o->truth.oom_s / 3600);
                    }
                    add(t, o);
                }
                (void)snprintf(name, sizeof(name), grows ? "%s, %s, %.0f MB/h" : "%s, %s",
                               gen_kind_text((enum gen_kind)kind),
                               gen_view_text((enum gen_view)view), rates[r]);
                print(name, t);
                fflush(stdout);
            }
        }
    }
    free(o);
    free(t);
    return 0;
}
