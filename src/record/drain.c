/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Out of the rings: sources come, are read in turn, and end. Events go out in frames of a few thousand, at the
 * latest a second after the first of them.
 */

#include "record/drain_write.h"

#include "base/clock.h"
#include "base/num.h"
#include "format/trace_owners.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BATCH_EVENTS 4096u                   /* written at once */
#define BATCH_NS     UINT64_C(1000000000)    /* or when the first is so old */
#define TURN_EVENTS  65536u                  /* most of one source in one turn: the others wait */
#define ATTACH_NS    UINT64_C(1000000000)    /* between two looks at the Python side */
#define NUMBER_BITS  ((UINT16_MAX + 1u) / 8) /* bytes: one bit for each number of 16 bits */
#define POLL_EVENTS  1024u

enum plim_status plim_drain_open(struct plim_drain *d, const struct plim_record_setup *setup,
                                 const char *folder, struct plim_err *err)
{
    *d = (struct plim_drain){
        .folder = folder, .setup = setup, .started_ns = plim_mono_ns(), .writer.fd = -1};
    return plim_trace_create(setup->trace, plim_wall_ns(), &d->writer, err);
}

static bool over_limit(struct plim_drain *d)
{
    const struct plim_record_setup *s = d->setup;
    bool over = (s->max_bytes != 0 && d->writer.size >= s->max_bytes) ||
                (s->max_time_ns != 0 && plim_mono_ns() - d->started_ns >= s->max_time_ns);
    if (over) {
        plim__drain_tell(
            d, &d->told_limit,
            "a limit of the recording is reached: the program goes on, events are counted");
    }
    return over;
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
    PLIM_TRY(plim__drain_tables(d, s, e, err));
    if (d->batch.n == 0) {
        d->batch_since_ns = plim_mono_ns();
    }
    PLIM_TRY(plim_vec_push(&d->batch, err, t));
    return d->batch.n >= BATCH_EVENTS ? plim__drain_batch(d, err) : PLIM_OK;
}

static void forget(struct plim_source_file *s)
{
    if (s->reader.fd >= 0) {
        plim_shm_close(&s->reader);
    }
    free(s->calls);
    free(s->libraries);
    s->calls = s->libraries = NULL;
    s->done = true;
}

/* What a process leaves in memory is given back when it is dead, since a recording may see any number
 * of them; not before: the name must not be free for the next program of that process. */
static void remove_files(const struct plim_drain *d, const struct plim_source_file *s)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s" PLIM_SHM_SUFFIX, d->folder, s->name);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/%s" PLIM_ATTACH_SUFFIX, d->folder, s->name);
    (void)unlink(path);
}

/* The process is gone, or another program, or we are gone: its sums and its end into the trace. */
static enum plim_status end_source(struct plim_drain *d, struct plim_source_file *s, bool alive,
                                   struct plim_err *err)
{
    enum plim_status st = plim__drain_totals(d, s, err);
    st = st == PLIM_OK ? plim__drain_stats(d, s, err) : st;
    st = st == PLIM_OK ? plim__drain_end(d, s, alive, err) : st;
    d->tally.alive += alive;
    if (!plim_shm_alive(&s->reader)) {
        remove_files(d, s);
    }
    forget(s);
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

static struct plim_source_file *find(const struct plim_drain *d, const char *name)
{
    plim_vec_foreach (s, &d->sources) {
        if (strcmp((*s)->name, name) == 0) {
            return *s;
        }
    }
    return NULL;
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

static struct plim_source_file *new_source(const char *name)
{
    struct plim_source_file *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    s->reader.fd = -1;
    s->calls = calloc(1, NUMBER_BITS);
    s->libraries = calloc(1, NUMBER_BITS);
    if (s->calls == NULL || s->libraries == NULL) {
        forget(s);
        free(s);
        return NULL;
    }
    return s;
}

static enum plim_status add_source(struct plim_drain *d, const char *name, struct plim_err *err)
{
    char path[512];
    struct plim_source_file *s = new_source(name);
    if (s == NULL || plim_vec_push(&d->sources, NULL, s) != PLIM_OK) {
        if (s != NULL) {
            forget(s);
        }
        free(s);
        return plim__fail(err, PLIM_E_NOMEM, "no memory for another process");
    }
    (void)snprintf(path, sizeof(path), "%s/%s" PLIM_SHM_SUFFIX, d->folder, name);
    if (plim_shm_open(&s->reader, path, true) < 0) {
        s->reader.fd = -1;
        forget(s);
        d->tally.unreadable++;
        plim__drain_tell(d, &d->told_odd, "the events of a process cannot be read");
        return PLIM_OK;
    }
    s->process = (uint32_t)d->tally.processes++;
    replace_older(d, s);
    return plim__drain_process(d, s, err);
}

/* readdir() on a stream of our own. */
static const struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe)
}

/* The PROCESS in a file's name, and its suffix; NULL when it is no such name or hidden. */
static const char *split(const char *file, char name[64])
{
    const char *dot = strrchr(file, '.');
    if (dot == NULL || *file == '.' || dot - file >= 64) {
        return NULL;
    }
    memcpy(name, file, (size_t)(dot - file));
    name[dot - file] = '\0';
    return dot;
}

/* A dead process's file that holds nothing which is not in the trace: one that it did not come to
 * finish, what it wrote before it became another program, what Python wrote beside a device that was
 * never used. */
static bool is_left(const struct plim_drain *d, const char *file)
{
    char name[64], ring[512];
    if (plim_shm_named_alive(file) != 0) {
        return false;
    }
    const char *suffix = split(file, name);
    if (suffix == NULL) {
        return *file == '.';
    }
    const struct plim_source_file *s = find(d, name);
    (void)snprintf(ring, sizeof(ring), "%s/%s" PLIM_SHM_SUFFIX, d->folder, name);
    return s != NULL ? s->done : strcmp(suffix, PLIM_ATTACH_SUFFIX) == 0 && access(ring, F_OK) != 0;
}

enum plim_status plim_drain_look(struct plim_drain *d, struct plim_err *err)
{
    DIR *dir = opendir(d->folder);
    enum plim_status st = PLIM_OK;
    const struct dirent *entry;
    while (dir != NULL && st == PLIM_OK && (entry = next_entry(dir)) != NULL) {
        char name[64];
        const char *suffix = split(entry->d_name, name);
        bool ring = suffix != NULL && strcmp(suffix, PLIM_SHM_SUFFIX) == 0;
        bool fresh = ring && find(d, name) == NULL;
        if (fresh && d->sources.n >= PLIM_TRACE_PROCESSES_MAX) {
            plim__drain_tell(d, &d->told_odd,
                             "a trace holds 65535 processes: later ones are left out");
        } else if (fresh) {
            st = add_source(d, name, err);
        }
        if (is_left(d, entry->d_name)) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return st;
}

/* -- turns --------------------------------------------------------------------------------------- */

static enum plim_status look_at_attached(struct plim_drain *d, struct plim_err *err)
{
    uint64_t now = plim_mono_ns();
    if (now - d->attach_read_ns < ATTACH_NS) {
        return PLIM_OK;
    }
    d->attach_read_ns = now;
    plim_vec_foreach (s, &d->sources) {
        if (!(*s)->done) {
            PLIM_TRY(plim__drain_stats(d, *s, err));
        }
    }
    return PLIM_OK;
}

enum plim_status plim_drain_turn(struct plim_drain *d, uint64_t *took, struct plim_err *err)
{
    *took = 0;
    for (size_t i = 0; i < d->sources.n; i++) {
        if (!d->sources.items[i]->done) {
            PLIM_TRY(drain_source(d, d->sources.items[i], took, err));
        }
    }
    PLIM_TRY(look_at_attached(d, err));
    bool old = d->batch.n > 0 && plim_mono_ns() - d->batch_since_ns >= BATCH_NS;
    return old ? plim__drain_batch(d, err) : PLIM_OK;
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
    plim_vec_foreach (s, &d->sources) {
        if (!(*s)->done) {
            PLIM_TRY(end_source(d, *s, true, err));
        }
    }
    struct plim_trace_run run = {
        .time_ns = plim_wall_ns(),
        .exit_status = (uint64_t)exit_status,
        .signal = (uint64_t)signal,
        .unwritten = d->tally.unwritten,
        .over_limit = d->tally.over_limit,
    };
    plim__fact_run(&d->facts, &run);
    PLIM_TRY(plim__drain_added(d, err));
    return plim__drain_seal(d, err);
}

void plim_drain_close(struct plim_drain *d)
{
    plim_vec_foreach (s, &d->sources) {
        if (!(*s)->done) {
            forget(*s);
        }
        free(*s);
    }
    plim_vec_fini(&d->sources);
    plim_vec_fini(&d->batch);
    plim_vec_fini(&d->last_stats);
    plim_buf_fini(&d->facts);
    plim_trace_close(&d->writer);
}
