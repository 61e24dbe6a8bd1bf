/* SPDX-License-Identifier: Apache-2.0 */

/* See trend.h. */

#include "detect/trend.h"

#include <math.h>
#include <stdlib.h>

#define COLUMNS 4u        /* 1, load, swing, time */
#define GRAIN   2097152.0 /* drivers and allocators count in 2 MiB */
#define COLLINEAR                                                                                  \
    0.1 /* of the variance of time must remain when load is known: variance inflation 10 */

double plim_student_tail(double t, unsigned df)
{
    double angle = atan2(fabs(t), sqrt((double)df)), c = cos(angle), s = sin(angle), sum, term;
    if (df % 2 == 1) {
        sum = term = df > 1 ? c : 0;
        for (unsigned k = 3; k + 1 < df; k += 2) {
            term *= c * c * (k - 1) / k;
            sum += term;
        }
        sum = 2 / M_PI * (angle + s * sum);
    } else {
        sum = term = 1;
        for (unsigned k = 2; k < df; k += 2) {
            term *= c * c * (k - 1) / k;
            sum += term;
        }
        sum *= s;
    }
    double upper = 0.5 * (1 - sum);
    upper = upper > 0 ? upper : 0;
    return t >= 0 ? upper : 1 - upper;
}

static double dot(const double *a, const double *b, unsigned n)
{
    double sum = 0;
    for (unsigned i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Make the last of `columns` orthogonal to those before it; what is left of its square. */
static double orthogonalise(double q[][PLIM_POINTS_MAX], unsigned column, unsigned n)
{
    for (unsigned c = 0; c < column; c++) {
        double norm = dot(q[c], q[c], n);
        double factor = norm > 0 ? dot(q[c], q[column], n) / norm : 0;
        for (unsigned i = 0; i < n; i++) {
            q[column][i] -= factor * q[c][i];
        }
    }
    return dot(q[column], q[column], n);
}

/* Fit of one set of points. */
struct fit {
    double q[COLUMNS][PLIM_POINTS_MAX]; /* orthogonal columns; time is the last */
    unsigned columns;
    double residual[PLIM_POINTS_MAX];
    double without_load[PLIM_POINTS_MAX]; /* bytes, less what load and swing explain */
    double time_left;                     /* share of time's variance that load does not explain */
};

/* Take a covariate into the fit when it is known and moves. */
static void add_column(struct fit *f, const struct plim_point *p, unsigned n, bool swing)
{
    double *q = f->q[f->columns], mean = 0;
    for (unsigned i = 0; i < n; i++) {
        q[i] = swing ? p[i].swing : p[i].load;
        if (q[i] < 0) {
            return;
        }
        mean += q[i] / n;
    }
    double left = orthogonalise(f->q, f->columns, n);
    f->columns += left > 1e-6 * n * mean * mean ? 1 : 0;
}

static void fit_points(struct fit *f, const struct plim_point *p, unsigned n)
{
    double mean = 0, spread = 0;
    for (unsigned i = 0; i < n; i++) {
        f->q[0][i] = 1;
    }
    f->columns = 1;
    /* A covariate costs a degree of freedom: with few points there is none to spare. */
    if (n >= 8) {
        add_column(f, p, n, false);
        add_column(f, p, n, true);
    }
    for (unsigned i = 0; i < n; i++) {
        f->q[f->columns][i] = p[i].seconds - p[0].seconds;
        mean += f->q[f->columns][i] / n;
    }
    for (unsigned i = 0; i < n; i++) {
        spread += (f->q[f->columns][i] - mean) * (f->q[f->columns][i] - mean);
    }
    f->time_left = orthogonalise(f->q, f->columns, n) / spread;
    f->columns++;
}

static double coefficient(const struct fit *f, unsigned column, const double *y, unsigned n)
{
    return dot(f->q[column], y, n) / dot(f->q[column], f->q[column], n);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_slope(const struct plim_point *p, const double *y, unsigned n)
{
    double slopes[PLIM_POINTS_MAX * (PLIM_POINTS_MAX - 1) / 2];
    unsigned k = 0;
    slopes[0] = 0; /* of a single point */
    for (unsigned i = 0; i < n; i++) {
        for (unsigned j = i + 1; j < n; j++) {
            slopes[k++] = (y[j] - y[i]) / (p[j].seconds - p[i].seconds);
        }
    }
    qsort(slopes, k, sizeof(slopes[0]), by_value);
    return k % 2 == 1 || k == 0 ? slopes[k / 2] : (slopes[k / 2 - 1] + slopes[k / 2]) / 2;
}

/* Significance of time's coefficient, and the bytes without what load explains. The coefficient of the
 * last orthogonal column is the partial one; the load's is found when time's part is taken away. */
static void judge(struct fit *f, const struct plim_point *p, unsigned n, struct plim_trend *out)
{
    double y[PLIM_POINTS_MAX], timeless[PLIM_POINTS_MAX], rest = 0, lagged = 0;
    unsigned time = f->columns - 1, df = n - f->columns;
    for (unsigned i = 0; i < n; i++) {
        y[i] = p[i].bytes - p[0].bytes;
    }
    double b = coefficient(f, time, y, n);
    for (unsigned i = 0; i < n; i++) {
        timeless[i] = y[i] - b * (p[i].seconds - p[0].seconds);
        f->without_load[i] = y[i];
        f->residual[i] = timeless[i];
    }
    for (unsigned c = 0; c < time; c++) {
        double part = coefficient(f, c, timeless, n);
        for (unsigned i = 0; i < n; i++) {
            f->residual[i] -= part * f->q[c][i];
            f->without_load[i] -= c > 0 ? part * f->q[c][i] : 0;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        rest += f->residual[i] * f->residual[i];
        lagged += i > 0 ? f->residual[i] * f->residual[i - 1] : 0;
    }
    double follow = rest > 0 ? fmin(fmax(lagged / rest + 1.0 / n, 0), 0.8) : 0;
    double variance = (rest + n * GRAIN * GRAIN / 12) / df * (1 + follow) / (1 - follow);
    out->error = sqrt(variance / dot(f->q[time], f->q[time], n));
    out->p = b > 0 ? plim_student_tail(b / out->error, df) : 1;
    out->slope = median_slope(p, f->without_load, n);
}

/* The shape of the growth: its steps, and its halves. */
static void shape(const double *y, unsigned n, struct plim_trend *out)
{
    unsigned steps = n - 1, half = steps / 2;
    double first = (y[half] - y[0]) / half;
    double second = (y[steps] - y[steps - half]) / half;
    double mean = out->grown / steps, spread = 0, within = 0;
    for (unsigned i = 0; i < steps; i++) {
        double rise = y[i + 1] - y[i];
        out->largest_rise = fmax(out->largest_rise, rise);
        out->falls += fmax(-rise, 0);
        out->rises += rise > 0;
        spread += (rise - mean) * (rise - mean);
        double expected = i < half ? first : second;
        within += i < half || i >= steps - half ? (rise - expected) * (rise - expected) : 0;
    }
    /* Rounding to the grain moves each end of a half by up to one. */
    double error = sqrt(within / (2 * half - 2) * 2 / half + 2 * GRAIN * GRAIN / 6 / half / half);
    out->second = second * half;
    out->slowing_error = first > 0 ? error / first : 0;
    out->slowing = first > 0 ? second / first : second > 0 ? 2 : 1;
    out->slowing_t = error > 0 ? (first - second) / error : first > second ? 99 : 0;
    /* Long-run variance of the steps, two lags: noise about a line gives back in the next step what it
     * took in this one, noise that adds up does not. A tenth is the least that ten steps can tell. */
    double follow = spread;
    for (unsigned lag = 1; lag <= 2; lag++) {
        for (unsigned i = lag; i < steps; i++) {
            follow += 2 * (y[i + 1] - y[i] - mean) * (y[i - lag + 1] - y[i - lag] - mean);
        }
    }
    double error_of_mean = sqrt(fmax(follow, spread / 10) + GRAIN * GRAIN / 6);
    error_of_mean /= sqrt((steps - 1.0) * steps);
    out->steadiness_t = error_of_mean > 0 ? mean / error_of_mean : 0;
}

bool plim_trend_of(const struct plim_point *p, unsigned n, struct plim_trend *out)
{
    struct fit f;
    if (n < 5 || n > PLIM_POINTS_MAX) {
        return false;
    }
    for (unsigned i = 1; i < n; i++) {
        if (!(p[i].seconds > p[i - 1].seconds)) {
            return false;
        }
    }
    *out = (struct plim_trend){.n = n, .seconds = p[n - 1].seconds - p[0].seconds};
    fit_points(&f, p, n);
    out->load_explains = f.time_left < COLLINEAR;
    if (out->load_explains) {
        for (unsigned i = 0; i < n; i++) {
            f.without_load[i] = p[i].bytes;
        }
        out->p = 1;
        out->slope = (p[n - 1].bytes - p[0].bytes) / out->seconds;
        out->error = fabs(out->slope);
    } else {
        judge(&f, p, n, out);
    }
    out->grown = f.without_load[n - 1] - f.without_load[0];
    shape(f.without_load, n, out);
    return true;
}
