/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The device itself: lost, hung, Xids, errors of its memory.
 *
 * Xids that a program's own fault causes (13, 31, 43, 45 by NVIDIA's Xid catalogue: a bad access, a
 * reset channel, a killed process) are a notice; all others are about the device and critical.
 * Source of the numbers: NVIDIA, "Xid Errors", deployment guide r560, table of Xids.
 */

#include "detect/detect_int.h"

#include <stdio.h>

#define TROUBLE_NS PLIM_HOUR /* how long an Xid or an error of memory is told */
#define TOGETHER_S 60.0      /* seconds: a process that ends so near to it has to do with it */

static const struct {
    uint32_t number;
    bool program; /* a program's fault */
    const char *text;
} xids[] = {
    {13, true, "an exception of a kernel"},
    {31, true, "an access to a bad address"},
    {32, false, "a corrupt command"},
    {43, true, "a channel that was reset after a program's fault"},
    {45, true, "a channel that was torn down, often because its process was killed"},
    {48, false, "an error of memory that could not be corrected"},
    {61, false, "a halt of the device's microcontroller"},
    {62, false, "a halt of the device's microcontroller"},
    {63, false, "a page or row of memory that was taken out of use"},
    {64, false, "a page or row of memory that could not be taken out of use"},
    {74, false, "an error of NVLink"},
    {79, false, "the device fell off the bus"},
    {92, false, "a high rate of corrected errors of memory"},
    {94, false, "an error of memory, contained: its program was stopped"},
    {95, false, "an error of memory, not contained: the device must be reset"},
    {119, false, "the device's system processor did not answer"},
    {120, false, "an error of the device's system processor"},
};

static const char *xid_text(uint32_t number, bool *program)
{
    *program = false;
    for (size_t i = 0; i < PLIM_COUNT_OF(xids); i++) {
        if (xids[i].number == number) {
            *program = xids[i].program;
            return xids[i].text;
        }
    }
    return "see NVIDIA's catalogue of Xids";
}

/* What counters say since the step before. A counter that falls belongs to a reloaded driver. */
static void count(struct plim_detector *d, struct plim_tracked *t,
                  const struct plim_device_sample *s)
{
    uint64_t now_xids =
        plim_has_figure(s, PLIM_FIGURE_XIDS) ? s->figure[PLIM_FIGURE_XIDS] : t->xids;
    uint64_t now_errors = plim_has_figure(s, PLIM_FIGURE_ECC_UNCORRECTED)
                              ? s->figure[PLIM_FIGURE_ECC_UNCORRECTED]
                              : t->uncorrected;
    uint64_t new_xids = plim_sub_sat(now_xids, t->counters_valid ? t->xids : now_xids);
    uint64_t new_errors = plim_sub_sat(now_errors, t->counters_valid ? t->uncorrected : now_errors);
    if (new_xids + new_errors > 0) {
        t->trouble_ns = d->now_ns;
        t->trouble_count = plim_add_sat(t->trouble_count, new_xids + new_errors);
        t->trouble_errors |= new_errors > 0;
        if (new_xids > 0 && plim_has_figure(s, PLIM_FIGURE_LAST_XID)) {
            t->trouble_xid = s->figure[PLIM_FIGURE_LAST_XID];
        }
    }
    t->xids = now_xids;
    t->uncorrected = now_errors;
    t->counters_valid = true;
}

/* The sampler may not count Xids; the monitor then tells them as happenings. */
static void listen(struct plim_detector *d, struct plim_tracked *t,
                   const struct plim_observation *o, bool counted)
{
    plim_vec_foreach (h, &o->happenings) {
        if (h->kind == PLIM_HAPPENED_XID && h->device == t->subject.device && !counted) {
            t->trouble_ns = d->now_ns;
            t->trouble_count = plim_add_sat(t->trouble_count, 1);
            t->trouble_xid = h->value;
        }
    }
}

/* A process of the device that ended within a minute of the trouble: its victim, or its cause. */
static void find_ended(const struct plim_detector *d, struct plim_tracked *t)
{
    plim_vec_foreach (p, &d->subjects) {
        bool mine = p->subject.pid != 0 && p->subject.device == t->subject.device &&
                    !plim__seen(d, p) && t->trouble_ended.name[0] == '\0';
        double after = ((double)p->seen_ns - (double)t->trouble_ns) / 1e9;
        if (mine && after <= TOGETHER_S && after >= -TOGETHER_S) {
            (void)snprintf(t->trouble_ended.name, sizeof(t->trouble_ended.name), "%s",
                           p->subject.process[0] != '\0' ? p->subject.process : "a process");
            t->trouble_ended.pid = p->subject.pid;
            t->trouble_ended.seconds = (int32_t)after;
        }
    }
}

static void say_errors(struct plim_claim *c, const struct plim_tracked *t)
{
    bool program;
    const char *text = xid_text((uint32_t)t->trouble_xid, &program);
    if (t->trouble_errors || t->trouble_xid == 0) {
        (void)snprintf(c->summary, sizeof(c->summary),
                       "Device %u had errors of its memory that could not be corrected.",
                       t->subject.device);
    } else {
        (void)snprintf(c->summary, sizeof(c->summary), "Device %u reported Xid %u: %s.",
                       t->subject.device, (uint32_t)t->trouble_xid, text);
        c->severity = program ? PLIM_SEVERITY_NOTICE : PLIM_SEVERITY_CRITICAL;
    }
    plim__finding_say(c->evidence, sizeof(c->evidence), "%llu errors since it began%s.",
                      (unsigned long long)t->trouble_count,
                      program ? "; this kind is usually a program's own fault" : "");
    if (t->trouble_ended.name[0] != '\0') {
        char span[24];
        int32_t after = t->trouble_ended.seconds;
        plim__finding_say(c->evidence, sizeof(c->evidence), "%s (pid %u) ended %s%s.",
                          t->trouble_ended.name, t->trouble_ended.pid,
                          after == 0 ? "at that time"
                                     : plim__span(span, after < 0 ? -after : after),
                          after == 0  ? ""
                          : after > 0 ? " after it"
                                      : " before it");
    }
    (void)snprintf(c->next_step, sizeof(c->next_step), "%s",
                   program ? "Look at the program that failed at this time; run it under "
                             "compute-sanitizer."
                           : "Drain the device, look at the kernel's log (dmesg), and reset it or "
                             "have it replaced.");
}

enum plim_status plim__rule_trouble(struct plim_detector *d, struct plim_tracked *t,
                                    const struct plim_observation *o, struct plim_err *err)
{
    const struct plim_device_sample *s = &o->sample.devices.items[t->subject.device];
    struct plim_claim c = {.severity = PLIM_SEVERITY_CRITICAL, .confidence = 1};
    count(d, t, s);
    listen(d, t, o, plim_has_figure(s, PLIM_FIGURE_XIDS));
    bool gone = s->state == PLIM_DEVICE_LOST || s->state == PLIM_DEVICE_HUNG ||
                s->state == PLIM_DEVICE_ERROR;
    bool pending =
        plim_has_figure(s, PLIM_FIGURE_REMAP_PENDING) && s->figure[PLIM_FIGURE_REMAP_PENDING] != 0;
    if (t->trouble_ns != 0 && d->now_ns - t->trouble_ns > TROUBLE_NS) {
        t->trouble_ns = t->trouble_count = 0;
        t->trouble_ended.name[0] = '\0';
        t->trouble_xid = 0;
        t->trouble_errors = false;
    }
    if (t->trouble_ns != 0) {
        find_ended(d, t);
    }
    c.state = gone || pending || t->trouble_ns != 0 ? PLIM_CLAIM_HOLDS : PLIM_CLAIM_CLEAR;
    if (gone) {
        (void)snprintf(c.summary, sizeof(c.summary), "Device %u does not answer: it is %s.",
                       t->subject.device, plim_device_state_text(s->state));
        plim__finding_say(c.evidence, sizeof(c.evidence), "The driver's code is %d.", s->code);
        (void)snprintf(
            c.next_step, sizeof(c.next_step),
            "Look at the kernel's log (dmesg) and at plimsoll doctor; a device that fell "
            "off the bus needs a reset or a restart of the machine.");
    } else if (t->trouble_ns != 0) {
        say_errors(&c, t);
    } else if (pending) {
        c.severity = PLIM_SEVERITY_WARNING;
        (void)snprintf(c.summary, sizeof(c.summary),
                       "Device %u waits for a reset to take bad rows of memory out of use.",
                       t->subject.device);
        (void)snprintf(c.next_step, sizeof(c.next_step),
                       "Drain it and reset it when it is convenient.");
    } else {
        plim__finding_say(c.evidence, sizeof(c.evidence),
                          "It answers, without new errors for an hour.");
    }
    return plim__claim(d, t, PLIM_FINDING_DEVICE, &c, err);
}
