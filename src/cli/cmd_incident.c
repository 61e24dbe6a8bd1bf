/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll incident [INCIDENT|FOLDER]: show, list, finish or pack what a failure left behind. */

#include "cli/verbs.h"
#include "incident/archive.h"
#include "incident/folder.h"
#include "report/incident.h"

#include <errno.h>
#include <sys/stat.h>

#define DIAGNOSIS_BYTES (UINT64_C(64) << 20)

static enum plim_status show(struct plim_cli *cli, const struct plim_opts_incident *opts,
                             const char *path, struct plim_err *err)
{
    struct plim_bundle bundle;
    struct plim_str text;
    PLIM_TRY(plim_bundle_open(path, &cli->arena, &bundle, err));
    enum plim_status st = PLIM_OK;
    if (plim_cli_is(opts->format, "json")) {
        plim_buf_add(&cli->out, bundle.manifest);
    } else if (plim_cli_is(opts->format, "markdown")) {
        st = plim_bundle_text(path, "diagnosis.md", DIAGNOSIS_BYTES, &cli->arena, &text, err);
        if (st == PLIM_OK) {
            plim_buf_add(&cli->out, text);
        }
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_incident(&cli->out, &bundle, &style);
    }
    plim_bundle_fini(&bundle);
    return st;
}

/* ---- lists ---- */

static enum plim_status list_folder(struct plim_cli *cli, const struct plim_opts_incident *opts,
                                    const char *dir, struct plim_err *err)
{
    struct plim_incident_list list = {0};
    enum plim_status st = plim_incident_list_read(dir, &cli->arena, &list, err);
    if (st == PLIM_OK && plim_cli_is(opts->format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_incidents(&w, &list);
    } else if (st == PLIM_OK) {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_incidents(&cli->out, &list, &style);
    }
    plim_incident_list_fini(&list);
    return st;
}

/* ---- making ---- */

static enum plim_status finish(struct plim_cli *cli, const struct plim_opts_incident *opts,
                               const char *dir, struct plim_err *err)
{
    struct plim_incident_options options = {
        .dir = dir,
        .keep_private = opts->keep_private,
        .pack = opts->pack,
        .max_count = opts->max_incidents.value,
        .max_bytes = opts->max_bytes.value,
    };
    struct plim_incident_paths paths = {0};
    enum plim_status st = plim_incident_finish(&options, &cli->arena, &paths, err);
    plim_vec_foreach (path, &paths.list) {
        plim_buf_printf(&cli->out, "%s\n", *path);
    }
    plim_vec_fini(&paths.list);
    return st;
}

static enum plim_status pack(struct plim_cli *cli, const char *path, struct plim_err *err)
{
    struct plim_bundle bundle;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    const char *folder = plim_arena_sayf(&cli->arena, "%.*s", (int)n, path);
    const char *slash = strrchr(folder, '/');
    const char *file = plim_arena_sayf(&cli->arena, "%s" PLIM_PACK_SUFFIX, folder);
    PLIM_TRY(plim_bundle_open(folder, &cli->arena, &bundle, err));
    bool packed = bundle.packed;
    plim_bundle_fini(&bundle);
    if (packed) {
        return plim__fail(err, PLIM_E_USAGE, "'%.150s' is packed already", path);
    }
    PLIM_TRY(plim_archive_write(folder, slash != NULL ? slash + 1 : folder, file, err));
    plim_buf_printf(&cli->out, "%s\n", file);
    return PLIM_OK;
}

/* A file that cannot be read as an incident: a pack that is damaged, or something else. */
static enum plim_status not_one(struct plim_cli *cli, const struct plim_opts_incident *opts,
                                const char *path, struct plim_err *err)
{
    if (plim_ends_with(path, PLIM_PACK_SUFFIX)) {
        enum plim_status st = show(cli, opts, path, err);
        if (st != PLIM_OK && !err->where[0]) {
            plim__err_where(err, "%s", path);
        }
        return st;
    }
    enum plim_status st = plim__fail(err, PLIM_E_DATA, "'%.150s' is no incident", path);
    plim__err_hint(err,
                   "an incident is a folder with an incident.json in it, or the " PLIM_PACK_SUFFIX
                   " that --pack makes of one");
    return st;
}

enum plim_status plim_cmd_incident(struct plim_cli *cli, const struct plim_opts_incident *opts,
                                   struct plim_err *err)
{
    const char *path = cli->n_args > 0 ? cli->args[0] : plim_incident_folder(NULL);
    struct stat info;
    if (opts->finish) {
        return finish(cli, opts, path, err);
    }
    if (opts->pack) {
        return pack(cli, path, err);
    }
    if (plim_bundle_is(path)) {
        return show(cli, opts, path, err);
    }
    bool there = stat(path, &info) == 0;
    if (cli->n_args > 0 && !there) {
        return plim__fail_errno(err, PLIM_E_NOINPUT, errno, "cannot open '%.150s'", path);
    }
    return there && !S_ISDIR(info.st_mode) ? not_one(cli, opts, path, err)
                                           : list_folder(cli, opts, path, err);
}
