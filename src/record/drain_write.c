/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes into the trace. Each frame of events stands behind the facts that it needs. When the disk is full the
 * events of a frame are dropped and counted; facts wait for the next try.
 */

#include "record/drain_write.h"

#include "base/clock.h"
#include "base/num.h"

#include <stdio.h>

#define FACTS_BYTES (UINT32_C(4) << 20) /* written at once */
#define FACTS_KEPT  (UINT32_C(7) << 20) /* most that wait for a full disk */

void plim__drain_tell(struct plim_drain *d, bool *told, const char *text)
{
    if (!*told) {
        d->setup->tell(d->setup->tell_arg, text);
        *told = true;
    }
}

/* -- into the trace ------------------------------------------------------------------------------ */

static bool disk_trouble(struct plim_drain *d, const struct plim_err *e)
{
    char text[400];
    (void)snprintf(text, sizeof(text),
                   "%s: the program goes on, events are counted until there is room again",
                   e->message);
    plim__drain_tell(d, &d->told_full, text);
    return true;
}

enum plim_status plim__drain_facts(struct plim_drain *d, struct plim_err *err)
{
    struct plim_err io = {0};
    if (d->facts.n == 0) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_buf_status(&d->facts, err));
    struct plim_trace_frame frame = {.kind = PLIM_FRAME_FACTS, .items = (uint32_t)d->n_facts};
    enum plim_status st = plim_trace_append(&d->writer, frame, plim_buf_str(&d->facts), &io);
    if (st == PLIM_OK || d->facts.n > FACTS_KEPT) {
        plim_buf_reset(&d->facts);
        d->n_facts = 0;
    }
    if (st == PLIM_E_IO && disk_trouble(d, &io)) {
        return PLIM_OK;
    }
    if (st != PLIM_OK && err != NULL) {
        *err = io;
    }
    return st;
}

/* First and last time of the batch; events of several processes need not be in order. */
static void set_times(const struct plim_drain *d, struct plim_trace_frame *frame)
{
    uint64_t first = UINT64_MAX, last = 0;
    plim_vec_foreach (t, &d->batch) {
        first = plim_min_u64(first, t->e.time_ns);
        last = plim_max_u64(last, t->e.time_ns);
    }
    frame->first_ns = first;
    frame->span_us = (uint32_t)plim_min_u64((last - first + 999) / 1000, UINT32_MAX);
}

enum plim_status plim__drain_batch(struct plim_drain *d, struct plim_err *err)
{
    struct plim_buf payload = {0};
    struct plim_err io = {0};
    PLIM_TRY(plim__drain_facts(d, err));
    if (d->batch.n == 0) {
        return PLIM_OK;
    }
    struct plim_trace_frame frame = {.kind = PLIM_FRAME_EVENTS, .items = (uint32_t)d->batch.n};
    set_times(d, &frame);
    plim__events_put(&payload, d->batch.items, d->batch.n);
    enum plim_status st = plim_buf_status(&payload, &io);
    st = st == PLIM_OK ? plim_trace_append(&d->writer, frame, plim_buf_str(&payload), &io) : st;
    plim_buf_fini(&payload);
    if (st != PLIM_OK) {
        d->tally.unwritten += d->batch.n;
    }
    d->batch.n = 0;
    if (st == PLIM_E_IO && disk_trouble(d, &io)) {
        return PLIM_OK;
    }
    if (st != PLIM_OK && err != NULL) {
        *err = io;
    }
    return st;
}

enum plim_status plim__drain_seal(struct plim_drain *d, struct plim_err *err)
{
    struct plim_err io = {0};
    PLIM_TRY(plim__drain_batch(d, err));
    enum plim_status st = plim_trace_seal(&d->writer, &io);
    if (st == PLIM_E_IO && disk_trouble(d, &io)) {
        return PLIM_OK;
    }
    if (st != PLIM_OK && err != NULL) {
        *err = io;
    }
    return st;
}

/* -- facts --------------------------------------------------------------------------------------- */

/* A fact was appended: out with them when there are many. */
enum plim_status plim__drain_added(struct plim_drain *d, struct plim_err *err)
{
    d->n_facts++;
    return d->facts.n > FACTS_BYTES ? plim__drain_facts(d, err) : PLIM_OK;
}

static bool set_bit(uint8_t *bits, unsigned i)
{
    bool was = (bits[i / 8] >> (i % 8) & 1) != 0;
    bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << (i % 8));
    return was;
}

static enum plim_status need_call(struct plim_drain *d, struct plim_source_file *s, unsigned call,
                                  struct plim_err *err)
{
    char name[128];
    if (call == 0 || set_bit(s->calls, call) ||
        plim_shm_call(&s->reader, call, name, sizeof(name)) < 0) {
        return PLIM_OK;
    }
    plim__fact_call(&d->facts, s->process, call, plim_str_from(name));
    return plim__drain_added(d, err);
}

static enum plim_status need_library(struct plim_drain *d, struct plim_source_file *s,
                                     unsigned number, struct plim_err *err)
{
    char path[512];
    struct plim_shm_library row;
    if (number == 0 || number > UINT16_MAX || set_bit(s->libraries, number) ||
        plim_shm_library(&s->reader, number, &row, path, sizeof(path)) < 0) {
        return PLIM_OK;
    }
    struct plim_trace_library library = {row.base, row.end, row.owner, plim_str_from(path)};
    plim__fact_library(&d->facts, s->process, number, &library);
    return plim__drain_added(d, err);
}

/* All stacks up to that number, and every library, since addresses lead to any. */
static enum plim_status need_stacks(struct plim_drain *d, struct plim_source_file *s,
                                    uint32_t up_to, struct plim_err *err)
{
    uint64_t frames[PLIM_TRACE_FRAMES_MAX];
    for (uint32_t i = s->stacks + 1; i <= up_to; i++) {
        int n = plim_shm_stack(&s->reader, i, frames, PLIM_TRACE_FRAMES_MAX);
        if (n < 0) {
            return PLIM_OK; /* a number that leads nowhere */
        }
        plim__fact_stack(&d->facts, s->process, i, frames, (size_t)n);
        PLIM_TRY(plim__drain_added(d, err));
        s->stacks = i;
    }
    for (unsigned i = 1; up_to > 0 && i < s->reader.head.libraries && i <= UINT16_MAX; i++) {
        PLIM_TRY(need_library(d, s, i, err));
    }
    return PLIM_OK;
}

enum plim_status plim__drain_tables(struct plim_drain *d, struct plim_source_file *s,
                                    const struct plim_gpu_event *e, struct plim_err *err)
{
    PLIM_TRY(need_call(d, s, e->call, err));
    PLIM_TRY(need_library(d, s, e->library, err));
    return e->stack > s->stacks ? need_stacks(d, s, e->stack, err) : PLIM_OK;
}

/* The program's name as the kernel has it; a process that is gone has none. */
static void read_name(uint64_t pid, char name[32])
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%llu/comm", (unsigned long long)pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(name, 32, file) != NULL) {
            name[strcspn(name, "\n")] = '\0';
        }
        (void)fclose(file);
    }
}

enum plim_status plim__drain_process(struct plim_drain *d, const struct plim_source_file *s,
                                     struct plim_err *err)
{
    const struct plim_shm_head *head = &s->reader.head;
    struct plim_trace_process about = {
        .pid = head->pid,
        .parent_pid = head->parent_pid,
        .program = head->program,
        .start_ns = head->start_ns + (uint64_t)head->real_offset_ns,
    };
    read_name(head->pid, about.name);
    plim__fact_process(&d->facts, s->process, &about);
    return plim__drain_added(d, err);
}

enum plim_status plim__drain_totals(struct plim_drain *d, const struct plim_source_file *s,
                                    struct plim_err *err)
{
    for (unsigned device = 0; device < PLIM_SHM_DEVICES; device++) {
        struct plim_shm_total rows[PLIM_SHM_OWNERS];
        if (plim_shm_totals(&s->reader, device, rows) < 0) {
            continue;
        }
        for (unsigned owner = 0; owner < PLIM_SHM_OWNERS; owner++) {
            struct plim_trace_total total = {device, owner, rows[owner]};
            if (rows[owner].allocs + rows[owner].failures + rows[owner].charged +
                    rows[owner].foreign >
                0) {
                plim__fact_total(&d->facts, s->process, &total);
                PLIM_TRY(plim__drain_added(d, err));
            }
        }
    }
    return PLIM_OK;
}

enum plim_status plim__drain_end(struct plim_drain *d, const struct plim_source_file *s, bool alive,
                                 struct plim_err *err)
{
    struct plim_shm_counters counters = {0};
    uint64_t lost = 0;
    (void)plim_shm_counters(&s->reader, &counters, &lost);
    struct plim_trace_ended end = {
        .how = alive                                    ? PLIM_TRACE_END_UNKNOWN
               : s->reader.head.state == PLIM_SHM_ENDED ? PLIM_TRACE_END_ORDERLY
                                                        : PLIM_TRACE_END_GONE,
        .time_ns = plim_wall_ns(),
        .lost = lost,
        .unknown_frees = counters.unknown_frees,
        .unhooked = counters.unhooked,
    };
    plim__fact_end(&d->facts, s->process, &end);
    return plim__drain_added(d, err);
}

/* -- the Python side ----------------------------------------------------------------------------- */

static struct plim_trace_stats stats_from(const struct plim_attach_device *a, uint64_t device,
                                          int64_t real_offset)
{
    return (struct plim_trace_stats){
        .device = device,
        .time_ns = a->time_ns + (uint64_t)real_offset,
        .allocated = a->allocated,
        .active = a->active,
        .requested = a->requested,
        .reserved = a->reserved,
        .inactive_split = a->inactive_split,
        .peak_allocated = a->peak_allocated,
        .peak_reserved = a->peak_reserved,
        .retries = a->num_alloc_retries,
        .ooms = a->num_ooms,
        .device_total = a->device_total != UINT64_MAX ? a->device_total : 0,
        .device_free = a->device_free,
    };
}

/* The last row of a process and device; made when it is new. */
static enum plim_status last_stats(struct plim_drain *d, uint32_t process, unsigned device,
                                   struct plim_trace_stats **out, struct plim_err *err)
{
    size_t at = (size_t)process * PLIM_ATTACH_DEVICES + device;
    while (d->last_stats.n <= at) {
        PLIM_TRY(plim_vec_push(&d->last_stats, err, (struct plim_trace_stats){0}));
    }
    *out = &d->last_stats.items[at];
    return PLIM_OK;
}

enum plim_status plim__drain_stats(struct plim_drain *d, const struct plim_source_file *s,
                                   struct plim_err *err)
{
    char path[512];
    struct plim_attach_file file;
    (void)snprintf(path, sizeof(path), "%s/%s" PLIM_ATTACH_SUFFIX, d->folder, s->name);
    if (plim_attach_read(path, &file) < 0) {
        return PLIM_OK; /* not attached */
    }
    for (unsigned i = 0; i < PLIM_ATTACH_DEVICES; i++) {
        struct plim_trace_stats *last;
        if (file.device[i].valid != 1) {
            continue;
        }
        struct plim_trace_stats now = stats_from(&file.device[i], i, file.real_offset_ns);
        PLIM_TRY(last_stats(d, s->process, i, &last, err));
        bool same = last->allocated == now.allocated && last->reserved == now.reserved &&
                    last->requested == now.requested && last->ooms == now.ooms &&
                    last->inactive_split == now.inactive_split &&
                    last->device_free == now.device_free && last->time_ns != 0;
        if (!same) {
            d->tally.device[i].total =
                now.device_total ? now.device_total : d->tally.device[i].total;
            *last = now;
            plim__fact_stats(&d->facts, s->process, &now);
            PLIM_TRY(plim__drain_added(d, err));
        }
    }
    return PLIM_OK;
}
