/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DETECT_SERIES_H
#define PLIM_DETECT_SERIES_H

/*
 * What is remembered of one figure: at three scales, the lowest, the highest and the mean value in each
 * bucket of time, how much it moved within it, and the load that went with it.
 *
 *   scale    bucket    kept
 *   minutes  1 min     1 hour
 *   tens     10 min    25 hours: a day, and the same hour of the day before
 *   hours    2 h       7 days: a week
 *
 * Growth is looked for in the lowest values: the working set comes and goes, what is left when it has
 * gone does not. Where load is known, it is looked for in the means, too. Memory: 6 KiB a figure, whatever the length of the history. Cost: O(1) a value.
 * Time is awake time (detect_int.h). Values are kept as floats: 24 bits, 8 KiB of 128 GiB.
 */

#include <stdbool.h>
#include <stdint.h>

#define PLIM_MINUTES 60u
#define PLIM_TENS    150u
#define PLIM_HOURS   84u

enum plim_scale {
    PLIM_SCALE_MINUTES,
    PLIM_SCALE_TENS,
    PLIM_SCALE_HOURS,
    PLIM_SCALES
};

struct plim_bucket {
    float low, high; /* bytes; low < 0: nothing was seen in it */
    float mean;      /* bytes, of the observations */
    float swing;     /* bytes: high - low within a minute, on average */
    float load;      /* mean; any unit, < 0: not known */
};

/* A bucket that is still filled. */
struct plim_filling {
    double low, high, sum, swing, load;
    uint32_t sums, swings, loads; /* how many are in those sums */
    bool any;
};

struct plim_series {
    uint64_t first; /* number of the minute in which it began, of awake time */
    uint64_t now;   /* number of the minute that is filled */
    bool began;
    struct plim_filling filling[PLIM_SCALES];
    struct plim_bucket minutes[PLIM_MINUTES], tens[PLIM_TENS], hours[PLIM_HOURS];
};

/** plim_series_add() - a value at that awake time. @load: < 0: not known. True: a minute was
 * completed. */
bool plim_series_add(struct plim_series *s, uint64_t now_ns, double value, double load);

/** plim_series_bucket() - the bucket `back` before the newest complete one, or NULL. */
const struct plim_bucket *plim_series_bucket(const struct plim_series *s, enum plim_scale scale,
                                             unsigned back);

/** plim_series_closed() - whether the newest minute also completed a bucket of that scale. */
bool plim_series_closed(const struct plim_series *s, enum plim_scale scale);

/** plim_scale_seconds() - length of a bucket. */
double plim_scale_seconds(enum plim_scale scale);

/** plim_series_kept() - how many buckets of a scale are kept at most. plim_series_restore() - the series
 * as it was when minute `now` began, with the buckets that plim_series_bucket() gave. */
unsigned plim_series_kept(enum plim_scale scale);
void plim_series_restore(struct plim_series *s, uint64_t first, uint64_t now);
void plim_series_set(struct plim_series *s, enum plim_scale scale, unsigned back,
                     const struct plim_bucket *bucket);

/** plim_series_age() - awake seconds from its beginning to the end of the newest complete bucket. */
double plim_series_age(const struct plim_series *s, enum plim_scale scale);

#endif
