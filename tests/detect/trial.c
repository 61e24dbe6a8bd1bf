/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How well the detector does on made-up histories: the tables of docs/design/detection.md.
 *
 *   trial [--check 1] [--seeds N] [--first N] [--days D] [--period S] [--kind K] [--view V] [--rate R] [--verbose 1]
 *
 * Leaks run until a request fails or the days are over; healthy histories run for the days. Beside the
 * detector two rules that people use run on the same samples:
 *   threshold    more than 90 % of the device is used, for ten minutes
 *   predict      predict_linear(used[1h], 4 h) > total, for ten minutes, on samples of 15 s (a Prometheus
 *                alert on a gauge)
 */

#include "base/num.h"
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

#define SLOTS 4100u /* of ten minutes: four weeks */

struct outcome {
    struct gen_truth truth;
    double hours;
    double found_s;   /* of the first finding of the true class; 0: none */
    unsigned notices; /* findings of growth of a cache */
    unsigned wrong;   /* findings of classes that are not true */
    unsigned by_class[PLIM_FINDING_CLASSES];
    struct plim_estimate left[SLOTS]; /* of the true finding, at every ten minutes */
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
            out->notices += f[i].class == PLIM_FINDING_CACHE_GROWTH;
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
        if (f[i].active && right && f[i].class != PLIM_FINDING_CAPACITY && slot < SLOTS) {
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

#define RATES  5u
#define ERRORS 4096u

static const double rates[RATES] = {10, 30, 100, 300, 1000}; /* MB an hour */

struct cell {
    unsigned histories, found, within, wrong, notices, caught[2], alerts[2];
    double weeks;
    double delays[64];
    unsigned raised[PLIM_FINDING_CLASSES]; /* histories with such a finding */
};

struct left {
    double errors[ERRORS]; /* relative, at half the remaining life */
    unsigned n, covered, intervals;
};

static struct cell cells[GEN_KINDS][GEN_VIEWS][RATES];
static struct left lefts[GEN_VIEWS];

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

static void add_left(struct left *l, const struct outcome *o)
{
    double oom = o->truth.oom_s;
    unsigned half = (unsigned)((o->truth.onset_s + (oom - o->truth.onset_s) / 2) / 600);
    for (unsigned i = 1; i < oom / 600 && i < SLOTS; i++) {
        const struct plim_estimate *e = &o->left[i];
        double left = oom - i * 600.0;
        if (e->valid && i % 6 == 0) {
            l->intervals++;
            l->covered += left >= e->low && left <= e->high;
        }
        if (e->valid && i == half && l->n < ERRORS) {
            l->errors[l->n++] = fabs(e->value - left) / left;
        }
    }
}

static void add(struct cell *c, const struct outcome *o)
{
    double warm = fmax(o->truth.onset_s, 600); /* the warm-up of the process */
    c->histories++;
    c->weeks += o->hours / 168;
    c->wrong += o->wrong;
    c->notices += o->notices;
    for (int r = 0; r < 2; r++) {
        c->alerts[r] += o->peer.alerts[r];
        c->caught[r] += o->peer.first[r] > 0;
    }
    for (int i = 0; i < PLIM_FINDING_CLASSES; i++) {
        c->raised[i] += o->by_class[i] > 0;
    }
    if (o->found_s > 0 && c->found < PLIM_COUNT_OF(c->delays)) {
        c->within += o->found_s - warm <= 3600;
        c->delays[c->found++] = o->found_s - warm;
    }
}

static bool grows(int kind)
{
    return kind <= GEN_CROWD;
}

static void print_found(void)
{
    printf("\n| growth | told by | 10 MB/h | 30 MB/h | 100 MB/h | 300 MB/h | 1000 MB/h |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int kind = 0; kind <= GEN_SPILL; kind++) {
        for (int view = 0; view < GEN_VIEWS; view++) {
            if (cells[kind][view][2].histories + cells[kind][view][0].histories == 0) {
                continue;
            }
            printf("| %s | %s |", gen_kind_text((enum gen_kind)kind),
                   gen_view_text((enum gen_view)view));
            for (unsigned r = 0; r < (grows(kind) ? RATES : 1); r++) {
                struct cell *c = &cells[kind][view][r];
                printf(" %u/%u, %.1f h |", c->found, c->histories,
                       quantile(c->delays, c->found, 0.5) / 3600);
            }
            printf("\n");
        }
    }
}

/* 95 % interval of a Poisson rate: Wilson and Hilferty's approximation of the chi-squared quantiles. */
static void print_rate(double n, double weeks)
{
    double low = n > 0 ? n * pow(1 - 1 / (9 * n) - 1.96 / (3 * sqrt(n)), 3) : 0;
    double high = (n + 1) * pow(1 - 1 / (9 * (n + 1)) + 1.96 / (3 * sqrt(n + 1)), 3);
    printf("%.0f in %.0f weeks: %.2f a week (%.2f to %.2f)", n, weeks, n / weeks, low / weeks,
           high / weeks);
}

static void print_healthy(void)
{
    double wrong[GEN_VIEWS] = {0}, weeks[GEN_VIEWS] = {0}, peers[2] = {0}, all[2] = {0};
    printf("\n| healthy | engine | allocator | process | device | notices | threshold | predict |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int kind = GEN_FLAT; kind < GEN_KINDS; kind++) {
        unsigned notices = 0, alerts[2] = {0};
        if (!gen_makes((enum gen_kind)kind)) {
            continue;
        }
        printf("| %s |", gen_kind_text((enum gen_kind)kind));
        for (int view = 0; view < GEN_VIEWS; view++) {
            const struct cell *c = &cells[kind][view][0];
            printf(" %u/%.0f |", c->wrong, c->weeks);
            wrong[view] += c->wrong;
            weeks[view] += c->weeks;
            all[0] += c->wrong;
            all[1] += c->weeks;
            notices += c->notices;
            for (int r = 0; r < 2; r++) {
                alerts[r] += c->alerts[r];
                peers[r] += c->alerts[r];
            }
        }
        printf(" %u | %u | %u |\n", notices, alerts[0], alerts[1]);
    }
    printf("\nFalse alarms:\n");
    for (int view = 0; view < GEN_VIEWS; view++) {
        printf("  %-10s ", gen_view_text((enum gen_view)view));
        print_rate(wrong[view], weeks[view]);
        printf("\n  %s", view + 1 < GEN_VIEWS ? "" : "all        ");
    }
    print_rate(all[0], all[1]);
    for (int r = 0; r < 2; r++) {
        printf("\n  %-10s ", r == 0 ? "threshold" : "predict");
        print_rate(peers[r], all[1]);
    }
    printf("\n");
}

static void print_confusion(void)
{
    printf("\n| truth | histories |");
    for (int c = 0; c < PLIM_FINDING_CLASSES; c++) {
        printf(" %s |", plim_finding_class_text((enum plim_finding_class)c));
    }
    printf("\n| --- | --- |");
    for (int c = 0; c < PLIM_FINDING_CLASSES; c++) {
        printf(" --- |");
    }
    for (int kind = 0; kind < GEN_KINDS; kind++) {
        if (!gen_makes((enum gen_kind)kind)) {
            continue;
        }
        unsigned n = 0, raised[PLIM_FINDING_CLASSES] = {0};
        for (int view = 0; view < GEN_VIEWS; view++) {
            for (unsigned r = 0; r < RATES; r++) {
                n += cells[kind][view][r].histories;
                for (int c = 0; c < PLIM_FINDING_CLASSES; c++) {
                    raised[c] += cells[kind][view][r].raised[c];
                }
            }
        }
        printf("\n| %s | %u |", gen_kind_text((enum gen_kind)kind), n);
        for (int c = 0; c < PLIM_FINDING_CLASSES; c++) {
            printf(raised[c] > 0 ? " %u |" : " |", raised[c]);
        }
    }
    printf("\n");
}

static void print_left(void)
{
    printf("\n| told by | leaks that ran out | median error at half of life | within 20 %% | 80 %% "
           "interval covers |\n| --- | --- | --- | --- | --- |\n");
    for (int view = 0; view < GEN_VIEWS; view++) {
        struct left *l = &lefts[view];
        unsigned near = 0;
        for (unsigned i = 0; i < l->n; i++) {
            near += l->errors[i] <= 0.2;
        }
        printf("| %s | %u | %.0f %% | %u of %u | %.0f %% of %u |\n",
               gen_view_text((enum gen_view)view), l->n, 100 * quantile(l->errors, l->n, 0.5), near,
               l->n, 100.0 * l->covered / fmax(l->intervals, 1), l->intervals);
    }
}

/* What must hold even of few histories: leaks beside a pool are found within the first hours, all that
 * leaks fast is found but one at most, and false alarms, which come in the first days of a process, stay
 * few. */
static int check(void)
{
    double wrong = 0, weeks = 0;
    unsigned late = 0, missed = 0;
    for (int view = 0; view < GEN_VIEWS; view++) {
        const struct cell *pool = &cells[GEN_LEAK_POOL][view][2];
        late += pool->found < pool->histories || pool->delays[0] > 3 * 3600;
        for (int kind = 0; kind <= GEN_LEAK_TRAINING && view <= GEN_VIEW_ALLOCATOR; kind++) {
            missed += cells[kind][view][4].found < cells[kind][view][4].histories;
        }
        for (int kind = GEN_FLAT; kind < GEN_KINDS; kind++) {
            wrong += cells[kind][view][0].wrong;
            weeks += cells[kind][view][0].weeks;
        }
    }
    printf("\nlate %u, missed %u, false alarms a week %.2f\n", late, missed, wrong / weeks);
    return late > 0 || missed > 1 || wrong / weeks > 4;
}

/* ---- the command ---- */

static double option(int argc, char **argv, const char *name, double otherwise)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return strtod(argv[i + 1], NULL);
        }
    }
    return otherwise;
}

static bool shown_in(int kind, int view)
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

struct plan {
    unsigned seeds, first;
    double days, period;
    bool verbose;
};

static void run_cell(const struct plan *plan, int kind, int view, unsigned r, struct outcome *o)
{
    for (unsigned s = plan->first; s < plan->first + plan->seeds; s++) {
        struct gen_options options = {(enum gen_kind)kind, (enum gen_view)view, rates[r] * 1e6, s,
                                      plan->period};
        if (plan->verbose) {
            printf("  %s, %s, seed %u, %.0f MB/h\n", gen_kind_text(options.kind),
                   gen_view_text(options.view), s, rates[r]);
        }
        run(&options, grows(kind) ? fmax(plan->days, 2) : plan->days, o, plan->verbose);
        if (plan->verbose) {
            printf("    onset %.2f h, end %.2f h, oom %.2f h\n", o->truth.onset_s / 3600, o->hours,
                   o->truth.oom_s / 3600);
        }
        add(&cells[kind][view][r], o);
        if (o->truth.oom_s > 0 && o->truth.class == PLIM_FINDING_LEAK) {
            add_left(&lefts[view], o);
        }
    }
}

int main(int argc, char **argv)
{
    struct plan plan = {(unsigned)option(argc, argv, "--seeds", 2),
                        (unsigned)option(argc, argv, "--first", 1), option(argc, argv, "--days", 7),
                        option(argc, argv, "--period", 10), option(argc, argv, "--verbose", 0) > 0};
    int only = (int)option(argc, argv, "--kind", -1),
        view_only = (int)option(argc, argv, "--view", -1);
    int rate_only = (int)option(argc, argv, "--rate", -1);
    struct outcome *o = malloc(sizeof(*o));
    for (int kind = 0; kind < GEN_KINDS; kind++) {
        for (int view = 0; view < GEN_VIEWS; view++) {
            bool chosen = (only < 0 || only == kind) && (view_only < 0 || view_only == view) &&
                          gen_makes((enum gen_kind)kind) && shown_in(kind, view);
            for (unsigned r = 0; chosen && r < (grows(kind) ? RATES : 1); r++) {
                if (!grows(kind) || rate_only < 0 || rate_only == (int)r) {
                    run_cell(&plan, kind, view, r, o);
                }
            }
        }
    }
    print_found();
    print_healthy();
    print_confusion();
    print_left();
    free(o);
    return option(argc, argv, "--check", 0) > 0 ? check() : 0;
}
