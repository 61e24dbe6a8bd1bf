/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What it means when a figure grows: its figure decides the class.
 *
 *   live bytes of an allocator       leak; slowing down: cache growth
 *   stranded bytes                   fragmentation
 *   reserved, and neither of those   cache growth
 *   outside the allocator            external growth
 *   bytes of a process, where its allocator tells nothing: leak, less sure; slowing down: cache growth
 *   used bytes of a device, without its largest process: external growth; where no process is listed: leak
 *
 * A process is followed when it is loaded: it has lived for the warm-up, and in the last ten minutes it
 * grew by less than the slowest loading does.
 */

#include "base/bytes.h"
#include "base/num.h"
#include "detect/detect_int.h"

#include <math.h>
#include <stdio.h>

#define LOADING_SHARE 0.05             /* of what it holds, in ten minutes */
#define LOADING_BYTES (1.0 * PLIM_GIB) /* in ten minutes: 1.7 MiB a second; no disk is slower */
#define FOREVER       (3650 * 86400.0) /* seconds: no estimate is longer */
#define CACHE_HOURS   3.0  /* growth that has lasted so long is likelier a leak than a cache */
#define MATTERS       0.05 /* of the reserved bytes: less stranded is no concern */
#define MUCH          0.15 /* of the reserved bytes, stranded when requests are retried */
#define CACHE_SHARE   0.01 /* of the device: a cache that grows by less is no news */
#define REFILL_HOURS  6.0  /* of a life: caches are full again by then */
#define KNOWN         1.02 /* times what a program held before */
#define VISIT         9000.0 /* seconds that others must grow: visitors come and go within an hour or two */
#define SOON          (2 * 3600.0) /* seconds: a leak that is worth a warning however new it is */
#define AT_ONCE       (30 * 60.0)  /* seconds: critical */

struct plim_estimate plim__left(const struct plim_growing *g, double least, double most)
{
    struct plim_estimate left = {0};
    const struct plim_window *w = plim__growing_for(g, 3600);
    for (int pass = 0; pass < 2 && w != NULL; pass++) {
        w = plim__growing_for(g, least / fmax((double)w->slope, 1e-3));
    }
    if (w == NULL || !(w->slope > 0)) {
        return left;
    }
    struct plim_estimate slope = plim__growing_slope(g, w);
    least = fmax(least, 0);
    most = fmax(most, least);
    left.valid = true;
    left.value = fmin(least / slope.value, FOREVER);
    left.low = fmin(least / slope.high, FOREVER);
    left.high = slope.low > 0 ? fmin(most / slope.low, FOREVER) : FOREVER;
    return left;
}

/* Whether the process, or what is on the device, is loaded; looked at once a minute. */
static bool settled(struct plim_detector *d, struct plim_tracked *t)
{
    uint64_t minute = d->now_ns / PLIM_MINUTE;
    if (t->settled_ns != 0) {
        return true;
    }
    if (minute == t->minute) {
        return false;
    }
    memmove(&t->recent[1], &t->recent[0], sizeof(t->recent) - sizeof(t->recent[0]));
    t->recent[0] = (float)t->now.held;
    t->minute = minute;
    double grown = (double)t->recent[0] - (double)t->recent[10];
    if (d->now_ns - t->first_ns >= d->options.warmup_ns &&
        grown <= fmax(LOADING_SHARE * (double)t->recent[0], LOADING_BYTES)) {
        t->settled_ns = d->now_ns;
    }
    return t->settled_ns != 0;
}

static double total_of(const struct plim_detector *d, const struct plim_tracked *t)
{
    const struct plim_tracked *on = plim__device_of(d, t->subject.device);
    return on != NULL && on->books_valid ? (double)on->total : 0;
}

/* Give a figure its newest value. True: a minute was completed. */
static enum plim_status follow(struct plim_detector *d, struct plim_tracked *t,
                               enum plim_followed which, uint64_t value, bool *closed,
                               struct plim_err *err)
{
    bool cumulative = which != PLIM_FOLLOWED_LIVE;
    bool caches =
        which == PLIM_FOLLOWED_LIVE || which == PLIM_FOLLOWED_HELD || which == PLIM_FOLLOWED_USED;
    if (t->growing[which] == NULL) {
        t->growing[which] = calloc(1, sizeof(*t->growing[which]));
        if (t->growing[which] == NULL) {
            return plim__fail(err, PLIM_E_NOMEM, "out of memory for the history of a figure");
        }
        t->growing[which]->least = which == PLIM_FOLLOWED_OTHERS ? VISIT : 0;
    }
    t->growing[which]->cache = caches ? CACHE_SHARE * total_of(d, t) : 0;
    *closed |=
        plim__growing_add(t->growing[which], d->now_ns, (double)value, t->now.load, cumulative);
    return PLIM_OK;
}

static enum plim_growth_state state_of(const struct plim_tracked *t, enum plim_followed which)
{
    return t->growing[which] != NULL ? plim__growing_best(t->growing[which])->state
                                     : PLIM_GROWTH_UNKNOWN;
}

/* Where no allocator tells live from cached bytes: a restarted program fills up again to what its earlier
 * lives held, of which no leak was told. Only in the first hours of a life, and not of a new version. */
static bool refills(const struct plim_detector *d, const struct plim_tracked *t)
{
    const struct plim_level *l = plim__level_of(d, t);
    return l != NULL && d->deployed_ns <= l->newest_ns &&
           (double)(d->now_ns - t->first_ns) < REFILL_HOURS * (double)PLIM_HOUR &&
           (double)t->now.held < KNOWN * (double)l->bytes;
}

/* ---- claims ---- */

static const struct {
    const char *what;   /* that grows */
    const char *called; /* the growth */
    double sure;        /* confidence, once the growth has lasted */
} words[PLIM_FOLLOWED] = {
    [PLIM_FOLLOWED_LIVE] = {"live bytes of its allocator", "It leaks", 0.97},
    [PLIM_FOLLOWED_STRANDED] = {"stranded bytes of its allocator", "Its memory fragments", 0.95},
    [PLIM_FOLLOWED_HELD] = {"bytes that it holds", "It seems to leak", 0.8},
    [PLIM_FOLLOWED_OUTSIDE] = {"bytes outside its allocator", "It grows outside its allocator",
                               0.95},
    [PLIM_FOLLOWED_USED] = {"used bytes", "Something on it seems to leak", 0.7},
    [PLIM_FOLLOWED_OTHERS] = {"bytes of its other users", "Its other users grow", 0.85},
};

/* What the growing figure may still take before a request fails: at least, if the highest peak of the
 * past comes again; at most, if only the peaks of the last hour do. False: not known. */
static bool headroom(const struct plim_detector *d, const struct plim_tracked *t,
                     enum plim_followed which, double slope, double *least, double *most)
{
    const struct plim_tracked *on = plim__device_of(d, t->subject.device);
    const struct plim_growing *used = on != NULL ? on->growing[PLIM_FOLLOWED_USED] : NULL;
    if (on == NULL || !on->books_valid) {
        return false;
    }
    double peak = used != NULL ? plim__growing_peak(used, 0, 3600) : -1;
    double all = (double)plim_sub_sat(on->total, on->reserved);
    *least = all - fmax(peak, (double)on->used);
    *most = all - (double)on->used;
    if (which == PLIM_FOLLOWED_LIVE) {
        /* Cached bytes serve the leak too, but the working set's peaks come again. */
        const struct plim_growing *g = t->growing[which];
        double live = (double)t->now.live, reserved = (double)t->now.reserved;
        double lasts = (*least + reserved - live) / fmax(slope, 1);
        *most += reserved - fmax(plim__growing_peak(g, slope, 3600), live);
        *least +=
            reserved - fmax(plim__growing_peak(g, slope, fmin(fmax(lasts, 3600), 86400)), live);
    }
    return true;
}

static void estimate(const struct plim_detector *d, const struct plim_tracked *t,
                     enum plim_followed which, struct plim_claim *c)
{
    const struct plim_growing *g = t->growing[which];
    const struct plim_window *w = plim__growing_for(g, 3600);
    double least, most;
    if (w == NULL) {
        return;
    }
    c->slope = plim__growing_slope(g, w);
    if (headroom(d, t, which, (double)w->slope, &least, &most)) {
        c->seconds_left = plim__left(g, least, most);
        c->seconds_left.high = state_of(t, which) == PLIM_GROWTH_FILLING
                                   ? FOREVER /* it may stop before */
                                   : c->seconds_left.high;
    }
}

/* When a cache is a danger: its growth slows down, and crosses the headroom before it would stop. What an allocator
 * has cached it gives back, so that with one only its live bytes count. */
static struct plim_estimate cache_left(const struct plim_detector *d, const struct plim_tracked *t)
{
    enum plim_followed which =
        t->growing[PLIM_FOLLOWED_LIVE] != NULL ? PLIM_FOLLOWED_LIVE : PLIM_FOLLOWED_HELD;
    const struct plim_window *w = plim__growing_best(t->growing[which]);
    double least, most, rest = (double)w->rest, fading = (double)w->fading;
    struct plim_estimate left = {0};
    if (w->state != PLIM_GROWTH_SLOWING || !(rest > 0) ||
        !headroom(d, t, which, (double)w->slope, &least, &most) || least >= rest) {
        return left;
    }
    least = fmax(least, 0);
    left.valid = true;
    left.value = fmin(-fading * log(1 - least / rest), FOREVER);
    left.low = fmin(least / fmax((double)w->slope, 1), left.value);
    left.high = most < rest ? fmax(-fading * log(1 - most / rest), left.value) : FOREVER;
    return left;
}

static void who(const struct plim_tracked *t, char out[64])
{
    if (t->subject.pid != 0) {
        (void)snprintf(out, 64, "%s (pid %u) on device %u",
                       t->subject.process[0] != '\0' ? t->subject.process : "A process",
                       t->subject.pid, t->subject.device);
    } else {
        (void)snprintf(out, 64, "Device %u", t->subject.device);
    }
}

/* Whether it will stop, and what is known of where. */
static void say_end(const struct plim_window *w, struct plim_claim *c)
{
    char bytes[PLIM_BYTES_TEXT];
    if (w->state == PLIM_GROWTH_FILLING) {
        plim__finding_say(
            c->evidence, sizeof(c->evidence),
            "It has grown from the start, as a cache does that fills: whether it will "
            "stop does not show yet.");
    } else if (w->state == PLIM_GROWTH_SLOWING && w->rest >= 0) {
        plim__finding_say(c->evidence, sizeof(c->evidence),
                          "It slows down, and would stop %s further on.",
                          plim_bytes_format(bytes, plim_u64_of((double)w->rest, UINT64_MAX)));
    }
}

static void say_growth(const struct plim_detector *d, const struct plim_tracked *t,
                       enum plim_followed which, const char *called, struct plim_claim *c)
{
    const struct plim_growing *g = t->growing[which];
    const struct plim_window *w = plim__growing_best(g);
    char name[64], bytes[PLIM_BYTES_TEXT], rate[PLIM_BYTES_TEXT], span[24], left[24];
    double lasted = (double)(d->now_ns - g->grows_ns) / 1e9;
    who(t, name);
    (void)snprintf(c->summary, sizeof(c->summary), "%s: %s %s an hour, %s in %s.", name, called,
                   plim_bytes_format(rate, plim_u64_of(3600 * (double)w->slope, UINT64_MAX)),
                   plim_bytes_format(bytes, c->bytes), plim__span(span, lasted));
    plim__finding_say(c->evidence, sizeof(c->evidence),
                      "The lowest %s rose by %s in %s, in many steps, more than chance explains.",
                      words[which].what,
                      plim_bytes_format(bytes, plim_u64_of((double)w->grown, UINT64_MAX)),
                      plim__span(span, (double)w->seconds));
    plim__finding_say(c->evidence, sizeof(c->evidence), "%s",
                      t->now.load < 0 ? "The load is not known."
                      : t->now.served ? "Requests of its engine do not explain it."
                                      : "How busy the device is does not explain it.");
    say_end(w, c);
    if (c->seconds_left.valid) {
        plim__finding_say(c->evidence, sizeof(c->evidence), "At this pace memory is out in %s.",
                          plim__span(left, c->seconds_left.value));
    }
    if (d->deployed_ns != 0 && g->grows_ns + 5 * PLIM_MINUTE >= d->deployed_ns &&
        g->grows_ns < d->deployed_ns + PLIM_HOUR) {
        plim__finding_say(c->evidence, sizeof(c->evidence), "It began after a deployment: %s.",
                          d->deployed);
    }
}

static void grade(const struct plim_detector *d, const struct plim_growing *g,
                  enum plim_followed which, struct plim_claim *c)
{
    double hours = (double)(d->now_ns - g->grows_ns) / 3.6e12;
    const struct plim_estimate *left = &c->seconds_left;
    c->confidence = words[which].sure * (1 - 0.5 * exp(-hours / CACHE_HOURS));
    c->severity = c->confidence < 0.6 ? PLIM_SEVERITY_NOTICE : PLIM_SEVERITY_WARNING;
    if (left->valid && left->value < SOON) {
        c->severity = left->value < AT_ONCE ? PLIM_SEVERITY_CRITICAL : PLIM_SEVERITY_WARNING;
    }
}

/* What a claim of growth is about. */
struct growth_claim {
    enum plim_followed which;
    enum plim_finding_class class;
    enum plim_growth_state least;     /* state that makes it hold */
    bool explained;                   /* another figure tells it better */
    const struct plim_claim *besides; /* holds where the growth does not; NULL: nothing */
};

static void next_step(const struct plim_tracked *t, const struct growth_claim *gc,
                      struct plim_claim *c)
{
    enum plim_followed which = gc->which;
    const char *text =
        "Start it with PLIMSOLL_ATTACH=1 to tell a leak from a cache; then kill -USR2 "
        "PID writes a snapshot, and plimsoll diagnose reads it.";
    if (gc->class == PLIM_FINDING_CACHE_GROWTH) {
        text =
            "Nothing, while there is room. The engine's cache size, or a memory fraction for the "
            "process, bounds it.";
    } else if (which == PLIM_FOLLOWED_USED || which == PLIM_FOLLOWED_OTHERS) {
        text = "See who uses the device: plimsoll status. What is listed nowhere may belong to "
               "another container or user.";
    } else if (which == PLIM_FOLLOWED_OUTSIDE) {
        text = "Run it under plimsoll record, which counts graphs, communicators and workspaces of "
               "libraries by their callers.";
    } else if (which == PLIM_FOLLOWED_LIVE) {
        text = "kill -USR2 PID writes a snapshot; plimsoll diagnose names the stacks that grow.";
    } else if (which == PLIM_FOLLOWED_STRANDED) {
        text =
            "kill -USR2 PID writes a snapshot; plimsoll tune says which allocator setting helps.";
    }
    const char *pid = strstr(text, "PID");
    if (pid != NULL) {
        (void)snprintf(c->next_step, sizeof(c->next_step), "%.*s%u%s", (int)(pid - text), text,
                       t->subject.pid, pid + 3);
    } else {
        (void)snprintf(c->next_step, sizeof(c->next_step), "%s", text);
    }
}

/* Whether a finding tells of growth of this subject. Two classes may be about one figure. */
static bool told(const struct plim_tracked *t)
{
    return t->standing[PLIM_FINDING_LEAK].id != 0 ||
           t->standing[PLIM_FINDING_CACHE_GROWTH].id != 0 ||
           t->standing[PLIM_FINDING_FRAGMENTATION].id != 0 ||
           t->standing[PLIM_FINDING_EXTERNAL].id != 0;
}

/* Pace and time left of growth, and whether it is what the claim is about. A leak is also claimed when growth that
 * may be a cache's would fill the device soon: then it does not matter which of the two it is. */
static bool holds(const struct plim_detector *d, const struct plim_tracked *t,
                  const struct growth_claim *gc, struct plim_claim *c)
{
    enum plim_growth_state state = state_of(t, gc->which);
    if (state < PLIM_GROWTH_SLOWING || gc->explained) {
        return false;
    }
    estimate(d, t, gc->which, c);
    if (gc->class == PLIM_FINDING_CACHE_GROWTH) {
        c->seconds_left = cache_left(d, t);
    }
    bool soon = c->seconds_left.valid && c->seconds_left.value < SOON;
    return state >= gc->least || (soon && state == PLIM_GROWTH_FILLING);
}

/* What the growth is called. A cache that fills may be a leak, unless an allocator says that it is not its live bytes
 * that grow. */
static const char *called(const struct plim_tracked *t, const struct growth_claim *gc,
                          const struct plim_window *w)
{
    bool live = t->growing[PLIM_FOLLOWED_LIVE] == NULL ||
                state_of(t, PLIM_FOLLOWED_LIVE) == PLIM_GROWTH_FILLING;
    return gc->class != PLIM_FINDING_CACHE_GROWTH    ? words[gc->which].called
           : live && w->state == PLIM_GROWTH_FILLING ? "Its cache fills, or it leaks:"
                                                     : "Its cache grows";
}

/* The claim that a figure grows. It ends when the figure has stopped, not when the growth is merely no
 * longer certain. */
static enum plim_status claim(struct plim_detector *d, struct plim_tracked *t,
                              const struct growth_claim *gc, struct plim_err *err)
{
    struct plim_claim c = {.state = PLIM_CLAIM_UNSURE}, held = c;
    struct plim_growing *g = t->growing[gc->which];
    const struct plim_window *w = plim__growing_best(g);
    bool active = t->standing[gc->class].id != 0;
    bool cache = gc->class == PLIM_FINDING_CACHE_GROWTH;
    bool large = !cache || (double)w->grown >= CACHE_SHARE * total_of(d, t);
    if (large && holds(d, t, gc, &held)) {
        c = held;
        c.state = PLIM_CLAIM_HOLDS;
        c.began_ns = g->grows_ns;
        c.bytes = plim_u64_of(plim__growing_floor(g) - g->base, UINT64_MAX);
        grade(d, g, gc->which, &c);
        if (cache && !(c.seconds_left.valid && c.seconds_left.value < SOON)) {
            c.severity = PLIM_SEVERITY_NOTICE;
        }
        say_growth(d, t, gc->which, called(t, gc, w), &c);
        next_step(t, gc, &c);
        g->slope = (double)w->slope;
        g->window = (double)w->seconds;
    } else if (gc->besides != NULL) {
        c = *gc->besides;
    } else if (gc->explained || !active || plim__growing_stopped(g, g->slope, g->window)) {
        c.state = PLIM_CLAIM_CLEAR;
        plim__finding_say(c.evidence, sizeof(c.evidence),
                          gc->explained ? "Another finding tells it better."
                                        : "It no longer grows.");
    }
    PLIM_TRY(plim__claim(d, t, gc->class, &c, err));
    if (active && t->standing[gc->class].id == 0 && !gc->explained && gc->besides == NULL) {
        plim__growing_ended(g);
    }
    g->held = told(t);
    return PLIM_OK;
}

/* ---- processes and devices ---- */

/* Stranded bytes that grow while the process reserves more; or many of them, while requests are served
 * only after the cache was emptied. */
static enum plim_status claim_fragmentation(struct plim_detector *d, struct plim_tracked *t,
                                            bool held, struct plim_err *err)
{
    struct plim_growing *g = t->growing[PLIM_FOLLOWED_STRANDED];
    double floor = plim__growing_floor(g), reserved = (double)t->now.reserved;
    struct plim_claim retried = {
        .state = PLIM_CLAIM_HOLDS, .severity = PLIM_SEVERITY_WARNING, .confidence = 0.85};
    struct plim_claim tight = {.state = PLIM_CLAIM_CLEAR};
    struct growth_claim gc = {PLIM_FOLLOWED_STRANDED, PLIM_FINDING_FRAGMENTATION,
                              PLIM_GROWTH_STEADY, !held || floor < MATTERS * reserved, NULL};
    char bytes[PLIM_BYTES_TEXT], name[64];
    if (t->retry_ns != 0 && d->now_ns - t->retry_ns < PLIM_HOUR && floor > MUCH * reserved) {
        who(t, name);
        retried.bytes = plim_u64_of(floor, UINT64_MAX);
        (void)snprintf(retried.summary, sizeof(retried.summary),
                       "%s: %.0f %% of what it reserved is stranded, and requests wait for the "
                       "cache to be emptied.",
                       name, 100 * floor / reserved);
        plim__finding_say(
            retried.evidence, sizeof(retried.evidence),
            "At least %s were stranded at every moment of the last ten minutes; the newest "
            "retry was %.0f min ago.",
            plim_bytes_format(bytes, retried.bytes), (double)(d->now_ns - t->retry_ns) / 6e10);
        plim__say_shapes(t, &retried);
        next_step(t, &gc, &retried);
        gc.besides = &retried;
    } else if (plim__tight(d, t, &tight) == PLIM_TIGHT_PIECES) {
        gc.besides = &tight;
    }
    return claim(d, t, &gc, err);
}

static enum plim_status claim_process(struct plim_detector *d, struct plim_tracked *t,
                                      struct plim_err *err)
{
    bool allocator = t->growing[PLIM_FOLLOWED_LIVE] != NULL;
    enum plim_followed main = allocator ? PLIM_FOLLOWED_LIVE : PLIM_FOLLOWED_HELD;
    bool held = state_of(t, PLIM_FOLLOWED_HELD) >= PLIM_GROWTH_SLOWING;
    bool better, leak = t->standing[PLIM_FINDING_LEAK].id != 0;
    bool known = !leak && !allocator && refills(d, t);
    PLIM_TRY(claim(d, t,
                   &(struct growth_claim){main, PLIM_FINDING_LEAK, PLIM_GROWTH_STEADY, known, NULL},
                   err));
    leak = t->standing[PLIM_FINDING_LEAK].id != 0;
    if (t->growing[PLIM_FOLLOWED_STRANDED] != NULL) {
        PLIM_TRY(claim_fragmentation(d, t, held, err));
    }
    if (t->growing[PLIM_FOLLOWED_OUTSIDE] != NULL) {
        PLIM_TRY(claim(d, t,
                       &(struct growth_claim){PLIM_FOLLOWED_OUTSIDE, PLIM_FINDING_EXTERNAL,
                                              PLIM_GROWTH_STEADY, false, NULL},
                       err));
    }
    /* Of an allocator's process the cache grows when it holds more, and nothing tells for what. */
    better = leak || t->standing[PLIM_FINDING_FRAGMENTATION].id != 0 ||
             t->standing[PLIM_FINDING_EXTERNAL].id != 0 ||
             state_of(t, PLIM_FOLLOWED_STRANDED) >= PLIM_GROWTH_SLOWING ||
             state_of(t, PLIM_FOLLOWED_OUTSIDE) >= PLIM_GROWTH_SLOWING ||
             (!allocator && state_of(t, main) == PLIM_GROWTH_STEADY);
    return claim(d, t,
                 &(struct growth_claim){PLIM_FOLLOWED_HELD, PLIM_FINDING_CACHE_GROWTH,
                                        PLIM_GROWTH_SLOWING, better, NULL},
                 err);
}

static enum plim_status process(struct plim_detector *d, struct plim_tracked *t,
                                struct plim_err *err)
{
    bool closed = false;
    const struct plim_holding *h = &t->now;
    t->held_last = h->held_valid ? h->held : t->held_last;
    if (!h->held_valid || !settled(d, t)) {
        return PLIM_OK;
    }
    if (h->retries_valid) {
        uint64_t more = t->retries_valid ? plim_sub_sat(h->retries, t->retries) : 0;
        if (more > 0) {
            t->retry_ns = d->now_ns;
            plim__tally_shape(t, more);
        }
        t->retries = h->retries;
        t->retries_valid = true;
    }
    PLIM_TRY(follow(d, t, PLIM_FOLLOWED_HELD, h->held, &closed, err));
    if (h->live_valid) {
        PLIM_TRY(follow(d, t, PLIM_FOLLOWED_LIVE, h->live, &closed, err));
    }
    if (h->stranded_valid) {
        PLIM_TRY(follow(d, t, PLIM_FOLLOWED_STRANDED, h->stranded, &closed, err));
    }
    if (h->outside_valid) {
        PLIM_TRY(follow(d, t, PLIM_FOLLOWED_OUTSIDE, h->outside, &closed, err));
    }
    return closed ? claim_process(d, t, err) : PLIM_OK;
}

/* Bytes a second by which followed processes of this device grow, but its largest. */
static double others_growth(const struct plim_detector *d, const struct plim_tracked *on)
{
    double sum = 0;
    plim_vec_foreach (t, &d->subjects) {
        const struct plim_growing *g = t->growing[PLIM_FOLLOWED_HELD];
        if (t->subject.pid != 0 && plim__seen(d, t) && t->subject.pid != on->largest.pid &&
            t->subject.device == on->subject.device && g != NULL &&
            state_of(t, PLIM_FOLLOWED_HELD) >= PLIM_GROWTH_SLOWING) {
            sum += (double)plim__growing_best(g)->slope;
        }
    }
    return sum;
}

static enum plim_status device(struct plim_detector *d, struct plim_tracked *t,
                               struct plim_err *err)
{
    bool closed = false;
    t->now.held = t->used;
    if (!t->books_valid || !settled(d, t)) {
        return PLIM_OK;
    }
    PLIM_TRY(follow(d, t, PLIM_FOLLOWED_USED, t->used, &closed, err));
    PLIM_TRY(
        follow(d, t, PLIM_FOLLOWED_OTHERS, plim_sub_sat(t->used, t->largest.bytes), &closed, err));
    if (!closed) {
        return PLIM_OK;
    }
    if (t->largest.users == 0) {
        return claim(d, t,
                     &(struct growth_claim){PLIM_FOLLOWED_USED, PLIM_FINDING_LEAK,
                                            PLIM_GROWTH_STEADY, false, NULL},
                     err);
    }
    double slope = (double)plim__growing_best(t->growing[PLIM_FOLLOWED_OTHERS])->slope;
    return claim(d, t,
                 &(struct growth_claim){PLIM_FOLLOWED_OTHERS, PLIM_FINDING_EXTERNAL,
                                        PLIM_GROWTH_STEADY, others_growth(d, t) > slope / 2, NULL},
                 err);
}

enum plim_status plim__rule_growth(struct plim_detector *d, struct plim_tracked *t,
                                   struct plim_err *err)
{
    return t->subject.pid != 0 ? process(d, t, err) : device(d, t, err);
}
