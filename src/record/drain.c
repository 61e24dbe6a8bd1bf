/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From rings to the trace. Events go out in frames of a few thousand, at the latest a second after the
 * first of them, each frame of events behind the facts that it needs. When the disk is full the events
 * of a frame are dropped and counted; facts wait for the next try.
 */

#include "record/record.h"

#include "base/num.h"
#include "format/trace_owners.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BATCH_EVENTS 4096u                /* written at once */
#define BATCH_NS     UINT64_C(1000000000) /* or when the first is so old */
#define TURN_EVENTS  65536u               /* most of one source in one turn: the others wait */
#define FACTS_BYTES  (UINT32_C(4) << 20)  /* written at once */
#define FACTS_KEPT   (UINT32_C(7) << 20)  /* most that wait for a full disk */
#define ATTACH_NS    UINT64_C(1000000000) /* between two looks at the Python side */
#define POLL_EVENTS  1024u

uint64_t plim_record_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static uint64_t real_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void tell_once(struct plim_drain *d, bool *told, const char *text)
{
    if (!*told) {
        d->setup->tell(d->setup->tell_arg, text);
        *told = true;
    }
}

enum plim_status plim_drain_open(struct plim_drain *d, const struct plim_record_setup *setup,
                                 const char *folder, struct plim_err *err)
{
    *d = (struct plim_drain){
        .folder = folder, .setup = setup, .started_ns = plim_record_now_ns(), .writer.fd = -1};
    return plim_trace_create(setup->trace, real_now_ns(), &d->writer, err);
}

/* -- into the trace ------------------------------------------------------------------------------ */

static bool disk_trouble(struct plim_drain *d, const struct plim_err *e)
{
    char text[400];
    (void)snprintf(text, sizeof(text),
                   "%s: the program goes on, events are counted until there is room again",
                   e->message);
    tell_once(d, &d->told_full, text);
    return true;
}

static enum plim_status write_facts(struct plim_drain *d, struct plim_err *err)
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

static enum plim_status write_batch(struct plim_drain *d, struct plim_err *err)
{
    struct plim_buf payload = {0};
    struct plim_err io = {0};
    PLIM_TRY(write_facts(d, err));
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

static bool over_limit(struct plim_drain *d)
{
    const struct plim_record_setup *s = d->setup;
    bool over = (s->max_bytes != 0 && d->writer.size >= s->max_bytes) ||
                (s->max_time_ns != 0 && plim_record_now_ns() - d->started_ns >= s->max_time_ns);
    if (over) {
        tell_once(d, &d->told_limit,
                  "a limit of the recording is reached: the program goes on, events are counted");
    }
    return over;
}

/* -- facts --------------------------------------------------------------------------------------- */

/* A fact was appended: out with them when there are many. */
static enum plim_status fact_added(struct plim_drain *d, struct plim_err *err)
{
    d->n_facts++;
    return d->facts.n > FACTS_BYTES ? write_facts(d, err) : PLIM_OK;
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
    return fact_added(d, err);
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
    return fact_added(d, err);
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
        PLIM_TRY(fact_added(d, err));
        s->stacks = i;
    }
    for (unsigned i = 1; up_to > 0 && i < s->reader.head.libraries && i <= UINT16_MAX; i++) {
        PLIM_TRY(need_library(d, s, i, err));
    }
    return PLIM_OK;
}

static enum plim_status need_tables(struct plim_drain *d, struct plim_source_file *s,
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

static enum plim_status say_process(struct plim_drain *d, const struct plim_source_file *s,
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
    return fact_added(d, err);
}

static enum plim_status say_totals(struct plim_drain *d, const struct plim_source_file *s,
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
                PLIM_TRY(fact_added(d, err));
            }
        }
    }
    return PLIM_OK;
}

static enum plim_status say_end(struct plim_drain *d, const struct plim_source_file *s, bool alive,
                                struct plim_err *err)
{
    struct plim_shm_counters counters = {0};
    uint64_t lost = 0;
    (void)plim_shm_counters(&s->reader, &counters, &lost);
    struct plim_trace_ended end = {
        .how = alive                                    ? PLIM_TRACE_END_UNKNOWN
               : s->reader.head.state == PLIM_SHM_ENDED ? PLIM_TRACE_END_ORDERLY
                                                        : PLIM_TRACE_END_GONE,
        .time_ns = real_now_ns(),
        .lost = lost,
        .unknown_frees = counters.unknown_frees,
        .unhooked = counters.unhooked,
    };
    plim__fact_end(&d->facts, s->process, &end);
    return fact_added(d, err);
}

/* -- sources ------------------------------------------------------------------------------------- */

static void tally_event(struct plim_record_tally *tally, const struct plim_gpu_event *e)
{
    unsigned row = e->device < PLIM_SHM_DEVICES - 1 ? e->device : PLIM_SHM_DEVICES - 1;
    struct plim_record_sums *s = &tally->device[row];
    int64_t by = plim_event_charge(e);
    unsigned owner = e->owner < PLIM_OWNERS ? e->owner : PLIM_OWNER_UNKNOWN;
    s->charged[owner] = (int64_t)((uint64_t)s->charged[owner] + (uint64_t)by);
    s->sum = (int64_t)((uint64_t)s->sum + (uint64_t)by);
    if (s->sum > s->peak) {
        s->peak = s->sum;
        memcpy(s->at_peak, s->charged, sizeof(s->at_peak));
    }
    s->refused += plim__event_failed(e);
    s->total = e->kind == PLIM_EVENT_SAMPLE && e->size != UINT64_MAX ? e->size : s->total;
    tally->lost += e->kind == PLIM_EVENT_LOST ? e->size : 0;
    tally->events++;
}

static enum plim_status take_event(struct plim_drain *d, struct plim_source_file *s,
                                   const struct plim_gpu_event *e, struct plim_err *err)
{
    struct plim_trace_event t = {*e, s->process};
    t.e.time_ns += (uint64_t)s->reader.head.real_offset_ns;
    tally_event(&d->tally, e);
    if (over_limit(d)) {
        d->tally.over_limit++;
        return PLIM_OK;
    }
    PLIM_TRY(need_tables(d, s, e, err));
    if (d->batch.n == 0) {
        d->batch_since_ns = plim_record_now_ns();
    }
    PLIM_TRY(plim_vec_push(&d->batch, err, t));
    return d->batch.n >= BATCH_EVENTS ? write_batch(d, err) : PLIM_OK;
}

/* The process is gone, or we are: its sums and its end into the trace. */
static enum plim_status end_source(struct plim_drain *d, struct plim_source_file *s, bool alive,
                                   struct plim_err *err)
{
    enum plim_status st = say_totals(d, s, err);
    st = st == PLIM_OK ? say_end(d, s, alive, err) : st;
    d->tally.alive += alive;
    plim_shm_close(&s->reader);
    s->done = true;
    return st;
}

static enum plim_status drain_source(struct plim_drain *d, struct plim_source_file *s,
                                     uint64_t *took, struct plim_err *err)
{
    struct plim_gpu_event events[POLL_EVENTS];
    bool alive = plim_shm_alive(&s->reader) && !s->replaced;
    for (unsigned total = 0; total < TURN_EVENTS;) {
        int n = plim_shm_poll(&s->reader, events, POLL_EVENTS, !alive);
        if (n <= 0) {
            d->tally.unreadable += n < 0;
            return alive && n == 0 ? PLIM_OK : end_source(d, s, false, err);
        }
        for (int i = 0; i < n; i++) {
            PLIM_TRY(take_event(d, s, &events[i], err));
        }
        total += (unsigned)n;
        *took += (unsigned)n;
    }
    return PLIM_OK;
}

static bool known(const struct plim_drain *d, const char *name)
{
    plim_vec_foreach (s, &d->sources) {
        if (strcmp((*s)->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* A process that became another program writes no more into its old file. */
static void replace_older(struct plim_drain *d, const struct plim_source_file *newer)
{
    const struct plim_shm_head *a = &newer->reader.head;
    plim_vec_foreach (s, &d->sources) {
        const struct plim_shm_head *b = &(*s)->reader.head;
        (*s)->replaced |=
            a->pid == b->pid && a->start_ticks == b->start_ticks && b->program < a->program;
    }
}

static enum plim_status add_source(struct plim_drain *d, const char *name, struct plim_err *err)
{
    char path[512];
    struct plim_source_file *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for another process");
    }
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    (void)snprintf(path, sizeof(path), "%s/%s" PLIM_SHM_SUFFIX, d->folder, name);
    s->process = (uint32_t)d->tally.processes;
    int code = plim_shm_open(&s->reader, path, true);
    s->done = code < 0;
    if (code < 0) {
        d->tally.unreadable++;
        tell_once(d, &d->told_odd, "the events of a process cannot be read");
    }
    enum plim_status st = plim_vec_push(&d->sources, err, s);
    if (st != PLIM_OK || s->done) {
        if (st != PLIM_OK) {
            free(s);
        }
        return st;
    }
    d->tally.processes++;
    replace_older(d, s);
    return say_process(d, s, err);
}

/* readdir() on a stream of our own. */
static const struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe)
}

enum plim_status plim_drain_look(struct plim_drain *d, struct plim_err *err)
{
    DIR *dir = opendir(d->folder);
    enum plim_status st = PLIM_OK;
    const struct dirent *entry;
    while (dir != NULL && st == PLIM_OK && (entry = next_entry(dir)) != NULL) {
        char name[64];
        size_t n = strlen(entry->d_name), suffix = strlen(PLIM_SHM_SUFFIX);
        if (entry->d_name[0] == '.' || n <= suffix || n - suffix >= sizeof(name) ||
            strcmp(entry->d_name + n - suffix, PLIM_SHM_SUFFIX) != 0) {
            continue;
        }
        memcpy(name, entry->d_name, n - suffix);
        name[n - suffix] = '\0';
        if (!known(d, name) && d->sources.n < PLIM_TRACE_PROCESSES_MAX) {
            st = add_source(d, name, err);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return st;
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

static enum plim_status read_stats(struct plim_drain *d, const struct plim_source_file *s,
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
            PLIM_TRY(fact_added(d, err));
        }
    }
    return PLIM_OK;
}

static enum plim_status look_at_attached(struct plim_drain *d, bool last, struct plim_err *err)
{
    uint64_t now = plim_record_now_ns();
    if (!last && now - d->attach_read_ns < ATTACH_NS) {
        return PLIM_OK;
    }
    d->attach_read_ns = now;
    plim_vec_foreach (s, &d->sources) {
        if (!(*s)->done || last) {
            PLIM_TRY(read_stats(d, *s, err));
        }
    }
    return PLIM_OK;
}

/* -- turns --------------------------------------------------------------------------------------- */

enum plim_status plim_drain_turn(struct plim_drain *d, uint64_t *took, struct plim_err *err)
{
    *took = 0;
    for (size_t i = 0; i < d->sources.n; i++) {
        if (!d->sources.items[i]->done) {
            PLIM_TRY(drain_source(d, d->sources.items[i], took, err));
        }
    }
    PLIM_TRY(look_at_attached(d, false, err));
    bool old = d->batch.n > 0 && plim_record_now_ns() - d->batch_since_ns >= BATCH_NS;
    return old ? write_batch(d, err) : PLIM_OK;
}

size_t plim_drain_living(const struct plim_drain *d)
{
    size_t n = 0;
    plim_vec_foreach (s, &d->sources) {
        n += !(*s)->done;
    }
    return n;
}

enum plim_status plim_drain_finish(struct plim_drain *d, int exit_status, int signal,
                                   struct plim_err *err)
{
    PLIM_TRY(look_at_attached(d, true, err));
    plim_vec_foreach (s, &d->sources) {
        if (!(*s)->done) {
            PLIM_TRY(end_source(d, *s, true, err));
        }
    }
    struct plim_trace_run run = {
        .time_ns = real_now_ns(),
        .exit_status = (uint64_t)exit_status,
        .signal = (uint64_t)signal,
        .unwritten = d->tally.unwritten,
        .over_limit = d->tally.over_limit,
    };
    plim__fact_run(&d->facts, &run);
    PLIM_TRY(fact_added(d, err));
    PLIM_TRY(write_batch(d, err));
    PLIM_TRY(write_facts(d, err));
    struct plim_err io = {0};
    enum plim_status st = plim_trace_seal(&d->writer, &io);
    if (st == PLIM_E_IO && disk_trouble(d, &io)) {
        return PLIM_OK;
    }
    if (st != PLIM_OK && err != NULL) {
        *err = io;
    }
    return st;
}

void plim_drain_close(struct plim_drain *d)
{
    plim_vec_foreach (s, &d->sources) {
        if (!(*s)->done) {
            plim_shm_close(&(*s)->reader);
        }
        free(*s);
    }
    plim_vec_fini(&d->sources);
    plim_vec_fini(&d->batch);
    plim_vec_fini(&d->last_stats);
    plim_buf_fini(&d->facts);
    plim_trace_close(&d->writer);
}
