/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Incidents that were finished: an observer over the incident folder (docs/format/incident.md). An
 * incident gets its name when it is complete, so a new name is a new incident. The folder is read
 * when its time of change differs, or is so young that it may hide a later change; it need not be
 * there yet. What is in it at the first look is old.
 */

#include "observe/collect.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/num.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIX   "incident-"
#define PART     ".part" /* being written */
#define PACK     ".tar.zst"
#define YOUNG_NS UINT64_C(2000000000)
#define NAMES_MAX                                                                                  \
    65536u /* of a folder; when there are more, the names are forgotten and begin anew */

struct incidents {
    char *folder;          /* owned */
    struct plim_map names; /* hash of a name -> 1 */
    uint64_t changed_ns;   /* of the folder when it was last read */
    bool first;
};

static enum plim_status incidents_open(const struct plim_collect_options *options, void **self,
                                       struct plim_err *err)
{
    if (options->incidents == NULL) {
        return PLIM_OK;
    }
    struct incidents *s = calloc(1, sizeof(*s));
    if (s == NULL || (s->folder = strdup(options->incidents)) == NULL) {
        free(s);
        return plim__fail(err, PLIM_E_NOMEM, "no memory for incidents");
    }
    s->first = true;
    *self = s;
    return PLIM_OK;
}

static void incidents_close(void *self)
{
    struct incidents *s = self;
    plim_map_fini(&s->names);
    free(s->folder);
    free(s);
}

/* Of a name without the suffix of a pack, so that a packed incident is the same. */
static uint64_t hash_of(const char *name)
{
    size_t n = strlen(name) - (plim_ends_with(name, PACK) ? strlen(PACK) : 0);
    uint64_t hash = plim_hash_u64(n);
    for (size_t i = 0; i < n; i++) {
        hash = plim_hash_u64(hash ^ (unsigned char)name[i]);
    }
    return hash == PLIM_MAP_NO_KEY ? 0 : hash;
}

static enum plim_status take_name(struct incidents *s, const char *name,
                                  struct plim_observation *out, struct plim_err *err)
{
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || plim_ends_with(name, PART) ||
        plim_map_get(&s->names, hash_of(name)) != NULL) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_map_put(&s->names, hash_of(name), 1, err));
    if (s->first) {
        return PLIM_OK;
    }
    struct plim_happening what = {
        .kind = PLIM_HAPPENED_INCIDENT, .device = PLIM_NO_DEVICE, .time_ns = out->sample.time_ns};
    (void)snprintf(what.text, sizeof(what.text), "%s", name);
    return plim_vec_push(&out->happenings, err, what);
}

static enum plim_status read_folder(struct incidents *s, struct plim_observation *out,
                                    struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    DIR *dir = opendir(s->folder);
    const struct dirent *e;
    if (s->names.n > NAMES_MAX) {
        plim_map_fini(&s->names);
        s->first = true;
    }
    while (st == PLIM_OK && dir != NULL &&
           (e = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): ours
        st = take_name(s, e->d_name, out, err);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return st;
}

static enum plim_status incidents_take(void *self, struct plim_observation *out,
                                       struct plim_err *err)
{
    struct incidents *s = self;
    struct stat info;
    bool there = stat(s->folder, &info) == 0;
    uint64_t changed =
        there ? (uint64_t)info.st_mtim.tv_sec * PLIM_SECOND_NS + (uint64_t)info.st_mtim.tv_nsec : 0;
    bool young = plim_wall_ns() - changed < YOUNG_NS;
    if (there && (changed != s->changed_ns || young)) {
        PLIM_TRY(read_folder(s, out, err));
        s->changed_ns = changed;
    }
    s->first = false;
    return PLIM_OK;
}

const struct plim_observer plim__observer_incidents = {
    .name = "incidents", .open = incidents_open, .take = incidents_take, .close = incidents_close};
