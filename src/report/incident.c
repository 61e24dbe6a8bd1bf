/* SPDX-License-Identifier: Apache-2.0 */
/* See incident.h. */

#include "report/incident.h"

#include "incident/folder.h"

#include "base/bytes.h"

/* A text of the manifest without control characters, cut at 200 bytes. */
static void plain(struct plim_buf *out, const char *text)
{
    for (size_t i = 0; text[i] != '\0' && i < 200; i++) {
        plim_buf_char(out, (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i]);
    }
}

static void verdict_words(struct plim_buf *out, const struct plim_bundle *b)
{
    plain(out, b->cls[0] != '\0' ? b->cls : "unknown");
    if (b->subclass[0] != '\0') {
        plim_buf_char(out, '/');
        plain(out, b->subclass);
    }
}

static void files(struct plim_buf *out, const struct plim_bundle *b,
                  const struct plim_text_style *style)
{
    plim_text_heading(out, "Files", style);
    plim_vec_foreach (file, &b->files) {
        char size[PLIM_BYTES_TEXT];
        plim_buf_printf(out, "  %10s  ", plim_bytes_format(size, file->bytes));
        plain(out, file->name);
        plim_buf_char(out, '\n');
    }
}

void plim_text_incident(struct plim_buf *out, const struct plim_bundle *b,
                        const struct plim_text_style *style)
{
    plain(out, b->id);
    plim_buf_text(out, "\n\nVerdict: ");
    verdict_words(out, b);
    plim_buf_printf(out, " (confidence %.0f %%)\n", b->confidence * 100);
    if (b->summary[0] != '\0') {
        plim_text_wrap(out, "  ", b->summary, style);
    }
    files(out, b, style);
    if (b->notes.n > 0) {
        plim_text_heading(out, "Notes", style);
        plim_vec_foreach (note, &b->notes) {
            plim_text_wrap(out, "  - ", *note, style);
        }
    }
    plim_text_heading(out, "Next", style);
    plim_buf_text(out, "  for an issue tracker: plimsoll incident --format markdown ");
    plain(out, b->path);
    if (b->snapshot != NULL) {
        plim_buf_text(out, "\n  look closer:          plimsoll diagnose ");
        plain(out, b->path);
    }
    plim_buf_text(out, b->redacted ? "\n"
                                   : "\n  private things are still in it: look before you share\n");
}

void plim_text_incidents(struct plim_buf *out, const struct plim_incident_list *list,
                         const struct plim_text_style *style)
{
    (void)style;
    plim_vec_foreach (b, &list->bundles) {
        plim_buf_printf(out, "%-20.20s  %-7.7s  ", b->time, b->kind);
        verdict_words(out, b);
        plim_buf_text(out, "  ");
        plain(out, b->path);
        plim_buf_char(out, '\n');
    }
    if (list->bundles.n == 0) {
        plim_buf_printf(out, "no incidents in %s\n", list->dir);
    }
    if (list->unfinished > 0) {
        plim_buf_printf(out, "%llu not finished: plimsoll incident --finish %s\n",
                        (unsigned long long)list->unfinished, list->dir);
    }
    if (list->unreadable > 0) {
        plim_buf_printf(out, "%llu cannot be read\n", (unsigned long long)list->unreadable);
    }
}

void plim_json_incidents(struct plim_jsonw *w, const struct plim_incident_list *list)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.incidents/1");
    plim_jsonw_kv_text(w, "folder", list->dir);
    plim_jsonw_kv_u64(w, "unfinished", list->unfinished);
    plim_jsonw_kv_u64(w, "unreadable", list->unreadable);
    plim_jsonw_key(w, "incidents");
    plim_jsonw_array(w);
    plim_vec_foreach (b, &list->bundles) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "path", b->path);
        plim_jsonw_kv_text(w, "id", b->id);
        plim_jsonw_kv_text(w, "kind", b->kind);
        plim_jsonw_kv_u64(w, "time_ns", b->time_ns);
        if (b->uptime_ns > 0) {
            plim_jsonw_kv_u64(w, "uptime_ns", b->uptime_ns);
        }
        plim_jsonw_kv_text(w, "class", b->cls);
        plim_jsonw_kv_text(w, "subclass", b->subclass[0] != '\0' ? b->subclass : NULL);
        plim_jsonw_kv_real(w, "confidence", b->confidence);
        plim_jsonw_kv_text(w, "summary", b->summary);
        if (b->pid > 0) {
            plim_jsonw_kv_i64(w, "pid", b->pid);
        }
        plim_jsonw_kv_bool(w, "report", b->snapshot || b->trace);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

/* ---- reading a folder ---- */

static enum plim_status add_incident(const char *path, struct plim_arena *arena,
                                     struct plim_incident_list *list, struct plim_err *err)
{
    struct plim_bundle bundle;
    if (plim_bundle_open(path, arena, &bundle, NULL) != PLIM_OK) {
        list->unreadable++;
        return PLIM_OK;
    }
    return plim_vec_push(&list->bundles, err, bundle);
}

static enum plim_status add_named(const struct plim_names *names, struct plim_arena *arena,
                                  struct plim_incident_list *list, struct plim_err *err)
{
    for (size_t i = 0; i < names->list.n; i++) {
        const char *path = plim_arena_sayf(arena, "%s/%s", list->dir, names->list.items[i]);
        size_t n = strlen(path), k = strlen(PLIM_PART_SUFFIX);
        if (n > k && strcmp(path + n - k, PLIM_PART_SUFFIX) == 0) {
            list->unfinished++;
        } else {
            PLIM_TRY(add_incident(path, arena, list, err));
        }
    }
    return PLIM_OK;
}

enum plim_status plim_incident_list_read(const char *dir, struct plim_arena *arena,
                                         struct plim_incident_list *out, struct plim_err *err)
{
    struct plim_names names = {0}, drops = {0};
    *out = (struct plim_incident_list){.dir = dir};
    enum plim_status st = plim__folder_names(dir, PLIM_INCIDENT_PREFIX, arena, &names, err);
    st = st == PLIM_OK ? plim__folder_names(dir, PLIM_DROP_PREFIX, arena, &drops, err) : st;
    out->unfinished = drops.list.n;
    st = st == PLIM_OK ? add_named(&names, arena, out, err) : st;
    plim_vec_fini(&names.list);
    plim_vec_fini(&drops.list);
    if (st != PLIM_OK) {
        plim_incident_list_fini(out);
    }
    return st;
}

void plim_incident_list_fini(struct plim_incident_list *list)
{
    plim_vec_foreach (bundle, &list->bundles) {
        plim_bundle_fini(bundle);
    }
    plim_vec_fini(&list->bundles);
}
