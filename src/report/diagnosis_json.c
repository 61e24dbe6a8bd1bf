/* SPDX-License-Identifier: Apache-2.0 */
/* A diagnosis as JSON, schema plimsoll.diagnose/1. */

#include "report/diagnosis.h"

#include <stdlib.h>

static void totals(struct plim_jsonw *w, const struct plim_heap_totals *t)
{
    plim_jsonw_kv_u64(w, "reserved_bytes", t->reserved);
    plim_jsonw_kv_u64(w, "allocated_bytes", t->allocated);
    plim_jsonw_kv_u64(w, "pending_free_bytes", t->pending);
    plim_jsonw_kv_u64(w, "requested_bytes", t->requested);
    plim_jsonw_kv_u64(w, "releasable_bytes", t->releasable);
    plim_jsonw_kv_u64(w, "stranded_bytes", t->stranded);
    plim_jsonw_kv_u64(w, "largest_free_block_bytes", t->largest_free_block);
    plim_jsonw_kv_u64(w, "segments", t->segments);
    plim_jsonw_kv_u64(w, "live_blocks", t->live_blocks);
    plim_jsonw_kv_u64(w, "free_blocks", t->free_blocks);
}

static void pools_and_streams(struct plim_jsonw *w, const struct plim_snapshot *s,
                              const struct plim_diagnosis *d)
{
    plim_jsonw_key(w, "pools");
    plim_jsonw_array(w);
    plim_vec_foreach (row, &d->fragmentation.pools) {
        if (row->totals.segments == 0) {
            continue;
        }
        plim_jsonw_object(w);
        plim_jsonw_key(w, "id");
        plim_jsonw_array(w);
        plim_jsonw_u64(w, s->pools.items[row->pool].a);
        plim_jsonw_u64(w, s->pools.items[row->pool].b);
        plim_jsonw_end(w);
        totals(w, &row->totals);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "streams");
    plim_jsonw_array(w);
    plim_vec_foreach (row, &d->fragmentation.streams) {
        if (row->totals.segments == 0) {
            continue;
        }
        plim_jsonw_object(w);
        plim_jsonw_kv_i64(w, "stream", s->streams.items[row->stream]);
        totals(w, &row->totals);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void frame(struct plim_jsonw *w, const struct plim_snapshot *s, uint32_t id)
{
    const struct plim_frame *f = &s->stacks.frames.items[id];
    plim_jsonw_object(w);
    plim_jsonw_kv_str(w, "name", plim_intern_str(&s->strings, f->name));
    plim_jsonw_kv_str(w, "file", plim_intern_str(&s->strings, f->file));
    plim_jsonw_kv_u64(w, "line", f->line);
    plim_jsonw_end(w);
}

static void frames(struct plim_jsonw *w, const struct plim_snapshot *s, uint32_t stack)
{
    size_t n;
    const uint32_t *ids = plim_stacks_frames(&s->stacks, stack, &n);
    plim_jsonw_key(w, "frames");
    plim_jsonw_array(w);
    for (size_t i = 0; i < n; i++) {
        frame(w, s, ids[i]);
    }
    plim_jsonw_end(w);
}

static void blame(struct plim_jsonw *w, const struct plim_snapshot *s,
                  const struct plim_diagnosis *d)
{
    plim_jsonw_key(w, "blame");
    plim_jsonw_array(w);
    plim_vec_foreach (row, &d->blame) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "site", row->site);
        plim_jsonw_kv_text(w, "category_guess", plim_category_text(row->category));
        plim_jsonw_kv_u64(w, "bytes", row->bytes);
        plim_jsonw_kv_u64(w, "blocks", row->blocks);
        plim_jsonw_kv_u64(w, "bytes_allocated_in_trace", row->bytes_born);
        plim_jsonw_kv_u64(w, "allocations_in_trace", row->allocs);
        plim_jsonw_kv_u64(w, "frees_in_trace", row->frees);
        plim_jsonw_kv_bool(w, "leak_suspect", row->suspect);
        frames(w, s, row->stack);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void leaks(struct plim_jsonw *w, const struct plim_snapshot *s,
                  const struct plim_diagnosis *d)
{
    plim_jsonw_key(w, "leak_suspects");
    plim_jsonw_array(w);
    plim_vec_foreach (suspect, &d->leaks.suspects) {
        const struct plim_site *site = &d->sites.sites.items[suspect->site];
        plim_jsonw_object(w);
        plim_jsonw_kv_real(w, "confidence", suspect->confidence);
        plim_jsonw_kv_u64(w, "excess_bytes", suspect->excess);
        plim_jsonw_kv_real(w, "bytes_per_allocation", suspect->bytes_per_alloc);
        plim_jsonw_kv_text(w, "why", suspect->why);
        frames(w, s, site->stack);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void pinned(struct plim_jsonw *w, const struct plim_diagnosis *d)
{
    plim_jsonw_key(w, "pinned_segments");
    plim_jsonw_array(w);
    plim_vec_foreach (row, &d->pins) {
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "segment_address", row->segment_addr);
        plim_jsonw_kv_u64(w, "segment_bytes", row->segment_size);
        plim_jsonw_kv_u64(w, "stranded_bytes", row->stranded);
        plim_jsonw_kv_u64(w, "live_bytes", row->live);
        plim_jsonw_kv_u64(w, "live_blocks", row->live_blocks);
        plim_jsonw_kv_u64(w, "oldest_block_address", row->block_addr);
        plim_jsonw_kv_u64(w, "oldest_block_bytes", row->block_size);
        plim_jsonw_kv_bool(w, "oldest_before_trace", row->before_trace);
        if (!row->before_trace) {
            plim_jsonw_kv_u64(w, "oldest_age_events", row->age_events);
            if (row->age_us > 0) {
                plim_jsonw_kv_u64(w, "oldest_age_us", row->age_us);
            }
        }
        if (row->site) {
            plim_jsonw_kv_text(w, "site", row->site);
        }
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void work(struct plim_jsonw *w, const struct plim_tags *tags)
{
    plim_jsonw_key(w, "work");
    plim_jsonw_object(w);
    for (uint32_t i = 0; i < tags->n; i++) {
        const struct plim_tag *tag = &tags->items[i];
        if (tag->number) {
            plim_jsonw_kv_i64(w, tag->name, strtoll(tag->text, NULL, 10));
        } else {
            plim_jsonw_kv_text(w, tag->name, tag->text);
        }
    }
    plim_jsonw_end(w);
}

static void failure(struct plim_jsonw *w, const struct plim_snapshot *s,
                    const struct plim_diagnosis *d)
{
    const struct plim_failure *f = &d->failure;
    plim_jsonw_key(w, "failure");
    if (!f->happened) {
        plim_jsonw_null(w);
        return;
    }
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "event", f->event);
    plim_jsonw_kv_u64(w, "request_bytes", f->size);
    plim_jsonw_kv_u64(w, "driver_bytes", f->driver_bytes);
    plim_jsonw_kv_u64(w, "device_free_bytes", f->device_free);
    plim_jsonw_kv_i64(w, "stream", s->streams.n > f->stream ? s->streams.items[f->stream] : 0);
    plim_jsonw_kv_u64(w, "failures_in_trace", f->count);
    plim_jsonw_kv_u64(w, "events_after", f->events_after);
    if (f->uptime_us > 0) {
        plim_jsonw_kv_u64(w, "uptime_us", f->uptime_us);
    }
    if (f->tags.n > 0) {
        work(w, &f->tags);
    }
    frames(w, s, f->stack);
    plim_jsonw_end(w);
}

static void trace_facts(struct plim_jsonw *w, const struct plim_snapshot *s,
                        const struct plim_diagnosis *d)
{
    const struct plim_trace *trace = &s->devices.items[d->device].trace;
    plim_jsonw_key(w, "trace");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "events", trace->events.n);
    plim_jsonw_kv_u64(w, "position", d->position);
    plim_jsonw_kv_bool(w, "complete", d->complete);
    plim_jsonw_kv_u64(w, "reserved_at_start_bytes", d->peaks.reserved_at_start);
    plim_jsonw_kv_u64(w, "peak_allocated_bytes", d->peaks.allocated);
    plim_jsonw_kv_u64(w, "peak_allocated_position", d->peaks.allocated_at);
    plim_jsonw_kv_u64(w, "peak_reserved_bytes", d->peaks.reserved);
    plim_jsonw_kv_u64(w, "peak_reserved_position", d->peaks.reserved_at);
    plim_jsonw_kv_u64(w, "allocations", d->history.allocs);
    plim_jsonw_kv_u64(w, "retries", d->history.retries);
    plim_jsonw_kv_u64(w, "frees_of_unknown_blocks", d->history.unknown_frees);
    plim_jsonw_kv_u64(w, "contradictions",
                      d->gaps.outside + d->gaps.unknown_allocs + d->gaps.unknown_segments);
    plim_jsonw_end(w);
}

static void categories(struct plim_jsonw *w, const struct plim_diagnosis *d)
{
    plim_jsonw_key(w, "live_by_category_guess");
    plim_jsonw_object(w);
    for (int c = 0; c < PLIM_CATEGORY_COUNT; c++) {
        if (d->by_category[c] > 0) {
            plim_jsonw_kv_u64(w, plim_category_text((enum plim_category)c), d->by_category[c]);
        }
    }
    plim_jsonw_end(w);
}

static void findings(struct plim_jsonw *w, const struct plim_snapshot *s)
{
    plim_jsonw_key(w, "findings");
    plim_jsonw_array(w);
    plim_vec_foreach (f, &s->findings) {
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "device", f->device);
        plim_jsonw_kv_str(w, "where", plim_intern_str(&s->strings, f->where));
        plim_jsonw_kv_str(w, "text", plim_intern_str(&s->strings, f->text));
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

void plim_json_diagnosis(struct plim_jsonw *w, const struct plim_snapshot *snapshot,
                         const struct plim_diagnosis *d)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.diagnose/1");
    plim_jsonw_kv_text(w, "layout", snapshot->layout);
    plim_jsonw_kv_u64(w, "device", d->device);
    plim_json_verdict(w, &d->set.verdict);
    plim_json_finding(w, &d->set);
    failure(w, snapshot, d);
    if (d->largest_fit_known) {
        plim_jsonw_kv_u64(w, "largest_request_that_fits_bytes", d->largest_fit);
    }
    blame(w, snapshot, d);
    categories(w, d);
    leaks(w, snapshot, d);
    pinned(w, d);
    pools_and_streams(w, snapshot, d);
    trace_facts(w, snapshot, d);
    findings(w, snapshot);
    plim_jsonw_end(w);
}
