/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DETECT_GROWTH_H
#define PLIM_DETECT_GROWTH_H

/*
 * Whether one figure grows, judged in windows of half an hour to a week.
 *
 *   steady   more than chance and load explain, in many steps, not slowing down, and beyond what was
 *            seen before: what a leak does, and a cache only until it is full
 *   filling  the same, but from the beginning of what is known, and not shown to go on as it did: a cache that fills
 *            and a leak look alike so far
 *   slowing  the same, but slowing down: what a cache does
 *   flat     it does not grow
 *
 * Each window is divided into 6 to 12 equal stretches, whose lowest values are the points of a trend.
 * Growth that ended must last four times as long as when it was found, to be believed again.
 */

#include "detect/detect.h"
#include "detect/series.h"
#include "detect/trend.h"

#define PLIM_WINDOWS 9u

enum plim_growth_state {
    PLIM_GROWTH_UNKNOWN,
    PLIM_GROWTH_FLAT,
    PLIM_GROWTH_SLOWING,
    PLIM_GROWTH_FILLING,
    PLIM_GROWTH_STEADY
};

struct plim_window {
    enum plim_growth_state state;
    float seconds; /* that the points span */
    float slope;   /* bytes a second */
    float error;   /* standard error of it */
    float grown;   /* bytes */
    float
        rest; /* bytes that it will still grow, if it goes on slowing down as it does; < 0: it does not */
    float fading; /* seconds in which its pace falls to 1/e; with `rest` */
};

struct plim_growing {
    struct plim_series series;
    struct plim_window windows[PLIM_WINDOWS];
    bool held; /* a finding tells of the growth */
    double
        cache; /* bytes: what grows by less, in all and in an hour, is no cache that fills; 0: it cannot be one */
    double least;  /* seconds that growth must last to be believed; more after each that ended */
    double base;   /* bytes where the present growth began */
    double slope;  /* bytes a second, when it was last seen to grow */
    double window; /* seconds in which it was seen */
    uint64_t grows_ns; /* awake time at which the present growth began, 0: it does not grow */
};

/**
 * plim__growing_add() - a value; when it completes a minute the windows are judged anew.
 * @cumulative: the figure falls only by accident (bytes that a cache reserved): its growth must also be
 * even from stretch to stretch, because noise adds up in it.
 * True: a minute was completed.
 */
bool plim__growing_add(struct plim_growing *g, uint64_t now_ns, double value, double load,
                       bool cumulative);

/** plim__growing_best() - the longest window with the strongest state. */
const struct plim_window *plim__growing_best(const struct plim_growing *g);

/** plim__growing_for() - the steady (or filling) window that suits a forecast of so many seconds: the shortest that
 * is at least as long, or the longest; NULL: there is none. */
const struct plim_window *plim__growing_for(const struct plim_growing *g, double seconds);

/** plim__growing_slope() - 80 % interval of the slope of that window: Student's t of its error, widened
 * to what other steady windows of at least a quarter of its length say, and to a tenth: no pace is
 * steadier than that for long. */
struct plim_estimate plim__growing_slope(const struct plim_growing *g, const struct plim_window *w);

/** plim__growing_stopped() - whether growth at `slope` has stopped: for a third of the window in which it
 * was seen, at least half an hour, next to nothing was added. */
bool plim__growing_stopped(const struct plim_growing *g, double slope, double window_seconds);

/** plim__growing_ended() - a finding of the growth has ended. */
void plim__growing_ended(struct plim_growing *g);

/** plim__growing_floor() - lowest value of the last ten minutes; < 0: unknown. */
double plim__growing_floor(const struct plim_growing *g);

/** plim__growing_peak() - highest value of the last `seconds`, each carried to now at `slope`; < 0:
 * unknown. */
double plim__growing_peak(const struct plim_growing *g, double slope, double seconds);

#endif
