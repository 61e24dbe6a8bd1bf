/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a detector learned, as one JSON text ("plimsoll.detector/1"): its clock, the ages of failures,
 * and of each subject its series, its growth and its active findings. Buckets are arrays of whole MiB
 * [lowest, highest, mean, swing, load], the newest first; -1 is unknown. A series of a week is about
 * 8 KiB. load.c reads it.
 */

#include "detect/save.h"
#include "base/jsonw.h"
#include "detect/estimate.h"

#include <math.h>

static void put_u64(struct plim_jsonw *w, const char *key, uint64_t v)
{
    plim_jsonw_kv_u64(w, key, plim_min_u64(v, INT64_MAX)); /* readers have 63 bits */
}

static void put_mib(struct plim_jsonw *w, float bytes)
{
    plim_jsonw_i64(w, bytes < 0 ? -1 : (int64_t)llround((double)bytes / PLIM_MIB));
}

static void put_series(struct plim_jsonw *w, const struct plim_series *s)
{
    put_u64(w, "first", s->first);
    put_u64(w, "now", s->now);
    for (int scale = 0; scale < PLIM_SCALES; scale++) {
        plim_jsonw_key(w, plim__scale_keys[scale]);
        plim_jsonw_array(w);
        for (unsigned back = 0; back < plim_series_kept((enum plim_scale)scale); back++) {
            const struct plim_bucket *b = plim_series_bucket(s, (enum plim_scale)scale, back);
            plim_jsonw_array(w);
            if (b != NULL) {
                put_mib(w, b->low);
                put_mib(w, b->high);
                put_mib(w, b->mean);
                put_mib(w, b->swing);
                plim_jsonw_i64(w, b->load < 0 ? -1 : (int64_t)llround(100 * (double)b->load));
            }
            plim_jsonw_end(w);
        }
        plim_jsonw_end(w);
    }
}

static void put_growing(struct plim_jsonw *w, const struct plim_growing *g)
{
    plim_jsonw_object(w);
    put_series(w, &g->series);
    plim_jsonw_kv_bool(w, "held", g->held);
    plim_jsonw_kv_real(w, "least", g->least);
    plim_jsonw_kv_real(w, "base", g->base);
    plim_jsonw_kv_real(w, "slope", g->slope);
    plim_jsonw_kv_real(w, "window", g->window);
    put_u64(w, "grows_ns", g->grows_ns);
    plim_jsonw_end(w);
}

void plim_estimate_save(struct plim_jsonw *w, const char *key, const struct plim_estimate *e)
{
    if (e->valid) {
        plim_jsonw_key(w, key);
        plim_jsonw_array(w);
        plim_jsonw_real(w, e->value);
        plim_jsonw_real(w, e->low);
        plim_jsonw_real(w, e->high);
        plim_jsonw_end(w);
    }
}

static void put_finding(struct plim_jsonw *w, const struct plim_finding *f)
{
    plim_jsonw_object(w);
    put_u64(w, "id", f->id);
    plim_jsonw_kv_text(w, "class", plim_finding_class_text(f->class));
    plim_jsonw_kv_text(w, "severity", plim_severity_text(f->severity));
    put_u64(w, "since_ns", f->since_ns);
    plim_jsonw_kv_real(w, "confidence", f->confidence);
    put_u64(w, "bytes", f->bytes);
    plim_estimate_save(w, "slope", &f->slope);
    plim_estimate_save(w, "seconds_left", &f->seconds_left);
    plim_jsonw_kv_text(w, "summary", f->summary);
    plim_jsonw_kv_text(w, "evidence", f->evidence);
    plim_jsonw_kv_text(w, "next_step", f->next_step);
    plim_jsonw_end(w);
}

static void put_findings(struct plim_jsonw *w, const struct plim_detector *d,
                         const struct plim_tracked *t)
{
    plim_jsonw_key(w, "findings");
    plim_jsonw_array(w);
    plim_vec_foreach (f, &d->findings) {
        if (f->active && t->standing[f->class].id == f->id) {
            put_finding(w, f);
        }
    }
    plim_jsonw_end(w);
}

static void put_subject(struct plim_jsonw *w, const struct plim_detector *d,
                        const struct plim_tracked *t)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "device", t->subject.device_uuid);
    put_u64(w, "index", t->subject.device);
    put_u64(w, "pid", t->subject.pid);
    put_u64(w, "start_ticks", t->subject.start_ticks);
    plim_jsonw_kv_text(w, "process", t->subject.process);
    plim_jsonw_kv_bool(w, "counters_valid", t->counters_valid);
#define PLIM__X(field) put_u64(w, #field, t->field);
    PLIM_TRACKED_MAP(PLIM__X)
#undef PLIM__X
    plim_jsonw_key(w, "growing");
    plim_jsonw_object(w);
    for (int i = 0; i < PLIM_FOLLOWED; i++) {
        if (t->growing[i] != NULL && t->growing[i]->series.began) {
            plim_jsonw_key(w, plim__followed_keys[i]);
            put_growing(w, t->growing[i]);
        }
    }
    plim_jsonw_end(w);
    put_findings(w, d, t);
    plim_jsonw_end(w);
}

static void put_lineage(struct plim_jsonw *w, const struct plim_lineage *l)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "name", l->name);
    plim_jsonw_kv_text(w, "device", l->device_uuid);
    put_u64(w, "newest_ns", l->newest_ns);
    put_u64(w, "asked", l->asked);
    plim_jsonw_kv_text(w, "shape", l->shape);
    plim_jsonw_key(w, "ages");
    plim_jsonw_array(w);
    for (unsigned i = 0; i < l->n; i++) { /* the oldest first */
        plim_jsonw_real(w, (double)l->ages[(l->next + PLIM_AGES - l->n + i) % PLIM_AGES]);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

static void put_level(struct plim_jsonw *w, const struct plim_level *l)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "name", l->name);
    plim_jsonw_kv_text(w, "device", l->device_uuid);
    put_u64(w, "bytes", l->bytes);
    put_u64(w, "newest_ns", l->newest_ns);
    plim_jsonw_end(w);
}

void plim_detector_save(const struct plim_detector *d, struct plim_buf *out)
{
    struct plim_jsonw w;
    plim_jsonw_init(&w, out, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", PLIM_DETECTOR_SCHEMA);
    put_u64(&w, "now_ns", d->now_ns);
    put_u64(&w, "mono_ns", d->mono_ns);
    put_u64(&w, "time_ns", d->time_ns);
    put_u64(&w, "period_ns", d->period_ns);
    put_u64(&w, "step", d->step);
    put_u64(&w, "next_id", d->next_id);
    plim_jsonw_key(&w, "lineages");
    plim_jsonw_array(&w);
    for (unsigned i = 0; i < PLIM_LINEAGES; i++) {
        if (d->lineages[i].n > 0 || d->lineages[i].asked > 0) {
            put_lineage(&w, &d->lineages[i]);
        }
    }
    plim_jsonw_end(&w);
    plim_jsonw_key(&w, "levels");
    plim_jsonw_array(&w);
    for (unsigned i = 0; i < PLIM_LINEAGES; i++) {
        if (d->levels[i].name[0] != '\0') {
            put_level(&w, &d->levels[i]);
        }
    }
    plim_jsonw_end(&w);
    plim_jsonw_key(&w, "subjects");
    plim_jsonw_array(&w);
    plim_vec_foreach (t, &d->subjects) {
        put_subject(&w, d, t);
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
}
