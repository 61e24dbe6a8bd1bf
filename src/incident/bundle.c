/* SPDX-License-Identifier: Apache-2.0 */

/* See bundle.h. */

#include "incident/bundle.h"

#include "base/buf.h"
#include "incident/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST       "incident.json"
#define MANIFEST_BYTES (UINT64_C(16) << 20)
#define LIST_MAX       PLIM_ARCHIVE_MEMBERS

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool plim_bundle_is(const char *path)
{
    struct stat info;
    char name[4200];
    if (is_folder(path)) {
        int n = snprintf(name, sizeof(name), "%s/" MANIFEST, path);
        return n > 0 && (size_t)n < sizeof(name) && lstat(name, &info) == 0;
    }
    if (strcmp(path, "-") == 0 || stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return false;
    }
    struct plim_archive archive;
    bool more = false;
    if (plim_archive_open(path, &archive, NULL) != PLIM_OK) {
        return false;
    }
    enum plim_status st = plim_archive_next(&archive, &more, NULL);
    plim_archive_close(&archive);
    /* Something refused is an archive all the same: opening it says why. */
    return st == PLIM_OK ? more : st == PLIM_E_UNSAFE || st == PLIM_E_BUDGET;
}

/* ---- files ---- */

static enum plim_status read_member(void *self, void *dst, size_t n, size_t *got,
                                    struct plim_err *err)
{
    return plim_archive_read(self, dst, n, got, err);
}

static void close_member(void *self)
{
    plim_archive_close(self);
    free(self);
}

static enum plim_status not_there(const char *name, struct plim_err *err)
{
    return plim__fail(err, PLIM_E_NOTFOUND, "the incident has no file '%.100s'", name);
}

static enum plim_status packed_source(const char *path, const char *name, struct plim_source *out,
                                      struct plim_err *err)
{
    struct plim_archive *archive = malloc(sizeof(*archive));
    bool more = true;
    if (archive == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to read an archive");
    }
    enum plim_status st = plim_archive_open(path, archive, err);
    if (st != PLIM_OK) {
        free(archive);
        return st;
    }
    while (st == PLIM_OK && more) {
        st = plim_archive_next(archive, &more, err);
        if (st == PLIM_OK && more && strcmp(archive->name, name) == 0) {
            *out = (struct plim_source){
                .read = read_member, .close = close_member, .self = archive, .size = archive->size};
            (void)snprintf(out->name, sizeof(out->name), "%s", name);
            return PLIM_OK;
        }
    }
    close_member(archive);
    return st == PLIM_OK ? not_there(name, err) : st;
}

static bool is_plain_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL;
}

enum plim_status plim_bundle_source(const char *path, const char *name, struct plim_source *out,
                                    struct plim_err *err)
{
    char full[4352];
    struct stat info;
    if (!is_plain_name(name)) {
        return plim__fail(err, PLIM_E_UNSAFE, "'%.100s' is no name of a file in an incident", name);
    }
    if (!is_folder(path)) {
        return packed_source(path, name, out, err);
    }
    int n = snprintf(full, sizeof(full), "%s/%s", path, name);
    if (n < 0 || (size_t)n >= sizeof(full) || lstat(full, &info) != 0) {
        return not_there(name, err);
    }
    if (!S_ISREG(info.st_mode)) {
        return plim__fail(err, PLIM_E_UNSAFE, "'%.100s' is no regular file: refused", name);
    }
    return plim_source_open(full, out, err);
}

enum plim_status plim_bundle_text(const char *path, const char *name, uint64_t limit,
                                  struct plim_arena *arena, struct plim_str *out,
                                  struct plim_err *err)
{
    struct plim_source source;
    struct plim_buf buf = {0};
    char part[16384];
    size_t got = 1;
    PLIM_TRY(plim_bundle_source(path, name, &source, err));
    enum plim_status st = PLIM_OK;
    while (st == PLIM_OK && got > 0) {
        st = source.read(source.self, part, sizeof(part), &got, err);
        if (st == PLIM_OK && buf.n + got > limit) {
            st = plim__fail(err, PLIM_E_BUDGET, "'%.100s' is too large", name);
        }
        if (st == PLIM_OK) {
            plim_buf_add(&buf, (struct plim_str){part, got});
            st = plim_buf_status(&buf, err);
        }
    }
    st = st == PLIM_OK ? plim_arena_str(arena, plim_buf_str(&buf), out, err) : st;
    plim_buf_fini(&buf);
    plim_source_close(&source);
    return st;
}

/* ---- the manifest ---- */

static const char *text(const json_t *o, const char *key, struct plim_arena *arena)
{
    const char *z = json_string_value(json_object_get(o, key));
    return z != NULL ? plim_arena_sayf(arena, "%s", z) : "";
}

static uint64_t number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) && json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : 0;
}

static enum plim_status lists(const json_t *root, struct plim_arena *arena, struct plim_bundle *b,
                              struct plim_err *err)
{
    const json_t *files = json_object_get(root, "files"), *notes = json_object_get(root, "notes");
    for (size_t i = 0; i < json_array_size(files) && i < LIST_MAX; i++) {
        const json_t *row = json_array_get(files, i);
        struct plim_bundle_file file = {text(row, "name", arena), number(row, "bytes")};
        PLIM_TRY(plim_vec_push(&b->files, err, file));
        if (strcmp(file.name, "trace.plt") == 0) {
            b->trace = file.name;
        }
    }
    for (size_t i = 0; i < json_array_size(notes) && i < LIST_MAX; i++) {
        const char *z = json_string_value(json_array_get(notes, i));
        PLIM_TRY(plim_vec_push(&b->notes, err, plim_arena_sayf(arena, "%s", z != NULL ? z : "")));
    }
    const json_t *snapshots = json_object_get(root, "snapshots");
    for (size_t i = 0; i < json_array_size(snapshots) && b->snapshot == NULL; i++) {
        const json_t *row = json_array_get(snapshots, i);
        const char *name = text(row, "file", arena);
        b->snapshot = is_plain_name(name) ? name : NULL;
        b->device_total = number(row, "device_total_bytes");
        b->device_free = number(row, "device_free_bytes");
        b->device_known = b->device_total > 0 && json_object_get(row, "device_free_bytes") != NULL;
    }
    return PLIM_OK;
}

static enum plim_status from_manifest(const json_t *root, struct plim_arena *arena,
                                      struct plim_bundle *b, struct plim_err *err)
{
    const json_t *verdict = json_object_get(root, "verdict");
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (schema == NULL || strncmp(schema, "plimsoll.incident/", 18) != 0) {
        return plim__fail(err, PLIM_E_DATA, MANIFEST " is not the manifest of an incident");
    }
    if (strcmp(schema + 18, "1") != 0) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "%.60s: written by a newer version", schema);
    }
    b->id = text(root, "id", arena);
    b->kind = text(root, "kind", arena);
    b->time = text(root, "time", arena);
    b->cls = text(verdict, "class", arena);
    b->subclass = text(verdict, "subclass", arena);
    b->summary = text(verdict, "summary", arena);
    b->confidence = json_number_value(json_object_get(verdict, "confidence"));
    b->time_ns = number(root, "time_ns");
    b->uptime_ns = number(root, "uptime_ns");
    b->pid = (int64_t)number(json_object_get(root, "process"), "pid");
    b->redacted = json_is_true(json_object_get(root, "redacted"));
    PLIM_TRY(lists(root, arena, b, err));
    return plim_arena_status(arena, err);
}

enum plim_status plim_bundle_open(const char *path, struct plim_arena *arena,
                                  struct plim_bundle *out, struct plim_err *err)
{
    json_error_t fault;
    *out = (struct plim_bundle){.path = path, .packed = !is_folder(path)};
    PLIM_TRY(plim_bundle_text(path, MANIFEST, MANIFEST_BYTES, arena, &out->manifest, err));
    json_t *root = json_loadb(out->manifest.p, out->manifest.n, JSON_REJECT_DUPLICATES, &fault);
    if (root == NULL) {
        return plim__fail(err, PLIM_E_DATA, MANIFEST " is not JSON: %.100s", fault.text);
    }
    enum plim_status st = from_manifest(root, arena, out, err);
    json_decref(root);
    if (st != PLIM_OK) {
        plim_bundle_fini(out);
    }
    return st;
}

void plim_bundle_fini(struct plim_bundle *bundle)
{
    plim_vec_fini(&bundle->files);
    plim_vec_fini(&bundle->notes);
}
