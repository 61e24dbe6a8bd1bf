/* SPDX-License-Identifier: Apache-2.0 */
/* See traffic.h. */

#include "heap/traffic.h"

#include "base/num.h"

#include <string.h>

void plim_traffic_fini(struct plim_traffic *traffic)
{
    plim_vec_fini(&traffic->arrivals);
    plim_vec_fini(&traffic->hashes);
}

uint64_t plim_traffic_span(const struct plim_traffic *traffic)
{
    size_t n = traffic->arrivals.n;
    return n == 0 ? 0 : traffic->arrivals.items[n - 1].at_ns - traffic->arrivals.items[0].at_ns;
}

static bool sorted(const struct plim_arrival *a, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (a[i].at_ns < a[i - 1].at_ns) {
            return false;
        }
    }
    return true;
}

/* Two sorted runs of `from`, [lo, mid) and [mid, hi), into `to`; of equal times the left one is first. */
static void merge(const struct plim_arrival *from, struct plim_arrival *to, size_t lo, size_t mid,
                  size_t hi)
{
    size_t left = lo, right = mid;
    for (size_t i = lo; i < hi; i++) {
        bool take_left = left < mid && (right >= hi || from[left].at_ns <= from[right].at_ns);
        to[i] = take_left ? from[left++] : from[right++];
    }
}

/* Bottom-up merge sort: stable, and no worse on hostile input. */
static enum plim_status sort(struct plim_traffic *traffic, struct plim_err *err)
{
    size_t n = traffic->arrivals.n;
    struct plim_arrival *from = traffic->arrivals.items;
    struct plim_arrival *to = malloc(n * sizeof *to);
    if (!to) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to sort %zu arrivals", n);
    }
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n;
            size_t hi = mid + width < n ? mid + width : n;
            merge(from, to, lo, mid, hi);
        }
        struct plim_arrival *swap = from;
        from = to;
        to = swap;
    }
    if (from != traffic->arrivals.items) {
        memcpy(traffic->arrivals.items, from, n * sizeof *from);
        to = from;
    }
    free(to);
    return PLIM_OK;
}

enum plim_status plim_traffic_settle(struct plim_traffic *traffic, struct plim_err *err)
{
    size_t n = traffic->arrivals.n;
    if (!sorted(traffic->arrivals.items, n)) {
        PLIM_TRY(sort(traffic, err));
    }
    uint64_t start = n > 0 ? traffic->arrivals.items[0].at_ns : 0;
    plim_vec_foreach (a, &traffic->arrivals) {
        a->at_ns -= start;
    }
    return PLIM_OK;
}

void plim_traffic_spread(struct plim_traffic *traffic)
{
    struct plim_arrival *a = traffic->arrivals.items;
    size_t n = traffic->arrivals.n;
    uint64_t gap = n > 1 ? plim_traffic_span(traffic) / (n - 1) : 0;
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && a[next].at_ns == a[i].at_ns; next++) {
        }
        uint64_t start = a[i].at_ns;
        uint64_t room = next < n ? a[next].at_ns - start : gap * (next - i);
        for (size_t k = i; k < next; k++) {
            a[k].at_ns = start + room / (next - i) * (k - i);
        }
    }
}
