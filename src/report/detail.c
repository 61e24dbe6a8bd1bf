/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger over time: one walk over the trace for the base series, short ones for windows. */

#include "report/detail.h"

#include "base/num.h"

#define CHECKPOINTS 256u /* at most; memory: segments at each */
#define MIN_STRIDE  65536u

static uint64_t allocated(const struct plim_walk_point *p)
{
    return p->live + p->rounding;
}

static void count(uint16_t *counter)
{
    *counter = (uint16_t)(*counter + (*counter < UINT16_MAX));
}

static bool grows(const struct plim_event *e)
{
    return e->action == PLIM_ACTION_SEGMENT_ALLOC || e->action == PLIM_ACTION_SEGMENT_MAP;
}

static bool shrinks(const struct plim_event *e)
{
    return e->action == PLIM_ACTION_SEGMENT_FREE || e->action == PLIM_ACTION_SEGMENT_UNMAP;
}

/* Note what an event was: a marker, or the largest allocation of its bin. */
static void note_event(const struct plim_trace *trace, uint32_t i, struct plim_detail_bin *bin)
{
    const struct plim_event *e = &trace->events.items[i];
    bool after_release = i > 0 && shrinks(&trace->events.items[i - 1]);
    if (after_release && (grows(e) || e->action == PLIM_ACTION_OOM)) {
        count(&bin->retries);
    }
    if (e->action == PLIM_ACTION_ALLOC) {
        if (bin->largest == PLIM_NO_EVENT || e->size > trace->events.items[bin->largest].size) {
            bin->largest = i;
        }
    } else if (grows(e)) {
        count(&bin->grows);
    } else if (shrinks(e)) {
        count(&bin->shrinks);
    } else if (e->action == PLIM_ACTION_OOM) {
        count(&bin->ooms);
    }
}

static struct plim_detail_bin empty_bin(uint32_t at)
{
    return (struct plim_detail_bin){
        .at = at, .last = at, .largest = PLIM_NO_EVENT, .least = UINT64_MAX};
}

static void add_point(struct plim_detail_bin *bin, const struct plim_walk *walk)
{
    uint64_t now = allocated(&walk->now);
    if (bin->least == UINT64_MAX || now > allocated(&bin->top)) {
        bin->top = walk->now;
        bin->at = (uint32_t)walk->position;
    }
    bin->least = plim_min_u64(bin->least, now);
    bin->last = (uint32_t)walk->position;
}

/* Walk from where the walk is (== series->from) to series->to, bin by bin. */
static enum plim_status fill_bins(struct plim_walk *walk, struct plim_detail_series *series,
                                  struct plim_detail *checkpoints, struct plim_err *err)
{
    while (walk->position < series->to) {
        struct plim_detail_bin bin = empty_bin((uint32_t)walk->position);
        size_t end = plim_min_u64(walk->position + series->width, series->to);
        while (walk->position < end) {
            if (checkpoints && walk->position % checkpoints->checkpoint_every == 0) {
                struct plim_walk copy;
                PLIM_TRY(plim_walk_copy(walk, &copy, err));
                if (plim_vec_push(&checkpoints->checkpoints, err, copy) != PLIM_OK) {
                    plim_walk_fini(&copy);
                    return PLIM_E_NOMEM;
                }
            }
            note_event(walk->trace, (uint32_t)walk->position, &bin);
            PLIM_TRY(plim_walk_step(walk, err));
            add_point(&bin, walk);
        }
        PLIM_TRY(plim_vec_push(&series->bins, err, bin));
    }
    return PLIM_OK;
}

static uint32_t width_for(uint64_t events, uint32_t bins)
{
    uint64_t width = (events + bins - 1) / (bins ? bins : 1);
    return (uint32_t)plim_max_u64(width, 1);
}

static void name_moments(struct plim_detail *detail, size_t first_split)
{
    const struct plim_diagnosis *d = detail->diagnosis;
    uint32_t *named = detail->named;
    named[0] = (uint32_t)d->position;
    named[1] = (uint32_t)d->peaks.allocated_at;
    named[2] = (uint32_t)d->peaks.reserved_at;
    named[3] = d->failure.happened ? d->failure.event : UINT32_MAX;
    named[4] = first_split == SIZE_MAX ? UINT32_MAX : (uint32_t)first_split;
    named[5] = (uint32_t)detail->device->trace.events.n;
}

static enum plim_status walk_all(struct plim_detail *detail, uint32_t bins, struct plim_err *err)
{
    struct plim_walk walk;
    size_t n = detail->device->trace.events.n;
    PLIM_TRY(plim_walk_init(&walk, detail->device, err));
    detail->base.to = (uint32_t)n;
    detail->base.width = width_for(n, bins);
    detail->checkpoint_every = (uint32_t)plim_max_u64(MIN_STRIDE, n / CHECKPOINTS);
    enum plim_status st = PLIM_OK;
    if (n == 0) { /* no trace: one bin that shows the heap as it is */
        struct plim_detail_bin bin = empty_bin(0);
        add_point(&bin, &walk);
        st = plim_vec_push(&detail->base.bins, err, bin);
    } else {
        st = fill_bins(&walk, &detail->base, detail, err);
    }
    name_moments(detail, walk.first_split);
    plim_walk_fini(&walk);
    return st;
}

enum plim_status plim_detail_init(struct plim_detail *detail, const struct plim_snapshot *snapshot,
                                  const struct plim_diagnosis *diagnosis, uint32_t bins,
                                  struct plim_err *err)
{
    struct plim_detail d = {.snapshot = snapshot,
                            .diagnosis = diagnosis,
                            .device = &snapshot->devices.items[diagnosis->device]};
    enum plim_status st = plim_lives_read(d.device, &d.lives, err);
    if (st == PLIM_OK) {
        st = walk_all(&d, bins, err);
    }
    if (st == PLIM_OK) {
        d.used_stacks = calloc(snapshot->stacks.stacks.n + 1, 1);
        if (!d.used_stacks) {
            st = plim__fail(err, PLIM_E_NOMEM, "no memory for the stacks of the report");
        }
    }
    if (st != PLIM_OK) {
        plim_detail_fini(&d);
        return st;
    }
    *detail = d;
    return PLIM_OK;
}

void plim_detail_fini(struct plim_detail *detail)
{
    plim_lives_fini(&detail->lives);
    plim_vec_fini(&detail->base.bins);
    plim_vec_foreach (walk, &detail->checkpoints) {
        plim_walk_fini(walk);
    }
    plim_vec_fini(&detail->checkpoints);
    free(detail->used_stacks);
    detail->used_stacks = NULL;
}

void plim_detail_forget_stacks(struct plim_detail *detail)
{
    memset(detail->used_stacks, 0, detail->snapshot->stacks.stacks.n);
}

/* Bins of the base series joined: each new bin is `join` of them. */
static enum plim_status join_bins(const struct plim_detail *detail, uint32_t join,
                                  struct plim_detail_series *series, struct plim_err *err)
{
    const struct plim_detail_series *base = &detail->base;
    size_t first = series->from / base->width, end = (series->to + base->width - 1) / base->width;
    series->from = (uint32_t)(first * base->width);
    series->to = (uint32_t)plim_min_u64(end * base->width, base->to);
    series->width = join * base->width;
    for (size_t i = first; i < end && i < base->bins.n; i++) {
        const struct plim_detail_bin *from = &base->bins.items[i];
        if ((i - first) % join == 0) {
            PLIM_TRY(plim_vec_push(&series->bins, err, *from));
            continue;
        }
        struct plim_detail_bin *to = &series->bins.items[series->bins.n - 1];
        if (allocated(&from->top) > allocated(&to->top)) {
            to->top = from->top;
            to->at = from->at;
        }
        const struct plim_event *events = detail->device->trace.events.items;
        if (from->largest != PLIM_NO_EVENT &&
            (to->largest == PLIM_NO_EVENT ||
             events[from->largest].size > events[to->largest].size)) {
            to->largest = from->largest;
        }
        to->least = plim_min_u64(to->least, from->least);
        to->last = from->last;
        to->grows = (uint16_t)plim_min_u64(UINT16_MAX, (uint64_t)to->grows + from->grows);
        to->shrinks = (uint16_t)plim_min_u64(UINT16_MAX, (uint64_t)to->shrinks + from->shrinks);
        to->ooms = (uint16_t)plim_min_u64(UINT16_MAX, (uint64_t)to->ooms + from->ooms);
        to->retries = (uint16_t)plim_min_u64(UINT16_MAX, (uint64_t)to->retries + from->retries);
    }
    return PLIM_OK;
}

/* Go on from the last checkpoint at or before the window. */
static enum plim_status walk_window(const struct plim_detail *detail,
                                    struct plim_detail_series *series, struct plim_err *err)
{
    struct plim_walk walk;
    size_t at = plim_min_u64(series->from / detail->checkpoint_every, detail->checkpoints.n - 1);
    PLIM_TRY(plim_walk_copy(&detail->checkpoints.items[at], &walk, err));
    enum plim_status st = PLIM_OK;
    while (st == PLIM_OK && walk.position < series->from) {
        st = plim_walk_step(&walk, err);
    }
    if (st == PLIM_OK) {
        st = fill_bins(&walk, series, NULL, err);
    }
    plim_walk_fini(&walk);
    return st;
}

enum plim_status plim_detail_series_of(const struct plim_detail *detail, uint32_t from, uint32_t to,
                                       uint32_t bins, struct plim_detail_series *out,
                                       struct plim_err *err)
{
    struct plim_detail_series series = {.from = from,
                                        .to = (uint32_t)plim_min_u64(to, detail->base.to)};
    if (series.from >= series.to || bins == 0) {
        return plim__fail(err, PLIM_E_RANGE, "no events from %u to %u", from, to);
    }
    series.width = width_for(series.to - series.from, bins);
    uint32_t join = series.width / detail->base.width;
    enum plim_status st = join >= 1 && detail->base.width > 1
                              ? join_bins(detail, join, &series, err)
                              : walk_window(detail, &series, err);
    if (st != PLIM_OK) {
        plim_vec_fini(&series.bins);
        return st;
    }
    *out = series;
    return PLIM_OK;
}
