/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The reader of what save.c wrote. The text may come from anywhere: every number is bounded, every
 * identity that the detector relies on is checked, and it is read into a detector of its own that takes
 * the place of the old one only when all of it was good.
 */

#include "detect/estimate.h"
#include "detect/save.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#define TEXT_MAX (64u << 20) /* bytes: four thousand subjects with a week each */

static enum plim_status bad(struct plim_err *err, const char *what)
{
    return plim__fail(err, PLIM_E_DATA, "not a saved detector: %s", what);
}

static bool get_u64(const json_t *o, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* A finite number of reasonable size; anything else is 0. */
static double number(const json_t *v)
{
    double x = json_number_value(v);
    return isfinite(x) && fabs(x) < 1e18 ? x : 0;
}

static void get_text(const json_t *o, const char *key, char *out, size_t room)
{
    const char *z = json_string_value(json_object_get(o, key));
    (void)snprintf(out, room, "%s", z != NULL ? z : "");
}

static float mib(const json_t *v)
{
    double x = number(v);
    return x < 0 ? -1 : (float)(fmin(x, 1e12) * PLIM_MIB);
}

static bool get_series(const json_t *o, uint64_t now_ns, struct plim_series *s)
{
    uint64_t first, now;
    if (!get_u64(o, "first", &first) || !get_u64(o, "now", &now) || first > now ||
        now > now_ns / PLIM_MINUTE) {
        return false;
    }
    plim_series_restore(s, first, now);
    for (int scale = 0; scale < PLIM_SCALES; scale++) {
        const json_t *list = json_object_get(o, plim__scale_keys[scale]);
        size_t n = json_array_size(list), kept = plim_series_kept((enum plim_scale)scale);
        for (size_t back = 0; back < n && back < kept; back++) {
            const json_t *b = json_array_get(list, back);
            if (json_array_size(b) == 5) {
                double load = number(json_array_get(b, 4));
                struct plim_bucket bucket = {
                    mib(json_array_get(b, 0)), mib(json_array_get(b, 1)), mib(json_array_get(b, 2)),
                    fmaxf(mib(json_array_get(b, 3)), 0), load < 0 ? -1 : (float)(load / 100)};
                plim_series_set(s, (enum plim_scale)scale, (unsigned)back, &bucket);
            }
        }
    }
    return true;
}

static enum plim_status get_growing(const json_t *o, const struct plim_detector *d,
                                    struct plim_growing **out, struct plim_err *err)
{
    struct plim_growing *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "out of memory for the history of a figure");
    }
    *out = g; /* owned by its subject from here on */
    g->held = json_is_true(json_object_get(o, "held"));
    g->least = fmax(number(json_object_get(o, "least")), 0);
    g->base = number(json_object_get(o, "base"));
    g->slope = number(json_object_get(o, "slope"));
    g->window = fmax(number(json_object_get(o, "window")), 0);
    (void)get_u64(o, "grows_ns", &g->grows_ns);
    g->grows_ns = plim_min_u64(g->grows_ns, d->now_ns);
    return get_series(o, d->now_ns, &g->series) ? PLIM_OK : bad(err, "a series contradicts itself");
}

struct plim_estimate plim_estimate_load(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    struct plim_estimate e = {0};
    if (json_array_size(v) == 3) {
        e = (struct plim_estimate){true, number(json_array_get(v, 0)), number(json_array_get(v, 1)),
                                   number(json_array_get(v, 2))};
    }
    return e;
}

static bool get_class(const json_t *o, struct plim_finding *f)
{
    char class[32], severity[32];
    bool classed = false, graded = false;
    get_text(o, "class", class, sizeof(class));
    get_text(o, "severity", severity, sizeof(severity));
    for (int i = 0; i < PLIM_FINDING_CLASSES && !classed; i++) {
        f->class = (enum plim_finding_class)i;
        classed = strcmp(class, plim_finding_class_text(f->class)) == 0;
    }
    for (int i = 0; i < PLIM_SEVERITIES && !graded; i++) {
        f->severity = (enum plim_severity)i;
        graded = strcmp(severity, plim_severity_text(f->severity)) == 0;
    }
    return classed && graded;
}

static bool id_taken(const struct plim_detector *d, uint64_t id)
{
    plim_vec_foreach (f, &d->findings) {
        if (f->id == id) {
            return true;
        }
    }
    return false;
}

static enum plim_status get_finding(const json_t *o, struct plim_detector *d,
                                    struct plim_tracked *t, struct plim_err *err)
{
    struct plim_finding f = {.active = true, .subject = t->subject};
    if (!get_class(o, &f) || !get_u64(o, "id", &f.id) || f.id == 0 || f.id >= d->next_id ||
        id_taken(d, f.id) || t->standing[f.class].id != 0 || d->findings.n >= PLIM_ACTIVE_MAX) {
        return bad(err, "a finding contradicts itself");
    }
    (void)get_u64(o, "since_ns", &f.since_ns);
    (void)get_u64(o, "bytes", &f.bytes);
    f.confidence = fmin(fmax(number(json_object_get(o, "confidence")), 0), 1);
    f.slope = plim_estimate_load(o, "slope");
    f.seconds_left = plim_estimate_load(o, "seconds_left");
    get_text(o, "summary", f.summary, sizeof(f.summary));
    get_text(o, "evidence", f.evidence, sizeof(f.evidence));
    get_text(o, "next_step", f.next_step, sizeof(f.next_step));
    PLIM_TRY(plim_vec_push(&d->findings, err, f));
    t->standing[f.class].id = f.id;
    return PLIM_OK;
}

static enum plim_status get_subject(const json_t *o, struct plim_detector *d, struct plim_err *err)
{
    struct plim_subject subject = {0};
    uint64_t pid, index;
    get_text(o, "device", subject.device_uuid, sizeof(subject.device_uuid));
    get_text(o, "process", subject.process, sizeof(subject.process));
    if (!get_u64(o, "pid", &pid) || pid > UINT32_MAX || !get_u64(o, "index", &index) ||
        index > UINT32_MAX || !get_u64(o, "start_ticks", &subject.start_ticks)) {
        return bad(err, "a subject has no identity");
    }
    subject.pid = (uint32_t)pid;
    subject.device = (uint32_t)index;
    uint64_t key = plim__subject_key(&subject);
    if (plim_map_get(&d->index, key) != NULL || d->subjects.n >= PLIM_SUBJECTS_MAX) {
        return bad(err, "a subject is there twice");
    }
    PLIM_TRY(plim__subject_add(d, &subject, key, err));
    struct plim_tracked *t = &d->subjects.items[d->subjects.n - 1];
    t->counters_valid = json_is_true(json_object_get(o, "counters_valid"));
#define PLIM__X(field) (void)get_u64(o, #field, &t->field);
    PLIM_TRACKED_MAP(PLIM__X)
#undef PLIM__X
    uint64_t *times[] = {&t->first_ns, &t->settled_ns, &t->trouble_ns, &t->oom_ns, &t->retry_ns};
    for (size_t i = 0; i < PLIM_COUNT_OF(times); i++) {
        *times[i] = plim_min_u64(*times[i], d->now_ns);
    }
    const json_t *growing = json_object_get(o, "growing"),
                 *findings = json_object_get(o, "findings");
    for (int i = 0; i < PLIM_FOLLOWED; i++) {
        const json_t *g = json_object_get(growing, plim__followed_keys[i]);
        if (g != NULL) {
            PLIM_TRY(get_growing(g, d, &t->growing[i], err));
        }
    }
    for (size_t i = 0; i < json_array_size(findings); i++) {
        PLIM_TRY(get_finding(json_array_get(findings, i), d, t, err));
    }
    return PLIM_OK;
}

static void get_lineage(const json_t *o, struct plim_detector *d, struct plim_lineage *l)
{
    const json_t *ages = json_object_get(o, "ages");
    get_text(o, "name", l->name, sizeof(l->name));
    get_text(o, "device", l->device_uuid, sizeof(l->device_uuid));
    get_text(o, "shape", l->shape, sizeof(l->shape));
    (void)get_u64(o, "asked", &l->asked);
    (void)get_u64(o, "newest_ns", &l->newest_ns);
    l->newest_ns = plim_min_u64(l->newest_ns, d->now_ns);
    for (size_t i = 0; i < json_array_size(ages) && l->n < PLIM_AGES; i++) {
        l->ages[l->n++] = (float)fmax(number(json_array_get(ages, i)), 0);
    }
    l->next = l->n % PLIM_AGES;
}

static void get_level(const json_t *o, const struct plim_detector *d, struct plim_level *l)
{
    get_text(o, "name", l->name, sizeof(l->name));
    get_text(o, "device", l->device_uuid, sizeof(l->device_uuid));
    (void)get_u64(o, "bytes", &l->bytes);
    (void)get_u64(o, "newest_ns", &l->newest_ns);
    l->newest_ns = plim_min_u64(l->newest_ns, d->now_ns);
}

static enum plim_status get_all(const json_t *root, struct plim_detector *d, struct plim_err *err)
{
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const json_t *lineages = json_object_get(root, "lineages");
    const json_t *levels = json_object_get(root, "levels");
    const json_t *subjects = json_object_get(root, "subjects");
    if (schema == NULL || strcmp(schema, PLIM_DETECTOR_SCHEMA) != 0) {
        return bad(err, "its schema is not " PLIM_DETECTOR_SCHEMA);
    }
    if (!get_u64(root, "now_ns", &d->now_ns) || !get_u64(root, "mono_ns", &d->mono_ns) ||
        !get_u64(root, "time_ns", &d->time_ns) || !get_u64(root, "period_ns", &d->period_ns) ||
        !get_u64(root, "step", &d->step) || !get_u64(root, "next_id", &d->next_id) ||
        d->next_id == 0 || d->next_id > INT64_MAX / 2 || d->now_ns > INT64_MAX / 2 ||
        d->period_ns > PLIM_HOUR || d->step > INT64_MAX / 2) {
        return bad(err, "its clock is missing or impossible");
    }
    for (size_t i = 0; i < json_array_size(lineages) && i < PLIM_LINEAGES; i++) {
        get_lineage(json_array_get(lineages, i), d, &d->lineages[i]);
    }
    for (size_t i = 0; i < json_array_size(levels) && i < PLIM_LINEAGES; i++) {
        get_level(json_array_get(levels, i), d, &d->levels[i]);
    }
    for (size_t i = 0; i < json_array_size(subjects); i++) {
        PLIM_TRY(get_subject(json_array_get(subjects, i), d, err));
    }
    return PLIM_OK;
}

static void swap(struct plim_detector *a, struct plim_detector *b)
{
    struct plim_detector t = *a;
    *a = *b;
    *b = t;
}

enum plim_status plim_detector_load(struct plim_detector *d, struct plim_str text,
                                    struct plim_err *err)
{
    struct plim_detector *fresh, *read;
    json_error_t fault;
    json_t *root = NULL;
    PLIM_TRY(plim_detector_new(&d->options, &fresh, err));
    swap(d, fresh); /* whatever happens, the detector is as new from here on */
    plim_detector_free(fresh);
    PLIM_TRY(plim_detector_new(&d->options, &read, err));
    enum plim_status st = PLIM_OK;
    if (text.n > TEXT_MAX) {
        st = plim__fail(err, PLIM_E_DATA, "a saved detector of %zu bytes is too large", text.n);
    } else if ((root = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &fault)) == NULL) {
        st = plim__fail(err, PLIM_E_DATA, "not JSON: %.150s", fault.text);
    } else {
        st = get_all(root, read, err);
    }
    if (st == PLIM_OK) {
        swap(d, read);
    }
    json_decref(root);
    plim_detector_free(read);
    return st;
}
