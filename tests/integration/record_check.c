/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads a trace of record_toy and says in one line whether it is what it must be, whenever and whoever was
 * killed: nothing damaged, and of each process the events 1, 2, ... without a gap (but those that the
 * ring counts as lost), each with its own size.
 *
 *     record_check TRACE [FOLDER]     FOLDER: the files of the toys; each published event must be there
 *     record_check TRACE any          events of any program: only that they can be read, and make a snapshot
 *     -> "ok processes P events E lost L torn T sealed S", or "bad ..." and exit status 1
 */

#include "record_toy.h"

#include "format/trace_build.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 65536u

static uint64_t seen[MOST]; /* by process: the last event */

static int bad(const char *what, uint64_t process, uint64_t event)
{
    printf("bad %s: process %llu, event %llu\n", what, (unsigned long long)process,
           (unsigned long long)event);
    return 1;
}

static int check_events(const struct plim_recording *r)
{
    uint64_t skip[MOST] = {0};
    for (size_t i = 0; i < r->events.n; i++) {
        const struct plim_trace_event *t = &r->events.items[i];
        if (t->e.kind == PLIM_EVENT_LOST) {
            skip[t->process] += t->e.size;
            continue;
        }
        uint64_t next = seen[t->process] + 1;
        bool gap = t->e.addr > next && t->e.addr - next <= skip[t->process];
        if (t->e.addr != next && !gap) {
            return bad("order", t->process, t->e.addr);
        }
        if (t->e.size != toy_size(t->e.addr) || t->e.kind != PLIM_EVENT_ALLOC) {
            return bad("content", t->process, t->e.addr);
        }
        if (t->e.thread != r->processes.items[t->process].about.pid) {
            return bad("process", t->process, t->e.addr);
        }
        seen[t->process] = t->e.addr;
    }
    return 0;
}

/* The toys' own counts, summed: each published event was read or is counted as lost. */
static uint64_t published_in(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    uint64_t sum = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        char path[1024];
        uint64_t n = 0;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (file != NULL) {
            sum += fread(&n, sizeof(n), 1, file) == 1 ? n : 0;
            (void)fclose(file);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return sum;
}

static int check_snapshot(const struct plim_recording *r)
{
    struct plim_snapshot s;
    struct plim_err err = {0};
    if (plim_trace_build(r, NULL, &s, &err) != PLIM_OK) {
        printf("bad snapshot: %s\n", err.message);
        return 1;
    }
    plim_snapshot_fini(&s);
    return 0;
}

int main(int argc, char **argv)
{
    struct plim_source source;
    struct plim_recording r;
    struct plim_err err = {0};
    if (argc < 2 || plim_source_open(argv[1], &source, &err) != PLIM_OK ||
        plim_recording_read(&source, NULL, &r, &err) != PLIM_OK) {
        printf("bad trace: %s\n", err.message);
        return 1;
    }
    plim_source_close(&source);
    uint64_t lost = 0, last = 0;
    bool any = argc > 2 && strcmp(argv[2], "any") == 0;
    int failed = any ? check_snapshot(&r) : check_events(&r);
    for (size_t i = 0; i < r.processes.n; i++) {
        lost += r.processes.items[i].lost;
        last += seen[i];
    }
    if (!failed && (r.damaged > 0 || r.nonsense > 0)) {
        failed = bad("bytes", r.damaged, r.nonsense);
    }
    if (!failed && argc > 2 && !any && last + lost < published_in(argv[2])) {
        failed = bad("end: events are missing", last + lost, published_in(argv[2]));
    }
    if (!failed) {
        printf("ok processes %zu events %zu lost %llu torn %llu sealed %d\n", r.processes.n,
               r.events.n, (unsigned long long)lost, (unsigned long long)r.torn, r.sealed);
    }
    plim_recording_fini(&r);
    return failed;
}
