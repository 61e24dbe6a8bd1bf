/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Claims become findings. A claim must hold for a while before its finding is raised, and be clear for
 * a while before it ends; both times are those of the class, below. In between nothing changes, so a
 * figure that trembles about its threshold makes one finding, not many.
 */

#include "detect/detect_int.h"

#include <stdio.h>

/* How long a claim must hold, and be clear. Classes whose rules look at windows of time need little
 * more than the window itself; classes of single figures need the figure to stay. */
static const struct {
    uint64_t raise_ns, end_ns;
} patience[PLIM_FINDING_CLASSES] = {
    [PLIM_FINDING_LEAK] = {3 * PLIM_MINUTE, 5 * PLIM_MINUTE},
    [PLIM_FINDING_FRAGMENTATION] = {5 * PLIM_MINUTE, 10 * PLIM_MINUTE},
    [PLIM_FINDING_CACHE_GROWTH] = {3 * PLIM_MINUTE, 5 * PLIM_MINUTE},
    [PLIM_FINDING_EXTERNAL] = {3 * PLIM_MINUTE, 5 * PLIM_MINUTE},
    [PLIM_FINDING_SLEEP_RESIDUE] = {PLIM_MINUTE, 0},
    [PLIM_FINDING_SPILL] = {30 * PLIM_SECOND, PLIM_MINUTE},
    [PLIM_FINDING_CAPACITY] = {10 * PLIM_SECOND, PLIM_MINUTE},
    [PLIM_FINDING_OOM_CLUSTER] = {0, 0},
    [PLIM_FINDING_OUTLIER] = {10 * PLIM_MINUTE, 10 * PLIM_MINUTE},
    [PLIM_FINDING_DEVICE] = {0, 0},
    [PLIM_FINDING_OOM] = {0, 0},
};

#define QUIET_NS PLIM_HOUR /* how long an ended finding is still told */

static struct plim_finding *find(struct plim_detector *d, uint64_t id)
{
    plim_vec_foreach (f, &d->findings) {
        if (f->id == id) {
            return f;
        }
    }
    return NULL;
}

/* Awake time as time since 1970, by the newest observation. */
static uint64_t wall(const struct plim_detector *d, uint64_t now_ns)
{
    return plim_sub_sat(d->time_ns, plim_sub_sat(d->now_ns, now_ns));
}

static void fill(struct plim_finding *f, const struct plim_tracked *t, const struct plim_claim *c)
{
    f->subject = t->subject;
    f->severity = c->severity;
    f->confidence = c->confidence;
    f->bytes = c->bytes;
    f->slope = c->slope;
    f->seconds_left = c->seconds_left;
    memcpy(f->summary, c->summary, sizeof(f->summary));
    memcpy(f->evidence, c->evidence, sizeof(f->evidence));
    memcpy(f->next_step, c->next_step, sizeof(f->next_step));
}

static void end(struct plim_detector *d, struct plim_standing *s, const char *why)
{
    struct plim_finding *f = find(d, s->id);
    if (f != NULL) {
        f->active = false;
        f->ended_ns = d->time_ns;
        f->seconds_left.valid = false;
        plim__finding_say(f->evidence, sizeof(f->evidence), "%s", why);
        d->unsorted = true;
    }
    *s = (struct plim_standing){0};
}

static size_t active(const struct plim_detector *d)
{
    size_t n = 0;
    plim_vec_foreach (f, &d->findings) {
        n += f->active;
    }
    return n;
}

static enum plim_status raise(struct plim_detector *d, struct plim_tracked *t,
                              enum plim_finding_class class, const struct plim_claim *claim,
                              struct plim_err *err)
{
    struct plim_standing *s = &t->standing[class];
    struct plim_finding f = {.id = d->next_id, .class = class, .active = true};
    if (active(d) >= PLIM_ACTIVE_MAX) {
        return PLIM_OK; /* it is raised when another one has ended */
    }
    fill(&f, t, claim);
    f.since_ns = wall(d, claim->began_ns != 0 ? claim->began_ns : s->since_ns);
    PLIM_TRY(plim_vec_push(&d->findings, err, f));
    d->next_id++;
    d->unsorted = true;
    *s = (struct plim_standing){.id = f.id};
    return PLIM_OK;
}

enum plim_status plim__claim(struct plim_detector *d, struct plim_tracked *t,
                             enum plim_finding_class class, const struct plim_claim *claim,
                             struct plim_err *err)
{
    struct plim_standing *s = &t->standing[class];
    bool is_active = s->id != 0;
    enum plim_claim_state turns = is_active ? PLIM_CLAIM_CLEAR : PLIM_CLAIM_HOLDS;
    struct plim_finding *f = is_active ? find(d, s->id) : NULL;
    if (f != NULL && claim->state == PLIM_CLAIM_HOLDS) {
        d->unsorted |= f->severity != claim->severity;
        fill(f, t, claim);
    }
    if (claim->state != turns) {
        s->counting = s->counting && claim->state == PLIM_CLAIM_UNSURE && is_active;
        return PLIM_OK;
    }
    if (!s->counting) {
        s->counting = true;
        s->since_ns = d->now_ns;
    }
    uint64_t passed = d->now_ns - s->since_ns;
    if (is_active && passed >= patience[class].end_ns) {
        end(d, s, claim->evidence[0] != '\0' ? claim->evidence : "It is over.");
    } else if (!is_active && passed >= patience[class].raise_ns) {
        PLIM_TRY(raise(d, t, class, claim, err));
    }
    return PLIM_OK;
}

void plim__findings_end(struct plim_detector *d, struct plim_tracked *t, const char *why)
{
    for (int i = 0; i < PLIM_FINDING_CLASSES; i++) {
        if (t->standing[i].id != 0) {
            end(d, &t->standing[i], why);
        }
    }
}

/* Active first, the gravest first, the oldest first; ended ones by when they ended, newest first. */
static int compare(const void *left, const void *right)
{
    const struct plim_finding *a = left, *b = right;
    if (a->active != b->active) {
        return a->active ? -1 : 1;
    }
    if (a->active && a->severity != b->severity) {
        return a->severity > b->severity ? -1 : 1;
    }
    if (!a->active && a->ended_ns != b->ended_ns) {
        return a->ended_ns > b->ended_ns ? -1 : 1;
    }
    return a->id < b->id ? -1 : a->id > b->id;
}

void plim__findings_tidy(struct plim_detector *d)
{
    size_t kept = 0, quiet = 0;
    if (d->unsorted && d->findings.n > 1) {
        qsort(d->findings.items, d->findings.n, sizeof(*d->findings.items), compare);
    }
    d->unsorted = false;
    plim_vec_foreach (f, &d->findings) {
        bool old = !f->active && plim_sub_sat(d->time_ns, f->ended_ns) > QUIET_NS;
        quiet += !f->active && !old;
        if (f->active || (!old && quiet <= PLIM_QUIET_MAX)) {
            struct plim_finding *to = &d->findings.items[kept++];
            if (to != f) {
                *to = *f;
            }
        }
    }
    d->findings.n = kept;
}
