/* SPDX-License-Identifier: Apache-2.0 */
/* A replay for a terminal and for an issue tracker. */

#include "report/replay.h"

#include "base/bytes.h"
#include "diagnose/site.h"
#include "report/markdown.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- pieces ------------------------------------------------------------------------------------- */

static const char *bytes_text(struct plim_arena *arena, uint64_t bytes)
{
    char buf[PLIM_BYTES_TEXT];
    return plim_arena_sayf(arena, "%s", plim_bytes_format(buf, bytes));
}

/* "forward model.py:25", or NULL when the trace has no stack there. */
static const char *place_of(const struct plim_requests *q, uint32_t event, struct plim_arena *arena)
{
    struct plim_sites sites;
    if (event == PLIM_NO_EVENT || plim_sites_build(q->snapshot, &sites, NULL) != PLIM_OK) {
        return NULL;
    }
    uint32_t site = plim_site_of(&sites, q->device->trace.events.items[event].stack);
    const char *text = site ? plim_site_text(q->snapshot, &sites.sites.items[site], arena) : NULL;
    plim_sites_fini(&sites);
    return text;
}

static const char *outcome(const struct plim_replay_view *v, struct plim_arena *arena)
{
    const struct plim_replay_result *r = v->result;
    if (!r->failed) {
        return plim_arena_sayf(arena, "%s: all %" PRIu64 " allocations served",
                               v->setup->capacity ? "FITS" : "NO LIMIT GIVEN", r->allocs);
    }
    uint32_t event = plim_requests_event(v->requests, r->first_oom.alloc_index);
    const char *place = place_of(v->requests, event, arena);
    return plim_arena_sayf(
        arena,
        "FAILS at allocation %" PRIu64 " of %" PRIu64 " (%s%s%s): the device has %s free, %s are "
        "stranded in cached segments",
        r->first_oom.alloc_index + 1, v->requests->allocs,
        bytes_text(arena, r->first_oom.request_bytes), place ? " at " : "", place ? place : "",
        bytes_text(arena, r->first_oom.device_free), bytes_text(arena, r->first_oom.stranded));
}

const char *plim_moving_name(const struct plim_moving_options *moving)
{
    static const char *const names[] = {
#define PLIM__X(name, text) "Plimsoll's allocator (" text ")",
        PLIM_ENGINE_MODE_MAP(PLIM__X)
#undef PLIM__X
    };
    enum plim_engine_mode mode = moving->rounding.mode;
    return mode == PLIM_ENGINE_STITCH ? "Plimsoll's allocator" : names[mode];
}

static const char *title(const struct plim_replay_view *v, struct plim_arena *arena)
{
    const struct plim_torch_version version = v->setup->conf->version;
    const char *where = "a device without limit";
    if (v->setup->capacity > 0) {
        where = plim_arena_sayf(
            arena, "%s, %s of it used by others%s", bytes_text(arena, v->setup->capacity),
            bytes_text(arena, v->setup->external),
            strcmp(v->capacity_by, "given") != 0 ? " (worked out from the recording)" : "");
    }
    if (v->setup->moving) {
        return plim_arena_sayf(arena, "Replay on %s, on %s", plim_moving_name(v->setup->moving),
                               where);
    }
    return plim_arena_sayf(arena, "Replay under %s, torch %u.%u, on %s",
                           v->conf[0] ? v->conf : "default settings", version.major, version.minor,
                           where);
}

void plim_text_stranded_line(struct plim_buf *out, const struct plim_replay_result *r,
                             uint64_t most, unsigned columns, bool unicode)
{
    static const char *const levels[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const ascii[] = {" ", ".", ".", ":", ":", "=", "=", "#", "#"};
    for (unsigned c = 0; c < columns && r->n_samples > 0; c++) {
        uint64_t here = 0;
        for (uint32_t i = c * r->n_samples / columns; i <= (c + 1) * (r->n_samples - 1) / columns;
             i++) {
            here = plim_max_u64(here, r->samples[i].stranded);
        }
        unsigned level = most ? (unsigned)((double)here * 8 / (double)most + 0.5) : 0;
        level = level > 8 ? 8 : level == 0 && here > 0 ? 1 : level;
        plim_buf_text(out, unicode ? levels[level] : ascii[level]);
    }
}

#define PLIM__DOUBT_SAY(field, meaning)                                                            \
    if (q->doubts.field > 0) {                                                                     \
        list[(*n)++] = plim_arena_sayf(arena, "%" PRIu64 " %s.", q->doubts.field, meaning);        \
    }

const char *const *plim_doubt_list(const struct plim_requests *q, struct plim_arena *arena,
                                   size_t *n)
{
    void *room = NULL;
    *n = 0;
    if (plim_arena_array(arena, 32, sizeof(const char *), &room, NULL) != PLIM_OK) {
        return NULL;
    }
    const char **list = room;
    if (!q->complete) {
        list[(*n)++] =
            q->device->trace.events.n == 0
                ? "The snapshot holds no trace: there is nothing to replay."
            : q->start_verified
                ? "The trace begins in the middle: what was there before was reconstructed from "
                  "the final "
                  "heap. From there on the model reproduces the recording entry by entry."
                : "The trace begins in the middle: what was there before was reconstructed from "
                  "the final "
                  "heap, and the model does not reproduce all of the recording from there.";
    }
    if (q->cap_seen) {
        list[(*n)++] =
            "The recorded failure happened although the device had room: a memory cap was "
            "set. Add per_process_memory_fraction to --conf to replay it.";
    }
    if (!q->conf_known) {
        list[(*n)++] = "The recording does not say under which settings it ran; the defaults are "
                       "assumed.";
    }
    PLIM_DOUBT_MAP(PLIM__DOUBT_SAY)
    return list;
}

void plim_text_doubts(struct plim_buf *out, const struct plim_requests *q,
                      const struct plim_text_style *style)
{
    struct plim_arena arena;
    size_t n;
    plim_arena_init(&arena, 0);
    const char *const *list = plim_doubt_list(q, &arena, &n);
    if (n > 0) {
        plim_text_heading(out, "What is uncertain", style);
        for (size_t i = 0; i < n; i++) {
            plim_text_wrap(out, "  - ", list[i], style);
        }
    }
    plim_arena_fini(&arena);
}

/* What the replay says about the failure in the recording, when that is not what one would expect; or NULL. */
static const char *failure_note(const struct plim_replay_view *v, struct plim_arena *arena)
{
    const struct plim_requests *q = v->requests;
    uint64_t had = plim_replay_capacity(q);
    uint64_t room = plim_sub_sat(v->setup->capacity, v->setup->external);
    if (v->reproduced && !*v->reproduced) {
        return plim_arena_sayf(
            arena,
            "It is not reproduced: under the settings of the recording, and with the %s that the "
            "allocator could have when it failed, the model serves the request of %s. So the "
            "recording does not show what limited the run. It may be %smemory that another process "
            "or a library held for a while, a memory cap, or settings that the program changed. "
            "Only differences between settings count, not that they serve it.",
            bytes_text(arena, had),
            bytes_text(arena, q->device->trace.events.items[q->failure_event].size),
            q->complete ? "" : "what lies before the recording, ");
    }
    if (q->recorded_failure && !q->cap_seen && !v->result->failed && v->setup->capacity > 0 &&
        room > had) {
        return plim_arena_sayf(
            arena,
            "The allocator could have %s when the recorded run failed; this replay gives it %s. "
            "What others used of the device is taken off with --external.",
            bytes_text(arena, had), bytes_text(arena, room));
    }
    return NULL;
}

#define FAILURE_HEADING "The failure in the recording"

/* ---- whole ------------------------------------------------------------------------------------- */

struct row {
    const char *name;
    const char *text;
};

#define ROWS 10

/* Mode plan: how the seating came about, and how it was followed. */
static size_t plan_rows(const struct plim_replay_view *v, struct plim_arena *arena,
                        struct row *rows)
{
    const struct plim_seating_facts *f = v->seating;
    const struct plim_replay_result *r = v->result;
    size_t n = 0;
    if (f) {
        uint64_t all = f->once + f->period.length * f->periods;
        rows[n++] = (struct row){
            "seating", plim_arena_sayf(arena,
                                       "%" PRIu64 " requests repeat themselves %" PRIu64
                                       " times; %u of %" PRIu64 " have places, %s high, %s at once",
                                       f->period.length, f->period.n / f->period.length, f->placed,
                                       all, bytes_text(arena, f->places.height),
                                       bytes_text(arena, f->places.bound))};
    }
    rows[n++] =
        (struct row){"plan", plim_arena_sayf(arena,
                                             "%" PRIu64 " requests at their place, %" PRIu64
                                             " displaced, %" PRIu64 " not as planned",
                                             r->plan.placed, r->plan.displaced, r->plan.astray)};
    return n;
}

static size_t rows_of(const struct plim_replay_view *v, struct plim_arena *arena,
                      struct row rows[ROWS])
{
    const struct plim_replay_result *r = v->result;
    size_t n = 0;
    rows[n++] = (struct row){"peak reserved", bytes_text(arena, r->peak.reserved)};
    rows[n++] = (struct row){"peak in use", plim_arena_sayf(arena, "%s (asked for: %s)",
                                                            bytes_text(arena, r->peak.active),
                                                            bytes_text(arena, r->peak.requested))};
    rows[n++] = (struct row){"stranded", plim_arena_sayf(arena, "%s on average, %s at most",
                                                         bytes_text(arena, r->mean_stranded),
                                                         bytes_text(arena, r->peak.stranded))};
    if (r->least_headroom != UINT64_MAX) {
        rows[n++] = (struct row){"headroom", plim_arena_sayf(arena, "%s at the tightest moment",
                                                             bytes_text(arena, r->least_headroom))};
    }
    rows[n++] = (struct row){
        "retries",
        plim_arena_sayf(arena, "%" PRIu64 " times the cache had to be given back for a request",
                        r->num_alloc_retries)};
    rows[n++] =
        (struct row){"driver", plim_arena_sayf(arena,
                                               "%" PRIu64 " gains, %" PRIu64 " releases, %" PRIu64
                                               " calls; %.1f ms of stall (estimated)",
                                               r->num_device_alloc, r->num_device_free,
                                               r->driver_calls, (double)r->stall_ns / 1e6)};
    if (v->setup->moving && v->setup->moving->plan) {
        n += plan_rows(v, arena, rows + n);
    }
    return n;
}

void plim_text_replay(struct plim_buf *out, const struct plim_replay_view *v,
                      struct plim_arena *arena, const struct plim_text_style *style)
{
    struct row rows[ROWS];
    size_t n = rows_of(v, arena, rows);
    plim_text_wrap(out, "", title(v, arena), style);
    plim_buf_char(out, '\n');
    plim_text_wrap(out, "  ", outcome(v, arena), style);
    plim_buf_char(out, '\n');
    for (size_t i = 0; i < n; i++) {
        plim_buf_printf(out, "  %-15s%s\n", rows[i].name, rows[i].text);
    }
    if (v->result->peak.stranded > 0 && v->result->n_samples > 1) {
        plim_buf_printf(out, "  %-15s|", "over time");
        plim_text_stranded_line(out, v->result, v->result->peak.stranded, 48, style->unicode);
        plim_buf_text(out, "| stranded\n");
    }
    const char *note = failure_note(v, arena);
    if (note) {
        plim_text_heading(out, FAILURE_HEADING, style);
        plim_text_wrap(out, "  ", note, style);
    }
    plim_text_doubts(out, v->requests, style);
}

void plim_markdown_replay(struct plim_buf *out, const struct plim_replay_view *v,
                          struct plim_arena *arena)
{
    struct row rows[ROWS];
    size_t n = rows_of(v, arena, rows);
    plim_buf_text(out, "## ");
    plim_markdown_escape(out, title(v, arena));
    plim_buf_text(out, "\n\n");
    plim_markdown_escape(out, outcome(v, arena));
    plim_buf_text(out, "\n\n| | |\n| --- | --- |\n");
    for (size_t i = 0; i < n; i++) {
        plim_buf_printf(out, "| %s | ", rows[i].name);
        plim_markdown_escape(out, rows[i].text);
        plim_buf_text(out, " |\n");
    }
    const char *note = failure_note(v, arena);
    if (note) {
        plim_buf_text(out, "\n### " FAILURE_HEADING "\n\n");
        plim_markdown_escape(out, note);
        plim_buf_char(out, '\n');
    }
    const char *const *list = plim_doubt_list(v->requests, arena, &n);
    for (size_t i = 0; i < n; i++) {
        plim_buf_text(out, i == 0 ? "\n### What is uncertain\n\n- " : "- ");
        plim_markdown_escape(out, list[i]);
        plim_buf_char(out, '\n');
    }
}

void plim_text_selfcheck(struct plim_buf *out, const struct plim_selfcheck *c,
                         const struct plim_text_style *style)
{
    plim_buf_printf(out,
                    "%s: %" PRIu64 " of %" PRIu64 " trace entries are what the model does (%" PRIu64
                    " of them about segments), %" PRIu64 " difference%s\n",
                    c->differences || (c->heap_compared && !c->heap_equal) ? "DIFFERS" : "EQUAL",
                    c->compared, c->total, c->segments, c->differences,
                    c->differences == 1 ? "" : "s");
    for (uint32_t i = 0; i < c->n_changes; i++) {
        plim_buf_printf(out,
                        "settings were changed at run time: '%s' from allocation %" PRIu64 " on\n",
                        c->changes[i].conf, c->changes[i].alloc_index);
    }
    if (!c->complete) {
        plim_buf_text(out, "the trace begins in the middle; its start was reconstructed\n");
    }
    if (c->differences > 0) {
        plim_text_wrap(out, "first: ", c->difference, style);
    }
    if (c->heap_compared) {
        plim_text_wrap(out, "final heap: ", c->heap_equal ? "equal" : c->heap_difference, style);
    }
}
