/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DETECT_TREND_H
#define PLIM_DETECT_TREND_H

/*
 * What at most sixteen points in time say: does it grow, by how much more than chance and load explain,
 * how evenly, and does the growth slow down.
 *
 * Points are the lowest values of equal stretches of time. Significance: the coefficient of time in a
 * least-squares fit on time, load and swing together (a rise that load explains is none of time's), with
 * Student's t and the variance inflated for residuals that follow one another (first-order
 * autocorrelation, as for an effective number of samples; Bence 1995). The slope itself is the median of
 * all pairwise slopes (Theil 1950, Sen 1968) after the load's share is taken away: single outliers do
 * not move it. Slowing: the mean increments of both halves against their spread (Welch).
 * Pure; no allocation; about a microsecond.
 */

#include <stdbool.h>

#define PLIM_POINTS_MAX 16u

struct plim_point {
    double seconds; /* relative to anything */
    double bytes;
    double load, swing; /* < 0: not known */
};

struct plim_trend {
    unsigned n;
    double seconds;       /* from the first point to the last */
    double slope;         /* bytes a second, without the load's share */
    double error;         /* standard error of it */
    double p;             /* probability of such growth by chance; 1 when it does not grow */
    double grown;         /* bytes, last point against first */
    double largest_rise;  /* bytes, between neighbours */
    double falls;         /* bytes, sum of all falls, positive */
    unsigned rises;       /* how many of the n - 1 steps rise */
    double slowing;       /* growth of the second half / of the first; 1: even */
    double slowing_error; /* standard error of it */
    double second;        /* bytes, growth of the second half */
    double slowing_t;     /* how many standard errors the second is below the first */
    double steadiness_t;  /* mean increment against the spread of increments */
    bool load_explains;   /* load and time rise together: they cannot be told apart */
};

/** plim_trend_of() - false: fewer than five points, or not in order. */
bool plim_trend_of(const struct plim_point *points, unsigned n, struct plim_trend *out);

/** plim_student_tail() - P(T > t) with `df` >= 1 degrees of freedom. Source: Abramowitz and Stegun
 * 26.7.3 and 26.7.4, exact for whole df. */
double plim_student_tail(double t, unsigned df);

#endif
