/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The faithful replay. Ahead of each allocation the trace is read on to the entry that it made: what it
 * got from the driver, what it gave back first, whether it failed. From that follows how much the device
 * must have had free for the driver to say no exactly where it did, and the device of the model is
 * set so. Everything that the model then does is compared as it does it.
 */

#include "replay/selfcheck.h"

#include "alloc/round.h"
#include "replay/replay_int.h"

#include <stdio.h>

#define SPARE (64 * PLIM_MIB)       /* left free where the recording shows no refusal */
#define MOST  (4 * 1024 * PLIM_GIB) /* of any device: a hostile trace may ask for anything */

struct check {
    const struct plim_requests *q;
    const struct plim_trace *trace;
    struct plim__stage stage;
    struct plim_selfcheck *out;
    size_t cursor;  /* next entry to be matched */
    size_t gain;    /* next segment_alloc of the present allocation to be handed to the driver */
    uint64_t total; /* device bytes that size the reservations */
    PLIM_VEC(struct plim_range) reservations;
    const struct plim_settings_change *changes; /* [n_changes], in the order of the requests */
    uint32_t n_changes;
    bool stopped;
};

static bool comparable(const struct check *c, enum plim_action action)
{
    switch (action) {
    case PLIM_ACTION_ALLOC:
    case PLIM_ACTION_SEGMENT_ALLOC:
    case PLIM_ACTION_SEGMENT_FREE:
    case PLIM_ACTION_SEGMENT_MAP:
    case PLIM_ACTION_SEGMENT_UNMAP:
    case PLIM_ACTION_OOM:
        return true;
    case PLIM_ACTION_FREE_REQUESTED:
    case PLIM_ACTION_FREE_COMPLETED: /* either may have been left out of a recording */
        return c->trace->by_action[action] > 0;
    case PLIM_ACTION_UNKNOWN:
    case PLIM_ACTION_SNAPSHOT:
    case PLIM_ACTION_ANNOTATE:
    case PLIM_ACTION_COUNT:
    default:
        return false;
    }
}

static size_t next_comparable(const struct check *c, size_t i)
{
    while (i < c->trace->events.n &&
           !comparable(c, (enum plim_action)c->trace->events.items[i].action)) {
        i++;
    }
    return i;
}

/* ---- comparing ---------------------------------------------------------------------------------- */

static int entry_text(char *buf, size_t n, enum plim_action action, uint64_t addr, uint64_t size)
{
    return snprintf(buf, n, "%s of %llu bytes at 0x%llx", plim_action_text(action),
                    (unsigned long long)size, (unsigned long long)addr);
}

static void differ(struct check *c, size_t at, const char *model)
{
    char recorded[96] = "nothing more";
    if (at < c->trace->events.n) {
        const struct plim_event *e = &c->trace->events.items[at];
        entry_text(recorded, sizeof recorded, (enum plim_action)e->action, e->addr, e->size);
    }
    c->stopped = true;
    c->out->differences = 1;
    c->out->event = at < c->trace->events.n ? (uint32_t)at : PLIM_NO_EVENT;
    snprintf(c->out->difference, sizeof c->out->difference, "entry %zu: recorded %s, the model: %s",
             at, recorded, model);
}

static void on_event(void *ctx, const struct plim_torch_event *e)
{
    struct check *c = ctx;
    if (c->stopped || !comparable(c, e->action)) {
        return;
    }
    size_t at = next_comparable(c, c->cursor);
    const struct plim_event *r = at < c->trace->events.n ? &c->trace->events.items[at] : NULL;
    if (!r || r->action != (uint8_t)e->action || r->size != e->size ||
        (r->addr != e->addr && e->action != PLIM_ACTION_OOM)) {
        char model[96];
        entry_text(model, sizeof model, e->action, e->addr, e->size);
        differ(c, at, model);
        bool placed = e->action == PLIM_ACTION_ALLOC || e->action == PLIM_ACTION_SEGMENT_FREE;
        c->out->model_addr = placed ? e->addr : 0;
        return;
    }
    c->cursor = at + 1;
    c->out->compared++;
    c->out->segments +=
        e->action >= PLIM_ACTION_SEGMENT_ALLOC && e->action <= PLIM_ACTION_SEGMENT_UNMAP;
}

/* ---- the driver ---------------------------------------------------------------------------------- */

static bool inside_reservation(const struct check *c, uint64_t addr)
{
    plim_vec_foreach (r, &c->reservations) {
        if (addr >= r->lo && addr < r->hi) {
            return true;
        }
    }
    return false;
}

/* A hostile trace may name an address twice, or one that no driver gives. */
static bool is_usable(const struct check *c, uint64_t addr)
{
    return addr != 0 && addr % PLIM_TORCH_MIN_BLOCK == 0 &&
           !plim_map_get(&c->stage.device.ranges, addr);
}

/* A new reservation begins where the next page outside the known ones was mapped. */
static bool script_reserve(struct check *c, uint64_t size, uint64_t *addr)
{
    for (size_t i = c->cursor; i < c->trace->events.n; i++) {
        const struct plim_event *e = &c->trace->events.items[i];
        if (e->action == PLIM_ACTION_SEGMENT_MAP && !inside_reservation(c, e->addr)) {
            *addr = e->addr;
            return is_usable(c, e->addr) &&
                   plim_vec_push(&c->reservations, NULL,
                                 (struct plim_range){e->addr, plim_add_sat(e->addr, size)}) ==
                       PLIM_OK;
        }
    }
    return false;
}

/* A reservation that is given back may be handed out again. */
static void on_call(void *ctx, const struct plim_driver_event *e)
{
    struct check *c = ctx;
    for (size_t i = 0; e->call == PLIM_DRIVER_ADDRESS_FREE && i < c->reservations.n; i++) {
        if (c->reservations.items[i].lo == e->addr) {
            c->reservations.items[i] = c->reservations.items[--c->reservations.n];
            return;
        }
    }
}

static bool script(void *ctx, enum plim_driver_call call, uint64_t size, uint64_t *addr)
{
    struct check *c = ctx;
    if (call == PLIM_DRIVER_ADDRESS_RESERVE) {
        return script_reserve(c, size, addr);
    }
    for (size_t i = c->gain; i < c->trace->events.n; i++) {
        const struct plim_event *e = &c->trace->events.items[i];
        if (e->action == PLIM_ACTION_ALLOC || e->action == PLIM_ACTION_OOM) {
            break;
        }
        if (e->action == PLIM_ACTION_SEGMENT_ALLOC) {
            c->gain = i + 1;
            *addr = e->addr;
            return is_usable(c, e->addr);
        }
    }
    return false;
}

/* ---- room on the device ------------------------------------------------------------------------- */

struct group {             /* what the trace says about one allocation */
    uint64_t gained_first; /* from the driver, ahead of the first release */
    uint64_t released;
    uint64_t gained_then;
    bool releases;
    bool failed;
    uint64_t free_after; /* of the device, with failed */
};

static struct group group_of(const struct check *c)
{
    struct group g = {0};
    for (size_t i = c->cursor; i < c->trace->events.n; i++) {
        const struct plim_event *e = &c->trace->events.items[i];
        if (e->action == PLIM_ACTION_ALLOC) {
            break;
        }
        if (e->action == PLIM_ACTION_OOM) {
            g.failed = true;
            g.free_after = e->addr;
            break;
        }
        if (e->action == PLIM_ACTION_SEGMENT_ALLOC || e->action == PLIM_ACTION_SEGMENT_MAP) {
            uint64_t *gained = g.releases ? &g.gained_then : &g.gained_first;
            *gained = plim_add_sat(*gained, e->size);
        } else if (e->action == PLIM_ACTION_SEGMENT_FREE ||
                   e->action == PLIM_ACTION_SEGMENT_UNMAP) {
            g.releases = true;
            g.released = plim_add_sat(g.released, e->size);
        }
    }
    return g;
}

/* Free bytes with which the driver refuses and serves as recorded. */
static uint64_t wanted_free(const struct group *g, uint64_t request, const struct plim_conf *conf)
{
    if (!g->failed && !g->releases) {
        return plim_add_sat(g->gained_first, SPARE);
    }
    if (!g->failed) {
        return plim_add_sat(g->gained_first, plim_sub_sat(g->gained_then, g->released));
    }
    uint64_t need =
        plim_round_segment(plim_round_request(request, conf->roundup), conf->large_segment);
    uint64_t after = g->free_after < need ? g->free_after : 0; /* else a memory cap refused */
    uint64_t gained = plim_add_sat(g->gained_first, g->gained_then);
    return plim_sub_sat(plim_add_sat(after, gained), g->released);
}

static void set_room(struct check *c, uint64_t request)
{
    struct plim_devmodel *d = &c->stage.device;
    struct group g = group_of(c);
    uint64_t room = wanted_free(&g, request, &c->q->conf);
    uint64_t own = d->used - d->config.external;
    uint64_t sum = plim_add_sat(own, plim_min_u64(room, MOST));
    c->gain = c->cursor;
    d->config.total = plim_max_u64(c->total, sum);
    plim_devmodel_set_external(d, d->config.total - sum);
}

/* ---- the final heap ------------------------------------------------------------------------------ */

static bool heaps_equal(const struct plim_heap *model, const struct plim_heap *recorded, char *why,
                        size_t n)
{
    for (size_t i = 0; i < model->blocks.n && i < recorded->blocks.n; i++) {
        const struct plim_block *m = &model->blocks.items[i], *r = &recorded->blocks.items[i];
        bool live = r->state != PLIM_BLOCK_INACTIVE;
        if (m->addr != r->addr || m->size != r->size || m->state != r->state ||
            (live && m->requested != r->requested)) {
            snprintf(why, n,
                     "block %zu: recorded 0x%llx with %llu bytes, the model has 0x%llx with %llu "
                     "bytes",
                     i, (unsigned long long)r->addr, (unsigned long long)r->size,
                     (unsigned long long)m->addr, (unsigned long long)m->size);
            return false;
        }
    }
    if (model->blocks.n != recorded->blocks.n || model->segments.n != recorded->segments.n) {
        snprintf(why, n, "recorded %zu blocks in %zu segments, the model has %zu in %zu",
                 recorded->blocks.n, recorded->segments.n, model->blocks.n, model->segments.n);
        return false;
    }
    return true;
}

static enum plim_status compare_heaps(struct check *c, struct plim_err *err)
{
    struct plim_heap heap = {0};
    enum plim_status st = plim_torch_export(c->stage.torch, &heap, err);
    if (st == PLIM_OK) {
        c->out->heap_compared = true;
        c->out->heap_equal = heaps_equal(&heap, &c->q->device->heap, c->out->heap_difference,
                                         sizeof c->out->heap_difference);
    }
    plim_heap_fini(&heap);
    return st;
}

/* ---- the walk ------------------------------------------------------------------------------------ */

/* Apply the settings changes that come ahead of the next allocation. */
static void change_settings(struct check *c, uint64_t allocs, uint32_t *next)
{
    while (*next < c->n_changes && c->changes[*next].alloc_index == allocs) {
        struct plim_conf conf = *plim_torch_conf(c->stage.torch);
        if (plim_conf_parse(&conf, plim_str_from(c->changes[*next].conf), NULL) == PLIM_OK) {
            plim_torch_reconf(c->stage.torch, &conf);
        }
        ++*next;
    }
}

static enum plim_status walk(struct check *c, struct plim_err *err)
{
    uint64_t allocs = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < c->q->items.n && !c->stopped; i++) {
        const struct plim_request *r = &c->q->items.items[i];
        struct plim_err why = {0};
        bool failed = false;
        c->out->request = i;
        if (plim_request_kind(r) == PLIM_REQUEST_ALLOC) {
            change_settings(c, allocs++, &next);
            set_room(c, r->size);
        }
        enum plim_status st = plim__stage_run(&c->stage, r, r->size, &failed, &why);
        if (st == PLIM_E_NOMEM) {
            return plim__fail(err, st, "%s", why.message);
        }
        if (st != PLIM_OK && !c->stopped) {
            differ(c, next_comparable(c, c->cursor), why.message);
        }
    }
    size_t at = next_comparable(c, c->cursor);
    if (!c->stopped && at < c->trace->events.n) {
        differ(c, at, "nothing");
    }
    return c->stopped ? PLIM_OK : compare_heaps(c, err);
}

static enum plim_status check_run(struct check *c, struct plim_err *err)
{
    struct plim_devmodel_config device = {
        .total = c->total,
        .policy = PLIM_ADDRESS_SCRIPTED,
        .base = PLIM_DEVMODEL_PAGE,
        .limit = UINT64_MAX - UINT64_MAX % PLIM_DEVMODEL_PAGE,
        .script = script,
        .log = on_call,
        .ctx = c,
    };
    PLIM_TRY(plim__stage_init(&c->stage, c->q, &c->q->conf, &device, on_event, c, err));
    struct plim_err why = {0};
    enum plim_status st = plim__stage_restore(&c->stage, &why);
    if (st == PLIM_E_NOMEM) {
        return plim__fail(err, st, "%s", why.message);
    }
    if (st != PLIM_OK) {
        differ(c, 0, why.message);
        return PLIM_OK;
    }
    return walk(c, err);
}

enum plim_status plim__selfcheck_once(const struct plim_requests *requests, uint64_t capacity,
                                      const struct plim_settings_change *changes,
                                      uint32_t n_changes, struct plim_selfcheck *out,
                                      struct plim_err *err)
{
    struct plim_selfcheck result = {.complete = requests->complete, .event = PLIM_NO_EVENT};
    struct check c = {.q = requests,
                      .trace = &requests->device->trace,
                      .out = &result,
                      .changes = changes,
                      .n_changes = n_changes};
    uint64_t guess = plim_max_u64(requests->recorded_peak_reserved, requests->recorded_capacity);
    c.total = plim_min_u64(capacity ? capacity : plim_max_u64(guess, PLIM_GIB), MOST);
    for (int a = 0; a < PLIM_ACTION_COUNT; a++) {
        result.total +=
            comparable(&c, (enum plim_action)a) ? requests->device->trace.by_action[a] : 0;
    }
    enum plim_status st = check_run(&c, err);
    plim__stage_fini(&c.stage);
    plim_vec_fini(&c.reservations);
    if (st == PLIM_OK) {
        *out = result;
    }
    return st;
}

/* ---- settings changed at run time ----------------------------------------------------------------- */

static uint64_t allocs_ahead(const struct plim_requests *q, size_t request)
{
    uint64_t n = 0;
    for (size_t i = 0; i < request && i < q->items.n; i++) {
        n += plim_request_kind(&q->items.items[i]) == PLIM_REQUEST_ALLOC;
    }
    return n;
}

static bool equal_to_the_end(const struct plim_selfcheck *c)
{
    return c->differences == 0 && c->heap_compared && c->heap_equal;
}

/* The change at the place of the difference that gets furthest; false when none gets any further. */
static enum plim_status best_change(const struct plim_requests *q, uint64_t capacity,
                                    struct plim_selfcheck *at,
                                    struct plim_settings_change changes[PLIM_SETTINGS_CHANGES],
                                    uint32_t n, bool *found, struct plim_err *err)
{
    /* An empty text puts split limit, rounding and garbage collection back to their defaults. */
    static const char *const candidates[] = {"", "max_split_size_mb:20", "expandable_segments:True",
                                             "expandable_segments:False"};
    struct plim_selfcheck best = *at;
    struct plim_settings_change chosen = {allocs_ahead(q, at->request), NULL};
    for (size_t i = 0; i < PLIM_COUNT_OF(candidates); i++) {
        struct plim_selfcheck check;
        changes[n] = (struct plim_settings_change){chosen.alloc_index, candidates[i]};
        PLIM_TRY(plim__selfcheck_once(q, capacity, changes, n + 1, &check, err));
        if (check.compared > best.compared) {
            best = check;
            chosen.conf = candidates[i];
        }
    }
    *found = chosen.conf != NULL;
    if (*found) {
        changes[n] = chosen;
        *at = best;
    }
    return PLIM_OK;
}

enum plim_status plim_selfcheck(const struct plim_requests *requests, uint64_t capacity,
                                struct plim_selfcheck *out, struct plim_err *err)
{
    struct plim_selfcheck first, at;
    struct plim_settings_change changes[PLIM_SETTINGS_CHANGES];
    uint32_t n = 0;
    bool found = true;
    PLIM_TRY(plim__selfcheck_once(requests, capacity, NULL, 0, &first, err));
    at = first;
    while (requests->complete && found && at.differences > 0 && n < PLIM_SETTINGS_CHANGES) {
        PLIM_TRY(best_change(requests, capacity, &at, changes, n, &found, err));
        n += found;
    }
    *out = first;
    if (n > 0 && equal_to_the_end(&at)) {
        *out = at;
        memcpy(out->changes, changes, n * sizeof changes[0]);
        out->n_changes = n;
    }
    return PLIM_OK;
}
