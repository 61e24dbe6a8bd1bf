/* SPDX-License-Identifier: Apache-2.0 */

/* The device is nearly full. */

#include "base/bytes.h"
#include "detect/detect_int.h"

#include <stdio.h>

#define STILL   0.01 /* of total */
#define RELEASE 0.02 /* of total: so far below the threshold it must fall to be over */

/* A server that took its pool at start fills a device and stays so: its use has hardly moved for an
 * hour. */
static bool still(const struct plim_tracked *t)
{
    const struct plim_growing *g = t->growing[PLIM_FOLLOWED_USED];
    if (g == NULL || plim_series_age(&g->series, PLIM_SCALE_MINUTES) < 3600) {
        return false;
    }
    double floor = plim__growing_floor(g);
    return floor >= 0 && plim__growing_peak(g, 0, 3600) - floor < STILL * (double)t->total;
}

enum plim_status plim__rule_capacity(struct plim_detector *d, struct plim_tracked *t,
                                     struct plim_err *err)
{
    struct plim_claim c = {.severity = PLIM_SEVERITY_WARNING, .confidence = 1};
    char used[PLIM_BYTES_TEXT], total[PLIM_BYTES_TEXT], left[PLIM_BYTES_TEXT];
    if (t->books_valid) {
        double ratio = 1 - (double)t->free / (double)t->total;
        if (ratio >= d->options.capacity_ratio) {
            c.state = PLIM_CLAIM_HOLDS;
            c.severity = still(t) ? PLIM_SEVERITY_NOTICE : PLIM_SEVERITY_WARNING;
        } else if (ratio < d->options.capacity_ratio - RELEASE) {
            c.state = PLIM_CLAIM_CLEAR;
        }
        c.bytes = t->used;
        (void)snprintf(c.summary, sizeof(c.summary),
                       "Device %u is %.0f %% full: %s of %s, %s are free.", t->subject.device,
                       100 * ratio, plim_bytes_format(used, t->total - t->free),
                       plim_bytes_format(total, t->total), plim_bytes_format(left, t->free));
        plim__finding_say(c.evidence, sizeof(c.evidence),
                          c.state == PLIM_CLAIM_CLEAR ? "It has fallen to %.0f %%."
                                                      : "%.1f %% of it is used.",
                          100 * ratio);
        (void)snprintf(c.next_step, sizeof(c.next_step),
                       "Look at who holds it (plimsoll status), and at what the largest process "
                       "holds it for (plimsoll diagnose on its snapshot).");
    }
    return plim__claim(d, t, PLIM_FINDING_CAPACITY, &c, err);
}
