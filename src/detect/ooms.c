/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Processes that were refused memory, and the age at which it happens to them.
 *
 * A program that leaks fails at a like age each time; one that meets a rare large request fails at any
 * age, with a coefficient of variation near 1. With few failures a small coefficient comes by chance,
 * so the limit depends on how many there are: for each number the 1 % quantile of the coefficient of
 * exponential ages, corrected for small samples by 1 + 1/4n (Sokal and Rohlf), by simulation
 * (60,000 samples each).
 */

#include "base/bytes.h"
#include "detect/detect_int.h"

#include <math.h>
#include <stdio.h>

#define TOLD_NS   (10 * PLIM_MINUTE) /* how long a failure is told */
#define SAME_NS   (5 * PLIM_SECOND)  /* two sources tell of one failure within this time */
#define CLUSTER_S (7 * 86400.0)      /* seconds: without a failure for so long it is over */
#define OUTLIVED  1.5                /* times the usual age: the program has outlived it */

static const double limits[PLIM_AGES + 1] = {
    [3] = 0.122, [4] = 0.231, [5] = 0.307, [6] = 0.364, [7] = 0.411, [8] = 0.444};

/* The line of a program's lives, by its name; the oldest gives way to a new one. */
static struct plim_lineage *lineage_of(struct plim_detector *d, const char *name)
{
    struct plim_lineage *oldest = &d->lineages[0];
    for (unsigned i = 0; i < PLIM_LINEAGES; i++) {
        struct plim_lineage *l = &d->lineages[i];
        if (strcmp(l->name, name) == 0) {
            return l;
        }
        oldest = l->newest_ns < oldest->newest_ns ? l : oldest;
    }
    *oldest = (struct plim_lineage){0};
    (void)snprintf(oldest->name, sizeof(oldest->name), "%s", name);
    return oldest;
}

/* Mean and corrected coefficient of variation of the ages. */
static double variation(const struct plim_lineage *l, double *mean)
{
    double sum = 0, squares = 0;
    for (unsigned i = 0; i < l->n; i++) {
        sum += (double)l->ages[i];
    }
    *mean = sum / fmax(l->n, 1);
    for (unsigned i = 0; i < l->n; i++) {
        squares += ((double)l->ages[i] - *mean) * ((double)l->ages[i] - *mean);
    }
    return l->n < 2 || *mean <= 0 ? 1 : sqrt(squares / (l->n - 1)) / *mean * (1 + 0.25 / l->n);
}

static bool clusters(const struct plim_lineage *l, double *mean, double *cv)
{
    *cv = variation(l, mean);
    return l->n >= 3 && *mean > 60 && *cv <= limits[l->n];
}

/* What the program asked for will be asked for again. */
static void remember_request(struct plim_detector *d, const struct plim_tracked *t, uint64_t bytes)
{
    if (bytes != 0 && t->subject.pid != 0 && t->subject.process[0] != '\0') {
        struct plim_lineage *l = lineage_of(d, t->subject.process);
        l->asked = bytes;
        l->newest_ns = d->now_ns;
        memcpy(l->shape, t->shapes.now, sizeof(l->shape));
    }
}

static void note(struct plim_detector *d, struct plim_tracked *t, uint64_t bytes)
{
    if (t->oom_ns != 0 && d->now_ns - t->oom_ns < SAME_NS) {
        t->oom_bytes = bytes != 0 ? bytes : t->oom_bytes;
        remember_request(d, t, bytes);
        return;
    }
    bool first = t->oom_ns == 0;
    remember_request(d, t, bytes);
    t->oom_ns = d->now_ns;
    t->oom_bytes = bytes;
    memcpy(t->oom_shape, t->shapes.now, sizeof(t->oom_shape));
    t->ooms_told++;
    /* Only the first failure of a life counts, and only of a life whose beginning was seen. */
    if (first && t->subject.pid != 0 && t->first_step > 1 && t->subject.process[0] != '\0') {
        struct plim_lineage *l = lineage_of(d, t->subject.process);
        l->ages[l->next] = (float)((double)(d->now_ns - t->first_ns) / 1e9);
        l->next = (l->next + 1) % PLIM_AGES;
        l->n += l->n < PLIM_AGES;
        l->newest_ns = d->now_ns;
        memcpy(l->device_uuid, t->subject.device_uuid, sizeof(l->device_uuid));
    }
}

static void say_oom(const struct plim_detector *d, const struct plim_tracked *t,
                    struct plim_claim *c)
{
    const struct plim_tracked *on = plim__device_of(d, t->subject.device);
    char bytes[PLIM_BYTES_TEXT], span[24];
    const char *name = t->subject.process[0] != '\0' ? t->subject.process : "A process";
    if (t->oom_bytes != 0) {
        (void)snprintf(c->summary, sizeof(c->summary), "%s (pid %u) was refused %s on device %u.",
                       name, t->subject.pid, plim_bytes_format(bytes, t->oom_bytes),
                       t->subject.device);
    } else {
        (void)snprintf(c->summary, sizeof(c->summary),
                       "%s (pid %u) was refused memory on device %u.", name, t->subject.pid,
                       t->subject.device);
    }
    plim__finding_say(c->evidence, sizeof(c->evidence), "%llu failure%s of it so far.",
                      (unsigned long long)t->ooms_told, t->ooms_told == 1 ? "" : "s");
    if (t->now.live_valid) {
        plim__finding_say(c->evidence, sizeof(c->evidence), "Its allocator has handed out %s.",
                          plim_bytes_format(bytes, t->now.live));
    }
    if (t->oom_shape[0] != '\0') {
        plim__finding_say(c->evidence, sizeof(c->evidence), "It was working on: %s.", t->oom_shape);
    }
    if (on != NULL && on->trouble_xid != 0) {
        bool after = on->trouble_ns <= t->oom_ns;
        plim__finding_say(c->evidence, sizeof(c->evidence),
                          "Its device reported Xid %llu %s %s it.",
                          (unsigned long long)on->trouble_xid,
                          plim__span(span, (double)(after ? t->oom_ns - on->trouble_ns
                                                          : on->trouble_ns - t->oom_ns) /
                                               1e9),
                          after ? "before" : "after");
    }
    (void)snprintf(c->next_step, sizeof(c->next_step),
                   "plimsoll explain on its log, or plimsoll diagnose on its snapshot, says why.");
}

enum plim_status plim__rule_ooms(struct plim_detector *d, struct plim_tracked *t,
                                 struct plim_err *err)
{
    struct plim_claim c = {.state = PLIM_CLAIM_CLEAR,
                           .severity = PLIM_SEVERITY_CRITICAL,
                           .confidence = 1,
                           .bytes = t->oom_bytes};
    if (t->oom_ns != 0 && d->now_ns - t->oom_ns < TOLD_NS) {
        c.state = PLIM_CLAIM_HOLDS;
        say_oom(d, t, &c);
    } else {
        plim__finding_say(c.evidence, sizeof(c.evidence), "No further failure for ten minutes.");
    }
    return plim__claim(d, t, PLIM_FINDING_OOM, &c, err);
}

enum plim_status plim__note_ooms(struct plim_detector *d, const struct plim_observation *o,
                                 struct plim_err *err)
{
    plim_vec_foreach (h, &o->happenings) {
        if (h->kind != PLIM_HAPPENED_OOM) {
            continue;
        }
        plim_vec_foreach (t, &d->subjects) {
            bool mine = t->subject.pid == h->pid && h->pid != 0 &&
                        (h->device == PLIM_NO_DEVICE || h->device == t->subject.device);
            if (mine) {
                note(d, t, h->value);
                PLIM_TRY(plim__rule_ooms(d, t, err));
            }
        }
    }
    return PLIM_OK;
}

void plim__count_ooms(struct plim_detector *d, struct plim_tracked *t)
{
    if (t->now.ooms_valid) {
        if (t->ooms_valid && t->now.ooms > t->ooms) {
            note(d, t, 0);
        }
        t->ooms = t->now.ooms;
        t->ooms_valid = true;
    }
}

/* Whether a process of that name lives now, much longer than they used to. */
static bool outlived(const struct plim_detector *d, const struct plim_lineage *l, double mean)
{
    plim_vec_foreach (t, &d->subjects) {
        if (t->subject.pid != 0 && plim__seen(d, t) && strcmp(t->subject.process, l->name) == 0 &&
            t->oom_ns == 0 && (double)(d->now_ns - t->first_ns) / 1e9 > OUTLIVED * mean) {
            return true;
        }
    }
    return false;
}

enum plim_status plim__rule_cluster(struct plim_detector *d, struct plim_tracked *t,
                                    struct plim_err *err)
{
    struct plim_claim c = {.state = PLIM_CLAIM_CLEAR, .severity = PLIM_SEVERITY_WARNING};
    char age[24];
    for (unsigned i = 0; i < PLIM_LINEAGES && c.state == PLIM_CLAIM_CLEAR; i++) {
        const struct plim_lineage *l = &d->lineages[i];
        double mean, cv;
        if (l->n < 3 || strcmp(l->device_uuid, t->subject.device_uuid) != 0 ||
            (double)(d->now_ns - l->newest_ns) / 1e9 > CLUSTER_S || !clusters(l, &mean, &cv) ||
            outlived(d, l, mean)) {
            continue;
        }
        c.state = PLIM_CLAIM_HOLDS;
        c.confidence = 0.9;
        (void)snprintf(c.summary, sizeof(c.summary),
                       "%s on device %u runs out of memory at a like age each time: about %s.",
                       l->name, t->subject.device, plim__span(age, mean));
        plim__finding_say(
            c.evidence, sizeof(c.evidence),
            "The last %u lives that failed had ages that vary by %.0f %%; failures by "
            "chance vary by about 100 %%.",
            l->n, 100 * cv);
        (void)snprintf(
            c.next_step, sizeof(c.next_step),
            "That is what a leak does. Restart it before that age, and take a snapshot of an "
            "old process (kill -USR2) for plimsoll diagnose.");
    }
    if (c.state == PLIM_CLAIM_CLEAR) {
        plim__finding_say(c.evidence, sizeof(c.evidence), "It has outlived that age.");
    }
    return plim__claim(d, t, PLIM_FINDING_OOM_CLUSTER, &c, err);
}
