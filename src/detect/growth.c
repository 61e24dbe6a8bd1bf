/* SPDX-License-Identifier: Apache-2.0 */

/* See growth.h. Why each constant has its value is in docs/design/detection.md. */

#include "detect/growth.h"

#include <math.h>
#include <stddef.h>

#define MATERIAL (16.0 * 1048576) /* bytes: eight grains of 2 MiB; less is no trend of a device */
#define BY_CHANCE                                                                                  \
    1e-4 /* of one window: a week has 168 separate hours, and nine windows are judged */
#define UNSTEADY   0.01 /* that the mean step is by chance, though noise adds up from step to step */
#define UNSTEADIER 1e-4 /* the same for a cumulative figure, in which noise does add up */
#define RAMP                                                                                       \
    1e-6 /* the same in windows of hours: a day's rise of traffic lifts high-water marks for half a day */
#define MANY_STEPS 0.6  /* of the steps must rise */
#define ONE_STEP   0.5  /* of the growth may come in one step: more is a jump, not growth */
#define FALLS      0.25 /* of the growth may be taken back on the way */
#define SLOWER     0.9  /* second half against the first */
#define SLOWER_T   2.0  /* standard errors; both make it slowing */
#define MUCH_LESS  0.4  /* second half against the first: slowing whatever the spread */
#define GOES_ON                                                                                    \
    0.78 /* pace of now against before: exp(-1/4), at which a cache would still grow by twice what it has */
#define FILL_TENS   72u /* buckets of ten minutes: caches that fill from the start are full by then */
#define SHOWN       1.645 /* standard errors of a one-sided 95 % */
#define SAME_DAILY  0.7   /* of the growth must be new against the same hour of the day before */
#define INTERVAL    1.38  /* Student's t of an 80 % interval, nine degrees of freedom */
#define LEAST_ERROR 0.1   /* of a slope */
#define STOPPED     0.15  /* of the growth that was expected */

/* Newest `buckets` of a scale, `fold` to a point. */
static const struct {
    enum plim_scale scale;
    unsigned buckets, fold;
} windows[PLIM_WINDOWS] = {
    {PLIM_SCALE_MINUTES, 30, 5}, {PLIM_SCALE_MINUTES, 60, 5}, {PLIM_SCALE_MINUTES, 60, 10},
    {PLIM_SCALE_TENS, 18, 2},    {PLIM_SCALE_TENS, 36, 3},    {PLIM_SCALE_TENS, 72, 6},
    {PLIM_SCALE_TENS, 144, 12},  {PLIM_SCALE_HOURS, 36, 3},   {PLIM_SCALE_HOURS, 84, 7},
};

/* Seconds of a window. */
static double length_of(unsigned w)
{
    return windows[w].buckets * plim_scale_seconds(windows[w].scale);
}

/* One point of n buckets, the newest of them `back` before the newest. */
static bool fold(const struct plim_series *s, enum plim_scale scale, unsigned back, unsigned n,
                 bool means, struct plim_point *out)
{
    unsigned seen = 0, loads = 0;
    double swing = 0, load = 0, low = 0, mean = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct plim_bucket *b = plim_series_bucket(s, scale, back + i);
        if (b != NULL) {
            low = seen == 0 || (double)b->low < low ? (double)b->low : low;
            mean += (double)b->mean;
            swing += (double)b->swing;
            load += b->load >= 0 ? (double)b->load : 0;
            loads += b->load >= 0;
            seen++;
        }
    }
    if (2 * seen < n) {
        return false;
    }
    *out = (struct plim_point){-plim_scale_seconds(scale) * (back + n / 2.0),
                               means ? mean / seen : low, loads == seen ? load / seen : -1,
                               swing / seen};
    return true;
}

/* Points of a window, oldest first; 0 when the history is too short or has holes. */
static unsigned points_of(const struct plim_series *s, unsigned w, bool means, struct plim_point *p)
{
    unsigned n = windows[w].buckets / windows[w].fold, got = 0;
    if (plim_series_age(s, windows[w].scale) < length_of(w)) {
        return 0;
    }
    for (unsigned i = n; i-- > 0;) {
        got += fold(s, windows[w].scale, i * windows[w].fold, windows[w].fold, means, &p[got]);
    }
    return got + got / 5 >= n ? got : 0;
}

static double value_of(const struct plim_bucket *b, bool means)
{
    return b == NULL ? -1 : (double)(means ? b->mean : b->low);
}

/* The highest of the lowest values (or means) before the window; < 0: nothing is known. */
static double before(const struct plim_series *s, bool means, double seconds)
{
    static const enum plim_scale coarse[] = {PLIM_SCALE_TENS, PLIM_SCALE_HOURS};
    static const unsigned kept[] = {PLIM_TENS, PLIM_HOURS};
    double most = -1;
    for (unsigned c = 0; c < 2; c++) {
        unsigned from = (unsigned)ceil(seconds / plim_scale_seconds(coarse[c])) + 1;
        for (unsigned back = from; back < kept[c]; back++) {
            most = fmax(most, value_of(plim_series_bucket(s, coarse[c], back), means));
        }
    }
    return most;
}

/* Whether the end of the growth is beyond what was known: of all times before, or else of the same hour
 * of the day before. */
static bool is_new(const struct plim_series *s, bool means, double seconds, double last,
                   double grown)
{
    double yesterday = -1;
    if (last >= before(s, means, seconds)) {
        return true;
    }
    for (unsigned back = 142; back <= 145; back++) {
        yesterday = fmax(yesterday, value_of(plim_series_bucket(s, PLIM_SCALE_TENS, back), means));
    }
    return yesterday >= 0 && last - yesterday >= SAME_DAILY * grown;
}

/* How a figure's window is looked at. */
struct view {
    bool means;      /* not the lowest values */
    bool cumulative; /* see growth.h */
};

static enum plim_growth_state state_of(const struct plim_series *s, const struct plim_trend *t,
                                       double last, struct view v)
{
    bool ramp = t->seconds > 3600 && t->seconds < 0.75 * 86400;
    double unsteady = !v.cumulative ? UNSTEADY : ramp ? RAMP : UNSTEADIER;
    if (t->p > BY_CHANCE || t->grown < MATERIAL || t->largest_rise > ONE_STEP * t->grown ||
        t->falls > FALLS * t->grown || t->rises < MANY_STEPS * (t->n - 1) ||
        plim_student_tail(t->steadiness_t, t->n - 2) > unsteady ||
        !is_new(s, v.means, t->seconds, last, t->grown)) {
        return PLIM_GROWTH_FLAT;
    }
    bool slowing = t->slowing < MUCH_LESS || (t->slowing < SLOWER && t->slowing_t > SLOWER_T);
    return slowing ? PLIM_GROWTH_SLOWING : PLIM_GROWTH_STEADY;
}

/* How the figure grew in the time before a window, as long as the window if so much is known, at least half of it;
 * false: less is known. */
static bool grew_before(const struct plim_series *s, unsigned w, double *bytes, double *seconds)
{
    double bucket = plim_scale_seconds(PLIM_SCALE_TENS);
    unsigned n = (unsigned)(length_of(w) / bucket), back = 2 * n;
    const struct plim_bucket *then = NULL;
    const struct plim_bucket *start = plim_series_bucket(s, PLIM_SCALE_TENS, n);
    while (then == NULL && --back >= n + n / 2) {
        then = plim_series_bucket(s, PLIM_SCALE_TENS, back);
    }
    if (then == NULL || start == NULL) {
        return false;
    }
    *bytes = (double)start->low - (double)then->low;
    *seconds = (back - n) * bucket;
    return true;
}

/* What it has grown since the beginning of what is known. */
static double grown_in_all(const struct plim_series *s, double last)
{
    const struct plim_bucket *first = NULL;
    for (unsigned back = FILL_TENS + 1; first == NULL && back-- > 0;) {
        first = plim_series_bucket(s, PLIM_SCALE_TENS, back);
    }
    return first != NULL ? last - (double)first->low : 0;
}

/* Whether growth that fits all else may be a cache that fills. Caches fill from the start, fast at first, and are
 * full in half a day: only then is it asked. The growth must be of a cache's size, since the beginning or in an hour.
 * It is none when it is shown, with 95 %, to go on: now against before the window, or, where nothing is known of
 * that, the window's second half against the first. */
static bool may_fill(const struct plim_growing *g, unsigned w, const struct plim_trend *t,
                     double last)
{
    double earlier, seconds;
    if (!(g->cache > 0) || plim_series_age(&g->series, PLIM_SCALE_TENS) > 600.0 * FILL_TENS ||
        fmax(3600 * t->slope, fmax(t->grown, grown_in_all(&g->series, last))) < g->cache) {
        return false;
    }
    return grew_before(&g->series, w, &earlier, &seconds)
               ? t->slope - SHOWN * M_SQRT2 * t->error < GOES_ON * earlier / seconds
               : t->slowing - SHOWN * t->slowing_error < GOES_ON;
}

/* Where the growth would end if its pace went on falling as it does: an exponential through the ends of both halves. */
static void set_end(const struct plim_trend *t, struct plim_window *out)
{
    out->rest = -1;
    if (t->slowing > 0 && t->slowing < 1) {
        out->rest = (float)(t->second * t->slowing / (1 - t->slowing));
        out->fading = (float)(t->seconds / 2 / -log(t->slowing));
    }
}

static struct plim_window judge(const struct plim_growing *g, unsigned w, struct view v)
{
    struct plim_point p[PLIM_POINTS_MAX];
    struct plim_trend t;
    unsigned n = points_of(&g->series, w, v.means, p);
    struct plim_window out = {.state = n > 0 ? PLIM_GROWTH_FLAT : PLIM_GROWTH_UNKNOWN};
    /* Most windows of most subjects are flat: they are not worth a fit. */
    if (n < 5 || p[n - 1].bytes - p[0].bytes < MATERIAL / 2 || (v.means && p[0].load < 0) ||
        !plim_trend_of(p, n, &t)) {
        return out;
    }
    out.state = state_of(&g->series, &t, p[n - 1].bytes, v);
    if (out.state == PLIM_GROWTH_STEADY && may_fill(g, w, &t, p[n - 1].bytes)) {
        out.state = PLIM_GROWTH_FILLING;
    }
    set_end(&t, &out);
    if (out.state == PLIM_GROWTH_STEADY && t.seconds < g->least) {
        out.state = PLIM_GROWTH_FLAT;
    }
    out.seconds = (float)t.seconds;
    out.slope = (float)t.slope;
    out.error = (float)t.error;
    out.grown = (float)t.grown;
    return out;
}

/* Growth that is found is remembered from its beginning for as long as it is told. */
bool plim__growing_add(struct plim_growing *g, uint64_t now_ns, double value, double load,
                       bool cumulative)
{
    if (!plim_series_add(&g->series, now_ns, value, load)) {
        return false;
    }
    for (unsigned w = 0; w < PLIM_WINDOWS; w++) {
        if (plim_series_closed(&g->series, windows[w].scale)) {
            g->windows[w] = judge(g, w, (struct view){false, cumulative});
            if (g->windows[w].state == PLIM_GROWTH_FLAT && !cumulative) {
                struct plim_window means = judge(g, w, (struct view){true, false});
                g->windows[w] = means.state > PLIM_GROWTH_FLAT ? means : g->windows[w];
            }
        }
    }
    const struct plim_window *best = plim__growing_best(g);
    if (best->state < PLIM_GROWTH_SLOWING) {
        g->grows_ns = g->held ? g->grows_ns : 0;
    } else if (g->grows_ns == 0) {
        uint64_t span = (uint64_t)(1e9 * (double)best->seconds);
        g->grows_ns = now_ns > span ? now_ns - span : 1;
        g->base = plim__growing_floor(g) - (double)best->grown;
    }
    return true;
}

const struct plim_window *plim__growing_best(const struct plim_growing *g)
{
    const struct plim_window *best = &g->windows[0];
    for (unsigned w = 1; w < PLIM_WINDOWS; w++) {
        const struct plim_window *o = &g->windows[w];
        if (o->state > best->state || (o->state == best->state && o->seconds > best->seconds)) {
            best = o;
        }
    }
    return best;
}

const struct plim_window *plim__growing_for(const struct plim_growing *g, double seconds)
{
    const struct plim_window *chosen = NULL;
    for (unsigned w = 0; w < PLIM_WINDOWS; w++) {
        const struct plim_window *o = &g->windows[w];
        if (o->state >= PLIM_GROWTH_FILLING &&
            (chosen == NULL ||
             ((double)chosen->seconds < seconds && o->seconds > chosen->seconds))) {
            chosen = o;
        }
    }
    return chosen;
}

struct plim_estimate plim__growing_slope(const struct plim_growing *g, const struct plim_window *w)
{
    double slope = (double)w->slope;
    double half = fmax(INTERVAL * (double)w->error, LEAST_ERROR * slope);
    struct plim_estimate e = {true, slope, slope - half, slope + half};
    for (unsigned i = 0; i < PLIM_WINDOWS; i++) {
        const struct plim_window *o = &g->windows[i];
        if (o->state == PLIM_GROWTH_STEADY && 4 * o->seconds >= w->seconds) {
            e.low = fmin(e.low, (double)o->slope);
            e.high = fmax(e.high, (double)o->slope);
        }
    }
    return e;
}

bool plim__growing_stopped(const struct plim_growing *g, double slope, double window_seconds)
{
    double look = fmin(fmax(window_seconds / 3, 1800), 86400);
    enum plim_scale scale = look <= 3600 ? PLIM_SCALE_MINUTES : PLIM_SCALE_TENS;
    unsigned buckets = (unsigned)(look / plim_scale_seconds(scale)), n = buckets / 6 + 1;
    struct plim_point now, then;
    n = scale == PLIM_SCALE_MINUTES && n < 5 ? 5 : n;
    if (!fold(&g->series, scale, 0, n, false, &now) ||
        !fold(&g->series, scale, buckets - n, n, false, &then)) {
        return false;
    }
    return now.bytes - then.bytes < STOPPED * slope * (now.seconds - then.seconds);
}

double plim__growing_floor(const struct plim_growing *g)
{
    struct plim_point p;
    return fold(&g->series, PLIM_SCALE_MINUTES, 0, 10, false, &p) ? p.bytes : -1;
}

void plim__growing_ended(struct plim_growing *g)
{
    g->least = fmin(4 * g->window, 6 * 86400);
}

double plim__growing_peak(const struct plim_growing *g, double slope, double seconds)
{
    enum plim_scale scale = seconds <= 3600 ? PLIM_SCALE_MINUTES : PLIM_SCALE_TENS;
    unsigned kept = scale == PLIM_SCALE_MINUTES ? PLIM_MINUTES : PLIM_TENS;
    double peak = -1, length = plim_scale_seconds(scale);
    for (unsigned back = 0; back < kept && back * length < seconds; back++) {
        const struct plim_bucket *b = plim_series_bucket(&g->series, scale, back);
        peak = b != NULL ? fmax(peak, (double)b->high + slope * back * length) : peak;
    }
    return peak;
}
