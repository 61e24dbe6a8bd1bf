/* SPDX-License-Identifier: Apache-2.0 */

/* See series.h. Buckets of every scale begin at multiples of their length, so a coarse one is made of
 * whole finer ones, and the place of one in its ring is its number modulo the ring's length. */

#include "detect/series.h"

#include <stddef.h>

#define MINUTE_NS UINT64_C(60000000000)

static const struct {
    uint32_t minutes, kept;
} scales[PLIM_SCALES] = {{1, PLIM_MINUTES}, {10, PLIM_TENS}, {120, PLIM_HOURS}};

static struct plim_bucket *ring(struct plim_series *s, enum plim_scale scale)
{
    return scale == PLIM_SCALE_MINUTES ? s->minutes : scale == PLIM_SCALE_TENS ? s->tens : s->hours;
}

static void widen(struct plim_filling *f, double low, double high)
{
    f->low = f->any && f->low < low ? f->low : low;
    f->high = f->any && f->high > high ? f->high : high;
    f->any = true;
}

/* Close the bucket that is filled, and hand what it holds to the next coarser one. */
static void close_bucket(struct plim_series *s, enum plim_scale scale, uint64_t number)
{
    struct plim_filling *f = &s->filling[scale];
    struct plim_bucket b = {-1, -1, -1, 0, -1};
    if (f->any) {
        if (scale == PLIM_SCALE_MINUTES) {
            f->swing = f->high - f->low;
            f->swings = 1;
        }
        b = (struct plim_bucket){(float)f->low, (float)f->high, (float)(f->sum / f->sums),
                                 (float)(f->swing / f->swings),
                                 f->loads > 0 ? (float)(f->load / f->loads) : -1};
        if (scale + 1 < PLIM_SCALES) {
            struct plim_filling *up = &s->filling[scale + 1];
            widen(up, f->low, f->high);
            up->sum += f->sum;
            up->sums += f->sums;
            up->swing += f->swing;
            up->swings += f->swings;
            up->load += f->load;
            up->loads += f->loads;
        }
    }
    ring(s, scale)[number % scales[scale].kept] = b;
    *f = (struct plim_filling){0};
}

/* Longer than everything that is kept: begin anew. */
#define FORGET_MINUTES (120u * PLIM_HOURS)

bool plim_series_add(struct plim_series *s, uint64_t now_ns, double value, double load)
{
    uint64_t minute = now_ns / MINUTE_NS;
    bool closed = false;
    if (!s->began || minute < s->now || minute - s->now > FORGET_MINUTES) {
        *s = (struct plim_series){.first = minute, .now = minute, .began = true};
    }
    while (s->now < minute) {
        for (int scale = 0; scale < PLIM_SCALES; scale++) {
            if ((s->now + 1) % scales[scale].minutes == 0) {
                close_bucket(s, (enum plim_scale)scale, s->now / scales[scale].minutes);
            }
        }
        s->now++;
        closed = true;
    }
    struct plim_filling *f = &s->filling[PLIM_SCALE_MINUTES];
    widen(f, value, value);
    f->sum += value;
    f->sums++;
    if (load >= 0) {
        f->load += load;
        f->loads++;
    }
    return closed;
}

const struct plim_bucket *plim_series_bucket(const struct plim_series *s, enum plim_scale scale,
                                             unsigned back)
{
    uint64_t open = s->now / scales[scale].minutes, first = s->first / scales[scale].minutes;
    if (!s->began || back >= scales[scale].kept || open < first + back + 1) {
        return NULL;
    }
    const struct plim_bucket *b = scale == PLIM_SCALE_MINUTES ? s->minutes
                                  : scale == PLIM_SCALE_TENS  ? s->tens
                                                              : s->hours;
    b += (open - 1 - back) % scales[scale].kept;
    return b->low >= 0 ? b : NULL;
}

bool plim_series_closed(const struct plim_series *s, enum plim_scale scale)
{
    return s->now % scales[scale].minutes == 0;
}

double plim_scale_seconds(enum plim_scale scale)
{
    return 60.0 * scales[scale].minutes;
}

double plim_series_age(const struct plim_series *s, enum plim_scale scale)
{
    uint64_t whole = s->now / scales[scale].minutes * scales[scale].minutes;
    return s->began && whole > s->first ? 60.0 * (double)(whole - s->first) : 0;
}

unsigned plim_series_kept(enum plim_scale scale)
{
    return scales[scale].kept;
}

void plim_series_restore(struct plim_series *s, uint64_t first, uint64_t now)
{
    *s = (struct plim_series){.first = first, .now = now, .began = true};
    for (int scale = 0; scale < PLIM_SCALES; scale++) {
        for (unsigned i = 0; i < scales[scale].kept; i++) {
            ring(s, (enum plim_scale)scale)[i] = (struct plim_bucket){-1, -1, -1, 0, -1};
        }
    }
}

void plim_series_set(struct plim_series *s, enum plim_scale scale, unsigned back,
                     const struct plim_bucket *bucket)
{
    uint64_t open = s->now / scales[scale].minutes;
    if (back < scales[scale].kept && open > back) {
        ring(s, scale)[(open - 1 - back) % scales[scale].kept] = *bucket;
    }
}
