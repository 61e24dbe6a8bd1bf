/* SPDX-License-Identifier: Apache-2.0 */

/* See detect.h and detect_int.h: the step, and what is asked from outside. */

#include "detect/detect_int.h"

const char *plim_finding_class_text(enum plim_finding_class class)
{
    static const char *const text[] = {
#define PLIM__X(name, text, severity) text,
        PLIM_FINDING_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)class < PLIM_FINDING_CLASSES ? text[class] : "unknown";
}

const char *plim_severity_text(enum plim_severity severity)
{
    static const char *const text[] = {
#define PLIM__X(name, text) text,
        PLIM_SEVERITY_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)severity < PLIM_SEVERITIES ? text[severity] : "unknown";
}

enum plim_status plim_detector_new(const struct plim_detect_options *options,
                                   struct plim_detector **out, struct plim_err *err)
{
    struct plim_detector *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "out of memory for the detector");
    }
    d->options = options != NULL ? *options : (struct plim_detect_options){0};
    if (d->options.warmup_ns == 0) {
        d->options.warmup_ns = 10 * PLIM_MINUTE;
    }
    if (!(d->options.capacity_ratio > 0 && d->options.capacity_ratio <= 1)) {
        d->options.capacity_ratio = 0.95;
    }
    d->next_id = 1;
    *out = d;
    return PLIM_OK;
}

void plim_detector_free(struct plim_detector *d)
{
    if (d != NULL) {
        plim__books_free(d);
        plim_vec_fini(&d->findings);
        free(d);
    }
}

/* A gap is a silence of ten minutes, or of ten periods where those are longer: the machine was suspended
 * or nobody watched. It counts as one period of awake time. */
static void advance(struct plim_detector *d, const struct plim_observation *o)
{
    uint64_t gap = plim_max_u64(10 * PLIM_MINUTE, 10 * d->period_ns);
    uint64_t passed = plim_sub_sat(o->mono_ns, d->mono_ns);
    if (d->step == 0) {
        d->now_ns = PLIM_SECOND; /* so that 0 can mean "never" */
    } else if (passed >= gap) {
        d->now_ns += plim_max_u64(d->period_ns, 1);
    } else {
        d->now_ns += passed;
        d->period_ns = d->step == 1 ? passed : (7 * d->period_ns + passed) / 8;
    }
    d->mono_ns = o->mono_ns;
    d->time_ns = o->sample.time_ns;
    d->step++;
}

enum plim_status plim_detector_step(struct plim_detector *d, const struct plim_observation *o,
                                    struct plim_err *err)
{
    advance(d, o);
    plim__take_notes(d, o);
    PLIM_TRY(plim__note_ooms(d, o, err));
    PLIM_TRY(plim__books(d, o, err));
    plim_vec_foreach (t, &d->subjects) {
        if (!plim__seen(d, t)) {
            continue;
        }
        if (t->subject.pid == 0) {
            PLIM_TRY(plim__rule_trouble(d, t, o, err));
            PLIM_TRY(plim__rule_capacity(d, t, err));
            PLIM_TRY(plim__rule_cluster(d, t, err));
        } else {
            plim__count_ooms(d, t);
            PLIM_TRY(plim__rule_ooms(d, t, err));
            PLIM_TRY(plim__rule_requests(d, t, err));
            PLIM_TRY(plim__rule_conditions(d, t, err));
        }
        PLIM_TRY(plim__rule_growth(d, t, err));
    }
    plim__findings_tidy(d);
    return PLIM_OK;
}

const struct plim_finding *plim_detector_findings(const struct plim_detector *d, size_t *n)
{
    *n = d->findings.n;
    return d->findings.items;
}

struct plim_estimate plim_detector_left(const struct plim_detector *d, uint32_t device)
{
    const struct plim_tracked *t = plim__device_of(d, device);
    const struct plim_growing *g = t != NULL ? t->growing[PLIM_FOLLOWED_USED] : NULL;
    return g != NULL ? plim__left(g, (double)t->free, (double)t->free) : (struct plim_estimate){0};
}
