/* SPDX-License-Identifier: Apache-2.0 */

/* incident.json ("plimsoll.incident/1", docs/schema/incident.json) and removed.json: the last files
 * of an incident. */

#include "incident/assembly.h"

#include "base/file.h"
#include "base/jsonw.h"
#include "base/num.h"
#include "incident/folder.h"
#include "report/json.h"

#define XXH_INLINE_ALL
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MANIFEST "incident.json"

static void number(struct plim_jsonw *w, const char *key, int64_t v)
{
    if (v >= 0) {
        plim_jsonw_kv_i64(w, key, v);
    }
}

static void amount(struct plim_jsonw *w, const char *key, struct plim_amount v)
{
    if (plim_known(v)) {
        plim_jsonw_kv_u64(w, key, v.bytes);
    }
}

static void clean_text(struct plim_assembly *a, struct plim_jsonw *w, const char *key,
                       const char *text)
{
    if (text != NULL) {
        plim_jsonw_kv_text(w, key, plim_redact_z(&a->redactor, MANIFEST, text));
    }
}

static void pairs(struct plim_assembly *a, struct plim_jsonw *w, const struct plim_pairs *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *name = plim_redact_z(&a->redactor, MANIFEST, list->items[i].name);
        if (list->items[i].number) {
            plim_jsonw_kv_i64(w, name, strtoll(list->items[i].value, NULL, 10));
        } else {
            clean_text(a, w, name, list->items[i].value);
        }
    }
}

/* ---- parts of the manifest ---- */

static enum plim_status process(struct plim_assembly *a, struct plim_jsonw *w, struct plim_err *err)
{
    const struct plim_facts_file *o = &a->pieces.owner;
    plim_jsonw_key(w, "process");
    plim_jsonw_object(w);
    plim_jsonw_kv_i64(w, "pid", o->pid);
    if (o->argv != NULL) {
        const char **kept;
        size_t n;
        PLIM_TRY(plim_redact_argv(&a->redactor, MANIFEST, o->argv, &kept, &n, err));
        plim_jsonw_key(w, "command");
        plim_jsonw_array(w);
        for (size_t i = 0; i < n; i++) {
            plim_jsonw_text(w, kept[i]);
        }
        plim_jsonw_end(w);
    }
    if (o->signal > 0) {
        const char *name = sigabbrev_np(o->signal);
        plim_jsonw_kv_i64(w, "signal", o->signal);
        plim_jsonw_kv_text(w, "signal_name",
                           name != NULL ? plim_arena_sayf(a->arena, "SIG%s", name) : "unknown");
    } else {
        number(w, "exit_status", o->exit_status);
    }
    plim_jsonw_end(w);
    return PLIM_OK;
}

static void processes(struct plim_assembly *a, struct plim_jsonw *w)
{
    plim_jsonw_key(w, "processes");
    plim_jsonw_array(w);
    for (size_t i = 0; i < a->pieces.drops.n; i++) {
        const struct plim_facts_file *d = &a->pieces.drops.items[i];
        bool again = false;
        for (size_t k = 0; k < i; k++) {
            again = again || a->pieces.drops.items[k].pid == d->pid;
        }
        if (again) {
            continue;
        }
        plim_jsonw_object(w);
        plim_jsonw_kv_i64(w, "pid", d->pid);
        number(w, "ppid", d->ppid > 0 ? d->ppid : -1);
        number(w, "rank", d->rank);
        number(w, "local_rank", d->local_rank);
        number(w, "world_size", d->world_size);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void snapshot(struct plim_assembly *a, struct plim_jsonw *w, const struct plim_kept *kept)
{
    const struct plim_facts_file *d = &a->pieces.drops.items[kept->drop];
    plim_jsonw_object(w);
    if (kept->file != NULL) {
        plim_jsonw_kv_text(w, "file", kept->file);
    }
    plim_jsonw_kv_i64(w, "pid", d->pid);
    plim_jsonw_kv_text(w, "kind", plim_incident_kind_text(d->kind));
    plim_jsonw_kv_u64(w, "time_ns", d->time_ns);
    number(w, "rank", d->rank);
    number(w, "device", d->device);
    amount(w, "request_bytes", d->request);
    amount(w, "device_total_bytes", d->device_total);
    amount(w, "device_free_bytes", d->device_free);
    if (d->snapshot_incomplete) {
        plim_jsonw_kv_bool(w, "history_complete", false);
    }
    plim_jsonw_key(w, "tags");
    plim_jsonw_object(w);
    pairs(a, w, &d->tags);
    plim_jsonw_end(w);
    if (kept->judged) {
        const char *sub = plim_subclass_text(kept->subclass);
        plim_jsonw_kv_text(w, "class", plim_class_text(kept->cls));
        plim_jsonw_kv_text(w, "subclass", *sub != '\0' ? sub : NULL);
    }
    plim_jsonw_end(w);
}

static bool has_pair(const struct plim_pairs *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->items[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void versions(struct plim_assembly *a, struct plim_jsonw *w)
{
    static const struct plim_pairs none = {0};
    const struct plim_pairs *first =
        a->pieces.drops.n > 0 ? &a->pieces.drops.items[0].versions : &none;
    plim_jsonw_key(w, "versions");
    plim_jsonw_object(w);
    if (!has_pair(first, "plimsoll")) {
        plim_jsonw_kv_text(w, "plimsoll", PLIM_INCIDENT_VERSION);
    }
    pairs(a, w, first);
    plim_jsonw_end(w);
}

/* As last seen before the failure; else what the processes said of theirs. */
static void devices(struct plim_assembly *a, struct plim_jsonw *w)
{
    const struct plim_sample *last = plim__last_sample(&a->seconds);
    plim_jsonw_key(w, "devices");
    plim_jsonw_array(w);
    for (size_t i = 0; last != NULL && i < last->devices.n; i++) {
        const struct plim_device_sample *d = &last->devices.items[i];
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "index", i);
        clean_text(a, w, "name", d->name);
        plim_jsonw_kv_text(w, "state", plim_device_state_text(d->state));
        if (plim_has_figure(d, PLIM_FIGURE_TOTAL)) {
            plim_jsonw_kv_u64(w, "total_bytes", d->figure[PLIM_FIGURE_TOTAL]);
        }
        if (plim_has_figure(d, PLIM_FIGURE_USED)) {
            plim_jsonw_kv_u64(w, "used_bytes", d->figure[PLIM_FIGURE_USED]);
        }
        plim_jsonw_end(w);
    }
    for (size_t i = 0;
         last == NULL && a->pieces.drops.n > 0 && i < a->pieces.drops.items[0].n_devices; i++) {
        const struct plim_named_device *d = &a->pieces.drops.items[0].devices[i];
        plim_jsonw_object(w);
        plim_jsonw_kv_u64(w, "index", d->index);
        clean_text(a, w, "name", d->name);
        amount(w, "total_bytes", d->total);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void environment(struct plim_assembly *a, struct plim_jsonw *w)
{
    const struct plim_pairs *list = &a->pieces.owner.environment;
    plim_jsonw_key(w, "environment");
    plim_jsonw_array(w);
    for (size_t i = 0; i < list->n; i++) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "name", list->items[i].name);
        clean_text(a, w, "value", list->items[i].value);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

/* ---- files ---- */

static enum plim_status file_row(const char *path, const char *name, struct plim_jsonw *w,
                                 struct plim_err *err)
{
    struct plim_mapping map;
    char hex[33];
    PLIM_TRY(plim_file_map(path, &map, err));
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(map.p != NULL ? map.p : "", map.n));
    for (size_t i = 0; i < sizeof(canonical.digest); i++) {
        static const char digits[] = "0123456789abcdef";
        hex[2 * i] = digits[canonical.digest[i] >> 4];
        hex[2 * i + 1] = digits[canonical.digest[i] & 15];
    }
    hex[32] = '\0';
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "name", name);
    plim_jsonw_kv_u64(w, "bytes", map.n);
    plim_jsonw_kv_text(w, "xxh128", hex);
    plim_jsonw_end(w);
    plim_file_unmap(&map);
    return PLIM_OK;
}

static enum plim_status files(struct plim_assembly *a, struct plim_jsonw *w, struct plim_err *err)
{
    struct plim_names names = {0};
    enum plim_status st = plim__folder_names(a->part, "", a->arena, &names, err);
    plim_jsonw_key(w, "files");
    plim_jsonw_array(w);
    for (size_t i = 0; st == PLIM_OK && i < names.list.n; i++) {
        struct stat info;
        const char *path = plim__part_path(a, names.list.items[i]);
        if (lstat(path, &info) == 0 && S_ISREG(info.st_mode) &&
            strcmp(names.list.items[i], MANIFEST) != 0) {
            st = file_row(path, names.list.items[i], w, err);
        }
    }
    plim_jsonw_end(w);
    plim_vec_fini(&names.list);
    return st;
}

/* ---- the whole ---- */

static void head(struct plim_assembly *a, struct plim_jsonw *w)
{
    const struct plim_facts_file *o = &a->pieces.owner;
    uint64_t uptime = plim__uptime_ns(a);
    plim_jsonw_kv_text(w, "schema", "plimsoll.incident/1");
    plim_jsonw_kv_text(w, "id", a->name);
    plim_jsonw_kv_text(w, "kind", plim_incident_kind_text(o->kind));
    plim_jsonw_kv_text(w, "time", plim__time_text(a->arena, o->time_ns));
    plim_jsonw_kv_u64(w, "time_ns", o->time_ns);
    if (uptime > 0) {
        plim_jsonw_kv_u64(w, "uptime_ns", uptime);
    }
    plim_jsonw_kv_bool(w, "redacted", !a->redactor.off);
}

static enum plim_status manifest(struct plim_assembly *a, struct plim_jsonw *w,
                                 struct plim_err *err)
{
    plim_jsonw_object(w);
    head(a, w);
    PLIM_TRY(process(a, w, err));
    processes(a, w);
    plim_jsonw_key(w, "tags");
    plim_jsonw_object(w);
    if (a->pieces.drops.n > 0) {
        pairs(a, w, &a->pieces.drops.items[0].tags);
    }
    plim_jsonw_end(w);
    plim_json_verdict(w, &a->verdict);
    plim_jsonw_key(w, "snapshots");
    plim_jsonw_array(w);
    plim_vec_foreach (kept, &a->kept) {
        snapshot(a, w, kept);
    }
    plim_jsonw_end(w);
    devices(a, w);
    versions(a, w);
    environment(a, w);
    plim_jsonw_key(w, "notes");
    plim_jsonw_array(w);
    plim_vec_foreach (note, &a->notes) {
        plim_jsonw_text(w, *note);
    }
    plim_jsonw_end(w);
    return PLIM_OK;
}

static enum plim_status write_removed(struct plim_assembly *a, struct plim_err *err)
{
    struct plim_buf buf = {0};
    struct plim_jsonw w;
    plim_jsonw_init(&w, &buf, false);
    plim_redact_json(&a->redactor, &w);
    enum plim_status st = a->redactor.failed ? plim__fail(err, PLIM_E_NOMEM, "no memory")
                                             : plim_buf_status(&buf, err);
    st = st == PLIM_OK
             ? plim_file_replace(plim__part_path(a, "removed.json"), plim_buf_str(&buf), err)
             : st;
    plim_buf_fini(&buf);
    return st;
}

enum plim_status plim__describe(struct plim_assembly *a, struct plim_err *err)
{
    struct plim_buf buf = {0};
    struct plim_jsonw w;
    plim_jsonw_init(&w, &buf, false);
    /* The manifest's own removals must be in removed.json, whose hash must be in the manifest: so
     * the list of files comes last. */
    enum plim_status st = manifest(a, &w, err);
    st = st == PLIM_OK ? write_removed(a, err) : st;
    st = st == PLIM_OK ? files(a, &w, err) : st;
    if (st == PLIM_OK) {
        plim_jsonw_end(&w);
        st = plim_buf_status(&buf, err);
    }
    st = st == PLIM_OK ? plim_arena_status(a->arena, err) : st;
    st = st == PLIM_OK ? plim_file_replace(plim__part_path(a, MANIFEST), plim_buf_str(&buf), err)
                       : st;
    plim_buf_fini(&buf);
    return st;
}
