/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Conditions of one process that are seen at one moment: device memory continued in host memory, a
 * server that sleeps and holds too much, a rank that differs from its siblings.
 */

#include "base/bytes.h"
#include "detect/detect_int.h"

#include <math.h>
#include <stdio.h>

#define SPILL_BYTES   (64 * PLIM_MIB) /* figures of two sources differ by so much without meaning */
#define SPILL_SHARE   0.02            /* likewise, of the reserved bytes */
#define RESIDUE_BYTES (2 * PLIM_GIB)  /* a context, graphs and communicators are less */
#define RESIDUE_SHARE 0.10            /* of what it held awake */
#define SIBLINGS      4u              /* fewer do not show what is usual */
#define ODD_SHARE     0.10            /* of the median */
#define ODD_BYTES     (512 * PLIM_MIB)
#define ODD_SPREADS   5.0 /* median absolute deviations, as standard deviations */

static const char *name_of(const struct plim_tracked *t)
{
    return t->subject.process[0] != '\0' ? t->subject.process : "A process";
}

/* The allocator reserved more than the driver counts on the device: the rest is in host memory. */
static enum plim_status spill(struct plim_detector *d, struct plim_tracked *t, struct plim_err *err)
{
    struct plim_claim c = {
        .state = PLIM_CLAIM_UNSURE, .severity = PLIM_SEVERITY_CRITICAL, .confidence = 0.9};
    const struct plim_holding *h = &t->now;
    char reserved[PLIM_BYTES_TEXT], held[PLIM_BYTES_TEXT], bytes[PLIM_BYTES_TEXT];
    if (h->live_valid && h->counted_valid) {
        uint64_t most = plim_max_u64(SPILL_BYTES, (uint64_t)(SPILL_SHARE * (double)h->reserved));
        c.bytes = plim_sub_sat(h->reserved, h->held);
        c.state = c.bytes > most ? PLIM_CLAIM_HOLDS : PLIM_CLAIM_CLEAR;
    }
    if (c.state == PLIM_CLAIM_HOLDS) {
        (void)snprintf(c.summary, sizeof(c.summary),
                       "%s (pid %u) on device %u has %s of its device memory in host memory.",
                       name_of(t), t->subject.pid, t->subject.device,
                       plim_bytes_format(bytes, c.bytes));
        plim__finding_say(c.evidence, sizeof(c.evidence),
                          "Its allocator reserved %s, the driver counts %s on the device.",
                          plim_bytes_format(reserved, h->reserved),
                          plim_bytes_format(held, h->held));
        (void)snprintf(
            c.next_step, sizeof(c.next_step),
            "Every use of those bytes goes over the bus, which is many times slower. Make "
            "room on the device, or turn the driver's fallback to system memory off.");
    } else {
        plim__finding_say(c.evidence, sizeof(c.evidence), "All of it is on the device again.");
    }
    return plim__claim(d, t, PLIM_FINDING_SPILL, &c, err);
}

static void say_residue(const struct plim_tracked *t, struct plim_claim *c)
{
    char held[PLIM_BYTES_TEXT], awake[PLIM_BYTES_TEXT], first[PLIM_BYTES_TEXT];
    (void)snprintf(c->summary, sizeof(c->summary),
                   "%s (pid %u) sleeps and still holds %s on device %u.", name_of(t),
                   t->subject.pid, plim_bytes_format(held, t->now.held), t->subject.device);
    plim__finding_say(c->evidence, sizeof(c->evidence), "Awake it held %s.",
                      plim_bytes_format(awake, t->awake_most));
    if (t->sleeps > 1 && t->now.held > t->first_residue + 256 * PLIM_MIB) {
        plim__finding_say(c->evidence, sizeof(c->evidence),
                          "After its first sleep it was %s; this is sleep %llu: it grows.",
                          plim_bytes_format(first, t->first_residue),
                          (unsigned long long)t->sleeps);
    }
    (void)snprintf(
        c->next_step, sizeof(c->next_step),
        "A deeper sleep level, or a restart of the server, gives it back; plimsoll record shows "
        "which owners keep it.");
}

/* A server that its engine says is asleep. Awake, nothing can be said of it. */
static enum plim_status residue(struct plim_detector *d, struct plim_tracked *t,
                                struct plim_err *err)
{
    struct plim_claim c = {.state = PLIM_CLAIM_UNSURE,
                           .severity = PLIM_SEVERITY_NOTICE,
                           .confidence = 0.85,
                           .bytes = t->now.held};
    if (!t->now.asleep) {
        t->awake_most = plim_max_u64(t->awake_most, t->now.held);
        t->asleep_ns = 0;
        return PLIM_OK;
    }
    if (t->asleep_ns == 0) {
        t->asleep_ns = d->now_ns;
        t->sleeps++;
    }
    if (d->now_ns - t->asleep_ns >= PLIM_MINUTE) {
        uint64_t most =
            plim_max_u64(RESIDUE_BYTES, (uint64_t)(RESIDUE_SHARE * (double)t->awake_most));
        t->first_residue = t->first_residue == 0 ? t->now.held : t->first_residue;
        c.state =
            t->now.held > most && t->awake_most > t->now.held ? PLIM_CLAIM_HOLDS : PLIM_CLAIM_CLEAR;
    }
    if (c.state == PLIM_CLAIM_HOLDS) {
        say_residue(t, &c);
    } else {
        plim__finding_say(c.evidence, sizeof(c.evidence), "This time it gave its memory back.");
    }
    return plim__claim(d, t, PLIM_FINDING_SLEEP_RESIDUE, &c, err);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
    return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Ranks of one job: processes of one name and one parent, each on a device of its own. */
static bool siblings(const struct plim_tracked *a, const struct plim_tracked *b)
{
    return b->subject.pid != 0 && a->now.ppid > 1 && a->now.ppid == b->now.ppid &&
           b->settled_ns != 0 && b->now.held_valid &&
           strcmp(a->subject.process, b->subject.process) == 0;
}

static enum plim_status outlier(struct plim_detector *d, struct plim_tracked *t,
                                struct plim_err *err)
{
    struct plim_claim c = {
        .state = PLIM_CLAIM_CLEAR, .severity = PLIM_SEVERITY_NOTICE, .confidence = 0.8};
    double held[64], away[64], own = (double)t->now.held;
    size_t n = 0;
    char mine[PLIM_BYTES_TEXT], usual[PLIM_BYTES_TEXT];
    plim_vec_foreach (s, &d->subjects) {
        if (n < PLIM_COUNT_OF(held) && plim__seen(d, s) && siblings(t, s)) {
            held[n++] = (double)s->now.held;
        }
    }
    if (n < SIBLINGS && t->standing[PLIM_FINDING_OUTLIER].id == 0) {
        return PLIM_OK;
    }
    double middle = n > 0 ? median(held, n) : own;
    for (size_t i = 0; i < n; i++) {
        away[i] = fabs(held[i] - middle);
    }
    double spread = n > 0 ? 1.4826 * median(away, n) : 0;
    double most = fmax(fmax(ODD_SHARE * middle, (double)ODD_BYTES), ODD_SPREADS * spread);
    if (n >= SIBLINGS && fabs(own - middle) > most) {
        c.state = PLIM_CLAIM_HOLDS;
        c.bytes = (uint64_t)fabs(own - middle);
        (void)snprintf(c.summary, sizeof(c.summary),
                       "%s (pid %u) on device %u holds %s, its siblings hold %s.", name_of(t),
                       t->subject.pid, t->subject.device, plim_bytes_format(mine, t->now.held),
                       plim_bytes_format(usual, (uint64_t)middle));
        plim__finding_say(c.evidence, sizeof(c.evidence),
                          "Compared with the median of %zu processes of the same parent.", n);
        (void)snprintf(
            c.next_step, sizeof(c.next_step),
            "Compare snapshots of the two: plimsoll diff. The fullest one fails first, and all "
            "others fail with it.");
    } else {
        plim__finding_say(c.evidence, sizeof(c.evidence), "It holds what its siblings hold.");
    }
    return plim__claim(d, t, PLIM_FINDING_OUTLIER, &c, err);
}

enum plim_status plim__rule_conditions(struct plim_detector *d, struct plim_tracked *t,
                                       struct plim_err *err)
{
    PLIM_TRY(spill(d, t, err));
    PLIM_TRY(residue(d, t, err));
    bool minute = d->now_ns / PLIM_MINUTE != t->compared_minute;
    t->compared_minute = d->now_ns / PLIM_MINUTE;
    return minute && t->settled_ns != 0 && t->now.held_valid ? outlier(d, t, err) : PLIM_OK;
}
