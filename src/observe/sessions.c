/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What recorded processes tell: an observer over the folders in which they show their files
 * (plimsoll/shm.h).
 *
 * Folders: the one of PLIMSOLL_RECORD_DIR, and every plimsoll-* in /dev/shm, /tmp and TMPDIR, of this
 * user, or of all for root. Where a process that uses a device lives in another mount namespace, the
 * same below /proc/PID/root. Folders are looked at when inotify says that one changed, and every
 * LOOK_NS, since a folder may appear unseen; the files stay open meanwhile.
 *
 * Whom to believe: a file is taken for a process only when that process lives, started at the time
 * in the file's name, and belongs to the user to whom the file belongs. In another pid namespace the
 * process has another number there: it is looked for among those that use a device, by the last
 * number of NSpid in /proc/PID/status and its start.
 */

#include "observe/collect.h"
#include "observe/tap.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS        UINT64_C(10000000000)
#define SESSIONS_MAX   1024u
#define TAPS_MAX       8192u
#define NAMESPACES_MAX 64u
#define PREFIX         "plimsoll-"

struct session {
    char path[300]; /* as we reach it */
    ino_t pids;     /* pid namespace of its processes; 0: ours */
    int watch;      /* of inotify, or -1 */
    bool seen;
};

struct sessions {
    const struct plim_world *world;
    PLIM_VEC(struct session) folders;
    PLIM_VEC(struct plim_tap) taps; /* order: pid, start, the Python side's first */
    int inotify;                    /* or -1 */
    uint64_t looked_ns;             /* CLOCK_MONOTONIC; 0: never */
    uint64_t devices;       /* what the devices of the sample were when ordinals were mapped */
    uint64_t opened_ticks;  /* since boot: when this began */
    uint64_t damaged;       /* files that could not be read, this time */
    struct plim_err damage; /* of the last of them */
};

static enum plim_status sessions_open(const struct plim_collect_options *options, void **self,
                                      struct plim_err *err)
{
    struct sessions *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for sessions");
    }
    s->world = options->world != NULL ? options->world : plim_world_real();
    s->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    s->opened_ticks =
        plim_clock_ns(CLOCK_BOOTTIME) / (PLIM_SECOND_NS / (uint64_t)sysconf(_SC_CLK_TCK));
    *self = s;
    return PLIM_OK;
}

static void sessions_close(void *self)
{
    struct sessions *s = self;
    plim_vec_foreach (tap, &s->taps) {
        plim__tap_close(tap);
    }
    plim_vec_fini(&s->taps);
    plim_vec_fini(&s->folders);
    if (s->inotify >= 0) {
        (void)close(s->inotify);
    }
    free(s);
}

/* ---- folders ---- */

static ino_t namespace_of(const struct sessions *s, uint32_t pid, const char *kind)
{
    char path[300];
    struct stat info;
    (void)snprintf(path, sizeof(path), "%s/proc/%u/ns/%s", s->world->root, pid, kind);
    return stat(path, &info) == 0 ? info.st_ino : 0;
}

/* An entry for a folder: the one that it has, a free one, or a new one; NULL: too many. */
static struct session *entry_for(struct sessions *s, const char *path)
{
    struct session *free_entry = NULL, fresh = {.watch = -1};
    plim_vec_foreach (f, &s->folders) {
        if (strcmp(f->path, path) == 0) {
            return f;
        }
        free_entry = f->path[0] == '\0' ? f : free_entry;
    }
    if (free_entry == NULL && s->folders.n < SESSIONS_MAX &&
        plim_vec_push(&s->folders, NULL, fresh) == PLIM_OK) {
        free_entry = &s->folders.items[s->folders.n - 1];
    }
    return free_entry;
}

static void add_folder(struct sessions *s, const char *path, ino_t pids)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) ||
        (geteuid() != 0 && info.st_uid != geteuid()) ||
        strlen(path) >= sizeof(s->folders.items->path)) {
        return;
    }
    struct session *folder = entry_for(s, path);
    if (folder != NULL) {
        (void)snprintf(folder->path, sizeof(folder->path), "%s", path);
        folder->pids = pids;
        folder->seen = true;
        if (s->inotify >= 0) { /* again: it may have been removed and made anew */
            folder->watch =
                inotify_add_watch(s->inotify, path, IN_MOVED_TO | IN_CREATE | IN_DELETE);
        }
    }
}

/* Every plimsoll-* in a folder where sessions are made. */
static void add_folders_of(struct sessions *s, const char *parent, ino_t pids)
{
    DIR *dir = opendir(parent);
    const struct dirent *e;
    if (dir != NULL && s->inotify >= 0) {
        (void)inotify_add_watch(s->inotify, parent, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR);
    }
    while (dir != NULL && (e = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): ours
        char path[600];
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0) {
            (void)snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
            add_folder(s, path, pids);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* Folders in other mount namespaces, once for each. */
static void add_foreign(struct sessions *s, const struct plim_sample *sample)
{
    ino_t known[NAMESPACES_MAX];
    size_t n = 0;
    char path[300];
    known[n++] = namespace_of(s, (uint32_t)getpid(), "mnt");
    plim_vec_foreach (p, &sample->processes) {
        ino_t mounts = p->start_ticks != 0 ? namespace_of(s, p->pid, "mnt") : 0;
        bool old = mounts == 0 || n == NAMESPACES_MAX;
        for (size_t i = 0; !old && i < n; i++) {
            old = known[i] == mounts;
        }
        if (!old) {
            known[n++] = mounts;
            ino_t pids = namespace_of(s, p->pid, "pid");
            pids = pids == namespace_of(s, (uint32_t)getpid(), "pid") ? 0 : pids;
            (void)snprintf(path, sizeof(path), "%s/proc/%u/root/dev/shm", s->world->root, p->pid);
            add_folders_of(s, path, pids);
            (void)snprintf(path, sizeof(path), "%s/proc/%u/root/tmp", s->world->root, p->pid);
            add_folders_of(s, path, pids);
        }
    }
}

static void find_folders(struct sessions *s, const struct plim_sample *sample)
{
    char path[600];
    const char *own = s->world->getenv("PLIMSOLL_RECORD_DIR"), *tmp = s->world->getenv("TMPDIR");
    plim_vec_foreach (folder, &s->folders) {
        folder->seen = false;
    }
    if (own != NULL && own[0] != '\0') {
        add_folder(s, own, 0);
    }
    (void)snprintf(path, sizeof(path), "%s/dev/shm", s->world->root);
    add_folders_of(s, path, 0);
    (void)snprintf(path, sizeof(path), "%s/tmp", s->world->root);
    add_folders_of(s, path, 0);
    if (tmp != NULL && tmp[0] == '/' && strcmp(tmp, "/tmp") != 0) {
        add_folders_of(s, tmp, 0);
    }
    add_foreign(s, sample);
}

/* ---- files ---- */

/* The last number of NSpid: what the process is called in its own namespace. */
static uint32_t inner_pid(const struct sessions *s, uint32_t pid)
{
    char path[64], text[PLIM_WORLD_TEXT];
    (void)snprintf(path, sizeof(path), "/proc/%u/status", pid);
    const char *line = plim_world_read(s->world, path, text) ? strstr(text, "\nNSpid:") : NULL;
    uint32_t last = 0;
    for (const char *p = line != NULL ? line + 7 : ""; *p == '\t' || *p == ' ';) {
        char *end;
        last = (uint32_t)strtoul(p, &end, 10);
        p = end;
    }
    return last;
}

static uint32_t outer_pid(const struct sessions *s, const struct plim_sample *sample, ino_t pids,
                          uint32_t pid, uint64_t start)
{
    plim_vec_foreach (p, &sample->processes) {
        if (p->start_ticks == start && namespace_of(s, p->pid, "pid") == pids &&
            inner_pid(s, p->pid) == pid) {
            return p->pid;
        }
    }
    return 0;
}

/* A process that lives, and to whose user the file belongs. */
static bool believable(const struct sessions *s, const char *path, uint32_t pid, uint64_t start)
{
    struct plim_process_facts facts;
    struct stat file, process;
    char proc[300];
    (void)snprintf(proc, sizeof(proc), "%s/proc/%u", s->world->root, pid);
    return pid != 0 && plim_process_read(s->world, pid, &facts) && facts.start_ticks == start &&
           lstat(path, &file) == 0 && S_ISREG(file.st_mode) && stat(proc, &process) == 0 &&
           (file.st_uid == process.st_uid || file.st_uid == 0 || s->world->root[0] != '\0');
}

static bool parse_name(const char *name, uint32_t *pid, uint64_t *start, uint32_t *program,
                       bool *recorder)
{
    unsigned long long ticks = 0;
    int at = 0;
    if (name[0] < '0' || name[0] > '9' ||
        // NOLINTNEXTLINE(cert-err34-c): numbers that do not fit belong to no process
        sscanf(name, "%u-%llu.%u%n", pid, &ticks, program, &at) != 3) {
        return false;
    }
    *start = ticks;
    *recorder = strcmp(name + at, PLIM_SHM_SUFFIX) == 0;
    return *recorder || strcmp(name + at, PLIM_ATTACH_SUFFIX) == 0;
}

static void count_damage(struct sessions *s, const char *name, int rc)
{
    s->damaged++;
    plim__err_set_errno(&s->damage, PLIM_E_DATA, -rc, "cannot read %.90s", name);
}

static void look_at_file(struct sessions *s, uint32_t session, const char *name,
                         const struct plim_sample *sample)
{
    const struct session *folder = &s->folders.items[session];
    struct plim_tap tap = {.session = session, .seen = true, .fd = -1};
    char path[600];
    plim_vec_foreach (old, &s->taps) {
        if (old->session == session && strcmp(old->name, name) == 0) {
            old->seen = true;
            return;
        }
    }
    if (strlen(name) >= sizeof(tap.name) || s->taps.n == TAPS_MAX ||
        !parse_name(name, &tap.pid, &tap.start_ticks, &tap.program, &tap.recorder)) {
        return;
    }
    (void)snprintf(tap.name, sizeof(tap.name), "%s", name);
    (void)snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    if (folder->pids != 0) {
        tap.pid = outer_pid(s, sample, folder->pids, tap.pid, tap.start_ticks);
    }
    if (!believable(s, path, tap.pid, tap.start_ticks)) {
        return; /* dead, or not what it says */
    }
    int rc = plim__tap_open(&tap, path);
    tap.ooms_known = tap.start_ticks >= s->opened_ticks; /* all that it tells of is new to us */
    if (rc == 0 && plim_vec_push(&s->taps, NULL, tap) != PLIM_OK) {
        plim__tap_close(&tap);
    } else if (rc != 0 && rc != -ENOENT) {
        count_damage(s, name, rc);
    }
}

static void look_at_folder(struct sessions *s, uint32_t session, const struct plim_sample *sample)
{
    DIR *dir = opendir(s->folders.items[session].path);
    const struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): ours
        look_at_file(s, session, e->d_name, sample);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

static int by_process(const void *one, const void *other)
{
    const struct plim_tap *a = one, *b = other;
    return a->pid != b->pid                   ? (a->pid < b->pid ? -1 : 1)
           : a->start_ticks != b->start_ticks ? (a->start_ticks < b->start_ticks ? -1 : 1)
           : a->recorder != b->recorder       ? (a->recorder ? 1 : -1)
           : a->program != b->program         ? (a->program < b->program ? -1 : 1)
                                              : 0;
}

static void drop_unseen(struct sessions *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->taps.n; i++) {
        if (s->taps.items[i].seen) {
            s->taps.items[kept++] = s->taps.items[i];
        } else {
            plim__tap_close(&s->taps.items[i]);
        }
    }
    s->taps.n = kept;
}

/* Entries of folders that are gone are free; none of their taps is left. */
static void forget_folders(struct sessions *s)
{
    plim_vec_foreach (folder, &s->folders) {
        if (!folder->seen && folder->path[0] != '\0') {
            (void)inotify_rm_watch(s->inotify, folder->watch);
            *folder = (struct session){.watch = -1};
        }
    }
}

/* Take up what is new, let go of what is gone. */
static void look(struct sessions *s, const struct plim_sample *sample)
{
    plim_vec_foreach (tap, &s->taps) {
        tap->seen = false;
    }
    find_folders(s, sample);
    for (uint32_t i = 0; i < s->folders.n; i++) {
        if (s->folders.items[i].seen) {
            look_at_folder(s, i, sample);
        }
    }
    drop_unseen(s);
    forget_folders(s);
    if (s->taps.n > 1) {
        qsort(s->taps.items, s->taps.n, sizeof(s->taps.items[0]), by_process);
    }
    plim_vec_foreach (tap, &s->taps) {
        tap->mapped = UINT32_MAX; /* a neighbour may know the devices now */
    }
}

static bool concerns_us(const struct inotify_event *e)
{
    size_t n = e->len > 0 ? strlen(e->name) : 0, k = strlen(PLIM_SHM_SUFFIX);
    size_t j = strlen(PLIM_ATTACH_SUFFIX);
    return (e->mask & IN_Q_OVERFLOW) != 0 ||
           (n > 0 && (strncmp(e->name, PREFIX, strlen(PREFIX)) == 0 ||
                      (n > k && strcmp(e->name + n - k, PLIM_SHM_SUFFIX) == 0) ||
                      (n > j && strcmp(e->name + n - j, PLIM_ATTACH_SUFFIX) == 0)));
}

/* Whether inotify told of a change that is ours: others make files in /tmp all the time. */
static bool changed(const struct sessions *s)
{
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    bool any = false;
    ssize_t n;
    while (s->inotify >= 0 && (n = read(s->inotify, events, sizeof(events))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(events + at);
            any = any || concerns_us(e);
            at += (ssize_t)(sizeof(*e) + e->len);
        }
    }
    return any;
}

/* ---- ordinals ---- */

static uint64_t devices_now(const struct plim_sample *sample)
{
    uint64_t hash = plim_hash_u64(sample->devices.n);
    plim_vec_foreach (d, &sample->devices) {
        for (const char *p = d->uuid; *p != '\0'; p++) {
            hash = plim_hash_u64(hash ^ (unsigned char)*p);
        }
    }
    return hash;
}

/* The one device that the driver lists for a process, or NO_DEVICE. */
static uint32_t only_device(const struct plim_sample *sample, uint32_t pid)
{
    uint32_t found = PLIM_NO_DEVICE;
    plim_vec_foreach (use, &sample->uses) {
        if (use->pid == pid && found != use->device) {
            if (found != PLIM_NO_DEVICE) {
                return PLIM_NO_DEVICE;
            }
            found = use->device;
        }
    }
    return found;
}

/* Ordinals that a tap tells of, as bits. */
static uint32_t told_ordinals(const struct plim_tap *tap)
{
    uint32_t told = 0;
    plim_vec_foreach (ordinal, &tap->ordinals) {
        told |= 1u << *ordinal;
    }
    plim_vec_foreach (owner, &tap->owners) {
        told |= 1u << owner->ordinal;
    }
    return told & ((1u << PLIM_ATTACH_DEVICES) - 1);
}

static void map_ordinals(const struct sessions *s, size_t index, const struct plim_sample *sample)
{
    struct plim_tap *tap = &s->taps.items[index];
    const struct plim_tap *python = index > 0 ? tap - 1 : NULL;
    if (tap->recorder && python != NULL && python->pid == tap->pid &&
        python->start_ticks == tap->start_ticks && !python->recorder) {
        memcpy(tap->uuid, python->uuid, sizeof(tap->uuid));
    }
    plim__ordinals(s->world, sample, tap->pid, (const char(*)[PLIM_TAP_UUID])tap->uuid,
                   tap->device_of);
    uint32_t told = told_ordinals(tap);
    if (told != 0 && (told & (told - 1)) == 0) {
        uint32_t *device = &tap->device_of[__builtin_ctz(told)];
        *device = *device == PLIM_NO_DEVICE ? only_device(sample, tap->pid) : *device;
    }
    tap->mapped = told;
}

/* ---- the observer ---- */

/* Whether a process is still there. One that uses a device was looked at just now. */
static bool lives(const struct sessions *s, const struct plim_tap *tap,
                  const struct plim_sample *sample)
{
    const struct plim_process_facts *p = plim_sample_process(sample, tap->pid);
    struct plim_process_facts facts;
    if (p != NULL && p->start_ticks == tap->start_ticks) {
        return true;
    }
    return plim_process_read(s->world, tap->pid, &facts) && facts.start_ticks == tap->start_ticks;
}

/* A program that the process became later shows itself in a file of its own. */
static bool is_older_program(const struct sessions *s, size_t i)
{
    const struct plim_tap *tap = &s->taps.items[i], *next = tap + 1;
    return i + 1 < s->taps.n && next->pid == tap->pid && next->start_ticks == tap->start_ticks &&
           next->recorder == tap->recorder;
}

static enum plim_status sessions_take(void *self, struct plim_observation *out,
                                      struct plim_err *err)
{
    struct sessions *s = self;
    uint64_t mono = plim_clock_ns(CLOCK_MONOTONIC), devices = devices_now(&out->sample);
    bool new_devices = devices != s->devices;
    s->damaged = 0;
    s->devices = devices;
    if (changed(s) || s->looked_ns == 0 || mono - s->looked_ns > LOOK_NS) {
        look(s, &out->sample);
        s->looked_ns = mono;
    }
    for (size_t i = 0; i < s->taps.n; i++) {
        struct plim_tap *tap = &s->taps.items[i];
        tap->seen = lives(s, tap, &out->sample) && !is_older_program(s, i);
        int rc = tap->seen ? plim__tap_read(tap, mono, out->sample.time_ns) : 0;
        if (rc != 0) {
            count_damage(s, tap->name, rc);
            tap->seen = false;
        } else if (tap->seen) {
            if (new_devices || tap->mapped != told_ordinals(tap)) {
                map_ordinals(s, i, &out->sample);
            }
            PLIM_TRY(plim__tap_tell(tap, mono, out, err));
        }
    }
    drop_unseen(s);
    if (s->damaged > 0 && err != NULL) {
        *err = s->damage;
    }
    return s->damaged > 0 ? PLIM_E_DATA : PLIM_OK;
}

const struct plim_observer plim__observer_sessions = {
    .name = "sessions", .open = sessions_open, .take = sessions_take, .close = sessions_close};
