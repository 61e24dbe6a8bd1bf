/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reading one file of a session. See tap.h.
 *
 * Rows of the Python side are behind sequence locks. They are copied twice: a row counts when both
 * copies are the same and its lock is even, which it is not while somebody writes. A row that was
 * being written keeps what was read of it before.
 */

#include "observe/tap.h"

#include "base/num.h"
#include "format/trace_owners.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PERIOD_LEAST UINT64_C(1000000000)
#define PERIOD_MOST  UINT64_C(60000000000)
#define LAST_EVENTS  64u /* of a ring: where a failure is looked for */

#define AT(field) offsetof(struct plim_attach_file, field)

/* A counter of a process and the field of the Python side's row. */
static const struct {
    enum plim_allocator_figure figure;
    size_t at;
} fields[] = {
    {PLIM_ALLOCATOR_ALLOCATED, offsetof(struct plim_attach_device, allocated)},
    {PLIM_ALLOCATOR_ACTIVE, offsetof(struct plim_attach_device, active)},
    {PLIM_ALLOCATOR_REQUESTED, offsetof(struct plim_attach_device, requested)},
    {PLIM_ALLOCATOR_RESERVED, offsetof(struct plim_attach_device, reserved)},
    {PLIM_ALLOCATOR_INACTIVE_SPLIT, offsetof(struct plim_attach_device, inactive_split)},
    {PLIM_ALLOCATOR_PEAK_ALLOCATED, offsetof(struct plim_attach_device, peak_allocated)},
    {PLIM_ALLOCATOR_PEAK_RESERVED, offsetof(struct plim_attach_device, peak_reserved)},
    {PLIM_ALLOCATOR_SEGMENTS, offsetof(struct plim_attach_device, segments)},
    {PLIM_ALLOCATOR_RETRIES, offsetof(struct plim_attach_device, num_alloc_retries)},
    {PLIM_ALLOCATOR_OOMS, offsetof(struct plim_attach_device, num_ooms)},
    {PLIM_ALLOCATOR_DEVICE_ALLOCS, offsetof(struct plim_attach_device, num_device_alloc)},
    {PLIM_ALLOCATOR_DEVICE_FREES, offsetof(struct plim_attach_device, num_device_free)},
};
_Static_assert(PLIM_COUNT_OF(fields) == PLIM_ALLOCATOR_FIGURES, "each figure has its field");

static int read_at(int fd, uint64_t at, void *out, size_t n)
{
    ssize_t got = pread(fd, out, n, (off_t)at);
    return got == (ssize_t)n ? 0 : got < 0 ? -errno : -EBADMSG;
}

/* ---- opening ---- */

static int open_attach(struct plim_tap *tap, const char *path)
{
    struct plim_attach_file head;
    struct stat info;
    tap->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (tap->fd < 0) {
        return -errno;
    }
    int rc = fstat(tap->fd, &info) == 0 && S_ISREG(info.st_mode) ? 0 : -EBADMSG;
    rc = rc == 0 ? read_at(tap->fd, 0, &head, AT(pad1)) : rc;
    bool good = rc == 0 && memcmp(head.magic, PLIM_ATTACH_MAGIC, sizeof(head.magic)) == 0 &&
                head.version == 1 && head.file_bytes == sizeof(head) &&
                info.st_size >= (off_t)sizeof(head);
    tap->rank = good ? head.rank : -1;
    return good ? 0 : rc != 0 ? rc : -EBADMSG;
}

int plim__tap_open(struct plim_tap *tap, const char *path)
{
    tap->fd = -1;
    tap->rank = -1;
    tap->reader = NULL;
    tap->heartbeat_ns = tap->period_ns = 0;
    if (!tap->recorder) {
        int rc = open_attach(tap, path);
        if (rc != 0) {
            plim__tap_close(tap);
        }
        return rc;
    }
    struct plim_shm_reader *reader = malloc(sizeof(*reader));
    int rc = reader != NULL ? plim_shm_open(reader, path, false) : -ENOMEM;
    if (rc != 0) {
        free(reader);
        return rc;
    }
    tap->reader = reader;
    return 0;
}

void plim__tap_close(struct plim_tap *tap)
{
    if (tap->fd >= 0) {
        (void)close(tap->fd);
        tap->fd = -1;
    }
    if (tap->reader != NULL) {
        plim_shm_close(tap->reader);
        free(tap->reader);
        tap->reader = NULL;
    }
    plim_vec_fini(&tap->rows);
    plim_vec_fini(&tap->ordinals);
    plim_vec_fini(&tap->owners);
    plim_vec_fini(&tap->told);
}

/* ---- reading ---- */

static void heard(struct plim_tap *tap, uint64_t heartbeat_ns)
{
    if (tap->heartbeat_ns != 0 && heartbeat_ns > tap->heartbeat_ns) {
        tap->period_ns = plim_min_u64(heartbeat_ns - tap->heartbeat_ns, PERIOD_MOST);
    }
    tap->heartbeat_ns = heartbeat_ns;
}

static int keep_row(struct plim_tap *tap, uint32_t ordinal, const struct plim_attach_device *row)
{
    for (size_t i = 0; i < tap->rows.n; i++) {
        if (tap->ordinals.items[i] == ordinal) {
            tap->rows.items[i] = *row;
            return 0;
        }
    }
    bool kept = plim_vec_reserve(&tap->ordinals, 1, NULL) == PLIM_OK &&
                plim_vec_push(&tap->rows, NULL, *row) == PLIM_OK &&
                plim_vec_push(&tap->ordinals, NULL, ordinal) == PLIM_OK;
    for (size_t i = tap->rows.n - 1; kept && i > 0 && tap->ordinals.items[i - 1] > ordinal; i--) {
        tap->rows.items[i] = tap->rows.items[i - 1]; /* in the order of ordinals */
        tap->rows.items[i - 1] = *row;
        tap->ordinals.items[i] = tap->ordinals.items[i - 1];
        tap->ordinals.items[i - 1] = ordinal;
    }
    return kept ? 0 : -ENOMEM;
}

/* A note {"deployed": "what"} is a happening. */
static void hear_note(struct plim_tap *tap, const struct plim_attach_note *note, uint64_t time_ns)
{
    json_t *root = json_loadb(note->text, note->bytes, 0, NULL);
    const json_t *what = json_object_get(root, "deployed");
    struct plim_happening h = {.kind = PLIM_HAPPENED_DEPLOYED,
                               .time_ns = time_ns,
                               .device = PLIM_NO_DEVICE,
                               .pid = tap->pid,
                               .start_ticks = tap->start_ticks};
    if (what != NULL && !json_is_null(what)) {
        (void)snprintf(h.text, sizeof(h.text), "%s",
                       json_is_string(what) ? json_string_value(what) : "");
        (void)!plim_vec_push(&tap->told, NULL, h);
    }
    json_decref(root);
}

/* @mono, @real: now, by both clocks. */
static int read_notes(struct plim_tap *tap, uint64_t notes, uint64_t mono, uint64_t real)
{
    struct plim_attach_note first[PLIM_ATTACH_NOTES], second[PLIM_ATTACH_NOTES];
    uint64_t newest = 0, before = tap->notes;
    int rc = read_at(tap->fd, AT(note), first, sizeof(first));
    rc = rc == 0 ? read_at(tap->fd, AT(note), second, sizeof(second)) : rc;
    tap->notes = notes;
    tap->note.pid = 0;
    for (size_t i = 0; rc == 0 && i < PLIM_ATTACH_NOTES; i++) {
        const struct plim_attach_note *note = &first[i];
        if (note->number == 0 || note->lock % 2 != 0 || note->bytes > PLIM_ATTACH_TEXT ||
            memcmp(note, &second[i], sizeof(*note)) != 0) {
            continue;
        }
        uint64_t time_ns = plim_sub_sat(real, plim_sub_sat(mono, note->time_ns));
        if (note->number > before && tap->ooms_known) {
            hear_note(tap, note, time_ns);
        }
        /* One that holds counts before one that has ended since the last look, the newest of its kind first. */
        bool holds = note->end_ns == 0;
        bool counts = holds || (note->number > before && tap->ooms_known);
        uint64_t rank = note->number + (holds ? UINT64_C(1) << 63 : 0);
        if (counts && rank > newest) {
            newest = rank;
            tap->note = (struct plim_note_now){
                .pid = tap->pid, .start_ticks = tap->start_ticks, .since_ns = time_ns};
            memcpy(tap->note.text, note->text, note->bytes);
        }
    }
    return rc;
}

/* Words of the head that change. */
struct words {
    uint64_t heartbeat_ns, notes;
    uint32_t state;
};
_Static_assert(AT(notes) == AT(heartbeat_ns) + 8 && AT(state) == AT(heartbeat_ns) + 16,
               "neighbours");

static int read_attach(struct plim_tap *tap, uint64_t mono, uint64_t real)
{
    struct plim_attach_device first[PLIM_ATTACH_DEVICES], second[PLIM_ATTACH_DEVICES];
    struct words now;
    int rc = read_at(tap->fd, AT(heartbeat_ns), &now, sizeof(now));
    uint64_t heartbeat = now.heartbeat_ns;
    /* A note that ends changes no counter: one that holds is looked at again. */
    if (rc == 0 && (now.notes != tap->notes || tap->note.pid != 0)) {
        rc = read_notes(tap, now.notes, mono, real);
    }
    if (rc != 0 || heartbeat == tap->heartbeat_ns) {
        return rc;
    }
    rc = read_at(tap->fd, AT(device), first, sizeof(first));
    rc = rc == 0 ? read_at(tap->fd, AT(device), second, sizeof(second)) : rc;
    size_t known = tap->rows.n;
    for (uint32_t i = 0; i < PLIM_ATTACH_DEVICES; i++) {
        if (rc == 0 && first[i].valid == 1 && first[i].lock % 2 == 0 &&
            memcmp(&first[i], &second[i], sizeof(first[i])) == 0) {
            rc = keep_row(tap, i, &first[i]);
        }
    }
    if (rc == 0 && tap->rows.n > known) { /* a device's uuid is there before its row is valid */
        rc = read_at(tap->fd, AT(uuid), tap->uuid, sizeof(tap->uuid));
        for (uint32_t i = 0; i < PLIM_ATTACH_DEVICES; i++) {
            tap->uuid[i][PLIM_TAP_UUID - 1] = '\0';
        }
    }
    heard(tap, heartbeat);
    return rc;
}

static int keep_owners(struct plim_tap *tap, uint32_t ordinal, const struct plim_shm_total *totals)
{
    for (unsigned i = 0; i < PLIM_OWNERS; i++) {
        const struct plim_shm_total *t = &totals[i];
        if (t->allocs == 0 && t->charged == 0 && t->failures == 0) {
            continue;
        }
        struct plim_owner_now owner = {.ordinal = ordinal,
                                       .owner = (uint8_t)i,
                                       .outside = !plim__is_framework((uint8_t)i),
                                       .charged = t->charged,
                                       .peak = plim_max_u64(t->peak, t->charged),
                                       .failures = t->failures};
        if (plim_vec_push(&tap->owners, NULL, owner) != PLIM_OK) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int read_recorder(struct plim_tap *tap)
{
    struct plim_shm_total totals[PLIM_SHM_OWNERS];
    uint64_t heartbeat;
    int rc = read_at(tap->reader->fd, offsetof(struct plim_shm_head, heartbeat_ns), &heartbeat,
                     sizeof(heartbeat));
    if (rc != 0 || (heartbeat == tap->heartbeat_ns && heartbeat != 0)) {
        return rc;
    }
    tap->owners.n = 0;
    for (uint32_t i = 0; rc == 0 && i < PLIM_SHM_DEVICES; i++) {
        rc = plim_shm_totals(tap->reader, i, totals);
        rc = rc == 0 ? keep_owners(tap, i, totals) : rc;
    }
    heard(tap, heartbeat);
    return rc;
}

int plim__tap_read(struct plim_tap *tap, uint64_t mono, uint64_t real)
{
    return tap->recorder ? read_recorder(tap) : read_attach(tap, mono, real);
}

/* ---- telling ---- */

/* Bytes of the newest request that the driver refused, as far as the ring still has it; 0: not
 * known. */
static uint64_t last_refused(const struct plim_tap *tap)
{
    struct plim_gpu_event events[LAST_EVENTS];
    const struct plim_shm_head *h = &tap->reader->head;
    uint64_t head, n = plim_min_u64(LAST_EVENTS, h->ring_slots);
    if (read_at(tap->reader->fd, offsetof(struct plim_shm_head, head), &head, sizeof(head)) != 0) {
        return 0;
    }
    uint64_t from = plim_sub_sat(head, n) & (h->ring_slots - 1);
    n = plim_min_u64(n, h->ring_slots - from); /* what lies behind the end is left out */
    if (read_at(tap->reader->fd, h->ring_at + from * sizeof(events[0]), events,
                (size_t)n * sizeof(events[0])) != 0) {
        return 0;
    }
    while (n-- > 0) {
        if (plim__event_failed(&events[n])) {
            return events[n].size;
        }
    }
    return 0;
}

static enum plim_status tell_oom(struct plim_tap *tap, uint32_t ordinal, uint64_t ooms,
                                 uint64_t time_ns, struct plim_observation *out,
                                 struct plim_err *err)
{
    uint64_t before = tap->ooms[ordinal];
    tap->ooms[ordinal] = ooms;
    if (!tap->ooms_known || ooms <= before) {
        return PLIM_OK;
    }
    struct plim_happening h = {.kind = PLIM_HAPPENED_OOM,
                               .time_ns = time_ns,
                               .device = tap->device_of[ordinal],
                               .pid = tap->pid,
                               .start_ticks = tap->start_ticks,
                               .value = tap->recorder ? last_refused(tap) : 0};
    const struct plim_process_facts *p = plim_sample_process(&out->sample, tap->pid);
    (void)snprintf(h.text, sizeof(h.text), "%s", p != NULL ? p->name : "");
    return plim_vec_push(&out->happenings, err, h);
}

static enum plim_status tell_attach(struct plim_tap *tap, uint64_t mono,
                                    struct plim_observation *out, struct plim_err *err)
{
    uint64_t patience = 3 * plim_max_u64(tap->period_ns, PERIOD_LEAST);
    for (size_t i = 0; i < tap->rows.n; i++) {
        const struct plim_attach_device *row = &tap->rows.items[i];
        uint64_t age = plim_sub_sat(mono, row->time_ns);
        struct plim_allocator_now a = {.pid = tap->pid,
                                       .start_ticks = tap->start_ticks,
                                       .ordinal = tap->ordinals.items[i],
                                       .rank = tap->rank,
                                       .told_ns = plim_sub_sat(out->sample.time_ns, age),
                                       .stale = age > patience};
        a.device = tap->device_of[a.ordinal];
        for (size_t k = 0; k < PLIM_COUNT_OF(fields); k++) {
            memcpy(&a.figure[fields[k].figure], (const char *)row + fields[k].at, sizeof(uint64_t));
            a.valid |= UINT64_C(1) << fields[k].figure;
        }
        /* A process that lies, or a release of PyTorch that counts otherwise: what is impossible is
         * not said. `requested` and `active` of releases that do not keep them are 0. */
        uint64_t reserved = a.figure[PLIM_ALLOCATOR_RESERVED];
        uint64_t allocated = a.figure[PLIM_ALLOCATOR_ALLOCATED];
        if (allocated > reserved) {
            continue;
        }
        if (a.figure[PLIM_ALLOCATOR_ACTIVE] < allocated ||
            a.figure[PLIM_ALLOCATOR_ACTIVE] > reserved) {
            a.valid &= ~(UINT64_C(1) << PLIM_ALLOCATOR_ACTIVE);
        }
        if (a.figure[PLIM_ALLOCATOR_REQUESTED] == 0 && allocated != 0) {
            a.valid &= ~(UINT64_C(1) << PLIM_ALLOCATOR_REQUESTED);
        }
        PLIM_TRY(tell_oom(tap, a.ordinal, row->num_ooms, a.told_ns, out, err));
        PLIM_TRY(plim_vec_push(&out->allocators, err, a));
    }
    return PLIM_OK;
}

/* Refusals of a program without a framework are failures; a framework's allocator gives its cache
 * back and asks again, and its own side tells when that fails. */
static enum plim_status tell_recorder(struct plim_tap *tap, struct plim_observation *out,
                                      struct plim_err *err)
{
    uint64_t failures[PLIM_SHM_DEVICES] = {0};
    plim_vec_foreach (kept, &tap->owners) {
        struct plim_owner_now o = *kept;
        o.pid = tap->pid;
        o.start_ticks = tap->start_ticks;
        o.device = tap->device_of[o.ordinal];
        failures[o.ordinal] += o.outside ? o.failures : 0;
        PLIM_TRY(plim_vec_push(&out->owners, err, o));
    }
    for (uint32_t i = 0; i < PLIM_SHM_DEVICES; i++) {
        PLIM_TRY(tell_oom(tap, i, failures[i], out->sample.time_ns, out, err));
    }
    return PLIM_OK;
}

enum plim_status plim__tap_tell(struct plim_tap *tap, uint64_t mono, struct plim_observation *out,
                                struct plim_err *err)
{
    plim_vec_foreach (h, &tap->told) {
        PLIM_TRY(plim_vec_push(&out->happenings, err, *h));
    }
    tap->told.n = 0;
    if (tap->note.pid != 0) {
        PLIM_TRY(plim_vec_push(&out->notes, err, tap->note));
    }
    PLIM_TRY(tap->recorder ? tell_recorder(tap, out, err) : tell_attach(tap, mono, out, err));
    tap->ooms_known = true;
    return PLIM_OK;
}
