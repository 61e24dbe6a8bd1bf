/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Making and finishing incidents. Everything is first put on disk under `.part`; finishing works
 * from there and can be repeated. See incident.h and docs/format/incident.md.
 */

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "incident/archive.h"
#include "incident/assembly.h"
#include "incident/folder.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_DEFAULT UINT64_C(20)
#define BYTES_DEFAULT (UINT64_C(8) << 30)
#define SAME_NAME     100 /* incidents of one second and process */

/* ---- from `.part` to a finished incident ---- */

static void add_name(const char *names[PLIM_IDENTITY_NAMES], const char *name)
{
    /* Names that everybody has tell nothing, and short ones stand in every text. */
    static const char *const common[] = {"root", "user", "localhost", "ubuntu", "nobody", "python"};
    for (size_t i = 0; name != NULL && i < PLIM_COUNT_OF(common); i++) {
        name = strcmp(name, common[i]) == 0 ? NULL : name;
    }
    if (name == NULL || strlen(name) < 3) {
        return;
    }
    for (size_t i = 0; i < PLIM_IDENTITY_NAMES; i++) {
        if (names[i] == NULL) {
            names[i] = name;
            return;
        }
        if (strcmp(names[i], name) == 0) {
            return;
        }
    }
}

static void add_host(struct plim_assembly *a, const char *host)
{
    if (host != NULL) {
        add_name(a->redactor.identity.host, host);
        add_name(a->redactor.identity.host,
                 plim_arena_sayf(a->arena, "%.*s", (int)strcspn(host, "."), host));
    }
}

/* Who must not be told: of the recorded program, and of this process. */
static void fill_identity(struct plim_assembly *a)
{
    struct plim_identity *who = &a->redactor.identity;
    const struct plim_facts_file *o = &a->pieces.owner;
    char host[256] = "", text[4096];
    struct passwd entry, *found = NULL;
    add_name(who->user, o->user);
    if (getpwuid_r(getuid(), &entry, text, sizeof(text), &found) == 0 && found != NULL) {
        add_name(who->user, plim_arena_sayf(a->arena, "%s", found->pw_name));
    }
    if (o->home != NULL && strrchr(o->home, '/') != NULL) {
        add_name(who->user, strrchr(o->home, '/') + 1);
    }
    (void)gethostname(host, sizeof(host) - 1);
    add_host(a, o->host);
    add_host(a, plim_arena_sayf(a->arena, "%s", host));
    for (size_t i = 0; i < a->pieces.drops.n; i++) {
        add_name(who->user, a->pieces.drops.items[i].user);
        add_host(a, a->pieces.drops.items[i].host);
    }
    who->home = o->home;
    who->project = o->cwd;
}

static enum plim_status assemble(struct plim_assembly *a, struct plim_err *err)
{
    const char *raw = plim__part_path(a, "raw");
    PLIM_TRY(plim__pieces_read(raw, a->arena, &a->pieces, err));
    fill_identity(a);
    if (a->pieces.drops.n > 0 && a->pieces.drops.items[0].environment.n > 0) {
        a->pieces.owner.environment =
            a->pieces.drops.items[0].environment; /* nearer to the failure */
    }
    enum plim_status st = plim__clean(a, err);
    st = st == PLIM_OK ? plim__judge_incident(a, err) : st;
    return st == PLIM_OK ? plim__describe(a, err) : st;
}

static bool is_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* Give the finished folder its name, or make the archive of it. */
static enum plim_status publish(struct plim_assembly *a, const char **path, struct plim_err *err)
{
    const char *final = plim_arena_sayf(a->arena, "%s/%s", a->options->dir, a->name);
    plim__folder_remove(plim__part_path(a, "raw"));
    if (a->options->pack) {
        const char *file = plim_arena_sayf(a->arena, "%s" PLIM_PACK_SUFFIX, final);
        PLIM_TRY(plim_arena_status(a->arena, err));
        PLIM_TRY(plim_archive_write(a->part, a->name, file, err));
        plim__folder_remove(a->part);
        *path = file;
    } else {
        PLIM_TRY(plim_arena_status(a->arena, err));
        if (rename(a->part, final) != 0) {
            return plim__fail_errno(err, PLIM_E_CREATE, errno, "cannot name '%.150s'", final);
        }
        *path = final;
    }
    return PLIM_OK;
}

/* The folder is locked by the caller. */
static enum plim_status complete(const struct plim_incident_options *options, const char *part,
                                 struct plim_arena *arena, const char **path, struct plim_err *err)
{
    const char *base = strrchr(part, '/');
    struct plim_assembly a = {.arena = arena, .options = options, .part = part};
    base = base != NULL ? base + 1 : part;
    a.name = plim_arena_sayf(arena, "%.*s", (int)(strlen(base) - strlen(PLIM_PART_SUFFIX)), base);
    a.redactor = (struct plim_redactor){.arena = arena, .off = options->keep_private};
    PLIM_TRY(plim_arena_status(arena, err));
    enum plim_status st = PLIM_OK;
    if (!is_there(plim__part_path(&a, "incident.json"))) {
        st = assemble(&a, err);
    }
    st = st == PLIM_OK ? publish(&a, path, err) : st;
    plim__last_seconds_fini(&a.seconds);
    plim_buf_fini(&a.message);
    plim_vec_fini(&a.kept);
    plim_vec_fini(&a.notes);
    plim__pieces_fini(&a.pieces);
    plim_redactor_fini(&a.redactor);
    if (st == PLIM_OK) {
        uint64_t count = options->max_count != 0 ? options->max_count : COUNT_DEFAULT;
        uint64_t bytes = options->max_bytes != 0 ? options->max_bytes : BYTES_DEFAULT;
        st = plim__incident_limit(options->dir, count, bytes, err);
    }
    return st;
}

/* ---- gathering pieces ---- */

/* The process in the name of a drop; 0 when it has none. */
static int pid_of(const char *name)
{
    return (int)strtol(name + strlen(PLIM_DROP_PREFIX), NULL, 10);
}

/* drop-PID-N, and drop-PID-N.part of a process that is gone; and nobody else will take it. */
static bool is_ready(const char *dir, const char *name, struct plim_arena *arena)
{
    struct plim_facts_file facts;
    if (strstr(name, PLIM_PART_SUFFIX) != NULL && plim__process_lives(pid_of(name))) {
        return false;
    }
    const char *path = plim_arena_sayf(arena, "%s/%s/facts.json", dir, name);
    return plim__facts_read(path, arena, &facts, NULL) != PLIM_OK || plim__drop_is_ours(&facts);
}

static enum plim_status ready_drops(const char *dir, struct plim_arena *arena,
                                    struct plim_names *out, struct plim_err *err)
{
    struct plim_names all = {0};
    enum plim_status st = plim__folder_names(dir, PLIM_DROP_PREFIX, arena, &all, err);
    for (size_t i = 0; st == PLIM_OK && i < all.list.n; i++) {
        if (is_ready(dir, all.list.items[i], arena)) {
            st = plim_vec_push(&out->list, err, all.list.items[i]);
        }
    }
    plim_vec_fini(&all.list);
    return st;
}

static enum plim_status move_drops(const char *dir, const char *raw, const struct plim_names *drops,
                                   struct plim_arena *arena, struct plim_err *err)
{
    for (size_t i = 0; i < drops->list.n; i++) {
        const char *from = plim_arena_sayf(arena, "%s/%s", dir, drops->list.items[i]);
        const char *to = plim_arena_sayf(arena, "%s/%s", raw, drops->list.items[i]);
        PLIM_TRY(plim_arena_status(arena, err));
        if (rename(from, to) != 0 && errno != ENOENT) { /* somebody else may have taken it */
            return plim__fail_errno(err, PLIM_E_CREATE, errno, "cannot move '%.150s'", from);
        }
    }
    return PLIM_OK;
}

/* A new `.part` folder with raw/ in it, of a name that no incident has. */
static enum plim_status new_part(const struct plim_incident_options *options,
                                 const struct plim_incident_parts *parts, struct plim_arena *arena,
                                 const char **part, struct plim_err *err)
{
    const char *name = plim__incident_name(arena, parts->kind, parts->pid, parts->time_ns);
    for (int i = 1; i < SAME_NAME; i++) {
        const char *final =
            plim_arena_sayf(arena, i == 1 ? "%s/%s" : "%s/%s-%d", options->dir, name, i);
        const char *path = plim_arena_sayf(arena, "%s" PLIM_PART_SUFFIX, final);
        PLIM_TRY(plim_arena_status(arena, err));
        if (is_there(final) || is_there(plim_arena_sayf(arena, "%s" PLIM_PACK_SUFFIX, final))) {
            continue;
        }
        if (mkdir(path, 0700) == 0) {
            *part = path;
            return plim__folder_make(plim_arena_sayf(arena, "%s/raw", path), err);
        }
        if (errno != EEXIST) {
            return plim__fail_errno(err, PLIM_E_CREATE, errno, "cannot make '%.150s'", path);
        }
    }
    return plim__fail(err, PLIM_E_CREATE, "too many incidents called '%s'", name);
}

/*
 * In this order, so that whenever this process dies nothing is lost or taken twice: a folder
 * without parts.json is taken apart again (give_back), one with it is finished. What is moved
 * behind it lies where it was until then.
 */
static enum plim_status put_pieces(const struct plim_incident_options *options,
                                   const struct plim_incident_parts *parts,
                                   const struct plim_names *drops, const char *raw,
                                   struct plim_arena *arena, struct plim_err *err)
{
    if (parts->log_tail.n > 0) {
        PLIM_TRY(
            plim_file_replace(plim_arena_sayf(arena, "%s/stderr.txt", raw), parts->log_tail, err));
    }
    PLIM_TRY(move_drops(options->dir, raw, drops, arena, err));
    PLIM_TRY(plim__parts_write(plim_arena_sayf(arena, "%s/parts.json", raw), parts,
                               options->project, err));
    if (parts->samples != NULL) {
        PLIM_TRY(
            plim__move_file(parts->samples, plim_arena_sayf(arena, "%s/samples.jsonl", raw), err));
    }
    return PLIM_OK;
}

/* @path: NULL: only prepare it. */
static enum plim_status make(const struct plim_incident_options *options,
                             const struct plim_incident_parts *parts,
                             const struct plim_names *drops, struct plim_arena *arena,
                             const char **path, struct plim_err *err)
{
    const char *part;
    PLIM_TRY(new_part(options, parts, arena, &part, err));
    int lock = plim__folder_lock(part, true);
    const char *raw = plim_arena_sayf(arena, "%s/raw", part);
    enum plim_status st = plim_arena_status(arena, err);
    st = st == PLIM_OK ? put_pieces(options, parts, drops, raw, arena, err) : st;
    if (st == PLIM_OK && path != NULL) {
        st = complete(options, part, arena, path, err);
    }
    (void)(lock >= 0 ? close(lock) : 0);
    return st;
}

static enum plim_status make_of_all(const struct plim_incident_options *options,
                                    const struct plim_incident_parts *parts,
                                    struct plim_arena *arena, const char **path,
                                    struct plim_err *err)
{
    struct plim_names drops = {0};
    PLIM_TRY(plim__folder_make(options->dir, err));
    int lock = plim__folder_lock(options->dir, true);
    enum plim_status st = ready_drops(options->dir, arena, &drops, err);
    st = st == PLIM_OK ? make(options, parts, &drops, arena, path, err) : st;
    plim_vec_fini(&drops.list);
    (void)(lock >= 0 ? close(lock) : 0);
    return st;
}

enum plim_status plim_incident_make(const struct plim_incident_options *options,
                                    const struct plim_incident_parts *parts,
                                    struct plim_arena *arena, const char **path,
                                    struct plim_err *err)
{
    return make_of_all(options, parts, arena, path, err);
}

enum plim_status plim_incident_prepare(const struct plim_incident_options *options,
                                       const struct plim_incident_parts *parts,
                                       struct plim_arena *arena, struct plim_err *err)
{
    return make_of_all(options, parts, arena, NULL, err);
}

/* ---- finishing what lies there ---- */

/* A `.part` folder that died before parts.json was written: its drops go back, and the rest is
 * gone. */
static enum plim_status give_back(const struct plim_incident_options *options, const char *part,
                                  struct plim_arena *arena, struct plim_err *err)
{
    struct plim_names drops = {0};
    const char *raw = plim_arena_sayf(arena, "%s/raw", part);
    enum plim_status st = plim__folder_names(raw, PLIM_DROP_PREFIX, arena, &drops, err);
    for (size_t i = 0; st == PLIM_OK && i < drops.list.n; i++) {
        const char *name = drops.list.items[i];
        (void)rename(plim_arena_sayf(arena, "%s/%s", raw, name),
                     plim_arena_sayf(arena, "%s/%s", options->dir, name));
    }
    plim_vec_fini(&drops.list);
    plim__folder_remove(part);
    return st;
}

static enum plim_status finish_part(const struct plim_incident_options *options, const char *name,
                                    struct plim_arena *arena, struct plim_incident_paths *paths,
                                    struct plim_err *err)
{
    const char *part = plim_arena_sayf(arena, "%s/%s", options->dir, name), *path = NULL;
    PLIM_TRY(plim_arena_status(arena, err));
    int lock = plim__folder_lock(part, false);
    if (lock < 0) {
        return PLIM_OK; /* somebody works on it */
    }
    enum plim_status st;
    if (!is_there(plim_arena_sayf(arena, "%s/raw/parts.json", part)) &&
        !is_there(plim_arena_sayf(arena, "%s/incident.json", part))) {
        st = give_back(options, part, arena, err);
    } else {
        st = complete(options, part, arena, &path, err);
        if (st == PLIM_OK) {
            st = plim_vec_push(&paths->list, err, path);
        }
    }
    (void)close(lock);
    return st;
}

/* An incident of drops that nobody owns: what the first one says of itself stands for the owner. */
static enum plim_status finish_drops(const struct plim_incident_options *options,
                                     struct plim_arena *arena, struct plim_incident_paths *paths,
                                     struct plim_err *err)
{
    struct plim_names drops = {0};
    struct plim_facts_file first = {.kind = PLIM_INCIDENT_OOM};
    const char *path = NULL;
    enum plim_status st = ready_drops(options->dir, arena, &drops, err);
    for (size_t i = 0; st == PLIM_OK && i < drops.list.n; i++) {
        struct plim_facts_file facts;
        const char *file =
            plim_arena_sayf(arena, "%s/%s/facts.json", options->dir, drops.list.items[i]);
        if (plim__facts_read(file, arena, &facts, NULL) == PLIM_OK &&
            (first.time_ns == 0 || facts.time_ns < first.time_ns)) {
            first = facts;
        }
    }
    if (st == PLIM_OK && drops.list.n > 0) {
        struct plim_incident_options own = *options;
        struct plim_incident_parts parts = {
            .kind = first.kind,
            .time_ns = first.time_ns != 0 ? first.time_ns : plim_wall_ns(),
            .started_ns = first.started_ns,
            .pid = first.pid != 0 ? first.pid : pid_of(drops.list.items[0]),
            .argv = (const char *const *)first.argv,
            .exit_status = -1};
        own.project = options->project != NULL ? options->project : first.cwd;
        st = make(&own, &parts, &drops, arena, &path, err);
        if (st == PLIM_OK) {
            st = plim_vec_push(&paths->list, err, path);
        }
    }
    plim_vec_fini(&drops.list);
    return st;
}

enum plim_status plim_incident_finish(const struct plim_incident_options *options,
                                      struct plim_arena *arena, struct plim_incident_paths *paths,
                                      struct plim_err *err)
{
    struct plim_names names = {0};
    int lock = plim__folder_lock(options->dir, true);
    if (lock < 0) {
        return plim__fail_errno(err, PLIM_E_NOINPUT, errno, "cannot open '%.150s'", options->dir);
    }
    enum plim_status st =
        plim__folder_names(options->dir, PLIM_INCIDENT_PREFIX, arena, &names, err);
    enum plim_status first = PLIM_OK;
    for (size_t i = 0; st == PLIM_OK && i < names.list.n; i++) {
        const char *name = names.list.items[i];
        size_t n = strlen(name), k = strlen(PLIM_PART_SUFFIX);
        if (n > k && strcmp(name + n - k, PLIM_PART_SUFFIX) == 0) {
            enum plim_status one =
                finish_part(options, name, arena, paths, first == PLIM_OK ? err : NULL);
            first = first == PLIM_OK ? one : first;
        }
    }
    plim_vec_fini(&names.list);
    if (st == PLIM_OK) {
        st = finish_drops(options, arena, paths, first == PLIM_OK ? err : NULL);
    }
    (void)close(lock);
    return first != PLIM_OK ? first : st;
}
