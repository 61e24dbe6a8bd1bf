/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes left behind: PID.txt of the Python start hook ("key value" lines), PID.pickle, and
 * the head of the books file. All of it may be half there: a process can be killed at any moment.
 */

#include "dryrun/dryrun.h"

#include "base/file.h"
#include "base/intern.h"
#include "base/num.h"

#include <plimsoll/simgpu.h>

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#define FACTS_MAX 65536 /* bytes of a PID.txt */

static uint64_t number(struct plim_str s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s.n && isdigit((unsigned char)s.p[i]) && n < UINT64_MAX / 16; i++) {
        n = n * 10 + (uint64_t)(s.p[i] - '0');
    }
    return n;
}

/* X(key in the file, field). */
#define TEXT_KEYS(X)                                                                               \
    X("torch", torch)                                                                              \
    X("build", build)                                                                              \
    X("command", command)                                                                          \
    X("error", error)

#define NUMBER_KEYS(X)                                                                             \
    X("device", device)                                                                            \
    X("peak_allocated", peak_allocated)                                                            \
    X("peak_reserved", peak_reserved)                                                              \
    X("allocated", allocated)                                                                      \
    X("reserved", reserved)                                                                        \
    X("device_total", device_total)                                                                \
    X("device_free", device_free)                                                                  \
    X("alloc_retries", alloc_retries)                                                              \
    X("ooms", ooms)                                                                                \
    X("oom_request", oom_request)                                                                  \
    X("oom_free", oom_free)

static enum plim_status set_fact(struct plim_dryrun_process *p, struct plim_str key,
                                 struct plim_str value, struct plim_arena *arena,
                                 struct plim_err *err)
{
    struct plim_str copy;
    PLIM_TRY(plim_arena_str(arena, value, &copy, err));
#define X(name, field)                                                                             \
    if (plim_str_eq(key, PLIM_STR(name))) {                                                        \
        p->field = copy.p;                                                                         \
    }
    TEXT_KEYS(X)
#undef X
#define X(name, field)                                                                             \
    if (plim_str_eq(key, PLIM_STR(name))) {                                                        \
        p->field = number(value);                                                                  \
    }
    NUMBER_KEYS(X)
#undef X
    p->used_cuda = p->used_cuda || plim_str_eq(key, PLIM_STR("used_cuda"));
    p->ended = p->ended || plim_str_eq(key, PLIM_STR("ended"));
    return PLIM_OK;
}

static enum plim_status read_facts(const char *path, struct plim_dryrun_process *p,
                                   struct plim_arena *arena, struct plim_err *err)
{
    struct plim_str text;
    if (plim_file_read(path, FACTS_MAX, &text, NULL) != PLIM_OK) {
        return PLIM_OK; /* not there, or too odd to be ours */
    }
    enum plim_status st = PLIM_OK;
    struct plim_str rest = text;
    while (rest.n > 0 && st == PLIM_OK) {
        const char *end = memchr(rest.p, '\n', rest.n);
        struct plim_str line = {rest.p, end == NULL ? rest.n : (size_t)(end - rest.p)};
        const char *blank = line.n > 0 ? memchr(line.p, ' ', line.n) : NULL;
        if (blank != NULL) {
            size_t n = (size_t)(blank - line.p);
            st = set_fact(p, (struct plim_str){line.p, n}, plim_str_skip(line, n + 1), arena, err);
        }
        rest = plim_str_skip(rest, line.n + 1);
    }
    free((void *)text.p);
    return st;
}

/* Path of a snapshot, or NULL when it is not there. */
static const char *snapshot(const char *folder, uint64_t pid, const char *suffix,
                            struct plim_arena *arena)
{
    const char *path = plim_arena_sayf(arena, "%s/%llu%s", folder, (unsigned long long)pid, suffix);
    return access(path, R_OK) == 0 ? path : NULL;
}

static enum plim_status read_process(struct plim_dryrun_run *run, uint64_t pid,
                                     struct plim_arena *arena, struct plim_err *err)
{
    struct plim_dryrun_process p = {
        .pid = pid, .torch = "", .build = "", .command = "", .error = ""};
    struct plim_dryrun_process oom = p;
    const char *path =
        plim_arena_sayf(arena, "%s/%llu.oom.txt", run->folder, (unsigned long long)pid);
    PLIM_TRY(read_facts(path, &oom, arena, err));
    path = plim_arena_sayf(arena, "%s/%llu.txt", run->folder, (unsigned long long)pid);
    PLIM_TRY(read_facts(path, &p, arena, err));
    p.snapshot = snapshot(run->folder, pid, ".pickle", arena);
    p.oom_snapshot = snapshot(run->folder, pid, ".oom.pickle", arena);
    p.ooms = plim_max_u64(p.ooms, oom.ooms);
    p.oom_request = oom.oom_request;
    p.oom_free = oom.oom_free;
    p.oom_reserved = oom.reserved;
    p.peak_allocated = plim_max_u64(p.peak_allocated, oom.peak_allocated);
    p.peak_reserved = plim_max_u64(p.peak_reserved, oom.peak_reserved);
    p.device_total = plim_max_u64(p.device_total, oom.device_total);
    return plim_vec_push(&run->processes, err, p);
}

static void read_books(struct plim_dryrun_run *run, struct plim_arena *arena)
{
    struct plim_mapping map;
    const char *path = plim_arena_sayf(arena, "%s/books", run->folder);
    run->card = "";
    if (plim_file_map(path, &map, NULL) != PLIM_OK) {
        return; /* no process touched the device */
    }
    struct plimsoll_sim_books books;
    if (map.n >= sizeof(books)) {
        memcpy(&books, map.p, sizeof(books));
        const struct plimsoll_sim_device *d = &books.device[0];
        struct plim_str name = {d->name, strnlen(d->name, sizeof(d->name))};
        run->card = plim_arena_sayf(arena, "%.*s", PLIM_STR_ARG(name));
        run->total = d->total;
        run->nvml_total = d->nvml_total;
        run->context = d->context;
        run->external = d->external;
        run->device_peak = d->peak;
        run->n_devices = books.n_devices;
        for (uint32_t i = 0; i < books.n_missing && i < PLIM_COUNT_OF(run->missing); i++) {
            run->missing[run->n_missing++] = plim_arena_sayf(arena, "%.63s", books.missing[i]);
        }
    }
    plim_file_unmap(&map);
}

static int by_pid(const void *a, const void *b)
{
    uint64_t x = ((const struct plim_dryrun_process *)a)->pid;
    uint64_t y = ((const struct plim_dryrun_process *)b)->pid;
    return (x > y) - (x < y);
}

/* readdir() on a stream of our own. */
static const struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe)
}

enum plim_status plim_dryrun_gather(struct plim_dryrun_run *run, struct plim_arena *arena,
                                    struct plim_err *err)
{
    read_books(run, arena);
    DIR *dir = opendir(run->folder);
    enum plim_status st = PLIM_OK;
    const struct dirent *entry;
    while (dir != NULL && st == PLIM_OK && (entry = next_entry(dir)) != NULL) {
        char *end = NULL;
        uint64_t pid = strtoull(entry->d_name, &end, 10);
        if (end != entry->d_name && strcmp(end, ".txt") == 0) {
            st = read_process(run, pid, arena, err);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    PLIM_TRY(st);
    if (run->processes.n > 0) {
        qsort(run->processes.items, run->processes.n, sizeof(run->processes.items[0]), by_pid);
    }
    for (uint32_t i = 0; i < run->processes.n; i++) {
        const struct plim_dryrun_process *p = &run->processes.items[i];
        const struct plim_dryrun_process *best =
            run->main == PLIM_NO_ID ? NULL : &run->processes.items[run->main];
        if (p->used_cuda && (best == NULL || p->peak_reserved > best->peak_reserved)) {
            run->main = i;
        }
    }
    return plim_arena_status(arena, err);
}
