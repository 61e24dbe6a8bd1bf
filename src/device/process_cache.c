/* SPDX-License-Identifier: Apache-2.0 */

/* See process_cache.h. */

#include "device/process_cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void forget_file(struct plim_process_cache *c, struct plim_process_entry *e)
{
    if (e->fd >= 0) {
        (void)close(e->fd);
        e->fd = -1;
        c->files--;
    }
}

void plim_process_cache_begin(struct plim_process_cache *c)
{
    plim_vec_foreach (e, &c->entries) {
        e->seen = false;
    }
}

void plim_process_cache_end(struct plim_process_cache *c)
{
    size_t i = 0;
    while (i < c->entries.n) {
        struct plim_process_entry *e = &c->entries.items[i];
        if (e->seen) {
            i++;
            continue;
        }
        forget_file(c, e);
        (void)plim_map_take(&c->index, e->facts.pid, NULL);
        c->entries.n--;
        if (i < c->entries.n) { /* the last one takes its place */
            *e = c->entries.items[c->entries.n];
            *plim_map_get(&c->index, e->facts.pid) = i;
        }
    }
}

void plim_process_cache_fini(struct plim_process_cache *c)
{
    plim_vec_foreach (e, &c->entries) {
        forget_file(c, e);
    }
    plim_vec_fini(&c->entries);
    plim_map_fini(&c->index);
}

static int open_statm(const struct plim_process_cache *c, uint32_t pid)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/proc/%u/statm", c->world->root, pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Bring the resident bytes up to date; false: the process has ended. */
static bool refresh(struct plim_process_cache *c, struct plim_process_entry *e)
{
    char text[128];
    int fd = e->fd >= 0 ? e->fd : open_statm(c, e->facts.pid);
    ssize_t n = fd >= 0 ? pread(fd, text, sizeof(text) - 1, 0) : -1;
    if (fd >= 0 && fd != e->fd) {
        if (c->files < PLIM_PROCESS_FILES) {
            e->fd = fd;
            c->files++;
        } else {
            (void)close(fd);
        }
    }
    text[n > 0 ? n : 0] = '\0';
    char *end;
    uint64_t size = strtoull(text, &end, 10); /* 0: a zombie */
    if (size == 0) {
        return false;
    }
    e->facts.rss = strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    return true;
}

/* All facts. The file is opened before they are read, so that it belongs to the same process or to
 * an earlier one, which is then seen to have ended. */
static void read_all(struct plim_process_cache *c, struct plim_process_entry *e)
{
    uint32_t pid = e->facts.pid;
    forget_file(c, e);
    if (c->files < PLIM_PROCESS_FILES && (e->fd = open_statm(c, pid)) >= 0) {
        c->files++;
    }
    if (!plim_process_read(c->world, pid, &e->facts)) {
        forget_file(c, e);
        e->facts = (struct plim_process_facts){.pid = pid};
    }
    e->age = pid % PLIM_PROCESS_FRESH; /* not all at the same time */
}

enum plim_status plim_process_cache_get(struct plim_process_cache *c, uint32_t pid,
                                        struct plim_process_facts *out, bool *first,
                                        struct plim_err *err)
{
    const uint64_t *at = plim_map_get(&c->index, pid);
    struct plim_process_entry *e = at != NULL ? &c->entries.items[*at] : NULL;
    *first = e == NULL || !e->seen;
    if (e == NULL) {
        struct plim_process_entry fresh = {.facts = {.pid = pid}, .fd = -1};
        PLIM_TRY(plim_vec_reserve(&c->entries, 1, err));
        PLIM_TRY(plim_map_put(&c->index, pid, c->entries.n, err));
        PLIM_TRY(plim_vec_push(&c->entries, err, fresh));
        e = &c->entries.items[c->entries.n - 1];
        read_all(c, e);
    } else if (*first && (e->facts.start_ticks == 0 || ++e->age >= PLIM_PROCESS_FRESH ||
                          e->fd < 0 || !refresh(c, e))) {
        read_all(c, e);
        e->age = 0;
    }
    e->seen = true;
    *out = e->facts;
    return PLIM_OK;
}
